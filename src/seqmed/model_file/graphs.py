"""Declarations of graphs and GraphPropagation."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from seqmed.estimators.graph_propagation import GraphPropagation
from seqmed.graph.graph_state import GraphState
from seqmed.graph.kept_rows import KeptRows
from seqmed.graph.metrics import Cosine, Euclidean, KernelDistance, Metric, make_metric
from seqmed.graph.propagation import GraphInfo
from seqmed.mixture.sequential_expert import EUCLIDEAN_KERNELS
from seqmed.model_file.annotations import INTERFACES, WRITTEN_AS
from seqmed.model_file.classifiers import classifier
from seqmed.model_file.declarations import Kept, Rules, check_records, declare
from seqmed.model_file.saved_rows import SavedRows
from seqmed.propagation_state import PropagationState

INTERFACES[Metric] = lambda: (Euclidean, Cosine, KernelDistance)
WRITTEN_AS[KeptRows] = SavedRows

declare(GraphInfo, residual=">= 0", gap=">= 0")


@declare(Euclidean, centre="p", scale="> 0", directions="p q")
def _(metric: Euclidean) -> Rules:
    p, q = metric.directions.shape
    yield "fewer directions than columns", q < p
    departure = np.abs(metric.directions.T @ metric.directions - np.eye(q))
    yield "orthonormal directions", (departure <= 1e-8).all()  # larger than rounding errors


@declare(
    GraphState, codes="kept >= -1", label_weights="kept >= 0", influence="kept classes >= 0",
    solution="kept classes", solved_label_weights="classes >= 0",
)  # fmt: skip
def _(graph: GraphState) -> Rules:
    yield "no more kept rows than the capacity", graph.rows.size <= graph.capacity
    yield (
        "a label weight for every labeled row, and for no other",
        ((graph.label_weights > 0) == (graph.codes >= 0)).all(),
    )


def graph_rules(began: Any, state: dict[str, Any]) -> Rules:
    """Yield rules on the state of a classifier with a graph; parameters as in `margin_rules`."""
    stream, info = state["_stream"], state["update_info_"]
    graph, registry = stream.graph, stream.registry
    kept, metric = graph.rows, graph.rows.metric
    check_records(
        (stream, info), p=state["n_features_in_"], classes=registry.classes.size, kept=kept.size
    )  # fmt: skip
    yield "the graph memory of the parameters", graph.capacity == began.graph_memory
    yield "the number of neighbours of the parameters", kept.n_neighbors == began.n_neighbors
    yield "the alpha of the parameters", graph.alpha == began.alpha
    yield (
        "the metric of the parameters",
        kinds_in(metric) == kinds_in(named_metric(began.metric, stream)),
    )
    stored = [block.rows for block in kept.blocks]
    yield (
        "kept rows in single precision, in the format of the stream",
        all(rows.dtype == np.float32 and sp.issparse(rows) == stream.sparse for rows in stored),
    )
    yield "kept rows that suit the kernel", all(map(metric.kernel.accepts, stored))
    yield "a known class for every label", (graph.codes < registry.classes.size).all()
    yield (
        "labels of classes that have been learned",
        registry.seen[graph.codes[graph.codes >= 0]].all(),
    )


def kinds_in(metric: Metric) -> tuple[type, type]:
    """Return the class of a metric, and that of its kernel."""
    return type(metric), type(metric.kernel)


def named_metric(name: Any, stream: Any) -> Any:
    """Return the metric of the first batch."""
    margin, kernel = getattr(stream, "margin", None), None
    if margin is not None and margin.estimator._stream.fixed["kernel"] not in EUCLIDEAN_KERNELS:
        kernel = margin.estimator._stream.posterior.covariance.kernel
    return make_metric(name, sp.csr_array((1, 1)) if stream.sparse else np.zeros((1, 1)), kernel)


GRAPHS: dict[type, Kept] = {GraphPropagation: classifier(PropagationState, GraphInfo, graph_rules)}
