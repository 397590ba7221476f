"""A stream of batches from files and pipes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from seqmed.streams.batches import Borders, Part, StreamBatch, as_batch, selected_rows, stacked
from seqmed.streams.columnar import CONTINUES, FILE_MARK, open_arrow, open_parquet
from seqmed.streams.columns import EncoderCheck, InputColumns, PieceReader
from seqmed.streams.delimited import Delimited
from seqmed.streams.dialects import Dialect
from seqmed.streams.faults import BadRow, Fault, Skipped, StreamError, refusing
from seqmed.streams.inputs import ARROW, PARQUET, Bytes, Input, as_utf8, find_inputs, opened
from seqmed.streams.jsonlines import JsonLines
from seqmed.streams.label_column import LabelColumn
from seqmed.streams.pieces import Cells, Piece, Table, Text, column_of
from seqmed.streams.positions import Cursor, Position, plan, stamp

DEFAULT_BATCH_SIZE = 500
# First bytes of formats that cannot be read from a pipe.
SIGNATURES = {b"PAR1": "a Parquet file", b"\x1f\x8b": "compressed"}


class ReadEvent(NamedTuple):
    """Rows that were read from an input, or its end.

    Parameters
    ----------
    number : index of the input.
    cursor : position in the input before the rows.
    table : the open input.
    fraction : fraction of the input that has been read.
    piece : rows of the input; None at its end.
    cells : the values of the rows; None if there are no rows.
    """

    number: int
    cursor: Cursor
    table: Table
    fraction: float = 1.0
    piece: Piece | None = None
    cells: Cells | None = None


class Stream:
    """Batches of raw columns from files and pipes, each read once, in constant memory.

    Iterating yields every `StreamBatch`. A batch continues from one file to the next, as if the
    files were one. After the last batch, `position` marks the files as finished: save it too.

    Parameters
    ----------
    paths : a file, a folder (its files sorted by name), "-" for standard input, or several.
    label : the label column; None if there are no labels. The rows of a file without this column
        are unlabeled.
    check : chooses columns and finds bad cells. By default all columns are read, and no cell is
        bad.
    batch_size : rows in a batch, except the last. Default 500; with ``batch_by``, no limit.
    first_batch_size : smallest number of rows in the first batch of a new stream. Not used if the
        columns have been chosen, or if a position is given.
    batch_by : a column. A new batch begins where its value changes.
    on_error : "stop" to refuse a bad row, "skip" to count it and continue.
    position : position from which to resume, None for the beginning.
    again : whether finished files are read again. If the previous run was interrupted, that run is
        completed instead.
    final : whether a last line without a line end is read. By default such a line of a file is left
        for the next run, with a warning, because it may be incomplete. The last line of a pipe is
        always read.
    dialect : separator, decimal character, thousands separator and encoding; by default they are
        detected for each file.
    file_format : format of all inputs; None to infer it from the names of files and the first
        character of pipes.
    keep : columns to return unchanged with each batch.
    keep_optional : further such columns, which are None where a file does not have them.
    tell : receives a line about each file whose detected dialect is not the default.
    label_required : whether the first file must have the label column; pipes are not checked.

    Attributes
    ----------
    names : names of the inputs in messages.
    keys : absolute paths of the inputs, as in `FilePosition`.
    position : position after the last batch that was yielded; at the end, that of the whole stream.
    label : the label column, with the type of the labels seen so far.
    skipped : skipped bad rows by reason, with examples.
    resumable : whether all inputs are files; a pipe cannot be resumed.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        label: LabelColumn | None = None,
        check: EncoderCheck | None = None,
        batch_size: int | None = None,
        first_batch_size: int | None = None,
        batch_by: str | None = None,
        on_error: str = "stop",
        position: Position | None = None,
        again: bool = False,
        final: bool = False,
        dialect: Dialect | None = None,
        file_format: str | None = None,
        keep: Sequence[str] = (),
        keep_optional: Sequence[str] = (),
        tell: Callable[[str], None] = lambda line: None,
        label_required: bool = False,
    ):
        if on_error not in ("stop", "skip"):
            raise StreamError(f"on_error={on_error!r}, expected 'stop' or 'skip'.")
        if batch_size is None and batch_by is None:
            batch_size = DEFAULT_BATCH_SIZE
        for name, size in (("batch_size", batch_size), ("first_batch_size", first_batch_size)):
            if size is not None and size < 1:
                raise StreamError(f"{name}={size}, expected at least 1.")
        begun = position is not None and any(each.rows for each in position.files)
        self._undecided = check is not None and check.needed() is None
        if begun and self._undecided:
            raise StreamError(
                "a position is given, but the columns have not been chosen: pass the encoder that "
                "has learned the rows before it."
            )
        paths = [paths] if isinstance(paths, str | os.PathLike) else paths
        inputs = find_inputs(paths, file_format)
        self.names = tuple(each.name for each in inputs)
        self.keys = tuple(each.key for each in inputs)
        self.resumable = all(each.resumable for each in inputs)
        self.skipped = Skipped()
        self.label = label
        self._check, self._stop = check, on_error == "stop"
        self._reader = PieceReader(label, check, batch_by, keep, keep_optional)
        self._open = partial(open_table, dialect=dialect or Dialect(), final=final, tell=tell)
        self._reads, self.position = plan(inputs, position or Position(), again)
        self._files = self.position  # in the files that have been closed
        self._sizes = [stamp(each.path).size if each.path else 0 for each in inputs]
        self._progress = (0, 0.0)  # index of an input, and the fraction of it that is in batches
        self._held: list[Part] = []
        new = not begun and (check is None or self._undecided)
        self._sizes_of_batches = (batch_by, batch_size, (first_batch_size or 0) if new else 0)
        self._borders = Borders(*self._sizes_of_batches)
        self._columns = InputColumns(
            self.names,
            None if label is None else label.name,
            label_required and self.resumable,
            () if check is None else check.needed() or (),
        )
        self._begun = False

    @property
    def fraction(self) -> float | None:
        """The fraction of the input that has been read, 0 to 1; None if there is a pipe."""
        if not self.resumable:
            return None
        number, fraction = self._progress
        done = sum(self._sizes[:number]) + fraction * sum(self._sizes[number : number + 1])
        return min(done / max(sum(self._sizes), 1), 1.0)

    def __iter__(self) -> Iterator[StreamBatch]:
        if self._begun:
            raise StreamError(
                "a Stream can be read only once: create another to read the files again."
            )
        self._begun = True
        events = self._events()
        if self._undecided:
            events = chain(self._decide(events), events)
        for event in events:
            cursor, piece = event.cursor, event.piece
            if piece is None:
                if cursor.source.resumable:
                    end = cursor.position(finished=True, deferred=event.table.deferred)
                    self._files = self._files.with_file(end)
            elif event.cells is None:
                cursor.advance(0, piece.part(0, 0))
            else:
                self._columns.check(event.number, event.table, self._reader.required)
                number, before = self._progress
                before = before if number == event.number else 0.0
                for batch, share in self._take(event, piece, event.cells):
                    self._progress = (event.number, before + (event.fraction - before) * share)
                    yield batch
                self._progress = (event.number, event.fraction)
        self._progress = (len(self.names), 0.0)  # all are read
        if self._held:
            yield self._finish_batch(self._files)
        self.position = self._files

    def _events(self) -> Iterator[ReadEvent]:
        """Read the inputs, in order."""
        for number, (source, done, needed) in enumerate(self._reads):
            if not needed:
                continue
            cursor = Cursor(source, done)
            with self._open(source) as table:
                for piece in table.pieces(cursor):
                    cells = table.cells(piece, self._reader.wanted) if piece.ends.size else None
                    yield ReadEvent(number, cursor, table, table.fraction(), piece, cells)
            yield ReadEvent(number, cursor, table)

    def _decide(self, events: Iterator[ReadEvent]) -> list[ReadEvent]:
        """Read the rows of the first batch and let the check choose columns; return what was read.

        The columns are those of the first file that has rows.
        """
        read: list[ReadEvent] = []
        tables: list[Any] = []
        first, names = -1, dict[str, None]()
        borders = Borders(*self._sizes_of_batches)
        for event in events:
            read.append(event)
            if event.piece is None or event.cells is None:
                continue
            self._columns.check_label(event.number, event.table)
            found = self._reader.unchecked(event.piece, event.cells)
            good = np.delete(np.arange(event.piece.ends.size), list(found.faults))
            features = found.features
            if good.size and first in (-1, event.number):
                first = event.number
                names |= dict.fromkeys(features.column_names)
            features = features.select([name for name in features.column_names if name in names])
            for rows in borders.cut(found.borders, good):
                if rows is None:
                    break
                tables.append(selected_rows(features, rows))
                borders.held += rows.size
            else:
                continue
            break
        if tables and self._check is not None:
            self._check.decide(stacked(tables).select(list(names)))
        self._undecided = False
        return read

    def _take(
        self, event: ReadEvent, piece: Piece, cells: Cells
    ) -> Iterator[tuple[StreamBatch, float]]:
        """Hold the good rows of a piece; yield the batches that they complete.

        With each batch, yield the fraction of the piece that precedes its end.
        """
        found, size = self._reader.checked(piece, cells), piece.ends.size
        bad = sorted(found.faults.items())  # a heap, to which rows with bad labels are added
        good = np.delete(np.arange(size), list(found.faults))
        kept = {name: column_of(found.table, name, size) for name in self._reader.kept}
        before, done = event.cursor.rows + 1, 0
        for rows in self._borders.cut(found.borders, good):
            if rows is None:
                yield self._finish_batch(self._position(event.cursor)), done / size
                continue
            last = int(rows[-1]) + 1
            if self.label is not None and found.labels is not None:
                misfits = found.labels.of(rows).misfits(self.label)
                for place, fault in misfits.items():
                    row = int(rows[place])
                    heappush(bad, (row, fault._replace(line=piece.line_of(row))))
                rows = np.delete(rows, list(misfits))
            self._advance(event, piece, done, last, bad)
            done = last
            if rows.size:
                part = Part(
                    selected_rows(found.features, rows),
                    {name: column.take(rows).to_pylist() for name, column in kept.items()},
                    None if found.labels is None else found.labels.of(rows),
                    event.number,
                    rows + before,
                )
                self._held.append(part)
                self._borders.held += rows.size
        self._advance(event, piece, done, size, bad)

    def _position(self, cursor: Cursor) -> Position:
        """Return the position of the stream within an open input."""
        if not cursor.source.resumable:
            return self._files
        return self._files.with_file(cursor.position(finished=False))

    def _advance(
        self, event: ReadEvent, piece: Piece, first: int, last: int, bad: list[tuple[int, Fault]]
    ) -> None:
        """Move the cursor over rows of a piece; refuse or count the bad ones among them."""
        while bad and bad[0][0] < last:
            row, fault = heappop(bad)
            found = BadRow(self.names[event.number], event.cursor.rows - first + row + 1, fault)
            if self._stop:
                raise found.error()
            self.skipped.add(found)
        event.cursor.advance(last - first, piece.part(first, last))

    def _finish_batch(self, position: Position) -> StreamBatch:
        """Return the rows held as a batch, with the position after it."""
        parts, self._held = self._held, []
        self._borders.next_batch()
        if self.label is not None:
            self.label = self.label.of_first([each.labels for each in parts if each.labels])
        self.position = position
        return as_batch(parts, self.label, position, self.skipped.total)


