"""A public table of mixed columns, and the ways in which such tables are dirty.

The table is that of 406 cars in the package vega_datasets: numbers with missing cells, names, a
date and the origin as class. An id and a text made from the other cells are added.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import ipc
from vega_datasets import data

LABEL = "Origin"
# Rows that are learned, learned after a resume, and predicted.
PARTS = {"first": slice(0, 200), "second": slice(200, 300), "holdout": slice(300, 406)}


def cars() -> pd.DataFrame:
    """Return the cars in a random order."""
    frame = pd.DataFrame(json.loads(data.cars.raw()))
    frame["Year"] = pd.to_datetime(frame["Year"])
    frame = frame.sample(frac=1.0, random_state=0, ignore_index=True)
    frame.insert(0, "plate", [f"K-{number:04d}" for number in range(len(frame))])
    frame["remark"] = [
        f"{row.Name}, model of {row.Year:%Y} with {row.Cylinders} cylinders"
        for row in frame.itertuples()
    ]
    return frame


def hidden(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table without the labels of three fifths of the rows."""
    shown = np.random.default_rng(1).random(len(frame)) < 0.4
    return frame.assign(**{LABEL: frame[LABEL].where(shown)})


class Dirt(NamedTuple):
    """A way in which a table is dirty.

    Parameters
    ----------
    write : writes a table; gets the table, the path and the name of its part.
    suffix : of the file.
    change : changes the cells before they are written.
    remedy : options of `seqmed learn` that an error names; none if the table is learned as it is.
    """

    write: Callable[[pd.DataFrame, Path, str], None]
    suffix: str = "csv"
    change: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame
    remedy: tuple[str, ...] = ()


def as_csv(**options: Any) -> Callable[[pd.DataFrame, Path, str], None]:
    """Return a function that writes a CSV with some options of pandas."""
    return lambda frame, path, part: frame.to_csv(path, **{"index": False, **options})


def with_thousands(frame: pd.DataFrame, path: Path, part: str) -> None:
    """Write 3504.5 as 3.504,5."""
    written = frame.copy()
    for name in ("Weight_in_lbs", "Displacement"):
        texts = [f"{1000.5 + value:,.1f}" for value in frame[name]]
        written[name] = [text.translate(str.maketrans(",.", ".,")) for text in texts]
    written.to_csv(path, index=False, sep=";", decimal=",")


def with_excel_line(frame: pd.DataFrame, path: Path, part: str) -> None:
    """Write the separator on a first line, as Excel does."""
    path.write_text("sep=;\n" + frame.to_csv(index=False, sep=";"))


def with_spaces(frame: pd.DataFrame, path: Path, part: str) -> None:
    """Write spaces around every cell."""
    texts = frame.astype(object).where(frame.notna(), "").map(lambda cell: f" {cell} ")
    texts.to_csv(path, index=False)


def reordered(frame: pd.DataFrame, path: Path, part: str) -> None:
    """Write the columns of later files in another order."""
    names = list(frame.columns) if part == "first" else sorted(frame.columns, reverse=True)
    frame[names].to_csv(path, index=False)


def with_more_columns(frame: pd.DataFrame, path: Path, part: str) -> None:
    """Write more columns to later files."""
    more = {} if part == "first" else {"added": 1.5, "later": "x"}
    frame.assign(**more).to_csv(path, index=False)


def without_labels(frame: pd.DataFrame, path: Path, part: str) -> None:
    """Write the second file without the column of labels."""
    (frame.drop(columns=LABEL) if part == "second" else frame).to_csv(path, index=False)


def as_arrow(frame: pd.DataFrame, path: Path, part: str) -> None:
    """Write an Arrow stream."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


def as_json_lines(frame: pd.DataFrame, path: Path, part: str) -> None:
    """Write JSON lines; missing cells are left out of some rows and null in others."""
    dates = frame.assign(Year=frame["Year"].dt.strftime("%Y-%m-%d"))
    dates.to_json(path, orient="records", lines=True)


def with_words(column: str, word: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a function that writes a word in the missing cells of a column."""
    return lambda frame: frame.assign(
        **{column: frame[column].astype(object).where(frame[column].notna(), word)}
    )


