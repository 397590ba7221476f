"""SeqMED: the maximum-margin classifier with a Gaussian posterior, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from seqmed import kernels, uncertainty
from seqmed.classes import ClassCounts, Rows
from seqmed.estimators.base import StreamClassifier
from seqmed.estimators.validation import MatrixLike, checked_class_weights
from seqmed.kernels import Expansion, Kernel, make_kernel
from seqmed.late_rows import KeptLabels, compare_labels, equal_rows
from seqmed.margin import calibration, margin_state
from seqmed.margin.calibration import Calibration
from seqmed.margin.margin_state import MarginState
from seqmed.margin.posterior import Posterior
from seqmed.margin.update import MarginParameters, UpdateInfo
from seqmed.numeric.arrays import Array, Indices, Points, check_overflow
from seqmed.numeric.execution import threads_to_score
from seqmed.uncertainty import Uncertainty

DEFAULT_C = 10.0
# Chosen by prequential accuracy: docs/decisions, 0016 and 0027.
DEFAULT_WINDOW = 500
# Largest numbers of unlabeled and labeled rows that `fit` learns: docs/decisions, 0042.
MOST_UNLABELED, MOST_LABELED = 50_000, 100_000


class SeqMED(StreamClassifier):
    """Maximum entropy discrimination, learned batch by batch.

    A maximum-margin kernel classifier with a Gaussian posterior over decision functions. The
    posterior after one batch is the prior of the next. One batch gives the MED classifier, or the
    support vector machine if ``slack_shape=0``.

    The classifier learns from labeled rows only. Statistics of the kernel, such as
    ``gamma="scale"``, also use the unlabeled rows of the first batch. A row is unlabeled if its
    label equals ``unlabeled``, or is NaN, None, NaT or an empty string. Labels of only -1 and +1
    are ambiguous: `fit` takes both as classes. `partial_fit` takes -1 for the marker, unless there
    is ``classes=[-1, 1]`` or ``unlabeled=None``; predictions warn while +1 is the only class.

    The parameters under "Other Parameters" are for comparison with the paper.

    Parameters
    ----------
    kernel : {"rbf", "linear", "poly", "tfidf", "auto", "precomputed"}, callable or Kernel, \
            default="rbf"
        Similarity of two rows. "tfidf" is for rows of word counts. "linear" keeps explicit weights
        (`coef_`) in constant memory, and with sparse rows those of the columns that occur. "auto"
        is "rbf" if the first batch is dense and "linear" if it is sparse. "precomputed" is for
        `fit` only. A callable maps arrays of shape (n, p) and (m, p) to an (n, m) kernel matrix. A
        Kernel is an object with the methods of `seqmed.kernels.Kernel`.
    gamma : {"scale", "auto"} or float > 0, default="scale"
        Coefficient of "rbf" and "poly". "scale" is ``1 / (n_features * variance)`` of the first
        batch, "auto" is ``1 / n_features``. The value used is `gamma_`.
    degree : int >= 1, default=3
        Degree of "poly".
    coef0 : float >= 0, default=0.0
        Constant term of "poly".
    C : float > 0, default=10.0
        Upper bound of the multiplier of a row of weight 1. A larger C penalises errors more.
    bias : {"auto", "exact", "median"}, default="auto"
        Treatment of the bias. "auto" uses one machine per class with a known bias of -1. With
        "auto", a batch may have labels of a single class, and a class may appear at any time.
        Scores are divided by the square root of the label counts (see Notes). With a linear kernel,
        class boundaries pass through the origin: centre the rows, append a constant column, or use
        "exact". "exact" and "median" estimate the bias, as in the paper, and use a single machine
        for two classes. With "exact" the bias is the multiplier of the equality constraint, with
        "median" it follows the paper's median rule.
    window : int >= 1 or None, default=500
        Largest number of labeled rows whose multipliers are optimised together. The multipliers of
        older rows are frozen. All labeled rows of the newest batch are always included. None means
        no limit.
    lag : int >= 1 or None, default=None
        Largest number of batches with labels whose multipliers are optimised together. The
        multipliers of older batches are frozen. 1 is the paper's recursion. None means no limit.
    averaging : {"auto"} or bool, default="auto"
        Whether predictions use the running mean of all posterior means instead of the newest one.
        "auto" uses the newest mean while there are at most `window` labels. When a label has left
        the window because of its size or the budget, it uses the running mean since then, unless
        the newest mean is better (see Notes).
    forgetting : float in (0, 1], default=1.0
        Forgetting factor: the weight of earlier labels is multiplied by it at every batch with
        labels. Choose a value below 1 for streams that drift.
    budget : int >= 2 or None, default=None
        Largest number of points kept. None keeps every support vector. Up to half of the points are
        landmarks, drawn from the labeled rows; labels are learned in their Nystroem features. The
        approximation starts when there are more than ``budget / 2`` labels. For batches with more
        labels than that, ``lag=1, averaging=True`` is recommended. With ``kernel="linear"`` there
        are no landmarks, and the budget only limits the labeled rows of the window.
    unlabeled : object, default=-1
        Marker of unlabeled rows in y. With None, only NaN, None, NaT and empty strings mark them.
    class_weight : {"balanced"}, dict or None, default=None
        Weights of the classes, which multiply C. A dict maps classes to weights > 0; classes that
        are not in it have the weight 1. "balanced" is ``n_labels / (n_classes * n_labels_c)`` by
        the labels seen so far. None gives every class the weight 1.
    tol : float > 0, default=1e-3
        Largest accepted violation of the KKT conditions, in units of the margin.
    max_iter : int >= -1, default=-1
        Largest number of solver iterations. -1 is the larger of 10 million and 100 per labeled
        row.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of landmarks. Used with a budget only.

    Other Parameters
    ----------------
    slack_shape : {"auto"} or float >= 0, default="auto"
        Shape of the slack prior: 1 is MED, 0 is the support vector machine. A number must be less
        than C. "auto" is ``min(1, C / 2)``, so that any C > 0 can be used.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Classes so far, sorted.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names. Only available if the first batch has column names that are all strings.
    n_batches_ : int
        Number of batches learned.
    gamma_ : float
        Coefficient of the kernel. Only available with ``kernel="rbf"`` and ``kernel="poly"``.
    support_vectors_ : {ndarray, sparse array} of shape (n_support, n_features)
        Rows with a nonzero multiplier. Not available with ``kernel="linear"``.
    dual_coef_ : ndarray of shape (n_machines, n_support)
        Signed multipliers of the support vectors. ``bias="auto"`` has one machine per class. The
        other rules have one machine for up to two classes, and one per class for more. Not
        available with ``kernel="linear"``.
    coef_ : ndarray of shape (n_machines, n_features)
        Explicit weights. Only available with ``kernel="linear"``.
    intercept_ : ndarray of shape (n_machines,)
        Bias of every machine; -1 with ``bias="auto"``.
    class_scale_ : ndarray of shape (n_classes,)
        Factors of the class scores, 0 for a class without a label. Only available with
        ``bias="auto"``.
    duality_gap_ : float >= 0
        Largest duality gap of the last batch; NaN if the batch had no dual to solve.
    n_iter_ : int
        Number of solver iterations of the last batch.
    update_info_ : UpdateInfo
        Report of the last batch, machine by machine. Its C is the multiplier bound of a row of
        weight 1.
    posterior_ : Posterior
        Mean and covariance of the posterior.

    See Also
    --------
    SeqLapMED : Learns from unlabeled rows through the graph of each batch.
    SeqGraphMED : Learns from unlabeled rows through a graph over kept rows. The default choice.
    sklearn.svm.SVC : Support vector machine on a single batch.

    Notes
    -----
    With ``bias="auto"`` the score of class c is ``class_scale_[c] * (f_c(x) + 1)``, where f_c is
    the posterior mean of its machine, bias included. The factor ``class_scale_[c]`` is
    ``sqrt(nbar / n_c) / 2``, where n_c is the total weight of the labels of the class, and nbar is
    the mean of n_c over all classes. With other rules the score is f_c(x).

    `partial_fit` scores the labeled rows of every batch before it learns them. These scores
    calibrate the probabilities. The first batch, or `fit` alone, gives no such scores;
    probabilities then depend on a prior and are less reliable. A declared class without a label has
    the probability ``1 / (n_labels + n_classes)``.

    `retract` applies to the labeled rows of the window: the last `window` labeled rows of the last
    `lag` batches with labels. It is refused with ``averaging=True``.

    With ``averaging="auto"``, labeled rows are scored before they are learned, with the newest mean
    and with the running mean. Predictions use the newest mean while it leads by 1.5 standard
    errors: the running mean is late if the stream drifts. The running mean starts again at the
    newest mean if that leads by 3 standard errors, when a class gets its first label, and with a
    budget after `retract`. Without a budget, `retract` removes the terms of its rows from the
    running mean. With ``lag=1`` or ``forgetting`` below 1 there is no averaging.

    `C`, `class_weight`, `window`, `lag`, `forgetting` and `tol` may change between batches with
    `set_params`. The kernel, `bias`, `averaging` and `budget` may not change.

    References
    ----------
    T. Jaakkola, M. Meila, T. Jebara, "Maximum entropy discrimination", NIPS 1999.

    E. Hou, A. Hero, "Sequential maximum margin classifiers for partially labeled data", ICASSP
    2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from seqmed import SeqMED
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SeqMED()
    >>> for start in range(3):
    ...     model = model.partial_fit(X[start::4], y[start::4])
    >>> model.n_batches_
    3
    >>> bool(model.score(X[3::4], y[3::4]) > 0.9)
    True
    """

    intercept_: Array
    duality_gap_: float
    n_iter_: int
    update_info_: UpdateInfo
    posterior_: Posterior
    _state: MarginState
    _semi_supervised = False

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": [StrOptions({*kernels.KERNELS, *kernels.SPECIAL}), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0.0, None, closed="neither")],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "coef0": [Interval(Real, 0.0, None, closed="left")],
        "C": [Interval(Real, 0.0, None, closed="neither")],
        "slack_shape": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="left")],
        "bias": [StrOptions({"auto", "exact", "median"})],
        "window": [Interval(Integral, 1, None, closed="left"), None],
        "lag": [Interval(Integral, 1, None, closed="left"), None],
        "averaging": [StrOptions({"auto"}), "boolean"],
        "forgetting": [Interval(Real, 0.0, 1.0, closed="right")],
        "budget": [Interval(Integral, 2, None, closed="left"), None],
        "unlabeled": "no_validation",
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "tol": [Interval(Real, 0.0, None, closed="neither")],
        "max_iter": [Interval(Integral, -1, None, closed="left")],
        "random_state": ["random_state"],
    }

    _fixed_parameters: tuple[str, ...] = (
        "kernel", "gamma", "degree", "coef0", "bias", "averaging", "budget",
    )  # fmt: skip

    def __init__(
        self,
        kernel: str | Callable[[Any, Any], Any] | Kernel = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        C: float = DEFAULT_C,
        bias: str = "auto",
        window: int | None = DEFAULT_WINDOW,
        lag: int | None = None,
        averaging: bool | str = "auto",
        forgetting: float = 1.0,
        budget: int | None = None,
        unlabeled: Any = -1,
        class_weight: str | dict[Any, float] | None = None,
        tol: float = 1e-3,
        max_iter: int = -1,
        random_state: int | np.random.RandomState | None = None,
        # for comparison with the paper
        slack_shape: float | str = "auto",
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.C = C
        self.bias = bias
        self.window = window
        self.lag = lag
        self.averaging = averaging
        self.forgetting = forgetting
        self.budget = budget
        self.unlabeled = unlabeled
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.slack_shape = slack_shape

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.positive_only = self.kernel == "tfidf"
        return tags

    # -- learning ------------------------------------------------------------------------------

    _with_classes = staticmethod(margin_state.with_classes)

    def _sample_sizes(self) -> tuple[int, int]:
        return MOST_UNLABELED, MOST_LABELED

    def _begin(self, rows: Rows, seed: int) -> MarginState:
        return margin_state.begin(self._parameters(None), rows, seed)

    def _learn_rows(
        self, state: Any, rows: Rows, classes: NDArray[Any], *, new_points: bool, **kind: bool
    ) -> tuple[MarginState, UpdateInfo]:
        return margin_state.learn(state, rows, self._parameters(classes), new_points=new_points)

    def _retract(self, points: Points, codes: Indices | None) -> None:
        parameters, last = self._parameters(self.classes_), self.update_info_
        found = margin_state.find_labels(self._state, points, codes, parameters)
        state, info, kept = margin_state.retract(self._state, found, parameters)
        info = info._replace(C=last.C, beta=last.beta)
        self._commit(state, info, self.classes_[kept])

    def _kept_labels(self, points: Points, codes: Indices) -> KeptLabels:
        kept, counts = self._state.posterior.window, self._state.counts
        equal = equal_rows(kept.points, points)
        return compare_labels(equal, counts.own_classes(kept.signs), codes)

    def _commit(self, state: MarginState, info: UpdateInfo, classes: NDArray[Any]) -> None:
        posterior = state.posterior
        self.__dict__.update(
            _state=state,
            classes_=classes,
            n_batches_=posterior.n_batches,
            posterior_=posterior,
            update_info_=info,
            intercept_=posterior.intercepts.copy(),
            duality_gap_=info.gap,
            n_iter_=info.n_iter,
        )

    # -- parameters ----------------------------------------------------------------------------

    def _parameters(self, classes: NDArray[Any] | None) -> MarginParameters:
        """Return the parameters of an update after which there are these classes.

        None is for parameters before any class is known.
        """
        return MarginParameters(
            kernel=None if self.kernel == "precomputed" else self._kernel(),
            C=self.C,
            slack_shape=None if self.slack_shape == "auto" else float(self.slack_shape),
            bias=self.bias,
            window=self.window,
            lag=self.lag,
            averaging=self.averaging if isinstance(self.averaging, str) else bool(self.averaging),
            forgetting=float(self.forgetting),
            budget=self.budget,
            class_weight=(
                None if classes is None else checked_class_weights(self.class_weight, classes)
            ),
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def _kernel(self) -> Kernel:
        """Return the kernel before the first batch."""
        return make_kernel(self.kernel, self.gamma, self.degree, self.coef0)

    # -- predictions ---------------------------------------------------------------------------

    def _class_scores(self, points: Points) -> Array:
        state = self._state
        return state.counts.class_scores(margin_state.machine_scores(state, points))

    def _probabilities(self, scores: Array) -> Array:
        record = self._state.calibration or Calibration()
        return calibration.probabilities(record, self._state.counts, scores)

    def _n_support(self) -> int:
        return self._state.posterior.size

    def _uncertainty(self, points: Points) -> Uncertainty:
        self._check_kernel("query")
        state = self._state
        return uncertainty.of_posterior(state.posterior, state.counts, points, self.C)

    def decision_std(self, X: MatrixLike) -> Array:
        """Return the posterior standard deviation of the score of every row.

        Unlabeled rows shrink it and labels do not, so it is not a calibrated error bar.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        standard_deviations : ndarray of shape (n_samples,)
            ``sqrt(k_t(x, x))``, the same for all classes; k_t is the posterior covariance.
        """
        model = self._snapshot()
        points, posterior = model._points(X), model._state.posterior
        with (
            threads_to_score(points.shape[0], posterior.size),
            np.errstate(over="ignore", invalid="ignore"),
        ):
            deviations = posterior.standard_deviation(points)
        check_overflow(deviations)
        return deviations

    # -- fitted attributes ---------------------------------------------------------------------

    @property
    def class_scale_(self) -> Array:
        """Factors of the class scores with ``bias="auto"``, (n_classes,); 0 without a label."""
        counts: ClassCounts = self._snapshot()._state.counts
        if not counts.per_class:
            raise AttributeError("class_scale_ is only available with bias='auto'.")
        return counts.scale

    @property
    def gamma_(self) -> float:
        """Coefficient of an "rbf" or "poly" kernel, resolved on the first batch."""
        kernel = self._snapshot().posterior_.covariance.kernel
        if not hasattr(kernel, "gamma"):
            raise AttributeError("gamma_ is only available with kernel='rbf' or kernel='poly'.")
        return float(kernel.gamma)

    @property
    def support_vectors_(self) -> Points:
        """Rows with a nonzero multiplier, (n_support, n_features), newest last."""
        return self._support().points.copy()

    @property
    def dual_coef_(self) -> Array:
        """Signed multipliers of the support vectors, (n_machines, n_support)."""
        return self._support().coefficients.T.copy()

    @property
    def coef_(self) -> Array:
        """Explicit weights of a linear kernel, (n_machines, n_features)."""
        posterior: Posterior = self._snapshot().posterior_
        if not posterior.covariance.kernel.compact:
            raise AttributeError("coef_ is only available with kernel='linear'.")
        return kernels.linear_weights(posterior.mean_parts[0])

    def _support(self) -> Expansion:
        posterior: Posterior = self._snapshot().posterior_
        if posterior.covariance.kernel.compact:
            raise AttributeError(
                "support vectors are not available with kernel='linear', which keeps explicit "
                "weights: use coef_."
            )
        return posterior.support
