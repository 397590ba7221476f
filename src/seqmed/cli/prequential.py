"""Prequential learning: predict the labels of a batch, learn it, and save at checkpoints.

The model is saved when the work since the last save has taken `WORK_PER_SAVE` times as long as that
save. If the command is killed, the batches since the last save are read and learned again; learning
is deterministic, so the resulting model is identical. A pipe cannot be read again, so every batch
is saved.
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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from seqmed.cli import checkpoint, terminal
from seqmed.cli.checkpoint import (
    KEPT,
    ON_TRIAL,
    FoundChange,
    PendingLines,
    PrequentialRecord,
    Progress,
    classifier_of,
)
from seqmed.cli.options import Reading
from seqmed.cli.parameters import set_class_prior
from seqmed.cli.terminal import CommandError, counted, naming_rows, percent, tell, tell_skipped
from seqmed.estimators.seqgraphmed import ConceptChangeWarning
from seqmed.streams import Stream, StreamBatch
from seqmed.streams.faults import notice
from seqmed.tables.messages import likely_typo
from seqmed.tables.stream_pipeline import StreamPipeline

# Seconds of work for every second of saving.
WORK_PER_SAVE = 20


class StreamLearner:
    """Learns a stream and saves the model.

    Parameters
    ----------
    path : the model file.
    model, progress : loaded from the model file, or new.
    log : file to which a line is appended for every batch.
    checkpoint_every : batches between two saves; None to save by `WORK_PER_SAVE`.
    """

    def __init__(
        self,
        path: Path,
        model: StreamPipeline,
        progress: Progress,
        log: Path | None,
        checkpoint_every: int | None,
    ):
        self.model, self.progress = model, progress
        self.saved_batches = self._progress_batches = self.n_batches
        self.path, self._log = path, None if log is None else os.path.realpath(log)
        self.checkpoint_every = checkpoint_every
        self._lines: list[str] = []
        self._last_batch = self._last_save = time.monotonic()
        self._cost = 0.0
        if progress.log is not None and progress.log.path == self._log:
            progress.log.append()

    @property
    def n_batches(self) -> int:
        """The number of batches that the model has learned."""
        return int(getattr(classifier_of(self.model), "n_batches_", 0))

    @property
    def classes(self) -> NDArray[Any]:
        """The classes that the model knows."""
        classes: NDArray[Any] = getattr(classifier_of(self.model), "classes_", np.zeros(0))
        return classes

    def stream(self, data: Sequence[Path], reading: Reading, **more: Any) -> Stream:
        """Return the rows of the data after the position of the model.

        ``more`` are further arguments of `Stream`.
        """
        progress = self.progress
        return checkpoint.open_stream(
            data, self.model, progress, reading, batch_size=progress.batch_size,
            batch_by=progress.batch_by, position=progress.position, **more,
        )  # fmt: skip

    def follow(self, stream: Stream) -> None:
        """Predict and learn every batch, save, and tell of skipped rows, also after an error."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConceptChangeWarning)  # a line says it
                self._follow(stream)
        except KeyboardInterrupt:
            message = "interrupted before the first batch was saved: run the command again."
            if self.saved_batches:
                message = (
                    f"interrupted: {self.path} was saved after batch {self.saved_batches}. Run the "
                    "same command again to resume."
                )
            raise KeyboardInterrupt(message) from None
        finally:
            tell_skipped(stream.skipped)

    def _follow(self, stream: Stream) -> None:
        start, skipped = self.progress, self.progress.record.skipped
        try:
            with terminal.Reporter("learning", wait=0) as bar:
                for batch in stream:
                    self._learn(batch, stream, skipped)
                    if self._save_is_due():
                        self.save()
                    record = self.progress.record
                    bar.report(stream.fraction, record.rows - start.record.rows, self._summary())
        except (KeyboardInterrupt, SystemExit, ValueError):
            # a refused batch or row changes neither the model nor its position
            if self.saved_batches < self._progress_batches == self.n_batches:
                self.save()
            raise
        record = replace(self.progress.record, skipped=skipped + stream.skipped.total)
        self.progress = replace(self.progress, position=stream.position, record=record)
        if not self.n_batches:
            raise CommandError("there is no row to learn from: check the files.")
        if self.saved_batches != self.n_batches or self.progress != start:
            self.save()

    def _save_is_due(self) -> bool:
        """Whether to save after this batch; always after the first one."""
        if self.checkpoint_every is not None:
            return (self.n_batches - self.saved_batches) % self.checkpoint_every == 0
        return time.monotonic() - self._last_save >= WORK_PER_SAVE * self._cost

    def _learn(self, batch: StreamBatch, stream: Stream, skipped: int) -> None:
        names = stream.names
        y = np.full(batch.row.size, None) if batch.y is None else batch.y
        labeled = np.flatnonzero(batch.labeled)
        predicted = predict_labeled(self.model, batch.table, labeled)
        self._warn_of_typos(batch, y, labeled, names)
        set_class_prior(self.model, stream.label)
        with naming_rows(batch, names):
            self.model.partial_fit(batch.table, y)
        scored, correct = score(predicted, y[labeled])
        record = self.progress.record.plus(batch.row.size, labeled.size, scored, correct)
        record = replace(record, skipped=skipped + batch.skipped)
        change = self.note_change(record)
        if self._log is not None:
            line = {
                "batch": self.n_batches,
                "rows": batch.row.size,
                "labeled": labeled.size,
                "scored": scored,
                "correct": correct,
                "accuracy": correct / scored if scored else None,
                **self._state(record, change),
            }
            self._lines.append(json.dumps(line) + "\n")
        self.progress = replace(
            self.progress, record=record, label=stream.label, position=batch.position
        )
        self._progress_batches = self.n_batches  # set last, so that model and progress agree

    def note_change(self, record: PrequentialRecord) -> dict[str, Any]:
        """Note a change of the concept that the last update has found, and the end of a trial.

        Both are reported. Return the entries of a log line that describe them.

        Parameters
        ----------
        record : the counts after the update.
        """
        classifier, known = classifier_of(self.model), self.progress.change
        entries: dict[str, Any] = {}
        found = getattr(classifier.update_info_, "change", None)
        if found is not None:
            since, before, after = found
            known = FoundChange(self.n_batches, since, before, after, record)
            entries = {"labels_since_change": since, "error_before": before, "error_after": after}
            tell(change_line(known))
        if known is None or known.new_start != ON_TRIAL:
            return entries
        now = known.after(classifier)
        if now.new_start != ON_TRIAL:
            tell(trial_line(now, self.n_batches, record))
        self.progress = replace(self.progress, change=now)
        return {**entries, "new_start": now.new_start}

    def _state(self, record: PrequentialRecord, change: dict[str, Any]) -> dict[str, Any]:
        """Return the entries of a log line that describe the model and the time.

        ``change`` are the entries of a change of the concept.
        """
        classifier, now = classifier_of(self.model), time.monotonic()
        gap = float(getattr(classifier, "duality_gap_", math.nan))
        weights = {
            name: getattr(classifier, f"{name}_")
            for name in ("graph_weight", "expert_weights")
            if hasattr(classifier, f"{name}_")
        }
        seconds, self._last_batch = now - self._last_batch, now
        return {
            "accuracy_so_far": record.accuracy,
            "accuracy_interval": record.interval,
            "rows_so_far": record.rows,
            "skipped_so_far": record.skipped,
            "classes": classifier.classes_.size,
            "gap": gap if math.isfinite(gap) else None,
            **weights,
            **change,
            "seconds": round(seconds, 4),
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }

    def save(self) -> None:
        """Save the model and its progress; then append the saved lines to the log."""
        begin = time.monotonic()
        log = None if self._log is None else PendingLines.after(self._log, "".join(self._lines))
        self.progress = replace(self.progress, log=log)
        checkpoint.save_checkpoint(self.model, self.progress, self.path)
        self.saved_batches, self._lines = self.n_batches, []
        if log is not None:
            log.append()
        self._last_save = time.monotonic()
        self._cost = self._last_save - begin

    def _summary(self) -> str:
        record = self.progress.record
        accuracy = f", prequential accuracy {percent(record.accuracy)}" if record.scored else ""
        classifier = classifier_of(self.model)
        mixed = hasattr(classifier, "graph_weight_")
        weight = f", graph weight {classifier.graph_weight_:.2f}" if mixed else ""
        change = self.progress.change
        trial = ", new start on trial" if change and change.new_start == ON_TRIAL else ""
        return f"batch {self.n_batches}, {counted(record.rows, 'row')}{accuracy}{weight}{trial}"

    def _warn_of_typos(
        self, batch: StreamBatch, y: NDArray[Any], labeled: NDArray[np.intp], names: Sequence[str]
    ) -> None:
        """Warn of new classes that are probably misspellings of known ones."""
        known = self.classes.tolist()
        labels = y[labeled].tolist()
        counts = Counter(labels)
        for label in [each for each in counts if each not in known]:
            commoner = [other for other in counts if counts[other] > counts[label]]
            meant = likely_typo(label, [*known, *commoner])
            if meant is not None:
                place = labeled[labels.index(label)]
                notice(
                    f"{names[batch.file[place]]}, row {batch.row[place]}: class {label!r} is new "
                    f"and similar to {meant!r}: if it is a typing error, correct it and start a "
                    "new model."
                )


