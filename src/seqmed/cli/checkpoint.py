"""Checkpoints: a model, its position in the stream, its record and its log, saved together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from seqmed import model_file
from seqmed.cli.errors import CommandError, naming_file
from seqmed.cli.log import PendingLines
from seqmed.cli.reading import Reading
from seqmed.labeling.progress import LabelProgress
from seqmed.selection.measures import Interval, wilson_interval
from seqmed.streams import Dialect, EncoderCheck, LabelColumn, Position, Stream
from seqmed.streams.label_column import BOOLEAN, INTEGER, STRING
from seqmed.streams.positions import read_stored, refuse_stored
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.stream_pipeline import StreamPipeline, transformed

# Types of labels on the command line by the kind of their dtype.
LABEL_TYPES = {"i": INTEGER, "b": BOOLEAN, "U": STRING, "T": STRING, "O": STRING}


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

    def plus(self, rows: int, labeled: int, scored: int, correct: int) -> Self:
        """Return the record with the rows of another batch."""
        return replace(
            self,
            rows=self.rows + rows,
            labeled=self.labeled + labeled,
            scored=self.scored + scored,
            correct=self.correct + correct,
        )

    @property
    def accuracy(self) -> float | None:
        """The fraction of correct predictions, None before the first prediction."""
        return self.correct / self.scored if self.scored else None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the accuracy, None before the first prediction."""
        return wilson_interval(self.correct, self.scored) if self.scored else None

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return a stored record; refuse anything else."""
        record = read_stored(cls, data, "record")
        for name, value in asdict(record).items():
            if value < 0:
                refuse_stored("record", name, value)
        return record


@dataclass(frozen=True)
class Progress:
    """Progress of a model in its stream.

    Parameters
    ----------
    label : the column of labels; None for a model made in Python whose column is not known yet.
    position : position in the files.
    record : counts of rows and predictions.
    batch_size, batch_by : the rule for batches.
    dialect : how texts are written, as chosen by options.
    late : late labels that were learned, by the id of their row.
    log : the last lines of the log, if there is one.
    labels : progress in a label log, if `seqmed label` was used.
    """

    label: LabelColumn | None = None
    position: Position = field(default_factory=Position)
    record: PrequentialRecord = field(default_factory=PrequentialRecord)
    batch_size: int | None = None
    batch_by: str | None = None
    dialect: Dialect = field(default_factory=Dialect)
    late: tuple[tuple[str, str], ...] = ()
    log: PendingLines | None = None
    labels: LabelProgress | None = None

    @property
    def known_label(self) -> LabelColumn:
        """The column of labels; refused if it is not known."""
        if self.label is None:
            raise CommandError(
                "the model has no column of labels: continue it with seqmed learn --label COLUMN, "
                "or make the pipeline with label=."
            )
        return self.label

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return stored progress; refuse anything else."""
        progress = read_stored(cls, data, "progress")
        if progress.batch_size is not None and progress.batch_size < 1:
            refuse_stored("progress", "batch_size", progress.batch_size)
        if progress.log is not None and progress.log.start < 0:
            refuse_stored("progress", "log", progress.log)
        if progress.labels is not None and progress.labels.n_events < 0:
            refuse_stored("progress", "labels", progress.labels)
        if not all(len(pair) == 2 for pair in progress.late):
            refuse_stored("progress", "late", progress.late)
        return progress


def encoder_of(model: StreamPipeline) -> TableEncoder:
    """Return the encoder of a model, its first step."""
    encoder: TableEncoder = model.steps[0][1]
    return encoder


def classifier_of(model: StreamPipeline) -> Any:
    """Return the classifier of a model, its last step."""
    return model.steps[-1][1]


def save(model: StreamPipeline, progress: Progress, path: Path) -> None:
    """Save a model and its progress in one file."""
    with naming_file(path):
        model_file.save(model, path, extra=asdict(progress))


def load(path: Path) -> tuple[StreamPipeline, Progress]:
    """Return the model in a file and its progress.

    A pipeline that was saved in Python has no progress yet. Its column of labels is that of the
    encoder.
    """
    if not path.exists():
        raise CommandError(
            f"{path} does not exist: check the path, or make a model with seqmed learn."
        )
    model, extra = model_file.load_with_extra(path)
    # isinstance: the class in a file is input, which may be one that commands do not use
    table = isinstance(model, StreamPipeline) and isinstance(model.steps[0][1], TableEncoder)
    if not table or not hasattr(classifier_of(model), "_state"):
        kind = type(model).__name__
        raise CommandError(
            f"{path} holds a {kind}, expected a fitted pipeline that takes tables: make it with "
            "seqmed learn or seqmed.make_stream_pipeline, or use this file in Python."
        )
    try:
        progress = made_in_python(model) if extra is None else Progress.from_dict(extra)
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from error
    named = None if progress.label is None else progress.label.name
    if named in encoder_of(model).feature_names_in_.tolist():
        raise CommandError(
            f"{path} holds a model with {named!r} as feature and as label: the file is damaged. "
            "Restore it from a copy."
        )
    return model, progress


def made_in_python(model: StreamPipeline) -> Progress:
    """Return the progress of a model that was saved without any."""
    name = encoder_of(model).label
    return Progress(label=None if name is None else label_column(model, name))


def label_column(model: StreamPipeline, name: str, unlabeled: str | None = None) -> LabelColumn:
    """Return the column of labels of a model that was made in Python."""
    classes = classifier_of(model).classes_
    kind = LABEL_TYPES.get(classes.dtype.kind)
    if kind is None:
        raise CommandError(
            f"the model has classes of type {classes.dtype}, expected integers, booleans or "
            "strings on the command line: use it in Python."
        )
    return LabelColumn(name, unlabeled, kind if classes.size else None)


def open_stream(
    data: Sequence[Path], model: StreamPipeline, progress: Progress, reading: Reading, **more: Any
) -> Stream:
    """Return the rows of DATA as a model reads them.

    Parameters
    ----------
    data : the files.
    model, progress : the model, whose encoder checks the cells, and its column of labels.
    reading : how the files are read; the dialect of the model is the default.
    **more : further arguments of `Stream`, which override these.
    """
    own = {"label": progress.label, "check": EncoderCheck(lambda: encoder_of(model))}
    return Stream(data, **{**own, **reading.arguments(progress.dialect), **more})


def features_of(model: StreamPipeline, table: Any) -> Any:
    """Return the features that reach the classifier of a model."""
    return transformed(model.steps[:-1], table)
