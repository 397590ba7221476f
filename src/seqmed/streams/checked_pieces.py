"""Pieces of an input with the columns of a batch, its labels, and its bad rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from seqmed.streams.cell_checks import CellCheck
from seqmed.streams.columns import column_of
from seqmed.streams.errors import Fault
from seqmed.streams.labels import LabelColumn, Labels, read_labels
from seqmed.streams.tables import Piece, Wanted


class CheckedPiece(NamedTuple):
    """The cells of n consecutive rows.

    Parameters
    ----------
    table : pyarrow table of the columns that were read.
    features : pyarrow table of the columns of a batch.
    labels : labels of the rows; None without a label column.
    borders : array of the border column; None without such a column.
    faults : faults of bad rows, by their index.
    """

    table: Any
    features: Any
    labels: Labels | None
    borders: Any
    faults: dict[int, Fault]


class PieceReader:
    """Reads the columns that a stream needs, and checks their cells.

    Parameters
    ----------
    label : the label column; None if there are no labels.
    check : chooses columns and finds bad cells; None to read all columns.
    batch_by : the border column; None if there is none.
    keep : columns to return unchanged that every input must have.
    keep_optional : further such columns, which an input may lack.
    """

    def __init__(
        self,
        label: LabelColumn | None,
        check: CellCheck | None,
        batch_by: str | None,
        keep: Sequence[str],
        keep_optional: Sequence[str],
    ):
        self._label, self._check, self._batch_by = label, check, batch_by
        self.kept = (*keep, *keep_optional)
        self._required = tuple(dict.fromkeys([*([batch_by] if batch_by else []), *keep]))

    @property
    def required(self) -> tuple[str, ...]:
        """The columns that an input must have."""
        return (*(self._wanted.columns or ()), *self._required)

    @property
    def _wanted(self) -> Wanted:
        """The columns to read."""
        label = [] if self._label is None else [self._label.name]
        needed = None if self._check is None else self._check.needed()
        return Wanted(needed, tuple(dict.fromkeys([*label, *self._required, *self.kept])))

    def read(self, piece: Piece) -> CheckedPiece:
        """Read a piece, check its cells, and read its labels."""
        size, table, faults = piece.ends.size, *piece.read(self._wanted)
        used = None if self._check is None else self._check.used()
        if used is not None:
            faults = self._faults_of(used, faults)
        features = self._features(table)
        if self._check is not None and size:
            features, bad_cells = self._check.checked(features)
            for row, fault in bad_cells.items():
                faults.setdefault(row, fault._replace(line=piece.line_of(row)))
        labels = None
        if self._label is not None:
            labels = read_labels(column_of(table, self._label.name, size), self._label)
        return CheckedPiece(table, features, labels, self._borders(table, size), faults)

    def read_unchosen(self, piece: Piece) -> CheckedPiece:
        """Read a piece before the columns are chosen; a fault in a column that may be is none."""
        table, faults = piece.read(self._wanted)
        borders, faults = self._borders(table, piece.ends.size), self._faults_of((), faults)
        return CheckedPiece(table, self._features(table), None, borders, faults)

    def _faults_of(self, used: Sequence[str], faults: dict[int, Fault]) -> dict[int, Fault]:
        """Return the faults of whole rows, of some columns, and of those besides the features."""
        read = {None, *used, *self._wanted.others}
        return {row: fault for row, fault in faults.items() if fault.column in read}

    def _features(self, table: Any) -> Any:
        """Return the columns of a table that a batch has: the needed ones, or all but the label."""
        needed = self._wanted.columns
        if needed is not None:
            present = set(table.column_names)
            for name in needed:
                if name not in present:
                    table = table.append_column(name, column_of(table, name, table.num_rows))
            return table.select(list(needed))
        label = None if self._label is None else self._label.name
        return table.select([name for name in table.column_names if name != label])

    def _borders(self, table: Any, size: int) -> Any:
        """Return the cells of the border column, None without such a column."""
        return None if self._batch_by is None else column_of(table, self._batch_by, size)
