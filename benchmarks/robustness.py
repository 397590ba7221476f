"""Two cases that are hard for classifiers of streams: a log in time order, and columns of noise.

- Room sensors (UCI Occupancy Detection), without their timestamp, in time order and in batches of
  100, through `make_stream_pipeline`. The log begins at night, so that its first batches say little
  about the scales of the columns. Labels of 2, 5 or 10 % of the rows are shown. The two other logs
  are held out.
- Standardised digits with 0, 300 or 1000 further columns of normal noise, in batches of 100, with
  labels of 5 % of the rows; 397 rows are held out.

"core" is SeqGraphMED without refitted experts. LogisticRegression(max_iter=1000) on standardised
columns and ExtraTrees(100) are fitted on the labels after the last batch. Five draws of labels, and
of the noise. Accuracy in per cent.

    SEQMED_DATA=FOLDER python benchmarks/robustness.py [--quick] [--jobs 2] [--out FILE.json]
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from common import data_file, mean_and_error, parse, print_table, write_json
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from seqmed import SeqGraphMED, make_stream_pipeline

DRAWS, BATCH = 5, 100
SHARES, NOISE_SHARE = (0.02, 0.05, 0.1), 0.05
NOISE_COLUMNS = (0, 300, 1000)
DIGITS_TEST = 397
UNLABELED = -1
OURS: dict[str, dict[str, Any]] = {"SeqGraphMED": {}, "core": {"experts": ()}}
PEERS = {
    "LogisticRegression": lambda seed: make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=1000)
    ),
    "ExtraTrees": lambda seed: ExtraTreesClassifier(100, random_state=seed),
}


def room(name: str) -> tuple[Any, Any]:
    """Return the sensor readings of a log as a data frame, and whether the room is occupied."""
    import pandas as pd

    frame = pd.read_csv(data_file(f"occupancy_{name}.csv.gz"))
    y = frame.pop("Occupancy").to_numpy()
    return frame.select_dtypes("number"), y


def learned(model: Any, X: Any, labels: Any) -> Any:
    """Return a classifier after a stream in batches."""
    for start in range(0, len(labels), BATCH):
        model.partial_fit(X[start : start + BATCH], labels[start : start + BATCH])
    return model


def accuracies(
    make_ours: Callable[[SeqGraphMED], Any],
    X: Any,
    labels: Any,
    tests: dict[str, tuple[Any, Any]],
    seed: int,
) -> dict[str, dict[str, float]]:
    """Return the held-out accuracy of every method in every test set."""
    shown = labels != UNLABELED
    ours = {name: SeqGraphMED(random_state=seed, **given) for name, given in OURS.items()}
    models = {name: learned(make_ours(model), X, labels) for name, model in ours.items()}
    for name, make in PEERS.items():
        models[name] = make(seed).fit(X[shown], labels[shown])
    return {
        test: {name: 100.0 * float(each.score(*rows)) for name, each in models.items()}
        for test, rows in tests.items()
    }


def sensors(share: float, draw: int) -> dict[str, dict[str, float]]:
    """Return the accuracies on the two other logs."""
    X, y = room("train")
    shown = np.random.default_rng(draw).random(len(y)) < share
    tests = {f"log {place}": room(name) for place, name in enumerate(("test", "test2"), start=1)}
    return accuracies(make_stream_pipeline, X, np.where(shown, y, UNLABELED), tests, draw)


def noise(n_columns: int, draw: int) -> dict[str, dict[str, float]]:
    """Return the accuracies on digits with columns of noise."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(draw)
    order = rng.permutation(len(y))
    X = np.hstack([StandardScaler().fit_transform(X), rng.normal(size=(len(y), n_columns))])[order]
    y, n = y[order], len(y) - DIGITS_TEST
    labels = np.where(rng.random(n) < NOISE_SHARE, y[:n], UNLABELED)
    test = {"digits": (X[n:], y[n:])}
    return accuracies(lambda model: model, X[:n], labels, test, draw)


def run(task: tuple[str, float, int]) -> dict[str, dict[str, float]]:
    """Return the accuracies of one draw."""
    warnings.simplefilter("ignore")
    kind, parameter, draw = task
    with threadpool_limits(1):
        return sensors(parameter, draw) if kind == "sensors" else noise(int(parameter), draw)


def main() -> None:
    """Run all draws, and print and write the means."""
    options = parse(__doc__)
    draws = 1 if options.quick else DRAWS
    cases = [("sensors", each) for each in SHARES] + [("noise", each) for each in NOISE_COLUMNS]
    tasks = [(*case, draw) for case, draw in itertools.product(cases, range(draws))]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = dict(zip(tasks, pool.map(run, tasks), strict=True))
    results: dict[str, Any] = {}
    for kind, parameter in cases:
        runs = [found[kind, parameter, draw] for draw in range(draws)]
        case = f"sensors, {parameter:.0%} labels" if kind == "sensors" else f"{parameter} columns"
        for test in runs[0]:
            values = {name: [each[test][name] for each in runs] for name in runs[0][test]}
            results[f"{case}, {test}"] = {k: mean_and_error(v) for k, v in values.items()}
    methods = list(next(iter(results.values())))
    print_table(
        ["", *methods],
        [
            [case, *(f"{cell[name]['mean']:.1f} ± {cell[name]['error']:.1f}" for name in methods)]
            for case, cell in results.items()
        ],
    )
    write_json(options.out, {"accuracies": results})


if __name__ == "__main__":
    main()
