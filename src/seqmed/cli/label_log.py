"""The label log and the rows of `seqmed label`: checks, import, export, rows by their cells."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa

from seqmed.cli.checkpoint import Progress, encoder_of, open_stream
from seqmed.cli.options import Reading
from seqmed.cli.terminal import CommandError, counted, naming_file, tell
from seqmed.labeling.ledger import Ledger, current_labels
from seqmed.labeling.log import (
    LONGEST_PATH,
    Event,
    LabelingError,
    LabelLog,
    RowKey,
    as_one_line,
    from_json_lines,
    one_label,
    to_json_lines,
)
from seqmed.labeling.pool import FileRows, Pool, RowSource, shown_text
from seqmed.model_file.files import read_file, write_output
from seqmed.streams import Stream
from seqmed.streams.columns import AllColumnsCheck
from seqmed.streams.faults import notice
from seqmed.streams.inputs import shown_path
from seqmed.streams.label_column import STRING, label_of, text_label
from seqmed.tables.messages import listed
from seqmed.tables.stream_pipeline import StreamPipeline

# Rows of DATA that are read at once.
ROWS_AT_ONCE = 2000


def as_label(progress: Progress) -> Callable[[str], Any]:
    """Return the function from the text of a label to the label."""
    kind = progress.known_label.type or STRING
    return lambda text: label_of(text, kind)


def label_check(progress: Progress) -> Callable[[str], str]:
    """Return the function that returns a label as it is stored, or refuses it."""
    convert, column = as_label(progress), progress.known_label

    def check(text: str) -> str:
        written = text_label(one_label(text), column.unlabeled)
        if written is None:
            raise LabelingError(f"{text!r} marks rows without a label: choose another name")
        label = convert(written)
        if label is None:
            raise LabelingError(f"the labels of this model are of type {column.type}")
        return shown_text(label)

    return check


def check_log(log: LabelLog, check_label: Callable[[str], str]) -> None:
    """Refuse a log with events that are not possible, such as a withdrawal without a label."""
    ledger = Ledger()
    for number, event in enumerate(log.events, 1):
        try:
            ledger.apply(event)
            if event.label and check_label(event.label) != event.label:
                raise LabelingError(f"the label {event.label!r} is not in its usual form")
        except LabelingError as error:
            raise CommandError(
                f"{log.path}, event {number}: {error}. Restore the file from a copy, or name "
                "another one with --labels."
            ) from None


def read_pool(source: RowSource, events: Iterable[Event]) -> Pool:
    """Return the rows to label, with the rows of some events; give no warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # given when the rows are learned
        return Pool(source, [event.key for event in events])


def import_events(
    log: LabelLog, path: Path, source: RowSource, check_label: Callable[[str], str]
) -> None:
    """Append the events in a file of JSON lines that the log does not have.

    The row of an event is found by its cells. In the log it has the key that the log knows.
    Events of rows that are not in the data are not added.
    """
    events = from_json_lines(read_file(path), str(path))
    theirs, ours = read_pool(source, events), read_pool(source, log.events)
    ledger, known, added = Ledger(log.events), set(log.events), []
    for event in events:
        if event.key not in theirs:
            continue
        file, row = theirs.where(event.key)
        key = ours.at(file, row) or RowKey(file, row, event.digest)
        event = event._replace(**key._asdict())
        if event in known:
            continue
        try:
            if event.label:
                event = event._replace(label=check_label(event.label))
            ledger.apply(event)
        except LabelingError as error:
            raise CommandError(
                f"{path}: {event.event} of row {event.row} of {event.file}: {error}."
            ) from None
        added.append(event)
    if added:
        log.append(added)
    tell(f"{path}: {counted(len(added), 'event')} added to {log.path}.")
    aside = [event for event in events if event.key not in theirs]
    tell_aside(path, aside, len(events), "not added")


def tell_aside(path: Path, aside: Sequence[Event], n_events: int, what: str) -> None:
    """Tell of the events whose rows are not in the data."""
    if aside:
        keys = dict.fromkeys(event.key for event in aside)
        rows = listed([f"row {key.row} of {key.file}" for key in keys])
        notice(
            f"{path}: {len(aside):,} of {counted(n_events, 'event')} {what}, because no row of the "
            f"data has the cells that were labeled ({rows}): to use them, pass the files with "
            "these rows as they were."
        )


