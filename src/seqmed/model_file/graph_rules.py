"""What holds for the stream of a fitted `GraphPropagation` or `SeqGraphMED`.

A rule is a statement and whether it is true. Each may take for granted those that come before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from seqmed.arrays import Points
from seqmed.classes import ClassRegistry
from seqmed.graph.kept_rows import SPARE
from seqmed.graph.metrics import Cosine, Euclidean, KernelDistance
from seqmed.graph.neighbours import Lists
from seqmed.graph.propagation import GraphInfo, GraphState
from seqmed.kernels import DCMFisher, Linear, Precomputed, TfIdf
from seqmed.mixture.experts import EUCLIDEAN_KERNELS, OwnExpert
from seqmed.mixture.update import PROBES, MixtureInfo, MixtureStream
from seqmed.mixture.weighting import RECORD, SHARE_EXPONENTS, Choice, Scales, ScoreRecord
from seqmed.model_file.saved_rows import SavedRows
from seqmed.model_file.shapes import check_shapes, records_in
from seqmed.model_file.stream_rules import (
    MOST_BATCHES,
    RECORD_RULES,
    Rules,
    kernel_rules,
    no_rules,
)

# Largest departure from orthonormal directions that rounding explains.
ORTHONORMAL = 1e-8


def graph_stream_rules(began: Any, state: dict[str, Any]) -> Rules:
    """Yield what holds for a stream with a graph, that began with the parameters of an estimator.

    Parameters
    ----------
    began : GraphPropagation or SeqGraphMED, not fitted, of valid parameters.
    state : the attributes kept of the fitted one, of their types.
    """
    stream, info = state["_stream"], state["update_info_"]
    graph, book = stream.graph, stream.book
    sizes = {
        "p": state["n_features_in_"],
        "classes": book.classes.size,
        "kept": graph.rows.size,
        "exponents": SHARE_EXPONENTS.size,
    }
    check_shapes((stream, info), sizes)
    for record in records_in((stream, info)):
        yield from GRAPH_RULES.get(type(record), no_rules)(record)
    yield "a number of batches that can be counted", 0 <= stream.n_batches < MOST_BATCHES
    yield "the memory named", graph.capacity == began.graph_memory
    yield "the number of neighbours named", graph.rows.n_neighbors == began.n_neighbors
    yield "the alpha named", graph.alpha == began.alpha
    yield "the metric named", is_named(graph.rows.metric, began.metric, stream)
    yield from row_rules(graph, stream.sparse)
    yield "classes of labels", (graph.codes < book.classes.size).all()
    yield "labels of classes seen", book.seen[graph.codes[graph.codes >= 0]].all()


def mixture_stream_rules(began: Any, state: dict[str, Any]) -> Rules:
    """Yield what holds for the stream of a `SeqGraphMED`; parameters as in `graph_stream_rules`."""
    stream, info = state["_stream"], state["update_info_"]
    yield from margin_rules(stream.margin, stream, state["n_features_in_"])
    yield from graph_stream_rules(began, state)
    n_classes = stream.book.classes.size
    yield "classes of the record", (stream.record.codes < n_classes).all()
    known = np.take_along_axis(stream.record.counts, stream.record.codes[:, None], axis=1)
    yield "a record of classes that were known", (known > 0).all()
    choice = stream.choice
    chosen = (stream.record.size, choice.weight, choice.temperature)
    yield "a report of the last choice", (info.n_recorded, info.weight, info.temperature) == chosen
    yield "probes in the format of the rows", suit(stream.probes, np.float64, stream)


def margin_rules(margin: OwnExpert, stream: MixtureStream, width: int) -> Rules:
    """Yield what holds between the margin expert, which keeps its own rules, and the stream."""
    inner: Any = margin.estimator
    yield "an estimator that is fitted", hasattr(inner, "_stream")
    yield "an estimator of as many columns", inner.n_features_in_ == width
    yield "an estimator of the same format of rows", inner._stream.sparse == stream.sparse
    yield "an estimator of the same classes", same_classes(inner._stream.book, stream.book)
    kernel = inner._stream.posterior.covariance.kernel
    yield "an estimator of a kernel on rows", not isinstance(kernel, Precomputed)


def same_classes(first: ClassRegistry, second: ClassRegistry) -> bool:
    """Whether two books have the same classes, of the same type."""
    kinds = first.classes.dtype.kind == second.classes.dtype.kind
    return kinds and np.array_equal(first.classes, second.classes)


def is_named(metric: Any, name: Any, stream: Any) -> bool:
    """Whether a metric is the one of a name, or of a kernel, for a stream."""
    kernel: Any = None if isinstance(name, str) else name
    if name == "auto" and isinstance(stream, MixtureStream):
        margin: Any = stream.margin
        inner = margin.estimator._stream
        if inner.fixed["kernel"] not in EUCLIDEAN_KERNELS:
            kernel = inner.posterior.covariance.kernel
    if kernel is None and name == "auto":
        name = "cosine" if stream.sparse else "euclidean"
    if kernel is None and name == "cosine":
        return isinstance(metric, Cosine)
    if kernel is None and not stream.sparse:
        return isinstance(metric, Euclidean)
    kind = Linear if kernel is None else type(kernel)
    return isinstance(metric, KernelDistance) and type(metric.kernel) is kind


def row_rules(graph: GraphState, sparse: bool) -> Rules:
    """Yield what holds for the kept rows."""
    stored = [block.rows for block in graph.rows.blocks]
    yield (
        "kept rows in single precision, in the format of the stream",
        all(rows.dtype == np.float32 and sp.issparse(rows) == sparse for rows in stored),
    )
    kernel = getattr(graph.rows.metric, "kernel", None)
    yield "kept rows that suit the kernel", all(is_counted(rows, kernel) for rows in stored)


def suit(points: Points, dtype: Any, stream: MixtureStream) -> bool:
    """Whether rows are of a type, and of the format and the values of a stream."""
    kernel = getattr(stream.graph.rows.metric, "kernel", None)
    fits = points.dtype == dtype and sp.issparse(points) == stream.sparse
    return fits and is_counted(points, kernel)


def is_counted(points: Points, kernel: Any) -> bool:
    """Whether rows are >= 0, if a kernel is for counts."""
    values = points.data if sp.issparse(points) else points
    return not isinstance(kernel, TfIdf | DCMFisher) or bool((values >= 0).all())


# -- records --------------------------------------------------------------------------------------


def state_rules(graph: GraphState) -> Rules:
    """Yield what holds for a graph."""
    yield "as many kept rows as asked for at most", graph.rows.size <= graph.capacity
    yield "classes that are indices, or -1", (graph.codes >= -1).all()
    yield "label masses >= 0", (graph.masses >= 0).all()
    yield "masses of labels, and of no other rows", ((graph.masses > 0) == (graph.codes >= 0)).all()
    yield "influences >= 0", (graph.influence >= 0).all()
    yield "solved masses >= 0", (graph.solved_masses >= 0).all()
    yield "a number of unlabeled rows", 0 <= graph.n_unlabeled < np.inf
    yield "counts >= 0", graph.n_stale >= 0 and 0 <= graph.n_updates < MOST_BATCHES
    yield "a seed >= 0", graph.seed >= 0


def saved_rules(saved: SavedRows) -> Rules:
    """Yield what holds for kept rows and their neighbour lists."""
    if saved.norms is not None:
        unit = isinstance(saved.metric, Cosine)
        yield "squared norms >= 0", (saved.norms >= 0).all()
        yield "squared norms of 1", not unit or (saved.norms == 1).all()
    yield "lists of the length needed", has_length(saved.lists, saved.n_neighbors)
    lists, limit = saved.lists, np.float32(saved.metric.limit)
    yield from list_rules(lists)
    complete = lists.horizons == limit
    yield "horizons within the limit", (lists.horizons <= limit).all()
    yield "enough neighbours", (complete | (lists.sizes >= saved.n_neighbors)).all()
    if saved.metric.refines:
        yield "all rows in complete lists", (lists.sizes[complete] == lists.sizes.size - 1).all()


def has_length(lists: Lists, n_neighbors: int) -> bool:
    """Whether lists have room for as many entries as the search of neighbours needs."""
    return n_neighbors >= 1 and lists.slots.shape[1] == np.ceil(SPARE * n_neighbors)


def list_rules(lists: Lists) -> Rules:
    """Yield what holds for neighbour lists."""
    n, length = lists.slots.shape
    slots, distances, sizes = lists.slots, lists.distances, lists.sizes
    yield "numbers of neighbours", ((sizes >= 0) & (sizes <= min(length, n - 1))).all()
    used = np.arange(length, dtype=np.int32) < sizes[:, None]
    yield "neighbours that are kept", ((slots >= 0) == used).all() and (slots < n).all()
    yield "-1 for no neighbour", (slots >= -1).all()
    yield "distances of neighbours", (np.isfinite(distances) == used).all()
    yield "distances >= 0", (distances[:, :1] >= 0).all()
    yield "neighbours in order", (distances[:, 1:] >= distances[:, :-1]).all()
    yield "neighbours other than the row", (slots != np.arange(n, dtype=np.int32)[:, None]).all()
    ordered = np.sort(slots, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    yield "each neighbour once", not twice.any()
    yield "horizons >= 0", (lists.horizons >= 0).all()
    rows = np.flatnonzero(sizes)
    last = distances[rows, sizes[rows] - 1]
    yield "neighbours within the horizon", (last <= lists.horizons[rows]).all()


def euclidean_rules(metric: Euclidean) -> Rules:
    """Yield what holds for the Euclidean metric."""
    yield "a scale > 0", 0 < metric.scale < np.inf
    yield "a count of rows measured", metric.n_measured >= 0
    p, q = metric.directions.shape
    yield "fewer directions than columns", q < p
    products = metric.directions.T @ metric.directions
    yield "orthonormal directions", (np.abs(products - np.eye(q)) <= ORTHONORMAL).all()


def metric_kernel_rules(metric: KernelDistance) -> Rules:
    """Yield what holds for the kernel of a metric."""
    yield "a kernel on rows", not isinstance(metric.kernel, Precomputed)
    yield from kernel_rules(metric.kernel)


def score_rules(record: ScoreRecord) -> Rules:
    """Yield what holds for the record of scores."""
    yield f"a record of at most {RECORD} rows", record.size <= RECORD
    yield "classes that are indices", (record.codes >= 0).all()
    yield "weights >= 0", (record.weights >= 0).all()
    yield "label counts >= 0", (record.counts >= 0).all()
    scales = (record.margin_scales > 0).all() and (record.graph_scales > 0).all()
    yield "scales > 0", scales


def scale_rules(scales: Scales) -> Rules:
    """Yield what holds for the scales of scores."""
    yield "label counts >= 0", (scales.counts >= 0).all()
    yield "scales > 0", (scales.margin > 0).all() and 0 < scales.graph < np.inf


def choice_rules(choice: Choice) -> Rules:
    """Yield what holds for the choice of a mixture."""
    yield "a weight from 0 to 1", 0 <= choice.weight <= 1
    yield "a temperature > 0", 0 < choice.temperature < np.inf
    yield "a known exponent", 0 <= choice.exponent < SHARE_EXPONENTS.size


def mixture_rules(stream: MixtureStream) -> Rules:
    """Yield what holds for a mixture."""
    yield "class weights > 0", (stream.class_weights > 0).all()
    yield f"at most {PROBES} probes", stream.probes.shape[0] <= PROBES


def graph_info_rules(info: GraphInfo) -> Rules:
    """Yield what holds for the report of a graph."""
    yield "counts >= 0", min(info.n_entered, info.n_iter) >= 0
    yield "a residual and a gap >= 0", 0 <= info.residual < np.inf and 0 <= info.gap < np.inf


def mixture_info_rules(info: MixtureInfo) -> Rules:
    """Yield what holds for the report of a mixture."""
    yield "counts >= 0", info.n_pieces >= 0


GRAPH_RULES: dict[type, Callable[[Any], Rules]] = {
    ClassRegistry: RECORD_RULES[ClassRegistry],
    GraphState: state_rules,
    SavedRows: saved_rules,
    Euclidean: euclidean_rules,
    KernelDistance: metric_kernel_rules,
    ScoreRecord: score_rules,
    Scales: scale_rules,
    Choice: choice_rules,
    MixtureStream: mixture_rules,
    GraphInfo: graph_info_rules,
    MixtureInfo: mixture_info_rules,
}
