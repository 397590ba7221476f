"""Curves of the figures: the test accuracy of a learner after each batch.

A curve is a generator of test accuracies and update times for the batches ``wanted``, in ascending
order. The parameters of a curve are those of the learner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lu_factor, lu_solve
from sklearn.svm import SVC

from paper.data import Array, TrialBatch, TrialStream
from seqmed import SeqGraphMED, SeqLapMED, SeqMED
from seqmed.kernels import RBF, Kernel, TfIdf
from seqmed.margin.laplacian import GraphParameters, find_neighbours, measure_heat_width, smoothness

Parameters = dict[str, Any]


class Score(NamedTuple):
    """Test accuracy after a batch, and the processor time of learning it."""

    accuracy: float
    seconds: float


Curve = Callable[[TrialStream, Parameters, Sequence[int]], Iterator[Score]]
Scorer = Callable[[Array], Array]
"""Maps rows (n, p) to scores (n,) of class 1."""

# Solver tolerance of all learners.
TOL = 1e-3
# Bias and slack prior of the paper; ``lag`` determines which multipliers are optimised together.
PAPER: dict[str, Any] = {"bias": "exact", "window": None, "slack_shape": 1.0}


def accuracy(scores: Array, stream: TrialStream) -> float:
    """Return the test accuracy of scores of class 1."""
    return float(np.mean((scores > 0) == stream.y_test))


def follow(
    make: Callable[[Parameters], Any],
    stream: TrialStream,
    parameters: Parameters,
    wanted: Sequence[int],
) -> Iterator[Score]:
    """Yield the scores of a model that learns the stream batch by batch."""
    model = make(parameters)
    for number, batch in enumerate(stream.batches):
        begun = time.process_time()
        model.partial_fit(batch.X, batch.labels, classes=[0, 1])
        seconds = time.process_time() - begun
        if number in wanted:
            yield Score(accuracy(model.decision_function(stream.X_test), stream), seconds)
        if number == wanted[-1]:
            return


def retrain(
    train: Callable[[TrialBatch, Parameters], Scorer],
    select: Callable[[TrialStream, int], TrialBatch],
    stream: TrialStream,
    parameters: Parameters,
    wanted: Sequence[int],
) -> Iterator[Score]:
    """Yield the scores of models that are refitted for each wanted batch, on selected rows."""
    for number in wanted:
        batch = select(stream, number)
        begun = time.process_time()
        scorer = train(batch, parameters)
        seconds = time.process_time() - begun
        yield Score(accuracy(scorer(stream.X_test), stream), seconds)


def seqmed(parameters: Parameters) -> SeqMED:
    """Return SeqMED with the bias and the slack shape of the paper."""
    return SeqMED("tfidf", tol=TOL, random_state=0, **PAPER, **parameters)


def seqlapmed(parameters: Parameters) -> SeqLapMED:
    """Return SeqLapMED with the bias and the slack shape of the paper."""
    return SeqLapMED(tol=TOL, random_state=0, **PAPER, **parameters)


def seqgraphmed(parameters: Parameters) -> SeqGraphMED:
    """Return SeqGraphMED with a SeqLapMED of these parameters that optimises all multipliers."""
    return SeqGraphMED(seqlapmed({"lag": None, **parameters}), random_state=0)


def med(batch: TrialBatch, parameters: Parameters) -> Scorer:
    """Train MED on one batch with the solver of this package."""
    model = SeqMED("tfidf", tol=TOL, **PAPER, **parameters)
    model.fit(batch.X, batch.y)
    return lambda X: np.asarray(model.decision_function(X))


def tfidf_svm(batch: TrialBatch, parameters: Parameters) -> Scorer:
    """Train scikit-learn's SVC on one batch, with the idf of that batch."""
    kernel = TfIdf().freeze(batch.X, np.ones(len(batch.y)))
    model = SVC(kernel="linear", tol=TOL, **parameters)
    model.fit(np.asarray(kernel.coordinates(batch.X)), batch.y)
    return lambda X: model.decision_function(np.asarray(kernel.coordinates(X)))


