"""The margin learner: parameters, state and updates of SeqMED and SeqLapMED.

The posterior after one batch is the prior of the next. The functions expect validated rows and
change nothing in place.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from seqmed.classes import UNLABELED, ClassCounts, Rows, no_classes
from seqmed.kernels import Kernel, Precomputed
from seqmed.late_rows import equal_rows
from seqmed.margin import calibration, covariance, update
from seqmed.margin.calibration import Calibration
from seqmed.margin.covariance.exact import ExactRecursion, LowRankCovariance, Recursion
from seqmed.margin.covariance.nystroem import NystroemRecursion, nystroem_covariance
from seqmed.margin.laplacian import GraphParameters
from seqmed.margin.posterior import Posterior, prior_of, with_machines
from seqmed.margin.update import Batch, Settings, UpdateInfo
from seqmed.numeric.arrays import Array, Indices, Mask, Points, check_overflow, no_rows, take_rows
from seqmed.numeric.execution import callers_level, threads_for, threads_to_score

# Smallest C, and largest C and beta. These limits keep products with C and beta, and quotients,
# within the range of doubles.
SMALLEST_BOUND, LARGEST_PENALTY = 1e-100, 1e100
# Largest number of labels in one dual with a budget, as a multiple of the kept labeled rows; and
# the number of labels that SeqMED never divides.
LABELS_AT_ONCE, FEWEST_AT_ONCE = 4, 2000


class Smoothing(NamedTuple):
    """Parameters of SeqLapMED that SeqMED does not have.

    Attributes
    ----------
    beta : smoothness weight.
    gammas : gamma_A and gamma_I of the paper, which replace C and beta; None without them.
    graph : the graph of a batch.
    recursion : name of the recursion of the covariance.
    n_landmarks : largest number of landmarks.
    """

    beta: float
    gammas: tuple[float, float] | None
    graph: GraphParameters
    recursion: str
    n_landmarks: int


@dataclass(frozen=True)
class MarginParameters:
    """Parameters of the margin learner. SeqMED and SeqLapMED describe them and have the defaults.

    Parameters
    ----------
    kernel : the kernel before the first batch; None for a precomputed one.
    slack_shape : shape of the slack prior; None for min(1, C / 2).
    class_weight : (K,) weights of the classes, "balanced", or None.
    smoothing : parameters of SeqLapMED; None in SeqMED.
    """

    kernel: Kernel | None
    C: float
    slack_shape: float | None
    bias: str
    window: int | None
    lag: int | None
    averaging: bool
    forgetting: float
    budget: int | None
    class_weight: Any
    tol: float
    max_iter: int
    smoothing: Smoothing | None = None

    @property
    def n_landmarks(self) -> int:
        """Largest number of landmarks."""
        if self.smoothing is None:
            return 0 if self.budget is None else self.budget // 2
        most = self.smoothing.n_landmarks
        return most if self.budget is None else min(most, self.budget // 2)

    @property
    def capacity(self) -> int | None:
        """Number of labeled rows kept within the budget; None for all."""
        return None if self.budget is None else self.budget - self.n_landmarks

    @property
    def labels_at_once(self) -> int | None:
        """Largest number of labels in one dual; None for any number."""
        if self.capacity is None:
            return None
        fewest = FEWEST_AT_ONCE if self.smoothing is None else 0
        return max(fewest, LABELS_AT_ONCE * self.capacity)


class MarginState(NamedTuple):
    """The state of the margin learner.

    Attributes
    ----------
    posterior : Gaussian over the functions of all machines.
    counts : labels of every class so far.
    calibration : record of earlier scores, for probabilities; None if nothing is recorded.
    """

    posterior: Posterior
    counts: ClassCounts
    calibration: Calibration | None


# -- the first batch -------------------------------------------------------------------------------


def begin(
    parameters: MarginParameters, rows: Rows, seed: int, *, calibrated: bool = True
) -> MarginState:
    """Return the state before the first batch, ``rows``, on which the kernel is measured.

    With ``bias="auto"`` there is one machine per class with a known bias of -1. Otherwise the prior
    of the bias is diffuse.
    """
    if parameters.kernel is None:
        assert rows.gram is not None
        kernel: Kernel = Precomputed(rows.gram)
    else:
        kernel = parameters.kernel.freeze(rows.points, rows.weights)
    per_class = parameters.bias == "auto"
    smoothing = parameters.smoothing
    graph = GraphParameters() if smoothing is None else smoothing.graph
    recursion = first_recursion(parameters, kernel, rows.points, seed)
    posterior = prior_of(recursion, graph, rows.points, per_class)
    record = Calibration() if calibrated else None
    return MarginState(posterior, no_classes(per_class), record)


def first_recursion(
    parameters: MarginParameters, kernel: Kernel, points: Points, seed: int
) -> Recursion:
    """Return the covariance before the first batch."""
    n_landmarks, smoothing = parameters.n_landmarks, parameters.smoothing
    if smoothing is not None:
        if smoothing.recursion == "spectral" and (sp.issparse(points) or not kernel.on_vectors):
            got = "sparse X" if sp.issparse(points) else f"a {type(kernel).__name__} kernel"
            raise ValueError(
                f"recursion='spectral' got {got}, expected dense X and a kernel on real vectors: "
                "it evaluates the kernel on singular vectors of X. Use recursion='landmarks' or "
                "'exact'."
            )
        return covariance.make_recursion(
            smoothing.recursion, kernel, n_landmarks=n_landmarks, seed=seed
        )
    if parameters.budget is None or kernel.compact:
        return ExactRecursion(LowRankCovariance(kernel))
    return NystroemRecursion(nystroem_covariance(kernel, no_rows(points)), n_landmarks, seed)


def with_classes(state: MarginState, places: Indices, declared: Mask) -> MarginState:
    """Return the state with class c moved to ``places[c]``; -1 drops it.

    ``declared`` (K,) is the mask of the classes afterwards that were declared.
    """
    return with_counts(state, places, state.counts.with_classes(places, declared))


def with_counts(state: MarginState, places: Indices, counts: ClassCounts) -> MarginState:
    """Return the state with a machine for every class of other counts."""
    posterior = state.posterior
    if not np.array_equal(places, np.arange(counts.size)):
        transfer, offsets = state.counts.transfer(places, counts)
        posterior = with_machines(posterior, transfer, offsets)
    return state._replace(posterior=posterior, counts=counts)


# -- updates ---------------------------------------------------------------------------------------


def learn(
    state: MarginState, rows: Rows, parameters: MarginParameters, *, new_points: bool
) -> tuple[MarginState, UpdateInfo]:
    """Learn a batch, or late labels if its points are not new."""
    labeled = rows.labeled
    settings = settings_of(
        parameters, float(rows.weights[labeled].sum()), float(rows.weights.sum())
    )
    infos: list[UpdateInfo] = []
    for part in label_parts(rows, state.posterior.n_batches, parameters.labels_at_once):
        first = new_points and not infos
        state, info = learn_part(state, part, settings, parameters.class_weight, first)
        warn_unless_converged(info, parameters.tol)
        infos.append(info)
    info = infos[-1].after(infos[:-1])
    return state, info._replace(C=settings.C, beta=settings.beta)


def label_parts(rows: Rows, seed: int, most: int | None) -> Iterator[Rows]:
    """Yield the batch in parts of at most ``most`` labels, in random order.

    The first part has all rows, so that the batch has one graph. The labels of the other parts are
    learned as late labels.
    """
    places = np.flatnonzero(rows.labeled)
    if most is None or places.size <= most:
        yield rows
        return
    order = np.random.default_rng(seed).permutation(places.size)
    for start in range(0, order.size, most):
        chosen = places[order[start : start + most]]
        codes = np.full(rows.codes.size, UNLABELED)
        codes[chosen] = rows.codes[chosen]
        yield rows._replace(codes=codes)


def learn_part(
    state: MarginState, rows: Rows, settings: Settings, class_weight: Any, new_points: bool
) -> tuple[MarginState, UpdateInfo]:
    """Learn a part of a batch, or late labels.

    The calibration records the scores of labeled rows under the posterior before the update. It is
    updated last, because the update decides whether earlier labels are discounted.
    """
    before, labeled = state, np.flatnonzero(rows.labeled)
    points, codes, weights = rows.points, rows.codes[labeled], rows.weights[labeled]
    counts = state.counts.add(codes, weights)
    if not new_points:
        points, labeled = take_rows(points, labeled), np.arange(labeled.size)
    batch = Batch(
        points=points,
        labeled=labeled,
        targets=counts.targets(codes),
        weights=weights,
        class_weights=counts.class_weights(class_weight)[codes],
    )
    record, posterior = state.calibration, state.posterior
    scored = record is not None and bool(labeled.size) and before.counts.seen.sum() > 1
    rows_at_once = max(points.shape[0], posterior.size)
    with threads_for(rows_at_once, posterior.recursion.capacity):
        if scored:
            geometry = posterior.landmark_geometry(batch.labeled_points)
            batch = replace(batch, geometry=geometry)
        step = update.step if new_points else update.add_labels
        posterior, info = step(posterior, batch, settings)
        left = settings.forgetting if info.forgot else 1.0
        counts = counts.discount(left, codes, weights)
        if record is not None:
            record = record.forget(left)
        if record is not None and scored:
            with np.errstate(over="ignore", invalid="ignore"):
                values = before.posterior.mean(batch.labeled_points, batch.geometry)
            record = calibration.record(record, before.counts, values, codes, weights)
    return MarginState(posterior, counts, record), info


def find_labels(
    state: MarginState, points: Points, codes: Indices | None, parameters: MarginParameters
) -> Mask:
    """Return a mask of the rows of the window whose labels are to be retracted.

    The rows of the window equal ``points``, and have the classes ``codes`` unless this is None. If
    several rows equal a point, the newest one is found; a point that occurs twice is found twice.
    """
    check_retractable(parameters)
    window = state.posterior.window
    classes = state.counts.own_classes(window.signs)
    found = np.zeros(window.size, dtype=bool)
    for row, equal in enumerate(equal_rows(window.points, points)):
        fitting = equal[~found[equal]]
        if codes is not None:
            fitting = fitting[classes[fitting] == codes[row]]
        if not fitting.size:
            budget = "" if parameters.budget is None else f"budget={parameters.budget}, "
            raise ValueError(
                f"row {row} of X is not among the {window.size} labeled rows in the window "
                f"({budget}window={parameters.window}, lag={parameters.lag}), expected one of "
                "them, with the values and the label it was learned with: the multipliers of all "
                "other rows are frozen. To keep all rows, start a new model with window=None, "
                "lag=None and budget=None."
            )
        found[fitting[-1]] = True
    return found


class MarginRetraction(NamedTuple):
    """The outcome of a retraction of labels.

    Attributes
    ----------
    state, info : the state without the labels, and its report.
    kept : (K,) mask of the classes that are kept.
    """

    state: MarginState
    info: UpdateInfo
    kept: Mask


def retract(
    state: MarginState, rows: Mask, parameters: MarginParameters, kept: Mask | None = None
) -> MarginRetraction:
    """Retract the labels of some rows of the window, by a mask (n,).

    ``kept`` (K,) are the classes to keep; None keeps those with labels and the declared ones.
    """
    labeled = state.posterior.window.take(rows)
    settings = settings_of(parameters, 0.0, float(labeled.weights.sum()))
    codes = state.counts.own_classes(labeled.signs)
    counts = state.counts.remove(codes, labeled.weights, labeled.discounted)
    kept = counts.kept if kept is None else kept
    places = np.where(kept, np.cumsum(kept) - 1, -1)
    batch = Batch(
        points=labeled.points,
        labeled=np.arange(labeled.size),
        targets=labeled.signs,
        weights=labeled.weights,
        class_weights=np.ones(labeled.size),
    )
    state = with_counts(state, places, counts.with_classes(places, counts.declared[kept]))
    with threads_for(state.posterior.size):
        posterior, info = update.remove_labels(state.posterior, batch, rows, settings)
    warn_unless_converged(info, parameters.tol)
    return MarginRetraction(state._replace(posterior=posterior), info, kept)


def check_retractable(parameters: MarginParameters) -> None:
    """Refuse a retraction if past means are averaged."""
    if parameters.averaging:
        raise ValueError(
            "retract got averaging=True, expected False: the running mean of past posterior "
            "means depends on the labels. Start a new model with averaging=False."
        )


# -- scores ----------------------------------------------------------------------------------------


def machine_scores(state: MarginState, points: Points) -> Array:
    """Return the posterior mean of every machine at every row, (n, machines)."""
    posterior = state.posterior
    threads = threads_to_score(points.shape[0], posterior.size)
    with threads, np.errstate(over="ignore", invalid="ignore"):
        scores = posterior.mean(points)
    check_overflow(scores)
    return scores


def unscaled_scores(state: MarginState, points: Points) -> Array:
    """Return class scores (n, K), not divided by roots of label counts; 0 before any label."""
    if not state.counts.seen.any():
        return np.zeros((points.shape[0], state.counts.size))
    return state.counts.unscaled(machine_scores(state, points))


def summed_size(state: MarginState, points: Points) -> float:
    """Return the root mean square of the sum of ``|term|`` over the terms of an unscaled score."""
    sizes = state.posterior.summed_sizes(points)
    return float(np.sqrt(np.mean(sizes**2))) + 1.0  # `unscaled` adds 1


# -- parameters of one update ----------------------------------------------------------------------


def settings_of(parameters: MarginParameters, labeled_weight: float, weight: float) -> Settings:
    """Return the settings of an update, given the weights of its labeled rows and of all rows."""
    C, beta = penalties(parameters, labeled_weight, weight)
    return Settings(
        C=C,
        slack_shape=slack_shape_of(parameters, C),
        beta=float(beta),
        bias=parameters.bias,
        tol=parameters.tol,
        max_iter=parameters.max_iter,
        lag=parameters.lag,
        window=parameters.window,
        averaging=parameters.averaging,
        forgetting=parameters.forgetting,
        capacity=parameters.capacity,
    )


def penalties(
    parameters: MarginParameters, labeled_weight: float, weight: float
) -> tuple[float, float]:
    """Return C and beta of a batch, given the total weights of labeled rows and of all rows."""
    smoothing = parameters.smoothing
    if smoothing is None or smoothing.gammas is None:
        beta = 0.0 if smoothing is None else smoothing.beta
        check_penalty(beta, f"beta={beta:g}")
        return checked_bound(parameters, parameters.C, f"C={parameters.C:g}"), beta
    gamma_A, gamma_I = smoothing.gammas
    given = f"gamma_A={gamma_A:g}, gamma_I={gamma_I:g}"
    beta = 0.5 * gamma_I / gamma_A / weight / weight
    check_penalty(beta, f"{given} with {weight:g} rows makes beta={beta:g}")
    if labeled_weight == 0:
        return np.inf, beta
    C = 0.5 / labeled_weight / gamma_A
    origin = f"gamma_A={gamma_A:g} with {labeled_weight:g} labels makes C={C:g}"
    return checked_bound(parameters, C, origin), beta


def check_penalty(value: float, origin: str) -> None:
    """Refuse a C or beta whose products would overflow; ``origin`` describes it in the error."""
    if not float(value) <= LARGEST_PENALTY:
        raise ValueError(f"{origin}, expected at most {LARGEST_PENALTY:g}: lower the value.")


def slack_shape_of(parameters: MarginParameters, C: float) -> float:
    """Return the slack shape of a row of weight 1 whose multiplier has the bound C."""
    return min(1.0, 0.5 * C) if parameters.slack_shape is None else parameters.slack_shape


def checked_bound(parameters: MarginParameters, C: float, origin: str) -> float:
    """Return C; refuse it if it does not exceed a given slack shape, or is extreme."""
    check_penalty(C, origin)
    if C < SMALLEST_BOUND:
        raise ValueError(f"{origin}, expected at least {SMALLEST_BOUND:g}: raise C.")
    shape = slack_shape_of(parameters, C)
    if shape >= C:
        raise ValueError(
            f"{origin}, expected C > slack_shape={shape:g}: otherwise all multipliers are 0 and "
            "nothing can be learned. Raise C, lower slack_shape, or set slack_shape='auto'."
        )
    return C


def warn_unless_converged(info: UpdateInfo, tol: float) -> None:
    """Warn if a dual of the update was not solved to ``tol``."""
    worst = max(info.solved, key=lambda solution: solution.violation, default=None)
    if worst is None or worst.status == "converged":
        return
    remedy = {
        "max_iter": "Raise max_iter, raise tol, or scale the features",
        "rounding": "No further progress in double precision: scale the features, or raise tol",
    }[worst.status]
    warnings.warn(
        f"the dual was not solved to tol={tol:g}: the KKT violation is {worst.violation:.3g}, the "
        f"duality gap {worst.gap:.3g} ({worst.relative_gap:.1e} of the objective) after "
        f"{worst.n_iter} iterations. {remedy}.",
        ConvergenceWarning,
        stacklevel=callers_level(),
    )
