"""Measures that are summed over batches are those of scikit-learn on all rows."""

import numpy as np
import pytest
from scipy import special
from scipy.stats import binomtest
from sklearn import metrics

from seqmed.selection import measures
from seqmed.selection.measures import Measures, ScoreHistogram, wilson_interval


def predictions(n_classes, n_rows, *, seed=0, digits=None, strength=1.5):
    """Return true classes, class names and probabilities; few digits make ties."""
    rng = np.random.default_rng(seed)
    classes = np.array([f"class {place:x}" for place in range(n_classes)])
    share = 1.0 / np.arange(1, n_classes + 1)
    truth = rng.choice(n_classes, n_rows, p=share / share.sum())
    scores = rng.normal(size=(n_rows, n_classes))
    scores[np.arange(n_rows), truth] += strength
    probabilities = np.exp(2 * scores)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    if digits is not None:
        first = probabilities[:, 0].round(digits)
        probabilities = np.column_stack([first, 1.0 - first])
    return classes[truth], classes, probabilities


def assert_ranked(ranking, own, score, bins=2**17):
    """The measures are those of scikit-learn, if rows in a bin of log odds count as ties."""
    with np.errstate(divide="ignore"):
        places = np.clip((special.logit(score) + 30) / 60, 0, 1 - 1e-12) * bins // 1
    assert ranking.roc_auc == pytest.approx(metrics.roc_auc_score(own, places), abs=1e-12)
    expected = metrics.average_precision_score(own, places)
    assert ranking.average_precision == pytest.approx(expected, abs=1e-12)


def added(truth, classes, probabilities, *, batch=100):
    found = Measures()
    for start in range(0, truth.size, batch):
        rows = slice(start, start + batch)
        found.add(truth[rows].astype(object), classes, probabilities[rows])
    return found


@pytest.mark.parametrize("n_classes", [2, 3, 10, 12])
@pytest.mark.parametrize("batch", [7, 1000])
def test_measures_are_those_of_scikit_learn(n_classes, batch):
    truth, classes, probabilities = predictions(n_classes, 700)
    predicted = classes[probabilities.argmax(axis=1)]
    found = added(truth, classes, probabilities, batch=batch)
    assert found.size == 700
    assert found.accuracy == metrics.accuracy_score(truth, predicted)
    assert found.balanced_accuracy == pytest.approx(
        metrics.balanced_accuracy_score(truth, predicted)
    )
    assert found.macro_f1 == pytest.approx(metrics.f1_score(truth, predicted, average="macro"))
    assert found.log_loss == pytest.approx(metrics.log_loss(truth, probabilities, labels=classes))
    np.testing.assert_array_equal(found.matrix, metrics.confusion_matrix(truth, predicted))
    precision, recall, f1, support = metrics.precision_recall_fscore_support(truth, predicted)
    for place, each in enumerate(found.by_class()):
        assert each.label == classes[place]
        assert each.precision == pytest.approx(precision[place])
        assert each.recall == pytest.approx(recall[place])
        assert each.f1 == pytest.approx(f1[place])
        assert each.support == support[place]
        ranking = found.ranking(each.label)
        if n_classes > measures.RANKED_CLASSES:
            assert ranking is None
            continue
        own, score = truth == each.label, probabilities[:, place]
        assert_ranked(ranking, own, score)
        assert ranking.average_precision == each.average_precision
        assert ranking.roc_auc == pytest.approx(metrics.roc_auc_score(own, score), abs=1e-4)
        exact = metrics.average_precision_score(own, score)
        assert ranking.average_precision == pytest.approx(exact, abs=1e-3)


def test_the_calibration_error_by_its_definition():
    truth, classes, probabilities = predictions(3, 500)
    found = added(truth, classes, probabilities)
    right, confidence = classes[probabilities.argmax(axis=1)] == truth, probabilities.max(axis=1)
    total, counts = 0.0, []
    for place in range(measures.BINS):
        inside = np.floor(confidence * measures.BINS) == place
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
            counts.append(inside.sum())
    assert found.calibration_error == pytest.approx(total)
    np.testing.assert_array_equal(found.calibration[0], counts)


@pytest.mark.parametrize("digits", [1, 2, None])
def test_ties_count_as_in_scikit_learn(digits):
    truth, classes, probabilities = predictions(2, 400, digits=digits)
    ranking = added(truth, classes, probabilities).ranking("class 1")
    assert_ranked(ranking, truth == "class 1", probabilities[:, 1])


@pytest.mark.parametrize("bins", [1, 2, 7, 40])
def test_rows_of_one_bin_are_ties(monkeypatch, bins):
    monkeypatch.setattr("seqmed.selection.measures.SCORE_BINS", bins)
    for seed in range(5):
        truth, classes, probabilities = predictions(2, 60, seed=seed)
        ranking = added(truth, classes, probabilities).ranking("class 1")
        assert_ranked(ranking, truth == "class 1", probabilities[:, 1], bins)


