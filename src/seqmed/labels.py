"""Reading y: which rows are labeled, and their labels.

Rows are unlabeled where y is None, NaN, NaT, pandas' NA, the empty string, or the marker. The
types of labels are those of `seqmed.label_dtypes`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import column_or_1d

from seqmed.arrays import Indices, Mask
from seqmed.label_dates import as_date, has_no_zone, is_same_date
from seqmed.label_dtypes import (
    BYTES,
    DATES,
    FLOATS,
    INTEGERS,
    STRINGS,
    Labels,
    LabelType,
    aligned,
    as_objects,
    canonical,
    type_of_class,
    typed,
)

# Strings into which numpy converts None and NaN in a list that also contains strings.
COERCED_MISSING = ("nan", "None", "<NA>", "NaT")


def split_labels(
    labels: Any,
    marker: Any,
    *,
    known: Labels | None = None,
    signs_are_classes: bool = False,
) -> tuple[Mask, Labels]:
    """Separate labeled from unlabeled rows.

    Parameters
    ----------
    labels : (n,) labels as the user passed them.
    marker : value that marks an unlabeled row, besides None, NaN, NaT, pandas' NA and the empty
        string; None for no other marker. A marker that is a known class is treated as a class.
    known : classes known so far, None if there are none. The labels must be of their type.
    signs_are_classes : whether -1 is a class rather than the marker, if y holds only -1 and +1 and
        no classes are known.

    Returns
    -------
    labeled : (n,) mask.
    values : the labels of the labeled rows, in the dtype of their type.
    """
    array = as_label_array(labels)
    if known is not None and is_marked(known, marker).any():
        marker = None
    unlabeled = is_missing(array)
    if known is None and signs_are_classes and holds_only_signs(array[~unlabeled], marker):
        marker = None
    unlabeled[~unlabeled] = is_marked(array[~unlabeled], marker)
    values = array[~unlabeled]
    if values.dtype.kind in "US":
        refuse_coerced_missing(values, known)
    return ~unlabeled, typed(values, known)


# -- containers ------------------------------------------------------------------------------------


def as_label_array(labels: Any) -> Labels:
    """Return labels as a 1d array, with dtype object if numpy would change a value."""
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
        labels = list(labels)  # pandas would convert nullable integers to floats
    if isinstance(labels, Sequence) and not isinstance(labels, str | bytes):
        return from_sequence(labels)
    array = np.asarray(labels)
    if array.dtype.kind == "T":
        array = array.astype(object)
    return array if array.ndim == 1 else column_or_1d(array, warn=True)


def from_sequence(labels: Sequence[Any]) -> Labels:
    """Return a list of labels, or of rows with one label each, as an array of objects."""
    shapes = {np.shape(each) for each in labels if isinstance(each, Sequence | np.ndarray)}
    shapes -= {()}
    if not shapes:
        return as_objects(labels)
    if shapes != {(1,)}:
        array: Labels = column_or_1d(np.asarray(labels))
        return array
    warn_of_column()
    return as_objects(each[0] for each in labels)


def warn_of_column() -> None:
    """Warn that labels are a column vector, as scikit-learn does."""
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected: pass a list of labels.",
        DataConversionWarning,
        stacklevel=2,
    )


# -- unlabeled rows --------------------------------------------------------------------------------


def is_missing(array: Labels) -> Mask:
    """Return a mask (n,) of labels that are None, NaN, NaT, pandas' NA or the empty string."""
    kind = array.dtype.kind
    if kind == "f":
        return np.isnan(array)
    if kind in "mM":
        return np.isnat(array)
    if kind in "US":
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
    return isinstance(value, str | bytes) and not value


def is_marked(array: Labels, marker: Any) -> Mask:
    """Return a mask (n,) of labels equal to ``marker``.

    In arrays of strings and bytes a numeric marker is compared as a string, because numpy turns
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
    if isinstance(value, np.datetime64):
        return is_same_date(array, value)
    return np.asarray(array == value)


def marker_values(marker: Any) -> dict[LabelType | None, Any]:
    """Return the value of a marker in each label type in which it can occur."""
    own = type_of_class(type(marker))
    if own is None or is_missing_value(marker):
        return {}
    value = np.float64(own.plain(marker)) if own is FLOATS else own.plain(marker)
    values: dict[LabelType | None, Any] = {own: value}
    if own in (INTEGERS, FLOATS):
        values |= {STRINGS: str(marker), BYTES: str(marker).encode()}
        if own is FLOATS and value % 1 == 0:
            values[INTEGERS] = int(value)
        if own is INTEGERS and abs(value) <= 2**53:
            values[FLOATS] = np.float64(value)
    return values


def equals(label: Any, own: LabelType | None, values: dict[LabelType | None, Any]) -> bool:
    """Whether a label equals the value of the marker in the label's type."""
    value = values.get(own)
    if own is None or value is None:
        return False
    if own is DATES:
        return has_no_zone(label) and bool(is_same_date(np.array([as_date(label)]), value)[0])
    return bool(own.plain(label) == value)


def holds_only_signs(values: Labels, marker: Any) -> bool:
    """Whether labels are only -1 and +1 and -1 is the marker, which is ambiguous."""
    if not is_minus_one(marker) or values.dtype.kind not in "iufUSO":
        return False
    distinct = set(map(text_of, values)) if values.dtype.kind == "O" else set(values.tolist())
    return {text_of(each) for each in distinct} in (
        {"-1", "1"}, {"-1", "+1"}, {"-1.0", "1.0"}, {"-1", "1.0"}, {"-1.0", "1"},
    )  # fmt: skip


def marks_minus_one(labels: Any, marker: Any) -> bool:
    """Whether labels, as the user passed them, contain -1 and -1 is the marker."""
    return is_minus_one(marker) and bool(is_marked(as_label_array(labels), marker).any())


def are_plus_one(classes: Labels) -> bool:
    """Whether there is no class but +1."""
    return set(map(text_of, classes.tolist())) <= {"1", "+1", "1.0"}


def is_minus_one(marker: Any) -> bool:
    """Whether a marker is -1."""
    return type_of_class(type(marker)) in (INTEGERS, FLOATS, STRINGS) and marker in (-1, "-1")


def text_of(label: Any) -> str:
    """Return a label as text, for comparison with -1 and +1."""
    if isinstance(label, bytes):
        return label.decode("latin1")
    return "" if isinstance(label, bool | np.bool_) else str(label)


def refuse_coerced_missing(values: Labels, known: Labels | None) -> None:
    """Refuse labels that numpy made from missing values, unless they are known classes."""
    suspicious = set(COERCED_MISSING) & set(map(text_of, np.unique(values).tolist()))
    if known is not None and known.dtype.kind in "US":
        suspicious -= set(map(text_of, known.tolist()))
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
    values, classes = aligned(values, classes)
    places = np.minimum(np.searchsorted(classes, values), classes.size - 1)
    return np.where(classes[places] == values, places, -1)


def with_labels(classes: Labels, values: Labels) -> Labels:
    """Return sorted classes with labels of the same type added."""
    if (find(values, classes) >= 0).all():
        return classes
    if not classes.size:
        return canonical(np.unique(values))
    return canonical(np.union1d(*aligned(classes, values)))
