"""Whether the columns of a stream still look as they did in its first batch.

A column is *away* if its mean or its spread (the mean absolute deviation from the mean) differs
from that of the first batch by more than a limit, and by more than chance would have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammaln, stdtrit

from seqmed.arrays import Array, Points, canonical, stack

# Probability by which a difference is still chance: that of six standard errors, of the t
# distribution with the degrees of freedom of the first batch.
CHANCE = 1e-9
# Values of a column below which, on either side, nothing is said of it.
FEWEST_VALUES = 10
# Rows to collect before they are compared: below it, a spread ten times as wide is still chance.
ENOUGH_ROWS = 30
# A column is back when it is within this share of the limit, or within this many standard errors;
# one that was constant, when the values that differ may be chance with this probability.
BACK_SHARE, BACK_ERRORS, BACK_CHANCE = 0.5, 2.0, 0.05
# Changes of a constant column that are rounding, in units of the last place.
ROUNDING = 16.0
# Columns a warning describes; the others are counted.
COLUMNS_SHOWN = 3


class InputDriftWarning(UserWarning):
    """The rows of a stream no longer look like those its frozen statistics were measured on."""


@dataclass(frozen=True)
class ColumnStatistics:
    """What the values of every column are like; missing ones (NaN, infinite) are left out.

    Parameters
    ----------
    mean : (p,) mean, NaN if there is no value.
    scale : (p,) standard deviation.
    spread : (p,) mean absolute deviation from the mean, which a single wild value changes little.
    spread_scale : (p,) standard deviation of what a single value contributes to the spread.
    low, high : (p,) smallest and largest value.
    count : (p,) number of values.
    rounding : (p,) size of differences that are rounding.
    """

    mean: Array
    scale: Array
    spread: Array
    spread_scale: Array
    low: Array
    high: Array
    count: NDArray[np.intp]
    rounding: Array

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Mask (p,) of columns that hold one value, up to rounding."""
        return self.scale <= self.rounding

    def take(self, columns: Any) -> ColumnStatistics:
        """Return the statistics of some columns."""
        return ColumnStatistics(*(getattr(self, field.name)[columns] for field in fields(self)))


@dataclass(frozen=True)
class Comparison:
    """How the newest rows differ from the first batch, column by column.

    Parameters
    ----------
    mean_shift : (p,) by how many standard deviations of the first batch the mean has moved;
        infinite for a constant that has changed, NaN if there are too few values to tell.
    scale_ratio : (p,) how many times as wide as in the first batch the values are spread.
    away : (p,) mask of the columns that have left and not yet come back.
    """

    mean_shift: Array
    scale_ratio: Array
    away: NDArray[np.bool_]

    def take(self, columns: Any) -> Comparison:
        """Return the comparison of some columns."""
        return Comparison(*(getattr(self, field.name)[columns] for field in fields(self)))


def measure(points: Points) -> ColumnStatistics:
    """Return the statistics of the columns of (n, p) rows, dense or sparse."""
    precision = np.finfo(points.dtype if points.dtype.kind == "f" else np.float64).eps
    rows = canonical(points).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        mean = column_means(rows, lambda x: x)
        scale = np.sqrt(column_means(rows, lambda x, m: (x - m) ** 2, mean))
        spread = column_means(rows, lambda x, m: np.abs(x - m), mean)
        # A value counts in the spread by its own deviation, and by moving the mean towards itself,
        # from the values on its other side.
        tilt = column_means(rows, lambda x, m: np.sign(m - x), mean)
        square = column_means(
            rows, lambda x, m, s, t: (np.abs(x - m) + t * (x - m) - s) ** 2, mean, spread, tilt
        )
    return ColumnStatistics(
        mean=mean,
        scale=scale,
        spread=spread,
        spread_scale=np.sqrt(square),
        low=-column_maxima(-rows),
        high=column_maxima(rows),
        count=count_values(rows),
        rounding=ROUNDING * float(precision) * np.abs(mean),
    )


def count_values(points: Points) -> NDArray[np.intp]:
    """Return the number of finite values of every column, (p,)."""
    if sp.issparse(points):
        missing = points.indices[~np.isfinite(points.data)]
        return points.shape[0] - np.bincount(missing, minlength=points.shape[1])
    return np.isfinite(points).sum(axis=0)


def column_maxima(points: Points) -> Array:
    """Return the largest finite value of every column, (p,); -inf if there is none."""
    if not sp.issparse(points):
        return np.where(np.isfinite(points), points, -np.inf).max(axis=0)
    finite = points.copy()
    finite.data[~np.isfinite(finite.data)] = -np.inf
    return finite.max(axis=0).toarray().ravel()


