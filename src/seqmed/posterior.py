"""The posterior after t batches: a Gaussian over functions, with its mean and its covariance.

Unlabeled rows change the covariance (`seqmed.theory.smoothed_kernel`), labels change the mean
(`seqmed.theory.posterior_mean`). In the current covariance k_t the mean without its bias is

    m(x) = sum_window k_t(x, x_s) c_s + sum_frozen k_t(x, x_s) c_s + sum_landmarks k_t(x, z) a_z.

The multipliers c of the window are optimised again by the next update. The multipliers of frozen
support vectors are not. Support vectors beyond the budget are projected on the landmarks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array, Points, bytes_of
from seqmed.covariance.protocol import CovarianceFunction, Recursion, WindowCovariance
from seqmed.graph.laplacian import GraphParameters
from seqmed.kernels import Expansion, blocks, evaluate
from seqmed.terms import ScoredTerms, Terms
from seqmed.window import Window

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