def export(log: LabelLog, path: Path, source: RowSource) -> None:
    """Write the current labels of the rows in the data, or all events."""
    if path.suffix not in (".csv", ".jsonl"):
        raise CommandError(
            f"{path} ends in {path.suffix!r}, expected .csv for the current labels or .jsonl for "
            "all events: rename it."
        )
    if path.suffix == ".jsonl":
        lines = to_json_lines(log.events)
    else:
        pool = place(log, source)
        lines = current_labels(log.header, Ledger(log.placed), pool.where)
    with naming_file(path):
        write_output(path, lines)


def place(log: LabelLog, source: RowSource) -> Pool:
    """Find the rows of the events of a log, set the other events aside, and tell of them."""
    pool = read_pool(source, log.events)
    tell_aside(log.path, log.place(pool), len(log.events), "set aside")
    return pool


# -- the rows of DATA ------------------------------------------------------------------------------


class StreamRows:
    """The rows of files, with all their columns.

    Parameters
    ----------
    data : the files.
    model, progress, reading : the model, and how the files are read.
    folder : folder of the label log, from which the files get their names.
    """

    def __init__(
        self,
        data: Sequence[Path],
        model: StreamPipeline,
        progress: Progress,
        reading: Reading,
        folder: Path,
    ):
        self._data, self._model, self._progress, self._reading = data, model, progress, reading
        self.names = file_names(self._stream().keys, folder)

    @property
    def title(self) -> str:
        """The names of the files, without folders."""
        more = len(self.names) - 1
        first = Path(self.names[0]).name
        return first + (f" and {counted(more, 'file')} more" if more else "")

    def _stream(self) -> Stream:
        encoder = encoder_of(self._model)
        # a new model knows no bad cells yet
        check = AllColumnsCheck(lambda: encoder) if hasattr(encoder, "encoding_") else None
        return open_stream(
            self._data,
            self._model,
            self._progress,
            self._reading,
            check=check,
            batch_size=ROWS_AT_ONCE,
            final=True,
            on_error="skip",
        )

    def __iter__(self) -> Iterator[FileRows]:
        """Yield all good rows."""
        for batch in self._stream():
            for file in np.unique(batch.file).tolist():
                own = np.flatnonzero(batch.file == file)
                table = batch.table.take(pa.array(own))
                yield FileRows(self.names[file], batch.row[own], table, batch.labeled[own])


def file_names(paths: Sequence[str], folder: Path) -> list[str]:
    """Return names of files that are all different and do not depend on their order.

    A file in the folder, or in one below it, is named by its path from there. Other files are named
    by the last parts of their paths, at least two, as many as make the name unique.

    Parameters
    ----------
    paths : absolute paths, without links.
    folder : the folder.
    """
    base, parts = folder.resolve(), {path: Path(path).parts for path in sorted(paths)}
    inside = {path for path in parts if Path(path).is_relative_to(base)}
    lengths = {
        path: len(each) - len(base.parts) if path in inside else min(2, len(each))
        for path, each in parts.items()
    }
    while True:
        names = {path: PurePath(*each[-lengths[path] :]).as_posix() for path, each in parts.items()}
        counts = Counter(names.values())
        longer = [
            path
            for path, name in names.items()
            if path not in inside and counts[name] > 1 and lengths[path] < len(parts[path])
        ]
        if not longer:
            break
        for path in longer:
            lengths[path] += 1
    found: dict[str, str] = {}
    for path, name in names.items():
        text = plain = as_one_line(shown_path(name), LONGEST_PATH - 20)
        number = 1
        while text in found.values():  # control characters are shown as spaces
            number += 1
            text = f"{plain} ({number})"
        found[path] = text
    return [found[path] for path in paths]


def check_columns(pool: Pool, names: Sequence[str]) -> None:
    """Refuse columns that the data do not have."""
    if not len(pool.candidates) and not len(pool):
        raise CommandError("all rows have labels, expected unlabeled rows: pass other data.")
    for name in names:
        if name not in pool.table.column_names:
            raise CommandError(
                f"the data have no column {name!r}, expected one of "
                f"{listed(pool.table.column_names)}: check the name."
            )
