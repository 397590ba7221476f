"""A search over twelve candidates: does it end where the best would have, and at what price.

Eight streams (see small_streams.py). In each, `PrequentialSearch` learns with twelve candidates:
before every batch it predicts all of its rows, and so does every candidate on its own. The search
sees labels as scarce as they are; the hindsight of the table knows all of them.

- behind: accuracy of the best single candidate of the stream, less that of the search, over all
  batches from the second on, and over the second half, in points;
- cost: processor seconds of learning with the search, judging included, over those of learning with
  one candidate alone, the mean over the twelve, each run by itself;
- on the two shells, where smoothing hurts, the beta of the candidate it ends with.

    SEQMED_DATA=FOLDER python benchmarks/search.py [--quick] [--jobs 2] [--only STREAM]
        [--out FILE.json]
"""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from common import make_parser, mean_and_error, print_table, write_json
from sklearn.model_selection import ParameterGrid
from small_streams import load
from threadpoolctl import threadpool_limits

from seqmed import PrequentialSearch, SeqLapMED, SeqMED

SMOOTHING = {"beta": [0.0, 0.03, 0.3, 3.0], "C": [2.0, 10.0, 100.0]}
DRIFT = {"forgetting": [1.0, 0.97, 0.9], "gamma": [0.03, 0.2], "C": [2.0, 10.0]}
LABELED = {"C": [1.5, 3.0, 10.0], "lag": [1, 10], "averaging": [False, True]}
SEARCHES = {
    "isolet": (SeqLapMED(random_state=0), SMOOTHING),
    "usps": (SeqLapMED(random_state=0), SMOOTHING),
    "elec2": (SeqMED(budget=300, random_state=0), DRIFT),
    "sms_spam": (SeqLapMED(kernel="tfidf", random_state=0), SMOOTHING),
    "categorical": (SeqMED(kernel="tfidf", random_state=0), LABELED),
    "sphere": (SeqLapMED(random_state=0), SMOOTHING),
    "shell": (SeqLapMED(random_state=0), SMOOTHING),
    "shell, few labels": (SeqLapMED(random_state=0), SMOOTHING),
}


def follow(model: Any, parts: list[Any]) -> tuple[Any, float]:
    """Return the share of rows right before learning, batch by batch, and seconds of learning."""
    classes = np.unique(np.concatenate([part.y for part in parts]))
    shares, seconds = [], 0.0
    for number, part in enumerate(parts):
        if number:
            shares.append(float(np.mean(model.predict(part.X) == part.y)))
        labels = np.where(part.shown, part.y.astype(float), np.nan)
        begun = time.process_time()
        model.partial_fit(part.X, labels, classes=classes)
        seconds += time.process_time() - begun
    return 100.0 * np.array(shares), seconds


def run(task: tuple[str, int], n_batches: int | None) -> dict[str, Any]:
    """Return the numbers of one stream with one seed."""
    name, seed = task
    parts = load(name, seed, n_batches)
    estimator, grid = SEARCHES[name]
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = [
            follow(type(estimator)(**estimator.get_params() | choice), parts)
            for choice in ParameterGrid(grid)
        ]
        search = PrequentialSearch(estimator, grid)
        found, seconds = follow(search, parts)
    curves = np.array([curve for curve, _ in alone])
    half = curves.shape[1] // 2
    result: dict[str, Any] = {"stream": name, "seed": seed, "chosen": search.best_params_}
    result |= {
        "accuracy": found.mean(), "behind": curves.mean(axis=1).max() - found.mean(),
        "behind_late": curves[:, half:].mean(axis=1).max() - found[half:].mean(),
    }  # fmt: skip
    costs = [cost for _, cost in alone]
    return result | {
        "candidates": curves.mean(axis=1), "seconds": seconds, "seconds_alone": costs,
        "cost": seconds / float(np.mean(costs)),
        "dropped": sum(why is not None for why in search.record_.dropped),
    }  # fmt: skip


def main():
    """Run all streams, print a table and write it as JSON."""
    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="eight batches, one seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--only", choices=list(SEARCHES), help="one stream")
    parser.add_argument("--out", help="write the results there as JSON")
    options = parser.parse_args()
    seeds = range(1) if options.quick else range(3)
    names = [options.only] if options.only else list(SEARCHES)
    tasks = [(name, seed) for name in names for seed in seeds if name != "isolet" or not seed]
    rows, runs = [], []
    with ProcessPoolExecutor(options.jobs) as pool:
        runs = list(pool.map(partial(run, n_batches=8 if options.quick else None), tasks))
    for name in names:
        own = [each for each in runs if each["stream"] == name]
        row = [name]
        for what in ("behind", "behind_late"):
            value = mean_and_error([each[what] for each in own])
            row.append(f"{value['mean']:+.2f} ± {value['error']:.2f}")
        candidates = np.mean([each["candidates"] for each in own], axis=0)
        row.append(f"{candidates.min():.1f} to {candidates.max():.1f}")
        row.append(f"{np.mean([each['cost'] for each in own]):.1f}")
        row.append(f"{np.mean([each['dropped'] for each in own]):.1f}")
        rows.append([*row, "; ".join(as_text(each["chosen"]) for each in own)])
    header = (
        "stream", "behind", "second half", "candidates", "cost", "dropped", "chosen",
    )  # fmt: skip
    print_table(header, rows)
    write_json(options.out, {"quick": options.quick, "runs": runs})


def as_text(parameters: dict[str, Any]) -> str:
    """Return parameters as a short text."""
    return ", ".join(f"{name} {value}" for name, value in parameters.items())


if __name__ == "__main__":
    main()
