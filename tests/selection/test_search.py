"""Search over parameters on a stream, compared with candidates that are run by hand."""

import copy
import pickle
import warnings
from dataclasses import replace
from math import sqrt

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV, ParameterGrid, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from seqmed import PrequentialSearch, SeqGraphMED, SeqLapMED, SeqMED
from seqmed.kernels import RBF
from seqmed.selection.race import Dropped, Record, empty_race
from seqmed.tables.stream_pipeline import StreamPipeline
from tests.support.configurations import make_batch
from tests.support.sparse_rows import in_parts, unsorted
from tests.support.state import assert_same_bits, bits, state_bits

# -- candidates whose predictions are known --------------------------------------------------------


class Column(ClassifierMixin, BaseEstimator):
    """Predicts the value of one column, whatever it has learned; counts its updates."""

    def __init__(self, column=0):
        self.column = column

    def partial_fit(self, X, y, classes=None, sample_weight=None, new_points=True):
        if np.isnan(np.asarray(X, dtype=float)).any():
            raise ValueError("NaN")
        self.n_learned_ = getattr(self, "n_learned_", 0) + 1
        self.classes_ = np.array([0, 1])
        self.n_features_in_ = np.shape(X)[1]
        return self

    def predict(self, X):
        if not hasattr(self, "n_learned_"):
            raise NotFittedError
        return np.asarray(X)[:, self.column].astype(int)

    def predict_proba(self, X):
        said = np.asarray(X)[:, self.column]
        return np.column_stack([1 - said, said])


def columns(n, **options):
    return PrequentialSearch(Column(), {"column": list(range(n))}, **options)


def told(*right):
    """Return rows, all of class 1, that candidates have right (1) or wrong (0): a list for each."""
    X = np.array(right, dtype=float).T
    return X, np.ones(X.shape[0])


def begun(n, **options):
    """Return a search after its first batch, which no candidate can predict."""
    return columns(n, **options).partial_fit(*told(*[[1]] * n))


def rows_of(lost, won):
    """Return what is right of two candidates that disagree on ``lost + won`` rows."""
    return [1] * lost + [0] * won, [0] * lost + [1] * won


# -- the record and what follows from it -----------------------------------------------------------


def test_the_record_by_hand():
    model = begun(3, discount=0.5, drop_limit=None)
    assert model.record_.total == 0
    assert np.isnan(model.best_score_)
    model.partial_fit(*told([1, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1]))
    record = model.record_
    assert record.correct.tolist() == [3, 1, 1]
    assert record.wins.tolist() == [[0, 2, 2], [0, 0, 1], [0, 1, 0]]
    assert record.total == 4
    model.partial_fit(*told([0, 1], [1, 1], [1, 1]))
    record = model.record_
    assert record.correct.tolist() == [2.5, 2.5, 2.5]
    assert record.wins.tolist() == [[0, 1, 1], [1, 0, 0.5], [1, 0.5, 0]]
    assert record.total == 4
    assert record.correct_undiscounted.tolist() == [4, 3, 3]
    assert record.total_undiscounted.tolist() == [6, 6, 6]
    results = model.results_
    assert results["params"] == [{"column": 0}, {"column": 1}, {"column": 2}]
    assert results["accuracy"] == [4 / 6, 0.5, 0.5]
    assert results["recent_accuracy"] == [2.5 / 4] * 3
    assert results["rank"] == [1, 2, 3]
    assert results["dropped"] == [None] * 3
    assert model.best_score_ == 2.5 / 4


def test_weights_count_as_so_many_rows():
    model = begun(2, discount=0.5, drop_limit=None)
    X, y = told([1, 0, 1], [0, 1, 1])
    for weights in ([2.0, 0.5, 1.0], [0.0, 4.0, 0.0]):
        model.partial_fit(X, y, sample_weight=weights)
    other = begun(2, discount=0.5, drop_limit=None).partial_fit(X, y, sample_weight=2.0)
    assert other.record_.correct.tolist() == [4.0, 4.0]
    record = model.record_
    assert record.correct.tolist() == [1.5, 0.75 + 4.0]
    assert record.wins.tolist() == [[0, 1.0], [0.25 + 4.0, 0]]
    assert record.total == 1.75 + 4.0
    assert record.correct_undiscounted.tolist() == [3.0, 5.5]
    assert record.total_undiscounted.tolist() == [7.5, 7.5]


def test_labels_of_weight_zero_are_not_recorded():
    """A row of weight 0 is a row left out; without another label, nothing is discounted either."""
    model = begun(2).partial_fit(*told([1], [0]))
    before = model.record_
    X, _ = told([0, 0], [1, 1])
    model.partial_fit(X, [np.nan, 1.0], sample_weight=[1.0, 0.0])
    assert model.record_ is before
    assert model.n_batches_ == 3


def test_the_best_of_recent_batches_leads_and_ties_keep_the_order():
    model = begun(3, discount=0.5, drop_limit=None)
    leaders = [model.best_index_]
    for right in ([1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0], [1, 0, 0]):
        model.partial_fit(*told(*[[each] for each in right]))
        leaders.append(model.best_index_)
        assert model.best_params_ == {"column": leaders[-1]}
        assert model.best_estimator_ is model.candidates_[leaders[-1]]
    # right after each: (1, 0, 0), (0.5, 0, 1), (0.25, 1, 0.5), (0.125, 1.5, 0.25), ...
    assert leaders == [0, 0, 2, 1, 1, 0]
    steady = begun(3, discount=1.0, drop_limit=None)
    for right in ([0, 1, 1], [1, 0, 1], [1, 1, 0]):
        steady.partial_fit(*told(*[[each] for each in right]))
    assert steady.best_index_ == 0
    assert steady.results_["rank"] == [1, 2, 3]


def test_equal_candidates_have_equal_sums_whatever_the_weights():
    """Otherwise rounding, which depends on the order of the grid, would decide the ranking."""
    generator = np.random.default_rng(0)
    for n in (3, 17, 101):
        correct = np.tile(generator.random(n) < 0.7, (13, 1))
        record = empty_race(13).add(correct, generator.random(n))
        assert len(set(record.correct.tolist())) == 1
        assert record.ranking.tolist() == list(range(13))
        assert not record.wins.any()


