"""Factors and symmetric products; large ones are computed in one thread."""

from __future__ import annotations

import ast
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from scipy import linalg

import seqmed
from seqmed.margin.covariance import exact, landmarks
from seqmed.numeric import factors


def semidefinite(n, rank, seed=0):
    """Return a positive semi-definite matrix (n, n) of some rank."""
    rows = np.random.default_rng(seed).normal(size=(n, rank))
    return rows @ rows.T


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_symmetric_products(dtype):
    rows = np.random.default_rng(2).normal(size=(37, 3)).astype(dtype)
    found = factors.symmetric_product(rows)
    assert found.dtype == dtype
    assert np.array_equal(found, found.T)


CALLED = [
    (linalg, "cholesky"), (exact, "eigh"), (landmarks, "eigh"),
    (factors, "dpotrf"), (factors, "dpstrf"), (landmarks, "dpotrf"), (landmarks, "dpstrf"),
]  # fmt: skip


@pytest.mark.parametrize("n", [12, 13])
def test_large_matrices_are_factored_in_one_thread(n, monkeypatch):
    monkeypatch.setattr(factors, "LARGEST", 12)
    limits, calls = [False], []

    @contextmanager
    def one_thread(wanted):
        limits.append(wanted)
        yield
        limits.pop()

    def watched(function):
        def call(*arguments, **named):
            calls.append(limits[-1])
            return function(*arguments, **named)

        return call

    monkeypatch.setattr(factors, "one_thread", one_thread)
    for module, name in CALLED:
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    indefinite = -np.eye(n)
    factors.semidefinite_factor(semidefinite(n, 5))
    landmarks.whiten_gram(semidefinite(n, 5))
    exact.reduction_factor(3.0 * np.eye(n), indefinite)
    with np.errstate(invalid="ignore"):
        landmarks.reduced(np.eye(n), indefinite, -2.0)
    assert calls == [n > 12] * len(calls)
    assert len(calls) == 8
    assert factors.symmetric_product(np.ones((n, 1))).shape == (n, n)


# Modules that call LAPACK or BLAS by name, and what bounds the size of their calls.
KNOWN = {
    "graph.propagation": "cg, which multiplies by a sparse matrix and calls no factorisation",
    "graph.metrics": "randomized_svd of a few columns",
    "margin.covariance.exact": "LARGEST",
    "margin.covariance.landmarks": "LARGEST",
    "margin.covariance.spectral": "svd of (n, p) rows, which has no symmetric product",
    "margin.dual.interior_point": "LARGEST_WORK: at most 1000 columns",
    "numeric.factors": "LARGEST; dtrmm, dtrmv, strmm do not crash; dtrtri is SMALL_TRIANGLE",
    "uncertainty": "solve_triangular, which does not crash",
}


def test_all_calls_of_lapack_are_known():
    """A new one has to say what bounds it."""
    root, found = Path(seqmed.__file__).parent, set()
    for path in root.rglob("*.py"):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = {each.name for each in node.names} - {"LinAlgError", "block_diag", "bandwidth"}
            module = getattr(node, "module", None) or ""
            if module.startswith("seqmed"):
                continue
            if names and ("linalg" in f"{module} {names}" or "randomized_svd" in names):
                found.add(name)
    assert found == set(KNOWN)
