"""Sizes and ranges of arrays and numbers, written as short texts and checked.

A text has the sizes of the axes by name or number, then "inf" if infinities are allowed, "nan" if
NaN is too, or "any" for values that need not be numbers, then bounds:

- ``"n machines"``: a finite array of two axes;
- ``"n > 0"``: a finite array of one axis, all values positive;
- ``"m inf >= 0"``: an array of one axis, without NaN and not negative;
- ``">= 0 <= 1"``: a number from 0 to 1;
- ``"heat | binary"``: one of these words.

A size that has a name is the same wherever the name stands.
"""

from __future__ import annotations

import operator
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
ALLOWED = ("inf", "nan", "any")


class Constraint(NamedTuple):
    """A text, taken apart.

    Attributes
    ----------
    axes : the size of every axis, a name or a number.
    allowed : "inf", "nan", "any", or "" if all values are finite numbers.
    bounds : operators and the numbers they compare with.
    """

    axes: list[str]
    allowed: str
    bounds: list[tuple[str, float]]


@cache
def parsed(text: str) -> Constraint:
    """Return the constraint that a text describes."""
    words = text.split()
    axes = list(takewhile(lambda word: word not in (*ALLOWED, *OPERATORS), words))
    rest = words[len(axes) :]
    allowed = rest.pop(0) if rest and rest[0] in ALLOWED else ""
    bounds = [(sign, float(end)) for sign, end in zip(rest[::2], rest[1::2], strict=True)]
    return Constraint(axes, allowed, bounds)


def check(title: str, value: Any, text: str, sizes: dict[str, int]) -> None:
    """Refuse a value that does not satisfy a constraint.

    Parameters
    ----------
    title : names the value in errors.
    value : array, dense or CSR, number or word.
    text : the constraint.
    sizes : those known by name. Others that the value has are added.
    """
    if "|" in text:
        if value not in text.split(" | "):
            raise ValueError(f"{title} is {value!r}, expected {text}")
        return
    constraint = parsed(text)
    if np.ndim(value) != len(constraint.axes):
        raise ValueError(f"{title} has {np.ndim(value)} axes, expected {len(constraint.axes)}")
    for size, axis in zip(np.shape(value), constraint.axes, strict=True):
        wanted = int(axis) if axis.isdigit() else sizes.setdefault(axis, size)
        if size != wanted:
            shape = " by ".join(constraint.axes) + ("" if axis.isdigit() else f", {axis}={wanted}")
            raise ValueError(f"{title} has the shape {value.shape}, expected {shape}")
    if constraint.allowed != "any":
        check_values(title, np.asarray(value.data if sp.issparse(value) else value), constraint)


def check_values(title: str, values: Any, constraint: Constraint) -> None:
    """Refuse what is no number, or out of range."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{title} is of type {values.dtype}, expected numbers")
    if constraint.allowed == "inf" and np.isnan(values).any():
        raise ValueError(f"{title} holds NaN, expected numbers")
    if constraint.allowed == "" and not np.isfinite(values).all():
        raise ValueError(f"{title} holds NaN or infinity, expected finite numbers")
    for sign, end in constraint.bounds:
        outside = ~OPERATORS[sign](values, end)
        if outside.any():
            first = values[outside].flat[0]
            raise ValueError(f"{title} holds {first}, expected numbers {sign} {end:g}")