@pytest.mark.parametrize(
    ("lost", "won", "limit", "goes"),
    [
        (14, 2, 3.0, False),  # 12 is not more than 3 sqrt(16)
        (15, 1, 3.0, True),
        (14, 2, np.nextafter(3.0, 0.0), True),
        (9, 0, 0.5, False),  # far ahead, on too few rows
        (10, 0, 0.5, True),
        (9, 1, 2.5, True),
        (8, 2, 2.0, False),
        (10, 0, 3.0, True),
        (60, 40, 2.0, False),  # 20 is not more than 2 sqrt(100)
        (61, 39, 2.0, True),
    ],
)
def test_the_rule_for_dropping_at_its_boundary(lost, won, limit, goes):
    assert goes == (lost + won >= 10 and lost - won > limit * sqrt(lost + won))
    leader, rival = rows_of(lost, won)
    model = begun(2, discount=1.0, drop_limit=limit).partial_fit(*told(leader, rival))
    expected = Dropped(2, 0, float(lost), float(won)) if goes else None
    assert model.record_.dropped == (None, expected)
    # the place in the grid makes no difference, nor do rows on which both are right or wrong
    more = [1, 0] * 50
    other = begun(2, discount=1.0, drop_limit=limit).partial_fit(*told(rival + more, leader + more))
    expected = Dropped(2, 1, float(lost), float(won)) if goes else None
    assert other.record_.dropped == (expected, None)


def test_dropping_goes_by_the_discounted_record():
    """Rows of smaller weight contribute less to the difference and to its variance."""
    model = begun(2, discount=0.5, drop_limit=2.9)
    model.partial_fit(*told([1] * 5, [0] * 5))
    model.partial_fit(*told([1] * 3, [0] * 3))  # 5.5^2 / (5/4 + 3): as much as 7 rows
    assert model.record_.dropped == (None, None)
    model.partial_fit(*told([1] * 6, [0] * 6))  # 8.75^2 / (17/16 + 6): 10.8
    assert model.record_.dropped == (None, Dropped(4, 0, 8.75, 0.0))


@pytest.mark.parametrize("weight", [1e-3, 1.0, 50.0])
def test_dropping_does_not_depend_on_the_unit_of_weights(weight):
    """A row of large weight is one row."""
    model = begun(2, discount=1.0)
    model.partial_fit(*told([1] * 4, [0] * 4), sample_weight=[weight] * 3 + [100 * weight])
    assert model.record_.dropped == (None, None)
    model.partial_fit(*told([1] * 12, [0] * 12), sample_weight=[100 * weight] * 12)
    assert model.record_.dropped[1] is not None


def test_a_dropped_candidate_stops_learning_and_keeps_its_evidence():
    model = begun(3, discount=1.0)
    model.partial_fit(*told([1] * 12, [0] * 12, [1] * 12))
    why = Dropped(2, 0, 12.0, 0.0)
    gone = model.candidates_[1]
    before = state_bits(gone)
    for _ in range(3):
        model.partial_fit(*told([0] * 3, [1] * 3, [1] * 3))
        assert model.candidates_[1] is gone
        assert state_bits(gone) == before
        results = model.results_
        assert results["dropped"] == [None, why, None]
        assert results["rank"][1] == 0
        assert results["accuracy"][1] == 0.0
        assert np.isnan(results["recent_accuracy"][1])
    assert [each.n_learned_ for each in model.candidates_] == [5, 2, 5]
    assert model.record_.total_undiscounted.tolist() == [21, 12, 21]
    assert model.record_.racing.tolist() == [0, 2]
    assert model.best_index_ == 2  # though the second has had the most right of late
    assert results["rank"] == [2, 0, 1]


def test_the_leader_is_never_dropped():
    """Not even where the smallest difference is enough."""
    generator = np.random.default_rng(3)
    model = begun(6, drop_limit=1e-9)
    for _ in range(30):
        model.partial_fit(*told(*(generator.random((6, 12)) < 0.5)))
        record = model.record_
        assert record.dropped[model.best_index_] is None
        assert (
            model.best_index_
            == record.ranking[0]
            == max(record.racing, key=lambda place: (record.correct[place], -place))
        )
        for why in filter(None, record.dropped):
            assert why.lost > why.won
    assert record.racing.size == 1
    assert sum(why is not None for why in record.dropped) == 5


def test_no_limit_keeps_all():
    model = begun(2, drop_limit=None)
    for _ in range(5):
        model.partial_fit(*told([1] * 50, [0] * 50))
    assert model.record_.dropped == (None, None)
    assert [each.n_learned_ for each in model.candidates_] == [6, 6]


def test_labels_that_come_late_count_in_the_last_batch_and_discount_nothing():
    """Given one by one, they would otherwise make the record forget all that was before."""
    model = begun(2).partial_fit(*told([1], [1]))
    model.partial_fit(*told([1] * 12, [0] * 12), new_points=False)
    assert model.n_batches_ == 2
    assert model.record_.dropped[1] == Dropped(2, 0, 12.0, 0.0)
    model = begun(2, discount=0.5, drop_limit=None).partial_fit(*told([1, 1], [0, 1]))
    for _ in range(3):
        model.partial_fit(*told([0], [1]), new_points=False)
    assert model.record_.total == 5.0
    assert model.record_.correct.tolist() == [2.0, 4.0]
    model.partial_fit(*told([0], [1]))
    assert model.record_.correct.tolist() == [1.0, 3.0]


def test_candidates_share_random_draws():
    """Without a seed of the user's all draw the same landmarks; with one, that is theirs."""
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3 - 1
    grid = {"C": [2.0, 10.0]}
    model = PrequentialSearch(SeqLapMED(n_landmarks=5), grid).partial_fit(X, y, classes=[0, 1])
    landmarks = [each.posterior_.recursion.landmarks for each in model.candidates_]
    assert np.array_equal(*landmarks)
    assert model.estimator.random_state is None
    seeds = {each.random_state for each in model.candidates_}
    other = clone(model).partial_fit(X, y, classes=[0, 1])
    assert seeds != {each.random_state for each in other.candidates_}
    given = PrequentialSearch(SeqLapMED(random_state=7), grid).partial_fit(X, y, classes=[0, 1])
    assert {each.random_state for each in given.candidates_} == {7}
    piped = PrequentialSearch(
        StreamPipeline([("model", SeqMED())]), {"model__random_state": [None, 3]}
    ).partial_fit(X, np.where(y < 0, np.nan, y))
    assert [each[-1].random_state for each in piped.candidates_] == [None, 3]


def test_a_batch_without_labels_is_learned_and_leaves_the_record_alone():
    model = begun(2).partial_fit(*told([1], [0]))
    before = model.record_
    model.partial_fit(np.zeros((3, 2)), [np.nan] * 3)
    assert model.record_ is before
    assert model.n_batches_ == 3
    assert [each.n_learned_ for each in model.candidates_] == [3, 3]


# -- the same as by hand ---------------------------------------------------------------------------


