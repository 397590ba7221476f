"""SeqGraphMED: a maximum-margin classifier, a graph and refitted classifiers, mixed by evidence."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.utils._param_validation import Interval, StrOptions

from seqmed import uncertainty
from seqmed.classes import Rows
from seqmed.estimators.base import GraphClassifier, Started
from seqmed.estimators.graph_propagation import (
    FIT_BATCH,
    GraphPropagation,
    begin_graph,
    most_kept,
    uncertainty_in_graph,
)
from seqmed.estimators.seqlapmed import SeqLapMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.estimators.validation import (
    ClassifiedRows,
    MatrixLike,
    check_proportions,
    checked_class_prior,
    checked_class_weights,
)
from seqmed.kernels import Kernel
from seqmed.late_rows import KeptLabels
from seqmed.margin.calibration import with_unseen
from seqmed.mixture import column_scales, mixture_state
from seqmed.mixture import learning as mixture_update
from seqmed.mixture.experts import default_experts, named_experts
from seqmed.mixture.explanation import ArrayView, Explanation, LearnedRows, View, explained
from seqmed.mixture.mixture_state import MixtureInfo, MixtureParameters, MixtureState
from seqmed.numeric.arrays import Array, Indices, Mask, Points, check_overflow
from seqmed.numeric.execution import callers_level
from seqmed.uncertainty import Uncertainty


class ConceptChangeWarning(UserWarning):
    """The error rate of the predictions of a stream has risen: its concept may have changed."""


MARGIN_CLASSIFIERS = (SeqMED, SeqLapMED)
# Kernels with which the graph uses Euclidean distances.
EUCLIDEAN_KERNELS = ("rbf", "linear", "auto")


class SeqGraphMED(GraphClassifier):
    """Maximum-margin classifier, label propagation and refitted classifiers, mixed by evidence.

    The *core* has three experts that learn the stream. The margin expert, `SeqMED` by default,
    learns from labeled rows. The graph expert propagates labels over a graph of kept rows, as
    `GraphPropagation` does, so that unlabeled rows change the class boundaries. The linear expert
    is a softmax regression on the last 150 labeled rows; it suits linear boundaries and streams
    that drift.

    Beside the core stand *refitted experts*: two logistic regressions, one of which has weights of
    rows that halve with every 50 newer labels, extra trees, a random forest and, with many labels,
    gradient boosting. They are fitted again, on up to 20,000 labeled rows, when enough labels are
    new. The probabilities of the core, of the graph alone and of the
    refitted experts are pooled.

    All experts predict every labeled row before they learn it. The last 300 of these predictions
    are the evidence that sets the weights of the experts and calibrates the probabilities.

    A row is unlabeled if its label equals ``unlabeled``, or is NaN, None, NaT or an empty string. A
    saved model contains kept rows of the stream.

    Parameters
    ----------
    estimator : SeqMED, SeqLapMED or None, default=None
        Carries the parameters of the margin expert. None is a `SeqMED` with the `class_weight`,
        `forgetting` and `random_state` of this classifier. The estimator is not fitted; the fitted
        margin expert is `estimator_`.
    graph_memory : "auto" or int >= 2, default="auto"
        Largest number of rows kept for the graph. At most half of them are labeled. "auto" is the
        number of rows that fit 64 MB in single precision, at least 10,000 and at most 13,000. The
        number used is `graph_memory_`.
    n_neighbors : int >= 1, default=10
        Number of neighbours of a row in the graph.
    alpha : float in [0, 1), default=0.97
        Weight of the neighbours relative to a row's own label.
    metric : {"auto", "euclidean", "cosine"} or callable, default="auto"
        Distance of two rows in the graph. "auto" is the distance of the estimator's kernel, if this
        is not "auto", "rbf" or "linear". Otherwise it is "euclidean" for dense rows and "cosine"
        for sparse rows. A callable is a kernel: it maps arrays of shape (n, p) and (m, p) to an (n,
        m) matrix k, and the squared distance is ``k(x, x) + k(x', x') - 2 k(x, x')``. The metric
        used is `metric_`.
    scale : "auto" or None, default="auto"
        Whether columns are divided by their scales. "auto" does so with dense rows if the typical
        deviations of the columns differ by more than a factor of ten, the distance is "euclidean",
        and the estimator has ``kernel="rbf"`` or "auto" and ``gamma="scale"``. The scales are
        measured again whenever the number of rows has doubled. None never scales. The scales used
        are `scale_`.
    mixture : "evidence" or float in [0, 1], default="evidence"
        Weight of the graph. "evidence" is the posterior mean of the weight, given the recorded
        scores and a prior that favours the margin expert. The linear expert is added if this
        predicts the recorded labels better. A number is the weight of the graph in a mixture with
        the margin expert alone. The weights used are `graph_weight_` and `expert_weights_`.
    class_prior : {"auto", "evidence", "uniform"} or dict, default="auto"
        Whether classes with more labels are favoured. "evidence" favours them if this predicts the
        recorded labels better, which raises accuracy and lowers the recall of rare classes.
        "uniform" does not favour them. "auto" is "uniform" with ``class_weight="balanced"``, and
        "evidence" otherwise. Only scores of an estimator with ``bias="auto"`` are adjusted. A dict
        of known class proportions, by label, adjusts the graph to them as in `GraphPropagation`;
        the other experts are treated as with "evidence".
    unlabeled : object, default=-1
        Marker of unlabeled rows in y. With None, only NaN, None, NaT and empty strings mark them.
    forgetting : "auto" or float in (0, 1], default="auto"
        "auto" forgets the labels before a change of the concept. A change is a rise of the error
        rate of the recorded predictions by 4.5 standard errors. It causes a
        `ConceptChangeWarning`, and `update_info_.change` reports it. All experts then start again
        from the labels since the change. For up to 100 labels the model without the new start
        learns too, both predict, and the next labels decide which is kept. A number is the
        forgetting factor per batch of the graph, of the recorded scores, and of the default
        estimator; choose a value below 1 for streams that drift.
    class_weight : {"balanced"}, dict or None, default=None
        Weights of the classes. A dict maps classes to weights > 0, which multiply C in the margin
        expert and the scores of the graph expert. "balanced" gives rare classes more weight in the
        margin expert only. With an estimator that has a ``class_weight`` of its own it must be
        None.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of kept rows, of the order of the rows in `fit`, of an estimator with
        ``random_state=None``, and of experts with ``random_state=None``.
    experts : "auto" or sequence of classifiers, default="auto"
        Refitted experts. "auto" is a logistic regression with standardised columns, the same with
        weights of rows that halve with every 50 newer labels, 100 extra trees, a random forest of
        100 trees and, from 1000 labels on and with up to three classes,
        `HistGradientBoostingClassifier`. A sequence has any classifiers of scikit-learn with
        ``fit``, and ``predict_proba`` or ``decision_function``. They are cloned, and fitted with
        sample weights if their ``fit`` takes them. ``()`` is the core alone: it is several times
        faster, and less accurate on tables. Not used if `mixture` is a number.
    device : str, default="cpu"
        Where the graph is: "cpu", or a device of torch such as "cuda" or "cuda:1", which needs
        ``pip install 'seqmed[gpu]'``. Rows must be dense, and the metric "euclidean" or "cosine".
        The margin expert also predicts there; other experts stay on the CPU. It may change between
        batches; `set_params` moves what was learned at once. Model files do not have it.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Classes so far, sorted.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names. Only available if the first batch has column names that are all strings.
    n_batches_ : int
        Number of batches learned; `fit` counts as one.
    estimator_ : SeqMED or SeqLapMED
        The margin expert as a fitted classifier, created at every access. Its rows are divided by
        `scale_`. Its probabilities are not calibrated by the stream.
    graph_weight_ : float in [0, 1]
        Weight of the graph, alone and in the core.
    expert_weights_ : dict of str to float
        Weights of "core", "graph", "logistic", "recent_logistic", "extra_trees", "random_forest"
        and "boosting", or of the given experts by the name of their class in lower case. Their sum
        is 1. Without refitted
        experts they are those of `core_weights_`. During the trial of a new start, the members of
        the new start have the prefix "new ".
    core_weights_ : dict of str to float
        Weights of the experts "margin", "graph" and "linear" in the core. Their sum is 1.
    class_prior_ : {"evidence", "uniform"}
        Treatment of classes with more labels.
    scale_ : ndarray of shape (`n_features_in_`,)
        Scales of the columns; all 1 if they are not scaled.
    n_kept_ : int
        Number of rows kept for the graph.
    graph_memory_ : int
        Largest number of rows kept for the graph.
    metric_ : {"euclidean", "cosine"} or Kernel
        Distance of the graph.
    duality_gap_ : float
        Largest duality gap of the margin expert in the last batch; NaN if there was none.
    n_iter_ : int
        Number of conjugate gradient iterations of the last batch.
    update_info_ : MixtureInfo
        Report of the last batch.

    See Also
    --------
    SeqMED : The margin expert alone.
    GraphPropagation : The graph expert alone.

    Notes
    -----
    `fit` shuffles the rows and learns them in mini-batches, all at once if the estimator learns
    from unlabeled rows. Of large tables it learns a sample. The memory of the graph is bounded;
    that of the margin expert is bounded by its ``budget``.

    The predictions of labeled rows before they were learned calibrate the probabilities. With
    refitted experts, `decision_function` returns logarithms of probabilities.

    An expert that fails is left out, with a warning, until its next fit succeeds. Refitted experts
    learn the columns as they are passed, not divided by `scale_`. Classes get equal weights if
    `class_prior` is "uniform".

    `retract` applies to labeled rows in the window of the margin expert. All experts are then
    fitted again.

    A saved model holds what its experts were fitted on, not the experts: `load` fits them again.
    It predicts the same to the bit with the same versions of numpy, scipy and scikit-learn on the
    same kind of machine. Only experts of a list of scikit-learn's classifiers can be saved.

    All parameters but `graph_memory`, `n_neighbors`, `alpha`, `metric`, `scale` and the type of the
    estimator may change between batches with `set_params`. Parameters of the estimator may
    change if `SeqMED` or `SeqLapMED` allows it.

    References
    ----------
    E. Hou, A. Hero, "Sequential maximum margin classifiers for partially labeled data", ICASSP
    2018.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from seqmed import SeqGraphMED
    >>> X, y = load_digits(return_X_y=True)
    >>> labels = np.where(np.arange(len(y)) % 20 == 0, y, -1)  # one label in twenty
    >>> model = SeqGraphMED(random_state=0)
    >>> for start in range(0, 1500, 250):
    ...     batch = slice(start, start + 250)
    ...     model = model.partial_fit(X[batch], labels[batch])
    >>> bool(model.score(X[1500:], y[1500:]) > 0.85)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **GraphPropagation._parameter_constraints,
        "estimator": "no_validation",
        "scale": [StrOptions({"auto"}), None],
        "mixture": [StrOptions({"evidence"}), Interval(Real, 0.0, 1.0, closed="both")],
        "class_prior": [StrOptions({"auto", "evidence", "uniform"}), dict],
        "forgetting": [StrOptions({"auto"}), Interval(Real, 0.0, 1.0, closed="right")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "experts": [StrOptions({"auto"}), list, tuple],
    }

    _fixed_parameters = (*GraphPropagation._fixed_parameters, "scale")

    n_kept_: int
    duality_gap_: float
    n_iter_: int
    graph_weight_: float
    expert_weights_: dict[str, float]
    core_weights_: dict[str, float]
    class_prior_: str
    update_info_: MixtureInfo
    _state: MixtureState

    def __init__(
        self,
        estimator: Any = None,
        *,
        graph_memory: int | str = "auto",
        n_neighbors: int = 10,
        alpha: float = 0.97,
        metric: str | Callable[[Any, Any], Any] | Kernel = "auto",
        scale: str | None = "auto",
        mixture: float | str = "evidence",
        class_prior: str | dict[Any, float] = "auto",
        unlabeled: Any = -1,
        forgetting: float | str = "auto",
        class_weight: str | dict[Any, float] | None = None,
        random_state: int | np.random.RandomState | None = None,
        experts: str | Sequence[Any] = "auto",
        device: str = "cpu",
    ) -> None:
        self.estimator = estimator
        self.graph_memory = graph_memory
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.metric = metric
        self.scale = scale
        self.mixture = mixture
        self.class_prior = class_prior
        self.unlabeled = unlabeled
        self.forgetting = forgetting
        self.class_weight = class_weight
        self.random_state = random_state
        self.experts = experts
        self.device = device

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the classifier, or of its estimator as ``estimator__NAME``.

        They take effect with the next batch.

        Parameters
        ----------
        **params : dict
            Parameters by name.

        Returns
        -------
        self : object
            The classifier.

        Raises
        ------
        ValueError
            If a name is unknown, or a parameter of the estimator is set with ``estimator=None``.
        """
        nested = [name for name in params if name.startswith("estimator__")]
        if nested and self.estimator is None and params.get("estimator") is None:
            raise ValueError(
                f"{nested[0]} was given with estimator=None, expected an estimator that has this "
                "parameter: set estimator=SeqMED() too."
            )
        super().set_params(**params)
        return self

    # -- learning ------------------------------------------------------------------------------

    def _template(self) -> SeqMED:
        """Return an estimator with the parameters of the margin expert."""
        given: SeqMED | None = self.estimator
        if given is None:
            return SeqMED(
                class_weight=self.class_weight,
                forgetting=self._factor(),
                random_state=self.random_state,
            )
        if self.class_weight is None or given.class_weight is not None:
            return given
        parameters = given.get_params(deep=False)
        return type(given)(**{**parameters, "class_weight": self.class_weight})

    def _learned_template(self) -> SeqMED:
        """Return an estimator with the parameters of the margin expert so far."""
        fixed = self._started.fixed
        (kind,) = (each for each in MARGIN_CLASSIFIERS if each.__name__ == fixed["estimator"])
        nested = {name: fixed[f"estimator__{name}"] for name in kind._fixed_parameters}
        if type(self.estimator or SeqMED()) is not kind:  # replaced since the last batch
            return kind(**nested)
        return kind(**{**self._template().get_params(deep=False), **nested})

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_proportions(self.class_prior)
        for expert in self.experts if self.experts != "auto" else ():
            usable = hasattr(expert, "predict_proba") or hasattr(expert, "decision_function")
            if isinstance(expert, type) or not (hasattr(expert, "fit") and usable):
                raise TypeError(
                    f"experts has {expert!r}, expected classifiers of scikit-learn with fit, and "
                    "predict_proba or decision_function: pass for example "
                    "[RandomForestClassifier()], or () for none."
                )
        if self.estimator is not None:  # the parameters of the default one are checked above
            self._check_estimator(self.estimator)
            self._template()._check_parameters()

    def _check_estimator(self, given: SeqMED) -> None:
        if type(given) not in MARGIN_CLASSIFIERS:
            raise TypeError(
                f"SeqGraphMED got estimator={given!r}, expected None, or a SeqMED or SeqLapMED "
                "object: pass for example SeqMED(kernel='linear')."
            )
        if given.kernel == "precomputed":
            raise ValueError(
                "estimator has kernel='precomputed', expected a kernel that can be evaluated "
                "between batches: pass the kernel as a callable."
            )
        if self.class_weight is not None and given.class_weight is not None:
            raise ValueError(
                f"class_weight={self.class_weight!r} was given with estimator={given!r}, expected "
                "an estimator with class_weight=None: set class_weight in one place only, here or "
                "in the estimator."
            )

    def _fixed(self) -> dict[str, Any]:
        template = self._template()
        nested = {f"estimator__{name}": each for name, each in template._fixed().items()}
        return {**super()._fixed(), "estimator": type(template).__name__, **nested}

    def _check_unchanged(self) -> None:
        now = type(self._template()).__name__
        before = self._started.fixed["estimator"] if hasattr(self, "_started") else now
        if now != before:
            raise ValueError(
                f"estimator was changed from a {before} to a {now} after the first batch, expected "
                "the same type for all batches: set it back, or start a new model."
            )
        super()._check_unchanged()

    def _factor(self) -> float:
        """Return the forgetting factor per batch."""
        return 1.0 if self.forgetting == "auto" else float(self.forgetting)

    def _parameters(self, classes: NDArray[Any], declared: Mask) -> MixtureParameters:
        """Return the parameters of an update after which there are these classes.

        ``declared`` is the mask of the classes that the caller has declared.
        """
        weights = checked_class_weights(self.class_weight, classes)
        return MixtureParameters(
            weight=None if self.mixture == "evidence" else float(self.mixture),
            class_prior=self._resolved_prior() == "evidence",
            proportions=checked_class_prior(self.class_prior, classes, declared),
            forgetting=self._factor(),
            restarts=self.forgetting == "auto",
            class_weights=weights if isinstance(weights, np.ndarray) else None,
            experts=self._named_experts(),
            margin=self._template()._parameters(classes),
        )

    def _named_experts(self) -> dict[str, Any]:
        """Return the refitted experts by name; none if the weight of the graph is fixed."""
        if self.mixture != "evidence":
            return {}
        if isinstance(self.experts, str):
            return default_experts()
        return named_experts(self.experts)

    def _resolved_prior(self) -> str:
        """Return the value of `class_prior` with "auto" replaced."""
        if isinstance(self.class_prior, dict):
            return "evidence"
        if self.class_prior != "auto":
            return self.class_prior
        return "uniform" if self.class_weight == "balanced" else "evidence"

    _with_classes = staticmethod(mixture_state.with_classes)

    def _fit_batch(self, n_rows: int) -> int:
        # an estimator that learns from unlabeled rows needs the graph of all of them
        return n_rows if self._template()._semi_supervised else FIT_BATCH

    def _sample_sizes(self) -> tuple[int, int]:
        template, kept = self._template(), most_kept(self.graph_memory)
        unlabeled, labeled = template._sample_sizes()
        return max(kept, unlabeled if template._semi_supervised else 0), max(kept, labeled)

    def _begin(self, rows: Rows, seed: int) -> MixtureState:
        template, scale = self._template(), np.zeros(0)
        if self._scales_columns(self._started.sparse):
            scale = column_scales.first_column_scales(rows.points)
        scaled = rows._replace(points=rows.points / scale) if scale.size else rows
        kernel = None
        if template.kernel not in EUCLIDEAN_KERNELS:
            kernel = template._kernel().freeze(scaled.points, rows.weights)
        graph = begin_graph(self, scaled, seed, kernel)
        parameters = template._parameters(None)
        margin_seed = seed if template.random_state is None else template._drawn_seed()
        return mixture_state.begin(graph, rows, scale, parameters, margin_seed)

    def _scales_columns(self, sparse: bool) -> bool:
        """Whether columns are scaled if their scales differ."""
        template = self._template()
        euclidean = isinstance(self.metric, str) and self.metric in ("auto", "euclidean")
        # no parameter depends on the unit of the columns
        invariant = template.kernel in ("rbf", "auto") and template.gamma == "scale"
        return self.scale == "auto" and not sparse and euclidean and invariant

    def _learn_rows(
        self,
        state: MixtureState,
        rows: Rows,
        classes: NDArray[Any],
        *,
        new_points: bool,
        new_batch: bool,
        last: bool,
    ) -> tuple[MixtureState, MixtureInfo]:
        return mixture_update.learn(
            state,
            rows,
            self._parameters(classes, state.counts.declared),
            new_points=new_points,
            new_batch=new_batch,
        )

    def _learn(
        self, batch: ClassifiedRows, size: int | None, *, new_points: bool, seed: int | None = None
    ) -> None:
        super()._learn(batch, size, new_points=new_points, seed=seed)
        change = self.update_info_.change
        if change is not None and not self.update_info_.revoked:
            warnings.warn(
                f"the error rate rose from {change.error_before:.0%} to {change.error_after:.0%} "
                f"in the last {change.n_labels} labels: the concept may have changed. A new start "
                "from these labels has begun, and the next labels decide whether it is kept. To "
                "turn this off, set forgetting=1.0.",
                ConceptChangeWarning,
                stacklevel=callers_level(),
            )

    def _commit(self, state: MixtureState, info: MixtureInfo, classes: NDArray[Any]) -> None:
        self.__dict__.update(
            _state=state,
            classes_=classes,
            n_batches_=state.n_batches,
            n_kept_=state.graph.rows.size,
            graph_weight_=mixture_state.graph_weight(state),
            expert_weights_=mixture_state.expert_weights(state),
            core_weights_=mixture_state.core_weights(state),
            class_prior_=self._resolved_prior(),
            update_info_=info,
            duality_gap_=state.margin_info.gap if state.margin_info else float("nan"),
            n_iter_=info.graph.n_iter,
        )

    def _kept_labels(self, points: Points, codes: Indices) -> KeptLabels:
        return mixture_state.kept_labels(self._state, points, codes)

    def _retract(self, points: Points, codes: Indices | None) -> None:
        before = self._state.on(self.device)
        parameters = self._parameters(self.classes_, before.counts.declared)
        state, info, kept = mixture_update.retract(before, points, codes, parameters)
        self._commit(state, info, self.classes_[kept])

    # -- fitted attributes -----------------------------------------------------------------------

    @property
    def estimator_(self) -> SeqMED:
        """The margin expert as a fitted classifier; its rows are divided by `scale_`."""
        model = self._snapshot()
        state, view = model._state, model._learned_template()
        view._started = Started(model._started.sparse, view._fixed())
        view.n_features_in_ = model.n_features_in_
        assert state.margin_info is not None
        view._commit(state.margin, state.margin_info, model.classes_)
        return view

    @property
    def scale_(self) -> Array:
        """Scales of the columns, (`n_features_in_`,); all 1 if they are not scaled."""
        model = self._snapshot()
        scale = model._state.column_scale
        return scale.copy() if scale.size else np.ones(model.n_features_in_)

    @property
    def graph_memory_(self) -> int:
        """Largest number of rows kept for the graph."""
        return int(self._snapshot()._state.graph.capacity)

    @property
    def metric_(self) -> Any:
        """Distance of the graph: "euclidean", "cosine" or a Kernel."""
        return self._snapshot()._state.graph.rows.metric.name

    # -- predictions -----------------------------------------------------------------------------

    def explain(self, X: MatrixLike, n: int = 3) -> list[Explanation]:
        """Return why the predicted class is predicted for every row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.
        n : int >= 1, default=3
            Largest number of columns, of labeled rows that speak for the class and of labeled rows
            that speak against it, for every expert.

        Returns
        -------
        explanations : list of Explanation
            One for each row; see `seqmed.mixture.explanation.Explanation`. ``print`` shows it as a
            text. It has the weights and probabilities of the experts, and the columns and labeled
            rows with the largest contributions to them. Labeled rows are as they were learned.

        Raises
        ------
        ValueError
            If the model knows one class only.
        """
        names = getattr(self, "feature_names_in_", None)
        return self._explanations(X, n, lambda points: ArrayView(points, names))

    def _explanations(
        self,
        X: MatrixLike,
        n: int,
        view: Callable[[Points], View],
        learned: Iterable[LearnedRows] = (),
    ) -> list[Explanation]:
        """Return explanations; ``view`` shows columns and rows, given the rows to explain."""
        if not isinstance(n, Integral) or isinstance(n, bool | np.bool_) or n < 1:
            raise ValueError(f"explain got n={n!r}, expected an integer >= 1: correct it.")
        model = self._snapshot()
        points, state = model._checked_points(X), model._state
        if state.counts.seen.sum() < 2:
            (only,) = model.classes_[state.counts.seen].tolist()
            raise ValueError(
                f"explain got a model that knows the class {only!r} only, expected at least two "
                "classes: learn a label of another class first."
            )
        scores = model._class_scores(points)
        return explained(
            state,
            points,
            state.counts.best(scores),
            model._probabilities(scores),
            model.classes_.tolist(),
            int(n),
            view(points),
            learned,
        )

    def _class_scores(self, points: Points) -> Array:
        scores = mixture_state.class_scores(self._state, points)
        check_overflow(scores)
        return scores

    def _probabilities(self, scores: Array) -> Array:
        counts = self._state.counts
        return with_unseen(counts, softmax(scores[:, counts.seen], axis=1), scores)

    def _n_support(self) -> int:
        return uncertainty.CONDITIONED

    def _uncertainty(self, points: Points) -> Uncertainty:
        return uncertainty_in_graph(self, points, self._state.scaled(points))
