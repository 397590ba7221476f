"""A slow and obvious reference: loops, explicit inverses, the formulas as they are printed.

Nothing here shares an algorithm with the library. Only the dual of one batch is borrowed, from
`tests.reference.newton`, a solver of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqmed.margin.dual.problem import DualProblem
from tests.reference import newton

Matrix = np.ndarray
KernelFunction = Callable[[Matrix, Matrix], Matrix]

# -- kernels ---------------------------------------------------------------------------------------


def gram(value: Callable[[Matrix, Matrix], float], left: Matrix, right: Matrix) -> Matrix:
    """Return the values of a function of two rows, by a double loop."""
    values = np.empty((len(left), len(right)))
    for i, first in enumerate(left):
        for j, second in enumerate(right):
            values[i, j] = value(first, second)
    return values


def remembered(value: Callable[[Matrix, Matrix], float]) -> KernelFunction:
    """Return the kernel of a function of two rows; formulas ask for the same rows many times."""
    known: dict[Any, Matrix] = {}

    def kernel(left, right):
        rows = tuple((each.shape, each.dtype.str, each.tobytes()) for each in (left, right))
        if rows not in known:
            known[rows] = gram(value, left, right)
        return known[rows].copy()

    return kernel


def linear() -> KernelFunction:
    return remembered(lambda a, b: float(a @ b))


def rbf(gamma: float) -> KernelFunction:
    def value(a, b):
        difference = a - b
        return float(np.exp(-gamma * (difference @ difference)))

    return remembered(value)


def polynomial(gamma: float, degree: int, coef0: float) -> KernelFunction:
    return remembered(lambda a, b: float((gamma * (a @ b) + coef0) ** degree))


def scale_gamma(points: Matrix, weights: Matrix | None = None) -> float:
    """Return 1 / (p * variance of all entries), every row counted by its weight."""
    weights = np.ones(len(points)) if weights is None else weights
    entries, shares = [], []
    for row, weight in zip(points, weights, strict=True):
        for entry in row:
            entries.append(entry)
            shares.append(weight)
    mean = np.average(entries, weights=shares)
    variance = np.average((np.array(entries) - mean) ** 2, weights=shares)
    return 1.0 / (points.shape[1] * variance)


def smoothed_idf(points: Matrix, weights: Matrix | None = None) -> Matrix:
    """Return log((1 + N) / (1 + df)) + 1 of every column."""
    weights = np.ones(len(points)) if weights is None else weights
    idf = np.empty(points.shape[1])
    for column in range(points.shape[1]):
        document_frequency = sum(weights[i] for i in range(len(points)) if points[i, column] > 0)
        idf[column] = np.log((1 + sum(weights)) / (1 + document_frequency)) + 1
    return idf


def tfidf(idf: Matrix) -> KernelFunction:
    """Return the cosine of log(1 + x) * idf; rows of zeros have the value 0."""

    def value(a, b):
        first, second = np.log(1 + a) * idf, np.log(1 + b) * idf
        lengths = np.sqrt(first @ first) * np.sqrt(second @ second)
        return float(first @ second / lengths) if lengths > 0 else 0.0

    return remembered(value)


# -- graph -----------------------------------------------------------------------------------------


def squared_distances(points: Matrix) -> Matrix:
    n = len(points)
    distances = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            distances[i, j] = sum((points[i] - points[j]) ** 2)
    return distances


def feature_distances(values: Matrix) -> Matrix:
    """Return the squared distances in the feature space of a Gram matrix."""
    n = len(values)
    distances = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            distances[i, j] = values[i, i] + values[j, j] - 2 * values[i, j]
    return distances


def nearest(distances: Matrix, n_neighbors: int) -> list[list[int]]:
    """Return for every point its nearest others, n - 1 of them if there are no more."""
    n = len(distances)
    neighbours = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        others.sort(key=lambda j: distances[i, j])
        neighbours.append(others[:n_neighbors])
    return neighbours


def auto_heat_width(distances: Matrix, n_neighbors: int) -> float:
    """Return a quarter of the mean squared distance to a neighbour."""
    lengths = [
        distances[i, j] for i, others in enumerate(nearest(distances, n_neighbors)) for j in others
    ]
    return float(np.mean(lengths)) / 4


def edge_weights(distances: Matrix, n_neighbors: int, kind: str, width: float | None) -> Matrix:
    n = len(distances)
    directed = np.zeros((n, n))
    for i, others in enumerate(nearest(distances, n_neighbors)):
        for j in others:
            directed[i, j] = 1.0 if kind == "binary" else np.exp(-distances[i, j] / (4 * width))
    return np.maximum(directed, directed.T)


def laplacian(weights: Matrix, kind: str) -> Matrix:
    """Return I - D^-1/2 W D^-1/2 or D - W; a vertex of degree zero has a zero row."""
    n = len(weights)
    degrees = [sum(weights[i]) for i in range(n)]
    matrix = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if kind == "unnormalized":
                matrix[i, j] = (degrees[i] if i == j else 0.0) - weights[i, j]
            elif degrees[i] > 0 and degrees[j] > 0:
                own = 1.0 if i == j else 0.0
                matrix[i, j] = own - weights[i, j] / np.sqrt(degrees[i] * degrees[j])
    return matrix


def batch_laplacian(
    points: Matrix,
    *,
    n_neighbors: int,
    weights: str,
    width: float | None,
    kind: str,
    power: int,
    distances: Matrix | None = None,
) -> Matrix:
    """Return L^p of one batch of points."""
    distances = squared_distances(points) if distances is None else distances
    matrix = laplacian(edge_weights(distances, n_neighbors, weights, width), kind)
    product = np.eye(len(matrix))
    for _ in range(power):
        product = product @ matrix
    return product


# -- the kernel after some batches -----------------------------------------------------------------


@dataclass(frozen=True)
class Smoothing:
    """The smoothness penalty of one batch: its points, its L^p, its beta."""

    points: Matrix
    laplacian: Matrix
    beta: float


def block_diagonal(blocks: list[Matrix]) -> Matrix:
    size = sum(len(block) for block in blocks)
    matrix, start = np.zeros((size, size)), 0
    for block in blocks:
        end = start + len(block)
        matrix[start:end, start:end] = block
        start = end
    return matrix


def penalised(kernel: KernelFunction, anchors: Matrix, penalty: Matrix) -> KernelFunction:
    """Return k - k(., Z) (I + P K_ZZ)^{-1} P k(Z, .)."""
    inverse = np.linalg.inv(np.eye(len(anchors)) + penalty @ kernel(anchors, anchors))
    middle = inverse @ penalty
    return lambda left, right: (
        kernel(left, right) - kernel(left, anchors) @ middle @ kernel(anchors, right)
    )


def unrolled_kernel(kernel: KernelFunction, batches: list[Smoothing]) -> KernelFunction:
    """Return the exact kernel with all points so far in one block formula."""
    if not batches:
        return kernel
    anchors = np.vstack([batch.points for batch in batches])
    penalty = block_diagonal([2 * batch.beta * batch.laplacian for batch in batches])
    return penalised(kernel, anchors, penalty)


def spectral_kernel(
    kernel: KernelFunction, batches: list[Smoothing], orientation: Matrix
) -> KernelFunction:
    """Return the kernel of section 3.2 of the paper; the first two batches are exact.

    Singular vectors have no sign of their own: those of the first batch point the way of the rows
    of ``orientation``, later ones that of the mean so far.
    """
    if len(batches) <= 2:
        return unrolled_kernel(kernel, batches)
    past, newest = batches[:-1], batches[-1]
    rank = min(min(batch.points.shape) for batch in past[:2])
    vectors, singular_values, laplacian_values = [], [], []
    for batch in past:
        if min(batch.points.shape) < rank:
            continue
        left, values, right = np.linalg.svd(batch.points, full_matrices=False)
        aligned = []
        for i in range(rank):
            towards = np.mean([v[i] for v in vectors], axis=0) if vectors else orientation[i]
            aligned.append(-right[i] if towards @ right[i] < 0 else right[i])
        vectors.append(np.array(aligned))
        singular_values.append(values[:rank])
        laplacian_values.append(
            np.array([left[:, i] @ batch.laplacian @ left[:, i] for i in range(rank)])
        )
    V, s, d = (np.mean(each, axis=0) for each in (vectors, singular_values, laplacian_values))
    B = 2 * sum(batch.beta for batch in past)
    prior = penalised(kernel, V, B * np.diag(s**2 * d))
    return penalised(prior, newest.points, 2 * newest.beta * newest.laplacian)


def inverse_root(matrix: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ np.diag(values**-0.5) @ vectors.T


def landmark_kernel(
    kernel: KernelFunction, landmarks: Matrix, batches: list[Smoothing]
) -> KernelFunction:
    """Return k - phi' (I - G^{-1}) phi with phi = K_ZZ^{-1/2} k(Z, .) for given landmarks."""
    root = inverse_root(kernel(landmarks, landmarks))

    def features(points):
        return kernel(points, landmarks) @ root

    G = np.eye(len(landmarks))
    for batch in batches:
        phi = features(batch.points)
        G = G + 2 * batch.beta * phi.T @ batch.laplacian @ phi
    taken = np.eye(len(landmarks)) - np.linalg.inv(G)
    return lambda left, right: kernel(left, right) - features(left) @ taken @ features(right).T