def naive(model, batches):
    """Return (candidates, record) of a search's parameters, by loops over rows and no sharing."""
    candidates = [
        clone(model.estimator).set_params(**each) for each in ParameterGrid(model.param_grid)
    ]
    n = len(candidates)
    right, right_in_all, total_in_all, total = [0.0] * n, [0.0] * n, [0.0] * n, 0.0
    alone, squares = np.zeros((n, n)), np.zeros((n, n))
    dropped = [None] * n
    judged = False
    for number, batch in enumerate(batches, start=1):
        X, y, weights = batch
        weights = np.ones(len(y)) if weights is None else weights
        racing = [i for i in range(n) if dropped[i] is None]
        labeled = [row for row in range(len(y)) if y[row] == y[row] and y[row] != -1]
        if labeled and judged:
            right = [model.discount * each for each in right]
            alone, total = model.discount * alone, model.discount * total
            squares = model.discount**2 * squares
            said = {i: candidates[i].predict(X[labeled]) for i in racing}
            for place, row in enumerate(labeled):
                hit = {i: said[i][place] == y[row] for i in racing}
                total += weights[row]
                for i in racing:
                    total_in_all[i] += weights[row]
                    right[i] += hit[i] * weights[row]
                    right_in_all[i] += hit[i] * weights[row]
                    for j in racing:
                        alone[i, j] += (hit[i] and not hit[j]) * weights[row]
                        squares[i, j] += (hit[i] and not hit[j]) * weights[row] ** 2
        for i in racing:
            given = {} if batch[2] is None else {"sample_weight": weights}
            candidates[i].partial_fit(X, y, **given)
        if labeled and judged and model.drop_limit is not None:
            leader = max(racing, key=lambda i: (right[i], -i))
            for i in racing:
                lost, won = alone[leader, i], alone[i, leader]
                variance = squares[leader, i] + squares[i, leader]
                enough = (lost + won) ** 2 >= 10 * variance > 0
                if enough and lost - won > model.drop_limit * sqrt(variance):
                    dropped[i] = Dropped(number, leader, lost, won)
        judged = judged or bool(labeled)
    arrays = [np.array(each) for each in (right, right_in_all, total_in_all)]
    return candidates, Record(arrays[0], alone, squares, total, *arrays[1:], tuple(dropped))


