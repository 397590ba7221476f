"""The six types of labels, and the numpy dtype in which each type is stored.

========  ==============================================================
integers  int64, or uint64 if one is beyond int64 (then none is negative)
floats    float64, whole numbers only
booleans  bool
strings   numpy's fixed-width strings
bytes     numpy's fixed-width bytes
dates     datetime64[us], or datetime64[ns] if one is no whole microsecond
========  ==============================================================

Every label is exact in its dtype. The first labels determine the type. A later label that the type
cannot hold exactly is refused.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.label_dates import UNITS, as_date, dates, finest, same_unit

Labels = NDArray[Any]


class LabelType(NamedTuple):
    """A type of labels.

    Attributes
    ----------
    name : name in error messages.
    classes : Python and numpy classes of labels of this type.
    plain : converts a label exactly to the Python class of the type.
    array : converts an array, or an array of plain objects, to the dtype of the type.
    """

    name: str
    classes: tuple[type, ...]
    plain: Callable[[Any], Any]
    array: Callable[[Labels], Labels]


# -- from objects or arrays to the dtype of a type -------------------------------------------------


def integers(values: Labels) -> Labels:
    """Return integers as int64, or as uint64 if one is too large for int64."""
    smallest, largest = int(values.min()), int(values.max())
    if smallest >= -(2**63) and largest < 2**63:
        return values.astype(np.int64)
    if smallest >= 0 and largest < 2**64:
        return values.astype(np.uint64)
    raise ValueError(
        f"y holds integers from {smallest} to {largest}, expected all within int64 or all within "
        "uint64: convert them to strings."
    )


def floats(values: Labels) -> Labels:
    """Return whole numbers as float64, without negative zero; refuse others."""
    exact: Labels = values.astype(np.float64)
    if (exact != values).any():
        raise inexact(values[exact != values][0])
    if np.isinf(exact).any():
        raise ValueError("Input y contains infinity or a value too large for dtype('float64').")
    broken = exact[exact % 1 != 0]
    if broken.size:
        raise ValueError(
            f"Unknown label type: continuous. y holds floats such as {broken[0]:g}, expected whole "
            "numbers, as classes are discrete: convert them to strings, or use a regressor."
        )
    return exact + 0.0


def exact_float(label: Any) -> float:
    """Return a number as a float; refuse numbers that float64 cannot hold exactly."""
    value = int(label) if isinstance(label, np.integer) else label  # exact comparison
    try:
        exact = bool(float(value) == value)
    except OverflowError:
        exact = False
    if not exact:
        raise inexact(label)
    return float(value)


def inexact(label: Any) -> ValueError:
    """Return the error for a number that float64 cannot hold exactly."""
    return ValueError(
        f"y holds floats and {label!r}, which float64 cannot represent exactly, expected numbers "
        "that it can represent: convert the labels to integers or to strings."
    )


def text(values: Labels) -> Labels:
    """Return strings or bytes as a fixed-width array; refuse those that numpy cannot hold."""
    if values.dtype != object:
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    for each in set(values):
        if each[-1:] in ("\0", b"\0"):
            raise ValueError(
                f"y holds {each!r}, which ends in a null character, expected labels without it, "
                "because numpy drops it: strip or replace the character."
            )
    return np.array(values.tolist())


# In this order: In Python, True is also an int.
BOOLEANS = LabelType("booleans", (bool, np.bool_), bool, lambda values: values.astype(bool))
INTEGERS = LabelType("integers", (int, np.integer), int, integers)
FLOATS = LabelType("floats", (float, np.floating), exact_float, floats)
STRINGS = LabelType("strings", (str,), str.__str__, text)
BYTES = LabelType("bytes", (bytes,), bytes, text)
DATES = LabelType("dates", (datetime.date, np.datetime64), as_date, dates)
LABEL_TYPES = (BOOLEANS, INTEGERS, FLOATS, STRINGS, BYTES, DATES)


# -- which type labels have ------------------------------------------------------------------------


def type_of_class(python_class: type) -> LabelType | None:
    """Return the label type of a Python class, None if its objects cannot be labels."""
    if issubclass(python_class, np.timedelta64):  # timedelta64 is a subclass of np.integer
        return None
    return next((each for each in LABEL_TYPES if issubclass(python_class, each.classes)), None)


def type_of(values: Labels) -> LabelType:
    """Return the label type of an array; refuse mixed types, except integers with floats."""
    classes = set(map(type, values)) if values.dtype == object else {values.dtype.type}
    types = set()
    for each in classes:
        found = type_of_class(each)
        if found is None:
            label = next(value for value in values if type(value) is each)
            known = "Complex data not supported: " if isinstance(label, complex) else ""
            raise ValueError(
                f"{known}y holds labels of type {each.__name__} ({label!r}), expected integers, "
                "floats, booleans, strings, bytes or dates: convert them, for example with str."
            )
        types.add(found)
    if types == {INTEGERS, FLOATS}:
        return FLOATS
    if len(types) > 1:
        raise ValueError(
            f"y mixes label types ({', '.join(sorted(each.name for each in types))}), expected "
            "one: convert all labels to strings or all to numbers; None, NaN and the unlabeled "
            "marker may be mixed with either."
        )
    return types.pop()


def is_label_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is the dtype of a label type."""
    return dtype.kind in "USb" or dtype in ("int64", "uint64", "float64", *UNITS)


