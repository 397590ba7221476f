"""Sparse rows in other than canonical form."""

import numpy as np
import scipy.sparse as sp


def unsorted(points):
    """The same rows in CSR with indices out of order and with stored zeros."""
    n, p = points.shape
    indices = np.tile(np.arange(p)[::-1], n)
    return sp.csr_array((points[:, ::-1].ravel(), indices, p * np.arange(n + 1)), shape=(n, p))


def in_parts(points):
    """The same rows in CSR, every entry the sum of two stored ones."""
    n, p = points.shape
    first = np.floor(points / 2)
    data = np.hstack([first, points - first]).ravel()
    indices = np.tile(np.arange(p), 2 * n)
    return sp.csr_array((data, indices, 2 * p * np.arange(n + 1)), shape=(n, p))
