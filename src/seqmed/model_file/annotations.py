"""Checks of values by annotations and constraints.

A record is a frozen dataclass or a named tuple. The annotations of a record name the classes of its
nested records. If an annotation is a protocol, the classes registered for it are allowed.

A constraint is a short text on an array or a number. It has three parts, which may be empty. The
first part gives the size of each axis, as a name or a number. The second part is "inf" if infinity
is allowed, "nan" if NaN and infinity are allowed, or "any" for values of any type. The third part
gives bounds. Sizes of the same name must be equal.

- ``"n machines"``: a finite array of two axes;
- ``"n > 0"``: a finite array of one axis, all values positive;
- ``"m inf >= 0"``: an array of one axis, without NaN and not negative;
- ``">= 0 <= 1"``: a number from 0 to 1;
- ``"heat | binary"``: one of these words.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import takewhile
from numbers import Integral
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import scipy.sparse as sp

from seqmed import covariance, kernels
from seqmed.covariance.protocol import Recursion
from seqmed.graph.kept_rows import KeptRows
from seqmed.graph.metrics import Cosine, Euclidean, KernelDistance, Metric
from seqmed.mixture.margin_expert import MarginExpert
from seqmed.mixture.own_expert import OwnExpert
from seqmed.mixture.refitted import REFITTED, RefittedExpert
from seqmed.model_file.saved_rows import SavedRows


def kernel_classes() -> tuple[type, ...]:
    """Return the classes of all kernels."""
    made = (type(make(1.0, 1, 1.0)) for make in kernels.KERNELS.values())
    return (*made, kernels.Precomputed)


def recursion_classes() -> tuple[type, ...]:
    """Return the classes of all recursions."""
    kernel = kernels.Linear()
    named = (type(covariance.make_recursion(name, kernel)) for name in covariance.RECURSIONS)
    return (*named, covariance.NystroemRecursion)


def refitted_classes() -> tuple[type, ...]:
    """Return the classes of all refitted experts."""
    return tuple(type(make()) for make in REFITTED)


# The classes that an annotation by a protocol allows.
INTERFACES: dict[Any, Callable[[], tuple[type, ...]]] = {
    kernels.Kernel: kernel_classes,
    Recursion: recursion_classes,
    Metric: lambda: (Euclidean, Cosine, KernelDistance),
    MarginExpert: lambda: (OwnExpert,),
    RefittedExpert: refitted_classes,
}
# Classes that are stored as others.
WRITTEN_AS: dict[Any, Any] = {KeptRows: SavedRows}
type_hints = cache(get_type_hints)


def record_classes(hints: tuple[Any, ...]) -> dict[str, Any]:
    """Return the record classes that annotations allow, and those of their fields, by name."""
    registered = (kind for known in INTERFACES.values() for kind in known())
    return reachable((*hints, *registered))


@cache
def reachable(hints: tuple[Any, ...]) -> dict[str, Any]:
    """Return the record classes in annotations, and those of their fields, by name."""
    found: dict[str, Any] = {}
    pending = list(hints)
    while pending:
        hint = pending.pop()
        kind = WRITTEN_AS.get(hint, hint) if isinstance(hint, type) else hint
        pending += get_args(kind)
        if is_record(kind) and kind.__name__ not in found:
            found[kind.__name__] = kind
            pending += field_types(kind).values()
    return found


def is_record(kind: Any) -> bool:
    """Whether a class is a dataclass or a named tuple."""
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields"))


def field_types(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a record by name."""
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else kind._fields
    return {name: type_hints(kind)[name] for name in names}


def field_values(record: Any) -> dict[str, Any]:
    """Return the fields of a record by name."""
    return {name: getattr(record, name) for name in field_types(type(record))}


def parts_of(value: Any) -> Iterator[Any]:
    """Yield all records within a record or a tuple, and then the record itself."""
    value = as_written(value)
    if type(value) is tuple:
        for part in value:
            yield from parts_of(part)
    elif is_record(type(value)):
        for part in field_values(value).values():
            yield from parts_of(part)
        yield value


