"""The kinds of margin experts, and which estimators they apply to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator

from seqmed.mixture.margin_expert import MarginExpert
from seqmed.mixture.partial_fit_expert import partial_fit_expert
from seqmed.mixture.sequential_expert import is_sequential, sequential_expert

# Kinds of experts; the first one that applies to the estimator is used.
EXPERTS: list[tuple[Callable[[Any], bool], Callable[[Any], MarginExpert]]] = [
    (is_sequential, sequential_expert),
    (lambda estimator: True, partial_fit_expert),
]


def make_expert(estimator: BaseEstimator) -> MarginExpert:
    """Return the expert of an estimator; the estimator is cloned, without its fitted state."""
    return next(make(estimator) for applies, make in EXPERTS if applies(estimator))
