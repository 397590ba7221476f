"""Constraints on arrays and numbers.

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
from functools import cache
from itertools import takewhile
from typing import Any

import numpy as np
import scipy.sparse as sp

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
