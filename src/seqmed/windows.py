"""Labeled points whose multipliers are still optimised: they enter, leave, are found again."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.arrays import Array, Points, no_indices, row_keys, stack
from seqmed.posterior import Terms, Window
from seqmed.upkeep import as_terms

# Difference between two values that rounding may have made: of the value itself, and of sums in
# which the largest value of the row takes part.
SAME_VALUE, SAME_SUM = 1e-10, 1e-14


def advance(
    window: Window, entering: Window, lag: int | None, size: int | None, room: int | None
) -> tuple[Window, Terms]:
    """Return the window with the points of one more batch, and the points that leave it for that.

    It holds the last ``lag`` batches that had labels, and at most ``size`` points and ``room``
    points unless the batch alone has more. Beyond ``size`` the oldest points leave, beyond ``room``
    those of the smallest multipliers, older before newer. None is no limit.
    """
    if not entering.size:
        return window, as_terms(window).take(no_indices())
    leaves = np.zeros(window.size, dtype=bool)
    if lag is not None:
        recent = np.union1d(window.batches, entering.batches[-1:])[-lag:]
        leaves = window.batches < recent[0]
    if size is not None:
        leaves[: max(window.size + entering.size - size, 0)] = True
    if room is not None:
        staying = np.flatnonzero(~leaves)
        excess = min(staying.size + entering.size - room, staying.size)
        if excess > 0:
            weights = np.abs(window.coefficients[staying]).max(axis=1)
            leaves[staying[np.argsort(weights, kind="stable")[:excess]]] = True
    if leaves.all():
        return entering, as_terms(window)
    return joined(window.take(~leaves), entering), as_terms(window).take(leaves)


def joined(first: Window, second: Window) -> Window:
    """Return the points of both, in that order."""
    return Window(
        points=stack(first.points, second.points),
        coefficients=np.vstack([first.coefficients, second.coefficients]),
        averages=np.vstack([first.averages, second.averages]),
        settled=np.vstack([first.settled, second.settled]),
        signs=np.vstack([first.signs, second.signs]),
        bounds=np.append(first.bounds, second.bounds),
        shapes=np.append(first.shapes, second.shapes),
        weights=np.append(first.weights, second.weights),
        discounted=np.append(first.discounted, second.discounted),
        batches=np.append(first.batches, second.batches),
    )


def find(
    window: Window,
    classes: NDArray[np.intp],
    points: Points,
    wanted: NDArray[np.intp] | None,
) -> tuple[NDArray[np.bool_], int | None]:
    """Return a mask of the points of a window that are meant by rows, the newest of equal ones.

    Parameters
    ----------
    window : of n points.
    classes : (n,) their classes.
    points : (m, p) rows; one that comes twice means two points.
    wanted : (m,) the classes the points must have, None for any.

    Returns
    -------
    found : (n,) mask.
    missing : the first row that is not there, None if all are.
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


def close_rows(points: Array, row: Array) -> NDArray[np.bool_]:
    """Return a mask (n,) of the points that differ from a row, (p,), by no more than rounding.

    A transformer may give a row alone other last digits than the same row in company: ten digits of
    every value must agree, or all that the largest value leaves of a smaller one.
    """
    sizes = np.abs(row)
    allowed = np.maximum(SAME_VALUE * sizes, SAME_SUM * sizes.max(initial=0.0))
    return (np.abs(points - row) <= allowed).all(axis=1)
