"""Reading labels: their type, and which rows are unlabeled.

Labels are of one of six types, and every type has one array type in which all of its values are
exact:

========  ==============================================================
integers  int64, or uint64 if one is beyond int64 (then none is negative)
floats    float64, whole numbers only
booleans  bool
strings   numpy's fixed-width strings
bytes     numpy's fixed-width bytes
dates     datetime64[us], or datetime64[ns] if one is no whole microsecond
========  ==============================================================

The first labels fix the type. A label that it cannot hold exactly is refused.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import column_or_1d

# The type of labels by the kind of their numpy array.
NAMES = {
    "i": "integers", "u": "integers", "f": "floats", "b": "booleans",
    "U": "strings", "S": "bytes", "M": "dates",
}  # fmt: skip
INTEGERS, FLOATS, BOOLEANS, STRINGS, BYTES, DATES = "ifbUSM"
# The kind of a label by the type of the object, in this order: True is an int, too.
OBJECT_KINDS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bool, np.bool_), BOOLEANS),
    ((int, np.integer), INTEGERS),
    ((float, np.floating), FLOATS),
    ((str,), STRINGS),
    ((bytes,), BYTES),
    ((datetime.date, np.datetime64), DATES),
)
# What numpy makes of None and NaN when a list of strings around them becomes a string array.
COERCED_MISSING = ("nan", "None", "<NA>", "NaT")
# Units of dates, the first that is exact being used.
UNITS = ("datetime64[us]", "datetime64[ns]")


def split_labels(
    labels: Any,
    marker: Any,
    *,
    known: NDArray[Any] | None = None,
    signs_are_classes: bool = False,
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Separate labeled from unlabeled rows.

    Parameters
    ----------
    labels : (n,) labels as the user gave them.
    marker : value that marks an unlabeled row, besides None, NaN, NaT, pandas' NA and the empty
        string; None for no other. A marker that is a known class marks nothing.
    known : classes known already, None if none are. The labels must be of their type.
    signs_are_classes : whether -1 is a class rather than the marker, if y holds only -1 and +1 and
        no classes are known; else such a y is refused.

    Returns
    -------
    labeled : (n,) mask.
    values : the labels of the labeled rows, in the array type of their type.
    """
    array = as_label_array(labels)
    if known is not None and is_marked(known, marker).any():
        marker = None
    unlabeled = is_missing(array)
    if known is None and holds_only_signs(array[~unlabeled], marker):
        if not signs_are_classes:
            raise ValueError(
                "y holds only -1 and +1, and -1 marks unlabeled rows: expected labels among which "
                "-1 cannot be a class. If -1 is a class, set unlabeled=None (missing labels are "
                "then None or NaN) or, in SeqMED, pass classes=[-1, 1] to partial_fit; if -1 means "
                "unlabeled, pass classes= without it to partial_fit or name the classes "
                "differently."
            )
        marker = None
    unlabeled[~unlabeled] = is_marked(array[~unlabeled], marker)
    values = array[~unlabeled]
    if values.dtype.kind in "US":
        refuse_coerced_missing(values, known)
    return ~unlabeled, typed(values, known)


# -- containers ------------------------------------------------------------------------------------


def as_label_array(labels: Any) -> NDArray[Any]:
    """Return labels as a one-dimensional array, of objects where numpy would change a value."""
    if np.ma.isMaskedArray(labels):
        masked = np.ma.getmaskarray(labels).ravel()
        values = column_or_1d(labels.data, warn=True)
        return as_objects(
            None if gone else value for value, gone in zip(values, masked, strict=True)
        )
    if hasattr(labels, "to_arrow"):  # polars
        labels = labels.to_arrow()
    if hasattr(labels, "to_pylist"):  # pyarrow
        labels = labels.to_pylist()
    if hasattr(labels, "iloc") and np.shape(labels)[1:] == (1,):  # a table of one column
        warn_of_column()
        labels = labels.iloc[:, 0]
    if hasattr(labels, "to_numpy") and not isinstance(getattr(labels, "dtype", None), np.dtype):
        labels = list(labels)  # pandas, which would make floats of nullable integers
    if isinstance(labels, Sequence) and not isinstance(labels, str | bytes):
        return from_sequence(labels)
    array = np.asarray(labels)
    if array.dtype.kind == "T":
        array = array.astype(object)
    return array if array.ndim == 1 else column_or_1d(array, warn=True)


