"""SemiSupervisedSplit: cross-validation with missing labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sized
from numbers import Integral
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import BaseCrossValidator, PredefinedSplit, StratifiedKFold
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_consistent_length

from seqmed.estimators.labels import as_label_array, holds_only_signs, is_missing, split_labels
from seqmed.estimators.validation import MatrixLike
from seqmed.numeric.arrays import Indices, Mask

Fold: TypeAlias = tuple[Indices, Indices]


class SemiSupervisedSplit(BaseCrossValidator):
    """Cross-validation with missing labels: unlabeled rows are in training folds only.

    The labeled rows are split into folds, and the unlabeled rows are added to every training fold.
    Pass it as ``cv`` to GridSearchCV, `cross_val_score` and similar functions.
    `cross_val_predict` does not accept it, because unlabeled rows are in no test fold.

    A row is unlabeled if its label equals ``unlabeled``, or is NaN, None, NaT or an empty string.

    Parameters
    ----------
    cv : int >= 2, splitter, iterable or None, default=5
        Split of the labeled rows. An int is a number of stratified folds; None is 5. A scikit-learn
        splitter receives the labeled rows only. An iterable contains pairs (train, test) of indices
        of *all* rows; unlabeled rows of a test fold are moved to its training fold. A
        PredefinedSplit also refers to all rows.
    unlabeled : object, default=-1
        Marker of unlabeled rows in y. With None, only NaN, None, NaT and empty strings mark them.
    separate_groups : bool, default=False
        Whether to remove unlabeled rows from a training fold if their group is in the test fold.
        True estimates the accuracy on groups without any training rows. False estimates the
        accuracy on groups whose unlabeled rows are available for training.

    See Also
    --------
    PrequentialSearch : Choice of parameters on a stream, without folds.
    sklearn.model_selection.StratifiedKFold : Default split of the labeled rows.

    Notes
    -----
    With a splitter for time series, the training folds also contain unlabeled rows that are later
    than the test rows. To leave these out, pass pairs of indices.

    Examples
    --------
    >>> import numpy as np
    >>> from seqmed import SemiSupervisedSplit
    >>> y = np.array([0, -1, 1, 0, -1, 1])
    >>> for train, test in SemiSupervisedSplit(2).split(np.zeros((6, 1)), y):
    ...     print(train, test)
    [1 3 4 5] [0 2]
    [0 1 2 4] [3 5]
    """

    # With metadata routing, groups are always requested; a cv that does not use them ignores them.
    __metadata_request__split: ClassVar[dict[str, Any]] = {"groups": True}

    def __init__(self, cv: Any = 5, *, unlabeled: Any = -1, separate_groups: bool = False) -> None:
        self.cv = cv if is_splitter(cv) else as_pairs(cv)
        self.unlabeled = unlabeled
        self.separate_groups = separate_groups

    def split(
        self, X: MatrixLike | None, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Iterator[Fold]:
        """Yield the indices of the training and test rows of every fold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            Rows. Only their number is used by most splitters.
        y : array-like of shape (n_samples,)
            Labels, some of them missing. Required.
        groups : array-like of shape (n_samples,), default=None
            Group of every row. Required by ``separate_groups`` and by group splitters such as
            GroupKFold.

        Yields
        ------
        train : ndarray
            Sorted indices of the training rows, labeled and unlabeled.
        test : ndarray
            Sorted indices of the test rows, all labeled.

        Raises
        ------
        ValueError
            If no row is labeled, a test fold has no labeled row, or the splitter refuses the rows.
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
                    "that each contain labeled rows."
                )
            if self.separate_groups:
                tested = set(_safe_indexing(groups, test))
                outside = [group not in tested for group in _safe_indexing(groups, train)]
                train = train[labeled[train] | np.array(outside, dtype=bool)]
            yield np.sort(train), np.sort(test)

    def get_n_splits(
        self,
        X: MatrixLike | None = None,
        y: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> int:
        """Return the number of folds.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), default=None
            Rows.
        y : array-like of shape (n_samples,), default=None
            Labels. Required if the number of folds depends on the labeled rows, as in LeaveOneOut.
        groups : array-like of shape (n_samples,), default=None
            Group of every row. Required if the number of folds depends on it, as in
            LeaveOneGroupOut.

        Returns
        -------
        n_splits : int
            Number of folds.
        """
        if isinstance(self.cv, list):
            return len(self.cv)
        splitter = self._splitter()
        if y is not None and not isinstance(splitter, PredefinedSplit):
            labeled, labels = self._labeled(X, y, groups)
            rows = rows_of(np.flatnonzero(labeled), X, labels, groups)
            return int(splitter.get_n_splits(*rows))
        try:
            return int(splitter.get_n_splits())
        except (TypeError, ValueError):
            raise ValueError(
                f"get_n_splits got y=None, expected labels, because the number of folds of "
                f"{splitter!r} depends on the labeled rows: pass X, y and groups."
            ) from None

    def _splitter(self) -> Any:
        if isinstance(self.cv, Integral) or self.cv is None:
            return StratifiedKFold(5 if self.cv is None else int(self.cv))
        return self.cv

    def _labeled(self, X: Any, y: Any, groups: Any) -> tuple[Mask, NDArray[Any]]:
        """Return the mask (n,) of labeled rows and their labels; refuse y without labels."""
        if y is None:
            raise ValueError(
                "SemiSupervisedSplit got y=None, expected labels, some of them missing: pass y, "
                "because only labeled rows can be tested."
            )
        y = as_label_array(y)
        if holds_only_signs(y[~is_missing(y)], self.unlabeled):
            raise ValueError(
                "SemiSupervisedSplit got y of only -1 and +1 with unlabeled=-1, expected labels "
                "for which -1 is clearly a class or clearly a marker. If -1 is a class, set "
                "unlabeled=None and mark missing labels by None or NaN. If -1 means unlabeled, "
                "rename the class +1."
            )
        labeled, labels = split_labels(y, self.unlabeled)
        check_consistent_length(X, labeled, groups)
        if not labels.size:
            raise ValueError(
                f"SemiSupervisedSplit got no labeled row among {labeled.size} with "
                f"unlabeled={self.unlabeled!r}, expected at least one for every fold: add labels, "
                "or correct unlabeled."
            )
        return labeled, labels

    def _pairs(self, X: Any, labeled: Mask, labels: NDArray[Any], groups: Any) -> Iterator[Fold]:
        """Yield the folds of all rows, with unlabeled rows in the training folds."""
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
                f"PredefinedSplit has {len(self.cv.test_fold)} rows, expected all "
                f"{everything.size} rows, labeled or not: set test_fold to -1 for rows that are "
                "never tested."
            )
        pairs = self.cv if isinstance(self.cv, list) else self.cv.split()
        try:
            return [
                (everything[as_indices(train)], everything[as_indices(test)])
                for train, test in pairs
            ]
        except IndexError as refusal:
            raise ValueError(
                f"cv contains indices that do not fit {everything.size} rows ({refusal}), expected "
                "pairs (train, test) of indices of all rows, labeled or not: correct the indices."
            ) from refusal

    def _folds_of_labeled(
        self, X: Any, rows: Indices, labels: NDArray[Any], groups: Any
    ) -> list[Fold]:
        splitter = self._splitter()
        try:
            with warnings.catch_warnings():
                if self.separate_groups:  # used here even if the splitter ignores groups
                    warnings.filterwarnings("ignore", "The groups parameter is ignored")
                return list(splitter.split(*rows_of(rows, X, labels, groups)))
        except ValueError as refusal:
            raise ValueError(
                f"{splitter!r} cannot split the {rows.size} labeled rows: {refusal} Lower the "
                "number of folds, add labels, or pass the missing argument."
            ) from refusal


