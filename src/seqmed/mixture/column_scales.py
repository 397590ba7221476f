"""Scales of the columns of dense rows, measured again as the stream goes on.

The columns are divided by their scales if these differ much. Otherwise a column of large numbers
would determine all distances. Later changes of a scale are by powers of two, which is exact: kept
rows are rescaled without a rounding error, and late labels still find their rows.
"""

from __future__ import annotations

import numpy as np

from seqmed.numeric.arrays import Array, Mask

# Columns are scaled if the 90th percentile of their scales is more than this multiple of the 10th.
# Columns of only 0 and 1, such as one-hot columns, have the scale 1; beside them other columns are
# scaled sooner.
LARGEST_RATIO, RATIO_BESIDE_BINARY = 10.0, 2.0
# Smallest and largest number of rows on which scales are measured.
FEWEST, MEASURED = 50, 1000
# A column is dense if at least this fraction of its values differs from the median.
DENSE = 0.1
# Deviations in a dense column larger than this multiple of their 95th percentile are clipped.
LARGEST_DEVIATION, CLIPPED = 3.0, 0.95
# Scales of dense and of other columns change if they are wrong by more than these factors.
TOLERANCE, RARE_TOLERANCE = 2.0, 8.0
# Scaled deviations are about 1. If their mean in a column is larger than this, its scale is wrong.
LARGEST_MEAN = 8.0
# Largest binary exponent of a change, so that the scaled values of finite rows stay finite.
LARGEST_EXPONENT = 300.0


def every_nth(n: int, most: int) -> slice:
    """Return a slice of at most ``most`` of n rows, evenly spaced."""
    return slice(None, None, max(1, -(-n // most)))


def column_deviations(points: Array) -> tuple[Array, Mask]:
    """Return typical deviations of the columns from their medians, (p,), and the dense columns.

    They are root mean squares, outliers clipped; 0 for a constant column. For columns that are not
    dense, such as counts of rare words, they are those of the values that differ from the median.
    """
    points = points[every_nth(points.shape[0], MEASURED)]
    deviations = np.abs(points - np.median(points, axis=0))
    shares = (deviations > 0).mean(axis=0)
    dense = shares >= DENSE
    largest = deviations.max(axis=0)
    high = np.quantile(deviations[:, dense], CLIPPED, axis=0, method="higher")
    largest[dense] = LARGEST_DEVIATION * high
    used = (largest > 0) & (largest < np.inf)
    clipped = np.minimum(deviations[:, used], largest[used]) / largest[used]
    means = (clipped**2).mean(axis=0) / np.where(dense[used], 1.0, shares[used])
    sizes = np.zeros(points.shape[1])
    sizes[used] = largest[used] * np.sqrt(means)
    return sizes, dense & used


def scales_of_columns(points: Array) -> tuple[Array, Mask, float]:
    """Return the sizes of columns (p,), the dense ones, and the largest ratio of similar sizes."""
    sizes, dense = column_deviations(points)
    binary = ((points == 0.0) | (points == 1.0)).all(axis=0)
    sizes = np.where(binary & (sizes > 0), 1.0, sizes)
    ratio = RATIO_BESIDE_BINARY if (binary & dense).any() else LARGEST_RATIO
    return sizes, dense, ratio


def any_too_large(points: Array, centre: Array) -> bool:
    """Whether a scaled column is much larger than the others."""
    return bool((np.abs(points - centre).mean(axis=0) > LARGEST_MEAN).any())


def first_column_scales(points: Array) -> Array:
    """Return the scales of the columns of the first batch, (p,); all 1 if they are similar."""
    sizes, dense, ratio = scales_of_columns(points)
    if points.shape[0] < FEWEST or are_similar(sizes[dense], ratio):
        return np.ones(points.shape[1])
    return np.where(sizes > 0, sizes, 1.0)


def are_similar(sizes: Array, ratio: float) -> bool:
    """Whether columns of these sizes need not be scaled."""
    if not sizes.size:
        return True
    low = np.quantile(sizes, 0.1, method="lower")
    return bool(np.quantile(sizes, 0.9, method="higher") <= ratio * low)


def measured_column_scales(points: Array, before: Array) -> Array:
    """Return the scales of the columns, (p,), which are multiples of those before by powers of two.

    Scales change only if one of them is wrong by a large factor. Constant columns keep theirs. With
    fewer than `FEWEST` rows nothing changes.

    Parameters
    ----------
    points : (n, p) rows, not scaled.
    before : (p,) scales so far; all 1 if the columns are not scaled.
    """
    if points.shape[0] < FEWEST:
        return before
    sizes, dense, ratio = scales_of_columns(points)
    logs = np.log2(np.where(sizes > 0, sizes, before)) - np.log2(before)
    tolerances = np.log2(np.where(dense, TOLERANCE, RARE_TOLERANCE))
    if (before == 1.0).all() and are_similar(sizes[dense], ratio):
        return before
    if (before != 1.0).any() and (np.abs(logs) <= tolerances).all():
        return before
    return before * 2.0 ** np.clip(np.round(logs), -LARGEST_EXPONENT, LARGEST_EXPONENT)