def growing_landmark_kernel(
    kernel: KernelFunction, landmarks: Matrix, counts: list[int], batches: list[Smoothing]
) -> KernelFunction:
    """Return the landmark kernel when batch t was projected on the first counts[t] landmarks.

    The values f(X_t) are replaced by what the landmarks of that time predict of them,
    A f(Z_t) with A = k(X_t, Z_t) K_{Z_t Z_t}^{-1}, so each batch is a penalty on f(Z).
    """
    used = counts[-1] if counts else 0
    anchors = landmarks[:used]
    penalty = np.zeros((used, used))
    for count, batch in zip(counts, batches, strict=True):
        known = landmarks[:count]
        predict = kernel(batch.points, known) @ np.linalg.inv(kernel(known, known))
        penalty[:count, :count] += 2 * batch.beta * predict.T @ batch.laplacian @ predict
    return penalised(kernel, anchors, penalty)


@dataclass(frozen=True)
class Known:
    """A Gaussian on points Z by its covariance S; elsewhere a function follows the base kernel.

    k_t(x, x') = k(x, x') - k(x, Z) K_ZZ^{-1} (K_ZZ - S) K_ZZ^{-1} k(Z, x').
    """

    kernel: KernelFunction
    points: Matrix
    covariance: Matrix

    def __call__(self, left: Matrix, right: Matrix) -> Matrix:
        values = self.kernel(left, right)
        if len(self.points) == 0:
            return values
        gram = self.kernel(self.points, self.points)
        inverse = np.linalg.inv(gram)
        taken = inverse @ (gram - self.covariance) @ inverse
        return values - self.kernel(left, self.points) @ taken @ self.kernel(self.points, right)

    def on(self, points: Matrix) -> Known:
        """Return what is known on other points: all of the old ones and more, or fewer."""
        return Known(self.kernel, points, self(points, points))

    def penalised(self, penalty: Matrix) -> Known:
        """Return (S^{-1} + P)^{-1} for a penalty P on the values at the points."""
        inverse = np.linalg.inv(np.linalg.inv(self.covariance) + penalty)
        return Known(self.kernel, self.points, inverse)


