"""Ways to carry the covariance from batch to batch, one interface."""

from __future__ import annotations

from seqmed.kernels import Kernel
from seqmed.posterior import Covariance, Recursion
from seqmed.recursion.exact import ExactRecursion
from seqmed.recursion.landmarks import LandmarkRecursion
from seqmed.recursion.span import SpanRecursion
from seqmed.recursion.spectral import SpectralRecursion

NAMES = ("landmarks", "exact", "spectral")


def begin(name: str, kernel: Kernel, *, n_landmarks: int = 500, seed: int = 0) -> Recursion:
    """Return the named recursion before any batch: the base kernel is the covariance."""
    covariance = Covariance(kernel)
    if name == "landmarks":
        return LandmarkRecursion(covariance, n_landmarks, seed)
    if name == "spectral":
        return SpectralRecursion(covariance)
    if name == "exact":
        return ExactRecursion(covariance)
    raise ValueError(f"recursion={name!r}: expected one of {NAMES}.")


__all__ = [
    "NAMES",
    "ExactRecursion",
    "LandmarkRecursion",
    "SpanRecursion",
    "SpectralRecursion",
    "begin",
]
