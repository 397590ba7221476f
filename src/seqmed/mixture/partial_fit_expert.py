"""A margin expert of another package: any classifier with `partial_fit`."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from seqmed.arrays import Array, Points, take_rows
from seqmed.batch import Rows
from seqmed.classes import ClassRegistry, find, union
from seqmed.estimators.base import StreamClassifier
from seqmed.estimators.validation import equal_parameters, is_estimator
from seqmed.labels import as_objects, typed_labels
from seqmed.mixture.margin_expert import check_type
from seqmed.mixture.mini_batches import MiniBatch


@dataclass(frozen=True)
class PartialFitExpert:
    """Any classifier with `partial_fit`, and `decision_function` or `predict_proba`.

    Parameters
    ----------
    estimator : the classifier.
    given : the parameters of the template it was cloned from.
    """

    estimator: Any
    given: dict[str, Any]

    by_counts = False

    def frozen_kernel(self, rows: Rows) -> None:
        """Return None: the graph uses Euclidean distances."""

    def with_parameters(self, template: Any) -> PartialFitExpert:
        """Return the expert unchanged; refuse a template with other parameters."""
        check_type(self.estimator, template)
        now = all_parameters(template)
        for name in self.given | now:
            before, after = self.given.get(name), now.get(name)
            if not equal_parameters(before, after):
                raise ValueError(
                    f"estimator__{name} was changed from {before!r} to {after!r} after the first "
                    f"batch, expected the same value for all batches: set it to {before!r} again, "
                    "or start a new model."
                )
        return self

    def learn(self, mini_batch: MiniBatch) -> PartialFitExpert:
        """Return the expert after one mini-batch, which a copy of the classifier learns."""
        rows, model = mini_batch.rows, deepcopy(self.estimator)
        takes_all = learns_from_unlabeled(model)
        chosen = mini_batch.part if takes_all else mini_batch.part & rows.labeled
        if not chosen.any():
            return self
        self._check_classes(mini_batch)
        y = np.full(rows.weights.size, None, dtype=object)
        y[rows.labeled] = as_objects(rows.labels)
        if not takes_all:
            y = rows.labels[mini_batch.part[rows.labeled]]
        options: dict[str, Any] = {}
        if not hasattr(model, "classes_"):
            # classes of the whole batch, because later mini-batches may have further classes
            options["classes"] = union(mini_batch.registry.classes, rows.labels)
        weights = rows.weights[chosen]
        if not (weights == 1).all():
            if not takes_weights(model):
                raise ValueError(
                    f"{type(model).__name__} got sample_weight, expected none: its partial_fit "
                    "takes no weights. Leave sample_weight out, or use another estimator."
                )
            options["sample_weight"] = weights
        model.partial_fit(
            take_rows(rows.points, chosen), y if y.size == chosen.sum() else y[chosen], **options
        )
        return PartialFitExpert(model, self.given)

    def _check_classes(self, mini_batch: MiniBatch) -> None:
        known = getattr(self.estimator, "classes_", None)
        if known is None or isinstance(self.estimator, StreamClassifier):
            return
        classes = mini_batch.registry.classes
        new = classes[find(classes, typed_labels(np.asarray(known))) < 0]
        if new.size:
            raise ValueError(
                f"y holds {new.tolist()[0]!r}, a class that is new to "
                f"{type(self.estimator).__name__}, expected one of {known.tolist()}: pass all "
                "classes= in the first call of partial_fit, or use SeqMED, which accepts new ones."
            )

    def scores(self, points: Points, registry: ClassRegistry) -> Array:
        """Return decision values, or log-probabilities if there are none, (n, K)."""
        found = np.zeros((points.shape[0], registry.classes.size))
        classes = getattr(self.estimator, "classes_", None)
        if classes is None or not len(classes):
            return found
        with np.errstate(divide="ignore"):  # a class may be declared and have no label yet
            values = self._values(points, len(classes))
        places = registry.find(typed_labels(np.asarray(classes)))
        found[:, places[places >= 0]] = values[:, places >= 0]
        return found

    def _values(self, points: Points, n_classes: int) -> Array:
        """Return scores (n, K) of the classes of the estimator."""
        if not hasattr(self.estimator, "decision_function"):
            smallest = np.finfo(float).tiny
            return np.asarray(np.log(np.maximum(self.estimator.predict_proba(points), smallest)))
        values = np.asarray(self.estimator.decision_function(points), dtype=float)
        if values.ndim == 1:
            values = np.column_stack([np.zeros_like(values), values])[:, -n_classes:]
        return values

    def label_counts(self, registry: ClassRegistry) -> Array:
        """Return the discounted label weights of the registry."""
        return registry.discounted

    def restarted(self) -> PartialFitExpert:
        return PartialFitExpert(clone(self.estimator), self.given)

    def scale_invariant(self) -> bool:
        """Return False: nothing is known about its parameters."""
        return False

    def labeled_rows(self) -> Rows:
        """Raise an error: they are needed only if columns are scaled, and here they are not."""
        raise NotImplementedError("columns are scaled only with an estimator of this package")

    def retract(self, points: Points, codes: Any) -> tuple[PartialFitExpert, Rows]:
        """Raise an error: the classifier cannot retract a label."""
        raise ValueError(
            f"{type(self.estimator).__name__} cannot retract labels, expected SeqMED or SeqLapMED "
            "as the estimator: start a new model without the labels."
        )


def partial_fit_expert(estimator: BaseEstimator) -> PartialFitExpert:
    """Return the expert of any other classifier."""
    model = clone(estimator)
    missing = [name for name in ("partial_fit",) if not hasattr(model, name)]
    if not (hasattr(model, "decision_function") or hasattr(model, "predict_proba")):
        missing.append("decision_function or predict_proba")
    if missing:
        raise TypeError(
            f"estimator={type(model).__name__} has no {' and no '.join(missing)}, expected a "
            "classifier that learns batch by batch: pass for example SeqMED() or SGDClassifier()."
        )
    return PartialFitExpert(model, all_parameters(estimator))


def learns_from_unlabeled(estimator: Any) -> bool:
    """Whether an estimator learns from unlabeled rows."""
    marked = "unlabeled" in estimator.get_params(deep=False)
    return getattr(estimator, "_semi_supervised", marked)


def takes_weights(estimator: Any) -> bool:
    """Whether `partial_fit` of an estimator takes ``sample_weight``, by name or as ``**kwargs``."""
    parameters = signature(estimator.partial_fit).parameters
    passed_on = any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
    return "sample_weight" in parameters or passed_on


def all_parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters of an estimator; nested estimators are replaced by their types."""
    return {
        name: type(value) if is_estimator(value) else value
        for name, value in estimator.get_params().items()
    }
