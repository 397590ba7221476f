"""Refitted experts: classifiers of scikit-learn that are fitted again as labels arrive.

Every expert is fitted on all labeled rows that are kept (`seqmed.mixture.labeled_rows`). It is
fitted again if enough labels are new, and less often while its weight is small. It returns
probabilities over the known classes, which `seqmed.mixture.pooling` weights. To add an expert, add
it to `default_experts`.

An expert that fails in an update is left out, with one warning, until the next fit succeeds. If it
fails in a prediction, that prediction counts as uniform.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy
import scipy.sparse as sp
import sklearn
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import has_fit_parameter

from seqmed.mixture.labeled_rows import LabeledRows
from seqmed.numeric.arrays import Array, Indices, Mask, Points
from seqmed.numeric.execution import callers_level
from seqmed.numeric.expectations import expect, expect_shape

# An expert is fitted again if this fraction of the labels is new, with so many labels or more, and
# `FEWEST_NEW` labels at least. Fits of many labels take seconds.
GROWTH = {0: 0.15, 1000: 0.3, 5000: 0.5}
FEWEST_NEW = 4
# An expert of a smaller weight is fitted again when the labels have doubled.
SMALL_WEIGHT = 0.05
# The weight of a row in the fits of this expert halves with every so many newer labels. It follows
# a concept that changes slowly, and is fitted again more often. Smaller weights are left out.
HALF_LIVES = {"recent_logistic": 50.0}
SMALLEST_DECAY = 0.01
# The smallest probability of a class: forests return zeros.
FLOOR = 1e-6
# Boosting needs many labels. Its time grows with the classes: with more, a stream of 10,000 labels
# would take more than twice the time.
BOOSTING_LABELS, BOOSTING_CLASSES = 1000, 6
# Number of trees of the default forests.
N_TREES = 100
# Rows of a new fit on which its probabilities are tried.
TRIED = 8
# Libraries that determine a fit, and the difference of probabilities that is not warned of.
LIBRARIES = {"scikit-learn": sklearn, "numpy": np, "scipy": scipy}
SAME_PROBABILITY = 1e-6
# Largest values of parameters of an expert in a model file: they bound time and memory of a fit.
BOUNDS = {
    "n_estimators": 2000,
    "max_iter": 10_000,
    "n_neighbors": 1000,
    "max_leaf_nodes": 100_000,
    "n_jobs": 256,  # a forest starts as many threads, even for few trees
}


class StandardisedLogisticRegression(ClassifierMixin, BaseEstimator):
    """Logistic regression with standardised columns.

    Columns of only 0 and 1 are left as they are. Sparse rows are divided by one number and not
    centred.

    Parameters
    ----------
    C : float > 0, default=1.0
        Inverse of the strength of the L2 penalty.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [Interval(Real, 0.0, None, closed="neither")]
    }

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: Points, y: Indices, sample_weight: Array) -> StandardisedLogisticRegression:
        """Fit on rows (n, p) with classes (n,) and weights (n,)."""
        self.mean_, self.scale_ = column_standards(X)
        # with many columns and classes, the history of lbfgs takes 20 times the memory of coef_
        solver = "newton-cg" if sp.issparse(X) else "lbfgs"
        self.model_ = LogisticRegression(C=self.C, solver=solver, tol=1e-3, max_iter=300)
        self.model_.fit(self._standardised(X), y, sample_weight)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: Points) -> Array:
        """Return the probabilities of ``classes_``, (n, K)."""
        probabilities: Array = self.model_.predict_proba(self._standardised(X))
        return probabilities

    def _standardised(self, X: Points) -> Points:
        return X / self.scale_ if sp.issparse(X) else (X - self.mean_) / self.scale_


