"""Checkpoints: a model, its position in the stream and its record, saved and loaded together."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from seqmed import model_file
from seqmed.cli.errors import CommandError, naming_file
from seqmed.cli.journal import Pending
from seqmed.estimators.graph_propagation import GraphPropagation
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.estimators.seqlapmed import SeqLapMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.streams import Position, Schema
from seqmed.streams.errors import read_fields, refuse_stored

Classifier = SeqGraphMED | SeqMED | SeqLapMED | GraphPropagation
# The first is the default.
ESTIMATORS: dict[str, type[Classifier]] = {
    "seqgraphmed": SeqGraphMED,
    "seqmed": SeqMED,
    "seqlapmed": SeqLapMED,
    "graphpropagation": GraphPropagation,
}


@dataclass(frozen=True)
class PrequentialRecord:
    """What a model has seen, and how it has predicted what it learned afterwards.

    Parameters
    ----------
    rows, labeled : learned.
    scored, correct : labeled rows that were predicted first, and how many of them rightly.
    skipped : bad rows passed over.
    """

    rows: int = 0
    labeled: int = 0
    scored: int = 0
    correct: int = 0
    skipped: int = 0

    @property
    def accuracy(self) -> float | None:
        """The share of right predictions, None before there are any."""
        return self.correct / self.scored if self.scored else None

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return a record that was stored; refuse anything else."""
        names = [each.name for each in fields(cls)]
        found = read_fields(data, "record", **dict.fromkeys(names, int))
        for name, value in found.items():
            if value < 0:
                refuse_stored("record", name, value)
        return cls(**found)


@dataclass(frozen=True)
class Progress:
    """Where a model is in its stream.

    Parameters
    ----------
    schema : of the rows, None before the first.
    position : how far files have been read.
    record : what was seen.
    batch_size, batch_by : how batches were made.
    pending : the last lines of the log, if there is one.
    """

    schema: Schema | None = None
    position: Position = field(default_factory=Position)
    record: PrequentialRecord = field(default_factory=PrequentialRecord)
    batch_size: int | None = None
    batch_by: str | None = None
    pending: Pending | None = None

    @property
    def known_schema(self) -> Schema:
        """The schema of a model that has learned something."""
        assert self.schema is not None
        return self.schema

    def to_extra(self) -> dict[str, Any]:
        """Return what is kept with the model."""
        return {
            "schema": self.known_schema.to_dict(),
            "position": self.position.to_dict(),
            "record": asdict(self.record),
            "batch_size": self.batch_size,
            "batch_by": self.batch_by,
            "log": None if self.pending is None else list(self.pending),
        }

    @classmethod
    def from_extra(cls, extra: Any) -> Self:
        """Return what was kept with a model; refuse anything else."""
        nothing = type(None)
        found = read_fields(
            extra, "progress", schema=dict, position=dict, record=dict,
            batch_size=(int, nothing), batch_by=(str, nothing), log=(list, nothing),
        )  # fmt: skip
        log, size = found["log"], found["batch_size"]
        if log is not None and not (len(log) == 2 and all(isinstance(each, str) for each in log)):
            refuse_stored("progress", "log", log)
        if size is not None and size < 1:
            refuse_stored("progress", "batch_size", size)
        return cls(
            Schema.from_dict(found["schema"]),
            Position.from_dict(found["position"]),
            PrequentialRecord.from_dict(found["record"]),
            size,
            found["batch_by"],
            None if log is None else Pending(*log),
        )


def save(model: Classifier, progress: Progress, path: Path) -> None:
    """Save a model and its progress in one stroke."""
    with naming_file(path):
        model_file.save(model, path, extra=progress.to_extra())


def load(path: Path) -> tuple[Classifier, Progress]:
    """Return the model in a file and its progress."""
    if not path.exists():
        raise CommandError(f"{path} does not exist: check the path, or make it with seqmed learn.")
    model, extra = model_file.load_with_extra(path)
    if not isinstance(model, Classifier) or extra is None:
        kind = type(model).__name__ + (" without a schema" if extra is None else "")
        raise CommandError(
            f"{path} holds a {kind}, expected a model that seqmed learn has made: use this one "
            "from Python, with seqmed.load."
        )
    try:
        progress = Progress.from_extra(extra)
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from error
    width = progress.known_schema.n_features
    if width != getattr(model, "n_features_in_", None):
        raise CommandError(
            f"{path} holds a model of {getattr(model, 'n_features_in_', 'unknown')} columns and a "
            f"schema of {width}: the file is damaged. Restore it from a copy."
        )
    return model, progress
