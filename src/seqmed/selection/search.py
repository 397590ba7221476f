"""PrequentialSearch: parameters chosen by prequential accuracy on the stream itself.

Every candidate predicts the labeled rows of a batch before it learns them. The discounted accuracy
of these predictions ranks the candidates, without a validation set and without a second pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import ParameterGrid
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted

from seqmed.estimators.base import (
    StreamClassifier,
    available_if_has,
    copy_to_fit,
    documented_as,
    snapshot,
    unfitted,
)
from seqmed.estimators.bases import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from seqmed.estimators.labels import NO_LABELS
from seqmed.estimators.seqmed import SeqMED
from seqmed.estimators.validation import MatrixLike, refuse_plain_pipeline
from seqmed.selection.race import Record, common_classes, empty_race, labels_of, make_candidates


def of_best(method: Callable[..., Any]) -> Any:
    """Return a method that calls the method of this name of the best candidate."""
    name = method.__name__

    @available_if_has("estimator", name)
    @wraps(method)
    def called(self: Any, X: MatrixLike, *arguments: Any, **named: Any) -> Any:
        return getattr(self._snapshot().best_estimator_, name)(X, *arguments, **named)

    return called


class PrequentialSearch(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Search over parameters on a stream, by prequential accuracy.

    There is one candidate for each combination of parameters. Every candidate predicts the labeled
    rows of a batch, then learns the batch. The candidate with the highest discounted accuracy is
    the best one, and the search predicts with it. Candidates that are significantly worse than the
    best one are dropped.

    Parameters
    ----------
    estimator : object with `partial_fit` and `predict`
        Classifier of seqmed, or a `StreamPipeline` that ends in one. If its ``random_state`` is
        None, a seed is drawn that all candidates share; see ``candidates_[0].random_state``.
    param_grid : dict of lists, or list of such dicts
        Parameters and the values to try, as in `sklearn.model_selection.GridSearchCV`. If
        candidates are equally good, the first one wins, so list simple values first. A grid over
        ``beta`` should include 0, in case unlabeled rows are misleading.
    discount : float in (0, 1], default=0.98
        Factor by which earlier predictions are discounted at every batch with labels. With a value
        below 1 the best candidate is the best of recent batches. Late labels do not discount
        earlier predictions.
    drop_limit : float > 0 or None, default=3.0
        Number of standard deviations by which a candidate must be worse than the best one to be
        dropped permanently. See Notes. None drops no candidate; choose it for long streams with
        recurring concepts.
    batch_size : int >= 1, default=200
        Number of rows per batch in `fit`.

    Attributes
    ----------
    candidates_ : list of estimators
        One per combination. Dropped candidates stop learning.
    record_ : Record
        Accuracy of the candidates.
    results_ : dict of lists
        Results with one entry per candidate: ``params``, ``accuracy`` (over all batches in the
        race), ``recent_accuracy`` (discounted), ``rank`` (1 is best, 0 is dropped) and ``dropped``
        (a `Dropped` or None).
    best_index_ : int
        Index of the best candidate.
    best_params_ : dict
        Parameters of the best candidate.
    best_estimator_ : estimator
        The best candidate.
    best_score_ : float in [0, 1]
        Discounted accuracy of the best candidate; NaN before the first prediction.
    classes_ : ndarray of shape (n_classes,)
        Classes so far, sorted.
    n_features_in_ : int
        Number of columns. Only available if the estimator has it.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names. Only available if the first batch has column names that are all strings.
    n_batches_ : int
        Number of batches learned.

    See Also
    --------
    SemiSupervisedSplit : Cross-validation with missing labels, for data that fit in memory.
    sklearn.model_selection.GridSearchCV : Search by cross-validation.

    Notes
    -----
    A candidate and the best one are compared on the rows that only one of them predicts correctly.
    There must be at least 10 such rows. ``lost`` is the discounted weight of those that the best
    one predicts correctly, ``won`` the weight of the others. The candidate is dropped if
    ``lost - won`` exceeds ``drop_limit`` standard deviations. For rows of weight 1 the standard
    deviation is ``sqrt(lost + won)``.

    The first batch determines the candidates. Later changes of ``estimator`` and ``param_grid``
    have no effect until `fit`. All other parameters may change between batches. `retract` removes
    labels from all candidates in the race; their predictions remain in the record.

    References
    ----------
    A. P. Dawid, "Statistical theory: the prequential approach", JRSS A 1984.

    O. Maron, A. Moore, "Hoeffding races: accelerating model selection search for classification and
    function approximation", NIPS 1993.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from seqmed import PrequentialSearch, SeqMED
    >>> X, y = load_iris(return_X_y=True)
    >>> search = PrequentialSearch(SeqMED(), {"C": [10.0, 100.0], "gamma": ["scale", 10.0]})
    >>> for start in range(5):
    ...     search = search.partial_fit(X[start::6], y[start::6])
    >>> search.best_params_["gamma"]
    'scale'
    >>> bool(search.score(X[5::6], y[5::6]) > 0.9)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": [HasMethods(["partial_fit", "predict"])],
        "param_grid": [dict, list],
        "discount": [Interval(Real, 0.0, 1.0, closed="right")],
        "drop_limit": [Interval(Real, 0.0, None, closed="neither"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }

    candidates_: list[Any]
    record_: Record
    n_batches_: int
    best_index_: int
    best_params_: dict[str, Any]
    best_estimator_: Any
    best_score_: float
    classes_: NDArray[Any]
    _begun: dict[str, Any]

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
        *,
        discount: float = 0.98,
        drop_limit: float | None = 3.0,
        batch_size: int = 200,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.discount = discount
        self.drop_limit = drop_limit
        self.batch_size = batch_size

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = copy.copy(self.estimator.__sklearn_tags__().input_tags)
        tags.input_tags.pairwise = False
        return tags

    # -- learning --------------------------------------------------------------------------------

    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn rows as a new stream, in batches of ``batch_size`` rows in the given order.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows, labeled or not, in the form that the estimator takes.
        y : array-like of shape (n_samples,)
            Labels; the class documentation of the estimator describes how missing labels are
            marked. At least one label is required.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0. Rows of weight 0 are left out. None gives every row the weight 1.

        Returns
        -------
        self : object
            The fitted search. If a batch is refused, the search is unchanged.
        """
        search = unfitted(self)
        search._check_parameters()
        if y is None:
            raise ValueError("PrequentialSearch requires y to be passed, but the target y is None.")
        X, y = indexable(X, y)
        weights, used = None, np.arange(_num_samples(y))
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, y, ensure_non_negative=True)
            used = np.flatnonzero(weights) if weights.any() else used
        _, labels = labels_of(self.estimator, _safe_indexing(y, used), NO_LABELS, alone=True)
        if not labels.size:
            raise ValueError(
                f"PrequentialSearch.fit got no labeled row among {used.size}, expected at least "
                "one: add labels, or learn unlabeled batches with partial_fit."
            )
        classes = np.unique(labels)
        for start in range(0, used.size, self.batch_size):
            rows = used[start : start + self.batch_size]
            own = None if weights is None else weights[rows]
            search.partial_fit(
                _safe_indexing(X, rows), _safe_indexing(y, rows), classes, sample_weight=own
            )
        self.__dict__ = search.__dict__  # one assignment: safe for interrupts and other threads
        return self

    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        **parameters: Any,
    ) -> Self:
        """Predict the labeled rows of a batch with every candidate in the race, then learn it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of the batch, in the form that the estimator takes.
        y : array-like of shape (n_samples,)
            Labels, some of them missing.
        classes : array-like of shape (n_classes,), default=None
            Classes to expect.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights >= 0. Rows of weight 0 are left out. None gives every row the weight 1.
        **parameters : dict
            Further arguments for `partial_fit` of the estimator, such as ``new_points``.

        Returns
        -------
        self : object
            The search after the batch. If a candidate refuses the batch, the search is unchanged.
        """
        self._check_parameters()
        if hasattr(self, "candidates_"):
            begun, n_batches = self._begun, self.n_batches_
            candidates, record = self.candidates_, self.record_
        else:
            begun, n_batches = {"param_grid": list(ParameterGrid(self.param_grid))}, 0
            candidates = make_candidates(self.estimator, begun["param_grid"])
            record = empty_race(len(candidates))
        given = {"classes": classes, "sample_weight": sample_weight, **parameters}
        given = {name: value for name, value in given.items() if value is not None}
        learned = list(candidates)
        for place in record.racing:
            learned[place] = copy_to_fit(candidates[place]).partial_fit(X, y, **given)
        known = common_classes([learned[place] for place in record.racing])
        # every candidate has accepted the batch by now; the predictions are those before the batch
        new_points = bool(given.get("new_points", True))
        n_batches += new_points
        labeled, labels = labels_of(candidates[record.racing[0]], y, known)
        weights = _check_sample_weight(sample_weight, labeled)
        rows, labels = np.flatnonzero(labeled & (weights > 0)), labels[weights[labeled] > 0]
        if rows.size:
            X_labeled = _safe_indexing(*indexable(X), rows)
            with suppress(NotFittedError):  # before the first label
                hits = [candidates[place].predict(X_labeled) == labels for place in record.racing]
                if new_points:  # late labels do not discount earlier predictions
                    record = record.discounted(self.discount)
                record = record.add(np.array(hits, dtype=bool), weights[rows])
                if self.drop_limit is not None:
                    record = record.drop_inferior(n_batches, self.drop_limit)
        self._commit(learned, record, n_batches, begun)
        return self

    @available_if_has("estimator", "retract")
    @documented_as(StreamClassifier.retract)
    def retract(self, X: MatrixLike, y: ArrayLike | None = None) -> Self:
        search = self._snapshot()
        search._check_parameters()
        learned = list(search.candidates_)
        for place in search.record_.racing:
            learned[place] = copy_to_fit(learned[place]).retract(X, y)
        self._commit(learned, search.record_, search.n_batches_, search._begun)
        return self

    def _check_parameters(self) -> None:
        """Refuse invalid parameters."""
        refuse_plain_pipeline(self.estimator, "PrequentialSearch got")
        self._validate_params()
        if not list(ParameterGrid(self.param_grid)):
            raise ValueError(
                f"param_grid got {self.param_grid!r}, expected at least one combination: list the "
                "values to try, as in {'C': [1.5, 10.0]}."
            )

    def _commit(
        self, candidates: list[Any], record: Record, n_batches: int, begun: dict[str, Any]
    ) -> None:
        """Store a new state and everything that is derived from it."""
        best = int(record.ranking[0])
        leader = candidates[best]
        state = {
            "candidates_": candidates,
            "record_": record,
            "n_batches_": n_batches,
            "best_index_": best,
            "best_estimator_": leader,
            "best_params_": dict(begun["param_grid"][best]),
            "best_score_": float(record.correct[best] / record.total) if record.total else np.nan,
            "classes_": leader.classes_,
            "_begun": begun,
        }
        for name in ("n_features_in_", "feature_names_in_"):  # not all pipelines have them
            if hasattr(leader, name):
                state[name] = getattr(leader, name)
        self.__dict__.update(state)

    def _snapshot(self) -> Self:
        """Return a shallow copy of the fitted search."""
        search = snapshot(self)
        check_is_fitted(search, "candidates_")
        return search

    @property
    def results_(self) -> dict[str, list[Any]]:
        """Results of the candidates, one entry per candidate in every list."""
        search = self._snapshot()
        record = search.record_
        ranks = np.zeros(len(search.candidates_), dtype=int)
        ranks[record.ranking] = 1 + np.arange(record.ranking.size)
        with np.errstate(invalid="ignore"):
            return {
                "params": [dict(each) for each in search._begun["param_grid"]],
                "accuracy": (record.correct_undiscounted / record.total_undiscounted).tolist(),
                "recent_accuracy": np.where(
                    ranks > 0, record.correct / np.float64(record.total), np.nan
                ).tolist(),
                "rank": ranks.tolist(),
                "dropped": list(record.dropped),
            }

    # -- predictions by the best candidate -------------------------------------------------------

    predict = of_best(StreamClassifier.predict)
    predict_proba = of_best(StreamClassifier.predict_proba)
    predict_log_proba = of_best(StreamClassifier.predict_log_proba)
    decision_function = of_best(StreamClassifier.decision_function)
    decision_std = of_best(SeqMED.decision_std)
    score = of_best(StreamClassifier.score)
