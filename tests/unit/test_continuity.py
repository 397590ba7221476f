"""Graph memory, the Laplacian of rows, and landmarks that move, against formulas in full matrices.

The reference knows one thing only: a Gaussian on points by its covariance S (`naive.Known`). Adding
points, leaving some out, and conditioning on rows are each a line of linear algebra there.
"""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from seqmed import SeqLapMED
from seqmed.graph import GraphRecipe, find_neighbours, residual_rows, smoothness
from seqmed.kernels import RBF, Linear, Polynomial
from seqmed.recursion import begin
from seqmed.recursion.basis import REDUNDANT, empty_basis, whiten, whiten_points
from seqmed.recursion.landmarks import draw_keys, largest
from tests.reference import naive
from tests.unit.test_identities import (
    TOL,
    UNLABELED,
    assert_close,
    awkward_stream,
    labeled_batches,
    learn,
    make_batch,
    make_stream,
    new_points,
)

# Kernel width at which the Gram matrix of a hundred points has a condition of some thousands.
GAMMA = 2.0
NEIGHBOURS = 5
# Two ways through inverses of matrices of that condition.
SAME = 1e-10


def rbf(left, right):
    differences = left[:, None, :] - right[None, :, :]
    return np.exp(-GAMMA * (differences**2).sum(axis=2))


def vectors(n, p=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p))


def continuous(**options):
    settings = {
        "gamma": GAMMA, "beta": 0.8, "n_neighbors": NEIGHBOURS, "laplacian": "rows",
        "graph_memory": 15, "graph_commit": 1.0, "lag": 1, "tol": TOL, "random_state": 0,
        "bias": "exact", **options,
    }  # fmt: skip
    if not settings["graph_memory"]:
        settings["graph_commit"] = 0.0  # there is nothing to commit
    return SeqLapMED(**settings)


# -- the Laplacian of rows -------------------------------------------------------------------------

ROWS = [
    pytest.param({}, id="own-width"),
    pytest.param({"heat_width": 0.3}, id="given-width"),
    pytest.param({"weights": "binary"}, id="binary"),
]


def rows_of(points, n_neighbors=NEIGHBOURS, kernel=None, **options):
    recipe = GraphRecipe(n_neighbors=n_neighbors, laplacian="rows", **options)
    kernel = RBF(GAMMA) if kernel is None else kernel
    return residual_rows(find_neighbours(kernel, points, n_neighbors), recipe).toarray()


def reference_rows(points, n_neighbors=NEIGHBOURS, **options):
    names = {"heat_width": "width"}
    return naive.row_differences(
        points, n_neighbors, **{names.get(name, name): value for name, value in options.items()}
    )


@pytest.mark.parametrize("n_neighbors", [1, 5, 100])
@pytest.mark.parametrize("options", ROWS)
def test_rows_are_those_of_the_formula(options, n_neighbors):
    points = vectors(25, seed=1)
    found = rows_of(points, n_neighbors, **options)
    np.testing.assert_allclose(
        found, reference_rows(points, n_neighbors, **options), rtol=0, atol=1e-13
    )
    csr = rows_of(sp.csr_array(points), n_neighbors, **options)
    np.testing.assert_allclose(csr, found, rtol=0, atol=1e-13)


@pytest.mark.parametrize("options", ROWS)
def test_the_rows_take_means(options):
    points = vectors(25, seed=2)
    rows = rows_of(points, **options)
    means = np.eye(25) - rows
    assert (means >= 0).all()
    np.testing.assert_allclose(means.sum(axis=1), 1.0, rtol=0, atol=1e-14)
    assert (np.diagonal(means) == 0).all()
    assert ((means > 0).sum(axis=1) == NEIGHBOURS).all()
    # a constant is as smooth as can be
    np.testing.assert_allclose(rows @ np.ones(25), 0.0, rtol=0, atol=1e-14)


