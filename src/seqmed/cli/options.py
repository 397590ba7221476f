"""Options that several commands have, and groups of options."""

from __future__ import annotations

import csv
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from seqmed import __version__

OutputFormat = Literal["csv", "tsv", "jsonl", "parquet"]

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The model file.")]
Data = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA",
        help="CSV, TSV, JSON lines, Parquet or Feather files, folders of them, or - for "
        "standard input.",
    ),
]
StoredData = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA",
        help="CSV, TSV, JSON lines, Parquet, Feather or .npz files, or folders of them. They are "
        "read again at every start.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text and tables.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing output file.")]

STANDARD_OUTPUT = Path("-")


def option(*flags: str, default: Any = None, **more: Any) -> Any:
    """Return a field of a group of options; see `with_option_groups`.

    Parameters
    ----------
    *flags : the option, by default the name of the field.
    default : its default value.
    **more : further arguments of `typer.Option`.
    """
    return field(default=default, metadata={"option": typer.Option(*flags, **more)})


@dataclass(frozen=True)
class OutputOptions:
    """The table that a command writes."""

    path: Path = option(
        "--output",
        "-o",
        default=STANDARD_OUTPUT,
        metavar="OUT",
        help="Output file, or - for standard output.",
    )
    to: OutputFormat | None = option(
        help="Format of the output (default: inferred from the name of OUT, else csv)."
    )
    force: bool = option("--force", default=False, help="Overwrite an existing output file.")
    id_column: str | None = option(
        "--id", metavar="COLUMN", help="Column that identifies a row; it is copied."
    )
    keep: list[str] | None = option(
        metavar="COLUMNS", help="Columns of DATA to copy to the output, separated by commas."
    )

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """The columns that --id and --keep copy to the output, each once."""
        names = [*([] if self.id_column is None else [self.id_column]), *column_names(self.keep)]
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class MessageOptions:
    """The messages that a command prints."""

    verbose: bool = option(
        "--verbose",
        "-v",
        default=False,
        help="Print more: what was inferred, and a line per batch.",
    )
    quiet: bool = option(
        "--quiet", "-q", default=False, help="Print no progress and no messages except warnings."
    )
    debug: bool = option("--debug", default=False, help="Show tracebacks and all warnings.")


def show_version(wanted: bool) -> None:
    """Print the version and exit, if wanted."""
    if wanted:
        typer.echo(f"seqmed {__version__}")
        raise typer.Exit


def before_commands(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Accept the options that precede the name of a command."""


def column_names(values: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns named by an option, which may be repeated.

    Names are separated by commas; a name that contains a comma is quoted.
    """
    rows = csv.reader(values or (), skipinitialspace=True)
    return tuple(name for row in rows for name in row if name)


# -- groups of options -----------------------------------------------------------------------------


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of its groups instead of the groups.

    A group is an argument whose type is a dataclass. The fields of the dataclass are the options.
    """
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(each.annotation):
            groups[each.name] = each.annotation
            parameters += options_of(each.annotation)
        else:
            parameters.append(each.replace(kind=each.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {name: take_group(group, given) for name, group in groups.items()}
        command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def with_options(
    command: Callable[..., None], added: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Return a command with additional options, after its own."""
    own = inspect.signature(command).parameters.values()
    command.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    return command


def options_of(group: Any) -> list[inspect.Parameter]:
    """Return the options of a group as parameters of a command."""
    kinds = get_type_hints(group)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=Annotated[kinds[each.name], each.metadata["option"]],
        )
        for each in fields(group)
    ]


def take_group(group: Any, given: dict[str, Any]) -> Any:
    """Remove the options of a group from the arguments of a command, and return the group."""
    names = [each.name for each in fields(group) if each.name in given]
    return group(**{name: given.pop(name) for name in names})
