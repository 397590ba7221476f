"""Check, import and export of the label log of `seqmed label`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from seqmed.cli.checkpoint import Progress
from seqmed.cli.errors import CommandError, naming_file
from seqmed.cli.terminal import counted, tell
from seqmed.labeling.events import Event, LabelingError, RowKey, one_label
from seqmed.labeling.ledger import Ledger, current_labels
from seqmed.labeling.log import LabelLog, from_json_lines, to_json_lines
from seqmed.labeling.rows import Pool, RowSource, shown_text
from seqmed.model_file.files import read_file, write_output
from seqmed.streams.faults import notice
from seqmed.streams.label_column import STRING, label_of, text_label
from seqmed.tables.messages import listed


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


def add_labels(
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
        notice(
            f"{path}: {len(aside):,} of {counted(n_events, 'event')} {what}, because no row of the "
            f"data has the cells that were labeled ({rows_of_events(aside)}): to use them, pass "
            "the files with these rows as they were."
        )


def rows_of_events(events: Sequence[Event]) -> str:
    """Return the rows of events, the first ones by name."""
    return listed([f"row {key.row} of {key.file}" for key in dict.fromkeys(e.key for e in events)])


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
