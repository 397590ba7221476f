"""Accuracy on random checks, agreement and the stopping hint."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm
from sklearn.metrics import cohen_kappa_score

from seqmed.labeling.ledger import (
    LATEST,
    PRIOR,
    Ledger,
    Outcome,
    agreements,
    cohen_kappa,
    labels_for_point,
    labels_without_rise,
    learning_curve,
    outcomes,
    present_accuracy,
)
from seqmed.labeling.log import Event
from seqmed.labeling.page import stopping_hint

DIGEST = "r0123456789abcdef"


def label(row, person="Ada", label="x", why="random", guess="x"):
    return Event("label", "t", person, "f", row, DIGEST, "", label, why, guess, 0.5)


def improving(labels):
    """The accuracy of a simulated model that has a number of labels."""
    return 1.0 - np.minimum(0.75, 2.0 / np.sqrt(np.maximum(labels, 1)))


def checks_of(accuracy, n_labels, generator):
    """Return the outcomes of one random check for every five labels of a simulated model."""
    labels = np.arange(2, n_labels, 5)
    hits = generator.random(labels.size) < accuracy(labels)
    return [Outcome(bool(hit), int(n)) for hit, n in zip(hits, labels, strict=True)]


@pytest.mark.parametrize("n_labels", [100, 200, 400, 1000])
def test_the_interval_covers_the_accuracy_of_the_present_model_that_improves(n_labels):
    generator, now = np.random.default_rng(0), improving(n_labels)
    covered, off, off_all = [], [], []
    for _ in range(500):
        checks = checks_of(improving, n_labels, generator)
        found = present_accuracy(checks, n_labels)
        covered.append(found.low <= now <= found.high)
        off.append(found.value - now)
        off_all.append(np.mean([each.correct for each in checks]) - now)
    assert np.mean(covered) >= 0.9
    # the error fell by at most a fifth since the first of these checks: a tenth in the mean
    assert abs(np.mean(off)) < 0.15 * (1 - now)
    assert np.mean(off_all) < -0.3 * (1 - now)  # all checks say much less than the present accuracy


def test_the_interval_covers_the_mean_accuracy_of_the_models_that_predicted():
    generator, covered = np.random.default_rng(0), 0
    for _ in range(1000):
        chances = np.linspace(0.5, 0.95, 40)
        hits = generator.random(40) < chances
        found = present_accuracy([Outcome(bool(hit), 1) for hit in hits], 1)
        covered += found.low <= chances.mean() <= found.high
    assert covered >= 950


def test_the_present_accuracy_is_that_of_the_labels_since_two_thirds():
    checks = [Outcome(n > 200, n) for n in range(1, 301, 5)]
    assert present_accuracy(checks, 300) == (1.0, 20, *present_accuracy(checks, 300)[2:])
    # labels of before count: the model has hardly changed, and all checks are recent
    assert present_accuracy([Outcome(n > 200, n + 5000) for n in range(1, 101)], 5101).n == LATEST
    assert present_accuracy(checks, 3000).value is None


def test_labels_for_one_more_point_of_a_model_that_improves():
    """The interval has the true number as often as it says, where the curve is as assumed."""
    odds_now, power, n_labels = 4.0, 1.0, 1000

    def curve(labels):
        odds = odds_now * (labels / n_labels) ** power
        return odds / (1.0 + odds)

    later = np.arange(n_labels, 20 * n_labels)
    true = later[np.argmax(curve(later) >= curve(n_labels) + 0.01)] - n_labels
    generator, told, covered = np.random.default_rng(0), 0, 0
    for _ in range(300):
        found = labels_for_point(checks_of(curve, n_labels, generator), n_labels)
        if found is not None:
            assert found.low < found.value < found.high
            told += 1
            covered += found.low <= true <= found.high
    assert told > 240
    assert covered / told >= 0.93


PLATEAUS = {
    "odds rise to 100": lambda n: expit(np.log(0.85 / 0.15) + np.log(np.minimum(n, 100) / 100)),
    "odds rise to 300": lambda n: expit(np.log(0.85 / 0.15) + np.log(np.minimum(n, 300) / 300)),
    "power of the error": lambda n: improving(np.minimum(n, 300)),
    "exponential": lambda n: 0.85 - 0.65 * np.exp(-n / 50),
}


@pytest.mark.parametrize("curve", PLATEAUS.values(), ids=PLATEAUS)
@pytest.mark.parametrize("n_labels", [1000, 2000])
def test_labels_for_one_more_point_are_not_told_if_the_accuracy_has_been_constant(curve, n_labels):
    """It rose early: a slope of all checks says that it still rises, which is false."""
    generator = np.random.default_rng(0)
    drawn = [checks_of(curve, n_labels, generator) for _ in range(200)]
    slopes = [learning_curve(checks, n_labels).coefficients[1] for checks in drawn]
    assert np.mean(np.array(slopes) > 0) > 0.95
    silent = [checks for checks in drawn if labels_for_point(checks, n_labels) is None]
    assert len(silent) >= 0.8 * len(drawn)
    assert stopping_hint([(n_labels, 0.0, 0.02)], silent[0], n_labels) == (
        f"The last 100 labels changed 2.0 % of predictions. The random checks of the last "
        f"{n_labels * 3 // 4 - 2:,} labels show no clear further rise of the accuracy."
    )


def test_too_few_recent_checks_do_not_show_that_there_is_no_rise():
    checks = [Outcome(True, n) for n in range(2, 300, 5)]
    assert labels_without_rise(checks, 300) is None
    assert labels_without_rise([], 0) is None
    checks = [Outcome(True, n) for n in range(2, 400, 5)]
    assert labels_without_rise(checks, 400) == 400 - 102
    # labels of before: the checks began after them
    earlier = [Outcome(True, n + 5000) for n in range(2, 400, 5)]
    assert labels_without_rise(earlier, 5400) == 398


def test_labels_for_one_more_point_are_not_told_if_the_curve_is_too_rough():
    generator, told = np.random.default_rng(0), 0
    for n_labels in [50, 200, 1000] * 100:  # a model that does not improve
        checks = checks_of(lambda labels: np.full(labels.size, 0.8), n_labels, generator)
        told += labels_for_point(checks, n_labels) is not None
    assert told <= 6
    assert labels_for_point([], 10) is None
    assert labels_for_point([Outcome(True, 0)] * 3, 0) is None
    worse = [Outcome(n < 400, n) for n in range(2, 800, 5)]
    assert labels_for_point(worse, 800) is None
    for one in (True, False):  # no slope
        assert labels_for_point([Outcome(one, n) for n in range(2, 800, 5)], 800) is None


@pytest.mark.parametrize("top", [2000, 500])
def test_the_learning_curve_is_the_mode_of_its_posterior_and_has_its_covariance(top):
    def accuracy(labels):
        return expit(1.4 + np.log(np.minimum(labels, top) / top))

    checks = checks_of(accuracy, 2000, np.random.default_rng(0))
    correct, labels = np.array(checks, dtype=float).T

    def negative_log_posterior(curve):
        log_odds = curve[0] + curve[1] * np.log(np.minimum(labels, top) / top)
        likelihood = np.where(correct, expit(log_odds), expit(-log_odds))
        return -np.log(likelihood).sum() + np.sum((curve / PRIOR) ** 2) / 2

    mode = minimize(negative_log_posterior, np.zeros(2), tol=1e-10)
    found = learning_curve(checks, top)
    np.testing.assert_allclose(found.coefficients, mode.x, rtol=1e-4)
    assert found.log_density == pytest.approx(-mode.fun)
    generator = np.random.default_rng(0)
    drawn = [learning_curve(checks_of(accuracy, 2000, generator), top) for _ in range(400)]
    covariance = np.mean([np.linalg.inv(each.information) for each in drawn], axis=0)
    spread = np.cov(np.array([each.coefficients for each in drawn]).T)
    np.testing.assert_allclose(covariance, spread, rtol=0.15)


def test_labels_for_one_more_point_are_those_of_the_slope():
    def accuracy(labels):
        return expit(1.4 + np.log(labels / 2000))

    drawn = [checks_of(accuracy, 2000, np.random.default_rng(seed)) for seed in range(400)]
    found = np.array([each for each in (labels_for_point(one, 2000) for one in drawn) if each])
    slopes, high, low = (0.01 / np.log1p(found / 2000)).T
    chance = expit(learning_curve(drawn[0], 2000).coefficients[0])
    power = learning_curve(drawn[0], 2000).coefficients[1]
    assert slopes[0] == pytest.approx(chance * (1 - chance) * power)
    errors = (high - low) / 2 / norm.ppf(0.975)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(np.std(slopes), rel=0.1)


def test_labels_for_one_more_point_of_outcomes_that_are_separated():
    found = labels_for_point([Outcome(n > 400, n) for n in range(2, 800, 5)], 800)
    assert found is None or np.isfinite(found).all()


def test_outcomes_follow_the_current_labels():
    events = [
        label(1),
        label(2, label="y"),
        label(3, guess=""),  # no prediction
        label(4, why="uncertain"),
        label(5),
        Event("change", "t", "Ada", "f", 5, DIGEST, "", "y"),
        label(6),
        Event("withdraw", "t", "Ada", "f", 6, DIGEST),
        label(7),
        label(7, "Bo", "y"),  # disputed
        Event("skip", "t", "Ada", "f", 8, DIGEST, why="random", guess="y", probability=0.5),
        Event("undo", "t", "Ada", "f", 8, DIGEST),
        label(8),  # the prediction of its first card counts
    ]
    ledger = Ledger(events)
    found = outcomes(ledger, checks=True)
    # of rows 1, 2, 5 and 8, with the rows that had a label before
    assert found == [(True, 0), (False, 1), (False, 4), (False, 5)]
    assert outcomes(ledger, checks=False, n_earlier=10) == [(True, 13)]
    result = present_accuracy(found, 4)
    assert (result.value, result.n) == (0.0, 2)
    assert present_accuracy([], 4).value is None


def test_kappa_is_that_of_scikit_learn():
    generator = np.random.default_rng(0)
    ours = generator.choice(list("abc"), 50)
    theirs = np.where(generator.random(50) < 0.7, ours, generator.choice(list("abc"), 50))
    found = cohen_kappa(list(zip(ours.tolist(), theirs.tolist(), strict=True)))
    assert found == pytest.approx(cohen_kappa_score(ours, theirs))
    assert cohen_kappa([("a", "a"), ("a", "a")]) is None


def test_agreement_uses_the_first_labels():
    events = [
        label(1),
        label(1, "Bo", "y"),
        Event("change", "t", "Bo", "f", 1, DIGEST, "", "x"),  # after they talked
        label(2),
        label(2, "Bo"),
        label(3),
    ]
    (found,) = agreements(Ledger(events))
    assert found == {"people": ("Ada", "Bo"), "n": 2, "agreement": 0.5, "kappa": 0.0}


ROUGH = (
    "The random checks are too few to tell how many more labels one more point of accuracy takes."
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], "After 20 labels you see here how much labels still change."),
        ([(20, 0.05, None)], f"The last 10 labels changed 5.0 % of predictions. {ROUGH}"),
        ([(120, 0.01, 0.03)], f"The last 100 labels changed 3.0 % of predictions. {ROUGH}"),
        (
            [(120, 0.0, 0.003)],
            "The last 100 labels changed 0.3 % of predictions: the accuracy changes no more than "
            "that. This is a good point to stop.",
        ),
    ],
)
def test_the_stopping_hint(changes, expected):
    assert stopping_hint(changes, [], 120) == expected


def test_the_stopping_hint_says_how_many_labels_one_more_point_takes():
    checks = checks_of(lambda n: expit(np.log(n / 500)), 2000, np.random.default_rng(3))
    needed, low, high = (f"{round(each):,}" for each in labels_for_point(checks, 2000))
    assert stopping_hint([(2000, 0.0, 0.02)], checks, 2000) == (
        "The last 100 labels changed 2.0 % of predictions. About "
        f"{needed} more labels for one more point of accuracy ({low} to {high}), if it goes on "
        "rising as in the random checks so far."
    )
