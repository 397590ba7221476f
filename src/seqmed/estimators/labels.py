"""Reading y: which rows are labeled, and their labels in one of four types.

========  ==========================================
integers  int64
floats    float64, whole numbers of less than 2**53
booleans  bool
strings   numpy's fixed-width strings
========  ==========================================

Rows are unlabeled where y is None, NaN, NaT, pandas' NA, the empty string, or the marker. The first
labels determine the type. A later label that the type cannot hold exactly is refused, and so are
labels of any other type, such as bytes and dates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d

from seqmed.numeric.arrays import Indices, Mask

Labels = NDArray[Any]

NO_LABELS: Labels = np.zeros(0)

# Types of labels by the kind of their dtype: names in messages, and classes of Python and numpy.
# In this order: in Python, True is also an int.
NAMES = {"b": "booleans", "i": "integers", "f": "floats", "U": "strings"}
CLASSES = {"b": bool | np.bool_, "i": int | np.integer, "f": float | np.floating, "U": str}
# Whole numbers below this are exact as integers and as floats.
LARGEST_WHOLE = 2.0**53
# Strings into which numpy converts None and NaN in a list that also contains strings.
COERCED_MISSING = {"nan", "None", "<NA>", "NaT"}


def split_labels(labels: Any, marker: Any, *, known: Labels = NO_LABELS) -> tuple[Mask, Labels]:
    """Return the mask (n,) of labeled rows, and their labels in the dtype of their type.

    A marker that is a known class is treated as a class; None is no marker. The labels must be of
    the type of the known classes, if there are any.
    """
    array = as_label_array(labels)
    labeled = ~is_missing(array)
    if not is_marked(known, marker).any():
        labeled[labeled] = ~is_marked(array[labeled], marker)
    return labeled, typed_labels(array[labeled], known)


def as_label_array(labels: Any) -> Labels:
    """Return labels as a 1d array, with dtype object if numpy would change a value."""
    if np.ma.isMaskedArray(labels):
        masked = np.ma.getmaskarray(labels)
        labels = labels.data.astype(object)
        labels[masked] = None
    for method in ("to_list", "to_pylist"):  # of pandas and polars, and of pyarrow
        if hasattr(labels, method) and not isinstance(getattr(labels, "dtype", None), np.dtype):
            labels = getattr(labels, method)()
    if isinstance(labels, Sequence) and not isinstance(labels, str | bytes):
        nested = any(issubclass(each, list | tuple | np.ndarray) for each in set(map(type, labels)))
        labels = np.asarray(labels, dtype=object) if nested else as_objects(labels)
    array = np.asarray(labels)
    if array.dtype.kind == "T":
        array = array.astype(object)
    return array if array.ndim == 1 else column_or_1d(array, warn=True)


def as_objects(values: Sequence[Any] | Labels) -> Labels:
    """Return values as an array of objects, without conversion by numpy."""
    return np.fromiter(values, dtype=object, count=len(values))


# -- unlabeled rows --------------------------------------------------------------------------------


def is_missing(array: Labels) -> Mask:
    """Return a mask (n,) of labels that are None, NaN, NaT, pandas' NA or the empty string."""
    if array.dtype == object:
        return np.fromiter(map(is_missing_value, array), bool, array.size)
    return np.asarray(array == "" if array.dtype.kind == "U" else array != array)


