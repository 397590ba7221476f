"""The three recursions against explicit formulas: unrolled, with given landmarks, spectral."""

import numpy as np
import pytest
import scipy.sparse as sp

from seqmed.kernels import RBF, Linear, Polynomial
from seqmed.margin.covariance import make_recursion
from seqmed.margin.covariance.exact import LowRankCovariance, reduction_factor
from seqmed.margin.covariance.landmarks import REDUNDANT, Basis, LandmarkRecursion, whiten
from seqmed.margin.covariance.spectral import spectrum_of
from seqmed.margin.laplacian import Smoothness
from seqmed.numeric.arrays import stack
from tests.reference import naive

# Required precision of the exact recursion.
EXACT = 1e-10
# Required precision if all points are landmarks and K_ZZ is well conditioned.
WELL_CONDITIONED = 1e8
ALL_LANDMARKS = 1e-8
# A few dozen roundings of numbers near 1.
ROUNDING = 1e-13

BETAS = [0.5, 2.0, 0.1, 1.0, 0.3]
KERNELS = [
    pytest.param(RBF(0.4), naive.rbf(0.4), id="rbf"),
    pytest.param(Polynomial(0.3, 2, 1.0), naive.polynomial(0.3, 2, 1.0), id="poly"),
    pytest.param(Linear(), naive.linear(), id="linear"),
]


def vectors(n, p=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p))


def make_batch(n, beta, p=4, seed=0):
    """Return one batch for the reference and for the library."""
    points = vectors(n, p=p, seed=seed)
    options = {"n_neighbors": 4, "weights": "heat", "width": 0.8, "kind": "normalized"}
    one = naive.batch_laplacian(points, power=1, **options)
    return (
        naive.Smoothing(points, one, beta),
        Smoothness(sp.csr_array(one), 2.0 * beta),
    )


def make_stream(sizes, betas=BETAS, p=4, seed=0):
    return [
        make_batch(n, beta, p=p, seed=100 * seed + t)
        for t, (n, beta) in enumerate(zip(sizes, betas, strict=False))
    ]


def fold_all(state, stream):
    for batch, penalty in stream:
        state = state.fold(batch.points, penalty).recursion
    return state


def references(stream):
    return [batch for batch, _ in stream]


def assert_same_kernel(found, expected, left, right, tolerance):
    """Compare a covariance with a reference function, relative to the largest value."""
    values = expected(left, right)
    size = max(1.0, np.abs(values).max())
    np.testing.assert_allclose(found(left, right), values, rtol=0, atol=tolerance * size)


# -- one penalty -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 3, 12])
def test_reduction_factor_gives_the_matrix_of_theorem_two(rank):
    root, points = vectors(12, p=max(rank, 1), seed=1)[:, :rank], vectors(12, seed=2)
    gram = naive.rbf(0.4)(points, points)
    penalty = root @ root.T
    expected = np.linalg.inv(np.eye(12) + penalty @ gram) @ penalty
    found = reduction_factor(root, gram)
    np.testing.assert_allclose(found @ found.T, expected, rtol=0, atol=1e-12)


def test_before_any_batch_the_covariance_is_the_base_kernel():
    left, right = vectors(5, seed=3), vectors(7, seed=4)
    for name in ("exact", "landmarks", "spectral"):
        covariance = make_recursion(name, RBF(0.4)).covariance
        assert np.array_equal(covariance(left, right), RBF(0.4)(left, right))


# -- exact -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "reference"), KERNELS)
def test_exact_equals_the_unrolled_block_kernel(kernel, reference):
    stream = make_stream([15, 20, 1, 12], seed=1)
    left, right = vectors(9, seed=5), vectors(8, seed=6)
    state = make_recursion("exact", kernel)
    for t, (batch, penalty) in enumerate(stream):
        state = state.fold(batch.points, penalty).recursion
        expected = naive.unrolled_kernel(reference, references(stream)[: t + 1])
        assert_same_kernel(state.covariance, expected, left, right, EXACT)
        assert_same_kernel(state.covariance, expected, batch.points, left, EXACT)