def as_objects(values: Iterable[Any]) -> Labels:
    """Return values as an array of objects, without conversion by numpy."""
    every = [
        each[()] if isinstance(each, np.ndarray) and not each.ndim else each for each in values
    ]
    array = np.empty(len(every), dtype=object)
    array[:] = every
    return array


def typed(values: Labels, known: Labels | None = None) -> Labels:
    """Return labels without missing values in the dtype of their type.

    If there are ``known`` classes, the labels are returned in the dtype of these classes.
    """
    if not values.size or known is None or not known.size:
        return canonical(values)
    try:
        values = canonical(values)
    except ValueError as error:
        raise ValueError(f"{error} The classes so far are {described(known)}.") from None
    return fitted(values, known)


def canonical(values: Labels) -> Labels:
    """Return labels in the dtype of their type, such as int64 rather than uint64."""
    if not values.size:
        return values
    own = type_of(values)
    return own.array(as_objects(map(own.plain, values)) if values.dtype == object else values)


# -- labels of later batches -----------------------------------------------------------------------


def fitted(values: Labels, known: Labels) -> Labels:
    """Return labels in the type of the known classes; refuse labels it cannot hold exactly."""
    own, wanted = type_of(values), type_of(known)
    try:
        if own is wanted:
            return aligned(values, known)[0]
        if {own, wanted} != {INTEGERS, FLOATS}:
            raise TypeError
        return aligned(wanted.array(as_objects(map(wanted.plain, values))), known)[0]
    except (TypeError, ValueError) as reason:
        raise ValueError(
            f"y holds {described(values)}, expected the type of the classes so far, "
            f"{described(known)}: pass labels of the same type in every batch. If they have the "
            "same type, no array type holds all of them exactly: convert them to strings."
        ) from reason


def aligned(first: Labels, second: Labels) -> tuple[Labels, Labels]:
    """Return labels of one type in one dtype; numpy would convert some integers to floats."""
    if first.dtype == second.dtype or not first.size or not second.size:
        return first, second
    kinds = {first.dtype.kind, second.dtype.kind}
    if kinds == {"M"}:
        unit = finest([first, second])
        return same_unit(first, unit), same_unit(second, unit)
    if kinds == {"i", "u"}:
        every = integers(as_objects([*first.tolist(), *second.tolist()]))
        return every[: first.size], every[first.size :]
    return first, second


def described(values: Labels) -> str:
    """Return the name of the label type, with an example label."""
    own = type_of(values)
    # a numpy date, which is exact
    return f"{own.name} ({values[0] if own is DATES else values[0].item()!r})"