def laplacian_machine(
    batch: TrialBatch, parameters: Parameters, *, slack_shape: float = 0.0
) -> Scorer:
    """Train a Laplacian machine on one batch by a dense solve.

    The graph over all rows changes the kernel to
    ``k - k(., X) (I + 2 beta L K)^{-1} 2 beta L k(X, .)``. Only labeled rows have multipliers. With
    ``slack_shape=0`` it is LapSVM, solved by scikit-learn, else LapMED.
    """
    options = dict(parameters)
    bound, beta = options.pop("C"), options.pop("beta")
    rows = np.sort(np.unique(batch.X, axis=0, return_index=True)[1])
    batch = TrialBatch(batch.X[rows], batch.y[rows], batch.shown[rows])
    kernel = RBF(options.pop("gamma")).freeze(batch.X, np.ones(len(batch.y)))
    width = options.pop("heat_width")
    graph_parameters = GraphParameters(
        n_neighbors=options.pop("n_neighbors"),
        weights=options.pop("weights"),
        heat_width=None if width == "auto" else width,
    )
    if options:
        raise ValueError(f"unknown parameters: {sorted(options)}")
    labeled = np.flatnonzero(batch.shown)
    targets = batch.y[labeled]
    if len(set(targets.tolist())) < 2:
        return lambda X: np.full(len(X), 2.0 * float(targets[0]) - 1.0)
    train = kernel(batch.X, batch.X[labeled])
    weights = None
    if beta > 0:
        gram = kernel(batch.X, batch.X)
        penalty = penalty_matrix(kernel, batch.X, graph_parameters, 2.0 * beta)
        system = penalty @ gram
        system[np.diag_indices_from(system)] += 1.0
        weights = lu_solve(lu_factor(system, overwrite_a=True), penalty @ train)
        train = train - gram @ weights
    labeled_gram = train[labeled]
    if slack_shape == 0:
        model: Any = SVC(C=bound, kernel="precomputed", tol=TOL)
    else:
        options = {**PAPER, "slack_shape": slack_shape}
        model = SeqMED("precomputed", C=bound, tol=TOL, **options)
    model.fit(0.5 * (labeled_gram + labeled_gram.T), targets)

    def scores(X: Array) -> Array:
        test = kernel(X, batch.X[labeled])
        if weights is not None:
            test = test - kernel(X, batch.X) @ weights
        return np.asarray(model.decision_function(test))

    return scores


def penalty_matrix(
    kernel: Kernel, X: Array, graph_parameters: GraphParameters, strength: float
) -> Any:
    """Return ``strength * L`` of one graph over all rows, sparse."""
    neighbours = find_neighbours(kernel, X, graph_parameters.n_neighbors)
    if graph_parameters.weights == "heat" and graph_parameters.heat_width is None:
        graph_parameters = replace(graph_parameters, heat_width=measure_heat_width(neighbours))
    return strength * smoothness(neighbours, graph_parameters, strength).laplacian


# Sequential learners.
sequential_med: Curve = partial(follow, seqmed)
sequential_lapmed: Curve = partial(follow, seqlapmed)
graph_mixture: Curve = partial(follow, seqgraphmed)
# Trained on each batch alone.
independent_svm: Curve = partial(retrain, tfidf_svm, TrialStream.alone)
independent_lapsvm: Curve = partial(retrain, laplacian_machine, TrialStream.alone)
# Retrained on all batches so far.
full_svm: Curve = partial(retrain, tfidf_svm, TrialStream.so_far)
full_med: Curve = partial(retrain, med, TrialStream.so_far)
full_lapsvm: Curve = partial(retrain, laplacian_machine, TrialStream.so_far)
full_lapmed: Curve = partial(
    retrain, partial(laplacian_machine, slack_shape=1.0), TrialStream.so_far
)
