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
import pyarrow as pa

from seqmed.streams import inputs
from seqmed.streams.batches import (
    Borders,
    Part,
    StreamBatch,
    selected_rows,
    stacked,
    table_bytes,
)
from seqmed.streams.columnar import ARROW_STARTS, open_arrow, open_parquet
from seqmed.streams.columns import EncoderCheck, InputColumns, refuse_absent
from seqmed.streams.delimited import Delimited
from seqmed.streams.dialects import Dialect
from seqmed.streams.faults import BadRow, Fault, Skipped, StreamError
from seqmed.streams.inputs import ARROW, PARQUET, Input, as_utf8, find_inputs, opened
from seqmed.streams.jsonlines import JsonLines
from seqmed.streams.label_column import LabelColumn, labels_in
from seqmed.streams.pieces import Cells, Piece, Table, Text, Wanted, column_of
from seqmed.streams.positions import Cursor, Position, plan, stamp

DEFAULT_BATCH_SIZE = 500
# First bytes of Parquet and of gzip, which cannot be read from a pipe.
REFUSED_STARTS = (b"PAR1", b"\x1f\x8b")


class ReadEvent(NamedTuple):
    """Rows of an open input, and the cursor before them; without a piece, its end.

    ``number`` is the index of the input. There are no cells if the piece has no rows.
    """

    number: int
    cursor: Cursor
    table: Table
    piece: Piece | None = None
    cells: Cells | None = None


