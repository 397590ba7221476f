"""Labeled points whose multipliers are still optimised: they enter, leave, are found again."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.arrays import Points, no_indices, row_keys, stack
from seqmed.posterior import Terms, Window
from seqmed.upkeep import as_terms

# Difference between two values of a row, relative to its largest, that rounding may have made.
SAME_ROW = 1e-10


def advance(
    window: Window, entering: Window, lag: int | None, room: int | None
) -> tuple[Window, Terms]:
    """Return the window with the points of one more batch, and the points that leave it for that.

    It holds the last ``lag`` batches that had labels, and at most ``room`` points unless the batch
    alone has more; where points must go, those of the smallest multipliers go first, older before
    newer. None for either is no limit.
    """
    if not entering.size:
        return window, as_terms(window.take(no_indices()))
    leaves = np.zeros(window.size, dtype=bool)
    if lag is not None:
        seen = np.union1d(window.batches, entering.batches)
        leaves = ~np.isin(window.batches, seen[-lag:])
    if room is not None:
        staying = np.flatnonzero(~leaves)
        excess = min(staying.size + entering.size - room, staying.size)
        if excess > 0:
            weights = np.abs(window.coefficients[staying]).max(axis=1)
            leaves[staying[np.argsort(weights, kind="stable")[:excess]]] = True
    return joined(window.take(~leaves), entering), as_terms(window.take(leaves))


def joined(first: Window, second: Window) -> Window:
    """Return the points of both, in that order."""
    return Window(
        points=stack(first.points, second.points),
        coefficients=np.vstack([first.coefficients, second.coefficients]),
        averages=np.vstack([first.averages, second.averages]),
        signs=np.vstack([first.signs, second.signs]),
        bounds=np.append(first.bounds, second.bounds),
        shapes=np.append(first.shapes, second.shapes),
        weights=np.append(first.weights, second.weights),
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
    for row in range(points.shape[0]):
        fits = equal_rows(window.points, points[row : row + 1]) & ~found
        if wanted is not None:
            fits &= classes == wanted[row]
        if not fits.any():
            return found, row
        found[np.flatnonzero(fits)[-1]] = True
    return found, None


def equal_rows(points: Points, row: Points) -> NDArray[np.bool_]:
    """Return a mask (n,) of the points that equal a row, (1, p); dense ones but for rounding.

    A transformer may give a row alone other last digits than the same row in company.
    """
    if sp.issparse(points):
        key = row_keys(row)[0]
        return np.fromiter((other == key for other in row_keys(points)), bool, points.shape[0])
    sizes = np.abs(row).max(initial=0.0)
    return np.abs(points - row).max(axis=1, initial=0.0) <= SAME_ROW * sizes
