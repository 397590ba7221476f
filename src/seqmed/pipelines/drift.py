"""Drift of the input: comparison of recent columns with those of the first batch.

A column has *drifted* if its mean or its mean absolute deviation differs significantly, and by more
than a limit, from that of the first batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, stdtrit

from seqmed.arrays import Array, Indices, Mask, Points, canonical, stack
from seqmed.pipelines.column_statistics import (
    ColumnStatistics,
    column_means,
    count_values,
    measure,
)

# Significance level, that of six standard errors of a normal variable. The t distribution with the
# degrees of freedom of the first batch is used.
SIGNIFICANCE = 1e-9
# Smallest number of values of a column, in the first batch and now, for a comparison.
FEWEST_VALUES = 10
# Smallest number of rows for a comparison. With fewer, even a tenfold deviation is insignificant.
ENOUGH_ROWS = 30
# A drifted column has returned if its difference is within this fraction of the limit, or within
# this many standard errors. A column that was constant in the first batch has returned if the
# number of other values is no longer significant at this level.
RETURN_SHARE, RETURN_ERRORS, RETURN_PROBABILITY = 0.5, 2.0, 0.05
# Number of columns that a warning describes. The other columns are only counted.
COLUMNS_SHOWN = 3


class InputDriftWarning(UserWarning):
    """The input of a stream has drifted from the first batch.

    `StreamPipeline` warns once when a column drifts, and again only after it has returned.

    See Also
    --------
    StreamPipeline : Describes the comparison and its parameter ``drift_limit``.
    """


@dataclass(frozen=True)
class Comparison:
    """Differences between recent rows and the first batch, column by column.

    Parameters
    ----------
    mean_shift : (p,) shift of the mean in standard deviations of the first batch; infinite for a
        constant column that has changed, NaN with too few values.
    scale_ratio : (p,) mean absolute deviation divided by that of the first batch.
    drifted : (p,) mask of columns that have drifted and not yet returned.
    """

    mean_shift: Array
    scale_ratio: Array
    drifted: Mask

    def take(self, columns: Indices) -> Comparison:
        """Return the comparison of the selected columns."""
        return Comparison(*(getattr(self, field.name)[columns] for field in fields(self)))


def compare(
    first: ColumnStatistics,
    points: Points,
    limit: float,
    drifted: Mask | None = None,
) -> tuple[Comparison, ColumnStatistics]:
    """Compare recent rows with those of the first batch.

    A column drifts if its mean has shifted by more than ``limit`` standard deviations of the first
    batch, or its mean absolute deviation has changed by more than the factor ``1 + 2 limit`` in
    either direction. For a constant column every change exceeds the limit. The difference must also
    be significant by one of two tests, which assume independent rows:

    - It exceeds about six standard errors. The larger of the two standard deviations is used for
    both samples. This test does not apply to constant columns.
    - The number of values outside the range of the first batch is significant.

    Parameters
    ----------
    first : statistics of the p columns of the first batch.
    points : (n, p) recent rows, dense or sparse.
    limit : float > 0.
    drifted : (p,) mask of columns that had drifted before, None for none.

    Returns
    -------
    comparison : difference of every column.
    recent : statistics of the recent rows.
    """
    points = canonical(points)
    recent = measure(points)
    enough = (first.count >= FEWEST_VALUES) & (recent.count >= FEWEST_VALUES)
    before = np.zeros(enough.size, dtype=bool) if drifted is None else drifted
    constant = first.constant
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        outside = count_outside(first, points)
        probability = probability_of_outside(outside, first.count, recent.count)
        error = np.sqrt(1.0 / first.count + 1.0 / recent.count)
        difference = recent.mean - first.mean
        std = np.where(constant, 0.0, first.std)
        shift = np.where(constant & (outside == 0), 0.0, difference / std)
        mad = np.where(constant, 0.0, first.mad)
        ratio = np.where(constant & recent.constant, 1.0, recent.mad / mad)
        factor = np.maximum(ratio, 1.0 / ratio)
        shift_errors = np.abs(difference) / (error * np.maximum(first.std, recent.std))
        ratio_errors = np.abs(recent.mad - first.mad)
        ratio_errors /= error * np.maximum(first.mad_std, recent.mad_std)
        critical = np.where(constant, np.inf, -stdtrit(first.count - 1.0, SIGNIFICANCE))
        outlying = probability < SIGNIFICANCE
        new = (np.abs(shift) > limit) & ((shift_errors > critical) | outlying)
        new |= (factor > 1.0 + 2.0 * limit) & ((ratio_errors > critical) | outlying)
        returned = (np.abs(shift) <= RETURN_SHARE * limit) | (shift_errors <= RETURN_ERRORS)
        returned &= (factor <= 1.0 + 2.0 * RETURN_SHARE * limit) | (ratio_errors <= RETURN_ERRORS)
        returned = np.where(constant, probability > RETURN_PROBABILITY, returned)
    comparison = Comparison(
        mean_shift=np.where(enough, shift, np.nan),
        scale_ratio=np.where(enough, ratio, np.nan),
        drifted=np.where(enough, new | (before & ~returned), before),
    )
    return comparison, recent


def count_outside(first: ColumnStatistics, points: Points) -> Array:
    """Return the number of values of every column, (p,), outside the range of the first batch."""
    fraction = column_means(
        points,
        lambda x, low, high: (x < low) | (x > high),
        first.low - first.rounding,
        first.high + first.rounding,
    )
    return np.round(fraction * count_values(points))


def probability_of_outside(outside: Array, n: Indices, m: Indices) -> Array:
    """Return an upper bound (p,) of the probability of this many values outside the range.

    ``outside`` (p,) of m recent values are outside the range of n values of the first batch. If all
    values are in random order, the a largest and the b smallest are among the m recent values with
    probability ``C(n + m - a - b, n) / C(n + m, n)``. There are ``a + b + 1`` pairs (a, b) with the
    same sum.
    """
    logarithm = gammaln(n + m - outside + 1) - gammaln(n + m + 1)
    logarithm += gammaln(m + 1) - gammaln(m - outside + 1)
    bound: Array = np.minimum((outside + 1) * np.exp(logarithm), 1.0)
    return bound


@dataclass(frozen=True)
class DriftMonitor:
    """The statistics of the first batch, and the columns that have drifted from it.

    Parameters
    ----------
    first : statistics of the first batch.
    names : (p,) names of the columns, None if they are unnamed.
    drifted : (p,) mask of the columns that have drifted.
    pending : rows that are too few to be compared yet; None if there are none.
    """

    first: ColumnStatistics
    names: tuple[str, ...] | None
    drifted: Mask
    pending: Points | None = None

    def update(
        self, points: Points, names: Sequence[str] | None, limit: float
    ) -> tuple[DriftMonitor, Comparison | None, str]:
        """Compare the next rows with the first batch.

        Parameters
        ----------
        points : (n, q) rows, dense or sparse.
        names : (q,) names of their columns, None if they are unnamed.
        limit : as in `compare`.

        Returns
        -------
        monitor : monitor after these rows.
        comparison : None if there are too few rows.
        message : description of columns that have newly drifted, empty if there are none.
        """
        rows = self._aligned(points, names)
        if rows is None:
            return self, None, ""
        if self.pending is not None:
            rows = stack(self.pending, rows)
        if rows.shape[0] < ENOUGH_ROWS:
            return replace(self, pending=rows.copy()), None, ""
        columns = self._nonzero(rows)
        first, before = self.first.take(columns), self.drifted[columns]
        comparison, recent = compare(first, rows[:, columns], limit, before)
        new = comparison.drifted & ~before
        message = ""
        if new.any():
            named = np.flatnonzero(new)
            titles = [self._title(place) for place in columns[new].tolist()]
            message = describe(
                titles, first.take(named), recent.take(named), comparison.take(named)
            )
        comparison = self._of_all_columns(comparison, columns)
        return replace(self, drifted=comparison.drifted, pending=None), comparison, message

    def _title(self, column: int) -> str:
        return f"column {column if self.names is None else repr(self.names[column])}"

    def _nonzero(self, points: Points) -> Indices:
        """Return the columns with a nonzero value, in the first batch or now."""
        if not sp.issparse(points):
            return np.arange(points.shape[1])
        nonzero = (self.first.low != 0) | (self.first.high != 0) | self.drifted
        nonzero[canonical(points).indices] = True
        return np.flatnonzero(nonzero)

    def _of_all_columns(self, comparison: Comparison, columns: Indices) -> Comparison:
        """Extend a comparison of some columns to all columns; the others have not changed."""
        enough = self.first.count >= FEWEST_VALUES
        shift, ratio = np.where(enough, 0.0, np.nan), np.where(enough, 1.0, np.nan)
        drifted = self.drifted.copy()
        shift[columns], ratio[columns] = comparison.mean_shift, comparison.scale_ratio
        drifted[columns] = comparison.drifted
        return Comparison(shift, ratio, drifted)

    def _aligned(self, points: Points, names: Sequence[str] | None) -> Points | None:
        """Return rows with the columns of the first batch, NaN for missing columns."""
        if self.names is None or names is None or tuple(names) == self.names:
            return points if points.shape[1] == self.first.mean.size else None
        place = {name: column for column, name in enumerate(names)}
        found = [place.get(name, -1) for name in self.names]
        padded = np.column_stack([points, np.full(points.shape[0], np.nan, points.dtype)])
        return padded[:, found]


def first_monitor(points: Points, names: tuple[str, ...] | None) -> DriftMonitor:
    """Return the monitor of a stream after its first batch."""
    return DriftMonitor(measure(points), names, np.zeros(points.shape[1], dtype=bool))


def describe(
    titles: Sequence[str],
    first: ColumnStatistics,
    recent: ColumnStatistics,
    comparison: Comparison,
) -> str:
    """Describe how the given columns have changed, with numbers for the largest changes."""
    with np.errstate(divide="ignore"):
        ratio = comparison.scale_ratio
        size = np.maximum(np.abs(comparison.mean_shift), np.maximum(ratio, 1.0 / ratio) - 1.0)
    worst = np.argsort(-size, kind="stable")[:COLUMNS_SHOWN]
    parts = [
        f"{titles[column]} has mean {recent.mean[column]:.4g} and mean absolute deviation "
        f"{recent.mad[column]:.3g}, expected {first.mean[column]:.4g} and "
        f"{first.mad[column]:.3g}"
        for column in worst.tolist()
    ]
    rest = len(titles) - worst.size
    if rest:
        parts.append(f"and {rest} more column{'s' if rest > 1 else ''}")
    return "; ".join(parts)
