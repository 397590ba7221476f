"""One update of the mixture: margin expert, graph expert, and their weight.

A batch is learned in mini-batches (`seqmed.mixture.weighting.mini_batches`), each in this order:

1. both experts score its labeled rows, and the scores enter the record;
2. some of its rows enter the graph, which is solved again; the margin expert learns its labels;
3. both experts score the last unlabeled rows again, to measure the scales of their scores.

After the last mini-batch the weight of the graph is chosen by the record. Nothing is changed in
place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from seqmed.arrays import Array, Indices, Points, no_indices, no_rows, stack, take_rows
from seqmed.classes import ClassRegistry, moved
from seqmed.estimators.validation import Rows
from seqmed.graph import propagation
from seqmed.graph.graph_state import UNLABELED, GraphState
from seqmed.graph.neighbours import empty_lists
from seqmed.graph.propagation import GraphInfo
from seqmed.mixture import weighting
from seqmed.mixture.experts import MarginExpert, MiniBatch
from seqmed.mixture.weighting import Choice, Scales, ScoreRecord, Scores
from seqmed.threads import one_thread

# Number of unlabeled rows on which the scales of the scores are measured.
PROBES = 50
# Squared distance, relative to the squared norm, that rounding in single precision gives to equal
# rows.
SAME_ROW = 1e-6


class MixtureSettings(NamedTuple):
    """Parameters of one update of the mixture.

    Attributes
    ----------
    weight : weight of the graph if it is fixed; None to choose it by evidence.
    class_prior : whether class priors may be used.
    forgetting : factor per batch, in (0, 1].
    class_weight : parameter ``class_weight`` of the estimator.
    """

    weight: float | None
    class_prior: bool
    forgetting: float
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
    n_batches: int
    fixed: dict[str, Any]
    sparse: bool


class MixtureInfo(NamedTuple):
    """The report of an update.

    Attributes
    ----------
    graph : report of the graph.
    n_mini_batches : number of mini-batches of the batch.
    n_recorded : labeled rows in the record.
    weight, temperature : weight of the graph, and temperature of the mixture.
    """

    graph: GraphInfo
    n_mini_batches: int
    n_recorded: int
    weight: float
    temperature: float


def initial_state(
    graph: GraphState,
    margin: MarginExpert,
    registry: ClassRegistry,
    points: Points,
    fixed: dict[str, Any],
    sparse: bool,
) -> MixtureStream:
    """Return the state before the first batch, ``points``."""
    return MixtureStream(
        graph=graph,
        margin=margin,
        registry=registry,
        record=weighting.empty_record(),
        scales=Scales(np.zeros(0), np.ones(weighting.PRIOR_EXPONENTS.size), 1.0),
        choice=Choice(weighting.FIRST_WEIGHT, 1.0, 0),
        class_weights=np.zeros(0),
        probes=no_rows(points),
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
    """Learn a batch, or late labels if its points are not new.

    ``new_batch`` is False for a part of a larger batch, which is not counted as a batch.
    """
    forgetting = settings.forgetting if new_batch and stream.n_batches else 1.0
    # labels are discounted only by batches with labels, as in the margin expert
    of_labels = forgetting if rows.labeled.any() else 1.0
    stream = stream._replace(
        graph=stream.graph.forget(forgetting, new_labels=bool(rows.labeled.any())),
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
    return with_choice(stream, settings, info, len(cuts))


def with_choice(
    stream: MixtureStream, settings: MixtureSettings, info: GraphInfo, n_mini_batches: int
) -> tuple[MixtureStream, MixtureInfo]:
    """Return the state with the weight chosen by the record, and the report of the update."""
    choice = weighting.choose(
        stream.record, stream.margin.scaled, settings.weight, settings.class_prior
    )
    size = stream.record.size
    report = MixtureInfo(info, n_mini_batches, size, choice.weight, choice.temperature)
    return stream._replace(choice=choice), report


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
    label_weights = np.where(all_codes >= 0, rows.weights, 0.0)[chosen]
    entering = None
    if mini_batch.new_points:
        entering = propagation.choose_entering(graph, all_codes[chosen])
        slots[chosen[entering.rows]] = entering.slots
    graph, info = propagation.learn(
        graph,
        stored,
        all_codes[chosen],
        label_weights,
        late=not mini_batch.new_points,
        entering=entering,
    )
    margin = stream.margin.learn(mini_batch._replace(registry=registry))
    given = class_weight if isinstance(class_weight, dict) else None
    unlabeled = chosen[all_codes[chosen] < 0][-PROBES:]
    stream = stream._replace(
        graph=graph,
        margin=margin,
        class_weights=registry.class_weights(given),
        probes=stack(stream.probes, take_rows(rows.points, unlabeled))[-PROBES:],
    )
    return stream._replace(scales=measured(stream, slots[unlabeled])), info


def with_classes(stream: MixtureStream, registry: ClassRegistry) -> MixtureStream:
    """Return the state with columns for the classes of another registry."""
    size = registry.classes.size
    if size == stream.registry.classes.size:
        return stream._replace(registry=registry)
    places = stream.registry.indices_in(registry)
    return stream._replace(
        registry=registry,
        graph=stream.graph.with_classes(places, size),
        record=stream.record.with_classes(places, size),
        scales=stream.scales._replace(counts=moved(stream.scales.counts, places, size)),
        class_weights=moved(stream.class_weights, places, size),
    )


def recorded(
    stream: MixtureStream, rows: Rows, labeled: Indices, codes: Indices, *, late: bool
) -> ScoreRecord:
    """Return the record with the scores of labeled rows by both experts before learning.

    ``late`` is whether the rows may already be kept as unlabeled rows.
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
    """Return the scores of both experts, zeros for an expert that is left out."""
    nothing = np.zeros((points.shape[0], stream.registry.classes.size))
    with np.errstate(over="ignore", invalid="ignore"):
        of_margin = stream.margin.scores(points, stream.registry) if margin else nothing
    of_graph = nothing
    if graph:
        of_graph = stream.graph.scores(stream.graph.search(points), stream.class_weights)
    return Scores(of_margin, of_graph)