def test_exact_holds_for_strong_smoothing():
    stream = make_stream([15, 15, 15], betas=[1e4, 1e4, 1e4], seed=2)
    expected = naive.unrolled_kernel(naive.rbf(0.4), references(stream))
    state = fold_all(make_recursion("exact", RBF(0.4)), stream)
    # the reference inverts I + Lam K, of condition about 1e5 times 15: it is good to 1e-10 itself
    assert_same_kernel(state.covariance, expected, vectors(9, seed=7), vectors(8, seed=8), 1e-9)


def test_exact_on_csr_equals_dense():
    stream = make_stream([15, 20, 12], seed=3)
    dense, sparse = make_recursion("exact", RBF(0.4)), make_recursion("exact", RBF(0.4))
    for batch, penalty in stream:
        dense = dense.fold(batch.points, penalty).recursion
        sparse = sparse.fold(sp.csr_array(batch.points), penalty).recursion
    new = vectors(9, seed=9)
    np.testing.assert_allclose(
        sparse.covariance(sp.csr_array(new), sp.csr_array(new)),
        dense.covariance(new, new),
        rtol=0,
        atol=1e-12,
    )


def test_a_point_may_come_again_in_a_later_batch():
    stream = make_stream([15], seed=4) * 3
    expected = naive.unrolled_kernel(naive.rbf(0.4), references(stream))
    state = fold_all(make_recursion("exact", RBF(0.4)), stream)
    assert_same_kernel(state.covariance, expected, vectors(9, seed=10), stream[0][0].points, EXACT)


@pytest.mark.parametrize("name", ["exact", "landmarks", "spectral"])
def test_a_batch_of_no_smoothness_changes_only_counts(name):
    state = fold_all(make_recursion(name, RBF(0.4)), make_stream([15, 10], seed=5))
    point = vectors(1, seed=11)
    nothing = Smoothness(sp.csr_array((1, 1)), 1.0)
    left, right = vectors(9, seed=12), vectors(8, seed=13)
    before = state.covariance(left, right)
    after = state.fold(point, nothing).recursion.covariance(left, right)
    if name != "spectral":  # whose third batch replaces the past by pseudo-points
        np.testing.assert_allclose(after, before, rtol=0, atol=1e-12)
    else:
        assert np.isfinite(after).all()
        assert np.abs(after - before).max() > 1e-6


# -- feature space ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exact", "landmarks"])
def test_in_the_feature_space_of_a_linear_kernel(name):
    # G = I + sum 2 beta F'LF with F = X, and k = f' G^{-1} f; rank p, so landmarks are exact too
    stream = make_stream([15, 20, 12], seed=6)
    left, right = vectors(9, seed=14), vectors(8, seed=15)
    state, G = make_recursion(name, Linear()), np.eye(4)
    for batch, penalty in stream:
        state = state.fold(batch.points, penalty).recursion
        G = G + 2 * batch.beta * batch.points.T @ batch.laplacian @ batch.points
        expected = left @ np.linalg.inv(G) @ right.T
        np.testing.assert_allclose(state.covariance(left, right), expected, rtol=0, atol=EXACT)


# -- landmarks -------------------------------------------------------------------------------------


def condition(kernel, stream):
    points = np.vstack([batch.points for batch in references(stream)])
    return np.linalg.cond(kernel(points, points))


@pytest.mark.parametrize("gamma", [0.05, 0.3, 1.0, 3.0])
def test_all_points_as_landmarks_are_exact(gamma):
    stream = make_stream([15, 20, 12], seed=7)
    assert condition(naive.rbf(gamma), stream) < WELL_CONDITIONED
    expected = naive.unrolled_kernel(naive.rbf(gamma), references(stream))
    state = fold_all(make_recursion("landmarks", RBF(gamma), n_landmarks=47), stream)
    left, right = vectors(9, seed=16), vectors(8, seed=17)
    assert_same_kernel(state.covariance, expected, left, right, ALL_LANDMARKS)
    assert_same_kernel(state.covariance, expected, left, stream[0][0].points, ALL_LANDMARKS)


