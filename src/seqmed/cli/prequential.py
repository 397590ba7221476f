"""Prequential learning of a stream: predict the labels of a batch, learn it, save at checkpoints.

Saving takes a small share of the time: the next save is due when the work since the last one has
taken `SAVES_PAY` times as long as that save. If the command is killed, the batches since the last
save are learned again from the files; learning is deterministic, so the model is the same to the
bit. Pipes cannot be read again: with one among the inputs every batch is saved.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import NotFittedError

from seqmed.arrays import take_rows
from seqmed.cli import checkpoint, journal, terminal
from seqmed.cli.checkpoint import Classifier, PrequentialRecord, Progress
from seqmed.cli.errors import CommandError, naming_rows
from seqmed.cli.journal import Pending
from seqmed.cli.terminal import counted, percent
from seqmed.streams import Stream, StreamBatch, StreamWarning, likely_typo

# Seconds of work for every second that a save takes.
SAVES_PAY = 20


class BatchPredictions(NamedTuple):
    """How the labeled rows of a batch were predicted before they were learned.

    Parameters
    ----------
    labeled : (l,) places of the labeled rows in the batch.
    truth : (l,) their labels.
    predicted : (l,) labels; None while none could be predicted.
    """

    labeled: np.ndarray
    truth: np.ndarray
    predicted: np.ndarray | None

    @property
    def correct(self) -> int:
        """How many were right."""
        return 0 if self.predicted is None else int(np.sum(self.predicted == self.truth))

    @property
    def scored(self) -> int:
        """How many were predicted."""
        return 0 if self.predicted is None else self.truth.size


def predict_labeled(model: Classifier, batch: StreamBatch) -> BatchPredictions:
    """Predict the labeled rows of a batch."""
    places = np.flatnonzero(batch.labeled)
    truth = np.zeros(0, dtype=object) if batch.y is None else batch.y[places]
    predicted = None
    if places.size:
        with suppress(NotFittedError):  # no label has been seen so far
            predicted = model.predict(take_rows(batch.X, places)).astype(object)
    return BatchPredictions(places, truth, predicted)


class Learner:
    """A model that learns a stream and is saved on the way.

    Parameters
    ----------
    path : where it is saved.
    model, progress : as they are on the disk, or new.
    log : where to write a line for every batch.
    checkpoint_every : batches between two saves; None to save when it pays.
    """

    def __init__(
        self,
        path: Path,
        model: Classifier,
        progress: Progress,
        log: Path | None,
        checkpoint_every: int | None,
    ):
        self.model, self.progress = model, progress
        self.saved_batches = self._progress_batches = getattr(model, "n_batches_", 0)
        self.path, self._log = path, None if log is None else os.path.realpath(log)
        self._checkpoint_every = checkpoint_every
        self._lines: list[str] = []
        self._seen = self._saved_at = time.monotonic()
        self._cost = 0.0
        if progress.pending is not None and progress.pending.path == self._log:
            journal.append(progress.pending)

    def follow(self, stream: Stream) -> None:
        """Predict and learn every batch, and save."""
        start, skipped = self.progress, self.progress.record.skipped
        try:
            with terminal.reporter("learning", wait=0) as bar:
                for batch in stream:
                    self._learn(batch, stream.names, skipped)
                    if self._save_is_due():
                        self._save()
                    record = self.progress.record
                    bar.report(stream.fraction, record.rows - start.record.rows, self._summary())
        except (KeyboardInterrupt, SystemExit, ValueError):
            # a refused batch or row leaves the model and its position as they were before it
            if self.saved_batches < self._progress_batches == self.model.n_batches_:
                self._save()
            raise
        record = replace(self.progress.record, skipped=skipped + stream.skipped.total)
        self.progress = replace(self.progress, position=stream.position, record=record)
        if not hasattr(self.model, "n_batches_"):
            raise CommandError("there is no row to learn from: check the files.")
        if self.saved_batches != self.model.n_batches_ or self.progress != start:
            self._save()

    def _save_is_due(self) -> bool:
        """Whether to save after this batch; after the first one, always."""
        if self._checkpoint_every is not None:
            return (self.model.n_batches_ - self.saved_batches) % self._checkpoint_every == 0
        return time.monotonic() - self._saved_at >= SAVES_PAY * self._cost

    def interruption(self) -> str:
        """Return what is safe after an interruption."""
        if not self.saved_batches:
            return "interrupted before the first batch was saved."
        return (
            f"interrupted: {self.path} has been saved after batch {self.saved_batches}; the same "
            "command resumes from there."
        )

    def _learn(self, batch: StreamBatch, names: Sequence[str], skipped: int) -> None:
        found = predict_labeled(self.model, batch)
        self._warn_of_typos(batch, found, names)
        with naming_rows(batch, names):
            labels = np.full(batch.row.size, None) if batch.y is None else batch.y
            self.model.partial_fit(batch.X, labels)
        before = self.progress.record
        record = PrequentialRecord(
            rows=before.rows + batch.row.size,
            labeled=before.labeled + found.truth.size,
            scored=before.scored + found.scored,
            correct=before.correct + found.correct,
            skipped=skipped + batch.skipped,
        )
        if self._log is not None:
            self._lines.append(json.dumps(self._line(batch, found, record)) + "\n")
        self.progress = replace(
            self.progress, record=record, schema=batch.schema, position=batch.position
        )
        self._progress_batches = self.model.n_batches_  # last: the progress is that of the model

    def _save(self) -> None:
        """Save the model and its progress; then write the log, from what has been saved."""
        begin, pending = time.monotonic(), None
        if self._log is not None:
            pending = Pending(self._log, "".join(self._lines))
        self.progress = replace(self.progress, pending=pending)
        checkpoint.save(self.model, self.progress, self.path)
        self.saved_batches, self._lines = self.model.n_batches_, []
        if pending is not None:
            journal.append(pending)
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - begin

    def _line(
        self, batch: StreamBatch, found: BatchPredictions, record: PrequentialRecord
    ) -> dict[str, Any]:
        """Return the line of the log on a batch."""
        gap, now = float(self.model.duality_gap_), time.monotonic()
        weight = getattr(self.model, "graph_weight_", None)
        seconds, self._seen = now - self._seen, now
        return {
            "batch": self.model.n_batches_,
            "rows": batch.row.size,
            "labeled": found.truth.size,
            "scored": found.scored,
            "correct": found.correct,
            "accuracy": found.correct / found.scored if found.scored else None,
            "accuracy_so_far": record.accuracy,
            "rows_so_far": record.rows,
            "skipped_so_far": record.skipped,
            "classes": self.model.classes_.size,
            "gap": gap if math.isfinite(gap) else None,
            **({} if weight is None else {"graph_weight": weight}),
            "seconds": round(seconds, 4),
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }

    def _summary(self) -> str:
        record = self.progress.record
        accuracy = f", accuracy {percent(record.accuracy)}" if record.scored else ""
        mixed = hasattr(self.model, "graph_weight_")
        weight = f", graph weight {self.model.graph_weight_:.2f}" if mixed else ""
        return f"batch {self.model.n_batches_}, {counted(record.rows, 'row')}{accuracy}{weight}"

    def _warn_of_typos(
        self, batch: StreamBatch, found: BatchPredictions, names: Sequence[str]
    ) -> None:
        """Warn of new classes that are probably misspelled known ones."""
        known = getattr(self.model, "classes_", np.zeros(0)).tolist()
        truth = found.truth.tolist()
        counts = Counter(truth)
        for label in [each for each in counts if each not in known]:
            commoner = [other for other in counts if counts[other] > counts[label]]
            meant = likely_typo(label, [*known, *commoner])
            if meant is not None:
                place = found.labeled[truth.index(label)]
                warnings.warn(
                    f"{names[batch.file[place]]}, row {batch.row[place]}: class {label!r} is new, "
                    f"and close to {meant!r}: if it is a slip, correct it and start a new model.",
                    StreamWarning,
                    stacklevel=2,
                )
