"""Measuring predictions in constant memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqmed import plotting
from seqmed.arrays import take_rows
from seqmed.cli import state, terminal
from seqmed.cli.errors import CommandError, naming
from seqmed.cli.inputs import labeled, labeled_stream, placing, tell_skipped
from seqmed.cli.overwriting import refuse_existing, refuse_shared
from seqmed.cli.state import Classifier
from seqmed.cli.terminal import counted, percent

# Bins of the probability of the predicted class, of equal width, by which calibration is measured.
BINS = 15
# The smallest probability that counts in the log loss, as in scikit-learn.
SMALLEST = float(np.finfo(np.float64).eps)
# Classes of which the whole confusion is printed; of more, the pairs most often confused.
FEW_CLASSES, WORST_PAIRS = 10, 10


class Tally:
    """Sums over predictions, from which all measures follow."""

    def __init__(self) -> None:
        self.confusion: Counter[tuple[Any, Any]] = Counter()
        self.counts, self.confidences, self.hits = np.zeros((3, BINS))
        self._log_loss = 0.0

    def add(self, truth: np.ndarray, classes: np.ndarray, probabilities: np.ndarray) -> float:
        """Add rows: their labels (n,), and the probabilities (n, K) of these classes.

        Returns the accuracy in these rows.
        """
        places = {label: place for place, label in enumerate(classes.tolist())}
        columns = np.array([places.get(label, -1) for label in truth.tolist()])
        winners, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
        own = np.where(columns < 0, 0.0, probabilities[np.arange(truth.size), columns])
        self._log_loss -= float(np.log(np.clip(own, SMALLEST, 1.0 - SMALLEST)).sum())
        bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
        hit = columns == winners
        for sums, values in (
            (self.counts, None), (self.confidences, confidence), (self.hits, hit),
        ):  # fmt: skip
            sums += np.bincount(bins, values, minlength=BINS)
        self.confusion.update(zip(truth.tolist(), classes[winners].tolist(), strict=True))
        return float(hit.mean())

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.confusion.total()

    @property
    def classes(self) -> list[Any]:
        """All classes, true or predicted."""
        return sorted({label for pair in self.confusion for label in pair})

    @property
    def matrix(self) -> np.ndarray:
        """Counts of true (rows) and predicted (columns) classes."""
        classes = self.classes
        return np.array([[self.confusion[true, got] for got in classes] for true in classes])

    @property
    def measures(self) -> dict[str, float]:
        """The numbers, by name."""
        matrix, size = self.matrix, self.size
        true = matrix.sum(axis=1)
        recalls = np.diagonal(matrix)[true > 0] / true[true > 0]
        return {
            "accuracy": float(np.trace(matrix) / size),
            "balanced_accuracy": float(recalls.mean()),
            "log_loss": self._log_loss / size,
            "calibration_error": float(np.abs(self.hits - self.confidences).sum() / size),
        }


def evaluate(
    path: Path,
    data: Sequence[Path],
    *,
    prequential: bool,
    batch_size: int | None,
    plot: Path | None,
    force: bool,
    as_json: bool,
    file_format: str | None,
    on_error: str,
) -> None:
    """Predict labeled rows and print how that went."""
    if plot is not None:
        refuse_shared({"--plot": plot}, path, data, file_format)
        refuse_existing(plot, force=force)
        plotting.require_matplotlib()
        plotting.picture_format(plot)
    model, progress = state.load(path)
    batches: dict[str, Any] = {}
    if prequential:
        by = progress.batch_by if batch_size is None else None
        batches = {"batch_size": batch_size or progress.batch_size, "batch_by": by}
    elif batch_size is not None:
        raise CommandError("--batch-size means something with --prequential only: leave it out.")
    stream = labeled_stream(
        data, progress.known_schema, on_error=on_error, file_format=file_format, **batches
    )
    tally, accuracies, rows = Tally(), [], 0
    with terminal.reporter("evaluating") as bar:
        for batch in stream:
            rows += batch.row.size
            assert batch.y is not None  # the stream has a column of labels
            known = labeled(batch)
            accuracy = np.nan
            if known.any() and model.classes_.size:
                probabilities = model.predict_proba(take_rows(batch.X, known))
                accuracy = tally.add(batch.y[known], model.classes_, probabilities)
            accuracies.append(accuracy)
            if prequential:
                with placing(batch, stream.names):
                    model.partial_fit(batch.X, batch.y)
            bar.report(stream.fraction, rows, counted(rows, "row"))
    tell_skipped(stream.skipped)
    if not tally.size:
        raise CommandError(
            f"none of {counted(rows, 'row')} has a label in column "
            f"{progress.known_schema.columns.label!r}: pass rows whose labels are known."
        )
    if plot is not None:
        with naming(plot):
            draw(tally, plot, accuracies if prequential else [])
    if as_json:
        terminal.show_json(results(tally, rows, prequential))
    else:
        show(tally, rows, model)


def results(tally: Tally, rows: int, prequential: bool) -> dict[str, Any]:
    """Return everything that was measured as plain values."""
    filled = tally.counts > 0
    return {
        "rows": rows,
        "labeled": tally.size,
        "prequential": prequential,
        **tally.measures,
        "classes": tally.classes,
        "confusion": tally.matrix.tolist(),
        "calibration": {
            "count": tally.counts[filled].astype(int).tolist(),
            "probability": (tally.confidences[filled] / tally.counts[filled]).tolist(),
            "accuracy": (tally.hits[filled] / tally.counts[filled]).tolist(),
        },
    }


def show(tally: Tally, rows: int, model: Classifier) -> None:
    """Print tables of what was measured."""
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
        terminal.say(f"classes that the model does not know: {', '.join(map(str, strange))}.")


def draw(tally: Tally, path: Path, accuracies: Sequence[float]) -> None:
    """Draw calibration, confusion and, if there is any, accuracy batch by batch."""
    figure, panels = plotting.panels(3 if accuracies else 2)
    filled = tally.counts > 0
    plotting.reliability(
        panels[0],
        tally.confidences[filled] / tally.counts[filled],
        tally.hits[filled] / tally.counts[filled],
        tally.counts[filled],
    )
    plotting.confusion(panels[1], tally.matrix, list(map(str, tally.classes)))
    if accuracies:
        curve = {"before learning": np.array([accuracies])}
        plotting.accuracy_curves(panels[2], curve, title="accuracy")
    plotting.save(figure, path)
