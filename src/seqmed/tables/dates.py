"""Dates in strings: ISO 8601, and other formats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, types

from seqmed.numeric.arrays import Array, Indices
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
    "%b": "(?P<name>(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|"
    r"aug(?:ust)?|sep(?:t|tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?))\.?",
    "%d": "(?P<day>[0-9]{1,2})",
    "%H": "(?P<hour>[0-9]{1,2})",
    "%I": "(?P<hour>0?[1-9]|1[0-2])",
    "%M": "(?P<minute>[0-9]{2})",
    "%S": r"(?P<second>[0-9]{2})(?:\.[0-9]+)?",
    "%p": "(?P<half>[AaPp])[Mm]",
    " ": "[ T]+",
    ".": r"\.",
}
MONTHS = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
# The beginning of every date.
LIKE_A_DATE = f"^(?:[0-9]{{1,4}}[-/.: ]|[0-9]{{4}}W|[0-9]{{8}}|(?i:{'|'.join(MONTHS)})[a-z]*[. ])"
# Two digits of a year below this are in this century, as in POSIX.
PIVOT = "69"
NOT_A_DATE = "not a date"


def date_cells(
    column: Any, form: str = "", missing: tuple[str, ...] = ()
) -> tuple[Array, dict[int, str]]:
    """Return cells as seconds since 1970 in UTC, NaN if missing, and the reasons of bad cells.

    Dates without a time zone are in UTC. Times of the day are on 1 January 1900. The format of
    strings is as in `strptime`, and empty for ISO 8601.
    """
    array = cells.plain(column)
    if types.is_timestamp(array.type):
        times, bad = cells.seconds(array), np.zeros(len(array), dtype=bool)
    else:
        if not types.is_string(array.type):  # dates such as 20240131
            array = pa.array(cells.strings(array, missing), pa.string())
        array = cells.cleaned(array, missing)
        times = parsed_dates(array, form)
        bad = np.isnan(times) & cells.valid(array)
    if missing:
        marks = pa.array(list(map(str.strip, missing)), pa.string())
        times = np.where(np.isin(times, parsed_dates(marks, form)), np.nan, times)
    return times, dict.fromkeys(np.flatnonzero(bad).tolist(), NOT_A_DATE)


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


def formatted_dates(strings: Any, form: str) -> Array:
    """Return strings of one format as seconds, NaN for all others. They are rewritten in ISO 8601.

    Impossible dates, such as 31 February, are NaN.
    """
    pattern = "".join(PARTS.get(piece, piece) for piece in re.findall("%.|.", form))
    found = compute.extract_regex(strings, f"^{pattern}$")
    if found.null_count == len(found):
        return np.full(len(found), np.nan)
    parts = {field.name: compute.struct_field(found, field.name) for field in found.type}
    if "short" in parts:
        century = compute.if_else(compute.less(parts["short"], PIVOT), "20", "19")
        parts["year"] = compute.binary_join_element_wise(century, parts["short"], "")
    if "name" in parts:
        short = compute.utf8_lower(compute.utf8_slice_codeunits(parts["name"], 0, 3))
        month = compute.index_in(short, pa.array(MONTHS))
        parts["month"] = compute.add(month, 1).cast(pa.string())

    def joined(names: Sequence[str], default: str, sign: str) -> Any:
        digits = [compute.utf8_lpad(parts.get(name, default), 2, "0") for name in names]
        return compute.binary_join_element_wise(*digits, sign)

    parts.setdefault("year", "1900")
    day = joined(("year", "month", "day"), "1", "-")
    time = joined(("hour", "minute", "second"), "0", ":")
    times = iso_dates(compute.binary_join_element_wise(day, time, " "))
    if "half" in parts:  # 12 am is 0 h, and 1 pm is 13 h
        after = compute.equal(compute.utf8_lower(parts["half"]), "p").cast(pa.int64())
        twelve = compute.equal(parts["hour"], "12").cast(pa.int64())
        times = times + 12 * 3600 * cells.floats(compute.subtract(after, twelve))
    return times


def date_format(texts: Sequence[str], counts: Indices, least: float) -> str | None:
    """Return the format in which most cells are dates, more than ``least``; None if there is none.

    ``texts`` are distinct, and ``counts`` are the numbers of cells with each of them.
    """
    strings = pa.array(texts, pa.string())
    like = compute.match_substring_regex(strings, LIKE_A_DATE).to_numpy(zero_copy_only=False)
    if counts[like].sum() <= least:
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
