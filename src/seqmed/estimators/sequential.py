"""The sequential update shared by SeqMED and SeqLapMED: the posterior is the next prior."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from seqmed import kernels, margin_state, uncertainty, window
from seqmed.arrays import Array, Indices, Mask, Points
from seqmed.batch import Rows, UpdateInfo
from seqmed.covariance.protocol import Recursion
from seqmed.estimators.prediction import PosteriorPredictor
from seqmed.estimators.validation import (
    Registered,
    check_penalty,
    square_gram,
    warn_unless_converged,
)
from seqmed.graph.laplacian import GraphParameters
from seqmed.kernels import Kernel, Precomputed, make_kernel
from seqmed.late_rows import KeptLabels, compare_labels, equal_rows
from seqmed.margin_state import MarginState
from seqmed.settings import Settings
from seqmed.uncertainty import Uncertainty

DEFAULT_C = 10.0
# Chosen by prequential accuracy: docs/decisions, 0016 and 0027.
DEFAULT_WINDOW = 500
# Largest number of labels in one dual with a budget, as a multiple of the kept labeled rows.
LABELS_AT_ONCE = 4


class SequentialClassifier(PosteriorPredictor):
    """A classifier whose posterior after one batch is the prior of the next."""

    C_: float
    intercept_: Array
    duality_gap_: float
    n_iter_: int
    update_info_: UpdateInfo

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": [Registered(kernels.KERNELS, *kernels.SPECIAL), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0.0, None, closed="neither")],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "coef0": [Interval(Real, 0.0, None, closed="left")],
        "C": [Interval(Real, 0.0, None, closed="neither")],
        "slack_shape": [Interval(Real, 0.0, None, closed="left")],
        "bias": [StrOptions({"auto", "exact", "median"})],
        "bias_variance": [Interval(Real, 0.0, None, closed="both")],
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

    # "exact" and "median" may replace each other as the bias; "auto" may not.
    _fixed_parameters: tuple[str, ...] = (
        "kernel", "gamma", "degree", "coef0", "bias", "bias_variance", "averaging", "budget",
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
        slack_shape: float = 1.0,
        bias_variance: float = np.inf,
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
        self.bias_variance = bias_variance

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.positive_only = self.kernel in ("tfidf", "dcm")
        return tags

    # -- learning ------------------------------------------------------------------------------

    def _learn_all(self, rows: Rows) -> None:
        self._learn_batch(rows, None, new_points=True)

    def _retract(self, points: Points, codes: Indices | None) -> None:
        self._check_retractable()
        self._retract_rows(self._find_in_window(points, codes))

    def _retract_rows(self, rows: Mask) -> None:
        """Remove the labels of window rows, given by a mask."""
        state = self._state
        settings = self._settings(0.0, float(state.posterior.window.weights[rows].sum()))
        new, info = margin_state.retract(state, rows, settings)
        warn_unless_converged(info, self.tol)
        self._commit(new, info._replace(C=self.C_, beta=self.update_info_.beta))

    def _learn_batch(self, rows: Rows, state: MarginState | None, *, new_points: bool) -> None:
        if state is None:
            state = self._begin(rows)
        settings = self._settings(
            float(rows.weights[rows.labeled].sum()), float(rows.weights.sum())
        )
        infos: list[UpdateInfo] = []
        for part in self._mini_batches(rows, state, settings.capacity):
            first = new_points and not infos
            state, info = margin_state.learn(state, part, settings, self.class_weight, first)
            warn_unless_converged(info, self.tol)  # an error if the user turns warnings into errors
            infos.append(info)
        info = infos[-1].after(infos[:-1])
        self._commit(state, info._replace(C=settings.C, beta=settings.beta))

    def _mini_batches(self, rows: Rows, state: MarginState, capacity: int | None) -> Iterator[Rows]:
        """Yield mini-batches of at most `_labels_at_once` labels, in random order.

        The first mini-batch has all rows, so that the batch has one graph. The labels of the other
        mini-batches are learned as late labels.
        """
        most = rows.labels.size if capacity is None else self._labels_at_once(capacity)
        if rows.labels.size <= most:
            yield rows
            return
        places = np.flatnonzero(rows.labeled)
        order = np.random.default_rng(state.posterior.n_batches).permutation(places.size)
        for start in range(0, order.size, most):
            chosen = np.sort(order[start : start + most])
            labeled = np.zeros_like(rows.labeled)
            labeled[places[chosen]] = True
            yield rows._replace(labeled=labeled, labels=rows.labels[chosen])

    def _commit(self, new: MarginState, info: UpdateInfo) -> None:
        """Store a new state and everything that is derived from it."""
        self.__dict__.update(
            _state=new,
            classes_=new.registry.classes,
            n_batches_=new.posterior.n_batches,
            posterior_=new.posterior,
            update_info_=info,
            intercept_=new.posterior.intercepts.copy(),
            C_=info.C,
            duality_gap_=info.gap,
            n_iter_=info.n_iter,
        )

    def _format_rows(self, X: Points, state: Any) -> tuple[Points, Array | None]:
        if self.kernel != "precomputed":
            return super()._format_rows(X, state)
        gram = square_gram(X)
        return np.arange(gram.shape[0])[:, None], gram

    def _begin(self, rows: Rows) -> MarginState:
        if rows.gram is not None:
            kernel: Kernel = Precomputed(rows.gram)
        else:
            kernel = make_kernel(self.kernel, self.gamma, self.degree, self.coef0)
            kernel = kernel.freeze(rows.points, rows.weights)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        recursion = self._begin_recursion(kernel, rows.points, seed)
        variance = None if self.bias == "auto" else float(self.bias_variance)
        return margin_state.empty_state(
            recursion, self._graph_parameters(), rows, variance, self._fixed()
        )

    def _kept_labels(self, points: Points, codes: Indices) -> KeptLabels:
        kept, registry = self._state.posterior.window, self._state.registry
        equal = equal_rows(kept.points, points)
        return compare_labels(equal, registry.own_classes(kept.signs), codes)

    def _find_in_window(self, points: Points, codes: Indices | None) -> Mask:
        """Return a mask of the rows of the window whose labels are to be retracted."""
        kept, registry = self._state.posterior.window, self._state.registry
        found, missing = window.find(kept, registry.own_classes(kept.signs), points, codes)
        if missing is not None:
            budget = f"budget={self.budget}, " if self.budget is not None else ""
            raise ValueError(
                f"row {missing} of X is not among the {kept.size} labeled rows in the window "
                f"({budget}window={self.window}, lag={self.lag}), expected one of them, with the "
                "values and the label it was learned with: the multipliers of all other rows are "
                "frozen. To keep all rows, start a new model with window=None, lag=None and "
                "budget=None."
            )
        return found

    def _settings(self, labeled_weight: float, weight: float) -> Settings:
        C, beta = self._penalties(labeled_weight, weight)
        return Settings(
            C=C,
            slack_shape=float(self.slack_shape),
            beta=float(beta),
            bias=self.bias,
            tol=self.tol,
            max_iter=self.max_iter,
            lag=self.lag,
            window=self.window,
            averaging=self.averaging,
            forgetting=float(self.forgetting),
            capacity=None if self.budget is None else self._capacity(self.budget),
        )

    def _capacity(self, budget: int) -> int:
        """Return the number of labeled rows kept within a budget."""
        return budget - self._landmarks_within_budget(budget)

    def _check_slack_shape(self, C: float, origin: str) -> float:
        """Return C; refuse it if it does not exceed the slack shape, or is too large."""
        check_penalty(C, origin)
        if self.slack_shape >= C:
            raise ValueError(
                f"{origin}, expected C > slack_shape={self.slack_shape:g}: otherwise all "
                "multipliers are 0 and nothing can be learned. Raise C, or lower slack_shape."
            )
        return C

    def _check_retractable(self) -> None:
        if self.averaging:
            raise ValueError(
                "retract got averaging=True, expected False: the running mean of past posterior "
                "means depends on the labels. Start a new model with averaging=False."
            )

    def _check_combinations(self) -> None:
        if self.bias != "exact" and np.isfinite(self.bias_variance):
            raise ValueError(
                f"bias={self.bias!r} requires bias_variance=inf, got {self.bias_variance:g}. Set "
                "bias='exact' to use a finite variance."
            )

    def _may_change(self, name: str, before: Any, now: Any) -> bool:
        """Whether only the bias changes between "exact" and "median", which have the same state."""
        return name == "bias" and "auto" not in (before, now)

    def _check_kernel(self, method: str) -> None:
        if self.kernel == "precomputed":
            raise ValueError(
                f"{method} got kernel='precomputed', expected a kernel that can be evaluated "
                "between any two rows: pass the kernel as a callable, or call fit with the kernel "
                "matrix of all rows."
            )

    # -- label queries ---------------------------------------------------------------------------

    def _n_support(self) -> int:
        return self._state.posterior.size

    def _uncertainty(self, points: Points) -> Uncertainty:
        self._check_kernel("query")
        state = self._state
        return uncertainty.of_posterior(state.posterior, state.registry, points, self.C)

    # -- methods of subclasses -------------------------------------------------------------------

    @abstractmethod
    def _begin_recursion(self, kernel: Kernel, points: Points, seed: int) -> Recursion:
        """Return the covariance before the first batch."""

    @abstractmethod
    def _landmarks_within_budget(self, budget: int) -> int:
        """Return the largest number of landmarks within a budget."""

    @abstractmethod
    def _labels_at_once(self, capacity: int) -> int:
        """Return the largest number of labels in one dual if ``capacity`` labeled rows are kept."""

    @abstractmethod
    def _graph_parameters(self) -> GraphParameters:
        """Return the parameters of the graph of a batch."""

    @abstractmethod
    def _penalties(self, labeled_weight: float, weight: float) -> tuple[float, float]:
        """Return C and beta of a batch, given the total weights of labeled rows and of all rows."""
