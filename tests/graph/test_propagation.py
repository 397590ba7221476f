"""The graph expert: kept rows, exact neighbour lists, label propagation, scores of new rows."""

from __future__ import annotations

import copy
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from seqmed import GraphPropagation
from seqmed.classes import Rows
from seqmed.graph import (
    conjugate_gradients,
    kept_rows,
    metrics,
    neighbour_search,
    propagation,
)
from seqmed.graph.propagation import choose_entering
from seqmed.kernels import make_kernel
from tests.reference import naive_graph
from tests.support.kept_rows import (
    KINDS,
    NEIGHBORS,
    all_distances,
    all_equal,
    assert_lists_are_exact,
    cloud,
    drifting,
    far_away,
    flat,
    integers,
    put_new,
    rounding,
    turning,
    with_outliers,
    words,
)

ALPHA = 0.97


def cauchy(left, right):
    """A kernel as a user might write it."""
    return 1.0 / (1.0 + naive_graph.euclidean(left, right) / left.shape[1])


@pytest.fixture
def small_blocks(monkeypatch):
    """Several blocks of rows and several strips of queries, with few rows."""
    monkeypatch.setattr(kept_rows, "BLOCK", 16)
    monkeypatch.setattr(kept_rows, "STRIP", 5)


# -- lists of neighbours --------------------------------------------------------------------------


CHANGES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 20)), min_size=1, max_size=6)


@settings(max_examples=50)
@given(st.sampled_from(KINDS), st.sampled_from([1, 2, 8, 40]), CHANGES, st.integers(0, 10_000))
def test_lists_of_euclidean_neighbours_are_exact_after_any_changes(make, p, changes, seed):
    rng = np.random.default_rng(seed)
    kept = kept_rows.no_kept_rows(metrics.make_metric("euclidean", make(rng, 20, p)), NEIGHBORS)
    for n_new, n_overwritten in [(8, 0), *changes]:
        kept = put_new(kept, rng, make, n_new, n_overwritten, p)
        assert_lists_are_exact(kept, **rounding(kept))


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("p", [100, 300])
def test_lists_of_wide_rows_are_exact_with_sketches_good_and_bad(make, p, monkeypatch):
    monkeypatch.setattr(kept_rows, "BLOCK", 64)
    monkeypatch.setattr(kept_rows, "STRIP", 25)
    monkeypatch.setattr(metrics, "MEASURED", 200)
    rng = np.random.default_rng(p)
    kept = kept_rows.no_kept_rows(metrics.make_metric("euclidean", make(rng, 50, p)), NEIGHBORS)
    kept = put_new(kept, rng, make, 210, 0, p)
    sketched = kept.blocks[0].sketch.size
    assert sketched or make in (cloud, integers, all_equal, turning, far_away, drifting)
    for n_new, n_overwritten in ((10, 60), (0, 90), (40, 5)):
        kept = put_new(kept, rng, make, n_new, n_overwritten, p)
        assert_lists_are_exact(kept, **rounding(kept))
    if make is flat:  # rows that the sketch has not been made for
        assert sketched
        for other in (turning, with_outliers, far_away, all_equal):
            kept = put_new(kept, rng, other, 10, 40, p)
            assert kept.blocks[0].sketch.size
            assert_lists_are_exact(kept, **rounding(kept))


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.usefixtures("small_blocks")
def test_lists_are_exact_across_blocks_and_strips(make):
    rng = np.random.default_rng(11)
    kept = kept_rows.no_kept_rows(metrics.make_metric("euclidean", make(rng, 20, 3)), NEIGHBORS)
    for n_new, n_overwritten in ((17, 0), (40, 17), (3, 50), (0, 30), (1, 0)):
        kept = put_new(kept, rng, make, n_new, n_overwritten, 3)
        assert_lists_are_exact(kept, **rounding(kept))
    assert len(kept.blocks) > 3


@settings(max_examples=20)
@given(CHANGES, st.integers(0, 10_000), st.sampled_from([4, 30]), st.booleans())
def test_lists_of_cosine_neighbours_are_exact_after_any_changes(changes, seed, p, sparse):
    def make(rng, n, p):
        return words(rng, n, p) if sparse else words(rng, n, p).toarray()

    rng = np.random.default_rng(seed)
    kept = kept_rows.no_kept_rows(metrics.make_metric("cosine", make(rng, 20, p)), NEIGHBORS)
    for n_new, n_overwritten in [(8, 0), *changes]:
        kept = put_new(kept, rng, make, n_new, n_overwritten, p)
        assert_lists_are_exact(kept, **rounding(kept))


@settings(max_examples=12)
@given(CHANGES, st.integers(0, 10_000), st.sampled_from(["poly", cauchy]))
def test_lists_of_kernel_neighbours_are_exact_after_any_changes(changes, seed, name):
    rng = np.random.default_rng(seed)
    rows = cloud(rng, 20, 3)
    kernel = make_kernel(name, "scale", 2, 1.0).freeze(rows, np.ones(20))
    kept = kept_rows.no_kept_rows(metrics.make_metric("auto", rows, kernel), NEIGHBORS)
    for n_new, n_overwritten in [(8, 0), *changes]:
        kept = put_new(kept, rng, cloud, n_new, n_overwritten, 3)
        assert_lists_are_exact(kept, **rounding(kept))


