"""Are the probabilities honest? Streams whose batches are predicted first and learned afterwards.

Three streams. ISOLET: 24 batches of five speakers, the first of each labeled, A-M against N-Z.
USPS: ten digits, 7291 training rows in a random order, batches of 200, one row in ten labeled.
Elec2: electricity prices in time order, batches of 200, one row in ten labeled, which drift.
Every batch from the second on is given probabilities before it is learned; all of its rows are
scored, also those whose labels are never shown.

- calibration error: rows in 15 bins of equal mass by the probability of the class predicted; the
  mean difference between that probability and the share of rows that were right;
- log loss in nats, and accuracy;
- against scikit-learn's SVC within CalibratedClassifierCV (sigmoid, 5 folds, its defaults), fitted
  anew on all labels so far, before every batch (elec2: before every fourth; compared are the
  batches both have scored). Kernel and C are the same.

Nothing is chosen here: the models have their defaults, and on elec2, which drifts, forgetting 0.97
and a budget of 300 points.

    SEQMED_DATA=FOLDER python benchmarks/calibration.py [--quick] [--jobs 2] [--out FILE.json]
"""

from __future__ import annotations

import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from common import data_file, mean_and_error, parse, print_table, write_json
from sklearn.calibration import CalibratedClassifierCV
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from paper import data
from seqmed import SeqLapMED, SeqMED

N_BINS = 15
BATCH, LABELED = 200, 0.1
SMALLEST = 1e-15
STREAMS = ("isolet", "usps", "elec2")
MODELS = {
    "isolet": (SeqLapMED, {}),
    "usps": (SeqLapMED, {}),
    "elec2": (SeqMED, {"forgetting": 0.97, "budget": 300}),
}
FULL_EVERY = {"isolet": 1, "usps": 1, "elec2": 4}


class Part(NamedTuple):
    """A batch: rows (n, p), classes (n,), and which labels are shown, (n,)."""

    X: Any
    y: Any
    shown: Any


def load(name: str, seed: int, quick: bool) -> list[Part]:
    """Return the batches of a stream; ``seed`` draws the labels shown, and USPS's order."""
    if name == "isolet":
        arrays = data.load_isolet(data_file("isolet.npz").parent, download=False)
        batches = data.isolet_stream(arrays).batches
        parts = [Part(batch.X, batch.y, batch.shown) for batch in batches]
        return parts[:8] if quick else parts
    rng = np.random.default_rng(seed)
    with np.load(data_file(f"{name}.npz")) as file:
        X, y = file["X"].astype(float), file["y"].astype(int)
        if name == "usps":
            order = rng.permutation(int(file["n_train"]))
            X, y = X[order], y[order]
        else:
            X = X[:, 1:]  # the date is left out
            first = X[: 10 * BATCH]
            scale = first.std(axis=0)
            X = (X - first.mean(axis=0)) / np.where(scale > 1e-8, scale, 1.0)
    shown = rng.random(len(y)) < LABELED
    n = (10 if quick else len(y) // BATCH) * BATCH
    return [
        Part(X[at : at + BATCH], y[at : at + BATCH], shown[at : at + BATCH])
        for at in range(0, n, BATCH)
    ]


def calibration_error(confidences: Any, right: Any) -> float:
    """Return the mean absolute difference between confidence and accuracy in bins of equal mass."""
    order = np.argsort(confidences, kind="stable")
    errors = [
        rows.size * abs(confidences[rows].mean() - right[rows].mean())
        for rows in np.array_split(order, N_BINS)
    ]
    return float(np.sum(errors) / order.size)


def summary(probabilities: Any, codes: Any) -> dict[str, float]:
    """Return calibration error, log loss and accuracy of probabilities (n, K)."""
    winners = probabilities.argmax(axis=1)
    rows = np.arange(codes.size)
    return {
        "calibration": calibration_error(probabilities[rows, winners], winners == codes),
        "log_loss": float(-np.log(np.maximum(probabilities[rows, codes], SMALLEST)).mean()),
        "accuracy": 100.0 * float((winners == codes).mean()),
    }


def full(parts: list[Part], classes: Any, X: Any) -> Any:
    """Return the probabilities of a calibrated SVC fitted on all labels so far."""
    shown_X = np.concatenate([part.X[part.shown] for part in parts])
    shown_y = np.concatenate([part.y[part.shown] for part in parts])
    model = CalibratedClassifierCV(SVC(C=10.0), cv=5)
    model.fit(shown_X, shown_y)
    found = np.zeros((len(X), classes.size))
    found[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(X)
    return found


def run(task: tuple[str, int], quick: bool) -> dict[str, Any]:
    """Return the numbers of one stream with one draw of labels."""
    name, seed = task
    parts = load(name, seed, quick)
    classes = np.unique(np.concatenate([part.y for part in parts]))
    kind, parameters = MODELS[name]
    model = kind(random_state=0, **parameters)
    ours, both, theirs = [], [], []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, part in enumerate(parts):
            codes = np.searchsorted(classes, part.y)
            if number:
                found = model.predict_proba(part.X)
                ours.append((found, codes))
                if number % FULL_EVERY[name] == 0 and enough(parts[:number]):
                    both.append((found, codes))
                    theirs.append((full(parts[:number], classes, part.X), codes))
            labels = np.where(part.shown, part.y.astype(float), np.nan)
            model.partial_fit(part.X, labels, classes=classes)
    result = {"stream": name, "seed": seed, "slope": model._state.calibration.slope}
    for title, found in (("seqmed", ours), ("seqmed, same batches", both), ("full SVC", theirs)):
        probabilities, codes = (np.concatenate(values) for values in zip(*found, strict=True))
        result[title] = summary(probabilities, codes)
    return result


def enough(parts: list[Part]) -> bool:
    """Whether every class seen so far has the five labels that five folds need."""
    _, counts = np.unique(np.concatenate([p.y[p.shown] for p in parts]), return_counts=True)
    return counts.size > 1 and counts.min() >= 5


def main():
    """Run all streams, print a table and write it as JSON."""
    options = parse(__doc__)
    seeds = range(1) if options.quick else range(3)
    tasks = [("isolet", 0), *((name, seed) for name in ("usps", "elec2") for seed in seeds)]
    with ProcessPoolExecutor(options.jobs) as pool:
        results = list(pool.map(partial(run, quick=options.quick), tasks))
    rows, table = [], []
    for name in STREAMS:
        runs = [result for result in results if result["stream"] == name]
        for title in ("seqmed", "seqmed, same batches", "full SVC"):
            numbers = {
                what: mean_and_error([result[title][what] for result in runs])
                for what in ("calibration", "log_loss", "accuracy")
            }
            table.append({"stream": name, "model": title, **numbers})
            rows.append((
                f"{name}, {title}", f"{numbers['calibration']['mean']:.3f}",
                f"{numbers['log_loss']['mean']:.3f}", f"{numbers['accuracy']['mean']:.2f}",
            ))  # fmt: skip
    print_table(("stream", "calibration error", "log loss", "accuracy"), rows)
    write_json(options.out, {"quick": options.quick, "table": table, "runs": results})


if __name__ == "__main__":
    main()
