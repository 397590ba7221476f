"""The label log and the rows of `seqmed label`: checks, export, rows by their cells."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa

from seqmed.cli.checkpoint import Progress, encoder_of, open_stream
from seqmed.cli.options import Reading
from seqmed.cli.terminal import CommandError, counted, naming_file
from seqmed.labeling.ledger import Ledger, current_labels
from seqmed.labeling.log import (
    LONGEST_PATH,
    Event,
    LabelingError,
    LabelLog,
    as_one_line,
    checked_label,
)
from seqmed.labeling.pool import FileRows, Pool
from seqmed.model_file.files import write_output
from seqmed.streams import Stream
from seqmed.streams.columns import AllColumnsCheck
from seqmed.streams.faults import notice
from seqmed.streams.inputs import shown_path
from seqmed.streams.label_column import STRING, label_of, text_label
from seqmed.tables.cells import cell_text
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
        written = text_label(checked_label(text), column.unlabeled)
        if written is None:
            raise LabelingError(f"{text!r} marks rows without a label: choose another name")
        label = convert(written)
        if label is None:
            raise LabelingError(f"the labels of this model are of type {column.type}")
        return cell_text(label) or ""

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


def place(log: LabelLog, source: Iterable[FileRows]) -> tuple[Pool, list[Event]]:
    """Return the rows to label, and the events of a log whose rows are among them.

    The other events are set aside, and told of.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # given when the rows are learned
        pool = Pool(source, [event.key for event in log.events])
    aside = [event for event in log.events if event.key not in pool.places]
    if aside:
        keys = dict.fromkeys(event.key for event in aside)
        rows = listed([f"row {key.row} of {key.file}" for key in keys])
        notice(
            f"{log.path}: {len(aside):,} of {counted(len(log.events), 'event')} set aside, because "
            f"no row of the data has the cells that were labeled ({rows}): to use them, pass the "
            "files with these rows as they were."
        )
    return pool, [event for event in log.events if event.key in pool.places]


def export(log: LabelLog, path: Path, source: Iterable[FileRows]) -> None:
    """Write the current labels of the rows in the data."""
    if path.suffix != ".csv":
        raise CommandError(f"{path} ends in {path.suffix!r}, expected .csv: rename it.")
    pool, events = place(log, source)
    with naming_file(path):
        write_output(path, current_labels(log.header, Ledger(events), pool.where))


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
            self._data, self._model, self._progress, self._reading, check=check,
            batch_size=ROWS_AT_ONCE, final=True, on_error="skip",
        )  # fmt: skip

    def __iter__(self) -> Iterator[FileRows]:
        """Yield all good rows."""
        for batch in self._stream():
            for file in np.unique(batch.file).tolist():
                own = np.flatnonzero(batch.file == file)
                table = batch.table.take(pa.array(own))
                yield FileRows(self.names[file], batch.row[own], table, batch.labeled[own])


def file_names(paths: Sequence[str], folder: Path) -> list[str]:
    """Return names of files that are all different and do not depend on their order.

    A file in the folder, or in one below it, is named by its path from there; another file by its
    folder and its name, and a number if that name is taken. The paths are absolute, without links.
    """
    base, found = folder.resolve(), dict[str, str]()
    inside = {path: Path(path).is_relative_to(base) for path in paths}
    for path in sorted(paths, key=lambda path: (not inside[path], path)):
        own = Path(path).relative_to(base) if inside[path] else PurePath(*Path(path).parts[-2:])
        # control characters are shown as spaces
        name = as_one_line(shown_path(own.as_posix()), LONGEST_PATH - 20)
        numbered = chain([name], (f"{name} ({number})" for number in count(2)))
        found[path] = next(each for each in numbered if each not in found.values())
    return [found[path] for path in paths]


def check_columns(pool: Pool, names: Sequence[str]) -> None:
    """Refuse columns that the data do not have."""
    if not pool.keys:
        raise CommandError("all rows have labels, expected unlabeled rows: pass other data.")
    for name in names:
        if name not in pool.table.column_names:
            raise CommandError(
                f"the data have no column {name!r}, expected one of "
                f"{listed(pool.table.column_names)}: check the name."
            )
