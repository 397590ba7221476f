"""StreamPipeline: frozen transformers in front of a stream classifier."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from numbers import Real
from typing import Any, ClassVar, Self, TypeVar

from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import metaestimators
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from seqmed import active
from seqmed.arrays import Array, Indices
from seqmed.pipelines.column_statistics import numeric_columns
from seqmed.pipelines.drift import Comparison, DriftMonitor, InputDriftWarning, first_monitor
from seqmed.pipelines.transformers import (
    Steps,
    check_incremental,
    feature_names,
    learn_and_transform,
    transformed,
)
from seqmed.snapshots import copy_to_fit, snapshot

__all__ = ["InputDriftWarning", "StreamPipeline"]

Method = TypeVar("Method", bound=Callable[..., Any])


def _if_final_has(name: str) -> Callable[[Method], Method]:
    """Return a decorator for methods that need a method ``name`` of the final step."""

    def check(pipeline: StreamPipeline) -> bool:
        final = pipeline._final_estimator
        if not hasattr(final, name):
            raise AttributeError(
                f"the final step is {final!r}, expected an estimator with {name}: end the "
                "pipeline with one, such as SeqMED."
            )
        return True

    available: Callable[[Method], Method] = metaestimators.available_if(check)
    return available


def _reading(name: str) -> Any:
    """Return a method of Pipeline that reads a snapshot, so that another thread may learn."""
    method = getattr(Pipeline, name)

    @_if_final_has(name)
    @wraps(method)
    def reading(self: StreamPipeline, *arguments: Any, **named: Any) -> Any:
        return method(snapshot(self), *arguments, **named)

    return reading


class StreamPipeline(Pipeline):
    """A scikit-learn Pipeline with `partial_fit` and a check for drift of the input.

    The first batch fits the transformers. Later batches are transformed with the same statistics. A
    kernel classifier keeps rows of earlier batches as support vectors. If the statistics changed,
    these rows and new rows would be in different feature spaces.

    Every batch is compared with the first one, column by column. An `InputDriftWarning` names the
    columns that have drifted, because the frozen statistics may no longer suit them.

    Parameters
    ----------
    steps : list of (str, estimator)
        Names and estimators, transformers first. The final estimator needs `partial_fit`. Learning
        replaces the estimators by fitted copies.
    incremental : list or tuple of str, default=()
        Names of transformers that learn every batch with their own `partial_fit` before they
        transform it. All others are frozen after the first batch. See Notes for when this is safe.
    drift_limit : float > 0 or None, default=1.0
        Largest accepted shift of a column's mean, in standard deviations of the first batch. The
        mean absolute deviation may change by a factor of up to ``1 + 2 drift_limit``. Larger
        changes cause a warning if they are significant. None disables the comparison.
    transform_input : list of str or None, default=None
        Metadata parameters that the steps transform before they are passed on; see
        `sklearn.pipeline.Pipeline`. Used by `fit` only.
    memory : str, object with the joblib.Memory interface or None, default=None
        Cache of the fitted transformers. Used by `fit` only.
    verbose : bool, default=False
        Whether `fit` prints the time of each step.

    Attributes
    ----------
    drift_ : Comparison or None
        Last comparison with the first batch: arrays ``mean_shift``, ``scale_ratio`` and ``drifted``
        of shape (n_columns,). None before the first comparison. Batches of less than 30 rows are
        collected until there are 30.
    named_steps : Bunch
        The steps, by name.
    classes_ : ndarray of shape (n_classes,)
        Classes of the final estimator.
    n_features_in_ : int
        Number of columns that the first step takes. Only available if the first step has it.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names that the first step takes. Only available if the first step has them.

    See Also
    --------
    sklearn.pipeline.Pipeline : Pipeline on a single batch.
    InputDriftWarning : The warning about columns that have drifted.

    Notes
    -----
    The comparison uses the input if it is a numeric matrix, dense or sparse, or the numeric columns
    of a data frame. Otherwise, as for texts, it uses the features that reach the final estimator.
    Missing values are left out.

    An incremental transformer is safe if the final estimator keeps no rows and can follow features
    that change slowly, for example SGDClassifier behind StandardScaler. It is not safe if the
    meaning of the transformed columns changes, as with IncrementalPCA. It is also not safe with
    late labels and `retract`, because these rows must be transformed in the same way as before.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from seqmed import SeqMED, StreamPipeline
    >>> pipeline = StreamPipeline([("scale", StandardScaler()), ("model", SeqMED())])
    >>> generator = np.random.default_rng(0)
    >>> for _ in range(3):
    ...     y = np.arange(40) % 2
    ...     X = 100 * (generator.normal(size=(40, 2)) + 3 * y[:, None])
    ...     pipeline = pipeline.partial_fit(X, y)
    >>> pipeline.predict([[0.0, 0.0], [300.0, 300.0]])
    array([0, 1])
    >>> pipeline.drift_.drifted
    array([False, False])
    """

    drift_: Comparison | None
    _monitor: tuple[bool, DriftMonitor] | None

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Pipeline._parameter_constraints,
        "incremental": [list, tuple],
        "drift_limit": [Interval(Real, 0.0, None, closed="neither"), None],
    }

    def __init__(
        self,
        steps: Steps,
        *,
        incremental: Sequence[str] = (),
        drift_limit: float | None = 1.0,
        transform_input: list[str] | None = None,
        memory: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(steps, transform_input=transform_input, memory=memory, verbose=verbose)
        self.incremental = incremental
        self.drift_limit = drift_limit

    # -- learning ------------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike | None = None, **params: Any) -> Self:
        """Fit all steps to one batch and discard everything learned before.

        `partial_fit` may follow.

        Parameters
        ----------
        X : iterable
            Rows, in the form that the first step takes.
        y : array-like of shape (n_samples,), default=None
            Labels.
        **params : dict
            Further arguments for the steps; see `sklearn.pipeline.Pipeline.fit`.

        Returns
        -------
        self : object
            The fitted pipeline. If a step raises an error, the pipeline is unchanged.
        """
        self._check_parameters()
        fitted = clone(self)  # the steps themselves are unchanged if one of them raises an error
        Pipeline.fit(fitted, X, y, **params)
        monitor = self._begin_monitor(X, None, fitted.steps[:-1])
        self.__dict__.update(steps=fitted.steps, _monitor=monitor, drift_=None)
        return self

    @_if_final_has("partial_fit")
    def partial_fit(self, X: Any, y: ArrayLike | None = None, **params: Any) -> Self:
        """Learn the next batch of a stream.

        The first batch fits clones of all steps, unless `fit` was called before.

        Parameters
        ----------
        X : iterable
            Rows, in the form that the first step takes.
        y : array-like of shape (n_samples,), default=None
            Labels.
        **params : dict
            Further arguments for `partial_fit` of the final estimator: classes, sample_weight,
            new_points. ``new_points=False`` is for late labels of rows that were learned before.
            Such rows are only transformed: incremental steps do not learn them, and they are not
            compared with the first batch.

        Returns
        -------
        self : object
            The pipeline after the batch. If a step raises an error, the pipeline is unchanged.
        """
        self._check_parameters()
        first = not hasattr(self, "_monitor")
        seen = not params.get("new_points", True)
        if first and seen:
            raise ValueError(
                "partial_fit got new_points=False in its first call, expected rows that were "
                "learned before: learn the rows first, with the labels available."
            )
        steps = self.steps[:-1]
        if seen:
            features = transformed(steps, X)
        else:
            steps, features = learn_and_transform(steps, self.incremental, X, y, first=first)
        name, final = self.steps[-1]
        state: dict[str, Any] = {}
        final = clone(final) if first else copy_to_fit(final)
        if first:
            state.update(_monitor=self._begin_monitor(X, features, steps), drift_=None)
        elif not seen:
            state.update(self._compare(X, features))
        final.partial_fit(features, y, **params)
        self.__dict__.update(state, steps=[*steps, (name, final)])
        return self

    @_if_final_has("retract")
    def retract(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Transform rows, and remove their labels from the final estimator.

        Parameters
        ----------
        X : iterable
            Rows as they were learned, in the form that the first step takes. The transformers must
            transform each row independently of the others: the classifiers of seqmed compare dense
            rows to 10 digits, and sparse rows exactly.
        y : array-like of shape (n_samples,), default=None
            Labels to retract, one per row. None retracts whatever label each row has.

        Returns
        -------
        self : object
            The pipeline without these labels. If a row is not found, the pipeline is unchanged.
        """
        pipeline = self._snapshot()
        *steps, (name, final) = pipeline.steps
        final = copy_to_fit(final).retract(transformed(steps, X), y)
        self.__dict__.update(steps=[*steps, (name, final)])
        return self

    # -- predictions ---------------------------------------------------------------------------

    @_if_final_has("decision_std")
    def decision_std(self, X: Any) -> Array:
        """Transform rows, and return the posterior standard deviation of the score of each.

        Parameters
        ----------
        X : iterable
            Rows, in the form that the first step takes.

        Returns
        -------
        standard_deviations : ndarray of shape (n_samples,)
            See `SeqMED.decision_std`.
        """
        *steps, (_, final) = self._snapshot().steps
        deviations: Array = final.decision_std(transformed(steps, X))
        return deviations

    def query(self, X: Any, n: int) -> Indices:
        """Transform rows, and return those to label next, the most valuable first.

        Parameters
        ----------
        X : iterable
            Rows that can be labeled, in the form that the first step takes.
        n : int in [1, n_samples]
            Number of rows to choose.

        Returns
        -------
        rows : ndarray of shape (n,)
            Distinct indices into X; see `seqmed.active.query`.
        """
        return active.query(self, X, n)

    predict = _reading("predict")
    predict_proba = _reading("predict_proba")
    predict_log_proba = _reading("predict_log_proba")
    decision_function = _reading("decision_function")
    score = _reading("score")

    def _snapshot(self) -> Self:
        """Return a shallow copy of the fitted pipeline."""
        pipeline = snapshot(self)
        check_is_fitted(pipeline)
        return pipeline

    def _check_parameters(self) -> None:
        self._validate_params()
        self._validate_steps()
        check_incremental(self.steps[:-1], self.incremental)

    # -- drift of the input --------------------------------------------------------------------

    def _begin_monitor(
        self, X: Any, features: Any, steps: Steps
    ) -> tuple[bool, DriftMonitor] | None:
        """Return whether the input itself is compared, and the monitor; None without a monitor."""
        if self.drift_limit is None:
            return None
        columns = numeric_columns(X)
        if columns is not None:
            return True, first_monitor(*columns)
        columns = numeric_columns(transformed(steps, X) if features is None else features)
        if columns is None:
            return None
        rows, names = columns
        return False, first_monitor(rows, names or feature_names(steps, rows.shape[1]))

    def _compare(self, X: Any, features: Any) -> dict[str, Any]:
        """Compare a batch with the first one, warn about drift, and return the new attributes."""
        if self._monitor is None or self.drift_limit is None:
            return {}
        on_input, monitor = self._monitor
        columns = numeric_columns(X if on_input else features)
        if columns is None:
            return {}
        rows, names = columns
        monitor, comparison, message = monitor.update(
            rows, names if on_input else monitor.names, self.drift_limit
        )
        if message:
            warnings.warn(
                f"the input has drifted from the first batch by more than "
                f"drift_limit={self.drift_limit:g}: {message}. The transformers still use the "
                "statistics of the first batch. Check for changed units or columns. If the change "
                "is permanent, fit a new pipeline to recent rows. If it does no harm, raise "
                "drift_limit or set it to None.",
                InputDriftWarning,
                stacklevel=3,
            )
        state: dict[str, Any] = {"_monitor": (on_input, monitor)}
        return state if comparison is None else {**state, "drift_": comparison}
