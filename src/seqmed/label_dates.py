"""Labels that are dates: datetime64[us], or datetime64[ns] if one is no whole microsecond.

numpy rounds and overflows when it converts dates to another unit. Here every date is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Mask

Dates = NDArray[Any]

# Units of dates; the first unit that is exact is used.
UNITS = ("datetime64[us]", "datetime64[ns]")


def dates(values: Dates) -> Dates:
    """Return dates in the coarsest unit that is exact for all of them."""
    if values.dtype == object:
        return dates_of_any_unit(values)
    for unit in UNITS:
        converted = in_unit(values, unit)
        if converted is not None:
            return converted
    raise ValueError(
        f"y holds dates of type {values.dtype} ({values[0]}), expected whole microseconds or "
        "nanoseconds within the range of datetime64: round them, or convert them to strings."
    )


def dates_of_any_unit(values: Dates) -> Dates:
    """Return datetime64 objects in the coarsest unit that is exact for all of them."""
    units = np.array([str(each.dtype) for each in values])
    found = {unit: dates(np.array(values[units == unit].tolist())) for unit in set(units.tolist())}
    result = np.empty(values.size, finest(found.values()))
    for unit, part in found.items():
        result[units == unit] = same_unit(part, result.dtype)
    return result


def finest(arrays: Iterable[Dates]) -> str:
    """Return the finest unit of the given arrays of dates, each in one of `UNITS`."""
    return max((str(each.dtype) for each in arrays), key=UNITS.index)


def in_unit(values: Dates, unit: Any) -> Dates | None:
    """Return dates in another unit, None if that is not exact."""
    try:
        converted: Dates = values.astype(unit)
        exact = (converted.astype(values.dtype) == values).all()
    except OverflowError:
        return None
    return converted if exact else None


def same_unit(values: Dates, unit: Any) -> Dates:
    """Return dates in another unit; refuse dates outside the range of that unit."""
    converted = in_unit(values, unit)
    if converted is None:
        raise ValueError(
            f"y holds {values[0]} together with dates in nanoseconds, expected dates between 1678 "
            "and 2262, the range of nanoseconds: round the dates, or convert them to strings."
        )
    return converted


def as_date(label: Any) -> np.datetime64:
    """Return a date, a time or a pandas Timestamp as a datetime64; refuse one with a time zone."""
    if not has_no_zone(label):
        raise ValueError(
            f"y holds dates with a time zone ({label}), expected dates without a time zone: "
            "convert them, for example to UTC, and drop the time zone."
        )
    label = label.to_datetime64() if hasattr(label, "to_datetime64") else label
    return label if isinstance(label, np.datetime64) else np.datetime64(label)


def has_no_zone(label: Any) -> bool:
    """Whether a date has no time zone."""
    return getattr(label, "tzinfo", None) is None


def is_same_date(array: Dates, date: np.datetime64) -> Mask:
    """Return a mask (n,) of dates that are exactly the same instant, in any unit."""
    unit = array.dtype
    if np.datetime_data(unit)[0] == "generic" or date.astype(unit).astype(date.dtype) != date:
        return np.zeros(array.size, dtype=bool)
    return np.asarray(array == date.astype(unit))