# -- formats ---------------------------------------------------------------------------------------


@contextmanager
def open_table(
    source: Input, dialect: Dialect, *, final: bool, tell: Callable[[str], None]
) -> Iterator[Table]:
    """Open a file or pipe of any format as a table; see the parameters of `Stream`."""
    if source.kind == PARQUET:
        if source.path is None or not source.resumable:
            raise StreamError(
                f"{source.name} is a pipe and cannot be read as {source.kind}, expected csv, tsv, "
                "jsonl or feather: save it to a file first."
            )
        with open_parquet(source.path, source.name) as table:
            yield table
        return
    with opened(source) as content:
        kind = source.kind or pipe_format(content, source.name)
        if kind == ARROW:
            with open_arrow(content, source.name) as table:
                yield table
            return
        grows = source.resumable and not final
        utf8, encoding = as_utf8(content, dialect.encoding, source.name)
        text = Text(utf8, source.name, grows)
        if kind is not None and kind != "jsonl":
            yield Delimited(text, kind, encoding, dialect, tell)
        elif kind == "jsonl" or text_format(text) == "jsonl":
            yield JsonLines(text)
        else:
            yield Delimited(text, "csv", encoding, dialect, tell)


def pipe_format(content: Bytes, name: str) -> str | None:
    """Return the format of a pipe, inferred from its first bytes; None for a text."""
    if content.start.startswith((CONTINUES, FILE_MARK[:6])):
        return ARROW
    for signature, kind in SIGNATURES.items():
        if content.start.startswith(signature):
            raise StreamError(
                f"{name} is {kind}, expected CSV, JSON lines or an Arrow stream from a pipe: save "
                "it to a file, or convert it."
            )
    return None


def text_format(text: Text) -> str:
    """Return the format of a text from a pipe, inferred from its first character."""
    with refusing(text.name, "text"):
        while not (start := text.buffer[text.head :].lstrip()) and not text.at_end:
            text.fill()
    return "jsonl" if start.startswith((b"{", b"[")) else "csv"
