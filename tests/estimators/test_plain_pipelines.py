"""A Pipeline of scikit-learn cannot learn a stream: it is refused with what to use instead."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import seqmed
from seqmed import PrequentialSearch, SeqMED, StreamPipeline
from seqmed.adapters.row_by_row import MiniBatches
from seqmed.selection import queries

X = np.random.default_rng(0).normal(size=(30, 2))
Y = np.arange(30) % 2
STEPS = [("scale", StandardScaler()), ("model", SeqMED())]


def searched(pipeline):
    return GridSearchCV(pipeline, {"model__C": [10.0]}, cv=2).fit(X, Y)


USES = {
    "save": lambda model, path: seqmed.save(model, path),
    "query": lambda model, path: queries.query(model, X, 2),
    "expected_regret": lambda model, path: queries.expected_regret(model, X),
    "query of a search": lambda model, path: queries.query(searched(model), X, 2),
    "search, fit": lambda model, path: PrequentialSearch(model, {"model__C": [1.5]}).fit(X, Y),
    "search, partial_fit": lambda model, path: PrequentialSearch(
        model, {"model__C": [1.5]}
    ).partial_fit(X, Y),
    "MiniBatches": lambda model, path: MiniBatches(model).partial_fit(X, Y),
}


@pytest.mark.parametrize("use", USES)
def test_a_plain_pipeline_is_refused_with_a_hint(use, tmp_path):
    plain = Pipeline(STEPS).fit(X, Y)
    with pytest.raises((TypeError, ValueError), match="got a Pipeline of scikit-learn") as refused:
        USES[use](plain, tmp_path / "model")
    assert "seqmed.StreamPipeline of the same steps" in str(refused.value)
    assert "seqmed.make_stream_pipeline" in str(refused.value)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("use", USES)
def test_the_hint_works(use, tmp_path):
    plain = Pipeline(STEPS)
    USES[use](StreamPipeline(plain.steps).fit(X, Y), tmp_path / "model")
