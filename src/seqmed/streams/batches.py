"""A stream of batches, from files and pipes of any format."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Points
from seqmed.streams.cells import cell_text
from seqmed.streams.columns import Columns
from seqmed.streams.errors import LABEL, BadRow, Fault, Skipped, StreamError, notice, shown
from seqmed.streams.features import encode, freeze_schema
from seqmed.streams.files import find_inputs
from seqmed.streams.label_types import check_signs, label_of, label_text, label_type
from seqmed.streams.positions import Position
from seqmed.streams.reading import Reading
from seqmed.streams.schema import Schema
from seqmed.streams.tables import Piece

DEFAULT_BATCH_SIZE = 500
# Values of the column of batches that are remembered, to notice when one comes back.
REMEMBERED = 1000


class StreamBatch(NamedTuple):
    """Rows to be learned or predicted together.

    Parameters
    ----------
    X : (n, p) array or CSR array of features.
    y : (n,) object array of labels, all of one type, None for unlabeled rows, as `partial_fit`
        takes it; None if no column of labels was chosen.
    file, row : (n,) where each row comes from: a place in `Stream.names`, and the number of the row
        in the file, from 1, the header not counted.
    kept : other columns that were asked for, by name, n values each.
    position, schema : to be saved with a model that has learned the batch, so that it can go on.
    skipped : bad rows passed over so far.
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
    """Good rows of one piece, held until their batch is full."""

    numbers: Array
    values: dict[str, list[Any]]
    labels: list[str | None]
    file: int
    rows: NDArray[np.int64]


