"""Cholesky factors and symmetric products by blocks; nothing larger is factored in one call."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from scipy import linalg
from scipy.linalg import LinAlgError, lapack

import seqmed
from seqmed import SeqGraphMED, SeqLapMED, SeqMED
from seqmed.margin.covariance import exact, landmarks
from seqmed.numeric import factors
from seqmed.selection.queries import query

SIZES = [0, 1, 5, 12, 13, 20, 37, 64]


@pytest.fixture
def small_blocks(monkeypatch):
    """Let everything beyond 12 rows be done by blocks."""
    monkeypatch.setattr(factors, "LARGEST", 12)
    monkeypatch.setattr(factors, "BLOCK", 7)
    monkeypatch.setattr(factors, "PANEL", 5)


def semidefinite(n, rank, seed=0):
    """Return a positive semi-definite matrix (n, n) of some rank."""
    rows = np.random.default_rng(seed).normal(size=(n, rank))
    return rows @ rows.T


@pytest.mark.parametrize("n", SIZES)
def test_cholesky_is_scipys(n, small_blocks):
    matrix = semidefinite(n, n + 3) + np.eye(n)
    before = matrix.copy()
    np.testing.assert_allclose(
        factors.cholesky(matrix), linalg.cholesky(matrix, lower=True), rtol=1e-10, atol=1e-12
    )
    assert np.array_equal(matrix, before)


@pytest.mark.parametrize("place", [0, 6, 7, 19, 36])
def test_cholesky_refuses_a_matrix_that_is_not_positive_definite(place, small_blocks):
    matrix = np.eye(37)
    matrix[place, place] = -1.0
    with pytest.raises(LinAlgError):
        factors.cholesky(matrix)


@pytest.mark.parametrize("n", SIZES)
def test_solve_lower_is_scipys(n, small_blocks):
    generator = np.random.default_rng(1)
    lower = np.tril(generator.normal(size=(n, n))) + 5.0 * np.eye(n)
    values = generator.normal(size=(n, 4))
    expected = linalg.solve_triangular(lower, values, lower=True)
    np.testing.assert_allclose(factors.solve_lower(lower, values), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", SIZES)
def test_symmetric_products(n, dtype, small_blocks):
    rows = np.random.default_rng(2).normal(size=(n, 3)).astype(dtype)
    found = factors.symmetric_product(rows)
    assert found.dtype == dtype
    assert np.array_equal(found, found.T)
    np.testing.assert_allclose(found, rows @ rows.T, rtol=1e-5 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize(("n", "rank"), [(13, 13), (20, 4), (37, 36), (37, 6), (64, 1), (20, 0)])
def test_pivoted_cholesky_finds_the_rank(n, rank, small_blocks):
    matrix = semidefinite(n, rank)
    lower, order = factors.pivoted_cholesky(matrix)
    assert lower.shape == (n, rank)
    assert np.array_equal(np.sort(order), np.arange(n))
    np.testing.assert_allclose(lower @ lower.T, matrix[np.ix_(order, order)], atol=1e-10)
    pivots = np.diagonal(lower)
    assert (np.diff(pivots) <= 1e-12).all()
    assert (pivots > 0).all()


def test_pivots_are_those_of_lapack(small_blocks):
    matrix = semidefinite(37, 20)
    _, pivots, rank, _ = lapack.dpstrf(matrix, lower=1)
    _, order = factors.pivoted_cholesky(matrix)
    assert np.array_equal(order[:rank], pivots[:rank] - 1)


@pytest.mark.parametrize("rank", [10, 37])
def test_factors_of_larger_matrices(rank, small_blocks):
    matrix = semidefinite(37, rank)
    factor = factors.semidefinite_factor(matrix)
    assert factor.shape == (37, rank)
    np.testing.assert_allclose(factor @ factor.T, matrix, atol=1e-10)
    whitening = landmarks.whiten_gram(matrix)
    np.testing.assert_allclose(
        np.linalg.eigvalsh(whitening.T @ matrix @ whitening)[-rank:], 1.0, atol=1e-7
    )


def test_an_indefinite_kernel_beyond_the_largest_size_is_refused(small_blocks):
    with pytest.raises(ValueError, match="not positive semi-definite"):
        exact.reduction_factor(3.0 * np.eye(20), -np.eye(20))


# -- whole models ----------------------------------------------------------------------------------

POINTS = np.random.default_rng(3).normal(size=(60, 4))
LABELS = np.where(np.arange(60) % 3, -1, (POINTS[:, 0] > 0) + 0)
MODELS = {
    "landmarks": lambda: SeqLapMED(n_landmarks=30, random_state=0),
    "landmarks-forgetting": lambda: SeqLapMED(n_landmarks=30, forgetting=0.9, random_state=0),
    "exact": lambda: SeqLapMED(recursion="exact"),
    "exact-forgetting": lambda: SeqLapMED(recursion="exact", forgetting=0.9),
    "spectral": lambda: SeqLapMED(recursion="spectral"),
    "polynomial": lambda: SeqLapMED("poly", recursion="exact", coef0=1.0),
    "linear": lambda: SeqLapMED("linear", random_state=0),
    "SeqMED": SeqMED,
    "SeqMED-linear": lambda: SeqMED("linear"),
    "SeqMED-budget": lambda: SeqMED(budget=50, random_state=0),
    "SeqGraphMED": lambda: SeqGraphMED(SeqLapMED(random_state=0), random_state=0),
}


CALLED = [
    (linalg, "cholesky"), (linalg, "solve_triangular"), (exact, "eigh"),
    (factors, "dpotrf"), (factors, "dpstrf"), (landmarks, "dpotrf"), (landmarks, "dpstrf"),
]  # fmt: skip


def answers(name):
    """Return scores and chosen rows of a model after three batches."""
    model = MODELS[name]()
    model.set_params(**{each: 1e-9 for each in model.get_params() if each.endswith("tol")})
    for start in range(0, 60, 20):
        rows = slice(start, start + 20)
        labels = LABELS[rows]
        keep = labels >= 0 if type(model) is SeqMED else labels >= -1
        model.partial_fit(POINTS[rows][keep], labels[keep])
    return model.decision_function(POINTS), query(model, POINTS, 5)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_the_same_by_blocks(name, request, monkeypatch):
    """And no matrix that is factored in one call is larger than stated."""
    scores, rows = answers(name)
    request.getfixturevalue("small_blocks")
    for module, each in CALLED:
        monkeypatch.setattr(module, each, bounded(getattr(module, each)))
    found, chosen = answers(name)
    np.testing.assert_allclose(found, scores, atol=1e-6 * np.abs(scores).max())
    assert np.array_equal(chosen, rows)


def bounded(function):
    """Return the function, refusing matrices beyond the largest size."""

    def checked(matrix, *arguments, **named):
        assert matrix.shape[0] <= factors.LARGEST
        return function(matrix, *arguments, **named)

    return checked


# Modules that call LAPACK or BLAS by name, and what bounds the size of their calls.
KNOWN = {
    "graph.metrics": "randomized_svd of a few columns",
    "margin.covariance.exact": "LARGEST",
    "margin.covariance.landmarks": "LARGEST",
    "margin.covariance.spectral": "svd of (n, p) rows, which has no symmetric product",
    "margin.dual.interior_point": "LARGEST_WORK: at most 1000 columns",
    "numeric.factors": "LARGEST; dtrmm, dtrmv, strmm do not crash; dtrtri is SMALL_TRIANGLE",
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
