"""The columns of a stream: those that inputs must have, and their cells, checked by an encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

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
    needed : columns that were chosen before the first input.
    """

    def __init__(self, sources: Sequence[str], label: str | None, needed: Sequence[str]):
        self._sources, self._label = sources, label
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
        source, names = self._sources[number], table.names
        self.check_label(number, names)
        if number in self._checked:
            return
        self._checked.add(number)
        if table.complete:
            refuse_absent(needed, names, source)
            old = {*self._known, *needed, self._label}
            new = [name for name in names if name not in old] if self._known else []
            if new:
                listing = listed([shown(name) for name in new])
                notice(f"{source}: columns that are not in the first file are ignored: {listing}.")
        else:
            refuse_misspelled(needed, names, source)
        self._known |= set(names)

    def check_label(self, number: int, names: Sequence[str]) -> None:
        """Refuse an input with a misspelled label column; tell of an input without labels."""
        if self._label is None or number in self._checked_labels:
            return
        self._checked_labels.add(number)
        if self._label in names:
            self._beside_label |= set(names)
            return
        source = self._sources[number]
        others = [each for each in names if each not in self._beside_label]
        meant = similar_name(self._label, others)
        if meant is not None:
            raise StreamError(
                f"{source} has no column {self._label!r}: did you mean {meant!r}? To learn the "
                "file as unlabeled, rename this column."
            )
        notice(f"{source}: no column {self._label!r}, so its rows are unlabeled.")


def refuse_absent(needed: Sequence[str], names: Sequence[str], source: str) -> None:
    """Refuse an input in which columns are missing; suggest a similar name."""
    present = set(names)
    for name in needed:
        if name not in present:
            meant = similar_name(name, names)
            if meant is not None:
                raise StreamError(f"{source} has no column {name!r}: did you mean {meant!r}?")
            found = listed([shown(each) for each in names])
            raise StreamError(
                f"{source} has no column {name!r} (it has {found}): check the name, or the file."
            )


def refuse_misspelled(needed: Sequence[str], names: Sequence[str], source: str) -> None:
    """Refuse a misspelled column of JSON lines; tell of columns that are not in the first rows."""
    missing = [name for name in needed if name not in names]
    for name in missing:
        meant = similar_name(name, [each for each in names if each not in needed])
        if meant is not None:
            raise StreamError(f"{source} has no column {name!r}: did you mean {meant!r}?")
    if missing:
        listing = listed([shown(name) for name in missing])
        notice(f"{source}: the first rows have no {listing}: their cells are missing.")


# -- cells -----------------------------------------------------------------------------------------


class CellCheck(Protocol):
    """Chooses the columns of a stream from its first batch, and finds cells that cannot be used."""

    def needed(self) -> tuple[str, ...] | None:
        """Return the columns that every file must have; None before they are chosen."""

    def decide(self, table: Any) -> None:
        """Choose the columns by the rows of the first batch, a table of all columns.

        Called once, if `needed` returns None.
        """

    def used(self) -> tuple[str, ...] | None:
        """Return the columns that are used; None before `decide`. Cells of others are never bad."""

    def checked(self, table: Any) -> tuple[Any, dict[int, Fault]]:
        """Return a table of the columns, and the faults of rows with bad cells by their index.

        The cells of the returned table may have other types, with which an encoder need not parse
        them again.
        """


class EncoderCheck:
    """A `CellCheck` by the encoder of a model.

    Parameters
    ----------
    encoder : function that returns the encoder as it is now. Before it is fitted, its choice of
        kinds for the first batch decides.
    """

    def __init__(self, encoder: Callable[[], TableEncoder]):
        self._encoder = encoder
        self._kinds: tuple[ColumnKind, ...] = ()

    def needed(self) -> tuple[str, ...] | None:
        encoder = self._encoder()
        return encoder.needed_ if hasattr(encoder, "encoding_") else None

    def decide(self, table: Any) -> None:
        self._kinds = self._encoder().decided_kinds(table)

    def used(self) -> tuple[str, ...] | None:
        chosen = tuple(each.name for each in self._kinds if each.kind != DROP)
        return self.needed() or chosen or None

    def checked(self, table: Any) -> tuple[Any, dict[int, Fault]]:
        encoder = self._encoder()
        if hasattr(encoder, "encoding_"):
            table, bad = encoder.typed(table)
        else:
            table, bad = encoder.typed(table, self._kinds)
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
        size, (table, found) = piece.ends.size, piece.read(self._wanted)
        used = None if self._check is None else self._check.used()
        faults = self._faults_of(used, found, piece)
        features = self._features(table)
        if self._check is not None and size:
            features, bad_cells = self._check.checked(features)
            for row, fault in bad_cells.items():
                faults.setdefault(row, fault._replace(line=piece.line_of(row)))
        labels = None
        if self._label is not None:
            labels = labels_in(column_of(table, self._label.name, size), self._label)
        return CheckedPiece(table, features, labels, self._borders(table, size), faults)

    def read_unchosen(self, piece: Piece) -> tuple[CheckedPiece, Piece]:
        """Read a piece before the columns are chosen, and return it with the cells that were read.

        A fault in a column that may be chosen is none yet.
        """
        cells = piece.read(self._wanted)
        borders = self._borders(cells.table, piece.ends.size)
        faults = self._faults_of((), cells.faults, piece)
        checked = CheckedPiece(cells.table, self._features(cells.table), None, borders, faults)
        return checked, piece._replace(read=partial(chosen_cells, cells))

    def _faults_of(
        self, used: Sequence[str] | None, found: Iterable[tuple[int, Fault]], piece: Piece
    ) -> dict[int, Fault]:
        """Return the first fault of each row, with its line.

        Faults are of whole rows, of the ``used`` columns (None for all), and of other columns that
        the stream needs.
        """
        needed = None if used is None else {None, *used, *self._wanted.others}
        faults: dict[int, Fault] = {}
        for row, fault in found:
            if row not in faults and (needed is None or fault.column in needed):
                faults[row] = fault._replace(line=piece.line_of(row))
        return faults

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


def chosen_cells(cells: Cells, wanted: Wanted) -> Cells:
    """Return the wanted columns of cells that have been read."""
    table = cells.table
    return Cells(table.select(wanted.of(table.column_names)), cells.faults)