@pytest.mark.parametrize(("metric", "make"), [("euclidean", flat), ("cosine", words)])
@pytest.mark.parametrize("n_neighbors", [1, 10, 70])
def test_a_search_finds_the_nearest_kept_rows(metric, make, n_neighbors):
    rng = np.random.default_rng(0)
    kept = kept_rows.no_kept_rows(metrics.make_metric(metric, make(rng, 50, 12)), n_neighbors)
    kept = put_new(kept, rng, make, 450, 0, 12)
    queries = kept.metric.store(make(rng, 30, 12))
    whole = kept_rows.no_kept_rows(kept.metric, n_neighbors)
    joined = kept_rows.joined_rows([kept.take(np.arange(450)), queries])
    whole = whole.put(np.arange(480), joined)
    distances = all_distances(whole)[450:, :450]
    for own in (None, np.arange(30)):
        found = kept.search(queries, own=own)
        for row in range(30):
            expected = distances[row].copy()
            if own is not None:
                expected[own[row]] = np.inf
            expected = np.sort(expected[np.isfinite(expected)])[:n_neighbors]
            np.testing.assert_allclose(
                found.distances[row, : found.sizes[row]], expected, rtol=1e-5, atol=1e-5
            )


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_search_among_few_rows_finds_all_but_the_row_itself(metric):
    rows = np.random.default_rng(0).uniform(1.0, 2.0, size=(NEIGHBORS + 1, 4))
    kept = kept_rows.no_kept_rows(metrics.make_metric(metric, rows), NEIGHBORS)
    slots = np.arange(NEIGHBORS + 1)
    kept = kept.put(slots, kept.metric.store(rows))
    found = kept.search(kept.take(slots), own=slots)
    for slot in slots:
        assert set(found.slots[slot]) == set(slots) - {slot}


def test_rows_at_the_rounded_limit_are_found():
    """A limit that rounding has brought down to the value of a row does not rule it out."""
    norm = np.float32(0.1)
    norms = np.random.default_rng(0).random(999).astype(np.float32)
    horizons = np.nextafter(norm + norms, np.float32(np.inf))
    products = np.zeros((999, 999), dtype=np.float32)
    queries, rows = neighbour_search.find_below(products, norms, horizons - norm)
    assert set(queries[queries == rows].tolist()) == set(range(999))


def assert_neighbours_are_those_of_doubles(kept, rows):
    """Neighbours in single precision are those of rows (n, p) in double precision."""
    distances = naive_graph.euclidean(rows, rows)
    np.fill_diagonal(distances, np.inf)
    for row in range(rows.shape[0]):
        nearest = naive_graph.nearest(distances[row], NEIGHBORS)
        assert kept.lists.slots[row, :NEIGHBORS].tolist() == nearest


@pytest.mark.parametrize("outlier", [1e9, 1e25, 1e300])
def test_an_outlier_in_the_first_batch_does_not_change_other_distances(outlier):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(61, 3))
    rows[60] = outlier
    kept = kept_rows.no_kept_rows(metrics.make_metric("euclidean", rows), NEIGHBORS)
    kept = kept.put(np.arange(61), kept.metric.store(rows))
    assert_neighbours_are_those_of_doubles(kept, rows[:60])


@pytest.mark.parametrize("size", [1e-100, 1e-25, 1e20, 1e100])
def test_rows_of_any_size_are_distinguished_after_a_first_batch_of_one_row(size):
    rows = 3.0 + np.random.default_rng(2).normal(size=(60, 3))
    kept = kept_rows.no_kept_rows(metrics.make_metric("euclidean", size * rows[:1]), NEIGHBORS)
    kept = kept.put(np.arange(60), kept.metric.store(size * rows))
    assert_neighbours_are_those_of_doubles(kept, rows)


# -- learning -------------------------------------------------------------------------------------


def begun(rows, metric="euclidean", capacity=60, alpha=ALPHA, seed=0, n_classes=3):
    kept = kept_rows.no_kept_rows(metrics.make_metric(metric, rows), NEIGHBORS)
    state = propagation.GraphState(kept, capacity, alpha, seed)
    return state.with_classes(np.arange(0), n_classes)


