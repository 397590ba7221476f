"""Label queries: values, diversity, and refused arguments."""

import math
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from seqmed import SeqLapMED, SeqMED, StreamPipeline
from seqmed.selection import queries
from seqmed.selection.queries import expected_regret, query, regret
from seqmed.uncertainty import conditional_covariance, conditional_variances

MODELS = {
    "SeqMED": (SeqMED, {}),
    "diffuse bias": (SeqMED, {"bias": "exact"}),
    "linear": (SeqMED, {"kernel": "linear", "lag": 1}),
    "budget": (SeqMED, {"budget": 12, "random_state": 0}),
    "SeqLapMED": (SeqLapMED, {"random_state": 0}),
    "own graphs": (SeqLapMED, {"lag": 1, "random_state": 0}),
    "exact": (SeqLapMED, {"recursion": "exact"}),
    "spectral": (SeqLapMED, {"recursion": "spectral"}),
}


def taught(name, X, y, labels=8):
    """Return a model after three batches of 20 rows, some of them labeled."""
    estimator, parameters = MODELS[name]
    model = estimator(**parameters)
    for start in (0, 20, 40):
        shown = [int(y[i]) if i < start + labels else None for i in range(start, start + 20)]
        model.partial_fit(X[start : start + 20], shown)
    return model


@pytest.fixture(params=list(MODELS))
def name(request):
    return request.param


@pytest.fixture(params=["two classes", "three classes"])
def stream(request, generator):
    """60 rows to learn and 30 rows to query."""
    y = np.arange(90) % (2 if request.param == "two classes" else 3)
    return generator.normal(size=(90, 3)) + 2.0 * np.eye(3)[y], y


# -- the naive version ----------------------------------------------------------------------------


def naive_covariance(model, X):
    """Return the covariance of the rows of X given the labeled rows, by a plain inverse."""
    posterior = model.posterior_
    labeled = posterior.window.points
    if not posterior.covariance.kernel.compact:
        settled = posterior.frozen.points
        if posterior.covariance.on_landmarks:
            known = labeled.tolist()
            settled = [each for each in posterior.landmarks.points.tolist() if each not in known]
            settled = np.array(settled).reshape(-1, labeled.shape[1])
        labeled = np.vstack([settled, labeled])
    k = posterior.covariance

    if not len(labeled):
        return k(X, X)
    inverse = np.linalg.inv(k(labeled, labeled) + np.eye(len(labeled)) / model.C)
    return k(X, X) - k(X, labeled) @ inverse @ k(labeled, X)


def naive_regret(margin, spread):
    """Return the mean of max(0, -score) for a Gaussian score, by the midpoint rule."""
    if spread == 0:
        return 0.0
    z = (np.arange(200_000) + 0.5) / 200_000 * 20 - 10
    losses = np.maximum(0.0, -(margin + spread * z))
    return float(losses @ np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) * 20 / 200_000)


def naive_margins(model, X):
    """Return the margins of the rows of X."""
    scores = model.posterior_.mean(X)
    if scores.shape[1] == 1:
        return np.abs(scores[:, 0])
    scales = np.ones(scores.shape[1])
    if model.bias == "auto":
        scales, scores = model.class_scale_, model.class_scale_ * (scores + 1)
    margins = []
    for row in scores:
        second, best = np.argsort(row)[-2:]
        deviation = math.sqrt(scales[best] ** 2 + scales[second] ** 2)
        margins.append((row[best] - row[second]) / deviation)
    return np.array(margins)


def naive_query(model, X, n):
    """Return the choice by double loops, conditioning on the chosen rows from scratch."""
    margins = naive_margins(model, X)
    given, noise, chosen = naive_covariance(model, X), 1 / model.C, []
    for _ in range(n):
        inverse = np.linalg.inv(given[np.ix_(chosen, chosen)] + noise * np.eye(len(chosen)))
        now = given - given[:, chosen] @ inverse @ given[chosen]
        values = np.full(len(X), -1.0)
        for i in set(range(len(X))) - set(chosen):
            moves = np.abs(now[i]) / math.sqrt(now[i, i] + noise)
            values[i] = sum(float(regret(m, t)) for m, t in zip(margins, moves, strict=True))
        chosen.append(int(values.argmax()))
    return chosen


