"""Reading y: which rows are labeled, and their labels in one of four types.

========  =======================================
integers  int64
floats    float64, whole numbers only
booleans  bool
strings   numpy's fixed-width strings
========  =======================================

Rows are unlabeled where y is None, NaN, NaT, pandas' NA, the empty string, or the marker. Every
label is exact in the dtype of its type. The first labels determine the type. A later label that the
type cannot hold exactly is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d

from seqmed.numeric.arrays import Indices, Mask

Labels = NDArray[Any]

NO_LABELS: Labels = np.zeros(0)

# Strings into which numpy converts None and NaN in a list that also contains strings.
COERCED_MISSING = ("nan", "None", "<NA>", "NaT")


def split_labels(
    labels: Any,
    marker: Any,
    *,
    known: Labels = NO_LABELS,
    signs_are_classes: bool = False,
) -> tuple[Mask, Labels]:
    """Separate labeled from unlabeled rows.

    Parameters
    ----------
    labels : (n,) labels as the user passed them.
    marker : value that marks an unlabeled row, besides None, NaN, NaT, pandas' NA and the empty
        string; None for no other marker. A marker that is a known class is treated as a class.
    known : classes known so far, empty if there are none. The labels must be of their type.
    signs_are_classes : whether -1 is a class rather than the marker, if y holds only -1 and +1 and
        no classes are known.

    Returns
    -------
    labeled : (n,) mask.
    values : the labels of the labeled rows, in the dtype of their type.
    """
    array = as_label_array(labels)
    if is_marked(known, marker).any():
        marker = None
    unlabeled = is_missing(array)
    if not known.size and signs_are_classes and holds_only_signs(array[~unlabeled], marker):
        marker = None
    unlabeled[~unlabeled] = is_marked(array[~unlabeled], marker)
    values = array[~unlabeled]
    if values.dtype.kind == "U":
        refuse_coerced_missing(values, known)
    return ~unlabeled, typed_labels(values, known)


# -- containers ------------------------------------------------------------------------------------


def as_label_array(labels: Any) -> Labels:
    """Return labels as a 1d array, with dtype object if numpy would change a value."""
    if np.ma.isMaskedArray(labels):
        masked = np.ma.getmaskarray(labels)
        labels = labels.data.astype(object)
        labels[masked] = None
    if hasattr(labels, "to_arrow"):  # polars
        labels = labels.to_arrow()
    if hasattr(labels, "to_pylist"):  # pyarrow
        labels = labels.to_pylist()
    if hasattr(labels, "to_numpy") and not isinstance(getattr(labels, "dtype", None), np.dtype):
        labels = labels.astype(object).to_numpy()  # pandas would make floats of nullable integers
    if isinstance(labels, Sequence) and not isinstance(labels, str | bytes):
        nested = any(isinstance(each, Sequence | np.ndarray) and np.shape(each) for each in labels)
        labels = np.asarray(labels, dtype=object) if nested else as_objects(labels)
    array = np.asarray(labels)
    if array.dtype.kind == "T":
        array = array.astype(object)
    return array if array.ndim == 1 else column_or_1d(array, warn=True)


def as_objects(values: Iterable[Any]) -> Labels:
    """Return values as an array of objects, without conversion by numpy."""
    every = [
        each[()] if isinstance(each, np.ndarray) and not each.ndim else each for each in values
    ]
    array = np.empty(len(every), dtype=object)
    array[:] = every
    return array


# -- unlabeled rows --------------------------------------------------------------------------------


def is_missing(array: Labels) -> Mask:
    """Return a mask (n,) of labels that are None, NaN, NaT, pandas' NA or the empty string."""
    kind = array.dtype.kind
    if kind == "f":
        return np.isnan(array)
    if kind in "mM":
        return np.isnat(array)
    if kind == "U":
        return np.asarray(np.char.str_len(array) == 0)
    if kind == "O":
        return np.fromiter(map(is_missing_value, array), bool, array.size)
    return np.zeros(array.size, dtype=bool)


def is_missing_value(value: Any) -> bool:
    """Whether a single label is missing."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, float | np.floating | np.datetime64 | np.timedelta64):
        return bool(value != value)
    return isinstance(value, str) and not value


def is_marked(array: Labels, marker: Any) -> Mask:
    """Return a mask (n,) of labels equal to ``marker``.

    In arrays of strings a numeric marker is compared as a string, because numpy turns
    ``["spam", -1]`` into strings. True and 1 are different labels.
    """
    values = marker_values(marker)
    if array.dtype == object:
        types = {each: type_of_class(each) for each in set(map(type, array))}
        found = (equals(each, types[type(each)], values) for each in array)
        return np.fromiter(found, bool, array.size)
    value = values.get(type_of_class(array.dtype.type))
    if value is None:
        return np.zeros(array.size, dtype=bool)
    return np.asarray(array == value)


def marker_values(marker: Any) -> dict[LabelType | None, Any]:
    """Return the value of a marker in each label type in which it can occur."""
    own = type_of_class(type(marker))
    if own is None or is_missing_value(marker):
        return {}
    value = np.float64(own.plain(marker)) if own is FLOATS else own.plain(marker)
    values: dict[LabelType | None, Any] = {own: value}
    if own in (INTEGERS, FLOATS):
        values[STRINGS] = str(marker)
        if own is FLOATS and value % 1 == 0:
            values[INTEGERS] = int(value)
        if own is INTEGERS and abs(value) <= 2**53:
            values[FLOATS] = np.float64(value)
    return values


def equals(label: Any, own: LabelType | None, values: dict[LabelType | None, Any]) -> bool:
    """Whether a label equals the value of the marker in the label's type."""
    value = values.get(own)
    return own is not None and value is not None and bool(own.plain(label) == value)


