"""What unlabeled rows add: the margin alone, the graph alone, and SeqGraphMED.

Two tasks with test rows. USPS: ten digits, the 7291 training rows in one random order, in batches
of 200, and the 2007 test rows. ISOLET: 26 letters, 24 batches of five speakers in the original
order, tested on the 30 speakers of isolet5. Printed is the accuracy on test rows after the last
batch.

Two tasks in their own order, in batches of 200: elec2 as in `elec2.py`, without the date, and
sms_spam, hashed words weighted by tf-idf of the first batch, sparse. Printed is prequential
accuracy: every batch is predicted before it is learned.

Of 1, 2, 5, 10 or 25 % of the rows, drawn one by one at random, the label is shown: five draws for
each, the same for all methods. All parameters are the defaults. Gains over the margin are paired
over the draws. Every process has one thread; seconds are processor seconds of learning.

    SEQMED_DATA=FOLDER python benchmarks/unlabeled.py [--quick] [--only TASK] [--jobs 2]
        [--out FILE.json]
"""

from __future__ import annotations

import gzip
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import pairwise
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from common import data_file, make_parser, mean_and_error, print_table, write_json
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from threadpoolctl import threadpool_limits

from paper import data
from seqmed import GraphPropagation, SeqGraphMED, SeqMED

TASKS = ("usps", "isolet-26", "elec2", "sms_spam")
METHODS = {
    "margin": lambda: SeqMED(random_state=0),
    "graph": lambda: GraphPropagation(random_state=0),
    "SeqGraphMED": lambda: SeqGraphMED(random_state=0),
}
LABEL_FRACTIONS, N_MASKS = (0.01, 0.02, 0.05, 0.1, 0.25), 5
QUICK_FRACTIONS, QUICK_MASKS, QUICK_ROWS = (0.01, 0.1), 1, 3000
BATCH, USPS_SEED, WORDS = 200, 0, 2**16


class Rows(NamedTuple):
    """Rows of a stream (n, p) and classes (n,), where batches begin, and the rows scored.

    ``X_scored`` is None if every batch is predicted before it is learned.
    """

    X: Any
    y: Any
    bounds: tuple[int, ...]
    X_scored: Any = None
    y_scored: Any = None


def batches_of(n: int) -> tuple[int, ...]:
    """Return where batches of `BATCH` rows begin and end."""
    return (*range(0, n, BATCH), n)


@cache
def load(task: str, quick: bool) -> Rows:
    """Return the rows of a task."""
    loaders = {"usps": load_usps, "isolet-26": load_isolet, "elec2": load_elec2}
    return loaders.get(task, load_sms)(quick)


def load_usps(quick: bool) -> Rows:
    """Return USPS digits in a fixed random order."""
    with np.load(data_file("usps.npz")) as file:
        X, y, n = file["X"].astype(float), file["y"].astype(int), int(file["n_train"])
    order = np.random.default_rng(USPS_SEED).permutation(n)[: QUICK_ROWS if quick else n]
    return Rows(X[order], y[order], batches_of(order.size), X[n:], y[n:])


def load_isolet(quick: bool) -> Rows:
    """Return ISOLET's 26 letters in their original order."""
    arrays = data.load_isolet(data_file("isolet.npz").parent, download=False)
    stream = data.isolet_stream(arrays)
    batches = stream.batches[: 12 if quick else None]
    bounds = tuple(np.cumsum([0, *(len(batch.y) for batch in batches)]).tolist())
    letters = arrays["y_train"].astype(int)[: bounds[-1]]
    X = np.concatenate([batch.X for batch in batches])
    return Rows(X, letters, bounds, stream.X_test, arrays["y_test"].astype(int))


def load_elec2(quick: bool) -> Rows:
    """Return elec2 in time order, without the date, standardised by its first ten batches."""
    with np.load(data_file("elec2.npz")) as file:
        n = QUICK_ROWS if quick else len(file["y"])
        X, y = file["X"][:n, 1:].astype(float), file["y"][:n].astype(int)
    first = X[: 10 * BATCH]
    scale = first.std(axis=0)
    return Rows((X - first.mean(axis=0)) / np.where(scale > 1e-8, scale, 1.0), y, batches_of(n))


