"""Transformers of a stream: frozen after the first batch, or incremental."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.pipeline import Pipeline

Steps: TypeAlias = list[tuple[str, Any]]


def is_passing(step: Any) -> bool:
    """Whether a step of a pipeline is "passthrough" or None."""
    return step is None or (isinstance(step, str) and step == "passthrough")


def transformed(steps: Steps, X: Any) -> Any:
    """Return rows transformed by fitted transformers."""
    for _, step in steps:
        X = X if is_passing(step) else step.transform(X)
    return X


def learn_and_transform(
    steps: Steps, incremental: Sequence[str], X: Any, y: ArrayLike | None, *, first: bool
) -> tuple[Steps, Any]:
    """Return the transformers after a batch, and the transformed batch.

    Copies of the transformers learn: all transformers from the ``first`` batch, later only those
    named in ``incremental``.
    """
    learned = []
    for name, step in steps:
        if not is_passing(step):
            if name in incremental:
                step = clone(step) if first else deepcopy(step)
                step.partial_fit(X, y)
                X = step.transform(X)
            elif first:
                step, X = fitted(step, X, y)
            else:
                X = step.transform(X)
        learned.append((name, step))
    return learned, X


def check_incremental(steps: Steps, incremental: Sequence[str]) -> None:
    """Refuse names that are not those of transformers with `partial_fit`."""
    transformers = dict(steps)
    for name in incremental:
        if name not in transformers:
            raise ValueError(
                f"incremental contains {name!r}, expected names of transformers, among "
                f"{list(transformers)}: correct the name, or leave it out. The final step "
                "always learns."
            )
        step = transformers[name]
        if not is_passing(step) and not hasattr(step, "partial_fit"):
            raise ValueError(
                f"incremental contains {name!r}, which is {step!r}, expected a transformer "
                "with partial_fit: leave it out to freeze it after the first batch, or use "
                "another transformer."
            )


def fitted(step: Any, X: Any, y: ArrayLike | None) -> tuple[Any, Any]:
    """Return a clone of a transformer, fitted to a batch, and the transformed batch."""
    step = clone(step)
    if hasattr(step, "fit_transform"):
        return step, step.fit_transform(X, y)
    step.fit(X, y)
    return step, step.transform(X)


def feature_names(steps: Steps, width: int) -> tuple[str, ...] | None:
    """Return the names of the features after fitted transformers, None without names."""
    try:  # transformers without feature names raise one of these errors
        names = Pipeline([*steps, ("last", "passthrough")]).get_feature_names_out()
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None
    return tuple(map(str, names)) if names is not None and len(names) == width else None
