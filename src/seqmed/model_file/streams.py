"""What holds between the records of a stream, and between them and the parameters it began with.

Rules are as in `records`: a statement and whether it is true.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed import covariance
from seqmed.arrays import Points
from seqmed.classes import ClassRegistry
from seqmed.graph.metrics import make_metric
from seqmed.kernels import DCMFisher, Precomputed, TfIdf, make_kernel
from seqmed.mixture.experts import EUCLIDEAN_KERNELS
from seqmed.model_file.records import Rules, check_records, n_landmarks, points_in

# Kernels of rows that are >= 0.
COUNT_KERNELS = (TfIdf, DCMFisher)


def margin_rules(began: Any, state: dict[str, Any]) -> Rules:
    """Yield what holds for the stream of a margin classifier.

    Parameters
    ----------
    began : SeqMED or SeqLapMED, not fitted, with the valid parameters that the stream began with.
    state : the attributes kept of the fitted one, of their types.
    """
    stream, info, width = state["_stream"], state["update_info_"], state["n_features_in_"]
    posterior, book = stream.posterior, stream.book
    kernel, recursion = posterior.covariance.kernel, posterior.recursion
    given = isinstance(began.kernel, str) and began.kernel == "precomputed"
    named = None if given else make_kernel(began.kernel, began.gamma, began.degree, began.coef0)
    yield "the kernel named", type(kernel) is (Precomputed if given else type(named))
    check_records(
        (stream, info), p=1 if given else width, features=width, machines=book.n_heads,
        window=info.n_window,
    )  # fmt: skip
    fits = (suits(points, kernel, stream.sparse) for points in points_in(posterior))
    yield "points that suit the kernel", all(fits)
    yield "the recursion named", type(recursion) is recursion_class(began, kernel)
    auto = began.bias == "auto"
    yield "machines by the bias named", book.per_class == auto
    variance = 0.0 if auto else float(began.bias_variance)
    yield "the bias variance named", posterior.bias_variance == variance
    biases = (posterior.intercepts, posterior.biases, posterior.bias_means)
    yield "the known bias of -1", not auto or all((each == -1.0).all() for each in biases)
    yield "coefficients for every landmark", posterior.landmarks.size == n_landmarks(recursion)
    signs = posterior.window.signs
    yield "one class for every row", book.n_heads == 1 or ((signs > 0).sum(axis=1) == 1).all()
    found = np.unique(book.own_classes(signs), return_counts=True)
    yield "as many labels as the window holds", has_counted(book, *found)
    yield "one solution for every machine", len(info.solutions) == book.n_heads


def recursion_class(began: Any, kernel: Any) -> type:
    """Return the class of the recursion that a stream begins with."""
    if hasattr(began, "recursion"):
        return type(covariance.make_recursion(began.recursion, kernel))
    unlimited = began.budget is None or kernel.compact
    return covariance.ExactRecursion if unlimited else covariance.NystroemRecursion


def has_counted(book: ClassRegistry, classes: NDArray[np.intp], counts: NDArray[np.intp]) -> bool:
    """Whether a registry has counted so many labels of these classes, by their indices."""
    known = (classes < book.classes.size).all()
    return bool(known and (book.counts[classes] >= counts).all())


def suits(points: Points, kernel: Any, sparse: bool) -> bool:
    """Whether points are of the format and the values that a kernel is for; all are finite."""
    if isinstance(kernel, Precomputed):
        whole = isinstance(points, np.ndarray) and points.dtype == np.intp
        return whole and bool(((points >= 0) & (points < kernel.gram.shape[0])).all())
    formed = sp.issparse(points) == sparse or kernel.compact  # explicit weights are always dense
    return points.dtype == np.float64 and formed and in_domain(points, kernel)


def in_domain(points: Points, kernel: Any) -> bool:
    """Whether rows are >= 0, if a kernel is for counts."""
    values = points.data if sp.issparse(points) else points
    return not isinstance(kernel, COUNT_KERNELS) or bool((values >= 0).all())


def graph_rules(began: Any, state: dict[str, Any]) -> Rules:
    """Yield what holds for a stream with a graph; parameters as in `margin_rules`."""
    stream, info = state["_stream"], state["update_info_"]
    graph, book = stream.graph, stream.book
    kept, metric = graph.rows, graph.rows.metric
    check_records(
        (stream, info), p=state["n_features_in_"], classes=book.classes.size, kept=kept.size
    )  # fmt: skip
    yield "the memory named", graph.capacity == began.graph_memory
    yield "the number of neighbours named", kept.n_neighbors == began.n_neighbors
    yield "the alpha named", graph.alpha == began.alpha
    yield "the metric named", kinds_in(metric) == kinds_in(named_metric(began.metric, stream))
    stored = [block.rows for block in kept.blocks]
    yield (
        "kept rows in single precision, in the format of the stream",
        all(rows.dtype == np.float32 and sp.issparse(rows) == stream.sparse for rows in stored),
    )
    kernel = getattr(metric, "kernel", None)
    yield "kept rows that suit the kernel", all(in_domain(rows, kernel) for rows in stored)
    yield "classes of labels", (graph.codes < book.classes.size).all()
    yield "labels of classes seen", book.seen[graph.codes[graph.codes >= 0]].all()


def kinds_in(metric: Any) -> tuple[type, type]:
    """Return the class of a metric, and that of its kernel if it has one."""
    return type(metric), type(getattr(metric, "kernel", None))


def named_metric(name: Any, stream: Any) -> Any:
    """Return a metric as a stream begins with it."""
    margin, kernel = getattr(stream, "margin", None), None
    if margin is not None and margin.estimator._stream.fixed["kernel"] not in EUCLIDEAN_KERNELS:
        kernel = margin.estimator._stream.posterior.covariance.kernel
    return make_metric(name, sp.csr_array((1, 1)) if stream.sparse else np.zeros((1, 1)), kernel)


def mixture_rules(began: Any, state: dict[str, Any]) -> Rules:
    """Yield what holds for the stream of a `SeqGraphMED`; parameters as in `margin_rules`."""
    stream, info = state["_stream"], state["update_info_"]
    record, choice, inner = stream.record, stream.choice, stream.margin.estimator
    yield "an estimator that is fitted", hasattr(inner, "_stream")
    yield "an estimator of as many columns", inner.n_features_in_ == state["n_features_in_"]
    yield "an estimator of the same format of rows", inner._stream.sparse == stream.sparse
    yield "an estimator of the same classes", same_classes(inner._stream.book, stream.book)
    kernel = inner._stream.posterior.covariance.kernel
    yield "an estimator of a kernel on rows", not isinstance(kernel, Precomputed)
    yield from graph_rules(began, state)
    yield "classes of the record", (record.codes < stream.book.classes.size).all()
    known = np.take_along_axis(record.counts, record.codes[:, None], axis=1)
    yield "a record of classes that were known", (known > 0).all()
    chosen = (record.size, choice.weight, choice.temperature)
    yield "a report of the last choice", (info.n_recorded, info.weight, info.temperature) == chosen
    formed = stream.probes.dtype == np.float64 and sp.issparse(stream.probes) == stream.sparse
    yield "probes in the format of the rows", formed
    kernel = getattr(stream.graph.rows.metric, "kernel", None)
    yield "probes that suit the kernel", in_domain(stream.probes, kernel)


def same_classes(first: ClassRegistry, second: ClassRegistry) -> bool:
    """Whether two registries have the same classes, of the same type."""
    kinds = first.classes.dtype.kind == second.classes.dtype.kind
    return kinds and np.array_equal(first.classes, second.classes)
