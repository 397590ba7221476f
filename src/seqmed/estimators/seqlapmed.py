"""SeqLapMED: SeqMED with the smoothness of each batch's graph folded into its covariance."""

from __future__ import annotations

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions

from seqmed import covariance
from seqmed.covariance.protocol import Recursion
from seqmed.estimators.sequential import (
    DEFAULT_C,
    DEFAULT_WINDOW,
    LABELS_AT_ONCE,
    SequentialClassifier,
)
from seqmed.estimators.validation import Registered, Rows, check_strength
from seqmed.graph.laplacian import GraphRecipe
from seqmed.kernels import Kernel

DEFAULT_BETA = 0.01


class SeqLapMED(SequentialClassifier):
    """Laplacian maximum entropy discrimination, learned batch by batch from few labels.

    `SeqMED` with a smoothness term: a graph of nearest neighbours over all rows of a batch, labeled
    or not, makes close points score alike. What the graphs have said is carried from batch to batch
    in the covariance (`recursion`), what the labels have said in the mean.

    A row is unlabeled if its label equals ``unlabeled``, or is NaN, None, NaT or an empty string.
    In arrays of strings a numeric marker is looked for as a string.

    Parameters
    ----------
    kernel, gamma, degree, coef0, C, slack_shape, bias, bias_variance, window, lag, averaging, \
            forgetting, class_weight, tol, max_iter
        As in `SeqMED`.
    budget : int >= 2 or None, default=None
        Bound on the points kept in all. None keeps every support vector. Support vectors beyond it
        are projected on landmarks, which are drawn from the stream and take up to half of it. A
        batch with more than four times as many labels as the rest of it has room for is learned in
        random mini-batches of that size, all on the graph of the whole batch.
    beta : float >= 0 or None, default=None
        Weight of the smoothness term, 0 for none. None is 0.01.
    gamma_A, gamma_I : float > 0 and float >= 0, or None, default=None
        The paper's other parametrisation, instead of C and beta: for a batch of n rows, l labeled,
        ``C = 1 / (2 l gamma_A)`` and ``beta = gamma_I / (2 gamma_A n^2)``.
    n_neighbors : int >= 1, default=10
        Neighbours of a row in the graph of its batch, itself not counted.
    weights : {"heat", "binary"}, default="heat"
        Edge weights: ``exp(-d^2 / (4 heat_width))``, or 1.
    heat_width : "auto" or float > 0, default="auto"
        "auto" is a quarter of the mean squared neighbour distance of the first batch, then fixed.
    laplacian : {"normalized", "unnormalized"}, default="normalized"
        ``I - D^-1/2 W D^-1/2`` or ``D - W``.
    laplacian_power : int >= 1, default=1
        Exponent of the Laplacian.
    recursion : {"landmarks", "exact", "spectral"}, default="landmarks"
        How the covariance is carried: projected on landmarks in constant memory; exactly, keeping
        every row; or by the paper's spectral approximation.
    n_landmarks : int >= 1, default=500
        Landmarks to grow to, taken from the stream as it comes.
    unlabeled : object, default=-1
        Marker of a missing label; None if only NaN, None, NaT and empty strings are missing.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of landmarks.

    Attributes
    ----------
    classes_, n_features_in_, n_batches_, support_vectors_, dual_coef_, coef_, intercept_, \
            class_scale_, duality_gap_, n_iter_, update_info_, posterior_
        As in `SeqMED`.
    """

    _parameter_constraints: ClassVar[dict] = {
        **SequentialClassifier._parameter_constraints,
        "beta": [Interval(Real, 0.0, None, closed="left"), None],
        "gamma_A": [Interval(Real, 0.0, None, closed="neither"), None],
        "gamma_I": [Interval(Real, 0.0, None, closed="left"), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "weights": [StrOptions({"heat", "binary"})],
        "heat_width": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither")],
        "laplacian": [StrOptions({"normalized", "unnormalized"})],
        "laplacian_power": [Interval(Integral, 1, None, closed="left")],
        "recursion": [Registered(covariance.RECURSIONS)],
        "n_landmarks": [Interval(Integral, 1, None, closed="left")],
    }

    _fixed_parameters = (
        *SequentialClassifier._fixed_parameters,
        "n_neighbors", "weights", "heat_width", "laplacian", "laplacian_power",
        "recursion", "n_landmarks",
    )  # fmt: skip

    def __init__(
        self,
        kernel="rbf",
        *,
        gamma="scale",
        degree=3,
        coef0=0.0,
        C=DEFAULT_C,
        beta=None,
        gamma_A=None,
        gamma_I=None,
        slack_shape=1.0,
        bias="auto",
        bias_variance=np.inf,
        window=DEFAULT_WINDOW,
        lag=None,
        averaging=False,
        forgetting=1.0,
        budget=None,
        n_neighbors=10,
        weights="heat",
        heat_width="auto",
        laplacian="normalized",
        laplacian_power=1,
        recursion="landmarks",
        n_landmarks=500,
        unlabeled=-1,
        class_weight=None,
        tol=1e-3,
        max_iter=-1,
        random_state=None,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.C = C
        self.beta = beta
        self.gamma_A = gamma_A
        self.gamma_I = gamma_I
        self.slack_shape = slack_shape
        self.bias = bias
        self.bias_variance = bias_variance
        self.window = window
        self.lag = lag
        self.averaging = averaging
        self.forgetting = forgetting
        self.budget = budget
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.heat_width = heat_width
        self.laplacian = laplacian
        self.laplacian_power = laplacian_power
        self.recursion = recursion
        self.n_landmarks = n_landmarks
        self.unlabeled = unlabeled
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _begin_recursion(self, kernel: Kernel, rows: Rows, seed: int) -> Recursion:
        if self.recursion == "spectral" and (sp.issparse(rows.points) or not kernel.on_vectors):
            got = "sparse X" if sp.issparse(rows.points) else f"kernel={self.kernel!r}"
            raise ValueError(
                f"recursion='spectral' got {got}, expected dense X and a kernel defined on "
                "arbitrary real vectors: it evaluates the kernel on singular vectors of X. Use "
                "recursion='landmarks' or 'exact'."
            )
        self._check_recursion()
        landmarks = self.n_landmarks
        if self.budget is not None:
            landmarks = self._landmarks_within_budget()
        return covariance.make_recursion(self.recursion, kernel, n_landmarks=landmarks, seed=seed)

    def _landmarks_within_budget(self) -> int:
        return min(self.n_landmarks, self.budget // 2)

    def _labels_at_once(self, room: int) -> int:
        return LABELS_AT_ONCE * room

    def _check_recursion(self) -> None:
        """Refuse what a recursion cannot do, with the reason."""
        name = self.recursion
        if name == "spectral" and self.averaging:
            raise ValueError(
                "recursion='spectral' got averaging=True, expected False: its pseudo-points change "
                "with every batch, so past means cannot be kept. Use recursion='landmarks' or "
                "'exact'."
            )
        if name == "spectral" and self.forgetting < 1:
            raise ValueError(
                f"recursion='spectral' got forgetting={self.forgetting:g}, expected 1: its running "
                "means give every batch the same weight. Use recursion='landmarks' or 'exact'."
            )
        if name != "landmarks" and self.budget is not None:
            raise ValueError(
                f"recursion={name!r} got budget={self.budget}, expected None: only landmarks last, "
                "and support vectors beyond the budget are projected on them. Use "
                "recursion='landmarks'."
            )

    def _graph_recipe(self) -> GraphRecipe:
        return GraphRecipe(
            n_neighbors=self.n_neighbors,
            weights=self.weights,
            heat_width=None if self.heat_width == "auto" else float(self.heat_width),
            laplacian=self.laplacian,
            power=self.laplacian_power,
        )

    def _strengths(self, labeled_weight: float, weight: float) -> tuple[float, float]:
        """Return C and the smoothing strength ``2 beta`` of a batch."""
        if self.gamma_A is None and self.gamma_I is None:
            beta = DEFAULT_BETA if self.beta is None else self.beta
            check_strength(beta, f"beta={beta:g}")
            return self._check_bound(self.C, f"C={self.C:g}"), 2.0 * beta
        if self.beta is not None or self.C != DEFAULT_C:
            raise ValueError(
                f"got C={self.C:g}, beta={self.beta} together with gamma_A={self.gamma_A}, "
                f"gamma_I={self.gamma_I}, expected one pair: set (C, beta) or (gamma_A, gamma_I), "
                "and leave the other at its defaults."
            )
        if self.gamma_A is None or self.gamma_I is None:
            raise ValueError(
                f"got gamma_A={self.gamma_A}, gamma_I={self.gamma_I}, expected both: set the "
                "missing one, or use C and beta."
            )
        smoothing = self.gamma_I / self.gamma_A / weight / weight
        given = f"gamma_A={self.gamma_A:g}, gamma_I={self.gamma_I:g}"
        check_strength(
            0.5 * smoothing, f"{given} with {weight:g} rows makes beta={smoothing / 2:g}"
        )
        if labeled_weight == 0:
            return np.inf, smoothing
        bound = 0.5 / labeled_weight / self.gamma_A
        origin = f"gamma_A={self.gamma_A:g} with {labeled_weight:g} labels makes C={bound:g}"
        return self._check_bound(bound, origin), smoothing
