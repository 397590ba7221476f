"""The graph on a device of torch, compared with that of numpy, on torch's own CPU device."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import seqmed
from seqmed import GraphPropagation, SeqGraphMED
from seqmed.classes import Rows
from seqmed.graph import conjugate_gradients, device, metrics, propagation
from seqmed.graph.kept_rows import no_kept_rows
from seqmed.kernels import RBF, Expansion, Linear, Polynomial
from tests.reference import naive_graph
from tests.support.kept_rows import (
    KINDS,
    NEIGHBORS,
    assert_lists_are_exact,
    cloud,
    flat,
    put_new,
    rounding,
    words,
)
from tests.support.state import assert_same_bits

HERE = "torch:cpu"
NEEDS_TORCH = pytest.mark.skipif(device.torch is None, reason="torch is not installed")
BOTH = pytest.mark.parametrize(
    ("make", "more"), [(GraphPropagation, {}), (SeqGraphMED, {"experts": ()})]
)
# Largest difference of two class scores of the same model on two devices, relative to their size:
# sums of single precision in another order.
DIFFERENCE = 1e-4


# -- without torch, or without the device ----------------------------------------------------------


def test_torch_is_not_imported_without_a_device():
    program = """
import sys, numpy as np, seqmed, tempfile, os
X = np.random.default_rng(0).normal(size=(60, 3)); y = np.arange(60) % 3
for make in (seqmed.GraphPropagation, seqmed.SeqGraphMED):
    model = make(random_state=0).fit(X, y).partial_fit(X, y)
    model.predict(X)
    path = os.path.join(tempfile.mkdtemp(), "model")
    seqmed.save(model, path)
    seqmed.load(path).predict(X)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@BOTH
def test_without_torch_the_error_names_the_extra(make, more, monkeypatch):
    monkeypatch.setattr(device, "torch", None)
    X, y = np.eye(4), [0, 1, -1, -1]
    model = make(random_state=0, **more).partial_fit(X, y)
    before = vars(model).copy()
    for call in (
        lambda: make(device="cuda", **more).fit(X, y),
        lambda: model.set_params(device="cuda"),
    ):
        with pytest.raises(ImportError, match=r"pip install 'seqmed\[gpu\]'"):
            call()
    assert vars(model) == before


@NEEDS_TORCH
@pytest.mark.parametrize("name", ["cuda:77", "abacus", "", "cpu:x"])
def test_a_device_that_is_not_there_is_refused_with_what_was_found(name):
    with pytest.raises(ValueError, match=r"not available.*torch .* found .*seqmed\[gpu\]"):
        GraphPropagation(device=name).fit(np.eye(4), [0, 1, -1, -1])


@NEEDS_TORCH
def test_a_device_without_double_precision_is_refused(monkeypatch):
    def fail(*_, dtype, **__):
        raise TypeError(f"Cannot convert a MPS Tensor to {dtype}")

    monkeypatch.setattr(device.torch, "zeros", fail)
    with pytest.raises(ValueError, match=r"'mps' is not available.*double precision"):
        device._found_device.__wrapped__("mps")


@NEEDS_TORCH
@BOTH
def test_sparse_rows_are_refused(make, more):
    with pytest.raises(ValueError, match="got sparse rows, expected dense rows"):
        make(device=HERE, **more).partial_fit(sp.csr_array(np.eye(4)), [0, 1, -1, -1])
    model = make(**more).partial_fit(sp.csr_array(np.eye(4)), [0, 1, -1, -1])
    with pytest.raises(ValueError, match="got sparse rows, expected dense rows"):
        model.set_params(device=HERE)
    assert model.device == "cpu"
    model.predict(sp.csr_array(np.eye(4)))


@NEEDS_TORCH
def test_distances_of_a_kernel_are_refused():
    with pytest.raises(ValueError, match=r"got the metric .*, expected 'euclidean' or 'cosine'"):
        GraphPropagation(device=HERE, metric=naive_graph.euclidean).partial_fit(
            np.eye(4), [0, 1, -1, -1]
        )


# -- neighbours ------------------------------------------------------------------------------------


def rows_on_device(rows, metric="euclidean"):
    state = propagation.GraphState(
        no_kept_rows(metrics.make_metric(metric, rows), NEIGHBORS), 10_000, 0.97, 0
    )
    return state.on(HERE).rows


