"""New starts of the experts, after a change of the concept or of the scales of the columns.

The margin expert begins again with kept rows as its first batch, so that its kernel is measured
again. The kept rows of the graph stay.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seqmed.classes import UNLABELED
from seqmed.graph import propagation
from seqmed.graph.propagation import GraphInfo
from seqmed.margin import margin_state
from seqmed.margin.margin_state import MarginState
from seqmed.margin.update import UpdateInfo
from seqmed.mixture import column_scales, experts
from seqmed.mixture.change import Change
from seqmed.mixture.column_scales import MEASURED
from seqmed.mixture.experts import RecentRows, RefittedExpert
from seqmed.mixture.mixture_state import MixtureParameters, MixtureState, measured_scales_of
from seqmed.mixture.record import RECORD
from seqmed.numeric.arrays import Array, Points, found_among, no_indices, stack
from seqmed.rows import Rows


def restarted(
    state: MixtureState, change: Change, parameters: MixtureParameters
) -> tuple[MixtureState, GraphInfo]:
    """Return the state after a change of the concept; labels before it are forgotten."""
    counts, recent = state.counts, state.recent
    valid = recent.valid_after(change)
    n_probes = state.probes.shape[0]
    rows = Rows(
        points=stack(recent.points, state.probes),
        codes=np.append(np.where(valid, recent.codes, UNLABELED), np.full(n_probes, UNLABELED)),
        weights=np.append(recent.weights, np.ones(n_probes)),
    )
    margin, margin_info = learned_anew(state, rows, parameters)
    recent = recent.take(valid)
    known = np.bincount(recent.codes, minlength=counts.size) > 0
    graph = propagation.without_labels(state.graph, known)
    stored = graph.rows.metric.store(recent.points)
    graph, info = propagation.learn_graph(graph, stored, recent.codes, recent.weights, late=True)
    state = state._replace(
        graph=graph,
        margin=margin,
        margin_info=margin_info,
        refitted=refitted_now(state, recent, balanced=not parameters.class_prior),
        counts=counts.discount(0.0, recent.codes, recent.weights),
        record=state.record.newest(change.n_labels),
        recent=recent,
        n_searched=RECORD,
    )
    return state._replace(score_scales=measured_scales_of(state, no_indices())), info


def remeasuring_is_due(state: MixtureState, points: Points) -> bool:
    """Whether the scales are to be measured again after a batch of scaled rows.

    They are if the number of rows has doubled. They are also if a column that was constant, or
    smaller by far, would now determine the distances.
    """
    if not state.column_scale.size or state.n_rows == state.n_measured:
        return False
    if state.n_rows >= 2 * state.n_measured:
        return True
    is_scaled = bool((state.column_scale != 1.0).any())
    return is_scaled and column_scales.any_too_large(points, propagation.centre(state.graph))


def remeasured(
    state: MixtureState, info: GraphInfo, parameters: MixtureParameters
) -> tuple[MixtureState, GraphInfo]:
    """Return the state with the scales of the columns measured again on the kept rows."""
    state = state._replace(n_measured=state.n_rows)
    if not state.column_scale.size:
        return state, info
    kept = propagation.kept_points(
        state.graph, column_scales.every_nth(state.graph.rows.size, MEASURED)
    )
    scale = column_scales.measured_column_scales(kept * state.column_scale, state.column_scale)
    if (scale == state.column_scale).all():
        return state, info
    return rescaled(state, scale, parameters)


def rescaled(
    state: MixtureState, scale: Array, parameters: MixtureParameters
) -> tuple[MixtureState, GraphInfo]:
    """Return the state with other scales of the columns."""
    factors = state.column_scale / scale
    graph = propagation.rescaled_graph(state.graph, factors)
    graph, info = propagation.solved(graph, no_indices(), labels_changed=True)
    recent = replace(state.recent, points=state.recent.points * factors)
    margin, margin_info = learned_anew(state, kept_rows(state, factors), parameters)
    state = state._replace(
        graph=graph,
        margin=margin,
        margin_info=margin_info,
        refitted=refitted_now(state, recent, balanced=not parameters.class_prior),
        probes=state.probes * factors,
        recent=recent,
        column_scale=scale,
    )
    return state._replace(score_scales=measured_scales_of(state, no_indices())), info


def kept_rows(state: MixtureState, factors: Array) -> Rows:
    """Return the kept rows from which the margin expert can learned, columns times ``factors``.

    These are the rows of its window, which are exact, and some other labeled and unlabeled rows of
    the graph, which have single precision.
    """
    window, graph = state.margin.posterior.window, state.graph
    in_window = graph.rows.metric.store(window.points).rows
    stored = graph.rows.take(np.arange(graph.rows.size)).rows
    older = np.flatnonzero((graph.codes >= 0) & ~found_among(stored, in_window))
    older = older[column_scales.every_nth(older.size, MEASURED)]
    unlabeled = np.flatnonzero(graph.codes < 0)
    unlabeled = unlabeled[column_scales.every_nth(unlabeled.size, MEASURED)]
    points = (
        propagation.kept_points(graph, older),
        window.points,
        propagation.kept_points(graph, unlabeled),
    )
    codes = (
        graph.codes[older],
        state.margin.counts.own_classes(window.signs),
        np.full(unlabeled.size, UNLABELED),
    )
    weights = (graph.label_weights[older], window.discounted, np.ones(unlabeled.size))
    return Rows(np.vstack(points) * factors, np.concatenate(codes), np.concatenate(weights))


def learned_anew(
    state: MixtureState, rows: Rows, parameters: MixtureParameters
) -> tuple[MarginState, UpdateInfo]:
    """Return the margin expert after these rows alone, and its report."""
    margin = margin_state.begin(parameters.margin, rows, state.margin_seed, calibrated=False)
    margin = margin_state.with_classes(margin, no_indices(), state.counts.declared)
    return margin_state.learn(margin, rows, parameters.margin, new_points=True)


def refitted_now(
    state: MixtureState, recent: RecentRows, *, balanced: bool
) -> tuple[RefittedExpert, ...]:
    """Return the refitted experts, fitted on other labeled rows.

    ``balanced`` is whether all classes have the same total weight.
    """
    return tuple(
        experts.fitted(expert, recent, state.class_weights, balanced=balanced)
        for expert in state.refitted
    )
