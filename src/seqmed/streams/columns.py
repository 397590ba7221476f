"""The columns of a stream: those that inputs must have, and their cells, checked by an encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seqmed.numeric.words import in_words
from seqmed.streams.faults import Fault, StreamError, notice
from seqmed.streams.pieces import Table
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.kinds import DROP, ColumnKind
from seqmed.tables.messages import listed, shown, similar_name

# -- names -----------------------------------------------------------------------------------------


class InputColumns:
    """Compares the columns of every input with those that a stream needs."""

    def __init__(self, label: str | None, label_required: bool, known: Sequence[str]):
        self._label, self._label_required = label, label_required
        self._known = {*known}  # columns of the inputs before

    def check(self, table: Table, source: str, needed: Sequence[str]) -> None:
        """Compare an input that was opened with those before it.

        A misspelled label column, and a needed column of lists, are refused. The user is told of
        new columns, unlabeled rows and columns of lists. ``needed`` are the columns that the input
        must have, as far as they are chosen.
        """
        required = {*needed, self._label}
        known = self._known | required
        nested = [name for name in table.nested if name in required]
        if nested:
            raise StreamError(
                f"{source}: column {nested[0]!r} holds lists or records, expected single values: "
                "convert it."
            )
        if table.nested and not self._known:
            notice(f"{source}: columns of lists or records are not used: {named(table.nested)}.")
        if self._label is not None and table.names and self._label not in table.names:
            missing = f"{source} has no column {self._label!r}"
            meant = similar_name(self._label, [name for name in table.names if name not in known])
            if meant is not None:
                raise StreamError(
                    f"{missing}: did you mean {meant!r}? To learn the file as unlabeled, rename "
                    "this column."
                )
            if len(table.names) == 1 and self._label in table.names[0]:
                raise StreamError(
                    f"{missing}, it has the single column {shown(table.names[0])}: choose the "
                    f"character between the columns with {in_words('--sep', 'sep')}."
                )
            if self._label_required and not self._known and table.complete:
                raise StreamError(
                    f"{missing} (it has {named(table.names)}): "
                    + in_words(
                        "check --label. If there are no labels yet, pass --no-labels.",
                        "check the LabelColumn, or pass label_required=False.",
                    )
                )
            notice(f"{source}: no column {self._label!r}, so its rows are unlabeled.")
        new = [name for name in table.names if name not in known]
        if new and self._known and table.complete:
            notice(f"{source}: columns that were not in the first batch are ignored: {named(new)}.")
        self._known |= set(table.names)


def refuse_absent(needed: Sequence[str], table: Table, source: str) -> None:
    """Refuse an input without some columns; tell of those that may come later in JSON lines."""
    present = set(table.names)
    missing = [name for name in needed if name not in present]
    for name in missing:
        meant = similar_name(name, [each for each in table.names if each not in needed])
        if meant is not None:
            raise StreamError(f"{source} has no column {name!r}: did you mean {meant!r}?")
        if table.complete:
            raise StreamError(
                f"{source} has no column {name!r} (it has {named(table.names)}): check the name, "
                "or the file."
            )
    if missing:
        notice(f"{source}: the first rows have no {named(missing)}: their cells are missing.")


def named(names: Sequence[str]) -> str:
    """Return the names of columns for a message."""
    return listed(list(map(shown, names)))


# -- cells -----------------------------------------------------------------------------------------


class EncoderCheck:
    """Chooses the columns of a stream from its first batch, and finds cells that cannot be used.

    The encoder of a model decides both. ``encoder`` returns it as it is now. Before it is fitted,
    its choice of kinds for the first batch decides.
    """

    def __init__(self, encoder: Callable[[], TableEncoder]):
        self._encoder = encoder
        self._kinds: tuple[ColumnKind, ...] = ()

    def needed(self) -> tuple[str, ...] | None:
        """Return the columns that every file must have; None before they are chosen."""
        encoder = self._encoder()
        return encoder.needed_ if hasattr(encoder, "encoding_") else None

    def known(self) -> list[str]:
        """Return all columns of the first batch; none before the encoder is fitted."""
        encoder = self._encoder()
        return encoder.feature_names_in_.tolist() if hasattr(encoder, "encoding_") else []

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
        return encoder._typed_rows(table, None if hasattr(encoder, "encoding_") else self._kinds)


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
