"""`seqmed predict`: what it writes is what the model says, and the model runs once."""

import numpy as np
import pytest

from seqmed import GraphPropagation, SeqGraphMED, SeqMED, make_stream_pipeline
from seqmed.cli.predict import predictions
from seqmed.selection.decisions import DecisionRule
from seqmed.streams import Stream

MODELS = {
    "mixture": SeqGraphMED(random_state=0),
    "margin": SeqMED(kernel="auto", random_state=0),
    "graph": GraphPropagation(random_state=0),
}


@pytest.fixture
def batch(tmp_path):
    """Rows of three classes in a file, as a batch."""
    generator = np.random.default_rng(0)
    codes = generator.integers(3, size=120)
    points = generator.normal(size=(120, 3)) + 2.0 * np.eye(3)[codes]
    lines = [",".join(map(str, row)) for row in points.round(4).tolist()]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c", *lines]) + "\n")
    (found,) = Stream(tmp_path / "rows.csv", batch_size=200)
    return found, np.array(["x", "y", "z"])[codes]


def fitted(name, batch, n_classes):
    found, labels = batch
    chosen = np.where((labels == "z") & (n_classes == 2), None, labels)
    return make_stream_pipeline(MODELS[name]).partial_fit(found.table, chosen)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_columns_are_those_of_the_methods(name, batch, n_classes):
    model = fitted(name, batch, n_classes)
    table = batch[0].table
    files, rows, labels, *numbers = predictions(model, DecisionRule(), batch[0], ["rows.csv"])
    assert (set(files), rows) == ({"rows.csv"}, list(range(1, 121)))
    assert labels == model.predict(table).tolist()
    scores = model.decision_function(table).reshape(120, -1)
    expected = [*model.predict_proba(table).T, *scores.T]
    if name == "margin":
        expected.append(model.decision_std(table))
    np.testing.assert_array_equal(numbers, expected)


def test_the_model_runs_once(batch, monkeypatch):
    from seqmed.mixture import mixture_state

    model, calls = fitted("mixture", batch, 3), []
    class_scores = mixture_state.class_scores
    monkeypatch.setattr(
        mixture_state, "class_scores", lambda *each: calls.append(1) or class_scores(*each)
    )
    predictions(model, DecisionRule(), batch[0], ["rows.csv"])
    assert len(calls) == 1
