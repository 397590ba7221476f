"""The graph of one batch against loops: neighbours, weights, Laplacians."""

import numpy as np
import pytest
import scipy.sparse as sp

from seqmed import SeqLapMED
from seqmed.kernels import RBF, FromFunction, Linear, Precomputed, TfIdf, on_vectors
from seqmed.margin import laplacian
from seqmed.margin.laplacian import (
    GraphParameters,
    Smoothness,
    find_neighbours,
    laplacian_of,
    measure_heat_width,
    smoothness,
    weight_matrix,
)
from tests.reference import naive

# A few dozen roundings of numbers near 1.
ROUNDING = 1e-13

RECIPES = [
    GraphParameters(n_neighbors=5, weights="heat", heat_width=0.6),
    GraphParameters(n_neighbors=5, weights="binary"),
]


def recipe_name(graph_parameters):
    return graph_parameters.weights


def vectors(n, p=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p))


def counts(n, p=6, seed=0):
    generator = np.random.default_rng(seed)
    return np.array(
        [generator.multinomial(25, generator.dirichlet(np.ones(p))) for _ in range(n)], dtype=float
    )


def penalty_of(points, graph_parameters, weight=1.0, kernel=None):
    kernel = Linear() if kernel is None else kernel
    neighbours = find_neighbours(kernel, points, graph_parameters.n_neighbors)
    return smoothness(neighbours, graph_parameters, weight)


def reference_of(points, graph_parameters, distances=None):
    """Return L by loops."""
    return naive.batch_laplacian(
        points,
        n_neighbors=graph_parameters.n_neighbors,
        weights=graph_parameters.weights,
        width=graph_parameters.heat_width,
        kind="normalized",
        power=1,
        distances=distances,
    )


def size_of(matrix):
    return max(1.0, np.abs(matrix).max())


# -- against the loops -----------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("graph_parameters", RECIPES, ids=recipe_name)
def test_penalty_equals_the_loops(graph_parameters, sparse):
    points = vectors(40, seed=1)
    expected = reference_of(points, graph_parameters)
    penalty = penalty_of(sp.csr_array(points) if sparse else points, graph_parameters, weight=0.7)
    functions = vectors(40, p=4, seed=2)
    form = 0.7 * functions.T @ expected @ functions
    np.testing.assert_allclose(
        penalty.quadratic(functions), form, rtol=0, atol=ROUNDING * size_of(form)
    )
    factor = penalty.factor()
    # pivoted Cholesky stops at n roundings of the largest diagonal entry; what it leaves over is
    # a semi-definite matrix with entries no larger than that
    leftover = 40 * np.finfo(float).eps * size_of(expected)
    np.testing.assert_allclose(
        factor @ factor.T, 0.7 * expected, rtol=0, atol=ROUNDING * size_of(expected) + leftover
    )


@pytest.mark.parametrize("p", [4, 40, 60])
@pytest.mark.parametrize("graph_parameters", RECIPES, ids=recipe_name)
def test_a_penalty_is_a_number_of_observations(graph_parameters, p):
    """No more of them than there are points, or functions."""
    points, functions = vectors(40, seed=1), vectors(40, p=p, seed=2)
    observations = penalty_of(points, graph_parameters, weight=0.7).observations(functions)
    assert observations.shape[0] <= min(40, p)
    form = 0.7 * functions.T @ reference_of(points, graph_parameters) @ functions
    np.testing.assert_allclose(
        observations.T @ observations, form, rtol=0, atol=1e-12 * size_of(form)
    )


def test_edges_in_blocks(monkeypatch):
    points = vectors(40, seed=1)
    indices = np.random.default_rng(0).integers(40, size=(40, 3))
    expected = np.square(points[:, None] - points[indices]).sum(axis=2)
    for entries in (1, 20, 10**6):
        monkeypatch.setattr("seqmed.kernels.on_vectors.BLOCK_VALUES", entries)
        for rows in (points, sp.csr_array(points)):
            np.testing.assert_allclose(laplacian.edge_lengths(rows, indices), expected, rtol=1e-14)