class TestAgainstTheNaiveVersion:
    def test_regret_is_the_mean_loss(self):
        for margin, spread in [(0.0, 1.0), (0.5, 1.0), (2.0, 0.7), (1.0, 3.0), (0.0, 0.0)]:
            found = float(regret(np.array(margin), np.array(spread)))
            assert found == pytest.approx(naive_regret(margin, spread), abs=1e-8)

    def test_regret_of_certain_decisions_is_zero(self):
        margins, spreads = np.array([1.0, 1e300, 0.0]), np.array([0.0, 1e-300, 0.0])
        np.testing.assert_allclose(regret(margins, spreads), 0.0, atol=1e-300)

    def test_conditional_covariance(self, name, stream):
        X, y = stream
        model = taught(name, X, y)
        known = model._uncertainty(X[60:])
        assert known.labeled.shape[0] > 0
        expected = naive_covariance(model, X[60:])
        found = conditional_covariance(known, X[60:])
        np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())
        variances = conditional_variances(known, X[60:])
        np.testing.assert_allclose(variances, np.diagonal(found), atol=1e-9 * variances.max())
        assert (variances < model.decision_std(X[60:]) ** 2).all()

    def test_expected_regret(self, name, stream):
        X, y = stream
        model = taught(name, X, y)
        spreads = np.sqrt(np.maximum(np.diagonal(naive_covariance(model, X[60:])), 0.0))
        margins = naive_margins(model, X[60:])
        expected = [naive_regret(m, s) for m, s in zip(margins, spreads, strict=True)]
        np.testing.assert_allclose(expected_regret(model, X[60:]), expected, atol=1e-6)

    def test_choice(self, name, stream):
        X, y = stream
        model = taught(name, X, y)
        assert query(model, X[60:], 5).tolist() == naive_query(model, X[60:], 5)


class TestChoice:
    def test_expected_regret_is_unknown_before_two_classes(self, stream):
        X, y = stream
        model = SeqMED().partial_fit(X[:20], [None] * 20)
        assert expected_regret(model, X) is None
        model.partial_fit(X[:1], y[:1])
        assert expected_regret(model, X) is None

    def test_indices_are_distinct(self, name, stream):
        X, y = stream
        model = taught(name, X, y)
        for n in (1, 7, 30):
            rows = query(model, X[60:], n)
            assert rows.shape == (n,)
            assert np.unique(rows).size == n
            assert set(rows) <= set(range(30))

    def test_fewer_rows_are_the_first_of_more(self, name, stream):
        X, y = stream
        model = taught(name, X, y)
        assert query(model, X[60:], 4).tolist() == query(model, X[60:], 9)[:4].tolist()

    def test_a_permutation_of_rows_permutes_the_answer(self, name, stream, generator):
        X, y = stream
        model, order = taught(name, X, y), generator.permutation(30)
        np.testing.assert_array_equal(
            order[query(model, X[60:][order], 8)], query(model, X[60:], 8)
        )

    def test_sparse_rows_are_as_dense_ones(self, stream):
        X, y = stream
        dense = taught("SeqLapMED", X, y)
        sparse = taught("SeqLapMED", sp.csr_array(X), y)
        expected = query(dense, X[60:], 6)
        for model, rows in [(dense, sp.csr_matrix(X[60:])), (sparse, X[60:]),
                            (sparse, sp.csr_array(X[60:]))]:  # fmt: skip
            np.testing.assert_array_equal(query(model, rows, 6), expected)

    def test_boundary_before_confidence_at_equal_spread(self):
        model = SeqMED(gamma=1.0).fit([[0.0], [10.0]], [0, 1])
        X = np.array([[-0.6], [0.6], [5.0], [9.4], [10.6]])
        given = np.diagonal(conditional_covariance(model._uncertainty(X), X))
        assert given[2] == pytest.approx(1.0)  # far from every label, and undecided
        assert query(model, X, 1).tolist() == [2]
        for gaps in ([0.0, 0.5, 1.0], [0.3, 0.31, 5.0]):
            values = queries.label_values(np.eye(3), np.array(gaps), np.full(3, 1.1))
            assert (np.diff(values) < 0).all()

    def test_spread_decides_at_equal_margins(self):
        values = queries.label_values(
            np.diag([1.0, 4.0, 2.0]), np.full(3, 0.7), np.array([1.1, 4.1, 2.1])
        )
        assert values.argmax() == 1

    def test_a_row_among_many_like_it_is_worth_more(self, name, generator):
        crowd = generator.normal(scale=0.1, size=(20, 2))
        X = np.vstack([[[6.0, 6.0]], crowd])
        estimator, parameters = MODELS[name]
        model = estimator(**parameters | {"kernel": "rbf", "gamma": 1.0})
        model.partial_fit(X, [None] * 21)
        assert query(model, X, 1)[0] != 0

    def test_duplicates_are_not_both_chosen(self, name, stream):
        X, y = stream
        model = taught(name, X, y)
        rows = query(model, np.vstack([X[60:70], X[60:70], X[60:70]]), 30)
        assert sorted(rows[:10]) == list(range(10))
        assert np.unique(rows).size == 30

    def test_near_duplicates_lose_their_value(self):
        model = SeqMED(gamma=1.0).fit([[0.0], [4.0]], [0, 1])
        assert sorted(query(model, [[1.9], [1.9001], [1.9002], [5.5]], 2))[1] == 3

    def test_equal_rows_are_taken_in_order(self):
        model = SeqMED(gamma=1.0).fit([[0.0], [4.0]], [0, 1])
        X = np.full((7, 1), 2.0)
        np.testing.assert_array_equal(query(model, X, 7), np.arange(7))


