"""`seqmed evaluate`: measures of a model on labeled rows, in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqmed.cli import options, terminal
from seqmed.cli.decision_options import DecisionOptions
from seqmed.cli.errors import CommandError, naming_rows
from seqmed.cli.reading import Reading
from seqmed.cli.terminal import counted, tell_skipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seqmed.cli.checkpoint import Progress

# Largest number of unknown classes that are named in a warning.
MOST_NAMES = 10
# Largest number of points in the plot of the accuracy over the stream.
MOST_POINTS = 2000


def evaluate(
    model: options.Model,
    data: options.Data,
    *,
    prequential: Annotated[
        bool,
        typer.Option(
            "--prequential",
            help="Learn each batch after predicting it; the model file does not change.",
        ),
    ] = False,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Rows per batch with --prequential (default: as stored in the model).",
        ),
    ] = None,
    decision: DecisionOptions,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw calibration, confusion, precision and recall, and with --prequential the "
            "accuracy over the stream (png, svg or pdf).",
        ),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
    reading: Reading,
) -> None:
    """Measure the predictions of a model on labeled rows.

    Prints accuracy with its 95 % interval, balanced accuracy, macro F1, log loss and calibration
    error; precision, recall and F1 of every class; the confusion; with two classes ROC AUC and
    average precision. Use rows that the model has not learned, or --prequential.
    """
    from seqmed import plotting
    from seqmed.cli import checkpoint, evaluation_report, plots
    from seqmed.cli.existing_files import refuse_shared
    from seqmed.selection.measures import Measures

    if plot is not None:
        refuse_shared({"--plot": plot}, model, data, reading.file_format)
        plots.check_plot(plot, force=force)
    pipeline, progress = checkpoint.load(model)
    classes = checkpoint.classifier_of(pipeline).classes_
    if not classes.size and not prequential:
        raise CommandError(
            f"{model} has learned no label, expected a model that can predict: learn labeled rows."
        )
    rule = decision.rule(classes, positive_alone=True)
    batches: dict[str, Any] = {}
    if prequential:
        by = progress.batch_by if batch_size is None else None
        batches = {"batch_size": batch_size or progress.batch_size, "batch_by": by}
    elif batch_size is not None:
        raise CommandError(
            "--batch-size is used only with --prequential: leave it out, or add --prequential."
        )
    label = progress.known_label
    stream = checkpoint.open_stream(data, pipeline, progress, reading, final=True, **batches)
    learned = learned_files(data, progress, reading)
    warn_of_learned_files(learned)
    measures, accuracy, rows = Measures(), AccuracyOverRows(), 0
    with terminal.Reporter("evaluating") as bar:
        for batch in stream:
            rows += batch.row.size
            assert batch.y is not None  # the stream has a column of labels
            known, before = batch.labeled, (measures.size, measures.correct)
            classes = checkpoint.classifier_of(pipeline).classes_
            if known.any() and classes.size:
                truth = batch.y[known]
                probabilities = pipeline.predict_proba(batch.table.take(known.nonzero()[0]))
                predicted = rule.decide(classes, probabilities)
                costs = rule.costs_of(truth.tolist(), classes[predicted].tolist())
                measures.add(truth, classes, probabilities, predicted, costs)
            scored, correct = measures.size - before[0], measures.correct - before[1]
            accuracy.add(batch.row.size, int(known.sum()), scored, correct)
            if prequential:
                with naming_rows(batch, stream.names):
                    pipeline.partial_fit(batch.table, batch.y)
            bar.report(stream.fraction, rows, counted(rows, "row"))
    tell_skipped(stream.skipped)
    if not measures.size:
        raise CommandError(
            f"none of {counted(rows, 'row')} has a label in column "
            f"{label.name!r}: pass rows whose labels are known."
        )
    if measures.unknown_classes:
        names = ", ".join(map(str, measures.unknown_classes[:MOST_NAMES]))
        more = ", ..." * (len(measures.unknown_classes) > MOST_NAMES)
        terminal.warn(f"classes that the model has not learned: {names}{more}.")
    classes = checkpoint.classifier_of(pipeline).classes_
    found = evaluation_report.results(measures, classes, rule)
    if plot is not None:
        figure = plotting.evaluation(
            measures, found["positive"], accuracy.records() if prequential else ()
        )
        plots.save_plot(figure, plot)
    if as_json:
        source = {"rows": rows, "prequential": prequential, "learned_files": learned}
        terminal.show_json({**source, **found})
    else:
        terminal.show(f"{counted(measures.size, 'labeled row')} of {rows:,}")
        evaluation_report.show_measures(measures, found)


# -- rows that the model has learned ---------------------------------------------------------------


def learned_files(data: Sequence[Path], progress: Progress, reading: Reading) -> list[str]:
    """Return the files whose rows the model has learned, also from another path.

    Texts are compared with learned files of the same size by their content.
    """
    from seqmed.streams.inputs import find_inputs, shown_path
    from seqmed.streams.positions import resumed, stamp

    encoding = reading.dialect.over(progress.dialect).encoding
    records = [each for each in progress.position.files if each.rows]
    paths = {each.path for each in records}
    found = []
    for source in find_inputs(data, reading.file_format):
        if not source.resumable:
            continue
        size = stamp(Path(source.key)).size
        alike = (each for each in records if each.size == size)
        if source.key in paths or any(resumed(source, each, encoding) for each in alike):
            found.append(shown_path(source.key))
    return found


def warn_of_learned_files(learned: Sequence[str]) -> None:
    """Warn of files whose rows the model has learned."""
    from seqmed.streams.faults import notice
    from seqmed.tables.messages import listed

    if learned:
        notice(
            f"the model has learned rows of {listed(learned)}, so the measures are too optimistic: "
            "evaluate on rows that it has not learned."
        )


class AccuracyOverRows:
    """Counts of rows and correct predictions along the stream, in bounded memory.

    If there are more than `MOST_POINTS` batches, neighbours are added up.
    """

    def __init__(self) -> None:
        self._counts: list[tuple[int, ...]] = []

    def add(self, rows: int, labeled: int, scored: int, correct: int) -> None:
        """Add a batch."""
        if len(self._counts) == 2 * MOST_POINTS:
            pairs = zip(self._counts[::2], self._counts[1::2], strict=True)
            self._counts = [tuple(map(sum, zip(*pair, strict=True))) for pair in pairs]
        self._counts.append((rows, labeled, scored, correct))

    def records(self) -> list[dict[str, Any]]:
        """Return records as in the log of `seqmed learn`."""
        found = []
        total = (0, 0, 0, 0)
        for place, counts in enumerate(self._counts, start=1):
            total = tuple(map(sum, zip(total, counts, strict=True)))  # type: ignore[assignment]
            names = ("rows", "labeled", "scored", "correct")
            found.append(
                {
                    "batch": place,
                    **dict(zip(names, counts, strict=True)),
                    "accuracy_so_far": total[3] / total[2] if total[2] else None,
                    "rows_so_far": total[0],
                }
            )
        return found
