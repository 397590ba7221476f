"""Types of records by their annotations.

A record is a frozen dataclass or a named tuple. The annotations of a record name the classes of its
nested records. If an annotation is a protocol, the classes registered for it are allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import scipy.sparse as sp

# The classes that an annotation by a protocol allows.
INTERFACES: dict[Any, Callable[[], tuple[type, ...]]] = {}
type_hints = cache(get_type_hints)


@cache
def reachable(hints: tuple[Any, ...]) -> dict[str, Any]:
    """Return the record classes in annotations, and those of their fields, by name."""
    found: dict[str, Any] = {}
    pending = list(hints)
    while pending:
        hint = pending.pop()
        pending += get_args(hint)
        if is_record(hint) and hint.__name__ not in found:
            found[hint.__name__] = hint
            pending += field_types(hint).values()
    return found


def is_record(kind: Any) -> bool:
    """Whether a class is a dataclass or a named tuple."""
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields"))


def field_types(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a record by name."""
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else kind._fields
    return {name: type_hints(kind)[name] for name in names}


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


def written_out(hint: Any) -> Any:
    """Return the type that an alias stands for. From numpy 2.5 on, NDArray is an alias."""
    while hasattr(hint, "__value__"):
        parameters, meant = hint.__type_params__, hint.__value__
        given = dict(zip(parameters, get_args(hint), strict=True))
        hint = meant[tuple(given[each] for each in meant.__parameters__)] if given else meant
    return hint


def of_type(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; in records, Any means rows of data, (n, p)."""
    hint = written_out(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        array = isinstance(value, np.ndarray) or sp.issparse(value)
        return array and value.ndim == 2 and value.dtype.kind in "fi"
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
