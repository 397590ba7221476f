"""The covariance, and the recursions that update it batch by batch."""

from __future__ import annotations

from collections.abc import Callable

from seqmed.kernels import Kernel
from seqmed.margin.covariance.exact import ExactRecursion, LowRankCovariance, Recursion
from seqmed.margin.covariance.landmarks import LandmarkRecursion
from seqmed.margin.covariance.spectral import SpectralRecursion

# Recursions by name, each made from the base kernel's covariance, a number of landmarks and a seed.
RECURSIONS: dict[str, Callable[[LowRankCovariance, int, int], Recursion]] = {
    "landmarks": LandmarkRecursion,
    "exact": lambda covariance, n_landmarks, seed: ExactRecursion(covariance),
    "spectral": lambda covariance, n_landmarks, seed: SpectralRecursion(covariance),
}


def make_recursion(
    name: str, kernel: Kernel, *, n_landmarks: int = 500, seed: int = 0
) -> Recursion:
    """Return the named recursion before the first batch, when the covariance is the base kernel."""
    return RECURSIONS[name](LowRankCovariance(kernel), n_landmarks, seed)