def batches(seed, n_batches=5, size=25, n_classes=3, share=0.3, p=4):
    """Overlapping clouds; labels, label weights and unlabeled rows."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n_batches):
        codes = rng.integers(n_classes, size=size)
        rows = rng.normal(size=(size, p)) + 2 * np.eye(n_classes, p)[codes]
        codes = np.where(rng.random(size) < share, codes, -1)
        found.append((rows, codes, np.where(codes >= 0, rng.uniform(0.5, 2.0, size), 0.0)))
    return found


def learned(state, stream, **options):
    info = None
    for rows, codes, label_weights in stream:
        state, info, _ = propagation.learn_graph(state, Rows(rows, codes, label_weights), **options)
    return state, info


def naive_solution(state):
    """The stored rows, Y divided by the label weight of each class, and U."""
    distances = all_distances(state.rows)
    weights = naive_graph.edges(distances, state.rows.n_neighbors)
    labels = naive_graph.one_hot(state.codes, state.label_weights, state.influence.shape[1])
    totals = labels.sum(axis=0)
    labels[:, totals > 0] /= totals[totals > 0]
    return weights, labels, naive_graph.propagated(weights, labels, state.alpha)


def naive_residual(state):
    """The residual of ``(I - alpha S) Z = D^{-1/2} Y`` and the right-hand side, both (n, K)."""
    weights, labels, _ = naive_solution(state)
    degrees = weights.sum(axis=1)
    degrees[degrees == 0] = 1
    roots = degrees**-0.5
    matrix = np.eye(len(roots)) - state.alpha * roots[:, None] * weights * roots
    target = roots[:, None] * labels
    return target - matrix @ state.solution.astype(np.float64), target


def true_residual(state):
    """Largest relative residual of a class with labels."""
    residual, norms = (np.linalg.norm(each, axis=0) for each in naive_residual(state))
    return (residual[norms > 0] / norms[norms > 0]).max()


METRICS = {"euclidean": None, "cosine": None, "kernel": cauchy}


def metric_stream(name, seed):
    stream = batches(seed)
    if name == "cosine":
        return [(sp.csr_array(np.maximum(rows, 0.0)), *rest) for rows, *rest in stream]
    return stream


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.97])
def test_the_solution_is_that_of_a_dense_solve(name, alpha, monkeypatch):
    monkeypatch.setattr(conjugate_gradients, "TOLERANCE", 1e-5)
    stream = metric_stream(name, 1)
    metric = name
    if name == "kernel":
        rows = stream[0][0]
        metric = make_kernel(cauchy, "scale", 3, 0.0).freeze(rows, np.ones(len(rows)))
    state, info = learned(begun(stream[0][0], metric, alpha=alpha), stream)
    _, _, expected = naive_solution(state)
    np.testing.assert_allclose(state.influence, np.maximum(expected, 0.0), atol=1e-3)
    assert np.abs(expected).max() > 0.05
    assert info.residual <= 1e-5


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from([0.5, 0.97, 0.999]))
def test_the_residual_is_within_the_tolerance_and_as_reported(seed, alpha):
    stream = batches(seed, n_batches=4)
    state = begun(stream[0][0], alpha=alpha, capacity=70)
    for batch in stream:
        state, info = learned(state, [batch])
        if not (state.codes >= 0).any():
            continue
        residual = true_residual(state)
        assert residual <= 1.05 * conjugate_gradients.TOLERANCE
        np.testing.assert_allclose(residual, info.residual, rtol=0.05, atol=1e-4)
        assert info.gap == info.residual**2 / (2 * (1 - alpha))


def test_a_warm_start_ends_where_a_cold_one_does(monkeypatch):
    monkeypatch.setattr(conjugate_gradients, "TOLERANCE", 1e-5)
    stream = batches(2, n_batches=8)
    warm, _ = learned(begun(stream[0][0]), stream)
    nothing = np.zeros_like(warm.solution)
    cold = replace(warm, solution=nothing, influence=nothing)
    cold, info = propagation.solved(cold, np.arange(0), labels_changed=True)
    assert info.n_iter > 3
    np.testing.assert_allclose(warm.influence, cold.influence, atol=1e-4)
    again, info = propagation.solved(warm, np.arange(0), labels_changed=True)
    assert info.n_iter <= 1
    np.testing.assert_allclose(again.influence, warm.influence, atol=1e-5)


def small_graph(seed):
    """Clusters with labels in some, or a chain with labels at one end: some rows are far away."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(50, 300)), int(rng.integers(1, 5))
    codes = rng.integers(2, size=n)
    rows = rng.normal(size=(n, p)) + 4.0 * rng.normal(size=(2, p))[codes]
    if seed % 2:
        rows = np.linspace(0.0, 1.0, n)[:, None] * np.ones(p)
        codes = (rows[:, 0] > 0.5).astype(int)
    shown = np.append(np.flatnonzero(codes == 0)[:2], np.flatnonzero(codes == 1)[:1])
    given = np.full(n, -1)
    given[shown] = codes[shown]
    return rows, given, (given >= 0).astype(float)


def shares(influence):
    totals = influence.sum(axis=1, keepdims=True)
    uniform = np.full_like(influence, 1.0 / influence.shape[1])
    return np.divide(influence, totals, out=uniform, where=totals > 0)


@pytest.mark.parametrize("seed", range(60))
def test_rows_far_from_labels_are_solved_too(seed):
    """Their influence may be 1e-6 of the largest, but it decides their class all the same."""
    stream = [small_graph(seed)]
    state, info = learned(begun(stream[0][0], capacity=400), stream)
    _, _, expected = naive_solution(state)
    reached = expected.sum(axis=1) > 1e-25
    difference = np.abs(shares(state.influence.astype(float)) - shares(expected))
    assert difference[reached].max() <= 0.05
    assert info.n_iter < conjugate_gradients.LARGEST_NUMBER_OF_STEPS / 2


