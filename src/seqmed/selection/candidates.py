"""Construction of the candidates of a search, and helpers for their labels and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from seqmed.arrays import Array, Mask
from seqmed.labels import split_labels


def make_candidates(estimator: Any, grid: list[dict[str, Any]]) -> list[Any]:
    """Return one candidate per combination of parameters; all candidates have the same seeds."""
    base = clone(estimator)
    base.set_params(**common_seeds(base))
    return [clone(base).set_params(**clone_values(parameters)) for parameters in grid]


def common_seeds(estimator: Any) -> dict[str, int]:
    """Return a seed for every ``random_state`` that is None.

    With the same seeds, candidates keep the same points and can share computations on them.
    """
    names = (name for name in estimator.get_params() if name.endswith("random_state"))
    unset = [name for name in names if estimator.get_params()[name] is None]
    draw = check_random_state(None).randint
    return {name: int(draw(np.iinfo(np.int32).max)) for name in unset}


def clone_values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with clones of all estimators, so that candidates share none."""
    return {name: clone(value, safe=False) for name, value in parameters.items()}


def can_predict(candidate: Any) -> bool:
    """Whether a candidate has learned a label."""
    final = getattr(candidate, "_final_estimator", candidate)
    fitted = np.size(getattr(final, "classes_", ())) > 0  # for estimators of other packages
    return bool(getattr(final, "_has_labels", fitted))


def labels_of(
    estimator: Any, y: ArrayLike, known: NDArray[Any] | None, *, alone: bool = False
) -> tuple[Mask, NDArray[Any]]:
    """Return the mask of labeled rows and their labels, by the conventions of an estimator."""
    final = getattr(estimator, "_final_estimator", estimator)
    if hasattr(final, "_split_labels"):
        labeled, labels = final._split_labels(y, known, alone=alone)
        return labeled, labels
    return split_labels(y, None, known=known)


def row_weights(sample_weight: ArrayLike, n_rows: int) -> Array:
    """Return the weight of every row, (n,); a single number applies to all rows."""
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        return np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has shape {weights.shape}, expected ({n_rows},): pass one weight for "
            "every row."
        )
    return weights
