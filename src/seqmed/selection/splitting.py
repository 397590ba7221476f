"""Cross-validation with missing labels: unlabeled rows train, and are never tested on."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sized
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import BaseCrossValidator, PredefinedSplit, StratifiedKFold
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_consistent_length

from seqmed.labels import as_label_array, holds_only_signs, is_missing, split_labels

Indices = NDArray[np.intp]
Fold = tuple[Indices, Indices]


class SemiSupervisedSplit(BaseCrossValidator):
    """Split the labeled rows into folds, and add the unlabeled ones to every training fold.

    A row without a label can be learned from but not tested on. Where some labels are missing,
    pass this splitter as ``cv`` to GridSearchCV, `cross_val_score` and their like.
    `cross_val_predict` refuses it, because it wants a prediction of every row.

    A row is unlabeled if its label equals ``unlabeled``, or is NaN, None or pandas' NA, as in
    `SeqLapMED`. With a splitter for time series the unlabeled rows of the future are learned from
    too; pass pairs over all rows to keep them out.

    Parameters
    ----------
    cv : int, splitter or iterable, default=5
        How the labeled rows are split: a number of stratified folds; a splitter of scikit-learn,
        which sees nothing but the labeled rows; or pairs (train, test) of indices over *all* rows,
        in which the unlabeled rows of a test fold are moved to its training fold. A
        PredefinedSplit is over all rows, too.
    unlabeled : object, default=-1
        Marker of a missing label; None if only None and NaN are missing.
    separate_groups : bool, default=False
        Whether unlabeled rows of the groups of a test fold are left out of its training fold. True
        tells how the model does on groups of which it has seen nothing: with False it has seen the
        test groups' unlabeled rows, as it will have if those come before it is used.

    Examples
    --------
    >>> import numpy as np
    >>> from seqmed.selection.splitting import SemiSupervisedSplit
    >>> y = np.array([0, -1, 1, 0, -1, 1])
    >>> for train, test in SemiSupervisedSplit(2).split(np.zeros((6, 1)), y):
    ...     print(train, test)
    [1 3 4 5] [0 2]
    [0 1 2 4] [3 5]
    """

    # Groups are asked for by whoever routes metadata; a cv without use for them ignores them.
    __metadata_request__split: ClassVar[dict] = {"groups": True}

    def __init__(self, cv=5, *, unlabeled=-1, separate_groups=False):
        self.cv = cv if is_splitter(cv) else as_pairs(cv)
        self.unlabeled = unlabeled
        self.separate_groups = separate_groups

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Fold]:
        """Yield the training and test rows of every fold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            The rows; what is split are their indices.
        y : array-like of shape (n_samples,)
            Labels, some of them missing.
        groups : array-like of shape (n_samples,), default=None
            Group of every row, for a ``cv`` that needs it and for ``separate_groups``.

        Yields
        ------
        train, test : sorted arrays of indices, disjoint. No unlabeled row is in test.
        """
        labeled, labels = self._labeled(X, y, groups)
        if self.separate_groups and groups is None:
            raise ValueError(
                "separate_groups=True got groups=None, expected the group of every row: pass "
                "groups, or set separate_groups=False."
            )
        for fold, (train, test) in enumerate(self._pairs(X, labeled, labels, groups)):
            if not test.size:
                raise ValueError(
                    f"test fold {fold} got no labeled row, expected at least one: choose folds "
                    "that share out the labeled rows."
                )
            if self.separate_groups:
                train = train[labeled[train] | ~of_groups(train, test, groups)]
            yield np.sort(train), np.sort(test)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds.

        Parameters
        ----------
        X, y, groups : as in `split`, default=None
            Needed only where the number depends on them, as in leaving out one row or one group.

        Returns
        -------
        n_splits : int
        """
        if isinstance(self.cv, list):
            return len(self.cv)
        splitter = self._splitter()
        if isinstance(splitter, PredefinedSplit):
            return splitter.get_n_splits()
        if y is not None:
            labeled, labels = self._labeled(X, y, groups)
            return splitter.get_n_splits(*rows_of(np.flatnonzero(labeled), X, labels, groups))
        try:
            return splitter.get_n_splits()
        except (TypeError, ValueError):
            raise ValueError(
                f"get_n_splits got y=None, expected y: the number of folds of {splitter!r} depends "
                "on the labeled rows. Pass X, y and groups."
            ) from None

    def _splitter(self) -> Any:
        if isinstance(self.cv, Integral) or self.cv is None:
            return StratifiedKFold(5 if self.cv is None else int(self.cv))
        return self.cv

    def _labeled(self, X: Any, y: Any, groups: Any) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Return the mask (n,) of labeled rows and their labels; at least one there must be."""
        if y is None:
            raise ValueError(
                "SemiSupervisedSplit got y=None, expected the labels: which rows may be tested on "
                "depends on them."
            )
        y = as_label_array(y)
        self._refuse_ambiguous(y)
        labeled, labels = split_labels(y, self.unlabeled)
        check_consistent_length(X, labeled, groups)
        if not labels.size:
            raise ValueError(
                f"SemiSupervisedSplit got no labeled row among {labeled.size} with "
                f"unlabeled={self.unlabeled!r}, expected at least one for every fold: add labels, "
                "or correct the marker."
            )
        return labeled, labels

    def _refuse_ambiguous(self, y: NDArray[Any]) -> None:
        if holds_only_signs(y[~is_missing(y)], self.unlabeled):
            raise ValueError(
                "SemiSupervisedSplit got y of only -1 and +1, and -1 marks unlabeled rows: "
                "expected labels among which -1 cannot be a class. If -1 is a class, set "
                "unlabeled=None (missing labels are then None or NaN); if -1 means unlabeled, name "
                "the one class differently."
            )

    def _pairs(
        self, X: Any, labeled: NDArray[np.bool_], labels: NDArray[Any], groups: Any
    ) -> Iterator[Fold]:
        """Yield the folds over all rows, in which unlabeled ones train."""
        everything = np.arange(labeled.size)
        if isinstance(self.cv, list | PredefinedSplit):
            for train, test in self._folds_of_all(everything):
                moved = np.setdiff1d(test[~labeled[test]], train)
                yield np.concatenate([train, moved]), test[labeled[test]]
            return
        rows, others = everything[labeled], everything[~labeled]
        for train, test in self._folds_of_labeled(X, rows, labels, groups):
            yield np.concatenate([rows[train], others]), rows[test]

    def _folds_of_all(self, everything: Indices) -> list[Fold]:
        if isinstance(self.cv, PredefinedSplit) and len(self.cv.test_fold) != everything.size:
            raise ValueError(
                f"PredefinedSplit has the folds of {len(self.cv.test_fold)} rows, expected one for "
                f"each of the {everything.size} rows, labeled or not: give -1 to rows that are "
                "never tested on."
            )
        pairs = self.cv if isinstance(self.cv, list) else self.cv.split()
        try:
            return [
                (everything[as_indices(train)], everything[as_indices(test)])
                for train, test in pairs
            ]
        except IndexError as refusal:
            raise ValueError(
                f"cv holds indices that do not fit {everything.size} rows, expected pairs "
                f"(train, test) over all rows, labeled or not: {refusal}."
            ) from refusal

    def _folds_of_labeled(
        self, X: Any, rows: Indices, labels: NDArray[Any], groups: Any
    ) -> list[Fold]:
        splitter = self._splitter()
        try:
            with warnings.catch_warnings():
                if self.separate_groups:  # then groups have a use, if not in the splitter
                    warnings.filterwarnings("ignore", "The groups parameter is ignored")
                return list(splitter.split(*rows_of(rows, X, labels, groups)))
        except ValueError as refusal:
            raise ValueError(
                f"{splitter!r} got the {rows.size} labeled rows to split, and refused: {refusal} "
                "Lower the number of folds, add labels, or pass what is missing."
            ) from refusal


def is_splitter(cv: Any) -> bool:
    """Whether ``cv`` is a number of folds or has a method to split rows."""
    return cv is None or isinstance(cv, Integral) or (hasattr(cv, "split") and type(cv) is not str)


def as_pairs(cv: Any) -> list[tuple[Any, Any]]:
    """Return an iterable of (train, test) as a list, so that it can be gone through again."""
    pairs = list(cv) if isinstance(cv, Iterable) and not isinstance(cv, str) else None
    if pairs is None or not all(isinstance(pair, Sized) and len(pair) == 2 for pair in pairs):
        raise ValueError(
            f"cv={cv!r}, expected a number of folds, a splitter of scikit-learn, or pairs "
            "(train, test) of indices over all rows."
        )
    return pairs


def as_indices(rows: Any) -> NDArray[Any]:
    """Return indices or a mask as an array; an empty list is no index."""
    array = np.atleast_1d(rows)
    return array if array.size else array.astype(np.intp)


def rows_of(rows: Indices, X: Any, labels: NDArray[Any], groups: Any) -> tuple[Any, Any, Any]:
    """Return X, y and groups of some rows; X may be None, of which splitters only want a length."""
    return (
        np.zeros((rows.size, 1)) if X is None else _safe_indexing(X, rows),
        labels,
        None if groups is None else _safe_indexing(groups, rows),
    )


def of_groups(rows: Indices, test: Indices, groups: Any) -> NDArray[np.bool_]:
    """Return a mask of the rows whose group occurs in the test fold."""
    tested = set(_safe_indexing(groups, test))
    return np.fromiter((group in tested for group in _safe_indexing(groups, rows)), bool, rows.size)