def is_splitter(cv: Any) -> bool:
    """Whether ``cv`` is a number of folds or has a method to split rows."""
    return cv is None or isinstance(cv, Integral) or (hasattr(cv, "split") and type(cv) is not str)


def as_pairs(cv: Any) -> list[tuple[Any, Any]]:
    """Return an iterable of pairs (train, test) as a list, which can be iterated repeatedly."""
    pairs = list(cv) if isinstance(cv, Iterable) and not isinstance(cv, str) else None
    if pairs is None or not all(isinstance(pair, Sized) and len(pair) == 2 for pair in pairs):
        raise ValueError(
            f"SemiSupervisedSplit got cv={cv!r}, expected a number of folds, a scikit-learn "
            "splitter, or pairs (train, test) of indices of all rows: pass one of these."
        )
    return pairs


def as_indices(rows: Any) -> NDArray[Any]:
    """Return indices or a mask as an array; an empty list becomes an empty array of indices."""
    array = np.atleast_1d(rows)
    return array if array.size else array.astype(np.intp)


def rows_of(rows: Indices, X: Any, labels: NDArray[Any], groups: Any) -> tuple[Any, Any, Any]:
    """Return X, y and groups of the selected rows.

    X=None is replaced by zeros of the right length.
    """
    return (
        np.zeros((rows.size, 1)) if X is None else _safe_indexing(X, rows),
        labels,
        None if groups is None else _safe_indexing(groups, rows),
    )
