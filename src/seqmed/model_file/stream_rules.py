"""What holds for the stream of a fitted classifier, record by record and between records.

A rule is a statement and whether it is true. Each may take for granted those that come before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.arrays import Points
from seqmed.calibration import SLOPES, Calibration
from seqmed.classes import ClassRegistry
from seqmed.covariance import (
    ExactRecursion,
    LandmarkRecursion,
    NystroemRecursion,
    SpectralRecursion,
)
from seqmed.covariance.low_rank import LowRankCovariance
from seqmed.dual import DualSolution
from seqmed.estimators.seqlapmed import SeqLapMED
from seqmed.graph.laplacian import GraphRecipe
from seqmed.kernels import RBF, DCMFisher, Polynomial, Precomputed, TfIdf, make_kernel
from seqmed.labels import is_label_type
from seqmed.model_file.shapes import check_shapes, points_in, records_in
from seqmed.posterior import Posterior, Window
from seqmed.update import UpdateInfo

Rules = Iterator[tuple[str, Any]]

# How each named recursion carries the covariance.
CARRIERS: dict[str, type] = {
    "exact": ExactRecursion,
    "spectral": SpectralRecursion,
    "landmarks": LandmarkRecursion,
}
# More than any stream has; the number of a batch must stay an index.
MOST_BATCHES = 2**53


def stream_rules(began: Any, state: dict[str, Any]) -> Rules:
    """Yield what holds for a stream that began with the parameters of an estimator.

    Parameters
    ----------
    began : SeqMED or SeqLapMED, not fitted, of valid parameters.
    state : the attributes kept of the fitted one, of their types.
    """
    stream, info, width = state["_stream"], state["update_info_"], state["n_features_in_"]
    posterior, book = stream.posterior, stream.book
    kernel, recursion = posterior.covariance.kernel, posterior.recursion
    given = isinstance(began.kernel, str) and began.kernel == "precomputed"
    named = None if given else make_kernel(began.kernel, began.gamma, began.degree, began.coef0)
    yield "the kernel named", type(kernel) is (Precomputed if given else type(named))
    sizes = {"p": 1 if given else width, "features": width, "slopes": SLOPES.size}
    check_shapes((stream, info), {**sizes, "heads": book.n_heads, "window": info.n_window})
    for record in records_in((stream, info)):
        yield from RECORD_RULES.get(type(record), no_rules)(record)
    yield from kernel_rules(kernel)
    yield (
        "points that suit the kernel",
        all(suit(points, kernel, stream.sparse) for points in points_in(posterior)),
    )
    yield "the recursion named", type(recursion) is carrier_of(began, kernel)
    auto = began.bias == "auto"
    yield "machines by the bias named", book.per_class == auto
    variance = 0.0 if auto else float(began.bias_variance)
    yield "the bias variance named", posterior.bias_variance == variance
    biases = (posterior.intercepts, posterior.biases, posterior.bias_means)
    yield "the known bias of -1", not auto or all((each == -1.0).all() for each in biases)
    yield "coefficients for every landmark", posterior.landmarks.size == n_landmarks(recursion)
    signs = posterior.window.signs
    yield "one class for every row", book.n_heads == 1 or ((signs > 0).sum(axis=1) == 1).all()
    found = np.unique(book.own_classes(signs), return_counts=True)
    yield "as many labels as the window holds", holds(book, *found)
    yield "one solution for every head", len(info.solutions) == book.n_heads


def holds(book: ClassRegistry, classes: NDArray[np.intp], counts: NDArray[np.intp]) -> bool:
    """Whether a book has counted so many labels of these classes, by their places."""
    known = (classes < book.classes.size).all()
    return bool(known and (book.counts[classes] >= counts).all())


def carrier_of(began: Any, kernel: Any) -> type:
    """Return the class of the recursion that a stream begins with."""
    if isinstance(began, SeqLapMED):
        return CARRIERS[began.recursion]
    return ExactRecursion if began.budget is None or kernel.compact else NystroemRecursion


def n_landmarks(recursion: Any) -> int:
    """Return the number of landmarks."""
    return 0 if recursion.landmarks is None else recursion.landmarks.shape[0]


def no_rules(record: Any) -> Rules:
    """Yield nothing: types and sizes are all there is to say."""
    yield from ()


def suit(points: Points, kernel: Any, sparse: bool) -> bool:
    """Whether points are of the format and the values that a kernel is for; all are finite."""
    if isinstance(kernel, Precomputed):
        whole = isinstance(points, np.ndarray) and points.dtype == np.intp
        return whole and bool(((points >= 0) & (points < kernel.gram.shape[0])).all())
    if points.dtype != np.float64:
        return False
    if sp.issparse(points) != sparse and not kernel.compact:  # explicit weights are always dense
        return False
    if not isinstance(kernel, TfIdf | DCMFisher):
        return True
    values = points.data if sp.issparse(points) else points
    return bool((values >= 0).all())


def kernel_rules(kernel: Any) -> Rules:
    """Yield what holds for a kernel once it is frozen."""
    if isinstance(kernel, RBF | Polynomial):
        yield "a kernel with a gamma > 0", is_positive(kernel.gamma)
    if isinstance(kernel, Polynomial):
        yield "a degree >= 1 and coef0 >= 0", kernel.degree >= 1 and 0 <= kernel.coef0 < np.inf
    if isinstance(kernel, TfIdf):
        yield "idf weights", kernel.idf is not None
    if isinstance(kernel, DCMFisher):
        yield "a known information", kernel.information in ("identity", "diagonal")
        for values in (kernel.concentrations, kernel.precisions):
            yield "positive concentrations", values is not None and (values > 0).all()


def is_positive(value: Any) -> bool:
    """Whether a value is a positive finite number."""
    return isinstance(value, Real) and 0 < float(value) < np.inf


def posterior_rules(posterior: Posterior) -> Rules:
    """Yield what holds for a posterior."""
    yield "a mean", len(posterior.mean_parts) > 0
    yield "a bias variance >= 0", posterior.bias_variance >= 0
    yield "counts of solutions >= 0", (posterior.solved >= 0).all()
    yield "errors >= 0", (posterior.projection_errors >= 0).all()
    yield "window of batches learned", (posterior.window.batches < posterior.n_batches).all()
    yield "a number of batches that can be counted", 0 <= posterior.n_batches < MOST_BATCHES


def window_rules(window: Window) -> Rules:
    """Yield what holds for a window."""
    yield "signs that are -1 or 1", (np.abs(window.signs) == 1).all()
    yield "bounds and weights > 0", ((window.bounds > 0) & (window.weights > 0)).all()
    yield "discounted weights >= 0", (window.discounted >= 0).all()
    shapes = window.shapes
    yield "slack shapes from 0 to the bounds", ((shapes >= 0) & (shapes <= window.bounds)).all()
    yield "batches numbered from 0", (window.batches >= 0).all()


def graph_rules(graph: GraphRecipe) -> Rules:
    """Yield what holds for a graph's recipe."""
    yield "neighbours and powers >= 1", graph.n_neighbors >= 1 and graph.power >= 1
    yield "known edge weights", graph.weights in ("heat", "binary")
    yield "a known Laplacian", graph.laplacian in ("normalized", "unnormalized")
    yield "a heat width > 0", graph.heat_width is None or graph.heat_width > 0


