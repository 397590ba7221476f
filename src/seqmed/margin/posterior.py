"""The posterior after t batches: a Gaussian over functions, with its mean and its covariance.

Unlabeled rows change the covariance (`seqmed.margin.theory.smoothed_kernel`), labels change the
mean (`seqmed.margin.theory.posterior_mean`). In the current covariance k_t the mean without its
bias is

    m(x) = sum_window k_t(x, x_s) c_s + sum_frozen k_t(x, x_s) c_s + sum_landmarks k_t(x, z) a_z.

The multipliers c of the window are optimised again by the next update. The multipliers of frozen
support vectors are not. Support vectors beyond the budget are projected on the landmarks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from seqmed.kernels import Expansion, blocks, evaluate
from seqmed.late_rows import equal_rows
from seqmed.margin.batch import Settings
from seqmed.margin.covariance.protocol import CovarianceFunction, Recursion, WindowCovariance
from seqmed.margin.laplacian import GraphParameters
from seqmed.numeric.arrays import Array, Indices, Mask, Points, bytes_of, stack, take_rows


@dataclass(frozen=True)
class Terms:
    """Points of an expansion of the mean.

    Parameters
    ----------
    points : (n, p).
    coefficients : (n, machines) in the current covariance.
    averages : (n, machines) of the averaged mean, in the base kernel; zeros without averaging.
    """

    points: Points
    coefficients: Array
    averages: Array

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    def take(self, rows: NDArray[Any]) -> Self:
        """Return the rows selected by a mask or by indices."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        return type(self)(*(take_rows(getattr(self, f.name), rows) for f in fields(self)))

    def mapped(self, transfer: Array) -> Self:
        """Return the terms of new machines, each a combination (h, H) of the old machines."""
        return replace(
            self,
            coefficients=self.coefficients @ transfer,
            averages=self.averages @ transfer,
        )

    @property
    def nonzero(self) -> NDArray[np.bool_]:
        """Mask (n,) of the points with any coefficient."""
        return np.asarray(self.coefficients.any(axis=1) | self.averages.any(axis=1))

    @property
    def expansion(self) -> Expansion:
        """The points with a nonzero coefficient in the current covariance."""
        rows = np.any(self.coefficients != 0, axis=1)
        if rows.all():
            return Expansion(self.points, self.coefficients)
        return Expansion(take_rows(self.points, rows), self.coefficients[rows])


@dataclass(frozen=True)
class ScoredTerms(Terms):
    """Terms with the scores of the frozen support vectors at their points.

    Parameters
    ----------
    frozen_scores : (n, machines) ``sum_frozen k(x, x_s) c_s`` in the base kernel. They are cached,
        because they change only when support vectors are frozen or dropped.
    """

    frozen_scores: Array

    def mapped(self, transfer: Array) -> Self:
        """Return the terms of new machines, each a combination (h, H) of the old machines."""
        return replace(super().mapped(transfer), frozen_scores=self.frozen_scores @ transfer)


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


def joined_windows(first: Window, second: Window) -> Window:
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


