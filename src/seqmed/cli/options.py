"""Arguments and options that several commands have."""

from __future__ import annotations

import csv
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from seqmed import __version__

if TYPE_CHECKING:
    from seqmed.streams import Dialect, Limits

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

reading = partial(typer.Option, rich_help_panel="Text files")
limit = partial(typer.Option, rich_help_panel="Limits", min=1, metavar="N")

Separator = Annotated[
    str | None,
    reading("--sep", metavar="CHAR", help="Character between fields (default: detected)."),
]
Decimal = Annotated[
    str | None, reading(metavar="CHAR", help="Decimal separator, . or , (default: detected).")
]
Thousands = Annotated[
    str | None, reading(metavar="CHAR", help="Thousands separator (default: detected).")
]
Encoding = Annotated[
    str | None, reading(metavar="NAME", help="Encoding, such as cp1252 (default: utf-8).")
]
MaxColumns = Annotated[int | None, limit(help="Largest number of columns (default: 100000).")]
MaxRowBytes = Annotated[int | None, limit(help="Largest size of a row (default: 16777216).")]
MaxCellBytes = Annotated[int | None, limit(help="Largest size of a cell (default: 1048576).")]
MaxExpansion = Annotated[
    int | None, limit(help="Largest expansion of compressed data, as a factor (default: 200).")
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


# Options of all commands that read DATA, with their default values.
READING: dict[str, tuple[Any, Any]] = {
    "file_format": (InputFormat, None),
    "on_error": (BadRows, "stop"),
    "sep": (Separator, None),
    "decimal": (Decimal, None),
    "thousands": (Thousands, None),
    "encoding": (Encoding, None),
    "max_columns": (MaxColumns, None),
    "max_row_bytes": (MaxRowBytes, None),
    "max_cell_bytes": (MaxCellBytes, None),
    "max_expansion": (MaxExpansion, None),
}


class Reading(NamedTuple):
    """How DATA is read, as chosen by options; see the parameters of `seqmed.streams.Stream`."""

    file_format: str | None
    on_error: str
    dialect: Dialect
    limits: Limits

    def arguments(self, dialect: Dialect | None = None) -> dict[str, Any]:
        """Return arguments for a `Stream`.

        ``dialect`` is that of the model, which the options override.
        """
        from seqmed.cli import terminal

        own = self.dialect if dialect is None else self.dialect.over(dialect)
        return {**self._asdict(), "dialect": own, "tell": terminal.tell}


def with_reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose argument ``reading`` is made from the options in `READING`."""
    if "reading" not in inspect.signature(command).parameters:
        return command

    @functools.wraps(command)
    def run(**given: Any) -> None:
        from seqmed.streams import Dialect, Limits

        chosen = {name: given.pop(name) for name in READING}
        sizes = {name: chosen[f"max_{name}"] for name in Limits.__dataclass_fields__}
        limits = Limits(**{name: size for name, size in sizes.items() if size is not None})
        dialect = Dialect(**{name: chosen[name] for name in Dialect.__dataclass_fields__})
        command(
            **given, reading=Reading(chosen["file_format"], chosen["on_error"], dialect, limits)
        )

    return with_options(run, READING, without="reading")


def with_options(
    command: Callable[..., None],
    added: Mapping[str, tuple[Any, Any]],
    before: str | None = None,
    without: str | None = None,
) -> Callable[..., None]:
    """Return a command with additional options, which are passed as keyword arguments.

    Parameters
    ----------
    command : a command.
    added : annotated type and default of each option, by name.
    before : the option before which they appear in the help; None to put them last.
    without : an argument of the command that is not an option.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [
        each
        for each in signature.parameters.values()
        if each.kind is not each.VAR_KEYWORD and each.name != without
    ]
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
