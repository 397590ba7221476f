"""One update of the mixture: margin expert, graph expert, refitted experts, and their weights.

A batch is learned in mini-batches, each in this order:

1. all experts score its labeled rows, and the scores enter the record;
2. some of its rows enter the graph, which is solved again; the margin expert learns its labels;
   refitted experts are fitted again if enough labels are new;
3. all experts score the last unlabeled rows again, to measure the scales of their scores.

After the last mini-batch the record chooses how the scores are mixed. If it shows a change of the
concept, all experts start again from the labels since then (`seqmed.mixture.restart`). The state
without the new start also learns the next batches. If it predicts them better, the new start is
revoked (`seqmed.mixture.change`). If the scales of the columns have changed, all experts start
again from the kept rows. Nothing is changed in place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmed.classes import UNLABELED
from seqmed.graph import propagation
from seqmed.graph.graph_state import GraphState, choose_entering
from seqmed.graph.propagation import GraphInfo
from seqmed.margin import margin_state
from seqmed.margin.margin_state import MarginState
from seqmed.margin.update import UpdateInfo
from seqmed.mixture import experts, weighting
from seqmed.mixture.change import Change, compare, find_change
from seqmed.mixture.mixture_state import (
    PROBES,
    MixtureInfo,
    MixtureParameters,
    MixtureState,
    Trial,
    expert_scores,
    left_out_scores,
    measured_scales_of,
    with_classes,
)
from seqmed.mixture.record import RECORD, ScoreRecord
from seqmed.mixture.restart import refitted_now, remeasured, remeasuring_is_due, restarted
from seqmed.numeric.arrays import (
    Array,
    Indices,
    Mask,
    Points,
    found_among,
    no_indices,
    stack,
    take_rows,
)
from seqmed.numeric.threads import one_thread
from seqmed.rows import Rows


def learn(
    state: MixtureState,
    rows: Rows,
    parameters: MixtureParameters,
    *,
    new_points: bool,
    new_batch: bool,
) -> tuple[MixtureState, MixtureInfo]:
    """Learn a batch, or labels that come late if its points are not new.

    ``new_batch`` is False for a part of a larger batch, which is not counted as a batch.
    """
    trial, kind = state.trial, {"new_points": new_points, "new_batch": new_batch}
    state, report = learn_batch(state._replace(trial=None), rows, parameters, **kind)
    change = None
    if parameters.restarts and new_points:  # late labels may be older than a change
        change = find_change(wrong_in(state, RECORD), state.n_searched)
    if change is not None:
        started, report = started_again(state, change, report, parameters)
        return started._replace(trial=Trial(state, 0)), report
    state, report = with_scales(state, rows.points, report, parameters)
    if trial is None:
        return state, report
    before, report_before = learn_batch(trial.state, rows, parameters, **kind)
    n_labels = trial.n_labels + int(np.count_nonzero(rows.labeled))
    size = min(n_labels, state.record.size, before.record.size)
    kept = compare(wrong_in(state, size), wrong_in(before, size), n_labels)
    if kept:
        return state, report
    before, report_before = with_scales(before, rows.points, report_before, parameters)
    if kept is None:
        return state._replace(trial=Trial(before, n_labels)), report
    return before._replace(n_searched=0), report_before._replace(revoked=True)


def learn_batch(
    state: MixtureState,
    rows: Rows,
    parameters: MixtureParameters,
    *,
    new_points: bool,
    new_batch: bool,
) -> tuple[MixtureState, MixtureInfo]:
    """Learn a batch as in `learn`, without any new start."""
    rows = rows._replace(points=state.scaled(rows.points))
    forgetting = parameters.forgetting if new_batch and state.n_batches else 1.0
    # labels are discounted by batches with labels only, as in the margin expert
    n_labels = int(np.count_nonzero(rows.labeled))
    of_labels = forgetting if n_labels else 1.0
    state = state._replace(
        graph=state.graph.forget(forgetting, new_labels=bool(n_labels)),
        record=state.record.forget(of_labels),
        counts=state.counts.discount(of_labels, no_indices(), np.zeros(0)),
        n_rows=state.n_rows + (rows.weights.size if new_points else 0),
        n_batches=state.n_batches + new_batch,
        n_searched=min(RECORD, state.n_searched + n_labels),
    )
    cuts = mini_batches(rows.labeled, float(state.counts.counts.sum()))
    info, first = None, new_batch and new_points
    with one_thread():
        for cut in cuts:
            state, info = learn_mini_batch(
                state, rows, cut, parameters, first=first, new_points=new_points
            )
            first = False
    assert info is not None
    return with_choice(state, parameters, info, len(cuts))


def mini_batches(labeled: Mask, n_labels: float) -> list[slice]:
    """Divide a batch into mini-batches, so that even a single large batch gives a record.

    A mini-batch ends after max(4, a quarter of the labels so far) labeled rows.

    Parameters
    ----------
    labeled : (m,) mask of the labeled rows of the batch.
    n_labels : labels learned before it.
    """
    ends, since, total = [], 0, n_labels
    for row in np.flatnonzero(labeled).tolist():
        since += 1
        if since >= max(4, total / 4):
            ends.append(row + 1)
            total += since
            since = 0
    if ends and since == 0:
        ends[-1] = labeled.size
    else:
        ends.append(labeled.size)
    return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def learn_mini_batch(
    state: MixtureState,
    rows: Rows,
    cut: slice,
    parameters: MixtureParameters,
    *,
    first: bool,
    new_points: bool,
) -> tuple[MixtureState, GraphInfo]:
    """Learn the rows ``cut`` of a batch.

    ``first`` is whether it is the first mini-batch of new points.
    """
    part = rows.take(np.arange(cut.start, cut.stop))
    labeled = np.flatnonzero(part.labeled)
    codes, weights = part.codes[labeled], part.weights[labeled]
    labeled_points = take_rows(part.points, labeled)
    counts = state.counts.add(codes, weights).discount(1.0, codes, weights)
    state = state._replace(counts=counts)
    record = recorded(state, labeled_points, codes, weights, late=not new_points)
    graph, slots, graph_info = learned_graph(state.graph, part, new_points=new_points)
    margin, margin_info = learned_margin(state, rows, cut, parameters, first=first)
    recent = state.recent.add(labeled_points, codes, weights)
    class_weights = counts.class_weights(parameters.class_weights)
    unlabeled = np.flatnonzero(~part.labeled)[-PROBES:]
    state = state._replace(
        graph=graph,
        margin=margin,
        margin_info=margin_info,
        refitted=tuple(
            experts.learned(
                expert,
                recent,
                codes.size,
                class_weights,
                used=weight > 0,
                balanced=not parameters.class_prior,
            )
            for expert, weight in zip(state.refitted, state.choice.refitted, strict=True)
        ),
        record=record,
        class_weights=class_weights,
        probes=stack(state.probes, take_rows(part.points, unlabeled))[-PROBES:],
        recent=recent,
    )
    return state._replace(score_scales=measured_scales_of(state, slots[unlabeled])), graph_info


def learned_graph(
    graph: GraphState, part: Rows, *, new_points: bool
) -> tuple[GraphState, Indices, GraphInfo]:
    """Return the graph after a mini-batch, and the slots of its rows, -1 for rows not kept."""
    slots = np.full(part.codes.size, -1)
    stored = graph.rows.metric.store(part.points)
    label_weights = np.where(part.labeled, part.weights, 0.0)
    entering = None
    if new_points:
        entering = choose_entering(graph, part.codes)
        slots[entering.rows] = entering.slots
    graph, info = propagation.learn_graph(
        graph, stored, part.codes, label_weights, late=not new_points, entering=entering
    )
    return graph, slots, info


def learned_margin(
    state: MixtureState, rows: Rows, cut: slice, parameters: MixtureParameters, *, first: bool
) -> tuple[MarginState, UpdateInfo | None]:
    """Return the margin expert after a mini-batch, and the report of its last update.

    The first mini-batch has all rows of its batch, so that the batch has one graph. The labels of
    later ones are learned as late labels; `lag` and `forgetting` count whole batches.
    """
    codes = np.full(rows.codes.size, UNLABELED)
    codes[cut] = rows.codes[cut]
    if not first and not (codes >= 0).any():
        return state.margin, state.margin_info
    rows = rows._replace(codes=codes)
    return margin_state.learn(state.margin, rows, parameters.margin, new_points=first)


def recorded(
    state: MixtureState, points: Points, codes: Indices, weights: Array, *, late: bool
) -> ScoreRecord:
    """Return the record with the scores of labeled rows by all experts before learning.

    ``late`` is whether the rows may already be kept as unlabeled rows.
    """
    known = state.score_scales.known
    usable = known[codes] if known.sum() > 1 else np.zeros(codes.size, dtype=bool)
    if not usable.any():
        return state.record
    points, codes, weights = take_rows(points, usable), codes[usable], weights[usable]
    scores = left_out_scores(state, points, no_indices()) if late else expert_scores(state, points)
    finite = scores.finite
    return state.record.add(scores.take(finite), state.score_scales, codes[finite], weights[finite])


def started_again(
    state: MixtureState, change: Change, report: MixtureInfo, parameters: MixtureParameters
) -> tuple[MixtureState, MixtureInfo]:
    """Return the state after a change of the concept, with scales measured again."""
    with one_thread():
        state, info = restarted(state, change, parameters)
        state, info = remeasured(state, info, parameters)
    state, report = with_choice(state, parameters, info, report.n_mini_batches)
    return state, report._replace(change=change)


def with_scales(
    state: MixtureState, points: Points, report: MixtureInfo, parameters: MixtureParameters
) -> tuple[MixtureState, MixtureInfo]:
    """Return the state after a batch ``points``, with scales measured again if they are due."""
    if not remeasuring_is_due(state, state.scaled(points)):
        return state, report
    with one_thread():
        state, info = remeasured(state, report.graph, parameters)
    if info is report.graph:
        return state, report
    return with_choice(state, parameters, info, report.n_mini_batches)


def wrong_in(state: MixtureState, n: int) -> Mask:
    """Return which of the newest ``n`` rows of the record the mixture predicts wrongly."""
    wrong = weighting.wrong(state.record, state.choice, state.by_counts)
    return wrong[max(0, wrong.size - n) :]


def with_choice(
    state: MixtureState, parameters: MixtureParameters, info: GraphInfo, n_mini_batches: int
) -> tuple[MixtureState, MixtureInfo]:
    """Return the state with the weight chosen by its record, and the report of the update."""
    choice = weighting.choose(
        state.record, state.by_counts, parameters.weight, parameters.class_prior
    )
    size = state.record.size
    report = MixtureInfo(
        info, n_mini_batches, size, choice.weight, choice.temperature, choice.refitted
    )
    return state._replace(choice=choice), report


class MixtureRetraction(NamedTuple):
    """The outcome of a retraction of labels.

    Attributes
    ----------
    state, info : the state without the labels, and its report.
    kept : (K,) mask of the classes that are kept.
    """

    state: MixtureState
    info: MixtureInfo
    kept: Mask


def retract(
    state: MixtureState, points: Points, codes: Indices | None, parameters: MixtureParameters
) -> MixtureRetraction:
    """Retract the labels of some rows; the rows stay as unlabeled ones, the record stays.

    ``codes`` (n,) are the classes of the labels, None for whatever labels the rows have. The trial
    of a new start ends, and the new start stays.
    """
    found = margin_state.find_labels(state.margin, points, codes, parameters.margin)
    retracted = state.margin.posterior.window.take(found)
    codes = state.margin.counts.own_classes(retracted.signs)
    stored = state.graph.rows.metric.store(retracted.points)
    with one_thread():
        retraction = propagation.retract_from_graph(state.graph, stored, codes)
    # labels of rows that are no longer kept have the mean discount of their class
    means = state.counts.discounted[codes] / state.counts.weights[codes]
    discounted = np.where(retraction.found, retraction.label_weights, means * retracted.weights)
    recent = state.recent.take(~found_among(state.recent.points, retracted.points))
    counts = state.counts.remove(codes, retracted.weights, discounted)
    kept = counts.kept
    margin, margin_info, _ = margin_state.retract(state.margin, found, parameters.margin, kept)
    state = state._replace(
        graph=retraction.state,
        counts=counts,
        margin_info=margin_info,
        recent=recent,
        refitted=refitted_now(state, recent, balanced=not parameters.class_prior),
        trial=None,
    )
    places = np.where(kept, np.cumsum(kept) - 1, -1)
    state = with_classes(state, places, counts.declared[kept], margin)
    state = state._replace(score_scales=measured_scales_of(state, no_indices()))
    state, report = with_choice(state, parameters, retraction.info, 0)
    return MixtureRetraction(state, report, kept)
