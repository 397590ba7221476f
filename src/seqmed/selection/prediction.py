"""Predictions of a search: by its best candidate, or by a mixture of candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import metaestimators
from sklearn.utils.validation import check_is_fitted

from seqmed.arrays import Array
from seqmed.estimators.base import accuracy
from seqmed.estimators.validation import MatrixLike
from seqmed.selection.candidates import labels_of
from seqmed.selection.race import Record
from seqmed.snapshots import snapshot

Method = TypeVar("Method", bound=Callable[..., Any])


def if_estimator_has(name: str, *, of_best: bool = False) -> Callable[[Method], Method]:
    """Return a decorator for methods that need a method ``name`` of the estimator.

    With ``of_best`` the methods are not available to mixtures.
    """

    def check(search: CandidatePredictor) -> bool:
        return hasattr(search.estimator, name) and not (of_best and search._mixes)

    available: Callable[[Method], Method] = metaestimators.available_if(check)
    return available


class CandidatePredictor(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """The methods of a search that read its candidates and change nothing."""

    estimator: Any
    combine: str
    n_best: int

    candidates_: list[Any]
    record_: Record
    n_batches_: int
    best_index_: int
    best_params_: dict[str, Any]
    best_estimator_: Any
    best_score_: float
    classes_: NDArray[Any]

    def _snapshot(self) -> Self:
        """Return a shallow copy of the fitted search."""
        search = snapshot(self)
        check_is_fitted(search, "candidates_")
        return search

    @property
    def _mixes(self) -> bool:
        """Whether predictions are those of a mixture."""
        return bool(self.combine == "mixture")

    def _check_mixture(self, candidates: list[Any]) -> None:
        if self._mixes and not all(hasattr(each, "predict_proba") for each in candidates):
            raise ValueError(
                f"combine='mixture' got {self.estimator!r}, expected an estimator with "
                "predict_proba: use combine='best'."
            )

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Return the predicted label of every row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Labels predicted by the best candidate, or by the mixture.
        """
        search = self._snapshot()
        search._check_mixture(search.candidates_)
        labels: NDArray[Any]
        if search._mixes:
            labels = search.classes_[search.predict_proba(X).argmax(axis=1)]
        else:
            labels = search.best_estimator_.predict(X)
        return labels

    @if_estimator_has("predict_proba")
    def predict_proba(self, X: MatrixLike) -> Array:
        """Return the probability of every class at every row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`. Each row sums to 1.
        """
        search = self._snapshot()
        probabilities: Array
        if search._mixes:
            correct, members = search.record_.correct, search.record_.ranking[: search.n_best]
            weights = np.exp(correct[members] - correct[members[0]])
            parts = [search.candidates_[place].predict_proba(X) for place in members]
            probabilities = np.tensordot(weights / weights.sum(), parts, axes=1)
        else:
            probabilities = search.best_estimator_.predict_proba(X)
        return probabilities

    @if_estimator_has("predict_proba")
    def predict_log_proba(self, X: MatrixLike) -> Array:
        """Return the logarithm of the probability of every class at every row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            Logarithms of `predict_proba`.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @if_estimator_has("decision_function", of_best=True)
    def decision_function(self, X: MatrixLike) -> Array:
        """Return the class scores of every row by the best candidate.

        Not available to mixtures.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores as described in the estimator.
        """
        scores: Array = self._snapshot().best_estimator_.decision_function(X)
        return scores

    @if_estimator_has("decision_std", of_best=True)
    def decision_std(self, X: MatrixLike) -> Array:
        """Return the standard deviation of every score of the best candidate.

        Not available to mixtures.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        standard_deviations : ndarray of shape (n_samples,)
            See `SeqMED.decision_std`.
        """
        deviations: Array = self._snapshot().best_estimator_.decision_std(X)
        return deviations

    @if_estimator_has("score")
    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy on the labeled rows.

        Unlabeled rows are left out. The first time, a warning says so.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.
        y : array-like of shape (n_samples,)
            True labels, some of them missing.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. None gives every row the weight 1.

        Returns
        -------
        accuracy : float in [0, 1]
            Weighted fraction of labeled rows that are predicted correctly.
        """
        search = self._snapshot()
        labeled, labels = labels_of(search.estimator, y, search.classes_)
        return accuracy(search.predict, X, labeled, labels, sample_weight)