def change_line(change: FoundChange) -> str:
    """Return the message for a change of the concept that was found."""
    before, after = percent(change.error_before), percent(change.error_after)
    return (
        f"batch {change.batch}: the concept may have changed: the error rate rose from {before} to "
        f"{after} in the last {counted(change.labels, 'label')}. A new start from these labels "
        "learns beside the model."
    )


def trial_line(change: FoundChange, batch: int, record: PrequentialRecord) -> str:
    """Return the message for the end of the trial of a new start."""
    labels = counted(change.labels_since(record), "label")
    if change.new_start == KEPT:
        result = "kept: the labels before the change are forgotten."
    else:
        result = "revoked: the model is as if it had found no change."
    return f"batch {batch}: {labels} after the change of the concept, the new start was {result}"


def predict_labeled(
    model: StreamPipeline, table: Any, labeled: NDArray[np.intp]
) -> NDArray[Any] | None:
    """Return predictions of the labeled rows of a table, None before any label was learned."""
    if labeled.size:
        with suppress(NotFittedError):
            predicted: NDArray[Any] = model.predict(table.take(labeled))
            return predicted.astype(object)
    return None


def score(predicted: NDArray[Any] | None, truth: NDArray[Any]) -> tuple[int, int]:
    """Return the number of predictions, and of correct ones; 0 if there are none."""
    return (0, 0) if predicted is None else (truth.size, int(np.sum(predicted == truth)))
