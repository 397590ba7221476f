"""Rows that can be labeled: a uniform sample of files of any size, in bounded memory.

Every row has a rank, a random number that depends on its file and its number only. The pool has the
rows of lowest rank. It is a uniform sample without replacement, and reading the files again gives
the same sample. The rows of lowest rank in the pool are reserved for random checks: they are never
chosen for another reason, so that they remain a uniform sample of the files.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from seqmed.labeling.log import RowKey
from seqmed.streams.batches import stacked
from seqmed.tables.cells import cell_text

# Largest number of rows in the pool, and of bytes of their cells.
LARGEST_POOL, LARGEST_BYTES = 20_000, 2**26
# Share of the pool that is reserved for random checks. It is the share of cards that are random
# checks, so that both kinds of rows last equally long.
CHECK_SHARE = 0.2
# Mean number of characters from which a column is shown as text, and rows used to measure it.
TEXT_LENGTH, MEASURED = 40, 200


class FileRows(NamedTuple):
    """Some rows of a file: their numbers (n,) from 1, all columns, and a mask of labeled ones.

    No other file has the same name.
    """

    file: str
    numbers: NDArray[np.int64]
    table: pa.Table
    labeled: NDArray[np.bool_]

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

    ``source`` has the rows of all files, in order, in pieces of bounded size. It may be read twice.
    Rows of earlier labels, ``wanted``, are found by their cells if they have moved. They are in
    ``table`` too, and ``keys`` has their keys of the label log.

    ``candidates`` (m,) are indices of the rows that can be asked, in the order of their rank: first
    the ``reserve`` of random checks, then those that are ``free``. ``fingerprint`` is a digest of
    them.
    """

    def __init__(
        self,
        source: Iterable[FileRows],
        wanted: Iterable[RowKey] = (),
        *,
        seed: int = 0,
        size: int = LARGEST_POOL,
        n_bytes: int = LARGEST_BYTES,
    ):
        wanted = set(wanted)
        spots = {(key.file, key.row) for key in wanted}
        sample, found = Sample(size, n_bytes), []
        for rows in source:
            sample.add(rows, row_ranks(rows.file, rows.numbers, seed))
            numbers = rows.numbers.tolist() if spots else []
            chosen = [n for n, number in enumerate(numbers) if (rows.file, number) in spots]
            if chosen:
                found.append(rows.take(np.array(chosen)))
        sample.shrink()
        keys = [key for rows in found for key in rows.row_keys()]
        if not wanted.issubset(keys):  # some rows have moved
            found = list(wanted_rows(source, wanted))
            keys = [key for rows in found for key in rows.row_keys()]
        known, sampled = wanted_keys(keys, wanted), set(sample.keys)
        beside = {key: n for n, key in enumerate(keys) if key in known and key not in sampled}
        others = joined_tables([rows.table for rows in found])
        others = others.take(pa.array(list(beside.values()), pa.int64()))
        self.table = joined_tables([sample.table, others])
        now = [*sample.keys, *beside]
        self._where = [(key.file, key.row) for key in now]
        self.keys = [known.get(key, key) for key in now]
        self._places = {key: place for place, key in enumerate(self.keys)}
        self._keys_at = dict(zip(self._where, self.keys, strict=True))
        self.candidates = np.argsort(sample.ranks, kind="stable")
        n_reserved = int(np.ceil(CHECK_SHARE * self.candidates.size))
        self.reserve, self.free = np.split(self.candidates, [n_reserved])
        self.text_columns = text_columns(self.table)
        names = "\n".join(repr(tuple(self.keys[place])) for place in self.candidates)
        self.fingerprint = hashlib.sha256(names.encode()).hexdigest()

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def place(self, key: RowKey) -> int:
        """Return the index of a row."""
        return self._places[key]

    def where(self, key: RowKey) -> tuple[str, int]:
        """Return the file and the number of a row, where it is now."""
        return self._where[self._places[key]]

    def at(self, file: str, row: int) -> RowKey | None:
        """Return the row with some number in a file, None if it is not in the pool."""
        return self._keys_at.get((file, row))

    def take(self, places: Sequence[int] | NDArray[np.intp]) -> pa.Table:
        """Return rows as a table."""
        return self.table.take(pa.array(places, pa.int64()))

    def cells(self, key: RowKey, shown: Sequence[str] | None = None) -> dict[str, str]:
        """Return the cells of a row as texts by column name; empty cells are left out."""
        row = self.take([self.place(key)])
        names = row.column_names if shown is None else shown
        texts = {name: cell_text(row.column(name)[0].as_py()) for name in names}
        return {name: text for name, text in texts.items() if text is not None}


