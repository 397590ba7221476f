"""Base kernels: what similarity means before any data has been seen."""

from __future__ import annotations

from collections.abc import Callable

from seqmed.kernels.bounded import ComputedGram, blocks, evaluate
from seqmed.kernels.counts import DCMFisher, TfIdf
from seqmed.kernels.given import FromFunction, Precomputed
from seqmed.kernels.protocol import Expansion, Kernel
from seqmed.kernels.vectors import RBF, Linear, Polynomial, linear_weights

NAMES = ("rbf", "linear", "poly", "tfidf", "dcm", "precomputed")


def make_kernel(
    kernel: str | Kernel | Callable, gamma: float | str, degree: int, coef0: float
) -> Kernel:
    """Return the kernel object that an estimator's parameters describe.

    "precomputed" is not among them: it comes with a matrix, `Precomputed`.
    """
    if kernel == "rbf":
        return RBF(gamma)
    if kernel == "linear":
        return Linear()
    if kernel == "poly":
        return Polynomial(gamma, degree, coef0)
    if kernel == "tfidf":
        return TfIdf()
    if kernel == "dcm":
        return DCMFisher()
    if isinstance(kernel, Kernel) and not isinstance(kernel, type):
        return kernel
    if callable(kernel) and not isinstance(kernel, type) and not hasattr(kernel, "freeze"):
        return FromFunction(kernel)
    raise ValueError(
        f"kernel={kernel!r}: expected one of {NAMES}, a function of two sets of rows, or an object "
        "with all methods of seqmed.kernels.Kernel; a class must be called first."
    )


__all__ = [
    "NAMES", "RBF", "ComputedGram", "DCMFisher", "Expansion", "FromFunction", "Kernel", "Linear",
    "Polynomial", "Precomputed", "TfIdf", "blocks", "evaluate", "linear_weights", "make_kernel",
]  # fmt: skip
