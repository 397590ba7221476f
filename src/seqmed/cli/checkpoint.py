"""Checkpoints: a model, its position in the stream, its record and its log, saved together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from seqmed import model_file
from seqmed.cli.options import Reading
from seqmed.cli.terminal import CommandError, naming_file
from seqmed.estimators.base import transformed
from seqmed.labeling.ledger import LabelProgress
from seqmed.model_file.files import real_path
from seqmed.selection.measures import wilson_interval
from seqmed.streams import Dialect, EncoderCheck, LabelColumn, Position, Stream
from seqmed.streams.inputs import Input
from seqmed.streams.label_column import BOOLEAN, INTEGER, STRING
from seqmed.streams.positions import read_stored
from seqmed.tables.cells import POINT
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.stream_pipeline import StreamPipeline

try:
    import fcntl
except ImportError:  # Windows, where models are not locked
    fcntl = None  # type: ignore[assignment]

# Types of labels on the command line by the kind of their dtype.
TYPES_BY_KIND = {"i": INTEGER, "b": BOOLEAN, "U": STRING, "T": STRING, "O": STRING}
# What became of a new start after a change of the concept.
ON_TRIAL, KEPT, REVOKED = "on trial", "kept", "revoked"
# The beginning of every line of a log.
LOG_START = b'{"batch": '


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
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the accuracy, None before the first prediction."""
        return wilson_interval(self.correct, self.scored) if self.scored else None


@dataclass(frozen=True)
class FoundChange:
    """The last change of the concept that was found.

    Parameters
    ----------
    batch : the batch in which it was found; None if the model was saved in Python since then.
    labels : labels since the change, when it was found.
    error_before, error_after : error rates of the predictions before the change and after it.
    record : the counts when it was found.
    new_start : what became of the new start, `ON_TRIAL`, `KEPT` or `REVOKED`.
    """

    batch: int | None
    labels: int
    error_before: float
    error_after: float
    record: PrequentialRecord
    new_start: str = ON_TRIAL

    def labels_since(self, record: PrequentialRecord) -> int:
        """Return the number of labels since the change, given the counts now."""
        return self.labels + record.labeled - self.record.labeled

    def after(self, classifier: Any) -> FoundChange:
        """Return the change with what has become of the new start in a classifier."""
        if self.new_start != ON_TRIAL or trial_of(classifier) is not None:
            return self
        revoked = getattr(classifier._state, "has_revoked", False)
        return replace(self, new_start=REVOKED if revoked else KEPT)


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
    change : the last change of the concept, if one was found.
    batches_before : batches learned before the model was saved in Python, which the record does not
        count.
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
    change: FoundChange | None = None
    batches_before: int = 0

    @property
    def known_label(self) -> LabelColumn:
        """The column of labels; refused if it is not known."""
        if self.label is None:
            raise CommandError(
                "the model has no column of labels: continue it with seqmed learn --label COLUMN, "
                "or make the pipeline with label=."
            )
        return self.label


def encoder_of(model: StreamPipeline) -> TableEncoder:
    """Return the encoder of a model, its first step."""
    encoder: TableEncoder = model.steps[0][1]
    return encoder


def classifier_of(model: StreamPipeline) -> Any:
    """Return the classifier of a model, its last step."""
    return model.steps[-1][1]


def trial_of(classifier: Any) -> Any:
    """Return the trial of a new start in a fitted classifier, None if there is none."""
    return getattr(classifier._state, "trial", None)


def save_checkpoint(model: StreamPipeline, progress: Progress, path: Path) -> None:
    """Save a model and its progress in one file."""
    with naming_file(path):
        model_file.save(model, path, extra=asdict(progress))


def load_checkpoint(path: Path) -> tuple[StreamPipeline, Progress]:
    """Return the model in a file and its progress.

    A pipeline that was saved in Python has no progress yet. Its column of labels is that of the
    encoder. A trial of a new start may have ended in Python or in `seqmed label`.
    """
    if not path.exists():
        raise CommandError(
            f"{path} does not exist: check the path, or make a model with seqmed learn."
        )
    model, extra = model_file.load_with_extra(path)
    # isinstance: the class in a file is input, which may be one that commands do not use
    if (
        not isinstance(model, StreamPipeline)
        or not isinstance(encoder_of(model), TableEncoder)
        or not hasattr(classifier_of(model), "_state")
    ):
        kind = type(model).__name__
        raise CommandError(
            f"{path} holds a {kind}, expected a fitted pipeline that takes tables: make it with "
            "seqmed learn or seqmed.make_stream_pipeline, or use this file in Python."
        )
    classifier = classifier_of(model)
    try:
        if extra is None:  # made in Python
            name = encoder_of(model).label
            label = None if name is None else label_column_of(model, name)
            change, before = change_on_trial(classifier), classifier.n_batches_
            return model, Progress(label=label, change=change, batches_before=before)
        progress = read_stored(Progress, extra, "progress")
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from error
    if progress.change is not None:
        progress = replace(progress, change=progress.change.after(classifier))
    return model, progress


