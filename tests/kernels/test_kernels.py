"""Base kernels against their formulas, dense and CSR, and what they freeze on a first batch."""

from threading import Barrier, get_ident

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from seqmed import SeqLapMED, SeqMED
from seqmed.kernels import (
    RBF,
    Expansion,
    FromFunction,
    Linear,
    Polynomial,
    Precomputed,
    TfIdf,
    linear_weights,
    make_kernel,
)
from seqmed.kernels.on_vectors import NARROW
from seqmed.kernels.special import check_counts
from seqmed.numeric import execution
from tests.reference import naive

# A few dozen roundings of numbers near 1.
ROUNDING = 1e-13
# What section 1 of the method asks of distances whatever the offset.
OFFSET_ACCURACY = 1e-9


def vectors(n, p=4, seed=0):
    """Normal rows with about a third of the entries zero, so that CSR has something to skip."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, p)) * (generator.random((n, p)) < 0.7)


def counts(n, p=7, seed=0):
    """Overdispersed counts of every column, one row of zeros among them."""
    generator = np.random.default_rng(seed)
    concentrations = generator.uniform(0.2, 1.5, size=p)
    rows = [generator.multinomial(30, generator.dirichlet(concentrations)) for _ in range(n - 1)]
    return np.vstack([np.zeros(p), rows])


def weights_for(n, seed=0):
    return np.random.default_rng(seed + 1000).integers(1, 4, size=n).astype(float)


def frozen(kernel, first):
    return kernel.freeze(first, np.ones(first.shape[0]))


def reference_of(kernel):
    """Return the naive function with the parameters of a frozen kernel, and data for it."""
    if isinstance(kernel, RBF):
        return naive.rbf(kernel.gamma), vectors
    if isinstance(kernel, Linear):
        return naive.linear(), vectors
    if isinstance(kernel, Polynomial):
        return naive.polynomial(kernel.gamma, kernel.degree, kernel.coef0), vectors
    return naive.tfidf(kernel.idf), counts


KERNELS = [
    pytest.param(RBF(0.3), id="rbf"),
    pytest.param(RBF("scale"), id="rbf-scale"),
    pytest.param(Linear(), id="linear"),
    pytest.param(Polynomial(0.5, 3, 1.0), id="poly"),
    pytest.param(Polynomial("auto", 2, 0.0), id="poly-auto"),
    pytest.param(TfIdf(), id="tfidf"),
]


def data_of(kernel):
    return counts if isinstance(kernel, TfIdf) else vectors


def scale_of(values):
    """Rounding of a kernel value is relative to the largest of them."""
    return ROUNDING * max(1.0, np.abs(values).max())


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_values_equal_the_formula(kernel):
    make = data_of(kernel)
    first, left, right = make(20), make(9, seed=1), make(13, seed=2)
    kernel = frozen(kernel, first)
    reference, _ = reference_of(kernel)
    expected = reference(left, right)
    assert kernel(left, right).shape == (9, 13)
    np.testing.assert_allclose(kernel(left, right), expected, rtol=0, atol=scale_of(expected))


@pytest.mark.parametrize("kernel", KERNELS)
def test_csr_equals_dense(kernel):
    make = data_of(kernel)
    first, left, right = make(20), make(9, seed=1), make(13, seed=2)
    dense, sparse = frozen(kernel, first), frozen(kernel, sp.csr_array(first))
    expected = dense(left, right)
    found = sparse(sp.csr_array(left), sp.csr_array(right))
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected, rtol=0, atol=scale_of(expected))
    np.testing.assert_allclose(
        sparse.diagonal(sp.csr_array(left)),
        dense.diagonal(left),
        rtol=0,
        atol=scale_of(expected),
    )


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_diagonal_is_the_diagonal_of_the_gram_matrix(kernel, sparse):
    make = data_of(kernel)
    first, points = make(20), make(15, seed=1)
    if sparse:
        first, points = sp.csr_array(first), sp.csr_array(points)
    kernel = frozen(kernel, first)
    values = kernel(points, points)
    np.testing.assert_allclose(
        kernel.diagonal(points), np.diagonal(values), rtol=0, atol=scale_of(values)
    )


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_gram_matrix_is_exactly_symmetric(kernel, sparse):
    make = data_of(kernel)
    points = make(60, p=9, seed=3)
    points = sp.csr_array(points) if sparse else points
    kernel = frozen(kernel, points)
    values = kernel(points, points)
    assert np.array_equal(values, values.T)


def test_rbf_of_a_row_with_itself_is_exactly_one():
    points = vectors(30, seed=4)
    kernel = frozen(RBF("scale"), points)
    assert np.array_equal(np.diagonal(kernel(points, points)), np.ones(30))
    assert np.array_equal(kernel.diagonal(points), np.ones(30))


@pytest.mark.parametrize("name", ["tfidf", "rbf", "linear", "poly"])
@pytest.mark.parametrize("container", [sp.csr_array, sp.csr_matrix, sp.csc_matrix])
def test_estimators_take_every_sparse_container(name, container):
    points = counts(40, seed=5)
    labels = (points[:, 0] > points[:, 1]).astype(int)
    dense = SeqMED(kernel=name, tol=1e-10).fit(points, labels).decision_function(points)
    model = SeqMED(kernel=name, tol=1e-10).fit(container(points), labels)
    # two duals solved to 1e-10 from differently rounded matrices
    np.testing.assert_allclose(model.decision_function(container(points)), dense, atol=1e-7)


@pytest.mark.parametrize("kernel", KERNELS)
def test_csr_with_repeated_entries_means_their_sum(kernel):
    points = data_of(kernel)(20, seed=6)
    whole = sp.csr_array(points)
    halves = sp.csr_array(
        (np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), 2 * whole.indptr),
        shape=whole.shape,
    )
    assert np.array_equal(halves.toarray(), points)
    expected = frozen(kernel, whole)(whole, whole)
    found = frozen(kernel, halves.copy())(halves.copy(), halves.copy())
    np.testing.assert_allclose(found, expected, rtol=0, atol=scale_of(expected))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_leaves_its_input_alone(kernel):
    points = sp.csr_array(data_of(kernel)(20, seed=7))
    points.data[::3] = 0.0  # stored zeros are legal and must stay as they are
    before = points.copy()
    for part in (points.data, points.indices, points.indptr):
        part.flags.writeable = False
    model = frozen(kernel, points)
    model(points, points)
    model.diagonal(points)
    assert points.nnz == before.nnz
    assert np.array_equal(points.data, before.data)
    assert np.array_equal(points.indices, before.indices)
    assert np.array_equal(points.indptr, before.indptr)


# -- gamma -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("kind", [RBF, Polynomial])
def test_gamma_scale_is_that_of_scikit_learn(kind, sparse):
    points = vectors(30, seed=8) + (0.0 if sparse else 3.0)
    labels = np.arange(30) % 2
    points = sp.csr_array(points) if sparse else points
    machine = SVC(gamma="scale").fit(points, labels)
    np.testing.assert_allclose(frozen(kind("scale"), points).gamma, machine._gamma, rtol=1e-13)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_gamma_scale_counts_a_weighted_row_as_repeated(sparse):
    points, weights = vectors(30, seed=9), weights_for(30)
    repeated = np.repeat(points, weights.astype(int), axis=0)
    given = sp.csr_array(points) if sparse else points
    gamma = RBF("scale").freeze(given, weights).gamma
    np.testing.assert_allclose(gamma, 1 / (4 * repeated.var()), rtol=1e-13)
    np.testing.assert_allclose(gamma, naive.scale_gamma(points, weights), rtol=1e-13)


def test_gamma_auto_is_one_over_the_number_of_columns():
    assert frozen(RBF("auto"), vectors(10, p=5)).gamma == 1 / 5


def test_gamma_of_constant_data_is_one():
    assert frozen(RBF("scale"), np.full((6, 3), 2.5)).gamma == 1.0


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_gamma_scale_is_fixed_by_the_first_batch(estimator):
    first, later = vectors(20, seed=10), 5.0 * vectors(20, seed=11)
    labels = np.arange(20) % 2
    model = estimator(gamma="scale")
    model.partial_fit(first, labels)
    gamma = model.posterior_.covariance.kernel.gamma
    np.testing.assert_allclose(gamma, naive.scale_gamma(first), rtol=1e-13)
    model.partial_fit(later, labels)
    assert model.posterior_.covariance.kernel.gamma == gamma
    assert abs(gamma - naive.scale_gamma(later)) > 0.1 * gamma


# -- offsets ---------------------------------------------------------------------------------------


def dyadic(n, p=5, seed=0):
    """Rows of multiples of 2^-16: adding an offset up to 1e8 changes no difference."""
    rows = np.random.default_rng(seed).normal(size=(n, p))
    return np.round(rows * 2**16) / 2**16


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e8])
def test_an_offset_common_to_all_data_costs_rbf_nothing(offset):
    first, later = dyadic(30, seed=12), dyadic(20, seed=13)
    assert np.array_equal((first + offset) - offset, first)
    assert np.array_equal((later + offset) - offset, later)
    kernel = RBF(0.2).freeze(first + offset, np.ones(30))
    found = kernel(later + offset, first + offset)
    np.testing.assert_allclose(found, naive.rbf(0.2)(later, first), rtol=0, atol=OFFSET_ACCURACY)
    points = later + offset
    np.testing.assert_allclose(
        kernel(points, points), naive.rbf(0.2)(later, later), rtol=0, atol=OFFSET_ACCURACY
    )


def test_sparse_rows_keep_their_distances_while_they_are_near_zero():
    # sparse rows are not centred (decision 5); gamma |x|^2 up to 1e4 must still do no harm
    points = dyadic(30, seed=12)
    points[points < 0] = 0.0
    points[:, 0] += 90.0
    sparse = sp.csr_array(points)
    kernel = RBF(1.0).freeze(sparse, np.ones(30))
    np.testing.assert_allclose(
        kernel(sparse, sparse), naive.rbf(1.0)(points, points), rtol=0, atol=OFFSET_ACCURACY
    )


@pytest.mark.parametrize("offset", [1e6, 1e8])
def test_gamma_scale_survives_an_offset(offset):
    points = dyadic(30, seed=14)
    gamma = frozen(RBF("scale"), points + offset).gamma
    # the mean of numbers of size `offset` is rounded, and enters the variance squared
    np.testing.assert_allclose(gamma, naive.scale_gamma(points), rtol=OFFSET_ACCURACY)


@pytest.mark.parametrize("far", [1e3, 1e6, 1e8])
@pytest.mark.parametrize("start", [0.0, 1e6])
@pytest.mark.parametrize("gamma", [1e-4, 0.2, 30.0])
def test_data_far_from_the_first_batch_keeps_its_distances(far, start, gamma):
    # the centre is not a dyadic number: the first batch has all its digits
    first = np.random.default_rng(15).normal(size=(30, 5)) + start
    kernel = RBF(gamma).freeze(first, np.ones(30))
    shape = dyadic(25, seed=16)
    later = shape + (start + far)
    assert np.array_equal(later - (start + far), shape)
    np.testing.assert_allclose(
        kernel(later, later), naive.rbf(gamma)(shape, shape), rtol=0, atol=OFFSET_ACCURACY
    )
    # rows near and far in one call
    mixed = np.vstack([first, later])
    np.testing.assert_allclose(
        kernel(mixed, mixed), naive.rbf(gamma)(mixed, mixed), rtol=0, atol=OFFSET_ACCURACY
    )


def test_the_border_between_near_and_far_rows_is_smooth():
    # squared distances to the centre from a tenth of FAR_FROM_CENTRE to ten times it
    first = dyadic(30, seed=17)
    kernel = RBF(1.0).freeze(first, np.ones(30))
    for radius in (30.0, 99.0, 101.0, 320.0):
        direction = np.ones(5) / np.sqrt(5)
        later = dyadic(20, seed=18) + np.round(radius * direction * 2**16) / 2**16
        np.testing.assert_allclose(
            kernel(later, later), naive.rbf(1.0)(later, later), rtol=0, atol=OFFSET_ACCURACY
        )


# -- counts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_idf_is_the_smoothed_one_with_weights(sparse):
    points, weights = counts(25, seed=19), weights_for(25, seed=19)
    given = sp.csr_array(points) if sparse else points
    idf = TfIdf().freeze(given, weights).idf
    np.testing.assert_allclose(idf, naive.smoothed_idf(points, weights), rtol=1e-14)
    repeated = np.repeat(points, weights.astype(int), axis=0)
    np.testing.assert_allclose(idf, naive.smoothed_idf(repeated), rtol=1e-14)


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_idf_is_fixed_by_the_first_batch(estimator):
    first, later = counts(25, seed=20), 3.0 * counts(40, seed=21)
    later[:, 0] = 0.0
    model = estimator(kernel="tfidf")
    model.partial_fit(first, np.arange(25) % 2)
    idf = model.posterior_.covariance.kernel.idf.copy()
    np.testing.assert_allclose(idf, naive.smoothed_idf(first), rtol=1e-14)
    model.partial_fit(later, np.arange(40) % 2)
    assert np.array_equal(model.posterior_.covariance.kernel.idf, idf)
    assert np.abs(naive.smoothed_idf(later) - idf).max() > 0.1


def test_tfidf_of_an_empty_row_is_zero_and_of_others_a_cosine():
    points = counts(12, seed=22)
    values = frozen(TfIdf(), points)(points, points)
    assert np.array_equal(values[0], np.zeros(12))
    np.testing.assert_allclose(np.diagonal(values)[1:], 1.0, rtol=0, atol=ROUNDING)
    assert (values <= 1 + ROUNDING).all()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_negative_counts_are_refused(sparse):
    kernel = TfIdf()
    good = counts(20, seed=29)
    bad = good.copy()
    bad[3, 2] = -1.0
    wrap = sp.csr_array if sparse else np.asarray
    with pytest.raises(ValueError, match="negative entry"):
        frozen(kernel, wrap(bad))
    ready = frozen(kernel, wrap(good))
    with pytest.raises(ValueError, match="negative entry"):
        ready(wrap(bad), wrap(good))
    with pytest.raises(ValueError, match="negative entry"):
        ready(wrap(good), wrap(bad))
    with pytest.raises(ValueError, match="negative entry"):
        ready.diagonal(wrap(bad))
    check_counts(wrap(good))


# -- functions and matrices of the user ------------------------------------------------------------


def test_a_callable_is_the_kernel_it_computes():
    points, labels = vectors(30, seed=30), np.arange(30) % 2
    named = SeqMED(gamma=0.4, tol=1e-10).fit(points, labels)
    given = SeqMED(kernel=naive.rbf(0.4), tol=1e-10).fit(points, labels)
    new = vectors(20, seed=31)
    # two duals solved to 1e-10 from differently rounded matrices
    np.testing.assert_allclose(
        given.decision_function(new), named.decision_function(new), rtol=0, atol=1e-7
    )


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_precomputed_equals_the_callable(estimator):
    points, labels, new = vectors(30, seed=32), np.arange(30) % 2, vectors(20, seed=33)
    function = naive.rbf(0.4)
    extra = {} if estimator is SeqMED else {"recursion": "exact", "n_neighbors": 4, "beta": 0.5}
    given = estimator(kernel=function, tol=1e-10, **extra)
    matrix = estimator(kernel="precomputed", tol=1e-10, **extra)
    if estimator is SeqLapMED:
        # the callable takes neighbours from the rows, the matrix from feature space: same order
        # of distances for rbf, but not the same lengths
        given.set_params(weights="binary")
        matrix.set_params(weights="binary")
    given.fit(points, labels)
    matrix.fit(function(points, points), labels)
    np.testing.assert_allclose(
        matrix.decision_function(function(new, points)),
        given.decision_function(new),
        rtol=0,
        atol=1e-7,
    )
    np.testing.assert_array_equal(matrix.predict(function(new, points)), given.predict(new))


def test_precomputed_values():
    points = vectors(12, seed=34)
    table = naive.rbf(0.4)(points, points)
    kernel = Precomputed(table)
    rows, columns = np.array([[3], [0], [7]]), np.array([[1], [2]])
    assert np.array_equal(kernel(rows, columns), table[[3, 0, 7]][:, [1, 2]])
    assert np.array_equal(kernel.diagonal(rows), np.ones(3))
    new = naive.rbf(0.4)(vectors(5, seed=35), points)
    assert np.array_equal(kernel(new, columns), new[:, [1, 2]])
    with pytest.raises(ValueError, match="do not contain k"):
        kernel.diagonal(new)
    assert kernel.coordinates(rows) is None


def test_a_callable_of_the_wrong_shape_is_refused():
    points, labels = vectors(10, seed=36), np.arange(10) % 2
    with pytest.raises(ValueError, match=r"returned shape \(10,\), expected \(10, 10\)"):
        SeqMED(kernel=lambda a, b: np.ones(len(a))).fit(points, labels)
    with pytest.raises(ValueError, match=r"returned shape \(3, 4\), expected \(4, 3\)"):
        FromFunction(lambda a, b: naive.linear()(b, a))(points[:4], points[:3])


def test_the_diagonal_of_a_callable_is_taken_in_blocks():
    points = vectors(300, seed=37)
    sizes = []

    def function(left, right):
        sizes.append(len(left))
        return left @ right.T

    np.testing.assert_allclose(
        FromFunction(function).diagonal(points), (points**2).sum(axis=1), rtol=0, atol=ROUNDING
    )
    assert max(sizes) < 300
    assert sum(sizes) == 300


def test_a_callable_rounded_unevenly_is_made_symmetric():
    points = vectors(10, seed=38)
    skew = np.triu(np.full((10, 10), 1e-9))
    values = FromFunction(lambda a, b: a @ b.T + skew)(points, points)
    assert np.array_equal(values, values.T)


def test_make_kernel_accepts_every_name():
    assert isinstance(make_kernel("rbf", 1.0, 3, 0.0), RBF)
    assert isinstance(make_kernel("linear", 1.0, 3, 0.0), Linear)
    poly = make_kernel("poly", 0.5, 2, 1.0)
    assert (poly.gamma, poly.degree, poly.coef0) == (0.5, 2, 1.0)
    assert isinstance(make_kernel("tfidf", 1.0, 3, 0.0), TfIdf)
    own = RBF(2.0)
    assert make_kernel(own, 1.0, 3, 0.0) is own
    assert isinstance(make_kernel(naive.linear(), 1.0, 3, 0.0), FromFunction)
    with pytest.raises(ValueError, match="kernel='cosine'"):
        make_kernel("cosine", 1.0, 3, 0.0)


# -- expansions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [0, 1000])
def test_joined_sparse_points_of_a_linear_kernel_are_listed_or_become_weights_of_columns(empty):
    """Either is far smaller than a weight for each of many columns and machines."""
    generator = np.random.default_rng(39)
    points = sp.random_array((40, 30), density=0.1, rng=generator, format="csr")
    points = sp.csr_array(sp.hstack([points, sp.csr_array((40, empty))]))
    coefficients = generator.normal(size=(40, 3))
    expected = points.toarray() @ (points.toarray().T @ coefficients)
    joined, sizes = Expansion(points[:0], coefficients[:0]), []
    for rows in np.split(np.arange(40), 8):
        joined = Linear().join(joined, Expansion(points[rows], coefficients[rows]))
        sizes.append(joined.points.shape[0])
        assert joined.coefficients.shape == (sizes[-1], 3)
    assert sizes[0] == 5
    assert sizes[-1] == np.unique(points.indices).size
    np.testing.assert_allclose(Linear().sums(points, joined), expected, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(
        linear_weights(joined), coefficients.T @ points, rtol=0, atol=ROUNDING
    )


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_joining_linear_expansions_adds_their_weights(sparse):
    generator = np.random.default_rng(39)
    first, second, new = vectors(8, seed=40), vectors(5, seed=41), vectors(6, seed=42)
    left, right = generator.normal(size=(8, 3)), generator.normal(size=(5, 3))
    wrap = sp.csr_array if sparse else np.asarray
    joined = Linear().join(Expansion(wrap(first), left), Expansion(wrap(second), right))
    expected = left.T @ first + right.T @ second
    assert joined.points.shape == ((4, 4) if sparse else (3, 4))
    np.testing.assert_allclose(linear_weights(joined), expected, rtol=0, atol=ROUNDING)
    scores = Linear()(wrap(new), joined.points) @ joined.coefficients
    np.testing.assert_allclose(scores, new @ expected.T, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_joining_other_expansions_lists_their_points(sparse):
    generator = np.random.default_rng(43)
    first, second, new = vectors(8, seed=44), vectors(5, seed=45), vectors(6, seed=46)
    left, right = generator.normal(size=(8, 2)), generator.normal(size=(5, 2))
    wrap = sp.csr_array if sparse else np.asarray
    kernel = RBF(0.5)
    joined = kernel.join(Expansion(wrap(first), left), Expansion(wrap(second), right))
    assert joined.points.shape == (13, 4)
    assert sp.issparse(joined.points) == sparse
    expected = naive.rbf(0.5)(new, first) @ left + naive.rbf(0.5)(new, second) @ right
    np.testing.assert_allclose(
        kernel(wrap(new), joined.points) @ joined.coefficients, expected, rtol=0, atol=ROUNDING
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"forgetting": 0.9},
        {"n_landmarks": 6},
        {"n_landmarks": 6, "budget": 12, "forgetting": 0.9},
        {"recursion": "exact"},
    ],
    ids=str,
)
def test_a_function_is_not_called_with_empty_input(options):
    """As scikit-learn's kernels, which refuse arrays without rows."""
    sizes = set()

    def function(left, right):
        sizes.update((len(left), len(right)))
        return naive.rbf(0.3)(left, right)

    model = SeqLapMED(kernel=function, random_state=0, **options)
    for t in range(3):
        y = np.full(8, -1)
        y[:2] = 0, 1
        model.partial_fit(vectors(8, seed=t), y)
        model.predict_proba(vectors(3, seed=9))
    assert sizes
    assert 0 not in sizes


