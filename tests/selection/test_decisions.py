"""Decisions minimise the expected cost, and costs are read as they are meant."""

import numpy as np
import pytest

from seqmed.selection.decisions import DecisionRule, parse_costs

CLASSES = np.array(["a", "b", "c", "d"])


def random_probabilities(n_classes, n_rows=200, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(n_classes), n_rows)


@pytest.mark.parametrize("n_classes", [1, 2, 3, 4])
def test_the_smallest_expected_cost_by_a_double_loop(n_classes):
    rng, classes = np.random.default_rng(n_classes), CLASSES[:n_classes]
    costs = {
        (true, predicted): float(rng.integers(1, 20))
        for true in classes.tolist()
        for predicted in classes.tolist()
        if true != predicted and rng.random() < 0.7
    }
    rule, probabilities = DecisionRule(costs=costs), random_probabilities(n_classes)
    chosen = rule.decide(classes, probabilities)
    for row, place in zip(probabilities, chosen, strict=True):
        expected = []
        for predicted in classes.tolist():
            total = 0.0
            for true, probability in zip(classes.tolist(), row, strict=True):
                own = 0.0 if true == predicted else costs.get((true, predicted), 1.0)
                total += probability * own
            expected.append(total)
        assert expected[place] == pytest.approx(min(expected), abs=1e-12)


def test_without_costs_the_most_probable_class():
    probabilities = random_probabilities(4)
    chosen = DecisionRule().decide(CLASSES, probabilities)
    np.testing.assert_array_equal(chosen, probabilities.argmax(axis=1))


@pytest.mark.parametrize("positive", [None, "a", "b"])
def test_a_threshold(positive):
    classes, probabilities = CLASSES[:2], random_probabilities(2)
    probabilities[0] = (0.7, 0.3)
    threshold = 0.7 if positive == "a" else 0.3
    place = 0 if positive == "a" else 1
    chosen = DecisionRule(threshold, positive).decide(classes, probabilities)
    np.testing.assert_array_equal(chosen == place, probabilities[:, place] >= threshold)
    assert chosen[0] == place, "equal to the threshold"


def test_costs_of_two_classes_are_a_threshold():
    """A missed b costs 4 and a false alarm 1: b is predicted from 1 / 5 on."""
    probabilities = random_probabilities(2)
    by_cost = DecisionRule(costs={("b", "a"): 4.0}).decide(CLASSES[:2], probabilities)
    by_threshold = DecisionRule(threshold=0.2).decide(CLASSES[:2], probabilities)
    np.testing.assert_array_equal(by_cost, by_threshold)


@pytest.mark.parametrize(("threshold", "place"), [(0.0, 1), (1.0, 0)])
def test_the_ends_of_the_threshold(threshold, place):
    assert DecisionRule(threshold).decide(CLASSES[:2], np.array([[0.5, 0.5]])) == [place]


def test_costs_of_predictions():
    rule = DecisionRule(costs={("a", "b"): 5.0})
    truth, predicted = ["a", "a", "b", "new"], ["a", "b", "a", "b"]
    np.testing.assert_array_equal(rule.costs_of(truth, predicted), [0.0, 5.0, 1.0, 1.0])
    assert rule.costs_of([], []).shape == (0,)


NAMES = {name: name for name in ("ham", "spam", "a:b", "b", "a", "b:c", "c", "x=1", 'say "no"', "")}


@pytest.mark.parametrize(
    ("text", "pair", "cost"),
    [
        ("spam:ham=5", ("spam", "ham"), 5.0),
        ("spam:ham=0.5", ("spam", "ham"), 0.5),
        ("spam:ham=1e3", ("spam", "ham"), 1000.0),
        ("spam:a:b=2", ("spam", "a:b"), 2.0),
        ("a:b:spam=2", ("a:b", "spam"), 2.0),
        ("x=1:ham=3", ("x=1", "ham"), 3.0),
        ("ham:x=1=3", ("ham", "x=1"), 3.0),
        ('ham:say "no"=3', ("ham", 'say "no"'), 3.0),
        (":ham=3", ("", "ham"), 3.0),
    ],
)
def test_costs_are_read(text, pair, cost):
    assert parse_costs([text], NAMES) == {pair: cost}
    first = "{}:{}=0.25".format(*pair)
    assert parse_costs([first, text], NAMES) == {pair: cost}  # the last one counts


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["spam"], "expected TRUE:PREDICTED=NUMBER"),
        (["spam:ham"], "expected TRUE:PREDICTED=NUMBER"),
        (["spam=3"], "expected TRUE:PREDICTED=NUMBER"),
        (["spam:ham=many"], "expected TRUE:PREDICTED=NUMBER"),
        (["spam:eggs=1"], "two of the classes 'ham', 'spam'"),
        (["eggs:ham=1"], "two of the classes 'ham', 'spam'"),
        (["a:b:c=1"], "colons in names .* use seqmed.selection.decisions.DecisionRule"),
    ],
)
def test_costs_that_are_refused(texts, message):
    with pytest.raises(ValueError, match=message):
        parse_costs(texts, NAMES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.5}, "choose a number from 0 to 1"),
        ({"threshold": float("nan")}, "choose a number from 0 to 1"),
        ({"threshold": 0.5, "costs": {("a", "b"): 1.0}}, "leave one out"),
        ({"costs": {("a", "a"): 1.0}}, "a correct prediction costs 0"),
        ({"costs": {("a", "b"): -1.0}}, "at least 0"),
        ({"costs": {("a", "b"): float("inf")}}, "at least 0"),
        ({"costs": {("a", "b"): float("nan")}}, "at least 0"),
    ],
)
def test_rules_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DecisionRule(**options)


@pytest.mark.parametrize("n_classes", [1, 3])
def test_a_threshold_needs_two_classes(n_classes):
    with pytest.raises(ValueError, match="expected two for a threshold"):
        DecisionRule(0.5).decide(CLASSES[:n_classes], random_probabilities(n_classes))
    with pytest.raises(ValueError, match="expected one of the classes"):
        DecisionRule(0.5, "d").decide(CLASSES[:2], random_probabilities(2))
