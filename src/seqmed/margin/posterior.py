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
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from seqmed.kernels import Expansion, Sums, blocks, evaluate
from seqmed.margin.covariance.exact import (
    CovarianceFunction,
    FoldResult,
    Recursion,
    WindowCovariance,
)
from seqmed.margin.covariance.landmarks import LandmarkRecursion
from seqmed.margin.laplacian import GraphParameters
from seqmed.margin.running_mean import RunningMean
from seqmed.numeric.arrays import (
    Array,
    Indices,
    Mask,
    Points,
    bytes_of,
    no_indices,
    no_rows,
    stack,
    take_rows,
)
from seqmed.numeric.expectations import expect, expect_shape


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

    def validate(self) -> None:
        """Raise a ValueError if the arrays are not of the same points and machines."""
        shape = (self.size, self.coefficients.shape[-1])
        for each in fields(self)[1:]:
            size = getattr(self, each.name).shape
            expect(size in (shape, shape[:1]), f"{each.name} of {shape[0]} points, got {size}")

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
    def values(self) -> Array:
        """Coefficients and averages side by side, (n, 2 machines)."""
        return np.hstack([self.coefficients, self.averages])

    @property
    def nonzero(self) -> Mask:
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
    """Terms with the scores (n, machines) of frozen support vectors, which rarely change."""

    frozen_scores: Array

    def mapped(self, transfer: Array) -> Self:
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
    batches: Indices

    def validate(self) -> None:
        """Raise a ValueError if the solver could not run on these points."""
        super().validate()
        expect((np.abs(self.signs) == 1.0).all(), "signs that are -1 or 1")
        expect((self.bounds > 0).all() and (self.weights > 0).all(), "bounds and weights > 0")
        shapes = (self.shapes >= 0) & (self.shapes <= self.bounds)
        expect(shapes.all(), "slack shapes between 0 and the bounds")


def joined_windows(first: Window, second: Window) -> Window:
    """Return the points of both windows, in that order."""
    if not first.size or not second.size:
        return first if first.size else second
    arrays = {}
    for each in fields(Window):
        one, other = getattr(first, each.name), getattr(second, each.name)
        arrays[each.name] = stack(one, other) if one.ndim == 2 else np.append(one, other)
    return Window(**arrays)


