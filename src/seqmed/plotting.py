"""Plots: functions that draw on the Axes they are given, and return them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqmed.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette: told apart with any colour vision, and in print by markers and dashes.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
# Cycles of different lengths: two curves of one colour differ in marker and dash.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1)))
LONG_LABEL = 24


def accuracy_curves(axes: Axes, curves: dict[str, Array], *, title: str = "") -> Axes:
    """Draw the mean of several runs per label, with a band of one standard error.

    Parameters
    ----------
    axes : where to draw.
    curves : label -> (runs, batches) accuracies; NaN where a batch was not evaluated.
    title : of the axes.
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
