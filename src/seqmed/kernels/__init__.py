"""Base kernels: the prior covariance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqmed.kernels.on_vectors import (
    RBF,
    ByFormat,
    Expansion,
    Kernel,
    Linear,
    Polynomial,
    Sums,
    blocks,
    evaluate,
    linear_weights,
    squared_distances,
)
from seqmed.kernels.special import FromFunction, Precomputed, TfIdf

# Kernels by name, each made from gamma, degree and coef0.
KERNELS: dict[str, Callable[[float | str, int, float], Kernel]] = {
    "rbf": lambda gamma, degree, coef0: RBF(gamma),
    "linear": lambda gamma, degree, coef0: Linear(),
    "poly": Polynomial,
    "tfidf": lambda gamma, degree, coef0: TfIdf(),
}
# Names of kernels that depend on the rows.
SPECIAL = ("auto", "precomputed")


def make_kernel(
    kernel: str | Kernel | Callable[[Any, Any], Any], gamma: float | str, degree: int, coef0: float
) -> Kernel:
    """Return the kernel object for the parameters of an estimator; not for "precomputed"."""
    if isinstance(kernel, str) and kernel == "auto":
        return ByFormat(gamma)
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel](gamma, degree, coef0)
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel) and not isinstance(kernel, type) and not hasattr(kernel, "freeze"):
        return FromFunction(kernel)
    raise ValueError(
        f"kernel={kernel!r}, expected one of {(*KERNELS, *SPECIAL)}, a function of two sets of "
        "rows, or an instance of a subclass of seqmed.kernels.Kernel: pass one of these. Pass an "
        "instance of a kernel class, not the class."
    )


__all__ = [
    "KERNELS", "RBF", "SPECIAL", "ByFormat", "Expansion",
    "FromFunction", "Kernel", "Linear", "Polynomial", "Precomputed", "Sums", "TfIdf", "blocks",
    "evaluate", "linear_weights", "make_kernel", "squared_distances",
]  # fmt: skip