def allowed(kept):
    """Rounding errors: distances of differences have those of the CPU."""
    if kept.metric.unit_norms:
        return {"absolute": 64 * 2.0**-24}
    return rounding(kept)


CHANGES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 20)), min_size=1, max_size=6)


@NEEDS_TORCH
@settings(max_examples=40)
@given(st.sampled_from(KINDS), st.sampled_from([1, 2, 8, 40]), CHANGES, st.integers(0, 10_000))
def test_lists_of_neighbours_are_exact_after_any_changes(make, p, changes, seed):
    rng = np.random.default_rng(seed)
    kept = rows_on_device(make(rng, 20, p))
    for n_new, n_overwritten in [(8, 0), *changes]:
        kept = put_new(kept, rng, make, n_new, n_overwritten, p)
        assert_lists_are_exact(kept, **allowed(kept))


@NEEDS_TORCH
@pytest.mark.parametrize("make", KINDS)
def test_lists_are_exact_with_groups_strips_and_pieces(make, monkeypatch):
    monkeypatch.setattr(device, "PRODUCTS_OF_CPU", 40 * 2048)
    monkeypatch.setattr(device, "PAIRS", 60)
    monkeypatch.setattr(device, "COPIED", 50)
    monkeypatch.setattr(device, "ALIGNED", 128)
    rng = np.random.default_rng(3)
    kept = rows_on_device(make(rng, 20, 5))
    for n_new, n_overwritten in ((1500, 0), (200, 100), (30, 300), (0, 400)):
        kept = put_new(kept, rng, make, n_new, n_overwritten, 5)
    assert_lists_are_exact(kept, **allowed(kept))


@NEEDS_TORCH
@settings(max_examples=15)
@given(CHANGES, st.integers(0, 10_000), st.sampled_from([4, 30]))
def test_lists_of_cosine_neighbours_are_exact_after_any_changes(changes, seed, p):
    def make(rng, n, p):
        return words(rng, n, p).toarray()

    rng = np.random.default_rng(seed)
    kept = rows_on_device(make(rng, 20, p), "cosine")
    for n_new, n_overwritten in [(8, 0), *changes]:
        kept = put_new(kept, rng, make, n_new, n_overwritten, p)
        assert_lists_are_exact(kept, **allowed(kept))


@NEEDS_TORCH
@pytest.mark.parametrize("make", KINDS)
def test_a_search_finds_what_the_cpu_finds(make):
    rng = np.random.default_rng(5)
    rows, queries = make(rng, 1300, 6), make(rng, 90, 6)
    kept = no_kept_rows(metrics.make_metric("euclidean", rows), NEIGHBORS)
    kept = kept.put(np.arange(1300), kept.store(rows))
    here = rows_on_device(rows).emptied(kept.metric)
    here = here.put(np.arange(1300), here.store(rows))
    np.testing.assert_array_equal(
        here.take(np.arange(1300)).rows, kept.take(np.arange(1300)).rows, strict=True
    )
    own = np.where(np.arange(90) % 2, np.arange(90), -1)
    ours, theirs = here.search(here.store(queries), own), kept.search(kept.store(queries), own)
    error = rounding(kept)["relative"] * theirs.distances + 1e-35
    np.testing.assert_array_less(np.abs(ours.distances - theirs.distances), error)
    np.testing.assert_array_equal(ours.sizes, theirs.sizes)
    # equal slots, but for rows at equal distances
    different = ours.slots != theirs.slots
    gaps = np.abs(np.diff(theirs.distances, axis=1, append=np.inf)) <= error
    near = gaps | np.roll(gaps, 1, axis=1)
    assert (near | ~different)[:, :-1].all()
    assert (ours.slots != np.where(own >= 0, own, -2)[:, None]).all()


@NEEDS_TORCH
def test_equal_distances_are_ordered_by_slot():
    rows = np.repeat(np.arange(17.0), 3)[:, None]
    kept = rows_on_device(rows)
    kept = kept.put(np.arange(51), kept.store(rows))
    assert kept.lists.slots[24, :8].tolist() == [25, 26, 21, 22, 23, 27, 28, 29]