def column_means(points: Points, function: Callable[..., Any], *parameters: Array) -> Array:
    """Return the mean of a function of the finite values of every column, (p,).

    Parameters
    ----------
    points : (n, p) rows, dense or CSR with each entry once.
    function : maps values, and a parameter of each value's column in every further argument, to
        numbers. Of the zeros of a sparse column it is evaluated once.
    parameters : arrays (p,).
    """
    if not sp.issparse(points):
        values = np.where(np.isfinite(points), function(points, *parameters), 0.0)
        return values.sum(axis=0) / count_values(points)
    n, p = points.shape
    column = points.indices
    values = function(points.data, *(parameter[column] for parameter in parameters))
    stored = np.bincount(column, np.where(np.isfinite(points.data), values, 0.0), minlength=p)
    zeros = (n - np.bincount(column, minlength=p)) * function(np.zeros(p), *parameters)
    return (stored + zeros) / count_values(points)


def compare(
    first: ColumnStatistics,
    points: Points,
    limit: float,
    away: NDArray[np.bool_] | None = None,
) -> tuple[Comparison, ColumnStatistics]:
    """Compare recent rows with those of the first batch.

    The mean must have moved by more than ``limit`` standard deviations of the first batch, or the
    spread have changed by more than the factor ``1 + 2 limit`` either way; for a column that was
    constant any change is beyond the limit. And it must not be chance, see `CHANCE`, for which rows
    are taken as independent. There are two ways to be certain: the difference exceeds six of its
    standard errors or so, the values taken to scatter on both sides as they do on the one where
    they scatter more; or so many values lie outside the range of the first batch that it can hardly
    have missed them all, which is the only way for a constant.

    Parameters
    ----------
    first : statistics of the p columns of the first batch.
    points : (n, p) recent rows, dense or sparse.
    limit : > 0.
    away : (p,) mask of the columns that were away before, None for none.

    Returns
    -------
    comparison : how the columns differ.
    recent : the statistics of the recent rows.
    """
    points = canonical(points)
    recent = measure(points)
    enough = (first.count >= FEWEST_VALUES) & (recent.count >= FEWEST_VALUES)
    before = np.zeros(enough.size, dtype=bool) if away is None else away
    constant = first.constant
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        outside = count_outside(first, points)
        chance = chance_of_outside(outside, first.count, recent.count)
        error = np.sqrt(1.0 / first.count + 1.0 / recent.count)
        difference = recent.mean - first.mean
        scale = np.where(constant, 0.0, first.scale)
        shift = np.where(constant & (outside == 0), 0.0, difference / scale)
        spread = np.where(constant, 0.0, first.spread)
        ratio = np.where(constant & recent.constant, 1.0, recent.spread / spread)
        factor = np.maximum(ratio, 1.0 / ratio)
        moved = np.abs(difference) / (error * np.maximum(first.scale, recent.scale))
        widened = np.abs(recent.spread - first.spread)
        widened /= error * np.maximum(first.spread_scale, recent.spread_scale)
        certain = np.where(constant, np.inf, -stdtrit(first.count - 1.0, CHANCE))
        left = (np.abs(shift) > limit) & ((moved > certain) | (chance < CHANCE))
        left |= (factor > 1.0 + 2.0 * limit) & ((widened > certain) | (chance < CHANCE))
        back = (np.abs(shift) <= BACK_SHARE * limit) | (moved <= BACK_ERRORS)
        back &= (factor <= 1.0 + 2.0 * BACK_SHARE * limit) | (widened <= BACK_ERRORS)
        back = np.where(constant, chance > BACK_CHANCE, back)
    comparison = Comparison(
        mean_shift=np.where(enough, shift, np.nan),
        scale_ratio=np.where(enough, ratio, np.nan),
        away=np.where(enough, left | (before & ~back), before),
    )
    return comparison, recent


def count_outside(first: ColumnStatistics, points: Points) -> Array:
    """Return how many values of every column, (p,), lie outside the range of the first batch."""
    share = column_means(
        points,
        lambda x, low, high: (x < low) | (x > high),
        first.low - first.rounding,
        first.high + first.rounding,
    )
    return np.round(share * count_values(points))


def chance_of_outside(outside: Array, n: NDArray[np.intp], m: NDArray[np.intp]) -> Array:
    """Bound the chance (p,) that of m values so many lie outside the range of n others.

    With rows in random order, that the a largest and b smallest of all come among the m has the
    chance ``C(n + m - a - b, n) / C(n + m, n)``; there are ``a + b + 1`` ways to share them out.
    """
    logarithm = gammaln(n + m - outside + 1) - gammaln(n + m + 1)
    logarithm += gammaln(m + 1) - gammaln(m - outside + 1)
    return np.minimum((outside + 1) * np.exp(logarithm), 1.0)


# -- a stream's columns ---------------------------------------------------------------------------


