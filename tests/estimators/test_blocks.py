"""`in_blocks`: what is found for a row is the same to the bit whatever rows are beside it."""

import numpy as np
import pyarrow as pa
import pytest

from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED, make_stream_pipeline
from seqmed.estimators.base import BLOCK, in_blocks

GENERATOR = np.random.default_rng(3)
CODES = GENERATOR.integers(2, size=900)
POINTS = GENERATOR.normal(size=(900, 20)) + 0.7 * CODES[:, None]
LABELS = np.where(GENERATOR.random(900) < 0.5, CODES, -1)
ROWS = GENERATOR.normal(size=(BLOCK + 300, 20))
MODELS = {
    "SeqMED": SeqMED(random_state=0),
    "SeqMED-linear": SeqMED(kernel="linear", random_state=0),
    "SeqLapMED": SeqLapMED(random_state=0),
    "GraphPropagation": GraphPropagation(random_state=0),
    "SeqGraphMED": SeqGraphMED(random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_predictions_do_not_depend_on_other_rows(name):
    model = MODELS[name].fit(POINTS, LABELS)

    def found(rows):
        return in_blocks(model._scores_and_probabilities, rows)

    every = found(ROWS)
    for places in (
        slice(7, None),
        slice(BLOCK - 20, None),
        [3],
        slice(10, 23),
        slice(None, None, -1),
    ):
        for whole, part in zip(every, found(ROWS[places]), strict=True):
            np.testing.assert_array_equal(part, whole[places])
    np.testing.assert_allclose(every[1], model.predict_proba(ROWS), rtol=0, atol=1e-11)


def test_tables():
    table = pa.table({"x": np.arange(40) % 2 + 0.1 * np.arange(40)})
    model = make_stream_pipeline(SeqMED()).fit(table, np.arange(40) % 2)
    (found,) = in_blocks(lambda rows: (model.predict(rows),), table)
    np.testing.assert_array_equal(found, model.predict(table))