@NEEDS_TORCH
def test_more_neighbours_than_rows_are_all_rows():
    rng, rows = np.random.default_rng(0), None
    rows = cloud(rng, 1020, 2)
    model = GraphPropagation(n_neighbors=1100, device=HERE)
    model.partial_fit(rows, np.arange(1020) % 2)
    assert (model._state.graph.rows.lists.sizes == 1019).all()


@NEEDS_TORCH
def test_an_update_leaves_the_former_rows_as_they_were():
    rng = np.random.default_rng(0)
    kept = rows_on_device(flat(rng, 50, 4))
    kept = kept.put(np.arange(400), kept.store(flat(rng, 400, 4)))
    before = kept.lists, kept.take(np.arange(400))
    kept.put(np.arange(390, 410), kept.store(flat(rng, 20, 4)))
    for ours, theirs in zip(
        (*kept.lists, *kept.take(np.arange(400))), sum(before, ()), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


# -- label propagation -----------------------------------------------------------------------------


@NEEDS_TORCH
@pytest.mark.parametrize("seed", range(4))
def test_conjugate_gradients_take_the_steps_of_the_cpu(seed):
    rng = np.random.default_rng(seed)
    rows = np.vstack([flat(rng, 150, 4), 100 + flat(rng, 40, 4), 9 + 0.1 * cloud(rng, 60, 4)])
    codes = np.where(rng.random(250) < 0.05, rng.integers(3, size=250), -1)
    codes[150:190] = -1  # rows without a path to a label
    codes[:3] = [0, 1, 2]
    kept = no_kept_rows(metrics.make_metric("euclidean", rows), NEIGHBORS)
    state = propagation.GraphState(kept, 1000, 0.97, 0).with_classes(np.arange(0), 3)
    here = state.on(HERE)
    for start in range(0, 250, 50):
        part = Rows(rows[start : start + 50], codes[start : start + 50], np.ones(50))
        state, info, _ = propagation.learn_graph(state, part)
        here, info_here, _ = propagation.learn_graph(here, part)
        assert info_here.n_iter == info.n_iter
        assert info_here.residual == pytest.approx(info.residual, rel=1e-3)
    influence = np.asarray(here.influence)
    largest = state.influence.max(axis=1)
    np.testing.assert_allclose(influence.max(axis=1), largest, rtol=1e-3, atol=1e-30)
    queries = flat(rng, 100, 4)
    ours, theirs = here.scores(here.search(queries)), state.scores(state.search(queries))
    np.testing.assert_allclose(ours, theirs, atol=DIFFERENCE)


@NEEDS_TORCH
@pytest.mark.parametrize("steps", [0, 100])
def test_rows_with_a_path_to_a_label_are_those_of_the_cpu(steps, monkeypatch):
    monkeypatch.setattr(device, "STEPS_TO_LABELS", steps)
    torch, rng = device.torch, np.random.default_rng(0)
    for _ in range(20):
        n = 60
        slots = rng.integers(n, size=(n, 2)).astype(np.int32)
        weights = (rng.random((n, 2)) < 0.4).astype(np.float32)
        labeled = rng.random(n) < 0.05
        expected = conjugate_gradients.connected_rows(slots, weights, labeled)
        found = device.linked_to_labels(
            torch.from_numpy(slots.astype(np.int64)),
            torch.from_numpy(weights),
            torch.from_numpy(np.flatnonzero(labeled)),
        )
        np.testing.assert_array_equal(found.numpy(), expected)


# -- streams ---------------------------------------------------------------------------------------


def rows_of_classes(seed, n, p=6):
    rng = np.random.default_rng(seed)
    codes = rng.integers(3, size=n)
    rows = 3 * np.eye(3, p)[codes] + rng.normal(size=(n, p))
    return rows, codes, np.where(rng.random(n) < 0.1, codes, -1)


def assert_same_decisions(ours, theirs, X):
    one, other = ours.decision_function(X), theirs.decision_function(X)
    np.testing.assert_allclose(one, other, atol=DIFFERENCE * np.abs(other).max())
    best = np.sort(theirs._class_scores(X), axis=1)
    close = best[:, -1] - best[:, -2] <= 1e-4 * np.abs(best).max(axis=1)
    assert ((ours.predict(X) == theirs.predict(X)) | close).all()


@NEEDS_TORCH
@BOTH
@pytest.mark.parametrize("memory", ["auto", 150])
@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_a_stream_gives_the_decisions_of_the_cpu(make, more, memory, forgetting):
    models = [
        make(device=name, random_state=0, graph_memory=memory, forgetting=forgetting, **more)
        for name in (HERE, "cpu")
    ]
    queries, _, _ = rows_of_classes(9, 200)
    X, _, y = rows_of_classes(0, 600)
    y[:200][y[:200] == 2] = -1  # the third class is new later
    for start in range(0, 600, 60):
        for model in models:
            model.partial_fit(X[start : start + 60], y[start : start + 60])
        assert_same_decisions(*models, queries)
    late = np.flatnonzero(y[540:] < 0)[:3] + 540
    for model in models:
        model.partial_fit(X[late], [0, 1, 2], new_points=False)
    assert_same_decisions(*models, queries)
    assert models[0].update_info_.late_labels == models[1].update_info_.late_labels
    for model in models:
        model.retract(X[540:][y[540:] >= 0][-2:])
    assert_same_decisions(*models, queries)
    assert models[0].n_kept_ == models[1].n_kept_


@NEEDS_TORCH
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("n", [3, 900, 2500])
def test_fit_gives_the_decisions_of_the_cpu(n, metric):
    X, codes, y = rows_of_classes(1, n)
    y[:3] = codes[:3] = [0, 1, 2]
    models = [
        GraphPropagation(device=name, random_state=0, metric=metric).fit(X, y)
        for name in (HERE, "cpu")
    ]
    assert_same_decisions(*models, rows_of_classes(9, 200)[0])
    assert models[0].n_iter_ == models[1].n_iter_


@NEEDS_TORCH
@pytest.mark.parametrize("memory", [700, 2000, 6000])
@pytest.mark.parametrize("share", [0.05, 0.9])
def test_fit_keeps_the_rows_of_the_cpu(memory, share):
    X, codes, _ = rows_of_classes(1, 3500)
    y = np.where(np.random.default_rng(0).random(3500) < share, codes, -1)
    models = [
        GraphPropagation(device=name, random_state=0, graph_memory=memory).fit(X, y)
        for name in (HERE, "cpu")
    ]
    ours, theirs = (model._state.graph.on("cpu") for model in models)
    for name in ("codes", "label_weights", "n_unlabeled", "n_updates"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    every = np.arange(theirs.rows.size)
    np.testing.assert_array_equal(ours.rows.take(every).rows, theirs.rows.take(every).rows)
    assert_same_decisions(*models, rows_of_classes(9, 200)[0])
    # the next batch replaces the same rows
    for model in models:
        model.partial_fit(*rows_of_classes(2, 300)[::2])
    assert_same_decisions(*models, rows_of_classes(9, 200)[0])


@NEEDS_TORCH
@BOTH
def test_a_stream_without_labels_works_on_a_device(make, more):
    X, _, y = rows_of_classes(1, 400)
    models = [make(device=name, random_state=0, **more) for name in (HERE, "cpu")]
    queries = rows_of_classes(9, 100)[0]
    for model in models:
        model.partial_fit(X[:100], np.full(100, -1))  # no class
        model.partial_fit(X[100:200], np.full(100, -1), classes=[0, 1, 2])  # no label
        assert model.n_iter_ == 0
        model.partial_fit(X[200:300], y[200:300])
        assert model.n_iter_ > 0
    assert_same_decisions(*models, queries)
    for model in models:
        model.retract(X[200:300][y[200:300] >= 0])
        assert not np.asarray(model._state.graph.influence).any()
        model.partial_fit(X[300:], np.full(100, -1))
        model.partial_fit(X[:3], [0, 1, 2])
    assert_same_decisions(*models, queries)


@NEEDS_TORCH
def test_known_proportions_give_the_factors_of_the_cpu():
    X, _, y = rows_of_classes(2, 500)
    prior = {0: 0.7, 1: 0.2, 2: 0.1}
    models = [
        GraphPropagation(device=name, random_state=0, class_prior=prior).fit(X, y)
        for name in (HERE, "cpu")
    ]
    factors = [model._state.graph.class_factors for model in models]
    np.testing.assert_allclose(*factors, rtol=1e-4)
    assert factors[1].max() > 1.1
    assert_same_decisions(*models, rows_of_classes(9, 200)[0])


@NEEDS_TORCH
def test_columns_of_other_scales_and_queries_work_on_a_device():
    X, _, y = rows_of_classes(3, 900)
    X = X * 10.0 ** np.arange(6)
    models = [SeqGraphMED(device=name, random_state=0, experts=()) for name in (HERE, "cpu")]
    for start in range(0, 900, 100):
        for model in models:
            model.partial_fit(X[start : start + 100], y[start : start + 100])
    assert (models[0].scale_ != 1).any()
    queries = rows_of_classes(9, 100)[0] * 10.0 ** np.arange(6)
    assert_same_decisions(*models, queries)
    ours, theirs = (seqmed.query(model, queries, 5) for model in models)
    np.testing.assert_array_equal(ours, theirs)
    ours, theirs = (model.explain(queries[:2]) for model in models)
    assert [each.label for each in ours] == [each.label for each in theirs]


@NEEDS_TORCH
@BOTH
def test_the_same_seed_gives_the_same_model_twice(make, more):
    X, _, y = rows_of_classes(4, 400)
    models = [make(device=HERE, random_state=3, graph_memory=200, **more) for _ in range(2)]
    for model in models:
        for start in range(0, 400, 80):
            model.partial_fit(X[start : start + 80], y[start : start + 80])
        model.set_params(device="cpu")
    assert_same_bits(*(model._state for model in models))


@NEEDS_TORCH
@pytest.mark.parametrize("kernel", [RBF(0.5), RBF(), Linear(), Polynomial(0.1, 3, 1.0)])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e9])
def test_kernel_values_on_a_device_are_those_of_the_cpu(kernel, offset, monkeypatch):
    monkeypatch.setattr(device, "PRODUCTS", 8 * 500 * 30)
    rng = np.random.default_rng(0)
    points, others = offset + rng.normal(size=(40_000, 4)), rng.normal(size=(30, 4))
    kernel = kernel.freeze(points, np.ones(40_000))
    expansion = Expansion(others, rng.normal(size=(30, 3)))
    found, expected = device.kernel_sums(HERE, kernel, points, expansion), None
    assert device.kernel_sums(HERE, kernel, points[:30_000], expansion) is None  # few values
    if found is None:  # far from the centre
        assert isinstance(kernel, RBF)
        assert offset
        return
    expected = kernel.sums(points, expansion)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11 * np.abs(expected).max())


