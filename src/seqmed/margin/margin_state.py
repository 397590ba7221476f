"""The margin learner: parameters, state and updates of SeqMED and SeqLapMED.

The posterior after one batch is the prior of the next. The functions expect validated rows and
change nothing in place.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from seqmed.classes import UNLABELED, ClassCounts, Rows, no_classes
from seqmed.kernels import Kernel, Precomputed, Sums
from seqmed.late_rows import NO_LABEL, OTHER_LABEL, TOO_OFTEN, equal_rows
from seqmed.margin import calibration, covariance, update
from seqmed.margin.calibration import Calibration
from seqmed.margin.covariance.exact import ExactRecursion, LowRankCovariance, Recursion
from seqmed.margin.covariance.nystroem import NystroemRecursion, nystroem_covariance
from seqmed.margin.posterior import (
    Posterior,
    ScoresOfBoth,
    Window,
    begin_running_mean,
    prior_of,
    with_machines,
)
from seqmed.margin.update import MarginParameters, UpdateInfo
from seqmed.numeric.arrays import Array, Indices, Mask, Points, check_overflow, no_rows, take_rows
from seqmed.numeric.execution import callers_level, threads_for, threads_to_score
from seqmed.numeric.expectations import expect

# Smallest C, and largest C and beta. These limits keep products with C and beta, and quotients,
# within the range of doubles.
SMALLEST_BOUND, LARGEST_PENALTY = 1e-100, 1e100


class MarginState(NamedTuple):
    """The state of the margin learner; without a calibration, scores are not recorded."""

    posterior: Posterior
    counts: ClassCounts
    calibration: Calibration | None

    @property
    def kept(self) -> Points:
        """Kept rows in the format of the stream, or a precomputed kernel matrix."""
        kernel = self.posterior.covariance.kernel
        return kernel.gram if isinstance(kernel, Precomputed) else self.posterior.window.points

    def validate(self) -> None:
        """Raise a ValueError if the machines are not those of the classes."""
        counts, window = self.counts, self.posterior.window
        expect(self.posterior.biases.size == counts.n_machines, "a machine for every class")
        expect(counts.size or not window.size, "known classes in the window")


# -- the first batch -------------------------------------------------------------------------------


def begin(
    parameters: MarginParameters, rows: Rows, seed: int, *, calibrated: bool = True
) -> MarginState:
    """Return the state before the first batch, ``rows``, on which the kernel is measured."""
    if parameters.kernel is None:
        assert rows.gram is not None
        kernel: Kernel = Precomputed(rows.gram)
    else:
        kernel = parameters.kernel.freeze(rows.points, rows.weights)
    per_class = parameters.bias == "auto"
    recursion = first_recursion(parameters, kernel, rows.points, seed)
    posterior = prior_of(recursion, parameters.graph, rows.points, per_class)
    record = Calibration() if calibrated else None
    return MarginState(posterior, no_classes(per_class), record)


def first_recursion(
    parameters: MarginParameters, kernel: Kernel, points: Points, seed: int
) -> Recursion:
    """Return the covariance before the first batch."""
    n_landmarks, name = parameters.n_landmarks, parameters.recursion
    if name == "spectral" and (sp.issparse(points) or not kernel.on_vectors):
        got = "sparse X" if sp.issparse(points) else f"a {type(kernel).__name__} kernel"
        raise ValueError(
            f"recursion='spectral' got {got}, expected dense X and a kernel on real vectors: it "
            "evaluates the kernel on singular vectors of X. Use recursion='landmarks' or 'exact'."
        )
    if name is not None:
        return covariance.make_recursion(name, kernel, n_landmarks=n_landmarks, seed=seed)
    if parameters.budget is None or kernel.compact:
        return ExactRecursion(LowRankCovariance(kernel))
    return NystroemRecursion(nystroem_covariance(kernel, no_rows(points)), n_landmarks, seed)


def with_classes(state: MarginState, places: Indices, declared: Mask) -> MarginState:
    """Return the state with class c moved to ``places[c]``; -1 drops it.

    ``declared`` (K,) is the mask of the classes afterwards that were declared.
    """
    counts, posterior = state.counts.with_classes(places, declared), state.posterior
    if not np.array_equal(places, np.arange(counts.size)):
        posterior = with_machines(posterior, *state.counts.transfer(places, counts))
    return state._replace(posterior=posterior, counts=counts)


# -- updates ---------------------------------------------------------------------------------------


def learn(
    state: MarginState, rows: Rows, parameters: MarginParameters, *, new_points: bool
) -> tuple[MarginState, UpdateInfo]:
    """Learn a batch, or late labels if its points are not new."""
    labeled = rows.labeled
    parameters = for_batch(
        parameters, float(rows.weights[labeled].sum()), float(rows.weights.sum())
    )
    parts = label_parts(rows, state.posterior.n_batches, parameters.labels_at_once)
    for number, part in enumerate(parts):
        state, info = learn_part(state, part, parameters, new_points and number == 0)
        warn_unless_converged(info, parameters.tol)
    return state, info._replace(
        n_points=rows.points.shape[0],
        n_labeled=int(labeled.sum()),
        C=parameters.C,
        beta=parameters.beta,
    )


def label_parts(rows: Rows, seed: int, most: int | None) -> Iterator[Rows]:
    """Yield the batch in parts of at most ``most`` labels, in random order."""
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
    state: MarginState, rows: Rows, parameters: MarginParameters, new_points: bool
) -> tuple[MarginState, UpdateInfo]:
    """Learn a part of a batch, or late labels, and record the scores of labeled rows before it.

    The record comes last, because the update decides whether earlier labels are discounted.
    """
    labeled, before, record = rows.labeled, state.posterior, state.calibration
    points, codes = take_rows(rows.points, labeled), rows.codes[labeled]
    weights = rows.weights[labeled]
    counts = state.counts.add(codes, weights)
    signs = counts.targets(codes)
    nothing = np.zeros_like(signs)
    bounding = weights * counts.class_weights(parameters.class_weight)[codes]
    entering = Window(
        points=points,
        coefficients=nothing,
        averages=nothing,
        frozen_scores=nothing,
        signs=signs,
        bounds=parameters.C * bounding,
        shapes=parameters.shape * bounding,
        weights=weights,
        discounted=weights,
        batches=np.full(codes.size, before.n_batches - (0 if new_points else 1)),
    )
    scored = record is not None and bool(codes.size) and state.counts.seen.sum() > 1
    rows_at_once = max(rows.points.shape[0] if new_points else codes.size, before.size)
    with threads_for(rows_at_once, before.recursion.capacity):
        geometry = None
        if scored and before.covariance.on_landmarks:
            geometry = before.covariance.on_window(points, before.landmarks.points)
        prior, both = before, None
        if codes.size and parameters.averages_when_full:
            if before.running is not None:
                with np.errstate(over="ignore", invalid="ignore"):
                    both = before.scores_of_both(points, geometry)
            prior = with_running_mean(state, counts, entering, parameters, both)
        every = rows.points if new_points else None
        posterior, info, left = update.step(
            prior, every, entering, parameters, geometry, None if both is None else both.frozen
        )
        counts = state.counts.forget(left).add(codes, weights)
        if record is not None:
            record = record.forget(left)
        if record is not None and scored:
            if both is not None and before.running is not None:
                values = both.newest if before.running.newest_leads else both.averaged
            else:
                with np.errstate(over="ignore", invalid="ignore"):
                    values = before.mean(points, geometry)
            record = calibration.record(record, state.counts, values, codes, weights)
    return MarginState(posterior, counts, record), info


def with_running_mean(
    state: MarginState,
    counts: ClassCounts,
    entering: Window,
    parameters: MarginParameters,
    both: ScoresOfBoth | None,
) -> Posterior:
    """Return the posterior with a running mean, if it begins or has begun, before labels enter.

    ``counts`` are all labels, with these. ``both`` are the scores of the labeled rows by the newest
    mean and by the running mean, if there is one: they are compared. If a class has its first
    label, the running mean starts again, because no earlier mean has the class.
    """
    posterior, known, running = state.posterior, state.counts, state.posterior.running
    if running is None or both is None:
        full = update.overflows(posterior.window, entering, parameters, int(known.counts.sum()))
        return begin_running_mean(posterior) if full else posterior
    if (counts.seen & ~known.seen).any():
        return replace(posterior, running=running.restarted())
    codes = counts.own_classes(entering.signs)
    newest = known.best(known.class_scores(both.newest)) == codes
    averaged = known.best(known.class_scores(both.averaged)) == codes
    return replace(posterior, running=running.compared(newest, averaged))


def find_labels(
    state: MarginState,
    points: Points,
    codes: Indices | None,
    parameters: MarginParameters,
    *,
    required: bool = True,
    unlabeled: Callable[[int], bool] = lambda row: False,
) -> Mask:
    """Return a mask of the newest rows of the window that equal ``points``, and have these codes.

    A point that occurs twice is found twice. Without ``codes`` the classes do not matter. A point
    that is not found is refused if ``required``, and left out otherwise. ``unlabeled`` tells
    whether a point is known to have no label.
    """
    if parameters.averaging is True:
        raise ValueError(
            "retract got averaging=True, expected 'auto' or False: the running mean of past "
            "posterior means depends on the labels. Start a new model with averaging='auto'."
        )
    window = state.posterior.window
    classes = state.counts.own_classes(window.signs)
    found = np.zeros(window.size, dtype=bool)
    for row, equal in enumerate(equal_rows(window.points, points)):
        fitting = equal[~found[equal]]
        if codes is not None:
            fitting = fitting[classes[fitting] == codes[row]]
        if not fitting.size and required:
            if equal.size:
                raise ValueError((TOO_OFTEN if found[equal].all() else OTHER_LABEL).format(row))
            if unlabeled(row):
                raise ValueError(NO_LABEL.format(row))
            if state.counts.counts.sum() == window.size:
                raise ValueError(
                    f"row {row} of X is not among the {window.size} labeled rows: its label was "
                    "retracted before, or the row was learned without a label or with other "
                    "values, expected rows with the values they were learned with: correct the "
                    "row, or leave it out."
                )
            budget = "" if parameters.budget is None else f"budget={parameters.budget}, "
            raise ValueError(
                f"row {row} of X is not among the {window.size} labeled rows in the window "
                f"({budget}window={parameters.window}, lag={parameters.lag}): its label has left "
                "the window or was retracted before, or it was learned with other values, expected "
                "one of these rows: the multipliers of all others are frozen. To keep all rows, "
                "start a new model with window=None, lag=None and budget=None."
            )
        found[fitting[-1:]] = True
    return found


def retract(
    state: MarginState, rows: Mask, parameters: MarginParameters, kept: Mask | None = None
) -> tuple[MarginState, UpdateInfo, Mask]:
    """Retract the labels of some rows of the window, by a mask (n,).

    ``kept`` (K,) are the classes to keep; None keeps those with labels and the declared ones.
    """
    labeled = state.posterior.window.take(rows)
    codes = state.counts.own_classes(labeled.signs)
    counts = state.counts.remove(codes, labeled.weights, labeled.discounted)
    kept = counts.kept if kept is None else kept
    places = np.where(kept, np.cumsum(kept) - 1, -1)
    state = with_classes(state._replace(counts=counts), places, counts.declared[kept])
    with threads_for(state.posterior.size):
        posterior, info = update.remove_labels(state.posterior, rows, parameters)
    warn_unless_converged(info, parameters.tol)
    n_removed = int(np.count_nonzero(rows))
    info = info._replace(n_points=n_removed, n_labeled=n_removed)
    return state._replace(posterior=posterior), info, kept


# -- scores ----------------------------------------------------------------------------------------


def machine_scores(state: MarginState, points: Points, sums: Sums | None = None) -> Array:
    """Return the posterior mean of every machine at every row, (n, machines).

    ``sums`` computes kernel values on a device.
    """
    posterior = state.posterior
    threads = threads_to_score(points.shape[0], posterior.size)
    with threads, np.errstate(over="ignore", invalid="ignore"):
        scores = posterior.mean(points, sums=sums)
    check_overflow(scores)
    return scores


def unscaled_scores(state: MarginState, points: Points, sums: Sums | None = None) -> Array:
    """Return class scores (n, K), not divided by roots of label counts; 0 before any label.

    ``sums`` computes kernel values on a device.
    """
    if not state.counts.seen.any():
        return np.zeros((points.shape[0], state.counts.size))
    return state.counts.unscaled(machine_scores(state, points, sums))


def summed_size(state: MarginState, points: Points) -> float:
    """Return the root mean square of the sum of ``|term|`` over the terms of an unscaled score."""
    sizes = state.posterior.summed_sizes(points)
    return float(np.sqrt(np.mean(sizes**2))) + 1.0  # `unscaled` adds 1


# -- parameters of one update ----------------------------------------------------------------------


def for_batch(
    parameters: MarginParameters, labeled_weight: float, weight: float
) -> MarginParameters:
    """Return the parameters with the C and beta of a batch, given weights of labels and rows."""
    C, beta = parameters.C, parameters.beta
    C_origin, beta_origin = f"C={C:g}", f"beta={beta:g}"
    if parameters.gammas is not None:
        gamma_A, gamma_I = parameters.gammas
        C = 0.5 / labeled_weight / gamma_A if labeled_weight else np.inf
        beta = 0.5 * gamma_I / gamma_A / weight / weight
        C_origin = f"gamma_A={gamma_A:g} with {labeled_weight:g} labels makes C={C:g}"
        beta_origin = (
            f"gamma_A={gamma_A:g}, gamma_I={gamma_I:g} with {weight:g} rows makes beta={beta:g}"
        )
        parameters = replace(parameters, C=C, beta=beta)
    check_penalty(beta, beta_origin)
    if np.isinf(C) and not labeled_weight:  # nothing to bound
        return parameters
    check_penalty(C, C_origin)
    if C < SMALLEST_BOUND:
        raise ValueError(f"{C_origin}, expected at least {SMALLEST_BOUND:g}: raise C.")
    if parameters.shape >= C:
        raise ValueError(
            f"{C_origin}, expected C > slack_shape={parameters.shape:g}: otherwise all "
            "multipliers are 0 and nothing can be learned. Raise C, lower slack_shape, or set "
            "slack_shape='auto'."
        )
    return parameters


def check_penalty(value: float, origin: str) -> None:
    """Refuse a C or beta whose products would overflow; ``origin`` describes it in the error."""
    if not float(value) <= LARGEST_PENALTY:
        raise ValueError(f"{origin}, expected at most {LARGEST_PENALTY:g}: lower the value.")


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