# -- many rows -------------------------------------------------------------------------------------


def assert_within_rounding(values, expected):
    """Compare at once what `pytest.approx` would compare number by number."""
    np.testing.assert_allclose(values, expected, rtol=0, atol=ROUNDING, equal_nan=False)


@pytest.mark.parametrize("n_left", [1, 2, 255, 256, 257, 600])
@pytest.mark.parametrize("n_right", [1, 256, 513])
@pytest.mark.parametrize("p", [4, NARROW + 1])
def test_tiles_fit_together(n_left, n_right, p):
    left, right = vectors(n_left, p, seed=1), vectors(n_right, p, seed=2)
    kernel = frozen(RBF(0.3), left)
    expected = np.exp(-0.3 * cdist(left, right, "sqeuclidean"))
    values = kernel(left, right)
    assert values.flags.c_contiguous
    assert_within_rounding(values, expected)


@pytest.mark.parametrize("n", [1, 127, 128, 255, 256, 257, 600, 1300])
@pytest.mark.parametrize("p", [4, NARROW + 1])
def test_tiles_of_a_symmetric_matrix(n, p):
    """Computed once, with rows among them that are far from the rest."""
    points = vectors(n, p, seed=3)
    points[n // 2] += 1e4
    kernel = frozen(RBF(0.3), vectors(20, p))
    values = kernel(points, points)
    assert np.array_equal(values, values.T)
    assert (np.diagonal(values) == 1.0).all()
    assert values.max() <= 1.0
    expected = np.exp(-0.3 * cdist(points, points, "sqeuclidean"))
    assert_within_rounding(values, expected)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("p", [4, NARROW + 1])
def test_threads_change_no_bit(same, p, monkeypatch):
    left, right = vectors(700, p, seed=4), vectors(520, p, seed=5)
    right = left if same else right
    kernel = frozen(RBF(0.3), left)
    expected = kernel(left, right)
    monkeypatch.setattr(execution, "MANY_VALUES", 1)
    monkeypatch.setattr(execution, "allowed_threads", lambda: 3)
    assert np.array_equal(kernel(left, right), expected)


@pytest.mark.parametrize("n", [0, 1, 7, 40])
def test_products_in_halves(n, monkeypatch):
    left, right = vectors(n, 6, seed=4), vectors(6, 5, seed=5)
    monkeypatch.setattr(execution, "LARGE_PRODUCT", 1)
    expected = execution.product(left, right)
    assert expected == pytest.approx(left @ right, abs=ROUNDING)
    monkeypatch.setattr(execution, "allowed_threads", lambda: 2)
    assert np.array_equal(execution.product(left, right), expected)


def test_the_thread_limit_of_the_package_is_not_that_of_the_user():
    with execution.one_thread():
        within = execution.allowed_threads()
    assert within == execution.allowed_threads() == execution.threads_of_blas()
    with threadpool_limits(1):
        assert execution.allowed_threads() == 1
        with execution.one_thread():
            assert execution.allowed_threads() == 1


def test_threads_inherit_context_variables(monkeypatch):
    seen = []
    monkeypatch.setattr(execution, "allowed_threads", lambda: 3)
    barrier = Barrier(3)

    def work(part):
        barrier.wait(timeout=60)
        seen.append((get_ident(), np.geterr()["over"]))

    with np.errstate(over="raise"):
        execution.run_in_threads(work, range(3), execution.MANY_VALUES)
    assert len({thread for thread, _ in seen}) == 3
    assert {setting for _, setting in seen} == {"raise"}


def test_no_more_threads_than_parts(monkeypatch):
    pool, counts = execution.ThreadPoolExecutor, []
    monkeypatch.setattr(
        execution, "ThreadPoolExecutor", lambda count: counts.append(count) or pool(count)
    )
    monkeypatch.setattr(execution, "allowed_threads", lambda: 64)
    done = []
    execution.run_in_threads(done.append, range(3), execution.MANY_VALUES)
    assert (sorted(done), counts) == ([0, 1, 2], [3])


def test_an_error_on_a_thread_is_raised(monkeypatch):
    def work(part):
        if part == 2:
            raise MemoryError("out of memory")

    monkeypatch.setattr(execution, "allowed_threads", lambda: 2)
    for n_values in (1, execution.MANY_VALUES):
        with pytest.raises(MemoryError, match="out of memory"):
            execution.run_in_threads(work, range(4), n_values)


@pytest.mark.parametrize("machines", [1, 3])
def test_sums_need_no_matrix(machines):
    """By tiles, with rows among them that are far from the rest."""
    points, others = vectors(600, seed=7), vectors(300, seed=8)
    points[300] += 1e4
    others[5] -= 1e4
    kernel = frozen(RBF(0.3), points)
    coefficients = np.random.default_rng(9).normal(size=(300, machines))
    scores = kernel.sums(points, Expansion(others, coefficients))
    assert scores == pytest.approx(kernel(points, others) @ coefficients, abs=300 * ROUNDING)


@pytest.mark.parametrize("sparse", [False, True])
def test_sums_of_tfidf_are_by_weights(sparse):
    first, second = counts(30, seed=1), counts(20, seed=2)
    kernel = frozen(TfIdf(), first)
    coefficients = np.random.default_rng(3).normal(size=(20, 2))
    left, right = (sp.csr_array(rows) if sparse else rows for rows in (first, second))
    scores = kernel.sums(left, Expansion(right, coefficients))
    assert isinstance(scores, np.ndarray)
    assert scores == pytest.approx(kernel(left, right) @ coefficients, abs=ROUNDING)
