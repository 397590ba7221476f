"""Rows that come one by one, collected into mini-batches."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_consistent_length

from seqmed.estimators.base import copy_to_fit
from seqmed.estimators.labels import as_objects
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.estimators.validation import MatrixLike, refuse_plain_pipeline
from seqmed.numeric.arrays import Array


class MiniBatches(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Collect rows until there is a mini-batch of them, and then learn it.

    For libraries that learn row by row, such as river: an update of a classifier of this package
    costs about as much for one row as for a hundred. Predictions are those of the mini-batches
    learned so far; rows that are not learned yet do not count.

    Parameters
    ----------
    estimator : classifier or None, default=None
        A classifier with `partial_fit`. None is `SeqGraphMED()`. The estimator is cloned.
    batch_size : int >= 1, default=100
        Rows of a mini-batch.

    Attributes
    ----------
    estimator_ : classifier
        The estimator, fitted on the mini-batches so far.
    classes_ : ndarray of shape (n_classes,)
        Labels known to it.
    n_pending_ : int
        Rows that are not learned yet.

    Examples
    --------
    >>> import numpy as np
    >>> from seqmed.adapters.row_by_row import MiniBatches
    >>> rng = np.random.default_rng(0)
    >>> model = MiniBatches(batch_size=20)
    >>> for _ in range(50):
    ...     row = rng.normal(size=2)
    ...     label = int(row[0] > 0) if rng.random() < 0.5 else None
    ...     model = model.partial_fit([row], [label])
    >>> model.n_pending_
    10
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]])
    array([1, 0])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": "no_validation",
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }
    _points: Array
    _labels: Any
    _declared: Any

    def __init__(self, estimator: Any = None, *, batch_size: int = 100) -> None:
        self.estimator = estimator
        self.batch_size = batch_size

    def partial_fit(self, X: MatrixLike, y: Any, classes: ArrayLike | None = None) -> Self:
        """Add rows; learn those that make a mini-batch.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels; None for an unlabeled row.
        classes : array-like or None, default=None
            Classes to declare, in the first call.

        Returns
        -------
        self : the classifier. Left as it was if a row is refused.
        """
        self._validate_params()
        refuse_plain_pipeline(self.estimator, "MiniBatches got")
        points = check_array(X, dtype=np.float64, input_name="X")
        labels = as_objects(np.asarray(y, dtype=object))
        check_consistent_length(points, labels)
        if hasattr(self, "_labels"):
            width, expected = points.shape[1], self._points.shape[1]
            if width != expected:
                raise ValueError(
                    f"X has {width} columns, expected {expected}, as in the rows before: pass rows "
                    "with the same columns."
                )
            classes = self._declared if classes is None else classes
            points = np.vstack([self._points, points])
            labels = np.concatenate([self._labels, labels])
        self._learn(points, labels, classes, len(labels) - len(labels) % self.batch_size)
        return self

    def flush(self) -> Self:
        """Learn the rows that are not learned yet, as a smaller mini-batch."""
        if hasattr(self, "_labels"):
            self._learn(self._points, self._labels, self._declared, self.n_pending_)
        return self

    def _learn(self, points: Array, labels: Any, declared: Any, n: int) -> None:
        """Learn the first n rows in mini-batches, and keep the others.

        A copy of the estimator learns, so that a refused mini-batch changes nothing.
        """
        state = {"_declared": declared, "_points": points[n:].copy(), "_labels": labels[n:].copy()}
        if n:
            fitted = hasattr(self, "estimator_")
            model = copy_to_fit(self.estimator_) if fitted else clone(self._template())
            for start in range(0, n, self.batch_size):
                batch = slice(start, min(start + self.batch_size, n))
                options = {"classes": declared} if not fitted and declared is not None else {}
                model.partial_fit(points[batch], labels[batch], **options)
                fitted = True
            state["estimator_"] = model
        self.__dict__.update(state)

    def _template(self) -> Any:
        return SeqGraphMED() if self.estimator is None else self.estimator

    @property
    def n_pending_(self) -> int:
        """Rows that are not learned yet."""
        return len(self._labels)

    @property
    def classes_(self) -> Any:
        """Labels known to the fitted estimator."""
        return self._fitted().classes_

    def _fitted(self) -> Any:
        if not hasattr(self, "estimator_"):
            raise NotFittedError(
                f"No mini-batch has been learned yet, expected {self.batch_size} rows: pass more "
                "rows to partial_fit, or call flush."
            )
        return self.estimator_

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Return the predicted class of every row, (n_samples,)."""
        return np.asarray(self._fitted().predict(np.asarray(X, dtype=np.float64)))

    @available_if(lambda model: hasattr(model._template(), "predict_proba"))
    def predict_proba(self, X: MatrixLike) -> Array:
        """Return the probability of every class at every row, (n_samples, n_classes)."""
        return np.asarray(self._fitted().predict_proba(np.asarray(X, dtype=np.float64)))
