"""Explanations: the members' votes for the predicted class, and the columns and rows behind them.

The **log odds** of a class are the logarithm of its probability minus the mean logarithm of those
of the other known classes; with two classes, the usual log odds. The core is a softmax of scores
that are sums over its three experts, so its log odds are a sum of three terms. Every term, and the
vote of every refitted expert that is linear or a forest, is a sum over columns or labeled rows:

- **margin** (log odds of the core): ``k(x, x_s) c_s`` of every support vector x_s. With a linear
  kernel this is a sum over the columns.
- **graph** (probability): the shares of the labeled kept rows
  (`seqmed.graph.propagation.label_shares`). Those of the rows of a class add up to the probability
  of the class. Shares of other classes are negative, so that the total is the probability of the
  class minus that of all others.
- **linear, logistic** (log odds): ``w_j (x_j - r_j)``. The reference r is the mean of the kept
  labeled rows, or 0 if rows are sparse, and the baseline is the log odds at r.
- **forests** (probability): the changes of the probability of the class along the path of the row
  in each tree, each ascribed to the column of its split. The baseline is the probability at the
  roots.

None of them is causal. They say how the fitted expert comes to its vote, not what would happen if a
column had another value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

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
from seqmed.numeric.arrays import Array, Indices, Mask, Points, row_keys, take_rows
from seqmed.numeric.execution import one_thread

LOG_ODDS, PROBABILITY = "log odds", "probability"
# Rows that are explained at once.
AT_ONCE = 64
# Largest difference of probabilities by which a refitted expert is taken for a linear one.
SAME = 1e-6
# Cells of a labeled row that are printed, and characters of a cell: more in rows of few cells.
FEW_CELLS, LONGEST, LONGEST_ROW = 8, 40, 160


# -- what is returned ------------------------------------------------------------------------------


class Member(NamedTuple):
    """A member of the pool, and its vote.

    Attributes
    ----------
    name : "core", "graph", or the name of a refitted expert; with the prefix "new " if it belongs
        to a new start on trial.
    weight : its weight, in (0, 1].
    probabilities : (K,) its probabilities at its temperature, 0 for unknown classes. The pool is
        their weighted mean, at one more temperature.
    terms : of a core, the terms of its log odds by expert: "margin", "graph" and "linear".
    """

    name: str
    weight: float
    probabilities: Array
    terms: dict[str, float]


class ColumnPart(NamedTuple):
    """The contribution of a column.

    The value is its cell. A column of text has a part for each of its words and pairs of words,
    which is the value then.
    """

    name: str
    value: Any
    contribution: float
    is_word: bool = False


class RowPart(NamedTuple):
    """The contribution of a labeled row.

    The label is None if it is not known any more. The row is an array (p,) or a CSR array (1, p) of
    the columns as they were learned, or a dict of the cells of a table; None if it is not kept.
    """

    label: Any
    row: Any
    contribution: float


@dataclass(frozen=True)
class Evidence:
    """What the vote of an expert consists of: ``baseline + contributions + rest = score``.

    Attributes
    ----------
    expert : "margin", "graph", "linear" or the name of a refitted expert; with the prefix "new " if
        it belongs to a new start on trial.
    weight : its weight in the prediction; that of margin and linear expert is their weight in the
        core times that of the core, and that of the graph is its weight alone and in the core.
    unit : "log odds" or "probability".
    score : its log odds or probability of the predicted class.
    baseline : the score without the contributions.
    columns : the columns of largest contributions, largest first.
    rows : the labeled rows that speak most for the class, then those that speak most against it.
    rest : sum of all other contributions.
    """

    expert: str
    weight: float
    unit: str
    score: float
    baseline: float
    columns: tuple[ColumnPart, ...]
    rows: tuple[RowPart, ...]
    rest: float


@dataclass(frozen=True)
class Explanation:
    """Why a class is predicted for a row; printed, it is a text.

    Attributes
    ----------
    label : the predicted class.
    classes, probabilities : (K,) all classes, and their probabilities.
    members : the members of the pool of weight > 0, the largest first. Without refitted experts
        the core is the only one.
    evidence : what the votes consist of, where they are sums over columns or labeled rows; those of
        the largest weight first.
    """

    label: Any
    classes: tuple[Any, ...]
    probabilities: Array
    members: tuple[Member, ...]
    evidence: tuple[Evidence, ...]

    @property
    def probability(self) -> float:
        """Probability of the predicted class."""
        return float(self.probabilities[self.classes.index(self.label)])

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values, for JSON."""
        return {
            "label": self.label,
            "probabilities": dict(
                zip(map(str, self.classes), self.probabilities.tolist(), strict=True)
            ),
            "members": [
                {
                    "name": each.name,
                    "weight": each.weight,
                    "probabilities": dict(
                        zip(map(str, self.classes), each.probabilities.tolist(), strict=True)
                    ),
                    **({"terms": each.terms} if each.terms else {}),
                }
                for each in self.members
            ],
            "evidence": [
                {
                    "expert": each.expert,
                    "weight": each.weight,
                    "unit": each.unit,
                    "score": each.score,
                    "baseline": each.baseline,
                    "columns": [part._asdict() for part in each.columns],
                    "rows": [{**part._asdict(), "row": plain_row(part.row)} for part in each.rows],
                    "rest": each.rest,
                }
                for each in self.evidence
            ],
        }

    def __str__(self) -> str:
        place = self.classes.index(self.label)
        order = np.argsort(-self.probabilities, kind="stable")[:FEW_CELLS]
        lines = [", ".join(f"{self.classes[k]} {self.probabilities[k]:.3f}" for k in order), ""]
        width = max(len("expert"), *(len(each.name) for each in self.members))
        title = f"P({self.label})"
        lines.append(f"{'expert':{width}}  weight  {title}")
        for each in self.members:
            share = f"{each.probabilities[place]:.3f}"
            lines.append(f"{each.name:{width}}  {each.weight:6.3f}  {share:>{len(title)}}")
            if each.terms:
                terms = ", ".join(f"{name} {term:+.2f}" for name, term in each.terms.items())
                lines[-1] += f"  log odds {sum(each.terms.values()):+.2f}: {terms}"
        for found in self.evidence:
            lines += ["", heading(found)]
            lines += [f"  {part.contribution:+.3f}  {shown_column(part)}" for part in found.columns]
            lines += [
                f"  {part.contribution:+.3f}  {shown_label(part.label)}: {shown_row(part.row)}"
                for part in found.rows
            ]
            lines.append(f"  {found.rest:+.3f}  others")
        return "\n".join(lines)