def holds_only_signs(values: Labels, marker: Any) -> bool:
    """Whether labels are only -1 and +1 and -1 is the marker, which is ambiguous."""
    if not is_minus_one(marker) or values.dtype.kind not in "iufUO":
        return False
    distinct = values if values.dtype == object else np.unique(values)
    return {text_of(each) for each in distinct.tolist()} == {"-1", "1"}


def marks_minus_one(labels: Any, marker: Any) -> bool:
    """Whether labels, as the user passed them, contain -1 and -1 is the marker."""
    return is_minus_one(marker) and bool(is_marked(as_label_array(labels), marker).any())


def are_plus_one(classes: Labels) -> bool:
    """Whether there is no class but +1."""
    return set(map(text_of, classes.tolist())) <= {"1"}


def is_minus_one(marker: Any) -> bool:
    """Whether a marker is -1."""
    return type_of_class(type(marker)) in (INTEGERS, FLOATS, STRINGS) and marker in (-1, "-1")


def text_of(label: Any) -> str:
    """Return a label as text in which 1, "+1" and 1.0 are equal, and True is different."""
    text = "" if isinstance(label, bool | np.bool_) else str(label)
    return text.removeprefix("+").removesuffix(".0")


def refuse_coerced_missing(values: Labels, known: Labels) -> None:
    """Refuse labels that numpy made from missing values, unless they are known classes."""
    suspicious = (set(np.unique(values).tolist()) - set(known.tolist())) & set(COERCED_MISSING)
    if suspicious:
        text = sorted(suspicious)[0]
        raise ValueError(
            f"y is an array of strings that holds {text!r}, which numpy makes of a missing value, "
            "expected None or NaN in an object array. Pass a list, a pandas Series or an array of "
            f"dtype object, in which {text!r} is a label like any other and missing values stay "
            "missing."
        )


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


def as_int64(values: Labels) -> Labels:
    """Return integers as int64; refuse those that are too large."""
    smallest, largest = int(values.min()), int(values.max())
    if smallest >= -(2**63) and largest < 2**63:
        return values.astype(np.int64)
    raise ValueError(
        f"y holds integers from {smallest} to {largest}, expected integers within int64: convert "
        "them to strings."
    )


def as_float64(values: Labels) -> Labels:
    """Return whole numbers as float64, without negative zero; refuse others."""
    exact: Labels = values.astype(np.float64)
    if (exact != values).any():
        raise refusal_of_inexact(values[exact != values][0])
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
        raise refusal_of_inexact(label)
    return float(value)


def refusal_of_inexact(label: Any) -> ValueError:
    """Return the error for a number that float64 cannot hold exactly."""
    return ValueError(
        f"y holds floats and {label!r}, which float64 cannot represent exactly, expected numbers "
        "that it can represent: convert the labels to integers or to strings."
    )


def as_fixed_width(values: Labels) -> Labels:
    """Return strings as a fixed-width array; refuse those that numpy cannot hold."""
    if values.dtype != object:
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    for each in set(values):
        if each.endswith("\0"):
            raise ValueError(
                f"y holds {each!r}, which ends in a null character, expected labels without it, "
                "because numpy drops it: strip or replace the character."
            )
    return np.array(values.tolist())


# In this order: In Python, True is also an int.
BOOLEANS = LabelType("booleans", (bool, np.bool_), bool, lambda values: values.astype(bool))
INTEGERS = LabelType("integers", (int, np.integer), int, as_int64)
FLOATS = LabelType("floats", (float, np.floating), exact_float, as_float64)
STRINGS = LabelType("strings", (str,), str.__str__, as_fixed_width)
LABEL_TYPES = (BOOLEANS, INTEGERS, FLOATS, STRINGS)


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
                "floats, booleans or strings: convert them, for example with str (bytes with "
                "decode)."
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
    return dtype.kind in "Ub" or dtype in ("int64", "float64")


def typed_labels(values: Labels, known: Labels) -> Labels:
    """Return labels without missing values in the dtype of their type, such as int64, not int8.

    If there are ``known`` classes, the labels are returned in the dtype of these classes. Labels
    that it cannot hold exactly are refused.
    """
    if not values.size:
        return values
    try:
        own = type_of(values)
        typed = own.array(as_objects(map(own.plain, values)) if values.dtype == object else values)
    except ValueError as error:
        if not known.size:
            raise
        raise ValueError(f"{error} The classes so far are {described(known)}.") from None
    wanted = type_of(known) if known.size else own
    if own is wanted:
        return typed
    try:
        if {own, wanted} != {INTEGERS, FLOATS}:
            raise TypeError
        return wanted.array(as_objects(map(wanted.plain, typed)))
    except (TypeError, ValueError) as reason:
        raise ValueError(
            f"y holds {described(typed)}, expected the type of the classes so far, "
            f"{described(known)}: pass labels of the same type in every batch. If they have the "
            "same type, no array type holds all of them exactly: convert them to strings."
        ) from reason


def described(values: Labels) -> str:
    """Return the name of the label type, with an example label."""
    return f"{type_of(values).name} ({values[0].item()!r})"
