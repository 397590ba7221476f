"""The margin expert of the mixture: a classifier of this package, or any other with partial_fit.

An expert is immutable: learning returns a new one. `EXPERTS` maps estimators to kinds of experts.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.base import BaseEstimator, clone

from seqmed.arrays import Array, Mask, Points, take_rows
from seqmed.batch import Rows
from seqmed.classes import ClassRegistry, find, union
from seqmed.estimators.base import StreamClassifier
from seqmed.estimators.prediction import scored
from seqmed.estimators.sequential import SequentialClassifier
from seqmed.estimators.validation import equal_parameters, is_estimator
from seqmed.kernels import Kernel, make_kernel
from seqmed.label_dtypes import as_objects, typed
from seqmed.snapshots import snapshot

# Kernels with which the graph uses Euclidean distances.
EUCLIDEAN_KERNELS = ("rbf", "linear", "auto")


class MiniBatch(NamedTuple):
    """One mini-batch for an expert.

    Attributes
    ----------
    rows : the whole batch it belongs to.
    part : (n,) mask of its rows in the batch.
    is_first : whether it is the first of its batch.
    new_points : whether the rows are new; False for late labels.
    registry : the classes, this mini-batch included.
    """

    rows: Rows
    part: Mask
    is_first: bool
    new_points: bool
    registry: ClassRegistry


class MarginExpert(Protocol):
    """The margin expert of the mixture.

    Attributes
    ----------
    estimator : the fitted classifier.
    scaled : whether its scores are to be scaled by label counts.
    """

    @property
    def estimator(self) -> Any: ...
    @property
    def scaled(self) -> bool: ...

    def frozen_kernel(self, rows: Rows) -> Kernel | None:
        """Return the kernel whose distances the graph uses; None for Euclidean distances."""

    def with_parameters(self, template: Any) -> MarginExpert:
        """Return the expert with the parameters of a template; refuse those that may not change."""

    def learn(self, mini_batch: MiniBatch) -> MarginExpert:
        """Return the expert after one mini-batch."""

    def scores(self, points: Points, registry: ClassRegistry) -> Array:
        """Return scores (n, K) of the classes of a registry; 0 for unseen classes."""

    def label_counts(self, registry: ClassRegistry) -> Array:
        """Return the label weight of every class, (K,), discounted as in the expert."""

    def restarted(self) -> MarginExpert:
        """Return an expert with the same parameters that has learned nothing."""

    def scale_invariant(self) -> bool:
        """Whether the columns of dense rows may be scaled: no parameter depends on their unit."""

    def labeled_rows(self) -> Rows:
        """Return the labeled rows that the expert can still learn anew, with discounted weights."""

    def retract(
        self, points: Points, codes: Any, registry: ClassRegistry
    ) -> tuple[MarginExpert, Rows]:
        """Return the expert without the given labels, and these labels."""


@dataclass(frozen=True)
class OwnExpert:
    """`SeqMED` or `SeqLapMED`.

    Unlabeled rows are part of the first mini-batch of a batch, so that the batch has one graph. The
    labels of later mini-batches are learned as late labels. `lag` and `forgetting` count whole
    batches.
    """

    estimator: SequentialClassifier

    @property
    def scaled(self) -> bool:
        """Whether there is one machine per class with a known bias."""
        return bool(self.estimator.bias == "auto")

    def frozen_kernel(self, rows: Rows) -> Kernel | None:
        """Return the kernel of the estimator, frozen on the first batch; None if Euclidean."""
        model = self.estimator
        if model.kernel in EUCLIDEAN_KERNELS:
            return None
        kernel = make_kernel(model.kernel, model.gamma, model.degree, model.coef0)
        return kernel.freeze(rows.points, rows.weights)

    def with_parameters(self, template: Any) -> OwnExpert:
        """Return the expert with the parameters of a template, checked as in `partial_fit`."""
        check_type(self.estimator, template)
        model = snapshot(self.estimator)
        model.__dict__.update(template.get_params(deep=False))
        model._check_parameters(getattr(model, "_stream", None))
        return OwnExpert(model)

    def learn(self, mini_batch: MiniBatch) -> OwnExpert:
        rows, new_points = mini_batch.rows, mini_batch.is_first and mini_batch.new_points
        labeled = rows.labeled & mini_batch.part
        labels = rows.labels[mini_batch.part[rows.labeled]]
        if not new_points and not labels.size:
            return self
        rows = rows._replace(labeled=labeled, labels=labels)
        model = snapshot(self.estimator)
        model.n_features_in_ = rows.points.shape[1]
        model._learn_batch(rows, getattr(model, "_stream", None), new_points=new_points)
        return OwnExpert(model)

    def scores(self, points: Points, registry: ClassRegistry) -> Array:
        """Return scores (n, K), not scaled by label counts."""
        stream = getattr(self.estimator, "_stream", None)
        found = np.zeros((points.shape[0], registry.classes.size))
        if stream is not None and stream.registry.seen.any():
            places = stream.registry.indices_in(registry)
            found[:, places] = stream.registry.unscaled(scored(stream.posterior, points))
        return found

    def label_counts(self, registry: ClassRegistry) -> Array:
        """Return the label weights, discounted by the estimator's own `forgetting`."""
        stream = getattr(self.estimator, "_stream", None)
        found = np.zeros(registry.classes.size)
        if stream is not None and stream.registry.classes.size:
            found[stream.registry.indices_in(registry)] = stream.registry.discounted
        return found

    def restarted(self) -> OwnExpert:
        return own_expert(self.estimator)

    def scale_invariant(self) -> bool:
        """Whether the kernel is "rbf", for dense rows also "auto", and its gamma is measured."""
        return self.estimator.kernel in ("rbf", "auto") and self.estimator.gamma == "scale"

    def labeled_rows(self) -> Rows:
        """Return the rows of the window."""
        window, registry = self.estimator._stream.posterior.window, self.estimator._stream.registry
        labels = registry.classes[registry.own_classes(window.signs)]
        everything = np.ones(labels.size, dtype=bool)
        return Rows(window.points, everything, labels, window.discounted, np.zeros(0))

    def retract(
        self, points: Points, codes: Any, registry: ClassRegistry
    ) -> tuple[OwnExpert, Rows]:
        """Return the expert without the given labels of its window, and these labels."""
        model = snapshot(self.estimator)
        model._check_retractable()
        window = model._stream.posterior.window
        found = model._find_in_window(points, codes)
        labels = model.classes_[model._stream.registry.own_classes(window.signs[found])]
        taken = Rows(
            take_rows(window.points, found), np.ones(labels.size, dtype=bool), labels,
            window.weights[found], np.zeros(0),
        )  # fmt: skip
        model._retract_rows(found)
        return OwnExpert(model), taken