def column_standards(points: Points) -> tuple[Array, Array]:
    """Return the means (p,) and the deviations (p,) of the columns.

    Columns that are constant have the deviation 1, and columns of only 0 and 1 are not changed.
    Sparse rows are divided by the root mean square of all entries: rare words would get large
    values otherwise.
    """
    if sp.issparse(points):
        root = float(np.sqrt(points.power(2).mean())) if points.nnz else 0.0
        deviations = np.full(points.shape[1], root)
        binary = np.asarray((abs(points.power(2) - points)).max(axis=0).toarray()).ravel() == 0
        mean = np.zeros(points.shape[1])
    else:
        mean, deviations = points.mean(axis=0), points.std(axis=0)
        binary = ((points == 0) | (points == 1)).all(axis=0)
    usable = (deviations > 0) & np.isfinite(deviations) & ~binary
    return np.where(binary, 0.0, mean), np.where(usable, deviations, 1.0)


def default_experts() -> dict[str, BaseEstimator]:
    """Return the default experts by name."""
    return {
        "logistic": StandardisedLogisticRegression(),
        "recent_logistic": StandardisedLogisticRegression(),
        "extra_trees": ExtraTreesClassifier(N_TREES),
        "random_forest": RandomForestClassifier(N_TREES),
        "boosting": HistGradientBoostingClassifier(),
    }


def named_experts(given: Sequence[BaseEstimator]) -> dict[str, BaseEstimator]:
    """Return classifiers by name: that of their class in lower case, numbered if repeated."""
    kinds = [type(each).__name__.lower() for each in given]
    return {
        kind if kinds.count(kind) == 1 else f"{kind}_{kinds[: place + 1].count(kind)}": each
        for place, (kind, each) in enumerate(zip(kinds, given, strict=True))
    }


class Fit(NamedTuple):
    """A fitted classifier, and what it was fitted on.

    Attributes
    ----------
    classifier : the fitted classifier; None in a model file.
    present : (c,) the classes of its rows, in order.
    numbers, weights : (n,) the numbers and the weights of its rows in `LabeledRows`.
    seed : its seed.
    """

    classifier: FittedClassifier | None
    present: Indices
    numbers: Indices
    weights: Array
    seed: int

    def validate(self) -> None:
        """Raise a ValueError if the arrays do not fit together."""
        expect_shape(self, self.numbers.shape, "weights")
        expect(0 <= self.seed < 2**32 and (self.weights > 0).all(), "a seed and weights > 0")
        expect((np.diff(self.present, prepend=-1) > 0).all(), "classes in order")
        expect((np.diff(self.numbers, prepend=-1) > 0).all(), "numbers in order")

    def for_file(self) -> Fit:
        """Return the fit without its classifier, which is fitted again when a file is loaded."""
        return self._replace(classifier=None)


class FittedClassifier:
    """A fitted classifier of scikit-learn, with its probabilities in one form.

    Parameters
    ----------
    model : the classifier.
    columns : (c,) columns of sparse rows that it was fitted on; None for dense rows.
    """

    def __init__(self, model: Any, columns: Indices | None) -> None:
        self.model, self.columns = model, columns

    def of_columns(self, points: Points) -> Points:
        """Return rows with the columns that the classifier was fitted on."""
        return points if self.columns is None else with_small_indices(points[:, self.columns])

    def probabilities(self, points: Points) -> Array:
        """Return the probabilities (m, c) of its classes."""
        model, points = self.model, self.of_columns(points)
        if type(model) in (ExtraTreesClassifier, RandomForestClassifier):
            return forest_probabilities(model, points)
        if hasattr(model, "predict_proba"):
            return np.asarray(model.predict_proba(points), dtype=np.float64)
        scores = np.asarray(model.decision_function(points), dtype=np.float64)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return np.asarray(softmax(scores, axis=1))


def in_single_precision(points: Points) -> Points:
    """Return rows as trees take them: of single precision, CSR with indices of 32 bits."""
    if not sp.issparse(points):
        return np.ascontiguousarray(points, dtype=np.float32)
    return with_small_indices(points.astype(np.float32))


def with_small_indices(points: Points) -> Points:
    """Return CSR rows with sorted indices of 32 bits, which many classifiers require."""
    rows = sp.csr_matrix(points)
    rows.sort_indices()
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    return rows