def nothing_known(kernel: KernelFunction, width: int) -> Known:
    return Known(kernel, np.zeros((0, width)), np.zeros((0, 0)))


def union(first: Matrix, second: Matrix) -> Matrix:
    """Return the rows of both, each once."""
    rows = [tuple(row) for row in first] + [tuple(row) for row in second]
    return np.array(list(dict.fromkeys(rows)))


def moving_landmark_kernel(
    kernel: KernelFunction, landmarks: list[Matrix], batches: list[Smoothing]
) -> Known:
    """Return the landmark kernel when batch t was projected on the landmarks ``landmarks[t]``.

    New landmarks are added to what is known, those that leave are marginalised over, and a batch is
    a penalty on what the landmarks of its time predict of its values.
    """
    known = nothing_known(kernel, landmarks[0].shape[1])
    for own, batch in zip(landmarks, batches, strict=True):
        known = known.on(union(known.points, own)).on(own)
        predict = kernel(batch.points, own) @ np.linalg.inv(kernel(own, own))
        known = known.penalised(2 * batch.beta * predict.T @ batch.laplacian @ predict)
    return known


def discounted(batches: list[Smoothing], forgetting: list[float]) -> list[Smoothing]:
    """Return the batches with their betas as they count after the last of them.

    ``forgetting[t]`` scales everything before batch t.
    """
    result = []
    for position, batch in enumerate(batches):
        share = float(np.prod(forgetting[position + 1 : len(batches)]))
        result.append(Smoothing(batch.points, batch.laplacian, share * batch.beta))
    return result