def test_the_stored_laplacian_is_that_of_the_loops():
    points = vectors(30, seed=3)
    graph_parameters = GraphParameters(n_neighbors=4, heat_width=0.5)
    penalty = penalty_of(points, graph_parameters)
    np.testing.assert_allclose(
        penalty.laplacian.toarray(), reference_of(points, graph_parameters), rtol=0, atol=ROUNDING
    )


def test_quadratic_form_is_exactly_symmetric():
    graph_parameters = GraphParameters(n_neighbors=4, heat_width=0.5)
    form = penalty_of(vectors(30, seed=4), graph_parameters).quadratic(vectors(30, p=7, seed=5))
    assert np.array_equal(form, form.T)


@pytest.mark.parametrize("p", [3, 20], ids=["by-tree", "by-inner-products"])
@pytest.mark.parametrize("offset", [0.0, 1e6, 1e8])
def test_an_offset_common_to_all_data_changes_no_edge(offset, p):
    points = np.round(vectors(40, p=p, seed=6) * 2**16) / 2**16
    assert np.array_equal((points + offset) - offset, points)
    graph_parameters = GraphParameters(n_neighbors=5, heat_width=0.6)
    found = penalty_of(points + offset, graph_parameters).laplacian.toarray()
    np.testing.assert_allclose(found, reference_of(points, graph_parameters), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("by", ["search", "all-distances"])
def test_neighbours_are_the_nearest_others_and_lengths_are_squared(by, monkeypatch):
    monkeypatch.setattr(laplacian, "SMALL_BATCH", 0 if by == "search" else 25)
    points = vectors(25, seed=7)
    distances = naive.squared_distances(points)
    found = find_neighbours(Linear(), points, 4)
    for i, others in enumerate(naive.nearest(distances, 4)):
        assert sorted(found.indices[i].tolist()) == sorted(others)
        np.testing.assert_allclose(
            found.distances[i], distances[i, found.indices[i]], rtol=1e-12, atol=0
        )


def test_lengths_in_which_digits_cancel_are_right_too(monkeypatch):
    rows = vectors(24, p=40, seed=8)
    offsets = 1e-9 * vectors(24, p=40, seed=9)
    points = np.vstack([rows, rows + offsets, -3.0 * rows])
    found, others = laplacian.nearest(points, 4), naive.squared_distances(points)
    expected = np.take_along_axis(others, found.indices, axis=1)
    assert (expected[:48, 0] < 1e-15).all()  # a twin
    # the points themselves are only known to a digit in 1e16, seen from their mean
    np.testing.assert_allclose(found.distances, expected, rtol=1e-5, atol=0)
    np.testing.assert_allclose(found.distances[:, 1:], expected[:, 1:], rtol=1e-12, atol=0)
    assert (np.diff(found.distances, axis=1) >= 0).all()
    monkeypatch.setattr(laplacian, "CANCELLED", 0.0)
    assert np.abs(laplacian.nearest(points, 4).distances[:48, 0] / expected[:48, 0] - 1).max() > 1.0


def assert_nearest(points, rtol):
    """Expect four neighbours of every point to be as near as any four; return what was found."""
    distances = naive.squared_distances(points)
    np.fill_diagonal(distances, np.inf)
    found, expected = laplacian.nearest(points, 4), np.sort(distances, axis=1)[:, :4]
    chosen = np.take_along_axis(distances, found.indices, axis=1)
    np.testing.assert_allclose(chosen, expected, rtol=rtol, atol=0)
    return found.distances, expected


@pytest.mark.parametrize("p", [5, 10, 40])
@pytest.mark.parametrize("outlier", [1e9, 1e10, 1e12])
def test_an_outlier_does_not_change_the_neighbours(p, outlier):
    """It moves the mean, from which all others then are far."""
    points = vectors(40, p=p, seed=10)
    points[7, 2] = outlier
    lengths, expected = assert_nearest(points, rtol=1e-5)
    np.testing.assert_allclose(lengths, expected, rtol=1e-2, atol=0)


def test_tight_clusters_far_apart_keep_their_neighbours():
    points = np.vstack([1e-8 * vectors(20, p=10, seed=11), 1.0 + 1e-8 * vectors(20, p=10, seed=12)])
    assert_nearest(points, rtol=1e-6)


# -- sparsity and definiteness ---------------------------------------------------------------------


def test_the_laplacian_stays_sparse():
    n, k = 500, 6
    graph_parameters = GraphParameters(n_neighbors=k, heat_width=0.5)
    penalty = penalty_of(vectors(n, seed=9), graph_parameters)
    assert isinstance(penalty.laplacian, sp.csr_array)
    # at most k edges each way for every point, and the diagonal
    assert penalty.laplacian.nnz <= n * (2 * k + 1)


@pytest.mark.parametrize("graph_parameters", RECIPES, ids=recipe_name)
def test_the_penalty_is_positive_semidefinite(graph_parameters):
    penalty = penalty_of(vectors(50, seed=10), graph_parameters)
    matrix = penalty.quadratic(np.eye(50))
    values = np.linalg.eigvalsh(matrix)
    assert values[0] >= -ROUNDING * size_of(matrix)
    assert values[-1] <= 2.0 * (1 + ROUNDING)


def test_roots_of_degrees_cost_nothing():
    points = vectors(30, seed=12)
    graph_parameters = GraphParameters(n_neighbors=4, heat_width=0.5)
    weights = naive.edge_weights(naive.squared_distances(points), 4, "heat", 0.5)
    penalty = penalty_of(points, graph_parameters)
    assert np.abs(penalty.laplacian @ np.sqrt(weights.sum(axis=1))).max() <= ROUNDING


# -- degenerate batches ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 5, 6])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_few_points_have_all_others_for_neighbours(n, sparse):
    points = vectors(n, seed=14)
    graph_parameters = GraphParameters(n_neighbors=5, heat_width=0.5)
    found = find_neighbours(Linear(), sp.csr_array(points) if sparse else points, 5)
    assert found.indices.shape == (n, n - 1)
    for i in range(n):
        assert sorted(found.indices[i].tolist()) == [j for j in range(n) if j != i]
    matrix = penalty_of(points, graph_parameters).laplacian.toarray()
    np.testing.assert_allclose(
        matrix, reference_of(points, graph_parameters), rtol=0, atol=ROUNDING
    )


@pytest.mark.parametrize("values", [1, 100, 600, 10**6])
def test_neighbours_by_kernel_do_not_depend_on_the_blocks(values, monkeypatch):
    table = counts(25, seed=31) @ counts(25, seed=31).T
    points, kernel = np.arange(25)[:, None], Precomputed(table)
    gram = kernel(points, points)
    expected = np.diag(gram)[:, None] + np.diag(gram) - 2 * gram
    np.fill_diagonal(expected, np.inf)
    order = np.argsort(expected, axis=1)[:, :4]
    monkeypatch.setattr(on_vectors, "BLOCK_VALUES", values)
    found = find_neighbours(kernel, points, 4)
    assert np.array_equal(found.indices, order)
    lengths = np.take_along_axis(expected, order, axis=1)
    np.testing.assert_allclose(found.distances, lengths, rtol=0, atol=ROUNDING * size_of(gram))


@pytest.mark.parametrize("kernel", [Linear(), Precomputed(np.eye(3))], ids=["rows", "precomputed"])
def test_a_single_point_is_not_smoothed(kernel):
    points = np.array([[1]])
    penalty = penalty_of(points, GraphParameters(), kernel=kernel)
    assert np.array_equal(penalty.laplacian.toarray(), np.zeros((1, 1)))
    assert penalty.factor().shape == (1, 0)
    assert np.array_equal(penalty.quadratic(np.ones((1, 2))), np.zeros((2, 2)))


@pytest.mark.parametrize("weights", ["heat", "binary"])
def test_duplicated_points_are_legal(weights):
    # few points, so that every other one is a neighbour and ties decide nothing
    points = np.repeat(vectors(3, seed=15), 2, axis=0)
    graph_parameters = GraphParameters(n_neighbors=5, weights=weights, heat_width=0.5)
    matrix = penalty_of(points, graph_parameters).laplacian.toarray()
    np.testing.assert_allclose(
        matrix, reference_of(points, graph_parameters), rtol=0, atol=ROUNDING
    )


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_more_duplicates_than_neighbours(sparse):
    points = np.repeat(vectors(2, seed=16), 8, axis=0)
    found = find_neighbours(Linear(), sp.csr_array(points) if sparse else points, 3)
    for i, others in enumerate(found.indices):
        assert i not in others
        assert len(set(others.tolist())) == 3
        assert {j // 8 for j in others.tolist()} == {i // 8}
    assert np.array_equal(found.distances, np.zeros((16, 3)))
    graph_parameters = GraphParameters(n_neighbors=3)
    assert measure_heat_width(found) is None
    matrix = smoothness(found, graph_parameters, 1.0).laplacian.toarray()
    assert np.isfinite(matrix).all()
    assert np.linalg.eigvalsh(matrix)[0] >= -ROUNDING


def test_a_vertex_of_degree_zero_has_a_zero_row():
    # so far away that exp(-d^2 / 4w) is 0.0 in double precision
    points = np.vstack([vectors(20, seed=17), [[1e3, 0.0, 0.0], [0.0, -1e3, 0.0]]])
    graph_parameters = GraphParameters(n_neighbors=4, heat_width=0.1)
    penalty = penalty_of(points, graph_parameters)
    matrix = penalty.laplacian.toarray()
    assert np.array_equal(matrix[20:], np.zeros((2, 22)))
    assert np.array_equal(matrix[:, 20:], np.zeros((22, 2)))
    np.testing.assert_allclose(
        matrix, reference_of(points, graph_parameters), rtol=0, atol=ROUNDING
    )
    assert np.isfinite(penalty.factor()).all()


def test_a_graph_without_any_weight_is_no_penalty():
    points = 1e3 * vectors(10, seed=18)
    penalty = penalty_of(points, GraphParameters(n_neighbors=3, heat_width=1e-3))
    assert np.array_equal(penalty.laplacian.toarray(), np.zeros((10, 10)))
    assert penalty.factor().shape == (10, 0)


@pytest.mark.parametrize("exponent", [700.0, 709.0, 720.0, 740.0])
def test_weights_at_the_end_of_double_precision_stay_definite(exponent):
    # exp(-exponent) is tiny or subnormal: roots and quotients of it must not overflow
    points = np.array([[0.0], [1.0], [1.0 + np.sqrt(exponent)], [-np.sqrt(exponent)]])
    penalty = penalty_of(points, GraphParameters(n_neighbors=1, heat_width=0.25))
    matrix = penalty.laplacian.toarray()
    assert np.isfinite(matrix).all()
    assert np.linalg.eigvalsh(matrix)[0] >= -ROUNDING


def test_laplacian_of_an_isolated_vertex_by_hand():
    weights = sp.csr_array(np.array([[0.0, 4.0, 0.0], [4.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    expected = np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert np.array_equal(laplacian_of(weights).toarray(), expected)


def test_weights_are_those_of_either_direction():
    # 2 is not a nearest neighbour but has one: the edge counts both ways
    points = np.array([[0.0], [1.0], [3.0]])
    found = find_neighbours(Linear(), points, 1)
    weights = weight_matrix(found, GraphParameters(weights="heat", heat_width=1.0)).toarray()
    near, far = np.exp(-0.25), np.exp(-1.0)
    expected = np.array([[0.0, near, 0.0], [near, 0.0, far], [0.0, far, 0.0]])
    np.testing.assert_allclose(weights, expected, rtol=1e-15)


# -- heat width ------------------------------------------------------------------------------------


def test_auto_width_is_a_quarter_of_the_mean_squared_length():
    points = vectors(40, seed=19)
    width = measure_heat_width(find_neighbours(Linear(), points, 6))
    expected = naive.auto_heat_width(naive.squared_distances(points), 6)
    np.testing.assert_allclose(width, expected, rtol=1e-13)


def test_auto_width_is_frozen_on_the_first_batch():
    first, later = vectors(30, seed=20), 4.0 * vectors(30, seed=21)
    labels = np.where(np.arange(30) < 10, np.arange(30) % 2, -1)
    options = {"n_neighbors": 5, "beta": 0.5, "tol": 1e-10}
    automatic = SeqLapMED(**options)
    automatic.partial_fit(first, labels)
    expected = naive.auto_heat_width(naive.squared_distances(first), 5)
    width = automatic.posterior_.graph_parameters.heat_width
    np.testing.assert_allclose(width, expected, rtol=1e-13)
    automatic.partial_fit(later, labels)
    assert automatic.posterior_.graph_parameters.heat_width == width

    fixed = SeqLapMED(heat_width=width, **options)
    fixed.partial_fit(first, labels).partial_fit(later, labels)
    new = vectors(20, seed=22)
    assert np.array_equal(fixed.decision_function(new), automatic.decision_function(new))


def test_auto_width_is_measured_on_the_first_batch_with_distances():
    first, later = np.ones((4, 3)), vectors(30, seed=23)
    model = SeqLapMED(n_neighbors=5)
    model.partial_fit(first, [-1, -1, -1, -1])
    assert model.posterior_.graph_parameters.heat_width is None
    model.partial_fit(later, np.arange(30) % 2)
    expected = naive.auto_heat_width(naive.squared_distances(later), 5)
    np.testing.assert_allclose(model.posterior_.graph_parameters.heat_width, expected, rtol=1e-13)


# -- kernels and their distances -------------------------------------------------------------------


def test_a_precomputed_kernel_uses_distances_of_its_feature_space():
    points = vectors(30, seed=24)
    table = naive.rbf(0.3)(points, points)
    graph_parameters = GraphParameters(n_neighbors=5, heat_width=0.2)
    rows = np.arange(30)[:, None]
    found = penalty_of(rows, graph_parameters, kernel=Precomputed(table)).laplacian.toarray()
    expected = reference_of(points, graph_parameters, naive.feature_distances(table))
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING)
    # and these are not the distances of the rows
    assert np.abs(expected - reference_of(points, graph_parameters)).max() > 0.01


def test_duplicates_are_at_distance_zero_in_feature_space():
    rows = np.repeat(counts(8, seed=26), 2, axis=0)
    kernel = Precomputed(rows @ rows.T)
    found = find_neighbours(kernel, np.arange(16)[:, None], 1)
    assert np.array_equal(found.indices[:, 0], np.arange(16) ^ 1)
    assert np.array_equal(found.distances, np.zeros((16, 1)))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_tfidf_measures_distances_between_its_own_vectors(sparse):
    points = counts(30, seed=27)
    kernel = TfIdf().freeze(points, np.ones(30))
    values = naive.tfidf(kernel.idf)(points, points)
    graph_parameters = GraphParameters(n_neighbors=5, heat_width=0.1)
    given = sp.csr_array(points) if sparse else points
    found = penalty_of(given, graph_parameters, kernel=kernel).laplacian.toarray()
    expected = reference_of(points, graph_parameters, naive.feature_distances(values))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "kernel", [RBF(0.3), Linear(), FromFunction(naive.linear())], ids=["rbf", "linear", "callable"]
)
def test_kernels_on_vectors_measure_distances_between_rows(kernel):
    points = vectors(30, seed=28)
    graph_parameters = GraphParameters(n_neighbors=5, heat_width=0.5)
    found = penalty_of(points, graph_parameters, kernel=kernel).laplacian.toarray()
    np.testing.assert_allclose(found, reference_of(points, graph_parameters), rtol=0, atol=ROUNDING)


def test_strength_is_a_factor():
    points, functions = vectors(20, seed=29), vectors(20, p=3, seed=30)
    graph_parameters = GraphParameters(n_neighbors=4, heat_width=0.5)
    one, three = (penalty_of(points, graph_parameters, weight=s) for s in (1.0, 3.0))
    assert isinstance(one, Smoothness)
    np.testing.assert_allclose(three.quadratic(functions), 3 * one.quadratic(functions), rtol=1e-14)
    both = three.factor() @ three.factor().T, 3 * one.factor() @ one.factor().T
    np.testing.assert_allclose(*both, rtol=0, atol=ROUNDING)