def landmark_rules(recursion: LandmarkRecursion) -> Rules:
    """Yield what holds for the landmark recursion."""
    size, keys = n_landmarks(recursion), recursion.keys
    yield "keys for landmarks", (keys is None) == (recursion.basis is None)
    yield "one key for each landmark", keys is None or keys.size == size
    yield "as many landmarks as asked for at most", max(size, 1) <= recursion.capacity
    yield "seed and count >= 0", recursion.seed >= 0 and recursion.n_folds >= 0
    counts = recursion.n_waiting, recursion.n_seen
    yield "numbers of points waiting and seen", 0 <= counts[0] <= counts[1] < np.inf
    reduction = recursion.covariance.reduction
    yield "a reduction on the landmarks", reduction is None or reduction.landmarks.shape[0] == size


def nystroem_rules(recursion: NystroemRecursion) -> Rules:
    """Yield what holds for the recursion by Nystroem features."""
    size, covariance = n_landmarks(recursion), recursion.covariance
    plain = isinstance(covariance, LowRankCovariance) and covariance.reduction is None
    yield "a covariance on landmarks, once there are any", plain if size == 0 else not plain
    yield "as many landmarks as asked for at most", max(size, 1) <= recursion.capacity
    yield "seed and count >= 0", recursion.seed >= 0 and recursion.n_calls >= 0
    yield "a number of labels seen", 0 <= recursion.n_seen < np.inf


def spectral_rules(recursion: SpectralRecursion) -> Rules:
    """Yield what holds for the spectral recursion."""
    spectrum = recursion.spectrum
    yield "a spectrum once there are batches", (spectrum is None) == (recursion.n_folds == 0)
    yield "a strength and a count >= 0", 0 <= recursion.strength < np.inf and recursion.n_folds >= 0
    if spectrum is not None:
        yield "Laplacian values >= 0", (spectrum.laplacian_values >= 0).all()
        yield "a count of batches", spectrum.count >= 1


def book_rules(book: ClassRegistry) -> Rules:
    """Yield what holds for a registry of classes."""
    classes = book.classes
    yield "labels of a type that can be learned", is_label_type(classes.dtype)
    yield "classes in order, each once", (classes[1:] > classes[:-1]).all()
    yield "counts and weights >= 0", ((book.counts >= 0) & (book.weights >= 0)).all()
    yield "discounted weights >= 0", (book.discounted >= 0).all()


def calibration_rules(calibration: Calibration) -> Rules:
    """Yield what holds for the record of scores."""
    yield "a record of a weight >= 0", 0 <= calibration.n_scored < np.inf


def info_rules(info: UpdateInfo) -> Rules:
    """Yield what holds for the report of a step."""
    yield "counts >= 0", min(info.n_points, info.n_labeled, info.n_window) >= 0


def solution_rules(solution: DualSolution) -> Rules:
    """Yield what holds for the solution of a dual."""
    yield "a known status", solution.status in ("converged", "max_iter", "rounding")
    yield "a count of steps >= 0", solution.n_iter >= 0


RECORD_RULES: dict[type, Callable[[Any], Rules]] = {
    Posterior: posterior_rules,
    Window: window_rules,
    GraphRecipe: graph_rules,
    LandmarkRecursion: landmark_rules,
    SpectralRecursion: spectral_rules,
    NystroemRecursion: nystroem_rules,
    ClassRegistry: book_rules,
    Calibration: calibration_rules,
    UpdateInfo: info_rules,
    DualSolution: solution_rules,
}