def is_missing_value(value: Any) -> bool:
    """Whether a single label is missing."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, str):
        return not value
    return isinstance(value, float | np.generic) and bool(value != value)


def is_marked(array: Labels, marker: Any) -> Mask:
    """Return a mask (n,) of labels equal to ``marker``.

    A numeric marker also equals the string of the number, because numpy turns ``["spam", -1]`` into
    strings. True and 1 are different labels.
    """
    own = kind_of_class(type(marker))
    equal: dict[str | None, Any] = {own: marker}  # the value of the marker in every type
    if own in ("i", "f"):
        equal = {"i": marker, "f": marker, "U": str(marker)}
    if own is None or is_missing_value(marker):
        equal = {}
    if array.dtype == object:
        kinds = {each: kind_of_class(each) for each in set(map(type, array))}
        found = (kinds[type(each)] in equal and each == equal[kinds[type(each)]] for each in array)
        return np.fromiter(found, bool, array.size)
    kind = kind_of_class(array.dtype.type)
    return np.asarray(array == equal[kind]) if kind in equal else np.zeros(array.size, dtype=bool)


def holds_minus_one(labels: Any, marker: Any) -> bool:
    """Whether labels, as the user passed them, contain -1 and -1 is the marker."""
    return is_minus_one(marker) and bool(is_marked(as_label_array(labels), marker).any())


def is_minus_one(marker: Any) -> bool:
    """Whether a marker is -1."""
    return kind_of_class(type(marker)) is not None and marker in (-1, "-1")


def are_plus_one(classes: Labels) -> bool:
    """Whether there is no class but +1."""
    return classes.dtype.kind != "b" and set(classes.tolist()) <= {1, "1", "+1", "1.0"}


# -- classes ---------------------------------------------------------------------------------------


def find(values: Labels, classes: Labels) -> Indices:
    """Return the index of every label in sorted classes of the same type, -1 if it is not found."""
    if values.size == 0 or classes.size == 0:
        return np.full(values.size, -1, dtype=np.intp)
    places = np.minimum(np.searchsorted(classes, values), classes.size - 1)
    return np.where(classes[places] == values, places, -1)


def with_labels(classes: Labels, values: Labels) -> Labels:
    """Return sorted classes with labels of the same type added."""
    if (find(values, classes) >= 0).all():
        return classes
    return np.union1d(classes, values) if classes.size else np.unique(values)


# -- types -----------------------------------------------------------------------------------------


def kind_of_class(python_class: type) -> str | None:
    """Return the label type of a class of Python or numpy, None if its objects are no labels."""
    if issubclass(python_class, np.timedelta64):  # a subclass of np.integer
        return None
    return next((kind for kind, each in CLASSES.items() if issubclass(python_class, each)), None)


def kind_of(values: Labels) -> str:
    """Return the label type of an array; refuse mixed types, except integers with floats."""
    kinds = set()
    for each in set(map(type, values)) if values.dtype == object else {values.dtype.type}:
        kind = kind_of_class(each)
        if kind is None:
            label = next(value for value in values if type(value) is each)
            known = "Complex data not supported: " if isinstance(label, complex) else ""
            raise ValueError(
                f"{known}y holds labels of type {each.__name__} ({label!r}), expected integers, "
                "floats, booleans or strings: convert them, for example with str (bytes with "
                "decode)."
            )
        kinds.add(kind)
    if kinds == {"i", "f"}:
        return "f"
    if len(kinds) > 1:
        raise ValueError(
            f"y mixes label types ({', '.join(sorted(NAMES[kind] for kind in kinds))}), expected "
            "one: convert all labels to strings or all to numbers."
        )
    return kinds.pop()


def typed_labels(values: Labels, known: Labels) -> Labels:
    """Return labels without missing values in the dtype of their type, such as int64, not int8.

    If there are ``known`` classes, the labels are returned in the type of these classes.
    """
    if not values.size:
        return values
    kind = kind_of(values)
    wanted = kind_of(known) if known.size else kind
    if kind != wanted and {kind, wanted} != {"i", "f"}:
        raise ValueError(
            f"y holds {NAMES[kind]} ({values.tolist()[0]!r}), expected the type of the classes so "
            f"far, {NAMES[wanted]} ({known.tolist()[0]!r}): pass labels of the same type in every "
            "batch."
        )
    if "f" in (kind, wanted):
        values = as_floats(values, kind)
    if wanted == "i":
        smallest, largest = int(values.min()), int(values.max())
        if smallest < -(2**63) or largest >= 2**63:
            raise ValueError(
                f"y holds integers from {smallest} to {largest}, expected integers within int64: "
                "convert them to strings."
            )
        return values.astype(np.int64)
    if wanted == "U":
        return as_strings(values, known)
    return values.astype(bool) if wanted == "b" else values


def as_floats(values: Labels, kind: str) -> Labels:
    """Return numbers as float64; refuse others than whole numbers below `LARGEST_WHOLE`."""
    numbers = values if values.dtype == object else values.astype(np.float64)
    large = (np.abs(numbers) >= LARGEST_WHOLE).astype(bool)  # first: large integers overflow
    typed: Labels = np.where(large, 0.5, numbers).astype(np.float64) + 0.0  # no negative zero
    broken = np.flatnonzero(np.trunc(typed) != typed)
    if broken.size:
        label = values.tolist()[broken[0]]
        infinite = abs(label) == np.inf
        known = "Input y contains infinity" if infinite else "Unknown label type: continuous"
        raise ValueError(
            f"{known}. y holds {NAMES[kind]} such as {label}, expected whole numbers of less than "
            "2**53 where labels are floats, as classes are discrete: convert them to strings, or "
            "use a regressor."
        )
    return typed


def as_strings(values: Labels, known: Labels) -> Labels:
    """Return strings as a fixed-width array; refuse those that numpy has changed.

    A string into which numpy converts a missing value is accepted if it is a known class.
    """
    typed = values.astype(np.str_)
    if values.dtype != object:
        strange = (set(np.unique(typed).tolist()) - set(known.tolist())) & COERCED_MISSING
        if strange:
            text = min(strange)
            raise ValueError(
                f"y is an array of strings that holds {text!r}, which numpy makes of a missing "
                "value, expected None or NaN in a list, a pandas Series or an array of dtype "
                f"object. There {text!r} is a label like any other."
            )
    return typed
