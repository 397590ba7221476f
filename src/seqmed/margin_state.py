"""The state of SeqMED and SeqLapMED (classes, posterior, calibration) and its updates.

The functions expect validated rows and change nothing in place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed import calibration, update
from seqmed.arrays import take_rows
from seqmed.batch import Batch, Rows, UpdateInfo
from seqmed.calibration import Calibration
from seqmed.classes import ClassRegistry, empty_registry
from seqmed.covariance.protocol import Recursion
from seqmed.graph.laplacian import GraphParameters
from seqmed.posterior import Posterior
from seqmed.settings import Settings
from seqmed.threads import threads_for


class MarginState(NamedTuple):
    """The state of `SeqMED` and `SeqLapMED`."""

    posterior: Posterior
    registry: ClassRegistry
    calibration: Calibration
    fixed: dict[str, Any]
    sparse: bool


def empty_state(
    recursion: Recursion,
    graph_parameters: GraphParameters,
    rows: Rows,
    bias_variance: float | None,
    fixed: dict[str, Any],
) -> MarginState:
    """Return the state before the first batch.

    ``rows`` is the first batch, which determines the format of later rows. If
    ``bias_variance`` is None, there is one machine per class with a known bias of -1.
    """
    per_class = bias_variance is None
    mean, variance = (-1.0, 0.0) if bias_variance is None else (0.0, bias_variance)
    return MarginState(
        posterior=update.prior_of(recursion, graph_parameters, rows.points, mean, variance),
        registry=empty_registry(per_class=per_class),
        calibration=Calibration(),
        fixed=fixed,
        sparse=sp.issparse(rows.points),
    )


def learn(
    state: MarginState, rows: Rows, settings: Settings, class_weight: Any, new_points: bool
) -> tuple[MarginState, UpdateInfo]:
    """Learn a batch, or late labels if its points are not new.

    The calibration records the scores of labeled rows under the posterior before the update. The
    calibration is updated last, because the update decides whether earlier labels are discounted.
    """
    labeled = np.flatnonzero(rows.labeled)
    points, weights = rows.points, rows.weights[labeled]
    registry = state.registry.declare(rows.declared).add(rows.labels, weights)
    if not new_points:
        points, labeled = take_rows(points, labeled), np.arange(labeled.size)
    codes = registry.find(rows.labels)
    batch = Batch(
        points=points,
        labeled=labeled,
        targets=registry.targets(codes),
        weights=weights,
        class_weights=registry.class_weights(class_weight)[codes],
    )
    scored = bool(labeled.size) and state.registry.seen.sum() > 1
    posterior = with_classes(state, registry)
    rows_at_once = max(points.shape[0], posterior.size)
    with threads_for(rows_at_once, posterior.recursion.capacity):
        if scored:
            geometry = state.posterior.landmark_geometry(batch.labeled_points)
            batch = replace(batch, geometry=geometry)
        step = update.step if new_points else update.add_labels
        posterior, info = step(posterior, batch, settings)
        left = settings.forgetting if info.forgot else 1.0
        registry, record = registry.discount(left, codes, weights), state.calibration.forget(left)
        if scored:
            record = recorded(state, record, batch, rows.labels)
    return state._replace(posterior=posterior, registry=registry, calibration=record), info


def recorded(
    before: MarginState, record: Calibration, batch: Batch, labels: NDArray[Any]
) -> Calibration:
    """Return the record with the scores that labeled rows had before they were learned."""
    with np.errstate(over="ignore", invalid="ignore"):
        scores = before.posterior.mean(batch.labeled_points, batch.geometry)
    codes = before.registry.find(labels)
    return calibration.record(record, before.registry, scores, codes, batch.weights)


def retract(
    state: MarginState, rows: NDArray[np.bool_], settings: Settings
) -> tuple[MarginState, UpdateInfo]:
    """Retract the labels of some rows of the window, by a mask (n,)."""
    window = state.posterior.window
    weights = window.weights[rows]
    codes = state.registry.own_classes(window.signs[rows])
    registry = state.registry.remove(codes, weights, window.discounted[rows])
    batch = Batch(
        points=take_rows(window.points, rows),
        labeled=np.arange(weights.size),
        targets=window.signs[rows],
        weights=weights,
        class_weights=np.ones(weights.size),
    )
    posterior = with_classes(state, registry)
    with threads_for(posterior.size):
        posterior, info = update.retract(posterior, batch, rows, settings)
    return state._replace(posterior=posterior, registry=registry), info


def with_classes(state: MarginState, registry: ClassRegistry) -> Posterior:
    """Return the posterior with machines for the classes of another registry."""
    if registry.classes.size == state.registry.classes.size:
        return state.posterior
    transfer, offsets = state.registry.transfer(registry)
    return update.with_machines(state.posterior, transfer, offsets, known_bias=registry.per_class)
