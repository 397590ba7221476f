"""How the defaults were chosen: prequential accuracy on streams that no reported result uses.

Every stream is shuffled, cut into batches, and labeled at random in a fraction of its rows. Each
batch is predicted before it is learned. Printed is the mean gain of each recipe over its own beta =
0, in points of accuracy, paired over the same orders and labels, and the accuracy of beta = 0 for
each lag. With --small-batches the streams are cut into batches a fifth of that size, and lags and
averaging are compared without any smoothing.

    python benchmarks/defaults.py [--small-batches] [--repeats 5] [--jobs 2] [--only NAME]
        [--out FILE.json]
"""

from __future__ import annotations

import json
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product

import numpy as np
from common import make_parser
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_blobs, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from seqmed import SeqLapMED

LABEL_FRACTIONS = (0.01, 0.05, 0.25)
LANDMARKS = {"n_landmarks": 300}
RECIPES = {
    "lag 10; 0": {"lag": 10, "beta": 0.0},
    "lag 10; .01": {"lag": 10, "beta": 0.01, **LANDMARKS},
    "lag 10; .1": {"lag": 10, "beta": 0.1, **LANDMARKS},
    "lag 10; 1": {"lag": 10, "beta": 1.0, **LANDMARKS},
}
SMALL_BATCH_FRACTIONS = (0.05, 0.25, 1.0)
SMALL_BATCH_RECIPES = {
    f"lag {lag or 'all'}{', mean' if mean else ''}; 0": {"lag": lag, "averaging": mean, "beta": 0.0}
    for lag in (1, 3, 10, None)
    for mean in (False, True)
}


@cache
def streams():
    """Return name -> (X, y, batch size)."""
    shell = np.random.default_rng(0)
    directions = shell.normal(size=(1500, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    inner = np.arange(1500) % 2
    radii = np.where(inner, shell.uniform(0, 0.55, 1500), shell.uniform(0.45, 1, 1500))
    cancer, wine = load_breast_cancer(), load_wine()
    moons = make_moons(1500, noise=0.2, random_state=0)
    blobs = make_blobs(1500, 10, centers=4, cluster_std=5.0, random_state=0)
    return {
        "digits": (*load_digits(return_X_y=True), 150),
        "breast cancer": (StandardScaler().fit_transform(cancer.data), cancer.target, 60),
        "wine": (StandardScaler().fit_transform(wine.data), wine.target, 30),
        "moons": (*moons, 150),
        "blobs": (*blobs, 150),
        "ball in shell": (directions * radii[:, None], inner, 150),
    }


def prequential_accuracy(name, fraction, repeat, recipe, shrink):
    """Return the accuracy over all rows from the second batch on, each scored before learned."""
    X, y, size = streams()[name]
    size //= shrink
    rng = np.random.default_rng((repeat, int(1000 * fraction)))
    order = rng.permutation(len(y))
    X, y = X[order], y[order]
    masked = np.where(rng.random(len(y)) < fraction, y, -1)
    model = SeqLapMED(window=None, random_state=0, **{**RECIPES, **SMALL_BATCH_RECIPES}[recipe])
    right = total = 0
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for start in range(0, len(y) - size + 1, size):
            rows = slice(start, start + size)
            if (masked[:start] != -1).any():
                right += (model.predict(X[rows]) == y[rows]).sum()
                total += size
            model.partial_fit(X[rows], masked[rows], classes=np.unique(y))
    return right / max(total, 1)


def main():
    """Print the table and write it as JSON."""
    parser = make_parser(__doc__)
    parser.add_argument("--small-batches", action="store_true", help="lags and averaging")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=list(streams()), help="one stream")
    parser.add_argument("--out")
    options = parser.parse_args()
    recipes, fractions, shrink = RECIPES, LABEL_FRACTIONS, 1
    if options.small_batches:
        recipes, fractions, shrink = SMALL_BATCH_RECIPES, SMALL_BATCH_FRACTIONS, 5
    names = [options.only] if options.only else list(streams())
    table = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for name, fraction in product(names, fractions):
            jobs = {
                (recipe, repeat): pool.submit(
                    prequential_accuracy, name, fraction, repeat, recipe, shrink
                )
                for recipe in recipes
                for repeat in range(options.repeats)
            }
            points = {
                recipe: 100 * np.array([jobs[recipe, r].result() for r in range(options.repeats)])
                for recipe in recipes
            }
            print(f"\n{name}, {fraction:.0%} labeled")
            for recipe, values in points.items():
                gain = values - points[recipe.split(";")[0] + "; 0"]
                error = gain.std(ddof=1) / np.sqrt(options.repeats)
                print(
                    f"  {recipe:22s} {values.mean():6.2f}  {gain.mean():+6.2f} ± {error:4.2f}",
                    flush=True,
                )
                table.append({
                    "stream": name, "labels": fraction, "recipe": recipe,
                    "accuracy": values.mean(), "gain": gain.mean(), "error": error,
                })  # fmt: skip
    if options.out:
        with open(options.out, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
