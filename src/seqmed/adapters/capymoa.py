"""A semi-supervised learner for CapyMOA. Needs the extra ``seqmed[capymoa]``, and Java."""

from __future__ import annotations

from typing import Any

import numpy as np
from capymoa.base import ClassifierSSL
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from seqmed.adapters.row_by_row import MiniBatches
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.numeric.arrays import Array


class MiniBatchClassifierSSL(ClassifierSSL):
    """CapyMOA learner that passes instances on to a classifier of this package.

    Instances are collected into mini-batches, labeled and unlabeled ones together. There is no
    prediction before the first mini-batch.

    Parameters
    ----------
    schema : capymoa.stream.Schema
        Schema of the stream.
    estimator : classifier or None, default=None
        A classifier with `partial_fit` and `predict_proba` that takes None as a missing label. None
        is a `SeqGraphMED` with the random seed of the learner.
    batch_size : int >= 1, default=100
        Instances of a mini-batch.
    random_seed : int, default=1
        Seed of the default estimator.

    Attributes
    ----------
    model : MiniBatches
        The classifier and the instances that it has not learned yet.
    """

    def __init__(
        self, schema: Any, estimator: Any = None, batch_size: int = 100, random_seed: int = 1
    ) -> None:
        super().__init__(schema=schema, random_seed=random_seed)
        chosen = SeqGraphMED(random_state=random_seed) if estimator is None else clone(estimator)
        self.model = MiniBatches(chosen, batch_size=batch_size)

    def train(self, instance: Any) -> None:
        """Learn from a labeled instance."""
        self._learn(instance, int(instance.y_index))

    def train_on_unlabeled(self, instance: Any) -> None:
        """Learn from an instance without its label."""
        self._learn(instance, None)

    def _learn(self, instance: Any, label: int | None) -> None:
        classes = np.arange(self.schema.get_num_classes())
        self.model.partial_fit(instance.x[None], [label], classes=classes)

    def predict_proba(self, instance: Any) -> Array | None:
        """Return the probability of every class; None before the first mini-batch."""
        try:
            return np.asarray(self.model.predict_proba(instance.x[None])[0])
        except NotFittedError:
            return None