@NEEDS_TORCH
def test_the_margin_expert_predicts_on_the_device(monkeypatch):
    monkeypatch.setattr(device, "MANY_VALUES", 1)
    X, _, y = rows_of_classes(0, 300)
    models = [
        SeqGraphMED(device=name, random_state=0, experts=()).partial_fit(X, y)
        for name in (HERE, "cpu")
    ]
    called, sums = [], device.kernel_sums

    def counted(*arguments):
        called.append(sums(*arguments) is not None)
        return sums(*arguments)

    monkeypatch.setattr(device, "kernel_sums", counted)
    assert_same_decisions(*models, rows_of_classes(9, 200)[0])
    assert any(called)


# -- between devices -------------------------------------------------------------------------------


@NEEDS_TORCH
@BOTH
def test_the_device_may_change_between_batches(make, more):
    X, _, y = rows_of_classes(5, 480)
    queries, _, _ = rows_of_classes(9, 100)
    models = [make(device=name, random_state=0, graph_memory=160, **more) for name in (HERE, "cpu")]
    for number, start in enumerate(range(0, 480, 80)):
        for model in models:
            model.partial_fit(X[start : start + 80], y[start : start + 80])
        assert_same_decisions(*models, queries)
        models[0].set_params(device=["cpu", HERE][number % 2])
        assert models[0]._state.graph.rows.device == models[0].device
        assert_same_decisions(*models, queries)
    models[0].device = "cpu"  # without set_params it takes effect with the next batch
    models[0].partial_fit(X[:9], y[:9])
    assert models[0]._state.graph.rows.device == "cpu"


