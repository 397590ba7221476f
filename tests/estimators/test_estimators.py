"""Properties of the classifiers beyond the mathematics."""

from __future__ import annotations

import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

import seqmed
from seqmed import (
    GraphPropagation,
    PrequentialSearch,
    SeqGraphMED,
    SeqLapMED,
    SeqMED,
    StreamPipeline,
)
from seqmed.adapters.row_by_row import MiniBatches
from seqmed.estimators import validation
from seqmed.estimators.base import warn_of_unlabeled_rows
from seqmed.kernels import RBF, Precomputed
from seqmed.margin.covariance import exact as exact_covariance
from seqmed.margin.dual.problem import DualProblem, duality_gap, score_errors
from seqmed.numeric.execution import SMALL, threads_for
from seqmed.selection import queries

X, Y = make_moons(60, noise=0.1, random_state=0)
LEARNERS = {
    "SeqMED": SeqMED(),
    "SeqLapMED": SeqLapMED(random_state=0),
    "GraphPropagation": GraphPropagation(random_state=0),
    "SeqGraphMED": SeqGraphMED(random_state=0),
    "StreamPipeline": StreamPipeline([("scale", StandardScaler()), ("model", SeqMED())]),
    "PrequentialSearch": PrequentialSearch(SeqMED(), {"C": [2.0, 10.0]}),
}


@pytest.mark.filterwarnings("ignore:score leaves unlabeled rows out")
class TestScore:
    @pytest.mark.parametrize("frame", [np.asarray, pd.DataFrame])
    def test_unlabeled_rows_are_left_out(self, frame):
        model = SeqLapMED().fit(frame(X), Y)
        hidden = np.where(np.arange(60) % 3, -1, Y)
        shown = hidden != -1
        assert model.score(frame(X), hidden) == model.score(frame(X[shown]), Y[shown])

    def test_weights_follow_their_rows(self):
        model = SeqMED().fit(X, Y)
        wrong = 1.0 - Y
        wrong[:30] = Y[:30]
        wrong[45:] = np.nan
        weights = np.r_[np.ones(30), np.full(30, 3.0)]
        right = model.predict(X) == Y
        expected = (right[:30].sum() + 3 * (~right[30:45]).sum()) / (30 + 45)
        assert model.score(X, wrong, weights) == pytest.approx(expected)

    @pytest.mark.parametrize("name", LEARNERS)
    def test_cross_validation_with_unlabeled_rows_warns_once(self, name):
        hidden = np.where(np.arange(60) % 2, -1, Y)
        warn_of_unlabeled_rows.cache_clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")  # Python's own filter
            scores = cross_val_score(LEARNERS[name], X, hidden, cv=3)
        assert len(caught) == 1
        assert str(caught[0].message).startswith("score leaves unlabeled rows out")
        assert "SemiSupervisedSplit" in str(caught[0].message)
        assert scores.min() > 0.5
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            LEARNERS[name].fit(X, hidden).score(X[::2], hidden[::2])

    @pytest.mark.parametrize(
        ("weights", "reason"),
        [
            (np.ones(59), r"sample_weight\.shape == \(59,\), expected \(60,\)"),
            (np.zeros(60), "weight"),
            (np.repeat([0.0, 1.0], 30), "every sample_weight of a labeled row is zero"),
            (-np.ones(60), "Negative values"),
            (np.full(60, np.nan), "NaN"),
            (np.ones((60, 1)), "1D"),
        ],
    )
    @pytest.mark.parametrize("name", LEARNERS)
    def test_wrong_weights_are_refused(self, name, weights, reason):
        model = LEARNERS[name].fit(X, Y)
        hidden = np.where(np.arange(60) < 30, Y, -1)
        with pytest.raises(ValueError, match=reason):
            model.score(X, hidden, sample_weight=weights)

    @pytest.mark.parametrize("name", LEARNERS)
    def test_another_number_of_labels_is_refused(self, name):
        model = LEARNERS[name].fit(X, Y)
        for labels in (Y[:-1], np.where(np.arange(59) % 2, -1, Y[:-1]), np.r_[Y, -1]):
            with pytest.raises(ValueError, match="inconsistent numbers of samples"):
                model.score(X, labels)

    def test_no_label_at_all_is_refused(self):
        with pytest.raises(ValueError, match="no labeled row among 60"):
            SeqLapMED().fit(X, Y).score(X, np.full(60, -1))


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_a_lag_of_ten_holds_ten_batches_with_labels(estimator):
    model = estimator(lag=10)
    sizes = []
    for start in range(0, 48, 4):
        model.partial_fit(X[start : start + 4], Y[start : start + 4], classes=[0, 1])
        sizes.append(model.update_info_.n_window)
    assert sizes == [4 * min(t + 1, 10) for t in range(12)]


