"""The rows of DATA that `seqmed label` shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

import numpy as np
import pyarrow as pa

from seqmed.cli.checkpoint import Progress, encoder_of, open_stream
from seqmed.cli.errors import CommandError
from seqmed.cli.reading import Reading
from seqmed.cli.terminal import counted
from seqmed.labeling.events import LONGEST_PATH, as_one_line
from seqmed.labeling.rows import Pool, Rows
from seqmed.streams import Stream
from seqmed.streams.columns import AllColumnsCheck
from seqmed.streams.inputs import shown_path
from seqmed.tables.messages import listed
from seqmed.tables.stream_pipeline import StreamPipeline

# Rows that are read at once.
ROWS_AT_ONCE = 2000


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

    def __iter__(self) -> Iterator[Rows]:
        """Yield all good rows."""
        from seqmed.labeling.rows import Rows

        for batch in self._stream():
            for file in np.unique(batch.file).tolist():
                own = np.flatnonzero(batch.file == file)
                table = batch.table.take(pa.array(own))
                yield Rows(self.names[file], batch.row[own], table, batch.labeled[own])


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