@pytest.mark.parametrize("gamma", [1e-5, 1e-4, 1e-3])
def test_ill_conditioned_landmarks_err_no_more_than_the_cutoff_allows(gamma):
    """One batch of n points, Z = X: an error bound that follows from the cut-off alone.

    P projects functions, in the space of the kernel, on the span of the kernel functions kept, and
    leaves of each k(z, .) a remainder of squared norm <= e, the cut-off, as k(z, z) = 1. Write k_x
    for the values k(Z, x), p_x for those of P k(., x), and F = K - Phi Phi' for the Gram matrix of
    the remainders, |F| <= trace F <= n e. The exact reduction is k_x S k_y with
    S = (I + Lam K)^{-1} Lam, that by landmarks p_x T p_y with Phi Phi' in place of K, and

        k_x S k_y - p_x T p_y = (k_x - p_x) S k_y + p_x S (k_y - p_y) - p_x S F T p_y.

    Both S and T are at most |Lam|, and |k_x - p_x| <= sqrt(n e), which also bounds |p_x| by |k_x|.
    """
    stream = make_stream([40], betas=[0.5], seed=8)
    batch = references(stream)[0]
    kernel = naive.rbf(gamma)
    gram = kernel(batch.points, batch.points)
    assert np.linalg.cond(gram) > WELL_CONDITIONED
    whitening = whiten(gram, REDUNDANT)
    used = whitening.any(axis=0)
    assert used.sum() < 40
    features = gram @ whitening
    np.testing.assert_allclose(
        whitening.T @ features, np.diag(used.astype(float)), rtol=0, atol=np.sqrt(REDUNDANT)
    )
    assert np.diagonal(gram - features @ features.T).max() <= REDUNDANT
    state = fold_all(make_recursion("landmarks", RBF(gamma), n_landmarks=40), stream)
    assert state.basis.whitening.any(axis=0).sum() == used.sum()
    strength = np.linalg.norm(2 * batch.beta * batch.laplacian, 2)
    lost = np.sqrt(40 * REDUNDANT)
    expected = naive.unrolled_kernel(kernel, [batch])
    for points in (batch.points, vectors(30, seed=18)):
        length = np.linalg.norm(kernel(points, batch.points), axis=1).max() + lost
        error = np.abs(state.covariance(points, points) - expected(points, points)).max()
        assert error <= 2 * strength * length * lost + (strength * length * lost) ** 2


@pytest.mark.parametrize("gamma", [1e-4, 1e-3, 3e-3])
def test_ill_conditioned_landmarks_that_grow_stay_close(gamma):
    stream = make_stream([15, 20, 12], seed=7)
    assert condition(naive.rbf(gamma), stream) > WELL_CONDITIONED
    expected = naive.unrolled_kernel(naive.rbf(gamma), references(stream))
    state = fold_all(make_recursion("landmarks", RBF(gamma), n_landmarks=47), stream)
    # a direction left out has at most the root of the cut-off of the standard deviation
    points = np.vstack([vectors(30, seed=18), stream[0][0].points])
    assert_same_kernel(state.covariance, expected, points, points, np.sqrt(REDUNDANT))


def test_landmarks_grown_batch_by_batch_equal_all_at_once():
    stream = make_stream([15, 20, 12], seed=9)
    assert condition(naive.rbf(1.0), stream) < WELL_CONDITIONED
    grown = fold_all(make_recursion("landmarks", RBF(1.0), n_landmarks=47), stream)
    points = np.vstack([batch.points for batch in references(stream)])
    at_once = fold_all(given_landmarks(RBF(1.0), points), stream)
    assert np.array_equal(grown.basis.landmarks, points)
    left, right = vectors(9, seed=19), vectors(8, seed=20)
    np.testing.assert_allclose(
        grown.covariance(left, right), at_once.covariance(left, right), rtol=0, atol=ALL_LANDMARKS
    )