def some(frame: pd.DataFrame, column: str, word: str) -> pd.DataFrame:
    """Return a table with a word in every fortieth cell of a column."""
    cells = frame[column].astype(object).copy()
    cells[::40] = word
    return frame.assign(**{column: cells})


def dated(form: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a function that writes the dates in a format."""
    return lambda frame: frame.assign(Year=frame["Year"].dt.strftime(form))


def split_cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with line ends, quotes and separators within texts."""
    return frame.assign(remark=[f'{text}\r\n"second", line; of\ttext' for text in frame["remark"]])


def new_levels(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with a category whose levels are new in later rows."""
    return frame.assign(dealer=[f"dealer {number // 90}" for number in range(len(frame))])


DIRT = {
    "plain": Dirt(as_csv()),
    "semicolons": Dirt(as_csv(sep=";")),
    "tabs": Dirt(as_csv(sep="\t")),
    "pipes": Dirt(as_csv(sep="|")),
    "decimal commas": Dirt(as_csv(sep=";", decimal=",")),
    "quoted decimal commas": Dirt(as_csv(decimal=",", quoting=csv.QUOTE_ALL)),
    "thousands": Dirt(with_thousands),
    "byte order mark": Dirt(as_csv(encoding="utf-8-sig")),
    "utf-16": Dirt(as_csv(encoding="utf-16")),
    "another encoding": Dirt(
        as_csv(encoding="cp1252"),
        change=lambda frame: frame.assign(Name=frame["Name"].str.replace("e", "é")),
        remedy=("--encoding", "cp1252"),
    ),
    "line ends of Windows": Dirt(as_csv(lineterminator="\r\n")),
    "everything quoted": Dirt(as_csv(quoting=csv.QUOTE_ALL)),
    "line ends and quotes in cells": Dirt(as_csv(), change=split_cells),
    "Excel's first line": Dirt(with_excel_line),
    "spaces": Dirt(with_spaces),
    "question marks": Dirt(as_csv(), change=with_words("Horsepower", "?")),
    "words for missing cells": Dirt(
        as_csv(), change=with_words("Horsepower", "no data"), remedy=("--na", "no data")
    ),
    "words of R": Dirt(as_csv(na_rep="NA")),
    "mixed types": Dirt(
        as_csv(),
        change=lambda frame: some(frame, "Displacement", "unknown"),
        remedy=("--on-error", "skip"),
    ),
    "mixed categories": Dirt(
        as_csv(),
        change=lambda frame: some(frame, "Name", "17"),
    ),
    "new categories": Dirt(as_csv(), change=new_levels),
    "other columns first": Dirt(reordered),
    "more columns": Dirt(with_more_columns),
    "no labels in a file": Dirt(without_labels),
    "an empty column": Dirt(as_csv(), change=lambda frame: frame.assign(nothing=None)),
    "a constant column": Dirt(as_csv(), change=lambda frame: frame.assign(same="x")),
    "row numbers": Dirt(as_csv(index=True)),
    "German dates": Dirt(as_csv(), change=dated("%d.%m.%Y")),
    "American dates": Dirt(as_csv(), change=dated("%m/%d/%Y")),
    "dates with times": Dirt(as_csv(), change=dated("%Y-%m-%dT%H:%M:%SZ")),
    "yes and no": Dirt(
        as_csv(),
        change=lambda frame: frame.assign(
            heavy=np.where(frame["Weight_in_lbs"] > 3000, "yes", "no")
        ),
    ),
    "compressed": Dirt(as_csv(), suffix="csv.gz"),
    "JSON lines": Dirt(as_json_lines, suffix="jsonl"),
    "Parquet": Dirt(lambda frame, path, part: frame.to_parquet(path), suffix="parquet"),
    "Arrow": Dirt(as_arrow, suffix="arrow"),
}
