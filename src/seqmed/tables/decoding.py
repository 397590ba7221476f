"""Features become cells again, to show the rows that a model keeps and the columns of features.

Numbers, dates and levels are decoded. Not decoded are texts and hashed categories, and the dates of
a column whose number is left out. A missing cell is decoded as the value that has replaced it,
unless the first batch had missing cells in the column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from seqmed.mixture.explanation import ColumnPart, nonzero
from seqmed.numeric.arrays import Array, Points
from seqmed.tables.cells import EPOCH, cell_text, date_text, whole_or_float
from seqmed.tables.features import DateColumn, Encoding, NumberColumns, OneHotColumn, word_places
from seqmed.tables.frames import as_table

# A level without a feature of its own.
OTHER_LEVEL = "(another)"
# The value of a column of text for all words that a row does not have.
ABSENT_WORDS = "(words it does not have)"
# Significant digits of decoded numbers; the others are rounding errors.
DIGITS = 12


def cells_of(rows: Any) -> Callable[[int], dict[str, str | None]]:
    """Return a function that returns the cells of a row of a table, by its place."""
    table = as_table(rows)
    columns = dict(zip(table.column_names, table.columns, strict=True))
    return lambda place: {name: cell_text(each[place].as_py()) for name, each in columns.items()}


def decoded(encoding: Encoding, features: Points) -> list[dict[str, str | None]]:
    """Return the cells of rows, given their features (n, p); None for a missing cell.

    Columns that cannot be decoded are left out.
    """
    dense = features[:, : encoding.n_dense]
    dense = (dense.toarray() if sp.issparse(dense) else dense) / encoding.weight
    rows: list[dict[str, str | None]] = [{} for _ in range(dense.shape[0])]
    begin = 0
    for part in encoding.dense:
        end = begin + len(part.feature_names)
        for row, values in zip(rows, dense[:, begin:end], strict=True):
            row |= decoded_part(part, values)
        begin = end
    return [{name: row[name] for name in encoding.needed if name in row} for row in rows]


def decoded_part(part: Any, values: Array) -> dict[str, str | None]:
    """Return the cells of some columns, given their features (q,)."""
    if isinstance(part, NumberColumns):
        numbers = values[: len(part.names)]
        if part.centred:
            numbers = numbers * part.scales + part.medians
        texts: list[str | None] = [whole_or_float(float(f"{x:.{DIGITS}g}")) for x in numbers]
        for place, flag in zip(np.flatnonzero(part.flagged), values[len(numbers) :], strict=True):
            texts[place] = None if flag else texts[place]
        return dict(zip(part.names, texts, strict=True))
    if isinstance(part, OneHotColumn):
        levels = [*part.levels, *([None] if part.missing else []), OTHER_LEVEL]
        return {part.name: levels[int(values.argmax())]}
    if isinstance(part, DateColumn) and not part.clock:
        seconds = round(part.origin + part.scale * float(values[0]))
        try:
            text = date_text(EPOCH + timedelta(seconds=seconds))
        except OverflowError:  # beyond the years of Python
            return {}
        return {part.name: None if part.flagged and values[-1] else text}
    return {}


@dataclass(frozen=True, eq=False)
class TableView:
    """The columns of a table, and labeled rows as their cells.

    Parameters
    ----------
    encoding : encoding of the table.
    table : the rows that are explained.
    points : (m, p) their features.
    """

    encoding: Encoding
    table: pa.Table
    points: Points

    def columns(self, row: int, contributions: Points) -> list[ColumnPart]:
        """Return the columns and words of an explained row.

        The contributions of all features of a column are added, except those of the words that the
        row has.
        """
        texts, found = self.cells(row), []
        sums: defaultdict[str, float] = defaultdict(float)
        absent: defaultdict[str, float] = defaultdict(float)
        starts = np.cumsum([self.encoding.n_dense, *(each.size for each in self.encoding.words)])
        words = [word_places(texts[each.name] or "", each) for each in self.encoding.words]
        for place, value in zip(*(each.tolist() for each in nonzero(contributions)), strict=True):
            text = int(np.searchsorted(starts, place, side="right")) - 1
            if text < 0:
                sums[self.owners[place]] += value
                continue
            name, word = self.encoding.words[text].name, words[text].get(place - int(starts[text]))
            if word is None:
                absent[name] += value
            else:
                found.append(ColumnPart(name, word, value, is_word=True))
        found += [ColumnPart(name, texts[name], value) for name, value in sums.items()]
        return found + [ColumnPart(name, ABSENT_WORDS, value) for name, value in absent.items()]

    def rows(self, features: Points) -> list[Any]:
        """Return the cells of rows as far as they can be decoded."""
        return decoded(self.encoding, features)

    @cached_property
    def owners(self) -> list[str]:
        """The column of every feature except words."""
        return [name for part in self.encoding.dense for name in columns_of(part)]

    @cached_property
    def cells(self) -> Callable[[int], dict[str, str | None]]:
        """The cells of a row by its place."""
        return cells_of(self.table)


def columns_of(part: Any) -> list[str]:
    """Return the column of every feature of some columns."""
    if isinstance(part, NumberColumns):
        return [
            *part.names,
            *(name for name, flag in zip(part.names, part.flagged, strict=True) if flag),
        ]
    return [part.name] * len(part.feature_names)