def given_landmarks(kernel, landmarks):
    """Return a recursion with given landmarks, which are never replaced."""
    gram = kernel(landmarks, landmarks)
    whitening = whiten(gram, REDUNDANT * np.diagonal(gram).max())
    basis = Basis(landmarks, whitening, gram)
    # keys are negative, so no later point can replace one with key zero
    keys = np.zeros(landmarks.shape[0])
    return LandmarkRecursion(LowRankCovariance(kernel), landmarks.shape[0], 0, basis, keys)


def test_few_landmarks_equal_the_printed_formula():
    stream = make_stream([15, 20, 12, 18], seed=10)
    landmarks = vectors(11, seed=21)
    state = given_landmarks(RBF(0.7), landmarks)
    left, right = vectors(9, seed=22), vectors(8, seed=23)
    for t, (batch, penalty) in enumerate(stream):
        state = state.fold(batch.points, penalty).recursion
        expected = naive.landmark_kernel(naive.rbf(0.7), landmarks, references(stream)[: t + 1])
        assert_same_kernel(state.covariance, expected, left, right, EXACT)
    assert state.basis.landmarks.shape[0] == 11


def test_landmarks_that_grow_and_move_equal_the_formula():
    # 25 landmarks: 15 of the first batch, then a sample of everything seen
    stream = make_stream([15, 20, 12, 18], seed=11)
    state = make_recursion("landmarks", RBF(0.7), n_landmarks=25, seed=3)
    left, right = vectors(9, seed=24), vectors(8, seed=25)
    landmarks = []
    for t, (batch, penalty) in enumerate(stream):
        state = state.fold(batch.points, penalty).recursion
        landmarks.append(state.basis.landmarks)
        expected = naive.moving_landmark_kernel(
            naive.rbf(0.7), landmarks, references(stream)[: t + 1]
        )
        assert_same_kernel(state.covariance, expected, left, right, ALL_LANDMARKS)
        assert len({tuple(point) for point in state.basis.landmarks}) == len(state.basis.landmarks)
    assert [each.shape[0] for each in landmarks] == [15, 25, 25, 25]
    seen = [point for batch in references(stream) for point in batch.points.tolist()]
    positions = [seen.index(point) for point in landmarks[-1].tolist()]
    assert positions == sorted(positions)  # oldest first
    assert [sum(start <= at < end for at in positions) > 0 for start, end in
            [(0, 15), (15, 35), (35, 47), (47, 65)]] == [True] * 4  # fmt: skip


def test_landmarks_grow_to_their_number_before_any_is_replaced():
    stream = make_stream([15, 20, 12], seed=11)
    state = make_recursion("landmarks", RBF(0.7), n_landmarks=47, seed=3)
    for t, (batch, penalty) in enumerate(stream):
        state = state.fold(batch.points, penalty).recursion
        seen = np.vstack([batch.points for batch in references(stream)[: t + 1]])
        assert np.array_equal(state.basis.landmarks, seen)


@pytest.mark.parametrize("forgetting", [1.0, 0.5])
def test_landmarks_are_a_sample_weighted_by_forgetting(forgetting):
    """A point of batch t is drawn with weight ``forgetting^(T - t)``."""
    rng, n_batches, size, n_landmarks = np.random.default_rng(0), 6, 200, 20
    counts = np.zeros(n_batches)
    for seed in range(10):
        state = make_recursion("landmarks", RBF(0.7), n_landmarks=n_landmarks, seed=seed)
        for t in range(n_batches):
            points = np.column_stack([np.full(size, float(t)), rng.normal(size=size)])
            state = state.fold(points, None, forgetting).recursion
        counts += np.bincount(state.landmarks[:, 0].astype(int), minlength=n_batches)
    weights = forgetting ** np.arange(n_batches)[::-1]
    shares = weights / weights.sum()
    errors = np.sqrt(shares * (1.0 - shares) / counts.sum())
    assert (np.abs(counts / counts.sum() - shares) < 4.0 * errors).all()


