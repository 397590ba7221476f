"""A stream of batches from files and pipes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from seqmed.streams.batches import Borders, Part, StreamBatch, as_batch, selected_rows, stacked
from seqmed.streams.columnar import CONTINUES, FILE_MARK, open_arrow, open_parquet
from seqmed.streams.columns import CellCheck, InputColumns, PieceReader
from seqmed.streams.delimited import Delimited
from seqmed.streams.dialects import Dialect
from seqmed.streams.faults import BadRow, Fault, Skipped, StreamError, refusing
from seqmed.streams.inputs import ARROW, PARQUET, Bytes, Input, as_utf8, find_inputs, opened
from seqmed.streams.jsonlines import JsonLines
from seqmed.streams.label_column import LabelColumn
from seqmed.streams.pieces import Piece, Table, Text
from seqmed.streams.positions import Cursor, Position, plan, stamp
from seqmed.tables.messages import listed, shown, similar_name

DEFAULT_BATCH_SIZE = 500
# First bytes of formats that cannot be read from a pipe.
SIGNATURES = {b"PAR1": "a Parquet file", b"\x1f\x8b": "compressed"}


class ReadEvent(NamedTuple):
    """Something read from an input.

    Parameters
    ----------
    number : index of the input.
    cursor : position in the input; None if it was finished before and not opened.
    table : the open input; None if it was not opened.
    piece : rows of the input; None at its end.
    fraction : fraction of the input that has been read.
    """

    number: int
    cursor: Cursor | None = None
    table: Table | None = None
    piece: Piece | None = None
    fraction: float = 1.0


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
    label_required : whether files are refused of which none has the label column; pipes are not
        checked.

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
        check: CellCheck | None = None,
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
        self._label_required = label_required and label is not None and self.resumable
        self._reader = PieceReader(label, check, batch_by, keep, keep_optional)
        dialect = dialect or Dialect()
        self._open = partial(open_table, dialect=dialect, final=final)
        self._tell = tell
        position = position or Position()
        self._reads, self.position = plan(inputs, position, again, dialect.encoding)
        self._files = self.position  # in the files that have been closed
        self._sizes = [stamp(each.path).size if each.path else 0 for each in inputs]
        self._number, self._read_fraction = 0, 0.0
        self._held: list[Part] = []
        new = not begun and (check is None or self._undecided)
        self._sizes_of_batches = (batch_by, batch_size, (first_batch_size or 0) if new else 0)
        self._borders = Borders(*self._sizes_of_batches)
        needed = () if check is None else check.needed() or ()
        self._columns = InputColumns(self.names, None if label is None else label.name, needed)
        self._begun = False

    @property
    def fraction(self) -> float | None:
        """The fraction of the input that has been read, 0 to 1; None if there is a pipe."""
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
        events = self._events()
        if self._undecided:
            events = chain(self._decide(events), events)
        for event in events:
            before = self._read_fraction if event.number == self._number else 0.0
            self._number = event.number
            if event.table is not None and event.piece is not None:
                self._columns.check(event.number, event.table, self._reader.required)
                for batch, share in self._take(event.piece, event):
                    self._read_fraction = before + (event.fraction - before) * share
                    yield batch
            elif (
                event.table is not None
                and event.cursor is not None
                and self._reads[event.number].source.resumable
            ):
                end = event.cursor.position(finished=True, deferred=event.table.deferred)
                self._files = self._files.with_file(end)
            self._read_fraction = event.fraction
        self._number, self._read_fraction = len(self.names), 0.0
        if self._held:
            yield self._finish_batch(self._files)
        self.position = self._files

    def _events(self) -> Iterator[ReadEvent]:
        """Yield the pieces and the end of every input, in order."""
        for number, read in enumerate(self._reads):
            if read.content is None:
                yield ReadEvent(number)
                continue
            cursor = Cursor(*read)
            with self._open(read.source, tell=self._tell) as table:
                if self._label_required:
                    self._refuse_without_label(number, table)
                for piece in table.pieces(read.start):
                    yield ReadEvent(number, cursor, table, piece, table.fraction())
            yield ReadEvent(number, cursor, table)

    def _refuse_without_label(self, number: int, first: Table) -> None:
        """Refuse files of which none has the label column, before any of them is read.

        Later files are opened only if the first one does not have the column.
        """
        self._label_required = False
        assert self.label is not None
        name = self.label.name
        if name in first.names or not first.complete:
            return
        for read in self._reads[number + 1 :]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with self._open(read.source, tell=lambda line: None) as table:
                    if name in table.names or not table.complete:
                        return
        meant = similar_name(name, first.names)
        found = (
            f"did you mean {meant!r}?"
            if meant
            else f"it has {listed(list(map(shown, first.names)))}."
        )
        raise StreamError(
            f"{self.names[0]} has no column {name!r}, and no other file has: {found} If there are "
            "no labels yet, pass --no-labels."
        )

    def _decide(self, events: Iterator[ReadEvent]) -> list[ReadEvent]:
        """Read the rows of the first batch and let the check choose columns; return what was read.

        The columns are those of the first file that has rows.
        """
        read: list[ReadEvent] = []
        tables: list[Any] = []
        first, names = -1, dict[str, None]()
        borders = Borders(*self._sizes_of_batches, warn=False)
        for event in events:
            if event.table is None or event.piece is None:
                read.append(event)
                continue
            self._columns.check_label(event.number, event.table.names)
            piece, kept = self._reader.read_unchosen(event.piece)
            read.append(event._replace(piece=kept))
            good = np.delete(np.arange(kept.ends.size), list(piece.faults))
            features = piece.features
            if good.size and first in (-1, event.number):
                first = event.number
                names |= dict.fromkeys(features.column_names)
            features = features.select([name for name in features.column_names if name in names])
            for rows in borders.cut(piece.borders, good, ""):
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

    def _take(self, piece: Piece, event: ReadEvent) -> Iterator[tuple[StreamBatch, float]]:
        """Hold the good rows of a piece; yield the batches that they complete.

        With each batch, yield the fraction of the piece that precedes its end.
        """
        cursor, size = event.cursor, piece.ends.size
        assert cursor is not None  # an input with rows has been opened
        table, features, labels, borders, faults = self._reader.read(piece)
        bad = sorted(faults)  # a heap, to which rows with bad labels are added
        good = np.delete(np.arange(size), bad)
        done = 0
        for rows in self._borders.cut(borders, good, self.names[event.number]):
            if rows is None:
                yield self._finish_batch(self._position(cursor)), done / size
                continue
            last = int(rows[-1]) + 1
            if self.label is not None and labels is not None:
                misfits = labels.of(rows).misfits(self.label)
                for place, fault in misfits.items():
                    row = int(rows[place])
                    faults[row] = fault._replace(line=piece.line_of(row))
                    heappush(bad, row)
                rows = np.delete(rows, list(misfits))
            first = cursor.rows - done + 1
            self._advance(piece, done, last, bad, faults, cursor)
            done = last
            if rows.size:
                kept = {
                    name: selected_rows(table.select([name]), rows).column(0).to_pylist()
                    if name in table.column_names
                    else [None] * rows.size
                    for name in self._reader.kept
                }
                own = None if labels is None else labels.of(rows)
                part = Part(selected_rows(features, rows), kept, own, event.number, rows + first)
                self._held.append(part)
                self._borders.held += rows.size
        self._advance(piece, done, size, bad, faults, cursor)

    def _position(self, cursor: Cursor) -> Position:
        """Return the position of the stream within an open input."""
        if not self._reads[self._number].source.resumable:
            return self._files
        return self._files.with_file(cursor.position(finished=False))

    def _advance(
        self,
        piece: Piece,
        first: int,
        last: int,
        bad: list[int],
        faults: dict[int, Fault],
        cursor: Cursor,
    ) -> None:
        """Move the cursor over rows of a piece; refuse or count the bad ones among them."""
        while bad and bad[0] < last:
            place = heappop(bad)
            row = cursor.rows - first + place + 1
            found = BadRow(self.names[self._number], row, faults[place])
            if self._stop:
                raise found.error()
            self.skipped.add(found)
        cursor.advance(last - first, piece.part(first, last))

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
            size = None
            if source.path is not None and source.resumable:
                size = os.stat(source.path).st_size
            with open_arrow(content, source.name, size) as table:
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
        while not (start := text.buffer.lstrip()) and not text.at_end:
            text.fill()
    return "jsonl" if start.startswith((b"{", b"[")) else "csv"
