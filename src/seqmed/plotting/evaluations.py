"""Figures of measures: calibration, confusion, precision and recall, accuracy of several runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmed.numeric.arrays import Array
from seqmed.plotting.figures import (
    PALETTE,
    PANEL,
    curve_style,
    legend_below,
    legend_right,
    new_figure,
)
from seqmed.selection.measures import BINS, Measures, wilson_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Largest number of classes that a confusion matrix shows, number of those that are shown of more,
# and number of classes from which on it is larger than the other panels.
NAMED_CLASSES, CONFUSED_CLASSES, WIDE_CONFUSION = 30, 24, 12
# Height of a named class in a large confusion, in inches.
CLASS_SIZE = 0.29
# Longest name of a class; largest number of curves whose legend is below the panel.
LONGEST_NAME, CURVES_BELOW = 16, 3
# Letters of the names of all classes that fit side by side.
UPRIGHT = 30
# Height of the panel of a calibration, in heights of the highest bar of counts.
COUNTS_HEIGHT = 3.5
# Length of a label from which on the legend of accuracy curves has two columns.
LONG_LABEL = 24


def evaluation(
    measures: Measures, positive: Any = None, name_of: Callable[[Any], str] = str
) -> Figure:
    """Return a figure of the measures of `seqmed evaluate`.

    Panels: calibration, confusion, precision and recall. The last one is of the ``positive`` class
    only, or of all classes with None. ``name_of`` returns the name of a class.
    """
    names = list(map(name_of, measures.classes))
    curves = {
        label: curve
        for label, curve in measures.curves().items()
        if positive is None or label == positive
    }
    (width, height), large = PANEL, len(names) > WIDE_CONFUSION
    side = max(1.7 * height, CLASS_SIZE * min(len(names), NAMED_CLASSES) + 1.6)  # if it is large
    widths = [width, side if large else width]
    if curves:
        widths.append(width + 1.6 * (len(curves) > CURVES_BELOW))
    figure = new_figure(sum(widths), side if large else height)
    axes = figure.subplots(1, len(widths), width_ratios=widths).tolist()
    counts, probabilities, accuracies = measures.calibration
    reliability(axes[0], probabilities, accuracies, counts, bins=BINS)
    if large:
        axes[0].set_box_aspect(height / width)
    confusion(axes[1], measures.matrix, names)
    if curves:
        averages = {name_of(label): measures.ranking(label) for label in curves}
        precision_recall(
            axes[2],
            {name_of(label): curve for label, curve in curves.items()},
            {name: each.average_precision for name, each in averages.items() if each is not None},
        )
    return figure


def reliability(
    axes: Axes, probabilities: Array, accuracies: Array, counts: Array, *, bins: int = BINS
) -> Axes:
    """Draw the accuracy of predictions against their probability, and the rows of every bin.

    The arrays (m,) have the means and the number of predictions of every bin that is not empty.
    ``bins`` is the number of all bins, which divide the probabilities from 0 to 1 equally. Error
    bars are 95 % intervals of the accuracy (Wilson). Bars at the bottom, with the axis on the
    right, are the numbers of rows.
    """
    probabilities, accuracies = np.asarray(probabilities), np.asarray(accuracies)
    counts = np.asarray(counts)
    rows = axes.twinx()
    places = np.minimum((probabilities * bins).astype(int), bins - 1)
    rows.bar((places + 0.5) / bins, counts, 0.9 / bins, color="0.85", linewidth=0)
    top = float(counts.max())
    rows.set(ylim=(0, COUNTS_HEIGHT * top))
    rows.set_yticks([0, top], ["0", f"{top:,.0f}\nrows"])
    rows.tick_params(labelsize="small")
    rows.set_zorder(0)
    axes.set_zorder(1)
    axes.patch.set_visible(False)
    ends = np.array(
        [
            wilson_interval(round(accuracy * count), round(count))
            for accuracy, count in zip(accuracies, counts, strict=True)
        ]
    )
    errors = np.maximum(np.abs(ends - accuracies[:, None]).T, 0.0)
    axes.plot([0, 1], [0, 1], color="0.5", linewidth=1, linestyle="--", label="calibrated")
    axes.errorbar(
        probabilities, accuracies, errors, color=PALETTE[0], linewidth=1.4, elinewidth=1,
        capsize=2, marker="o", markersize=4, label="accuracy, 95 % interval",
    )  # fmt: skip
    axes.set(
        xlabel="probability of the predicted class", ylabel="accuracy",
        title="calibration", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02),
    )  # fmt: skip
    axes.grid(alpha=0.3, linewidth=0.6)
    legend_below(axes)
    return axes


def confusion(axes: Axes, matrix: Any, names: Sequence[str]) -> Axes:
    """Draw a confusion matrix: counts, shaded by their fraction of the true class.

    The matrix (K, K) has a row for every true class and a column for every predicted one. The names
    are those of the classes (K,). Of more than `NAMED_CLASSES`, only the most confused ones are
    shown, and all others together.
    """
    matrix, title = np.asarray(matrix), "confusion"
    if len(names) > NAMED_CLASSES:
        title = f"confusion of the {CONFUSED_CLASSES} most confused of {len(names):,} classes"
        matrix, names = most_confused(matrix, names)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="true", title=title)
    from matplotlib.ticker import EngFormatter

    short = EngFormatter(places=0, sep="")
    size = 9.0 if len(names) <= 10 else 7.5 if len(names) <= 20 else 6.5
    texts = [shortened(name, LONGEST_NAME * (1 + (len(names) > WIDE_CONFUSION))) for name in names]
    upright = max(map(len, texts), default=0) * len(names) <= UPRIGHT
    turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(names)), texts, fontsize=size, **({} if upright else turned))
    axes.set_yticks(range(len(names)), texts, fontsize=size)
    few = len(names) <= 5
    for true, predicted in np.argwhere(matrix):
        count = matrix[true, predicted]
        axes.text(
            predicted, true, f"{count:,}" if few else short(count), ha="center",
            va="center", fontsize=size - 1.0,
            color="white" if shares[true, predicted] > 0.5 else "black",
        )  # fmt: skip
    return axes


def most_confused(matrix: Array, names: Sequence[str]) -> tuple[Array, list[str]]:
    """Return the confusion of the most confused classes, with all others as the last class.

    They are those of the most frequent errors, then the largest ones.
    """
    errors = matrix - np.diag(np.diag(matrix))
    pairs = np.column_stack(
        np.unravel_index(np.argsort(-errors, axis=None, kind="stable"), errors.shape)
    )
    wrong = pairs[: np.count_nonzero(errors)].ravel().tolist()
    largest = np.argsort(-matrix.sum(axis=1), kind="stable").tolist()
    shown = sorted(list(dict.fromkeys([*wrong, *largest]))[:CONFUSED_CLASSES])
    groups = np.full(len(names), len(shown))
    groups[shown] = np.arange(len(shown))
    found = np.zeros((len(shown) + 1, len(shown) + 1))
    np.add.at(found, (groups[:, None], groups[None, :]), matrix)
    return found, [*(names[place] for place in shown), f"{len(names) - len(shown):,} others"]


def shortened(name: str, longest: int = LONGEST_NAME) -> str:
    """Return the name of a class, shortened if it is long."""
    half = longest // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[1 - half :]}"


def precision_recall(
    axes: Axes,
    curves: Mapping[str, tuple[Array, Array]],
    averages: Mapping[str, float] | None = None,
) -> Axes:
    """Draw precision against recall, a curve for every class.

    Each curve is recall and precision, (m,) each, with recall increasing from 0. The legend has the
    average precision of the classes.
    """
    averages = averages or {}
    for place, (name, (recall, precision)) in enumerate(curves.items()):
        label = shortened(name) + (f" ({averages[name]:.2f})" if name in averages else "")
        axes.plot(
            recall, precision, **curve_style(place), label=label, linewidth=1.5,
            markevery=marked(recall, place / max(len(curves), 1)), drawstyle="steps-pre",
            clip_on=False,
        )  # fmt: skip
    axes.set(
        xlabel="recall", ylabel="precision", title="precision and recall", xlim=(0, 1.0),
        ylim=(0, 1.02),
    )  # fmt: skip
    axes.grid(alpha=0.3, linewidth=0.6)
    if len(curves) <= CURVES_BELOW:
        legend_below(axes)
    else:
        legend_right(axes)
    legend = axes.get_legend()
    assert legend is not None  # drawn above
    legend.set_title("class (average precision)" if averages else "class")
    legend.get_title().set_fontsize("small")
    return axes


def marked(values: Array, offset: float) -> list[int]:
    """Return the places of about five evenly spaced values from 0 to 1, for markers."""
    wanted = (np.arange(5) + 0.1 + 0.8 * offset) / 5
    places = np.unique(np.searchsorted(values, wanted).clip(max=values.size - 1))
    return [int(place) for place in places]


def accuracy_curves(axes: Axes, curves: dict[str, Array], *, title: str = "") -> Axes:
    """Draw the mean of several runs per label, with a band of one standard error.

    The accuracies of a label are (runs, batches), NaN where a batch was not evaluated.
    """
    for place, (label, runs) in enumerate(curves.items()):
        seen = np.flatnonzero(~np.isnan(runs).all(axis=0))
        values = runs[:, seen]
        mean = values.mean(axis=0)
        style = curve_style(place)
        axes.plot(
            seen + 1, mean, **style, label=label, linewidth=1.6, markevery=max(1, len(seen) // 8)
        )
        if runs.shape[0] > 1:
            error = values.std(axis=0, ddof=1) / np.sqrt(runs.shape[0])
            axes.fill_between(
                seen + 1, mean - error, mean + error, color=style["color"], alpha=0.2, linewidth=0
            )
    axes.set(xlabel="batch", ylabel="test accuracy", title=title)
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False,
        ncols=2 if max(map(len, curves)) > LONG_LABEL else 3,
        fontsize="small", columnspacing=1.2,
    )  # fmt: skip
    return axes
