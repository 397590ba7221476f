"""Arguments and options that several commands have."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """Formats of input."""

    csv = "csv"
    tsv = "tsv"
    jsonl = "jsonl"
    parquet = "parquet"
    feather = "feather"
    npz = "npz"


class OutputFormat(StrEnum):
    """Formats of output."""

    csv = "csv"
    tsv = "tsv"
    jsonl = "jsonl"
    parquet = "parquet"


class OnError(StrEnum):
    """What to do about a bad row."""

    stop = "stop"
    skip = "skip"


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The model file.")]
Data = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA...",
        help="CSV, TSV, JSON lines, Parquet, Feather or .npz files, folders of them, or - for "
        "standard input.",
    ),
]
InputFormat = Annotated[
    Format | None, typer.Option("--format", help="Format of DATA, where its name does not tell.")
]
BadRows = Annotated[
    OnError, typer.Option("--on-error", help="Stop at a bad row, or skip it and count it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and every warning.")]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="OUT", help="Where to write; - is standard output."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an output that exists.")]
To = Annotated[
    OutputFormat | None,
    typer.Option(help="Format of the output (default: by the name of OUT, else csv)."),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMNS", help="Columns of DATA to repeat in the output."),
]

STANDARD_OUTPUT = Path("-")


def name_of(choice: StrEnum | None) -> str | None:
    """Return the name of a choice as a plain string."""
    return None if choice is None else choice.value


def column_names(values: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns named by an option: it may be repeated, and each may name several.

    Names stand between commas; one that has a comma in it stands in quotes.
    """
    rows = csv.reader(values or (), skipinitialspace=True)
    return tuple(name for row in rows for name in row if name)
