"""Rows that can be labeled: a uniform sample of files of any size, in bounded memory.

Every row has a rank, a random number that depends on its file and its number only. The pool has the
rows of lowest rank. It is a uniform sample without replacement, and reading the files again gives
the same sample. The rows of lowest rank in the pool are reserved for random checks: they are never
chosen for another reason, so that they remain a uniform sample of the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from seqmed.labeling.events import LabelingError, RowKey

# Largest number of rows in the pool, and of bytes of their cells.
LARGEST_POOL, LARGEST_BYTES = 20_000, 2**26
# Share of the pool that is reserved for random checks. It is the share of cards that are random
# checks, so that both kinds of rows last equally long.
CHECK_SHARE = 0.2
# Mean number of characters from which a column is shown as text, and rows used to measure it.
TEXT_LENGTH, MEASURED = 40, 200


class Rows(NamedTuple):
    """Some rows of a file.

    Attributes
    ----------
    file : name of the file, without folders.
    numbers : (n,) numbers of the rows in the file, from 1.
    table : (n rows) raw cells by column name, with all columns of the file.
    labeled : (n,) mask of the rows that have a label in the file.
    """

    file: str
    numbers: NDArray[np.int64]
    table: pa.Table
    labeled: NDArray[np.bool_]


class RowSource(Protocol):
    """Files that can be read several times."""

    def __iter__(self) -> Iterator[Rows]:
        """Yield all rows of all files, in order, in pieces of bounded size."""


class Pool:
    """Rows that can be labeled, with random access.

    Parameters
    ----------
    source : the files.
    wanted : further rows that must be found, for example those of earlier labels.
    seed : seed of the ranks.
    size, n_bytes : limits of the pool.

    Attributes
    ----------
    table : cells of all rows in the pool, wanted ones included.
    keys : rows in the order of the table.
    candidates : (m,) indices of rows that can be asked, in the order of their rank.
    reserve, free : the candidates that are random checks, and all others.
    fingerprint : digest of the candidates.
    n_rows : number of rows in the files.
    """

    def __init__(
        self,
        source: RowSource,
        wanted: Iterable[RowKey] = (),
        *,
        seed: int = 0,
        size: int = LARGEST_POOL,
        n_bytes: int = LARGEST_BYTES,
    ):
        missing = set(wanted)
        sample, others = Sample(size, n_bytes), Sample(None, None)
        self.n_rows = 0
        for rows in source:
            self.n_rows += rows.numbers.size
            ranks = row_ranks(rows.file, rows.numbers, seed)
            sample.add(rows, ranks, ~rows.labeled)
            found = np.array([RowKey(rows.file, n) in missing for n in rows.numbers.tolist()], bool)
            if found.any():
                others.add(rows, ranks, found)
        sample.shrink()
        keys, tables, ranks = sample.keys, sample.parts, sample.ranks
        there = set(keys)
        more = np.array([key not in there for key in others.keys], dtype=bool)
        if more.any():
            tables = [*tables, others.table.filter(pa.array(more))]
            keys = [*keys, *(key for key in others.keys if key not in there)]
        lost = missing - set(keys)
        if lost:
            key = min(lost)
            raise LabelingError(
                f"the label log has row {key.row} of {key.file}, which is not in the data: pass "
                "the same files as before, or name another file with --labels."
            )
        self.table = joined(tables)
        self.keys, self._places = keys, {key: place for place, key in enumerate(keys)}
        self.candidates = np.argsort(ranks, kind="stable")
        n_reserved = int(np.ceil(CHECK_SHARE * self.candidates.size))
        self.reserve, self.free = np.split(self.candidates, [n_reserved])
        self.text_columns = text_columns(self.table)
        names = "\n".join(f"{keys[place].row} {keys[place].file}" for place in self.candidates)
        self.fingerprint = hashlib.sha256(names.encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.keys)

    def place(self, key: RowKey) -> int:
        """Return the index of a row."""
        return self._places[key]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def take(self, places: Sequence[int] | NDArray[np.intp]) -> pa.Table:
        """Return rows as a table."""
        return self.table.take(pa.array(places, pa.int64()))

    def cells(self, key: RowKey, shown: Sequence[str] | None = None) -> dict[str, str]:
        """Return the cells of a row as texts by column name; empty cells are left out."""
        row = self.take([self.place(key)])
        names = row.column_names if shown is None else shown
        texts = {name: shown_text(row.column(name)[0].as_py()) for name in names}
        return {name: text for name, text in texts.items() if text}


class Sample:
    """The rows of lowest rank so far.

    Parameters
    ----------
    size, n_bytes : limits; None for no limit.
    """

    def __init__(self, size: int | None, n_bytes: int | None):
        self._size, self._n_bytes = size, n_bytes
        self.parts: list[pa.Table] = []
        self.keys: list[RowKey] = []
        self.ranks = np.zeros(0)
        self._bound = np.inf

    @property
    def table(self) -> pa.Table:
        """All rows."""
        return joined(self.parts)

    def add(self, rows: Rows, ranks: NDArray[np.float64], mask: NDArray[np.bool_]) -> None:
        """Add the masked rows, and keep those of lowest rank."""
        chosen = np.flatnonzero(mask & (ranks < self._bound))
        if not chosen.size:
            return
        self.parts.append(rows.table.take(pa.array(chosen)))
        self.keys += [RowKey(rows.file, number) for number in rows.numbers[chosen].tolist()]
        self.ranks = np.concatenate([self.ranks, ranks[chosen]])
        full = self._size is not None and len(self.keys) > 2 * self._size
        heavy = self._n_bytes is not None and sum(p.nbytes for p in self.parts) > 2 * self._n_bytes
        if full or heavy:
            self.shrink()

    def shrink(self) -> None:
        """Keep the rows of lowest rank within both limits."""
        if not self.keys:
            return
        table, order = self.table, np.argsort(self.ranks, kind="stable")
        if self._size is not None:
            order = order[: self._size]
        if self._n_bytes is not None:
            sums = np.cumsum(row_bytes(table)[order])
            order = order[: max(1, int(np.searchsorted(sums, self._n_bytes, "right")))]
        if order.size < len(self.keys):
            self._bound = float(np.delete(self.ranks, order).min())
        kept = np.sort(order)
        self.parts = [table.take(pa.array(kept)).combine_chunks()]
        self.keys = [self.keys[place] for place in kept.tolist()]
        self.ranks = self.ranks[kept]


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
    import pyarrow.compute as pc

    sizes = np.full(table.num_rows, 8 * table.num_columns, dtype=np.int64)
    for column in table.columns:
        if is_text(column.type):
            lengths = pc.fill_null(pc.binary_length(column), 0)
            sizes += lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def is_text(kind: pa.DataType) -> bool:
    """Whether a column has texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return tables below each other; columns that one of them lacks are empty there."""
    if not tables:
        return pa.table({})
    try:
        return pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except (pa.ArrowTypeError, pa.ArrowInvalid):  # files store a column in different types
        return pa.concat_tables(map(as_texts, tables), promote_options="default").combine_chunks()


def as_texts(table: pa.Table) -> pa.Table:
    """Return a table whose cells are texts."""
    columns = {}
    for name in table.column_names:
        values = table.column(name).to_pylist()
        columns[name] = pa.array(
            [None if v is None else shown_text(v) for v in values], pa.string()
        )
    return pa.table(columns)


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


def shown_text(value: Any) -> str:
    """Return a cell as it is shown."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return str(value)
