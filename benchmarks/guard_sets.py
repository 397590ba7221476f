"""The sets of `guard.py`: scikit-learn's own tables and made-up ones, in two halves.

The halves are alike: six binary sets each, and tables, clusters, curved sheets, linear concepts and
unequal classes in both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets


class Table(NamedTuple):
    """Rows (n, p) and classes (n,), from 0."""

    X: Any
    y: Any


def rng_of(name: str) -> np.random.Generator:
    """Return the generator from which a made-up set is drawn."""
    return np.random.default_rng(list(name.encode()))


def bunch(loader: Callable[..., Any]) -> Table:
    """Return a table of scikit-learn."""
    return Table(*loader(return_X_y=True))


def with_noise(X: Any, n_columns: int, rng: np.random.Generator) -> Any:
    """Return rows with columns of noise, each as spread as the mean column."""
    return np.column_stack([X, X.std() * rng.normal(size=(len(X), n_columns))])


def diabetes() -> Table:
    """Return whether the progression of the disease is above its median."""
    X, target = datasets.load_diabetes(return_X_y=True)
    return Table(X, (target > np.median(target)).astype(int))


def patches(n: int = 3000, size: int = 6) -> Table:
    """Return grey patches of scikit-learn's two photographs, by photograph."""
    rng, rows, codes = rng_of("patches"), [], []
    for code, image in enumerate(datasets.load_sample_images().images):
        grey = image.mean(axis=2)
        for at in rng.integers(np.array(grey.shape) - size, size=(n // 2, 2)):
            rows.append(grey[at[0] : at[0] + size, at[1] : at[1] + size].ravel())
            codes.append(code)
    return Table(np.array(rows), np.array(codes))


def moons() -> Table:
    """Return two moons that overlap a little."""
    return Table(*datasets.make_moons(3000, noise=0.2, random_state=1))


def circles() -> Table:
    """Return two circles that overlap a little."""
    return Table(*datasets.make_circles(3000, noise=0.12, factor=0.5, random_state=2))


def xor() -> Table:
    """Return the exclusive or of two signs, with four columns of noise."""
    rng = rng_of("xor")
    X = rng.choice([-1.0, 1.0], size=(3000, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    return Table(with_noise(X + 0.4 * rng.normal(size=X.shape), 4, rng), y)


def hyperplane() -> Table:
    """Return the side of a hyperplane in ten dimensions, five labels in a hundred wrong."""
    rng = rng_of("hyperplane")
    X = rng.uniform(size=(3000, 10))
    weights = rng.uniform(size=10)
    y = X @ weights > weights.sum() / 2
    return Table(X, (y ^ (rng.random(len(y)) < 0.05)).astype(int))


def two_classes() -> Table:
    """Return two classes of two clusters each, in 20 columns."""
    return Table(
        *datasets.make_classification(
            3000, 20, n_informative=6, n_redundant=4, flip_y=0.05, random_state=3
        )
    )


def imbalanced() -> Table:
    """Return a mixture of Gaussians, three of a frequent class and two of a rare one."""
    rng = rng_of("imbalanced")
    centres = 2.2 * rng.normal(size=(5, 5))
    part = rng.choice(5, size=3000, p=[0.35, 0.3, 0.2, 0.1, 0.05])
    return Table(centres[part] + rng.normal(size=(3000, 5)), (part > 2).astype(int))


def rings() -> Table:
    """Return two linked rings in three dimensions, with five columns of weak noise."""
    rng = rng_of("rings")
    angle, y = rng.uniform(0, 2 * np.pi, 3000), rng.integers(2, size=3000)
    flat = np.column_stack([np.cos(angle), np.sin(angle), np.zeros(3000)])
    other = flat[:, [0, 2, 1]] + [1.0, 0.0, 0.0]
    X = np.where(y[:, None] == 0, flat, other) + 0.1 * rng.normal(size=(3000, 3))
    return Table(np.column_stack([X, 0.3 * rng.normal(size=(3000, 5))]), y)


def blobs() -> Table:
    """Return six Gaussian classes of unequal variances."""
    spreads = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    return Table(*datasets.make_blobs(3000, 6, centers=6, cluster_std=spreads, random_state=4))


def swiss_roll() -> Table:
    """Return four bands along a swiss roll."""
    X, position = datasets.make_swiss_roll(3000, noise=0.4, random_state=5)
    return Table(X, np.searchsorted(np.quantile(position, [0.25, 0.5, 0.75]), position))


def radial() -> Table:
    """Return five classes of Gaussians around 25 random centres."""
    rng = rng_of("radial")
    centres, classes = rng.uniform(size=(25, 8)), np.arange(25) % 5
    part = rng.integers(25, size=3000)
    return Table(centres[part] + 0.12 * rng.normal(size=(3000, 8)), classes[part])


def four_classes() -> Table:
    """Return four classes, of two clusters each, in 12 columns."""
    return Table(
        *datasets.make_classification(
            3000, 12, n_informative=8, n_classes=4, class_sep=1.2, flip_y=0.02, random_state=6
        )
    )


def quantiles() -> Table:
    """Return four concentric shells of a Gaussian in three dimensions."""
    return Table(
        *datasets.make_gaussian_quantiles(n_samples=3000, n_features=3, n_classes=4, random_state=7)
    )


def hypercube() -> Table:
    """Return eight classes at random corners of a hypercube of six dimensions."""
    return Table(
        *datasets.make_classification(
            3000, 10, n_informative=6, n_redundant=0, n_classes=8, n_clusters_per_class=1,
            class_sep=1.3, flip_y=0.0, random_state=8,
        )
    )  # fmt: skip


def spirals() -> Table:
    """Return three arms of a spiral, with two columns of weak noise."""
    rng = rng_of("spirals")
    y, radius = rng.integers(3, size=3000), np.sqrt(rng.uniform(0.02, 1, size=3000))
    angle = 2 * np.pi * (y / 3 + radius)
    X = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    X += 0.04 * rng.normal(size=X.shape)
    return Table(np.column_stack([X, 0.1 * rng.normal(size=(3000, 2))]), y)


def categories() -> Table:
    """Return three classes told by ten categorical columns, one-hot coded."""
    rng = rng_of("categories")
    y = rng.integers(3, size=3000)
    shares = rng.dirichlet(np.ones(4), size=(3, 10)).cumsum(axis=2)
    values = (rng.random((3000, 10, 1)) > shares[y]).sum(axis=2)
    return Table(np.eye(4)[np.minimum(values, 3)].reshape(3000, -1), y)


def skewed() -> Table:
    """Return two overlapping classes of two clusters each, one row in eight of the second."""
    return Table(
        *datasets.make_classification(
            3000, 10, n_informative=5, weights=[0.88], flip_y=0.04, class_sep=0.8, random_state=11
        )
    )


def unequal() -> Table:
    """Return four overlapping Gaussian classes of very unequal shares."""
    rng = rng_of("unequal")
    y = rng.choice(4, size=3000, p=[0.65, 0.22, 0.09, 0.04])
    return Table(1.2 * rng.normal(size=(4, 6))[y] + rng.normal(size=(3000, 6)), y)


def ball() -> Table:
    """Return whether a Gaussian row of four dimensions is near a point off the centre."""
    rng = rng_of("ball")
    X = rng.normal(size=(3000, 4))
    distance = np.linalg.norm(X - 0.7, axis=1)
    return Table(X, (distance < np.quantile(distance, 0.15)).astype(int))


def ordinal() -> Table:
    """Return five grades of unequal shares, told by a noisy linear score of eight columns."""
    rng = rng_of("ordinal")
    X = rng.normal(size=(3000, 8)) @ (np.eye(8) + 0.3 * rng.normal(size=(8, 8)))
    score = X @ rng.normal(size=8)
    score += 0.4 * score.std() * rng.normal(size=3000)
    return Table(X, np.searchsorted(np.quantile(score, [0.05, 0.4, 0.8, 0.96]), score))


CHOOSING: dict[str, Callable[[], Table]] = {
    "breast_cancer": lambda: bunch(datasets.load_breast_cancer),
    "patches": patches,
    "moons": moons,
    "xor": xor,
    "hyperplane": hyperplane,
    "skewed": skewed,
    "wine": lambda: bunch(datasets.load_wine),
    "blobs": blobs,
    "swiss_roll": swiss_roll,
    "radial": radial,
    "four_classes": four_classes,
    "unequal": unequal,
}
CONFIRMING: dict[str, Callable[[], Table]] = {
    "diabetes": diabetes,
    "circles": circles,
    "two_classes": two_classes,
    "imbalanced": imbalanced,
    "rings": rings,
    "ball": ball,
    "iris": lambda: bunch(datasets.load_iris),
    "quantiles": quantiles,
    "hypercube": hypercube,
    "spirals": spirals,
    "categories": categories,
    "ordinal": ordinal,
}
SETS = CHOOSING | CONFIRMING
# Sets added after a first look at the choosing half, where the graph was hardly ever bad.
ADDED = ("skewed", "unequal", "ball", "ordinal")


def rare_table(name: str, share: float, fewest: int) -> Table | None:
    """Return a set of which ``share`` are positive; None if these are fewer than ``fewest``."""
    X, y = {
        "breast_cancer": lambda: _swapped(bunch(datasets.load_breast_cancer)),
        "moons": lambda: Table(*datasets.make_moons((2970, 600), noise=0.25, random_state=9)),
        "blobs": lambda: Table(
            *datasets.make_blobs(
                [2970, 600], 6, cluster_std=[2.5, 1.5], center_box=(-2, 2), random_state=9
            )
        ),
        "classification": lambda: Table(
            *datasets.make_classification(
                6000, 10, n_informative=5, n_clusters_per_class=2, flip_y=0.0, random_state=10
            )
        ),
        "radial": lambda: _one_of_many(radial()),
    }[name]()
    negative, positive = np.flatnonzero(y == 0), np.flatnonzero(y == 1)
    n = min(3000, int(negative.size / (1 - share)), int(positive.size / share))
    n_positive = round(share * n)
    if n_positive < fewest:
        return None
    rows = np.r_[negative[: n - n_positive], positive[:n_positive]]
    return Table(X[rows], y[rows])


RARE_SETS = ("breast_cancer", "moons", "blobs", "classification", "radial")


def _swapped(table: Table) -> Table:
    return Table(table.X, 1 - table.y)


def _one_of_many(table: Table) -> Table:
    return Table(table.X, (table.y == 0).astype(int))