def find_points(
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


# The bias of every machine if there is one machine per class.
KNOWN_BIAS = -1.0


@dataclass(frozen=True)
class Posterior:
    """The posterior after a number of batches; every update makes a new one.

    Parameters
    ----------
    recursion : the covariance and its update.
    graph_parameters : parameters of the graph of a batch, with the heat width once measured.
    frozen : support vectors whose multipliers are final, kept exactly.
    window : labeled points whose multipliers the next update optimises again.
    landmarks : coefficients of support vectors projected on the recursion's landmarks, and of the
        averaged mean there.
    mean_parts : the mean used for prediction as expansions in the base kernel, ready to evaluate.
    intercepts : (machines,) the biases for predictions: those of the averaged mean if it is used.
    biases : (machines,) the newest biases.
    frozen_sums : (machines,) sum of the frozen signed multipliers. With a diffuse bias the
        multipliers of the window compensate for them.
    n_solved : (machines,) number of updates that have solved a dual of this machine.
    projection_errors : (2, machines) bounds on the change of a score by all projections so far, of
        the newest and of the averaged mean, at a point with k(x, x) = 1. The multipliers are taken
        as given.
    known_bias : whether the bias is known to be `KNOWN_BIAS`; if not, its prior is diffuse.
    n_batches : batches learned.
    """

    recursion: Recursion
    graph_parameters: GraphParameters
    frozen: Terms
    window: Window
    landmarks: ScoredTerms
    mean_parts: tuple[Expansion, ...]
    intercepts: Array
    biases: Array
    frozen_sums: Array
    n_solved: NDArray[np.intp]
    projection_errors: Array
    known_bias: bool
    n_batches: int

    @property
    def covariance(self) -> CovarianceFunction:
        """The current covariance function."""
        return self.recursion.covariance

    @property
    def size(self) -> int:
        """Number of points in the largest expansion of the mean."""
        return int(max(part.points.shape[0] for part in self.mean_parts))

    @property
    def projection_error(self) -> Array:
        """Bound (machines,) on the change of a score by projections, at points with k(x, x) = 1.

        The multipliers are taken as given: effects on later updates are not included.
        """
        return np.asarray(self.projection_errors.max(axis=0))

    @property
    def support(self) -> Expansion:
        """All points with a coefficient in the current covariance, the newest last."""
        if self.covariance.on_landmarks:
            terms = replace(self.landmarks, coefficients=self.landmark_coefficients())
            return terms.expansion
        parts = (self.landmarks.expansion, self.frozen.expansion, self.window.expansion)
        return reduce(self.covariance.kernel.join, parts)

    @property
    def nbytes(self) -> int:
        """Total size in bytes of the arrays of the posterior, each counted once."""
        return bytes_of(self)

    def mean(self, points: Points, geometry: WindowCovariance | None = None) -> Array:
        """Return the mean score of every row under every machine, bias included, (n, machines).

        ``geometry`` is the `landmark_geometry` of the points, if it is known.
        """
        if geometry is not None:
            return geometry.scores(self.mean_parts[0].coefficients) + self.intercepts
        return evaluate(self.covariance.kernel, self.mean_parts, points) + self.intercepts

    def summed_sizes(self, points: Points) -> Array:
        """Return bounds (n,) on the sum of ``|term|`` over the terms of a score.

        The terms are ``c_s k(x, x_s)`` and the bias, and ``|k(x, x_s)|`` is at most
        ``sqrt(k(x, x) k(x_s, x_s))``.
        """
        kernel, largest = self.covariance.kernel, 0.0
        # weights that are summed already may have cancelled
        parts = (*self.mean_parts, self.window.expansion) if kernel.compact else self.mean_parts
        for part in parts:
            if part.points.shape[0]:
                lengths = np.sqrt(kernel.diagonal(part.points))
                largest += float((lengths @ np.abs(part.coefficients)).max(initial=0.0))
        bias = float(np.abs(self.intercepts).max(initial=0.0))
        return np.asarray(np.sqrt(kernel.diagonal(points)) * largest + bias)

    def landmark_geometry(self, points: Points) -> WindowCovariance | None:
        """Return the covariance of points if the mean is an expansion on landmarks, else None."""
        if not self.covariance.on_landmarks or self.covariance.kernel.compact:
            return None
        return self.covariance.on_window(points, self.landmarks.points)

    def standard_deviation(self, points: Points) -> Array:
        """Return the standard deviation of the score at every row, (n,), without the bias."""
        covariance = self.covariance
        variances = np.empty(points.shape[0])
        for rows in blocks(points.shape[0], covariance.width):
            variances[rows] = covariance.diagonal(points[rows])
        return np.sqrt(variances)

    def frozen_coefficients(self) -> Array:
        """Return the coefficients (m, machines) of the mean without the window, on the landmarks.

        In the base kernel, a coefficient has two parts: the coefficient of projected support
        vectors, and the coefficient that smoothness adds for all frozen support vectors.
        """
        landmarks = self.landmarks
        if self.covariance.on_landmarks or not landmarks.size:
            return landmarks.coefficients
        scores = landmarks.frozen_scores
        if landmarks.coefficients.any():
            own = (landmarks.expansion,)
            scores = scores + evaluate(self.covariance.kernel, own, landmarks.points)
        added = self.covariance.smoothed(scores)
        return landmarks.coefficients if added is None else landmarks.coefficients + added

    def landmark_coefficients(self) -> Array:
        """Return the landmark coefficients of the newest mean, window included, (m, machines)."""
        frozen, window = self.frozen_coefficients(), self.window.expansion
        if not frozen.size or not window.points.shape[0]:
            return frozen
        geometry = self.covariance.on_window(window.points, self.landmarks.points)
        return frozen + geometry.landmark_part(window.coefficients)
