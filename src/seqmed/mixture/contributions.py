"""Votes of experts as sums of contributions of columns or labeled rows.

The **log odds** of a class are the logarithm of its probability minus the mean logarithm of those
of the other known classes; with two classes, the usual log odds. The core is a softmax of scores
that are sums over its three experts, so its log odds are a sum of three terms. Every term, and the
vote of every refitted expert that is linear or a forest, is a baseline and a sum:

- **margin** (log odds of the core): ``k(x, x_s) c_s`` of every support vector x_s. With a linear
  kernel it is a sum over columns.
- **graph** (probability): the shares of the labeled kept rows
  (`seqmed.graph.propagation.label_shares`). Those of the rows of a class add up to the probability
  of the class. Shares of other classes are negative, so that the total is the probability of the
  class minus that of all others.
- **linear, logistic** (log odds): ``w_j (x_j - r_j)`` of every column. The reference r is the mean
  of the kept labeled rows, or 0 if rows are sparse. The baseline is the log odds at r.
- **forests** (probability): the changes of the probability of the class along the path of the row
  in each tree, each ascribed to the column of the split. The baseline is the probability at the
  roots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from seqmed.graph import propagation
from seqmed.kernels import linear_weights
from seqmed.late_rows import equal_rows
from seqmed.mixture import pooling
from seqmed.mixture.experts import (
    Expert,
    FittedClassifier,
    StandardisedLogisticRegression,
    in_single_precision,
)
from seqmed.mixture.linear_expert import LinearExpert
from seqmed.mixture.mixture_state import (
    MixtureState,
    class_factors,
    core_probabilities,
    core_weights,
    expert_scores,
    member_probabilities,
    mix,
)
from seqmed.numeric.arrays import Array, Indices, Mask, Points, stack, take_rows

LOG_ODDS, PROBABILITY = "log odds", "probability"
FORESTS = (ExtraTreesClassifier, RandomForestClassifier, DecisionTreeClassifier)
# Largest difference of probabilities by which a refitted expert is taken for a linear one.
SAME = 1e-6


class Contributions(NamedTuple):
    """Contributions to the votes of one expert at m rows.

    Attributes
    ----------
    expert, unit : see `seqmed.mixture.explanation.Vote`.
    baseline : (m,) scores without contributions; NaN for a row without a vote.
    columns : (m, p) contributions of columns; None if there are none.
    rows : contributions of labeled rows; None if there are none.
    """

    expert: str
    unit: str
    baseline: Array
    columns: Points | None = None
    rows: OfRows | None = None


class OfRows(NamedTuple):
    """Contributions of r labeled rows.

    Attributes
    ----------
    contributions : (m, r).
    kept : function of places (s,) that returns the rows (1, p) there as they were learned, None if
        not kept, with their classes, -1 if not known.
    """

    contributions: Array
    kept: Callable[[Indices], list[tuple[Points | None, int]]]


class Report(NamedTuple):
    """What a state says of m rows.

    Attributes
    ----------
    names, weights, probabilities : of the members of the pool, (M,), (M,) and (m, M, K).
    terms : (m,) terms of the log odds of the core, by expert; none if the core has no weight.
    contributions : those of all experts whose votes are sums, with the weights of the experts.
    telling : (m,) mask of the rows whose class the state knows, among others.
    """

    names: Sequence[str]
    weights: Array
    probabilities: Array
    terms: dict[str, Array]
    contributions: list[tuple[float, Contributions]]
    telling: Mask


def report_of(state: MixtureState, points: Points, codes: Indices) -> Report:
    """Return what a state says of rows (m, p) and classes (m,), without regard to a trial."""
    known, scaled, choice = state.known, state.scaled(points), state.choice
    scores = expert_scores(state, scaled)
    mixed = mix(scores, state.score_scales, choice, state.by_counts)
    names: tuple[str, ...] = ("core",)
    weights = np.ones(1)
    probabilities = core_probabilities(mixed, known)[:, None]
    if state.has_pool:
        weights, temperatures = state.pool.weights, state.pool.temperatures
        names = (*pooling.MEMBERS, *(expert.name for expert in state.experts))
        probabilities = member_probabilities(state, points, scores, weights > 0)[0]
        for member in np.flatnonzero(weights):
            probabilities[:, member] = pooling.sharpened(
                probabilities[:, member], temperatures[member]
            )
    weighted = dict(zip(names, weights.tolist(), strict=True))
    in_core = {name: weighted["core"] * each for name, each in core_weights(state).items()}
    gains, factors = contrasts(codes, known), core_factors(state)
    terms = {
        name: (gains * factors[place] * scores[:, place]).sum(axis=1)
        for place, (name, weight) in enumerate(in_core.items())
        if weight > 0
    }
    reference = reference_row(state.labels.points)
    at, found = state.scaled(reference), []
    if in_core["margin"] > 0:
        sums = margin_contributions(state, scaled, at, gains * factors[0])
        found.append((in_core["margin"], sums))
    of_both = in_core["graph"] + weighted.get("graph", 0.0)
    if of_both > 0:
        found.append((of_both, graph_contributions(state, scaled, codes)))
    if in_core["linear"] > 0 and state.linear.fitted.any():
        linear = linear_contributions(state.linear, scaled, at, gains * factors[2])
        found.append((in_core["linear"], Contributions("linear", LOG_ODDS, *linear)))
    for expert in state.experts if state.has_pool else ():
        if weighted[expert.name] > 0:
            each = expert_contributions(expert, points, reference, codes, gains)
            found += [] if each is None else [(weighted[expert.name], each)]
    return Report(names, weights, probabilities, terms, found, known[codes] & (known.sum() > 1))


def reference_row(labeled: Points) -> Array:
    """Return the row (p,) at which the baseline of linear votes is taken."""
    if sp.issparse(labeled) or not labeled.shape[0]:
        return np.zeros(labeled.shape[1])
    return np.asarray(labeled.mean(axis=0))


def contrasts(codes: Indices, known: Mask) -> Array:
    """Return (m, K) factors of scores, so that their sum are the log odds of classes (m,)."""
    found = np.tile(np.where(known, -1.0 / max(1, known.sum() - 1), 0.0), (codes.size, 1))
    found[np.arange(codes.size), codes] = 1.0
    return found


def core_factors(state: MixtureState) -> Array:
    """Return the factors (3, K) of the scores of margin, graph and linear expert in the core."""
    scales, choice = state.score_scales, state.choice
    sigmas = (scales.margin[choice.exponent], scales.graph, scales.linear)
    factors = np.outer(np.divide(choice.weights, sigmas), scales.known) * choice.temperature
    factors[0] *= class_factors(scales.counts, state.by_counts)[choice.exponent]
    return factors


def linear_contributions(
    expert: LinearExpert, points: Points, reference: Points, gains: Array
) -> tuple[Array, Points]:
    """Return the baseline (m,) and the contributions (m, p) of columns to a sum of class scores.

    Parameters
    ----------
    expert : linear scores of the classes.
    points : (m, p) rows.
    reference : (p,) row at which the baseline is taken; not used for sparse rows.
    gains : (m, K) factors of the class scores.
    """
    fitted = np.flatnonzero(expert.fitted > 0)
    others = np.flatnonzero(expert.fitted == 0)
    gains = gains.copy()
    if others.size:  # they have the smallest score
        lowest = fitted[expert.scores(points)[:, fitted].argmin(axis=1)]
        gains[np.arange(lowest.size), lowest] += gains[:, others].sum(axis=1)
        gains[:, others] = 0.0
    weights = np.zeros((gains.shape[1], points.shape[1]))
    weights[:, expert.columns] = expert.coef
    baseline = gains @ expert.intercept
    if not sp.issparse(points):
        return baseline + gains @ (weights @ reference), (points - reference) * (gains @ weights)
    rows = np.repeat(np.arange(points.shape[0]), np.diff(points.indptr))
    factors = np.einsum("ik,ki->i", gains[rows], weights[:, points.indices])
    parts = (points.data * factors, points.indices, points.indptr)
    return baseline, sp.csr_array(parts, shape=points.shape)


def margin_contributions(
    state: MixtureState, points: Points, reference: Points, gains: Array
) -> Contributions:
    """Return the contributions of support vectors, or of columns if the kernel is linear.

    ``points`` (m, p) and ``reference`` are scaled, and ``gains`` (m, K) are factors of scores.
    """
    posterior, counts = state.margin.posterior, state.margin.counts
    kernel, parts = posterior.covariance.kernel, posterior.mean_parts
    offsets = counts.unscaled(np.zeros((1, posterior.intercepts.size)))[0]
    of_machines = counts.unscaled(np.eye(posterior.intercepts.size)) - offsets
    intercepts = posterior.intercepts @ of_machines + offsets
    if kernel.compact:
        coef = of_machines.T @ sum(map(linear_weights, parts))
        columns, fitted = np.arange(points.shape[1]), np.ones(counts.size)
        linear = LinearExpert(columns, coef, intercepts, fitted, 0)
        return Contributions(
            "margin", LOG_ODDS, *linear_contributions(linear, points, reference, gains)
        )
    machine_gains = gains @ of_machines.T
    values = [kernel(points, each.points) * (machine_gains @ each.coefficients.T) for each in parts]
    supports = stack(*(each.points for each in parts))

    def kept(places: Indices) -> list[tuple[Points | None, int]]:
        chosen, labels = take_rows(supports, places), state.labels
        unscaled = chosen * state.column_scale if state.column_scale.size else chosen
        return [
            (labels.points[equal[-1:]], int(labels.codes[equal[-1]]))
            if equal.size
            else (unscaled[[place]], -1)
            for place, equal in enumerate(equal_rows(state.scaled(labels.points), chosen))
        ]

    of_rows = OfRows(np.hstack(values), kept)
    return Contributions("margin", LOG_ODDS, gains @ intercepts, rows=of_rows)


def graph_contributions(state: MixtureState, points: Points, codes: Indices) -> Contributions:
    """Return the signed shares of labeled kept rows; ``points`` (m, p) are scaled."""
    graph = state.graph
    slots, shares = propagation.label_shares(graph, graph.search(points), state.class_weights)
    signs = np.where(graph.codes[slots] == codes[:, None], 1.0, -1.0)

    def kept(places: Indices) -> list[tuple[Points | None, int]]:
        chosen, labels, found = slots[places], state.labels, []
        stored = graph.rows.metric.store(state.scaled(labels.points)).rows
        equal = equal_rows(stored, graph.rows.take(chosen).rows)
        for code, rows in zip(graph.codes[chosen].tolist(), equal, strict=True):
            same = rows[labels.codes[rows] == code]
            found.append((labels.points[same[-1:]] if same.size else None, code))
        return found

    return Contributions(
        "graph", PROBABILITY, np.zeros(codes.size), rows=OfRows(signs * shares, kept)
    )


def expert_contributions(
    expert: Expert, points: Points, reference: Points, codes: Indices, gains: Array
) -> Contributions | None:
    """Return the contributions of columns to the votes of a refitted expert; None for other kinds.

    ``points`` (m, p) are not scaled, and ``gains`` (m, K) are those of `contrasts`.
    """
    if expert.fit is None or expert.fit.classifier is None:
        return None
    classifier, present = expert.fit.classifier, expert.fit.present
    if isinstance(classifier.model, FORESTS):
        baseline, columns = forest_contributions(classifier, points, present, codes)
        return Contributions(expert.name, PROBABILITY, baseline, columns)
    linear = linear_form(expert, points, gains.shape[1])
    if linear is None:
        return None
    return Contributions(
        expert.name, LOG_ODDS, *linear_contributions(linear, points, reference, gains)
    )


def linear_form(expert: Expert, points: Points, n_classes: int) -> LinearExpert | None:
    """Return a refitted expert as linear scores whose softmax are its probabilities, if it is so.

    Whether it is so is tested at the rows.
    """
    assert expert.fit is not None
    assert expert.fit.classifier is not None
    classifier, present = expert.fit.classifier, expert.fit.present
    model, columns = classifier.model, classifier.columns
    columns = np.arange(points.shape[1]) if columns is None else columns
    mean, scale = np.zeros(1), np.ones(1)
    if isinstance(model, StandardisedLogisticRegression):
        mean, scale, model = model.mean_, model.scale_, model.model_
    coef, intercept = getattr(model, "coef_", None), getattr(model, "intercept_", None)
    if not isinstance(coef, np.ndarray) or coef.ndim != 2 or intercept is None:
        return None
    if coef.shape[1] != columns.size or coef.shape[0] not in (1, present.size):
        return None
    coef, intercept = coef / scale, np.broadcast_to(intercept, coef.shape[:1])
    intercept = intercept - coef @ np.broadcast_to(mean, columns.shape)
    if coef.shape[0] == 1:
        coef, intercept = np.vstack([0.0 * coef, coef]), np.append(0.0, intercept)
    found = LinearExpert(
        columns, np.zeros((n_classes, columns.size)), np.zeros(n_classes), np.zeros(n_classes), 0
    )
    found.coef[present], found.intercept[present], found.fitted[present] = coef, intercept, 1.0
    differences = softmax(found.scores(points)[:, present], axis=1)
    differences -= classifier.probabilities(points)
    return found if np.abs(differences).max(initial=0.0) <= SAME else None


def forest_contributions(
    classifier: FittedClassifier, points: Points, present: Indices, codes: Indices
) -> tuple[Array, Points]:
    """Return the probabilities (m,) at the roots, and what the columns change them by, (m, p).

    Every split on the path of a row changes the probability of the class (m,) of the row; the
    column of the split gets the change. The mean over the trees is taken. NaN for a row whose class
    the trees do not have.
    """
    rows, n_rows = in_single_precision(classifier.of_columns(points)), points.shape[0]
    trees = getattr(classifier.model, "estimators_", [classifier.model])
    places = np.minimum(np.searchsorted(present, codes), present.size - 1)
    baseline, parts = np.zeros(n_rows), []
    for tree in (each.tree_ for each in trees):
        paths = tree.decision_path(rows)
        paths.sort_indices()  # children come after their parents
        owners = np.repeat(np.arange(n_rows), np.diff(paths.indptr))
        values = tree.value[paths.indices, 0, places[owners]]
        inside = owners[1:] == owners[:-1]
        columns = tree.feature[paths.indices[:-1][inside]]
        parts.append((owners[1:][inside], columns, np.diff(values)[inside]))
        baseline += tree.value[0, 0, places]
    of_rows, columns, changes = (np.concatenate(each) for each in zip(*parts, strict=True))
    columns = columns if classifier.columns is None else classifier.columns[columns]
    total = sp.csr_array((changes / len(trees), (of_rows, columns)), shape=points.shape)
    return np.where(present[places] == codes, baseline / len(trees), np.nan), total
