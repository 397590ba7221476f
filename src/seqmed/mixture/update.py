"""One batch through margin, graph and mixture.

A batch is learned in mini-batches (`seqmed.mixture.weighting.mini_batches`), each in this order:

1. both experts score its labeled rows, which enter the record;
2. some of its rows enter the graph, which is solved again; the margin expert learns its labels;
3. both experts score the last unlabeled rows again, which gives their scales.

After the last mini-batch the record chooses how the scores are mixed. If it shows a change of the
concept, both experts start again from the labels since then (`restarted`). Nothing is changed in
place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from seqmed.arrays import (
    Array,
    Indices,
    Points,
    found_among,
    no_indices,
    no_rows,
    stack,
    take_rows,
)
from seqmed.classes import ClassRegistry, moved
from seqmed.estimators.validation import Rows
from seqmed.graph import propagation
from seqmed.graph.graph_state import UNLABELED, GraphState
from seqmed.graph.neighbours import empty_lists
from seqmed.graph.propagation import GraphInfo
from seqmed.mixture import weighting
from seqmed.mixture.change import Change, RecentRows, find_change, no_recent_rows
from seqmed.mixture.experts import MarginExpert, MiniBatch
from seqmed.mixture.weighting import Choice, Scales, ScoreRecord, Scores
from seqmed.threads import one_thread

# Unlabeled rows on which the scales of the experts' scores are measured.
PROBES = 50
# Squared distance of equal rows by products of single precision, relative to the squared norm.
SAME_ROW = 1e-6


class MixtureSettings(NamedTuple):
    """Parameters of one update of the mixture.

    Attributes
    ----------
    weight : of the graph if it is fixed; None to choose it by evidence.
    class_prior : whether class priors may count.
    forgetting : factor per batch, in (0, 1].
    restarts : whether the experts start again after a change of the concept.
    class_weight : as the estimator's parameter.
    """

    weight: float | None
    class_prior: bool
    forgetting: float
    restarts: bool
    class_weight: Any


class MixtureStream(NamedTuple):
    """The state of `SeqGraphMED`.

    Attributes
    ----------
    graph, margin : the two experts.
    registry : the classes so far.
    record, scales, choice : how the experts are mixed.
    class_weights : (K,) factors of the graph's scores.
    probes : the last unlabeled rows.
    recent : the last labeled rows.
    n_batches : batches learned.
    fixed, sparse : parameters that may not change, and the format of the rows.
    """

    graph: GraphState
    margin: MarginExpert
    registry: ClassRegistry
    record: ScoreRecord
    scales: Scales
    choice: Choice
    class_weights: Array
    probes: Points
    recent: RecentRows
    n_batches: int
    fixed: dict[str, Any]
    sparse: bool


class MixtureInfo(NamedTuple):
    """The report of an update.

    Attributes
    ----------
    graph : of the graph's last solve.
    n_mini_batches : number of mini-batches of the batch.
    n_recorded : labeled rows in the record.
    weight, temperature : of the mixture.
    change : the change of the concept that was found; None if there was none.
    """

    graph: GraphInfo
    n_mini_batches: int
    n_recorded: int
    weight: float
    temperature: float
    change: Change | None = None


def initial_state(
    graph: GraphState,
    margin: MarginExpert,
    registry: ClassRegistry,
    points: Points,
    fixed: dict[str, Any],
    sparse: bool,
) -> MixtureStream:
    """Return a stream before its first batch, ``points``."""
    return MixtureStream(
        graph=graph,
        margin=margin,
        registry=registry,
        record=weighting.empty_record(),
        scales=Scales(np.zeros(0), np.ones(weighting.PRIOR_EXPONENTS.size), 1.0),
        choice=Choice(weighting.FIRST_WEIGHT, 1.0, 0),
        class_weights=np.zeros(0),
        probes=no_rows(points),
        recent=no_recent_rows(points),
        n_batches=0,
        fixed=fixed,
        sparse=sparse,
    )


def learn(
    stream: MixtureStream,
    rows: Rows,
    settings: MixtureSettings,
    *,
    new_points: bool,
    new_batch: bool,
) -> tuple[MixtureStream, MixtureInfo]:
    """Learn a batch, or labels that come late if its points are not new.

    ``new_batch`` is False for a part of a larger batch, which does not count as one.
    """
    share = settings.forgetting if new_batch and stream.n_batches else 1.0
    # labels are discounted by batches with labels only, as in the margin expert
    of_labels = share if rows.labeled.any() else 1.0
    stream = stream._replace(
        graph=stream.graph.forget(share, new_labels=bool(rows.labeled.any())),
        record=stream.record.forget(of_labels),
        n_batches=stream.n_batches + new_batch,
    )
    registry = stream.registry.discount(of_labels, no_indices(), np.zeros(0)).declare(rows.declared)
    stream = with_classes(stream, registry)
    cuts = weighting.mini_batches(rows.labeled, float(stream.registry.counts.sum()))
    info = None
    with one_thread():
        for number, cut in enumerate(cuts):
            part = np.zeros(rows.weights.size, dtype=bool)
            part[cut] = True
            mini_batch = MiniBatch(
                rows, part, number == 0 and new_batch, new_points, stream.registry
            )
            stream, info = learn_mini_batch(stream, mini_batch, settings.class_weight)
    assert info is not None
    stream, report = with_choice(stream, settings, info, len(cuts))
    if not settings.restarts or not new_points:  # late labels may be older than a change
        return stream, report
    change = find_change(weighting.wrong(stream.record, stream.choice, stream.margin.scaled))
    if change is None:
        return stream, report
    with one_thread():
        stream, info = restarted(stream, change)
    stream, report = with_choice(stream, settings, info, len(cuts))
    return stream, report._replace(change=change)


def with_choice(
    stream: MixtureStream, settings: MixtureSettings, info: GraphInfo, n_mini_batches: int
) -> tuple[MixtureStream, MixtureInfo]:
    """Return the stream with the weight chosen by its record, and the report of the update."""
    choice = weighting.choose(
        stream.record, stream.margin.scaled, settings.weight, settings.class_prior
    )
    size = stream.record.size
    report = MixtureInfo(info, n_mini_batches, size, choice.weight, choice.temperature)
    return stream._replace(choice=choice), report


def restarted(stream: MixtureStream, change: Change) -> tuple[MixtureStream, GraphInfo]:
    """Return the stream after a change: labels before it are forgotten, the kept rows stay.

    The margin expert begins again with the last labeled and unlabeled rows as its first batch, so
    that its kernel is measured again.
    """
    registry, recent = stream.registry, stream.recent
    valid = recent.valid_after(change)
    n_probes = stream.probes.shape[0]
    rows = Rows(
        points=stack(recent.points, stream.probes),
        labeled=np.append(valid, np.zeros(n_probes, dtype=bool)),
        labels=registry.classes[recent.codes[valid]],
        weights=np.append(recent.weights, np.ones(n_probes)),
        declared=registry.classes,
    )
    everything = np.ones(rows.weights.size, dtype=bool)
    margin = stream.margin.restarted().learn(MiniBatch(rows, everything, True, True, registry))
    recent = recent.take(valid)
    known = np.bincount(recent.codes, minlength=registry.classes.size) > 0
    graph = propagation.without_labels(stream.graph, known)
    stored = graph.rows.metric.store(recent.points)
    graph, info = propagation.learn(graph, stored, recent.codes, recent.weights, late=True)
    stream = stream._replace(
        graph=graph,
        margin=margin,
        registry=registry.discount(0.0, recent.codes, recent.weights),
        record=stream.record.newest(change.n_labels),
        recent=recent,
    )
    return stream._replace(scales=measured(stream, no_indices())), info


def learn_mini_batch(
    stream: MixtureStream, mini_batch: MiniBatch, class_weight: Any
) -> tuple[MixtureStream, GraphInfo]:
    """Learn one mini-batch."""
    rows = mini_batch.rows
    labeled = np.flatnonzero(rows.labeled & mini_batch.part)
    labels, weights = rows.labels[mini_batch.part[rows.labeled]], rows.weights[labeled]
    registry = stream.registry.add(labels, weights)
    codes = registry.find(labels)
    registry = registry.discount(1.0, codes, weights)
    stream = with_classes(stream, registry)
    record = recorded(stream, rows, labeled, codes, late=not mini_batch.new_points)
    stream = stream._replace(record=record)

    chosen = np.flatnonzero(mini_batch.part)
    all_codes = np.full(rows.weights.size, UNLABELED)
    all_codes[labeled] = codes
    graph, slots = stream.graph, np.full(rows.weights.size, -1)
    stored = graph.rows.metric.store(take_rows(rows.points, chosen))
    masses = np.where(all_codes >= 0, rows.weights, 0.0)[chosen]
    entering = None
    if mini_batch.new_points:
        entering = propagation.choose_entering(graph, all_codes[chosen])
        slots[chosen[entering.rows]] = entering.slots
    graph, info = propagation.learn(
        graph, stored, all_codes[chosen], masses, late=not mini_batch.new_points, entering=entering
    )
    margin = stream.margin.learn(mini_batch._replace(registry=registry))
    given = class_weight if isinstance(class_weight, dict) else None
    unlabeled = chosen[all_codes[chosen] < 0][-PROBES:]
    stream = stream._replace(
        graph=graph,
        margin=margin,
        class_weights=registry.class_weights(given),
        probes=stack(stream.probes, take_rows(rows.points, unlabeled))[-PROBES:],
        recent=stream.recent.add(take_rows(rows.points, labeled), codes, weights),
    )
    return stream._replace(scales=measured(stream, slots[unlabeled])), info


def with_classes(stream: MixtureStream, registry: ClassRegistry) -> MixtureStream:
    """Return the stream with columns for the classes of another registry."""
    size = registry.classes.size
    if size == stream.registry.classes.size:
        return stream._replace(registry=registry)
    places = stream.registry.places_in(registry)
    return stream._replace(
        registry=registry,
        graph=stream.graph.with_classes(places, size),
        record=stream.record.with_classes(places, size),
        recent=stream.recent.with_classes(places),
        scales=stream.scales._replace(counts=moved(stream.scales.counts, places, size)),
        class_weights=moved(stream.class_weights, places, size),
    )


def recorded(
    stream: MixtureStream, rows: Rows, labeled: Indices, codes: Indices, *, late: bool
) -> ScoreRecord:
    """Return the record with labeled rows as both experts score them before they are learned.

    ``late`` is whether the rows may be kept already, as unlabeled ones.
    """
    known = stream.scales.known
    usable = known[codes] if known.sum() > 1 else np.zeros(codes.size, dtype=bool)
    if not usable.any():
        return stream.record
    points = take_rows(rows.points, labeled[usable])
    scores = (
        left_out_scores(stream, points, no_indices()) if late else expert_scores(stream, points)
    )
    finite = np.isfinite(scores.margin).all(axis=1)
    scores = Scores(scores.margin[finite], scores.graph[finite])
    weights = rows.weights[labeled[usable]]
    return stream.record.add(scores, stream.scales, codes[usable][finite], weights[finite])


def expert_scores(
    stream: MixtureStream, points: Points, *, margin: bool = True, graph: bool = True
) -> Scores:
    """Return the scores of both experts, zeros for one that is left out."""
    nothing = np.zeros((points.shape[0], stream.registry.classes.size))
    with np.errstate(over="ignore", invalid="ignore"):
        of_margin = stream.margin.scores(points, stream.registry) if margin else nothing
    of_graph = nothing
    if graph:
        of_graph = stream.graph.scores(stream.graph.search(points), stream.class_weights)
    return Scores(of_margin, of_graph)


def measured(stream: MixtureStream, slots: Indices) -> Scales:
    """Return the scales of the experts that have learned a mini-batch.

    They are measured on the last unlabeled rows, and on the record while there are few of these.
    ``slots`` are those of the newest of these rows, -1 for a row that is not kept.
    """
    # the discounted weight of a class may underflow to 0
    tiny = np.finfo(np.float64).tiny
    counts = stream.margin.label_counts(stream.registry)
    counts = np.where(stream.registry.seen, np.maximum(counts, tiny), 0.0)
    scores = Scores(*(np.zeros((0, counts.size)) for _ in range(2)))
    if stream.probes.shape[0]:
        scores = left_out_scores(stream, stream.probes, slots)
    missing = PROBES - stream.probes.shape[0]
    if missing > 0:
        record = stream.record
        scores = Scores(
            np.vstack([scores.margin, record.margin[-missing:]]),
            np.vstack([scores.graph, record.graph[-missing:]]),
        )
    finite = np.isfinite(scores.margin).all(axis=1)
    scores = Scores(scores.margin[finite], scores.graph[finite])
    return weighting.measured_scales(scores, counts, stream.margin.scaled)


def left_out_scores(stream: MixtureStream, points: Points, slots: Indices) -> Scores:
    """Return the scores of rows that may be kept, each left out of its own neighbours.

    ``slots`` are those of the last of these rows, -1 if unknown. Where a slot is known, so are the
    neighbours, which saves a tenth of the time of a small update.
    """
    kept = stream.graph.rows
    slots = np.append(np.full(points.shape[0] - slots.size, -1), slots)
    found = empty_lists(slots.size, kept.lists.slots.shape[1], np.inf)
    known, unknown = np.flatnonzero(slots >= 0), np.flatnonzero(slots < 0)
    for array, values in zip(found, kept.lists.take(slots[known]), strict=True):
        array[known] = values
    if unknown.size:
        stored = kept.metric.store(take_rows(points, unknown))
        nearest = kept.search(stored, length=kept.n_neighbors + 1)
        equal = 0.0 if kept.metric.refines else SAME_ROW * stored.norms
        own = (nearest.distances[:, 0] <= equal) & (nearest.sizes > 0)
        for name in ("slots", "distances"):
            values = getattr(nearest, name)
            values[own, :-1] = values[own, 1:].copy()
            getattr(found, name)[unknown, : values.shape[1]] = values
        found.sizes[unknown] = np.minimum(nearest.sizes - own, kept.n_neighbors)
    with np.errstate(over="ignore", invalid="ignore"):
        margin = stream.margin.scores(points, stream.registry)
    return Scores(margin, stream.graph.scores(found, stream.class_weights))


def class_scores(stream: MixtureStream, points: Points) -> Array:
    """Return mixed class scores (n, K), in units in which softmax gives probabilities.

    An expert of weight 0 is not evaluated.
    """
    weight = stream.choice.weight
    scores = expert_scores(stream, points, margin=weight < 1, graph=weight > 0)
    return weighting.mix(scores, stream.scales, stream.choice, stream.margin.scaled)


def retract(
    stream: MixtureStream, points: Points, codes: Any, settings: MixtureSettings
) -> tuple[MixtureStream, MixtureInfo]:
    """Retract the labels of some rows; the rows stay as unlabeled ones, the record stays.

    ``codes`` (n,) are the classes of the labels, None for any labels the rows have.
    """
    margin, retracted = stream.margin.retract(points, codes, stream.registry)
    codes = stream.registry.find(retracted.labels)
    graph = stream.graph
    stored = graph.rows.metric.store(retracted.points)
    with one_thread():
        retraction = propagation.retract(graph, stored, codes)
    # labels of rows that are no longer kept have the mean discount of their class
    means = stream.registry.discounted[codes] / stream.registry.weights[codes]
    discounted = np.where(retraction.found, retraction.masses, means * retracted.weights)
    recent = stream.recent
    stream = stream._replace(recent=recent.take(~found_among(recent.points, retracted.points)))
    declared = stream.margin.estimator._stream.registry.declared
    registry = replace(stream.registry, declared=declared).remove(
        codes, retracted.weights, discounted
    )
    stream = with_classes(stream._replace(graph=retraction.state, margin=margin), registry)
    stream = stream._replace(scales=measured(stream, no_indices()))
    return with_choice(stream, settings, retraction.info, 0)