class Sample:
    """The rows of lowest rank so far, without those that have a label in their file."""

    def __init__(self, size: int, n_bytes: int):
        self._size, self._n_bytes, self._bound = size, n_bytes, np.inf
        self._parts: list[pa.Table] = []
        self.keys: list[RowKey] = []
        self.ranks = np.zeros(0)

    @property
    def table(self) -> pa.Table:
        """The cells of the rows."""
        return joined_tables(self._parts)

    def add(self, rows: FileRows, ranks: NDArray[np.float64]) -> None:
        """Add rows, and drop rows of high rank if these are too many."""
        chosen = np.flatnonzero(~rows.labeled & (ranks < self._bound))
        if not chosen.size:
            return
        taken = rows.take(chosen)
        self._parts.append(taken.table)
        self.keys += taken.row_keys()
        self.ranks = np.concatenate([self.ranks, ranks[chosen]])
        n_bytes = sum(part.nbytes for part in self._parts)
        if len(self.keys) > 2 * self._size or n_bytes > 2 * self._n_bytes:
            self.shrink()

    def shrink(self) -> None:
        """Keep the rows of lowest rank within both limits."""
        table, order = self.table, np.argsort(self.ranks, kind="stable")[: self._size]
        sums = np.cumsum(row_bytes(table)[order])
        order = order[: max(1, int(np.searchsorted(sums, self._n_bytes, "right")))]
        if order.size < len(self.keys):
            self._bound = float(np.delete(self.ranks, order).min())
        kept = np.sort(order)
        self._parts = [table.take(pa.array(kept)).combine_chunks()]
        self.keys = [self.keys[place] for place in kept.tolist()]
        self.ranks = self.ranks[kept]


# -- rows of earlier labels ------------------------------------------------------------------------


def wanted_rows(source: Iterable[FileRows], wanted: Collection[RowKey]) -> Iterator[FileRows]:
    """Yield rows with the cells of wanted rows: all of the same number, and as many others."""
    numbers = {(key.row, key.digest) for key in wanted}
    others = Counter(key.digest for key in wanted)
    for rows in source:
        chosen = []
        for place, key in enumerate(rows.row_keys()):
            if (key.row, key.digest) not in numbers:
                if not others[key.digest]:
                    continue
                others[key.digest] -= 1
            chosen.append(place)
        if chosen:
            yield rows.take(np.array(chosen))


def wanted_keys(keys: Sequence[RowKey], wanted: Collection[RowKey]) -> dict[RowKey, RowKey]:
    """Return the keys that rows of the files have in the label log, by those that they have now.

    Every row stands for one wanted row of the same cells: for itself if it is wanted, if possible
    for one with the same number, else for any.
    """
    found = {key: key for key in keys if key in wanted}
    left: dict[str, list[RowKey]] = {}
    for key in sorted(set(wanted) - found.keys()):
        left.setdefault(key.digest, []).append(key)
    for same_number in (True, False):
        for key in keys:
            same = left.get(key.digest, []) if key not in found else []
            meant = next((each for each in same if each.row == key.row or not same_number), None)
            if meant is not None:
                same.remove(meant)
                found[key] = meant
    return found


# -- cells -----------------------------------------------------------------------------------------


def row_digests(table: pa.Table) -> list[str]:
    """Return a digest of the cells of every row.

    It does not depend on the order of the columns, nor on how a value is stored. Empty cells do not
    count.
    """
    names = sorted(table.column_names)
    encode, found = json.JSONEncoder().encode, []
    whole = encode(names)
    for row in zip(*(cell_texts(table.column(name)) for name in names), strict=True):
        if None in row:
            filled = [pair for pair in zip(names, row, strict=True) if pair[1] is not None]
            head, row = encode([name for name, _ in filled]), tuple(text for _, text in filled)
        else:
            head = whole
        text = head + encode(row)
        found.append(f"r{hashlib.sha256(text.encode()).hexdigest()[:16]}")
    return found


def cell_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return the cells of a column as texts, None for empty cells; see `cell_text`."""
    if is_text(column.type):
        return [(text.strip() or None) if text else None for text in column.to_pylist()]
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.string())
    return [cell_text(value) for value in column.to_pylist()]


def row_ranks(file: str, numbers: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Return random numbers (n,) in [0, 1) that depend on the file and the numbers of rows."""
    start = hashlib.sha256(f"{seed}\x00{file}".encode()).digest()
    values = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    values += np.frombuffer(start[:8], np.uint64)[0]
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    values ^= values >> np.uint64(31)
    ranks: NDArray[np.float64] = (values >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return ranks


def row_bytes(table: pa.Table) -> NDArray[np.int64]:
    """Return the approximate number of bytes of the cells of each row, (n,)."""
    sizes = np.full(table.num_rows, 8 * table.num_columns, dtype=np.int64)
    for column in table.columns:
        if is_text(column.type):
            lengths = pc.fill_null(pc.binary_length(column), 0)
            sizes += lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def is_text(kind: pa.DataType) -> bool:
    """Whether a column has texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def joined_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Return tables below each other; columns that one of them lacks are empty there."""
    return stacked(tables).combine_chunks() if tables else pa.table({})


def text_columns(table: pa.Table) -> tuple[str, ...]:
    """Return the columns to be shown as text: long cells with spaces."""
    found = []
    for name in table.column_names:
        column = table.column(name)
        if not is_text(column.type):
            continue
        texts = [text for text in column.slice(0, MEASURED).to_pylist() if text]
        spaced = sum(" " in text for text in texts)
        if texts and sum(map(len, texts)) >= TEXT_LENGTH * len(texts) and 2 * spaced >= len(texts):
            found.append(name)
    return tuple(found)