def test_small_and_large_probabilities_are_not_ties():
    """Half of the positive rows have 1 - 1e-9, half of the negative ones 1 - 1e-8."""
    scores, found = ScoreHistogram(), np.array([1 - 1e-9, 1 - 1e-8, 1e-8, 1e-9])
    scores.add(np.tile(found, 10), np.tile([True, False], 20))
    assert scores.ranking().roc_auc == 0.75


def test_certain_probabilities():
    scores = ScoreHistogram()
    scores.add(np.array([0.0, 1.0, 0.0, 1.0]), np.array([False, True, True, False]))
    assert scores.ranking().roc_auc == 0.5


def test_the_order_of_batches_does_not_matter():
    truth, classes, probabilities = predictions(3, 300)
    first = added(truth, classes, probabilities)
    other = added(truth[::-1], classes, probabilities[::-1], batch=11)
    for label in classes:
        assert first.ranking(label) == pytest.approx(other.ranking(label))
    np.testing.assert_array_equal(first.matrix, other.matrix)


def test_classes_that_appear_later_had_the_probability_0():
    truth, classes, probabilities = predictions(3, 300)
    found = Measures()
    part = probabilities[:100, :2] / probabilities[:100, :2].sum(axis=1, keepdims=True)
    found.add(truth[:100], classes[:2], part)
    found.add(truth[100:], classes, probabilities[100:])
    whole = np.vstack([np.column_stack([part, np.zeros(100)]), probabilities[100:]])
    for place, label in enumerate(classes):
        assert_ranked(found.ranking(label), truth == label, whole[:, place])
    assert found.accuracy == (classes[whole.argmax(axis=1)] == truth).mean()
    assert found.unknown_classes == []


def test_a_class_that_the_model_does_not_know():
    truth, classes, probabilities = predictions(2, 50)
    truth = truth.astype(object)
    truth[:5] = "strange"
    found = added(truth, classes, probabilities)
    assert found.unknown_classes == ["strange"]
    strange = found.by_class()[-1]
    assert (strange.precision, strange.recall, strange.f1, strange.support) == (None, 0.0, 0.0, 5)
    assert found.ranking("strange") is None
    assert_ranked(found.ranking("class 1"), truth == "class 1", probabilities[:, 1])


def test_labels_that_are_no_classes_are_refused():
    _, classes, probabilities = predictions(2, 3000)
    names = np.array([f"id {row}" for row in range(3000)], dtype=object)
    with pytest.raises(ValueError, match="more than 1,000 labels that the model has not learned"):
        added(names, classes, probabilities)


def test_a_class_without_rows_or_without_others_has_no_ranking():
    _, classes, probabilities = predictions(2, 20)
    found = added(np.full(20, "class 0"), classes, probabilities)
    assert found.ranking("class 0") is None
    assert found.ranking("class 1") is None
    assert list(found.curves()) == ["class 0"]


def test_the_precision_recall_curve():
    truth, classes, probabilities = predictions(2, 3000)
    recall, precision = added(truth, classes, probabilities).curves()["class 1"]
    p, r, _ = metrics.precision_recall_curve(truth == "class 1", probabilities[:, 1])
    assert recall.size <= measures.CURVE_POINTS
    assert (recall[0], recall[-1]) == (0.0, 1.0)
    assert (np.diff(recall) >= 0).all()
    for place in range(1, recall.size):
        same = np.isclose(r, recall[place])
        assert np.abs(p[same] - precision[place]).min() < 1e-2


@pytest.mark.parametrize(("correct", "total"), [(0, 10), (10, 10), (1, 3), (912, 1000), (5, 10**7)])
def test_wilson_interval(correct, total):
    expected = binomtest(correct, total).proportion_ci(0.95, method="wilson")
    assert wilson_interval(correct, total) == pytest.approx((expected.low, expected.high))


def test_intervals_of_nothing_and_of_everything():
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(0, 5)[0] == 0.0
    assert wilson_interval(5, 5)[1] == 1.0


def test_predictions_and_costs_that_are_given():
    truth, classes, probabilities = predictions(3, 200)
    rng = np.random.default_rng(1)
    predicted, costs = rng.integers(3, size=200), rng.random(200)
    found = Measures()
    for rows in (slice(0, 90), slice(90, 200)):
        found.add(truth[rows], classes, probabilities[rows], predicted[rows], costs[rows])
    assert found.accuracy == (classes[predicted] == truth).mean()
    assert found.mean_cost == pytest.approx(costs.mean())
    assert found.log_loss == pytest.approx(metrics.log_loss(truth, probabilities))
