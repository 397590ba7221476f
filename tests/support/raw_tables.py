"""Raw tables with columns of all kinds, in every storage."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

WORDS = ("free", "prize", "lunch", "today", "call", "now", "see", "you", "größe", "naïve")


def mixed_rows(n=120, seed=0):
    """Rows, as dictionaries of typed values, with a column of every kind and missing cells."""
    generator = np.random.default_rng(seed)
    start = dt.datetime(2024, 1, 1)

    def maybe(value):
        return None if generator.random() < 0.15 else value

    return [
        {
            "whole": maybe(int(generator.integers(-5, 40))),
            "real": maybe(round(float(generator.normal()), 3)),
            "flag": maybe(bool(generator.integers(2))),
            "colour": maybe(str(generator.choice(["red", "blue", "gray ", "Grün", "1", "2.50"]))),
            "code": maybe(f"k{generator.integers(200)}"),
            "when": maybe(start + dt.timedelta(minutes=int(generator.integers(10**6)))),
            "note": " ".join(generator.choice(WORDS, size=6)) + f" {generator.integers(10**6)}",
            "id": 10 * place + int(generator.integers(10)),
        }
        for place in range(n)
    ]


def as_strings(rows):
    """The same cells as strings, the missing ones as a mark."""

    def text(value):
        if value is None:
            return "NA"
        if isinstance(value, dt.datetime):
            return value.isoformat(sep=" ")
        return str(value)

    return [{name: text(value) for name, value in row.items()} for row in rows]


def columns(rows):
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def chunked(table):
    """The table in chunks of different sizes, one of them empty."""
    cut = table.num_rows // 3
    return pa.concat_tables([table.slice(0, cut), table.slice(0, 0), table.slice(cut)])


def dictionary_encoded(table):
    arrays = [column.dictionary_encode() if column.type == pa.string() else column
              for column in table.columns]  # fmt: skip
    return pa.table(dict(zip(table.column_names, arrays, strict=True)))


def cast_strings(table, kind):
    arrays = [column.cast(kind) if column.type == pa.string() else column
              for column in table.columns]  # fmt: skip
    return pa.table(dict(zip(table.column_names, arrays, strict=True)))


STORAGES = {
    "dicts": lambda rows: rows,
    "columns": columns,
    "string dicts": as_strings,
    "pandas": lambda rows: pd.DataFrame(rows),
    "pandas nullable": lambda rows: pd.DataFrame(rows).convert_dtypes(),
    "pandas objects": lambda rows: pd.DataFrame(rows, dtype=object),
    "pandas strings": lambda rows: pd.DataFrame(as_strings(rows)),
    "polars": lambda rows: pl.DataFrame(rows),
    "polars strings": lambda rows: pl.DataFrame(as_strings(rows)),
    "arrow": lambda rows: pa.table(columns(rows)),
    "arrow strings": lambda rows: pa.table(columns(as_strings(rows))),
    "arrow large strings": lambda rows: cast_strings(
        pa.table(columns(as_strings(rows))), pa.large_string()
    ),
    "arrow string views": lambda rows: cast_strings(
        pa.table(columns(as_strings(rows))), pa.string_view()
    ),
    "arrow binary": lambda rows: cast_strings(pa.table(columns(as_strings(rows))), pa.binary()),
    "arrow chunks": lambda rows: chunked(pa.table(columns(rows))),
    "record batch": lambda rows: pa.table(columns(rows)).combine_chunks().to_batches()[0],
}
# Dictionaries of strings are declared categories, if the encoder is fitted to them.
ALL_STORAGES = {
    **STORAGES,
    "arrow dictionaries": lambda rows: dictionary_encoded(pa.table(columns(as_strings(rows)))),
    "arrow dictionaries in chunks": lambda rows: chunked(
        dictionary_encoded(pa.table(columns(as_strings(rows))))
    ),
    "pandas categories": lambda rows: pd.DataFrame(as_strings(rows)).astype("category"),
}
