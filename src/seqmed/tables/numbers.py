"""Columns of numbers: missing cells imputed, standardised robustly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from sklearn.impute import SimpleImputer

from seqmed.arrays import Array, Mask
from seqmed.mixture.column_scales import column_deviations

# Standardised numbers are clipped at this size: a wrong unit in one cell is no reason to overflow.
LARGEST_SCORE = 1e6


@dataclass(frozen=True, eq=False)
class NumberColumns:
    """All columns of numbers.

    Parameters
    ----------
    names : the p columns.
    medians : (p,) medians of the first batch, which replace missing cells.
    scales : (p,) robust standard deviations of the first batch, or 1.
    flagged : (p,) mask of the columns with an additional indicator of missing cells.
    centred : whether the medians are subtracted.
    """

    names: tuple[str, ...]
    medians: Array
    scales: Array
    flagged: Mask
    centred: bool

    @classmethod
    def fit(cls, names: tuple[str, ...], cells: Array, *, scale: bool) -> Self:
        """Measure the columns of the first batch, (n, p) with NaN for missing cells.

        Scales are root mean squares of the deviations from the median, outliers clipped. The
        interquartile range of RobustScaler is 0 if more than half of the cells are equal.
        """
        absent = np.isnan(cells)
        if not names:
            return cls(names, np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool), scale)
        imputer = SimpleImputer(strategy="median", keep_empty_features=True).fit(cells)
        medians = np.asarray(imputer.statistics_, dtype=np.float64)
        scales = np.ones(medians.size)
        if scale:
            sizes = column_deviations(np.where(absent, medians, cells)).sizes
            scales = np.where(sizes > 0, sizes, 1.0)
        return cls(names, medians, scales, np.asarray(absent.any(axis=0)), scale)

    def encode(self, cells: Array, features: Array) -> None:
        """Write the features of cells (n, p), then the indicators, (n, width)."""
        p, absent = len(self.names), np.isnan(cells)
        numbers = features[:, :p]
        numbers[:] = cells
        if absent.any():
            np.copyto(numbers, self.medians, where=absent)
        if self.centred:
            numbers -= self.medians
            with np.errstate(over="ignore"):
                numbers /= self.scales
            np.clip(numbers, -LARGEST_SCORE, LARGEST_SCORE, out=numbers)
        features[:, p:] = absent[:, self.flagged]

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.names) + int(np.count_nonzero(self.flagged))

    @property
    def feature_names(self) -> list[str]:
        """The names of the features."""
        flagged = [name for name, flag in zip(self.names, self.flagged, strict=True) if flag]
        return [*self.names, *(f"{name}_missing" for name in flagged)]
