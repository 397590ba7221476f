"""One to five labels per class on digits: the graph alone, with known proportions, and the mixture.

USPS (7291 rows learned in batches of 500, 2007 others tested) and scikit-learn's digits (1400 rows
in batches of 100, 397 tested), in a random order. The rows with a label come anywhere in the
stream. Ten draws of order and labels, the same for all methods. Accuracy in per cent.

    SEQMED_DATA=FOLDER python benchmarks/few_labels.py [--quick] [--jobs 2] [--out FILE.json]
"""

from __future__ import annotations

import itertools
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from common import data_file, markdown, mean_and_error, parse, write_json
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from seqmed import GraphPropagation, SeqGraphMED

DRAWS, PER_CLASS = 10, (1, 2, 3, 4, 5)
UNLABELED = -1
SETS = {"USPS": 500, "digits": 100}


def rows_of(name: str, rng: np.random.Generator) -> tuple[Any, Any, Any, Any]:
    """Return rows and classes of the stream, then of the test, in a random order."""
    if name == "USPS":
        with np.load(data_file("usps.npz")) as file:
            X, y, n = file["X"].astype(float), file["y"].astype(int), int(file["n_train"])
    else:
        X, y = load_digits(return_X_y=True)
        order, n = rng.permutation(len(y)), 1400
        X, y = X[order], y[order]
    order = rng.permutation(n)
    return X[order], y[order], X[n:], y[n:]


def run(task: tuple[str, int]) -> dict[tuple[str, int], float]:
    """Return the accuracy of every method and number of labels for one draw."""
    name, draw = task
    rng = np.random.default_rng((draw, *name.encode()))
    X, y, X_test, y_test = rows_of(name, rng)
    classes, counts = np.unique(y, return_counts=True)
    proportions = dict(zip(classes.tolist(), (counts / len(y)).tolist(), strict=True))
    order = rng.permutation(len(y))
    found = {}
    with threadpool_limits(1):
        for n_labels in PER_CLASS:
            shown = np.concatenate([order[y[order] == c][:n_labels] for c in classes])
            labels = np.full(len(y), UNLABELED)
            labels[shown] = y[shown]
            models = {
                "GraphPropagation": GraphPropagation(random_state=draw),
                "GraphPropagation, known proportions": GraphPropagation(
                    class_prior=proportions, random_state=draw
                ),
                "SeqGraphMED": SeqGraphMED(random_state=draw),
            }
            for method, model in models.items():
                for start in range(0, len(y), SETS[name]):
                    stop = start + SETS[name]
                    model.partial_fit(X[start:stop], labels[start:stop])
                found[method, n_labels] = 100.0 * float(model.score(X_test, y_test))
    return found


def main() -> None:
    """Run all draws, and print and write the means."""
    options = parse(__doc__)
    tasks = list(itertools.product(SETS, range(1 if options.quick else DRAWS)))
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(run, tasks))
    results: dict[str, Any] = {}
    for name in SETS:
        runs = [each for (own, _), each in zip(tasks, found, strict=True) if own == name]
        results[name] = {}
        for method, n_labels in runs[0]:
            values = mean_and_error([each[method, n_labels] for each in runs])
            results[name].setdefault(method, {})[n_labels] = values
    rows = [
        [
            f"{method}, {name}",
            *(f"{each['mean']:.1f} ± {each['error']:.1f}" for each in by.values()),
        ]
        for name, methods in results.items()
        for method, by in methods.items()
    ]
    print(markdown(["labels per class", *map(str, PER_CLASS)], rows))
    write_json(options.out, {"accuracies": results})


if __name__ == "__main__":
    main()
