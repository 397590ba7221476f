"""Streams of the experiments, and the two simulations of the paper.

The paper describes its simulations in a sentence or two. The docstrings state the other details.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array

UNLABELED = -1


@dataclass(frozen=True)
class TrialBatch:
    """Rows (n, p), all true labels (n,), and a mask (n,) of the labels that the learner gets."""

    X: Array
    y: NDArray[np.int64]
    shown: NDArray[np.bool_]

    @property
    def labels(self) -> NDArray[np.int64]:
        """Labels for a learner, `UNLABELED` where they are hidden."""
        return np.where(self.shown, self.y, UNLABELED)


@dataclass(frozen=True)
class TrialStream:
    """A sequence of batches, and test points."""

    batches: tuple[TrialBatch, ...]
    X_test: Array
    y_test: NDArray[np.int64]

    def alone(self, number: int) -> TrialBatch:
        """Return one batch."""
        return self.batches[number]

    def so_far(self, last: int) -> TrialBatch:
        """Return batches 0 to ``last`` as one."""
        parts = self.batches[: last + 1]
        return TrialBatch(
            np.concatenate([part.X for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.shown for part in parts]),
        )


CATEGORIES = 5
SPARSE_VARIABLES, DENSE_VARIABLES, INFORMATIVE_VARIABLES = 100, 50, 50
# Difference between the classes in the probability of 0 of an informative variable.
DIFFERENCE = 0.12


def categorical_stream(
    seed: tuple[int, ...], n_batches: int = 30, n_test: int = 1000
) -> TrialStream:
    """Simulation 1: 200 categorical variables, fully labeled, batches of 97 to 103 rows.

    Each variable takes values 0 to 4, read as counts. The probability of 0 is uniform in [.9, .99]
    for 100 variables and in [.5, .8] for the other 100. For the last 50 it differs between the
    classes: by +.06 in one class and -.06 in the other, chosen at random for each variable. The
    remaining probability is divided among the other values by a Dirichlet(1) draw, the same in both
    classes. Classes are equally likely. Each seed has its own distributions.
    """
    rng = np.random.default_rng(seed)
    zero = np.concatenate([
        rng.uniform(0.9, 0.99, SPARSE_VARIABLES),
        rng.uniform(0.5, 0.8, DENSE_VARIABLES + INFORMATIVE_VARIABLES),
    ])  # fmt: skip
    rest = rng.dirichlet(np.ones(CATEGORIES - 1), zero.size)
    shift = np.zeros(zero.size)
    shift[-INFORMATIVE_VARIABLES:] = rng.choice([-0.5, 0.5], INFORMATIVE_VARIABLES) * DIFFERENCE
    tables = []
    for sign in (-1.0, 1.0):
        of_zero = (zero + sign * shift)[:, None]
        tables.append(np.cumsum(np.hstack([of_zero, (1.0 - of_zero) * rest]), axis=1))

    def draw(n: int) -> tuple[Array, NDArray[np.int64]]:
        y = rng.integers(0, 2, n)
        uniform = rng.random((n, zero.size))
        cumulative = np.stack(tables)[y]
        return (uniform[:, :, None] > cumulative[:, :, :-1]).sum(axis=2).astype(float), y

    batches = []
    for _ in range(n_batches):
        X, y = draw(int(rng.integers(97, 104)))
        batches.append(TrialBatch(X, y, np.ones(y.size, dtype=bool)))
    return TrialStream(tuple(batches), *draw(n_test))


def sphere_stream(
    seed: tuple[int, ...],
    n_batches: int = 30,
    n_test: int = 1000,
    *,
    size: int = 100,
    labels: int = 10,
) -> TrialStream:
    """Simulation 2: a ball inside a shell, one label in ten.

    Directions are uniform on the sphere in three dimensions. Radii are uniform in [0, .55] in one
    class and in [.45, 1] in the other. Classes are equally likely. In every batch ``labels`` random
    rows are labeled; the first two of them are of different classes.
    """
    rng = np.random.default_rng(seed)

    def draw(n: int) -> tuple[Array, NDArray[np.int64]]:
        y = rng.integers(0, 2, n)
        direction = rng.normal(size=(n, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        radius = np.where(y == 0, rng.uniform(0.0, 0.55, n), rng.uniform(0.45, 1.0, n))
        return direction * radius[:, None], y

    batches = []
    for _ in range(n_batches):
        X, y = draw(size)
        order = rng.permutation(size)
        first_of_each = [order[y[order] == label][0] for label in (0, 1) if (y == label).any()]
        chosen = list(dict.fromkeys([*first_of_each, *order]))[:labels]
        shown = np.zeros(size, dtype=bool)
        shown[chosen] = True
        batches.append(TrialBatch(X, y, shown))
    return TrialStream(tuple(batches), *draw(n_test))
