"""Parameters chosen by the stream itself: candidates side by side, judged before they learn.

Every batch is first predicted by every candidate, and only then learned. How often each was right,
recent batches counting more, is the record by which the best is known at any time, without a
validation set and without going back. It is paired: candidates predict the same rows, so two of
them are told apart by the rows on which only one was right.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import _safe_indexing, check_random_state, indexable
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from seqmed.arrays import Array
from seqmed.estimators.validation import alike
from seqmed.labels import split_labels
from seqmed.selection.race import empty_record
from seqmed.snapshots import copy_to_teach, snapshot

# What learning leaves behind, and a new fit begins without.
LEARNED = (
    "candidates_", "record_", "n_batches_", "best_index_", "best_estimator_", "best_params_",
    "best_score_", "classes_", "n_features_in_", "feature_names_in_", "_begun",
)  # fmt: skip


def mixes(search: PrequentialSearch) -> bool:
    """Whether a search predicts with a mixture; if not, its methods are those of the best."""
    return search.combine == "mixture"


def follows_best(method: str) -> Any:
    """Return the check that a search follows its best candidate, which has a method."""
    return lambda search: not mixes(search) and hasattr(search.estimator, method)


class PrequentialSearch(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Learns a stream with every combination of some parameters, and predicts with the best.

    All candidates learn every batch. Before that, each predicts the labeled rows of the batch, and
    is judged by how often it was right on rows it had not learned. Kernel matrices, graphs and
    factorisations that candidates have in common are computed once. Candidates that are hopeless
    are dropped.

    Parameters
    ----------
    estimator : object with ``partial_fit`` and ``predict``
        `SeqMED`, `SeqLapMED`, or a `StreamPipeline` that ends in one.
    param_grid : dict of lists, or list of such dicts
        As in scikit-learn's GridSearchCV. Order matters for ties: put the simpler first. With
        ``beta`` in the grid include 0, and unlabeled rows that mislead are found out.
    discount : float in (0, 1], default=0.98
        What a batch counts for when the next one with labels comes; below 1 the best is the best
        of late. Labels that come late count in full and discount nothing.
    combine : {"best", "mixture"}, default="best"
        Predict with the best candidate, or with the mean probabilities of the ``n_best`` best, each
        weighted by ``exp(-errors)`` beyond those of the best.
    n_best : int >= 1, default=3
        Candidates in a mixture.
    drop_limit : float > 0 or None, default=3.0
        A candidate is dropped, for good, once the leader is ahead by more standard deviations than
        this: of the (discounted) rows on which just one of the two was right, at least 10, the
        leader has had ``lost`` and the candidate ``won``, and ``lost - won`` is more than
        ``drop_limit`` times its deviation, which for rows that count in full is
        ``sqrt(lost + won)``. None keeps all: for long streams whose drift may turn back.
    batch_size : int >= 1, default=200
        Rows that `fit` learns at a time.

    All but the estimator and the grid may be changed in mid-stream.

    Attributes
    ----------
    candidates_ : list of estimators
        One for each combination; those dropped as they were then.
    record_ : Record
        How they did.
    best_index_, best_params_, best_estimator_, best_score_
        The best of late: its place, parameters, estimator, and discounted share of rows right.
    results_ : dict
        One entry per candidate in every list: ``params``, ``accuracy`` (of all rows scored while in
        the race), ``recent_accuracy``, ``rank`` (1 is best; 0 if dropped), ``dropped`` (a
        `Dropped`, or None).
    classes_ : ndarray of shape (n_classes,)
    n_batches_ : int
        Batches learned.
    """

    _parameter_constraints: ClassVar[dict] = {
        "estimator": [HasMethods(["partial_fit", "predict"])],
        "param_grid": [dict, list],
        "discount": [Interval(Real, 0.0, 1.0, closed="right")],
        "combine": [StrOptions({"best", "mixture"})],
        "n_best": [Interval(Integral, 1, None, closed="left")],
        "drop_limit": [Interval(Real, 0.0, None, closed="neither"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        estimator,
        param_grid,
        *,
        discount=0.98,
        combine="best",
        n_best=3,
        drop_limit=3.0,
        batch_size=200,
    ):
        self.estimator = estimator
        self.param_grid = param_grid
        self.discount = discount
        self.combine = combine
        self.n_best = n_best
        self.drop_limit = drop_limit
        self.batch_size = batch_size

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags = copy.copy(self.estimator.__sklearn_tags__().input_tags)
        tags.input_tags.pairwise = False
        return tags

    # -- learning --------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None):
        """Learn rows as a stream of their own, ``batch_size`` at a time and in the order given.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels; missing ones as the estimator has it.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self : the fitted search. Left as it was if the rows are refused.
        """
        self._validate_params()
        search = snapshot(self)
        for name in LEARNED:
            search.__dict__.pop(name, None)
        search._learn_in_parts(X, y, sample_weight)
        self.__dict__ = search.__dict__  # in one stroke: for interrupts and other threads
        return self

    def _learn_in_parts(self, X, y, sample_weight):
        if y is None:
            raise ValueError("PrequentialSearch requires y to be passed, but the target y is None.")
        X, y = indexable(X, y)
        used = np.arange(_num_samples(y))
        weights = None
        if sample_weight is not None:
            weights = row_weights(sample_weight, used.size)
            used = np.flatnonzero(weights) if weights.any() else used
        labeled, labels = self._labels(_safe_indexing(y, used), None, alone=True)
        if not labels.size:
            raise ValueError(
                f"PrequentialSearch.fit got no labeled row among {labeled.size}, expected at least "
                "one: add labels, or learn unlabeled batches with partial_fit."
            )
        classes = np.unique(labels)
        for start in range(0, used.size, self.batch_size):
            rows = used[start : start + self.batch_size]
            part = _safe_indexing(X, rows), _safe_indexing(y, rows)
            own = None if weights is None else weights[rows]
            self.partial_fit(*part, classes=classes, sample_weight=own)

    def partial_fit(self, X, y, classes=None, sample_weight=None, **parameters):
        """Judge all candidates in the race by the labels of a batch, then let them learn it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,), default=None
        sample_weight : array-like of shape (n_samples,), default=None
        **parameters : others that the estimator's ``partial_fit`` takes, such as ``new_points``.

        Returns
        -------
        self : the search, one batch further. Left as it was if the batch is refused.
        """
        self._validate_params()
        if hasattr(self, "candidates_"):
            self._check_unchanged()
            begun, n_batches = self._begun, self.n_batches_
            candidates, record = self.candidates_, self.record_
        else:
            begun, n_batches = self._settings(), 0
            candidates = self._begin(begun["param_grid"])
            record = empty_record(len(candidates))
        given = {"classes": classes, "sample_weight": sample_weight, **parameters}
        given = {name: value for name, value in given.items() if value is not None}
        learned = list(candidates)
        for place in record.racing:
            learned[place] = copy_to_teach(candidates[place]).partial_fit(X, y, **given)
        known = self._common_classes([learned[place] for place in record.racing])
        # time passes with batches, not with labels that come late
        new_points = bool(given.get("new_points", True))
        before = record.discounted(self.discount) if new_points else record
        # judged as they were before; had they refused the batch, nobody would come here
        scored = self._judged(candidates, before, X, y, sample_weight, known)
        n_batches += new_points
        if scored is before:  # nothing to judge by
            return self._commit(learned, record, n_batches, begun)
        if self.drop_limit is not None:
            scored = scored.drop_hopeless(n_batches, self.drop_limit)
        return self._commit(learned, scored, n_batches, begun)

    @available_if(lambda self: hasattr(self.estimator, "retract"))
    def retract(self, X, y=None):
        """Take labels back from all candidates in the race; see `SeqMED.retract`.

        Candidates whose window no longer holds them make it refuse, and nothing is taken back. How
        candidates were judged by these labels stays in the record.
        """
        search = self._snapshot()
        search._check_unchanged()
        learned = list(search.candidates_)
        for place in search.record_.racing:
            learned[place] = copy_to_teach(learned[place]).retract(X, y)
        return self._commit(learned, search.record_, search.n_batches_, search._begun)

    def _snapshot(self):
        """Return the fitted search as it is now."""
        search = snapshot(self)
        check_is_fitted(search, "candidates_")
        return search

    def _begin(self, grid):
        """Return the candidates before their first batch."""
        if not grid:
            raise ValueError(
                f"param_grid got {self.param_grid!r}, expected at least one combination: list the "
                "values to try, as in {'C': [1.5, 10.0]}."
            )
        base = clone(self.estimator)
        base.set_params(**common_seeds(base))
        candidates = [clone(base).set_params(**clone_values(each)) for each in grid]
        self._check_mixture(candidates)
        return candidates

    def _check_mixture(self, candidates):
        if mixes(self) and not all(hasattr(each, "predict_proba") for each in candidates):
            raise ValueError(
                f"combine='mixture' got {self.estimator!r}, expected an estimator with "
                "predict_proba: use combine='best'."
            )

    def _settings(self):
        """Return what candidates are made of: the combinations, and the estimator's parameters."""
        own = {f"estimator__{name}": value for name, value in self.estimator.get_params().items()}
        grid = list(ParameterGrid(self.param_grid))
        return {"param_grid": grid, "estimator": type(self.estimator), **own}

    def _check_unchanged(self):
        before, now = self._begun, self._settings()
        for name in before | now:
            if not alike(before.get(name), now.get(name)):
                raise ValueError(
                    f"{name} was changed from {before.get(name)!r} to {now.get(name)!r} in "
                    "mid-stream, expected it to stay, as candidates have begun with it: set it "
                    "back, or start a new search."
                )

    def _common_classes(self, learned):
        """Return the classes, which candidates that are to be compared must agree on."""
        first = learned[0].classes_
        for other in learned[1:]:
            if not np.array_equal(other.classes_, first):
                raise ValueError(
                    f"candidates found the classes {first.tolist()} and {other.classes_.tolist()} "
                    "in the same labels, expected them to agree: leave parameters that say what a "
                    "label is, such as unlabeled, out of param_grid."
                )
        return first

    def _judged(self, candidates, record, X, y, sample_weight, known):
        """Return the record with the labeled rows of a batch predicted before they are learned."""
        labeled, labels = self._labels(y, known)
        weights = np.ones(labeled.size)
        if sample_weight is not None:
            weights = row_weights(sample_weight, labeled.size)
        counted = weights[labeled] > 0
        rows, labels = np.flatnonzero(labeled)[counted], labels[counted]
        if not rows.size or not can_predict(candidates[record.racing[0]]):
            return record
        X_labeled = _safe_indexing(*indexable(X), rows)
        correct = np.array(
            [candidates[place].predict(X_labeled) == labels for place in record.racing], dtype=bool
        )
        return record.add(correct, weights[rows])

    def _labels(self, y, known, *, alone=False):
        """Return who is labeled, and the labels, by the estimator's own conventions."""
        final = getattr(self.estimator, "_final_estimator", self.estimator)
        if hasattr(final, "_split_labels"):
            return final._split_labels(y, known, alone=alone)
        return split_labels(y, None, known=known)

    def _commit(self, candidates, record, n_batches, begun):
        best = int(record.ranking[0])
        leader = candidates[best]
        state = {
            "candidates_": candidates,
            "record_": record,
            "n_batches_": n_batches,
            "best_index_": best,
            "best_estimator_": leader,
            "best_params_": dict(begun["param_grid"][best]),
            "best_score_": float(record.right[best] / record.total) if record.total else np.nan,
            "classes_": leader.classes_,
            "_begun": begun,
        }
        for name in ("n_features_in_", "feature_names_in_"):  # not all pipelines have them
            if hasattr(leader, name):
                state[name] = getattr(leader, name)
        self.__dict__.update(state)
        return self

    @property
    def results_(self):
        """How the candidates have done, one entry per candidate in every list."""
        search = self._snapshot()
        record = search.record_
        ranks = np.zeros(len(search.candidates_), dtype=int)
        ranks[record.ranking] = 1 + np.arange(record.ranking.size)
        with np.errstate(invalid="ignore"):
            return {
                "params": [dict(each) for each in search._begun["param_grid"]],
                "accuracy": (record.right_in_all / record.total_in_all).tolist(),
                "recent_accuracy": np.where(
                    ranks > 0, record.right / np.float64(record.total), np.nan
                ).tolist(),
                "rank": ranks.tolist(),
                "dropped": list(record.dropped),
            }

    # -- predicting ------------------------------------------------------------------------------

    def predict(self, X):
        """Return the label of every row, by the best candidate or the mixture.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        search = self._snapshot()
        search._check_mixture(search.candidates_)
        if not mixes(search):
            return search.best_estimator_.predict(X)
        return search.classes_[search.predict_proba(X).argmax(axis=1)]

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X):
        """Return the probability of every class at every row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        search = self._snapshot()
        if not mixes(search):
            return search.best_estimator_.predict_proba(X)
        record = search.record_
        members = record.ranking[: search.n_best]
        shares = np.exp(record.right[members] - record.right[members[0]])
        parts = [search.candidates_[place].predict_proba(X) for place in members]
        return np.tensordot(shares / shares.sum(), parts, axes=1)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_log_proba(self, X):
        """Return the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @available_if(follows_best("decision_function"))
    def decision_function(self, X):
        """Return the best candidate's scores; not of a mixture, whose scores have no one scale."""
        check_is_fitted(self, "candidates_")
        return self.best_estimator_.decision_function(X)

    @available_if(follows_best("decision_std"))
    def decision_std(self, X):
        """Return the spread of the best candidate's scores."""
        check_is_fitted(self, "candidates_")
        return self.best_estimator_.decision_std(X)

    @available_if(lambda self: hasattr(self.estimator, "score"))
    def score(self, X, y, sample_weight=None):
        """Return the accuracy on the labeled rows; unlabeled ones are left out."""
        search = self._snapshot()
        labeled, labels = search._labels(y, search.classes_)
        rows = np.flatnonzero(labeled)
        if not rows.size:
            raise ValueError(
                f"score got no labeled row among {labeled.size}, expected at least one: pass true "
                "labels."
            )
        weights = None if sample_weight is None else row_weights(sample_weight, labeled.size)[rows]
        X, _ = indexable(X, labeled)
        right = search.predict(_safe_indexing(X, rows)) == labels
        return float(np.average(right, weights=weights))


def can_predict(estimator: Any) -> bool:
    """Whether a candidate has seen a label."""
    final = getattr(estimator, "_final_estimator", estimator)
    stream = getattr(final, "_stream", None)
    if stream is not None:
        return bool(stream.registry.seen.any())
    return np.size(getattr(final, "classes_", ())) > 0


def row_weights(sample_weight: Any, n_rows: int) -> Array:
    """Return the weight of every row; a number counts for all of them."""
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        return np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has shape {weights.shape}, expected ({n_rows},): pass one weight for "
            "every row."
        )
    return weights


def common_seeds(estimator: Any) -> dict[str, int]:
    """Return a seed for every ``random_state`` that is left open.

    Candidates draw alike then: they keep the same points, and share the work on them.
    """
    names = (name for name in estimator.get_params() if name.endswith("random_state"))
    unset = [name for name in names if estimator.get_params()[name] is None]
    draw = check_random_state(None).randint
    return {name: int(draw(np.iinfo(np.int32).max)) for name in unset}


def clone_values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters in which estimators are clones, so that candidates share none."""
    return {name: clone(value, safe=False) for name, value in parameters.items()}
