"""SemiSupervisedSplit: cross-validation with missing labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import BaseCrossValidator, PredefinedSplit, StratifiedKFold
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_consistent_length

from seqmed.estimators.labels import are_plus_one, holds_minus_one, split_labels
from seqmed.estimators.validation import MatrixLike
from seqmed.numeric.arrays import Indices, Mask


class SemiSupervisedSplit(BaseCrossValidator):
    """Cross-validation with missing labels: unlabeled rows are in training folds only.

    The labeled rows are split into folds, and the unlabeled rows are added to every training fold.
    Pass it as ``cv`` to GridSearchCV, `cross_val_score` and similar functions.
    `cross_val_predict` does not accept it, because unlabeled rows are in no test fold.

    A row is unlabeled if its label equals ``unlabeled``, or is NaN, None, NaT or an empty string.

    Parameters
    ----------
    cv : int >= 2 or splitter, default=5
        Split of the labeled rows. An int is a number of stratified folds. A scikit-learn splitter
        receives the labeled rows only.
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
    than the test rows. To leave these out, pass pairs of indices to GridSearchCV itself, with
    labeled rows only in the test folds.

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
        splits = hasattr(cv, "split") and not isinstance(cv, str | PredefinedSplit)
        if not splits and not isinstance(cv, Integral):
            raise ValueError(
                f"SemiSupervisedSplit got cv={cv!r}, expected a number of folds, or a splitter of "
                "scikit-learn that splits the rows it is given: pass one of these. Pass pairs of "
                "indices to scikit-learn's tools directly, with labeled rows only to be tested."
            )
        self.cv = cv
        self.unlabeled = unlabeled
        self.separate_groups = separate_groups

    def split(
        self, X: MatrixLike | None, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Iterator[tuple[Indices, Indices]]:
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
            If no row is labeled, or the splitter refuses the rows.
        """
        labeled, given = self._labeled(X, y, groups)
        if self.separate_groups and groups is None:
            raise ValueError(
                "separate_groups=True got groups=None, expected the group of every row: pass "
                "groups, or set separate_groups=False."
            )
        rows, others = np.flatnonzero(labeled), np.flatnonzero(~labeled)
        try:
            with warnings.catch_warnings():
                if self.separate_groups:  # used here even if the splitter ignores groups
                    warnings.filterwarnings("ignore", "The groups parameter is ignored")
                folds = list(self._splitter.split(*given))
        except ValueError as refusal:
            raise ValueError(
                f"{self._splitter!r} cannot split the {rows.size} labeled rows: {refusal} Lower "
                "the number of folds, add labels, or pass the missing argument."
            ) from refusal
        for train, test in folds:
            unlabeled = others
            if self.separate_groups:
                own = np.asarray(groups)
                unlabeled = others[~np.isin(own[others], own[rows[test]])]
            yield np.sort(np.concatenate([rows[train], unlabeled])), np.sort(rows[test])

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
        """
        if y is None:
            return int(self._splitter.get_n_splits())
        _, given = self._labeled(X, y, groups)
        return int(self._splitter.get_n_splits(*given))

    @property
    def _splitter(self) -> Any:
        return StratifiedKFold(int(self.cv)) if isinstance(self.cv, Integral) else self.cv

    def _labeled(self, X: Any, y: Any, groups: Any) -> tuple[Mask, tuple[Any, Any, Any]]:
        """Return the mask (n,) of labeled rows, and their X, y and groups; zeros replace X=None."""
        if y is None:
            raise ValueError(
                "SemiSupervisedSplit got y=None, expected labels, some of them missing: pass y, "
                "because only labeled rows can be tested."
            )
        labeled, labels = split_labels(y, self.unlabeled)
        if labels.size and are_plus_one(labels) and holds_minus_one(y, self.unlabeled):
            raise ValueError(
                "SemiSupervisedSplit got y of only -1 and +1 with unlabeled=-1, expected labels "
                "for which -1 is clearly a class or clearly a marker. If -1 is a class, set "
                "unlabeled=None and mark missing labels by None or NaN. If -1 means unlabeled, "
                "rename the class +1."
            )
        check_consistent_length(X, labeled, groups)
        if not labels.size:
            raise ValueError(
                f"SemiSupervisedSplit got no labeled row among {labeled.size} with "
                f"unlabeled={self.unlabeled!r}, expected at least one for every fold: add labels, "
                "or correct unlabeled."
            )
        rows = np.flatnonzero(labeled)
        points = np.zeros((rows.size, 1)) if X is None else _safe_indexing(X, rows)
        return labeled, (points, labels, None if groups is None else _safe_indexing(groups, rows))