def test_the_landmark_references_agree():
    stream = references(make_stream([15, 20, 12], seed=12))
    landmarks = vectors(11, seed=26)
    left, right = vectors(9, seed=27), vectors(8, seed=28)
    growing = naive.growing_landmark_kernel(naive.rbf(0.7), landmarks, [11] * 3, stream)
    for other in (
        naive.landmark_kernel(naive.rbf(0.7), landmarks, stream),
        naive.moving_landmark_kernel(naive.rbf(0.7), [landmarks] * 3, stream),
    ):
        np.testing.assert_allclose(growing(left, right), other(left, right), rtol=0, atol=EXACT)
    counts = [5, 8, 11]
    np.testing.assert_allclose(
        naive.growing_landmark_kernel(naive.rbf(0.7), landmarks, counts, stream)(left, right),
        naive.moving_landmark_kernel(
            naive.rbf(0.7), [landmarks[:count] for count in counts], stream
        )(left, right),
        rtol=0,
        atol=EXACT,
    )


def test_the_same_seed_draws_the_same_landmarks():
    stream = make_stream([15, 20, 12], seed=13)
    drawn = [
        fold_all(
            make_recursion("landmarks", RBF(0.7), n_landmarks=8, seed=seed), stream
        ).basis.landmarks
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_given_landmarks_make_the_order_of_batches_immaterial():
    stream = make_stream([15, 20, 12, 18], seed=14)
    landmarks = vectors(11, seed=29)
    left, right = vectors(9, seed=30), vectors(8, seed=31)
    there = fold_all(given_landmarks(RBF(0.7), landmarks), stream)
    back = fold_all(given_landmarks(RBF(0.7), landmarks), stream[::-1])
    np.testing.assert_allclose(
        there.basis.coefficient_covariance, back.basis.coefficient_covariance, rtol=0, atol=ROUNDING
    )
    np.testing.assert_allclose(
        there.covariance(left, right), back.covariance(left, right), rtol=0, atol=1e-12
    )


def test_penalties_on_landmarks_are_a_sum_over_batches():
    """``V = (I + H)^{-1}``, and the H of all batches is the sum of theirs."""
    stream = make_stream([15, 20, 12], seed=15)
    landmarks = vectors(11, seed=32)
    alone = [fold_all(given_landmarks(RBF(0.7), landmarks), [one]) for one in stream]
    together = fold_all(given_landmarks(RBF(0.7), landmarks), stream)
    identity = np.eye(11)
    penalty = sum(np.linalg.inv(state.basis.coefficient_covariance) - identity for state in alone)
    assert np.linalg.eigvalsh(penalty)[-1] > 1.0
    np.testing.assert_allclose(
        together.basis.coefficient_covariance,
        np.linalg.inv(identity + penalty),
        rtol=0,
        atol=ROUNDING,
    )


def test_repeated_landmarks_do_no_harm():
    stream = make_stream([15, 12], seed=16)
    landmarks = vectors(11, seed=33)
    left, right = vectors(9, seed=34), vectors(8, seed=35)
    once = fold_all(given_landmarks(RBF(0.7), landmarks), stream)
    twice = fold_all(given_landmarks(RBF(0.7), np.vstack([landmarks, landmarks[:4]])), stream)
    np.testing.assert_allclose(
        twice.covariance(left, right), once.covariance(left, right), rtol=0, atol=ALL_LANDMARKS
    )


def test_landmarks_on_csr_equal_dense():
    stream = make_stream([15, 20, 12], seed=17)
    dense = make_recursion("landmarks", RBF(0.7), n_landmarks=25, seed=4)
    sparse = make_recursion("landmarks", RBF(0.7), n_landmarks=25, seed=4)
    for batch, penalty in stream:
        dense = dense.fold(batch.points, penalty).recursion
        sparse = sparse.fold(sp.csr_array(batch.points), penalty).recursion
    assert sp.issparse(sparse.basis.landmarks)
    new = vectors(9, seed=36)
    np.testing.assert_allclose(
        sparse.covariance(sp.csr_array(new), sp.csr_array(new)),
        dense.covariance(new, new),
        rtol=0,
        atol=1e-12,
    )


def test_a_projection_is_orthogonal():
    landmarks, points = vectors(6, seed=61), vectors(15, seed=62)
    coefficients = vectors(15, p=2, seed=63)
    state = make_recursion("landmarks", RBF(0.4), n_landmarks=6).fold(landmarks, None).recursion
    kernel = naive.rbf(0.4)
    nearest = np.linalg.solve(kernel(landmarks, landmarks), kernel(landmarks, points))
    found = state.project(points, coefficients)
    np.testing.assert_allclose(found, nearest @ coefficients, rtol=0, atol=1e-12)


def test_memory_of_landmarks_is_constant():
    stream = make_stream([15] * 5, seed=18)
    state = make_recursion("landmarks", RBF(0.7), n_landmarks=20)
    sizes = []
    for batch, penalty in stream:
        state = state.fold(batch.points, penalty).recursion
        basis, reduction = state.basis, state.covariance.reduction
        arrays = (basis.landmarks, basis.whitening, basis.gram, basis.coefficient_covariance)
        sizes.append([array.shape for array in (*arrays, reduction.landmarks, reduction.factor)])
    assert sizes[1] == sizes[2] == sizes[3] == sizes[4]


# -- spectral --------------------------------------------------------------------------------------


def orientation_of(stream):
    """Return the singular vectors of the first batch, with the signs the library gives them."""
    return spectrum_of(stream[0][0].points, stream[0][1]).vectors


@pytest.mark.parametrize(("kernel", "reference"), KERNELS)
def test_spectral_equals_the_printed_formulas(kernel, reference):
    stream = make_stream([15, 20, 12, 18, 14], seed=19)
    left, right = vectors(9, seed=37), vectors(8, seed=38)
    state = make_recursion("spectral", kernel)
    for t, (batch, penalty) in enumerate(stream):
        state = state.fold(batch.points, penalty).recursion
        expected = naive.spectral_kernel(
            reference, references(stream)[: t + 1], orientation_of(stream)
        )
        assert_same_kernel(state.covariance, expected, left, right, EXACT)
        assert_same_kernel(state.covariance, expected, left, batch.points, EXACT)


def test_spectral_is_exact_for_two_batches_and_not_beyond():
    stream = make_stream([15, 20, 12], seed=20)
    left, right = vectors(9, seed=39), vectors(8, seed=40)
    state = make_recursion("spectral", RBF(0.4))
    for t, (batch, penalty) in enumerate(stream):
        state = state.fold(batch.points, penalty).recursion
        exact = naive.unrolled_kernel(naive.rbf(0.4), references(stream)[: t + 1])
        if t < 2:
            assert_same_kernel(state.covariance, exact, left, right, EXACT)
    assert np.abs(state.covariance(left, right) - exact(left, right)).max() > 1e-4


def test_the_rank_is_that_of_the_smaller_of_the_first_two_batches():
    # ranks 6, 3 (cut to 3), then larger ones cut, and one smaller that is left out
    stream = make_stream([9, 3, 12, 2, 11], p=6, seed=21)
    left, right = vectors(9, p=6, seed=41), vectors(8, p=6, seed=42)
    state = make_recursion("spectral", RBF(0.2))
    for t, (batch, penalty) in enumerate(stream):
        state = state.fold(batch.points, penalty).recursion
        expected = naive.spectral_kernel(
            naive.rbf(0.2), references(stream)[: t + 1], orientation_of(stream)
        )
        assert_same_kernel(state.covariance, expected, left, right, EXACT)
    assert state.spectrum.rank == 3


def test_a_batch_of_smaller_rank_leaves_the_averages():
    stream = make_stream([9, 8, 2, 11], p=6, seed=22)
    before = fold_all(make_recursion("spectral", RBF(0.2)), stream[:2])
    after = before.fold(stream[2][0].points, stream[2][1]).recursion
    assert after.spectrum is before.spectrum
    assert after.penalty_weight == pytest.approx(
        before.penalty_weight + 2 * stream[2][0].beta, rel=1e-15
    )
    assert after.fold(stream[3][0].points, stream[3][1]).recursion.spectrum.count == 3


def test_signs_of_singular_vectors_do_not_matter():
    # the mirror image of a batch has the same spectrum except for signs
    stream = make_stream([15, 20, 12, 18], seed=23)
    mirrored = [
        (naive.Smoothing(-batch.points, batch.laplacian, batch.beta), penalty)
        if t == 1
        else (batch, penalty)
        for t, (batch, penalty) in enumerate(stream)
    ]
    plain = fold_all(make_recursion("spectral", RBF(0.4)), stream)
    other = fold_all(make_recursion("spectral", RBF(0.4)), mirrored)
    left, right = vectors(9, seed=43), vectors(8, seed=44)
    np.testing.assert_allclose(
        plain.covariance(left, right), other.covariance(left, right), rtol=0, atol=1e-12
    )


def test_the_order_of_rows_does_not_matter_to_the_spectrum():
    batch, penalty = make_batch(15, beta=0.5, seed=54)
    spectrum = spectrum_of(batch.points, penalty)
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(15)
        laplacian = sp.csr_array(batch.laplacian[np.ix_(order, order)])
        other = spectrum_of(batch.points[order], Smoothness(laplacian, penalty.weight))
        for name in ("vectors", "singular_values", "laplacian_values"):
            np.testing.assert_allclose(
                getattr(other, name), getattr(spectrum, name), rtol=0, atol=1e-12
            )


def test_rayleigh_quotients_lie_in_the_range_of_the_laplacian():
    batch, penalty = make_batch(20, beta=3.0, seed=24)
    spectrum = spectrum_of(batch.points, penalty)
    bounds = np.linalg.eigvalsh(batch.laplacian)
    assert spectrum.vectors.shape == (4, 4)
    assert (spectrum.laplacian_values >= bounds[0] - ROUNDING).all()
    assert (spectrum.laplacian_values <= bounds[-1] + ROUNDING).all()
    left = batch.points @ spectrum.vectors.T / spectrum.singular_values
    quotients = [column @ batch.laplacian @ column for column in left.T]
    np.testing.assert_allclose(spectrum.laplacian_values, quotients, rtol=0, atol=1e-12)


def test_memory_of_the_spectral_recursion_is_constant():
    stream = make_stream([15] * 5, seed=25)
    state = make_recursion("spectral", RBF(0.7))
    shapes = []
    for batch, penalty in stream:
        state = state.fold(batch.points, penalty).recursion
        shapes.append(state.covariance.reduction.landmarks.shape)
    # two exact batches, then 4 pseudo-points and the newest batch
    assert shapes == [(15, 4), (30, 4), (19, 4), (19, 4), (19, 4)]


# -- all three -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exact", "landmarks", "spectral"])
@pytest.mark.parametrize(("kernel", "reference"), KERNELS)
def test_the_covariance_stays_positive_semidefinite(name, kernel, reference):
    state = make_recursion(name, kernel, n_landmarks=20)
    for batch, penalty in make_stream([15, 20, 12, 18, 14], seed=26):
        state = state.fold(batch.points, penalty).recursion
        points = np.vstack([vectors(25, seed=45), batch.points])
        values = state.covariance(points, points)
        size = max(1.0, np.linalg.eigvalsh(reference(points, points))[-1])
        assert np.linalg.eigvalsh(values)[0] >= -1e-12 * size


@pytest.mark.parametrize("name", ["exact", "landmarks"])
@pytest.mark.parametrize(("kernel", "reference"), KERNELS)
def test_every_batch_shrinks_the_covariance(name, kernel, reference):
    state = make_recursion(name, kernel, n_landmarks=79)
    points = vectors(25, seed=46)
    before = reference(points, points)
    size = max(1.0, np.linalg.eigvalsh(before)[-1])
    for batch, penalty in make_stream([15, 20, 12, 18, 14], seed=27):
        state = state.fold(batch.points, penalty).recursion
        after = state.covariance(points, points)
        assert np.linalg.eigvalsh(before - after)[0] >= -1e-12 * size
        assert np.trace(after) < np.trace(before)
        before = after


@pytest.mark.parametrize(("kernel", "reference"), KERNELS)
def test_replacing_landmarks_keeps_the_covariance_on_those_that_stay(kernel, reference):
    """The marginal at remaining landmarks is exact, so a batch never increases the covariance."""
    state = make_recursion("landmarks", kernel, n_landmarks=20)
    replaced = 0
    for batch, penalty in make_stream([15, 20, 12, 18, 14], seed=27):
        before = state
        state, origin = state.fold(batch.points, penalty)
        if before.basis is None:
            continue
        stayed = state.basis.landmarks[origin >= 0]
        replaced += before.basis.size - stayed.shape[0]
        old, new = before.covariance(stayed, stayed), state.covariance(stayed, stayed)
        size = max(1.0, np.linalg.eigvalsh(reference(stayed, stayed))[-1])
        assert np.linalg.eigvalsh(old - new)[0] >= -1e-12 * size
        assert np.trace(new) < np.trace(old)
        assert np.array_equal(stayed, before.basis.landmarks[origin[origin >= 0]])
    assert replaced > 10


def test_the_spectral_covariance_is_below_the_base_kernel():
    # it replaces the past, so it need not shrink from batch to batch
    state = make_recursion("spectral", RBF(0.4))
    points = vectors(25, seed=47)
    base = naive.rbf(0.4)(points, points)
    for batch, penalty in make_stream([15, 20, 12, 18, 14], seed=28):
        state = state.fold(batch.points, penalty).recursion
        taken = base - state.covariance(points, points)
        assert np.linalg.eigvalsh(taken)[0] >= -1e-12 * 25
        assert np.trace(taken) > 0


@pytest.mark.parametrize("name", ["exact", "landmarks", "spectral"])
@pytest.mark.parametrize(("kernel", "reference"), KERNELS)
def test_the_diagonal_is_that_of_the_matrix(name, kernel, reference):
    state = fold_all(
        make_recursion(name, kernel, n_landmarks=20), make_stream([15, 20, 12], seed=29)
    )
    points = vectors(25, seed=48)
    values = state.covariance(points, points)
    size = max(1.0, np.abs(reference(points, points)).max())
    np.testing.assert_allclose(
        state.covariance.diagonal(points), np.diagonal(values), rtol=0, atol=ROUNDING * size
    )


@pytest.mark.parametrize("name", ["exact", "landmarks", "spectral"])
def test_the_landmark_part_is_the_difference_from_the_base_kernel(name):
    state = fold_all(
        make_recursion(name, RBF(0.4), n_landmarks=20), make_stream([15, 20, 12], seed=30)
    )
    support, coefficients = vectors(10, seed=49), vectors(10, p=2, seed=50)
    new = vectors(25, seed=51)
    geometry = state.covariance.on_window(support, state.landmarks)
    part = geometry.landmark_part(coefficients)
    kernel = naive.rbf(0.4)
    found = kernel(new, support) @ coefficients + kernel(new, state.landmarks) @ part
    expected = state.covariance(new, support) @ coefficients
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["exact", "landmarks", "spectral"])
def test_folding_leaves_the_old_state_alone(name):
    stream = make_stream([15, 20, 12], seed=31)
    state = fold_all(make_recursion(name, RBF(0.4), n_landmarks=20), stream[:2])
    points = vectors(25, seed=52)
    before = state.covariance(points, points)
    state.fold(stream[2][0].points, stream[2][1])
    assert np.array_equal(state.covariance(points, points), before)


def test_stack_keeps_formats():
    dense, sparse = vectors(3, seed=53), sp.csr_array(vectors(2, seed=54))
    assert isinstance(stack(dense, dense), np.ndarray)
    mixed = stack(sparse, sp.csr_array(dense))
    assert sp.issparse(mixed)
    assert mixed.shape == (5, 4)
