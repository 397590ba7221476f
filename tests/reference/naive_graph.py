"""Label propagation and the mixture, the slow and obvious way: dense matrices, sorts and grids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

# -- the graph ------------------------------------------------------------------------------------


def euclidean(left: Matrix, right: Matrix) -> Matrix:
    """Squared distances of all pairs."""
    return np.array([((right - row) ** 2).sum(axis=1) for row in left])


def cosine(left: Matrix, right: Matrix) -> Matrix:
    """``2 - 2 cos``; inf for rows that have nothing in common, or have an obtuse angle."""
    found = np.full((len(left), len(right)), np.inf)
    for i, a in enumerate(left):
        products, norms = right @ a, (right**2).sum(axis=1) * (a @ a)
        near = products > 0
        found[i, near] = np.maximum(0.0, 2 - 2 * products[near] / np.sqrt(norms[near]))
    return found


def of_kernel(kernel: Callable[[Matrix, Matrix], Matrix]) -> Callable[[Matrix, Matrix], Matrix]:
    """``k(x, x) + k(x', x') - 2 k(x, x')``."""

    def distances(left: Matrix, right: Matrix) -> Matrix:
        own = [np.diag(kernel(rows, rows)) for rows in (left, right)]
        return np.maximum(own[0][:, None] + own[1][None, :] - 2 * kernel(left, right), 0.0)

    return distances


def nearest(distances: Matrix, k: int) -> list[int]:
    """The k nearest of some rows by their distances (n,), nearest first; no infinite ones."""
    order = sorted(range(len(distances)), key=lambda j: distances[j])
    return [j for j in order if np.isfinite(distances[j])][:k]


def heat(distances: Matrix) -> Matrix:
    """``exp(-4 d^2 / d_last^2)`` of squared distances, nearest first; 1 where the last is 0."""
    if not len(distances) or distances[-1] == 0:
        return np.ones(len(distances))
    return np.exp(-4 * np.asarray(distances) / distances[-1])


def edges(distances: Matrix, k: int) -> Matrix:
    """W = (A + A') / 2 over the k nearest neighbours of every row, (n, n)."""
    n = len(distances)
    directed = np.zeros((n, n))
    for i in range(n):
        row = distances[i].copy()
        row[i] = np.inf
        found = nearest(row, k)
        directed[i, found] = heat(row[found])
    return (directed + directed.T) / 2


def propagated(weights: Matrix, labels: Matrix, alpha: float) -> Matrix:
    """U = (D - alpha W)^{-1} Y; a row without an edge has degree 1."""
    return graph_covariance(weights, alpha) @ labels


def graph_covariance(weights: Matrix, alpha: float) -> Matrix:
    """(D - alpha W)^{-1}: functions are smooth along edges and bounded everywhere."""
    degrees = weights.sum(axis=1)
    precision: Matrix = np.diag(np.where(degrees > 0, degrees, 1.0)) - alpha * weights
    return np.asarray(np.linalg.inv(precision), dtype=np.float64)


def one_hot(codes: Any, label_weights: Any, n_classes: int) -> Matrix:
    """Y, (n, K): the weight of every label in the column of its class."""
    labels = np.zeros((len(codes), n_classes))
    for i, (code, weight) in enumerate(zip(codes, label_weights, strict=True)):
        if code >= 0:
            labels[i, code] = weight
    return labels


def new_row_scores(distances: Matrix, influence: Matrix, labels: Matrix, k: int) -> Matrix:
    """V of new rows (m, K): the weighted mean of U over the nearest rows, class-normalised.

    ``distances`` (m, n) are squared ones to the kept rows.
    """
    totals = labels.sum(axis=0)
    known = totals > 0
    found = np.zeros((len(distances), len(totals)))
    for i, row in enumerate(distances):
        near = nearest(row, k)
        if near:
            weights = heat(row[near])
            mean = weights @ np.maximum(influence[near], 0.0) / weights.sum()
            found[i, known] = mean[known] / totals[known]
        total = found[i].sum()
        found[i] = found[i] / total if total > 0 else known / known.sum()
    return found


def label_shares(
    distances: Matrix, covariance: Matrix, labels: Matrix, factors: Matrix, k: int
) -> Matrix:
    """The share of every kept row (m, n) in the scores of new rows, by the class of its label.

    ``distances`` (m, n) are squared ones to the kept rows, ``covariance`` (n, n) is that of the
    graph, and ``factors`` (K,) are those of the classes.
    """
    totals = labels.sum(axis=0)
    found = np.zeros(distances.shape)
    for i, row in enumerate(distances):
        near = nearest(row, k)
        weights = heat(row[near])
        for j in np.flatnonzero(labels.any(axis=1)):
            c = int(labels[j].argmax())
            influence = weights @ covariance[near, j] / weights.sum()
            found[i, j] = factors[c] * influence * labels[j, c] / totals[c]
        found[i] /= found[i].sum() or 1.0
    return found


def proportion_factors(
    distances: Matrix, influence: Matrix, labels: Matrix, given: Matrix, k: int
) -> Matrix:
    """Factors (K,) of known class proportions, by a hundred Sinkhorn steps over unlabeled rows.

    ``distances`` (n, n) are squared ones between kept rows, infinite on the diagonal.
    """
    known = np.flatnonzero(labels.sum(axis=0) > 0)
    factors = np.ones(labels.shape[1])
    rows = [i for i in range(len(labels)) if not labels[i].any()]
    if len(rows) < 50:
        rows = list(range(len(labels)))
    scores = []
    for i in rows:
        near = nearest(distances[i], k)
        mean = heat(distances[i][near]) @ np.maximum(influence[near], 0.0)
        if mean.sum() > 0:
            scores.append(mean[known] / mean.sum())
    if known.size < 2 or not scores:
        return factors
    target = np.sqrt(np.mean(scores, axis=0) * given[known])
    target /= target.sum()
    for _ in range(100):
        mean = np.mean([f * factors[known] / (f @ factors[known]) for f in scores], axis=0)
        for place, c in enumerate(known):
            if mean[place] > 0:
                factors[c] = min(50.0, max(0.02, factors[c] * target[place] / mean[place]))
    return factors


# -- the mixture ----------------------------------------------------------------------------------

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
EXPONENTS = (0.0, 0.25, 0.5)
# Nats of the prior against the graph, and those that class priors must gain.
WEIGHT_PRIOR, PRIOR_GUARD = 2.0, 1.0
# Octaves of the temperature: a coarse grid, then a fine one around its best point.
COARSE, FINE = np.linspace(-12, 12, 241), np.linspace(-0.1, 0.1, 201)


def class_priors(counts: Matrix) -> Matrix:
    """Class priors of the known classes, shrunk towards equal as far as chance explains them."""
    known = counts > 0
    k, n = known.sum(), counts.sum()
    chi2 = sum((count - n / k) ** 2 / (n / k) for count in counts[known])
    s = 1.0 if chi2 == 0 else min(1.0, (k - 1) / chi2)
    return np.where(known, s / k + (1 - s) * counts / n, 0.0)


def margin_scores(raw: Matrix, counts: Matrix, delta: float) -> Matrix:
    """F_c = e_c n_c^(-1/2) pi_c^delta of the known classes, (m, known)."""
    known = counts > 0
    return raw[:, known] * counts[known] ** -0.5 * class_priors(counts)[known] ** delta


def sigma(scores: Matrix) -> float:
    """Root mean square of row-centred scores; 1 if all are equal."""
    centred = scores - scores.mean(axis=1, keepdims=True)
    size = float(np.sqrt((centred**2).mean()))
    return size if size > 0 else 1.0


@dataclass
class Pair:
    """One row of the record: what both experts said of it, and when.

    ``probes`` are raw scores of unlabeled rows by the experts of that time, for the scales.
    """

    margin: Matrix
    graph: Matrix
    counts: Matrix
    code: int
    weight: float
    probes: tuple[Matrix, Matrix]

    def mixed(self, w: float, delta: float) -> tuple[Matrix, int]:
        """Scores of the known classes, and the place of the true class among them."""
        known = self.counts > 0
        of_margin = margin_scores(self.margin[None, :], self.counts, delta)[0]
        of_margin = of_margin / sigma(margin_scores(self.probes[0], self.counts, delta))
        of_graph = self.graph[known] / sigma(self.probes[1][:, known])
        return (1 - w) * of_margin + w * of_graph, int(known[: self.code].sum())


def evidence(pairs: list[Pair], w: float, delta: float = 0.0) -> tuple[float, float]:
    """J(w) and the T that minimises it, by a grid.

    J is the cross-entropy of softmax(T score) in nats, plus (log2 T)^2.
    """
    rows = [(*pair.mixed(w, delta), pair.weight) for pair in pairs]

    def costs(octaves: Matrix) -> Matrix:
        total = octaves**2
        for scores, true, weight in rows:
            powers = 2.0 ** octaves[:, None] * (scores - scores[true])
            top = powers.max(axis=1, keepdims=True)
            total = total + weight * (top[:, 0] + np.log(np.exp(powers - top).sum(axis=1)))
        return total

    fine = COARSE[costs(COARSE).argmin()] + FINE
    found = costs(fine)
    return float(found.min()), float(2.0 ** fine[found.argmin()])


Table = dict[tuple[float, float], tuple[float, float]]


def evidence_table(pairs: list[Pair]) -> Table:
    """J and T for every weight and every delta."""
    return {(w, delta): evidence(pairs, w, delta) for w in WEIGHTS for delta in EXPONENTS}


def choose(table: Table, class_shares: bool = True) -> tuple[float, float, float]:
    """The weight of the graph, the temperature, and delta."""
    lowest = {d: min(table[w, d][0] for w in WEIGHTS) for d in EXPONENTS}
    delta = 0.0
    if class_shares:
        other = min((0.25, 0.5), key=lambda d: lowest[d])
        if lowest[other] < lowest[0.0] - PRIOR_GUARD:
            delta = other
    posterior = [np.exp(lowest[delta] - table[w, delta][0] - WEIGHT_PRIOR * w) for w in WEIGHTS]
    weight = float(np.average(WEIGHTS, weights=posterior))
    weight = weight if weight >= 0.05 else 0.0
    octaves = [np.log2(table[w, delta][1]) for w in WEIGHTS]
    return weight, float(2.0 ** np.interp(weight, WEIGHTS, octaves)), delta


def mini_batches(labeled: Any, n_labels: float) -> list[list[int]]:
    """The rows of every mini-batch: one ends after max(4, a quarter of the labels so far) labels.

    Unlabeled rows at the end go with the last one.
    """
    found: list[list[int]] = [[]]
    since = 0
    for row, is_labeled in enumerate(labeled):
        if since >= max(4, n_labels / 4) and any(labeled[row:]):
            n_labels += since
            since = 0
            found.append([])
        found[-1].append(row)
        since += bool(is_labeled)
    return found
