"""The symmetric copy of a matrix, in one compiled pass over its tiles."""

from __future__ import annotations

import numpy as np

from seqmed.numeric.arrays import Array
from seqmed.numeric.compiled import compiled

# Side of a square tile (32 kB). Without tiles, a pass along the columns would miss the cache at
# each step.
TILE = 64


@compiled(nogil=True)
def largest_difference(matrix: Array, tile: int) -> float:
    """Return the largest difference between a matrix (n, n) and its transpose."""
    n, difference = matrix.shape[0], 0.0
    for top in range(0, n, tile):
        for left in range(top, n, tile):
            for row in range(top, min(top + tile, n)):
                for column in range(max(left, row + 1), min(left + tile, n)):
                    difference = max(difference, abs(matrix[row, column] - matrix[column, row]))
    return difference


@compiled(nogil=True)
def copy_upper_half(matrix: Array, tile: int) -> None:
    """Copy the upper triangle of a matrix (n, n) to the lower triangle, in place."""
    n = matrix.shape[0]
    for top in range(0, n, tile):
        for left in range(top, n, tile):
            for row in range(top, min(top + tile, n)):
                for column in range(max(left, row + 1), min(left + tile, n)):
                    matrix[column, row] = matrix[row, column]


def made_symmetric(matrix: Array) -> tuple[Array, float]:
    """Return a symmetric copy made from the upper triangle, and the largest asymmetry."""
    symmetric = np.array(matrix, dtype=np.float64, order="C")
    difference = float(largest_difference(symmetric, TILE))
    if difference > 0:
        copy_upper_half(symmetric, TILE)
    return symmetric, difference
