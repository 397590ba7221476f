"""Plots: functions that draw on Axes and return them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmed.arrays import Array
from seqmed.model_file.files import write_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, which is safe for colour-blind readers.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
# Cycles of different lengths, so that two curves of one colour differ in marker and dash.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1)))
LONG_LABEL = 24
# Width and height of a panel in inches; largest number of classes whose names are written.
PANEL = (4.6, 4.2)
NAMED_CLASSES = 20
FORMATS = ("png", "svg", "pdf")


def require_matplotlib() -> None:
    """Raise an ImportError with a remedy if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "figures need matplotlib, which is not installed: run pip install '.[plot]' in the "
            "source folder, or pip install matplotlib."
        ) from error


def panels(number: int, size: tuple[float, float] = PANEL) -> tuple[Figure, list[Axes]]:
    """Return a figure for saving, and its panels side by side."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(number * size[0], size[1]), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, [figure.add_subplot(1, number, place + 1) for place in range(number)]


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file name; the same figure gives the same file."""
    import matplotlib

    kind, content = picture_format(path), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "seqmed"}):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(content, format=kind, dpi=200, metadata=metadata)
    write_output(path, [content.getvalue()])


def picture_format(path: Path) -> str:
    """Return the format of a picture by the suffix of its name; png without a suffix."""
    kind = path.suffix[1:].lower() or FORMATS[0]
    if kind not in FORMATS:
        raise ValueError(f"{path} ends in {path.suffix!r}, expected .png, .svg or .pdf: rename it.")
    return kind


def reliability(axes: Axes, probabilities: Array, accuracies: Array, counts: Array) -> Axes:
    """Draw the accuracy of predictions against their probability.

    Parameters
    ----------
    axes : where to draw.
    probabilities, accuracies : (bins,) means of the predictions in every bin.
    counts : (bins,) number of predictions, shown as the size of the marks.
    """
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    axes.plot(probabilities, accuracies, color=PALETTE[0], linewidth=1.2)
    axes.scatter(probabilities, accuracies, 200 * counts / counts.sum() + 8, color=PALETTE[0])
    axes.set(
        xlabel="probability of the predicted class", ylabel="accuracy",
        title="calibration", xlim=(-0.05, 1.05), ylim=(-0.05, 1.05),
    )  # fmt: skip
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.legend(frameon=False, fontsize="small")
    return axes


def confusion(axes: Axes, matrix: Any, names: Sequence[str]) -> Axes:
    """Draw a confusion matrix, as fractions of the true classes.

    Parameters
    ----------
    axes : where to draw.
    matrix : (K, K) counts, a row for every true class and a column for every predicted one.
    names : (K,) names of the classes, written if there are at most `NAMED_CLASSES`.
    """
    matrix = np.asarray(matrix)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="true", title="confusion")
    if len(names) <= NAMED_CLASSES:
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(names)), names)
        for true, predicted in np.argwhere(matrix):
            axes.text(
                predicted, true, f"{matrix[true, predicted]:,}", ha="center", va="center",
                fontsize="small", color="white" if shares[true, predicted] > 0.5 else "black",
            )  # fmt: skip
    return axes


def accuracy_curves(axes: Axes, curves: dict[str, Array], *, title: str = "") -> Axes:
    """Draw the mean of several runs per label, with a band of one standard error.

    Parameters
    ----------
    axes : where to draw.
    curves : label -> (runs, batches) accuracies; NaN where a batch was not evaluated.
    title : title of the axes.
    """
    for position, (label, runs) in enumerate(curves.items()):
        seen = np.flatnonzero(~np.isnan(runs).all(axis=0))
        values = runs[:, seen]
        mean = values.mean(axis=0)
        colour = PALETTE[position % len(PALETTE)]
        axes.plot(
            seen + 1, mean, color=colour, label=label, linewidth=1.6, markersize=4,
            marker=MARKERS[position % len(MARKERS)], linestyle=DASHES[position % len(DASHES)],
            markevery=max(1, len(seen) // 8),
        )  # fmt: skip
        if runs.shape[0] > 1:
            error = values.std(axis=0, ddof=1) / np.sqrt(runs.shape[0])
            axes.fill_between(
                seen + 1, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0
            )
    axes.set(xlabel="batch", ylabel="test accuracy", title=title)
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False,
        ncols=2 if max(map(len, curves)) > LONG_LABEL else 3,
        fontsize="small", columnspacing=1.2,
    )  # fmt: skip
    return axes