def load_sms(quick: bool) -> Rows:
    """Return sms_spam in its order: hashed words, weighted by the first batch."""
    with gzip.open(data_file("sms_spam.tsv.gz"), "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t", 1) for line in file]
    lines = lines[: QUICK_ROWS if quick else None]
    counts = HashingVectorizer(n_features=WORDS, norm=None, alternate_sign=False)
    counts = counts.transform([text for _, text in lines])
    X = TfidfTransformer(sublinear_tf=True).fit(counts[:BATCH]).transform(counts)
    y = np.array([kind == "spam" for kind, _ in lines]).astype(int)
    return Rows(X, y, batches_of(len(y)))


def shown(task: str, fraction: float, mask: int, quick: bool) -> Any:
    """Return a mask (n,) of the rows whose label is shown."""
    rng = np.random.default_rng((mask, round(1000 * fraction)))
    return rng.random(len(load(task, quick).y)) < fraction


def percent_right(predicted: Any, y: Any) -> float:
    """Return accuracy in per cent."""
    return 100.0 * float(np.mean(predicted == y))


def prepare() -> None:
    """Give a process one thread, and have everything compiled before anything is timed."""
    threadpool_limits(1)
    X = np.random.default_rng(0).normal(size=(60, 2))
    for make in METHODS.values():
        make().fit(X, np.arange(60) % 3).predict(X)


def run(task: str, fraction: float, mask: int, method: str, quick: bool) -> dict[str, float]:
    """Return accuracy and processor seconds of learning."""
    rows, model, seconds, right = load(task, quick), METHODS[method](), 0.0, 0
    given, learned = shown(task, fraction, mask, quick), False
    # SeqMED has no marker of unlabeled rows but NaN; the classes are small integers
    labels = np.where(given, rows.y.astype(float), np.nan)
    for start, end in pairwise(rows.bounds):
        X, y = rows.X[start:end], rows.y[start:end]
        if rows.X_scored is None:
            right += int(np.sum(model.predict(X) == y)) if learned else int(np.sum(y == 0))
        begin = time.process_time()
        model.partial_fit(X, labels[start:end])
        seconds += time.process_time() - begin
        learned = learned or bool(given[start:end].any())
    if rows.X_scored is None:
        return {"accuracy": 100.0 * right / len(rows.y), "seconds": seconds}
    accuracy = percent_right(model.predict(rows.X_scored), rows.y_scored)
    return {"accuracy": accuracy, "seconds": seconds}


def summary(task: str, fraction: float, runs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return one cell: accuracies, gains over the margin, seconds."""
    base = np.array([each["accuracy"] for each in runs["margin"]])
    found: dict[str, Any] = {}
    for method, of_method in runs.items():
        accuracies = np.array([each["accuracy"] for each in of_method])
        found[method] = {
            "accuracies": accuracies,
            "accuracy": mean_and_error(accuracies),
            "gain": mean_and_error(accuracies - base),
            "seconds": float(np.median([each["seconds"] for each in of_method])),
        }
    return {"task": task, "labels": fraction, "methods": found}


def main() -> None:
    """Run cell by cell; print each, and write all that there are as JSON."""
    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows, one draw, two fractions")
    parser.add_argument("--only", choices=TASKS, help="one task")
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--out", help="write the results there as JSON")
    options = parser.parse_args()
    quick, cells = options.quick, []
    masks = range(QUICK_MASKS if quick else N_MASKS)
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), prepare) as pool:
        for task in [options.only] if options.only else TASKS:
            for fraction in QUICK_FRACTIONS if quick else LABEL_FRACTIONS:
                started = {
                    method: [pool.submit(run, task, fraction, m, method, quick) for m in masks]
                    for method in METHODS
                }
                runs = {name: [each.result() for each in of] for name, of in started.items()}
                cells.append(summary(task, fraction, runs))
                report(cells[-1])
                write_json(options.out, {"quick": quick, "cells": cells})


def report(cell: dict[str, Any]) -> None:
    """Print one cell."""
    print(f"\n{cell['task']}, {cell['labels']:.0%} labeled")
    print_table(
        ("method", "accuracy", "gain", "error", "seconds"),
        [
            (
                name,
                *(
                    f"{value:.2f}"
                    for value in (
                        found["accuracy"]["mean"], found["gain"]["mean"],
                        found["gain"]["error"], found["seconds"],
                    )
                ),
            )
            for name, found in cell["methods"].items()
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