# -- the stream learner ----------------------------------------------------------------------------


@dataclass(frozen=True)
class LabeledBatch:
    """The labeled rows of one batch: signs are -1.0 or +1.0, ``bound`` is its C."""

    points: Matrix
    signs: Matrix
    weights: Matrix
    bound: float


@dataclass(frozen=True)
class Learned:
    """A stream learned: the newest kernel, all labeled points, their signed multipliers."""

    kernel: KernelFunction
    points: Matrix
    coefficients: Matrix
    bias: float
    multiplier_sums: list[float]

    def scores(self, points: Matrix) -> Matrix:
        """Return the decision values of rows, (n,)."""
        return self.kernel(points, self.points) @ self.coefficients + self.bias


# A multiplier this small against its bound is the interior point's way to say zero.
ZERO_MULTIPLIER = 1e-9
# How far from the optimality conditions a reference may be.
OPTIMAL = 1e-8


def solve_dual(problem: DualProblem) -> tuple[Matrix, float]:
    """Return multipliers and bias by the interior point method, its optimality checked here.

    y_i (score_i + b) = 1 - e_i / (C_i - a_i) where 0 < a_i, and at least that where a_i = 0; for a
    hard box (e_i = 0) at most 1 where a_i = C_i.
    """
    solution = newton.solve(problem)
    bounds = problem.bounds
    a = np.where(solution.multipliers < ZERO_MULTIPLIER * bounds, 0.0, solution.multipliers)
    coefficients = problem.signs * a
    bias = solution.bias
    for i, sign in enumerate(problem.signs):
        score = problem.prior_scores[i] + problem.gram[i] @ coefficients + bias
        shape, at_bound = problem.shapes[i], problem.shapes[i] == 0 and a[i] >= bounds[i]
        excess = sign * score - (1.0 - (shape / (bounds[i] - a[i]) if shape > 0 else 0.0))
        assert excess >= -OPTIMAL or at_bound, "the reference is not optimal"
        assert excess <= OPTIMAL or a[i] == 0, "the reference is not optimal"
    return a, bias


def learn_stream(
    batches: list[LabeledBatch], kernels: list[KernelFunction], **options: Any
) -> Learned:
    """Return the posterior after the last batch; options are those of `learn_steps`."""
    return learn_steps(batches, kernels, **options)[-1]


def teaching_steps(labels: list[Matrix], lags: list[int | None]) -> list[bool]:
    """Return for every step whether it has labels from which a dual can learn.

    Two classes must be in the window with them: the last ``lags[t]`` batches that had labels.
    """
    teaching, window = [], []
    for own, lag in zip(labels, lags, strict=True):
        if len(own) > 0:
            window = [*window, own] if lag is None else [*window, own][-lag:]
        classes = set(np.concatenate([np.zeros(0), *window]))
        teaching.append(len(own) > 0 and len(classes) > 1)
    return teaching