class Stream:
    """Batches of raw columns from files and pipes, each read once, in constant memory.

    Iterating yields every `StreamBatch`. A batch continues from one file to the next, as if the
    files were one. After the last batch, `position` marks the files as finished: save it too.

    Parameters
    ----------
    paths : a file, a folder (its files sorted by name), "-" for standard input, or several of these
        or of inputs that were found before.
    label : the label column; None if there are no labels. The rows of a file without this column
        are unlabeled.
    check : chooses columns and finds bad cells. By default all columns are read, and no cell is
        bad.
    batch_size : rows in a batch, except the last and batches of 128 MiB. Default 500; with
        ``batch_by``, no limit.
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
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str] | Input],
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
        found = find_inputs(paths, file_format)
        self.names = tuple(each.name for each in found)
        self.keys = tuple(each.key for each in found)
        self.resumable = all(each.resumable for each in found)
        self.skipped = Skipped()
        self.label = label
        self._check, self._stop = check, on_error == "stop"
        self._kept = (*keep, *keep_optional)
        self._required = (*([] if batch_by is None else [batch_by]), *keep)
        self._open = partial(open_table, dialect=dialect or Dialect(), final=final, tell=tell)
        self._inputs = found
        self._starts, self.position = plan(found, position or Position(), again)
        self._files = self.position  # in the files that have been closed
        self._sizes = [stamp(each.path)[0] if each.path else 0 for each in found]
        self._progress = (0, 0.0)  # index of an input, and the fraction of it that is in batches
        self._held: list[Part] = []
        new = not begun and (check is None or self._undecided)
        self._sizes_of_batches = (batch_by, batch_size, (first_batch_size or 0) if new else 0)
        self._borders = Borders(*self._sizes_of_batches)
        self._columns = InputColumns(
            None if label is None else label.name,
            label_required and self.resumable,
            [] if check is None or position is None else check.known(),
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
            # the iterator, unlike the list, ends without the rows
            events = chain(iter(self._decide(events)), events)
        last = -1
        for event in events:
            number, cursor, table, piece, cells = event
            if piece is None:
                if cursor.source.resumable:
                    end = cursor.position(finished=True, deferred=table.deferred)
                    self._files = self._files.with_file(end)
            elif cells is None:
                cursor.advance(0, piece.part(0, 0))
            else:
                if number != last:
                    refuse_absent(self._needed, table, self.names[number])
                last = number
                yield from self._take(event, piece, cells)
                self._progress = (number, piece.fraction)
        self._progress = (len(self.names), 0.0)  # all are read
        if self._held:
            yield self._finish_batch(self._files)
        self.position = self._files

    def _events(self) -> Iterator[ReadEvent]:
        """Read the inputs, in order."""
        for number, (source, start) in enumerate(zip(self._inputs, self._starts, strict=True)):
            if start is None:
                continue
            cursor = Cursor(source, start)
            with self._open(source) as table:
                self._columns.check(table, source.name, self._needed)
                for piece in table.pieces(cursor):
                    cells = table.cells(piece, self._wanted) if piece.ends.size else None
                    yield ReadEvent(number, cursor, table, piece, cells)
            yield ReadEvent(number, cursor, table)

    @property
    def _wanted(self) -> Wanted:
        """The columns to read."""
        label = [] if self.label is None else [self.label.name]
        columns = None if self._check is None else self._check.needed()
        return Wanted(columns, tuple(dict.fromkeys([*label, *self._required, *self._kept])))

    @property
    def _needed(self) -> tuple[str, ...]:
        """The columns that an input must have."""
        return (*(self._wanted.columns or ()), *self._required)

    def _decide(self, events: Iterator[ReadEvent]) -> list[ReadEvent]:
        """Read the rows of the first batch and let the check choose columns; return what was read.

        Of a large batch, the first `inputs.FIRST_BYTES` are read. The columns are those of the
        first file that has rows.
        """
        read: list[ReadEvent] = []
        tables: list[Any] = []
        first, names, size, complete = -1, dict[str, None](), 0, False
        borders = Borders(*self._sizes_of_batches)
        for event in events:
            read.append(event)
            if event.piece is not None:
                size += len(event.piece.raw)
            if event.piece is not None and event.cells is not None:
                size += table_bytes(event.cells.table)
                size += inputs.FAULT_BYTES * len(event.cells.faults)
                features = self._features(event.piece, event.cells)
                faults = self._faults(event.piece, event.cells, ())
                good = np.delete(np.arange(event.piece.ends.size), list(faults))
                if good.size and first in (-1, event.number):
                    first = event.number
                    names |= dict.fromkeys(features.column_names)
                both = [name for name in features.column_names if name in names]
                features = features.select(both)
                complete = self._stop and bool(faults)  # no batch comes before the error
                for rows in borders.cut(event.cells.table, good, event.piece.sizes):
                    if rows is None:
                        complete = True
                        break
                    tables.append(selected_rows(features, rows))
                    borders.held += rows.size
            if complete or size > inputs.FIRST_BYTES:
                break
        if size > inputs.FIRST_BYTES and not (tables or complete):
            n_rows = sum(event.piece.ends.size for event in read if event.piece is not None)
            raise StreamError(
                f"{self.names[read[-1].number]} has no row that can be read among the first "
                f"{n_rows}: check the file and its format."
            )
        if tables and self._check is not None:
            self._check.decide(stacked(tables).select(list(names)))
        self._undecided = False
        return read

    def _features(self, piece: Piece, cells: Cells) -> Any:
        """Return the table of the columns of a batch, null if the input does not have them."""
        wanted, table = self._wanted.columns, cells.table
        if wanted is None:
            label = None if self.label is None else self.label.name
            return table.select([name for name in table.column_names if name != label])
        columns = dict(zip(table.column_names, table.columns, strict=True))
        absent = pa.nulls(piece.ends.size)
        return pa.table({name: columns.get(name, absent) for name in wanted})

    def _faults(self, piece: Piece, cells: Cells, used: Sequence[str] | None) -> dict[int, Fault]:
        """Return the first fault of each row, by its index.

        Faults are of whole rows, of the ``used`` columns (None for all), and of other columns that
        the stream needs: a fault in a column that may be chosen later is none yet.
        """
        needed = None if used is None else {None, *used, *self._wanted.others}
        faults: dict[int, Fault] = {}
        for row, fault in cells.faults:
            if needed is None or fault.column in needed:
                faults.setdefault(row, fault)
        return faults

    def _take(self, event: ReadEvent, piece: Piece, cells: Cells) -> Iterator[StreamBatch]:
        """Hold the good rows of a piece; yield the batches that they complete."""
        size, labels = piece.ends.size, None
        features = self._features(piece, cells)
        faults = self._faults(piece, cells, None if self._check is None else self._check.used())
        if self._check is not None:
            features, bad_cells = self._check.checked(features)
            faults = bad_cells | faults
        if self.label is not None:
            labels = labels_in(column_of(cells.table, self.label.name, size), self.label)
        bad = sorted(faults.items())  # a heap, to which rows with bad labels are added
        good = np.delete(np.arange(size), list(faults))
        kept = {name: column_of(cells.table, name, size) for name in self._kept}
        number, start = event.number, event.cursor.rows + 1
        before = self._progress[1] if self._progress[0] == number else 0.0
        done = 0
        for rows in self._borders.cut(cells.table, good, piece.sizes):
            if rows is None:
                self._progress = (number, before + (piece.fraction - before) * done / size)
                position = self._files
                if event.cursor.source.resumable:
                    position = position.with_file(event.cursor.position(finished=False))
                yield self._finish_batch(position)
                continue
            last = int(rows[-1]) + 1
            if self.label is not None and labels is not None:
                misfits = labels.of(rows).misfits(self.label)
                for place, fault in misfits.items():
                    heappush(bad, (int(rows[place]), fault))
                rows = np.delete(rows, list(misfits))
            self._advance(event, piece, done, last, bad)
            done = last
            if rows.size:
                part = Part(
                    selected_rows(features, rows),
                    {name: column.take(rows).to_pylist() for name, column in kept.items()},
                    None if labels is None else labels.of(rows),
                    number,
                    rows + start,
                )
                self._held.append(part)
                self._borders.held += rows.size
        self._advance(event, piece, done, size, bad)

    def _advance(
        self, event: ReadEvent, piece: Piece, first: int, last: int, bad: list[tuple[int, Fault]]
    ) -> None:
        """Move the cursor over rows of a piece; refuse or count the bad ones among them."""
        while bad and bad[0][0] < last:
            row, fault = heappop(bad)
            fault = fault._replace(line=piece.line_of(row))
            found = BadRow(self.names[event.number], event.cursor.rows - first + row + 1, fault)
            if self._stop:
                raise found.error()
            self.skipped.add(found)
        event.cursor.advance(last - first, piece.part(first, last))

    def _finish_batch(self, position: Position) -> StreamBatch:
        """Return the rows held as a batch, with the position after it."""
        parts, self._held = self._held, []
        self._borders.next_batch()
        self.position, y = position, None
        if self.label is not None:
            labels = [each.labels for each in parts if each.labels is not None]
            self.label = self.label.of_first(labels)
            y = self.label.values(labels)
        return StreamBatch(
            stacked([part.table for part in parts]),
            y,
            np.concatenate([np.full(part.rows.size, part.file) for part in parts]),
            np.concatenate([part.rows for part in parts]),
            {name: [value for part in parts for value in part.kept[name]] for name in self._kept},
            position,
            self.skipped.total,
        )


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
        kind = source.kind
        if kind is None and content.start.startswith(REFUSED_STARTS):
            raise StreamError(
                f"{source.name} is a Parquet file or compressed, expected CSV, JSON lines or an "
                "Arrow stream from a pipe: save it to a file, or convert it."
            )
        if kind == ARROW or (kind is None and content.start.startswith(ARROW_STARTS)):
            with open_arrow(content, source.name) as table:
                yield table
            return
        grows = source.resumable and not final
        utf8, encoding = as_utf8(content, dialect.encoding, source.name)
        text = Text(utf8, source.name, grows)
        if kind is None:  # a pipe, whose format is inferred from its first character
            start = text.buffer[text.head :].lstrip()
            kind = "jsonl" if start.startswith((b"{", b"[")) else "csv"
        if kind == "jsonl":
            yield JsonLines(text)
        else:
            yield Delimited(text, kind, encoding, dialect, tell)
