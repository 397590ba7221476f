"""The prediction of a row does not depend on the other rows of the call."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

from seqmed import (
    GraphPropagation,
    SeqGraphMED,
    SeqLapMED,
    SeqMED,
    StreamPipeline,
    make_stream_pipeline,
)
from tests.support.configurations import overlap

# Largest difference between predictions of a row in different calls.
TOLERANCE = 1e-9
N_FEATURES = 5

KERNELS = {
    "rbf": {},
    "linear": {"kernel": "linear"},
    "poly": {"kernel": "poly", "degree": 2, "coef0": 1.0},
    "tfidf": {"kernel": "tfidf"},
    "callable": {"kernel": overlap},
    "exact": {"bias": "exact"},
    "budget": {"budget": 20, "averaging": True, "random_state": 0},
}
MODELS = {
    **{f"SeqMED-{name}": lambda p=p: SeqMED(**p) for name, p in KERNELS.items()},
    **{
        f"SeqLapMED-{name}": lambda p=p: SeqLapMED(**{"n_landmarks": 15, "random_state": 0} | p)
        for name, p in KERNELS.items()
    },
    **{
        f"SeqGraphMED-{name}": lambda p=p: SeqGraphMED(SeqMED(**p), random_state=0)
        for name, p in KERNELS.items()
    },
    "SeqGraphMED": lambda: SeqGraphMED(random_state=0),
    "SeqGraphMED-cosine": lambda: SeqGraphMED(metric="cosine", random_state=0),
    "SeqGraphMED-half": lambda: SeqGraphMED(mixture=0.5, random_state=0),
    "SeqGraphMED-SeqLapMED": lambda: SeqGraphMED(SeqLapMED(random_state=0), random_state=0),
    "GraphPropagation": lambda: GraphPropagation(random_state=0),
    "GraphPropagation-cosine": lambda: GraphPropagation(metric="cosine", random_state=0),
    "GraphPropagation-callable": lambda: GraphPropagation(metric=overlap, random_state=0),
    "StreamPipeline": lambda: StreamPipeline(
        [("scale", StandardScaler()), ("model", SeqGraphMED(random_state=0))]
    ),
    "StreamPipeline-table": lambda: make_stream_pipeline(random_state=0),
}


def counts(generator, codes):
    """Rows of counts and remainders around one of three profiles."""
    means = 0.7 + 3.0 * np.eye(3, N_FEATURES)[codes]
    return generator.poisson(means) + generator.integers(0, 8, (codes.size, N_FEATURES)) / 8


def opposite(generator):
    """One batch: equal rows with opposite labels, and unlabeled rows."""
    pair = np.repeat(counts(generator, np.zeros(1, dtype=int)), 2, axis=0)
    return [(np.vstack([pair, counts(generator, np.arange(6) % 3)]), [0, 1] + [None] * 6)]


def repeated(generator):
    """Every row with every label, and then a batch as usual."""
    rows = np.repeat(counts(generator, np.arange(4) % 3), 3, axis=0)
    first = (np.vstack([rows, counts(generator, np.arange(20) % 3)]), [0, 1, 2] * 4 + [None] * 20)
    return [first, (rows, [0, 1, 2] * 4)]


def usual(generator):
    batches = []
    for _ in range(3):
        codes = generator.permutation(np.arange(30) % 3)
        labels = np.where(np.arange(30) % 3 == 0, codes, None)
        batches.append((counts(generator, codes), labels))
    return batches


def raw(generator):
    """Columns of different scales, far from zero."""
    factors, offsets = np.array([1.0, 1e3, 1e-2, 10.0, 1e5]), np.array([0, 4e3, 1, 0, 1e6])
    return [(X * factors + offsets, y) for X, y in usual(generator)]


STREAMS = {each.__name__: each for each in (opposite, repeated, usual, raw)}


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("name", MODELS)
def test_a_prediction_does_not_depend_on_the_rows_beside_it(name, stream, form):
    if form == "csr" and "Pipeline" in name:
        pytest.skip("takes dense rows only")
    if stream == "raw" and any(each in name for each in ("linear", "callable")):
        pytest.skip("the dual has no solution in double precision")
    generator = np.random.default_rng(len(name))
    made = np.array if form == "dense" else sp.csr_array
    batches = STREAMS[stream](generator)
    model = MODELS[name]()
    for X, y in batches:
        model.partial_fit(made(X), np.array(y, dtype=object), classes=[0, 1, 2])
    rows = np.vstack([batches[0][0], STREAMS[stream](generator)[-1][0]])
    for method in ("predict_proba", "decision_function"):
        predict = getattr(model, method)
        together = predict(made(rows))
        scale = max(1.0, np.abs(together).max())
        alone = np.concatenate([predict(made(row[None, :])) for row in rows])
        np.testing.assert_allclose(alone, together, rtol=0, atol=TOLERANCE * scale)
        for size in (2, 7):
            part = predict(made(rows[-size:]))
            np.testing.assert_allclose(part, together[-size:], rtol=0, atol=TOLERANCE * scale)
        others = np.vstack(
            [rows, np.repeat(rows, 40, axis=0) * generator.random((40 * len(rows), 1))]
        )
        among = predict(made(others))[: len(rows)]
        np.testing.assert_allclose(among, together, rtol=0, atol=TOLERANCE * scale)
