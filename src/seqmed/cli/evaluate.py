"""`seqmed evaluate`: measures of a model on labeled rows, in constant memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqmed.cli import options, terminal
from seqmed.cli.errors import CommandError, naming_file, naming_rows
from seqmed.cli.terminal import counted, percent, tell_skipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seqmed.cli.checkpoint import Classifier, Progress
    from seqmed.cli.tally import Tally
    from seqmed.streams import Stream

# Largest number of classes for which the confusion matrix is printed, and number of confusions that
# are printed for more classes.
FEW_CLASSES, WORST_PAIRS = 10, 10


def evaluate(
    model: options.Model,
    data: options.Data,
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
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw calibration and confusion (png, svg or pdf)."),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
    file_format: options.InputFormat = None,
    on_error: options.BadRows = "stop",
) -> None:
    """Measure the accuracy of a model on labeled rows.

    Prints accuracy, balanced accuracy, log loss, calibration error and confusion on the labeled
    rows of DATA. Use rows that the model has not learned, or --prequential.
    """
    from seqmed import plotting
    from seqmed.arrays import take_rows
    from seqmed.cli import checkpoint
    from seqmed.cli.existing_files import refuse_existing, refuse_shared
    from seqmed.cli.tally import Tally
    from seqmed.streams import Stream

    if plot is not None:
        refuse_shared({"--plot": plot}, model, data, file_format)
        refuse_existing(plot, force=force)
        plotting.require_matplotlib()
        plotting.picture_format(plot)
    classifier, progress = checkpoint.load(model)
    batches: dict[str, Any] = {}
    if prequential:
        by = progress.batch_by if batch_size is None else None
        batches = {"batch_size": batch_size or progress.batch_size, "batch_by": by}
    elif batch_size is not None:
        raise CommandError(
            "--batch-size is used only with --prequential: leave it out, or add --prequential."
        )
    schema = progress.known_schema
    if schema.columns.label is None:
        raise CommandError("the model has no column of labels: make a new model with --label.")
    stream = Stream(
        data, schema=schema, final=True, on_error=on_error, file_format=file_format, **batches
    )
    warn_of_learned_files(stream, progress)
    tally, accuracies, rows = Tally(), [], 0
    with terminal.Reporter("evaluating") as bar:
        for batch in stream:
            rows += batch.row.size
            assert batch.y is not None  # the stream has a column of labels
            accuracy, known = math.nan, batch.labeled
            if known.any() and classifier.classes_.size:
                probabilities = classifier.predict_proba(take_rows(batch.X, known))
                accuracy = tally.add(batch.y[known], classifier.classes_, probabilities)
            accuracies.append(accuracy)
            if prequential:
                with naming_rows(batch, stream.names):
                    classifier.partial_fit(batch.X, batch.y)
            bar.report(stream.fraction, rows, counted(rows, "row"))
    tell_skipped(stream.skipped)
    if not tally.size:
        raise CommandError(
            f"none of {counted(rows, 'row')} has a label in column "
            f"{schema.columns.label!r}: pass rows whose labels are known."
        )
    if plot is not None:
        with naming_file(plot):
            draw_measures(tally, plot, accuracies if prequential else [])
    if as_json:
        terminal.show_json(results(tally, rows, prequential))
    else:
        show_measures(tally, rows, classifier)


def warn_of_learned_files(stream: Stream, progress: Progress) -> None:
    """Warn of files whose rows the model has learned."""
    from seqmed.streams.errors import listed, notice
    from seqmed.streams.files import shown_path

    learned = {each.path for each in progress.position.files if each.rows}
    found = [shown_path(each.path) for each in stream.position.files if each.path in learned]
    if found:
        notice(
            f"the model has learned rows of {listed(found)}, so the measures are too optimistic: "
            "evaluate on rows that it has not learned."
        )


def results(tally: Tally, rows: int, prequential: bool) -> dict[str, Any]:
    """Return all measures as plain values."""
    counts, probabilities, accuracies = tally.calibration
    return {
        "rows": rows,
        "labeled": tally.size,
        "prequential": prequential,
        **tally.measures,
        "classes": tally.classes,
        "confusion": tally.matrix.tolist(),
        "calibration": {
            "count": counts.astype(int).tolist(),
            "probability": probabilities.tolist(),
            "accuracy": accuracies.tolist(),
        },
    }


def show_measures(tally: Tally, rows: int, model: Classifier) -> None:
    """Print tables of the measures."""
    measures = tally.measures
    terminal.show(f"{counted(tally.size, 'labeled row')} of {rows:,}")
    terminal.show_table(
        ("measure", "value"),
        (
            ("accuracy", percent(measures["accuracy"])),
            ("balanced accuracy", percent(measures["balanced_accuracy"])),
            ("log loss", f"{measures['log_loss']:.4f}"),
            ("calibration error", f"{measures['calibration_error']:.4f}"),
        ),
    )
    classes, matrix = tally.classes, tally.matrix
    terminal.show("")
    if len(classes) <= FEW_CLASSES:
        lines = [(name, *row) for name, row in zip(classes, matrix.tolist(), strict=True)]
        terminal.show_table(("true, predicted", *map(str, classes)), lines)
    else:
        pairs = [
            (*pair, count) for pair, count in tally.confusion.most_common() if len(set(pair)) > 1
        ]
        terminal.show_table(("true", "predicted", "rows"), pairs[:WORST_PAIRS])
    strange = sorted({true for true, _ in tally.confusion} - set(model.classes_.tolist()))
    if strange:
        terminal.say(f"classes that the model has not learned: {', '.join(map(str, strange))}.")


def draw_measures(tally: Tally, path: Path, accuracies: Sequence[float]) -> None:
    """Draw calibration, confusion and, if given, the accuracy of every batch."""
    import numpy as np

    from seqmed import plotting

    figure, panels = plotting.panels(3 if accuracies else 2)
    counts, probabilities, hits = tally.calibration
    plotting.reliability(panels[0], probabilities, hits, counts)
    plotting.confusion(panels[1], tally.matrix, list(map(str, tally.classes)))
    if accuracies:
        curve = {"prequential": np.array([accuracies])}
        plotting.accuracy_curves(panels[2], curve, title="prequential accuracy")
    plotting.save(figure, path)