class Stream:
    """Batches from files and pipes, each read once, in constant memory.

    Iterating yields every `StreamBatch`. A batch goes on from one file to the next, as if the files
    were one. After the last batch `position` says that the files are finished: save it too.

    Parameters
    ----------
    paths : a file, a folder (its files in the order of names), "-" for standard input, or several.
    columns : which columns are what; may be left out where the schema says so.
    schema : of the batches that came before, None to decide it with the first rows.
    batch_size : rows in a batch, the last of all excepted. Default 500; with ``batch_by``, any
        number.
    batch_by : a column: a new batch begins wherever its value changes. It is not a feature, unless
        named as one.
    on_error : "stop" to refuse a bad row, "skip" to count it and go on.
    position : of the batch after which to go on, None to begin.
    again : whether to read files once more that have been finished. If the last time was
        interrupted, it is completed instead.
    final : whether a last line of a file that has no line end is read. Without it, such a line is
        left for the next time, with a notice: it may still be being written. The end of a pipe is
        always final.
    file_format : of all files; None to tell by their names, and of a pipe by its first character.
    label_required : whether a file without the column of labels is refused, rather than taken as
        unlabeled.
    keep : columns to pass on as they are.

    Attributes
    ----------
    names : the files, as messages call them.
    position, schema : as in the last batch; after the last one, of the whole stream.
    skipped : bad rows passed over, by reason, with examples.
    resumable : whether all inputs are files; pipes cannot be read from where they stopped.
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
        self._reading = Reading(
            inputs,
            columns or Columns(),
            schema,
            batch_by=batch_by,
            keep=keep,
            label_required=label_required,
            position=position or Position(),
            again=again,
            final=final,
        )
        self.schema, self.position = schema, self._reading.position
        self._batch_size, self._batch_by, self._keep = batch_size, batch_by, tuple(keep)
        self._stop = on_error == "stop"
        self._held: list[Part] = []
        self._recent: deque[str | None] = deque(maxlen=REMEMBERED)  # values of batch_by
        self._returned = self._begun = False

    @property
    def fraction(self) -> float | None:
        """How much of the input has been read, 0 to 1; None if a pipe is among it."""
        return self._reading.fraction if self.resumable else None

    def __iter__(self) -> Iterator[StreamBatch]:
        if self._begun:
            raise StreamError("a stream is read once: open another to read it again.")
        self._begun = True
        for piece in self._reading.pieces():
            yield from self._take(piece)
        if self._held:
            yield self._finish_batch()
        self.position = self._reading.position

    def _take(self, piece: Piece) -> Iterator[StreamBatch]:
        """Hold the good rows of a piece; yield the batches that they complete."""
        bad = sorted(piece.faults)  # a heap, to which others are added
        good = np.delete(np.arange(piece.ends.size), bad)
        passed = 0
        for run in self._runs(piece, good):
            if self._changes(piece, int(run[0])):
                yield self._finish_batch()
            while run.size:
                held = sum(part.rows.size for part in self._held)
                room = run.size if self._batch_size is None else self._batch_size - held
                rows, run = run[:room], run[room:]
                part = self._part(piece, rows, passed, bad)
                self._pass(piece, passed, int(rows[-1]) + 1, bad)
                passed = int(rows[-1]) + 1
                if part.rows.size:
                    self._held.append(part)
                if held + part.rows.size == self._batch_size:
                    yield self._finish_batch()
        self._pass(piece, passed, piece.ends.size, bad)

    def _runs(self, piece: Piece, good: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """Return the good rows of a piece, apart where the value of ``batch_by`` changes."""
        if self._batch_by is None or not good.size:
            return [good] if good.size else []
        column = piece.values[self._batch_by]
        keys = [cell_text(column[row]) for row in good.tolist()]
        borders = [place for place, pair in enumerate(pairwise(keys), 1) if pair[0] != pair[1]]
        return np.split(good, borders)

    def _changes(self, piece: Piece, row: int) -> bool:
        """Return whether a batch ends before a row, by its value of ``batch_by``."""
        if self._batch_by is None:
            return False
        key = cell_text(piece.values[self._batch_by][row])
        if self._recent and key == self._recent[-1]:
            return False
        if key in self._recent and not self._returned:
            self._returned = True
            notice(
                f"{self.names[self._reading.number]}: {shown(key)} comes back in column "
                f"{self._batch_by!r}, and begins another batch: sort the rows by this column if "
                "those of equal value belong together."
            )
        self._recent.append(key)
        return bool(self._held)

    def _part(self, piece: Piece, rows: NDArray[np.intp], passed: int, bad: list[int]) -> Part:
        """Return rows to hold; those with a label of another type are added to the bad ones."""
        reading, schema = self._reading, self._reading.known_schema
        label, kind = schema.columns.label, schema.label_type
        texts: dict[int, str | None] = dict.fromkeys(rows.tolist())
        if label is not None:
            for row in texts:
                texts[row] = label_text(piece.values[label][row], schema.columns.unlabeled)
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
            reading.number,
            kept + (reading.open_cursor.rows - passed + 1),
        )

    def _pass(self, piece: Piece, first: int, last: int, bad: list[int]) -> None:
        """Let rows of a piece be taken, and count the bad ones among them."""
        cursor = self._reading.open_cursor
        while bad and bad[0] < last:
            place = heappop(bad)
            name, row = self.names[self._reading.number], cursor.rows - first + place + 1
            found = BadRow(name, row, piece.faults[place])
            if self._stop:
                raise found.error()
            self.skipped.add(found)
        cursor.advance(last - first, piece.part(first, last))

    def _finish_batch(self) -> StreamBatch:
        """Return the rows held as a batch, and what is known after it."""
        parts, self._held = self._held, []
        schema = self._reading.known_schema
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
        self.schema = self._reading.schema = schema
        self.position = self._reading.position
        return StreamBatch(
            encode(schema, numbers, words),
            y,
            np.concatenate([np.full(part.rows.size, part.file) for part in parts]),
            np.concatenate([part.rows for part in parts]),
            {name: [value for part in parts for value in part.values[name]] for name in self._keep},
            self.position,
            schema,
            self.skipped.total,
        )