def as_written(value: Any) -> Any:
    """Return a value as it is stored: some values are stored as another record."""
    kind = WRITTEN_AS.get(type(value))
    return value if kind is None else kind.of(value)


def check_fields(given: Any, types: dict[str, Any], what: str, optional: Any = ()) -> None:
    """Refuse fields that are unknown, missing or not of their types."""
    if not isinstance(given, dict):
        raise ValueError(f"a {what} is a {type(given).__name__}, expected parts by name")
    strange, missing = given.keys() - types.keys(), types.keys() - set(optional) - given.keys()
    if strange or missing:
        parts = f"unknown: {sorted(strange)}; missing: {sorted(missing)}"
        raise ValueError(f"the parts of a {what} are not those expected ({parts})")
    for name, value in given.items():
        if not of_type(value, types[name]):
            got = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
            raise ValueError(f"{name} of a {what} is a {got}, expected {types[name]}")


def of_type(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; in records, Any means rows of data."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return isinstance(value, np.ndarray) or sp.issparse(value)
    if origin in (Union, UnionType):
        return any(of_type(value, each) for each in arguments)
    if origin is np.ndarray:
        (scalar,) = get_args(arguments[1])
        return isinstance(value, np.ndarray) and (scalar is Any or value.dtype == scalar)
    if origin is tuple:
        if type(value) is not tuple:
            return False
        if arguments[-1] is Ellipsis:
            return all(of_type(each, arguments[0]) for each in value)
        return len(value) == len(arguments) and all(map(of_type, value, arguments))
    if hint is int:  # of 64 bits, so that it can be a size
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        return whole and -(2**63) <= value < 2**63
    if hint is float:
        return isinstance(value, float | np.floating) or of_type(value, int)
    return isinstance(value, INTERFACES[hint]() if hint in INTERFACES else origin or hint)


# -- constraints ----------------------------------------------------------------------------------

OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
ALLOWED = ("inf", "nan", "any")


@cache
def parsed(text: str) -> tuple[list[str], str, list[tuple[str, float]]]:
    """Return the three parts of a constraint."""
    words = text.split()
    axes = list(takewhile(lambda word: word not in (*ALLOWED, *OPERATORS), words))
    rest = words[len(axes) :]
    allowed = rest.pop(0) if rest and rest[0] in ALLOWED else ""
    bounds = [(sign, float(end)) for sign, end in zip(rest[::2], rest[1::2], strict=True)]
    return axes, allowed, bounds


def check(title: str, value: Any, text: str, sizes: dict[str, int]) -> None:
    """Refuse a value that does not satisfy a constraint.

    Parameters
    ----------
    title : name of the value in errors.
    value : array, dense or CSR, number or word.
    text : the constraint.
    sizes : known sizes by name; other sizes of the value are added.
    """
    if "|" in text:
        if value not in text.split(" | "):
            raise ValueError(f"{title} is {value!r}, expected {text}")
        return
    axes, allowed, bounds = parsed(text)
    if np.ndim(value) != len(axes):
        raise ValueError(f"{title} has {np.ndim(value)} axes, expected {len(axes)}")
    for size, axis in zip(np.shape(value), axes, strict=True):
        wanted = int(axis) if axis.isdigit() else sizes.setdefault(axis, size)
        if size != wanted:
            shape = " by ".join(axes) + ("" if axis.isdigit() else f", {axis}={wanted}")
            raise ValueError(f"{title} has the shape {value.shape}, expected {shape}")
    if allowed == "any":
        return
    values = np.asarray(value.data if sp.issparse(value) else value)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{title} is of type {values.dtype}, expected numbers")
    if allowed == "inf" and np.isnan(values).any():
        raise ValueError(f"{title} holds NaN, expected numbers")
    if allowed == "" and not np.isfinite(values).all():
        raise ValueError(f"{title} holds NaN or infinity, expected finite numbers")
    for sign, end in bounds:
        outside = ~OPERATORS[sign](values, end)
        if outside.any():
            first = values[outside].flat[0]
            raise ValueError(f"{title} holds {first}, expected numbers {sign} {end:g}")