def assert_same_record(found, expected):
    """The sums are of some hundred terms, in another order."""
    for name in ("correct", "wins", "total", "correct_undiscounted", "total_undiscounted"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-12
        )
    for ours, theirs in zip(found.dropped, expected.dropped, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert ours == pytest.approx(theirs, rel=1e-12)


def make_stream(n_batches, form="dense", n=30, weighted=False, start=0):
    """Batches of counts, of three classes, a fifth unlabeled; the fourth without any label."""
    batches = []
    for seed in range(start, start + n_batches):
        X, y, weights = make_batch(seed, form, n)
        y = np.full(n, np.nan) if seed == 3 else y
        batches.append((X, y, weights if weighted else None))
    return batches


def learn(model, batches, **parameters):
    for X, y, weights in batches:
        given = {} if weights is None else {"sample_weight": weights}
        model.partial_fit(X, y, **given, **parameters)
    return model


LANDMARKS = {"random_state": 0, "n_landmarks": 20}
FORGETFUL = {"forgetting": [1.0, 0.6], "lag": [1, None], "gamma": [1e-3, 10.0]}
SEARCHES = {
    "SeqMED": (
        SeqMED(random_state=0),
        {"C": [1.1, 10.0], "gamma": [1e-4, 0.05, 50.0]},
        "dense",
        False,
    ),
    "forgetting": (SeqMED(random_state=0), FORGETFUL, "dense", True),
    "budget": (
        SeqMED(random_state=0, budget=20),
        {"averaging": [False, True], "C": [1.5, 10.0]},
        "csr",
        True,
    ),
    "beta": (
        SeqLapMED(**LANDMARKS),
        [{"beta": [0.0, 0.1, 30.0], "C": [1.2, 10.0]}, {"forgetting": [0.5]}],
        "dense",
        False,
    ),
    "mixtures": (
        SeqGraphMED(SeqMED(random_state=0), random_state=0, graph_memory=60),
        [
            {"mixture": ["evidence", 0.0, 1.0], "estimator__C": [1.5, 10.0]},
            {"alpha": [0.5], "n_neighbors": [3, 10], "forgetting": [0.7]},
            {"estimator": [SeqMED(kernel="poly", random_state=0), SeqLapMED(random_state=0)]},
        ],
        "dense",
        True,
    ),
}


@pytest.mark.parametrize(
    ("name", "drop_limit"), [*((name, 0.7) for name in SEARCHES), ("SeqMED", None), ("beta", None)]
)
def test_record_and_candidates_are_those_of_candidates_run_alone(name, drop_limit):
    estimator, grid, form, weighted = SEARCHES[name]
    batches = make_stream(5, form, weighted=weighted)
    model = PrequentialSearch(estimator, grid, discount=0.9, drop_limit=drop_limit)
    candidates, record = naive(model, batches)
    learn(model, batches)
    assert_same_record(model.record_, record)
    if name == "SeqMED" and drop_limit:
        assert 0 < model.record_.racing.size < len(candidates)  # or nothing has been tested
    for ours, theirs in zip(model.candidates_, candidates, strict=True):
        assert_same_bits(ours, theirs)
    probes = make_batch(99, form).X
    best = candidates[int(record.ranking[0])]
    for method in ("predict", "predict_proba", "decision_function", "decision_std"):
        if hasattr(best, method):
            assert bits(getattr(model, method)(probes)) == bits(getattr(best, method)(probes))
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.n_features_in_ == 5


def test_candidates_of_any_estimator():
    """Those that learn in place are copied before they learn."""
    X, y = make_moons(200, noise=0.2, random_state=0)
    batches = [(X[i : i + 40], y[i : i + 40]) for i in range(0, 200, 40)]
    for estimator, grid in (
        (GaussianNB(), {"var_smoothing": [1e-9, 1.0]}),
        (SGDClassifier(random_state=0), {"alpha": [1e-4, 1.0], "loss": ["hinge", "log_loss"]}),
    ):
        model = PrequentialSearch(estimator, grid, drop_limit=None)
        candidates = [clone(estimator).set_params(**each) for each in ParameterGrid(grid)]
        right = np.zeros(len(candidates))
        for number, (rows, labels) in enumerate(batches):
            if number:
                right = 0.98 * right + [(each.predict(rows) == labels).sum() for each in candidates]
            for each in candidates:
                each.partial_fit(rows, labels, classes=[0, 1])
            earlier = getattr(model, "candidates_", [])
            before = [pickle.dumps(each) for each in earlier]
            model.partial_fit(rows, labels, classes=[0, 1])
            assert [pickle.dumps(each) for each in earlier] == before
        np.testing.assert_allclose(model.record_.correct, right, rtol=1e-12)
        best = candidates[int(np.argmax(right))]
        np.testing.assert_array_equal(model.predict(X), best.predict(X))
        np.testing.assert_array_equal(model.score(X, y), best.score(X, y))
    assert not hasattr(model, "decision_std")
    assert not hasattr(model, "retract")


def make_pipe(model=None):
    steps = [
        ("scale", StandardScaler()),
        ("model", SeqMED(random_state=0) if model is None else model),
    ]
    return StreamPipeline(steps)


def test_candidates_that_are_pipelines():
    grid = {"model__C": [1.1, 10.0], "scale": [StandardScaler(), "passthrough"]}
    model = PrequentialSearch(make_pipe(), grid, drop_limit=None)
    batches = [(10 * X + 3, y, None) for X, y, _ in make_stream(4)]
    candidates, record = naive(model, batches)
    learn(model, batches)
    assert_same_record(model.record_, record)
    probes = 10 * make_batch(99).X + 3
    for ours, theirs in zip(model.candidates_, candidates, strict=True):
        assert bits(ours.decision_function(probes)) == bits(theirs.decision_function(probes))
        assert_same_bits(ours.steps[-1][1], theirs.steps[-1][1])
    assert all(isinstance(each["scale"], str | StandardScaler) for each in model.results_["params"])
    assert not hasattr(grid["scale"][0], "mean_")
    # a batch that a transformer, or the model behind it, refuses
    before = state_bits(model)
    bad = make_batch(7)
    for X, y in ((bad.X[:, :3], bad.y), (bad.X, bad.y[:3]), (np.full_like(bad.X, np.inf), bad.y)):
        with pytest.raises(ValueError, match=r"features|inconsistent|infinity"):
            model.partial_fit(X, y)
        assert state_bits(model) == before


def test_texts():
    texts = np.array(["red apple", "green pear", "red cherry", "green lime"] * 5)
    y = np.array(["warm", "cold"] * 10)
    pipe = StreamPipeline(
        [("count", HashingVectorizer(n_features=32)), ("model", SeqMED(random_state=0))]
    )
    model = PrequentialSearch(pipe, {"model__C": [2.0, 10.0]})
    for rows in (texts, texts.tolist(), pd.Series(texts)):
        model.partial_fit(rows, y)
    assert model.predict(["red", "green"]).tolist() == ["warm", "cold"]
    assert not hasattr(model, "n_features_in_")
    assert model.fit(texts.tolist(), y).predict(["red"]).tolist() == ["warm"]


def test_a_search_at_the_end_of_a_pipeline():
    grid = {"C": [1.1, 10.0]}
    pipe = make_pipe(PrequentialSearch(SeqMED(random_state=0), grid))
    scaler = StandardScaler()
    alone = PrequentialSearch(SeqMED(random_state=0), grid)
    for number, (X, y, _) in enumerate(make_stream(4)):
        pipe.partial_fit(X, y)
        alone.partial_fit((scaler if number else scaler.fit(X)).transform(X), y)
    assert_same_bits(pipe.steps[-1][1], alone)


# -- fit -------------------------------------------------------------------------------------------


def whole(batches):
    parts = list(zip(*batches, strict=True))
    X = sp.vstack(parts[0], format="csr") if sp.issparse(parts[0][0]) else np.vstack(parts[0])
    return X, np.concatenate(parts[1]), None if parts[2][0] is None else np.concatenate(parts[2])


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("batch_size", [7, 60, 1000])
def test_fit_is_a_stream_of_batches(batch_size, form):
    X, y, weights = whole(make_stream(2, form, weighted=True))
    model = PrequentialSearch(SeqMED(random_state=0), {"C": [1.5, 10.0]}, batch_size=batch_size)
    assert model.fit(X, y, sample_weight=weights) is model
    expected = clone(model)
    for start in range(0, 60, batch_size):
        rows = slice(start, start + batch_size)
        expected.partial_fit(X[rows], y[rows], classes=[0.0, 1, 2], sample_weight=weights[rows])
    assert model.n_batches_ == -(-60 // batch_size)
    assert_same_bits(model, expected)


def test_a_new_fit_forgets_everything():
    model = PrequentialSearch(SeqLapMED(random_state=0), {"beta": [0.0, 0.1]}, batch_size=20)
    learn(model, make_stream(3))
    frame = pd.DataFrame(make_batch(0).X[:, :2], columns=["a", "b"])
    model.fit(frame, ["x", "y"] * 10)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    fresh = clone(model).fit(frame, ["x", "y"] * 10)
    assert_same_bits(model, fresh)
    X, y, _ = make_batch(1)
    model.set_params(estimator__C=3.0, param_grid={"beta": [0.2]})
    model.fit(X, y)
    assert not hasattr(model, "feature_names_in_")
    assert_same_bits(model, clone(model).fit(X, y))
    # classes known from before do not tell what -1 means now
    signs = np.where(np.arange(20) % 2, 1, -1)
    for each in (model, clone(model)):
        with pytest.warns(UserWarning, match="only 1 and -1"):
            each.fit(X, signs)
        assert each.classes_.tolist() == [1]


def test_rows_of_no_weight_are_rows_left_out_of_fit():
    X, y, _ = whole(make_stream(3))
    used = np.arange(90) % 3 > 0
    used[:25] = False  # a whole batch of them
    model = PrequentialSearch(SeqMED(random_state=0), {"C": [1.5, 10.0]}, batch_size=20)
    model.fit(X, y, sample_weight=used.astype(float))
    expected = clone(model).fit(X[used], y[used], sample_weight=np.ones(used.sum()))
    assert_same_bits(model, expected)
    only = np.where(used, np.nan, y)
    with pytest.raises(ValueError, match="no labeled row"):
        model.fit(X, only, sample_weight=used.astype(float))
    assert_same_bits(model, expected)
    with pytest.raises(ValueError, match=r"non-zero|every sample_weight"):
        model.fit(X, y, sample_weight=np.zeros(90))


BAD_FITS = {
    "no label": (lambda X, y: (X, np.full(30, np.nan)), "no labeled row among 30"),
    "y is None": (lambda X, y: (X, None), "requires y"),
    "more labels": (lambda X, y: (X, np.append(y, 1.0)), r"inconsistent.*\[30, 31\]"),
    "fewer labels": (lambda X, y: (X, y[1:]), r"inconsistent.*\[30, 29\]"),
    "no rows": (lambda X, y: (X[:0], y), r"inconsistent.*\[0, 30\]"),
    "nothing": (lambda X, y: (X[:0], y[:0]), "no labeled row among 0"),
    "NaN in the last batch": (lambda X, y: (np.vstack([X[:29], np.nan * X[29:]]), y), "NaN"),
    "weights": (lambda X, y: (X, y, np.ones(29)), r"shape == \(29,\), expected \(30,\)"),
    "a matrix of weights": (lambda X, y: (X, y, np.ones((30, 2))), "must be 1D array or scalar"),
    "negative weights": (lambda X, y: (X, y, -np.ones(30)), "[Nn]egative"),
}


@pytest.mark.parametrize("name", BAD_FITS)
def test_a_fit_that_fails_leaves_everything_as_it_was(name):
    make, message = BAD_FITS[name]
    X, y, _ = make_batch(0, n=30)
    for model in (columnless(), learn(columnless(), make_stream(3))):
        before = state_bits(model)
        with pytest.raises(ValueError, match=message):
            model.fit(*make(X, y))
        assert state_bits(model) == before


def columnless():
    return PrequentialSearch(SeqMED(random_state=0), {"C": [1.5, 10.0]}, batch_size=10)


def test_an_interrupted_fit_leaves_everything_as_it_was(monkeypatch):
    model = learn(columnless(), make_stream(2))
    before = state_bits(model)
    calls = []

    def interrupted(self, *arguments, **named):
        calls.append(self)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, *arguments, **named)

    original = SeqMED.partial_fit
    monkeypatch.setattr(SeqMED, "partial_fit", interrupted)
    X, y, _ = make_batch(0, n=30)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert state_bits(model) == before


# -- labels and rows of all kinds ------------------------------------------------------------------


def two_class_batch(seed, n=20):
    generator = np.random.default_rng(seed)
    codes = np.arange(n) % 2
    return generator.normal(size=(n, 2)) + 2.0 * codes[:, None], codes


MARKERS = {
    "NaN": lambda y: np.where(np.arange(y.size) % 3 == 0, np.nan, y),
    "series": lambda y: pd.Series(
        [None if i % 3 == 0 else "ab"[v] for i, v in enumerate(y)], index=np.arange(y.size)[::-1]
    ),
    "-1": lambda y: np.where(np.arange(y.size) % 3 == 0, -1, y),
    "'-1'": lambda y: np.where(np.arange(y.size) % 3 == 0, "-1", np.array(["a", "b"])[y]),
}


@pytest.mark.filterwarnings("ignore:score leaves unlabeled rows out")
@pytest.mark.parametrize(
    ("estimator", "marker"),
    [
        *((SeqMED(random_state=0), marker) for marker in MARKERS if "-1" not in marker),
        *((SeqLapMED(random_state=0), marker) for marker in MARKERS),
    ],
)
def test_unlabeled_rows_are_not_recorded(estimator, marker):
    model = PrequentialSearch(estimator, {"C": [2.0, 10.0]}, discount=1.0)
    alone = clone(estimator).set_params(C=2.0)
    right = 0
    for seed in range(3):
        X, codes = two_class_batch(seed)
        y = MARKERS[marker](codes)
        known = np.arange(20) % 3 > 0
        if seed:
            shown = pd.Series(y).to_numpy()[known].tolist()
            right += sum(a == b for a, b in zip(alone.predict(X[known]), shown, strict=True))
        model.partial_fit(X, y)
        alone.partial_fit(X, y)
    assert model.record_.total == 2 * known.sum()
    assert model.record_.correct[0] == right > 20
    assert_same_bits(model.candidates_[0], alone)
    assert model.score(X, y) == model.best_estimator_.score(X, y)
    again = clone(model).set_params(batch_size=7).fit(X, y)
    assert again.classes_.tolist() == model.classes_.tolist()
    assert again.n_batches_ == 3


def test_minus_one_is_a_class_for_candidates_with_another_marker():
    X, y = two_class_batch(0)
    signs = np.where(y == 1, 1, -1)
    for kind in (SeqMED, SeqLapMED):
        model = PrequentialSearch(kind(unlabeled=None, random_state=0), {"C": [2.0, 10.0]})
        model.partial_fit(X, signs).partial_fit(X, signs)
        assert model.classes_.tolist() == [-1, 1]
        assert model.record_.total == 20


def test_declared_classes_determine_the_meaning_of_minus_one():
    """As with the estimator alone, in the first batch too."""
    X, y = two_class_batch(0)
    signs = np.where(y == 1, 1, -1)
    model = PrequentialSearch(SeqLapMED(random_state=0), {"beta": [0.0, 0.1]})
    with pytest.warns(UserWarning, match="1 is the only class so far"):
        clone(model).partial_fit(X, signs).predict(X)
    model.partial_fit(X, signs, classes=[0, 1]).partial_fit(X, signs)
    assert model.record_.total == 10
    assert model.predict(X).tolist() == [1] * 20


def test_batches_of_one_class_and_classes_that_come_late():
    model = PrequentialSearch(SeqMED(random_state=0), {"C": [1.5, 10.0]}, discount=1.0)
    alone = SeqMED(C=1.5, random_state=0)
    totals = []
    for labels in ([np.nan], [0], [0], [1], [0, 1], [2], [0, 1, 2]):
        X, _, _ = make_batch(len(totals), n=12)
        y = np.resize(np.array(labels, dtype=float), 12)
        model.partial_fit(X, y)
        alone.partial_fit(X, y)
        totals.append(model.record_.total)
        if not np.isnan(y).all():
            assert model.classes_.tolist() == alone.classes_.tolist()
            assert model.predict_proba(X).shape == (12, alone.classes_.size)
    assert totals == [0, 0, 12, 24, 36, 48, 60]
    assert model.record_.correct_undiscounted[0] >= 12  # of one class, all are right
    assert_same_bits(model.candidates_[0], alone)
    declared = PrequentialSearch(SeqMED(random_state=0), {"C": [1.5, 10.0]})
    declared.partial_fit(X, np.resize([0.0, 1.0], 12), classes=[0, 1, 2])
    assert declared.classes_.tolist() == [0, 1, 2]
    assert set(declared.predict(X)) <= {0, 1}
    before = state_bits(declared)
    with pytest.raises(ValueError, match="expected one of classes"):
        declared.partial_fit(X, np.resize([0.0, 7.0], 12), classes=[0, 1, 2])
    assert state_bits(declared) == before


def test_without_any_label_it_is_not_fitted_for_predictions():
    model = PrequentialSearch(SeqMED(random_state=0), {"C": [1.5, 10.0]})
    X, y, _ = make_batch(0)
    for method in ("predict", "predict_proba", "decision_function", "decision_std"):
        with pytest.raises(NotFittedError):
            getattr(model, method)(X)
    for call in (lambda: model.score(X, y), lambda: model.retract(X), lambda: model.results_):
        with pytest.raises(NotFittedError):
            call()
    assert not hasattr(model, "results_")
    model.partial_fit(X, np.full(20, np.nan))
    assert np.isnan(model.results_["accuracy"]).all()
    with pytest.raises(NotFittedError, match="has learned no label"):
        model.predict(X)


FORMS = {
    "COO": sp.coo_array,
    "unsorted": unsorted,
    "in parts": in_parts,
    "list": lambda rows: rows.tolist(),
    "frame": lambda rows: pd.DataFrame(rows, index=np.arange(len(rows))[::-1]),
}


@pytest.mark.filterwarnings("ignore:score leaves unlabeled rows out")
@pytest.mark.parametrize("form", FORMS)
def test_rows_in_any_form(form):
    make = FORMS[form]
    model = PrequentialSearch(
        SeqMED(random_state=0), {"C": [1.5, 10.0]}, batch_size=9, discount=1.0
    )
    alone = SeqMED(C=1.5, random_state=0)
    for seed in range(3):
        X, y, _ = make_batch(seed)
        model.partial_fit(make(X), y)
        alone.partial_fit(make(X), y)
    assert model.record_.total == 32
    assert_same_bits(model.candidates_[0], alone)
    known = ~np.isnan(y)
    assert model.score(make(X), y) == np.mean(model.predict(X[known]) == y[known])
    assert model.fit(make(X), y).n_batches_ == 3


def test_names_of_columns():
    model = PrequentialSearch(SeqMED(random_state=0), {"C": [1.5, 10.0]})
    frames = [pd.DataFrame(make_batch(seed).X, columns=list("abcde")) for seed in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed, frame in enumerate(frames):
            model.partial_fit(frame, make_batch(seed).y)
        model.predict(frames[0])
    assert model.feature_names_in_.tolist() == list("abcde")
    before = state_bits(model)
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frames[0][list("edcba")], make_batch(0).y)
    assert state_bits(model) == before


def test_results_are_the_callers():
    model = learn(PrequentialSearch(SeqMED(random_state=0), {"C": [1.5, 10.0]}), make_stream(2))
    expected = copy.deepcopy(model.results_)
    results = model.results_
    results["params"][0]["C"] = 99.0
    results["rank"].clear()
    model.best_params_["C"] = 99.0
    assert model.results_ == expected
    learn(model, make_stream(1, start=2))
    assert model.best_params_ in expected["params"]


# -- late and retracted labels ---------------------------------------------------------------------


def test_late_labels_and_retractions_are_those_of_the_candidates():
    grid = {"beta": [0.0, 0.1], "C": [2.0, 10.0]}
    model = PrequentialSearch(SeqLapMED(**LANDMARKS), grid, discount=1.0)
    alone = [clone(model.estimator).set_params(**each) for each in ParameterGrid(grid)]
    for counts, y, _ in make_stream(3):
        X = counts + np.random.default_rng(0).random(counts.shape) / 10  # no two rows are equal
        for each in (model, *alone):
            each.partial_fit(X, y)
    missing = np.flatnonzero(np.isnan(y))
    truth = np.resize([0.0, 1.0, 2.0], missing.size)
    expected = [sum(each.predict(X[missing]) == truth) for each in alone]
    before, n_batches = model.record_, model.n_batches_
    for each in (model, *alone):
        each.partial_fit(X[missing], truth, new_points=False)
    assert model.n_batches_ == n_batches
    assert (model.record_.correct - before.correct).tolist() == expected
    for ours, theirs in zip(model.candidates_, alone, strict=True):
        assert_same_bits(ours, theirs)
    record = model.record_
    for each in (model, *alone):
        each.retract(X[missing[:2]], truth[:2])
        each.retract(X[missing[2:]])
    assert model.record_ is record  # their record is unchanged
    assert model.n_batches_ == n_batches
    for ours, theirs in zip(model.candidates_, alone, strict=True):
        assert_same_bits(ours, theirs)
    assert model.best_estimator_ is model.candidates_[model.best_index_]


def test_if_one_candidate_refuses_to_retract_none_retracts():
    model = PrequentialSearch(SeqMED(random_state=0), {"lag": [None, 1]}, drop_limit=None)
    learn(model, make_stream(2))
    X, y, _ = make_batch(0, n=30)
    old = X[~np.isnan(y)][:1]
    before = state_bits(model)
    with pytest.raises(ValueError, match="lag=1"):
        model.retract(old)
    assert state_bits(model) == before
    newest = make_batch(1, n=30)
    model.retract(newest.X[~np.isnan(newest.y)][:1])


def test_all_labels_retracted_and_new_ones():
    model = PrequentialSearch(SeqMED(random_state=0), {"C": [2.0, 10.0]})
    X, y = two_class_batch(0)
    model.partial_fit(X, y).retract(X)
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X, y)  # no candidate could predict, so nothing is recorded
    assert model.record_.total == 0
    assert model.partial_fit(X, y).record_.total == 20