def learn_steps(
    batches: list[LabeledBatch],
    kernels: list[KernelFunction],
    *,
    slack_shape: float = 1.0,
    bias_rule: str = "exact",
    lag: int | list[int | None] | None = 1,
    forgetting: float | list[float] = 1.0,
    teaching: list[bool] | None = None,
) -> list[Learned]:
    """Learn batch after batch; ``kernels[t]`` is the kernel once batch t has been folded in.

    At every step the multipliers of the last ``lag`` batches with labels are found anew under the
    kernel of that time; those of older batches count as they were found last. ``forgetting[t]``
    scales all that was there before step t: old coefficients, and the bounds and slack shapes of
    batches that are still in the window; but only where the labels of step t teach something. A
    window without labels, or with one class, leaves multipliers and bias unchanged.
    ``multiplier_sums`` is y'a of every batch at that step. ``teaching`` gives the steps in which
    another machine of several learns, which the signs do not show.

    The bias is diffuse: y'a = 0 for all multipliers together, frozen ones included. If the window
    would need more than half of its bounds of one sign for that, its sum is that half.
    """
    lags = lag if isinstance(lag, list) else [lag] * len(batches)
    shares = forgetting if isinstance(forgetting, list) else [forgetting] * len(batches)
    if teaching is None:
        teaching = teaching_steps([batch.signs for batch in batches], lags)
    shares = [share if teaches else 1.0 for share, teaches in zip(shares, teaching, strict=True)]
    found = [np.zeros(len(batch.signs)) for batch in batches]  # signed multipliers
    found_at = list(range(len(batches)))
    window: list[int] = []
    bias, history = 0.0, []

    def faded(since: int, now: int) -> float:
        """Return what is left at step ``now`` of something of step ``since``."""
        return float(np.prod(shares[since + 1 : now + 1]))

    def standing(members: list[int], now: int) -> tuple[Matrix, Matrix]:
        """Return the points of some batches and what their coefficients amount to."""
        points = [np.zeros((0, batches[0].points.shape[1]))]
        values = [np.zeros(0)]
        for s in members:
            points.append(batches[s].points)
            values.append(faded(found_at[s], now) * found[s])
        return np.vstack(points), np.concatenate(values)

    for t, kernel in enumerate(kernels):
        if len(batches[t].signs) > 0:
            window = [*window, t] if lags[t] is None else [*window, t][-lags[t] :]
        settled = [s for s in range(t) if s not in window]
        signs = np.concatenate([np.zeros(0), *(batches[s].signs for s in window)])
        if len(set(signs)) == 2:
            points = np.vstack([batches[s].points for s in window])
            old_points, old_values = standing(settled, t)
            prior = kernel(points, old_points) @ old_values
            covariance = kernel(points, points)
            bounds = [faded(s, t) * batches[s].weights * batches[s].bound for s in window]
            shapes = [faded(s, t) * batches[s].weights * slack_shape for s in window]
            missing = -float(old_values.sum())
            side = signs == (1.0 if missing > 0 else -1.0)
            half = 0.5 * float(np.concatenate(bounds)[side].sum())
            problem = DualProblem(
                gram=0.5 * (covariance + covariance.T),
                signs=signs,
                prior_scores=prior,
                bounds=np.concatenate(bounds),
                shapes=np.concatenate(shapes),
                multiplier_sum=np.sign(missing) * min(abs(missing), half),
            )
            multipliers, own_bias = solve_dual(problem)
            new = signs * multipliers
            if bias_rule == "median":
                scores = prior + covariance @ new
                bias = float(
                    np.median([signs[i] - scores[i] for i in range(len(new)) if new[i] != 0])
                )
            else:
                bias = own_bias
            start = 0
            for s in window:
                end = start + len(batches[s].signs)
                found[s], found_at[s] = new[start:end], t
                start = end
        points, coefficients = standing(list(range(t + 1)), t)
        multiplier_sums = [float(standing([s], t)[1].sum()) for s in range(t + 1)]
        history.append(Learned(kernel, points, coefficients, bias, multiplier_sums))
    return history


# -- one machine per class, with a known bias ------------------------------------------------------

# Coordinate ascent ends when no multiplier moves by more than this share of its bound.
STILL = 1e-13


def best_multiplier(residual: float, variance: float, bound: float, shape: float) -> float:
    """Return the multiplier of one row, the others given.

    It maximises ``a r - v a^2 / 2 + e log(1 - a / C)`` over a >= 0 (over the box at e = 0).
    """
    if shape == 0:
        return bound if variance == 0 else min(max(residual / variance, 0.0), bound)
    if residual * bound <= shape:
        return 0.0
    root = np.sqrt((residual - variance * bound) ** 2 + 4 * shape * variance)
    return 2 * (residual * bound - shape) / (residual + variance * bound + root)


def ascend(
    covariance: Matrix, signs: Matrix, prior: Matrix, bounds: Matrix, shapes: Matrix
) -> Matrix:
    """Return multipliers, one after the other set to its best value until none moves.

    ``prior`` is the prior mean of the scores, the bias of -1 included.
    """
    a = np.zeros(len(signs))
    for _ in range(100_000):
        largest = 0.0
        for i, sign in enumerate(signs):
            others = prior[i] + covariance[i] @ (signs * a) - covariance[i, i] * sign * a[i]
            new = best_multiplier(1 - sign * others, covariance[i, i], bounds[i], shapes[i])
            largest = max(largest, abs(new - a[i]) / bounds[i])
            a[i] = new
        if largest <= STILL:
            return a
    raise AssertionError("coordinate ascent has not converged")


@dataclass
class LabeledRow:
    """One labeled row: its multipliers by class, and how much of its weight is left."""

    point: Matrix
    label: Any
    weight: float
    bound: float
    shape: float
    batch: int
    frozen: bool
    multipliers: dict[Any, float]

    def sign(self, label: Any) -> float:
        return 1.0 if self.label == label else -1.0


