"""The streams on which SeqGraphMED's experts, scales and new starts were chosen.

docs/streams.md shows none of them. `STREAMS` have 6000 rows if nothing else is said. `CHANGING`
have 13,000 rows and an abrupt change at row 10,000, which can be left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from common import Later
from scipy.signal import lfilter
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from streams import as_arrays, joined, shuffled

synth = Later("river.datasets.synth")

N = 6000
CHANGE, END = 10_000, 13_000


def prices(seed: int) -> tuple[Any, Any]:
    """Return prices with cycles and jumps, and whether they are above their moving average.

    Two of six columns are constant in the first third of the rows.
    """
    rng = np.random.default_rng(seed)
    n = N + 48
    t, early = np.arange(n), np.arange(n) < n // 3
    level = np.cumsum(0.02 * rng.normal(size=n))
    day = np.sin(2 * np.pi * t / 48 + 0.3 * np.sin(t / 2000))
    rng.normal(size=n)  # not used, but the numbers below depend on it
    demand = 10_000 + 2000 * day + 500 * level + 300 * rng.normal(size=n)
    noise = lfilter([0.4], [1.0, -0.9], np.append(0.0, rng.normal(size=n - 1)))
    jumps = 1 + 20 * (rng.random(n) < 0.004)
    price = 30 * jumps * np.exp(0.5 * level + 0.6 * day + 0.5 * noise)
    other = np.where(early, 17.0, price * np.exp(0.5 * rng.normal(size=n)))
    transfer = np.where(early, 400.0, 400 + 200 * rng.normal(size=n))
    average = np.convolve(price, np.ones(48) / 48)[:n]
    X = np.column_stack([t % 7, (t % 48) / 48, price, demand, other, transfer])
    return X[48:], (price > average)[48:].astype(int)


def units(seed: int) -> tuple[Any, Any]:
    """Return four classes in 15 columns of units from 0.001 to 10,000, with outliers."""
    X, y = make_classification(
        N, 15, n_informative=8, n_redundant=2, n_classes=4, n_clusters_per_class=2, flip_y=0.03,
        class_sep=1.5, random_state=seed,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    X = X * 10 ** rng.uniform(-3, 4, 15) + 10 ** rng.uniform(-2, 3, 15)
    return np.where(rng.random(X.shape) < 0.0005, 1000 * X, X), y


def words(seed: int) -> tuple[Any, Any]:
    """Return 5000 short messages as counts of 800 words, 12 % of them spam."""
    rng = np.random.default_rng(seed)
    usual = rng.dirichlet(5 / np.arange(1, 801) ** 0.8)
    spam = usual * np.exp(0.9 * rng.normal(size=800))
    y = (rng.random(5000) < 0.12).astype(int)
    lengths = 3 + rng.poisson(14, 5000)
    shares = np.stack([usual, spam / spam.sum()])
    pairs = zip(lengths, y, strict=True)
    return np.array([rng.multinomial(size, shares[c]) for size, c in pairs], dtype=float), y


def turning(seed: int) -> tuple[Any, Any]:
    """Return a linear boundary that turns by 180 degrees, in columns of different units."""
    rng = np.random.default_rng(seed)
    X, angle = rng.normal(size=(N, 6)), np.linspace(0, np.pi, N)
    score = np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 1] + 0.5 * X[:, 2]
    y = score + 0.3 * rng.normal(size=N) > 0
    return 5 + X * np.array([1, 50, 0.01, 1, 1, 1]), y.astype(int)


def moving(seed: int) -> tuple[Any, Any]:
    """Return twelve clusters of four classes that move."""
    rng = np.random.default_rng(seed)
    centres, steps = 2 * rng.normal(size=(12, 5)), 2 * rng.normal(size=(12, 5)) / N
    cluster = rng.integers(12, size=N)
    X = centres[cluster] + steps[cluster] * np.arange(N)[:, None] + 0.7 * rng.normal(size=(N, 5))
    return X, cluster % 4


def circle(seed: int) -> tuple[Any, Any]:
    """Return the inside and outside of a circle that changes its size twice, 4 % wrong labels."""
    rng = np.random.default_rng(900 + seed)
    X = rng.normal(size=(N, 4))
    outside = X[:, 0] ** 2 + X[:, 1] ** 2 > np.repeat([1.4, 0.9, 1.9], N // 3)
    return X, with_noise(outside, rng)


def shifted(seed: int) -> tuple[Any, Any]:
    """Return a linear boundary that is shifted twice, 4 % wrong labels."""
    rng = np.random.default_rng(950 + seed)
    X = rng.uniform(size=(N, 5))
    above = X[:, 0] + X[:, 1] + X[:, 2] > np.repeat([1.5, 1.3, 1.65], N // 3)
    return X, with_noise(above, rng)


def with_noise(truth: Any, rng: np.random.Generator) -> Any:
    """Return classes, 8 % of them drawn at random."""
    drawn = rng.random(N) < 0.08
    return np.where(drawn, rng.integers(2, size=N), truth)


def exchanged(seed: int) -> tuple[Any, Any]:
    """Return twelve clusters of four classes; four clusters change their class in the middle."""
    rng = np.random.default_rng(970 + seed)
    centres, cluster = 2 * rng.normal(size=(12, 5)), rng.integers(12, size=N)
    X = centres[cluster] + 0.7 * rng.normal(size=(N, 5))
    return X, (cluster + ((np.arange(N) >= N // 2) & (cluster < 4))) % 4


def answers(seed: int) -> tuple[Any, Any]:
    """Return 1200 rows of twelve columns of -1, 0 or 1, and a linear boundary with noise."""
    rng = np.random.default_rng(1000 + seed)
    thresholds = rng.uniform(-0.8, 0.8, size=12)
    hidden = rng.normal(size=(1200, 12)) + 0.7 * rng.normal(size=(1200, 1))
    X = np.sign(np.round(hidden - thresholds))
    score = X @ rng.normal(size=12)
    return X, (score - np.median(score) + rng.normal(size=1200) > 0).astype(int)


def small_clusters(seed: int) -> tuple[Any, Any]:
    """Return 1200 rows of eight clusters of two classes, in six columns."""
    rng = np.random.default_rng(1050 + seed)
    centres, cluster = 1.5 * rng.normal(size=(8, 6)), rng.integers(8, size=1200)
    return centres[cluster] + rng.normal(size=(1200, 6)), cluster % 2


def noisy_periods(seed: int) -> tuple[Any, Any]:
    """Return the inside and outside of a circle; labels are wrong in some periods.

    A period has about 150 rows with 35 % wrong labels, or 600 with 3 %.
    """
    rng = np.random.default_rng(1100 + seed)
    X = rng.normal(size=(N, 4))
    ends = [0]
    while ends[-1] < N:
        ends.append(ends[-1] + int(rng.exponential(150 if len(ends) % 2 == 0 else 600)) + 1)
    noisy = np.searchsorted(ends, np.arange(N), side="right") % 2 == 0
    wrong = rng.random(N) < np.where(noisy, 0.35, 0.03)
    return X, (X[:, 0] ** 2 + X[:, 1] ** 2 > 1.4).astype(int) ^ wrong


def hidden_level(seed: int) -> tuple[Any, Any]:
    """Return rows that change slowly, and a boundary that a hidden slow level moves to and fro."""
    rng = np.random.default_rng(1150 + seed)
    noise = rng.normal(size=(N, 6))
    slow = np.column_stack([lfilter([0.2], [1.0, -0.98], column) for column in noise[:, :5].T])
    day = np.sin(2 * np.pi * np.arange(N) / 48)
    X = np.column_stack([slow[:, :3] + 0.5 * rng.normal(size=(N, 3)), day])
    score = slow[:, 0] * slow[:, 1] + slow[:, 2] + day + 0.9 * slow[:, 4]
    return X, (score > 0).astype(int)


STREAMS: dict[str, Callable[[int], tuple[Any, Any]]] = {
    # the two classes are exchanged once, and twice
    "Sine": lambda s: joined([synth.Sine(i, seed=s + i, has_noise=True) for i in range(2)], N),
    "Mixed": lambda s: joined([synth.Mixed(i % 2, seed=s + i) for i in range(3)], N),
    # loans: three rules, one after the other
    "Agrawal": lambda s: joined(
        [synth.Agrawal(f, seed=s + i, perturbation=0.05) for i, f in enumerate((0, 2, 3))], N
    ),
    # three classes of noisy waves, without a change
    "waveform": lambda s: as_arrays(synth.Waveform(seed=s), N),
    # three classes by a decision tree, without a change
    "random tree": lambda s: as_arrays(
        synth.RandomTree(s, s, n_num_features=8, n_cat_features=0, n_classes=3), N
    ),
    # a linear boundary in 20 columns; eight of its weights change slowly
    "hyperplane": lambda s: as_arrays(
        synth.Hyperplane(100 + s, 20, n_drift_features=8, mag_change=0.003, noise_percentage=0.1), N
    ),
    # three classes of twenty clusters in 20 columns, without a change
    "radial basis functions": lambda s: as_arrays(
        synth.RandomRBF(50 + s, s, n_classes=3, n_features=20, n_centroids=20), N
    ),
    # scikit-learn's sets in a random order: 1797 and 569 rows
    "digits": lambda s: shuffled(*load_digits(return_X_y=True), s),
    "breast cancer": lambda s: shuffled(*load_breast_cancer(return_X_y=True), s),
    "prices": prices, "units": units, "words": words, "turning boundary": turning,
    "shifted boundary": shifted, "circle": circle, "moving clusters": moving,
    "exchanged clusters": exchanged, "answers": answers, "small clusters": small_clusters,
    "noisy periods": noisy_periods, "hidden level": hidden_level,
}  # fmt: skip
# Streams whose errors come in groups: they are run with 25 % labels too.
GROUPED = ("prices", "noisy periods", "hidden level")


def clusters(seed: int, *, change: bool) -> tuple[Any, Any]:
    """Return twelve clusters of four classes; at the change all of them get the next class."""
    rng = np.random.default_rng(3000 + seed)
    centres, cluster = 2 * rng.normal(size=(12, 5)), rng.integers(12, size=END)
    X = centres[cluster] + 0.8 * rng.normal(size=(END, 5))
    return X, (cluster + (change & (np.arange(END) >= CHANGE))) % 4


def sine(seed: int, *, change: bool) -> tuple[Any, Any]:
    """Return river's Sine; at the change the two classes are exchanged."""
    X, y = as_arrays(synth.Sine(2, seed=500 + seed), CHANGE)
    after, y_after = as_arrays(synth.Sine(3 if change else 2, seed=600 + seed), END - CHANGE)
    return np.vstack([X, after]), np.append(y, y_after)


CHANGING: dict[str, Callable[..., tuple[Any, Any]]] = {"twelve clusters": clusters, "Sine": sine}
