"""Bad cells of a stream, found by the encoder that encodes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqmed.streams.errors import Fault
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.encoding import typed
from seqmed.tables.kinds import DROP, ColumnKind


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
        """Return the columns that the encoder uses, None before it is fitted."""
        encoder = self._encoder()
        return encoder.needed_ if hasattr(encoder, "encoding_") else None

    def decide(self, table: Any) -> None:
        """Choose the kinds of the columns by the rows of the first batch."""
        self._kinds = self._encoder().decided_kinds(table)

    def used(self) -> tuple[str, ...] | None:
        """Return the columns that are used, None before the kinds are chosen."""
        chosen = tuple(each.name for each in self._kinds if each.kind != DROP)
        return self.needed() or chosen or None

    def checked(self, table: Any) -> tuple[Any, dict[int, Fault]]:
        """Return a table, and the faults of rows with bad cells by their index.

        The cells of the first batch are unchanged. Later ones have the types of the encoder, which
        then need not parse them again.
        """
        encoder = self._encoder()
        if hasattr(encoder, "encoding_"):
            table, bad = encoder.typed(table)
        else:
            _, bad = typed(self._kinds, encoder.missing_values, table)
        return table, {row: Fault(*cell) for row, cell in bad.items()}
