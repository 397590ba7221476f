"""The number of rows that ``graph_memory="auto"`` keeps, and the memory of a search."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import seqmed
from seqmed import GraphPropagation, SeqGraphMED
from seqmed.estimators.graph_propagation import FEWEST_ROWS, MEMORY_BYTES, MOST_ROWS
from seqmed.graph import kept_rows, metrics

BOTH = pytest.mark.parametrize("estimator", [GraphPropagation, SeqGraphMED])
# Columns with which the rows that fit are between the fewest and the most.
WIDE = MEMORY_BYTES // (2 * (FEWEST_ROWS + MOST_ROWS))


def learned(estimator, X, **parameters):
    return estimator(random_state=0, **parameters).partial_fit(X, [0, 1, -1, -1])


@BOTH
@pytest.mark.parametrize(
    ("columns", "expected"),
    [(3, MOST_ROWS), (WIDE, MEMORY_BYTES // (4 * WIDE)), (4 * WIDE, FEWEST_ROWS)],
)
def test_dense_rows_are_kept_as_far_as_they_fit(estimator, columns, expected):
    model = learned(estimator, np.random.default_rng(0).normal(size=(4, columns)))
    assert model.graph_memory_ == expected
    assert FEWEST_ROWS <= expected <= MOST_ROWS


def test_sparse_rows_count_by_their_values():
    rows = sp.random_array((4, 50_000), density=0.001, format="csr", rng=np.random.default_rng(0))
    assert learned(GraphPropagation, rows).graph_memory_ == MOST_ROWS
    rows = sp.csr_array(np.ones((4, WIDE // 2)))  # a value has an index of the same size
    assert learned(GraphPropagation, rows).graph_memory_ == MEMORY_BYTES // (8 * (WIDE // 2))
    rows = sp.csr_array((4, 3))  # no value at all
    assert learned(GraphPropagation, rows).graph_memory_ == MOST_ROWS


@BOTH
def test_the_memory_is_fixed_by_the_first_batch_and_saved(estimator, tmp_path):
    first, later = np.eye(4, 2 * WIDE), np.random.default_rng(0).random((40, 2 * WIDE))
    model = learned(estimator, sp.csr_array(first))
    assert model.graph_memory_ == MOST_ROWS
    model.partial_fit(sp.csr_array(later), np.arange(40) % 2)
    assert model.graph_memory_ == MOST_ROWS
    seqmed.save(model, tmp_path / "model")
    loaded = seqmed.load(tmp_path / "model")
    assert (loaded.graph_memory, loaded.graph_memory_) == ("auto", MOST_ROWS)


@BOTH
def test_a_number_of_rows_is_kept(estimator):
    model = learned(estimator, np.random.default_rng(0).normal(size=(4, 3)), graph_memory=50_000)
    assert model.graph_memory_ == 50_000


def test_a_search_finds_the_same_in_little_memory(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(3000, 60)).cumsum(axis=1)
    metric = metrics.make_metric("euclidean", rows)
    kept = kept_rows.no_kept_rows(metric, 10).put(np.arange(2000), metric.store(rows[:2000]))
    found = kept.search(kept.metric.store(rows[2000:]))
    assert len(kept_rows.strips(1000, 2000)) == 1
    monkeypatch.setattr(kept_rows, "PRODUCTS", 100 * 2000)
    assert [each.stop - each.start for each in kept_rows.strips(1000, 2000)] == [100] * 10
    for ours, theirs in zip(kept.search(kept.metric.store(rows[2000:])), found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    again = kept_rows.no_kept_rows(metric, 10).put(np.arange(2000), metric.store(rows[:2000]))
    for ours, theirs in zip(again.lists, kept.lists, strict=True):
        np.testing.assert_array_equal(ours, theirs)