def test_late_labels_first_are_refused():
    model = PrequentialSearch(SeqMED(random_state=0), {"C": [2.0, 10.0]})
    with pytest.raises(ValueError, match="new_points=False in its first call"):
        model.partial_fit(*two_class_batch(0), new_points=False)
    assert not hasattr(model, "candidates_")


def test_dropped_candidates_do_not_retract():
    model = begun(2, discount=1.0).partial_fit(*told([1] * 12, [0] * 12))
    assert not hasattr(model, "retract")
    real = PrequentialSearch(SeqMED(random_state=0), {"lag": [None, 1]}, drop_limit=None)
    learn(real, make_stream(2))
    why = Dropped(2, 0, 12.0, 1.0)
    real.record_ = replace(real.record_, dropped=(None, why))
    gone = real.candidates_[1]
    X, y, _ = make_batch(0, n=30)
    real.retract(X[~np.isnan(y)][:1])  # too old for the second alone
    assert real.candidates_[1] is gone


# -- errors ----------------------------------------------------------------------------------------


GOOD = make_batch(5)
BAD_BATCHES = {
    "columns": (lambda: (GOOD.X[:, :3], GOOD.y), "features"),
    "NaN": (lambda: (np.where(GOOD.X > 3, np.nan, GOOD.X), GOOD.y), "NaN"),
    "fewer labels": (lambda: (GOOD.X, GOOD.y[:5]), "inconsistent"),
    "no labels": (lambda: (GOOD.X, None), "requires y"),
    "strings": (lambda: (GOOD.X, ["a", "b"] * 10), "strings"),
    "fewer weights": (lambda: (GOOD.X, GOOD.y, None, np.ones(3)), "sample_weight"),
    "no weight": (lambda: (GOOD.X, GOOD.y, None, np.zeros(20)), "non-zero|zero"),
    "classes": (lambda: (GOOD.X, GOOD.y, [0, 1]), "expected one of classes"),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_batch_that_is_refused_leaves_everything_as_it_was(name):
    make, message = BAD_BATCHES[name]
    model = PrequentialSearch(SeqMED(random_state=0), {"C": [1.5, 10.0], "lag": [1, 2]})
    learn(model, make_stream(3))
    before = state_bits(model)
    held = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.partial_fit(*make())
    assert state_bits(model) == before
    assert all(vars(model)[key] is value for key, value in held.items())
    fresh = clone(model)
    if name not in ("columns", "strings"):  # which are good ones to begin with
        with pytest.raises(ValueError, match=message):
            fresh.partial_fit(*make())
        assert vars(fresh).keys() == vars(clone(model)).keys()


def test_if_one_candidate_fails_all_stay_unchanged():
    grid = [{"averaging": [True]}, {"averaging": [True], "recursion": ["spectral"]}]
    model = PrequentialSearch(SeqLapMED(random_state=0), grid)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="recursion='spectral' got averaging=True"):
        model.partial_fit(*two_class_batch(0))
    assert vars(model) == before
    with pytest.raises(ValueError, match="recursion='spectral' got averaging=True"):
        model.fit(*two_class_batch(0))
    assert vars(model) == before