@pytest.mark.parametrize("n_clusters", [2, 5])
def test_columns_and_rows_are_solved_within_their_tolerances(n_clusters, monkeypatch):
    """Also if the last rows are solved alone, without further steps for all rows."""
    results, moved = [], []
    solve_rows = conjugate_gradients.solve_rows.py_func

    def noted(slots, weights, values, residual, share):
        before = values.copy()
        results.append(solve_rows(slots, weights, values, residual, share))
        moved.append(np.count_nonzero((values != before).any(axis=1)))
        return results[-1]

    for name in ("conjugate_gradients", "few_unsolved"):
        function = getattr(conjugate_gradients, name).py_func
        monkeypatch.setattr(conjugate_gradients, name, function)
    monkeypatch.setattr(conjugate_gradients, "solve_rows", noted)
    rng = np.random.default_rng(n_clusters)
    codes = rng.integers(n_clusters, size=600)
    rows = rng.normal(size=(600, 3)) + 3.0 * rng.normal(size=(n_clusters, 3))[codes]
    given = np.where(np.arange(600) < 8, codes % 3, -1)
    state, _ = learned(begun(rows, capacity=700), [(rows, given, (given >= 0).astype(float))])
    assert results[-1]
    assert sum(moved) > 0
    assert true_residual(state) <= 1.05 * conjugate_gradients.TOLERANCE
    residual, _ = naive_residual(state)
    sizes = np.abs(state.solution).sum(axis=1)
    share = 1.05 * conjugate_gradients.ROW_TOLERANCE
    assert (np.abs(residual).max(axis=1)[sizes > 1e-12] <= share * sizes[sizes > 1e-12]).all()


def test_without_a_path_to_a_label_there_is_no_influence():
    """Also if there was one at the last solve: steps would leave a rest of it."""
    rng = np.random.default_rng(0)
    near, far = rng.normal(size=(30, 2)), rng.normal(size=(30, 2)) + 1000.0
    rows, given = np.vstack([near, far]), np.full(60, -1)
    given[[0, 1, 30, 31]] = 0, 1, 0, 1
    state, _ = learned(begun(rows, capacity=100), [(rows, given, (given >= 0).astype(float))])
    assert (state.influence[:, :2] > 0).all()
    state, _, _ = propagation.retract_from_graph(state, far[:2], np.array([0, 1]))
    assert ((state.influence[:, :2] > 0).all(axis=1)).sum() == 30
    assert ((state.influence == 0).all(axis=1)).sum() == 30
    scores = state.scores(state.search(far))
    np.testing.assert_array_equal(scores, np.tile([0.5, 0.5, 0.0], (30, 1)))


def test_connected_rows_are_those_of_a_search():
    rng = np.random.default_rng(0)
    for n in (1, 2, 10, 60, 200):
        slots = rng.integers(n, size=(n, 2)).astype(np.int32)
        weights = (rng.random((n, 2)) < 0.4).astype(np.float32)
        rows = rng.random(n) < 0.05
        edges = sp.csr_array((weights.ravel(), (np.repeat(np.arange(n), 2), slots.ravel())), (n, n))
        edges.eliminate_zeros()
        _, component = sp.csgraph.connected_components(edges, directed=False)
        expected = np.isin(component, component[rows])
        np.testing.assert_array_equal(
            conjugate_gradients.connected_rows(slots, weights, rows), expected
        )


def test_a_warm_start_saves_steps():
    stream = batches(3, n_batches=6, size=40)
    warm, _ = learned(begun(stream[0][0], capacity=400), stream[:-1])
    _, from_last = learned(warm, stream[-1:])
    nothing = np.zeros_like(warm.solution)
    _, from_zero = learned(replace(warm, solution=nothing, influence=nothing), stream[-1:])
    assert from_last.n_iter < from_zero.n_iter


def test_scores_of_new_rows_are_the_naive_ones(monkeypatch):
    monkeypatch.setattr(conjugate_gradients, "TOLERANCE", 1e-5)
    stream = batches(4)
    state, _ = learned(begun(stream[0][0], capacity=80), stream)
    queries = batches(40)[0][0]
    _, labels, influence = naive_solution(state)
    rows = state.rows.take(np.arange(state.rows.size)).rows.astype(np.float64)
    stored = state.rows.metric.store(queries).rows.astype(np.float64)
    expected = naive_graph.new_row_scores(
        naive_graph.euclidean(stored, rows), influence, labels, NEIGHBORS
    )
    found = state.scores(state.search(queries))
    np.testing.assert_allclose(found, expected, atol=2e-3)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    weights = np.array([1.0, 5.0, 1.0])
    expected = expected * weights
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(state.scores(state.search(queries), weights), expected, atol=5e-3)


@pytest.mark.parametrize("proportions", [None, np.array([0.6, 0.3, 0.1])])
def test_shares_of_labeled_rows_are_the_naive_ones(monkeypatch, proportions):
    monkeypatch.setattr(conjugate_gradients, "TOLERANCE", 1e-6)
    monkeypatch.setattr(conjugate_gradients, "ROW_TOLERANCE", np.float32(1e-6))
    stream = batches(4)
    state, _ = learned(begun(stream[0][0], capacity=80), stream)
    state = propagation.with_proportions(state, proportions)
    queries, weights = batches(40)[0][0], np.array([1.0, 5.0, 1.0])
    kept, labels, _ = naive_solution(state)
    rows = state.rows.take(np.arange(state.rows.size)).rows.astype(np.float64)
    stored = state.rows.metric.store(queries).rows.astype(np.float64)
    expected = naive_graph.label_shares(
        naive_graph.euclidean(stored, rows),
        naive_graph.graph_covariance(kept, ALPHA),
        labels,
        weights * state.class_factors,
        NEIGHBORS,
    )
    found = state.search(queries)
    slots, shares = propagation.label_shares(state, found, weights)
    assert set(slots) == set(np.flatnonzero(labels.any(axis=1)))
    np.testing.assert_allclose(shares, expected[:, slots], atol=2e-4)
    of_classes = shares @ np.eye(3)[state.codes[slots]]
    np.testing.assert_allclose(of_classes, state.scores(found, weights), atol=1e-12)