class ClassMachines:
    """The rule of ``bias="auto"``, row by row.

    For class c the labels are t = +1 (its own) and -1 (all others), and f_c = m_c - 1. A class that
    appears later has the multiplier 0 at every row that is frozen by then. The class score is
    ``(f_c + 1) / 2 * sqrt(nbar / n_c)``.
    """

    def __init__(
        self,
        *,
        slack_shape: float = 1.0,
        lag: int | None = None,
        window: int | None = None,
        forgetting: float = 1.0,
    ) -> None:
        self.slack_shape, self.lag, self.window = slack_shape, lag, window
        self.forgetting = forgetting
        self.rows: list[LabeledRow] = []
        self.means: list[list[tuple[Matrix, dict[Any, float]]]] = []
        self.n_batches = 0

    @property
    def classes(self) -> list[Any]:
        return sorted({row.label for row in self.rows})

    def learn(self, kernel: KernelFunction, points: Matrix, labels: Any, weights: Matrix, bound):
        """Learn the labeled rows of one batch, at least one."""
        self.kernel = kernel
        self.n_batches += 1
        for row in self.rows:
            row.weight *= self.forgetting
            row.bound *= self.forgetting
            row.shape *= self.forgetting
            row.multipliers = {c: self.forgetting * a for c, a in row.multipliers.items()}
        old = [row for row in self.rows if not row.frozen]
        recent = [*sorted({row.batch for row in old}), self.n_batches]
        if self.lag is not None:
            for row in old:
                row.frozen = row.batch not in recent[-self.lag :]
        if self.window is not None:
            while old and sum(not row.frozen for row in old) + len(labels) > self.window:
                next_to_leave = old.pop(0)
                next_to_leave.frozen = True
        for point, label, weight in zip(points, labels, weights, strict=True):
            shape = self.slack_shape * weight
            row = LabeledRow(point, label, weight, bound * weight, shape, self.n_batches, False, {})
            self.rows.append(row)
        self.solve()

    def retract(self, row: int) -> None:
        """Take back the label of a row that is not frozen, by its place."""
        assert not self.rows[row].frozen
        del self.rows[row]
        self.solve()

    def solve(self) -> None:
        free = [row for row in self.rows if not row.frozen]
        points = np.array([row.point for row in free])
        if free:
            covariance = self.kernel(points, points)
        for label in self.classes if free else []:
            prior = self.machine(label, points, [row for row in self.rows if row.frozen])
            found = ascend(
                covariance,
                np.array([row.sign(label) for row in free]),
                prior,
                np.array([row.bound for row in free]),
                np.array([row.shape for row in free]),
            )
            for row, multiplier in zip(free, found, strict=True):
                row.multipliers[label] = multiplier
        self.means.append(
            [
                (row.point, {c: row.sign(c) * a for c, a in row.multipliers.items()})
                for row in self.rows
            ]
        )

    def machine(self, label: Any, points: Matrix, rows: list[LabeledRow] | None = None) -> Matrix:
        """Return f_c at some points, by all rows or some."""
        scores = np.full(len(points), -1.0)
        for row in self.rows if rows is None else rows:
            coefficient = row.sign(label) * row.multipliers.get(label, 0.0)
            scores += coefficient * self.kernel(points, row.point[None, :])[:, 0]
        return scores

    def averaged(self, label: Any, points: Matrix) -> Matrix:
        """Return the running mean of f_c over the updates, at some points."""
        mean = np.zeros(len(points))
        for t, terms in enumerate(self.means, start=1):
            scores = np.full(len(points), -1.0)
            for point, coefficients in terms:
                values = self.kernel(points, point[None, :])[:, 0]
                scores += coefficients.get(label, 0.0) * values
            mean += max(1 / t, 1 - self.forgetting) * (scores - mean)
        return mean

    def class_scores(self, points: Matrix, averaging: bool = False) -> Matrix:
        """Return the score of every class seen, (n, classes)."""
        machine = self.averaged if averaging else self.machine
        n = {c: sum(row.weight for row in self.rows if row.label == c) for c in self.classes}
        mean = sum(n.values()) / len(n)
        columns = [(machine(c, points) + 1) / 2 * np.sqrt(mean / n[c]) for c in self.classes]
        return np.column_stack(columns)
