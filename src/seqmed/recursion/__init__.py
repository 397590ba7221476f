"""Ways to carry the covariance from batch to batch, one interface."""

from __future__ import annotations

from seqmed.kernels import Kernel
from seqmed.posterior import Covariance, Recursion
from seqmed.recursion.continuity import ContinuousRecursion
from seqmed.recursion.exact import ExactRecursion
from seqmed.recursion.landmarks import LandmarkRecursion
from seqmed.recursion.span import SpanRecursion
from seqmed.recursion.spectral import SpectralRecursion

NAMES = ("landmarks", "exact", "spectral")


def begin(
    name: str,
    kernel: Kernel,
    *,
    n_landmarks: int = 500,
    graph_memory: int = 0,
    graph_commit: float = 0.0,
    seed: int = 0,
) -> Recursion:
    """Return the named recursion before any batch: the base kernel is the covariance.

    Landmarks with a graph memory are points kept from batch to batch, to which new ones are linked.
    """
    covariance = Covariance(kernel)
    if name == "landmarks" and graph_memory:
        return ContinuousRecursion(covariance, graph_memory, graph_commit, seed)
    if name == "landmarks":
        return LandmarkRecursion(covariance, n_landmarks, seed)
    if name == "spectral":
        return SpectralRecursion(covariance)
    if name == "exact":
        return ExactRecursion(covariance)
    raise ValueError(f"recursion={name!r}: expected one of {NAMES}.")


__all__ = [
    "NAMES",
    "ContinuousRecursion",
    "ExactRecursion",
    "LandmarkRecursion",
    "SpanRecursion",
    "SpectralRecursion",
    "begin",
]
