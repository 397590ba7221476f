"""The model of `seqmed label`: begun or resumed, and saved with its progress in the label log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seqmed.cli import checkpoint, parameters
from seqmed.cli.checkpoint import Progress
from seqmed.cli.learn_options import FIRST_BATCH, ColumnOptions
from seqmed.cli.prequential import Learner
from seqmed.cli.reading import Reading
from seqmed.labeling.learner import LabelLearner
from seqmed.streams import LabelColumn
from seqmed.streams.label_column import STRING
from seqmed.tables.stream_pipeline import StreamPipeline

# Label column of a new model.
DEFAULT_LABEL = "label"
# Parameters of a new model. All labels stay in the window, so that each of them can be retracted.
PARAMETERS = {"window": None}


def begin_or_resume(path: Path, name: str | None) -> tuple[StreamPipeline, Progress]:
    """Return the model in a file and its progress, or a new model."""
    if path.exists():
        model, progress = checkpoint.load(path)
        if name is not None:
            progress.known_label.check_same(LabelColumn(name))
        return model, progress
    column = LabelColumn(name or DEFAULT_LABEL, None, STRING)
    classifier = parameters.new_classifier(None, PARAMETERS)
    encoder = ColumnOptions().encoder_parameters()  # as `seqmed learn` without options
    model = parameters.new_model(classifier, {**encoder, "label": column.name})
    return model, checkpoint.Progress(label=column)


def learn_rows(
    path: Path,
    model: StreamPipeline,
    progress: Progress,
    data: Sequence[Path],
    reading: Reading,
) -> tuple[StreamPipeline, Progress]:
    """Learn the rows of the data that the model has not learned, as `seqmed learn` does."""
    learner = Learner(path, model, progress, None, None)
    stream = learner.stream(data, reading, first_batch_size=FIRST_BATCH, final=True)
    learner.follow(stream)
    return learner.model, learner.progress


class Saver:
    """Saves the model with its progress in the stream and in the label log.

    Parameters
    ----------
    path : the model file.
    progress : progress in the stream.
    has_ids : whether the label log has ids. Their labels are then noted as late labels, so that
        `seqmed learn --late` does not learn them twice.
    """

    def __init__(self, path: Path, progress: Progress, *, has_ids: bool):
        self._path, self._progress, self._has_ids = path, progress, has_ids

    def save(self, learner: LabelLearner) -> None:
        """Save the model of a learner."""
        before, now = self._progress.labels, learner.progress()
        record = self._progress.record
        added = now.n_labeled - (0 if before is None else before.n_labeled)
        late = dict(self._progress.late)
        for row in learner.ledger.rows.values() if self._has_ids else ():
            if row.id:
                late.pop(row.id, None)
                if row.label is not None:
                    late[row.id] = row.label
        self._progress = replace(
            self._progress,
            labels=now,
            record=replace(record, labeled=record.labeled + added),
            late=tuple(late.items()),
        )
        checkpoint.save(learner.model, self._progress, self._path)
