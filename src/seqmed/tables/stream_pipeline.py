"""Pipelines of a stream: frozen transformers, such as an encoder of tables, and a classifier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params, _is_fitted, check_is_fitted

from seqmed.estimators.base import (
    StreamClassifier,
    available_if_has,
    copy_to_fit,
    documented_as,
    rows_for,
    snapshot,
    transformed,
)
from seqmed.estimators.bases import Pipeline
from seqmed.estimators.row_sample import (
    SamplePlan,
    Summary,
    number_of_rows,
    summarise,
    whole_sample,
)
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.mixture.explanation import ArrayView, Explanation
from seqmed.numeric.arrays import Array
from seqmed.tables.cells import POINT
from seqmed.tables.decoding import TableView, cells_of
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.features import BESIDE_TEXT, TEXT_SIZE

Steps: TypeAlias = list[tuple[str, Any]]


def _reading(name: str) -> Any:
    """Return a method of Pipeline that reads a snapshot, so that another thread may learn."""

    @available_if_has("_final_estimator", name)
    @wraps(getattr(Pipeline, name))
    def reading(self: StreamPipeline, X: Any, *arguments: Any, **named: Any) -> Any:
        steps = self._snapshot().steps
        return getattr(steps[-1][1], name)(transformed(steps, X), *arguments, **named)

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
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
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

        `partial_fit` may follow. If the final estimator would learn a sample of a large batch, as
        the classifiers of seqmed do, the transformers are fitted to the same sample; bad cells of
        other rows are not found.

        Parameters
        ----------
        X : iterable
            Rows, in the form that the first step takes.
        y : array-like of shape (n_samples,), default=None
            Labels.
        **params : dict
            Further arguments for `fit` of a step, as ``STEP__NAME``. Names without a step, such as
            ``sample_weight``, are for the final estimator. If metadata routing is enabled, see
            `sklearn.pipeline.Pipeline.fit`.

        Returns
        -------
        self : object
            The fitted pipeline. If a step raises an error, the pipeline is unchanged.
        """
        self._check_parameters()
        if get_config()["enable_metadata_routing"]:
            fitted = clone(self)  # the steps are unchanged if one of them raises an error
            self.steps = Pipeline.fit(fitted, X, y, **params).steps
        else:
            self.steps = self._fitted(X, y, self._by_step("fit", params))
        return self

    def _fitted(self, X: Any, y: Any, by_step: dict[str, dict[str, Any]]) -> Steps:
        """Return clones of the steps, fitted to a table, or to a sample of a large one."""
        name, final = self.steps[-1]
        own = by_step.get(name, {})
        counted = y is not None and (hasattr(X, "__len__") or hasattr(X, "shape"))
        samples = isinstance(final, StreamClassifier) and {*own} <= {"sample_weight"}
        if not (counted and samples) or getattr(final, "kernel", None) == "precomputed":
            return self._begun("fit", X, y, by_step)
        plan, n_rows, weights = self._sample_plan(), number_of_rows(X), own.get("sample_weight")
        if weights is None and n_rows <= min(plan.unlabeled, plan.labeled):
            return self._begun("fit", X, y, by_step)
        summary = whole_sample(plan, summarise(plan, X, y, weights))
        if summary.size == n_rows:
            return self._begun("fit", X, y, by_step)
        others = {
            step: _check_method_params(X, by_step[step], indices=summary.numbers)
            for step in by_step
            if step != name
        }
        return self._begun_with(plan, summary, others)

    def _sample_plan(self) -> SamplePlan:
        """Return how a large table is sampled for `fit`."""
        self._check_parameters()
        final = self.steps[-1][1]
        if not isinstance(final, StreamClassifier):
            raise TypeError(
                f"the last step is {final!r}, expected a classifier of seqmed, which can learn "
                "from a sample: use partial_fit."
            )
        plan: SamplePlan = clone(final)._sample_plan()
        return plan

    def _fit_summary(self, plan: SamplePlan, summary: Summary) -> Self:
        """Learn the merged summary of a table, and discard everything learned before."""
        self.steps = self._begun_with(plan, whole_sample(plan, summary), {})
        return self

    def _begun_with(
        self, plan: SamplePlan, summary: Summary, by_step: dict[str, dict[str, Any]]
    ) -> Steps:
        """Return clones of the steps, fitted to the sample of a table."""

        def learn(final: Any, features: Any) -> None:
            final._fit_summary(plan, replace(summary, rows=features))

        return self._begun_by(learn, summary.rows, summary.y, by_step)

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
            before. Names may have the name of the step, such as ``model__sample_weight``. Arguments
            of other steps are for their `fit`, and only the first batch uses them.

        Returns
        -------
        self : object
            The pipeline after the batch. If a step raises an error, the pipeline is unchanged.
        """
        self._check_parameters()
        by_step = self._by_step("partial_fit", params)
        *steps, (name, final) = self.steps
        if not _is_fitted(final):
            self.steps = self._begun("partial_fit", X, y, by_step)
            return self
        features, final = transformed(self.steps, X), copy_to_fit(final)
        if steps and isinstance(steps[0][1], TableEncoder):
            steps[0][1]._warn_of_new_columns(X)
        final.partial_fit(features, y, **by_step.get(name, {}))
        self.steps = [*steps, (name, final)]
        return self

    def _begun(self, method: str, X: Any, y: Any, by_step: dict[str, dict[str, Any]]) -> Steps:
        """Return clones of the steps after their first batch; ``method`` is that of the last one.

        ``by_step`` are arguments by the name of their step.
        """
        own = by_step.pop(self.steps[-1][0], {})
        return self._begun_by(
            lambda final, features: getattr(final, method)(features, y, **own), X, y, by_step
        )

    def _begun_by(
        self,
        learn: Callable[[Any, Any], Any],
        X: Any,
        y: Any,
        by_step: dict[str, dict[str, Any]],
    ) -> Steps:
        """Return clones of the steps; ``learn`` makes the last one learn the features."""
        *steps, (name, final) = clone(Pipeline(self.steps)).steps
        transformers = Pipeline([*steps, (name, "passthrough")])
        more = {
            f"{step}__{each}": by_step[step][each] for step in by_step for each in by_step[step]
        }
        features = rows_for(final, X, transformers.fit_transform(X, y, **more))
        learn(final, features)
        return [*transformers.steps[:-1], (name, final)]

    def _by_step(self, method: str, params: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return arguments by their step and their name; without a step they are for the last."""
        names = [name for name, _ in self.steps]
        found: dict[str, dict[str, Any]] = {}
        for given, value in params.items():
            step, _, name = given.partition("__") if "__" in given else (names[-1], "", given)
            if step not in names:
                raise TypeError(
                    f"{method} got {given}, expected an argument of one of the steps "
                    f"{', '.join(names)}, such as {names[-1]}__sample_weight: correct the name."
                )
            own = found.setdefault(step, {})
            if name in own:
                raise TypeError(
                    f"{method} got {name} and {step}__{name}, which are the same: leave one out."
                )
            own[name] = value
        return found

    @available_if_has("_final_estimator", "retract")
    @documented_as(StreamClassifier.retract)
    def retract(self, X: Any, y: ArrayLike | None = None) -> Self:
        steps = self._snapshot().steps
        name, final = steps[-1]
        final = copy_to_fit(final).retract(transformed(steps, X), y)
        self.steps = [*steps[:-1], (name, final)]
        return self

    # -- predictions ---------------------------------------------------------------------------

    @available_if_has("_final_estimator", "decision_std")
    @documented_as(SeqMED.decision_std)
    def decision_std(self, X: Any) -> Array:
        steps = self._snapshot().steps
        deviations: Array = steps[-1][1].decision_std(transformed(steps, X))
        return deviations

    @available_if_has("_final_estimator", "explain")
    def explain(self, X: Any, n: int = 3, learned: Any = None) -> list[Explanation]:
        """Return why the predicted class is predicted for every row.

        Parameters
        ----------
        X : iterable
            Rows to classify, in the form that the first step takes.
        n : int >= 1, default=3
            Largest number of columns, of labeled rows that speak for the class and of labeled rows
            that speak against it, for every expert.
        learned : iterable, default=None
            Rows that the pipeline has learned, in the form that the first step takes. Labeled rows
            that are among them are shown as they are there. All others are shown as they are
            stored: as cells decoded from their features if the only transformer is a
            `TableEncoder`, which leaves out texts and hashed categories, and as their features
            otherwise.

        Returns
        -------
        explanations : list of Explanation
            One for each row; see `seqmed.mixture.explanation.Explanation`. ``print`` shows it as a
            text. It has the weights and probabilities of the experts, and the columns and labeled
            rows with the largest contributions to them.

        Raises
        ------
        ValueError
            If the model knows one class only.
        """
        return self._explanations(X, n, () if learned is None else (learned,))

    def _explanations(self, X: Any, n: int, tables: Iterable[Any]) -> list[Explanation]:
        """Return explanations; labeled rows are looked up in the tables."""
        steps = self._snapshot().steps
        encoder, final = steps[0][1], steps[-1][1]
        view: Any = ArrayView
        row_at: Any = partial(partial, _safe_indexing)
        if len(steps) == 2 and isinstance(encoder, TableEncoder):
            view = partial(TableView, encoder.encoding_, encoder._typed_rows(X)[0])
            row_at = cells_of
        learned = ((transformed(steps, each), row_at(each)) for each in tables)
        found: list[Explanation] = final._explanations(transformed(steps, X), n, view, learned)
        return found

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
    decimal: str = POINT,
    thousands: str | None = None,
    text_size: int = TEXT_SIZE,
    random_state: int | np.random.RandomState | None = None,
) -> StreamPipeline:
    """Return a pipeline of a `TableEncoder` and a stream classifier.

    `partial_fit`, `predict`, `predict_proba`, `score`, `explain` and `retract` take raw tables:
    data frames of pandas or polars, tables of pyarrow, lists of dictionaries, dictionaries of
    columns, and arrays of numbers. `seqmed learn` makes the same pipeline.

    Parameters
    ----------
    estimator : estimator with `partial_fit`, default=None
        The classifier. None is `SeqGraphMED` with a `SeqMED` of ``kernel="auto"``: a linear margin
        for tables with text, and an RBF kernel for other tables.
    kinds, features, label, missing_values, decimal, thousands
        See `TableEncoder`.
    text_size : int >= 1, default=262144
        Number of features of a column of text; see `TableEncoder`.
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
        decimal=decimal,
        thousands=thousands,
        text_size=text_size,
    )
    return StreamPipeline([("table", encoder), ("model", estimator)])


def resolved_scale(scale: bool | str, estimator: Any) -> bool | str:
    """Return the parameter ``scale`` of the encoder in front of a classifier."""
    if scale != "auto":
        return scale
    scales = isinstance(estimator, SeqGraphMED) and estimator._scales_columns(sparse=False)
    return BESIDE_TEXT if scales else True
