"""A stream of batches from files and pipes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Points
from seqmed.streams.borders import Borders
from seqmed.streams.errors import LABEL, BadRow, Fault, Skipped, StreamError, listed, notice, shown
from seqmed.streams.features import encode, freeze_schema
from seqmed.streams.files import find_inputs
from seqmed.streams.formats import open_table
from seqmed.streams.positions import Cursor, PlannedRead, Position, plan, stamp
from seqmed.streams.schema import Columns, Schema, choose_columns, refuse_missing
from seqmed.streams.tables import Piece, Table, Wanted
from seqmed.streams.values import check_signs, label_of, label_text, label_type

DEFAULT_BATCH_SIZE = 500


class StreamBatch(NamedTuple):
    """Rows to be learned or predicted together.

    Parameters
    ----------
    X : (n, p) array or CSR array of features.
    y : (n,) object array of labels of one type, None for unlabeled rows; None without a column of
        labels.
    file, row : (n,) the origin of each row: an index in `Stream.names`, and the number of the row
        in the file, from 1, without the header.
    kept : the columns of ``keep`` by name, n values each.
    position, schema : position after the batch, and schema; save them with the model to resume.
    skipped : bad rows skipped so far.
    """

    X: Points
    y: NDArray[np.object_] | None
    file: NDArray[np.intp]
    row: NDArray[np.int64]
    kept: dict[str, list[Any]]
    position: Position
    schema: Schema
    skipped: int

    @property
    def labeled(self) -> NDArray[np.bool_]:
        """A mask (n,) of the rows that have a label."""
        if self.y is None:
            return np.zeros(self.row.size, dtype=bool)
        return np.array([label is not None for label in self.y], dtype=bool)


class Part(NamedTuple):
    """Good rows of one piece for the next batch."""

    numbers: Array
    values: dict[str, list[Any]]
    labels: list[str | None]
    file: int
    rows: NDArray[np.int64]


class Stream:
    """Batches from files and pipes, each read once, in constant memory.

    Iterating yields every `StreamBatch`. A batch continues from one file to the next, as if the
    files were one. After the last batch, `position` marks the files as finished: save it too.

    Parameters
    ----------
    paths : a file, a folder (its files sorted by name), "-" for standard input, or several.
    columns : the choice of columns; optional with a schema.
    schema : schema of earlier batches, None to infer it from the first rows.
    batch_size : rows in a batch, except the last. Default 500; with ``batch_by``, no limit.
    batch_by : a column. A new batch begins where its value changes. It is not a feature, unless
        named as one.
    on_error : "stop" to refuse a bad row, "skip" to count it and continue.
    position : position from which to resume, None for the beginning.
    again : whether finished files are read again. If the previous run was interrupted, that run is
        completed instead.
    final : whether a last line without a line end is read. By default such a line of a file is left
        for the next run, with a warning, because it may be incomplete. The last line of a pipe is
        always read.
    file_format : format of all inputs; None to infer it from the names of files and the first
        character of pipes.
    label_required : whether a file without the column of labels is refused. If not, its rows are
        unlabeled.
    keep : columns to return unchanged with each batch.

    Attributes
    ----------
    names : names of the inputs in messages.
    position, schema : position and schema after the last batch that was yielded; at the end, those
        of the whole stream.
    skipped : skipped bad rows by reason, with examples.
    resumable : whether all inputs are files; a pipe cannot be resumed.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        columns: Columns | None = None,
        *,
        schema: Schema | None = None,
        batch_size: int | None = None,
        batch_by: str | None = None,
        on_error: str = "stop",
        position: Position | None = None,
        again: bool = False,
        final: bool = False,
        file_format: str | None = None,
        label_required: bool = True,
        keep: Sequence[str] = (),
    ):
        if on_error not in ("stop", "skip"):
            raise StreamError(f"on_error={on_error!r}, expected 'stop' or 'skip'.")
        if batch_size is None and batch_by is None:
            batch_size = DEFAULT_BATCH_SIZE
        if batch_size is not None and batch_size < 1:
            raise StreamError(f"batch_size={batch_size}, expected at least 1.")
        if schema is not None and columns is not None:
            schema.check_same(columns)
        if schema is None and position is not None and any(each.rows for each in position.files):
            raise StreamError("a position is given without the schema of its rows: pass both.")
        paths = [paths] if isinstance(paths, str | os.PathLike) else paths
        inputs = find_inputs(paths, file_format)
        self.names = tuple(each.name for each in inputs)
        self.resumable = all(each.resumable for each in inputs)
        self.skipped = Skipped()
        self.schema = schema
        self._columns, self._label_required, self._final = (
            columns or Columns(),
            label_required,
            final,
        )
        self._batch_size, self._batch_by, self._keep = batch_size, batch_by, tuple(keep)
        self._others = [*([] if batch_by is None else [batch_by]), *keep]
        self._known = set(self._others)  # columns that need no warning
        wanted = None if schema is None else self._wanted(schema)
        self._reads, self.position = plan(inputs, position or Position(), again, wanted)
        self._files = self.position  # in the files that have been closed
        self._sizes = [stamp(each.path).size if each.path else 0 for each in inputs]
        self._number, self._read_fraction = 0, 0.0
        self._stop = on_error == "stop"
        self._held: list[Part] = []
        self._borders = Borders(batch_by)
        self._begun = False

    @property
    def fraction(self) -> float | None:
        """The fraction of the input up to the last batch, 0 to 1; None if there is a pipe."""
        if not self.resumable:
            return None
        sizes, number = self._sizes, min(self._number, len(self._sizes) - 1)
        done = sum(sizes[: self._number]) + sizes[number] * self._read_fraction
        return min(done / max(sum(sizes), 1), 1.0)

    def __iter__(self) -> Iterator[StreamBatch]:
        if self._begun:
            raise StreamError(
                "a Stream can be read only once: create another to read the files again."
            )
        self._begun = True
        for read in self._reads:
            if read.content is not None:
                yield from self._batches_of(read)
            self._number += 1
        if self._held:
            yield self._finish_batch(self._files)
        self.position = self._files

    def _batches_of(self, read: PlannedRead) -> Iterator[StreamBatch]:
        """Yield the batches that the rows of one input complete."""
        source = read.source
        cursor = Cursor(*read)
        with open_table(source, final=self._final) as table:
            if table.has_rows():
                self.schema = self._checked(table, source.name)
                before = 0.0
                for piece in table.pieces(self._wanted(self.schema), read.start):
                    after = table.fraction()
                    for batch, share in self._take(piece, cursor):
                        self._read_fraction = before + (after - before) * share
                        yield batch
                    before = self._read_fraction = after
            deferred = table.deferred
        self._read_fraction = 0.0
        if source.resumable:
            end = cursor.position(finished=True, deferred=deferred)
            self._files = self._files.with_file(end)

    def _checked(self, table: Table, source: str) -> Schema:
        """Return the schema, chosen by the first file; refuse a file that lacks its columns."""
        label = (self.schema.columns if self.schema else self._columns).label
        required = [label] if self._label_required and label is not None else []
        if table.complete:
            refuse_missing([*self._others, *required], table, source)
        schema = self.schema or choose_columns(self._columns, table, source, self._batch_by)
        refuse_missing(schema.needed, table, source)
        self._known |= {*schema.needed, *schema.ignored, *([] if label is None else [label])}
        new = [name for name in table.names if name not in self._known]
        if new:
            self._known |= set(new)
            names = listed([shown(name) for name in new])
            notice(f"{source}: columns that are not in the first file are ignored: {names}.")
        if required and label not in table.names:
            notice(
                f"{source}: the first rows have no {label!r}: check the name of the label column."
            )
        return schema

    def _wanted(self, schema: Schema) -> Wanted:
        """Return the columns to read."""
        hashed = [schema.columns.label, schema.columns.text]
        present = tuple(name for name in hashed if name is not None)
        return Wanted(schema.features, tuple(dict.fromkeys([*present, *self._others])), present)

    def _take(self, piece: Piece, cursor: Cursor) -> Iterator[tuple[StreamBatch, float]]:
        """Hold the good rows of a piece; yield the batches that they complete.

        With each batch, yield the fraction of the piece that precedes its end.
        """
        bad = sorted(piece.faults)  # a heap, to which rows with bad labels are added
        good = np.delete(np.arange(piece.ends.size), bad)
        done = 0
        for run in self._borders.runs(piece, good):
            if self._borders.changes(piece, int(run[0]), self.names[self._number]) and self._held:
                yield self._finish_batch(self._position(cursor)), done / piece.ends.size
            while run.size:
                held = sum(part.rows.size for part in self._held)
                free = run.size if self._batch_size is None else self._batch_size - held
                rows, run = run[:free], run[free:]
                part = self._part(piece, rows, cursor.rows - done + 1, bad)
                self._advance(piece, done, int(rows[-1]) + 1, bad, cursor)
                done = int(rows[-1]) + 1
                if part.rows.size:
                    self._held.append(part)
                if held + part.rows.size == self._batch_size:
                    yield self._finish_batch(self._position(cursor)), done / piece.ends.size
        self._advance(piece, done, piece.ends.size, bad, cursor)

    def _position(self, cursor: Cursor) -> Position:
        """Return the position of the stream within an open input."""
        if not self._reads[self._number].source.resumable:
            return self._files
        return self._files.with_file(cursor.position(finished=False))

    def _part(self, piece: Piece, rows: NDArray[np.intp], first: int, bad: list[int]) -> Part:
        """Return rows to hold; rows with a label of another type are added to the bad ones.

        ``first`` is the row number of the first row of the piece.
        """
        assert self.schema is not None  # chosen before rows are read
        label, kind = self.schema.columns.label, self.schema.label_type
        texts: dict[int, str | None] = dict.fromkeys(rows.tolist())
        if label is not None:
            for row in texts:
                texts[row] = label_text(piece.values[label][row], self.schema.columns.unlabeled)
        if kind is not None:
            misfits = {row for row, text in texts.items() if text and label_of(text, kind) is None}
            for row in misfits:
                piece.faults[row] = Fault(LABEL, label, shown(texts.pop(row)), piece.line_of(row))
                heappush(bad, row)
        kept = np.fromiter(texts, np.intp, len(texts))
        return Part(
            piece.numbers[kept],
            {name: [column[row] for row in texts] for name, column in piece.values.items()},
            list(texts.values()),
            self._number,
            kept + first,
        )

    def _advance(self, piece: Piece, first: int, last: int, bad: list[int], cursor: Cursor) -> None:
        """Move the cursor over rows of a piece; refuse or count the bad ones among them."""
        while bad and bad[0] < last:
            place = heappop(bad)
            row = cursor.rows - first + place + 1
            found = BadRow(self.names[self._number], row, piece.faults[place])
            if self._stop:
                raise found.error()
            self.skipped.add(found)
        cursor.advance(last - first, piece.part(first, last))

    def _finish_batch(self, position: Position) -> StreamBatch:
        """Return the rows held as a batch, with the position after it."""
        parts, self._held = self._held, []
        assert self.schema is not None  # chosen before rows are read
        schema = self.schema
        columns = schema.columns
        numbers = np.vstack([part.numbers for part in parts])
        texts = [text for part in parts for text in part.labels]
        labels = [text for text in texts if text is not None]
        if schema.label_type is None and labels:
            if columns.unlabeled is None:
                stored = [value for part in parts for value in part.values[str(columns.label)]]
                check_signs(labels, stored, str(columns.label))
            schema = replace(schema, label_type=label_type(labels, str(columns.label)))
        words = [word for part in parts for word in part.values.get(columns.text or "", ())]
        if not schema.frozen:
            schema = freeze_schema(schema, numbers, words)
        y = None
        if columns.label is not None:
            y = np.empty(len(texts), dtype=object)
            y[:] = [text and label_of(text, str(schema.label_type)) for text in texts]
        self.schema, self.position = schema, position
        return StreamBatch(
            encode(schema, numbers, words),
            y,
            np.concatenate([np.full(part.rows.size, part.file) for part in parts]),
            np.concatenate([part.rows for part in parts]),
            {name: [value for part in parts for value in part.values[name]] for name in self._keep},
            position,
            schema,
            self.skipped.total,
        )
