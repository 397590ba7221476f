"""The rows of DATA that `seqmed label` shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from seqmed.cli.checkpoint import Progress, encoder_of, open_stream
from seqmed.cli.errors import CommandError
from seqmed.cli.reading import Reading
from seqmed.cli.terminal import counted
from seqmed.labeling.events import as_one_line
from seqmed.labeling.rows import Pool, Rows
from seqmed.pipelines.stream_pipeline import StreamPipeline
from seqmed.streams import Stream
from seqmed.streams.columns import AllColumnsCheck
from seqmed.tables.messages import listed

# Rows that are read at once.
ROWS_AT_ONCE = 2000


class StreamRows:
    """The rows of files, with all their columns.

    Parameters
    ----------
    data : the files.
    model, progress, reading : the model, and how the files are read.
    """

    def __init__(
        self,
        data: Sequence[Path],
        model: StreamPipeline,
        progress: Progress,
        reading: Reading,
    ):
        self._data, self._model, self._progress, self._reading = data, model, progress, reading
        self.names = short_names(self._state().names)

    @property
    def title(self) -> str:
        """The names of the files, without folders."""
        more = len(self.names) - 1
        return self.names[0] + (f" and {counted(more, 'file')} more" if more else "")

    def _state(self) -> Stream:
        encoder = encoder_of(self._model)
        return open_stream(
            self._data,
            self._model,
            self._progress,
            self._reading,
            check=AllColumnsCheck(lambda: encoder),
            batch_size=ROWS_AT_ONCE,
            final=True,
            on_error="skip",
        )

    def __iter__(self) -> Iterator[Rows]:
        """Yield all good rows."""
        from seqmed.labeling.rows import Rows

        for batch in self._state():
            for file in np.unique(batch.file).tolist():
                own = np.flatnonzero(batch.file == file)
                table = batch.table.take(pa.array(own))
                yield Rows(self.names[file], batch.row[own], table, batch.labeled[own])


def short_names(names: Sequence[str]) -> list[str]:
    """Return the names of files without folders; equal names are numbered."""
    found: list[str] = []
    for name in names:
        short = as_one_line(Path(name).name, 200)
        same = sum(each == short or each.startswith(f"{short} (") for each in found)
        found.append(f"{short} ({same + 1})" if same else short)
    return found


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
