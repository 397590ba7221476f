"""Choice of the columns of a stream, and its bad cells, by the encoder of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from seqmed.streams.errors import Fault
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.encoding import typed
from seqmed.tables.kinds import DROP, ColumnKind


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

        The returned table may have cells of other types, if they mean the same.
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
        # The cells of the first batch are unchanged. Later ones have the types of the encoder,
        # which then need not parse them again.
        encoder = self._encoder()
        if hasattr(encoder, "encoding_"):
            table, bad = encoder.typed(table)
        else:
            _, bad = typed(self._kinds, encoder.missing_values, table)
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