@NEEDS_TORCH
@BOTH
def test_a_file_is_loaded_on_any_device(make, more, tmp_path):
    X, _, y = rows_of_classes(6, 400)
    queries, _, _ = rows_of_classes(9, 100)
    model = make(device=HERE, random_state=0, graph_memory=200, **more)
    for start in range(0, 320, 80):
        model.partial_fit(X[start : start + 80], y[start : start + 80])
    seqmed.save(model, tmp_path / "model")
    here, there = seqmed.load(tmp_path / "model", HERE), seqmed.load(tmp_path / "model")
    assert (here.device, there.device) == (HERE, "cpu")
    assert "device" not in seqmed.model_file.read(tmp_path / "model").parameters
    np.testing.assert_array_equal(here.decision_function(queries), model.decision_function(queries))
    for each in (model, here, there):
        each.partial_fit(X[320:], y[320:])
    np.testing.assert_array_equal(here.decision_function(queries), model.decision_function(queries))
    assert_same_decisions(here, there, queries)
    seqmed.save(there, tmp_path / "cpu")
    assert_same_decisions(seqmed.load(tmp_path / "cpu", HERE), there, queries)


@NEEDS_TORCH
@BOTH
def test_a_model_can_be_pickled_and_copied(make, more, monkeypatch):
    X, _, y = rows_of_classes(7, 200)
    model = make(device=HERE, random_state=0, **more).partial_fit(X, y)
    expected, written = model.decision_function(X), pickle.dumps(model)
    for other in (pickle.loads(written), copy.deepcopy(model), copy.copy(model)):
        assert other._state.graph.rows.device == model._state.graph.rows.device == HERE
        np.testing.assert_array_equal(other.decision_function(X), expected)
    monkeypatch.setattr(device, "torch", None)  # a machine without torch
    other = pickle.loads(written)
    assert other._state.graph.rows.device == "cpu"
    np.testing.assert_allclose(other.decision_function(X), expected, atol=1e-4)
    with pytest.raises(ImportError, match="set device='cpu'"):
        other.partial_fit(X, y)
    other.set_params(device="cpu").partial_fit(X, y)


