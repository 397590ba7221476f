"""The base class of every classifier: fit, partial_fit, retract, predict and score."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing, check_random_state, indexable, metaestimators
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
)

from seqmed.classes import Rows
from seqmed.estimators.bases import BaseEstimator, ClassifierMixin
from seqmed.estimators.labels import are_plus_one, find
from seqmed.estimators.row_sample import (
    LABELED,
    MISSING,
    SamplePlan,
    Summary,
    number_of_rows,
    plan_for,
    take,
    whole_sample,
)
from seqmed.estimators.validation import (
    ClassifiedRows,
    MatrixLike,
    checked_rows,
    codes_to_retract,
    in_format,
    read_labels,
    validated_batch,
    warn_of_signs,
)
from seqmed.late_rows import KeptLabels, LateLabels
from seqmed.numeric.arrays import Array, Indices, Mask, Points
from seqmed.numeric.execution import callers_level, one_thread
from seqmed.numeric.expectations import expect
from seqmed.uncertainty import Uncertainty

# Number of rows in a block of `in_blocks`: a multiple of the tiles of BLAS, and large enough that
# the fixed cost of a call is small.
BLOCK = 4800

Estimator = TypeVar("Estimator")
Method = TypeVar("Method", bound=Callable[..., Any])


class Started(NamedTuple):
    """What the first batch of a stream determines: the format, and parameters that are fixed."""

    sparse: bool
    fixed: dict[str, Any]


class StreamClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier that learns a stream batch by batch.

    Labels become class numbers here. The learner below knows these numbers only; its state is one
    immutable object, ``_state``, with the labels of every class counted (``counts``). An update
    replaces the state and the classes together. Every method reads a snapshot.
    """

    # Parameters that may not change between two batches.
    _fixed_parameters: tuple[str, ...] = ()
    # Whether unlabeled rows are learned from. If not, -1 may be a class even if it is the marker.
    _semi_supervised = True
    # Whether -1 marked unlabeled rows while no class but +1 was known: it may have been a class.
    _minus_one_seen: bool = False
    unlabeled: Any
    random_state: Any
    classes_: NDArray[Any]
    n_features_in_: int
    n_batches_: int
    update_info_: Any
    _state: Any
    _started: Started

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- learning --------------------------------------------------------------------------------

    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from one batch and discard everything learned before.

        Of a large batch, a random sample is learned, chosen by `random_state` and the numbers of
        the rows: at most 100,000 labeled rows, at least one of them of every class, and at most
        50,000 unlabeled rows. With a graph over kept rows, there are at most as many unlabeled rows
        as the graph may keep; `GraphPropagation` has the same limit for labeled rows. A stream of
        batches with `partial_fit` learns all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows, labeled or not. With ``kernel="precomputed"`` the kernel matrix of shape
            (n_samples, n_samples).
        y : array-like of shape (n_samples,)
            Labels; the class documentation describes how missing labels are marked. At least one
            label is required.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0. Rows of weight 0 are left out. None gives every row the weight 1.

        Returns
        -------
        self : object
            The fitted classifier. If a parameter, X or y is refused, it is unchanged.
        """
        return self._fit(X, y, sample_weight)

    def _fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        plan: SamplePlan | None = None,
        n_left_out: int = 0,
    ) -> Self:
        """Learn one batch, of which rows are chosen if it is large.

        With a plan, the rows are chosen already, and ``n_left_out`` unlabeled ones are not among
        them.
        """
        self._check_parameters()
        model = unfitted(self)
        batch = validated_batch(model, X, y, None, sample_weight, alone=True, new_points=True)
        with generators_restored(model, getattr(model, "estimator", None)):
            if plan is None:
                plan = model._sample_plan()
                batch, n_left_out = sample_of(batch, plan)
            size = model._fit_batch(batch.rows.weights.size)
            model._learn(batch, size, new_points=True, seed=plan.seed)
        graph = getattr(model._state, "graph", None)  # it counts the unlabeled rows of the stream
        if n_left_out and graph is not None:
            graph = replace(graph, n_unlabeled=graph.n_unlabeled + n_left_out)
            model._state = model._state._replace(graph=graph)
        self.__dict__ = model.__dict__  # one assignment: safe for interrupts and other threads
        return self

    def _sample_plan(self) -> SamplePlan:
        """Return how a large table is sampled for `fit`; draws the seed of the fit."""
        self._check_parameters()
        return plan_for(self, self._drawn_seed(), self._sample_sizes())

    def _fit_summary(self, plan: SamplePlan, summary: Summary) -> Self:
        """Learn the merged summary of a table, and discard everything learned before."""
        self._check_kernel("fit from a sample")
        summary = whole_sample(plan, summary)
        return self._fit(summary.rows, summary.y, summary.weights, plan, summary.n_left_out)

    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        new_points: bool = True,
        find_rows: bool = True,
    ) -> Self:
        """Learn the next batch of a stream, or late labels of rows of earlier batches.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of the batch, at least one.
        y : array-like of shape (n_samples,)
            Labels; the class documentation describes how missing labels are marked. A batch may
            have labels of a single class, or no label at all.
        classes : array-like of shape (n_classes,), default=None
            Classes to expect; labels of other classes are then refused. Optional in every call:
            new classes are added when they first appear. A class without a label is never
            predicted.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0. Rows of weight 0 are left out. None gives every row the weight 1.
        new_points : bool, default=True
            Whether the rows are new. False is for labels that arrive after their rows were learned
            without them: the labels are learned, and no batch is counted. Unlabeled rows are then
            ignored, and at least one label is required. A label that its row has already changes
            nothing, and a different label is refused: retract the label first. Rows that are not
            kept are not found, which is normal in a long stream; their labels are learned too.
            `update_info_.late_labels` has the numbers ``n_found``, ``n_not_found`` and
            ``n_already_known``. If all unlabeled rows so far are kept, a row that is not found
            causes a warning.
        find_rows : bool, default=True
            Whether to look for the rows of late labels. False is for callers that know rows by ids
            and pass only labels that are new: rows of equal values may then have different labels.

        Returns
        -------
        self : object
            The classifier after the batch. If a parameter, X or y is refused, it is unchanged.
        """
        model = snapshot(self)
        model._check_parameters()
        model._check_unchanged()
        model._check_kernel("partial_fit")
        if not isinstance(new_points, bool | np.bool_):
            raise ValueError(
                f"partial_fit got new_points={new_points!r}, expected True or False: pass False "
                "for labels of rows that were learned before."
            )
        if not new_points and getattr(model, "_state", None) is None:
            raise ValueError(
                "partial_fit got new_points=False in its first call, expected rows that were "
                "learned before: learn the rows first, with the labels available."
            )
        batch = validated_batch(
            model, X, y, classes, sample_weight, alone=False, new_points=new_points
        )
        late = None
        if not new_points:
            batch, late = model._late_labels(batch, find_rows)
        if batch.rows.codes.size:
            model._learn(batch, None, new_points=new_points)
        model.update_info_ = model.update_info_._replace(late_labels=late)
        self.__dict__ = model.__dict__  # one assignment: safe for interrupts and other threads
        return self

    def _learn(
        self, batch: ClassifiedRows, size: int | None, *, new_points: bool, seed: int | None = None
    ) -> None:
        """Learn a batch, or late labels if its points are not new.

        The rows are learned in random order, ``size`` at a time, or all together with None. The
        ``seed`` of a new model is drawn if it is None.
        """
        rows, state, n_rows = batch.rows, getattr(self, "_state", None), batch.rows.weights.size
        info = None
        if not hasattr(self, "_started"):
            self._started = Started(sp.issparse(rows.points), self._fixed())
        with generators_restored(self, getattr(self, "estimator", None)):
            if seed is None:
                seed = self._drawn_seed() if state is None else 0
            order = None if size is None else np.random.default_rng(seed).permutation(n_rows)
            starts = list(range(0, n_rows, size or n_rows))[: self._most_parts()]
            for start, stop in pairwise([*starts, n_rows]):
                part = rows if order is None else rows.take(order[start:stop])
                if state is None:
                    state = self._begin(part, seed)
                if not start:
                    state = self._with_classes(state, batch.places, batch.declared)
                new_batch = new_points and not start
                state, info = self._learn_rows(
                    state,
                    part,
                    batch.classes,
                    new_points=new_points,
                    new_batch=new_batch,
                    last=stop == n_rows,
                )
            self._commit(state, info, batch.classes)

    def _drawn_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _late_labels(
        self, batch: ClassifiedRows, find_rows: bool
    ) -> tuple[ClassifiedRows, LateLabels | None]:
        """Return the rows of late labels that are not known yet, and the numbers of the labels.

        There are no numbers if the rows are not to be found. Labels that differ from those known
        are refused. A warning tells of rows that are not found although all are kept.
        """
        numbers, rows = batch.numbers[batch.rows.labeled], batch.rows.take(batch.rows.labeled)
        if not find_rows:
            return batch._replace(rows=rows), None
        labels = batch.classes[rows.codes]
        kept = self._kept_labels(rows.points, find(labels, self.classes_))
        known = kept.same & ~kept.free
        missing = ~kept.same & ~kept.free
        refused = np.flatnonzero(missing & (kept.other >= 0))
        if refused.size:
            first = refused[0]
            raise ValueError(
                f"row {numbers[first]} of X was learned with the label "
                f"{self.classes_[kept.other[first]]}, got {labels[first]} with new_points=False, "
                "expected a row without a label or the same label: retract it first, or pass "
                "another row of equal values with new_points=True."
            )
        counts = LateLabels(*(int(each.sum()) for each in (kept.free, missing, known)))
        graph = getattr(self._state, "graph", None)  # it keeps unlabeled rows
        if counts.n_not_found and graph is not None and graph.keeps_all_rows:
            warnings.warn(
                f"{counts.n_not_found} of {labels.size} late labels belong to rows that are not "
                "among the unlabeled rows so far, all of which are kept: they have other values, "
                "for example by another scaling. Their labels were learned as those of new rows; "
                "pass the rows as they were learned.",
                stacklevel=callers_level(),
            )
        return batch._replace(rows=rows.take(~known)), counts

    def retract(self, X: MatrixLike, y: ArrayLike | None = None) -> Self:
        """Remove labels that were learned; their rows remain as unlabeled rows.

        Only rows that are still stored can lose their label: see the Notes of the class. A class
        without any label left is removed too, unless it was declared with ``classes``.
        Probabilities remain calibrated by the scores recorded so far.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows as they were learned, equal to 10 digits. If a row was learned several times, each
            occurrence in X retracts one label, the newest first.
        y : array-like of shape (n_samples,), default=None
            Labels to retract, one per row. None retracts whatever label each row has.

        Returns
        -------
        self : object
            The classifier without these labels. If one of them is not found, it is unchanged.
        """
        self._check_kernel("retract")
        model = self._snapshot()
        points = model._points(X)
        model._check_parameters()
        model._check_unchanged()
        codes = None if y is None else codes_to_retract(model, y, points.shape[0])
        model._retract(points, codes)
        self.__dict__ = model.__dict__  # one assignment: safe for interrupts and other threads
        return self

    # -- predictions -----------------------------------------------------------------------------

    def decision_function(self, X: MatrixLike) -> Array:
        """Return the class scores of every row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            One column per class if there are more than two classes. For two classes, the score of
            ``classes_[1]`` minus that of ``classes_[0]``. For one class, its score. The column of
            a declared class without a label is meaningless, and `predict` ignores it.
        """
        model = self._snapshot()
        scores = model._class_scores(model._checked_points(X))
        compared: Array = model._state.counts.compared(scores)
        return compared

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Return the predicted label of every row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Class with the largest score at every row, among classes with at least one label.
        """
        model = self._snapshot()
        scores = model._class_scores(model._checked_points(X))
        labels: NDArray[Any] = model.classes_[model._state.counts.best(scores)]
        return labels

    def predict_proba(self, X: MatrixLike) -> Array:
        """Return the probability of every class at every row.

        The Notes of the class say whether and how they are calibrated.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`. Each row sums to 1, and its largest entry belongs to the
            class that `predict` returns.
        """
        model = self._snapshot()
        return model._probabilities(model._class_scores(model._checked_points(X)))

    def _scores_and_probabilities(self, X: MatrixLike) -> tuple[Array, Array]:
        """Return what `decision_function` and `predict_proba` return; the model runs once."""
        model = self._snapshot()
        scores = model._class_scores(model._checked_points(X))
        return model._state.counts.compared(scores), model._probabilities(scores)

    def predict_log_proba(self, X: MatrixLike) -> Array:
        """Return the logarithm of the probability of every class at every row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            Logarithms of `predict_proba`, in the order of `classes_`.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy on the labeled rows.

        Unlabeled rows are left out. The first time, a warning says so.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.
        y : array-like of shape (n_samples,)
            True labels; the class documentation describes how missing labels are marked.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. None gives every row the weight 1.

        Returns
        -------
        accuracy : float in [0, 1]
            Weighted fraction of labeled rows that are predicted correctly.

        Raises
        ------
        ValueError
            If no row is labeled, or X, y or sample_weight is invalid.
        """
        model = self._snapshot()
        labeled, labels = read_labels(model, y, model.classes_)
        check_consistent_length(X, labeled)
        weights = _check_sample_weight(sample_weight, labeled, ensure_non_negative=True)[labeled]
        if not labels.size:
            raise ValueError(
                f"score got no labeled row among {labeled.size}, expected at least one: pass true "
                "labels."
            )
        if not weights.any():
            raise ValueError(
                "every sample_weight of a labeled row is zero, expected at least one positive "
                "weight: correct the weights."
            )
        if not labeled.all():
            warn_of_unlabeled_rows()
            X = _safe_indexing(*indexable(X), np.flatnonzero(labeled))
        return float(np.average(model.predict(X) == labels, weights=weights))

    # -- rows to predict -------------------------------------------------------------------------

    def _snapshot(self) -> Self:
        """Return a shallow copy of the fitted classifier."""
        model = snapshot(self)
        check_is_fitted(model, "_state")
        return model

    def _points(self, X: MatrixLike) -> Points:
        """Return rows in the format of the stream. Call it on a snapshot."""
        return in_format(checked_rows(self, X, reset=False), self._started.sparse)

    def _checked_points(self, X: MatrixLike) -> Points:
        """Return rows to predict; refuse if no label has been learned."""
        points = self._points(X)
        if not self._state.counts.seen.any():
            raise NotFittedError(
                f"this {type(self).__name__} has learned no label and cannot predict: learn at "
                "least one labeled row first."
            )
        declared = self._state.counts.declared.any()
        if self._minus_one_seen and not declared and are_plus_one(self.classes_):
            warn_of_signs(self.classes_)
        return points

    # -- parameters ------------------------------------------------------------------------------

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        """Return the names of the parameters; scikit-learn inspects the signature each time."""
        names: list[str] = super()._get_param_names()
        return names

    def _check_parameters(self) -> None:
        """Refuse invalid parameters; subclasses also refuse those that exclude each other."""
        self._validate_params()

    def _fixed(self) -> dict[str, Any]:
        """Return the parameters that may not change between two batches."""
        return {name: getattr(self, name) for name in self._fixed_parameters}

    def _check_unchanged(self) -> None:
        """Refuse parameters that were changed since the first batch and may not change."""
        fixed = self._started.fixed if hasattr(self, "_started") else {}
        for name, now in self._fixed().items():
            before = fixed.get(name, now)
            if now is not before and now != before:
                raise ValueError(
                    f"{name} was changed from {before!r} to {now!r} after the first batch, "
                    f"expected the same value for all batches: set {name}={before!r} again, or "
                    "start a new model."
                )

    def _validate_state(self) -> None:
        """Raise a ValueError if saved attributes do not fit together."""
        classes, kept, width = self.classes_, self._state.kept, self.n_features_in_
        typed = classes.dtype.kind in "Ub" or classes.dtype in ("int64", "float64")
        expect(typed, "labels of a type that can be learned")
        expect(classes.shape == (self._state.counts.size,), "a label for every class")
        expect((classes[1:] > classes[:-1]).all(), "classes in order, each once")
        expect(kept.shape[1] == width, f"kept rows of {width} columns")
        expect(sp.issparse(kept) == self._started.sparse, "kept rows in the format of the stream")

    def _check_kernel(self, method: str) -> None:
        """Refuse ``method`` if it needs kernel values that are not available."""
        if getattr(self, "kernel", None) == "precomputed":
            raise ValueError(
                f"{method} got kernel='precomputed', expected a kernel that can be evaluated "
                "between any two rows: pass the kernel as a callable, or call fit with the kernel "
                "matrix of all rows."
            )

    # -- methods of subclasses -------------------------------------------------------------------

    def _fit_batch(self, n_rows: int) -> int | None:
        """Return the size of the mini-batches of `fit`; None learns all n rows in their order."""
        return None

    @abstractmethod
    def _sample_sizes(self) -> tuple[int, int]:
        """Return the largest numbers of unlabeled and labeled rows that `fit` learns."""

    @abstractmethod
    def _begin(self, rows: Rows, seed: int) -> Any:
        """Return the state before the first batch; ``rows`` is this batch."""

    @staticmethod
    @abstractmethod
    def _with_classes(state: Any, places: Indices, declared: Mask) -> Any:
        """Return the state with class c moved to ``places[c]``, and new classes added."""

    def _most_parts(self) -> int | None:
        """Return the largest number of mini-batches of `fit`; None for any number."""
        return None

    @abstractmethod
    def _learn_rows(
        self,
        state: Any,
        rows: Rows,
        classes: NDArray[Any],
        *,
        new_points: bool,
        new_batch: bool,
        last: bool,
    ) -> tuple[Any, Any]:
        """Return the next state and a report.

        With ``new_batch`` the rows count as a batch. They are the ``last`` mini-batch of a call.
        """

    @abstractmethod
    def _commit(self, state: Any, info: Any, classes: NDArray[Any]) -> None:
        """Store a new state and everything that is derived from it."""

    @abstractmethod
    def _retract(self, points: Points, codes: Indices | None) -> None:
        """Remove the labels of the given rows; ``codes`` (n,) are their classes, None for any."""

    @abstractmethod
    def _kept_labels(self, points: Points, codes: Indices) -> KeptLabels:
        """Return what is known of late labels; ``codes`` (m,) are their classes, -1 for new."""

    @abstractmethod
    def _class_scores(self, points: Points) -> Array:
        """Return the score of every class at validated rows, (n, n_classes)."""

    @abstractmethod
    def _probabilities(self, scores: Array) -> Array:
        """Return the probabilities of the classes, given their scores, both (n, n_classes)."""

    @abstractmethod
    def _n_support(self) -> int:
        """Return the number of points that a label query compares the rows with."""

    @abstractmethod
    def _uncertainty(self, points: Points) -> Uncertainty:
        """Return the uncertainty of the decisions at the given rows, for label queries."""


