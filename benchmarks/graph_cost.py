"""What the graph costs: updates and predictions of SeqGraphMED beside those of SeqMED.

USPS and ISOLET's 26 letters as in `unlabeled.py`, with 1, 5 and 25 % of the labels. Measured are
processor milliseconds of an update, mean over the stream, and processor microseconds of predicting
a row, all test rows at once. Every process has one thread; methods take turns, and of three rounds
the median of the ratios counts.

    SEQMED_DATA=FOLDER python benchmarks/graph_cost.py [--quick] [--old FOLDER] [--out FILE.json]

With --old, the src folder of another version, SeqLapMED of that version takes its turn too: with
its defaults, and with beta = 0. `git worktree add FOLDER 85e89a4` is the last version whose default
linked batches by a dense graph.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np
from common import make_parser, print_table, write_json

TASKS, FRACTIONS, ROUNDS = ("usps", "isolet-26"), (0.01, 0.05, 0.25), 3
NEW = ("SeqGraphMED", "SeqMED")
OLD = ("old default", "old, beta = 0")


def make(name: str) -> Any:
    """Return a classifier of the version that is imported."""
    import seqmed

    if name in NEW:
        return getattr(seqmed, name)(random_state=0)
    return seqmed.SeqLapMED(random_state=0, beta=0 if name == OLD[1] else None)


def measure(name: str, task: str, fraction: float) -> dict[str, float]:
    """Return milliseconds of an update and microseconds of predicting a row."""
    from threadpoolctl import threadpool_limits

    file = np.load(os.environ["GRAPH_COST_ROWS"])
    X, y, bounds, X_test = file["X"], file["y"], file["bounds"], file["X_test"]
    rng = np.random.default_rng((0, round(1000 * fraction)))
    labels = np.where(rng.random(len(y)) < fraction, y, np.nan)
    with threadpool_limits(1):
        small = np.random.default_rng(0).normal(size=(60, 2))
        make(name).fit(small, np.arange(60) % 3).predict(small)
        model, begin = make(name), time.process_time()
        for start, end in pairwise(bounds):
            model.partial_fit(X[start:end], labels[start:end])
        update = (time.process_time() - begin) / (len(bounds) - 1)
        model.predict(X_test)
        begin = time.process_time()
        model.predict(X_test)
        predict = (time.process_time() - begin) / len(X_test)
    return {"update": 1e3 * update, "predict": 1e6 * predict}


def run(name: str, task: str, fraction: float, source: str | None, rows: str) -> dict[str, float]:
    """Measure in a process of its own, which imports the version it is told."""
    environment = {**os.environ, "GRAPH_COST_ROWS": rows}
    if source is not None:
        environment["PYTHONPATH"] = source
    command = [sys.executable, __file__, "--one", name, task, str(fraction)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(found.stdout)


def rows_file(task: str, folder: str) -> str:
    """Write the rows of a task for the processes that measure."""
    from unlabeled import load

    rows, path = load(task, False), os.path.join(folder, f"{task}.npz")
    np.savez(path, X=rows.X, y=rows.y, bounds=rows.bounds, X_test=rows.X_scored)
    return path


def main() -> None:
    """Measure in turns; print and write ratios."""
    import tempfile

    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, USPS")
    parser.add_argument("--old", metavar="FOLDER", help="src of the version to compare with")
    parser.add_argument("--out", help="write the results there as JSON")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, task, fraction = options.one
        print(json.dumps(measure(name, task, float(fraction))))
        return
    names = (*NEW, *(OLD if options.old else ()))
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        for task in TASKS[:1] if options.quick else TASKS:
            path = rows_file(task, folder)
            for fraction in FRACTIONS:
                rounds: list[dict[str, dict[str, float]]] = [
                    {
                        name: run(name, task, fraction, options.old if name in OLD else None, path)
                        for name in names
                    }
                    for _ in range(1 if options.quick else ROUNDS)
                ]
                cells.append({"task": task, "labels": fraction, **summary(rounds)})
                report(cells[-1])
                write_json(options.out, {"cells": cells})


def summary(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Return medians over the rounds: of times, and of SeqGraphMED's ratios to the others."""
    found: dict[str, Any] = {"times": {}, "ratios": {}}
    for name in rounds[0]:
        for kind in ("update", "predict"):
            times = [each[name][kind] for each in rounds]
            ratios = [each[NEW[0]][kind] / each[name][kind] for each in rounds]
            found["times"].setdefault(name, {})[kind] = float(np.median(times))
            found["ratios"].setdefault(name, {})[kind] = float(np.median(ratios))
    return found


def report(cell: dict[str, Any]) -> None:
    """Print one cell."""
    print(f"\n{cell['task']}, {cell['labels']:.0%} labeled")
    header = ("", "ms an update", "ratio", "us a prediction", "ratio")
    rows = []
    for name, times in cell["times"].items():
        ratios = cell["ratios"][name]
        rows.append([
            name, f"{times['update']:.1f}", f"{ratios['update']:.2f}",
            f"{times['predict']:.1f}", f"{ratios['predict']:.2f}",
        ])  # fmt: skip
    print_table(header, rows)


if __name__ == "__main__":
    main()