def forest_probabilities(forest: Any, points: Points) -> Array:
    """Return the mean of the probabilities of the trees, (m, c); without a pool of threads."""
    rows = in_single_precision(points)
    total: Array = forest.estimators_[0].tree_.predict(rows)
    for tree in forest.estimators_[1:]:
        total += tree.tree_.predict(rows)
    return total.reshape(rows.shape[0], -1)[:, : forest.n_classes_] / len(forest.estimators_)


@dataclass(frozen=True)
class Expert:
    """A refitted expert.

    Parameters
    ----------
    name : its name in reports.
    template : the classifier that is cloned and fitted.
    fit : its last fit; None before the first, or if the last one failed.
    n_new : labels since its last fit.
    failed : whether the last fit failed.
    """

    name: str
    template: BaseEstimator
    fit: Fit | None = None
    n_new: int = 0
    failed: bool = False

    def probabilities(self, points: Points, known: Mask) -> Array:
        """Return probabilities (m, K), uniform without a fit.

        ``known`` (K,) is the mask of the known classes. A known class without a row in the last fit
        has the smallest probability of the others.
        """
        if self.fit is None or self.fit.classifier is None:
            return np.tile(known / known.sum(), (points.shape[0], 1))
        found = self.fit.classifier.probabilities(points)
        if found.shape != (points.shape[0], self.fit.present.size):
            raise ValueError(f"its probabilities have the shape {found.shape}")
        if not np.isfinite(found).all():
            raise ValueError("its probabilities are not finite")
        full = np.tile(found.min(axis=1, keepdims=True), (1, known.size))
        full[:, self.fit.present] = found
        return floored(full, known)

    def validate(self) -> None:
        """Raise a ValueError if a fit could take too much time or memory."""
        for name, value in self.template.get_params(deep=False).items():
            bounded = name not in BOUNDS or value is None or value <= BOUNDS[name]
            expect(bounded, f"{name} of an expert of at most {BOUNDS.get(name)}")

    def is_due(self, n_labels: int, n_known: int, weight: float) -> bool:
        """Whether the expert is fitted again.

        ``n_labels`` labels of ``n_known`` classes are kept, and ``weight`` is its weight in the
        pool.
        """
        if not self.has_enough(n_labels, n_known):
            return False
        if self.fit is None:
            return self.n_new >= (FEWEST_NEW if self.failed else 1)
        n_labels = int(min(n_labels, self.half_life))
        growth = GROWTH[max(least for least in GROWTH if least <= n_labels)]
        needed = max(FEWEST_NEW, growth * n_labels)
        if weight < SMALL_WEIGHT:
            needed = max(needed, self.fit.numbers.size)
        return self.n_new >= needed

    @property
    def half_life(self) -> float:
        """Number of newer labels with which the weight of a row halves; infinity by default."""
        return HALF_LIVES.get(self.name, np.inf)

    def has_enough(self, n_labels: int, n_known: int) -> bool:
        """Whether there are enough labels, and few enough classes, for a fit."""
        boosted = n_labels >= BOOSTING_LABELS and n_known <= BOOSTING_CLASSES
        return n_known > 1 and (boosted or self.name != "boosting")

    def refitted(self, rows: LabeledRows, weights: Array, seed: int) -> Expert:
        """Return the expert fitted on some rows with weights (n,)."""
        present = np.unique(rows.codes)
        waiting = replace(self, fit=None, n_new=0)
        if not self.has_enough(rows.size, present.size):
            return waiting
        try:
            classifier = fitted(self.template, rows, weights, seed)
            if not np.array_equal(classifier.model.classes_, present):
                raise ValueError(f"its classes_ are {classifier.model.classes_}")
            fit = Fit(classifier, present, rows.numbers, weights, seed)
            made = replace(self, fit=fit, n_new=0, failed=False)
            made.probabilities(rows.points[:TRIED], np.ones(present.max() + 1, dtype=bool))
        except Exception as error:  # of a classifier of somebody else
            if not self.failed:
                warn_of_failure(self.name, error)
            return replace(waiting, failed=True)
        return made

    def with_classes(self, places: Indices) -> Expert:
        """Return the expert with class c moved to ``places[c]``; without a fit if one is -1."""
        if self.fit is None or (places[self.fit.present] < 0).any():
            return replace(self, fit=None)
        return replace(self, fit=self.fit._replace(present=places[self.fit.present]))

    def restored(self, rows: LabeledRows) -> Expert:
        """Return the expert of a model file, fitted on the same rows of ``rows`` as before."""
        if self.fit is None:
            return self
        used = rows.take(np.searchsorted(rows.numbers, self.fit.numbers))
        try:
            classifier = fitted(self.template, used, self.fit.weights, self.fit.seed)
        except Exception as error:  # of another version of a classifier
            warn_of_failure(self.name, error)
            return replace(self, fit=None, failed=True)
        return replace(self, fit=self.fit._replace(classifier=classifier))