def test_a_candidate_that_refuses_between_batches():
    """The other candidates have learned the batch by then; this must be undone."""
    model = PrequentialSearch(SeqMED(random_state=0), {"kernel": ["rbf", "tfidf"]}, drop_limit=None)
    learn(model, make_stream(2))
    before = state_bits(model)
    X, y, _ = make_batch(4)
    with pytest.raises(ValueError, match="negative entry"):
        model.partial_fit(X - 1.0, y)
    assert state_bits(model) == before


def test_candidates_that_read_labels_differently_are_refused():
    """What is a class to one and unlabeled to the other cannot be compared."""
    model = PrequentialSearch(SeqLapMED(random_state=0), {"unlabeled": [-1, None]})
    X, y, _ = make_batch(0)
    before = dict(vars(model))
    with pytest.raises(
        ValueError, match=r"expected the same classes: .* unlabeled out of param_grid"
    ):
        model.partial_fit(X, np.nan_to_num(y, nan=-1))
    assert vars(model) == before
    model.partial_fit(X, y)  # without the marker they agree


BAD_PARAMETERS = {
    "unknown name": ({"param_grid": {"width": [1.0]}}, "Invalid parameter 'width'"),
    "no values": ({"param_grid": {"C": []}}, "non-empty"),
    "no grid": ({"param_grid": []}, r"param_grid got \[\], expected at least one"),
    "not a grid": ({"param_grid": "C"}, "'param_grid' parameter"),
    "value out of range": ({"param_grid": {"C": [2.0, -1.0]}}, "'C' parameter"),
    "estimator": ({"estimator": StandardScaler()}, "'estimator' parameter"),
    "cannot learn on": (
        {"estimator": make_pipeline(SeqMED(random_state=0))},
        "got a Pipeline of scikit-learn, which has no partial_fit",
    ),
    "cannot learn in batches": ({"estimator": SVC()}, "'estimator' parameter"),
    "discount": ({"discount": 0.0}, "'discount' parameter"),
    "discount above": ({"discount": 1.1}, "'discount' parameter"),
    "drop_limit": ({"drop_limit": 0.0}, "'drop_limit' parameter"),
    "batch_size": ({"batch_size": 0}, "'batch_size' parameter"),
}


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_wrong_parameters_are_refused(name, method):
    parameters, message = BAD_PARAMETERS[name]
    model = PrequentialSearch(SeqMED(random_state=0), {"C": [2.0, 10.0]}).set_params(**parameters)
    before = dict(vars(model))
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(model, method)(*two_class_batch(0))
    assert vars(model) == before


