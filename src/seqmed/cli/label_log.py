"""Check, import and export of the label log of `seqmed label`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqmed.cli.checkpoint import Progress
from seqmed.cli.errors import CommandError, naming_file
from seqmed.cli.terminal import counted, tell
from seqmed.labeling.events import LabelingError, checked_label
from seqmed.labeling.ledger import Ledger, current_labels
from seqmed.labeling.log import LabelLog, from_json_lines, to_json_lines
from seqmed.labeling.rows import shown_text
from seqmed.model_file.files import read_file, write_output
from seqmed.streams.label_column import STRING, label_of, text_label


def as_label(progress: Progress) -> Callable[[str], Any]:
    """Return the function from the text of a label to the label."""
    kind = progress.known_label.type or STRING
    return lambda text: label_of(text, kind)


def label_check(progress: Progress) -> Callable[[str], str]:
    """Return the function that returns a label as it is stored, or refuses it."""
    convert, column = as_label(progress), progress.known_label

    def check(text: str) -> str:
        written = text_label(checked_label(text), column.unlabeled)
        if written is None:
            raise LabelingError(f"{text!r} marks rows without a label: choose another name")
        label = convert(written)
        if label is None:
            raise LabelingError(f"the labels of this model are of type {column.type}")
        return shown_text(label)

    return check


def check_log(log: LabelLog, check_label: Callable[[str], str]) -> None:
    """Refuse a log with events that are not possible, such as a withdrawal without a label."""
    from seqmed.labeling.ledger import Ledger

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


def add_labels(log: LabelLog, path: Path, check_label: Callable[[str], str]) -> None:
    """Append the events in a file of JSON lines that the log does not have."""
    from seqmed.labeling.ledger import Ledger

    ledger, known, added = Ledger(log.events), set(log.events), []
    for event in from_json_lines(read_file(path), str(path)):
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


def export(log: LabelLog, path: Path) -> None:
    """Write the current labels, or all events."""
    if path.suffix not in (".csv", ".jsonl"):
        raise CommandError(
            f"{path} ends in {path.suffix!r}, expected .csv for the current labels or .jsonl for "
            "all events: rename it."
        )
    with naming_file(path):
        if path.suffix == ".jsonl":
            write_output(path, to_json_lines(log.events))
        else:
            write_output(path, current_labels(log.header, Ledger(log.events)))