def heading(found: Evidence) -> str:
    """Return the line above the contributions of an expert."""
    if found.expert.endswith("graph"):
        return f"{found.expert}, shares of labeled rows in the probabilities"
    what = "labeled rows" if found.rows else "columns"
    return f"{found.expert}, {what}: {found.unit} from {found.baseline:.3f} to {found.score:.3f}"


def shown_column(part: ColumnPart) -> str:
    """Return a column and its value as text."""
    if part.is_word:
        return f'{part.name} has "{part.value}"'
    return f"{part.name} = {shown_value(part.value, LONGEST)}"


def shown_label(label: Any) -> str:
    """Return a label as text."""
    return "label not kept" if label is None else str(label)


def shown_value(value: Any, longest: int) -> str:
    """Return a value as text on one line, shortened."""
    if value is None:
        return "(missing)"
    text = f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def shown_row(row: Any) -> str:
    """Return a labeled row as text, shortened."""
    if row is None:
        return "(not kept)"
    if isinstance(row, dict):
        cells = {name: value for name, value in row.items() if value is not None}
    elif sp.issparse(row):
        cells = dict(zip((f"x{place}" for place in row.indices), row.data.tolist(), strict=True))
    else:
        cells = {f"x{place}": value for place, value in enumerate(row.tolist())}
    longest = max(LONGEST, LONGEST_ROW // max(1, len(cells)))
    texts = [f"{name}={shown_value(value, longest)}" for name, value in cells.items()]
    more = f" and {len(texts) - FEW_CELLS} more" if len(texts) > FEW_CELLS else ""
    return (", ".join(texts[:FEW_CELLS]) or "(its cells are not stored)") + more


def plain_row(row: Any) -> Any:
    """Return a labeled row as plain values; a sparse one as values by column."""
    if sp.issparse(row):
        return dict(zip(map(str, row.indices.tolist()), row.data.tolist(), strict=True))
    return row.tolist() if isinstance(row, np.ndarray) else row


# -- how columns and rows are shown ----------------------------------------------------------------


class View(Protocol):
    """How the columns and the labeled rows are shown."""

    def columns(self, row: int, contributions: Points) -> list[ColumnPart]:
        """Return the columns of an explained row, by the contributions (1, p) of its features."""

    def rows(self, features: Points) -> list[Any]:
        """Return some labeled rows, given their features (r, p)."""


LearnedRows = tuple[Points, Callable[[int], Any]]
"""Features (n, p) of rows of the user, and a function that returns a row by its place."""


@dataclass(frozen=True)
class ArrayView:
    """Columns and rows as they are.

    Parameters
    ----------
    points : (m, p) the rows that are explained.
    names : (p,) the names of the columns; None for x0, x1, ...
    """

    points: Points
    names: Sequence[str] | None = None

    def columns(self, row: int, contributions: Points) -> list[ColumnPart]:
        places, values = nonzero(contributions)
        cells = self.points[[row]]
        cells = cells.toarray() if sp.issparse(cells) else cells
        return [
            ColumnPart(self.name(place), float(cells[0, place]), value)
            for place, value in zip(places.tolist(), values.tolist(), strict=True)
        ]

    def name(self, place: int) -> str:
        """Return the name of a column."""
        return f"x{place}" if self.names is None else str(self.names[place])

    def rows(self, features: Points) -> list[Any]:
        return (
            list(features)
            if not sp.issparse(features)
            else [features[[place]] for place in range(features.shape[0])]
        )


def nonzero(row: Points) -> tuple[Indices, Array]:
    """Return the places of the values of a row (1, p) that are not 0, and these values."""
    if sp.issparse(row):
        return row.indices[row.data != 0], row.data[row.data != 0]
    places = np.flatnonzero(row[0])
    return places, row[0, places]


# -- contributions of m rows -----------------------------------------------------------------------


class Contributions(NamedTuple):
    """Contributions to the votes of one expert at m rows.

    Attributes
    ----------
    expert, unit : see `Evidence`.
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


def of_linear(
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


def of_margin(
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
        return Contributions("margin", LOG_ODDS, *of_linear(linear, points, reference, gains))
    machine_gains = gains @ of_machines.T
    values = [kernel(points, each.points) * (machine_gains @ each.coefficients.T) for each in parts]
    supports = stacked([each.points for each in parts])

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


def of_graph(state: MixtureState, points: Points, codes: Indices) -> Contributions:
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


def of_expert(
    expert: Expert, points: Points, reference: Points, codes: Indices, gains: Array
) -> Contributions | None:
    """Return the contributions of columns to the votes of a refitted expert; None for other kinds.

    ``points`` (m, p) are not scaled, and ``gains`` (m, K) are those of `contrasts`.
    """
    if expert.fit is None or expert.fit.classifier is None:
        return None
    model, present = expert.fit.classifier.model, expert.fit.present
    if isinstance(model, ExtraTreesClassifier | RandomForestClassifier | DecisionTreeClassifier):
        baseline, columns = of_trees(getattr(model, "estimators_", [model]), points, present, codes)
        return Contributions(expert.name, PROBABILITY, baseline, columns)
    linear = linear_form(expert, points, gains.shape[1])
    if linear is None:
        return None
    return Contributions(expert.name, LOG_ODDS, *of_linear(linear, points, reference, gains))


def linear_form(expert: Expert, points: Points, n_classes: int) -> LinearExpert | None:
    """Return a refitted expert as linear scores whose softmax are its probabilities, if it is so.

    Whether it is so is tested at the rows.
    """
    assert expert.fit is not None
    assert expert.fit.classifier is not None
    model, present = expert.fit.classifier.model, expert.fit.present
    columns, mean, scale = np.arange(points.shape[1]), np.zeros(1), np.ones(1)
    if isinstance(model, StandardisedLogisticRegression):
        columns, mean, scale, model = model.columns_, model.mean_, model.scale_, model.model_
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
        columns,
        np.zeros((n_classes, columns.size)),
        np.zeros(n_classes),
        np.zeros(n_classes),
        0,
    )
    found.coef[present], found.intercept[present], found.fitted[present] = coef, intercept, 1.0
    probabilities = softmax(found.scores(points)[:, present], axis=1)
    same = (
        np.abs(probabilities - expert.fit.classifier.probabilities(points)).max(initial=0.0) <= SAME
    )
    return found if same else None


def of_trees(
    trees: Sequence[Any], points: Points, present: Indices, codes: Indices
) -> tuple[Array, Points]:
    """Return the probabilities (m,) at the roots, and what the columns change them by, (m, p).

    Every split on the path of a row changes the probability of the class (m,) of the row; the
    column of the split gets the change. The mean over the trees is taken. NaN for a row whose class
    the trees do not have.
    """
    rows, n_rows = in_single_precision(points), points.shape[0]
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
    total = sp.csr_array((changes / len(trees), (of_rows, columns)), shape=points.shape)
    return np.where(present[places] == codes, baseline / len(trees), np.nan), total


# -- explanations ----------------------------------------------------------------------------------


class Votes(NamedTuple):
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


def votes(state: MixtureState, points: Points, codes: Indices) -> Votes:
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
        sums = of_margin(state, scaled, at, gains * factors[0])
        found.append((in_core["margin"], sums))
    of_both = in_core["graph"] + weighted.get("graph", 0.0)
    if of_both > 0:
        found.append((of_both, of_graph(state, scaled, codes)))
    if in_core["linear"] > 0 and state.linear.fitted.any():
        linear = of_linear(state.linear, scaled, at, gains * factors[2])
        found.append((in_core["linear"], Contributions("linear", LOG_ODDS, *linear)))
    for expert in state.experts if state.has_pool else ():
        if weighted[expert.name] > 0:
            each = of_expert(expert, points, reference, codes, gains)
            found += [] if each is None else [(weighted[expert.name], each)]
    return Votes(names, weights, probabilities, terms, found, known[codes] & (known.sum() > 1))


def reference_row(labeled: Points) -> Array:
    """Return the row (p,) at which the baseline of linear votes is taken."""
    if sp.issparse(labeled) or not labeled.shape[0]:
        return np.zeros(labeled.shape[1])
    return np.asarray(labeled.mean(axis=0))


def explained(
    state: MixtureState,
    points: Points,
    codes: Indices,
    probabilities: Array,
    labels: Sequence[Any],
    n: int,
    view: View,
    learned: Iterable[LearnedRows] = (),
) -> list[Explanation]:
    """Return explanations of predictions.

    Parameters
    ----------
    state : state of the mixture, with at least two known classes.
    points : (m, p) rows.
    codes : (m,) their predicted classes.
    probabilities : (m, K) of all classes.
    labels : (K,) the classes.
    n : largest number of columns, of labeled rows for the class and of rows against it, per expert.
    view : how columns and rows are shown.
    learned : rows among which labeled rows are looked up; the others are shown by the view.
    """
    states = [("", 1.0, state)]
    if state.trial is not None:
        weight = state.trial.weight
        states = [("", 1.0 - weight, state.trial.state), ("new ", weight, state)]
    found = []
    listed = ListedRows(labels)
    for start in range(0, points.shape[0], AT_ONCE):
        part = slice(start, start + AT_ONCE)
        members: list[list[Member]] = [[] for _ in codes[part]]
        evidence: list[list[Evidence]] = [[] for _ in codes[part]]
        for prefix, weight, each in states:
            with one_thread():  # of 64 rows, other threads would cost more than they save
                said = votes(each, points[part], codes[part])
            for row in range(codes[part].size):
                members[row] += members_of(said, row, prefix, weight)
            for own, sums in said.contributions:
                summed(sums, said.telling, prefix, weight * own, n, view, start, listed, evidence)
        for row, code in enumerate(codes[part].tolist()):
            members[row].sort(key=lambda each: -each.weight)
            evidence[row].sort(key=lambda each: -each.weight)
            shares = probabilities[start + row]
            found.append(
                Explanation(
                    labels[code], tuple(labels), shares, tuple(members[row]), tuple(evidence[row])
                )
            )
    return listed.shown(found, view, learned)


def members_of(said: Votes, row: int, prefix: str, weight: float) -> list[Member]:
    """Return the members of a state of some weight, with their votes for a row."""
    terms = {name: float(each[row]) for name, each in said.terms.items() if said.telling[row]}
    return [
        Member(
            prefix + name,
            weight * float(said.weights[place]),
            said.probabilities[row, place],
            terms if name == "core" else {},
        )
        for place, name in enumerate(said.names)
        if weight * said.weights[place] > 0
    ]


def summed(
    sums: Contributions,
    telling: Mask,
    prefix: str,
    weight: float,
    n: int,
    view: View,
    start: int,
    listed: ListedRows,
    evidence: list[list[Evidence]],
) -> None:
    """Add the largest contributions to an expert's votes to the evidence of every row.

    ``start`` is the number of the first row.
    """
    largest = [] if sums.rows is None else [most(each, n) for each in sums.rows.contributions]
    places = listed.add(sums.rows, largest)
    for row in np.flatnonzero(telling & np.isfinite(sums.baseline)).tolist():
        columns: list[ColumnPart] = []
        rows: list[RowPart] = []
        total = 0.0
        if sums.columns is not None:
            columns = view.columns(start + row, sums.columns[[row]])
            total = sum(part.contribution for part in columns)
            columns = sorted(columns, key=lambda each: -abs(each.contribution))[:n]
        elif sums.rows is not None:
            values = sums.rows.contributions[row]
            total = float(values.sum())
            rows = [RowPart(*places[place], float(values[place])) for place in largest[row]]
        shown = sum(each.contribution for each in columns) + sum(each.contribution for each in rows)
        baseline = float(sums.baseline[row])
        evidence[row].append(
            Evidence(
                prefix + sums.expert, weight, sums.unit, baseline + total, baseline, tuple(columns),
                tuple(rows), total - shown,
            )
        )  # fmt: skip


def most(values: Array, n: int) -> list[int]:
    """Return the places of the n largest positive values, then of the n smallest negative ones."""
    order = np.argsort(-values, kind="stable")
    positive, negative = order[values[order] > 0], order[values[order] < 0]
    return [*positive[:n].tolist(), *negative[::-1][:n].tolist()]


class ListedRows:
    """The labeled rows of explanations, which are shown together at the end.

    Until then, the row of a `RowPart` is its number here; None if it is not kept.
    """

    def __init__(self, labels: Sequence[Any]) -> None:
        self.labels = labels
        self.features: list[Points] = []

    def add(
        self, rows: OfRows | None, largest: list[list[int]]
    ) -> dict[int, tuple[Any, int | None]]:
        """Return the labels and the numbers here of the rows at some places."""
        places = sorted({place for each in largest for place in each})
        if rows is None or not places:
            return {}
        found: dict[int, tuple[Any, int | None]] = {}
        for place, (row, code) in zip(places, rows.kept(np.array(places)), strict=True):
            number = None if row is None else len(self.features)
            self.features += [] if row is None else [row]
            found[place] = (self.labels[code] if code >= 0 else None, number)
        return found

    def shown(
        self, explanations: list[Explanation], view: View, learned: Iterable[LearnedRows]
    ) -> list[Explanation]:
        """Return explanations with their rows as they were learned, or as the view shows them."""
        if not self.features:
            return explanations
        features = stacked(self.features)
        rows, wanted = view.rows(features), defaultdict(list)
        for number, key in enumerate(row_keys(features)):
            wanted[key].append(number)
        for found, row_at in learned:
            for place, key in enumerate(row_keys(found)):
                for number in wanted.pop(key, ()):
                    rows[number] = row_at(place)
            if not wanted:
                break

        def with_rows(found: Evidence) -> Evidence:
            parts = (
                part if part.row is None else part._replace(row=rows[part.row])
                for part in found.rows
            )
            return replace(found, rows=tuple(parts))

        return [
            replace(each, evidence=tuple(map(with_rows, each.evidence))) for each in explanations
        ]


def stacked(rows: Sequence[Points]) -> Points:
    """Return rows below each other, as CSR if they are CSR."""
    if sp.issparse(rows[0]):
        return sp.csr_array(sp.vstack(rows, format="csr"))
    return np.vstack(rows)
