"""SeqGraphMED and GraphPropagation through the public interface."""

from __future__ import annotations

import doctest
import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED
from seqmed.estimators import graph_propagation, seqgraphmed
from seqmed.estimators.graph_propagation import FIT_BATCH
from seqmed.graph.propagation import GraphState
from seqmed.margin import margin_state, update
from seqmed.mixture import record as mixture_record

BOTH = pytest.mark.parametrize("kind", [GraphPropagation, SeqGraphMED])


def stream(n=240, share=0.3, seed=0, n_classes=3, p=4):
    """Overlapping clouds: rows, true classes, and labels of some of them."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n)
    points = rng.normal(size=(n, p)) + 2.5 * np.eye(n_classes, p)[codes]
    labels = np.where(rng.random(n) < share, codes, -1)
    labels[:n_classes] = codes[:n_classes] = np.arange(n_classes)
    points[:n_classes] = 2.5 * np.eye(n_classes, p)
    return points, codes, labels


def texts(n=200, seed=0):
    """Word counts about one of two topics; some rows are empty."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(2, size=n)
    rates = np.where(np.arange(60)[None, :] // 30 == codes[:, None], 0.25, 0.05)
    counts = rng.poisson(rates).astype(float)
    counts[10:14] = 0
    return sp.csr_array(counts), codes


def answers(model, X):
    return pickle.dumps([model.predict(X), model.decision_function(X), model.predict_proba(X)])


def assert_unchanged(model, X, call, error, match):
    """Expect a refusal that leaves every answer and attribute as it was."""
    before, attributes = answers(model, X), vars(model).copy()
    with pytest.raises(error, match=match):
        call()
    assert vars(model).keys() == attributes.keys()
    assert all(vars(model)[name] is value for name, value in attributes.items())
    assert answers(model, X) == before


@pytest.mark.parametrize("module", [graph_propagation, seqgraphmed])
def test_the_examples_of_the_documentation_run(module):
    failed, attempted = doctest.testmod(module)
    assert attempted >= 7
    assert failed == 0


# -- labels ---------------------------------------------------------------------------------------


@BOTH
def test_without_a_label_there_is_no_prediction(kind):
    X, y, labels = stream()
    model = kind(random_state=0)
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X[:50], np.full(50, -1)).partial_fit(X[50:80], np.full(30, -1))
    assert model.n_batches_ == 2
    assert model.n_kept_ == 80
    assert model.classes_.size == 0
    for method in (model.predict, model.decision_function, model.predict_proba):
        with pytest.raises(NotFittedError, match="has learned no label"):
            method(X)
    model.partial_fit(X[80:], labels[80:])
    assert model.score(X, y) > 0.8


@BOTH
def test_fit_needs_a_label(kind):
    X, _, _ = stream()
    with pytest.raises(ValueError, match="no labeled row"):
        kind().fit(X, np.full(len(X), -1))


@BOTH
def test_one_class_is_predicted_everywhere(kind):
    X, _, _ = stream()
    model = kind(random_state=0).partial_fit(X[:40], np.where(np.arange(40) % 3, -1, 7))
    assert set(model.predict(X).tolist()) == {7}
    np.testing.assert_array_equal(model.predict_proba(X), 1.0)
    assert model.decision_function(X).shape == (len(X),)


@BOTH
def test_all_rows_may_be_labeled(kind):
    X, y, _ = stream()
    assert kind(random_state=0).fit(X[:160], y[:160]).score(X[160:], y[160:]) > 0.85
    small = kind(random_state=0, graph_memory=40).fit(X[:160], y[:160])
    assert small.n_kept_ <= 40
    assert small.score(X[160:], y[160:]) > 0.8


@BOTH
def test_classes_may_appear_later(kind):
    """Also one that sorts before the others; nothing is predicted before its first example."""
    X, y, _ = stream(400)
    names = np.array([5, 1, 9])[y]
    model = kind(random_state=0)
    model.partial_fit(X[:100][names[:100] == 5], names[:100][names[:100] == 5])
    assert model.classes_.tolist() == [5]
    chosen = names[100:200] != 1
    model.partial_fit(X[100:200][chosen], names[100:200][chosen])
    assert model.classes_.tolist() == [5, 9]
    assert set(model.predict(X).tolist()) == {5, 9}
    model.partial_fit(X[200:300], names[200:300])
    assert model.classes_.tolist() == [1, 5, 9]
    assert model.score(X[300:], names[300:]) > 0.8


