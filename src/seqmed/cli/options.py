"""Options that several commands have, and groups of options."""

from __future__ import annotations

import csv
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from seqmed import __version__
from seqmed.cli.terminal import Chosen, CommandError, keep_handlers, reported_errors, tell

if TYPE_CHECKING:
    from seqmed.selection.decisions import DecisionRule
    from seqmed.streams import Dialect

InputFormat = Literal["csv", "tsv", "jsonl", "parquet", "feather"]
OutputFormat = Literal["csv", "tsv", "jsonl", "parquet"]

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The model file.")]
FILES = "CSV, TSV, JSON lines, Parquet or Feather files, folders of them"
Data = Annotated[
    list[Path], typer.Argument(metavar="DATA", help=f"{FILES}, or - for standard input.")
]
StoredData = Annotated[
    list[Path], typer.Argument(metavar="DATA", help=f"{FILES}. They are read again at every start.")
]
Json = Annotated[
    bool, typer.Option("--json", metavar="", help="Print JSON instead of text and tables.")
]
Device = Annotated[
    str,
    typer.Option(
        metavar="DEVICE",
        help="Where the graph is: cpu, or a device of torch such as cuda or cuda:1.",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", metavar="", help="Overwrite an existing output file.")
]

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="WHERE",
        help="Read the files with Dask, one task per file: local, local:N with N processes, or the "
        "address of a scheduler.",
    ),
]

STANDARD_OUTPUT = Path("-")
# Other spellings of true and false.
CHANGES = (str.title, str.upper)


def option(*flags: str, default: Any = None, **more: Any) -> Any:
    """Return a field of a group of options; see `with_option_groups`.

    Parameters
    ----------
    *flags : the option, by default the name of the field.
    default : its default value.
    **more : further arguments of `typer.Option`.
    """
    if default is False:
        more["metavar"] = ""  # a flag takes no value
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
    keep: list[str] | None = option(
        "--keep",
        "--id",
        metavar="COLUMNS",
        help="Columns of DATA to copy to the output, separated by commas.",
    )

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """The columns to copy, each once."""
        return tuple(dict.fromkeys(column_names(self.keep)))


@dataclass(frozen=True)
class MessageOptions:
    """The messages that a command prints."""

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
            "--version", metavar="", callback=show_version, is_eager=True, help="Show the version."
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
    Every command has `MessageOptions`. Errors are reported in one line, or with --debug in full.
    """
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(each.annotation):
            groups[each.name] = each.annotation
            parameters += options_of(each.annotation)
        else:
            parameters.append(each.replace(kind=each.KEYWORD_ONLY))
    parameters += options_of(MessageOptions)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        messages = take_group(MessageOptions, given)
        Chosen.quiet = messages.quiet
        keep_handlers()
        with reported_errors(messages.debug):
            made = {name: take_group(group, given) for name, group in groups.items()}
            command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


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
    return group(**{each.name: given.pop(each.name) for each in fields(group)})


# -- how DATA is read ------------------------------------------------------------------------------


texts = partial(option, rich_help_panel="Text files")


@dataclass(frozen=True)
class Reading:
    """How DATA is read; see the parameters of `seqmed.streams.Stream`."""

    file_format: InputFormat | None = option(
        "--format", help="Format of DATA (default: inferred from the file names)."
    )
    on_error: Literal["stop", "skip"] = option(
        "--on-error", default="stop", help="Stop at a bad row, or skip and count it."
    )
    sep: str | None = texts(
        "--sep", metavar="CHAR", help="Character between fields (default: detected)."
    )
    decimal: str | None = texts(
        metavar="CHAR", help="Decimal separator, . or , (default: detected)."
    )
    thousands: str | None = texts(metavar="CHAR", help="Thousands separator (default: detected).")
    encoding: str | None = texts(metavar="NAME", help="Encoding, such as cp1252 (default: utf-8).")

    def __post_init__(self) -> None:
        _ = self.dialect  # refuse wrong values

    @cached_property
    def dialect(self) -> Dialect:
        """How texts are written."""
        from seqmed.streams import Dialect

        return Dialect(self.sep, self.decimal, self.thousands, self.encoding)

    def arguments(self, dialect: Dialect | None = None) -> dict[str, Any]:
        """Return arguments for a `Stream`.

        ``dialect`` is that of the model, which the options override.
        """
        return {
            "file_format": self.file_format,
            "on_error": self.on_error,
            "dialect": self.dialect if dialect is None else self.dialect.over(dialect),
            "tell": tell,
        }


# -- decisions for a class -------------------------------------------------------------------------


@dataclass(frozen=True)
class DecisionOptions:
    """The rule of decision that --threshold, --positive and --cost describe."""

    threshold: float | None = option(
        min=0.0,
        max=1.0,
        metavar="P",
        help="With two classes, predict the positive class where its probability is at least P.",
    )
    positive: str | None = option(
        metavar="CLASS", help="The positive of two classes (default: the second)."
    )
    cost: list[str] | None = option(
        metavar="TRUE:PREDICTED=NUMBER",
        help="Cost of predicting PREDICTED for a row of class TRUE; may be repeated. Other "
        "errors cost 1. The prediction has the smallest expected cost.",
    )

    def rule(self, classes: Any, *, positive_alone: bool = False) -> DecisionRule:
        """Return the rule of decision; refuse one that the classes of the model do not allow.

        ``positive_alone`` tells whether --positive has a use without --threshold.
        """
        from seqmed.selection.decisions import DecisionRule, parse_costs, positive_place
        from seqmed.tables.cells import cell_text

        if self.positive is not None and self.threshold is None and not positive_alone:
            raise CommandError(
                "--positive is used only with --threshold: add it, or leave both out."
            )
        names = {str(cell_text(label)): label for label in classes.tolist()}
        if classes.dtype.kind == "b":  # in any spelling of a file
            names |= {change(name): names[name] for name in [*names] for change in CHANGES}
        positive = None if self.positive is None else names.get(self.positive, self.positive)
        costs = parse_costs(self.cost or (), names)
        rule = DecisionRule(self.threshold, positive, costs)
        if self.threshold is not None or positive is not None:
            positive_place(classes, positive)  # refuses other than two classes
        return rule