def test_no_row_has_a_share_where_no_label_reaches():
    points = cloud(np.random.default_rng(0), 40, 2) + 100.0 * (np.arange(40) >= 20)[:, None]
    codes = np.full(40, -1)
    codes[:2] = 0, 1
    state, _ = learned(begun(points, capacity=80), [(points, codes, 1.0 * (codes >= 0))])
    slots, shares = propagation.label_shares(state, state.search(points[[5, 30]]))
    assert slots.tolist() == [0, 1]
    assert shares[0].sum() == pytest.approx(1.0)
    assert not shares[1].any()


def test_scores_where_no_label_reaches_are_uniform_over_the_classes_with_labels():
    rows = sp.csr_array(np.kron(np.eye(2), np.ones((3, 3))))
    state, _ = learned(
        begun(rows, "cosine"), [(rows, np.array([0, 2, -1, -1, -1, -1]), np.ones(6))]
    )
    found = state.scores(state.search(sp.csr_array([[0.0, 0, 0, 1, 1, 1], [0.0] * 6])))
    np.testing.assert_allclose(found, [[0.5, 0.0, 0.5]] * 2)


def test_scores_of_many_rows_and_classes_gather_little_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    rows, codes = rng.normal(size=(200, 3)), rng.integers(50, size=200)
    state = begun(rows, capacity=400, n_classes=50)
    state, _ = learned(state, [(rows, codes, np.ones(200))])
    found = state.search(rng.normal(size=(20_000, 3)))
    tracemalloc.start()
    try:
        means = state.mean_influence(found)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * means.nbytes  # all neighbours at once are ten times as large
    monkeypatch.setattr(propagation, "LARGEST_GATHER", 1)
    np.testing.assert_array_equal(state.mean_influence(found.take(slice(9))), means[:9])


def test_without_labels_all_scores_are_zero():
    stream = batches(5, share=0.0)
    state, _ = learned(begun(stream[0][0]), stream)
    assert not state.scores(state.search(stream[0][0])).any()


# -- which rows are kept --------------------------------------------------------------------------


def kept_by(codes, size, capacity, seed):
    """Return which rows are kept of a stream learned in batches, without any neighbour search."""
    state = begun(np.zeros((1, 1)), capacity=capacity, seed=seed)
    owners = np.zeros(0, dtype=int)
    most = 0
    for start in range(0, len(codes), size):
        batch = codes[start : start + size]
        rows, slots = choose_entering(state, batch)
        assert len(set(slots.tolist())) == slots.size
        owners = np.append(owners, np.zeros(max(0, slots.max(initial=-1) + 1 - owners.size), int))
        owners[slots] = start + rows
        most = max(most, np.count_nonzero(codes[owners] >= 0))
        state = replace(
            state,
            rows=SimpleNamespace(size=owners.size),
            codes=codes[owners],
            n_unlabeled=state.n_unlabeled + np.count_nonzero(batch < 0),
            n_updates=state.n_updates + 1,
        )
    return owners, most


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("labels", ["none", "some"])
def test_kept_unlabeled_rows_are_a_uniform_sample(size, labels):
    """Counts of many streams; a chi-square test that fails by chance once in ten thousand."""
    n, capacity, streams = (60, 12, 250) if size == 1 else (120, 20, 600)
    codes = np.full(n, -1)
    if labels == "some":
        codes[[2, 3, 30, 31, 32, 50]] = 0
    unlabeled = np.flatnonzero(codes < 0)
    counts = np.zeros(n)
    for seed in range(streams):
        owners, _ = kept_by(codes, size, capacity, seed)
        assert len(set(owners.tolist())) == owners.size == capacity
        assert np.isin(np.flatnonzero(codes >= 0), owners).all()
        counts[owners] += 1
    kept = counts[unlabeled]
    share = kept.sum() / streams / kept.size
    statistic = ((kept - kept.mean()) ** 2).sum() / (streams * share * (1 - share))
    assert 1e-4 < chi2.sf(statistic, kept.size - 1) < 1 - 1e-4


@pytest.mark.parametrize("size", [1, 3, 4])
def test_two_of_four_rows_are_kept_with_equal_chances(size):
    """Whether the rows that fill the memory and the others come in one batch or in several."""
    counts = np.zeros(4)
    for seed in range(600):
        counts[kept_by(np.full(4, -1), size, 2, seed)[0]] += 1
    np.testing.assert_allclose(counts / 600, 0.5, atol=0.1)  # five standard deviations


