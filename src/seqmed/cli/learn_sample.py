"""`seqmed learn --sample`: read all files once, keep a sample of their rows, and fit a model to it.

The sample and the model are those of `fit` in Python on the rows of all files in their order.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seqmed.cli import checkpoint, terminal
from seqmed.cli.checkpoint import PrequentialRecord, Progress, encoder_of
from seqmed.cli.cluster import FileTasks, connected
from seqmed.cli.options import Reading
from seqmed.cli.parameters import set_class_prior
from seqmed.cli.terminal import CommandError, counted, summarize, tell_skipped
from seqmed.estimators.row_sample import LABELED, SamplePlan, Summary, merge, summarise
from seqmed.numeric.arrays import Indices
from seqmed.streams import EncoderCheck, FilePosition, Position, Stream, StreamBatch
from seqmed.streams.batches import stacked
from seqmed.streams.faults import BadRow, Fault
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.kinds import DROP
from seqmed.tables.stream_pipeline import StreamPipeline

# Largest number of rows that are read at a time.
READ_AT_ONCE = 2**16


def learn_sample(
    path: Path,
    model: StreamPipeline,
    progress: Progress,
    data: Sequence[Path],
    reading: Reading,
    cluster: str | None = None,
) -> None:
    """Fit a new model to a sample of all rows, and save it; ``cluster`` is that of --cluster."""
    encoder = encoder_of(model)
    check, plan = SampleCheck(encoder), model._sample_plan()
    stream = checkpoint.open_stream(
        data, model, progress, reading, check=check, batch_size=READ_AT_ONCE, final=True,
        label_required=True,
    )  # fmt: skip
    try:
        if cluster is None:
            with terminal.Reporter("sampling") as bar:
                summary, places = read_sample(plan, stream, 0, bar)
        else:
            summary, places = sample_on_cluster(
                cluster, plan, stream, check, FileTasks("", data, model, progress, reading)
            )
        summary = checked_sample(summary, stream)
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
        """Return the table with an empty column in the place of each column that was left out."""
        columns = dict(zip(table.column_names, table.columns, strict=True))
        absent = pa.nulls(table.num_rows, pa.string())
        return pa.table({name: columns.get(name, absent) for name in self._names})


class Places:
    """The file, and the row in this file, of every row of a sample."""

    def __init__(self) -> None:
        self._found = np.zeros((3, 0), dtype=np.int64)

    def add(self, batch: StreamBatch, first: int) -> None:
        """Add the rows of a batch, the first of which has the number ``first``."""
        numbers = np.arange(first, first + batch.row.size)
        self._found = np.hstack([self._found, np.stack([numbers, batch.file, batch.row])])

    def keep(self, numbers: Indices) -> None:
        """Keep the rows with these numbers."""
        self._found = self._found[:, np.isin(self._found[0], numbers)]

    def plus(self, other: Places) -> Places:
        """Return the rows of both, in the order of their numbers."""
        both = Places()
        both._found = np.hstack([self._found, other._found])
        both._found = both._found[:, np.argsort(both._found[0])]
        return both

    def of_file(self, number: int) -> Places:
        """Return the same rows, with ``number`` added to the numbers of their files."""
        moved = Places()
        moved._found = self._found + np.array([[0], [number], [0]])
        return moved

    def __getitem__(self, place: int) -> tuple[int, int]:
        """Return the file and the row of the row at a place, in the order of the numbers."""
        _, file, row = self._found[:, place].tolist()
        return file, row


def read_sample(
    plan: SamplePlan, stream: Stream, first: int, bar: terminal.Reporter | None = None
) -> tuple[Summary | None, Places]:
    """Return the sample of all rows, None without rows, and where they come from.

    ``first`` is the number of the first row.
    """
    summary, places, rows = None, Places(), 0
    for batch in stream:
        part = summarise(plan, batch.table, batch.y, first=first + rows)
        places.add(batch, first + rows)
        rows += batch.row.size
        summary = part if summary is None else merged(plan, summary, part)
        places.keep(summary.numbers)
        if bar is not None:
            bar.report(stream.fraction, rows, counted(rows, "row"))
    return summary, places


def checked_sample(summary: Summary | None, stream: Stream) -> Summary:
    """Return a sample; refuse one without rows or labels."""
    if summary is None:
        raise CommandError("there is no row to learn from: check the files.")
    if not summary.n_seen[LABELED]:
        name = "" if stream.label is None else f" in column {stream.label.name!r}"
        raise CommandError(
            f"no row has a label{name}, and --sample learns labels: check --label, or learn "
            "unlabeled rows without --sample."
        )
    return summary


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


# -- on a cluster ----------------------------------------------------------------------------------


class FileSample(NamedTuple):
    """The sample of some files: None without rows; where its rows come from; what was read."""

    summary: Summary | None
    places: Places
    files: tuple[tuple[int, FilePosition], ...]


def sample_on_cluster(
    cluster: str, plan: SamplePlan, stream: Stream, check: SampleCheck, tasks: FileTasks
) -> tuple[Summary | None, Places]:
    """Return what `read_sample` does; read and hash the files in tasks, one for each.

    The first rows are read here, because they decide the columns and the type of the labels. The
    rows of every file are then counted, so that each has its number in the whole table. The stream
    is left as if it had read all rows.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tasks warn of the same
        for _ in stream:
            if stream.label is not None and stream.label.type is not None:
                break
    more = {
        "label": stream.label, "check": check, "batch_size": READ_AT_ONCE, "final": True,
        "label_required": False,
    }  # fmt: skip
    with connected(cluster) as dask:
        counting = replace(tasks, title="counting", more=more)
        sizes = dict(counting.outcome(dask, rows_of_file, operator.add).result)
        ends = np.cumsum([sizes[number] for number in range(len(sizes))]).tolist()
        sampling = replace(counting, title="sampling")
        work = partial(sample_of_file, plan, [0, *ends])
        outcome = sampling.outcome(dask, work, partial(joined_samples, plan))
    outcome.tell()
    found: FileSample = outcome.result
    stream.skipped = outcome.all_skipped()
    stream.position = Position(tuple(file for _, file in sorted(found.files, key=itemgetter(0))))
    return found.summary, found.places


def rows_of_file(
    pipeline: StreamPipeline, stream: Stream, number: int
) -> tuple[tuple[int, int], ...]:
    """Return the number of a file and of its good rows."""
    return ((number, sum(batch.row.size for batch in stream)),)


def sample_of_file(
    plan: SamplePlan, firsts: Sequence[int], pipeline: StreamPipeline, stream: Stream, number: int
) -> FileSample:
    """Return the sample of a file, whose first row has the number ``firsts[number]``."""
    summary, places = read_sample(plan, stream, firsts[number])
    files = tuple((number, file) for file in stream.position.files)
    return FileSample(summary, places.of_file(number), files)


def joined_samples(plan: SamplePlan, one: FileSample, other: FileSample) -> FileSample:
    """Return the sample of the files of two samples."""
    found = [each.summary for each in (one, other) if each.summary is not None]
    found.sort(key=lambda summary: summary.first)
    summary = merged(plan, *found) if len(found) == 2 else next(iter(found), None)
    places = one.places.plus(other.places)
    if summary is not None:
        places.keep(summary.numbers)
    return FileSample(summary, places, one.files + other.files)
