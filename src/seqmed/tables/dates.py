"""Columns of dates: a number, and positions in the day, the week and the year."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.stats import rankdata

from seqmed.arrays import Array
from seqmed.mixture.column_scales import column_deviations

DAY = 86_400.0
# Length of each cycle in seconds. The week begins on a Monday: 1 January 1970 was a Thursday.
CYCLES = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}
# Dates in the order of the rows (rank correlation at least this, in at least this many rows) are
# the clock of the stream.
SORTED, ENOUGH_ROWS = 0.95, 30


@dataclass(frozen=True)
class DateColumn:
    """A column of dates.

    Parameters
    ----------
    name : the column.
    form : format of strings as in `strptime`; empty for ISO 8601.
    origin : median of the first batch, in seconds since 1970.
    scale : robust standard deviation of the first batch, in seconds.
    clock : whether the rows are in the order of the dates. The number would then grow with the
        stream, away from all earlier rows, and only the cycles are features.
    cycles : the cycles that the first batch covers.
    flagged : whether there is an additional indicator of missing cells.
    """

    name: str
    form: str
    origin: float
    scale: float
    clock: bool
    cycles: tuple[str, ...]
    flagged: bool

    @classmethod
    def fit(cls, name: str, form: str, times: Array) -> Self:
        """Measure the first batch, (n,) seconds with NaN for missing cells."""
        known = times[~np.isnan(times)]
        known = known if known.size else np.zeros(1)
        size = float(column_deviations(known[:, None]).sizes[0])
        days = np.floor(known / DAY)
        covered = {
            "day": np.unique(np.floor(known % DAY / 3600)).size > 1,
            "week": np.unique(days % 7).size > 1,
            "year": np.unique(np.floor(known % CYCLES["year"] / (30 * DAY))).size > 1,
        }
        cycles = tuple(cycle for cycle in CYCLES if covered[cycle])
        flagged = known.size < times.size
        origin = float(np.median(known))
        return cls(name, form, origin, size or 1.0, are_sorted(known), cycles, flagged)

    def encode(self, times: Array, features: Array) -> None:
        """Write the features of some cells, (n, width); zeros for missing cells."""
        absent = np.isnan(times)
        known = np.where(absent, self.origin, times)
        found = [] if self.clock else [(known - self.origin) / self.scale]
        for cycle in self.cycles:
            angles = 2 * np.pi * (known % CYCLES[cycle]) / CYCLES[cycle]
            found += [np.where(absent, 0.0, wave(angles)) for wave in (np.sin, np.cos)]
        if self.flagged:
            found.append(absent.astype(np.float64))
        for place, values in enumerate(found):
            features[:, place] = values

    @property
    def width(self) -> int:
        """The number of features."""
        return (not self.clock) + 2 * len(self.cycles) + self.flagged

    @property
    def feature_names(self) -> list[str]:
        """The names of the features."""
        waves = [f"{self.name}_{cycle}_{wave}" for cycle in self.cycles for wave in ("sin", "cos")]
        number = [] if self.clock else [self.name]
        return [*number, *waves, *([f"{self.name}_missing"] if self.flagged else [])]


def are_sorted(times: Array) -> bool:
    """Whether the order of the rows is nearly that of the dates, or the reverse."""
    if times.size < ENOUGH_ROWS or np.ptp(times) == 0:
        return False
    correlation = np.corrcoef(rankdata(times), np.arange(times.size))[0, 1]
    return bool(abs(correlation) >= SORTED)
