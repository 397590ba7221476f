"""`seqmed learn --sample`: read all files once, keep a sample of their rows, and fit a model to it.

The sample and the model are those of `fit` in Python on the rows of all files in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from seqmed.cli import checkpoint, terminal
from seqmed.cli.checkpoint import PrequentialRecord, Progress, encoder_of
from seqmed.cli.options import Reading
from seqmed.cli.parameters import set_class_prior
from seqmed.cli.terminal import CommandError, counted, summarize, tell_skipped
from seqmed.estimators.row_sample import LABELED, SamplePlan, Summary, merge, summarise
from seqmed.numeric.arrays import Indices
from seqmed.streams import EncoderCheck, Stream, StreamBatch
from seqmed.streams.batches import stacked
from seqmed.streams.faults import BadRow, Fault
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.kinds import DROP
from seqmed.tables.stream_pipeline import StreamPipeline

# Largest number of rows that are read at a time.
READ_AT_ONCE = 2**16


def learn_sample(
    path: Path, model: StreamPipeline, progress: Progress, data: Sequence[Path], reading: Reading
) -> None:
    """Fit a new model to a sample of all rows, and save it."""
    encoder = encoder_of(model)
    check, plan = SampleCheck(encoder), model._sample_plan()
    stream = checkpoint.open_stream(
        data, model, progress, reading, check=check, batch_size=READ_AT_ONCE, final=True,
        label_required=True,
    )  # fmt: skip
    try:
        summary, places = read_sample(plan, stream)
        summary = replace(summary, rows=check.all_columns(summary.rows))
        skip = reading.on_error == "skip"
        summary = without_bad_rows(encoder, summary, places, stream, skip=skip)
        set_class_prior(model, stream.label)
        model._fit_summary(plan, summary)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted: nothing was saved. Run the command again.") from None
    finally:
        tell_skipped(stream.skipped)
    n_rows, n_labeled = int(summary.n_seen.sum()), int(summary.n_seen[LABELED])
    record = PrequentialRecord(rows=n_rows, labeled=n_labeled, skipped=stream.skipped.total)
    progress = replace(progress, label=stream.label, position=stream.position, record=record)
    checkpoint.save_checkpoint(model, progress, path)
    kept = int(np.count_nonzero(summary.kinds == LABELED))
    summarize(
        f"{path}: learned {summary.size:,} of {counted(n_rows, 'row')} ({kept:,} of "
        f"{n_labeled:,} labeled), "
        f"{counted(checkpoint.classifier_of(model).classes_.size, 'class', 'classes')}."
    )


class SampleCheck(EncoderCheck):
    """Reads all columns of the first file that may be used, and finds no bad cell."""

    def __init__(self, encoder: TableEncoder):
        super().__init__(lambda: encoder)
        self._names: tuple[str, ...] = ()

    def decide(self, table: Any) -> None:
        """Choose the columns that no option leaves out."""
        self._names = tuple(table.column_names)

    def needed(self) -> tuple[str, ...] | None:
        return self.used()

    def used(self) -> tuple[str, ...] | None:
        encoder = self._encoder()
        kinds, features = encoder.kinds or {}, encoder.features
        chosen = [
            name
            for name in self._names
            if kinds.get(name) != DROP and (features is None or name in features)
        ]
        return tuple(chosen) or None

    def checked(self, table: Any) -> tuple[Any, dict[int, Fault]]:
        return table, {}

    def all_columns(self, table: Any) -> Any:
        """Return a table with the columns that were left out, which are empty, in their places."""
        columns = dict(zip(table.column_names, table.columns, strict=True))
        absent = pa.nulls(table.num_rows, pa.string())
        return pa.table({name: columns.get(name, absent) for name in self._names})


class Places:
    """The files and the rows, (n,) each, from which the rows of a sample come, by their numbers."""

    def __init__(self) -> None:
        self._found = np.zeros((3, 0), dtype=np.int64)

    def add(self, batch: StreamBatch, first: int) -> None:
        """Add the rows of a batch, the first of which has the number ``first``."""
        numbers = np.arange(first, first + batch.row.size)
        self._found = np.hstack([self._found, np.stack([numbers, batch.file, batch.row])])

    def keep(self, numbers: Indices) -> None:
        """Keep the rows with these numbers."""
        self._found = self._found[:, np.isin(self._found[0], numbers)]

    def __getitem__(self, place: int) -> tuple[int, int]:
        """Return the file and the row of the row at a place, in the order of the numbers."""
        _, file, row = self._found[:, place].tolist()
        return file, row


def read_sample(plan: SamplePlan, stream: Stream) -> tuple[Summary, Places]:
    """Return the sample of all rows, and where they come from."""
    summary, places, first = None, Places(), 0
    with terminal.Reporter("sampling") as bar:
        for batch in stream:
            part = summarise(plan, batch.table, batch.y, first=first)
            places.add(batch, first)
            first += batch.row.size
            summary = part if summary is None else merged(plan, summary, part)
            places.keep(summary.numbers)
            bar.report(stream.fraction, first, counted(first, "row"))
    if summary is None:
        raise CommandError("there is no row to learn from: check the files.")
    if not summary.n_seen[LABELED]:
        name = "" if stream.label is None else f" in column {stream.label.name!r}"
        raise CommandError(
            f"no row has a label{name}, and --sample learns labels: check --label, or learn "
            "unlabeled rows without --sample."
        )
    return summary, places


def merged(plan: SamplePlan, one: Summary, other: Summary) -> Summary:
    """Return a merged summary; columns of several types get one, as in a batch of several files."""
    rows = stacked([one.rows, other.rows])
    one = replace(one, rows=rows.slice(0, one.size))
    return merge(plan, one, replace(other, rows=rows.slice(one.size)))


def without_bad_rows(
    encoder: TableEncoder, summary: Summary, places: Places, stream: Stream, *, skip: bool
) -> Summary:
    """Return a sample whose cells have the types of their columns.

    Rows with bad cells are refused, or left out and counted.
    """
    typed, bad = encoder._typed_rows(summary.rows, encoder._decided_kinds(summary.rows))
    for place in sorted(bad):
        file, row = places[place]
        found = BadRow(stream.names[file], row, bad[place])
        if not skip:
            raise found.error()
        stream.skipped.add(found)
    n_bad = np.bincount(summary.kinds[sorted(bad)], minlength=summary.n_seen.size)
    summary = replace(summary, rows=typed, n_seen=summary.n_seen - n_bad)
    return summary.take(np.delete(np.arange(summary.size), sorted(bad))) if bad else summary
