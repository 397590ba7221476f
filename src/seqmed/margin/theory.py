"""Theorems 1 and 2 of the paper as equations.

These functions are slow, dense and literal. Nothing in the package calls them. Every fast path
names the one it computes, and the tests compare the two. Hou and Hero, "Sequential Maximum Margin
Classifiers for Partially Labeled Data", ICASSP 2018.

Notation: K is a kernel matrix, and y are the labels -1 or +1. The labeled rows have Lagrange
multipliers a with bounds C. L is the graph Laplacian of a batch, and beta is its weight.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from seqmed.numeric.arrays import Array

Kernel = Callable[[Array, Array], Array]


# -- Theorem 1: the posterior given the labels of a batch ------------------------------------------


def dual_objective(
    a: Array, y: Array, K: Array, prior_mean: Array, C: Array, slack_shape: float = 1.0
) -> float:
    """Return the dual of one update, to be maximised over ``a >= 0`` with ``y'a = 0``.

    -1/2 a'YKYa + a'(1 - Y m) + eps sum_i log(1 - a_i / C_i), with Y = diag(y) and m the prior mean
    at the labeled rows. The slack shape eps is 1 in the paper; 0 is the support vector machine.
    The fast path is `seqmed.margin.dual`.
    """
    margin = a @ (1.0 - y * prior_mean) - 0.5 * (y * a) @ K @ (y * a)
    return float(margin + slack_shape * np.log(1.0 - a / C).sum() if slack_shape else margin)


def posterior_mean(k: Kernel, x: Array, X: Array, y: Array, a: Array, b: float) -> Array:
    """Return m(x) + b, with ``m(x) = k_t(x, X) Y a`` over the labeled rows X of all batches so far.

    The sum has the multipliers of every batch, but only the newest kernel k_t. The fast path is
    `seqmed.margin.posterior.Posterior.mean`.
    """
    return k(x, X) @ (y * a) + b


# -- Theorem 2: the covariance given the smoothness of a batch -------------------------------------


def smoothed_kernel(k: Kernel, X: Array, L: Array, beta: float) -> Kernel:
    """Return the kernel after one batch of rows X, labeled or not.

    k_t(x, x') = k(x, x') - k(x, X) S k(X, x'), with S = (I + 2 beta L K)^{-1} 2 beta L and
    K = k(X, X). The paper writes S with the inverse of L, which is singular; this form is equal if
    the inverse exists. The fast paths are in `seqmed.margin.covariance`.
    """
    P = 2.0 * beta * L
    S = np.linalg.inv(np.eye(len(X)) + P @ k(X, X)) @ P
    return lambda x, z: k(x, z) - k(x, X) @ S @ k(X, z)
