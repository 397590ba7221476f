"""The window: labeled points whose multipliers are still optimised."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Indices, Mask, Points, stack
from seqmed.late_rows import equal_rows
from seqmed.settings import Settings
from seqmed.terms import ScoredTerms, Terms


@dataclass(frozen=True)
class Window(ScoredTerms):
    """Labeled points whose multipliers the next update optimises again, oldest first.

    Parameters
    ----------
    signs : (n, machines) targets, each -1.0 or +1.0.
    bounds, shapes : (n,) multiplier bounds and slack shapes.
    weights : (n,) sample weights.
    discounted : (n,) sample weights, discounted by forgetting.
    batches : (n,) the number of the batch of each point.
    """

    signs: Array
    bounds: Array
    shapes: Array
    weights: Array
    discounted: Array
    batches: NDArray[np.intp]


def leaving(window: Window, entering: Window, settings: Settings) -> Mask:
    """Return a mask (n,) of the points that leave the window when others enter it.

    The window contains the last `Settings.lag` batches with labels. It has at most
    `Settings.window` and `Settings.capacity` points, unless the newest batch alone has more. If
    there are more than `window` points, the oldest ones leave. If there are more than `capacity`
    points, those with the smallest multipliers leave, older points first.
    """
    lag, size, capacity = settings.lag, settings.window, settings.capacity
    leaves = np.zeros(window.size, dtype=bool)
    if lag is not None:
        recent = np.union1d(window.batches, entering.batches[-1:])[-lag:]
        leaves = window.batches < recent[0]
    if size is not None:
        leaves[: max(window.size + entering.size - size, 0)] = True
    if capacity is not None:
        staying = np.flatnonzero(~leaves)
        excess = min(staying.size + entering.size - capacity, staying.size)
        if excess > 0:
            weights = np.abs(window.coefficients[staying]).max(axis=1)
            leaves[staying[np.argsort(weights, kind="stable")[:excess]]] = True
    return leaves


def joined(first: Window, second: Window) -> Window:
    """Return the points of both windows, in that order."""
    if not first.size or not second.size:
        return first if first.size else second
    arrays = {}
    for each in fields(Window):
        one, other = getattr(first, each.name), getattr(second, each.name)
        arrays[each.name] = stack(one, other) if one.ndim == 2 else np.append(one, other)
    return Window(**arrays)


def as_terms(window: Window) -> Terms:
    """Return the points and coefficients of the window in the form of frozen points."""
    return Terms(window.points, window.coefficients, window.averages)


def find(
    window: Window, classes: Indices, points: Points, wanted: Indices | None
) -> tuple[Mask, int | None]:
    """Return a mask of the points of a window that equal the given rows.

    If several points equal a row, the newest one is found.

    Parameters
    ----------
    window : window with n points.
    classes : (n,) their classes.
    points : (m, p) rows; a row that occurs twice is found twice.
    wanted : (m,) the classes the points must have, None for any.

    Returns
    -------
    found : (n,) mask.
    missing : the first row that was not found, None if all were.
    """
    found = np.zeros(window.size, dtype=bool)
    for row, equal in enumerate(equal_rows(window.points, points)):
        fitting = equal[~found[equal]]
        if wanted is not None:
            fitting = fitting[classes[fitting] == wanted[row]]
        if not fitting.size:
            return found, row
        found[fitting[-1]] = True
    return found, None
