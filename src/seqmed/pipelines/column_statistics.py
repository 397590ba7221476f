"""Statistics of the columns of a batch: means, deviations, ranges and counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.sparse as sp

from seqmed.arrays import Array, Indices, Mask, Points, canonical

# Largest difference within a constant column, in units of the last place.
ROUNDING = 16.0


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of every column.

    Missing values (NaN, infinite) are left out.

    Parameters
    ----------
    mean : (p,) mean, NaN for a column without values.
    std : (p,) standard deviation.
    mad : (p,) mean absolute deviation from the mean. This deviation is robust against single
        outliers.
    mad_std : (p,) standard deviation of the contribution of a single value to ``mad``.
    low, high : (p,) smallest and largest value.
    count : (p,) number of values.
    rounding : (p,) largest difference that is attributed to rounding.
    """

    mean: Array
    std: Array
    mad: Array
    mad_std: Array
    low: Array
    high: Array
    count: Indices
    rounding: Array

    @property
    def constant(self) -> Mask:
        """Mask (p,) of columns with a single value, up to rounding."""
        return self.std <= self.rounding

    def take(self, columns: Indices) -> ColumnStatistics:
        """Return the statistics of the selected columns."""
        return ColumnStatistics(*(getattr(self, field.name)[columns] for field in fields(self)))


def measure(points: Points) -> ColumnStatistics:
    """Return the statistics of the columns of (n, p) rows, dense or sparse."""
    precision = np.finfo(points.dtype if points.dtype.kind == "f" else np.float64).eps
    rows = canonical(points).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        mean = column_means(rows, lambda x: x)
        std = np.sqrt(column_means(rows, lambda x, m: (x - m) ** 2, mean))
        mad = column_means(rows, lambda x, m: np.abs(x - m), mean)
        # A value contributes its own deviation. It also shifts the mean, which changes the
        # deviations of all values. That effect is proportional to the difference between the
        # numbers of values above and below the mean.
        tilt = column_means(rows, lambda x, m: np.sign(m - x), mean)
        square = column_means(
            rows, lambda x, m, s, t: (np.abs(x - m) + t * (x - m) - s) ** 2, mean, mad, tilt
        )
    return ColumnStatistics(
        mean=mean,
        std=std,
        mad=mad,
        mad_std=np.sqrt(square),
        low=-column_maxima(-rows),
        high=column_maxima(rows),
        count=count_values(rows),
        rounding=ROUNDING * float(precision) * np.abs(mean),
    )


def count_values(points: Points) -> Indices:
    """Return the number of finite values of every column, (p,)."""
    counts: Indices
    if sp.issparse(points):
        missing = points.indices[~np.isfinite(points.data)]
        counts = points.shape[0] - np.bincount(missing, minlength=points.shape[1])
    else:
        counts = np.isfinite(points).sum(axis=0)
    return counts


def column_maxima(points: Points) -> Array:
    """Return the largest finite value of every column, (p,); -inf without one."""
    maxima: Array
    if sp.issparse(points):
        finite = points.copy()
        finite.data[~np.isfinite(finite.data)] = -np.inf
        maxima = finite.max(axis=0).toarray().ravel()
    else:
        maxima = np.where(np.isfinite(points), points, -np.inf).max(axis=0)
    return maxima


def column_means(points: Points, function: Callable[..., Any], *parameters: Array) -> Array:
    """Return the mean of a function of the finite values of every column, (p,).

    Parameters
    ----------
    points : (n, p) rows, dense or CSR without duplicate entries.
    function : maps values to numbers. Each further argument is a parameter of the column. The
        zeros of a sparse column are evaluated once.
    parameters : arrays of shape (p,).
    """
    means: Array
    if not sp.issparse(points):
        values = np.where(np.isfinite(points), function(points, *parameters), 0.0)
        means = values.sum(axis=0) / count_values(points)
        return means
    n, p = points.shape
    column = points.indices
    values = function(points.data, *(parameter[column] for parameter in parameters))
    stored = np.bincount(column, np.where(np.isfinite(points.data), values, 0.0), minlength=p)
    zeros = (n - np.bincount(column, minlength=p)) * function(np.zeros(p), *parameters)
    means = (stored + zeros) / count_values(points)
    return means


def numeric_columns(X: Any) -> tuple[Points, tuple[str, ...] | None] | None:
    """Return the numeric columns of the input, and their names.

    Parameters
    ----------
    X : any input of a pipeline. If it is a data frame, the numeric and boolean columns are used.
        Other input is used as a whole if it is two-dimensional and numeric, dense or sparse.

    Returns
    -------
    rows and names, or None if there is no numeric column. Without column names, names is None.
    """
    if hasattr(X, "iloc") and getattr(X, "ndim", 0) == 2:
        kinds = [getattr(dtype, "kind", "O") for dtype in X.dtypes]
        places = [place for place, kind in enumerate(kinds) if kind in "biuf"]
        single = all(X.dtypes.iloc[place] == np.float32 for place in places)
        chosen = X.iloc[:, places]
        rows = chosen.to_numpy(dtype=np.float32 if single else np.float64, na_value=np.nan)
        return (rows, tuple(map(str, chosen.columns))) if places else None
    names = None
    if not sp.issparse(X):
        names = tuple(map(str, X.columns)) if hasattr(X, "columns") else None
        try:
            X = np.asarray(X)
        except (TypeError, ValueError):  # rows of unequal length
            return None
    if X.ndim != 2 or X.dtype.kind not in "biuf" or X.shape[1] == 0:
        return None
    return X, names
