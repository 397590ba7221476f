"""The mixture within the classifier: mini-batches, weights of 0, probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from seqmed import SeqGraphMED
from seqmed.graph.kept_rows import KeptRows
from seqmed.mixture.learning import mini_batches
from seqmed.mixture.record import choose
from tests.reference import naive_graph


@settings(max_examples=200)
@given(st.lists(st.booleans(), min_size=1, max_size=80), st.integers(0, 200))
def test_mini_batches_equal_the_naive_ones(labeled, n_labels):
    cuts = mini_batches(np.array(labeled), float(n_labels))
    found = [list(range(cut.start, cut.stop)) for cut in cuts]
    assert found == naive_graph.mini_batches(labeled, n_labels)


def test_mini_batches_by_hand():
    """Four labels, then four (a quarter of 4 and 8 is less), then a quarter of 8, 12, 16..."""
    cuts = mini_batches(np.ones(30, dtype=bool), 0.0)
    assert [cut.stop - cut.start for cut in cuts] == [4, 4, 4, 4, 4, 5, 5]
    assert mini_batches(np.zeros(5, dtype=bool), 0.0) == [slice(0, 5)]
    late = np.array([False, True, True, True, True, False, False, True, False])
    assert mini_batches(late, 0.0) == [slice(0, 5), slice(5, 9)]
    assert mini_batches(late, 40.0) == [slice(0, 9)]


def stream(n=240, share=0.3, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(3, size=n)
    points = rng.normal(size=(n, 4)) + 2.0 * np.eye(3, 4)[codes]
    return points, codes, np.where(rng.random(n) < share, codes, -1)


def test_a_graph_of_weight_zero_is_not_searched(monkeypatch):
    X, _, labels = stream()
    calls = []
    search = KeptRows.search

    def counted(self, *arguments, **keywords):
        calls.append(1)
        return search(self, *arguments, **keywords)

    for weight, expected in ((0.0, 0), (0.4, 1), (1.0, 1)):
        model = SeqGraphMED(mixture=weight, random_state=0).partial_fit(X, labels)
        monkeypatch.setattr(KeptRows, "search", counted)
        calls.clear()
        model.predict(X)
        assert len(calls) == expected
        monkeypatch.undo()


def test_a_margin_of_weight_zero_is_not_evaluated(monkeypatch):
    X, y, labels = stream()
    model = SeqGraphMED(mixture=1.0, random_state=0).partial_fit(X, labels)

    def forbidden(*arguments, **keywords):
        raise AssertionError("the margin was asked")

    monkeypatch.setattr("seqmed.margin.margin_state.machine_scores", forbidden)
    assert (model.predict(X) == y).mean() > 0.8
    with pytest.raises(AssertionError, match="the margin was asked"):
        SeqGraphMED(mixture=0.5, random_state=0).partial_fit(X, labels)


def test_probabilities_are_the_softmax_of_the_mixed_scores():
    X, _, labels = stream()
    model = SeqGraphMED(experts=(), random_state=0).partial_fit(X, labels)
    np.testing.assert_allclose(
        model.predict_proba(X), softmax(model.decision_function(X), axis=1), atol=1e-12
    )
    info = model.update_info_
    assert info.n_recorded > 40
    assert info.weight == model.graph_weight_
    choice = choose(model._state.record, True, None, True)
    assert choice == model._state.choice


def test_uniform_class_prior_ignores_class_priors():
    """A rare class within another: to favour the other raises accuracy."""
    rng = np.random.default_rng(0)
    y = (rng.random(900) < 0.05).astype(int)
    X = rng.normal(size=(900, 2)) + 1.5 * y[:, None]
    core = {"experts": (), "random_state": 0}
    favoured = SeqGraphMED(**core).fit(X, y)
    uniform = SeqGraphMED(class_prior="uniform", **core).fit(X, y)
    balanced = SeqGraphMED(class_weight="balanced", **core).fit(X, y)
    assert favoured._state.choice.exponent > 0
    assert uniform._state.choice.exponent == balanced._state.choice.exponent == 0
    assert favoured.score(X, y) > uniform.score(X, y)
    assert (uniform.predict(X) == 1).sum() > (favoured.predict(X) == 1).sum()


def test_rows_are_not_recorded_before_two_classes_have_labels():
    X, y, _ = stream(20)
    model = SeqGraphMED(random_state=0).partial_fit(X, np.where(y == 0, y, -1), classes=[0, 1, 2])
    assert model.update_info_.n_recorded == 0