def attempted(expert: Expert, points: Points, known: Mask) -> tuple[Array, bool]:
    """Return the probabilities (m, K) of an expert, and whether it failed; uniform if it did."""
    try:
        return expert.probabilities(points, known), False
    except Exception as error:  # of a classifier of somebody else
        warn_of_failure(expert.name, error)
        return np.tile(known / known.sum(), (points.shape[0], 1)), True


def fitted(
    template: BaseEstimator, rows: LabeledRows, weights: Array, seed: int
) -> FittedClassifier:
    """Return a clone of a classifier fitted on some rows; without weights if it takes none.

    Of sparse rows it gets the columns that occur: with hashed words nearly all others are empty,
    and trees draw the columns that they compare.
    """
    model: Any = clone(template)
    if model.get_params(deep=False).get("random_state", seed) is None:
        model.set_params(random_state=seed)
    weighted = {"sample_weight": weights} if has_fit_parameter(model, "sample_weight") else {}
    points, columns = rows.points, None
    if sp.issparse(points):
        columns = np.unique(points.indices) if points.nnz else np.arange(1)
        points = with_small_indices(points[:, columns])
    with warnings.catch_warnings():  # of a slow solver, or of few labels with many classes
        warnings.simplefilter("ignore")
        return FittedClassifier(model.fit(points, rows.codes, **weighted), columns)


class Check(NamedTuple):
    """Probabilities that show whether experts of a model file were fitted again as before.

    Attributes
    ----------
    points : (m, p) rows.
    probabilities : (m, E, K) probabilities of the experts.
    versions : the libraries that fitted them.
    """

    points: Points
    probabilities: Array
    versions: str


def check_of(experts: Sequence[Expert], points: Points, known: Mask) -> Check:
    """Return the probabilities of the experts at some rows."""
    found = np.stack([attempted(expert, points, known)[0] for expert in experts], axis=1)
    versions = ", ".join(f"{name} {each.__version__}" for name, each in LIBRARIES.items())
    return Check(points, found, versions)


def compare_checks(saved: Check, now: Check) -> None:
    """Warn if experts that were fitted again have other probabilities than before."""
    if saved.probabilities.shape == now.probabilities.shape:
        difference = float(np.abs(saved.probabilities - now.probabilities).max(initial=0.0))
    else:
        difference = 1.0
    if difference > SAME_PROBABILITY:
        warnings.warn(
            f"the experts of this model were fitted again with {now.versions}, and the file was "
            f"written with {saved.versions}: their probabilities differ by up to "
            f"{difference:.1g}. Expected the same versions: install them, or save the model again.",
            RuntimeWarning,
            stacklevel=callers_level(),
        )


def warn_of_failure(name: str, error: Exception) -> None:
    """Warn that an expert is left out."""
    warnings.warn(
        f"the expert {name!r} is left out until its next fit succeeds: {type(error).__name__}: "
        f"{error}. Expected a classifier with fit, and predict_proba or decision_function: "
        "correct it, or leave it out of experts.",
        RuntimeWarning,
        stacklevel=callers_level(),
    )


def floored(probabilities: Array, known: Mask) -> Array:
    """Return normalised probabilities (m, K) of at least `FLOOR`; 0 for unknown classes."""
    found: Array = np.where(known, np.maximum(probabilities, FLOOR), 0.0)
    found /= found.sum(axis=1, keepdims=True)
    return found