@pytest.mark.parametrize("options", ROWS)
def test_the_laplacian_is_a_sum_over_points(options):
    points, values = vectors(25, seed=3), vectors(25, p=2, seed=4)
    neighbours = find_neighbours(RBF(GAMMA), points, NEIGHBOURS)
    penalty = smoothness(neighbours, GraphRecipe(NEIGHBOURS, laplacian="rows", **options), 1.7)
    rows = reference_rows(points, **options)
    np.testing.assert_allclose(penalty.laplacian.toarray(), rows.T @ rows, rtol=0, atol=1e-12)
    one_by_one = sum(np.outer(rows[i] @ values, rows[i] @ values) for i in range(25))
    np.testing.assert_allclose(penalty.quadratic(values), 1.7 * one_by_one, rtol=0, atol=1e-12)
    scaled = penalty.scaled_rows() @ values
    np.testing.assert_allclose(scaled.T @ scaled, 1.7 * one_by_one, rtol=0, atol=1e-12)
    # the rows of one part of the points, and those of the rest, are the whole
    split = [scaled[part].T @ scaled[part] for part in (np.arange(25) < 9, np.arange(25) >= 9)]
    np.testing.assert_allclose(split[0] + split[1], 1.7 * one_by_one, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", ROWS)
def test_points_on_top_of_each_other_are_fine(options):
    """Distances of zero, all of them or some: the means are finite, and those of the formula."""
    same = np.ones((6, 3))
    some = np.vstack([vectors(8, seed=5), np.ones((7, 3))])
    for points in (same, some):
        rows = rows_of(points, **options)
        assert np.isfinite(rows).all()
        np.testing.assert_allclose(rows.sum(axis=1), 0.0, rtol=0, atol=1e-14)
    # which of equal points are neighbours is open: six of one row have each other, in any order
    np.testing.assert_allclose(
        np.sort(rows_of(same, **options), axis=1), np.sort(reference_rows(same, **options), axis=1)
    )
    far = np.vstack([vectors(6, seed=6), 1e8 + vectors(6, seed=7)])
    assert np.isfinite(rows_of(far, **options)).all()


@pytest.mark.parametrize("options", ROWS)
def test_few_points_have_few_neighbours(options):
    assert not rows_of(vectors(1, seed=8), **options).any()
    np.testing.assert_array_equal(rows_of(vectors(2, seed=9), **options), [[1, -1], [-1, 1]])


def test_rows_in_the_feature_space_of_a_kernel_without_coordinates():
    points = np.random.default_rng(10).poisson(2.0, size=(20, 4)).astype(float) + 1.0
    kernel = Polynomial(0.1, 2, 1.0)

    class Blind(Polynomial):
        def coordinates(self, points):
            return None

    found = rows_of(points, kernel=Blind(0.1, 2, 1.0))
    distances = naive.feature_distances(kernel(points, points))
    expected = naive.row_differences(points, NEIGHBOURS, distances=distances)
    # distances are differences of kernel values of some tens
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("recursion", ["exact", "landmarks"])
@pytest.mark.parametrize("power", [1, 2])
def test_the_laplacian_of_rows_works_without_a_memory(recursion, power):
    stream = make_stream(seed=11)
    model = SeqLapMED(
        gamma=GAMMA, beta=0.8, n_neighbors=NEIGHBOURS, laplacian="rows", laplacian_power=power,
        recursion=recursion, graph_memory=0, lag=1, tol=TOL, bias="exact",
    )  # fmt: skip
    batches = []
    for rows in stream:
        learn(model, [rows])
        differences = reference_rows(rows.points)
        laplacian = np.linalg.matrix_power(differences.T @ differences, power)
        batches.append(naive.Smoothing(rows.points, laplacian, 0.8))
    kernels = [naive.unrolled_kernel(rbf, batches[: t + 1]) for t in range(4)]
    known = naive.learn_stream(labeled_batches(stream, 10.0), kernels)
    assert_close(model.decision_function(new_points()), known.scores(new_points()))


# -- a Gaussian on points --------------------------------------------------------------------------


def test_the_reference_conditions_as_it_penalises():
    """S - SR'(RSR' + I/(2 beta))^{-1}RS is (S^{-1} + 2 beta R'R)^{-1}."""
    points, rows = vectors(20, seed=12), vectors(7, p=20, seed=13)
    known = naive.nothing_known(rbf, 3).on(points)
    one, other = known.given(rows, 0.8), known.penalised(1.6 * rows.T @ rows)
    np.testing.assert_allclose(one.covariance, other.covariance, rtol=0, atol=SAME)
    # and with all points it is Theorem 2
    theorem = naive.penalised(rbf, points, 1.6 * rows.T @ rows)
    left, right = vectors(9, seed=14), vectors(8, seed=15)
    np.testing.assert_allclose(one(left, right), theorem(left, right), rtol=0, atol=SAME)
    discounted = naive.penalised(rbf, points, 0.3 * 1.6 * rows.T @ rows)
    np.testing.assert_allclose(
        one.discounted(0.3)(left, right), discounted(left, right), rtol=0, atol=SAME
    )


KERNELS = [
    pytest.param(RBF(GAMMA), rbf, 15, id="rbf"),
    # a kernel of 10 dimensions: of more than 10 points, some are redundant
    pytest.param(Polynomial(0.3, 2, 1.0), naive.polynomial(0.3, 2, 1.0), 15, id="poly"),
    pytest.param(Linear(), naive.linear(), 15, id="linear"),
]


def informed(kernel, points, seed=0):
    """Return a basis on points about which something is known: a penalty on their values."""
    basis = empty_basis(points).extend(kernel, points)
    features = basis.features(kernel, points)
    rows = vectors(points.shape[0] // 2, p=points.shape[0], seed=seed)
    return basis.observe(rows @ features)


def assert_same_matrix(found, expected, tolerance=1e-9):
    size = max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * size)


@pytest.mark.parametrize(("kernel", "reference", "n"), KERNELS)
def test_more_landmarks_change_nothing_that_is_known(kernel, reference, n):
    points, new = vectors(n, seed=16), vectors(8, seed=17)
    basis = informed(kernel, points, seed=18)
    grown = basis.extend(kernel, new)
    everywhere = np.vstack([points, new, vectors(10, seed=19)])
    assert_same_matrix(
        grown.covariance(kernel)(everywhere, everywhere),
        basis.covariance(kernel)(everywhere, everywhere),
    )
    # the features of all landmarks reproduce the kernel on them
    both = np.vstack([points, new])
    features = grown.features(kernel, both)
    assert_same_matrix(features @ features.T, reference(both, both))
    assert np.array_equal(grown.landmarks, both)
    assert grown.whitening.shape == grown.gram.shape == grown.rest.shape == (n + 8, n + 8)


@pytest.mark.parametrize(("kernel", "reference", "n"), KERNELS)
def test_fewer_landmarks_keep_the_marginal(kernel, reference, n):
    points = vectors(n, seed=20)
    basis = informed(kernel, points, seed=21)
    kept = np.array([11, 2, 5, 7, 13, 0])
    fewer = basis.exchange(kernel, kept, points[:0]).basis
    assert np.array_equal(fewer.landmarks, points[kept])
    assert_same_matrix(
        fewer.covariance(kernel)(points[kept], points[kept]),
        basis.covariance(kernel)(points[kept], points[kept]),
    )
    left = np.linalg.eigvalsh(fewer.rest)
    assert (left >= -1e-9).all()
    assert (left <= 1 + 1e-9).all()


def test_fewer_landmarks_are_the_marginal_everywhere():
    """Elsewhere too: the function given its values on those that stay follows the base kernel."""
    points, rows = vectors(20, seed=22), vectors(9, p=20, seed=23)
    kernel = RBF(GAMMA)
    basis = empty_basis(points).extend(kernel, points)
    features = basis.features(kernel, points)
    basis = basis.observe(np.sqrt(1.6) * rows @ features)
    known = naive.nothing_known(rbf, 3).on(points).given(rows, 0.8)
    left, right = vectors(9, seed=24), vectors(8, seed=25)
    assert_same_matrix(basis.covariance(kernel)(left, right), known(left, right), SAME)
    kept = np.array([3, 17, 4, 9, 12])
    fewer, marginal = basis.exchange(kernel, kept, points[:0]).basis, known.on(points[kept])
    assert_same_matrix(marginal.covariance, known.covariance[np.ix_(kept, kept)], SAME)
    assert_same_matrix(fewer.covariance(kernel)(left, right), marginal(left, right), SAME)
    assert np.abs(marginal(left, right) - known(left, right)).max() > 1e-3


@pytest.mark.parametrize("remembered", [True, False], ids=["gram", "no-gram"])
@pytest.mark.parametrize("factored", [True, False], ids=["factor", "no-factor"])
def test_landmarks_exchanged_are_the_marginal_everywhere(remembered, factored):
    """Some leave and others come at once; what is known of the new ones goes through the old."""
    points, rows, new = vectors(20, seed=40), vectors(9, p=20, seed=41), vectors(6, seed=42)
    kernel = RBF(GAMMA)
    basis = whiten_points(kernel, points)
    basis = basis.observe(np.sqrt(1.6) * rows @ basis.features(kernel, points))
    known = naive.nothing_known(rbf, 3).on(points).given(rows, 0.8)
    kept = np.array([3, 17, 4, 9, 12, 0, 1, 8])
    left, right = vectors(9, seed=43), vectors(8, seed=44)
    before = replace(basis, gram=basis.gram if remembered else None)
    factor = basis.covariance(kernel).reduction.factor if factored else None
    changed, cost = before.exchange(kernel, kept, new, factor)
    now = np.vstack([points[kept], new])
    assert np.array_equal(changed.landmarks, now)
    assert_same_matrix(changed.gram, rbf(now, now), SAME)
    marginal = known.on(now)
    assert_same_matrix(changed.covariance(kernel)(left, right), marginal(left, right), SAME)
    gone = np.setdiff1d(np.arange(20), kept)
    change = np.diagonal(marginal(points[gone], points[gone]) - known.covariance[gone][:, gone])
    assert cost == pytest.approx(np.abs(change).max(), rel=1e-8)
    assert cost > 1e-3


@pytest.mark.parametrize("share", [0.999, 0.5, 0.01])
def test_a_basis_forgets(share):
    points, rows = vectors(20, seed=45), vectors(9, p=20, seed=46)
    kernel = RBF(GAMMA)
    basis = whiten_points(kernel, points)
    assert basis.forget(share) is basis
    basis = basis.observe(rows @ basis.features(kernel, points)).forget(share)
    known = naive.nothing_known(rbf, 3).on(points).given(rows, 0.5).discounted(share)
    assert_same_matrix(basis.covariance(kernel)(points, points), known.covariance, 1e-8)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("share", [1.0, 0.9])
def test_penalties_beyond_double_precision_leave_nothing_negative(share):
    """Batch after batch: what rounding leaves of a variance neither fails nor grows."""
    kernel, points = RBF(GAMMA), vectors(30, seed=29)
    basis = whiten_points(kernel, points)
    for t in range(30):
        rows = 1e7 * vectors(12, p=30, seed=700 + t)
        basis = basis.observe(rows) if t < 15 else basis
        basis = basis if share == 1 else basis.forget(share)
        values = np.linalg.eigvalsh(basis.rest)
        assert values[0] > -1e-12
        assert values[-1] < 1 + 1e-12
    fresh = vectors(9, seed=30)
    assert (basis.covariance(kernel).diagonal(fresh) >= 0).all()


@pytest.mark.filterwarnings("error")
def test_a_penalty_beyond_double_precision_stays_a_number():
    """Where I - V is the identity to the last digit, the marginal is nothing or next to it."""
    kernel, points = RBF(GAMMA), vectors(4, seed=28)
    basis = empty_basis(points).extend(kernel, points).observe(1e10 * np.eye(4))
    fewer = basis.exchange(kernel, np.array([0]), points[:0]).basis
    assert np.isfinite(fewer.rest).all()
    assert 0 <= fewer.covariance(kernel).diagonal(points[:1])[0] < 1e-12


def test_a_basis_can_shrink_to_nothing_and_grow_from_it():
    kernel, points = RBF(GAMMA), vectors(10, seed=26)
    empty = informed(kernel, points).exchange(kernel, np.zeros(0, dtype=int), points[:0]).basis
    assert empty.size == 0
    again = empty.extend(kernel, points)
    assert_same_matrix(again.covariance(kernel)(points, points), rbf(points, points), 1e-14)


@pytest.mark.parametrize("rank", [0, 1, 4, 10])
def test_whitening_at_any_rank(rank, capfd):
    """Columns of redundant points are zero, those of the others whiten; and nothing is printed."""
    root = vectors(10, p=max(rank, 1), seed=27)[:, :rank]
    gram = root @ root.T
    whitening = whiten(gram, REDUNDANT * max(1.0, np.diagonal(gram).max()))
    used = whitening.any(axis=0)
    assert used.sum() == rank
    np.testing.assert_allclose(
        whitening.T @ gram @ whitening, np.diag(used.astype(float)), rtol=0, atol=1e-6
    )
    assert not whitening[~used].any()  # nor does a redundant point enter the features of others
    features = gram @ whitening
    np.testing.assert_allclose(features @ features.T, gram, rtol=0, atol=1e-10)
    assert capfd.readouterr() == ("", "")


# -- landmarks that move ---------------------------------------------------------------------------


def heat_batch(n, seed, beta=0.8):
    """Return a batch for the reference, and its penalty for the library."""
    points = vectors(n, seed=seed)
    recipe = GraphRecipe(NEIGHBOURS, heat_width=0.3)
    penalty = smoothness(find_neighbours(RBF(GAMMA), points, NEIGHBOURS), recipe, 2 * beta)
    laplacian = naive.batch_laplacian(
        points, n_neighbors=NEIGHBOURS, weights="heat", width=0.3, kind="normalized", power=1
    )
    return naive.Smoothing(points, laplacian, beta), penalty


@pytest.mark.parametrize("forgetting", [1.0, 0.6])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_moving_landmarks_are_those_of_the_formula(forgetting, wrap):
    state = begin("landmarks", RBF(GAMMA), n_landmarks=20, seed=5)
    known = naive.nothing_known(rbf, 3)
    left, right = vectors(9, seed=30), vectors(8, seed=31)
    replaced = 0
    for t in range(6):
        batch, penalty = heat_batch(14, seed=3200 + t)
        if forgetting < 1:
            state = state.forget(forgetting)
            if t:
                known = known.discounted(forgetting)
        state = state.fold(wrap(batch.points), penalty)
        landmarks = state.basis.landmarks
        landmarks = landmarks.toarray() if sp.issparse(landmarks) else landmarks
        before = known
        known = known.on(naive.union(known.points, landmarks)).on(landmarks)
        stayed = landmarks[state.origin >= 0]
        replaced += len(before.points) - len(stayed)
        # replacing alone changes nothing on those that stay
        assert_same_matrix(known(stayed, stayed), before(stayed, stayed), SAME)
        predict = rbf(batch.points, landmarks) @ np.linalg.inv(rbf(landmarks, landmarks))
        known = known.penalised(1.6 * predict.T @ batch.laplacian @ predict)
        found = state.covariance(wrap(left), wrap(right))
        assert_same_matrix(found, known(left, right), 1e-9)
    assert replaced > 10


def test_replacing_landmarks_alone_keeps_the_covariance_on_those_that_stay():
    """A fold without a penalty moves landmarks and does nothing else."""
    state = begin("landmarks", RBF(GAMMA), n_landmarks=20, seed=6)
    for t in range(3):
        batch, penalty = heat_batch(14, seed=3300 + t)
        state = state.fold(batch.points, penalty)
    costs = []
    for t in range(6):
        before = state
        state = state.fold(vectors(14, seed=3400 + t), None)
        stayed = state.basis.landmarks[state.origin >= 0]
        assert_same_matrix(
            state.covariance(stayed, stayed), before.covariance(stayed, stayed), SAME
        )
        left = np.setdiff1d(np.arange(20), state.origin)
        gone = before.basis.landmarks[left]
        change = state.covariance.diagonal(gone) - before.covariance.diagonal(gone)
        # k(x, x) = 1
        assert state.replacement_cost == pytest.approx(np.abs(change).max(initial=0.0), abs=1e-10)
        costs.append(state.replacement_cost)
    assert max(costs) > 0.01


def positions_in(landmarks, seen):
    index = {tuple(point): i for i, point in enumerate(seen.tolist())}
    return [index[tuple(point)] for point in landmarks.tolist()]


def sampled(forgetting, n_batches, seeds, n_landmarks=10, size=10):
    """Return how often each point of a stream was a landmark in the end, over all seeds."""
    batches = [vectors(size, p=2, seed=3500 + t) for t in range(n_batches)]
    seen = np.vstack(batches)
    counts = np.zeros(len(seen))
    for seed in seeds:
        state = begin("landmarks", Linear(), n_landmarks=n_landmarks, seed=seed)
        for points in batches:
            if forgetting < 1:
                state = state.forget(forgetting)
            state = state.fold(points, None)
        assert state.basis.size == n_landmarks
        counts[positions_in(state.basis.landmarks, seen)] += 1
    return counts


def test_the_landmarks_are_a_uniform_sample_of_the_stream():
    """Each of 60 points is drawn with probability 1/6, whenever it came.

    300 independent draws: a point's count has mean 50 and deviation 6.5. Five deviations are
    exceeded by one of 60 points once in 30,000 choices of seeds.
    """
    counts = sampled(1.0, n_batches=6, seeds=range(300))
    deviation = np.sqrt(300 * (1 / 6) * (5 / 6))
    assert np.abs(counts - 50).max() < 5 * deviation
    batches = counts.reshape(6, 10).sum(axis=1)
    # hypergeometric: 10 of 60 are drawn, and 10 of them are of one batch
    spread = np.sqrt(300 * 10 * (1 / 6) * (5 / 6) * (50 / 59))
    assert np.abs(batches - 500).max() < 4 * spread
    # and draws are not all the same: the deviation is that of a sample, not zero
    assert 0.5 * deviation < counts.std() < 1.5 * deviation


@pytest.mark.parametrize("sizes", [[1], [3], [10], [9, 1], [1, 1, 1, 17]], ids=str)
def test_points_that_wait_are_stood_for(sizes):
    """Late in a stream one batch in several draws, for those before it too: still a uniform sample.

    10 landmarks from the first 200 points at 150 seeds. At most a tenth of the points wait in the
    end, so that of the landmarks a third are of the first third of the points, or a tenth more.
    """
    batches, n_seen, waited = [], 0, 0
    while n_seen < 200:
        size = min(sizes[len(batches) % len(sizes)], 200 - n_seen)
        batches.append(vectors(size, p=2, seed=3600 + len(batches)))
        n_seen += size
    seen, counts = np.vstack(batches), np.zeros(200)
    for seed in range(150):
        state = begin("landmarks", Linear(), n_landmarks=10, seed=seed)
        for points in batches:
            before, state = state, state.fold(points, None)
            assert 0 <= state.n_waiting < max(0.1 * state.n_seen, 20)
            if before.basis is not None and state.n_waiting > before.n_waiting + len(points) - 0.5:
                assert state.basis is before.basis
                waited += 1
        assert state.n_seen == 200
        counts[positions_in(state.basis.landmarks, seen)] += 1
    assert waited > 0
    first = counts[:67].sum() / 1500
    error = 4 * np.sqrt((1 / 3) * (2 / 3) / 1500)
    assert 67 / 200 - error < first < 67 / 200 / 0.9 + error


@pytest.mark.parametrize(("n", "standing"), [(5, 5), (5, 40), (1, 7.5), (30, 31)])
def test_keys_of_points_that_stand_for_others(n, standing):
    """They are the largest of so many: the k-th of N has the mean k / (N + 1) from above."""
    drawn = np.array([np.exp(draw_keys(n, seed, 3, standing)) for seed in range(4000)])
    gaps = 1.0 - np.sort(drawn, axis=1)[:, ::-1]
    expected = np.arange(1, n + 1) / (standing + 1)
    deviations = np.sqrt(expected * (1 - expected) / (standing + 2) / 4000)
    assert (np.abs(gaps.mean(axis=0) - expected) < 5 * deviations).all()
    # any point may have the largest
    assert np.ptp(np.bincount(drawn.argmax(axis=1), minlength=n)) < 10 * np.sqrt(4000 / n)


def test_forgetting_prefers_recent_points():
    counts = sampled(0.5, n_batches=6, seeds=range(100)).reshape(6, 10).sum(axis=1)
    assert (np.diff(counts) > 0).all()
    # of the newest ten points, each has at least the weight of all older ones together
    assert counts[-1] > 0.45 * counts.sum()
    assert counts[0] < 0.06 * counts.sum()


def test_one_landmark_is_drawn_in_proportion_to_weight():
    """With weights 0.5^age, ten points each: exact probabilities, by 2000 draws of one landmark."""
    n_batches, seeds = 4, range(2000)
    counts = np.zeros(n_batches)
    keys = [draw_keys(10, seed, t) for seed in seeds for t in range(n_batches)]
    for seed in seeds:
        weighted = np.zeros(0)
        for t in range(n_batches):
            weighted = np.append(weighted / 0.5, keys[n_batches * seed + t])
        counts[largest(weighted, 1)[0] // 10] += 1
    weights = 0.5 ** np.arange(n_batches)[::-1]
    expected = weights / weights.sum()
    deviations = np.sqrt(2000 * expected * (1 - expected))
    assert (np.abs(counts - 2000 * expected) < 4 * deviations).all()


# -- graph memory ----------------------------------------------------------------------------------


# Shares of what a dropped point said that go on to count.
COMMITS = [1.0, 0.3, 0.0]


def expected_fold(known, points, kept, *, beta=0.8, commit=1.0, **options):
    """Return what is known with all rows, and what is committed on the points kept.

    ``points`` are those of the graph, old and new. All rows count for now; those of points that
    are dropped are committed at a share ``commit`` of their strength, and the rest of it is not.
    """
    known = known.on(points)
    rows = reference_rows(points, **options)
    stays = np.isin(np.arange(len(points)), kept)
    committed = known.given(rows[~stays], commit * beta)
    tentative = committed.given(rows[stays], beta).given(rows[~stays], (1 - commit) * beta)
    return tentative, committed.on(points[kept])


def reference_stream(stream, folds, forgetting=None, beta=0.8, commit=1.0):
    """Return the kernel after every batch, and check that the library's points are the right ones.

    ``folds`` are the points of the graph of every batch and the positions of those kept: which
    points are kept is drawn, and all that is asked of the library here.
    """
    committed, kernels = naive.nothing_known(rbf, 3), []
    for t, (rows, (points, kept)) in enumerate(zip(stream, folds, strict=True)):
        assert np.array_equal(points, naive.union(committed.points, rows.points))
        if forgetting is not None and t:
            committed = committed.discounted(forgetting[t])
        tentative, committed = expected_fold(committed, points, kept, beta=beta, commit=commit)
        kernels.append(tentative)
    return kernels


def dense(points):
    return points.toarray() if sp.issparse(points) else points


def fold_of(model):
    """Return the points of the last graph and the positions of those that were kept."""
    carrier = model.posterior_.recursion
    return dense(carrier.anchors), carrier.kept


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize(("lag", "forgetting"), [(1, 1.0), (2, 0.7), (None, 1.0), (None, 0.7)])
@pytest.mark.parametrize("commit", COMMITS)
def test_the_covariance_of_a_continuous_stream(commit, forgetting, lag, wrap):
    """Commit on eviction, in the covariance form with full inverses: the same function."""
    stream = awkward_stream(seed=40)
    model = continuous(lag=lag, forgetting=forgetting, graph_commit=commit)
    folds, left, right = [], new_points(), vectors(12, seed=41)
    dropped = 0
    for t, rows in enumerate(stream):
        learn(model, [rows], wrap=wrap)
        points, kept = fold_of(model)
        folds.append((points, kept))
        dropped += len(points) - len(kept)
        kernel = reference_stream(stream[: t + 1], folds, [forgetting] * 7, commit=commit)[-1]
        found = model.posterior_.covariance(wrap(left), wrap(right))
        assert_same_matrix(found, kernel(left, right), 1e-9)
        np.testing.assert_allclose(
            model.decision_std(wrap(left)) ** 2, np.diagonal(kernel(left, left)), rtol=0, atol=1e-9
        )
    assert dropped > 30


@pytest.mark.parametrize("bias_variance", [np.inf, 0.7])
@pytest.mark.parametrize("lag", [1, 2, None])
@pytest.mark.parametrize("forgetting", [1.0, 0.7])
@pytest.mark.parametrize("commit", COMMITS)
def test_a_continuous_stream_is_that_of_the_reference(commit, forgetting, lag, bias_variance):
    stream = awkward_stream(seed=42)
    model = continuous(
        lag=lag, forgetting=forgetting, bias_variance=bias_variance, graph_commit=commit
    )
    folds, scores = [], []
    for rows in stream:
        learn(model, [rows])
        folds.append(fold_of(model))
        scores.append(model.decision_function(new_points()))
    expected = naive.learn_steps(
        labeled_batches(stream, 10.0),
        reference_stream(stream, folds, [forgetting] * 7, commit=commit),
        lag=lag,
        forgetting=forgetting,
        bias_variance=bias_variance,
    )
    for found, known in zip(scores, expected, strict=True):
        assert_close(found, known.scores(new_points()))


@pytest.mark.parametrize("lag", [1, None])
@pytest.mark.parametrize("commit", COMMITS)
def test_several_classes_share_a_graph_memory(commit, lag):
    stream = [make_batch(20, 9, 3, seed=4300 + t) for t in range(4)]
    model = continuous(lag=lag, graph_commit=commit)
    folds = [fold_of(learn(model, [rows])) for rows in stream]
    kernels = reference_stream(stream, folds, commit=commit)
    for label in range(3):
        known = naive.learn_stream(labeled_batches(stream, 10.0, positive=label), kernels, lag=lag)
        assert_close(model.decision_function(new_points())[:, label], known.scores(new_points()))


@pytest.mark.parametrize("forgetting", [1.0, 0.7])
def test_averaging_with_a_graph_memory_while_nothing_is_dropped(forgetting):
    """The averaged mean lives on points that are kept: it is exact as long as all of them are."""
    stream = awkward_stream(seed=44)
    options = {"graph_memory": 200, "forgetting": forgetting, "lag": 2}
    plain, running = continuous(**options), continuous(averaging=True, **options)
    mean, count = np.zeros(40), 0
    for rows in stream:
        learn(plain, [rows])
        learn(running, [rows])
        count += plain.update_info_.solutions[0] is not None
        step = max(1.0 / count, 1.0 - forgetting) if plain.update_info_.solved else 0.0
        mean = mean + step * (plain.decision_function(new_points()) - mean)
        assert_close(running.decision_function(new_points()), mean)


@pytest.mark.parametrize(
    ("n_classes", "wrap"),
    [(2, np.asarray), (3, np.asarray), (3, sp.csr_array)],
    ids=["2-dense", "3-dense", "3-csr"],
)
@pytest.mark.parametrize("bias_variance", [np.inf, 0.7])
@pytest.mark.parametrize("weights", ["heat", "binary"])
def test_a_memory_of_everything_is_one_fit_on_all_rows(weights, bias_variance, n_classes, wrap):
    """Nothing dropped, nothing committed: every graph is that of all rows so far."""
    stream = make_stream(n_classes=n_classes, seed=45)
    options = {"weights": weights, "bias_variance": bias_variance}
    model = continuous(graph_memory=100, lag=None, **options)
    for t, rows in enumerate(stream):
        learn(model, [rows], wrap=wrap)
        points = np.vstack([rows.points for rows in stream[: t + 1]])
        labels = np.concatenate([rows.labels for rows in stream[: t + 1]])
        for alone in ({"graph_memory": 0, "recursion": "exact"}, {"graph_memory": 100}, {}):
            once = continuous(**options, **alone).fit(wrap(points), labels)
            new = wrap(new_points())
            assert_close(model.decision_function(new), once.decision_function(new))
            assert_close(model.decision_std(new), once.decision_std(new))


def test_what_a_dropped_point_said_stays_said():
    """Rows committed count for ever, in company as alone: their sum is the penalty."""
    stream = [make_batch(14, 0, seed=4600 + t) for t in range(3)]
    model = continuous(graph_memory=14)
    for rows in stream:
        before = model.posterior_.covariance if hasattr(model, "posterior_") else None
        learn(model, [rows])
        if before is None:
            continue
        # the past in which no row of a kept point counts is above the present on the points kept
        points, kept = fold_of(model)
        stayed = points[kept]
        shrunk = rbf(stayed, stayed) - model.posterior_.covariance(stayed, stayed)
        assert np.linalg.eigvalsh(shrunk)[0] >= -1e-12
        committed = model.posterior_.recursion.committed
        uncommitted = committed - model.posterior_.covariance(stayed, stayed)
        assert np.linalg.eigvalsh(uncommitted)[0] >= -1e-12
        assert np.trace(uncommitted) > 0.1


@pytest.mark.parametrize("lag", [1, 2])
def test_where_nothing_is_committed_the_points_are_all_there_is(lag):
    """After a fold: the base kernel, conditioned on the rows of all points of the graph.

    Nothing of the past is in it but the points themselves, so the state holds no matrix for it.
    """
    stream = awkward_stream(seed=53)
    model = continuous(lag=lag, graph_commit=0.0)
    dropped = 0
    for rows in stream:
        learn(model, [rows])
        points, kept = fold_of(model)
        dropped += len(points) - len(kept)
        differences = reference_rows(points)
        gram = rbf(points, points)
        expected = np.linalg.inv(np.linalg.inv(gram) + 1.6 * differences.T @ differences)
        assert_same_matrix(model.posterior_.covariance(points, points), expected, 1e-9)
        assert model.posterior_.recursion.committed is None
    assert dropped > 30


@pytest.mark.parametrize("commit", [1.0, 0.3])
def test_nothing_is_committed_before_a_point_is_dropped(commit):
    stream = make_stream(seed=54)
    model = continuous(graph_memory=30, graph_commit=commit)
    dropped = False
    for rows in stream:
        learn(model, [rows])
        points, kept = fold_of(model)
        dropped = dropped or len(kept) < len(points)
        committed = model.posterior_.recursion.committed
        assert (committed is not None) == dropped
        if dropped:
            assert committed.shape == (len(kept), len(kept))
    assert dropped


def test_the_share_that_is_committed_matters():
    # the references above would agree with a model that ignored it, did they ignore it too
    stream = make_stream(seed=55)
    scores = [
        learn(continuous(graph_commit=commit), stream).decision_function(new_points())
        for commit in COMMITS
    ]
    for first in range(3):
        for second in range(first):
            assert np.abs(scores[first] - scores[second]).max() > 0.005


@pytest.mark.parametrize("commit", COMMITS)
def test_no_share_is_committed_where_nothing_is_dropped(commit):
    stream = make_stream(seed=56)
    options = {"graph_memory": 100, "lag": None}
    model = learn(continuous(graph_commit=commit, **options), stream)
    other = learn(continuous(graph_commit=0.5, **options), stream)
    assert np.array_equal(
        model.decision_function(new_points()), other.decision_function(new_points())
    )


@pytest.mark.parametrize("commit", COMMITS)
def test_points_no_longer_pinned_compete_to_stay(commit):
    """What is known on those that stay remains; of the others, the largest keys are kept."""
    rows = make_batch(30, 20, seed=5700)
    model = learn(continuous(graph_memory=4, graph_commit=commit), [rows, make_batch(12, 9)])
    carrier = model.posterior_.recursion
    points = carrier.anchors[carrier.kept]
    pinned = model.posterior_.window.points[[0, 3, 5]]
    assert len(points) == 13
    fewer = carrier.repin(pinned)
    stayed = carrier.anchors[fewer.kept]
    assert len(stayed) == 7
    assert {tuple(point) for point in pinned} <= {tuple(point) for point in stayed}
    own = np.array([point in pinned.tolist() for point in carrier.anchors.tolist()])
    keys = carrier.keys[~own]
    assert set(carrier.keys[fewer.kept]) == set(carrier.keys[own]) | set(np.sort(keys)[-4:])
    assert set(carrier.repin(model.posterior_.window.points).kept) == set(carrier.kept)
    if commit:
        places = np.flatnonzero(np.isin(carrier.kept, fewer.kept))
        assert np.array_equal(fewer.committed, carrier.committed[np.ix_(places, places)])
    else:
        assert fewer.committed is None
    untouched = begin("landmarks", RBF(GAMMA), graph_memory=4)
    assert untouched.repin(pinned) is untouched


def test_points_of_the_window_are_kept_and_others_up_to_the_memory():
    stream = awkward_stream(seed=47)
    for lag in (1, 2, None):
        model = continuous(lag=lag, graph_memory=6)
        for rows in stream:
            learn(model, [rows])
            points, kept = fold_of(model)
            stayed = {tuple(point) for point in points[kept]}
            window = {tuple(point) for point in model.posterior_.window.points}
            assert window <= stayed
            assert len(stayed) == len(kept) <= len(window) + 6
            assert len(points) - len(kept) == 0 or len(stayed) == len(window) + 6


def test_rows_that_come_again_are_one_point():
    rows = make_batch(20, 8, seed=4800)
    model = continuous(graph_memory=50, lag=None)
    learn(model, [rows])
    spread = model.decision_std(new_points())
    learn(model, [replace(rows, labels=np.full(20, UNLABELED)), rows])
    points, _ = fold_of(model)
    assert len(points) == 20
    # the graph is the same, and so is what it says
    assert_close(model.decision_std(new_points()), spread, 1e-12)


def test_a_memory_of_nothing_but_the_window():
    """The smallest memory there is: the window and one point."""
    stream = make_stream(seed=49)
    model = continuous(graph_memory=1)
    for rows in stream:
        learn(model, [rows])
        assert fold_of(model)[1].size == (rows.labels != UNLABELED).sum() + 1
    assert np.isfinite(model.decision_function(new_points())).all()


def test_the_memory_is_a_uniform_sample():
    """Twelve of 48 unlabeled points, over 300 seeds: each is kept in a quarter of them."""
    stream = [make_batch(12, 0, seed=5000 + t) for t in range(4)]
    seen = np.vstack([rows.points for rows in stream])
    counts = np.zeros(48)
    for seed in range(300):
        state = begin("landmarks", Linear(), graph_memory=12, seed=seed)
        for rows in stream:
            state = state.fold(state.vertices(rows.points, rows.points[:0]), None)
        counts[positions_in(state.anchors[state.kept], seen)] += 1
    deviation = np.sqrt(300 * 0.25 * 0.75)
    assert np.abs(counts - 75).max() < 4.5 * deviation
    assert 0.5 * deviation < counts.std() < 1.5 * deviation


def test_a_link_to_the_past_matters():
    # the identities above would hold of disjoint graphs, were the reference's disjoint too
    stream = make_stream(seed=51)
    linked = learn(continuous(), stream)
    apart = learn(continuous(graph_memory=0), stream)
    difference = linked.decision_function(new_points()) - apart.decision_function(new_points())
    assert np.abs(difference).max() > 0.02


# -- the strength of the graph is that of the update -----------------------------------------------


def taken(model):
    """Return what smoothness has taken of the kernel."""
    new = new_points()
    return rbf(new, new) - model.posterior_.covariance(new, new)


MODES = [
    pytest.param({}, id="plain"),
    pytest.param({"lag": 3}, id="lag"),
    pytest.param({"budget": 300}, id="budget"),
    pytest.param({"forgetting": 0.7}, id="forgetting"),
    pytest.param({"budget": 40, "forgetting": 0.7, "lag": 2}, id="all"),
]


@pytest.mark.parametrize("memory", [150, 12])
@pytest.mark.parametrize("options", MODES)
def test_without_smoothing_nothing_but_what_is_committed_counts(options, memory):
    """The linked graph is weighed by the beta of the update: by zero, and then again by more."""
    stream = make_stream(seed=52)
    model = continuous(graph_memory=memory, graph_commit=0.0, **options)
    learn(model, stream[:1])
    assert np.trace(taken(model)) > 1.0
    learn(model.set_params(beta=0.0), stream[1:2])
    assert np.abs(taken(model)).max() < 1e-12
    learn(model.set_params(beta=0.8), stream[2:3])
    points, _ = fold_of(model)
    rows = reference_rows(points)
    kernel = naive.nothing_known(rbf, 3).on(points).given(rows, 0.8)
    assert_same_matrix(model.posterior_.covariance(points, points), kernel.covariance, SAME)
    # the graph spans what was there before, the batch without smoothing included
    before = {tuple(point) for rows in stream[:2] for point in rows.points.tolist()}
    assert len(before & {tuple(point) for point in points.tolist()}) >= 12
    assert np.trace(taken(model)) > 1.0


@pytest.mark.parametrize("commit", [1.0, 0.3])
@pytest.mark.parametrize("options", MODES)
def test_without_smoothing_what_is_committed_goes_on_to_count(options, commit):
    """Against the reference with a beta for every batch."""
    stream = [*make_stream(seed=57), *make_stream(seed=58)]
    betas = [0.8, 0.8, 0.0, 0.8, 0.0, 0.0, 2.0, 0.8]
    model = continuous(graph_memory=10, graph_commit=commit, **options)
    committed, counted = naive.nothing_known(rbf, 3), []
    for t, (rows, beta) in enumerate(zip(stream, betas, strict=True)):
        learn(model.set_params(beta=beta), [rows])
        carrier = model.posterior_.recursion
        points, kept = carrier.anchors, carrier.kept
        assert np.array_equal(points, naive.union(committed.points, rows.points))
        if t:
            committed = committed.discounted(options.get("forgetting", 1.0))
        tentative, committed = expected_fold(committed, points, kept, beta=beta, commit=commit)
        left, right = new_points(), vectors(12, seed=59)
        found = model.posterior_.covariance(left, right)
        assert_same_matrix(found, tentative(left, right), 1e-9)
        if beta == 0:
            on_kept = model.posterior_.covariance(points[kept], points[kept])
            assert_same_matrix(on_kept, committed.covariance, 1e-9)
            on_base = rbf(points[kept], points[kept])
            counted.append(np.trace(on_base - on_kept))
    assert max(counted) > 0.1


def test_without_smoothing_from_the_start_nothing_is_kept():
    model = continuous(beta=0.0, graph_memory=150, graph_commit=0.0)
    for rows in make_stream(seed=60):
        learn(model, [rows])
        assert model.posterior_.recursion.anchors is None
    assert np.abs(taken(model)).max() < 1e-14


@pytest.mark.parametrize("sizes", [[2, 20, 20, 20, 20], [30, 1, 20, 20, 20]])
def test_without_smoothing_a_budget_still_gets_its_landmarks(sizes):
    """However small the first batch is: the points kept grow to the memory."""
    stream = [make_batch(n, min(n, 2), seed=6100 + t) for t, n in enumerate(sizes)]
    smooth = SeqLapMED(gamma=GAMMA, beta=0.0, budget=24, lag=1, tol=TOL, random_state=0)
    seen = 0
    for rows in stream:
        learn(smooth, [rows])
        seen += len(rows.points)
        window = smooth.posterior_.window.points
        points, kept = fold_of(smooth)
        others = [point for point in points[kept].tolist() if point not in window.tolist()]
        assert len(others) == min(12, seen - len(window)) or len(others) == 12
        assert len(kept) >= min(12, seen)
        new = new_points()
        assert_same_matrix(smooth.posterior_.covariance(new, new), rbf(new, new), 1e-14)


# -- one fit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias_variance", [np.inf, 0.7])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("memory", [1, 15, 39, 100])
@pytest.mark.parametrize("commit", COMMITS)
def test_one_fit_counts_all_rows_however_few_are_kept(commit, memory, n_classes, bias_variance):
    """LapMED with the Laplacian of all rows, whatever is to become of them."""
    rows = make_batch(40, 12, n_classes, seed=6200)
    options = {"bias_variance": bias_variance}
    model = continuous(graph_memory=memory, graph_commit=commit, **options)
    model.fit(rows.points, rows.labels)
    once = continuous(graph_memory=0, recursion="exact", **options).fit(rows.points, rows.labels)
    assert fold_of(model)[1].size == min(40, 12 + memory)
    new = new_points()
    assert_close(model.decision_function(new), once.decision_function(new))
    assert_close(model.decision_std(new), once.decision_std(new))
    left, right = new_points(), vectors(12, seed=63)
    found = model.posterior_.covariance(left, right)
    assert_same_matrix(found, once.posterior_.covariance(left, right), SAME)
