"""A margin expert of this package: `SeqMED` or `SeqLapMED`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from seqmed.arrays import Array, Points, take_rows
from seqmed.batch import Rows
from seqmed.classes import ClassRegistry
from seqmed.estimators.prediction import scored
from seqmed.estimators.sequential import SequentialClassifier
from seqmed.kernels import Kernel, make_kernel
from seqmed.mixture.margin_expert import check_type
from seqmed.mixture.mini_batches import MiniBatch
from seqmed.snapshots import snapshot

# Kernels with which the graph uses Euclidean distances.
EUCLIDEAN_KERNELS = ("rbf", "linear", "auto")


@dataclass(frozen=True)
class SequentialExpert:
    """`SeqMED` or `SeqLapMED`.

    Unlabeled rows are part of the first mini-batch of a batch, so that the batch has one graph. The
    labels of later mini-batches are learned as late labels. `lag` and `forgetting` count whole
    batches.
    """

    estimator: SequentialClassifier

    @property
    def by_counts(self) -> bool:
        """Whether there is one machine per class with a known bias."""
        return bool(self.estimator.bias == "auto")

    def frozen_kernel(self, rows: Rows) -> Kernel | None:
        """Return the kernel of the estimator, frozen on the first batch; None if Euclidean."""
        model = self.estimator
        if model.kernel in EUCLIDEAN_KERNELS:
            return None
        kernel = make_kernel(model.kernel, model.gamma, model.degree, model.coef0)
        return kernel.freeze(rows.points, rows.weights)

    def with_parameters(self, template: Any) -> SequentialExpert:
        """Return the expert with the parameters of a template, checked as in `partial_fit`."""
        check_type(self.estimator, template)
        model = snapshot(self.estimator)
        model.__dict__.update(template.get_params(deep=False))
        model._check_parameters(getattr(model, "_state", None))
        return SequentialExpert(model)

    def learn(self, mini_batch: MiniBatch) -> SequentialExpert:
        rows, new_points = mini_batch.rows, mini_batch.is_first and mini_batch.new_points
        labeled = rows.labeled & mini_batch.part
        labels = rows.labels[mini_batch.part[rows.labeled]]
        if not new_points and not labels.size:
            return self
        rows = rows._replace(labeled=labeled, labels=labels)
        model = snapshot(self.estimator)
        model.n_features_in_ = rows.points.shape[1]
        model._learn_batch(rows, getattr(model, "_state", None), new_points=new_points)
        return SequentialExpert(model)

    def scores(self, points: Points, registry: ClassRegistry) -> Array:
        """Return scores (n, K), not divided by roots of label counts."""
        state = getattr(self.estimator, "_state", None)
        found = np.zeros((points.shape[0], registry.classes.size))
        if state is not None and state.registry.seen.any():
            places = state.registry.indices_in(registry)
            found[:, places] = state.registry.unscaled(scored(state.posterior, points))
        return found

    def summed_size(self, points: Points) -> float:
        state = getattr(self.estimator, "_state", None)
        if state is None:
            return 0.0
        sizes = state.posterior.summed_sizes(points)
        return float(np.sqrt(np.mean(sizes**2))) + 1.0  # `unscaled` adds 1

    def label_counts(self, registry: ClassRegistry) -> Array:
        """Return the label weights, discounted by the estimator's own `forgetting`."""
        state = getattr(self.estimator, "_state", None)
        found = np.zeros(registry.classes.size)
        if state is not None and state.registry.classes.size:
            found[state.registry.indices_in(registry)] = state.registry.discounted
        return found

    def restarted(self) -> SequentialExpert:
        return sequential_expert(self.estimator)

    def scale_invariant(self) -> bool:
        """Whether the kernel is "rbf", for dense rows also "auto", and its gamma is measured."""
        return self.estimator.kernel in ("rbf", "auto") and self.estimator.gamma == "scale"

    def labeled_rows(self) -> Rows:
        """Return the rows of the window."""
        window, registry = self.estimator._state.posterior.window, self.estimator._state.registry
        labels = registry.classes[registry.own_classes(window.signs)]
        everything = np.ones(labels.size, dtype=bool)
        return Rows(window.points, everything, labels, window.discounted, np.zeros(0))

    def retract(self, points: Points, codes: Any) -> tuple[SequentialExpert, Rows]:
        """Return the expert without the given labels of its window, and these labels."""
        model = snapshot(self.estimator)
        model._check_retractable()
        window, registry = model._state.posterior.window, model._state.registry
        found = model._find_in_window(points, codes)
        labels = registry.classes[registry.own_classes(window.signs[found])]
        taken = Rows(
            points=take_rows(window.points, found),
            labeled=np.ones(labels.size, dtype=bool),
            labels=labels,
            weights=window.weights[found],
            declared=registry.classes[registry.declared],
        )
        model._retract_rows(found)
        return SequentialExpert(model), taken


def is_sequential(estimator: Any) -> bool:
    """Whether an estimator is a `SeqMED` or a `SeqLapMED`."""
    return isinstance(estimator, SequentialClassifier)


def sequential_expert(estimator: BaseEstimator) -> SequentialExpert:
    """Return the expert of a classifier of this package."""
    model: Any = type(estimator)(**estimator.get_params(deep=False))
    if model.kernel == "precomputed":
        raise ValueError(
            "estimator has kernel='precomputed', expected a kernel that can be evaluated "
            "between batches: pass the kernel as a callable."
        )
    return SequentialExpert(model)
