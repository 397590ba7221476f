"""Shared work: the same bits as without, done once, and nothing left behind."""

import gc
import pickle
import threading
import weakref
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from seqmed import SeqLapMED, SeqMED, graph, sharing, triangular
from seqmed.dual import smo
from seqmed.kernels import RBF, DCMFisher, Expansion, TfIdf, counts, vectors
from seqmed.labels import split_labels
from seqmed.recursion import basis
from seqmed.sharing import SAMPLE, shared
from tests.conformance.test_stream_checks import POSTERIORS as CASES
from tests.conformance.test_stream_checks import leaves as all_leaves
from tests.conformance.test_stream_checks import make_batch

# -- what is compared ------------------------------------------------------------------------------


def bits(value):
    """Return something equal for equal bits only: 0.0 is not -0.0, and NaN is NaN."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, float):
        return type(value), np.float64(value).tobytes()
    return value


def state_bits(value):
    return {path: bits(leaf) for path, leaf in all_leaves(value)}


def assert_same_bits(first, second):
    ours, theirs = state_bits(first), state_bits(second)
    assert ours.keys() == theirs.keys()
    for path, leaf in ours.items():
        assert leaf == theirs[path], path


def test_the_comparison_of_bits_sees_differences():
    for first, second in ((0.0, -0.0), (1.0, np.nextafter(1.0, 2.0)), (np.nan, 0.0)):
        assert bits(first) != bits(second)
        assert bits(np.array([first])) != bits(np.array([second]))
    assert bits(np.nan) == bits(float("nan"))
    assert bits(np.zeros(2)) != bits(np.zeros(2, dtype=np.float32))


@pytest.fixture
def counted():
    """A shared function that sums what it is given, and the list of its calls."""
    calls = []

    @shared
    def total(*arguments, **named):
        calls.append((arguments, named))
        return np.array([np.sum(value) for value in (*arguments, *named.values())])

    return total, calls


class Calls:
    """Counts the calls of a function that takes its place."""

    def __init__(self, function):
        self.function, self.count = function, 0

    def __call__(self, *arguments, **named):
        self.count += 1
        return self.function(*arguments, **named)


# -- the context -----------------------------------------------------------------------------------


def test_outside_of_the_context_nothing_is_remembered_or_frozen(counted):
    total, calls = counted
    rows = np.arange(5.0)
    first, second = total(rows), total(rows)
    assert len(calls) == 2
    assert first is not second
    assert first.flags.writeable
    first[0] = 7.0


def test_within_it_equal_arguments_are_computed_once(counted):
    total, calls = counted
    rows = np.arange(5.0)
    with sharing.sharing():
        results = [total(rows), total(rows), total(rows.copy())]
        assert len(calls) == 1
        assert all(result is results[0] for result in results)
        total(rows + 1)
        assert len(calls) == 2
    assert not results[0].flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        results[0][0] = 7.0


def test_nothing_is_remembered_after_it(counted):
    total, calls = counted
    rows = np.arange(5.0)
    for _ in range(2):
        with sharing.sharing():
            total(rows)
    total(rows)
    assert len(calls) == 3
    assert sharing._memory.get() is None


def test_arguments_and_results_are_let_go(counted):
    total, calls = counted
    rows = np.arange(5.0)
    with sharing.sharing():
        result = total(rows)
        references = weakref.ref(rows), weakref.ref(result)
        calls.clear()
        del rows, result
        gc.collect()
        assert all(each() is not None for each in references)  # or an id might be another's
    gc.collect()
    assert all(each() is None for each in references)


def test_a_context_within_a_context_begins_anew_and_the_outer_one_goes_on(counted):
    total, calls = counted
    rows = np.arange(5.0)
    with sharing.sharing():
        outer = total(rows)
        with sharing.sharing():
            inner = total(rows)
            assert total(rows) is inner
        assert len(calls) == 2
        assert inner is not outer
        assert total(rows) is outer
    assert len(calls) == 2


def test_an_error_ends_the_context_and_is_not_remembered(counted):
    total, calls = counted
    attempts = []

    @shared
    def refuse(rows):
        attempts.append(rows)
        raise ValueError("no")

    rows = np.arange(5.0)
    with sharing.sharing():
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                refuse(rows)
        assert len(attempts) == 2

    def fail():
        with sharing.sharing():
            total(rows)
            refuse(rows)

    with pytest.raises(ValueError, match="no"):
        fail()
    total(rows)
    assert len(calls) == 2
    assert sharing._memory.get() is None


def in_thread(function):
    """Return what a function returns in a thread of its own."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_a_context_belongs_to_its_thread(counted):
    total, calls = counted
    rows = np.arange(5.0)
    with sharing.sharing():
        here = total(rows)
        there = in_thread(lambda: [total(rows), total(rows)])
        assert len(calls) == 3
        assert all(result is not here and result.flags.writeable for result in there)
        assert total(rows) is here

    def within():
        with sharing.sharing():
            return total(rows) is total(rows)

    assert in_thread(within)
    assert total(rows).flags.writeable


