"""SeqMED: the maximum-margin classifier with a Gaussian posterior, batch by batch."""

from __future__ import annotations

import numpy as np

from seqmed.covariance import ExactRecursion, NystroemRecursion
from seqmed.covariance.low_rank import LowRankCovariance
from seqmed.covariance.protocol import Recursion
from seqmed.estimators.sequential import (
    DEFAULT_C,
    DEFAULT_WINDOW,
    LABELS_AT_ONCE,
    SequentialClassifier,
)
from seqmed.estimators.validation import Rows
from seqmed.graph.laplacian import GraphRecipe
from seqmed.kernels import Kernel

# Labels at least that one dual may have where they are learned by features of landmarks.
FEATURES_AT_ONCE = 2000


class SeqMED(SequentialClassifier):
    """Maximum entropy discrimination, learned batch by batch.

    A maximum-margin kernel classifier whose Gaussian posterior after one batch is the prior of the
    next. With one batch it is the MED classifier, with ``slack_shape=0`` the support vector
    machine. Unlabeled rows teach nothing; in the first batch they count in what is measured there
    (``gamma="scale"``, idf).

    A row is unlabeled if its label equals ``unlabeled``, or is NaN, None, NaT or an empty string.
    If y holds only -1 and +1, `fit` takes both for classes, and `partial_fit` wants to be told: by
    ``classes=[-1, 1]`` or ``unlabeled=None``. Once -1 is a class it remains one.

    Parameters
    ----------
    kernel : {"rbf", "linear", "poly", "tfidf", "dcm", "precomputed"}, callable or Kernel, \
            default="rbf"
        Similarity of two rows. "tfidf" and "dcm" are for rows of counts; "precomputed" works with
        `fit` only; a callable maps (n, p) and (m, p) rows to (n, m) values. A linear kernel keeps
        explicit weights (`coef_`) in constant memory.
    gamma : {"scale", "auto"} or float > 0, default="scale"
        Coefficient of "rbf" and "poly", as in scikit-learn's SVC. "scale" is measured on the first
        batch and then stays.
    degree : int >= 1, default=3
        Degree of "poly".
    coef0 : float >= 0, default=0.0
        Constant of "poly".
    C : float > slack_shape, default=10.0
        Upper bound of the multiplier of one row.
    slack_shape : float >= 0, default=1.0
        Shape of the slack prior: 1 is MED, 0 is the SVM.
    bias : {"auto", "exact", "median"}, default="auto"
        "auto" has one machine per class, for any number of classes, and a known bias of -1: rows of
        class c need ``f_c >= 1``, rows of other classes ``f_c <= -1``. The score of class c is
        ``sqrt(nbar / n_c) (f_c + 1) / 2``, n_c the total weight of its labels so far and nbar the
        mean of n_c over the classes seen. Batches of a single class teach as others do, and a class
        that appears later gives the model it would give if declared beforehand. "exact" and
        "median" have the paper's diffuse bias, and one machine for two classes: "exact" takes the
        multiplier of the equality constraint for the bias, "median" the paper's rule of thumb.
        These two may replace each other in mid-stream, "auto" may not. With a linear kernel "auto"
        has no intercept: class boundaries pass through the origin. Centre the rows, append a
        constant column, or set ``bias="exact"``.
    bias_variance : float in [0, inf], default=inf
        Prior variance of the bias with ``bias="exact"``. With the diffuse default a batch of one
        class teaches nothing; a finite variance carries the bias across batches and lets such
        batches count.
    window : int >= 1 or None, default=500
        Largest number of labeled rows whose multipliers are optimised together. The multipliers of
        the oldest rows beyond it are frozen; the rows of the newest batch stay whatever their
        number, so that `fit` is one full MED. None is no limit.
    lag : int >= 1 or None, default=None
        Batches with labels whose multipliers are optimised together; those of older ones are
        frozen. 1 is the paper's recursion, None is no limit.
    averaging : bool, default=False
        Whether to predict with the running mean of the posterior means so far.
    forgetting : float in (0, 1], default=1.0
        What is left of what was learned before: of the labels' part with every batch whose labels
        teach something, of the smoothness with every batch. Below 1 for streams that drift.
    budget : int >= 2 or None, default=None
        Bound on the points kept in all; None keeps every support vector. Half of them are
        landmarks, labeled rows within whose span labels are learned: until there are more labels
        than that nothing is approximated. The other half are labeled rows of the window. With
        more labels in a batch than that, ``lag=1, averaging=True`` is the better choice.
    unlabeled : object, default=-1
        Marker of a missing label; None if only NaN, None, NaT and empty strings are missing.
    class_weight : {"balanced"}, dict or None, default=None
        Weights of classes. "balanced" is by the labels seen so far, this batch included.
    tol : float > 0, default=1e-3
        Largest accepted violation of the optimality conditions, in units of the margin.
    max_iter : int, default=-1
        Largest number of solver steps; -1 means 10 million or 100 per row, whichever is more.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of landmarks (with a budget).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels known so far, sorted.
    n_features_in_ : int
        Number of columns.
    n_batches_ : int
        Batches learned.
    support_vectors_ : array of shape (n_support, n_features)
        Rows with a nonzero multiplier (not with ``kernel="linear"``).
    dual_coef_ : ndarray of shape (n_machines, n_support)
        Their signed multipliers. With ``bias="auto"`` there is one machine per class, also for two
        classes; otherwise one for up to two classes, and one per class for more.
    coef_ : ndarray of shape (n_machines, n_features)
        Weights of a linear kernel.
    intercept_ : ndarray of shape (n_machines,)
        The bias; -1 for every class with ``bias="auto"``.
    class_scale_ : ndarray of shape (n_classes,)
        With ``bias="auto"`` the factors ``sqrt(nbar / n_c) / 2`` of the class scores, 0 for a class
        without a label: the score of class c is ``class_scale_[c] * (f_c + 1)``.
    duality_gap_ : float
        Largest duality gap of the last batch's duals, >= 0; NaN if it posed none.
    n_iter_ : int
        Solver steps of the last batch.
    update_info_ : UpdateInfo
        Everything the last batch reported, machine by machine.
    posterior_ : Posterior
        Mean and covariance as frozen data.
    """

    def __init__(
        self,
        kernel="rbf",
        *,
        gamma="scale",
        degree=3,
        coef0=0.0,
        C=DEFAULT_C,
        slack_shape=1.0,
        bias="auto",
        bias_variance=np.inf,
        window=DEFAULT_WINDOW,
        lag=None,
        averaging=False,
        forgetting=1.0,
        budget=None,
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
        self.slack_shape = slack_shape
        self.bias = bias
        self.bias_variance = bias_variance
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

    _semi_supervised = False

    def _begin_recursion(self, kernel: Kernel, rows: Rows, seed: int) -> Recursion:
        if self.budget is None or kernel.compact:
            return ExactRecursion(LowRankCovariance(kernel))
        landmarks = self._landmarks_within_budget()
        return NystroemRecursion(LowRankCovariance(kernel), landmarks, seed)

    def _landmarks_within_budget(self) -> int:
        return self.budget // 2

    def _labels_at_once(self, room: int) -> int:
        return max(FEATURES_AT_ONCE, LABELS_AT_ONCE * room)

    def _graph_recipe(self) -> GraphRecipe:
        return GraphRecipe()

    def _strengths(self, labeled_weight: float, weight: float) -> tuple[float, float]:
        return self._check_bound(self.C, f"C={self.C:g}"), 0.0
