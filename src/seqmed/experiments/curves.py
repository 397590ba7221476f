"""One accuracy per batch: the learners of the paper's figures.

Every curve is a generator of test accuracies, one for each batch ``wanted``, in rising order, so
that progress can be shown and a run cut short. Parameters come as a dictionary and are passed on to
the learner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import lu_factor, lu_solve
from sklearn.svm import SVC

from seqmed import SeqLapMED, SeqMED
from seqmed.arrays import Array, distinct_rows
from seqmed.experiments.data import Batch, Stream
from seqmed.graph import GraphRecipe, find_neighbours, measure_heat_width, smoothness
from seqmed.kernels import RBF, Kernel, TfIdf

Parameters = dict[str, Any]
Curve = Callable[[Stream, Parameters, Sequence[int]], Iterator[float]]

# Solver tolerance of all learners alike.
TOL = 1e-3


def accuracy(scores: Array, stream: Stream) -> float:
    """Return the share of test points on the right side, for scores of class 1."""
    return float(np.mean((scores > 0) == stream.y_test))


def sequential_med(
    stream: Stream, parameters: Parameters, wanted: Sequence[int]
) -> Iterator[float]:
    """SeqMED, which carries its posterior from batch to batch."""
    model = SeqMED("tfidf", tol=TOL, **parameters)
    for number, batch in enumerate(stream.batches):
        model.partial_fit(batch.X, batch.y, classes=[0, 1])
        if number in wanted:
            yield accuracy(model.decision_function(stream.X_test), stream)


def independent_svm(
    stream: Stream, parameters: Parameters, wanted: Sequence[int]
) -> Iterator[float]:
    """A support vector machine trained on each batch alone."""
    for number in wanted:
        yield tfidf_svm(stream.batches[number], stream, parameters)


def full_svm(stream: Stream, parameters: Parameters, wanted: Sequence[int]) -> Iterator[float]:
    """A support vector machine retrained on everything so far, by scikit-learn."""
    for last in wanted:
        yield tfidf_svm(stream.so_far(last), stream, parameters)


def tfidf_svm(batch: Batch, stream: Stream, parameters: Parameters) -> float:
    """Return the test accuracy of scikit-learn's SVC on one batch, idf learned on that batch."""
    kernel = TfIdf().freeze(batch.X, np.ones(len(batch.y)))
    train = np.asarray(kernel.coordinates(batch.X))
    test = np.asarray(kernel.coordinates(stream.X_test))
    model = SVC(kernel="linear", tol=TOL, **parameters).fit(train, batch.y)
    return accuracy(model.decision_function(test), stream)


def full_med(stream: Stream, parameters: Parameters, wanted: Sequence[int]) -> Iterator[float]:
    """MED retrained on everything so far, by our own solver."""
    for last in wanted:
        batch = stream.so_far(last)
        model = SeqMED("tfidf", tol=TOL, **parameters).fit(batch.X, batch.y)
        yield accuracy(model.decision_function(stream.X_test), stream)


def sequential_lapmed(
    stream: Stream, parameters: Parameters, wanted: Sequence[int]
) -> Iterator[float]:
    """SeqLapMED, by the recursion named in the parameters."""
    model = SeqLapMED(tol=TOL, random_state=0, **parameters)
    for number, batch in enumerate(stream.batches):
        model.partial_fit(batch.X, batch.labels, classes=[0, 1])
        if number in wanted:
            yield accuracy(model.decision_function(stream.X_test), stream)


def independent_lapsvm(
    stream: Stream, parameters: Parameters, wanted: Sequence[int]
) -> Iterator[float]:
    """A Laplacian support vector machine trained on each batch alone."""
    for number in wanted:
        yield dense_laplacian(stream.batches[number], stream, parameters, slack_shape=0.0)


def full_lapsvm(stream: Stream, parameters: Parameters, wanted: Sequence[int]) -> Iterator[float]:
    """A Laplacian support vector machine retrained on everything so far."""
    for last in wanted:
        yield dense_laplacian(stream.so_far(last), stream, parameters, slack_shape=0.0)


def full_lapmed(stream: Stream, parameters: Parameters, wanted: Sequence[int]) -> Iterator[float]:
    """Laplacian MED retrained on everything so far."""
    for last in wanted:
        yield dense_laplacian(stream.so_far(last), stream, parameters, slack_shape=1.0)


def dense_laplacian(
    batch: Batch, stream: Stream, parameters: Parameters, *, slack_shape: float
) -> float:
    """Return the test accuracy of a Laplacian machine trained on one batch, the textbook way.

    The graph over all rows deforms the kernel, ``k - k(., X) (I + 2 beta L K)^{-1} 2 beta L
    k(X, .)``, by one dense solve; the dual is then that of the labeled rows. With
    ``slack_shape=0`` it is LapSVM, solved by scikit-learn, else LapMED.
    """
    options = dict(parameters)
    bound, beta = options.pop("C"), options.pop("beta")
    rows = distinct_rows(batch.X)
    batch = Batch(batch.X[rows], batch.y[rows], batch.shown[rows])
    kernel = RBF(options.pop("gamma")).freeze(batch.X, np.ones(len(batch.y)))
    width = options.pop("heat_width")
    recipe = GraphRecipe(
        n_neighbors=options.pop("n_neighbors"),
        weights=options.pop("weights"),
        heat_width=None if width == "auto" else width,
    )
    if options:
        raise ValueError(f"parameters not understood: {sorted(options)}")
    labeled = np.flatnonzero(batch.shown)
    targets = batch.y[labeled]
    train = kernel(batch.X, batch.X[labeled])
    test = kernel(stream.X_test, batch.X[labeled])
    if beta > 0:
        gram = kernel(batch.X, batch.X)
        penalty = penalty_matrix(kernel, batch.X, recipe, 2.0 * beta)
        system = penalty @ gram
        system[np.diag_indices_from(system)] += 1.0
        weights = lu_solve(lu_factor(system, overwrite_a=True), penalty @ train)
        test = test - kernel(stream.X_test, batch.X) @ weights
        train = train - gram @ weights
    labeled_gram = train[labeled]
    if len(set(targets.tolist())) < 2:
        return float(np.mean(stream.y_test == targets[0]))
    if slack_shape == 0:
        model: Any = SVC(C=bound, kernel="precomputed", tol=TOL)
    else:
        model = SeqMED("precomputed", C=bound, slack_shape=slack_shape, tol=TOL)
    model.fit(0.5 * (labeled_gram + labeled_gram.T), targets)
    return accuracy(model.decision_function(test), stream)


def penalty_matrix(kernel: Kernel, X: Array, recipe: GraphRecipe, strength: float) -> Any:
    """Return ``strength * L`` of one graph over all rows, sparse."""
    neighbours = find_neighbours(kernel, X, recipe.n_neighbors)
    if recipe.heat_width is None:
        recipe = replace(recipe, heat_width=measure_heat_width(neighbours))
    return strength * smoothness(neighbours, recipe, strength).laplacian