def from_sequence(labels: Sequence[Any]) -> NDArray[Any]:
    """Return a list of labels, or of rows of one label, as objects."""
    shapes = {np.shape(each) for each in labels if isinstance(each, Sequence | np.ndarray)}
    shapes -= {()}
    if not shapes:
        return as_objects(labels)
    if shapes != {(1,)}:
        return column_or_1d(np.asarray(labels))
    warn_of_column()
    return as_objects(each[0] for each in labels)


def warn_of_column() -> None:
    """Warn of labels that are a column, as scikit-learn does."""
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected: pass a list of labels.",
        DataConversionWarning,
        stacklevel=2,
    )


def as_objects(values: Iterable[Any]) -> NDArray[Any]:
    """Return values as an array of objects, which numpy has not converted."""
    every = [
        each[()] if isinstance(each, np.ndarray) and not each.ndim else each for each in values
    ]
    array = np.empty(len(every), dtype=object)
    array[:] = every
    return array


# -- unlabeled rows --------------------------------------------------------------------------------


def is_missing(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask (n,) of labels that are None, NaN, NaT, pandas' NA or the empty string."""
    kind = array.dtype.kind
    if kind == "f":
        return np.isnan(array)
    if kind in "mM":
        return np.isnat(array)
    if kind in "US":
        return np.char.str_len(array) == 0
    if kind == "O":
        return np.fromiter(map(is_missing_value, array), bool, array.size)
    return np.zeros(array.size, dtype=bool)


def is_missing_value(value: Any) -> bool:
    """Whether a single label is missing."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, float | np.floating | np.datetime64 | np.timedelta64):
        return bool(value != value)
    return isinstance(value, str | bytes) and not value


def is_marked(array: NDArray[Any], marker: Any) -> NDArray[np.bool_]:
    """Return a mask (n,) of labels equal to ``marker``.

    Among strings and bytes a marker that is a number is looked for in its string form, because
    numpy turns ``["spam", -1]`` into strings. True and 1 are different labels.
    """
    if is_missing_value(marker):
        return np.zeros(array.size, dtype=bool)
    if array.dtype.kind == "O":
        spellings: dict[str | None, Any] = dict(marker_spellings(marker))
        kinds = {each: kind_of(each) for each in set(map(type, array))}
        found = (equals(each, spellings.get(kinds[type(each)])) for each in array)
        return np.fromiter(found, bool, array.size)
    for kind, value in marker_spellings(marker):
        if NAMES.get(array.dtype.kind) == NAMES[kind]:
            if kind == DATES:
                return is_same_date(array, value)
            return array == value
    return np.zeros(array.size, dtype=bool)


def marker_spellings(marker: Any) -> Iterable[tuple[str, Any]]:
    """Yield the kinds of labels among which a marker may be, and its value there."""
    kind = kind_of(type(marker))
    if kind is None:
        return
    value = plain(marker, kind)
    yield kind, np.float64(value) if kind == FLOATS else value
    if kind in (INTEGERS, FLOATS):
        yield STRINGS, str(marker)
        yield BYTES, str(marker).encode()
        if kind == FLOATS and value % 1 == 0:
            yield INTEGERS, int(value)
        if kind == INTEGERS and abs(value) <= 2**53:
            yield FLOATS, np.float64(value)


def equals(label: Any, value: Any) -> bool:
    """Whether an object label equals a marker of its kind; None is no marker."""
    if value is None:
        return False
    if isinstance(value, np.datetime64):
        return has_no_zone(label) and bool(is_same_date(np.array([as_date(label)]), value)[0])
    return bool(plain(label, kind_of(type(label))) == value)


def is_same_date(array: NDArray[Any], date: np.datetime64) -> NDArray[np.bool_]:
    """Return a mask (n,) of dates that are the same instant, exactly, whatever the units."""
    unit = array.dtype
    if np.datetime_data(unit)[0] == "generic" or date.astype(unit).astype(date.dtype) != date:
        return np.zeros(array.size, dtype=bool)
    return array == date.astype(unit)


def holds_only_signs(values: NDArray[Any], marker: Any) -> bool:
    """Whether labels are only -1 and +1 where -1 is the marker: it may be meant as a class."""
    if not is_minus_one(marker) or values.dtype.kind not in "iufUSO":
        return False
    distinct = set(map(text_of, values)) if values.dtype.kind == "O" else set(values.tolist())
    return {text_of(each) for each in distinct} in (
        {"-1", "1"}, {"-1", "+1"}, {"-1.0", "1.0"}, {"-1", "1.0"}, {"-1.0", "1"},
    )  # fmt: skip


def is_minus_one(marker: Any) -> bool:
    """Whether a marker is -1, which may be meant as a class."""
    return kind_of(type(marker)) in (INTEGERS, FLOATS, STRINGS) and marker in (-1, "-1")


def text_of(label: Any) -> str:
    """Return a label as text, for comparison with -1 and +1."""
    if isinstance(label, bytes):
        return label.decode("latin1")
    return "" if isinstance(label, bool | np.bool_) else str(label)


def refuse_coerced_missing(values: NDArray[Any], known: NDArray[Any] | None) -> None:
    """Refuse labels that numpy made of missing values, unless they are known classes."""
    suspicious = set(COERCED_MISSING) & set(map(text_of, np.unique(values).tolist()))
    if known is not None and known.dtype.kind in "US":
        suspicious -= set(map(text_of, known.tolist()))
    if suspicious:
        text = sorted(suspicious)[0]
        raise ValueError(
            f"y is an array of strings that holds {text!r}, which numpy makes of a missing value: "
            "expected None or NaN in an object array. Pass a list, a pandas Series or an array of "
            f"dtype object, in which {text!r} is a label like any other and missing values stay "
            "missing."
        )


# -- types -----------------------------------------------------------------------------------------


def kind_of(kind: type) -> str | None:
    """Return the kind of labels of a Python type, None if it is no type of labels."""
    if issubclass(kind, np.timedelta64):
        return None
    return next((name for types, name in OBJECT_KINDS if issubclass(kind, types)), None)


def is_label_type(dtype: np.dtype[Any]) -> bool:
    """Whether a numpy type is one in which labels are kept."""
    return dtype.kind in "USb" or dtype in ("int64", "uint64", "float64", *UNITS)


def plain(label: Any, kind: str | None) -> Any:
    """Return an object label as the plain value of its kind."""
    if kind == STRINGS:
        return str.__str__(label)
    if kind == DATES:
        return as_date(label)
    if kind == INTEGERS:
        return int(label)
    if kind == FLOATS:
        return exact_float(label)
    return bytes(label) if kind == BYTES else bool(label)


def typed(values: NDArray[Any], known: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return labels, none of them missing, in the array type of their type.

    That is the type of the ``known`` classes, if there are any.
    """
    if values.size == 0:
        return values
    read = from_objects if values.dtype.kind == "O" else from_array
    values = read(values, known)
    return values if known is None else fitted(values, known)


def from_array(values: NDArray[Any], known: NDArray[Any] | None) -> NDArray[Any]:
    """Return a numpy array in the array type of its type."""
    kind = values.dtype.kind
    if kind not in NAMES:
        raise unknown_type(str(values.dtype), values[0], known)
    if kind in "iu":
        return compact(values)
    if kind == FLOATS:
        exact = values.astype(np.float64)
        if (exact != values).any():
            raise inexact(values[exact != values][0])
        return whole_floats(exact, known)
    if kind == DATES:
        return dates(values)
    if kind in "US":
        check_text(np.unique(values).tolist())
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def from_objects(values: NDArray[Any], known: NDArray[Any] | None) -> NDArray[Any]:
    """Return object labels in the array type of their type; refuse a mixture of types."""
    types = {each: kind_of(each) for each in set(map(type, values))}
    for each, kind in types.items():
        if kind is None:
            first = next(value for value in values if type(value) is each)
            raise unknown_type(each.__name__, first, known)
    kinds = {kind for kind in types.values() if kind is not None}
    if kinds == {INTEGERS, FLOATS}:
        return whole_floats(np.array([exact_float(value) for value in values]), known)
    if len(kinds) > 1:
        names = sorted({NAMES[kind] for kind in kinds})
        raise ValueError(
            f"y mixes label types ({', '.join(names)}), expected one: convert all labels to "
            "strings or all to numbers; None, NaN and the unlabeled marker may be among either."
        )
    kind = kinds.pop()
    every: list[Any] = [plain(value, kind) for value in values]
    if kind == INTEGERS:
        return integers(every)
    if kind == FLOATS:
        return whole_floats(np.array(every), known)
    if kind == DATES:
        return joined_dates(every)
    if kind in (STRINGS, BYTES):
        check_text(set(every))
    return np.array(every)


def integers(values: Sequence[int]) -> NDArray[Any]:
    """Return whole numbers as int64, or as uint64 if one of them is too large for that."""
    smallest, largest = min(values), max(values)
    if smallest >= -(2**63) and largest < 2**63:
        return np.array(values, dtype=np.int64)
    if smallest >= 0 and largest < 2**64:
        return np.array(values, dtype=np.uint64)
    raise ValueError(
        f"y holds integers from {smallest} to {largest}, expected all within int64 or all within "
        "uint64: convert them to strings."
    )


def exact_float(label: Any) -> float:
    """Return a number as a float; refuse one that is no float of 64 bits."""
    value = label if isinstance(label, np.longdouble) else float_or_int(label)
    try:
        number = float(value)
    except OverflowError:
        raise inexact(label) from None
    if number != value:
        raise inexact(label)
    return number


def float_or_int(label: Any) -> float | int:
    """Return a number as a plain one, exactly: a float32 compares as a float32."""
    return int(label) if isinstance(label, int | np.integer) else float(label)


def inexact(label: Any) -> ValueError:
    """Return the refusal of a number that is no float of 64 bits."""
    return ValueError(
        f"y holds {label!r} among floats, which is no float of 64 bits, expected numbers that are: "
        "convert the labels to integers or to strings."
    )


def whole_floats(values: NDArray[Any], known: NDArray[Any] | None) -> NDArray[Any]:
    """Return floats, without negative zero; refuse those that are measured, not classes."""
    if np.isinf(values).any():
        raise ValueError("Input y contains infinity or a value too large for dtype('float64').")
    broken = values[values % 1 != 0]
    if broken.size:
        so_far = "" if known is None else f" The classes so far are {described(known)}."
        raise ValueError(
            f"Unknown label type: continuous. y holds floats such as {broken[0]:g}, expected whole "
            "numbers, as classes are discrete: convert them to strings, or use a regressor."
            f"{so_far}"
        )
    return values + 0.0


def as_date(label: Any) -> np.datetime64:
    """Return a date, a time or a pandas Timestamp as a datetime64; refuse one with a time zone."""
    if not has_no_zone(label):
        raise ValueError(
            f"y holds dates with a time zone ({label}), expected dates without: convert them, for "
            "example to UTC, and drop the time zone."
        )
    if hasattr(label, "to_datetime64"):
        return label.to_datetime64()
    return label if isinstance(label, np.datetime64) else np.datetime64(label)


def has_no_zone(label: Any) -> bool:
    """Whether a date has no time zone."""
    return getattr(label, "tzinfo", None) is None


def joined_dates(values: Sequence[np.datetime64]) -> NDArray[Any]:
    """Return dates of any units in the coarsest unit that is exact for all of them."""
    units = [str(each.dtype) for each in values]
    parts = {unit: [row for row, own in enumerate(units) if own == unit] for unit in set(units)}
    found = {unit: dates(np.array([values[row] for row in rows])) for unit, rows in parts.items()}
    result = np.empty(len(values), finest(found.values()))
    for unit, rows in parts.items():
        result[rows] = same_unit(found[unit], result.dtype)
    return result


def finest(arrays: Iterable[NDArray[Any]]) -> str:
    """Return the finest of the units of some arrays of dates, each one of `UNITS`."""
    return max((str(each.dtype) for each in arrays), key=UNITS.index)


def dates(values: NDArray[Any]) -> NDArray[Any]:
    """Return dates in the coarsest unit that is exact for all of them."""
    for unit in UNITS:
        converted = in_unit(values, unit)
        if converted is not None:
            return converted
    raise ValueError(
        f"y holds dates of type {values.dtype} ({values[0]}) that are neither whole microseconds "
        "nor whole nanoseconds within the range of datetime64, expected such: round them, or "
        "convert them to strings."
    )


def in_unit(values: NDArray[Any], unit: Any) -> NDArray[Any] | None:
    """Return dates in another unit, None if that is not exact: numpy rounds and overflows."""
    try:
        converted = values.astype(unit)
        exact = (converted.astype(values.dtype) == values).all()
    except OverflowError:
        return None
    return converted if exact else None


def same_unit(values: NDArray[Any], unit: Any) -> NDArray[Any]:
    """Return dates in another unit; refuse those that are out of its range."""
    converted = in_unit(values, unit)
    if converted is None:
        raise ValueError(
            f"y holds dates that are no whole microseconds together with {values[0]}, expected "
            "dates between 1678 and 2262 then: round the dates, or convert them to strings."
        )
    return converted


def check_text(distinct: Iterable[str | bytes]) -> None:
    """Refuse texts that numpy cannot hold."""
    for text in distinct:
        if text[-1:] in ("\0", b"\0"):
            raise ValueError(
                f"y holds {text!r}, which ends in a null character, expected labels that do not, "
                "as numpy drops it: strip it, or replace it."
            )


# -- labels of later batches -----------------------------------------------------------------------


def fitted(values: NDArray[Any], known: NDArray[Any]) -> NDArray[Any]:
    """Return labels in the type of the known classes; refuse those that do not fit it exactly."""
    if values.size == 0 or known.size == 0:
        return values
    old, new = NAMES[known.dtype.kind], NAMES[values.dtype.kind]
    if old != new and {old, new} != {"integers", "floats"}:
        raise does_not_fit(values, known)
    try:
        if (old, new) == ("floats", "integers"):
            return np.array([exact_float(value) for value in values])
        if (old, new) == ("integers", "floats"):
            return aligned(integers([int(value) for value in values.tolist()]), known)[0]
        return aligned(values, known)[0]
    except ValueError as reason:
        raise does_not_fit(values, known) from reason


def aligned(first: NDArray[Any], second: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return labels of one type in one array type; numpy would make floats of some integers."""
    kinds = {first.dtype.kind, second.dtype.kind}
    if first.dtype == second.dtype or not first.size or not second.size:
        return first, second
    if kinds == {DATES}:
        unit = finest([first, second])
        return same_unit(first, unit), same_unit(second, unit)
    if kinds == {"i", "u"}:
        every = integers([*first.tolist(), *second.tolist()])
        return every[: first.size], every[first.size :]
    return first, second


def compact(values: NDArray[Any]) -> NDArray[Any]:
    """Return labels in the array type of their type, such as int64 rather than uint64."""
    if values.dtype.kind in "iu" and values.size:
        small = values.dtype.kind == "i" or int(values.max()) < 2**63
        return values.astype(np.int64 if small else np.uint64)
    return dates(values) if values.dtype.kind == DATES and values.size else values


def described(values: NDArray[Any]) -> str:
    """Return the type of labels, with an example."""
    return f"{NAMES[values.dtype.kind]} ({example(values)!r})"


def example(values: NDArray[Any]) -> Any:
    """Return the first label; a date as numpy's, which is exact."""
    return values[0] if values.dtype.kind == DATES else values[0].item()


def does_not_fit(values: NDArray[Any], known: NDArray[Any]) -> ValueError:
    """Return the refusal of labels that do not fit the type of the known classes."""
    return ValueError(
        f"y holds {described(values)}, but the classes so far are {described(known)}: pass labels "
        "of the same type in every batch; if they are, no array type holds all of them exactly, "
        "so convert them to strings."
    )


def unknown_type(name: str, label: Any, known: NDArray[Any] | None) -> ValueError:
    """Return the refusal of labels of a type that cannot be learned."""
    if name.startswith("complex"):
        name = f"{name}: Complex data not supported"
    expected = "expected integers, floats, booleans, strings, bytes or dates"
    if known is not None and known.size:
        expected = f"but the classes so far are {described(known)}"
    return ValueError(
        f"y holds labels of type {name} ({label!r}), {expected}: convert them, for example with "
        "str."
    )
