"""Kept rows for tests: rows of many kinds, and an exact check of neighbour lists."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from seqmed.graph import metrics
from tests.reference import naive_graph

NEIGHBORS = 10
# Rounding of a squared distance in single precision: one unit for every column, and some.
ROUNDING = 2.0**-24


def cloud(rng, n, p):
    return rng.normal(size=(n, p))


def flat(rng, n, p):
    """Almost all of the variance in a few directions, the same in every call."""
    directions = np.random.default_rng(7).normal(size=(min(p, 5), p))
    return rng.normal(size=(n, directions.shape[0])) @ directions + 0.01 * rng.normal(size=(n, p))


def turning(rng, n, p):
    """A few directions that are others in every call: sketches of former rows are bad."""
    return 10 * rng.normal(size=(n, 3)) @ rng.normal(size=(3, p)) + 0.1 * rng.normal(size=(n, p))


def with_outliers(rng, n, p):
    rows = flat(rng, n, p)
    rows[rng.random(n) < 0.1] *= 1e9
    return rows


def far_away(rng, n, p):
    return 1e6 + flat(rng, n, p)


def duplicates(rng, n, p):
    return flat(np.random.default_rng(3), 9, p)[rng.integers(9, size=n)]


def constant_columns(rng, n, p):
    rows = flat(rng, n, p)
    rows[:, : p // 2 + 1] = 4.0
    return rows


def all_equal(rng, n, p):
    return np.full((n, p), 3.0)


def integers(rng, n, p):
    return rng.integers(0, 2, size=(n, p)).astype(float)


def drifting(rng, n, p):
    return flat(rng, n, p) + 10.0 ** rng.integers(-3, 5)


KINDS = [cloud, flat, turning, with_outliers, far_away, duplicates, constant_columns, all_equal,
         integers, drifting]  # fmt: skip


def words(rng, n, p):
    """Sparse counts; some rows are empty, and some have no word in common."""
    rows = rng.poisson(0.8, size=(n, p)) * (rng.random((n, p)) < 0.3)
    rows[rng.random(n) < 0.15] = 0
    return sp.csr_array(rows.astype(float))


def all_distances(kept):
    """Squared distances of all kept rows as they are stored, in double precision."""
    rows = kept.take(np.arange(kept.size)).rows
    rows = (rows.toarray() if sp.issparse(rows) else rows).astype(np.float64)
    if isinstance(kept.metric, metrics.Cosine):
        found = naive_graph.cosine(rows, rows)
    elif isinstance(kept.metric, metrics.KernelDistance):
        found = naive_graph.of_kernel(kept.metric.kernel)(rows, rows)
    else:
        found = naive_graph.euclidean(rows, rows)
    np.fill_diagonal(found, np.inf)
    return found


def assert_lists_are_exact(kept, *, relative=0.0, absolute=0.0):
    """Expect the nearest rows to be those of a full sort, and the horizons to be correct.

    ``relative`` and ``absolute`` are the rounding errors of a distance.
    """
    lists = kept.lists
    distances = all_distances(kept)
    for row in range(kept.size):
        size = lists.sizes[row]
        slots = lists.slots[row, :size]
        assert len(set(slots.tolist())) == size
        assert row not in slots
        listed = lists.distances[row, :size].astype(np.float64)
        assert (np.diff(listed) >= 0).all()
        true = distances[row, slots]
        np.testing.assert_array_less(np.abs(listed - true), relative * true + absolute + 1e-35)
        order = np.sort(distances[row][np.isfinite(distances[row])])[:NEIGHBORS]
        assert size >= order.size
        allowed = relative * order + absolute + 1e-35
        np.testing.assert_array_less(np.abs(listed[: order.size] - order), allowed)
        nearer = (1 + relative) * distances[row] + absolute < lists.horizons[row]
        assert set(np.flatnonzero(nearer).tolist()) <= set(slots.tolist())


def rounding(kept):
    """Largest relative and absolute errors of squared distances."""
    if isinstance(kept.metric, metrics.Euclidean):
        return {"relative": 2 * (kept.metric.centre.size + 4) * ROUNDING}
    norms = kept.take(np.arange(kept.size)).norms
    return {"absolute": 64 * ROUNDING * float(norms.max())}


def put_new(kept, rng, make, n_new, n_overwritten, p):
    """Put new rows in new slots, and in random old ones."""
    old = rng.choice(kept.size, min(n_overwritten, kept.size), replace=False)
    slots = np.append(old, kept.size + np.arange(n_new)).astype(np.intp)
    if not slots.size:
        return kept
    rng.shuffle(slots)
    return kept.put(slots, kept.store(make(rng, slots.size, p)))
