"""SeqLapMED: SeqMED with a covariance that includes the smoothness of each batch's graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from seqmed.estimators.seqmed import DEFAULT_C, DEFAULT_WINDOW, SeqMED
from seqmed.kernels import Kernel
from seqmed.margin import covariance
from seqmed.margin.laplacian import GraphParameters
from seqmed.margin.update import MarginParameters

DEFAULT_BETA = 0.01


class SeqLapMED(SeqMED):
    """Laplacian maximum entropy discrimination, learned batch by batch from few labels.

    `SeqMED` with a graph. The graph of nearest neighbours over all rows of a batch, labeled or not,
    favours functions with similar scores at neighbouring rows. Unlabeled rows change the covariance
    of the posterior, labels change its mean.

    A row is unlabeled if its label equals ``unlabeled``, or is NaN, None, NaT or an empty string.

    The parameters under "Other Parameters" are for comparison with the paper.

    Parameters
    ----------
    kernel : {"rbf", "linear", "poly", "tfidf", "auto", "precomputed"}, callable or Kernel, \
            default="rbf"
        Similarity of two rows; see `SeqMED`.
    gamma : {"scale", "auto"} or float > 0, default="scale"
        Coefficient of "rbf" and "poly". The value used is `gamma_`.
    degree : int >= 1, default=3
        Degree of "poly".
    coef0 : float >= 0, default=0.0
        Constant term of "poly".
    C : float > 0, default=10.0
        Upper bound of the multiplier of a row of weight 1. A larger C penalises errors more. Leave
        C at its default if ``gamma_A`` is given.
    beta : float >= 0 or None, default=None
        Smoothness weight: weight of the penalty on functions that differ between neighbours. 0
        ignores unlabeled rows. None is 0.01, unless ``gamma_A`` and ``gamma_I`` are given.
    bias : {"auto", "exact", "median"}, default="auto"
        Treatment of the bias: known, estimated, or the paper's median rule; see `SeqMED`.
    window : int >= 1 or None, default=500
        Largest number of labeled rows whose multipliers are optimised together; see `SeqMED`.
    lag : int >= 1 or None, default=None
        Largest number of batches with labels whose multipliers are optimised together. 1 is the
        paper's recursion. None means no limit.
    averaging : {"auto"} or bool, default="auto"
        Whether predictions use the running mean of all posterior means instead of the newest one.
    forgetting : float in (0, 1], default=1.0
        Forgetting factor. The weight of earlier labels is multiplied by it at every batch with
        labels, the weight of earlier graphs at every batch. Choose a value below 1 for streams that
        drift.
    budget : int >= 2 or None, default=None
        Largest number of points kept. None keeps every support vector. Up to half of the points are
        landmarks. Support vectors beyond the budget are projected on the landmarks. If a batch has
        many labels, they are learned in random mini-batches. Requires ``recursion="landmarks"``.
    n_neighbors : int >= 1, default=10
        Number of neighbours of a row in the graph of its batch, without the row itself.
    n_landmarks : int >= 1, default=500
        Largest number of landmarks, drawn from the stream. A budget limits it to ``budget // 2``.
    unlabeled : object, default=-1
        Marker of unlabeled rows in y. With None, only NaN, None, NaT and empty strings mark them.
    class_weight : {"balanced"}, dict or None, default=None
        Weights of the classes, which multiply C; see `SeqMED`.
    tol : float > 0, default=1e-3
        Largest accepted violation of the KKT conditions, in units of the margin.
    max_iter : int >= -1, default=-1
        Largest number of solver iterations. -1 is the larger of 10 million and 100 per labeled
        row.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of landmarks.

    Other Parameters
    ----------------
    slack_shape : {"auto"} or float >= 0, default="auto"
        Shape of the slack prior: 1 is MED, 0 is the support vector machine. A number must be less
        than C. "auto" is ``min(1, C / 2)``, so that any C > 0 can be used.
    gamma_A : float > 0 or None, default=None
        Weight of the norm, as in the paper. Together with ``gamma_I`` it replaces C and beta: a
        batch of n rows, l of them labeled, has ``C = 1 / (2 l gamma_A)`` and
        ``beta = gamma_I / (2 gamma_A n^2)``. None uses C and beta.
    gamma_I : float >= 0 or None, default=None
        Weight of the smoothness term, as in the paper. Requires ``gamma_A``. None uses C and beta.
    weights : {"heat", "binary"}, default="heat"
        Edge weights: ``exp(-d^2 / (4 heat_width))`` for rows at distance d, or 1.
    heat_width : "auto" or float > 0, default="auto"
        Width of heat weights. "auto" is a quarter of the mean squared distance between neighbours
        in the first batch.
    recursion : {"landmarks", "exact", "spectral"}, default="landmarks"
        Representation of the covariance: "landmarks" projects it on landmarks, in constant memory;
        "exact" keeps every row; "spectral" is the paper's approximation.

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
        Signed multipliers of the support vectors. Not available with ``kernel="linear"``.
    coef_ : ndarray of shape (n_machines, n_features)
        Explicit weights. Only available with ``kernel="linear"``.
    intercept_ : ndarray of shape (n_machines,)
        Bias of every machine; -1 with ``bias="auto"``.
    class_scale_ : ndarray of shape (n_classes,)
        Factors of the class scores. Only available with ``bias="auto"``.
    duality_gap_ : float >= 0
        Largest duality gap of the last batch; NaN if the batch had no dual to solve.
    n_iter_ : int
        Number of solver iterations of the last batch.
    update_info_ : UpdateInfo
        Report of the last batch, machine by machine. Its C is the multiplier bound of a row of
        weight 1, its beta the smoothness weight.
    posterior_ : Posterior
        Mean and covariance of the posterior.

    See Also
    --------
    SeqMED : The classifier without a graph.
    SeqGraphMED : Learns from unlabeled rows through a graph over kept rows. The default choice.

    Notes
    -----
    The Notes of `SeqMED` on scores, probabilities, averaging and `retract` apply. With landmarks,
    the running mean starts again after `retract`. With ``recursion="spectral"`` there is no
    averaging.

    `C`, `beta`, `gamma_A`, `gamma_I`, `class_weight`, `window`, `lag`, `forgetting` and `tol` may
    change between batches with `set_params`. The kernel, `bias`, `averaging`, `budget`, and the
    parameters of the graph and the landmarks may not change.

    References
    ----------
    E. Hou, A. Hero, "Sequential maximum margin classifiers for partially labeled data", ICASSP
    2018.

    M. Belkin, P. Niyogi, V. Sindhwani, "Manifold regularization: a geometric framework for learning
    from labeled and unlabeled examples", JMLR 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> from seqmed import SeqLapMED
    >>> X, y = make_moons(400, noise=0.1, random_state=0)
    >>> labels = np.where(np.arange(400) % 20 == 0, y, -1)  # one label in twenty
    >>> model = SeqLapMED(random_state=0)
    >>> for start in range(0, 300, 100):
    ...     batch = slice(start, start + 100)
    ...     model = model.partial_fit(X[batch], labels[batch])
    >>> model.update_info_.beta
    0.01
    >>> bool(model.score(X[300:], y[300:]) > 0.8)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SeqMED._parameter_constraints,
        "beta": [Interval(Real, 0.0, None, closed="left"), None],
        "gamma_A": [Interval(Real, 0.0, None, closed="neither"), None],
        "gamma_I": [Interval(Real, 0.0, None, closed="left"), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "weights": [StrOptions({"heat", "binary"})],
        "heat_width": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither")],
        "recursion": [StrOptions(set(covariance.RECURSIONS))],
        "n_landmarks": [Interval(Integral, 1, None, closed="left")],
    }

    _semi_supervised = True
    _fixed_parameters = (
        *SeqMED._fixed_parameters,
        "n_neighbors", "weights", "heat_width", "recursion", "n_landmarks",
    )  # fmt: skip

    def __init__(
        self,
        kernel: str | Callable[[Any, Any], Any] | Kernel = "rbf",
        *,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        C: float = DEFAULT_C,
        beta: float | None = None,
        bias: str = "auto",
        window: int | None = DEFAULT_WINDOW,
        lag: int | None = None,
        averaging: bool | str = "auto",
        forgetting: float = 1.0,
        budget: int | None = None,
        n_neighbors: int = 10,
        n_landmarks: int = 500,
        unlabeled: Any = -1,
        class_weight: str | dict[Any, float] | None = None,
        tol: float = 1e-3,
        max_iter: int = -1,
        random_state: int | np.random.RandomState | None = None,
        # for comparison with the paper
        slack_shape: float | str = "auto",
        gamma_A: float | None = None,
        gamma_I: float | None = None,
        weights: str = "heat",
        heat_width: float | str = "auto",
        recursion: str = "landmarks",
    ) -> None:
        super().__init__(
            kernel, gamma=gamma, degree=degree, coef0=coef0, C=C, bias=bias, window=window, lag=lag,
            averaging=averaging, forgetting=forgetting, budget=budget, unlabeled=unlabeled,
            class_weight=class_weight, tol=tol, max_iter=max_iter, random_state=random_state,
            slack_shape=slack_shape,
        )  # fmt: skip
        self.beta = beta
        self.n_neighbors = n_neighbors
        self.n_landmarks = n_landmarks
        self.gamma_A = gamma_A
        self.gamma_I = gamma_I
        self.weights = weights
        self.heat_width = heat_width
        self.recursion = recursion

    def _check_parameters(self) -> None:
        super()._check_parameters()
        name, gammas = self.recursion, (self.gamma_A, self.gamma_I)
        averaged = self.averaging not in (False, "auto")
        if name == "spectral" and (averaged or self.forgetting < 1):
            got = "averaging=True" if averaged else f"forgetting={self.forgetting:g}"
            raise ValueError(
                f"recursion='spectral' got {got}, expected averaging='auto' or False, and "
                "forgetting=1: its pseudo-points change with every batch, and its running means "
                "give every batch the same weight. Use recursion='landmarks' or 'exact'."
            )
        if name != "landmarks" and self.budget is not None:
            raise ValueError(
                f"recursion={name!r} got budget={self.budget}, expected None: a budget projects "
                "support vectors on landmarks. Use recursion='landmarks'."
            )
        others = self.beta is not None or self.C != DEFAULT_C
        if gammas != (None, None) and (others or None in gammas):
            raise ValueError(
                f"SeqLapMED got C={self.C:g}, beta={self.beta} together with "
                f"gamma_A={self.gamma_A}, gamma_I={self.gamma_I}, expected one pair: set (C, beta) "
                "or (gamma_A, gamma_I), and leave the other pair at its defaults."
            )

    def _parameters(self, classes: NDArray[Any] | None) -> MarginParameters:
        gammas = None
        if self.gamma_A is not None and self.gamma_I is not None:
            gammas = (self.gamma_A, self.gamma_I)
        width = None if self.heat_width == "auto" else float(self.heat_width)
        return replace(
            super()._parameters(classes),
            beta=float(DEFAULT_BETA if self.beta is None else self.beta),
            gammas=gammas,
            graph=GraphParameters(self.n_neighbors, self.weights, width),
            recursion=self.recursion,
            most_landmarks=self.n_landmarks,
        )
