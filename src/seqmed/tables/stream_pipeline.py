"""Pipelines of a stream: frozen transformers, such as an encoder of tables, and a classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _is_fitted, check_is_fitted

from seqmed.estimators.base import (
    StreamClassifier,
    available_if_has,
    copy_to_fit,
    documented_as,
    snapshot,
    transformed,
)
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.numeric.arrays import Array
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.features import BESIDE_TEXT

Steps: TypeAlias = list[tuple[str, Any]]


def _reading(name: str) -> Any:
    """Return a method of Pipeline that reads a snapshot, so that another thread may learn."""

    @available_if_has("_final_estimator", name)
    @wraps(getattr(Pipeline, name))
    def reading(self: StreamPipeline, X: Any, *arguments: Any, **named: Any) -> Any:
        *steps, (_, final) = self._snapshot().steps
        return getattr(final, name)(transformed(steps, X), *arguments, **named)

    return reading


class StreamPipeline(Pipeline):
    """A scikit-learn Pipeline with `partial_fit`.

    The first batch fits the transformers. Later batches are transformed with the same statistics. A
    kernel classifier keeps rows of earlier batches as support vectors. If the statistics changed,
    these rows and new rows would be in different feature spaces.

    Parameters
    ----------
    steps : list of (str, estimator)
        Names and estimators, transformers first. The final estimator needs `partial_fit`. Learning
        replaces the estimators by fitted copies.

    Attributes
    ----------
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
    make_stream_pipeline : A pipeline that takes raw tables.
    sklearn.pipeline.Pipeline : Pipeline on a single batch.

    Notes
    -----
    `retract` needs transformers that transform each row independently of the others: the
    classifiers of seqmed compare dense rows to 10 digits, and sparse rows exactly.

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
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "steps": Pipeline._parameter_constraints["steps"]
    }

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps)

    def __getitem__(self, place: Any) -> Any:
        """Return a step by its place or name, or some steps as a `Pipeline` of scikit-learn."""
        return Pipeline(self.steps)[place]

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
        self.steps = fitted.steps
        return self

    @available_if_has("_final_estimator", "partial_fit")
    def partial_fit(self, X: Any, y: ArrayLike | None = None, **params: Any) -> Self:
        """Learn the next batch of a stream.

        If the final estimator is not fitted, the batch fits clones of all steps.

        Parameters
        ----------
        X : iterable
            Rows, in the form that the first step takes.
        y : array-like of shape (n_samples,), default=None
            Labels.
        **params : dict
            Further arguments for `partial_fit` of the final estimator: classes, sample_weight,
            new_points, find_rows. ``new_points=False`` is for late labels of rows that were learned
            before.

        Returns
        -------
        self : object
            The pipeline after the batch. If a step raises an error, the pipeline is unchanged.
        """
        self._check_parameters()
        *steps, (name, final) = self.steps
        if _is_fitted(final):
            final, features = copy_to_fit(final), transformed(steps, X)
        else:
            transformers = clone(Pipeline([*steps, (name, "passthrough")]))
            features = transformers.fit_transform(X, y)
            steps, final = transformers.steps[:-1], clone(final)
        final.partial_fit(features, y, **params)
        self.steps = [*steps, (name, final)]
        return self

    @available_if_has("_final_estimator", "retract")
    @documented_as(StreamClassifier.retract)
    def retract(self, X: Any, y: ArrayLike | None = None) -> Self:
        *steps, (name, final) = self._snapshot().steps
        final = copy_to_fit(final).retract(transformed(steps, X), y)
        self.steps = [*steps, (name, final)]
        return self

    # -- predictions ---------------------------------------------------------------------------

    @available_if_has("_final_estimator", "decision_std")
    @documented_as(SeqMED.decision_std)
    def decision_std(self, X: Any) -> Array:
        *steps, (_, final) = self._snapshot().steps
        deviations: Array = final.decision_std(transformed(steps, X))
        return deviations

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


def make_stream_pipeline(
    estimator: Any = None,
    *,
    kinds: Mapping[str, str] | None = None,
    features: Sequence[str] | None = None,
    label: str | None = None,
    scale: bool | str = "auto",
    missing_values: Sequence[str] = (),
    random_state: int | np.random.RandomState | None = None,
) -> StreamPipeline:
    """Return a pipeline of a `TableEncoder` and a stream classifier.

    `partial_fit`, `predict`, `predict_proba`, `score` and `retract` take raw tables: data frames of
    pandas or polars, tables of pyarrow, lists of dictionaries, dictionaries of columns, and arrays
    of numbers. `seqmed learn` makes the same pipeline.

    Parameters
    ----------
    estimator : estimator with `partial_fit`, default=None
        The classifier. None is `SeqGraphMED` with a `SeqMED` of ``kernel="auto"``: a linear margin
        for tables with text, and an RBF kernel for other tables.
    kinds, features, label, missing_values
        See `TableEncoder`.
    scale : "auto" or bool, default="auto"
        Whether numbers are standardised. "auto" leaves dense rows to a `SeqGraphMED` that scales
        them, and standardises all others by the first batch. With False nothing is scaled.
    random_state : int, RandomState or None, default=None
        Seed of the default classifier.

    Returns
    -------
    pipeline : StreamPipeline
        The steps are "table" and "model".

    Examples
    --------
    >>> from seqmed import make_stream_pipeline
    >>> rows = [{"body": "win a free prize now"}, {"body": "see you at lunch"}] * 20
    >>> labels = ["spam", "ham"] * 2 + [None] * 36
    >>> pipeline = make_stream_pipeline(kinds={"body": "text"}, random_state=0)
    >>> pipeline.partial_fit(rows, labels).predict([{"body": "free prize"}]).tolist()
    ['spam']
    """
    if estimator is None:
        margin = SeqMED(kernel="auto", random_state=random_state)
        estimator = SeqGraphMED(margin, random_state=random_state)
    if scale is False and isinstance(estimator, SeqGraphMED):
        estimator = clone(estimator).set_params(scale=None)
    encoder = TableEncoder(
        kinds,
        features=features,
        label=label,
        scale=resolved_scale(scale, estimator),
        missing_values=missing_values,
    )
    return StreamPipeline([("table", encoder), ("model", estimator)])


def resolved_scale(scale: bool | str, estimator: Any) -> bool | str:
    """Return the parameter ``scale`` of the encoder in front of a classifier."""
    if scale != "auto":
        return scale
    scales = isinstance(estimator, SeqGraphMED) and estimator._scales_columns(sparse=False)
    return BESIDE_TEXT if scales else True
