"""`seqmed learn`: train a model on files and pipes, or continue training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqmed.cli import options, terminal
from seqmed.cli.errors import CommandError
from seqmed.cli.learn_options import BatchOptions, ColumnOptions, ParameterOptions
from seqmed.cli.reading import Reading
from seqmed.cli.terminal import counted, percent_with_interval, tell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from seqmed.cli.checkpoint import Progress
    from seqmed.cli.prequential import Learner
    from seqmed.tables.stream_pipeline import StreamPipeline


def learn(
    model: options.Model,
    data: options.Data,
    columns: ColumnOptions,
    batches: BatchOptions,
    parameters: ParameterOptions,
    reading: Reading,
) -> None:
    """Train a model on files and pipes, or continue training.

    The labeled rows of a batch are predicted, then the batch is learned. The model is saved
    together with its position in the stream. If the command is interrupted, run it again: it
    resumes after the last saved batch.

    The first batch decides the kind of every column: numbers, categories, dates or text. Empty and
    constant columns and ids are not used.
    """
    from seqmed import model_file, plotting
    from seqmed.cli.existing_files import refuse_existing, refuse_shared
    from seqmed.cli.late_labels import learn_late
    from seqmed.cli.lock import locked
    from seqmed.cli.log import is_log
    from seqmed.cli.plots import check_plot, save_plot
    from seqmed.cli.prequential import Learner

    encoder, given = columns.encoder_parameters(), parameters.given()
    log, plot, late = batches.log, batches.plot, batches.late
    outputs = {"MODEL": model, "--log": log, "--plot": plot}
    refuse_shared(outputs, None, [*data, *([] if late is None else [late])], reading.file_format)
    check_late(late, batches.id_column)
    if log is not None and not is_log(log):
        refuse_existing(log, force=batches.force, use="add to it")
    if plot is not None:
        check_plotted_log(log)
        check_plot(plot, force=batches.force)
    with locked(model):
        model_file.remove_leftovers(model)
        chosen = {*encoder["kinds"], *(encoder["features"] or ())}
        if batches.batch_by not in (None, *chosen) and not model.exists():
            encoder["kinds"][batches.batch_by] = "drop"  # not a feature, unless chosen as one
        pipeline, progress = begin_or_resume(model, columns, encoder, parameters.estimator, given)
        if batches.batch_size is not None or batches.batch_by is not None:
            progress = replace(progress, batch_size=batches.batch_size, batch_by=batches.batch_by)
        progress = replace(progress, dialect=reading.dialect.over(progress.dialect))
        learner = Learner(model, pipeline, progress, log, batches.checkpoint_every)
        if late is not None:
            assert batches.id_column is not None  # checked above
            learn_late(learner, data, late, batches.id_column, reading)
            return
        stream = learner.stream(
            data,
            reading,
            first_batch_size=batches.first_batch,
            again=batches.again,
            final=batches.final,
            label_required=not learner.n_batches and not columns.no_labels,
        )
        if not stream.resumable:
            tell("a pipe cannot be resumed: after an interruption, send only the remaining rows.")
            learner.save_every_batch()
        if plot is not None:
            logged_batches(log, learner)  # refuse a log of another model before learning
        learner.follow(stream)
        show_summary(learner, learner.progress.record.rows - progress.record.rows, data)
        if plot is not None:
            save_plot(plotting.learning_log(logged_batches(log, learner)), plot)


def check_late(late: Path | None, id_column: str | None) -> None:
    """Refuse --late without --id, and --id without --late."""
    if (late is None) != (id_column is None):
        given, other = ("--late", "--id COLUMN") if late else ("--id", "--late LABELS")
        raise CommandError(f"{given} is used only with {other}: add it, or leave both out.")


def check_plotted_log(log: Path | None) -> None:
    """Refuse --plot without a file of --log."""
    from seqmed.model_file.files import is_pipe_or_device

    if log is None or is_pipe_or_device(log):
        given = "no --log was given" if log is None else f"{log} is a pipe or a device"
        raise CommandError(f"--plot draws the file of --log, and {given}: add --log FILE.")


def logged_batches(log: Path | None, learner: Learner) -> Sequence[Mapping[str, Any]]:
    """Return the records of the log; refuse those of another model."""
    from seqmed import plotting

    assert log is not None
    records = plotting.read_log(log) if log.is_file() else []
    known = learner.n_batches
    if records and records[-1]["batch"] > known:
        raise CommandError(
            f"{log} has batch {records[-1]['batch']}, and the model has learned "
            f"{counted(known, 'batch', 'batches')}: --plot needs a log of this model alone. Choose "
            "another file for --log."
        )
    return records


def begin_or_resume(
    path: Path,
    columns: ColumnOptions,
    encoder: Mapping[str, Any],
    estimator: str | None,
    given: Mapping[str, Any],
) -> tuple[StreamPipeline, Progress]:
    """Return the model in a file and its progress, or a new model.

    Parameters
    ----------
    path : the model file.
    columns : the column of labels.
    encoder : parameters of the encoder.
    estimator, given : the classifier and its parameters.
    """
    from seqmed.cli import checkpoint, parameters
    from seqmed.streams import LabelColumn

    name, unlabeled, kind = columns.label, columns.unlabeled, columns.label_type
    if path.exists():
        model, progress = checkpoint.load(path)
        parameters.check_same(model, estimator, given, encoder)
        if progress.label is None and name is not None:
            fitted = checkpoint.encoder_of(model)
            if name in fitted.feature_names_in_.tolist():
                raise CommandError(
                    f"column {name!r} is a feature of the model, expected another column of "
                    "labels: name it with --label, or make a new model."
                )
            fitted.set_params(label=name)
            progress = replace(progress, label=checkpoint.label_column(model, name, unlabeled))
        known = progress.known_label
        known.check_same(LabelColumn(known.name if name is None else name, unlabeled, kind))
        return model, progress
    if name is None:
        raise CommandError(
            f"{path} does not exist, and a new model needs a column of labels: add --label COLUMN."
        )
    classifier = parameters.new_classifier(estimator, given, unlabeled)
    model = parameters.new_model(classifier, {**encoder, "label": name})
    return model, checkpoint.Progress(label=LabelColumn(name, unlabeled, kind))


def show_summary(learner: Learner, rows: int, data: Sequence[Path]) -> None:
    """Print a summary of the model."""
    record = learner.progress.record
    if terminal.is_quiet():
        return
    if not rows:
        names = ", ".join(map(str, data[:3])) + (", ..." if len(data) > 3 else "")
        terminal.show(f"no new rows in {names}: use --again to learn old rows again.")
    accuracy = ""
    if record.scored:
        scored = counted(record.scored, "labeled row")
        found = percent_with_interval(record.correct, record.scored)
        accuracy = f"; prequential accuracy {found} of {scored}"
    terminal.show(
        f"{learner.path}: {counted(learner.n_batches, 'batch', 'batches')}, "
        f"{counted(record.rows, 'row')} ({record.labeled:,} labeled), "
        f"{counted(learner.classes.size, 'class', 'classes')}{accuracy}."
    )
