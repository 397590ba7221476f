"""One update of the mixture: margin expert, graph expert, refitted experts, and their weights.

A batch is learned in mini-batches, each in this order:

1. all experts score its labeled rows, and the scores enter the record;
2. some of its rows enter the graph, which is solved again; the margin expert learns its labels;
   refitted experts are fitted again if enough labels are new;
3. all experts score the last unlabeled rows again, to measure the scales of their scores.

After the last mini-batch the record chooses how the scores are mixed. If it shows a change of the
concept, all experts start again from the labels since then. The state without the new start also
learns the next batches. If it predicts them better, the new start is revoked
(`seqmed.mixture.change`). If the scales of the columns have changed, all experts start again from
the kept rows. In both cases the margin expert begins again with kept rows as its first batch, so
that its kernel is measured again, and the kept rows of the graph stay. Nothing is changed in place.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seqmed.classes import UNLABELED, Rows
from seqmed.graph import propagation
from seqmed.graph.propagation import GraphInfo
from seqmed.margin import margin_state
from seqmed.margin.margin_state import MarginState
from seqmed.margin.update import UpdateInfo
from seqmed.mixture import column_scales, experts
from seqmed.mixture.change import RECORD, Change, compare, find_change
from seqmed.mixture.column_scales import MEASURED
from seqmed.mixture.experts import RefittedExpert
from seqmed.mixture.mixture_state import (
    MixtureInfo,
    MixtureParameters,
    MixtureState,
    Trial,
    with_classes,
)
from seqmed.mixture.record import PROBES, choose, measured_scales_of, recorded, wrong_rows
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
from seqmed.numeric.execution import one_thread


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
    scaled = rows._replace(points=state.scaled(rows.points))
    state, report = learn_batch(state._replace(trial=None), scaled, parameters, **kind)
    wrong, change = wrong_rows(state), None
    if parameters.restarts and new_points:  # late labels may be older than a change
        change = find_change(wrong, state.n_searched)
    if change is not None:
        started, info = restarted(state, change, parameters)
        started, report = with_choice(started, parameters, info, report.n_mini_batches)
        return started._replace(trial=Trial(state, 0)), report._replace(change=change)
    state, report = with_scales(state, scaled.points, report, parameters)
    if trial is None:
        return state, report
    scaled = rows._replace(points=trial.state.scaled(rows.points))
    before, report_before = learn_batch(trial.state, scaled, parameters, **kind)
    wrong_before = wrong_rows(before)
    n_labels = trial.n_labels + int(np.count_nonzero(rows.labeled))
    size = min(n_labels, wrong.size, wrong_before.size)
    kept = compare(wrong[wrong.size - size :], wrong_before[wrong_before.size - size :], n_labels)
    if kept:
        return state, report
    before, report_before = with_scales(before, scaled.points, report_before, parameters)
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
    """Learn a batch of scaled rows as in `learn`, without any new start."""
    forgetting = parameters.forgetting if new_batch and state.n_batches else 1.0
    # labels are discounted by batches with labels only, as in the margin expert
    n_labels = int(np.count_nonzero(rows.labeled))
    of_labels = forgetting if n_labels else 1.0
    state = state._replace(
        graph=state.graph.forget(forgetting, new_labels=bool(n_labels)),
        record=state.record.forget(of_labels),
        counts=state.counts.forget(of_labels),
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
    counts = state.counts.add(codes, weights)
    state = state._replace(counts=counts)
    record = recorded(state, labeled_points, codes, weights, late=not new_points)
    graph, graph_info, slots = propagation.learn_graph(state.graph, part, new_points=new_points)
    margin, margin_info = learned_margin(state, rows, cut, parameters, first=first)
    recent = state.recent.add(labeled_points, codes, weights)
    class_weights = counts.class_weights(parameters.class_weights)
    unlabeled = np.flatnonzero(~part.labeled)[-PROBES:]
    state = state._replace(
        graph=graph,
        margin=margin,
        margin_info=margin_info,
        record=record,
        class_weights=class_weights,
        probes=stack(state.probes, take_rows(part.points, unlabeled))[-PROBES:],
        recent=recent,
    )
    state = state._replace(refitted=refitted_experts(state, parameters, codes.size))
    return state._replace(score_scales=measured_scales_of(state, slots[unlabeled])), graph_info


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


def refitted_experts(
    state: MixtureState, parameters: MixtureParameters, n_new: int | None
) -> tuple[RefittedExpert, ...]:
    """Return the refitted experts after ``n_new`` more labels, which the recent rows include.

    An expert is fitted again if enough labels are new; always if ``n_new`` is None.
    """
    weights, found = state.class_weights, []
    rows = experts.training_rows(state.recent, weights, balanced=not parameters.class_prior)
    for expert, share in zip(state.refitted, state.choice.refitted, strict=True):
        waiting = None if n_new is None else expert.n_new + n_new
        if waiting is None or experts.is_due(waiting, rows.size, used=share > 0):
            found.append(expert.fit(rows, weights.size))
        else:
            found.append(expert.wait(waiting))
    return tuple(found)


def with_choice(
    state: MixtureState, parameters: MixtureParameters, info: GraphInfo, n_mini_batches: int
) -> tuple[MixtureState, MixtureInfo]:
    """Return the state with the weight chosen by its record, and the report of the update."""
    choice = choose(state.record, state.by_counts, parameters.weight, parameters.class_prior)
    size = state.record.size
    report = MixtureInfo(
        info, n_mini_batches, size, choice.weight, choice.temperature, choice.refitted
    )
    return state._replace(choice=choice), report


# -- new starts ------------------------------------------------------------------------------------


def restarted(
    state: MixtureState, change: Change, parameters: MixtureParameters
) -> tuple[MixtureState, GraphInfo]:
    """Return the state after a change of the concept, with scales measured again.

    Labels before the change are forgotten, but for the newest label of every other class, which
    would be unknown without it.
    """
    recent = state.recent
    valid = np.arange(recent.size) >= recent.size - change.n_labels
    for code in np.setdiff1d(recent.codes, recent.codes[valid]):
        valid[np.flatnonzero(recent.codes == code)[-1]] = True
    n_probes = state.probes.shape[0]
    rows = Rows(
        points=stack(recent.points, state.probes),
        codes=np.append(np.where(valid, recent.codes, UNLABELED), np.full(n_probes, UNLABELED)),
        weights=np.append(recent.weights, np.ones(n_probes)),
    )
    recent = recent.take(valid)
    weights = np.bincount(recent.codes, recent.weights, state.counts.size).astype(np.float64)
    with one_thread():
        graph = propagation.without_labels(state.graph, weights > 0)
        labels = Rows(recent.points, recent.codes, recent.weights)
        graph, info, _ = propagation.learn_graph(graph, labels, new_points=False)
        state = state._replace(
            graph=graph,
            counts=replace(state.counts, discounted=weights),
            record=state.record.newest(change.n_labels),
            recent=recent,
            n_searched=RECORD,
        )
        state, rescaled_info = remeasured(begun_again(state, rows, parameters), parameters)
        scales = measured_scales_of(state, no_indices())
    return state._replace(score_scales=scales), rescaled_info or info


def with_scales(
    state: MixtureState, points: Points, report: MixtureInfo, parameters: MixtureParameters
) -> tuple[MixtureState, MixtureInfo]:
    """Return the state after a batch of scaled ``points``, with other column scales if it is time.

    The scales are measured again if the number of rows has doubled, or if a column that was
    constant, or smaller by far, would now determine the distances.
    """
    if not state.column_scale.size or state.n_rows == state.n_measured:
        return state, report
    if state.n_rows < 2 * state.n_measured:
        if (state.column_scale == 1.0).all():
            return state, report
        if not column_scales.any_too_large(points, propagation.euclidean(state.graph).centre):
            return state, report
    with one_thread():
        state, info = remeasured(state, parameters)
        if info is None:
            return state, report
        scales = measured_scales_of(state, no_indices())
    return state._replace(score_scales=scales), report._replace(graph=info)


def remeasured(
    state: MixtureState, parameters: MixtureParameters
) -> tuple[MixtureState, GraphInfo | None]:
    """Return the state with column scales measured on the kept rows; no report if they are equal.

    The scales of the scores are not measured again.
    """
    state = state._replace(n_measured=state.n_rows)
    if not state.column_scale.size:
        return state, None
    kept = propagation.kept_points(
        state.graph, column_scales.every_nth(state.graph.rows.size, MEASURED)
    )
    scale = column_scales.measured_column_scales(kept * state.column_scale, state.column_scale)
    if (scale == state.column_scale).all():
        return state, None
    return rescaled(state, scale, parameters)


def rescaled(
    state: MixtureState, scale: Array, parameters: MixtureParameters
) -> tuple[MixtureState, GraphInfo]:
    """Return the state with other scales of the columns."""
    factors = state.column_scale / scale
    rows = kept_rows(state, factors)
    graph, info = propagation.rescaled_graph(state.graph, factors)
    state = state._replace(
        graph=graph,
        probes=state.probes * factors,
        recent=state.recent._replace(points=state.recent.points * factors),
        column_scale=scale,
    )
    return begun_again(state, rows, parameters), info


def kept_rows(state: MixtureState, factors: Array) -> Rows:
    """Return the kept rows from which the margin expert can learn, columns times ``factors``.

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