def test_a_grid_that_is_not_of_lists_is_refused():
    model = PrequentialSearch(SeqMED(random_state=0), {"C": 2.0})
    with pytest.raises(TypeError, match="'C'"):
        model.partial_fit(*two_class_batch(0))
    assert not hasattr(model, "candidates_")


CHANGES = {
    "param_grid": {"param_grid": {"C": [2.0]}},
    "estimator": {"estimator": SeqLapMED(unlabeled="?", random_state=0)},
    "estimator__tol": {"estimator__tol": 1e-5},
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_grid_and_estimator_have_no_effect_until_fit(name):
    model = PrequentialSearch(SeqMED(random_state=0), {"C": [2.0, 10.0]})
    untouched = learn(clone(model), make_stream(3))
    learn(model, make_stream(2)).set_params(**copy.deepcopy(CHANGES[name]))
    learn(model, make_stream(1, start=2))
    assert_same_bits(model.record_, untouched.record_)
    assert model.results_ == untouched.results_
    model.fit(*two_class_batch(0))
    assert len(model.candidates_) == (1 if name == "param_grid" else 2)


def test_everything_else_may_change_between_batches():
    model = learn(PrequentialSearch(SeqMED(random_state=0), {"C": [2.0, 10.0]}), make_stream(2))
    model.set_params(discount=0.5, drop_limit=None, batch_size=3)
    before = model.record_
    learn(model, make_stream(1, start=2))
    assert model.record_.total == 0.5 * before.total + 24


# -- scikit-learn's conventions --------------------------------------------------------------------

# Weights against repeated rows are compared to 1e-7: duals must be solved further than by default.
CHECKED = [
    PrequentialSearch(SeqMED(tol=1e-10, random_state=0), {"C": [2.0, 10.0]}),
    PrequentialSearch(SeqLapMED(tol=1e-10, random_state=0), {"beta": [0.0, 0.1]}),
]


def expected_failed_checks(model):
    if isinstance(model.estimator, SeqLapMED):
        reason = "it uses -1 and +1 as classes; -1 marks an unlabeled row here, and is refused"
        return {"check_classifiers_classes": reason}
    return {}


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(CHECKED, expected_failed_checks=expected_failed_checks)
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_the_estimator_given_is_not_touched():
    fitted = SeqMED(random_state=0).fit(*two_class_batch(7))
    for estimator in (SeqMED(random_state=0), fitted, make_pipe()):
        grid = {"model__C" if isinstance(estimator, StreamPipeline) else "C": [2.0, 10.0]}
        before, held = state_bits(estimator), dict(vars(estimator))
        model = PrequentialSearch(estimator, grid)
        X, y = two_class_batch(0)
        model.partial_fit(X, y).partial_fit(X, y).fit(X, y)
        model.predict_proba(X)
        assert model.estimator is estimator
        assert state_bits(estimator) == before
        assert all(vars(estimator)[key] is value for key, value in held.items())
        assert model.n_batches_ == 1


@pytest.mark.parametrize("place", ["estimator", "grid"])
def test_candidates_share_no_random_state(place):
    """Each draws as it would alone, and the one that was given stays as it is."""
    state = np.random.RandomState(0)
    options = {"random_state": state} if place == "estimator" else {}
    grid = {"C": [2.0, 10.0]} | ({"random_state": [state]} if place == "grid" else {})
    model = PrequentialSearch(SeqMED(budget=10, **options), grid)
    before = state.get_state()[1].copy()
    learn(model, make_stream(3))
    assert np.array_equal(state.get_state()[1], before)
    probes = make_batch(9).X
    for bound, candidate in zip(grid["C"], model.candidates_, strict=True):
        alone = SeqMED(budget=10, C=bound, random_state=np.random.RandomState(0))
        learn(alone, make_stream(3))
        assert bits(candidate.decision_function(probes)) == bits(alone.decision_function(probes))


def test_methods_are_those_of_the_estimator():
    model = PrequentialSearch(SeqMED(random_state=0), {"C": [2.0]})
    for name in ("predict_proba", "predict_log_proba", "decision_function", "decision_std",
                 "score", "retract"):  # fmt: skip
        assert hasattr(model, name)
    plain = PrequentialSearch(SGDClassifier(loss="hinge"), {"alpha": [0.1]})
    for name in ("predict_proba", "predict_log_proba", "decision_std", "retract"):
        assert not hasattr(plain, name)
    assert hasattr(plain, "decision_function")


def test_with_scikit_learns_tools():
    X, y = make_moons(120, noise=0.15, random_state=1)
    order = np.random.default_rng(0).permutation(120)
    X, y = X[order], np.array(["in", "out"])[y[order]]
    model = PrequentialSearch(SeqMED(random_state=0), {"C": [1.1, 10.0]}, batch_size=25)
    assert cross_val_score(model, X, y, cv=3).mean() > 0.85
    assert cross_val_score(make_pipeline(StandardScaler(), model), X, y, cv=3).mean() > 0.85
    assert cross_val_score(model, X, y, cv=3, scoring="roc_auc").mean() > 0.9
    weights = np.linspace(0.5, 1.5, 120)
    scores = cross_val_score(model, X, y, cv=3, params={"sample_weight": weights})
    assert np.isfinite(scores).all()
    outer = GridSearchCV(model, {"discount": [0.5, 1.0], "estimator__gamma": [0.5, 2.0]}, cv=2)
    assert outer.fit(X, y).best_score_ > 0.8


# -- copies and files ------------------------------------------------------------------------------


COPIES = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "copy": copy.copy,
}