class GraphClassifier(StreamClassifier):
    """A classifier whose graph may be on a device.

    Learning moves the state to the device. Predictions are made where the state is.
    """

    device: str

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.device != "cpu":
            from seqmed.graph.device import find_device  # imports torch

            find_device(self.device)

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the classifier. They take effect with the next batch.

        Only `device` takes effect at once: what was learned is moved.

        Parameters
        ----------
        **params : dict
            Parameters by name.

        Returns
        -------
        self : object
            The classifier.
        """
        device = params.get("device", "cpu")
        state = getattr(self, "_state", None)
        if "device" in params and isinstance(device, str) and state is not None:
            state = state.on(device)
        super().set_params(**params)
        if state is not None:
            self._state = state
        return self

    def __getstate__(self) -> Any:
        """Return what is pickled: a state with arrays, which can be read without the device."""
        found: dict[str, Any] = dict(cast(Any, super().__getstate__()))  # not its own dictionary
        if "_state" in found:
            found["_state"] = found["_state"].on("cpu")
        return found

    def __setstate__(self, state: Any) -> None:
        """Restore a pickled classifier, on its device if it is there."""
        super().__setstate__(state)  # type: ignore[misc]
        if "_state" in state and self.device != "cpu":
            with suppress(ImportError, ValueError):
                self._state = self._state.on(self.device)

    def _learn(
        self, batch: ClassifiedRows, size: int | None, *, new_points: bool, seed: int | None = None
    ) -> None:
        if getattr(self, "_state", None) is not None:
            self._state = self._state.on(self.device)
        super()._learn(batch, size, new_points=new_points, seed=seed)


def sample_of(batch: ClassifiedRows, plan: SamplePlan) -> tuple[ClassifiedRows, int]:
    """Return the sample of a batch, and the number of unlabeled rows that are left out."""
    rows = batch.rows
    if rows.gram is not None:
        return batch, 0
    kinds = np.where(rows.labeled, LABELED, MISSING).astype(np.int8)
    chosen = plan.chosen(batch.numbers, kinds, rows.codes)
    if chosen.size == kinds.size:
        return batch, 0
    n_left_out = int((~rows.labeled).sum() - (kinds[chosen] == MISSING).sum())
    return batch._replace(rows=rows.take(chosen), numbers=batch.numbers[chosen]), n_left_out


@cache  # Python's own filter repeats a warning after every change of the filters
def warn_of_unlabeled_rows() -> None:
    """Warn once per process that `score` leaves rows out."""
    warnings.warn(
        "score leaves unlabeled rows out and returns the accuracy on the labeled rows. A scorer "
        "such as scoring='accuracy' counts unlabeled rows as errors. To cross-validate, use "
        "seqmed.SemiSupervisedSplit, which tests labeled rows only.",
        stacklevel=callers_level(),
    )


@contextmanager
def generators_restored(*owners: Any) -> Iterator[None]:
    """Restore the generators that estimators have as ``random_state`` if the block fails."""
    passed = [getattr(owner, "random_state", None) for owner in owners]
    used = [each for each in passed if isinstance(each, np.random.RandomState)]
    before = [each.get_state() for each in used]
    try:
        yield
    except BaseException:
        for generator, state in zip(used, before, strict=True):
            generator.set_state(state)
        raise


# -- copies of estimators --------------------------------------------------------------------------


def snapshot(estimator: Estimator) -> Estimator:
    """Return a shallow copy of an estimator, which later updates do not change."""
    copied = object.__new__(type(estimator))
    copied.__dict__.update(estimator.__dict__)  # one atomic operation
    return copied


def unfitted(estimator: Estimator) -> Estimator:
    """Return a shallow copy of an estimator without its fitted attributes."""
    copied = snapshot(estimator)
    for name in list(vars(copied)):
        if name.endswith("_") or name in ("_state", "_started", "_minus_one_seen", "_begun"):
            delattr(copied, name)
    return copied


def copy_to_fit(estimator: Any) -> Any:
    """Return a copy that can learn without changing the estimator.

    The copy is shallow for models of this package, and deep for all others.
    """
    return snapshot(estimator) if hasattr(estimator, "_snapshot") else deepcopy(estimator)


# -- rows in blocks ----------------------------------------------------------------------------


def in_blocks(function: Callable[[Any], tuple[Any, ...]], X: Any) -> list[Any]:
    """Return arrays with an entry for every row that do not depend on the other rows of X.

    BLAS rounds a row differently at the end of a product, and in products of other sizes. The
    function is therefore called with exactly `BLOCK` rows each time, the last of which are repeated
    rows. It returns arrays with an entry for each of these rows. X has at least one row.
    """
    n_rows, parts = number_of_rows(X), []
    with one_thread():
        for start in range(0, n_rows, BLOCK):
            size = min(BLOCK, n_rows - start)
            whole = size == BLOCK and isinstance(X, np.ndarray)  # a view
            block = X[start : start + BLOCK] if whole else take(X, start + np.arange(BLOCK) % size)
            parts.append([each[:size] for each in function(block)])
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


# -- estimators that have an estimator -------------------------------------------------------------


def transformed(steps: list[tuple[str, Any]], X: Any) -> Any:
    """Return rows transformed by the fitted transformers of a pipeline, for its last step."""
    *transformers, (_, final) = steps
    found = X
    for _, step in transformers:
        found = found if step is None or step == "passthrough" else step.transform(found)
    return rows_for(final, X, found)


def rows_for(final: Any, X: Any, found: Any) -> Any:
    """Return the rows that the transformers have found for X as the last step takes them.

    Classifiers of this package take arrays: a later `set_output` of the transformers, or another
    configuration of scikit-learn, would else change the names of the columns.
    """
    named = found is not X and hasattr(found, "to_numpy")
    return found.to_numpy() if named and isinstance(final, StreamClassifier) else found


def available_if_has(name: str, method: str) -> Callable[[Method], Method]:
    """Return a decorator for methods that need a method of the estimator in an attribute."""
    available: Callable[[Method], Method] = metaestimators.available_if(
        lambda owner: hasattr(getattr(owner, name), method)
    )
    return available


def documented_as(other: Callable[..., Any]) -> Callable[[Method], Method]:
    """Return a decorator that gives a method the docstring of another."""

    def documented(method: Method) -> Method:
        method.__doc__ = other.__doc__
        return method

    return documented