@settings(max_examples=40)
@given(
    st.lists(st.integers(-1, 2), min_size=1, max_size=80),
    st.sampled_from([1, 7, 100]),
    st.integers(2, 30),
)
def test_capacity_and_the_share_of_labeled_rows_are_never_exceeded(codes, size, capacity):
    codes = np.array(codes)
    owners, most_labeled = kept_by(codes, size, capacity, 0)
    assert len(set(owners.tolist())) == owners.size <= min(capacity, codes.size)
    assert most_labeled <= capacity // 2
    labeled = np.count_nonzero(codes >= 0)
    assert np.count_nonzero(codes[owners] >= 0) == min(labeled, capacity // 2)
    if labeled <= capacity // 2:
        assert owners.size == min(capacity, codes.size)


def test_an_update_keeps_the_rows_that_were_chosen():
    stream = batches(6, n_batches=6, size=13)
    state, _ = learned(begun(stream[0][0], capacity=30, seed=5), stream)
    codes = np.concatenate([batch[1] for batch in stream])
    owners, _ = kept_by(codes, 13, 30, 5)
    rows = np.concatenate([batch[0] for batch in stream])[owners]
    stored = state.rows.take(np.arange(state.rows.size)).rows
    np.testing.assert_array_equal(stored, state.rows.metric.store(rows).rows)
    np.testing.assert_array_equal(state.codes, codes[owners])
    label_weights = np.concatenate([batch[2] for batch in stream])[owners]
    np.testing.assert_array_equal(state.label_weights, label_weights)
    assert state.n_unlabeled == np.count_nonzero(codes < 0)


@pytest.mark.parametrize("new_points", [True, False])
def test_the_slots_of_a_batch_are_those_of_its_kept_rows(new_points):
    first, second = batches(16, n_batches=2, share=0.2)
    state, _ = learned(begun(first[0], capacity=30), [first])
    rows, codes, label_weights = second
    if not new_points:  # labels of rows that are kept, and of one that is not
        rows = np.vstack([first[0][first[1] < 0][:4], rows[:1]])
        codes, label_weights = np.full(5, 2), np.ones(5)
    batch = Rows(rows, codes, label_weights)
    state, info, slots = propagation.learn_graph(state, batch, new_points=new_points)
    kept = np.flatnonzero(slots >= 0)
    assert kept.size == info.n_entered + (0 if new_points else 4)
    stored = state.rows.metric.store(rows[kept]).rows
    np.testing.assert_array_equal(state.rows.take(slots[kept]).rows, stored)
    np.testing.assert_array_equal(state.codes[slots[kept]], codes[kept])
    np.testing.assert_array_equal(state.label_weights[slots[kept]], label_weights[kept])


def test_forgetting_brings_newer_rows_into_the_sample():
    def newest_share(factor):
        rng = np.random.default_rng(0)
        state = begun(np.zeros((1, 1)), capacity=40)
        for batch in range(20):
            state = state.forget(factor)
            rows = batch + rng.random((20, 1))
            state, _ = learned(state, [(rows, np.full(20, -1), np.zeros(20))])
        stored = state.rows.take(np.arange(40)).rows[:, 0]
        return (stored > 15).mean()  # of the last 5 of 20 batches, stored without a shift

    assert 0.1 < newest_share(1.0) < 0.45
    assert newest_share(0.7) > 0.7


def test_forgotten_labels_lose_weight_and_are_finally_dropped():
    stream = batches(7, n_batches=1)
    state, _ = learned(begun(stream[0][0]), stream)
    half = state.forget(0.5)
    np.testing.assert_array_equal(half.label_weights, 0.5 * state.label_weights)
    assert state.forget(1.0) is state
    other = batches(8, n_batches=1)
    for _ in range(25):
        state = state.forget(0.5)
    state, _ = learned(state, other)
    dropped = state.forget(0.5)
    assert np.count_nonzero(dropped.codes >= 0) == np.count_nonzero(other[0][1] >= 0)
    assert not dropped.label_weights[dropped.codes < 0].any()


def test_labels_keep_their_weight_until_there_are_new_labels():
    stream = batches(7, n_batches=1)
    state, _ = learned(begun(stream[0][0]), stream)
    later = state.forget(0.5, new_labels=False)
    np.testing.assert_array_equal(later.label_weights, state.label_weights)
    assert later.n_unlabeled == 0.5 * state.n_unlabeled


# -- states ---------------------------------------------------------------------------------------


def arrays_of(state):
    blocks = [array for block in state.rows.blocks for array in (block.rows, block.norms)]
    return [
        *blocks,
        *state.rows.lists,
        state.codes,
        state.label_weights,
        state.influence,
        state.solution,
    ]


@pytest.mark.usefixtures("small_blocks")
def test_a_state_is_never_altered():
    stream = batches(9, n_batches=8, size=15)
    state = begun(stream[0][0], capacity=50)
    queries = batches(90)[0][0]
    states = []
    for batch in stream:
        state, _ = learned(state, [batch])
        states.append((state, copy.deepcopy(state), state.scores(state.search(queries))))
    late = (stream[-1][0][:5], np.zeros(5, dtype=int), np.ones(5))
    learned(state, [late], new_points=False)
    propagation.retract_from_graph(state, stream[-1][0], stream[-1][1])
    state.forget(0.5)
    state.with_classes(np.array([1, -1, 0]), 2)
    for before, copied, scores in states:
        for ours, theirs in zip(arrays_of(before), arrays_of(copied), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(before.scores(before.search(queries)), scores)


def test_memory_stays_bounded():
    """Bytes of all arrays, those that views hold on to included."""
    rng = np.random.default_rng(0)
    model = GraphPropagation(graph_memory=200, random_state=0)
    sizes = []
    for _ in range(12):
        X = rng.normal(size=(300, 20))
        y = np.where(rng.random(300) < 0.2, (X[:, 0] > 0).astype(int), -1)
        model.partial_fit(X, y)
        state = model._state.graph
        owners = [array if array.base is None else array.base for array in arrays_of(state)]
        sizes.append(sum(owner.nbytes for owner in owners))
        assert model.n_kept_ == 200
        assert np.count_nonzero(state.codes >= 0) <= 100
    assert len(set(sizes)) == 1
    assert sizes[0] < 200 * (20 * 4 + 16 * 8 + 100)


# -- late and retracted labels --------------------------------------------------------------------


def same_graph(first, second):
    for ours, theirs in zip(first.rows.lists, second.rows.lists, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_late_labels_change_the_labels_and_not_the_graph(metric):
    [(rows, codes, label_weights)] = batches(10, n_batches=1, size=50)
    rows = np.maximum(rows, 0.0) if metric == "cosine" else rows
    rows = sp.csr_array(rows) if metric == "cosine" else rows
    late = np.flatnonzero(codes < 0)[:8]
    state, _ = learned(begun(rows, metric, capacity=100), [(rows, codes, label_weights)])
    new, _ = learned(state, [(rows[late], np.full(8, 1), np.full(8, 2.0))], new_points=False)
    same_graph(new, state)
    assert new.n_unlabeled == state.n_unlabeled
    expected = codes.copy()
    expected[late] = 1
    np.testing.assert_array_equal(np.sort(new.codes), np.sort(expected))
    at_once = np.where(np.isin(np.arange(50), late), 2.0, label_weights)
    whole, _ = learned(begun(rows, metric, capacity=100), [(rows, expected, at_once)])
    queries = rows[:20]
    np.testing.assert_allclose(
        new.scores(new.search(queries)), whole.scores(whole.search(queries)), atol=0.02
    )
    back, _, _ = propagation.retract_from_graph(new, rows[late], np.full(8, 1))
    same_graph(back, state)
    np.testing.assert_array_equal(back.codes, state.codes)
    np.testing.assert_array_equal(back.label_weights, state.label_weights)


def test_labels_are_found_among_many_equal_rows():
    """More of them than a neighbour list holds."""
    rows = np.zeros((60, 2))
    codes = np.full(60, -1)
    codes[[17, 44]] = 0, 1
    state, _ = learned(begun(rows, capacity=200), [(rows, codes, (codes >= 0) + 0.0)])
    retracted, _, slots = propagation.retract_from_graph(state, rows[:1], np.array([1]))
    assert (slots >= 0).all()
    assert np.count_nonzero(retracted.codes >= 0) == 1
    late, _ = learned(state, [(rows[:50], np.full(50, 2), np.ones(50))], new_points=False)
    assert late.rows.size == 60
    assert np.count_nonzero(late.codes == 2) == 50
    _, _, slots = propagation.retract_from_graph(state, rows[:3], None)
    assert np.count_nonzero(slots >= 0) == 2
    _, _, slots = propagation.retract_from_graph(state, rows[:2], np.array([-1, 2]))
    assert (slots == -1).all()  # an unknown class, and one that no row has


@pytest.mark.parametrize("classes", [None, ["a", "b", "c"]])
@pytest.mark.parametrize("labels", ["ab", "aa"])
def test_probabilities_sum_to_one_when_no_kept_label_is_left(labels, classes):
    """Two labels are learned, one of them is kept, and this one is retracted."""
    rows = np.array([[0.0], [1.0]])
    model = GraphPropagation(graph_memory=2, random_state=0)
    model.partial_fit(rows, list(labels), classes=classes).retract(rows[1:])
    assert np.count_nonzero(model._state.graph.codes >= 0) == 0
    probabilities = model.predict_proba([[0.0], [0.5], [9.0]])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict([[0.0], [9.0]]), ["a", "a"])
    if classes is None:
        np.testing.assert_array_equal(probabilities, np.ones((3, 1)))


def test_a_late_label_of_a_row_that_is_not_kept_enters_again():
    stream = batches(11, n_batches=4, size=30, share=0.2)
    state, _ = learned(begun(stream[0][0], capacity=30), stream)
    late = stream[0][0][stream[0][1] < 0]
    new, _ = learned(
        state, [(late, np.zeros(len(late), dtype=int), np.ones(len(late)))], new_points=False
    )
    assert new.rows.size == 30
    assert np.count_nonzero(new.codes >= 0) == 15


def test_late_labels_never_make_more_than_half_of_the_rows_labeled():
    [(rows, _, _)] = batches(12, n_batches=1, size=30)
    nothing = (np.full(30, -1), np.zeros(30))
    state, _ = learned(begun(rows, capacity=30), [(rows, *nothing)])
    new, _ = learned(state, [(rows[:25], np.zeros(25, dtype=int), np.ones(25))], new_points=False)
    assert new.rows.size == 30
    assert np.count_nonzero(new.codes >= 0) == 15
    assert not new.label_weights[new.codes < 0].any()


def test_late_labels_replace_earlier_ones():
    """With half of ten rows labeled at most, three late labels leave two of four earlier ones."""
    [(rows, _, _)] = batches(12, n_batches=1, size=10)
    codes = np.where(np.arange(10) < 4, 0, -1)
    state, _ = learned(begun(rows, capacity=10), [(rows, codes, (codes >= 0).astype(float))])
    late = (rows[4:7], np.ones(3, dtype=int), np.ones(3))
    new, _ = learned(state, [late], new_points=False)
    assert np.bincount(new.codes[new.codes >= 0]).tolist() == [2, 3]


def test_a_class_is_added_later_and_removed():
    stream = batches(13, n_batches=3, n_classes=3)
    state, _ = learned(begun(stream[0][0], capacity=200), stream)
    state = replace(state, class_factors=np.array([0.5, 1.0, 4.0]))
    moved = state.with_classes(np.array([0, 2, 3]), 4)  # a class that sorts between the others
    np.testing.assert_array_equal(moved.influence[:, [0, 2, 3]], state.influence)
    scores, before = (each.scores(each.search(stream[0][0])) for each in (moved, state))
    np.testing.assert_array_equal(scores[:, [0, 2, 3]], before)
    assert not scores[:, 1].any()
    rows = stream[0][0][:6] + 20.0
    moved, _ = learned(moved, [(rows, np.full(6, 1), np.ones(6))])
    assert (moved.scores(moved.search(rows)).argmax(axis=1) == 1).all()
    fewer = moved.with_classes(np.array([0, -1, 1, 2]), 3)
    assert not fewer.label_weights[fewer.codes < 0].any()
    fewer, _ = propagation.solved(fewer, np.arange(0), labels_changed=True)
    np.testing.assert_allclose(fewer.class_label_weights, state.class_label_weights)


# -- extreme numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("forgetting", [1.0, 0.5])
@pytest.mark.parametrize("capacity", [20, 200])
def test_weights_of_any_size_give_numbers(forgetting, capacity):
    """Also when the rows of large weight are gone, and those of small weight are left."""
    rng = np.random.default_rng(0)
    state = None
    for exponent in (50, -50, 0, 50, -50, -50, 20, -20):
        [(rows, codes, _)] = batches(int(rng.integers(1000)), n_batches=1, share=0.7)
        label_weights = np.where(codes >= 0, 10.0**exponent, 0.0)
        state = begun(rows, capacity=capacity) if state is None else state.forget(forgetting)
        state, info = learned(state, [(rows, codes, label_weights)])
        assert np.isfinite(state.influence).all()
        assert info.residual <= conjugate_gradients.TOLERANCE
        assert true_residual(state) <= 1.1 * conjugate_gradients.TOLERANCE
        scores = state.scores(state.search(rows))
        assert np.isfinite(scores).all()
        np.testing.assert_allclose(scores.sum(axis=1), 1.0)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("sizes", [(1.0, 1e70), (1e70, 1.0), (1e-200, 1e-200), (1e-310, 1.0)])
@pytest.mark.parametrize("p", [3, 120])
def test_features_of_any_size_give_numbers(metric, sizes, p):
    model = GraphPropagation(metric=metric, random_state=0)
    rng = np.random.default_rng(0)
    for size in sizes:
        y = rng.integers(2, size=80)
        X = size * np.clip(rng.normal(size=(80, p)) + 3.0 * y[:, None] - 1.5, -1, 1)
        model.partial_fit(X, y)
        probabilities = model.predict_proba(X)
        assert np.isfinite(probabilities).all()
        if size == sizes[0] and size > 1e-300:
            assert model.score(X, y) > 0.8


@pytest.mark.parametrize("sparse", [True, False])
def test_a_kernel_that_overflows_single_precision_is_refused(sparse):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 2
    X[7] *= 1e60
    form = sp.csr_array if sparse else np.asarray

    def linear(left, right):
        return left @ right.T if isinstance(left, np.ndarray) else (left @ right.T).toarray()

    model = GraphPropagation(metric=linear, random_state=0).partial_fit(form(X[:5]), y[:5])
    before = model.predict_proba(form(X[:5]))
    for method in (lambda: model.partial_fit(form(X), y), lambda: model.predict(form(X))):
        with pytest.raises(ValueError, match=r"overflows on row 7 of X.*scale the features"):
            method()
    np.testing.assert_array_equal(model.predict_proba(form(X[:5])), before)


@pytest.mark.parametrize("alpha", [1 - 1e-5, 1 - 1e-12])
def test_alpha_close_to_one_gives_numbers(alpha):
    [(rows, codes, label_weights)] = batches(14, n_batches=1)
    state, _ = learned(begun(rows, alpha=alpha), [(rows, codes, label_weights)])
    assert np.isfinite(state.influence).all()
    np.testing.assert_allclose(state.scores(state.search(rows)).sum(axis=1), 1.0)


def test_only_batches_with_labels_discount_earlier_labels():
    X = np.random.default_rng(0).normal(size=(4, 3))
    model = GraphPropagation(forgetting=0.5, random_state=0).partial_fit(X, [0, 0, 1, -1])
    for labels, expected in (([-1] * 4, [2.0, 1.0]), ([1, -1, -1, -1], [1.0, 1.5])):
        model.partial_fit(X + 1.0, labels)
        np.testing.assert_allclose(model._state.counts.discounted, expected)
        np.testing.assert_allclose(model._state.graph.class_label_weights, expected)
