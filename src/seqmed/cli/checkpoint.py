"""Checkpoints: a model, its position in the stream, its record and its log, saved together."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from seqmed import model_file
from seqmed.cli.errors import CommandError, naming_file
from seqmed.estimators.graph_propagation import GraphPropagation
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.estimators.seqlapmed import SeqLapMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.streams import Position
from seqmed.streams.errors import read_stored, refuse_stored

Classifier = SeqGraphMED | SeqMED | SeqLapMED | GraphPropagation
# The first is the default.
ESTIMATORS: dict[str, type[Classifier]] = {
    "seqgraphmed": SeqGraphMED,
    "seqmed": SeqMED,
    "seqlapmed": SeqLapMED,
    "graphpropagation": GraphPropagation,
}
FIRST = b'{"batch": '  # the beginning of every line of a log


@dataclass(frozen=True)
class PrequentialRecord:
    """Counts of rows, and of prequential predictions.

    Parameters
    ----------
    rows, labeled : rows learned, and those with a label.
    scored, correct : labeled rows that were predicted before they were learned, and the number of
        correct predictions.
    skipped : bad rows skipped.
    """

    rows: int = 0
    labeled: int = 0
    scored: int = 0
    correct: int = 0
    skipped: int = 0

    @property
    def accuracy(self) -> float | None:
        """The fraction of correct predictions, None before the first prediction."""
        return self.correct / self.scored if self.scored else None

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return a stored record; refuse anything else."""
        record = read_stored(cls, data, "record")
        for name, value in asdict(record).items():
            if value < 0:
                refuse_stored("record", name, value)
        return record


@dataclass(frozen=True)
class PendingLines:
    """Lines of a log that are saved with the model and then appended to the log.

    If a run is interrupted between the two steps, the next run appends the missing lines. The log
    therefore has exactly one line per learned batch.

    Parameters
    ----------
    path : the log, absolute and without links.
    start : size of the log before the lines, in bytes.
    text : whole lines.
    """

    path: str
    start: int
    text: str

    @classmethod
    def after(cls, path: str, text: str) -> Self:
        """Return lines to be appended to a log as it is now."""
        regular = os.path.isfile(path)
        return cls(path, os.path.getsize(path) if regular else 0, text)

    def append(self) -> None:
        """Append the lines that the log does not have yet."""
        content = self.text.encode()
        with naming_file(self.path), open(self.path, "ab", buffering=0) as log:
            if os.path.isfile(self.path):
                with open(self.path, "rb") as before:
                    before.seek(self.start)
                    found = before.read()
                content = b"" if content in found else content.removeprefix(found)
            while content:
                content = content[log.write(content) :]


def is_log(path: Path) -> bool:
    """Whether a file is a log, or the beginning of one."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return FIRST.startswith(file.read(len(FIRST)))


@dataclass(frozen=True)
class Progress:
    """Progress of a model in its stream.

    Parameters
    ----------
    schema : schema of the rows, None before the first batch.
    position : position in the files.
    record : counts of rows and predictions.
    batch_size, batch_by : the rule for batches.
    log : the last lines of the log, if there is one.
    """

    schema: Schema | None = None
    position: Position = field(default_factory=Position)
    record: PrequentialRecord = field(default_factory=PrequentialRecord)
    batch_size: int | None = None
    batch_by: str | None = None
    log: PendingLines | None = None

    @property
    def known_schema(self) -> Schema:
        """The schema after the first batch."""
        assert self.schema is not None
        return self.schema

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return stored progress; refuse anything else."""
        progress = read_stored(cls, data, "progress")
        if progress.schema is None:
            refuse_stored("progress", "schema", None)
        if progress.batch_size is not None and progress.batch_size < 1:
            refuse_stored("progress", "batch_size", progress.batch_size)
        if progress.log is not None and progress.log.start < 0:
            refuse_stored("progress", "log", progress.log)
        return progress


def save(model: Classifier, progress: Progress, path: Path) -> None:
    """Save a model and its progress in one file."""
    with naming_file(path):
        model_file.save(model, path, extra=asdict(progress))


def load(path: Path) -> tuple[Classifier, Progress]:
    """Return the model in a file and its progress."""
    if not path.exists():
        raise CommandError(
            f"{path} does not exist: check the path, or make a model with seqmed learn."
        )
    model, extra = model_file.load_with_extra(path)
    # isinstance: the class in a file is input, which may be one that commands do not use
    if not isinstance(model, Classifier) or extra is None:
        kind = type(model).__name__ + (" without a schema" if extra is None else "")
        raise CommandError(
            f"{path} holds a {kind}, expected a model made by seqmed learn: use this file in "
            "Python, with seqmed.load."
        )
    try:
        progress = Progress.from_dict(extra)
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from error
    width = progress.known_schema.n_features
    if width != getattr(model, "n_features_in_", None):
        raise CommandError(
            f"{path} holds a model of {getattr(model, 'n_features_in_', 'unknown')} columns and a "
            f"schema of {width}: the file is damaged. Restore it from a copy."
        )
    return model, progress
