"""Rows of all files in turn, and the position in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from seqmed.streams.columns import Columns, choose_features, refuse_missing
from seqmed.streams.errors import listed, notice, shown
from seqmed.streams.files import Input
from seqmed.streams.formats import open_table
from seqmed.streams.positions import Cursor, Position, Stamp, stamp
from seqmed.streams.resuming import PlannedRead, plan
from seqmed.streams.schema import Schema
from seqmed.streams.tables import Piece, Table, Wanted


class Reading:
    """Pieces of all inputs in turn.

    Parameters
    ----------
    inputs : the files and pipes.
    columns : the user's choices.
    schema : of the rows, None to decide it with the first file that has any.
    batch_by : the column of batches, if there is one.
    keep : columns to pass on.
    label_required : whether a file without labels is refused.
    position : how far the inputs have been read before.
    again : whether to read them once more; see `plan`.
    final : whether last lines without a line end are read; see `open_table`.

    Attributes
    ----------
    schema : as it is known so far.
    number : the place among the inputs of the one that is open.
    cursor : how far that has been taken, by whoever takes its rows.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        columns: Columns,
        schema: Schema | None,
        *,
        batch_by: str | None,
        keep: Sequence[str],
        label_required: bool,
        position: Position,
        again: bool,
        final: bool,
    ):
        self.schema = schema
        self.number = 0
        self.cursor: Cursor | None = None
        self._columns, self._batch_by = columns, batch_by
        self._others = [*([] if batch_by is None else [batch_by]), *keep]
        self._label_required, self._final = label_required, final
        self._noticed = set(self._others)
        wanted = None if schema is None else self.wanted(schema)
        self._tasks, self._position = plan(inputs, position, again, wanted)
        self._sizes = [stamp(each.path).size if each.path else 0 for each in inputs]
        self._table: Table | None = None

    @property
    def position(self) -> Position:
        """How far the inputs have been taken."""
        if self.cursor is None or not self._tasks[self.number].source.resumable:
            return self._position
        return self._position.with_file(self.cursor.position(finished=False))

    @property
    def known_schema(self) -> Schema:
        """The schema, once there are rows."""
        assert self.schema is not None
        return self.schema

    @property
    def open_cursor(self) -> Cursor:
        """The cursor of the file that is open, while one is."""
        assert self.cursor is not None
        return self.cursor

    @property
    def fraction(self) -> float:
        """How much has been read, 0 to 1, by the sizes of files."""
        done = float(sum(self._sizes[: self.number]))
        if self._table is not None:
            done += self._sizes[self.number] * self._table.fraction()
        return min(done / max(sum(self._sizes), 1), 1.0)

    def pieces(self) -> Iterator[Piece]:
        """Yield the rows of every input from where it was left."""
        for task in self._tasks:
            if task.content is not None:
                yield from self._pieces_of(task)
            self.number += 1

    def _pieces_of(self, task: PlannedRead) -> Iterator[Piece]:
        source, start = task.source, task.start
        before = stamp(Path(source.key)) if source.resumable else Stamp(0, 0)
        with open_table(source, final=self._final) as self._table:
            self.cursor = Cursor(source.key, start.rows, start.offset, task.content, before)
            if self._table.has_rows():
                self.schema = schema = self._checked(self._table, source.name)
                yield from self._table.pieces(self.wanted(schema), start)
            if self._table.deferred:
                self.cursor.distrust()
        if source.resumable:
            self._position = self._position.with_file(self.cursor.position(finished=True))
        self._table = self.cursor = None

    def _checked(self, table: Table, source: str) -> Schema:
        """Return the schema, decided now if it was not; refuse a file that does not have it."""
        schema = self.schema
        if schema is None:
            features, ignored = choose_features(self._columns, table, source, self._batch_by)
            schema = Schema(self._columns, features, ignored, self._columns.label_type)
        new = [name for name in schema.new_names(table, source) if name not in self._noticed]
        if new:
            self._noticed |= set(new)
            names = listed([shown(name) for name in new])
            notice(f"{source}: not used, because the first file had no such column: {names}.")
        label = schema.columns.label if self._label_required else None
        if table.complete:
            needed = [*self._others, *([] if label is None else [label])]
            refuse_missing(needed, table, source)
        elif label is not None and label not in table.names:
            notice(f"{source}: none of its first rows has {label!r}: are the labels called that?")
        return schema

    def wanted(self, schema: Schema) -> Wanted:
        """Return which columns are read."""
        columns = schema.columns
        hashed = tuple(name for name in (columns.label, columns.text) if name is not None)
        return Wanted(schema.features, tuple(dict.fromkeys([*hashed, *self._others])), hashed)
