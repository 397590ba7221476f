"""One large labeled batch within a budget: mini-batches, at a cost linear in its rows."""

from __future__ import annotations

import numpy as np
import pytest

from seqmed import SeqGraphMED, SeqLapMED, SeqMED
from seqmed.margin import update
from seqmed.margin.dual.problem import DualProblem

BUDGET = 20
KEPT = BUDGET // 2
AT_ONCE = update.LABELS_AT_ONCE * KEPT


def rows(n, seed=0):
    """Return n rows of three overlapping classes."""
    labels = np.arange(n) % 3
    points = np.random.default_rng(seed).normal(size=(n, 5)) + 1.5 * np.eye(5)[labels]
    return points, labels


@pytest.fixture
def sizes(monkeypatch):
    """Return the list of the sizes of all duals that are posed."""
    found = []

    def counted(**fields):
        found.append(fields["signs"].size)
        return DualProblem(**fields)

    monkeypatch.setattr(update, "DualProblem", counted)
    monkeypatch.setattr(update, "FEWEST_AT_ONCE", AT_ONCE)
    return found


@pytest.mark.parametrize(
    "make",
    [
        lambda: SeqMED(budget=BUDGET, random_state=0),
        lambda: SeqLapMED(budget=BUDGET, random_state=0),
        lambda: SeqGraphMED(SeqLapMED(budget=BUDGET, random_state=0), random_state=0),
    ],
    ids=["SeqMED", "SeqLapMED", "SeqGraphMED"],
)
def test_the_cost_is_linear_in_the_rows(make, sizes):
    """A dual of n points costs n^2 kernel values; none is larger than what is kept allows."""
    costs = []
    for n in (300, 1200):
        sizes.clear()
        make().fit(*rows(n))
        assert max(sizes) <= AT_ONCE + KEPT
        costs.append(np.square(sizes).sum())
    assert costs[1] < 6 * costs[0]


def test_a_batch_of_few_labels_is_one_dual(sizes):
    SeqLapMED(budget=BUDGET, random_state=0).fit(*rows(AT_ONCE))
    assert sizes == [AT_ONCE] * 3
    sizes.clear()
    points, labels = rows(6 * AT_ONCE)
    labels[AT_ONCE:] = -1
    SeqLapMED(budget=BUDGET, random_state=0).fit(points, labels)
    assert sizes == [AT_ONCE] * 3


def test_without_a_budget_a_batch_is_one_dual(sizes):
    SeqLapMED(random_state=0).fit(*rows(300))
    assert sizes == [300] * 3


def test_all_labels_are_learned_and_the_batch_counts_once():
    points, labels = rows(300)
    points, labels = np.vstack([points, points + 0.1]), np.append(labels, np.full(300, -1))
    model = SeqLapMED(budget=BUDGET, random_state=0).fit(points, labels)
    assert model.n_batches_ == 1
    assert model._state.counts.counts.tolist() == [100, 100, 100]
    assert model.posterior_.window.size <= KEPT
    model.partial_fit(*rows(300, 1))
    assert model.n_batches_ == 2
    assert model._state.counts.counts.tolist() == [200, 200, 200]


def test_sample_weights_stay_with_their_rows():
    points, labels = rows(300)
    weights = 1.0 + np.arange(300) % 3
    model = SeqLapMED(budget=BUDGET, random_state=0).fit(points, labels, weights)
    assert model._state.counts.weights.tolist() == [100.0, 200.0, 300.0]


@pytest.mark.parametrize("budget", [40, 100, 400])
def test_accuracy_is_that_of_one_dual_or_better(budget, monkeypatch):
    """To 2 points in 100; where little is kept, mini-batches lose less by projection."""
    points, labels = rows(1500)
    new, truth = rows(2000, 1)
    found = SeqLapMED(budget=budget, random_state=0).fit(points, labels).score(new, truth)
    monkeypatch.setattr(update, "LABELS_AT_ONCE", 10_000)
    whole = SeqLapMED(budget=budget, random_state=0).fit(points, labels).score(new, truth)
    assert found > whole - 0.02


def test_rows_in_the_order_of_their_classes():
    """Mini-batches are drawn at random: none holds one class only."""
    points, labels = rows(1500)
    order = np.argsort(labels, kind="stable")
    new, truth = rows(2000, 1)
    model = SeqLapMED(budget=100, random_state=0).fit(points[order], labels[order])
    assert model.score(new, truth) > 0.65


def test_features_of_landmarks_are_learned_from_many_labels_at_once(monkeypatch):
    """2000 at least: mini-batches cost accuracy there, to 2 points in 100."""
    monkeypatch.setattr(update, "FEWEST_AT_ONCE", 500)
    points, labels = rows(1500)
    new, truth = rows(2000, 1)
    found = SeqMED(budget=100, random_state=0).fit(points, labels).score(new, truth)
    monkeypatch.setattr(update, "FEWEST_AT_ONCE", 10_000)
    whole = SeqMED(budget=100, random_state=0).fit(points, labels).score(new, truth)
    assert whole - 0.02 < found != whole


def test_the_report_is_of_the_whole_batch():
    model = SeqLapMED(budget=BUDGET, random_state=0).fit(*rows(300))
    info = model.update_info_
    assert (info.n_points, info.n_labeled) == (300, 300)
    assert info.n_window <= AT_ONCE + KEPT


def test_a_class_may_first_appear_in_a_later_mini_batch():
    X, y = rows(600)
    rare = np.flatnonzero(y == 2)[1:]
    y[rare] = 1
    model = SeqLapMED(budget=BUDGET, random_state=0).fit(X, y)
    assert model.classes_.size == np.unique(y).size
    assert len(model.update_info_.solutions) == model.classes_.size
