"""Declarations of graphs and GraphPropagation."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from seqmed.estimators.graph_propagation import GraphPropagation
from seqmed.graph.kept_rows import KeptRows
from seqmed.graph.metrics import Cosine, Euclidean, KernelDistance, Metric, make_metric
from seqmed.graph.propagation import GraphInfo, GraphState, PropagationState
from seqmed.kernels import Kernel
from seqmed.model_file.annotations import INTERFACES, WRITTEN_AS
from seqmed.model_file.classifiers import classifier
from seqmed.model_file.declarations import Kept, Rules, check_records, declare
from seqmed.model_file.saved_rows import SavedRows

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
    weighted = (graph.label_weights > 0) == (graph.codes >= 0)
    yield "a label weight for every labeled row, and for no other", weighted.all()


def graph_rules(began: Any, attributes: dict[str, Any], kernel: Kernel | None = None) -> Rules:
    """Yield rules on the state of a classifier with a graph.

    Parameters
    ----------
    began, attributes : as in `margin_rules`.
    kernel : kernel whose distances ``metric="auto"`` uses, or None.
    """
    state, info = attributes["_state"], attributes["update_info_"]
    graph, counts, sparse = state.graph, state.counts, attributes["_started"].sparse
    kept, metric = graph.rows, graph.rows.metric
    check_records(
        (state, info), p=attributes["n_features_in_"], classes=counts.size, kept=kept.size
    )  # fmt: skip
    yield "the graph memory of the parameters", graph.capacity == began.graph_memory
    yield "the number of neighbours of the parameters", kept.n_neighbors == began.n_neighbors
    yield "the alpha of the parameters", graph.alpha == began.alpha
    first = sp.csr_array((1, 1)) if sparse else np.zeros((1, 1))
    named = make_metric(began.metric, first, kernel)
    same = type(metric) is type(named) and type(metric.kernel) is type(named.kernel)
    yield "the metric of the parameters", same
    stored = [block.rows for block in kept.blocks]
    formed = all(each.dtype == np.float32 and sp.issparse(each) == sparse for each in stored)
    yield "kept rows in single precision, in the format of the stream", formed
    yield "kept rows that suit the kernel", all(map(metric.kernel.accepts, stored))
    yield "a known class for every label", (graph.codes < counts.size).all()
    learned = counts.seen[graph.codes[graph.codes >= 0]]
    yield "labels of classes that have been learned", learned.all()


GRAPHS: dict[type, Kept] = {GraphPropagation: classifier(PropagationState, GraphInfo, graph_rules)}