class TestThreads:
    def counts(self):
        return sorted(pool["num_threads"] for pool in threadpool_info())

    def test_thread_limits_are_removed_after_concurrent_calls(self):
        model = SeqMED().fit(X, Y)
        before = self.counts()
        rows = np.tile(X, (50, 1))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: model.predict(rows[: 10 + 500 * (n % 4)]), range(40)))
        assert self.counts() == before

    def test_small_work_has_one_thread(self):
        before = self.counts()
        with threads_for(SMALL), threads_for(1):
            assert set(self.counts()) == {1}
        assert self.counts() == before


def test_the_gap_is_that_of_the_bias_in_use():
    """The paper's median rule is not optimal, and the duality gap must show it."""
    rows = np.r_[np.flatnonzero(Y == 0), np.flatnonzero(Y == 1)[:8]]
    points, labels = X[rows], Y[rows]
    exact = SeqMED(C=1.5, slack_shape=1.0, tol=1e-8).fit(points, labels)
    median = SeqMED(C=1.5, slack_shape=1.0, tol=1e-8, bias="median").fit(points, labels)
    solution = median.update_info_.solutions[0]
    signs = np.where(labels == 1, 1.0, -1.0)
    gram = median.posterior_.covariance.kernel(points, points)
    n = len(rows)
    problem = DualProblem(gram, signs, np.zeros(n), np.full(n, 1.5), np.ones(n))
    left = score_errors(problem, solution.multipliers)
    at_median = duality_gap(problem, solution.multipliers, left, median.intercept_[0])
    assert median.duality_gap_ == pytest.approx(at_median)
    assert abs(median.intercept_[0] - exact.intercept_[0]) > 1e-3
    assert median.duality_gap_ > exact.duality_gap_


def test_a_constant_first_batch_does_not_freeze_noise():
    model = SeqMED().partial_fit(np.full((6, 2), 0.1), [0, 1, 0, 1, 0, 1])
    assert model.posterior_.covariance.kernel.gamma == 1.0
    model.partial_fit(X, Y)
    assert model.score(X, Y) > 0.9


@pytest.mark.parametrize(
    "container", [np.array, list, pd.Series, lambda values: np.array(values, dtype=object)]
)
def test_a_numeric_marker_among_strings_is_one_in_every_container(container):
    labels = ["spam", "-1", "ham"] * 20
    model = SeqLapMED().fit(X, container(labels))
    assert model.classes_.tolist() == ["ham", "spam"]


@pytest.mark.parametrize("container", [list, pd.Series])
def test_a_class_may_be_called_none(container):
    model = SeqMED().fit(X, container(["None", "Some"] * 30))
    assert model.classes_.tolist() == ["None", "Some"]


class TestRefusals:
    @pytest.mark.parametrize("weight", [1e-200, 1e200])
    def test_weights_beyond_doubles(self, weight):
        weights = np.ones(60)
        weights[7] = weight
        with pytest.raises(ValueError, match=r"sample_weight contains .* rescale the weights"):
            SeqMED().fit(X, Y, weights)

    def test_a_kernel_class(self):
        with pytest.raises(ValueError, match="an instance of a kernel class, not the class"):
            SeqMED(RBF).fit(X, Y)

    def test_an_object_that_is_no_kernel(self):
        class Half:
            def freeze(self, points, weights):
                return self

            def __call__(self, left, right):
                return left @ right.T

        with pytest.raises(ValueError, match=r"a subclass of seqmed\.kernels\.Kernel"):
            SeqMED(Half()).fit(X, Y)

    def test_classes_of_two_dimensions(self):
        with pytest.raises(ValueError, match=r"classes has shape \(1, 2\), expected one dimension"):
            SeqMED().partial_fit(X, Y, classes=[[0, 1]])

    def test_minus_one_as_a_float_marker(self):
        with pytest.warns(UserWarning, match="1 is the only class so far"):
            SeqLapMED(unlabeled=-1.0).fit(X, 2 * Y - 1)

    def test_class_weights_that_are_text(self):
        with pytest.raises(ValueError, match="positive finite weights"):
            SeqMED(class_weight={0: "a"}).fit(X, Y)


def test_classes_may_be_a_set():
    assert SeqMED().partial_fit(X, Y, classes={0, 1, 2}).classes_.tolist() == [0, 1, 2]


def test_the_error_names_an_indefinite_kernel():
    gram = X @ X.T - 3.0 * np.eye(60)
    with pytest.raises(ValueError, match="not positive semi-definite"):
        SeqLapMED("precomputed", beta=5.0, recursion="exact").fit(gram, Y)


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
@pytest.mark.parametrize("averaging", [False, True])
def test_the_intercept_is_a_copy(estimator, averaging):
    """Writing to the attribute changes no prediction, now or after the next batch."""
    model = estimator(averaging=averaging).partial_fit(X[:30], Y[:30])
    other = estimator(averaging=averaging).partial_fit(X[:30], Y[:30])
    assert np.array_equal(model.intercept_, model.posterior_.intercepts)
    model.intercept_ += 100.0
    assert np.array_equal(model.decision_function(X), other.decision_function(X))
    scores = [each.partial_fit(X[30:], Y[30:]).decision_function(X) for each in (model, other)]
    assert np.array_equal(*scores)
    assert np.array_equal(model.intercept_, other.intercept_)


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_windows_too_large_for_a_kernel_matrix(estimator, monkeypatch):
    X, y = make_moons(100, noise=0.1, random_state=0)
    model = estimator(random_state=0).partial_fit(X[:30], y[:30])
    before = model.decision_function(X)
    monkeypatch.setattr(exact_covariance, "LARGEST_WINDOW", 40)
    with pytest.raises(ValueError, match="50 labeled rows, expected at most 40: learn smaller"):
        model.partial_fit(X[30:50], y[30:50])
    assert np.array_equal(model.decision_function(X), before)
    bounded = estimator(budget=20, random_state=0)
    assert bounded.fit(X[:50], y[:50]).score(X, y) > 0.8