class ScoresOfBoth(NamedTuple):
    """Scores (n, machines) of the newest mean and of the running mean.

    ``frozen`` is the part of the newest mean that frozen support vectors have.
    """

    newest: Array
    averaged: Array
    frozen: Array


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
    landmarks : support vectors projected on the recursion's landmarks, and the averaged mean there.
    mean_parts : the mean used for prediction as expansions in the base kernel, ready to evaluate.
    intercepts : (machines,) the biases for predictions: those of the averaged mean if it is used.
    biases : (machines,) the newest biases.
    frozen_sums : (machines,) sum of the frozen signed multipliers, for a diffuse bias.
    n_solved : (machines,) number of updates that have solved a dual of this machine.
    known_bias : whether the bias is known to be `KNOWN_BIAS`; if not, its prior is diffuse.
    n_batches : batches learned.
    running : the running mean with ``averaging="auto"``; None before it begins.
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
    n_solved: Indices
    known_bias: bool
    n_batches: int
    running: RunningMean | None = None

    def validate(self) -> None:
        """Raise a ValueError if the parts are not of the same machines and columns."""
        machines, width = self.biases.size, self.window.points.shape[1]
        expect_shape(self, (machines,), "biases", "intercepts", "frozen_sums", "n_solved")
        terms: tuple[Any, ...] = (self.frozen, self.window, self.landmarks, *self.mean_parts)
        for each in terms:
            shape = (each.points.shape[0], machines)
            expect_shape(each, shape, "coefficients")
            expect(each.points.shape[1] == width, f"points of {width} columns")
        expect(self.mean_parts, "a mean")
        if self.running is not None:
            expect_shape(self.running, (machines,), "biases")
            expect_shape(self.running, (self.landmarks.size, machines), "newest")

    @property
    def covariance(self) -> CovarianceFunction:
        """The current covariance function."""
        return self.recursion.covariance

    @property
    def size(self) -> int:
        """Number of points in the largest expansion of the mean."""
        return int(max(part.points.shape[0] for part in self.mean_parts))

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

    def mean(
        self, points: Points, geometry: WindowCovariance | None = None, sums: Sums | None = None
    ) -> Array:
        """Return the mean score of every row under every machine, bias included, (n, machines).

        ``geometry`` is the covariance of the points, given for a mean on landmarks only. ``sums``
        computes kernel values on a device.
        """
        if geometry is not None:
            return geometry.scores(self.mean_parts[0].coefficients) + self.intercepts
        kernel = self.covariance.kernel
        return evaluate(kernel, self.mean_parts, points, sums) + self.intercepts

    def scores_of_both(self, points: Points, geometry: WindowCovariance | None) -> ScoresOfBoth:
        """Return the scores of the newest mean and of the running mean.

        ``geometry`` is the covariance of the points, given for a mean on landmarks only.
        """
        running, landmarks, kernel = self.running, self.landmarks, self.covariance.kernel
        assert running is not None
        values = np.hstack([running.newest, landmarks.averages])
        of_frozen = np.zeros((points.shape[0], values.shape[1]))
        if geometry is not None:
            scores = geometry.scores(values)
        else:
            parts = [Expansion(landmarks.points, values)]
            if not self.covariance.on_landmarks:
                parts.append(Expansion(self.window.points, self.window.values))
                of_frozen = evaluate(
                    kernel, (Expansion(self.frozen.points, self.frozen.values),), points
                )
            scores = evaluate(kernel, tuple(parts), points) + of_frozen
        newest, averaged = halves(scores)
        return ScoresOfBoth(newest + self.biases, averaged + running.biases, halves(of_frozen)[0])

    def summed_sizes(self, points: Points) -> Array:
        """Return bounds (n,) on the sum of ``|term|`` over the terms of a score.

        A kernel value ``|k(x, x_s)|`` is at most ``sqrt(k(x, x) k(x_s, x_s))``.
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

    def standard_deviation(self, points: Points) -> Array:
        """Return the standard deviation of the score at every row, (n,), without the bias."""
        variances = np.empty(points.shape[0])
        for rows in blocks(points.shape[0], max(self.size, self.landmarks.size)):
            variances[rows] = self.covariance.diagonal(points[rows])
        return np.sqrt(variances)

    def frozen_coefficients(self) -> Array:
        """Return the coefficients (m, machines) of the mean without the window, on the landmarks.

        They are those of projected support vectors, plus what smoothness adds for all frozen ones.
        """
        landmarks = self.landmarks
        if self.covariance.on_landmarks or not landmarks.size:
            return landmarks.coefficients
        scores = landmarks.frozen_scores
        if landmarks.coefficients.any():
            own = (landmarks.expansion,)
            scores = scores + evaluate(self.covariance.kernel, own, landmarks.points)
        return landmarks.coefficients + self.covariance.smoothed(scores)

    def landmark_coefficients(self) -> Array:
        """Return the landmark coefficients of the newest mean, window included, (m, machines)."""
        frozen, window = self.frozen_coefficients(), self.window.expansion
        if not frozen.size or not window.points.shape[0]:
            return frozen
        geometry = self.covariance.on_window(window.points, self.landmarks.points)
        return frozen + geometry.landmark_part(window.coefficients)


def prior_of(
    recursion: Recursion, graph_parameters: GraphParameters, points: Points, known_bias: bool
) -> Posterior:
    """Return the prior of one machine, whose mean is its bias, for rows such as ``points``."""
    empty, nothing, none = no_rows(points), np.zeros((0, 1)), np.zeros(0)
    bias = np.full(1, KNOWN_BIAS if known_bias else 0.0)
    return Posterior(
        recursion=recursion,
        graph_parameters=graph_parameters,
        frozen=Terms(empty, nothing, nothing),
        window=Window(empty, *(nothing,) * 4, *(none,) * 4, no_indices()),
        landmarks=ScoredTerms(empty, nothing, nothing, nothing),
        mean_parts=(Expansion(empty, nothing),),
        intercepts=bias,
        biases=bias,
        frozen_sums=np.zeros(1),
        n_solved=np.zeros(1, dtype=np.intp),
        known_bias=known_bias,
        n_batches=0,
    )


def with_machines(posterior: Posterior, transfer: Array, offsets: Array) -> Posterior:
    """Return the posterior for other classes; machines are new, or signed copies of old machines.

    ``transfer`` (h, H) has at most one nonzero entry, -1 or +1, per column. A column of zeros is a
    new machine, for which every point of the window is a negative example. ``offsets`` (H,) are its
    intercept, and 0 for the copies. A new machine with a known bias counts as solved so far.
    """
    window, running = posterior.window, posterior.running
    if running is not None:
        running = replace(
            running,
            biases=running.biases @ transfer + offsets,
            newest=running.newest @ transfer,
        )
    signs = window.signs @ transfer
    new = ~np.abs(transfer).any(axis=0)
    signs[:, new] = -1.0
    n_solved = posterior.n_solved @ np.abs(transfer).astype(np.intp)
    if posterior.known_bias:
        n_solved[new] = posterior.n_solved.max()
    return replace(
        posterior,
        frozen=posterior.frozen.mapped(transfer),
        window=replace(window.mapped(transfer), signs=signs),
        landmarks=posterior.landmarks.mapped(transfer),
        mean_parts=tuple(
            Expansion(part.points, part.coefficients @ transfer) for part in posterior.mean_parts
        ),
        intercepts=posterior.intercepts @ transfer + offsets,
        biases=posterior.biases @ transfer + offsets,
        frozen_sums=posterior.frozen_sums @ transfer,
        n_solved=n_solved,
        running=running,
    )


SomeTerms = TypeVar("SomeTerms", bound=Terms)
SomeScored = TypeVar("SomeScored", bound=ScoredTerms)

# Coefficients below this fraction of the largest coefficient are dropped.
NEGLIGIBLE = 1e-9


def forget_labels(posterior: Posterior, forgetting: float) -> Posterior:
    """Return the posterior with the effect of labels discounted by ``forgetting`` in (0, 1].

    In the window this scales the weight of a row. Negligible support vectors are dropped.
    """

    def discounted(terms: SomeScored) -> SomeScored:
        return replace(
            terms,
            coefficients=forgetting * terms.coefficients,
            frozen_scores=forgetting * terms.frozen_scores,
        )

    newest_bound = posterior.window.bounds.max(initial=0.0)  # that of new labels is not discounted
    window = discounted(posterior.window)
    window = replace(
        window,
        bounds=forgetting * window.bounds,
        shapes=forgetting * window.shapes,
        discounted=forgetting * window.discounted,
    )
    frozen = replace(posterior.frozen, coefficients=forgetting * posterior.frozen.coefficients)
    negligible = np.ones(frozen.size, dtype=bool)
    for values in (frozen.coefficients, frozen.averages):
        sizes = np.abs(values).max(axis=1, initial=0.0)
        negligible &= sizes <= NEGLIGIBLE * sizes.max(initial=0.0)
    posterior = replace(
        posterior,
        window=window.take(window.bounds > NEGLIGIBLE * newest_bound),
        frozen=frozen.take(~negligible),
        landmarks=discounted(posterior.landmarks),
        frozen_sums=forgetting * posterior.frozen_sums,
    )
    return add_frozen_scores(posterior, frozen.take(negligible), -1.0)


def add_frozen_scores(posterior: Posterior, terms: Terms, sign: float) -> Posterior:
    """Add ``sign`` times the scores of the terms to the cached scores of frozen support vectors."""

    def with_scores(scored: SomeScored) -> SomeScored:
        if not terms.size or not scored.size:
            return scored
        values = evaluate(posterior.covariance.kernel, (terms.expansion,), scored.points)
        return replace(scored, frozen_scores=scored.frozen_scores + sign * values)

    return replace(
        posterior,
        window=with_scores(posterior.window),
        landmarks=with_scores(posterior.landmarks),
    )


def with_recursion(posterior: Posterior, folded: FoldResult) -> Posterior:
    """Return the posterior with a new recursion; expansions are projected on its landmarks."""
    recursion, origin = folded
    if origin is None:
        return replace(posterior, recursion=recursion)
    old, frozen, machines = posterior.landmarks, posterior.frozen, posterior.biases.size
    points = no_rows(frozen.points) if recursion.landmarks is None else recursion.landmarks
    values = old.values
    moved = np.zeros((points.shape[0], 2 * machines))
    scores = np.zeros((points.shape[0], machines))
    stayed, new = origin >= 0, np.flatnonzero(origin < 0)
    moved[stayed], scores[stayed] = values[origin[stayed]], old.frozen_scores[origin[stayed]]
    if new.size and frozen.size:
        kernel, parts = recursion.covariance.kernel, (frozen.expansion,)
        scores[new] = evaluate(kernel, parts, take_rows(points, new))
    left = np.setdiff1d(np.flatnonzero(old.nonzero), origin[stayed])
    if left.size:
        moved += recursion.project(old.points[left], values[left])
    landmarks = ScoredTerms(points, *halves(moved), scores)
    return replace(posterior, recursion=recursion, landmarks=landmarks)


def freeze(posterior: Posterior, leaving: Terms) -> Posterior:
    """Return the posterior with points frozen that have left the window."""
    if not leaving.size:
        return posterior
    sums = posterior.frozen_sums + leaving.coefficients.sum(axis=0)
    posterior = replace(posterior, frozen_sums=sums)
    leaving = leaving.take(leaving.nonzero)
    if not leaving.size:
        return posterior
    if posterior.covariance.on_landmarks:
        landmarks = posterior.landmarks
        geometry = posterior.covariance.on_window(leaving.points, landmarks.points)
        coefficients = landmarks.coefficients + geometry.landmark_part(leaving.coefficients)
        return replace(posterior, landmarks=replace(landmarks, coefficients=coefficients))
    frozen = posterior.frozen
    points, values = posterior.covariance.kernel.join(
        Expansion(frozen.points, frozen.values), Expansion(leaving.points, leaving.values)
    )
    posterior = add_frozen_scores(posterior, leaving, 1.0)
    return replace(posterior, frozen=Terms(points, *halves(values)))


def halves(values: Array) -> tuple[Array, Array]:
    """Return copies of the left and the right half of the columns."""
    machines = values.shape[1] // 2
    return values[:, :machines].copy(), values[:, machines:].copy()


def average(posterior: Posterior, solved: Mask, forgetting: float, newest: Array) -> Posterior:
    """Return the posterior with its newest mean added to the running mean of all means.

    ``solved`` (machines,) tells whose dual was solved, already counted in ``n_solved``; the other
    averages do not change. ``newest`` (m, machines) are the `Posterior.landmark_coefficients`.
    """
    counts = np.maximum(posterior.n_solved, 1)
    steps = np.where(solved, np.maximum(1.0 / counts, 1.0 - forgetting), 0.0)
    steps[posterior.n_solved == 0] = 1.0  # the first mean
    return add_newest(posterior, steps, newest)


def extend_running_mean(posterior: Posterior, newest: Array) -> Posterior:
    """Return the posterior with its newest mean added to the running mean of ``running``.

    ``newest`` (m, machines) are the `Posterior.landmark_coefficients`.
    """
    running = posterior.running
    assert running is not None
    n_means = running.n_means + 1
    steps = np.full(posterior.biases.size, 1.0 / n_means)
    posterior = add_newest(replace(posterior, intercepts=running.biases), steps, newest)
    running = replace(running, n_means=n_means, biases=posterior.intercepts)
    return replace(posterior, running=running)


def add_newest(posterior: Posterior, steps: Array, newest: Array) -> Posterior:
    """Return the posterior after its averages took a step towards the newest mean.

    ``steps`` (machines,) are fractions of the difference. The intercepts are averaged as well.
    """

    def averaged(averages: Array, newest: Array) -> Array:
        return averages + steps * (newest - averages)

    frozen, window, landmarks = posterior.frozen, posterior.window, posterior.landmarks
    if not posterior.covariance.on_landmarks:
        frozen = replace(frozen, averages=averaged(frozen.averages, frozen.coefficients))
        window = replace(window, averages=averaged(window.averages, window.coefficients))
    return replace(
        posterior,
        frozen=frozen,
        window=window,
        landmarks=replace(landmarks, averages=averaged(landmarks.averages, newest)),
        intercepts=averaged(posterior.intercepts, posterior.biases),
    )


def begin_running_mean(posterior: Posterior) -> Posterior:
    """Return the posterior with a running mean that starts in this update."""
    running = RunningMean(0, posterior.biases, np.zeros_like(posterior.landmarks.averages))
    return replace(posterior, running=running)


def without_running_mean(posterior: Posterior) -> Posterior:
    """Return the posterior without a running mean."""

    def cleared(terms: SomeTerms) -> SomeTerms:
        return replace(terms, averages=np.zeros_like(terms.averages))

    return replace(
        posterior,
        frozen=cleared(posterior.frozen),
        window=cleared(posterior.window),
        landmarks=cleared(posterior.landmarks),
        running=None,
    )


def within_budget(posterior: Posterior, capacity: int | None) -> Posterior:
    """Return the posterior with at most ``capacity`` labeled points kept exactly.

    Points with the smallest multipliers are frozen, then those with the smallest error projected.
    """
    if capacity is None:
        return posterior
    window = posterior.window
    if window.size > capacity:
        order = np.argsort(np.abs(window.coefficients).max(axis=1), kind="stable")[::-1]
        kept = np.zeros(window.size, dtype=bool)
        kept[order[:capacity]] = True
        leaving = window.take(~kept)
        posterior = freeze(replace(posterior, window=window.take(kept)), leaving)
    frozen = posterior.frozen
    excess = frozen.size + posterior.window.size - capacity
    if excess <= 0 or posterior.covariance.kernel.compact:
        return posterior
    leaves = np.zeros(frozen.size, dtype=bool)
    # the squared error of projecting each point alone, over all machines
    weights = np.sum(frozen.coefficients**2 + frozen.averages**2, axis=1)
    assert isinstance(posterior.recursion, LandmarkRecursion)  # the others have no frozen points
    errors = weights * posterior.recursion.residual_variances(frozen.points)
    leaves[np.argsort(errors, kind="stable")[:excess]] = True
    left, landmarks = frozen.take(leaves), posterior.landmarks
    coefficients, averages = halves(posterior.recursion.project(left.points, left.values))
    landmarks = replace(
        landmarks,
        coefficients=landmarks.coefficients + coefficients,
        averages=landmarks.averages + averages,
    )
    posterior = replace(posterior, frozen=frozen.take(~leaves), landmarks=landmarks)
    return add_frozen_scores(posterior, left, -1.0)


def with_mean_parts(
    posterior: Posterior, averaging: bool, bounded: bool, newest: Array
) -> Posterior:
    """Return the posterior with its mean expanded in the base kernel, for predictions.

    Points without a coefficient are left out, unless the state is ``bounded``: it shares its points
    with the mean. ``newest`` (m, machines) are its `Posterior.landmark_coefficients`.
    """
    kernel, landmarks = posterior.covariance.kernel, posterior.landmarks
    own = () if posterior.covariance.on_landmarks else (posterior.frozen, posterior.window)
    if averaging:
        parts = tuple(Expansion(terms.points, terms.averages) for terms in (landmarks, *own))
    else:
        posterior = replace(posterior, intercepts=posterior.biases)
        kept = tuple(
            Expansion(terms.points, terms.coefficients) if bounded else terms.expansion
            for terms in own
        )
        parts = (Expansion(landmarks.points, newest), *kept)
    if kernel.compact:
        parts = (reduce(kernel.join, parts),)
    else:
        parts = tuple(part for part in parts if part.points.shape[0]) or parts[:1]
    return replace(posterior, mean_parts=parts)