def begun_again(state: MixtureState, rows: Rows, parameters: MixtureParameters) -> MixtureState:
    """Return the state with a margin expert after ``rows`` alone, and experts fitted again."""
    margin = margin_state.begin(parameters.margin, rows, state.margin_seed, calibrated=False)
    margin = margin_state.with_classes(margin, no_indices(), state.counts.declared)
    margin, margin_info = margin_state.learn(margin, rows, parameters.margin, new_points=True)
    refitted = refitted_experts(state, parameters, None)
    return state._replace(margin=margin, margin_info=margin_info, refitted=refitted)


# -- retraction ------------------------------------------------------------------------------------


def retract(
    state: MixtureState, points: Points, codes: Indices | None, parameters: MixtureParameters
) -> tuple[MixtureState, MixtureInfo, Mask]:
    """Retract the labels of some rows; the rows stay as unlabeled ones, the record stays.

    Return the state, its report and the mask (K,) of the classes that are kept. ``codes`` (n,) are
    the classes of the labels, None for whatever labels the rows have. The trial of a new start
    ends, and the new start stays.
    """
    found = margin_state.find_labels(state.margin, points, codes, parameters.margin)
    retracted = state.margin.posterior.window.take(found)
    codes = state.margin.counts.own_classes(retracted.signs)
    with one_thread():
        graph, info, slots = propagation.retract_from_graph(state.graph, retracted.points, codes)
    # labels of rows that are no longer kept have the mean discount of their class
    means = state.counts.discounted[codes] / state.counts.weights[codes]
    kept_weights = state.graph.label_weights[slots]
    discounted = np.where(slots >= 0, kept_weights, means * retracted.weights)
    recent = state.recent.take(~found_among(state.recent.points, retracted.points))
    counts = state.counts.remove(codes, retracted.weights, discounted)
    kept = counts.kept
    margin, margin_info, _ = margin_state.retract(state.margin, found, parameters.margin, kept)
    state = state._replace(
        graph=graph,
        counts=counts,
        margin_info=margin_info,
        recent=recent,
        trial=None,
    )
    state = state._replace(refitted=refitted_experts(state, parameters, None))
    places = np.where(kept, np.cumsum(kept) - 1, -1)
    state = with_classes(state, places, counts.declared[kept], margin)
    state = state._replace(score_scales=measured_scales_of(state, no_indices()))
    state, report = with_choice(state, parameters, info, 0)
    return state, report, kept
