"""What SeqMED and SeqLapMED share: the posterior of one batch is the prior of the next."""

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
from seqmed.margin.update import MarginParameters, Smoothing, UpdateInfo
from seqmed.numeric.arrays import Array, Indices, Points, check_overflow
from seqmed.numeric.execution import threads_to_score
from seqmed.uncertainty import Uncertainty

DEFAULT_C = 10.0
# Chosen by prequential accuracy: docs/decisions, 0016 and 0027.
DEFAULT_WINDOW = 500


class MarginClassifier(StreamClassifier):
    """A classifier whose posterior after one batch is the prior of the next."""

    intercept_: Array
    duality_gap_: float
    n_iter_: int
    update_info_: UpdateInfo
    posterior_: Posterior
    _state: MarginState

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
        "averaging": ["boolean"],
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
        averaging: bool = False,
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

    def _begin(self, rows: Rows, seed: int) -> MarginState:
        return margin_state.begin(self._parameters(None), rows, seed)

    def _learn_rows(
        self, state: Any, rows: Rows, classes: NDArray[Any], *, new_points: bool, new_batch: bool
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
            averaging=self.averaging,
            forgetting=float(self.forgetting),
            budget=self.budget,
            class_weight=(
                None if classes is None else checked_class_weights(self.class_weight, classes)
            ),
            tol=self.tol,
            max_iter=self.max_iter,
            smoothing=self._smoothing(),
        )

    def _kernel(self) -> Kernel:
        """Return the kernel before the first batch."""
        return make_kernel(self.kernel, self.gamma, self.degree, self.coef0)

    def _smoothing(self) -> Smoothing | None:
        """Return the parameters of the smoothness term, None without it."""
        return None

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
