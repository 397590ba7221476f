"""Streams of Gaussian classes, the estimators that learn them, and the same by the reference."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from seqmed import SeqLapMED, SeqMED
from seqmed.margin.covariance.spectral import spectrum_of
from seqmed.margin.laplacian import Smoothness
from tests.reference import naive

TOL = 1e-10
# Two solvers stop within 1e-10 of the optimality conditions; through the curvature of the dual and
# four batches this grows to some 1e-9 in a decision value.
SAME_SOLUTION = 1e-8
GAMMA = 0.4
NEIGHBOURS = 4
RECURSIONS = ["exact", "landmarks", "spectral"]
UNLABELED = -1


@dataclass(frozen=True)
class Rows:
    """One batch: labels are class numbers, UNLABELED where missing."""

    points: np.ndarray
    labels: np.ndarray
    weights: np.ndarray

    def part(self, rows):
        return Rows(self.points[rows], self.labels[rows], self.weights[rows])


def make_batch(n, n_labeled, n_classes=2, p=3, seed=0, classes=None):
    """Rows around one overlapping centre per class; ``classes`` are those to draw labels from."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(77).normal(size=(n_classes, p))
    classes = np.arange(n_classes) if classes is None else np.array(classes)
    labels = classes[np.arange(n) % classes.size]
    points = centres[labels] + generator.normal(size=(n, p))
    shown = np.full(n, UNLABELED)
    shown[:n_labeled] = labels[:n_labeled]
    order = generator.permutation(n)
    return Rows(points[order], shown[order], np.ones(n))


def make_stream(n_classes=2, p=3, seed=0):
    sizes = [(22, 10), (18, 8), (25, 9), (20, 12)]
    return [
        make_batch(n, n_labeled, n_classes, p, seed=100 * seed + t)
        for t, (n, n_labeled) in enumerate(sizes)
    ]


def awkward_stream(seed=0):
    """Full, without labels, one class only, a single row, one label, full, full."""
    shapes = [
        (22, 10, None), (15, 0, None), (16, 7, [1]), (1, 1, [0]), (18, 1, None),
        (20, 12, None), (19, 8, None),
    ]  # fmt: skip
    return [
        make_batch(n, n_labeled, seed=100 * seed + t, classes=classes)
        for t, (n, n_labeled, classes) in enumerate(shapes)
    ]


def new_points(n=40, p=3, seed=999):
    return 1.5 * np.random.default_rng(seed).normal(size=(n, p))


def marked(labels, estimator):
    """Return labels as an estimator wants missing ones marked."""
    if isinstance(estimator, SeqLapMED):
        return labels
    return np.where(labels == UNLABELED, np.nan, labels.astype(float))


def learn(estimator, stream, *, wrap=np.asarray, classes=None, weighted=False):
    for rows in stream:
        estimator.partial_fit(
            wrap(rows.points),
            marked(rows.labels, estimator),
            classes=classes,
            sample_weight=rows.weights if weighted else None,
        )
        gap = estimator.duality_gap_
        assert np.isnan(gap) or gap >= 0
    return estimator


def seq_lap(**options):
    settings = {
        "gamma": GAMMA, "beta": 0.5, "n_neighbors": NEIGHBOURS, "tol": TOL, "random_state": 0,
        "lag": 1, "bias": "exact", **options,
    }  # fmt: skip
    return SeqLapMED(**settings)


def seq_med(**options):
    return SeqMED(**{"gamma": GAMMA, "tol": TOL, "lag": 1, "bias": "exact", **options})


# What holds whatever the bias is.
either_bias = pytest.mark.parametrize("bias", ["auto", "exact"])


def smoothings(stream, betas, *, weights="heat"):
    """Return what the batches say of smoothness; the heat width is that of the first."""
    width = naive.auto_heat_width(naive.squared_distances(stream[0].points), NEIGHBOURS)
    return [
        naive.Smoothing(
            rows.points,
            naive.batch_laplacian(
                rows.points,
                n_neighbors=NEIGHBOURS,
                weights=weights,
                width=width,
                kind="normalized",
                power=1,
            ),
            beta,
        )
        for rows, beta in zip(stream, betas, strict=True)
    ]


def kernels_over_time(recursion, kernel, batches):
    """Return the kernel after every batch, landmarks being all points so far."""
    if recursion != "spectral":
        return [naive.unrolled_kernel(kernel, batches[: t + 1]) for t in range(len(batches))]
    # which way singular vectors point is the library's to say, and all that is asked of it here
    no_penalty = Smoothness(sp.csr_array((len(batches[0].points),) * 2), 1.0)
    orientation = spectrum_of(batches[0].points, no_penalty).vectors
    return [
        naive.spectral_kernel(kernel, batches[: t + 1], orientation) for t in range(len(batches))
    ]


def labeled_batches(stream, bound, positive=1):
    bounds = bound if isinstance(bound, list) else [bound] * len(stream)
    batches = []
    for rows, own_bound in zip(stream, bounds, strict=True):
        known = rows.labels != UNLABELED
        signs = np.where(rows.labels[known] == positive, 1.0, -1.0)
        batches.append(
            naive.LabeledBatch(rows.points[known], signs, rows.weights[known], own_bound)
        )
    return batches


def reference_scores(stream, points, kernels, bound=10.0, **options):
    return naive.learn_stream(labeled_batches(stream, bound), kernels, **options).scores(points)


def assert_close(found, expected, tolerance=SAME_SOLUTION):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def dot(left, right):
    products = left @ right.T
    return products.toarray() if sp.issparse(products) else products


def three_class_stream(seed):
    """Class 2 is missing from the first batch, class 0 from the third."""
    return [
        make_batch(20, 10, 3, seed=100 * seed, classes=[0, 1]),
        make_batch(24, 14, 3, seed=100 * seed + 1),
        make_batch(20, 9, 3, seed=100 * seed + 2, classes=[1, 2]),
        make_batch(22, 12, 3, seed=100 * seed + 3),
    ]
