"""The pool of probabilities, the slow and obvious way: a row at a time, and grids."""

from __future__ import annotations

from math import exp, log, log2

import numpy as np

COUNT, GRAPH_COUNT, SMALLEST = 0.5, 4.0, 0.02
LATER = {"random_forest": 2.5, "logistic": 1.0}


def sharpened(probabilities, temperature):
    """``p^T`` of every row, normalised."""
    powers = np.array([[p**temperature for p in row] for row in probabilities])
    return powers / powers.sum(axis=1, keepdims=True)


def cost(probabilities, codes, weights, temperature):
    """Cross-entropy at a temperature, plus the penalty."""
    total = log2(temperature) ** 2
    for row, code, weight in zip(probabilities, codes, weights, strict=True):
        logs = [temperature * log(p) if p > 0 else -np.inf for p in row]
        top = max(logs)
        total -= weight * (logs[code] - top - log(sum(exp(each - top) for each in logs)))
    return total


def best_temperature(probabilities, codes, weights):
    """The temperature of the lowest cost on a grid that is refined three times."""
    low, high = -8.0, 8.0
    for _ in range(4):
        grid = np.linspace(low, high, 65)
        costs = [cost(probabilities, codes, weights, 2.0**octave) for octave in grid]
        best = int(np.argmin(costs))
        low, high = grid[max(0, best - 1)], grid[min(64, best + 1)]
    return 2.0 ** grid[best]


def mixture_weights(likelihoods, weights, counts, steps=5000):
    """Expectation maximisation from the pseudo-counts; likelihoods (M, r)."""
    shares = [count / sum(counts) for count in counts]
    for _ in range(steps):
        totals = list(counts)
        for row, weight in enumerate(weights):
            joint = [s * each[row] for s, each in zip(shares, likelihoods, strict=True)]
            for member, value in enumerate(joint):
                totals[member] += weight * value / sum(joint)
        shares = [total / (sum(counts) + sum(weights)) for total in totals]
    return shares


def independent_share(members, codes):
    """Variance of a mean of independent rows, divided by that of the record, a time series."""
    logs = np.array(
        [
            [log(max(row[code], 1e-6)) for row, code in zip(each, codes, strict=True)]
            for each in members
        ]
    )
    n = len(codes)
    if n < 10:
        return 1.0
    series = [[value - np.mean(logs[:, row]) for row, value in enumerate(each)] for each in logs]
    series = [np.subtract(each, np.mean(each)) for each in series]
    most = int(n**0.5)
    own = sum(each @ each for each in series)
    total = own
    for lag in range(1, most + 1):
        for each in series:
            total += (
                2
                * (1 - lag / (most + 1))
                * sum(each[row] * each[row - lag] for row in range(lag, n))
            )
    return min(1.0, own / total) if total > 0 else 1.0


def pool(members, names, codes, weights, n_known):
    """Weights, temperatures, and the last temperature, for members (M, r, K)."""
    share = independent_share(members, codes)
    weights = [share * weight for weight in weights]
    temperatures = [best_temperature(each, codes, weights) for each in members]
    sharp = [sharpened(each, t) for each, t in zip(members, temperatures, strict=True)]
    likelihoods = [[row[code] for row, code in zip(each, codes, strict=True)] for each in sharp]
    counts = [COUNT] * len(members)
    few = exp(-sum(weights) / (2 * n_known))
    counts[1] += GRAPH_COUNT * few
    counts = [
        count + LATER.get(name, 0.0) * (1 - few) for count, name in zip(counts, names, strict=True)
    ]
    found = mixture_weights(likelihoods, weights, counts)
    used = [weight if weight >= SMALLEST else 0.0 for weight in found]
    used = [weight / sum(used) for weight in used]
    mean = sum(weight * each for weight, each in zip(used, sharp, strict=True))
    return used, temperatures, best_temperature(mean, codes, weights)