def imputing():
    """A pipeline with NaN among its parameters, which is not equal to itself."""
    steps = [("impute", SimpleImputer()), ("model", SeqMED(random_state=0))]
    return StreamPipeline(steps)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", COPIES)
@pytest.mark.parametrize(
    ("estimator", "grid"),
    [
        (SeqLapMED(**LANDMARKS), {"beta": [0.0, 0.1], "C": [2.0, 10.0]}),
        (SeqMED(kernel=RBF(0.1)), {"kernel": [RBF(0.1), RBF(2.0)]}),
        (imputing(), {"model__C": [2.0, 10.0], "impute": [SimpleImputer(), "passthrough"]}),
        (SeqMED(class_weight={0: 1.0, 1: 2.0}, random_state=0), {"C": np.array([2.0, 10.0])}),
    ],
    ids=["landmarks", "kernel object", "pipeline", "dict"],
)
def test_a_copy_goes_on_as_the_original_does(estimator, grid, kind):
    model = PrequentialSearch(estimator, grid, drop_limit=1.0)
    learn(model, make_stream(3))
    probes = make_batch(99).X
    twin = COPIES[kind](model)
    before = bits(model.predict_proba(probes))
    for seed in (4, 5):
        learn(twin, make_stream(1, start=seed))
    assert bits(model.predict_proba(probes)) == before
    for seed in (4, 5):
        learn(model, make_stream(1, start=seed))
    assert_same_bits(model.record_, twin.record_)
    assert bits(model.predict_proba(probes)) == bits(twin.predict_proba(probes))
    assert model.results_["rank"] == twin.results_["rank"]


# -- use cases -------------------------------------------------------------------------------------


def crossed(seed, n=40, n_labeled=16):
    """Rows whose nearest neighbours are as likely of the other class: one column of four tells."""
    generator = np.random.default_rng(seed)
    codes = np.arange(n) % 2
    X = np.column_stack([6.0 * generator.uniform(size=(n, 3)), codes])
    return X, np.where(np.arange(n) < n_labeled, codes.astype(float), np.nan)


def moons(seed, n=40):
    """Two moons with a label each."""
    X, codes = make_moons(n, noise=0.05, random_state=seed)
    generator = np.random.default_rng(seed)
    y = np.full(n, np.nan)
    for label in (0, 1):
        y[generator.choice(np.flatnonzero(codes == label))] = label
    return X, y


@pytest.mark.parametrize("seed", [0, 1])
def test_a_smoothness_that_hurts_is_dropped(seed):
    """Of equals the first would be taken, and it is not beta = 0."""
    estimator = SeqLapMED(random_state=0, n_landmarks=150, gamma=0.1)
    model = PrequentialSearch(estimator, {"beta": [30.0, 3.0, 0.0]})
    for number in range(12):
        model.partial_fit(*crossed(1000 * seed + number))
    assert model.best_params_ == {"beta": 0.0}
    accuracy = model.results_["accuracy"]
    assert accuracy[2] > accuracy[0] + 0.02


@pytest.mark.parametrize("seed", [1, 2])
def test_a_smoothness_that_helps_is_kept(seed):
    """Of equals the first would be taken, and it is beta = 0."""
    estimator = SeqLapMED(random_state=0, n_landmarks=150, gamma=15.0, forgetting=0.6, bias="exact")
    model = PrequentialSearch(estimator, {"beta": [0.0, 0.1]}, discount=1.0)
    for number in range(25):
        model.partial_fit(*moons(1000 * seed + number))
    assert model.best_params_ == {"beta": 0.1}
    accuracy = model.results_["accuracy"]
    assert accuracy[1] > accuracy[0] + 0.02