def measured(stream: MixtureStream, slots: Indices) -> Scales:
    """Return the scales of the scores after both experts have learned a mini-batch.

    They are measured on the last unlabeled rows, and also on the record while there are few
    unlabeled rows. ``slots`` are the slots of the newest unlabeled rows, -1 for a row that is not
    kept.
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
    """Return scores of rows that may be kept; a row is not used as its own neighbour.

    ``slots`` are the slots of the last of these rows, -1 if unknown. The neighbours of a row with a
    known slot need no search, which saves a tenth of the time of a small update.
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
    """Retract the labels of the given rows; the rows become unlabeled, the record is unchanged.

    ``codes`` (n,) are the classes of the labels, None for whatever labels the rows have.
    """
    margin, retracted = stream.margin.retract(points, codes, stream.registry)
    codes = stream.registry.find(retracted.labels)
    graph = stream.graph
    stored = graph.rows.metric.store(retracted.points)
    with one_thread():
        retraction = propagation.retract(graph, stored, codes)
    # labels of rows that are no longer kept get the mean discount of their class
    means = stream.registry.discounted[codes] / stream.registry.weights[codes]
    discounted = np.where(retraction.found, retraction.label_weights, means * retracted.weights)
    declared = stream.margin.estimator._stream.registry.declared
    registry = replace(stream.registry, declared=declared).remove(
        codes, retracted.weights, discounted
    )
    stream = with_classes(stream._replace(graph=retraction.state, margin=margin), registry)
    stream = stream._replace(scales=measured(stream, no_indices()))
    return with_choice(stream, settings, retraction.info, 0)