@pytest.mark.exhaustive
@pytest.mark.parametrize("kernel", ["rbf", "tfidf"])
def test_a_large_batch_forms_no_matrix_of_all_rows(kernel):
    """With landmarks the memory of one batch is O(n m), besides blocks of a fixed size."""
    n = 8000
    generator = np.random.default_rng(0)
    y = generator.integers(2, size=n)
    X = generator.poisson(np.where(y[:, None] == 1, [4.0, 1.0, 1.0], [1.0, 1.0, 4.0])).astype(float)
    X[:, 1] = np.arange(n)  # no two rows are the same
    y = np.where(np.arange(n) % 20 == 0, y, -1)
    options = {"kernel": kernel, "n_landmarks": 50, "random_state": 0}
    SeqLapMED(**options).fit(X[:200], y[:200])  # imports and compiles
    tracemalloc.start()
    try:
        SeqLapMED(**options).fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * 8 * n**2


# -- kernel matrices given by the user: made symmetric in one pass, and stored once ----------------

GENERATOR = np.random.default_rng(0)


def nearly_symmetric(n, difference):
    """Return a kernel matrix (n, n) that differs from its transpose by up to the given amount."""
    rows = GENERATOR.normal(size=(n, 3))
    return rows @ rows.T + difference * np.triu(GENERATOR.uniform(-1.0, 1.0, size=(n, n)), 1)


def test_the_upper_triangle_is_used():
    matrix = nearly_symmetric(12, 1e-9)
    before = matrix.copy()
    found = validation.square_gram(matrix)
    assert np.array_equal(found, np.triu(matrix) + np.triu(matrix, 1).T)
    assert np.array_equal(matrix, before)
    assert not np.shares_memory(found, matrix)  # the model keeps it, whatever the caller does


@pytest.mark.parametrize("place", [(0, 11), (5, 1), (11, 10)])
def test_asymmetric_matrices_are_refused_wherever_they_differ(place):
    matrix = nearly_symmetric(12, 0.0)
    matrix[place] += 0.5
    with pytest.raises(ValueError, match=r"transpose by 0\.5, expected a symmetric"):
        SeqMED("precomputed").fit(matrix, np.arange(12) % 2)


def test_other_rows_are_looked_up():
    matrix = nearly_symmetric(5, 0.0)
    kernel = Precomputed(matrix)
    some, others = np.array([[3], [1]]), np.array([[0], [1], [4]])
    assert np.array_equal(kernel(some, others), matrix[[3, 1]][:, [0, 1, 4]])
    reverse = np.arange(5)[::-1, None]
    assert np.array_equal(kernel(reverse, reverse), matrix[::-1, ::-1])


# -- a Pipeline of scikit-learn cannot learn a stream: it is refused with what to use instead ------

STEPS = [("scale", StandardScaler()), ("model", SeqMED())]


def searched(pipeline):
    return GridSearchCV(pipeline, {"model__C": [10.0]}, cv=2).fit(X, Y)


USES = {
    "save": lambda model, path: seqmed.save(model, path),
    "query": lambda model, path: queries.query(model, X, 2),
    "expected_regret": lambda model, path: queries.expected_regret(model, X),
    "query of a search": lambda model, path: queries.query(searched(model), X, 2),
    "search, fit": lambda model, path: PrequentialSearch(model, {"model__C": [1.5]}).fit(X, Y),
    "search, partial_fit": lambda model, path: PrequentialSearch(
        model, {"model__C": [1.5]}
    ).partial_fit(X, Y),
    "MiniBatches": lambda model, path: MiniBatches(model).partial_fit(X, Y),
}


@pytest.mark.parametrize("use", USES)
def test_a_plain_pipeline_is_refused_with_a_hint(use, tmp_path):
    plain = Pipeline(STEPS).fit(X, Y)
    with pytest.raises((TypeError, ValueError), match="got a Pipeline of scikit-learn") as refused:
        USES[use](plain, tmp_path / "model")
    assert "seqmed.StreamPipeline of the same steps" in str(refused.value)
    assert "seqmed.make_stream_pipeline" in str(refused.value)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("use", USES)
def test_the_hint_works(use, tmp_path):
    plain = Pipeline(STEPS)
    USES[use](StreamPipeline(plain.steps).fit(X, Y), tmp_path / "model")