def numeric_columns(X: Any) -> tuple[Points, tuple[str, ...] | None] | None:
    """Return the numeric columns of some input, and their names if they have any.

    Parameters
    ----------
    X : anything. Of a data frame the columns of numbers and booleans are taken; other input is
        taken as a whole, if it is two-dimensional and numeric, dense or sparse.

    Returns
    -------
    rows and names, or None if there is no such column.
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


@dataclass(frozen=True)
class Watch:
    """What the columns of a stream were like in its first batch, and which of them are away.

    Parameters
    ----------
    first : statistics of the first batch.
    names : (p,) names of the columns, None if they have none.
    away : (p,) mask of the columns that are away.
    pending : rows that came since the last comparison, too few for one; None if there are none.
    """

    first: ColumnStatistics
    names: tuple[str, ...] | None
    away: NDArray[np.bool_]
    pending: Points | None = None

    def look(
        self, points: Points, names: Sequence[str] | None, limit: float
    ) -> tuple[Watch, Comparison | None, str]:
        """Look at the next rows.

        Parameters
        ----------
        points : (n, q) rows, dense or sparse.
        names : (q,) names of their columns, None if they have none.
        limit : as in `compare`.

        Returns
        -------
        watch : after these rows.
        comparison : None as long as there are too few rows.
        message : on the columns that have left just now, empty if none has.
        """
        rows = self._aligned(points, names)
        if rows is None:
            return self, None, ""
        if self.pending is not None:
            rows = stack(self.pending, rows)
        if rows.shape[0] < ENOUGH_ROWS:
            return replace(self, pending=rows.copy()), None, ""
        columns = self._occupied(rows)
        first, before = self.first.take(columns), self.away[columns]
        comparison, recent = compare(first, rows[:, columns], limit, before)
        left = comparison.away & ~before
        message = ""
        if left.any():
            named = np.flatnonzero(left)
            titles = [self._title(place) for place in columns[left].tolist()]
            message = describe(
                titles, first.take(named), recent.take(named), comparison.take(named)
            )
        comparison = self._everywhere(comparison, columns)
        return replace(self, away=comparison.away, pending=None), comparison, message

    def _title(self, column: int) -> str:
        return f"column {column if self.names is None else repr(self.names[column])}"

    def _occupied(self, points: Points) -> NDArray[np.intp]:
        """Return the columns that hold anything, then or now: of hashed words only a few do."""
        if not sp.issparse(points):
            return np.arange(points.shape[1])
        holds = (self.first.low != 0) | (self.first.high != 0) | self.away
        holds[canonical(points).indices] = True
        return np.flatnonzero(holds)

    def _everywhere(self, comparison: Comparison, columns: NDArray[np.intp]) -> Comparison:
        """Return the comparison of some columns as one of all; the others are as they were."""
        enough = self.first.count >= FEWEST_VALUES
        shift, ratio = np.where(enough, 0.0, np.nan), np.where(enough, 1.0, np.nan)
        away = self.away.copy()
        shift[columns], ratio[columns] = comparison.mean_shift, comparison.scale_ratio
        away[columns] = comparison.away
        return Comparison(shift, ratio, away)

    def _aligned(self, points: Points, names: Sequence[str] | None) -> Points | None:
        """Return rows with the columns watched, NaN for those that are not there."""
        if self.names is None or names is None or tuple(names) == self.names:
            return points if points.shape[1] == self.first.mean.size else None
        place = {name: column for column, name in enumerate(names)}
        found = [place.get(name, -1) for name in self.names]
        padded = np.column_stack([points, np.full(points.shape[0], np.nan, points.dtype)])
        return padded[:, found]


def first_watch(points: Points, names: tuple[str, ...] | None) -> Watch:
    """Return a watch on the columns of a first batch."""
    return Watch(measure(points), names, np.zeros(points.shape[1], dtype=bool))


def describe(
    titles: Sequence[str],
    first: ColumnStatistics,
    recent: ColumnStatistics,
    comparison: Comparison,
) -> str:
    """Say how some columns, of these titles, have changed: of the most changed ones in numbers."""
    with np.errstate(divide="ignore"):
        ratio = comparison.scale_ratio
        size = np.maximum(np.abs(comparison.mean_shift), np.maximum(ratio, 1.0 / ratio) - 1.0)
    worst = np.argsort(-size, kind="stable")[:COLUMNS_SHOWN]
    parts = [
        f"{titles[column]} has mean {recent.mean[column]:.4g} and spread "
        f"{recent.spread[column]:.3g}, expected {first.mean[column]:.4g} and "
        f"{first.spread[column]:.3g}"
        for column in worst.tolist()
    ]
    rest = len(titles) - worst.size
    if rest:
        parts.append(f"and {rest} more column{'s' if rest > 1 else ''}")
    return "; ".join(parts)
