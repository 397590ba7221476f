"""SeqMED: the maximum-margin classifier with a Gaussian posterior, batch by batch."""

from __future__ import annotations

from seqmed.estimators.margin_classifier import MarginClassifier


class SeqMED(MarginClassifier):
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
        Similarity of two rows. "tfidf" is for rows of word counts. "linear" keeps
        explicit weights (`coef_`) in constant memory. "auto" is "rbf" if the first batch is dense
        and "linear" if it is sparse. "precomputed" is for `fit` only. A callable maps arrays of
        shape (n, p) and (m, p) to an (n, m) kernel matrix. A Kernel is an object with the methods
        of `seqmed.kernels.Kernel`.
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
    averaging : bool, default=False
        Whether predictions use the running mean of all posterior means instead of the newest one.
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
    feature_names_in_ : ndarray of shape (n_features_in_,)
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
    `lag` batches with labels. It requires ``averaging=False``.

    `C`, `class_weight`, `window`, `lag`, `forgetting` and `tol` may change between batches with
    `set_params`. The kernel, `averaging` and `budget` may not change.

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

    _semi_supervised = False
