"""Learning a stream: predict, learn, save, and resume.

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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from seqmed import model_file
from seqmed.cli import journal, parameters, state, terminal
from seqmed.cli.errors import CommandError
from seqmed.cli.inputs import placing, tell_skipped
from seqmed.cli.journal import Pending
from seqmed.cli.locking import locked
from seqmed.cli.overwriting import refuse_existing, refuse_shared
from seqmed.cli.state import Classifier, Outcome, Progress, Record
from seqmed.cli.terminal import counted, percent, say
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.streams import Batch, Columns, Stream, StreamWarning, likely_typo

# Seconds of work for every second that a save takes.
SAVES_PAY = 20


def learn(
    path: Path,
    data: Sequence[Path],
    columns: Columns,
    *,
    estimator: str | None,
    parameters: Mapping[str, Any],
    batch_size: int | None,
    batch_by: str | None,
    checkpoint_every: int | None,
    log: Path | None,
    force: bool,
    again: bool,
    final: bool,
    file_format: str | None,
    on_error: str,
) -> None:
    """Learn what is new in the data, and tell what came of it."""
    refuse_shared({"MODEL": path, "--log": log}, None, data, file_format)
    if log is not None and not journal.is_log(log):
        refuse_existing(log, force=force, use="add to it")
    with locked(path):
        model_file.remove_leftovers(path)
        model, progress = begin_or_resume(path, columns, estimator, parameters)
        if batch_size is not None or batch_by is not None:
            progress = replace(progress, batch_size=batch_size, batch_by=batch_by)
        stream = Stream(
            data,
            columns,
            schema=progress.schema,
            batch_size=progress.batch_size,
            batch_by=progress.batch_by,
            on_error=on_error,
            position=progress.position,
            again=again,
            final=final,
            file_format=file_format,
        )
        if not stream.resumable:
            say("standard input and pipes cannot be resumed: after an interruption send the rest.")
            checkpoint_every = checkpoint_every or 1
        learner = Learner(path, model, progress, log, checkpoint_every)
        before = progress.record
        try:
            learner.follow(stream)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(learner.left_off()) from None
        finally:
            tell_skipped(stream.skipped)
        tell(learner, learner.progress.record.rows - before.rows, data)


def begin_or_resume(
    path: Path, columns: Columns, estimator: str | None, given: Mapping[str, Any]
) -> tuple[Classifier, Progress]:
    """Return the model of a file with its progress, or a new one."""
    if path.exists():
        model, progress = state.load(path)
        parameters.check_same(model, estimator, given)
        return model, progress
    if columns.label is None:
        raise CommandError(f"{path} does not exist yet, and a new model needs --label COLUMN.")
    return parameters.new_model(estimator, given), Progress()


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
        skipped += stream.skipped.total
        self._update(position=stream.position, skipped=skipped)
        if not hasattr(self.model, "n_batches_"):
            raise CommandError("there is no row to learn from: check the files.")
        if self.saved_batches != self.model.n_batches_ or self.progress != start:
            self._save()

    def _save_is_due(self) -> bool:
        """Whether to save after this batch; after the first one, always."""
        if self._checkpoint_every is not None:
            return (self.model.n_batches_ - self.saved_batches) % self._checkpoint_every == 0
        return time.monotonic() - self._saved_at >= SAVES_PAY * self._cost

    def left_off(self) -> str:
        """Return what is safe after an interruption."""
        if not self.saved_batches:
            return "interrupted before the first batch was saved."
        return (
            f"interrupted: {self.path} has been saved after batch {self.saved_batches}; the same "
            "command resumes from there."
        )

    def _learn(self, batch: Batch, names: Sequence[str], skipped: int) -> None:
        found = state.outcome(self.model, batch)
        self._suspect_typos(batch, found, names)
        with placing(batch, names):
            labels = np.full(batch.row.size, None)
            labels[found.labeled] = found.truth
            self.model.partial_fit(batch.X, labels)
        record = self.progress.record.add(batch.row.size, found)
        record = replace(record, skipped=skipped + batch.skipped)
        if self._log is not None:
            self._lines.append(json.dumps(self._line(batch, found, record)) + "\n")
        self.progress = replace(
            self.progress, record=record, schema=batch.schema, position=batch.position
        )
        self._progress_batches = self.model.n_batches_  # last: the progress is that of the model

    def _update(self, *, position: Any, skipped: int) -> None:
        record = replace(self.progress.record, skipped=skipped)
        self.progress = replace(self.progress, position=position, record=record)

    def _save(self) -> None:
        """Save the model and its progress; then write the log, from what has been saved."""
        begin, pending = time.monotonic(), None
        if self._log is not None:
            pending = Pending(self._log, "".join(self._lines))
        self.progress = replace(self.progress, pending=pending)
        state.save(self.model, self.progress, self.path)
        self.saved_batches, self._lines = self.model.n_batches_, []
        if pending is not None:
            journal.append(pending)
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - begin

    def _line(self, batch: Batch, found: Outcome, record: Record) -> dict[str, Any]:
        """Return the line of the log on a batch."""
        gap, now = float(self.model.duality_gap_), time.monotonic()
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
            **({"graph_weight": self.model.graph_weight_} if self._mixes else {}),
            "seconds": round(seconds, 4),
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }

    def _summary(self) -> str:
        record = self.progress.record
        accuracy = f", accuracy {percent(record.accuracy)}" if record.scored else ""
        weight = f", graph weight {self.model.graph_weight_:.2f}" if self._mixes else ""
        return f"batch {self.model.n_batches_}, {counted(record.rows, 'row')}{accuracy}{weight}"

    @property
    def _mixes(self) -> bool:
        """Whether the model is a mixture with a graph."""
        return isinstance(self.model, SeqGraphMED)

    def _suspect_typos(self, batch: Batch, found: Outcome, names: Sequence[str]) -> None:
        """Warn of classes that are new and a slip of the finger away from a more common one."""
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


def tell(learner: Learner, rows: int, data: Sequence[Path]) -> None:
    """Print what came of it."""
    model, record = learner.model, learner.progress.record
    if not rows:
        names = ", ".join(map(str, data[:3])) + (", ..." if len(data) > 3 else "")
        terminal.show(f"nothing new in {names}: learn it once more with --again.")
    accuracy = ""
    if record.scored:
        accuracy = f"; accuracy before learning {percent(record.accuracy)} of {record.scored:,}"
    terminal.show(
        f"{learner.path}: {counted(model.n_batches_, 'batch', 'batches')}, "
        f"{counted(record.rows, 'row')} ({record.labeled:,} labeled), "
        f"{counted(model.classes_.size, 'class', 'classes')}{accuracy}."
    )
