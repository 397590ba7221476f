"""Snapshots of models, so that one thread can read while another one learns.

A model of this package replaces its learned state in one operation and never changes it in place. A
shallow copy is therefore consistent: public methods take one first and read nothing else.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

Estimator = TypeVar("Estimator")


def snapshot(estimator: Estimator) -> Estimator:
    """Return a shallow copy of an estimator, which later updates do not change."""
    copied = object.__new__(type(estimator))
    copied.__dict__.update(estimator.__dict__)  # one atomic operation
    return copied


def copy_to_fit(estimator: Any) -> Any:
    """Return a copy that can learn without changing the estimator.

    The copy is shallow for models of this package, and deep for all others.
    """
    return snapshot(estimator) if hasattr(estimator, "_snapshot") else deepcopy(estimator)
