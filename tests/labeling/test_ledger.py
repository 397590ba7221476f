"""Accuracy on random checks, agreement and the stopping hint."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from seqmed.labeling.ledger import Ledger, accuracy_of, agreements, cohen_kappa, outcomes
from seqmed.labeling.log import Event
from seqmed.labeling.page import stopping_hint

DIGEST = "r0123456789abcdef"


def label(row, person="Ada", label="x", why="random", guess="x"):
    return Event("label", "t", person, "f", row, DIGEST, "", label, why, guess, 0.5)


def test_the_interval_covers_the_mean_accuracy_of_models_that_improve():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        chances = np.linspace(0.5, 0.95, 40)
        hits = generator.random(40) < chances
        found = accuracy_of(hits.tolist())
        covered += found.low <= chances.mean() <= found.high
    assert covered >= 950


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
    assert found == [True, False, False, False]  # of rows 1, 2, 5 and 8
    assert outcomes(ledger, checks=False) == [True]
    result = accuracy_of(found)
    assert (result.value, result.n) == (1 / 4, 4)
    assert accuracy_of([]).value is None


def test_the_accuracy_is_that_of_the_latest_checks():
    assert accuracy_of([n > 50 for n in range(1, 151)]).value == 1.0


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


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], "After 20 labels"),
        ([(20, 0.05, None)], "The last 10 labels changed 5.0 % of predictions."),
        (
            [(120, 0.01, 0.03)],
            "The last 100 labels changed 3.0 % of predictions. More labels still",
        ),
        ([(120, 0.0, 0.003)], "The last 100 labels changed 0.3 % of predictions. More labels will"),
    ],
)
def test_the_stopping_hint(changes, expected):
    assert stopping_hint(changes).startswith(expected)