# -- failures --------------------------------------------------------------------------------------


@NEEDS_TORCH
@BOTH
@pytest.mark.parametrize("part", ["bounds", "insert_in_lists", "symmetric"])
def test_a_device_out_of_memory_leaves_the_model_as_it_was(make, more, part, monkeypatch):
    X, _, y = rows_of_classes(8, 300)
    model = make(device=HERE, random_state=0, **more).partial_fit(X[:200], y[:200])
    expected, before = model.decision_function(X), vars(model).copy()

    def fail(*_):
        raise device.torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    with monkeypatch.context() as patch:
        patch.setattr(device if part == "symmetric" else device.DeviceRows, part, fail)
        with pytest.raises(MemoryError, match=r"about .* GB.*smaller graph_memory"):
            model.partial_fit(X[200:], y[200:])
        assert vars(model) == before
    np.testing.assert_array_equal(model.decision_function(X), expected)
    model.partial_fit(X[200:], y[200:])


@NEEDS_TORCH
def test_other_errors_of_torch_are_not_taken_for_a_lack_of_memory(monkeypatch):
    def fail(*_):
        raise RuntimeError("the device was unplugged")

    monkeypatch.setattr(device.DeviceRows, "bounds", fail)
    with pytest.raises(RuntimeError, match="unplugged"):
        GraphPropagation(device=HERE).partial_fit(np.eye(4), [0, 1, -1, -1])


@NEEDS_TORCH
def test_products_are_computed_in_full_precision(monkeypatch):
    torch, found = device.torch, []
    product = device.DeviceRows.bounds

    def bounds(*arguments):
        found.append(torch.get_float32_matmul_precision())
        return product(*arguments)

    monkeypatch.setattr(device.DeviceRows, "bounds", bounds)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        GraphPropagation(device=HERE).partial_fit(np.eye(4), [0, 1, -1, -1]).predict(np.eye(4))
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    assert set(found) == {"highest"}


@NEEDS_TORCH
def test_rows_of_a_user_are_not_changed():
    X, _, y = rows_of_classes(8, 300)
    before = X.copy()
    GraphPropagation(device=HERE).fit(X, y).predict(X)
    np.testing.assert_array_equal(X, before)


@NEEDS_TORCH
def test_clusters_that_are_far_apart_have_exact_lists():
    """Rows that are far from the others lose digits in products of single precision."""
    rng = np.random.default_rng(0)
    rows = np.vstack([cloud(rng, 200, 3), 1e5 + cloud(rng, 200, 3)])
    kept = rows_on_device(rows)
    kept = kept.put(np.arange(400), kept.store(rows))
    assert_lists_are_exact(kept, **rounding(kept))