@BOTH
def test_a_declared_class_without_an_example_is_never_predicted(kind):
    X, _, labels = stream()
    model = kind(random_state=0).partial_fit(X, labels, classes=[0, 1, 2, 3])
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert set(model.predict(X).tolist()) == {0, 1, 2}
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (len(X), 4)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert (probabilities[:, 3] < 0.05).all()


@BOTH
def test_missing_labels_in_all_their_forms(kind):
    X, _, labels = stream()
    expected = kind(random_state=0).partial_fit(X, labels).decision_function(X)
    floats = np.where(labels < 0, np.nan, labels)
    objects = np.array([None if label < 0 else int(label) for label in labels], dtype=object)
    lists = [float("nan") if label < 0 else int(label) for label in labels]
    for given in (floats, objects, lists):
        found = kind(random_state=0).partial_fit(X, given).decision_function(X)
        np.testing.assert_array_equal(found, expected)
    marked = np.where(labels < 0, 99, labels)
    model = kind(random_state=0, unlabeled=99).partial_fit(X, marked)
    np.testing.assert_array_equal(model.decision_function(X), expected)


@pytest.mark.filterwarnings("ignore:score leaves unlabeled rows out")
@BOTH
def test_labels_may_be_strings(kind):
    X, y, labels = stream()
    names = np.array(["ant", "bee", "cat"])[y].astype(object)
    names[labels < 0] = None
    model = kind(random_state=0).partial_fit(X, names)
    assert model.classes_.tolist() == ["ant", "bee", "cat"]
    same = kind(random_state=0).partial_fit(X, labels)
    np.testing.assert_array_equal(model.predict_proba(X), same.predict_proba(X))
    assert model.score(X, names) > 0.8


@BOTH
def test_sparse_text(kind):
    X, y = texts()
    labels = np.where(np.arange(200) % 4 == 0, y, -1)
    model = kind(random_state=0)
    for start in (0, 50, 100):
        model.partial_fit(X[start : start + 50], labels[start : start + 50])
    assert model.score(X[150:], y[150:]) > 0.85
    assert np.isfinite(model.predict_proba(sp.csr_array((2, 60)))).all()
    assert sp.issparse(model._state.graph.rows.blocks[0].rows)
    dense = kind(random_state=0, metric="cosine").partial_fit(X[:50].toarray(), labels[:50])
    assert np.isfinite(dense.predict_proba(X)).all()


# -- weights --------------------------------------------------------------------------------------


@BOTH
def test_rows_of_weight_zero_are_left_out(kind):
    X, _, labels = stream()
    weights = np.where(np.arange(240) % 3 == 0, 0.0, 1.0)
    used = weights > 0
    left_out = kind(random_state=0).partial_fit(X, labels, sample_weight=weights)
    without = kind(random_state=0).partial_fit(X[used], labels[used])
    np.testing.assert_array_equal(left_out.decision_function(X), without.decision_function(X))


