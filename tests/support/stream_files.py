"""The same table in every format, and streams read whole: for the tests of `seqmed.streams`."""

from __future__ import annotations

import csv
import gzip
import io
import json

import numpy as np
import pyarrow as pa
from pyarrow import feather, ipc, parquet

from seqmed.streams import Fault, LabelColumn, Stream
from seqmed.tables.cells import NOT_A_NUMBER, NOT_FINITE, NUMBER
from seqmed.tables.messages import shown

TEXTS = ("csv", "csv.gz", "tsv", "jsonl", "jsonl.gz")
BINARIES = ("parquet", "feather", "arrow")
FORMATS = TEXTS + BINARIES
# Larger numbers are bad cells of `NumberCheck`.
LARGEST = 1e70


def make_columns(n=12, seed=0):
    """Three features and labels 0, 1, 2 of which about half are missing, as lists by name."""
    generator = np.random.default_rng(seed)
    columns = {f"x{place}": generator.normal(size=n).tolist() for place in range(3)}
    labels = generator.integers(0, 3, n).tolist()
    columns["y"] = [label if generator.random() < 0.5 else None for label in labels]
    return columns


def rows_of(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def as_csv(columns, delimiter=",", header=True):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    if header:
        writer.writerow(columns)
    writer.writerows([row.values() for row in rows_of(columns)])
    return text.getvalue().encode()


def as_bytes(columns, kind, start=0):
    """The rows from ``start`` as a text; with a header if that is the first."""
    part = {name: column[start:] for name, column in columns.items()}
    kind = kind.removesuffix(".gz")
    if kind == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows_of(part)).encode()
    return as_csv(part, "\t" if kind == "tsv" else ",", header=start == 0)


def write(path, columns, chunk=5):
    """Write a table in the format that the name of the file says; binary ones in small chunks."""
    kind = path.name.split(".", 1)[1]
    table = pa.table(columns)
    if kind in TEXTS:
        data = as_bytes(columns, kind)
        path.write_bytes(gzip.compress(data) if kind.endswith(".gz") else data)
    elif kind == "parquet":
        parquet.write_table(table, path, row_group_size=chunk)
    elif kind == "feather":
        feather.write_feather(table, path, chunksize=chunk)
    else:
        with ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=chunk)
    return path


class NumberCheck:
    """A check as an encoder of numbers would make it: chooses numeric columns, refuses other cells.

    ``features`` are the columns; None to choose those with numbers in more than half of the rows of
    the first batch.
    """

    def __init__(self, features=None, batch_by=None):
        self.features = None if features is None else tuple(features)
        self.batch_by = batch_by
        self.decided = []

    def needed(self):
        return self.features

    def known(self):
        return [name for table in self.decided for name in table.column_names]

    def used(self):
        return self.needed()

    def decide(self, table):
        self.decided.append(table)
        chosen = []
        for name in table.column_names:
            cells = [cell for cell in table.column(name).to_pylist() if cell is not None]
            found = [cell for cell in cells if number(cell) is not None]
            if 2 * len(found) > len(cells) and name != self.batch_by:
                chosen.append(name)
        self.features = tuple(chosen)

    def checked(self, table):
        faults = {}
        for name in table.column_names:
            for row, cell in enumerate(table.column(name).to_pylist()):
                value = 0.0 if cell is None else number(cell)
                if value is None:
                    faults.setdefault(row, Fault(NOT_A_NUMBER, name, shown(cell)))
                elif abs(value) > LARGEST:
                    faults.setdefault(row, Fault(NOT_FINITE, name, shown(cell)))
        return table, faults


def number(cell):
    """A cell as a number, NaN if it is missing; None if it is neither."""
    if cell is None:
        return np.nan
    if isinstance(cell, str):
        word = cell.strip()
        if word in ("", "NA", "NaN"):
            return np.nan
        if word.lower() in ("true", "false"):
            return float(word.lower() == "true")
        return float(word) if NUMBER.fullmatch(word) else None
    return float(cell) if isinstance(cell, int | float) else None


class Read:
    """A batch, and the label column and the check after it."""

    def __init__(self, batch, stream, check):
        self.batch, self.label, self.check = batch, stream.label, check

    def __getattr__(self, name):
        return getattr(self.batch, name)

    @property
    def X(self):
        """The columns as numbers, (n, p)."""
        table = self.batch.table
        columns = [[number(cell) for cell in column.to_pylist()] for column in table.columns]
        return np.array(columns, dtype=np.float64).T.reshape(table.num_rows, len(columns))


def open_stream(paths, label="y", check=None, features=None, label_type=None, **options):
    """A stream of numeric columns, and its check."""
    unlabeled = options.pop("unlabeled", None)
    if isinstance(label, str):
        label = LabelColumn(label, unlabeled, label_type)
    check = check or NumberCheck(features, options.get("batch_by"))
    return Stream(paths, label=label, check=check, **options), check


def read(paths, label="y", **options):
    """All batches of a stream, and the stream."""
    stream, check = open_stream(paths, label, **options)
    batches = [Read(batch, stream, check) for batch in stream]
    stream.check = check
    return batches, stream


def joined(batches):
    """The rows of all batches: numbers, labels, and where they come from."""
    if not batches:
        return np.zeros((0, 0)), [], [], []
    X = np.vstack([batch.X for batch in batches])
    y = [label for batch in batches if batch.y is not None for label in batch.y]
    files = [int(place) for batch in batches for place in batch.file]
    rows = [int(number) for batch in batches for number in batch.row]
    return X, y, files, rows


def same_rows(batches, expected):
    """Whether batches have the rows of others, bit by bit, and the same borders."""
    found, wanted = joined(batches), joined(expected)
    sizes = [batch.row.size for batch in batches] == [batch.row.size for batch in expected]
    return sizes and found[0].tobytes() == wanted[0].tobytes() and found[1:] == wanted[1:]
