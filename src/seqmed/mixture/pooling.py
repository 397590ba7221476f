"""The pool: probabilities of the mixture, the graph and refitted experts, weighted by evidence.

The mixture of margin, graph and linear expert is the first member, called *core*. The graph alone
is the second, and refitted experts follow. The record has the probabilities of every member for
labeled rows before they were learned. Three steps make the pool from it:

1. Every member k has a temperature T_k, the minimum of the cross-entropy of ``p_k^T``, normalised,
   plus ``(log2 T)^2``. T > 1 sharpens.
2. The weights are those of a mixture distribution with fixed components, found by expectation
   maximisation: ``w_k = (a_k + sum_i r_ik) / (sum a + n)`` with ``r_ik ~ w_k p_k(y_i | x_i)``. The
   pseudo-count a_k is `PSEUDO_COUNT`. The graph has more while the record is small, because it
   predicts best with few labels. Later the random forest and the logistic regression have more,
   which are the safest on tables; on sparse rows, such as words, the core has more.
3. The weighted mean of the probabilities has one more temperature.

Neighbouring rows of a stream are often alike, and the likelihoods of their labels are correlated.
The record therefore counts as fewer independent rows; see `independent_share`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqmed.numeric.arrays import Array, Indices, Mask
from seqmed.numeric.expectations import expect, expect_shape

# Names of the first two members.
CORE, GRAPH = 0, 1
MEMBERS = ("core", "graph")
# Pseudo-count of a member, and how much more the graph has with an empty record. The latter fades
# with ``exp(-n / (LABELS_PER_CLASS K))`` for n recorded labels of K classes. As it fades, other
# members get more: those of `LATE_COUNTS` on dense rows, and the core on sparse ones.
PSEUDO_COUNT, GRAPH_COUNT, LABELS_PER_CLASS = 0.5, 4.0, 2.0
LATE_COUNTS = {"logistic": 1.0, "random_forest": 2.5}
LATE_COUNTS_OF_SPARSE = {"core": 5.0}
# A member with a smaller weight is not evaluated in predictions.
SMALLEST_WEIGHT = 0.02
# With fewer rows in the record, they count as independent.
FEWEST_ROWS = 10
# Smallest likelihood of a label, for the differences between the members.
SMALLEST_LIKELIHOOD = 1e-6
# Expectation maximisation ends if no weight moves by more, or after this many steps.
PRECISION, STEPS = 1e-5, 1000


class Pooling(NamedTuple):
    """How the probabilities of the members are pooled.

    Attributes
    ----------
    weights : (M,) weights of the members, of sum 1; (0,) if there is no pool.
    temperatures : (M,) their temperatures.
    temperature : temperature of the weighted mean.
    """

    weights: Array
    temperatures: Array
    temperature: float

    def validate(self) -> None:
        """Raise a ValueError if the arrays are not of the same members."""
        expect_shape(self, self.weights.shape, "temperatures")
        expect((self.weights >= 0).all(), "weights >= 0")

    def used(self) -> Mask:
        """Return the members (M,) that predictions evaluate."""
        return self.weights > 0


class Recorded(NamedTuple):
    """Probabilities of labeled rows before each was learned, oldest first.

    Attributes
    ----------
    probabilities : (r, M, K) of every member.
    known : (r, K) mask of the classes that were known.
    codes : (r,) the true classes.
    weights : (r,) weights of the rows.
    """

    probabilities: Array
    known: Mask
    codes: Indices
    weights: Array


def no_pool(n_members: int) -> Pooling:
    """Return the pool before the first label."""
    return Pooling(np.full(n_members, 1.0 / max(1, n_members)), np.ones(n_members), 1.0)


def late_counts(names: Sequence[str], *, sparse: bool) -> Array:
    """Return the pseudo-counts (M,) that members get as those of the graph fade."""
    counts = LATE_COUNTS_OF_SPARSE if sparse else LATE_COUNTS
    return np.array([counts.get(name, 0.0) for name in names])


def choose_pool(record: Recorded, n_known: int, late: Array, fitted: Mask) -> Pooling:
    """Choose temperatures and weights by the record.

    Parameters
    ----------
    record : probabilities of labeled rows before they were learned.
    n_known : number of known classes.
    late : (M,) pseudo-counts that the members get as those of the graph fade.
    fitted : (M,) mask of the members that can predict; the others have the weight 0.
    """
    logs = log_probabilities(record)
    record = record._replace(weights=independent_share(logs, record.codes) * record.weights)
    temperatures = np.array(
        [best_temperature(logs[:, member], record) for member in range(fitted.size)]
    )
    logs = normalised(temperatures[:, None] * logs)
    chosen = np.exp(logs[np.arange(record.codes.size), :, record.codes])
    counts = np.full(fitted.size, PSEUDO_COUNT)
    few = np.exp(-record.weights.sum() / (LABELS_PER_CLASS * n_known))
    counts[GRAPH] += GRAPH_COUNT * few
    counts += (1.0 - few) * late
    weights = mixture_weights(chosen, record.weights, counts)
    weights = np.where(fitted & (weights >= SMALLEST_WEIGHT), weights, 0.0)
    weights = weights / weights.sum() if weights.any() else fitted / fitted.sum()
    pool = Pooling(weights, temperatures, 1.0)
    mean = np.einsum("m,rmk->rk", weights, np.exp(logs))
    return pool._replace(temperature=best_temperature(safe_logs(mean), record))


def independent_share(logs: Array, codes: Indices) -> float:
    """Return the number of independent rows that the record is worth, divided by its rows.

    The log-likelihoods of a row, less their mean over the members, are a time series. Its mean has
    the variance ``(g_0 + 2 sum_k g_k) / n`` with autocovariances g_k, and ``g_0 / n`` if rows are
    independent. The share is the ratio of the latter to the former, at most 1. The sum has
    Bartlett's weights and ends at lag ``sqrt(n)``.

    Parameters
    ----------
    logs : (r, M, K) log-probabilities of every member, oldest row first.
    codes : (r,) the true classes.
    """
    n = codes.size
    if n < FEWEST_ROWS:
        return 1.0
    found = np.exp(logs[np.arange(n), :, codes])
    differences = np.log(np.maximum(found, SMALLEST_LIKELIHOOD))
    differences -= differences.mean(axis=1, keepdims=True)
    differences -= differences.mean(axis=0)
    variance = float(np.square(differences).sum())
    if variance == 0.0:
        return 1.0
    total, most = variance, int(np.sqrt(n))
    for lag in range(1, most + 1):
        covariance = float((differences[lag:] * differences[:-lag]).sum())
        total += 2.0 * (1.0 - lag / (most + 1)) * covariance
    return variance / max(variance, total)


def mixture_weights(likelihoods: Array, row_weights: Array, counts: Array) -> Array:
    """Return the weights (M,) of a mixture distribution with fixed components.

    Parameters
    ----------
    likelihoods : (r, M) likelihood of every row under every component.
    row_weights : (r,) weights of the rows.
    counts : (M,) pseudo-counts of the components.
    """
    from seqmed.mixture import evidence  # numba is imported by the first update

    return np.asarray(
        evidence.component_weights(likelihoods, row_weights, counts, PRECISION, STEPS)
    )


def pooled(probabilities: Array, pool: Pooling) -> Array:
    """Return the probabilities (m, K) of the pool, given those of its members, (m, M, K)."""
    total = np.zeros((probabilities.shape[0], probabilities.shape[2]))
    for member in np.flatnonzero(pool.used()):
        total += pool.weights[member] * sharpened(
            probabilities[:, member], pool.temperatures[member]
        )
    return sharpened(total, pool.temperature)


def sharpened(probabilities: Array, temperature: float) -> Array:
    """Return ``p^T`` normalised, (m, K)."""
    return np.asarray(np.exp(normalised(temperature * safe_logs(probabilities))))


def safe_logs(probabilities: Array) -> Array:
    """Return logarithms, -inf where a probability is 0."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities)


def log_probabilities(record: Recorded) -> Array:
    """Return the logarithms (r, M, K) of the recorded probabilities, -inf for unknown classes."""
    return safe_logs(np.where(record.known[:, None], record.probabilities, 0.0))


def normalised(logs: Array) -> Array:
    """Return logarithms of probabilities that sum to 1 over the last axis."""
    logs = logs - logs.max(axis=-1, keepdims=True)
    return np.asarray(logs - np.log(np.exp(logs).sum(axis=-1, keepdims=True)))


def best_temperature(logs: Array, record: Recorded) -> float:
    """Return the temperature of log-probabilities (r, K) that fits the record best."""
    from seqmed.mixture import evidence

    if not record.codes.size:
        return 1.0
    own = logs[np.arange(record.codes.size), record.codes]
    octave = evidence.best_octave(logs - own[:, None], record.weights)[1]
    return float(2.0**octave)