@dataclass(frozen=True)
class OtherExpert:
    """Any classifier with `partial_fit`, and `decision_function` or `predict_proba`.

    Parameters
    ----------
    estimator : the classifier.
    given : the parameters of the template it was cloned from.
    """

    estimator: Any
    given: dict[str, Any]

    scaled = False

    def frozen_kernel(self, rows: Rows) -> None:
        """Return None: the graph uses Euclidean distances."""

    def with_parameters(self, template: Any) -> OtherExpert:
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

    def learn(self, mini_batch: MiniBatch) -> OtherExpert:
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
        return OtherExpert(model, self.given)

    def _check_classes(self, mini_batch: MiniBatch) -> None:
        known = getattr(self.estimator, "classes_", None)
        if known is None or isinstance(self.estimator, StreamClassifier):
            return
        classes = mini_batch.registry.classes
        new = classes[find(classes, typed(np.asarray(known))) < 0]
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
        places = registry.find(typed(np.asarray(classes)))
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

    def restarted(self) -> OtherExpert:
        return OtherExpert(clone(self.estimator), self.given)

    def scale_invariant(self) -> bool:
        """Return False: nothing is known about its parameters."""
        return False

    def labeled_rows(self) -> Rows:
        """Raise an error: they are needed only if columns are scaled, and here they are not."""
        raise NotImplementedError("columns are scaled only with an estimator of this package")

    def retract(
        self, points: Points, codes: Any, registry: ClassRegistry
    ) -> tuple[OtherExpert, Rows]:
        """Raise an error: the classifier cannot retract a label."""
        raise ValueError(
            f"{type(self.estimator).__name__} cannot retract labels, expected SeqMED or SeqLapMED "
            "as the estimator: start a new model without the labels."
        )


def make_expert(estimator: BaseEstimator) -> MarginExpert:
    """Return the expert of an estimator; the estimator is cloned, without its fitted state."""
    return next(make(estimator) for applies, make in EXPERTS if applies(estimator))


def is_own(estimator: Any) -> bool:
    """Whether an estimator is a `SeqMED` or a `SeqLapMED`."""
    return isinstance(estimator, SequentialClassifier)


def own_expert(estimator: BaseEstimator) -> OwnExpert:
    """Return the expert of a classifier of this package."""
    model: Any = type(estimator)(**estimator.get_params(deep=False))
    if model.kernel == "precomputed":
        raise ValueError(
            "estimator has kernel='precomputed', expected a kernel that can be evaluated "
            "between batches: pass the kernel as a callable."
        )
    return OwnExpert(model)


def other_expert(estimator: BaseEstimator) -> OtherExpert:
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
    return OtherExpert(model, all_parameters(estimator))


# Kinds of experts; the first one that applies to the estimator is used.
EXPERTS: list[tuple[Callable[[Any], bool], Callable[[Any], MarginExpert]]] = [
    (is_own, own_expert),
    (lambda estimator: True, other_expert),
]


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


def check_type(before: Any, now: Any) -> None:
    """Refuse an estimator of another type than before."""
    if type(before) is not type(now):
        raise ValueError(
            f"estimator was changed from a {type(before).__name__} to a {type(now).__name__} after "
            "the first batch, expected the same type for all batches: set it back, or start a new "
            "model."
        )
