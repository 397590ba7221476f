"""Rows that can be labeled: a uniform sample of files of any size, in bounded memory.

Every row has a rank, a random number that depends on its file and its number only. The pool has the
rows of lowest rank. It is a uniform sample without replacement, and reading the files again gives
the same sample. The rows of lowest rank in the pool are reserved for random checks: they are never
chosen for another reason, so that they remain a uniform sample of the files.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from seqmed.labeling.log import RowKey
from seqmed.tables.cells import cell_text

# Largest number of rows in the pool, and of bytes of their cells.
LARGEST_POOL, LARGEST_BYTES = 20_000, 2**26
# Share of the pool that is reserved for random checks. It is the share of cards that are random
# checks, so that both kinds of rows last equally long.
CHECK_SHARE = 0.2
# Mean number of characters from which a column is shown as text.
TEXT_LENGTH = 40


class FileRows(NamedTuple):
    """Some rows of a file."""

    file: str  # a name that no other file has
    numbers: NDArray[np.int64]  # (n,) numbers of the rows in the file, from 1
    table: pa.Table  # (n rows) raw cells, with all columns of the file
    labeled: NDArray[np.bool_]  # (n,) mask of the rows that have a label in the file

    def take(self, chosen: NDArray[np.intp]) -> FileRows:
        """Return some rows by their indices."""
        table = self.table.take(pa.array(chosen))
        return FileRows(self.file, self.numbers[chosen], table, self.labeled[chosen])

    def row_keys(self) -> list[RowKey]:
        """Return the keys of the rows."""
        pairs = zip(self.numbers.tolist(), row_digests(self.table), strict=True)
        return [RowKey(self.file, number, digest) for number, digest in pairs]


class Pool:
    """Rows that can be labeled, with random access.

    The source has the rows of all files, in order, in pieces of bounded size. It may be read twice.
    Wanted rows, those of earlier labels, are found by their cells if they have moved, and keep
    their keys of the label log.

    Attributes
    ----------
    table : cells of all rows in the pool, wanted ones included.
    keys, places : rows in the order of the table, and the index of every row.
    where, at : file and number of every row now, and the row there.
    candidates : (m,) indices of rows that can be asked, in the order of their rank.
    reserve, free : the candidates that are random checks, and all others.
    """

    def __init__(self, source: Iterable[FileRows], wanted: Iterable[RowKey] = ()):
        wanted = set(wanted)
        spots = {(key.file, key.row) for key in wanted}
        sample, found = Sample(), []
        for rows in source:
            sample.add(rows)
            numbers = rows.numbers.tolist() if spots else []
            chosen = [n for n, number in enumerate(numbers) if (rows.file, number) in spots]
            if chosen:
                found.append(rows.take(np.array(chosen)))
        sample.shrink()
        keys = [key for rows in found for key in rows.row_keys()]
        if not wanted.issubset(keys):  # some rows have moved
            found = list(rows_of_cells(source, {key.digest for key in wanted}))
            keys = [key for rows in found for key in rows.row_keys()]
        known, sampled = wanted_keys(keys, wanted), set(sample.keys)
        beside = {key: n for n, key in enumerate(keys) if key in known and key not in sampled}
        others = joined_tables([rows.table for rows in found])
        others = others.take(pa.array(list(beside.values()), pa.int64()))
        self.table = joined_tables([*sample.parts, others])
        self.where = {known.get(key, key): (key.file, key.row) for key in [*sample.keys, *beside]}
        self.at = {where: key for key, where in self.where.items()}
        self.keys = list(self.where)
        self.places = {key: place for place, key in enumerate(self.keys)}
        self.candidates = np.argsort(sample.ranks, kind="stable")
        n_reserved = int(np.ceil(CHECK_SHARE * self.candidates.size))
        self.reserve, self.free = np.split(self.candidates, [n_reserved])
        self.text_columns = text_columns(self.table)
        names = "\n".join(repr(tuple(self.keys[place])) for place in self.candidates)
        self.fingerprint = hashlib.sha256(names.encode()).hexdigest()

    def take(self, places: Sequence[int] | NDArray[np.intp]) -> pa.Table:
        """Return rows as a table."""
        return self.table.take(pa.array(places, pa.int64()))

    def cells(self, key: RowKey, shown: Sequence[str] | None = None) -> dict[str, str]:
        """Return the cells of a row as texts by column name; empty cells are left out."""
        row = self.take([self.places[key]])
        names = row.column_names if shown is None else shown
        texts = {name: cell_text(row.column(name)[0].as_py()) for name in names}
        return {name: text for name, text in texts.items() if text is not None}


class Sample:
    """The rows of lowest rank so far, without those that have a label in their file."""

    def __init__(self) -> None:
        self._bound = np.inf  # ranks from here on are left out
        self.parts: list[pa.Table] = []  # cells of the rows
        self.keys: list[RowKey] = []
        self.ranks = np.zeros(0)

    def add(self, rows: FileRows) -> None:
        """Add rows, and drop rows of high rank if these are too many."""
        ranks = row_ranks(rows.file, rows.numbers)
        chosen = np.flatnonzero(~rows.labeled & (ranks < self._bound))
        if not chosen.size:
            return
        taken = rows.take(chosen)
        self.parts.append(taken.table)
        self.keys += taken.row_keys()
        self.ranks = np.concatenate([self.ranks, ranks[chosen]])
        n_bytes = sum(part.nbytes for part in self.parts)
        if len(self.keys) > 2 * LARGEST_POOL or n_bytes > 2 * LARGEST_BYTES:
            self.shrink()

    def shrink(self) -> None:
        """Keep the rows of lowest rank within both limits."""
        order = np.argsort(self.ranks, kind="stable")[:LARGEST_POOL]
        table = joined_tables(self.parts)
        most = LARGEST_BYTES * len(self.keys) // max(1, table.nbytes)  # of mean size
        order = order[: max(1, most)]
        if order.size < len(self.keys):
            self._bound = float(np.delete(self.ranks, order).min())
        kept = np.sort(order)
        self.parts = [table.take(pa.array(kept)).combine_chunks()]
        self.keys = [self.keys[place] for place in kept.tolist()]
        self.ranks = self.ranks[kept]


# -- rows of earlier labels ------------------------------------------------------------------------


def rows_of_cells(source: Iterable[FileRows], digests: Collection[str]) -> Iterator[FileRows]:
    """Yield the rows whose cells have one of some digests."""
    for rows in source:
        every = row_digests(rows.table)
        chosen = [place for place, digest in enumerate(every) if digest in digests]
        if chosen:
            yield rows.take(np.array(chosen))


def wanted_keys(keys: Sequence[RowKey], wanted: Collection[RowKey]) -> dict[RowKey, RowKey]:
    """Return the keys that rows of the files have in the label log, by those that they have now.

    Every row stands for one wanted row of the same cells: for itself if it is wanted, else for any.
    """
    found = {key: key for key in keys if key in wanted}
    left = defaultdict(list)
    for key in sorted(set(wanted) - found.keys(), reverse=True):
        left[key.digest].append(key)
    for key in keys:
        if key not in found and left[key.digest]:
            found[key] = left[key.digest].pop()
    return found


# -- cells -----------------------------------------------------------------------------------------


def row_digests(table: pa.Table) -> list[str]:
    """Return a digest of the cells of every row.

    It does not depend on the order of the columns, nor on how a value is stored. Empty cells do not
    count.
    """
    names, found = sorted(table.column_names), []
    for row in zip(*(cell_texts(table.column(name)) for name in names), strict=True):
        filled = {name: text for name, text in zip(names, row, strict=True) if text is not None}
        text = json.dumps([*filled]) + json.dumps([*filled.values()])
        found.append(f"r{hashlib.sha256(text.encode()).hexdigest()[:16]}")
    return found


def cell_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return the cells of a column as texts, None for empty cells; see `cell_text`."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.string())
    return [cell_text(value) for value in column.to_pylist()]


def row_ranks(file: str, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return random numbers (n,) in [0, 1) that depend on the file and the numbers of rows."""
    start = hashlib.sha256(f"0\x00{file}".encode()).digest()
    values = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    values += np.frombuffer(start[:8], np.uint64)[0]
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    values ^= values >> np.uint64(31)
    ranks: NDArray[np.float64] = (values >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return ranks


def joined_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Return tables below each other; columns that one of them lacks are empty there."""
    if not tables:
        return pa.table({})
    try:
        return pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except (pa.ArrowTypeError, pa.ArrowInvalid):  # files store a column in different types
        columns = [
            [pa.array(cell_texts(c), pa.string()) for c in table.columns] for table in tables
        ]
        texts = [pa.table(c, table.column_names) for c, table in zip(columns, tables, strict=True)]
        return pa.concat_tables(texts, promote_options="default").combine_chunks()


def text_columns(table: pa.Table) -> tuple[str, ...]:
    """Return the columns to be shown as text: those of long cells."""
    return tuple(
        name
        for name, kind in zip(table.column_names, table.schema.types, strict=True)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if (pc.mean(pc.utf8_length(table.column(name))).as_py() or 0) >= TEXT_LENGTH
    )
