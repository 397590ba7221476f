"""The window: labeled points whose multipliers are still optimised."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.arrays import Array, Indices, Mask, Points, row_keys, stack
from seqmed.settings import Settings
from seqmed.terms import ScoredTerms, Terms

# Differences that are attributed to rounding: relative to the value itself, and relative to the
# largest value of the row.
SAME_VALUE, SAME_SUM = 1e-10, 1e-14


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
    keys = row_keys(window.points)
    for row, key in enumerate(row_keys(points)):
        equal = np.fromiter((other == key for other in keys), bool, window.size)
        if not equal.any() and not sp.issparse(points):
            equal = close_rows(window.points, points[row])
        fits = equal & ~found
        if wanted is not None:
            fits &= classes == wanted[row]
        if not fits.any():
            return found, row
        found[np.flatnonzero(fits)[-1]] = True
    return found, None


def close_rows(points: Array, row: Array) -> Mask:
    """Return a mask (n,) of the points that differ from a row, (p,), by no more than rounding.

    A transformer may round a single row differently from the same row in a batch. Ten digits of
    every value must agree. For small values, the tolerance is relative to the largest value of the
    row.
    """
    sizes = np.abs(row)
    allowed = np.maximum(SAME_VALUE * sizes, SAME_SUM * sizes.max(initial=0.0))
    return np.asarray((np.abs(points - row) <= allowed).all(axis=1))
