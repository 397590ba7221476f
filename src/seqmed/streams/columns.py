"""The columns of a stream: those that inputs must have, and their cells, checked by an encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from seqmed.streams.faults import Fault, StreamError, notice
from seqmed.streams.label_column import LabelColumn, TextLabels, labels_in
from seqmed.streams.pieces import Cells, Piece, Table, Wanted, column_of
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.kinds import DROP, ColumnKind
from seqmed.tables.messages import listed, shown, similar_name

# -- names -----------------------------------------------------------------------------------------


class InputColumns:
    """Compares the columns of every input with those that a stream needs.

    Parameters
    ----------
    sources : names of the inputs in messages.
    label : name of the label column; None if there are no labels.
    label_required : whether the first input must have the label column.
    needed : columns that were chosen before the first input.
    """

    def __init__(
        self, sources: Sequence[str], label: str | None, label_required: bool, needed: Sequence[str]
    ):
        self._sources, self._label, self._label_required = sources, label, label_required
        self._known: set[str] = set()  # columns of the inputs that were checked
        self._beside_label = set(needed)  # columns of inputs that have the label column too
        self._checked: set[int] = set()
        self._checked_labels: set[int] = set()

    def check(self, number: int, table: Table, needed: Sequence[str]) -> None:
        """Refuse an input that lacks columns, and tell of new columns, once for each input.

        Parameters
        ----------
        number : index of the input.
        table : the open input.
        needed : the columns that it must have.
        """
        self.check_label(number, table)
        if number in self._checked:
            return
        self._checked.add(number)
        refuse_absent(needed, table, self._sources[number])
        old = {*self._known, *needed, self._label}
        new = [shown(name) for name in table.names if name not in old]
        if new and self._known and table.complete:
            notice(
                f"{self._sources[number]}: columns that are not in the first file are ignored: "
                f"{listed(new)}."
            )
        self._known |= set(table.names)

    def check_label(self, number: int, table: Table) -> None:
        """Refuse an input with a misspelled label column; tell of an input without labels."""
        if self._label is None or number in self._checked_labels:
            return
        first = not self._checked_labels
        self._checked_labels.add(number)
        if self._label in table.names:
            self._beside_label |= set(table.names)
            return
        missing = f"{self._sources[number]} has no column {self._label!r}"
        others = [each for each in table.names if each not in self._beside_label]
        meant = similar_name(self._label, others)
        if meant is not None:
            raise StreamError(
                f"{missing}: did you mean {meant!r}? To learn the file as unlabeled, rename this "
                "column."
            )
        if first and self._label_required and table.complete:
            raise StreamError(
                f"{missing} (it has {listed(list(map(shown, table.names)))}): check --label. If "
                "there are no labels yet, pass --no-labels."
            )
        notice(f"{self._sources[number]}: no column {self._label!r}, so its rows are unlabeled.")


def refuse_absent(needed: Sequence[str], table: Table, source: str) -> None:
    """Refuse an input in which columns are missing or misspelled.

    Columns that are not in the first rows of JSON lines may come later: tell of them.
    """
    present = set(table.names)
    missing = [name for name in needed if name not in present]
    for name in missing:
        meant = similar_name(name, [each for each in table.names if each not in needed])
        if meant is not None:
            raise StreamError(f"{source} has no column {name!r}: did you mean {meant!r}?")
        if table.complete:
            found = listed(list(map(shown, table.names)))
            raise StreamError(
                f"{source} has no column {name!r} (it has {found}): check the name, or the file."
            )
    if missing:
        listing = listed(list(map(shown, missing)))
        notice(f"{source}: the first rows have no {listing}: their cells are missing.")


# -- cells -----------------------------------------------------------------------------------------


class EncoderCheck:
    """Chooses the columns of a stream from its first batch, and finds cells that cannot be used.

    The encoder of a model decides both.

    Parameters
    ----------
    encoder : function that returns the encoder as it is now. Before it is fitted, its choice of
        kinds for the first batch decides.
    """

    def __init__(self, encoder: Callable[[], TableEncoder]):
        self._encoder = encoder
        self._kinds: tuple[ColumnKind, ...] = ()

    def needed(self) -> tuple[str, ...] | None:
        """Return the columns that every file must have; None before they are chosen."""
        encoder = self._encoder()
        return encoder.needed_ if hasattr(encoder, "encoding_") else None

    def decide(self, table: Any) -> None:
        """Choose the columns by the rows of the first batch, a table of all columns.

        Called once, if `needed` returns None.
        """
        self._kinds = self._encoder()._decided_kinds(table)

    def used(self) -> tuple[str, ...] | None:
        """Return the columns that are used; None before `decide`. Cells of others are never bad."""
        chosen = tuple(each.name for each in self._kinds if each.kind != DROP)
        return self.needed() or chosen or None

    def checked(self, table: Any) -> tuple[Any, dict[int, Fault]]:
        """Return a table of the columns, and the faults of rows with bad cells by their index.

        The cells of the returned table may have other types, with which an encoder need not parse
        them again.
        """
        encoder = self._encoder()
        if hasattr(encoder, "encoding_"):
            table, bad = encoder._typed_rows(table)
        else:
            table, bad = encoder._typed_rows(table, self._kinds)
        return table, {row: Fault(*cell) for row, cell in bad.items()}


class AllColumnsCheck(EncoderCheck):
    """An `EncoderCheck` of a fitted encoder that lets the stream read all columns.

    Cells of columns that the encoder does not use are never bad.
    """

    def needed(self) -> None:
        return None

    def decide(self, table: Any) -> None:
        pass

    def used(self) -> tuple[str, ...]:
        return self._encoder().needed_

    def checked(self, table: Any) -> tuple[Any, dict[int, Fault]]:
        present = [name for name in self.used() if name in table.column_names]
        return table, super().checked(table.select(present))[1]


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
    labels: TextLabels | None
    borders: Any
    faults: dict[int, Fault]


class PieceReader:
    """Chooses the columns that a stream needs, and checks their cells.

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
        check: EncoderCheck | None,
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
        return (*(self.wanted.columns or ()), *self._required)

    @property
    def wanted(self) -> Wanted:
        """The columns to read."""
        label = [] if self._label is None else [self._label.name]
        needed = None if self._check is None else self._check.needed()
        return Wanted(needed, tuple(dict.fromkeys([*label, *self._required, *self.kept])))

    def checked(self, piece: Piece, cells: Cells) -> CheckedPiece:
        """Return the cells of a piece, checked, and its labels."""
        used = None if self._check is None else self._check.used()
        found = self.unchecked(piece, cells, used)
        features, faults, labels = found.features, found.faults, None
        if self._check is not None:
            features, bad_cells = self._check.checked(features)
            for row, fault in bad_cells.items():
                faults.setdefault(row, fault._replace(line=piece.line_of(row)))
        if self._label is not None:
            column = column_of(found.table, self._label.name, piece.ends.size)
            labels = labels_in(column, self._label)
        return found._replace(features=features, labels=labels)

    def unchecked(
        self, piece: Piece, cells: Cells, used: Sequence[str] | None = ()
    ) -> CheckedPiece:
        """Return the cells of a piece without labels, and the first fault of each row.

        Faults are of whole rows, of the ``used`` columns (None for all), and of other columns that
        the stream needs: a fault in a column that may be chosen later is none yet.
        """
        wanted, size = self.wanted, piece.ends.size
        needed = None if used is None else {None, *used, *wanted.others}
        faults: dict[int, Fault] = {}
        for row, fault in cells.faults:
            if row not in faults and (needed is None or fault.column in needed):
                faults[row] = fault._replace(line=piece.line_of(row))
        table = cells.table.select(wanted.of(cells.table.column_names))
        if wanted.columns is None:
            label = None if self._label is None else self._label.name
            features = table.select([name for name in table.column_names if name != label])
        else:
            present = set(table.column_names)
            for name in wanted.columns:
                if name not in present:
                    table = table.append_column(name, pa.nulls(size))
            features = table.select(list(wanted.columns))
        borders = None if self._batch_by is None else column_of(table, self._batch_by, size)
        return CheckedPiece(table, features, None, borders, faults)
