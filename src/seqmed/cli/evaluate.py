"""`seqmed evaluate`: measures of a model on labeled rows, in bounded memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqmed.cli import options, terminal
from seqmed.cli.options import DecisionOptions, Reading
from seqmed.cli.terminal import (
    CommandError,
    counted,
    naming_rows,
    percent,
    percent_range,
    tell_skipped,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seqmed.cli.checkpoint import Progress
    from seqmed.cli.terminal import Reporter
    from seqmed.selection.decisions import DecisionRule
    from seqmed.selection.measures import ClassMeasures, Measures
    from seqmed.streams import LabelColumn, Stream
    from seqmed.tables.stream_pipeline import StreamPipeline

# Largest number of classes for which the confusion matrix is printed, and number of confusions that
# are printed for more classes.
FEW_CLASSES, WORST_PAIRS = 10, 10
# Largest number of classes of which all are printed, and number of classes that are printed of
# more.
LISTED_CLASSES, WORST_CLASSES = 30, 10


def evaluate_command(
    model: options.Model,
    data: options.Data,
    *,
    prequential: Annotated[
        bool,
        typer.Option(
            "--prequential",
            metavar="",
            help="Learn each batch after predicting it; the model file does not change.",
        ),
    ] = False,
    decision: DecisionOptions,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw calibration, confusion, precision and recall (png, svg or pdf).",
        ),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
    cluster: options.Cluster = None,
    reading: Reading,
) -> None:
    """Measure the predictions of a model on labeled rows.

    Prints accuracy with its 95 % interval, balanced accuracy, macro F1, log loss and calibration
    error; precision, recall and F1 of every class; the confusion; with two classes ROC AUC and
    average precision. Use rows that the model has not learned, or --prequential.
    """
    from seqmed import plotting
    from seqmed.cli import checkpoint, outputs
    from seqmed.estimators.base import BLOCK
    from seqmed.streams.faults import notice
    from seqmed.tables.messages import listed

    if prequential and cluster is not None:
        raise CommandError(
            "--prequential learns one batch after the other, which a cluster cannot do: leave "
            "--cluster out."
        )
    if plot is not None:
        outputs.check_plot(plot, force=force)
        outputs.refuse_shared([("--plot", plot)], model, data, reading.file_format)
    pipeline, progress = checkpoint.load_checkpoint(model)
    classes = checkpoint.classifier_of(pipeline).classes_
    if not classes.size and not prequential:
        raise CommandError(
            f"{model} has learned no label, expected a model that can predict: learn labeled rows."
        )
    rule, label = decision.rule(classes, positive_alone=True), progress.known_label
    more: dict[str, Any] = {"batch_size": 10 * BLOCK, "final": True}
    if prequential:
        more |= {"batch_size": progress.batch_size, "batch_by": progress.batch_by}
    learned = learned_files(data, progress, reading)
    if learned:
        notice(
            f"the model has learned rows of {listed(learned)}, so the measures are too optimistic: "
            "evaluate on rows that it has not learned."
        )
    if cluster is None:
        stream = checkpoint.open_stream(data, pipeline, progress, reading, **more)
        with terminal.Reporter("evaluating") as bar:
            measures, rows = measured(pipeline, stream, 0, rule, prequential, bar)
        tell_skipped(stream.skipped)
    else:
        from seqmed.cli.cluster import FileTasks

        tasks = FileTasks("evaluating", data, pipeline, progress, reading, more)
        measures, rows = tasks.run(cluster, partial(measured, rule=rule), joined_measures)
    if not measures.size:
        raise CommandError(
            f"none of {counted(rows, 'row')} has a label in column "
            f"{label.name!r}: pass rows whose labels are known."
        )
    if measures.unknown_classes:
        names = listed(list(map(str, measures.unknown_classes)))
        terminal.warn(f"classes that the model has not learned: {names}.")
    classes = checkpoint.classifier_of(pipeline).classes_
    found = results(measures, classes, rule)
    if plot is not None:
        figure = plotting.evaluation(measures, found["positive"], label.text)
        outputs.save_plot(figure, plot)
    if as_json:
        source = {"rows": rows, "prequential": prequential, "learned_files": learned}
        terminal.show_json({**source, **found})
    else:
        terminal.show(f"{counted(measures.size, 'labeled row')} of {rows:,}")
        show_measures(measures, found, label)


def measured(
    pipeline: StreamPipeline,
    stream: Stream,
    first: int,
    rule: DecisionRule,
    prequential: bool = False,
    bar: Reporter | None = None,
) -> tuple[Measures, int]:
    """Return the measures of the labeled rows, and the number of all rows.

    With ``prequential`` every batch is learned after it is predicted.
    """
    from seqmed.cli.checkpoint import classifier_of
    from seqmed.estimators.base import in_blocks
    from seqmed.selection.measures import Measures

    measures, rows = Measures(), 0
    for batch in stream:
        rows += batch.row.size
        assert batch.y is not None  # the stream has a column of labels
        known = batch.labeled
        classes = classifier_of(pipeline).classes_
        if known.any() and classes.size:
            truth, table = batch.y[known], batch.table.take(known.nonzero()[0])
            if prequential:
                probabilities = pipeline.predict_proba(table)
            else:
                (probabilities,) = in_blocks(lambda rows: (pipeline.predict_proba(rows),), table)
            predicted = rule.decide(classes, probabilities)
            costs = rule.costs_of(truth.tolist(), classes[predicted].tolist())
            measures.add(truth, classes, probabilities, predicted, costs)
        if prequential:
            with naming_rows(batch, stream.names):
                pipeline.partial_fit(batch.table, batch.y)
        if bar is not None:
            bar.report(stream.fraction, rows, counted(rows, "row"))
    return measures, rows


def joined_measures(one: tuple[Measures, int], other: tuple[Measures, int]) -> tuple[Measures, int]:
    """Return the result of `measured` for the files of two results."""
    return one[0].plus(other[0]), one[1] + other[1]


def learned_files(data: Sequence[Path], progress: Progress, reading: Reading) -> list[str]:
    """Return the files whose rows the model has learned."""
    from seqmed.streams.inputs import find_inputs, shown_path

    known = {each.path for each in progress.position.files if each.rows}
    keys = [source.key for source in find_inputs(data, reading.file_format)]
    return [shown_path(key) for key in keys if key in known]


# -- measures as JSON and as tables ----------------------------------------------------------------


def results(measures: Measures, classes: Any, rule: DecisionRule) -> dict[str, Any]:
    """Return all measures as plain values."""
    from seqmed.selection.decisions import positive_place
    from seqmed.selection.measures import CONFIDENCE, wilson_interval

    counts, probabilities, accuracies = measures.calibration
    positive = ranking = None
    if classes.size == 2:
        positive = classes.tolist()[positive_place(classes, rule.positive)]
        ranking = measures.ranking(positive)
    ranked = ("roc_auc", "average_precision")
    return {
        "labeled": measures.size,
        "confidence": CONFIDENCE,
        "accuracy": measures.accuracy,
        "accuracy_interval": [*wilson_interval(measures.correct, measures.size)],
        "balanced_accuracy": measures.balanced_accuracy,
        "macro_f1": measures.macro_f1,
        "log_loss": measures.log_loss,
        "calibration_error": measures.calibration_error,
        "positive": positive,
        **{name: None if ranking is None else getattr(ranking, name) for name in ranked},
        "threshold": rule.threshold,
        "costs": [
            {"true": true, "predicted": predicted, "cost": cost}
            for (true, predicted), cost in rule.costs.items()
        ],
        "mean_cost": measures.mean_cost if rule.costs else None,
        "per_class": [class_results(each) for each in measures.by_class()],
        "classes": measures.classes,
        "confusion": measures.matrix.tolist(),
        "calibration": {
            "count": counts.astype(int).tolist(),
            "probability": probabilities.tolist(),
            "accuracy": accuracies.tolist(),
        },
    }


def class_results(each: ClassMeasures) -> dict[str, Any]:
    """Return the measures of a class as plain values."""
    from seqmed.selection.measures import wilson_interval

    found: dict[str, Any] = {"class": each.label}
    for name, total in (("precision", each.predicted), ("recall", each.support)):
        interval = [*wilson_interval(each.correct, total)] if total else None
        found |= {name: getattr(each, name), f"{name}_interval": interval}
    names = ("f1", "support", "predicted", "average_precision")
    return {**found, **{name: getattr(each, name) for name in names}}


def show_measures(measures: Measures, found: dict[str, Any], label: LabelColumn) -> None:
    """Print tables of the measures; classes are written as in the column of labels."""
    interval = percent_range(*found["accuracy_interval"])
    lines = [
        ("accuracy", percent(found["accuracy"]), interval),
        ("balanced accuracy", percent(found["balanced_accuracy"]), ""),
        ("macro F1", percent(found["macro_f1"]), ""),
        ("log loss", f"{found['log_loss']:.4f}", ""),
        ("calibration error", f"{found['calibration_error']:.4f}", ""),
    ]
    for name, title in (("roc_auc", "ROC AUC"), ("average_precision", "average precision")):
        if found[name] is not None:
            positive = label.text(found["positive"])
            lines.append((f"{title} of {positive}", f"{found[name]:.4f}", ""))
    if found["mean_cost"] is not None:
        lines.append(("mean cost", f"{found['mean_cost']:.4f}", ""))
    terminal.show_table(("measure", "value", "95 % interval"), lines)
    terminal.show("")
    every = found["per_class"]
    if len(every) > LISTED_CLASSES:
        every = sorted(every, key=lambda each: each["f1"])[:WORST_CLASSES]
        terminal.show(f"the {WORST_CLASSES} classes with the lowest F1 (all: --json)")
    terminal.show_table(
        ("class", "precision", "recall", "F1", "support"),
        [
            (
                label.text(each["class"]),
                *(percent(each[name]) for name in ("precision", "recall", "f1")),
                f"{each['support']:,}",
            )
            for each in every
        ],
    )  # fmt: skip
    terminal.show("")
    if len(found["classes"]) <= FEW_CLASSES:
        names = [*map(label.text, found["classes"])]
        rows = zip(names, found["confusion"], strict=True)
        table = [(name, *(f"{count:,}" for count in row)) for name, row in rows]
        terminal.show_table(("true, predicted", *names), table)
    else:
        pairs = [
            (*map(label.text, pair), f"{count:,}")
            for pair, count in measures.confusion.most_common()
            if len(set(pair)) > 1
        ]
        terminal.show_table(("true", "predicted", "rows"), pairs[:WORST_PAIRS])
