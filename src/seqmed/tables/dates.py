"""Dates: their formats, and their features: a number, and positions in day, week and year."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, types
from scipy.stats import rankdata

from seqmed.mixture.column_scales import column_deviations
from seqmed.numeric.arrays import Array, Indices
from seqmed.numeric.expectations import expect
from seqmed.tables import cells

# Formats of dates besides ISO 8601, in the notation of `strptime`. A date that fits two formats is
# read in the one that comes first.
DAYS = (
    "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%b %d, %Y", "%d %b %Y",
    "%d-%b-%Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y",
)  # fmt: skip
TIMES = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p")
FORMATS = (*(" ".join((day, time)).strip() for day in DAYS for time in ("", *TIMES)), *TIMES)
PARTS = {
    "%Y": "(?P<year>[0-9]{4})",
    "%y": "(?P<short>[0-9]{2})",
    "%m": "(?P<month>[0-9]{1,2})",
    "%b": r"(?P<name>[A-Za-z]{3,9})\.?",
    "%d": "(?P<day>[0-9]{1,2})",
    "%H": "(?P<hour>[0-9]{1,2})",
    "%I": "(?P<hour>[0-9]{1,2})",
    "%M": "(?P<minute>[0-9]{2})",
    "%S": r"(?P<second>[0-9]{2})(?:\.[0-9]+)?",
    "%p": "(?P<half>[AaPp])[Mm]",
    " ": "[ T]+",
    ".": r"\.",
}
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
# The beginning of every date.
LIKE_A_DATE = (
    "^(?:[0-9]{1,4}[-/.: ]|[0-9]{4}W|[0-9]{8}|"
    "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[. ])"
)
# Two digits of a year below this are in this century, as in POSIX.
PIVOT = 69
NOT_A_DATE = "not a date"
DAY = 86_400.0
# Length of each cycle in seconds. The week begins on a Monday: 1 January 1970 was a Thursday.
CYCLES = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}
# Dates in the order of the rows (rank correlation at least this, in at least this many rows) are
# the clock of the stream.
SORTED, ENOUGH_ROWS = 0.95, 30


def date_cells(
    column: Any, form: str = "", missing: Sequence[str] = ()
) -> tuple[Array, dict[int, str]]:
    """Return cells as seconds since 1970 in UTC, NaN if missing, and the reasons of bad cells.

    Dates without a time zone are in UTC. Times of the day are on 1 January 1900.

    Parameters
    ----------
    column : the column.
    form : format of strings as in `strptime`; empty for ISO 8601.
    missing : further strings that mark a missing cell.
    """
    array = cells.plain(column)
    if types.is_timestamp(array.type):
        times = cells.seconds(array)
        return without(times, missing_times(form, tuple(missing))), {}
    if not types.is_string(array.type):  # dates such as 20240131
        array = pa.array(cells.strings(array, missing), pa.string())
    array = cells.cleaned(array, missing)
    times = parsed_dates(array, form)
    bad = np.isnan(times) & cells.valid(array)
    return (
        without(times, missing_times(form, tuple(missing))),
        dict.fromkeys(np.flatnonzero(bad).tolist(), NOT_A_DATE),
    )


def without(times: Array, marked: Array) -> Array:
    """Return times; NaN for those that mark a missing cell."""
    return np.where(np.isin(times, marked), np.nan, times) if marked.size else times


@lru_cache(maxsize=64)
def missing_times(form: str, missing: tuple[str, ...]) -> Array:
    """Return the strings that mark a missing cell and are dates."""
    times = parsed_dates(pa.array([word.strip() for word in missing], pa.string()), form)
    return times[~np.isnan(times)]


def parsed_dates(strings: Any, form: str) -> Array:
    """Return strings as seconds, NaN for those that are no date. ISO 8601 is always accepted."""
    if not form:
        return iso_dates(strings)
    times = formatted_dates(strings, form)
    others = np.isnan(times) & cells.valid(strings)
    if others.any():
        times[others] = iso_dates(strings.filter(pa.array(others)))
    return times


def iso_dates(strings: Any) -> Array:
    """Return strings in ISO 8601 as seconds, NaN for all others."""
    try:
        return cells.seconds(strings.cast(cells.MICROSECONDS))
    except pa.ArrowInvalid:
        texts, places = cells.distinct_values(strings)
        times: Array = np.array([*map(cells.iso_date, texts), np.nan])[places]
        return times


@lru_cache(maxsize=128)
def pattern(form: str) -> str:
    """Return the regular expression of a format."""
    pieces = re.findall("%.|.", form)
    return "^" + "".join(PARTS.get(piece, piece) for piece in pieces) + "$"


def formatted_dates(strings: Any, form: str) -> Array:
    """Return strings of one format as seconds, NaN for all others."""
    found = compute.extract_regex(strings, pattern(form))
    times = np.full(len(strings), np.nan)
    rows = np.flatnonzero(cells.valid(found))
    found = found.filter(found.is_valid())
    names = {field.name for field in found.type}

    def part(name: str, default: int = 0) -> NDArray[np.int64]:
        if name not in names:
            return np.full(rows.size, default)
        return np.asarray(compute.struct_field(found, name).cast(pa.int64()).to_numpy())

    year, month = part("year", 1900), part("month", 1)
    if "short" in names:
        short = part("short")
        year = np.where(short < PIVOT, 2000, 1900) + short
    if "name" in names:
        month = month_numbers(compute.struct_field(found, "name"))
    day, hour, minute, second = part("day", 1), part("hour"), part("minute"), part("second")
    fits = (month >= 1) & (month <= 12) & (day >= 1) & (minute < 60) & (second < 60) & (year > 0)
    if "half" in names:
        fits &= (hour >= 1) & (hour <= 12)
        after = compute.utf8_lower(compute.struct_field(found, "half")).to_numpy(False) == "p"
        hour = hour % 12 + 12 * after
    months = ((year - 1970) * 12 + np.clip(month, 1, 12) - 1).astype("datetime64[M]")
    ends = months + np.timedelta64(1, "M")
    start, end = (each.astype("datetime64[D]").astype(np.int64) for each in (months, ends))
    fits &= (hour < 24) & (day <= end - start)
    total = ((start + day - 1) * 24 + hour) * 3600 + minute * 60 + second
    times[rows[fits]] = total[fits]
    return times


def month_numbers(names: Any) -> NDArray[np.int64]:
    """Return English names of months, or their first three letters, as numbers; 0 for others."""
    numbers = {name: place + 1 for place, name in enumerate(MONTHS)}
    numbers |= {name[:3]: number for name, number in numbers.items()} | {"sept": 9}
    return np.array([numbers.get(name.lower(), 0) for name in names.to_pylist()], dtype=np.int64)


def date_format(texts: Sequence[str], counts: Indices, least: float) -> str | None:
    """Return the format in which most cells are dates, at least ``least``; None if there is none.

    Parameters
    ----------
    texts : distinct cells.
    counts : number of cells with each text.
    least : the number of dates must be larger.
    """
    strings = pa.array(texts, pa.string())
    if counts[cells.filled(compute.match_substring_regex(strings, LIKE_A_DATE))].sum() <= least:
        return None
    iso = ~np.isnan(iso_dates(strings))
    best, most = None, least
    for form in ("", *FORMATS):
        known = iso | ~np.isnan(formatted_dates(strings, form)) if form else iso
        found = float(counts[known].sum())
        if found > most:
            best, most = form, found
        if found == counts.sum():
            break
    return best


def other_order(texts: Sequence[str], form: str) -> str | None:
    """Return the format with day and month exchanged, if all dates of a format fit it too."""
    other = form.replace("%m", "%-").replace("%d", "%m").replace("%-", "%d")
    if other == form or other not in FORMATS:
        return None
    strings = pa.array(texts, pa.string())
    ours, others = (~np.isnan(formatted_dates(strings, each)) for each in (form, other))
    return other if (others | ~ours).all() else None


# -- features --------------------------------------------------------------------------------------


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

    def validate(self) -> None:
        """Raise a ValueError if dates cannot be scaled, or a cycle is unknown."""
        expect(abs(self.origin) < np.inf and 0 < self.scale < np.inf, "scale > 0")
        expect({*self.cycles} <= {*CYCLES}, "known cycles")

    @classmethod
    def fit(cls, name: str, form: str, times: Array) -> Self:
        """Measure the first batch, (n,) seconds with NaN for missing cells."""
        known = times[~np.isnan(times)]
        known = known if known.size else np.zeros(1)
        size = float(column_deviations(known[:, None])[0][0])
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