def move_to_device(model: StreamPipeline, device: str) -> None:
    """Put the graph of a model on a device; refuse a model without one."""
    if device == "cpu":
        return
    try:
        found = model_file.put_on_device(model, device)
    except (ImportError, ValueError) as error:
        raise CommandError(str(error)) from error
    if not found:
        kind = type(classifier_of(model)).__name__
        raise CommandError(
            f"--device={device} was given for a {kind}, expected a SeqGraphMED or "
            "GraphPropagation, which have a graph: leave the option out."
        )


def change_on_trial(classifier: Any) -> FoundChange | None:
    """Return the change whose new start is on trial in a classifier that learned in Python."""
    trial = trial_of(classifier)
    if trial is None:
        return None
    since, error_before, error_after = trial.change
    return FoundChange(None, since + trial.n_labels, error_before, error_after, PrequentialRecord())


def label_column_of(model: StreamPipeline, name: str, unlabeled: str | None = None) -> LabelColumn:
    """Return the column of labels of a model that was made in Python."""
    classes = classifier_of(model).classes_
    kind = TYPES_BY_KIND.get(classes.dtype.kind)
    if kind is None:
        raise CommandError(
            f"the model has classes of type {classes.dtype}, expected integers, booleans or "
            "strings on the command line: use it in Python."
        )
    return LabelColumn(name, unlabeled, kind if classes.size else None)


def open_stream(
    data: Sequence[Path | Input],
    model: StreamPipeline,
    progress: Progress,
    reading: Reading,
    **more: Any,
) -> Stream:
    """Return the rows of DATA as a model reads them; its encoder checks the cells.

    The dialect of the model is the default. ``more`` are arguments of `Stream` that override these.
    If the encoder of a model that was made in Python reads the numbers, the stream does not.
    """
    own = {"label": progress.label, "check": EncoderCheck(lambda: encoder_of(model))}
    arguments, encoder = reading.arguments(progress.dialect), encoder_of(model)
    if encoder._reads_numbers:
        for name in ("decimal", "thousands"):
            now, before = getattr(reading, name), getattr(encoder, name) or ""
            if now not in (None, before):
                raise CommandError(
                    f"the model was made with {name}={before!r}, not {now!r}: leave --{name} out."
                )
        arguments["dialect"] = replace(arguments["dialect"], decimal=POINT, thousands="")
    return Stream(data, **{**own, **arguments, **more})


def features_of(model: StreamPipeline, table: Any) -> Any:
    """Return the features that reach the classifier of a model."""
    return transformed(model.steps, table)


# -- the log of `seqmed learn`: a JSON line for every batch ----------------------------------------


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


def check_log_file(path: Path) -> None:
    """Refuse a file that is neither a log nor the beginning of one."""
    if path.is_file():
        with open(path, "rb") as file:
            if not LOG_START.startswith(file.read(len(LOG_START))):
                raise CommandError(f"{path} is not a log of seqmed learn: choose another name.")


# -- the lock of a model file: one writer at a time, released when its process ends ----------------


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a model file; refuse if another process holds it.

    The locked file is `.NAME.lock` beside the model, because every save replaces the model. The
    lock file is removed at the end. If a process is killed, its lock file remains, but is not
    locked.
    """
    if fcntl is None:
        yield
        return
    target = real_path(path)
    side = target.with_name(f".{target.name}.lock")
    with open(side, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(file.fileno()).st_nlink:  # its owner has just removed it
                raise BlockingIOError
        except BlockingIOError:
            raise CommandError(
                f"{path} is locked by another seqmed learn or seqmed label: wait until it ends, or "
                "stop it. Its saved batches are kept."
            ) from None
        try:
            yield
        finally:
            side.unlink(missing_ok=True)
