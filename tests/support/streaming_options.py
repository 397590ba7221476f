"""Estimators with a lag, averaging or forgetting, and their kernels by the reference."""

import numpy as np

from tests.reference import naive
from tests.support.gaussian_streams import (
    GAMMA,
    learn,
    new_points,
    seq_lap,
    seq_med,
    smoothings,
)

LAGS = [1, 2, 3, None]
# Landmarks that are all points are exact, and take another path through the code.
CARRIERS = [None, "exact", "landmarks"]
BOUNDS = [10.0, 4.0, 7.0, 20.0, 3.0, 10.0, 5.0]


def rbf(left, right):
    """naive.rbf(GAMMA) without its loops: these tests ask for many kernel values."""
    differences = left[:, None, :] - right[None, :, :]
    return np.exp(-GAMMA * (differences**2).sum(axis=2))


def make(carrier, **options):
    """Return SeqMED, or SeqLapMED with the named recursion."""
    return seq_med(**options) if carrier is None else seq_lap(recursion=carrier, **options)


def papers(estimator, **options):
    """Return an estimator of the paper's recursion but for the options."""
    return estimator(**{"lag": 1, "bias": "exact", **options})


def kernels_of(carrier, stream, forgetting=None):
    """Return the kernel after every batch, old penalties discounted by ``forgetting`` (list)."""
    if carrier is None:
        return [rbf] * len(stream)
    batches = smoothings(stream, [0.5] * len(stream))
    shares = [1.0] * len(stream) if forgetting is None else forgetting
    return [
        naive.unrolled_kernel(rbf, naive.discounted(batches[: t + 1], shares))
        for t in range(len(stream))
    ]


def learn_with(model, stream, *, wrap=np.asarray, classes=None, **changing):
    """Yield the model after every batch; ``changing`` gives parameters their value per batch."""
    for t, rows in enumerate(stream):
        model.set_params(**{name: values[t] for name, values in changing.items()})
        yield learn(model, [rows], wrap=wrap, classes=classes)


def scores_of(model, wrap=np.asarray):
    """Return decision values (n, machines)."""
    return model.decision_function(wrap(new_points())).reshape(40, -1)
