"""One update of the mixture: margin expert, graph expert, refitted experts, and their weights.

A batch is learned in mini-batches, each in this order:

1. all experts score its labeled rows, and the scores enter the record;
2. some of its rows enter the graph, which is solved again; the margin expert learns its labels;
   the linear expert and refitted experts are fitted again if enough labels are new;
3. margin, graph and linear expert score the last unlabeled rows, to measure the scales of their
   scores.

After the last mini-batch the record chooses how the experts are mixed. If it shows a change of the
concept, all experts start again from the labels since then. The state without the new start also
learns the next batches, and both predict (`seqmed.mixture.change`).

If the scales of the columns have changed, margin, graph and linear expert start again from
the kept rows. In both cases the margin expert begins again with kept rows as its first batch, so
that its kernel is measured again, and the kept rows of the graph stay. Nothing is changed in place.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from seqmed.classes import UNLABELED, Rows
from seqmed.graph import propagation
from seqmed.graph.propagation import GraphInfo
from seqmed.margin import margin_state
from seqmed.margin.margin_state import MarginState
from seqmed.margin.update import UpdateInfo
from seqmed.mixture import column_scales
from seqmed.mixture.change import (
    RECORD,
    Change,
    class_frequencies,
    find_change,
    is_decided,
    weigh_start,
)
from seqmed.mixture.column_scales import MEASURED
from seqmed.mixture.experts import SMALLEST_DECAY, Expert
from seqmed.mixture.labeled_rows import LabeledRows
from seqmed.mixture.linear_expert import WINDOW, balanced
from seqmed.mixture.mixture_state import (
    MixtureInfo,
    MixtureParameters,
    MixtureState,
    Trial,
    with_classes,
)
from seqmed.mixture.pooling import MEMBERS, choose_pool, late_counts, no_pool
from seqmed.mixture.record import (
    PROBES,
    choose,
    measured_scales_of,
    record_probabilities,
    recorded,
    wrong_rows,
)
from seqmed.numeric.arrays import (
    Array,
    Indices,
    Mask,
    Points,
    found_among,
    no_indices,
    random_keys,
    stack,
    take_rows,
)
from seqmed.numeric.execution import one_thread

# Rows with a smaller discount do not count in the fits of experts.
NEGLIGIBLE = 1e-6


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
    kind = {"new_points": new_points, "new_batch": new_batch}
    trial = state.trial
    state, report = learn_batch(state._replace(trial=None), rows, parameters, **kind)
    if trial is not None:
        before, report_before = learn_batch(trial.state, rows, parameters, **kind)
        n_labels = trial.n_labels + int(np.count_nonzero(rows.labeled))
        trial = trial._replace(state=before, n_labels=n_labels)
        return after_trial(state._replace(trial=trial), report, report_before)
    change = None
    if parameters.restarts and new_points:  # late labels may be older than a change
        change = find_change(wrong_rows(state), state.n_searched)
    if change is None:
        return state, report
    started, info = restarted(state, change, parameters)
    started, new_report = with_choice(started, parameters, info, report.n_mini_batches)
    started = started._replace(trial=Trial(state, change, 0, 0.5, np.ones(2)))
    return after_trial(started, new_report._replace(change=change), report)


def after_trial(
    state: MixtureState, report: MixtureInfo, report_before: MixtureInfo
) -> tuple[MixtureState, MixtureInfo]:
    """Return a state on trial with its new weight, or what is left if the trial is decided.

    The reports are those of the new start and of the state without it.
    """
    trial = state.trial
    assert trial is not None
    before, record = trial.state, state.record
    n_rows = min(record.size, before.record.size)
    n_older = max(0, n_rows - trial.n_labels)  # rows between the change and its alarm
    weight, temperatures = 0.5, np.ones(2)
    if n_rows:
        newest = record.newest(n_rows).of_members()
        after = record_probabilities(state)[-n_rows:]
        after[:n_older] = class_frequencies(newest.codes[:n_older], newest.known[:n_older])
        weight, temperatures = weigh_start(record_probabilities(before)[-n_rows:], after, newest)
    kept = is_decided(weight, trial.n_labels)
    if kept is None:
        trial = trial._replace(weight=weight, temperatures=temperatures)
        return state._replace(trial=trial), report
    if kept:
        return state._replace(trial=None), report
    return before._replace(n_searched=0), report_before._replace(change=report.change, revoked=True)


def learn_batch(
    state: MixtureState,
    rows: Rows,
    parameters: MixtureParameters,
    *,
    new_points: bool,
    new_batch: bool,
) -> tuple[MixtureState, MixtureInfo]:
    """Learn a batch as in `learn`, without any new start."""
    forgetting = parameters.forgetting if new_batch and state.n_batches else 1.0
    # labels are discounted by batches with labels only, as in the margin expert
    n_labels = int(np.count_nonzero(rows.labeled))
    of_labels = forgetting if n_labels else 1.0
    state = with_experts(state, parameters.experts)
    state = state._replace(
        graph=state.graph.forget(forgetting, new_labels=bool(n_labels)),
        record=state.record.forget(of_labels),
        counts=state.counts.forget(of_labels),
        labels=state.labels.forget(of_labels),
        n_rows=state.n_rows + (rows.weights.size if new_points else 0),
        n_batches=state.n_batches + new_batch,
        n_searched=min(RECORD, state.n_searched + n_labels),
    )
    scaled = rows._replace(points=state.scaled(rows.points))
    cuts = mini_batches(rows.labeled, float(state.counts.counts.sum()))
    info, first = None, new_batch and new_points
    with one_thread():
        for cut in cuts:
            state, info = learn_mini_batch(
                state, rows, scaled, cut, parameters, first=first, new_points=new_points
            )
            first = False
    assert info is not None
    state, report = with_choice(state, parameters, info, len(cuts))
    return with_scales(state, scaled.points, report, parameters)


def with_experts(state: MixtureState, templates: dict[str, BaseEstimator]) -> MixtureState:
    """Return the state with these refitted experts; those that it has keep their fits."""
    old = {expert.name: expert for expert in state.experts}
    if old.keys() == templates.keys() and all(
        same_parameters(old[name].template, each) for name, each in templates.items()
    ):
        return state
    kept = {
        name: old[name]
        for name, each in templates.items()
        if name in old and same_parameters(old[name].template, each)
    }
    before = [*MEMBERS, *old] if old else []
    members = [*MEMBERS, *(name if name in kept else None for name in templates)]
    places = [before.index(each) if each in before else -1 for each in members]
    return state._replace(
        experts=tuple(kept.get(name, Expert(name, each)) for name, each in templates.items()),
        record=state.record.with_members(np.array(places if templates else [], dtype=np.intp)),
        pool=no_pool(len(places) if templates else 0),
    )


def same_parameters(first: BaseEstimator, second: BaseEstimator) -> bool:
    """Whether two classifiers are of the same class, with the same parameters."""
    if first is second:
        return True
    try:
        same = first.get_params(deep=False) == second.get_params(deep=False)
    except ValueError:  # arrays
        return False
    return type(first) is type(second) and bool(same)


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
    scaled: Rows,
    cut: slice,
    parameters: MixtureParameters,
    *,
    first: bool,
    new_points: bool,
) -> tuple[MixtureState, GraphInfo]:
    """Learn the rows ``cut`` of a batch; ``scaled`` has the same rows with scaled columns.

    ``first`` is whether it is the first mini-batch of new points.
    """
    part = scaled.take(np.arange(cut.start, cut.stop))
    labeled = np.flatnonzero(part.labeled)
    labels = rows.take(cut.start + labeled)
    counts = state.counts.add(labels.codes, labels.weights)
    state, record = recorded(state, labels, take_rows(part.points, labeled), late=not new_points)
    graph, graph_info, slots = propagation.learn_graph(
        state.graph, part, new_points=new_points, proportions=parameters.proportions
    )
    margin, margin_info = learned_margin(state, scaled, cut, parameters, first=first)
    class_weights = counts.class_weights(parameters.class_weights)
    unlabeled = np.flatnonzero(~part.labeled)[-PROBES:]
    state = state._replace(
        counts=counts,
        graph=graph,
        margin=margin,
        margin_info=margin_info,
        record=record,
        class_weights=class_weights,
        probes=stack(state.probes, take_rows(part.points, unlabeled))[-PROBES:],
        labels=state.labels.add(labels.points, labels.codes, labels.weights, state.graph.seed),
    )
    state = with_fits(with_linear_fit(state, parameters, labeled.size), parameters, labeled.size)
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


def with_linear_fit(
    state: MixtureState, parameters: MixtureParameters, n_new: int | None
) -> MixtureState:
    """Return the state with the linear expert fitted again, if enough of ``n_new`` labels are new.

    It is always fitted again if ``n_new`` is None.
    """
    expert = state.linear
    n_rows = min(state.labels.size, WINDOW)
    waiting = 0 if n_new is None else expert.n_new + n_new
    if n_new is not None:
        expert = expert.wait(waiting)
        if not expert.is_due(n_rows, used=state.choice.linear > 0):
            return state._replace(linear=expert)
    newest = state.labels.newest(WINDOW)
    rows = Rows(state.scaled(newest.points), newest.codes, newest.weights)
    rows = rows._replace(weights=row_weights(state, rows.codes, rows.weights, parameters))
    return state._replace(linear=expert.fit(rows, state.class_weights.size))


def with_fits(
    state: MixtureState, parameters: MixtureParameters, n_new: int | None
) -> MixtureState:
    """Return the state with its experts fitted again, if enough of ``n_new`` labels are new.

    All are fitted again if ``n_new`` is None. Rows that no fit uses any more are dropped.
    """
    labels, weights = state.labels, state.pool.weights[len(MEMBERS) :]
    n_sampled, n_known = int(np.count_nonzero(labels.sampled)), int(state.known.sum())
    experts: list[Expert] = []
    for place, (before, weight) in enumerate(zip(state.experts, weights, strict=True)):
        expert = replace(before, n_new=before.n_new + (n_new or 0))
        due = expert.is_due(n_sampled, n_known, weight)
        if n_new is None or (n_new and due):
            rows, totals = rows_of_fit(state, expert.half_life, parameters)
            key = random_keys(np.array([labels.n_seen]), state.graph.seed + place)[0]
            expert = expert.refitted(rows, totals, int(key >> np.uint64(33)))
        experts.append(expert)
    used = labels.sampled.copy()
    if not used.all():
        for expert in experts:
            if expert.fit is not None:
                used[np.searchsorted(labels.numbers, expert.fit.numbers)] = True
    labels = labels if used.all() else labels.take(used)
    return state._replace(experts=tuple(experts), labels=labels)


def rows_of_fit(
    state: MixtureState, half_life: float, parameters: MixtureParameters
) -> tuple[LabeledRows, Array]:
    """Return the labeled rows that an expert is fitted on, and their weights (n,).

    Weights halve with every ``half_life`` newer labels.
    """
    labels = state.labels
    decays = 0.5 ** ((labels.n_seen - 1 - labels.numbers) / half_life)
    used = labels.sampled & (labels.discounts > NEGLIGIBLE) & (decays > SMALLEST_DECAY)
    rows = labels.take(used)
    weights = rows.weights * rows.discounts * decays[used]
    return rows, row_weights(state, rows.codes, weights, parameters)


def row_weights(
    state: MixtureState, codes: Indices, weights: Array, parameters: MixtureParameters
) -> Array:
    """Return the weights (n,) of labeled rows for the experts, from their sample weights."""
    if not parameters.class_prior:
        weights = balanced(codes, weights, state.class_weights.size)
    return np.asarray(weights * state.class_weights[codes])


def with_choice(
    state: MixtureState, parameters: MixtureParameters, info: GraphInfo, n_mini_batches: int
) -> tuple[MixtureState, MixtureInfo]:
    """Return the state with the weights chosen by its record, and the report of the update."""
    choice = choose(state.record, state.by_counts, parameters.weight, parameters.class_prior)
    pool, size = state.pool, state.record.size
    if state.has_pool:
        fitted = np.array([True, True, *(each.fit is not None for each in state.experts)])
        names = [*MEMBERS, *(each.name for each in state.experts)]
        late = late_counts(names, sparse=sp.issparse(state.labels.points))
        pool = choose_pool(state.record.of_members(), int(state.known.sum()), late, fitted)
    report = MixtureInfo(
        info, n_mini_batches, size, choice.weight, choice.temperature, choice.linear
    )
    return state._replace(choice=choice, pool=pool), report


# -- new starts ------------------------------------------------------------------------------------


def restarted(
    state: MixtureState, change: Change, parameters: MixtureParameters
) -> tuple[MixtureState, GraphInfo]:
    """Return the state after a change of the concept, with scales measured again.

    Labels before the change are forgotten, but for the newest label of every other class, which
    would be unknown without it.
    """
    recent, n_probes = state.recent, state.probes.shape[0]
    valid = np.arange(recent.codes.size) >= recent.codes.size - change.n_labels
    for code in np.setdiff1d(recent.codes, recent.codes[valid]):
        valid[np.flatnonzero(recent.codes == code)[-1]] = True
    rows = Rows(
        points=stack(recent.points, state.probes),
        codes=np.append(np.where(valid, recent.codes, UNLABELED), np.full(n_probes, UNLABELED)),
        weights=np.append(recent.weights, np.ones(n_probes)),
    )
    recent = recent.take(valid)
    weights = np.bincount(recent.codes, recent.weights, state.counts.size).astype(np.float64)
    labels = state.labels.newest(RECORD).take(valid)
    with one_thread():
        graph = propagation.without_labels(state.graph, weights > 0)
        graph, info, _ = propagation.learn_graph(
            graph, recent, new_points=False, proportions=parameters.proportions
        )
        state = state._replace(
            graph=graph,
            counts=replace(state.counts, discounted=weights),
            record=state.record.newest(change.n_labels),
            labels=labels._replace(sampled=np.ones(labels.size, dtype=bool)),
            n_searched=RECORD,
        )
        state, rescaled_info = remeasured(begun_again(state, rows, parameters), parameters)
        state = with_fits(state, parameters, None)
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
    graph, info = propagation.rescaled_graph(state.graph, factors, parameters.proportions)
    state = state._replace(
        graph=graph,
        probes=state.probes * factors,
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
    """Return the state with a margin expert after ``rows`` alone, and a new linear expert."""
    margin = margin_state.begin(parameters.margin, rows, state.margin_seed, calibrated=False)
    margin = margin_state.with_classes(margin, no_indices(), state.counts.declared)
    margin, margin_info = margin_state.learn(margin, rows, parameters.margin, new_points=True)
    return with_linear_fit(state._replace(margin=margin, margin_info=margin_info), parameters, None)


# -- retraction ------------------------------------------------------------------------------------


def retract(
    state: MixtureState, points: Points, codes: Indices | None, parameters: MixtureParameters
) -> tuple[MixtureState, MixtureInfo, Mask]:
    """Retract the labels of some rows; the rows stay as unlabeled ones, the record stays.

    Return the state, its report and the mask (K,) of the classes that are kept. ``codes`` (n,) are
    the classes of the labels, None for whatever labels the rows have. A trial goes on: both states
    lose the labels, as far as the new start has them.
    """
    trial, counts = state.trial, state.counts
    full = state if trial is None else trial.state
    scaled = full.scaled(points)

    def unlabeled(row: int) -> bool:
        return propagation.is_unlabeled(full.graph, scaled[row : row + 1])

    found = margin_state.find_labels(
        full.margin, scaled, codes, parameters.margin, unlabeled=unlabeled
    )
    rows = full.margin.posterior.window.take(found)
    retracted = Rows(rows.points, counts.own_classes(rows.signs), rows.weights)
    full, report, kept = retracted_state(full, retracted, found, parameters)
    if trial is None:
        return full, report, kept
    if state.column_scale.size:
        factors = trial.state.column_scale / state.column_scale  # powers of two
        retracted = retracted._replace(points=retracted.points * factors)
    found = margin_state.find_labels(
        state.margin, retracted.points, retracted.codes, parameters.margin, required=False
    )
    state, report, kept = retracted_state(state, retracted, found, parameters)
    return state._replace(trial=trial._replace(state=full)), report, kept


def retracted_state(
    state: MixtureState, retracted: Rows, found: Mask, parameters: MixtureParameters
) -> tuple[MixtureState, MixtureInfo, Mask]:
    """Return a state without some labels, its report, and the classes (K,) that are kept.

    ``retracted`` are the scaled rows of these labels, and ``found`` is the mask of those in the
    window of the margin expert.
    """
    codes = retracted.codes
    points = retracted.points * state.column_scale if state.column_scale.size else retracted.points
    learned = state.labels.hold(points, codes)  # a new start has no labels before the change
    with one_thread():
        graph, info, slots = propagation.retract_from_graph(
            state.graph, retracted.points, codes, parameters.proportions
        )
    # labels of rows that are no longer kept have the mean discount of their class
    means = state.counts.discounted[codes] / state.counts.weights[codes]
    kept_weights = state.graph.label_weights[slots]
    discounted = np.where(slots >= 0, kept_weights, means * retracted.weights)
    discounted = np.where(learned, discounted, 0.0)
    counts = state.counts.remove(codes, retracted.weights, discounted)
    kept = counts.kept
    margin, margin_info, _ = margin_state.retract(state.margin, found, parameters.margin, kept)
    state = state._replace(
        graph=graph,
        counts=counts,
        margin_info=margin_info,
        labels=state.labels.without_labels(points, codes),
        trial=None,
    )
    places = np.where(kept, np.cumsum(kept) - 1, -1)
    state = with_classes(state, places, counts.declared[kept], margin)
    with one_thread():
        state = with_fits(with_linear_fit(state, parameters, None), parameters, None)
    state = state._replace(score_scales=measured_scales_of(state, no_indices()))
    state, report = with_choice(state, parameters, info, 0)
    return state, report, kept