def test_threads_with_contexts_of_their_own_do_not_meet(counted):
    total, _ = counted
    rows = np.arange(5.0)
    found = [None, None]
    barrier = threading.Barrier(2)

    def work(place):
        with sharing.sharing():
            barrier.wait()
            found[place] = total(rows)
            barrier.wait()
            assert total(rows) is found[place]

    threads = [threading.Thread(target=work, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is not None
    assert found[0] is not found[1]


def test_what_is_too_much_to_remember_is_forgotten(counted, monkeypatch):
    """Scores are computed in blocks of bounded memory; the blocks must not be piled up instead."""
    total, calls = counted
    monkeypatch.setattr(sharing, "LARGEST_MEMORY", 5000)
    totals = []
    with sharing.sharing():
        for start in range(50):
            rows = np.arange(100.0) + start
            assert total(rows)[0] == rows.sum()
            assert total(rows)[0] == rows.sum()
            totals.append(sharing._memory.get().total)
        memory = sharing._memory.get()
        held = {
            id(a): a for known in memory.known.values() for a in sharing.arrays_in(tuple(known))
        }
    assert max(totals) <= 5000
    assert sum(array.nbytes for array in held.values()) == totals[-1]
    assert 50 <= len(calls) <= 70  # forgotten now and then, not always


def test_an_array_that_is_remembered_twice_counts_once(counted):
    total, _ = counted
    rows = np.arange(100.0)
    with sharing.sharing():
        for number in range(10):
            total(rows, number)
        assert sharing._memory.get().total == 800 + 10 * 16


# -- what are equal arguments ----------------------------------------------------------------------


@dataclass(frozen=True)
class Holder:
    """Stands for kernels and problems."""

    rows: np.ndarray
    number: float = 1.0


class Pair(NamedTuple):
    """Stands for neighbours."""

    first: np.ndarray
    second: np.ndarray


def distinguishes(first, second):
    """Return whether a shared function is called for both of two arguments."""
    calls = []

    @shared
    def look(value):
        calls.append(value)
        return np.zeros(1)

    with sharing.sharing():
        look(first)
        look(second)
        look(first)
        look(second)
    assert len(calls) <= 2
    return len(calls) == 2


def with_change(rows, place, value):
    changed = rows.copy()
    changed.flat[place] = value
    return changed


ROWS = np.random.default_rng(0).normal(size=(50, 20))
STEP = ROWS.size // SAMPLE
UNSAMPLED = [1, STEP - 1, STEP + 1, ROWS.size - 2]


@pytest.mark.parametrize("place", [0, STEP, *UNSAMPLED])
def test_arrays_that_differ_in_one_entry_are_kept_apart(place):
    changed = with_change(ROWS, place, np.nextafter(ROWS.flat[place], np.inf))
    if place in UNSAMPLED:
        assert sharing.sketch(ROWS) == sharing.sketch(changed)
    assert distinguishes(ROWS, changed)
    assert distinguishes(Holder(ROWS), Holder(changed))
    assert distinguishes((ROWS, ROWS), (ROWS, changed))
    assert distinguishes(Pair(ROWS, ROWS), Pair(ROWS, changed))


def test_equal_arrays_are_not_kept_apart():
    for make in (Holder, lambda rows: (rows, 1.0, "a", None), sp.csr_array, np.asarray):
        assert not distinguishes(make(ROWS), make(ROWS.copy()))


@pytest.mark.parametrize("place", [0, *UNSAMPLED])
def test_zeros_of_both_signs_are_kept_apart(place):
    positive, negative = with_change(ROWS, place, 0.0), with_change(ROWS, place, -0.0)
    assert np.array_equal(positive, negative)
    assert distinguishes(positive, negative)
    stored = sp.csr_array(ROWS), sp.csr_array(ROWS)
    stored[0].data[place], stored[1].data[place] = 0.0, -0.0
    assert distinguishes(*stored)


@pytest.mark.parametrize("place", [0, *UNSAMPLED])
def test_not_a_number_does_no_harm(place):
    missing = with_change(ROWS, place, np.nan)
    assert distinguishes(missing, ROWS)
    assert distinguishes(ROWS, missing)
    distinguishes(missing, missing.copy())  # either way, without an error


PLAIN_PAIRS = [
    (True, 1), (1, 1.0), (0.0, -0.0), (0, False), (None, 0), ("1", 1), (1.0, np.float32(1.0)),
    (-1, "-1"), (1.0, np.nextafter(1.0, 2.0)), ("a", "b"), (np.int64(1), np.bool_(True)),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), PLAIN_PAIRS)
def test_plain_values_are_told_apart_by_type_and_value(first, second):
    assert distinguishes(first, second)
    assert distinguishes(Holder(ROWS, first), Holder(ROWS, second))
    assert distinguishes((ROWS, first), (ROWS, second))


def test_equal_plain_values_are_equal():
    for value in (1.5, 10**20, "text", None, True, np.float64(1.5), np.nan):
        twin = pickle.loads(pickle.dumps(value))
        assert not distinguishes((ROWS, value), (ROWS, twin))


def test_layout_and_type_are_part_of_an_array():
    assert distinguishes(ROWS, np.asfortranarray(ROWS))
    assert distinguishes(np.asfortranarray(ROWS), ROWS)
    assert distinguishes(ROWS, ROWS.ravel())
    assert distinguishes(ROWS, ROWS.reshape(20, 50))
    assert distinguishes(np.zeros(40), np.zeros(40, dtype=np.int64))
    assert distinguishes(np.zeros(40, dtype=np.int64), np.zeros(40, dtype=np.uint64))
    assert distinguishes(np.zeros((0, 3)), np.zeros((0, 4)))
    wide = np.zeros((50, 40))
    wide[:, ::2] = ROWS
    assert distinguishes(ROWS, wide[:, ::2])
    assert not distinguishes(wide[:, ::2], wide.copy()[:, ::2])
    assert not distinguishes(np.array(2.0), np.array(2.0))  # of no dimension


def test_format_and_every_part_of_sparse_rows_count():
    square = sp.csr_array(np.triu(ROWS[:20]))
    flipped = sp.csc_array((square.data, square.indices, square.indptr), shape=square.shape)
    assert distinguishes(square, flipped)
    assert distinguishes(square, sp.csr_matrix(square))
    assert distinguishes(square, square.toarray())
    # the same entries in another row: only indptr differs, which the sketch does not hold
    moved = sp.csr_array(ROWS)
    later = sp.csr_array((moved.data, moved.indices, moved.indptr.copy()), shape=moved.shape)
    later.indptr[1] -= 1
    assert sharing.sketch(moved) == sharing.sketch(later)
    assert distinguishes(moved, later)
    other = moved.copy()
    other.indices[[1, 2]] = other.indices[[2, 1]]
    assert sharing.sketch(moved) == sharing.sketch(other)
    assert distinguishes(moved, other)


def test_other_formats_and_other_objects_are_known_by_identity():
    """Lists may hold anything, and a series compares entry by entry."""
    for make in (
        lambda: sp.coo_array(ROWS),
        lambda: [1, 2, None],
        lambda: {"a": 1},
        lambda: pd.Series([1.0, 2.0]),
        lambda: [np.arange(2), np.arange(3)],
        lambda: np.array([1, None, "a"] * 50, dtype=object),
    ):
        value = make()
        assert not distinguishes(value, value)
    assert distinguishes([1, 2], [True, 2])
    assert distinguishes(pd.Series([1.0]), pd.Series([2.0]))
    assert distinguishes(pd.Series([1.0, 2.0]), pd.Series([1.0, 2.0]))
    objects = np.array([1, None] * 50, dtype=object)
    assert distinguishes(objects, with_change(objects, 2, True))


def test_functions_are_kept_apart():
    @shared
    def one(rows):
        return rows + 1

    @shared
    def two(rows):
        return rows + 2

    with sharing.sharing():
        assert np.array_equal(two(ROWS), ROWS + 2)
        assert np.array_equal(one(ROWS), ROWS + 1)


def test_names_of_arguments_are_kept_apart(counted):
    total, calls = counted
    with sharing.sharing():
        total(a=ROWS, b=1.0)
        total(a=ROWS, c=1.0)
        total(ROWS, 1.0)
        assert len(calls) == 3
        total(a=ROWS, b=1.0)
        assert len(calls) == 3


# -- symmetry --------------------------------------------------------------------------------------

COUNTS = np.random.default_rng(1).poisson(1.0, size=(30, 8)) * np.random.default_rng(2).random(
    (30, 8)
)
KERNELS = {
    "rbf": RBF("scale"),
    "tfidf": TfIdf(),
    "dcm": DCMFisher(),
    "dcm-diagonal": DCMFisher("diagonal"),
}


@pytest.mark.parametrize("form", [np.array, sp.csr_array])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_one_set_of_rows_and_two_equal_ones_are_kept_apart(name, named, form):
    """A kernel is exactly symmetric where both arguments are one object, and only there."""
    rows = form(COUNTS)
    kernel = KERNELS[name].freeze(rows, np.ones(30))

    def call(left, right):
        return kernel(left, right=right) if named else kernel(left, right)

    twin = rows.copy()
    symmetric, apart = bits(call(rows, rows)), bits(call(rows, twin))
    if name == "rbf":
        assert symmetric != apart  # or there is nothing to keep apart
    for order in ((0, 1), (1, 0)):
        with sharing.sharing():
            found = {}
            for which in order:
                found[which] = bits(call(rows, twin if which else rows))
            assert found == {0: symmetric, 1: apart}
            # another symmetric call is the symmetric one
            assert bits(call(twin, twin)) == symmetric


def test_which_arguments_are_one_object_is_all_that_counts(counted):
    total, calls = counted
    a, b, c = ROWS, ROWS.copy(), ROWS.copy()
    with sharing.sharing():
        for arguments in ((a, a, b), (a, b, b), (a, b, a), (a, b, c), (a, a, a)):
            total(*arguments)
        assert len(calls) == 5
        for arguments in ((b, b, c), (c, a, a), (b, a, b), (c, b, a), (b, b, b)):
            total(*arguments)
        assert len(calls) == 5


# -- results ---------------------------------------------------------------------------------------


def test_every_array_of_a_result_is_read_only():
    @shared
    def everything():
        return Holder(np.zeros(2)), (np.zeros(2), sp.csr_array(np.eye(2))), Pair(ROWS + 1, ROWS + 2)

    with sharing.sharing():
        held, (dense, sparse), pair = everything()
    arrays = [held.rows, dense, sparse.data, sparse.indices, sparse.indptr, *pair]
    assert not any(array.flags.writeable for array in arrays)


def test_labels_are_split_by_the_very_marker():
    """True is not 1, though they are equal; nor is a label array another one of its kind."""
    y = np.array([1, 0, 2, 1])
    flags = np.array([True, False, True, True])
    for labels, markers in ((y, [1, True, 1.0]), (flags, [True, 1])):
        expected = [bits(split_labels(labels, marker)[0]) for marker in markers]
        assert len({each[2] for each in expected}) == 2
        for order in (range(len(markers)), reversed(range(len(markers)))):
            with sharing.sharing():
                for which in order:
                    found = split_labels(labels, markers[which])
                    assert bits(found[0]) == expected[which]


def test_many_series_of_labels_in_one_context():
    models = [SeqMED(), SeqMED()]
    with sharing.sharing():
        for seed in range(4):
            X, y, _ = make_batch(seed)
            for model in models:
                model.partial_fit(X, pd.Series(y))
    assert_same_bits(*models)


# -- the classifiers -------------------------------------------------------------------------------


def learned_side_by_side(models, batches, *, inside):
    """Let models learn batch by batch, those batches in a context that ``inside`` names."""
    for number, (X, y, weights) in enumerate(batches):
        if number in inside:
            with sharing.sharing():
                for model in models:
                    model.partial_fit(X, y, sample_weight=weights)
        else:
            for model in models:
                model.partial_fit(X, y, sample_weight=weights)
    return models


def variants(case):
    """Return a model, its twin, and one of another C and another lag or smoothness."""
    other = {"lag": 3} if case.estimator is SeqMED else {"beta": 0.02}
    return [case.model(), case.model(), case.model(C=3.0, **other)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_shared_work_is_the_same_to_the_last_bit(case):
    batches = [make_batch(seed, case.format) for seed in range(3)]
    expected = learned_side_by_side(variants(case)[1:], batches, inside=())
    found = learned_side_by_side(variants(case)[1:], batches, inside=(0, 1, 2))
    for one, other in zip(expected, found, strict=True):
        assert_same_bits(one, other)
    probes = make_batch(9, case.format).X
    with sharing.sharing():
        for one, other in zip(expected, found, strict=True):
            for method in ("predict_proba", "decision_function", "decision_std"):
                assert bits(getattr(other, method)(probes)) == bits(getattr(one, method)(probes))


LARGE = {
    "SeqMED": lambda: SeqMED(lag=2),
    "exact": lambda: SeqLapMED(recursion="exact", lag=1),
    "landmarks": lambda: SeqLapMED(n_landmarks=100, lag=1, random_state=0),
    "budget": lambda: SeqLapMED(n_landmarks=40, budget=100, lag=2, random_state=0),
    "span": lambda: SeqMED(budget=100, lag=2, averaging=True, random_state=0),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize(
    ("p", "offset"), [(5, 0.0), (400, 0.0), (400, 5.0)], ids=["narrow", "wide", "wide-off-zero"]
)
def test_batches_of_some_size_are_the_same_to_the_last_bit(name, p, offset):
    """Large enough for sides of products that are shared, and for all anchors to carry."""
    generator = np.random.default_rng(0)
    batches = []
    for _ in range(3):
        y = generator.integers(2, size=180)
        X = offset + generator.normal(size=(180, p)) + y[:, None]
        batches.append((X, np.where(generator.random(180) < 0.3, np.nan, y), np.ones(180)))
    expected = learned_side_by_side([LARGE[name]()], batches, inside=())
    found = learned_side_by_side([LARGE[name](), LARGE[name]()], batches, inside=(0, 1, 2))
    for other in found:
        assert_same_bits(expected[0], other)


@pytest.mark.parametrize("p", [5, 20, 400])
def test_sums_at_their_own_points_are_the_same_to_the_last_bit(p):
    X = np.random.default_rng(0).normal(size=(150, p))
    kernel, expansion = RBF(1.0 / p), Expansion(X, np.ones((150, 2)))
    expected = kernel.sums(X, expansion)
    with sharing.sharing():
        assert bits(kernel.sums(X, expansion)) == bits(expected)


@pytest.mark.parametrize("offset", [0.0, 5.0])
@pytest.mark.parametrize("equal", [False, True])
def test_wide_kernel_matrices_are_the_same_to_the_last_bit(offset, equal):
    X = offset + np.random.default_rng(0).normal(size=(200, 400))
    kernel = RBF(0.05).freeze(X, np.ones(200))
    assert (kernel.centre is None) == (np.square(X).sum(axis=1).max() <= 10 / 0.05)
    other = X.copy() if equal else X
    expected = kernel(X, other)
    with sharing.sharing():
        assert bits(kernel(X, other)) == bits(expected)
        assert bits(kernel(X, other)) == bits(expected)
    assert X.flags.writeable


@pytest.mark.parametrize(
    "name",
    ["SeqMED-rbf-dense", "landmarks-rbf-csr", "exact-tfidf-csr", "spectral-rbf-dense", "budget",
     "landmarks-forgetting", "landmarks-budget-averaging", "SeqLapMED-defaults-csr"],
)  # fmt: skip
def test_a_state_that_was_shared_learns_on_outside(name):
    """What was remembered is read-only; nothing that follows may want to write to it."""
    case = CASES[name]
    batches = [make_batch(seed, case.format) for seed in range(4)]
    expected = learned_side_by_side(variants(case), batches, inside=())
    found = learned_side_by_side(variants(case), batches, inside=(0, 2))
    late, retracted = make_batch(3, case.format), make_batch(2, case.format)
    known = np.flatnonzero(~np.isnan(retracted.y))[:3]
    for one, other in zip(expected, found, strict=True):
        assert_same_bits(one, other)
        for model in (one, other):
            model.partial_fit(late.X[:2], [2.0, 1.0], new_points=False)
            if not model.averaging and model.lag != 1 and model.budget is None:
                model.retract(retracted.X[known])
            model.decision_std(late.X)
        assert_same_bits(one, other)


@pytest.mark.parametrize("name", ["SeqMED-rbf-dense", "landmarks-rbf-dense", "exact-rbf-dense"])
def test_rows_in_another_order_of_memory_are_computed_in_their_own_way(name):
    """Sums may be rounded by how rows lie in memory: equal numbers are not reason enough."""
    case = CASES[name]
    generator = np.random.default_rng(5)
    batches = []
    for seed in range(3):
        _, y, weights = make_batch(seed)
        batches.append((generator.normal(size=(20, 7)), y, weights))
    flipped = [(np.asfortranarray(X), y, weights) for X, y, weights in batches]
    expected = [
        learned_side_by_side([case.model()], each, inside=())[0] for each in (batches, flipped)
    ]
    found = [case.model(), case.model()]
    for ours, theirs in zip(batches, flipped, strict=True):
        with sharing.sharing():
            for model, (X, y, weights) in zip(found, (ours, theirs), strict=True):
                model.partial_fit(X, y, sample_weight=weights)
    for one, other in zip(expected, found, strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("name", ["SeqMED-rbf", "landmarks-rbf", "SeqLapMED-defaults"])
def test_input_is_neither_frozen_nor_changed_nor_kept(name, form):
    case = CASES.get(f"{name}-{form}") or CASES[name]
    model, twin = case.model(), case.model()
    for seed in range(2):
        batch = make_batch(seed, form)
        arrays = [leaf for _, leaf in all_leaves(tuple(batch)) if isinstance(leaf, np.ndarray)]
        before = [array.copy() for array in arrays]
        with sharing.sharing():
            for each in (model, twin):
                each.partial_fit(batch.X, batch.y, sample_weight=batch.sample_weight)
                each.predict_proba(batch.X)
        for array, copied in zip(arrays, before, strict=True):
            assert array.flags.writeable
            assert bits(array) == bits(copied)
        references = [weakref.ref(array) for array in arrays]
        del batch, arrays, array
        gc.collect()
        assert all(reference() is None for reference in references)


def test_a_users_kernel_matrix_is_not_frozen():
    kept = {}

    def kernel(left, right):
        key = left.tobytes(), right.tobytes()
        if key not in kept:
            kept[key] = np.exp(-0.1 * ((left[:, None] - right[None]) ** 2).sum(axis=2))
        return kept[key]

    models = [SeqLapMED(kernel=kernel), SeqLapMED(kernel=kernel, C=3.0)]
    learned_side_by_side(models, [make_batch(seed) for seed in range(2)], inside=(0, 1))
    assert kept
    assert all(values.flags.writeable for values in kept.values())


# -- the work really falls -------------------------------------------------------------------------

EXPENSIVE = {
    "gaussians": (vectors, "Gaussians"),
    "distances": (vectors, "squared_distances"),
    "dot": (counts, "safe_sparse_dot"),
    "edges": (graph, "edge_lengths"),
    "pairs": (graph, "nearest_of_few"),
    "solve": (smo, "solve"),
    "whitening": (triangular, "dtrtri"),
    "pivoted": (triangular, "dpstrf"),
    "factored": (basis, "dpotrf"),
    "conditioned": (basis, "cholesky"),
}


def count_work(monkeypatch, models, batches, *, inside):
    with monkeypatch.context() as patch:
        calls = {}
        for name, (module, function) in EXPENSIVE.items():
            calls[name] = Calls(getattr(module, function))
            patch.setattr(module, function, calls[name])
        learned_side_by_side(models, batches, inside=inside)
    return {name: each.count for name, each in calls.items() if each.count}


@pytest.mark.parametrize(
    ("name", "works"),
    [
        ("SeqMED-rbf-dense", {"gaussians", "solve"}),
        ("SeqMED-tfidf-csr", {"dot", "solve"}),
        ("landmarks-rbf-csr", {"distances", "edges", "solve", "whitening", "conditioned"}),
        (
            "landmarks-rbf-dense",
            {"gaussians", "pairs", "solve", "whitening", "conditioned", "factored"},
        ),
        ("exact-rbf-csr", {"distances", "edges", "solve", "pivoted"}),
    ],
)
def test_twins_cost_no_more_than_one(name, works, monkeypatch):
    case = CASES[name]
    batches = [make_batch(seed, case.format) for seed in range(3)]
    one = count_work(monkeypatch, [case.model()], batches, inside=())
    assert works <= one.keys()
    shared_ = count_work(monkeypatch, [case.model() for _ in range(3)], batches, inside=(0, 1, 2))
    apart = count_work(monkeypatch, [case.model() for _ in range(3)], batches, inside=())
    for work in one:
        assert shared_[work] <= one[work], work  # one model alone may repeat itself, too
        assert apart[work] == 3 * one[work]


def test_candidates_of_other_bounds_share_kernel_and_graph(monkeypatch):
    """C changes the duals; neighbours, kernel matrices and factorisations stay the same."""
    case = CASES["SeqLapMED-defaults-dense"]
    batches = [make_batch(seed) for seed in range(3)]
    bounds = [2.0, 5.0, 10.0, 50.0]
    one = count_work(monkeypatch, [case.model()], batches, inside=())
    four = count_work(monkeypatch, [case.model(C=C) for C in bounds], batches, inside=(0, 1, 2))
    for work in ("pairs", "whitening", "conditioned"):
        assert four[work] == one[work], work
    assert four["gaussians"] < 2 * one["gaussians"]
    assert four["solve"] == 4 * one["solve"]


def test_candidates_of_other_smoothness_share_kernel_and_neighbours(monkeypatch):
    case = CASES["SeqLapMED-defaults-dense"]
    batches = [make_batch(seed) for seed in range(3)]
    betas = [0.01, 0.1, 1.0]
    one = count_work(monkeypatch, [case.model()], batches, inside=())
    three = count_work(monkeypatch, [case.model(beta=b) for b in betas], batches, inside=(0, 1, 2))
    assert three["pairs"] == one["pairs"]
    assert three["conditioned"] == 3 * one["conditioned"]
    assert three["gaussians"] < 2 * one["gaussians"]
