"""Records of a model with a part changed."""

from __future__ import annotations

import dataclasses


def altered(value, path, change):
    """Return a record, tuple or dictionary with the part at the end of a path changed."""
    if not path:
        return change(value) if callable(change) else change
    name, *rest = path
    if isinstance(value, dict):
        return {**value, name: altered(value[name], rest, change)}
    if name.isdigit():
        parts = list(value)
        parts[int(name)] = altered(parts[int(name)], rest, change)
        return type(value)(parts)
    part = altered(getattr(value, name), rest, change)
    if hasattr(value, "_replace"):
        return value._replace(**{name: part})
    return dataclasses.replace(value, **{name: part})


def put(number, place=0):
    """Return a change that puts a number into an array."""

    def change(array):
        changed = array.copy()
        changed.flat[place] = number
        return changed

    return change


def without_last(array):
    return array[:-1]
