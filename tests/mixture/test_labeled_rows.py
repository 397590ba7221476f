"""The labeled rows that experts are fitted on: the newest, and a sample of the older ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from seqmed.mixture import labeled_rows
from seqmed.mixture.labeled_rows import most_rows, no_labeled_rows
from seqmed.numeric.arrays import random_keys


@pytest.fixture
def small(monkeypatch):
    """Keep the newest 20 rows, 50 in all."""
    monkeypatch.setattr(labeled_rows, "NEWEST", 20)
    monkeypatch.setattr(labeled_rows, "MOST", 50)


def grown(batches, seed=0):
    rows, number = no_labeled_rows(np.zeros((0, 1))), 0
    for size in batches:
        numbers = np.arange(number, number + size)
        rows = rows.add(numbers[:, None].astype(float), numbers % 3, np.ones(size), seed)
        number += size
    return rows


def shown(rows):
    return rows.take(rows.sampled)


def test_all_rows_are_kept_while_there_are_few(small):
    rows = grown([10, 20, 20])
    assert shown(rows).numbers.tolist() == list(range(50))
    assert rows.n_seen == 50


def test_the_newest_rows_and_a_sample_of_the_others_are_kept(small):
    rows = grown([7] * 40)
    kept = shown(rows)
    assert kept.size == 50
    assert set(range(260, 280)) <= set(kept.numbers.tolist())
    np.testing.assert_array_equal(kept.points[:, 0], kept.numbers)
    np.testing.assert_array_equal(kept.codes, kept.numbers % 3)


def test_the_sample_does_not_depend_on_the_batches(small):
    numbers = [shown(grown(batches)).numbers.tolist() for batches in ([300], [100] * 3, [1] * 300)]
    assert numbers[0] == numbers[1] == numbers[2]
    assert numbers[0] != shown(grown([300], seed=1)).numbers.tolist()


def test_older_rows_of_the_smallest_keys_are_kept(small):
    """The sample is the documented one, so that every version has the same."""
    kept = shown(grown([100])).numbers
    keys = random_keys(np.arange(80), 0)
    assert sorted(kept[kept < 80]) == sorted(np.argsort(keys)[:30])


def test_the_sample_of_older_rows_is_uniform(small):
    counts = np.zeros(280)
    for seed in range(400):
        kept = shown(grown([300], seed)).numbers
        counts[kept[kept < 280]] += 1
    expected = 400 * 30 / 280
    assert ((counts - expected) ** 2 / expected).sum() < 280 + 4 * np.sqrt(2 * 280)


def test_large_rows_are_fewer():
    assert most_rows(np.zeros((10, 20))) == 20_000
    assert most_rows(np.zeros((10, 2000))) == 4000
    assert most_rows(np.zeros((10, 100_000))) == 2000
    sparse = sp.csr_array(np.eye(10, 5000))
    assert most_rows(sparse) == 20_000


def test_retracted_labels_are_the_newest_ones_of_equal_rows(small):
    rows = no_labeled_rows(np.zeros((0, 2)))
    points = np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    rows = rows.add(points, np.array([0, 0, 1, 1]), np.ones(4), 0)
    left = rows.without_labels(points[:1], np.array([0]))
    assert left.numbers.tolist() == [0, 2, 3]
    left = rows.without_labels(points[[0, 0]], np.array([0, 0]))
    assert left.numbers.tolist() == [2, 3]


def test_discounts_and_classes():
    rows = grown([4]).forget(0.5)
    np.testing.assert_array_equal(rows.discounts, 0.5)
    moved = rows.with_classes(np.array([2, -1, 0]))
    assert moved.codes.tolist() == [2, 0, 2]
    assert moved.numbers.tolist() == [0, 2, 3]
