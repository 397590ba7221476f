"""Arguments and options that several commands have."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from seqmed import __version__

Format = Literal["csv", "tsv", "jsonl", "parquet", "feather", "npz"]
OutputFormat = Literal["csv", "tsv", "jsonl", "parquet"]
OnError = Literal["stop", "skip"]

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The model file.")]
Data = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA",
        help="CSV, TSV, JSON lines, Parquet, Feather or .npz files, folders of them, or - for "
        "standard input.",
    ),
]
InputFormat = Annotated[
    Format | None,
    typer.Option("--format", help="Format of DATA (default: inferred from the file names)."),
]
BadRows = Annotated[
    OnError, typer.Option("--on-error", help="Stop at a bad row, or skip and count it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text and tables.")]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Print more: what was inferred, and a line per batch."),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print no progress and no messages except warnings."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and all warnings.")]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="OUT", help="Output file, or - for standard output."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing output file.")]
To = Annotated[
    OutputFormat | None,
    typer.Option(help="Format of the output (default: inferred from the name of OUT, else csv)."),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMNS", help="Columns of DATA to copy to the output, separated by commas."
    ),
]

Id = Annotated[
    str | None,
    typer.Option("--id", metavar="COLUMN", help="Column that identifies a row; it is copied."),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        metavar="P",
        help="With two classes, predict the positive class where its probability is at least P.",
    ),
]
Positive = Annotated[
    str | None,
    typer.Option(metavar="CLASS", help="The positive of two classes (default: the second)."),
]
Cost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRUE:PREDICTED=NUMBER",
        help="Cost of predicting PREDICTED for a row of class TRUE; may be repeated. Other errors "
        "cost 1. The prediction has the smallest expected cost.",
    ),
]

STANDARD_OUTPUT = Path("-")


def show_version(wanted: bool) -> None:
    """Print the version and exit, if wanted."""
    if wanted:
        typer.echo(f"seqmed {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=show_version, is_eager=True, help="Show the version and exit."
    ),
]


def before_commands(version: Version = False) -> None:
    """Accept the options that precede the name of a command."""


def column_names(values: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns named by an option, which may be repeated.

    Names are separated by commas; a name that contains a comma is quoted.
    """
    rows = csv.reader(values or (), skipinitialspace=True)
    return tuple(name for row in rows for name in row if name)


def kept_columns(id_column: str | None, keep: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns that --id and --keep copy to the output, each once."""
    names = [*([] if id_column is None else [id_column]), *column_names(keep)]
    return tuple(dict.fromkeys(names))


def with_options(
    command: Callable[..., None],
    added: Mapping[str, tuple[Any, Any]],
    before: str | None = None,
) -> Callable[..., None]:
    """Return a command with additional options, which are passed as keyword arguments.

    Parameters
    ----------
    command : a command.
    added : annotated type and default of each option, by name.
    before : the option before which they appear in the help; None to put them last.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in added.items()
    ]
    place = [each.name for each in own].index(before) if before else len(own)
    parameters = [
        each.replace(kind=each.KEYWORD_ONLY) for each in (*own[:place], *more, *own[place:])
    ]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command
