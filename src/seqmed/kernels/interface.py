"""The interface of a kernel, expansions, and blocks of bounded size.

A kernel is a frozen object. Parameters that depend on data (``gamma="scale"``, idf weights) are
learned once, by `Kernel.freeze` on the first batch. They never change, because a change would
invalidate every multiplier learned before.

Points are rows, dense (n, p) arrays or CSR (n, p) arrays; both arguments of a call have the same
format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from seqmed.numeric.arrays import Array, Points, stack


class Expansion(NamedTuple):
    """A function ``x -> k(x, points) @ coefficients``, one column per machine."""

    points: Points
    coefficients: Array


@runtime_checkable
class Kernel(Protocol):
    """The members of a kernel."""

    @property
    def on_vectors(self) -> bool:
        """Whether any real vector is a valid point (needed by the spectral recursion)."""

    @property
    def compact(self) -> bool:
        """Whether `join` returns an expansion of fixed size, instead of listing all points."""

    def accepts(self, points: Points) -> bool:
        """Whether points have the type and the range of values that the kernel needs."""

    def freeze(self, points: Points, weights: Array) -> Kernel:
        """Return the kernel with its data-dependent parameters learned from a weighted batch."""

    def __call__(self, left: Points, right: Points) -> Array:
        """Return the (n, m) matrix of kernel values; exactly symmetric if ``left is right``."""

    def diagonal(self, points: Points) -> Array:
        """Return ``k(x, x)`` for every row, (n,)."""

    def sums(self, points: Points, expansion: Expansion) -> Array:
        """Return the values of an expansion at every row, (n, machines), in bounded memory."""

    def coordinates(self, points: Points) -> Points | None:
        """Return the vectors whose Euclidean distances the graph uses.

        None means distances in the feature space of the kernel.
        """

    def join(self, first: Expansion, second: Expansion) -> Expansion:
        """Return the sum of two expansions."""


class Pointwise(ABC):
    """Defaults shared by kernels whose expansions are lists of points."""

    on_vectors = True
    compact = False

    @abstractmethod
    def __call__(self, left: Points, right: Points) -> Array:
        """Return the (n, m) matrix of kernel values."""

    def accepts(self, points: Points) -> bool:
        return bool(points.dtype.kind == "f")

    def freeze(self, points: Points, weights: Array) -> Self:
        return self

    def sums(self, points: Points, expansion: Expansion) -> Array:
        sums = np.empty((points.shape[0], expansion.coefficients.shape[1]))
        for rows in blocks(points.shape[0], expansion.points.shape[0]):
            sums[rows] = self(points[rows], expansion.points) @ expansion.coefficients
        return sums

    def coordinates(self, points: Points) -> Points | None:
        return points

    def join(self, first: Expansion, second: Expansion) -> Expansion:
        if not first.points.shape[0] or not second.points.shape[0]:
            return second if not first.points.shape[0] else first
        return Expansion(
            stack(first.points, second.points),
            np.vstack([first.coefficients, second.coefficients]),
        )


def evaluate(kernel: Kernel, parts: tuple[Expansion, ...], points: Points) -> Array:
    """Return the sum of expansions at every row, (n, machines), in bounded memory."""
    scores = np.zeros((points.shape[0], parts[0].coefficients.shape[1]))
    for part in parts:
        if part.points.shape[0]:
            scores += kernel.sums(points, part)
    return scores


# Number of kernel values held at once while scores are computed: 16 MB, which are reused.
BLOCK_VALUES = 2**21


def blocks(n_rows: int, width: int) -> Iterator[slice]:
    """Yield slices of rows whose products with ``width`` columns stay within `BLOCK_VALUES`."""
    size = max(1, BLOCK_VALUES // max(width, 1))
    for start in range(0, n_rows, size):
        yield slice(start, start + size)


def check_overflow(values: NDArray[np.floating]) -> None:
    """Refuse rows on which the kernel overflows."""
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values.reshape(values.shape[0], -1)).all(axis=1))[0])
        raise ValueError(
            f"the kernel overflows on row {row} of X, expected finite values: scale the features "
            "as in the batches the model has learned."
        )