class TestBeforeLabels:
    def test_each_cluster_once(self, generator):
        centres = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [5.0, 5.0]])
        cluster = np.arange(60) % 4
        X = centres[cluster] + 0.3 * generator.normal(size=(60, 2))
        for model in (SeqMED(), SeqLapMED(random_state=0)):
            model.partial_fit(X, [None] * 60)
            assert sorted(cluster[query(model, X, 4)]) == [0, 1, 2, 3]

    def test_one_class_is_no_boundary(self, blobs):
        X, _ = blobs
        model = SeqMED().partial_fit(X[:30], ["ham"] * 5 + [None] * 25)
        assert not model._uncertainty(X[30:]).margins.any()
        assert query(model, X[30:], 3).size == 3

    def test_declared_classes_without_examples_have_no_margin(self, three_blobs):
        X, y = three_blobs
        model = SeqMED().partial_fit(X[:60], y[:60])
        other = SeqMED().partial_fit(X[:60], y[:60], classes=[0, 1, 2, 3])
        np.testing.assert_allclose(
            model._uncertainty(X[60:]).margins, other._uncertainty(X[60:]).margins
        )


class TestManyRows:
    """Beyond the shortlist, made small here."""

    @pytest.fixture(autouse=True)
    def short(self, monkeypatch):
        monkeypatch.setattr(queries, "SHORTLIST", 10)

    def test_rows_of_large_regret_are_compared(self, name, stream):
        X, y = stream
        model = taught(name, X, y)
        known = model._uncertainty(X[60:])
        own = regret(
            model._uncertainty(X[60:]).margins, np.sqrt(conditional_variances(known, X[60:]))
        )
        largest = np.argsort(-own, kind="stable")[:10]
        assert set(query(model, X[60:], 10)) == set(largest)
        rows = query(model, X[60:], 25)
        assert np.unique(rows).size == 25
        assert (np.diff(own[rows[10:]]) <= 0).all()

    def test_without_labels_rows_are_thinned_evenly(self):
        X = np.arange(40.0)[:, None]
        model = SeqMED(gamma=0.01).partial_fit(X, [None] * 40)
        assert set(query(model, X, 10)) == set(range(0, 40, 4))
        assert np.unique(query(model, X, 40)).size == 40


class TestModelsWithin:
    def test_pipelines_and_searches(self, blobs):
        X, y = blobs
        scaled = StandardScaler().fit_transform(X[:40])
        expected = query(SeqMED().fit(scaled, y[:40]), scaled, 6)
        steps = [("scale", StandardScaler()), ("nothing", "passthrough"), ("model", SeqMED())]
        pipeline = StreamPipeline(steps).fit(X[:40], y[:40])
        np.testing.assert_array_equal(query(pipeline, X[:40], 6), expected)
        search = GridSearchCV(StreamPipeline(steps), {"model__C": [10.0]}, cv=2).fit(X[:40], y[:40])
        np.testing.assert_array_equal(query(search, X[:40], 6), expected)

    def test_nothing_is_changed(self, name, stream):
        X, y = stream
        model = taught(name, X, y)
        state, rows = pickle.dumps(model), X[60:].copy()
        first = query(model, rows, 5)
        np.testing.assert_array_equal(query(model, rows, 5), first)
        assert pickle.dumps(model) == state
        np.testing.assert_array_equal(rows, X[60:])


class TestRefused:
    @pytest.mark.parametrize("n", [0, -1, 31, 1.5, True, None, "3"])
    def test_numbers(self, n, blobs):
        X, y = blobs
        with pytest.raises(ValueError, match=r"for 30 rows, expected an integer from 1 to 30"):
            query(SeqMED().fit(X, y), X[:30], n)

    def test_unfitted(self, blobs):
        X, y = blobs
        with pytest.raises(NotFittedError):
            query(SeqMED(), X, 1)
        with pytest.raises(NotFittedError):
            query(StreamPipeline([("scale", StandardScaler()), ("model", SeqMED())]), X, 1)
        with pytest.raises(TypeError, match="type GridSearchCV, expected a fitted SeqMED"):
            query(GridSearchCV(SeqMED(), {"C": [10.0]}), X, 1)
        assert y.size

    def test_other_models(self, blobs):
        X, y = blobs
        for model in (LogisticRegression().fit(X, y), DummyClassifier().fit(X, y), None):
            with pytest.raises(TypeError, match="expected a fitted SeqMED, SeqLapMED"):
                query(model, X, 1)

    def test_wrong_columns(self, blobs):
        X, y = blobs
        with pytest.raises(ValueError, match="2 features"):
            query(SeqMED().fit(X, y), X[:, :2], 1)

    def test_precomputed_kernels(self, blobs):
        X, y = blobs
        gram = X @ X.T
        with pytest.raises(ValueError, match="kernel='precomputed', expected a kernel that can"):
            query(SeqMED(kernel="precomputed").fit(gram, y), gram, 1)