@BOTH
def test_heavier_labels_count_more(kind):
    """Contradicting labels of the same rows: the heavier ones win."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(20, 2)), 2, axis=0)
    y = np.tile([0, 1], 20)
    for winner in (0, 1):
        weights = np.where(y == winner, 5.0, 0.2)
        # an equal weight of class 1-winner elsewhere keeps the total label weights equal
        far = rng.normal(size=(20, 2)) + 30.0
        model = kind(random_state=0).fit(
            np.vstack([X, far]),
            np.append(y, np.full(20, 1 - winner)),
            sample_weight=np.append(weights, np.full(20, 5.0)),
        )
        assert (model.predict(X) == winner).mean() > 0.9


def test_class_weight_as_a_dict_favours_a_class():
    X, _, labels = stream()
    plain = SeqGraphMED(random_state=0).partial_fit(X, labels)
    favoured = SeqGraphMED(random_state=0, class_weight={2: 20.0}).partial_fit(X, labels)
    assert (favoured.predict(X) == 2).sum() > (plain.predict(X) == 2).sum()
    graph = {"mixture": 1.0, "random_state": 0}
    plain, favoured = (
        SeqGraphMED(class_weight=weights, **graph).partial_fit(X, labels).predict(X) == 2
        for weights in (None, {2: 20.0})
    )
    assert favoured[plain].all()
    assert favoured.sum() > plain.sum()


def test_balanced_class_weight_raises_the_recall_of_a_rare_class():
    rng = np.random.default_rng(1)
    y = (rng.random(600) < 0.08).astype(int)
    X = rng.normal(size=(600, 2)) + 1.5 * y[:, None]
    plain = SeqGraphMED(random_state=0).fit(X, y)
    balanced = SeqGraphMED(random_state=0, class_weight="balanced").fit(X, y)
    assert balanced.estimator_.class_weight == "balanced"
    assert balanced.predict(X[y == 1]).mean() > plain.predict(X[y == 1]).mean()


def test_class_weight_beside_an_estimator_is_refused():
    X, _, labels = stream()
    model = SeqGraphMED(SeqMED(class_weight={0: 2.0}), class_weight="balanced")
    for method in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="set class_weight in one place"):
            method(X, labels)
    assert not hasattr(model, "n_features_in_")


# -- late labels, retraction, forgetting ----------------------------------------------------------


@BOTH
def test_late_labels_are_learned_without_a_new_batch(kind):
    X, y, labels = stream()
    model = kind(random_state=0).partial_fit(X[:200], labels[:200])
    kept = model.n_kept_
    late = np.flatnonzero(labels[:200] < 0)
    model.partial_fit(X[late], y[late], new_points=False)
    assert (model.n_batches_, model.n_kept_) == (1, kept)
    assert np.count_nonzero(model._state.graph.codes >= 0) == 200
    assert model.score(X[200:], y[200:]) > 0.8
    assert_unchanged(
        model,
        X,
        lambda: model.partial_fit(X, np.full(240, -1), new_points=False),
        ValueError,
        "no labeled row",
    )


@BOTH
def test_late_labels_need_a_first_batch(kind):
    X, y, _ = stream()
    with pytest.raises(ValueError, match="in its first call"):
        kind().partial_fit(X, y, new_points=False)


@BOTH
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_labels_retracted_are_as_if_never_given(kind, form):
    X, _, labels = stream(120)
    X = np.abs(X)
    model = kind(random_state=0, **({} if kind is GraphPropagation else {"mixture": 0.5}))
    model.partial_fit(form(X), labels)
    without = kind(**model.get_params()).partial_fit(form(X), labels)
    wrong = np.flatnonzero(labels < 0)[:10]
    model.partial_fit(form(X[wrong]), np.full(10, 1), new_points=False)
    model.retract(form(X[wrong]))
    np.testing.assert_array_equal(model._state.graph.codes, without._state.graph.codes)
    np.testing.assert_array_equal(model._state.counts.counts, without._state.counts.counts)
    np.testing.assert_allclose(model._state.counts.weights, without._state.counts.weights)
    np.testing.assert_allclose(model._state.counts.discounted, without._state.counts.discounted)
    assert (model.predict(form(X)) == without.predict(form(X))).mean() > 0.95


@BOTH
def test_a_class_without_labels_left_is_forgotten(kind):
    X, y, labels = stream()
    for learn in ("fit", "partial_fit"):
        model = getattr(kind(random_state=0), learn)(X, labels)
        of_two = labels == 2
        model.retract(X[of_two], labels[of_two])
        assert model.classes_.tolist() == [0, 1]
        assert set(model.predict(X).tolist()) == {0, 1}
        assert model.predict_proba(X).shape == (240, 2)
        model.retract(X[(labels >= 0) & ~of_two])
        with pytest.raises(NotFittedError):
            model.predict(X)
        model.partial_fit(X, labels)
        assert model.score(X, y) > 0.8
    declared = kind(random_state=0).partial_fit(X, labels, classes=[0, 1, 2])
    declared.retract(X[of_two], labels[of_two])
    assert declared.classes_.tolist() == [0, 1, 2]


@BOTH
def test_what_cannot_be_retracted_is_refused(kind):
    X, _, labels = stream()
    model = kind(random_state=0).partial_fit(X, labels)
    labeled = np.flatnonzero(labels >= 0)[:3]
    again = kind(random_state=0).partial_fit(X, labels).retract(X[labeled[:1]])
    for rows, given, reason in (
        (X[labels < 0][:1], None, "row 0 of X has no label: it was retracted before"),
        (X[labels < 0][:1], [0], "row 0 of X has no label: it was retracted before"),
        (X[labeled], (labels[labeled] + 1) % 3, "row 0 of X has another label"),
        (X[labeled], [7, 7, 7], "row 0 of X has another label"),  # a class that is not known
        (X[labeled] + 1.0, None, "row 0 of X is not among the"),  # rows that were never learned
        (np.repeat(X[labeled[:1]], 2, axis=0), None, "row 1 of X equals earlier rows of X"),
    ):
        assert_unchanged(
            model,
            X,
            lambda rows=rows, given=given: model.retract(rows, given),
            ValueError,
            reason,
        )
    with pytest.raises(ValueError, match="row 0 of X has no label: it was retracted before"):
        again.retract(X[labeled[:1]])
    assert_unchanged(model, X, lambda: model.retract(X[labeled], [0]), ValueError, "expected one")


def test_a_retraction_leaves_the_label_counts_of_the_stream(blobs):
    """Also if the estimator has another forgetting factor than the classifier."""
    X, y = blobs
    model = SeqGraphMED(SeqMED(forgetting=0.5), forgetting=0.9, random_state=0)
    for start in (0, 20, 40):
        model.partial_fit(X[start : start + 20], y[start : start + 20])
    before = model._state.counts
    np.testing.assert_allclose(before.discounted.sum(), 20 * (1 + 0.9 + 0.81))
    model.retract(X[:2])
    after = model._state.counts
    np.testing.assert_allclose(after.discounted, before.discounted - 0.81)
    np.testing.assert_array_equal(after.counts, before.counts - 1)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_all_labels_of_balanced_classes_can_be_retracted(blobs, one_by_one):
    """No weights are divided by the empty sum of labels, and the stream goes on."""
    X, y = blobs
    labeled = np.flatnonzero(y >= 0)[:20]
    X, y = X[labeled], y[labeled]
    model = SeqGraphMED(class_weight="balanced", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X, y)
        for rows in np.arange(20)[:, None] if one_by_one else [np.arange(20)]:
            model.retract(X[rows], y[rows])
        model.partial_fit(X, y)
    fresh = SeqGraphMED(class_weight="balanced", random_state=0).partial_fit(X, y)
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))


@BOTH
def test_forgetting_follows_a_change_of_labels(kind):
    """The classes swap places half-way; the last rows are new."""
    rng = np.random.default_rng(0)
    models = {factor: kind(random_state=0, forgetting=factor) for factor in (1.0, 0.6)}
    for batch in range(13):
        codes = rng.integers(2, size=30 if batch < 12 else 300)
        X = rng.normal(size=(codes.size, 2)) + 2.0 * codes[:, None]
        y = codes if batch < 8 else 1 - codes
        if batch < 12:
            for model in models.values():
                model.partial_fit(X, y)
    assert models[0.6].score(X, y) > 0.85
    assert models[0.6].score(X, y) > models[1.0].score(X, y)


def test_forgetting_counts_batches_and_not_mini_batches():
    X, y, _ = stream()
    model = SeqGraphMED(forgetting=0.5, random_state=0).partial_fit(X[:100], y[:100])
    assert model.update_info_.n_mini_batches > 5
    assert model.n_batches_ == model.estimator_.n_batches_ == 1
    np.testing.assert_array_equal(model._state.graph.label_weights, 1.0)
    np.testing.assert_array_equal(model._state.record.weights, 1.0)
    np.testing.assert_allclose(model.estimator_._state.counts.discounted.sum(), 100)
    recorded = model._state.record.size
    model.partial_fit(X[100:123], np.where(np.arange(23) < 20, y[100:123], -1))
    label_weights = model._state.graph.label_weights
    assert np.count_nonzero(label_weights == 0.5) == 100
    assert np.count_nonzero(label_weights == 1.0) == 20
    assert np.count_nonzero(model._state.record.weights == 0.5) == recorded
    np.testing.assert_allclose(model._state.counts.discounted.sum(), 70)
    np.testing.assert_allclose(model.estimator_._state.counts.discounted.sum(), 70)
    model.partial_fit(X[120:123], y[120:123], new_points=False)
    np.testing.assert_allclose(model._state.counts.discounted.sum(), 73)


def test_a_lag_counts_batches_and_not_mini_batches():
    """All labels of the last two batches are in the window, whatever mini-batch they were in."""
    X, y, _ = stream()
    model = SeqGraphMED(SeqMED(lag=2), random_state=0)
    for start in (0, 80, 160):
        model.partial_fit(X[start : start + 80], y[start : start + 80])
        assert model.update_info_.n_mini_batches > 1
    assert model.estimator_.posterior_.window.size == 160


def test_the_default_estimator_follows_changed_parameters():
    """Parameters that may change after the first batch change for both experts."""
    X, _, labels = stream()
    model = SeqGraphMED(random_state=0).partial_fit(X[:100], labels[:100])
    model.set_params(forgetting=0.5, class_weight={0: 3.0}).partial_fit(X[100:], labels[100:])
    assert model.estimator_.forgetting == 0.5
    assert model.estimator_.class_weight == {0: 3.0}
    first = np.count_nonzero(labels[:100] >= 0)
    rest = np.count_nonzero(labels[100:] >= 0)
    for counts in (model._state.counts, model.estimator_._state.counts):
        np.testing.assert_allclose(counts.discounted.sum(), 0.5 * first + rest)


# -- the estimator --------------------------------------------------------------------------------


class Derived(SeqMED):
    """A class of its own."""


@pytest.mark.parametrize(
    "given",
    [
        GaussianNB(), LogisticRegression(), GraphPropagation(), Derived(), SeqMED, "svm", 3,
        make_pipeline(SeqMED()),
    ],
    ids=lambda given: type(given).__name__,
)  # fmt: skip
def test_what_is_no_margin_classifier_is_refused_by_name(given):
    X, _, labels = stream()
    model = SeqGraphMED(given)
    for method in (model.fit, model.partial_fit):
        with pytest.raises(TypeError, match="expected None, or a SeqMED or SeqLapMED") as refusal:
            method(X, labels)
        assert f"estimator={given!r}" in str(refusal.value)
    assert not hasattr(model, "n_features_in_")


def test_what_is_no_margin_classifier_is_refused_after_the_first_batch():
    X, _, labels = stream()
    model = SeqGraphMED(random_state=0).partial_fit(X, labels)
    expected = model.predict_proba(X)
    model.set_params(estimator=GaussianNB())
    labeled = labels >= 0
    for call in (
        lambda: model.partial_fit(X, labels),
        lambda: model.partial_fit(X[labeled], labels[labeled], new_points=False),
        lambda: model.retract(X[labeled]),
    ):
        assert_unchanged(model, X, call, TypeError, r"estimator=GaussianNB\(\)")
    np.testing.assert_array_equal(model.predict_proba(X), expected)


@pytest.mark.parametrize("estimator", [SeqLapMED(n_landmarks=5), SeqMED(budget=10)])
def test_the_seed_is_that_of_an_estimator_without_one(estimator):
    X, _, labels = stream()
    first, second = (
        SeqGraphMED(estimator, random_state=0).partial_fit(X, labels) for _ in range(2)
    )
    assert answers(first, X) == answers(second, X)
    other = SeqGraphMED(estimator, random_state=1).partial_fit(X, labels)
    assert answers(first, X) != answers(other, X)


def test_a_precomputed_kernel_is_refused():
    X, _, labels = stream()
    with pytest.raises(ValueError, match="precomputed"):
        SeqGraphMED(SeqMED(kernel="precomputed")).fit(X, labels)


def test_an_expert_that_fails_within_a_batch_changes_nothing(monkeypatch):
    X, y, _ = stream()
    learn, calls, fails_at = margin_state.learn, [], 3

    def failing(*arguments, **options):
        calls.append(arguments)
        if len(calls) == fails_at:
            raise RuntimeError("out of order")
        return learn(*arguments, **options)

    monkeypatch.setattr(margin_state, "learn", failing)
    model = SeqGraphMED(random_state=0).partial_fit(X[:8], y[:8])
    assert len(calls) == 2
    assert_unchanged(
        model, X, lambda: model.partial_fit(X[8:], y[8:]), RuntimeError, "out of order"
    )
    fresh = SeqGraphMED(random_state=0)
    attributes = vars(fresh).copy()
    for method in (fresh.fit, fresh.partial_fit):
        calls.clear()
        with pytest.raises(RuntimeError, match="out of order"):
            method(X, y)
        assert vars(fresh) == attributes


@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_an_estimator_that_learns_from_unlabeled_rows_gets_the_batch_as_one_graph(
    learn, monkeypatch
):
    """Also if there are more rows than `fit` learns at a time."""
    X, y, labels = stream(FIT_BATCH + 200 if learn == "fit" else 240, share=0.1)
    seen = []
    step = update.step

    def watched(posterior, points, *given):
        if points is not None:  # not late labels
            seen.append(points.shape[0])
        return step(posterior, points, *given)

    monkeypatch.setattr("seqmed.margin.update.step", watched)
    model = SeqGraphMED(SeqLapMED(random_state=0, n_landmarks=50), random_state=0)
    getattr(model, learn)(X, labels)
    assert model.update_info_.n_mini_batches > 1
    assert seen == [len(X)]
    assert model.estimator_.n_batches_ == model.n_batches_ == 1
    assert model.estimator_._state.counts.counts.sum() == np.count_nonzero(labels >= 0)
    model.partial_fit(X[:50], labels[:50])
    assert seen == [len(X), 50]
    assert model.estimator_.n_batches_ == model.n_batches_ == 2
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize("estimator", [SeqMED(bias="exact"), SeqLapMED(bias="median"), SeqMED()])
def test_our_own_estimators_with_any_bias(estimator):
    X, y, labels = stream()
    for n_classes in (2, 3):
        used = y < n_classes
        model = SeqGraphMED(estimator, random_state=0).partial_fit(X[used], labels[used])
        assert model.score(X[used], y[used]) > 0.8
        labeled = np.flatnonzero(used & (labels >= 0))[3:5]
        model.retract(X[labeled])
        assert model.score(X[used], y[used]) > 0.8


# -- bad input ------------------------------------------------------------------------------------


@BOTH
def test_bad_input_leaves_the_model_unchanged(kind):
    X, _, labels = stream()
    model = kind(random_state=0).partial_fit(X, labels)
    bad = X.copy()
    bad[3, 1] = np.nan
    infinite = X.copy()
    infinite[3, 1] = np.inf
    huge = X.copy()
    huge[3, 1] = 1e71
    negative, tiny = np.ones(240), np.ones(240)
    negative[0], tiny[0] = -1.0, 1e-60
    nothing = np.zeros(240)
    calls = {
        "NaN": lambda: model.partial_fit(bad, labels),
        "infinity": lambda: model.partial_fit(infinite, labels),
        "expected at most 1e": lambda: model.partial_fit(huge, labels),
        "features": lambda: model.partial_fit(X[:, :2], labels),
        "inconsistent numbers": lambda: model.partial_fit(X, labels[:-1]),
        "strings": lambda: model.partial_fit(X, np.array(["a", "b"])[labels % 2]),
        "expected one of classes": lambda: model.partial_fit(X, labels, classes=[0, 1]),
        "[Nn]egative": lambda: model.partial_fit(X, labels, sample_weight=negative),
        "expected 0 or values": lambda: model.partial_fit(X, labels, sample_weight=tiny),
        "at least one (positive|non-zero)": lambda: model.partial_fit(
            X, labels, sample_weight=nothing
        ),
        "minimum of 1": lambda: model.partial_fit(X[:0], labels[:0]),
        "y to be passed": lambda: model.partial_fit(X, None),
        "expected True or False": lambda: model.partial_fit(X, labels, new_points="no"),
        "1D array|bad input shape|should be a 1d": lambda: model.partial_fit(X, X),
        "Unknown label type|continuous": lambda: model.partial_fit(X, X[:, 0]),
        "no labeled row": lambda: model.fit(X, np.full(240, -1)),
        "Expected 2D array": lambda: model.partial_fit(X[0], labels[:1]),
    }
    for match, call in calls.items():
        assert_unchanged(model, X, call, ValueError, match)


@BOTH
@pytest.mark.parametrize(
    "parameters",
    [
        {"graph_memory": 1}, {"graph_memory": 2.5}, {"n_neighbors": 0}, {"alpha": 1.0},
        {"alpha": -0.1}, {"metric": "manhattan"}, {"forgetting": 0.0}, {"random_state": "now"},
    ],
)  # fmt: skip
def test_bad_parameters_are_refused(kind, parameters):
    X, _, labels = stream()
    fresh = kind(**parameters)
    for method in (fresh.fit, fresh.partial_fit):
        with pytest.raises(ValueError, match=f"{next(iter(parameters))}.* parameter"):
            method(X, labels)


@pytest.mark.parametrize(
    "parameters", [{"mixture": 1.5}, {"mixture": "best"}, {"class_prior": "mine"}]
)
def test_bad_parameters_of_the_mixture_are_refused(parameters):
    X, _, labels = stream()
    with pytest.raises(ValueError, match=f"{next(iter(parameters))}.* parameter"):
        SeqGraphMED(**parameters).partial_fit(X, labels)


@BOTH
def test_parameters_of_the_graph_may_not_change_between_batches(kind):
    X, _, labels = stream()
    for name, value in {
        "graph_memory": 50, "n_neighbors": 3, "alpha": 0.5, "metric": "cosine",
    }.items():  # fmt: skip
        model = kind(random_state=0).partial_fit(X, labels)
        model.set_params(**{name: value})
        for call in (
            lambda model=model: model.partial_fit(X, labels),
            lambda model=model: model.retract(X[:1]),
        ):
            assert_unchanged(model, X, call, ValueError, f"{name} was changed")


def test_a_metric_that_fails_changes_nothing():
    X, y, labels = stream(60)
    left = [10**9]

    def kernel(first, second):
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("out of order")
        return np.exp(-((first[:, None] - second[None]) ** 2).sum(axis=2) / 8.0)

    model = SeqGraphMED(metric=kernel, random_state=0).partial_fit(X[:40], labels[:40])
    before = vars(model).copy()
    failures = 0
    while True:
        left[0] = failures
        try:
            model.partial_fit(X[40:], labels[40:])
            break
        except RuntimeError:
            failures += 1
            assert all(vars(model)[name] is value for name, value in before.items())
    assert failures > 5
    left[0] = 10**9
    assert model.n_batches_ == 2
    assert model.score(X, y) > 0.8


# -- predictions ----------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_labels_and_scores_agree(kind, n_classes):
    X, _, labels = stream(n_classes=n_classes)
    model = kind(random_state=0).partial_fit(X, labels)
    probabilities, scores = model.predict_proba(X), model.decision_function(X)
    assert probabilities.shape == (240, n_classes)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    predicted = model.predict(X)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], predicted)
    if n_classes == 2:
        assert scores.shape == (240,)
        np.testing.assert_array_equal(scores > 0, predicted == 1)
    else:
        assert scores.shape == (240, 3)
        np.testing.assert_array_equal(scores.argmax(axis=1), predicted)
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(probabilities))
    alone = np.vstack([model.predict_proba(X[row : row + 1]) for row in range(20)])
    np.testing.assert_allclose(alone, probabilities[:20], atol=1e-5)


@BOTH
def test_two_classes_of_three_declared_have_three_columns(kind):
    X, _, labels = stream(n_classes=2)
    model = kind(random_state=0).partial_fit(X, labels, classes=[0, 1, 5])
    assert model.decision_function(X).shape == (240, 3)
    assert set(model.predict(X).tolist()) == {0, 1}


@BOTH
@pytest.mark.parametrize("method", ["predict", "decision_function", "predict_proba"])
def test_predictions_are_of_one_whole_state_while_another_is_learned(kind, method, monkeypatch):
    """A batch with a new class is learned in the middle of a prediction."""
    X, y, labels = stream()
    old = y < 2
    model = kind(random_state=0).partial_fit(X[old], labels[old])
    if kind is SeqGraphMED:
        model = kind(mixture=0.5, random_state=0).partial_fit(X[old], labels[old])
    expected = getattr(model, method)(X)
    search, scored = GraphState.search, margin_state.unscaled_scores
    learned = []

    def learn_first():
        if not learned:
            learned.append(True)
            model.partial_fit(X, labels)

    def searched(self, points):
        learn_first()
        return search(self, points)

    def scored_later(*arguments):
        learn_first()
        return scored(*arguments)

    monkeypatch.setattr(GraphState, "search", searched)
    monkeypatch.setattr(margin_state, "unscaled_scores", scored_later)
    np.testing.assert_array_equal(getattr(model, method)(X), expected)
    assert learned
    assert model.classes_.tolist() == [0, 1, 2]
    assert not np.array_equal(getattr(model, method)(X), expected)


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_the_size_of_batches_hardly_matters():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order] / 16.0, y[order]
    labels = np.where(np.arange(len(y)) % 12 == 0, y, -1)
    scores = {}
    for size in (1, 20, 200):
        model = SeqGraphMED(random_state=0)
        for start in range(0, 600, size):
            model.partial_fit(X[start : start + size], labels[start : start + size])
        scores[size] = model.score(X[600:], y[600:])
    assert min(scores.values()) > 0.85
    assert max(scores.values()) - min(scores.values()) <= 0.01


@BOTH
def test_fit_learns_many_rows_in_bounded_memory(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 5))
    y = np.where(np.arange(20_000) % 400 == 0, (X[:, 0] > 0).astype(int), -1)
    model = kind(graph_memory=2000, random_state=0)
    tracemalloc.start()
    model.fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert model.n_kept_ == 2000
    assert model.n_batches_ == 1
    # the rows in another order, and 2000 kept ones with lists of 16 entries
    assert peak < 3 * X.nbytes + 20e6
    assert model.score(X, (X[:, 0] > 0).astype(int)) > 0.8


@BOTH
def test_fit_counts_as_one_batch_and_forgets_what_was_before(kind):
    X, _, labels = stream()
    model = kind(random_state=0, forgetting=0.5)
    model.partial_fit(X[:, :2], labels + 5 * (labels >= 0)).fit(X, labels)
    fresh = kind(random_state=0, forgetting=0.5).fit(X, labels)
    assert model.n_batches_ == 1
    assert answers(model, X) == answers(fresh, X)
    assert (model._state.graph.label_weights[model._state.graph.codes >= 0] == 1).all()


def test_the_estimator_given_is_never_changed():
    X, _, labels = stream()
    given = SeqMED(C=3.0)
    model = SeqGraphMED(given, random_state=0).partial_fit(X, labels)
    assert vars(given).keys() == given.get_params().keys()
    first = model.estimator_
    before = pickle.dumps(first)
    model.partial_fit(X, labels)
    assert model.estimator_ is not first
    assert pickle.dumps(first) == before
    assert model.estimator_.C == 3.0


def test_the_record_holds_scores_from_before_a_row_was_learned(monkeypatch):
    """Every labeled row of a known class is scored once, by a state that has not learned it."""
    X, _, labels = stream()
    counts = []
    scored = mixture_record.expert_scores

    def watched(stream, points, **options):
        if options["neighbours"] is None:  # given for rows that measure the scales
            of_graph = stream.graph.class_label_weights.sum()
            of_margin, of_experts = stream.margin.counts.counts.sum(), stream.labels.size
            learned = (stream.counts.counts.sum(), of_graph, of_margin, of_experts)
            counts.append((learned, len(points)))
        return scored(stream, points, **options)

    monkeypatch.setattr(mixture_record, "expert_scores", watched)
    model = SeqGraphMED(random_state=0).partial_fit(X, labels)
    assert sum(n for _, n in counts) == model.update_info_.n_recorded
    assert len(counts) == model.update_info_.n_mini_batches - 1
    assert all(len(set(learned)) == 1 for learned, _ in counts)
    (learned, *_), n = counts[-1]
    assert learned + n == np.count_nonzero(labels >= 0)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_rows_labeled_late_are_recorded_without_themselves(metric):
    """A kept row is its own nearest neighbour, and is left out of the graph's score."""
    X, y, labels = stream(150)
    X = np.abs(X)
    model = SeqGraphMED(metric=metric, random_state=0).partial_fit(X, labels)
    before = model._state
    late = np.flatnonzero(labels < 0)[:4]
    model.partial_fit(X[late], y[late], new_points=False)
    found = model._state.record.graph[-4:]
    graph = before.graph
    own = np.flatnonzero(model._state.graph.codes != graph.codes)
    stored = graph.rows.metric.store(X[late])
    order = [int(graph.rows.search(stored.take([row])).slots[0, 0]) for row in range(4)]
    assert sorted(order) == own.tolist()
    expected = graph.scores(graph.rows.search(stored, own=np.array(order)))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(graph.scores(graph.search(X[late])) - expected).max() > 1e-3


@BOTH
def test_what_was_learned_outlasts_any_number_of_unlabeled_batches(kind):
    """Forgetting compares labels with newer ones: without newer ones nothing replaces them."""
    X, y, _ = stream(n=90)
    model = kind(forgetting=0.1, random_state=0).partial_fit(X, y)
    before = model.score(X, y)
    rows = np.random.default_rng(1).normal(size=(350, 1, X.shape[1]))
    for row in rows:
        model.partial_fit(row, [-1])
    assert model.score(X, y) > before - 0.1


@pytest.mark.parametrize("estimator", [None, SeqMED(forgetting=0.7)])
def test_without_the_graph_forgetting_is_that_of_the_margin_expert(estimator):
    """Both have the same weights, also with unlabeled batches and another forgetting factor."""
    X, _, y = stream(n=300, share=0.1)
    model = SeqGraphMED(
        estimator, mixture=0.0, class_prior="uniform", forgetting=0.9, random_state=0
    )
    for row in range(200):
        model.partial_fit(X[row : row + 1], y[row : row + 1], classes=[0, 1, 2])
    margin = model.estimator_
    np.testing.assert_array_equal(model.predict(X), margin.predict(X))
