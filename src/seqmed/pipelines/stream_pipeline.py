"""A pipeline that learns batch by batch: frozen transformers in front of a stream classifier."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import wraps
from numbers import Real
from typing import Any, ClassVar, Self

from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from seqmed.pipelines import drift
from seqmed.pipelines.drift import InputDriftWarning, Watch
from seqmed.snapshots import copy_to_teach, snapshot

__all__ = ["InputDriftWarning", "StreamPipeline"]


def _final_has(method: str) -> Callable[[StreamPipeline], bool]:
    """Return a check that the final step has a method, which says so if it has not."""

    def check(pipeline: StreamPipeline) -> bool:
        final = pipeline._final_estimator
        if not hasattr(final, method):
            raise AttributeError(
                f"the final step is {final!r}, expected an estimator with {method}: put one, such "
                "as SeqMED, at the end of the pipeline."
            )
        return True

    return check


def _reading(name: str) -> Any:
    """Return a method of Pipeline that reads one state, whoever learns in the meantime."""
    method = getattr(Pipeline, name)

    @available_if(_final_has(name))
    @wraps(method)
    def reading(self: StreamPipeline, *arguments: Any, **named: Any) -> Any:
        return method(snapshot(self), *arguments, **named)

    return reading


class StreamPipeline(Pipeline):
    """scikit-learn's Pipeline with `partial_fit`, and a watch on the input.

    The first batch fits the transformers; later ones are only transformed, by the same statistics.
    A kernel classifier keeps rows of earlier batches as support vectors, in the space the
    transformers made: statistics that moved on would silently put new rows into another space than
    the rows they are compared with. A transformer that is to go on learning is named in
    ``incremental``. That is right where the final estimator is a linear one that keeps no rows and
    can follow features that move a little, such as SGDClassifier behind a StandardScaler. It is
    wrong for a transformer whose columns change their meaning as it learns, such as IncrementalPCA,
    and for late labels and `retract`, whose rows must come out as they did when they were learned.

    Frozen statistics are only as good as the first batch, and as long as the stream stays like it.
    So the columns of the input are compared with those of the first batch, and an InputDriftWarning
    names those that have moved away, once for as long as they are away.

    Parameters
    ----------
    steps : list of (name, estimator)
        As in Pipeline; the last one needs `partial_fit` to learn batch by batch. Every batch is
        learned by copies, which take the place of the estimators before them in one stroke.
    incremental : list or tuple of str, default=()
        Names of transformers that learn from every batch, with their own `partial_fit`, before
        they transform it. All others are frozen after the first batch.
    drift_limit : float > 0 or None, default=1.0
        How far a column may move: its mean by so many standard deviations of the first batch, its
        spread (mean absolute deviation) by a factor of ``1 + 2 drift_limit`` either way. Beyond
        that it is warned of, unless it may be chance. None compares nothing.
    transform_input, memory, verbose
        As in Pipeline, for `fit`.

    Attributes
    ----------
    drift_ : Comparison or None
        The last comparison of recent rows with the first batch: arrays ``mean_shift``,
        ``scale_ratio`` and ``away`` over the columns. None before there was one. Batches of less
        than 30 rows are collected until there are as many.
    named_steps, classes_, n_features_in_, feature_names_in_
        As in Pipeline.

    Notes
    -----
    Watched is the input itself where it is a matrix of numbers, dense or sparse, or the numeric
    columns of a data frame; missing values are left out. Where the input is not numeric, as with
    texts, the features that reach the final estimator are watched instead.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from seqmed import SeqMED
    >>> from seqmed.pipelines.stream_pipeline import StreamPipeline
    >>> pipeline = StreamPipeline([("scale", StandardScaler()), ("model", SeqMED())])
    >>> generator = np.random.default_rng(0)
    >>> for _ in range(3):
    ...     y = np.arange(40) % 2
    ...     X = 100 * (generator.normal(size=(40, 2)) + 3 * y[:, None])
    ...     pipeline = pipeline.partial_fit(X, y)
    >>> pipeline.predict([[0.0, 0.0], [300.0, 300.0]])
    array([0, 1])
    """

    _parameter_constraints: ClassVar[dict] = {
        **Pipeline._parameter_constraints,
        "incremental": [list, tuple],
        "drift_limit": [Interval(Real, 0.0, None, closed="neither"), None],
    }

    def __init__(
        self,
        steps,
        *,
        incremental=(),
        drift_limit=1.0,
        transform_input=None,
        memory=None,
        verbose=False,
    ):
        super().__init__(steps, transform_input=transform_input, memory=memory, verbose=verbose)
        self.incremental = incremental
        self.drift_limit = drift_limit

    # -- learning ------------------------------------------------------------------------------

    def fit(self, X, y=None, **params):
        """Fit all steps to one batch, forgetting earlier ones; `partial_fit` may follow.

        Parameters
        ----------
        X, y, **params : as in Pipeline.

        Returns
        -------
        self : the fitted pipeline, its steps clones of those given. Left as it was if any step
            refuses the batch.
        """
        self._validate_params()
        self._validate_steps()
        self._check_incremental()
        fitted = clone(self)  # should a step refuse the batch, these are left as they were
        Pipeline.fit(fitted, X, y, **params)
        watch = self._begin_watch(X, None, fitted.steps[:-1])
        self.__dict__.update(steps=fitted.steps, _watch=watch, drift_=None)
        return self

    @available_if(_final_has("partial_fit"))
    def partial_fit(self, X, y=None, **params):
        """Learn the next batch of a stream.

        Parameters
        ----------
        X : the rows, in the form the first step takes.
            The first batch, unless `fit` came before, fits clones of all steps.
        y : array-like of shape (n_samples,), default=None
            Labels, for the steps that want them.
        **params : dict
            What else to pass, as it is, to `partial_fit` of the final estimator: classes,
            sample_weight, new_points. With ``new_points=False``, for labels that come late, the
            rows have been seen before: they are transformed, and neither learned from by
            incremental steps nor compared with the first batch.

        Returns
        -------
        self : the pipeline, one batch further. Left as it was if any step refuses the batch.
        """
        self._validate_params()
        self._validate_steps()
        self._check_incremental()
        first = not hasattr(self, "_watch")
        seen = not params.get("new_points", True)
        if first and seen:
            raise ValueError(
                "partial_fit got new_points=False in its first call, expected rows learned before: "
                "learn the batch first, with the labels there are."
            )
        steps, features = self._transformed(X, y, first=first, seen=seen)
        name, final = self.steps[-1]
        state: dict[str, Any] = {}
        final = clone(final) if first else copy_to_teach(final)
        if first:
            state.update(_watch=self._begin_watch(X, features, steps), drift_=None)
        elif not seen:
            state.update(self._look(X, features))
        final.partial_fit(features, y, **params)
        self.__dict__.update(state, steps=[*steps, (name, final)])
        return self

    @available_if(_final_has("retract"))
    def retract(self, X, y=None):
        """Transform the rows, and take their labels back from the final estimator.

        Parameters
        ----------
        X : the rows, in the form the first step takes, as they were learned.
            The transformers must put a row out the same, whatever rows come with it: seqmed's
            classifiers find dense rows to 10 digits and sparse ones exactly.
        y : array-like of shape (n_samples,), default=None
            The labels to take back; None for whatever label a row has.

        Returns
        -------
        self : the pipeline without those labels.
        """
        pipeline = self._snapshot()
        *steps, (name, final) = pipeline.steps
        final = copy_to_teach(final).retract(pipeline._frozen(X), y)
        self.__dict__.update(steps=[*steps, (name, final)])
        return self

    # -- using what was learned ----------------------------------------------------------------

    @available_if(_final_has("decision_std"))
    def decision_std(self, X):
        """Transform the rows, and return the standard deviation of the score of every one.

        Parameters
        ----------
        X : the rows, in the form the first step takes.

        Returns
        -------
        spread : ndarray of shape (n_samples,)
        """
        pipeline = self._snapshot()
        return pipeline.steps[-1][1].decision_std(pipeline._frozen(X))

    predict = _reading("predict")
    predict_proba = _reading("predict_proba")
    predict_log_proba = _reading("predict_log_proba")
    decision_function = _reading("decision_function")
    score = _reading("score")

    def _snapshot(self) -> Self:
        """Return the fitted pipeline as it is now."""
        pipeline = snapshot(self)
        check_is_fitted(pipeline)
        return pipeline

    # -- transformers --------------------------------------------------------------------------

    def _frozen(self, X: Any) -> Any:
        """Return the rows as the final estimator sees them."""
        for _, _, step in self._iter(with_final=False):
            X = step.transform(X)
        return X

    def _transformed(self, X: Any, y: Any, *, first: bool, seen: bool) -> tuple[list, Any]:
        """Return the transformers after this batch, and the batch as they transform it.

        What learns is a copy: the pipeline itself stays as it is.
        """
        steps = []
        for name, step in self.steps[:-1]:
            if step is not None and step != "passthrough":
                grows = name in self.incremental
                if first and not grows:
                    step, X = fitted(step, X, y)
                elif grows and not seen:
                    step = clone(step) if first else deepcopy(step)
                    step.partial_fit(X, y)
                    X = step.transform(X)
                else:
                    X = step.transform(X)
            steps.append((name, step))
        return steps, X

    def _check_incremental(self) -> None:
        transformers = dict(self.steps[:-1])
        for name in self.incremental:
            if name not in transformers:
                raise ValueError(
                    f"incremental holds {name!r}, expected names among the transformers "
                    f"{list(transformers)}: correct the name; the final step learns anyway."
                )
            step = transformers[name]
            if step is not None and step != "passthrough" and not hasattr(step, "partial_fit"):
                raise ValueError(
                    f"incremental holds {name!r}, which is {step!r}, expected a transformer with "
                    "partial_fit: leave it out, so that it is frozen after the first batch, or use "
                    "a transformer that can go on learning."
                )

    # -- the watch on the input ----------------------------------------------------------------

    def _begin_watch(self, X: Any, features: Any, steps: list) -> tuple[bool, Watch] | None:
        """Return whether the input is watched, or else the features, and the watch; None if not."""
        if self.drift_limit is None:
            return None
        columns = drift.numeric_columns(X)
        if columns is not None:
            return True, drift.first_watch(*columns)
        columns = drift.numeric_columns(self._frozen(X) if features is None else features)
        if columns is None:
            return None
        rows, names = columns
        return False, drift.first_watch(rows, names or feature_names(steps, rows.shape[1]))

    def _look(self, X: Any, features: Any) -> dict[str, Any]:
        """Return what to remember after comparing a batch with the first, and warn if needed."""
        if self._watch is None or self.drift_limit is None:
            return {}
        on_input, watch = self._watch
        columns = drift.numeric_columns(X if on_input else features)
        if columns is None:
            return {}
        rows, names = columns
        watch, comparison, message = watch.look(
            rows, names if on_input else watch.names, self.drift_limit
        )
        if message:
            warnings.warn(
                f"the input has moved away from the first batch, drift_limit={self.drift_limit:g}: "
                f"{message}. The transformers are as the first batch left them. Look for changed "
                "units or columns; if the change is there to stay, fit a new pipeline to recent "
                "rows; if it does no harm, raise drift_limit or set it to None.",
                InputDriftWarning,
                stacklevel=3,
            )
        state: dict[str, Any] = {"_watch": (on_input, watch)}
        return state if comparison is None else {**state, "drift_": comparison}


def fitted(step: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """Return a clone of a transformer, fitted to a batch, and the batch as it transforms it."""
    step = clone(step)
    if hasattr(step, "fit_transform"):
        return step, step.fit_transform(X, y)
    step.fit(X, y)
    return step, step.transform(X)


def feature_names(steps: list, width: int) -> tuple[str, ...] | None:
    """Return the names of the features that fitted transformers put out, None if they tell none."""
    # a transformer may have no names to tell, or refuse to in one of these ways: columns then go by
    # their numbers
    try:
        names = Pipeline([*steps, ("last", "passthrough")]).get_feature_names_out()
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None
    return tuple(map(str, names)) if names is not None and len(names) == width else None
