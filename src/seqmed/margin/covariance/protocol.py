"""Interfaces of the covariance: a function of two rows, and a recursion that updates it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from seqmed.kernels import Kernel
from seqmed.margin.dual import Block, ComputedRows
from seqmed.margin.laplacian import Smoothness
from seqmed.numeric.arrays import Array, Indices, Points


class WindowCovariance(Protocol):
    """The covariance between n points of the window and m landmarks."""

    @property
    def block(self) -> Block | None:
        """Function that computes covariances of some points, if products with all are cheaper."""

    def gram(self) -> Array | ComputedRows:
        """Return the covariances between the points, (n, n), as the dual solver takes them."""

    def scores(self, coefficients: Array) -> Array:
        """Return ``sum_z k(x, z) a_z`` at the points, (n, machines), from (m, machines)."""

    def landmark_part(self, coefficients: Array) -> Array:
        """Return the landmark part of ``sum_s k_t(., x_s) c_s`` in the base kernel, (m, machines).

        ``coefficients`` are those of the points, (n, machines).
        """


class CovarianceFunction(Protocol):
    """The covariance function k_t of a posterior."""

    @property
    def kernel(self) -> Kernel:
        """The base kernel."""

    @property
    def width(self) -> int:
        """Number of kernel values to compute for one point."""

    @property
    def on_landmarks(self) -> bool:
        """Whether every ``k_t(., x)`` is an expansion on the landmarks alone."""

    def __call__(self, left: Points, right: Points) -> Array:
        """Return the (n, m) covariances of the function's values on two sets of rows."""

    def diagonal(self, points: Points) -> Array:
        """Return the variance at every row, (n,), >= 0."""

    def on_window(self, points: Points, landmarks: Points) -> WindowCovariance:
        """Return the covariance of the window's points."""

    def smoothed(self, scores: Array) -> Array | None:
        """Return the coefficients that the reduction adds, given the scores at the landmarks.

        Scores and coefficients, both (m, machines), are in the base kernel. None if there is no
        reduction.
        """


class Projection(NamedTuple):
    """An expansion projected on the landmarks.

    Attributes
    ----------
    coefficients : (m, machines) on the landmarks.
    squared_error : (machines,) squared norm of the residual in the base kernel's space.
    """

    coefficients: Array
    squared_error: Array


class FoldResult(NamedTuple):
    """A recursion after a batch, and the origin of its landmarks.

    Attributes
    ----------
    recursion : recursion after the batch.
    origin : (m,) the index of each landmark before the batch, -1 for a new landmark; None if no
        landmark has changed.
    replacement_cost : largest change of the variance at a replaced landmark z, as a fraction
        of k(z, z).
    """

    recursion: Recursion
    origin: Indices | None = None
    replacement_cost: float = 0.0


class Recursion(Protocol):
    """A way to update the covariance batch by batch (Theorem 2)."""

    @property
    def covariance(self) -> CovarianceFunction:
        """The covariance after every batch so far."""

    @property
    def landmarks(self) -> Points | None:
        """Points (m, p) on which the mean is expanded, besides those with multipliers; or None."""

    @property
    def capacity(self) -> int | None:
        """The largest number of landmarks; None if it grows with the stream."""

    @property
    def grows(self) -> bool:
        """Whether `fold` chooses landmarks among the points, even without a penalty."""

    def fold(
        self, points: Points, smoothness: Smoothness | None, forgetting: float = 1.0
    ) -> FoldResult:
        """Return the recursion after one more batch.

        ``points`` are its distinct rows, ``smoothness`` is the penalty of their graph (None for
        none). Earlier penalties are first scaled by ``forgetting`` in (0, 1].
        """

    def add_labeled(self, points: Points) -> FoldResult:
        """Return the recursion with landmarks for newly labeled points, if it needs them."""

    def project(self, points: Points, coefficients: Array) -> Projection:
        """Return the projection of an expansion on the landmarks."""

    def residual_variances(self, points: Points) -> Array:
        """Return the squared error, (n,), of `project` for each row's kernel function."""
