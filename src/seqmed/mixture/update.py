"""One update of the mixture: margin expert, graph expert, refitted experts, and their weights.

A batch is learned in mini-batches (`seqmed.mixture.mini_batches`), each in this order:

1. all experts score its labeled rows, and the scores enter the record;
2. some of its rows enter the graph, which is solved again; the margin expert learns its labels;
   refitted experts are fitted again if enough labels are new;
3. all experts score the last unlabeled rows again, to measure the scales of their scores.

After the last mini-batch the record chooses how the scores are mixed. If it shows a change of the
concept, all experts start again from the labels since then (`seqmed.mixture.restart`). The state
without the new start also learns the next batches. If it predicts them better, the new start is
revoked (`seqmed.mixture.trial`). If the scales of the columns have changed, all experts start again
from the kept rows. Nothing is changed in place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from seqmed.arrays import (
    Indices,
    Mask,
    Points,
    found_among,
    no_indices,
    stack,
    take_rows,
)
from seqmed.batch import Rows
from seqmed.classes import find
from seqmed.graph import propagation
from seqmed.graph.graph_state import UNLABELED, GraphState
from seqmed.graph.propagation import GraphInfo
from seqmed.graph.reservoir import choose_entering
from seqmed.mixture import refitted, weighting
from seqmed.mixture.change import Change, find_change
from seqmed.mixture.mini_batches import MiniBatch, mini_batches
from seqmed.mixture.record import RECORD, ScoreRecord
from seqmed.mixture.restart import refitted_now, remeasured, remeasuring_is_due, restarted
from seqmed.mixture.state import (
    PROBES,
    MixtureInfo,
    MixtureState,
    Trial,
    expert_scores,
    left_out_scores,
    measured_scales_of,
    with_classes,
)
from seqmed.mixture.trial import compare
from seqmed.threads import one_thread


class MixtureSettings(NamedTuple):
    """Parameters of one update of the mixture.

    Attributes
    ----------
    weight : weight of the graph if it is fixed; None to choose it by evidence.
    class_prior : whether class priors may be used.
    forgetting : factor per batch, in (0, 1].
    restarts : whether the experts start again after a change of the concept.
    class_weight : parameter ``class_weight`` of `SeqGraphMED`.
    """

    weight: float | None
    class_prior: bool
    forgetting: float
    restarts: bool
    class_weight: Any


def learn(
    state: MixtureState,
    rows: Rows,
    settings: MixtureSettings,
    *,
    new_points: bool,
    new_batch: bool,
) -> tuple[MixtureState, MixtureInfo]:
    """Learn a batch, or labels that come late if its points are not new.

    ``new_batch`` is False for a part of a larger batch, which is not counted as a batch.
    """
    trial, kind = state.trial, {"new_points": new_points, "new_batch": new_batch}
    state, report = learn_batch(state._replace(trial=None), rows, settings, **kind)
    change = None
    if settings.restarts and new_points:  # late labels may be older than a change
        change = find_change(wrong_in(state, RECORD), state.n_searched)
    if change is not None:
        started, report = started_again(state, change, report, settings)
        return started._replace(trial=Trial(state, 0)), report
    state, report = with_scales(state, rows.points, report, settings)
    if trial is None:
        return state, report
    before, report_before = learn_batch(trial.state, rows, settings, **kind)
    n_labels = trial.n_labels + int(rows.labeled.sum())
    size = min(n_labels, state.record.size, before.record.size)
    kept = compare(wrong_in(state, size), wrong_in(before, size), n_labels)
    if kept:
        return state, report
    before, report_before = with_scales(before, rows.points, report_before, settings)
    if kept is None:
        return state._replace(trial=Trial(before, n_labels)), report
    return before._replace(n_searched=0), report_before._replace(revoked=True)


def learn_batch(
    state: MixtureState,
    rows: Rows,
    settings: MixtureSettings,
    *,
    new_points: bool,
    new_batch: bool,
) -> tuple[MixtureState, MixtureInfo]:
    """Learn a batch as in `learn`, without any new start."""
    rows = rows._replace(points=state.scaled(rows.points))
    forgetting = settings.forgetting if new_batch and state.n_batches else 1.0
    # labels are discounted by batches with labels only, as in the margin expert
    of_labels = forgetting if rows.labeled.any() else 1.0
    state = state._replace(
        graph=state.graph.forget(forgetting, new_labels=bool(rows.labeled.any())),
        record=state.record.forget(of_labels),
        n_rows=state.n_rows + (rows.weights.size if new_points else 0),
        n_batches=state.n_batches + new_batch,
        n_searched=min(RECORD, state.n_searched + int(rows.labeled.sum())),
    )
    registry = state.registry.discount(of_labels, no_indices(), np.zeros(0)).declare(rows.declared)
    state = with_classes(state, registry)
    cuts = mini_batches(rows.labeled, float(state.registry.counts.sum()))
    info = None
    with one_thread():
        for number, cut in enumerate(cuts):
            part = np.zeros(rows.weights.size, dtype=bool)
            part[cut] = True
            mini_batch = MiniBatch(
                rows, part, number == 0 and new_batch, new_points, state.registry
            )
            state, info = learn_mini_batch(state, mini_batch, settings)
    assert info is not None
    return with_choice(state, settings, info, len(cuts))


def started_again(
    state: MixtureState, change: Change, report: MixtureInfo, settings: MixtureSettings
) -> tuple[MixtureState, MixtureInfo]:
    """Return the state after a change of the concept, with scales measured again."""
    balanced = not settings.class_prior
    with one_thread():
        state, info = restarted(state, change, balanced=balanced)
        state, info = remeasured(state, info, balanced=balanced)
    state, report = with_choice(state, settings, info, report.n_mini_batches)
    return state, report._replace(change=change)


def with_scales(
    state: MixtureState, points: Points, report: MixtureInfo, settings: MixtureSettings
) -> tuple[MixtureState, MixtureInfo]:
    """Return the state after a batch ``points``, with scales measured again if they are due."""
    if not remeasuring_is_due(state, state.scaled(points)):
        return state, report
    with one_thread():
        state, info = remeasured(state, report.graph, balanced=not settings.class_prior)
    if info is report.graph:
        return state, report
    return with_choice(state, settings, info, report.n_mini_batches)


def wrong_in(state: MixtureState, n: int) -> Mask:
    """Return which of the newest ``n`` rows of the record the mixture predicts wrongly."""
    wrong = weighting.wrong(state.record, state.choice, state.margin.by_counts)
    return wrong[max(0, wrong.size - n) :]


def with_choice(
    state: MixtureState, settings: MixtureSettings, info: GraphInfo, n_mini_batches: int
) -> tuple[MixtureState, MixtureInfo]:
    """Return the state with the weight chosen by its record, and the report of the update."""
    choice = weighting.choose(
        state.record, state.margin.by_counts, settings.weight, settings.class_prior
    )
    size = state.record.size
    report = MixtureInfo(
        info, n_mini_batches, size, choice.weight, choice.temperature, choice.refitted
    )
    return state._replace(choice=choice), report


def learn_mini_batch(
    state: MixtureState, mini_batch: MiniBatch, settings: MixtureSettings
) -> tuple[MixtureState, GraphInfo]:
    """Learn one mini-batch."""
    rows = mini_batch.rows
    labeled = np.flatnonzero(rows.labeled & mini_batch.part)
    labels, weights = rows.labels[mini_batch.part[rows.labeled]], rows.weights[labeled]
    registry = state.registry.add(labels, weights)
    codes = registry.find(labels)
    registry = registry.discount(1.0, codes, weights)
    state = with_classes(state, registry)
    record = recorded(state, rows, labeled, codes, late=not mini_batch.new_points)

    all_codes = np.full(rows.weights.size, UNLABELED)
    all_codes[labeled] = codes
    graph, slots, info = learned_graph(state.graph, mini_batch, all_codes)
    recent = state.recent.add(take_rows(rows.points, labeled), codes, weights)
    given = settings.class_weight if isinstance(settings.class_weight, dict) else None
    class_weights = registry.class_weights(given)
    unlabeled = np.flatnonzero(mini_batch.part & (all_codes < 0))[-PROBES:]
    state = state._replace(
        graph=graph,
        margin=state.margin.learn(mini_batch._replace(registry=registry)),
        refitted=tuple(
            refitted.learn(
                expert,
                recent,
                codes.size,
                class_weights,
                used=weight > 0,
                balanced=not settings.class_prior,
            )
            for expert, weight in zip(state.refitted, state.choice.refitted, strict=True)
        ),
        record=record,
        class_weights=class_weights,
        probes=stack(state.probes, take_rows(rows.points, unlabeled))[-PROBES:],
        recent=recent,
    )
    return state._replace(score_scales=measured_scales_of(state, slots[unlabeled])), info


def learned_graph(
    graph: GraphState, mini_batch: MiniBatch, codes: Indices
) -> tuple[GraphState, Indices, GraphInfo]:
    """Return the graph after a mini-batch, and the slots (n,) of the rows of its batch.

    ``codes`` (n,) are the classes of all rows of the batch, -1 for unlabeled rows. The slot of a
    row that is not kept is -1.
    """
    rows, chosen = mini_batch.rows, np.flatnonzero(mini_batch.part)
    slots, codes = np.full(rows.weights.size, -1), codes[chosen]
    stored = graph.rows.metric.store(take_rows(rows.points, chosen))
    label_weights = np.where(codes >= 0, rows.weights[chosen], 0.0)
    entering = None
    if mini_batch.new_points:
        entering = choose_entering(graph, codes)
        slots[chosen[entering.rows]] = entering.slots
    late = not mini_batch.new_points
    graph, info = propagation.learn(
        graph, stored, codes, label_weights, late=late, entering=entering
    )
    return graph, slots, info


def recorded(
    state: MixtureState, rows: Rows, labeled: Indices, codes: Indices, *, late: bool
) -> ScoreRecord:
    """Return the record with the scores of labeled rows by all experts before learning.

    ``late`` is whether the rows may already be kept as unlabeled rows.
    """
    known = state.score_scales.known
    usable = known[codes] if known.sum() > 1 else np.zeros(codes.size, dtype=bool)
    if not usable.any():
        return state.record
    points = take_rows(rows.points, labeled[usable])
    scores = left_out_scores(state, points, no_indices()) if late else expert_scores(state, points)
    finite = scores.finite
    scores = scores.take(finite)
    weights = rows.weights[labeled[usable]]
    return state.record.add(scores, state.score_scales, codes[usable][finite], weights[finite])


def retract(
    state: MixtureState, points: Points, codes: Any, settings: MixtureSettings
) -> tuple[MixtureState, MixtureInfo]:
    """Retract the labels of some rows; the rows stay as unlabeled ones, the record stays.

    ``codes`` (n,) are the classes of the labels, None for whatever labels the rows have. The trial
    of a new start ends, and the new start stays.
    """
    state = state._replace(trial=None)
    margin, retracted = state.margin.retract(points, codes)
    codes = state.registry.find(retracted.labels)
    graph = state.graph
    stored = graph.rows.metric.store(retracted.points)
    with one_thread():
        retraction = propagation.retract(graph, stored, codes)
    # labels of rows that are no longer kept have the mean discount of their class
    means = state.registry.discounted[codes] / state.registry.weights[codes]
    discounted = np.where(retraction.found, retraction.label_weights, means * retracted.weights)
    recent = state.recent
    recent = recent.take(~found_among(recent.points, retracted.points))
    others = refitted_now(state, recent, balanced=not settings.class_prior)
    state = state._replace(recent=recent, refitted=others)
    declared = find(state.registry.classes, retracted.declared) >= 0
    registry = replace(state.registry, declared=declared)
    registry = registry.remove(codes, retracted.weights, discounted)
    state = with_classes(state._replace(graph=retraction.state, margin=margin), registry)
    state = state._replace(score_scales=measured_scales_of(state, no_indices()))
    return with_choice(state, settings, retraction.info, 0)
