"""Variants of SeqGraphMED on the streams on which its experts, scales and new starts were chosen.

The streams are in development_sets.py. Batches have 100 rows and are predicted before they are
learned, with 1, 5 or 10 % of their labels, drawn at random, and with 25 % on streams whose errors
come in groups. Accuracy is over all rows. Three seeds draw streams and labels.

With --change two other streams change abruptly. They have 5 % labels, 100 of them in the 2000 rows
after the change. Accuracy is on the next 1000 rows, which are not learned. A model "started at the
change" has learned these 2000 rows only. The same streams without the change show the cost of the
search for changes: accuracy over all rows, predicted before they are learned. Ten seeds.

    python benchmarks/development_streams.py [--change] [--streams NAME ...] [--out FILE.json]

Results are written after every cell. Cells that the file has are not run again.
"""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from common import Later, make_parser, print_table, write_json
from development_sets import CHANGE, CHANGING, END, GROUPED, STREAMS
from streams import BATCH, SHARES, UNLABELED, Own, run
from threadpoolctl import threadpool_limits

from seqmed import SeqGraphMED

river = Later("river")

SEEDS, CHANGE_SEEDS = range(3), range(10)
# Share of labels of the streams whose errors come in groups, besides the others.
LARGE_SHARE = 0.25
CHANGE_SHARE, CHANGE_LABELS, TESTED = 0.05, 100, 12_000
# Name of a variant: parameters, and whether it has the linear expert.
VARIANTS: dict[str, tuple[dict[str, Any], bool]] = {
    "margin and graph": ({"scale": None, "forgetting": 1.0}, False),
    "and a linear expert": ({"scale": None, "forgetting": 1.0}, True),
    "and scales": ({"forgetting": 1.0}, True),
    "and new starts after a change": ({}, True),
}


def accuracy(name: str, X: Any, y: Any, labels: Any) -> float:
    """Return the accuracy of a variant over all rows, in per cent."""
    parameters, linear = VARIANTS[name]
    with (
        nullcontext()
        if linear
        else patch("seqmed.mixture.linear_expert.LinearExpert.is_due", lambda *_, **__: False)
    ):
        return run(lambda *_: Own(SeqGraphMED(random_state=0, **parameters)), X, y, labels)[0]


def after_change(X: Any, y: Any, labels: Any, begin: int, forgetting: float | str) -> float:
    """Return the accuracy on the last 1000 rows of a model that learns from row ``begin`` on."""
    model = Own(SeqGraphMED(random_state=0, forgetting=forgetting))
    for start in range(begin, TESTED, BATCH):
        model.learn(X[start : start + BATCH], labels[start : start + BATCH])
    return 100.0 * float((model.predict(X[TESTED:]) == y[TESTED:]).mean())


def change_accuracies(stream: str, seed: int) -> dict[str, float]:
    """Return all accuracies of a stream with and without the change."""
    rng = np.random.default_rng(seed)
    shown = rng.random(END) < CHANGE_SHARE
    X, y = CHANGING[stream](seed, change=False)
    labels = np.where(shown, y, UNLABELED)
    without = {
        "no change, default": accuracy("and new starts after a change", X, y, labels),
        "no change, never forgets": accuracy("and scales", X, y, labels),
    }
    X, y = CHANGING[stream](seed, change=True)
    shown[CHANGE:] = False
    shown[CHANGE + rng.choice(TESTED - CHANGE, CHANGE_LABELS, replace=False)] = True
    labels = np.where(shown, y, UNLABELED)
    return without | {
        "change, default": after_change(X, y, labels, 0, "auto"),
        "change, never forgets": after_change(X, y, labels, 0, 1.0),
        "change, started at the change": after_change(X, y, labels, CHANGE, "auto"),
    }


def run_variants(results: dict[str, Any], streams: list[str], out: str | None) -> None:
    """Run the missing cells of the variants."""
    for stream, seed in ((stream, seed) for stream in streams for seed in SEEDS):
        X, y = STREAMS[stream](seed)
        for share in (*SHARES, LARGE_SHARE) if stream in GROUPED else SHARES:
            drawn = np.random.default_rng((seed, 7, round(1000 * share))).random(len(y))
            labels = np.where(drawn < share, y, UNLABELED)
            cell = results["cells"].setdefault(stream, {}).setdefault(str(share), {})
            for name in VARIANTS:
                of_seeds = cell.setdefault(name, {})
                if str(seed) not in of_seeds:
                    of_seeds[str(seed)] = round(accuracy(name, X, y, labels), 3)
                    print(f"{stream}, {share:.0%}, {name}: {of_seeds[str(seed)]:.1f}", flush=True)
                    write_json(out, results)


def run_change(results: dict[str, Any], out: str | None) -> None:
    """Run the missing cells of the streams that change abruptly."""
    for stream, seed in ((stream, seed) for stream in CHANGING for seed in CHANGE_SEEDS):
        of_seeds = results["change"].setdefault(stream, {})
        if str(seed) not in of_seeds:
            found = change_accuracies(stream, seed)
            of_seeds[str(seed)] = {name: round(value, 3) for name, value in found.items()}
            print(f"{stream}, seed {seed}: {of_seeds[str(seed)]}", flush=True)
            write_json(out, results)


def print_variants(cells: dict[str, Any]) -> None:
    """Print mean accuracies over shares and seeds, and how far variants are below the best one."""
    of_cells = {
        (stream, share): np.array([np.mean(list(cell[variant].values())) for variant in VARIANTS])
        for stream in STREAMS
        for share, cell in cells.get(stream, {}).items()
    }
    streams = dict.fromkeys(stream for stream, _ in of_cells)
    rows = {
        name: np.mean([means for (stream, _), means in of_cells.items() if stream == name], axis=0)
        for name in streams
    }
    of_streams = np.array(list(rows.values()))
    for share in (*SHARES, LARGE_SHARE):
        means = [mean for (_, each), mean in of_cells.items() if float(each) == share]
        if means:
            rows[f"mean, {share:.0%} labels"] = np.mean(means, axis=0)
    rows["mean of all streams"] = of_streams.mean(axis=0)
    all_cells = np.array(list(of_cells.values()))
    for name, means in (("stream", of_streams), ("stream and share", all_cells)):
        below = means.max(axis=-1, keepdims=True) - means
        rows[f"below the best, worst {name}"] = below.max(axis=0)
    print_table(["", *VARIANTS], [[name, *(f"{v:.1f}" for v in row)] for name, row in rows.items()])


def print_change(cells: dict[str, Any]) -> None:
    """Print mean accuracies, and the mean and largest loss of the default."""
    for stream, by_seed in cells.items():
        runs = list(by_seed.values())
        found = {name: np.array([run[name] for run in runs]) for name in runs[0]}
        print(f"\n{stream}, {len(runs)} seeds")
        print_table(["", "accuracy"], [[name, f"{v.mean():.2f}"] for name, v in found.items()])
        for kind, other in (("change", "started at the change"), ("no change", "never forgets")):
            loss = found[f"{kind}, {other}"] - found[f"{kind}, default"]
            print(f"{kind}: mean loss {loss.mean():.2f}, largest loss {loss.max():.2f}")


def main() -> None:
    """Run the cells that are missing, and print and write everything there is."""
    parser = make_parser(__doc__)
    parser.add_argument("--change", action="store_true", help="run the streams that change")
    parser.add_argument("--streams", nargs="+", choices=list(STREAMS), metavar="NAME")
    parser.add_argument("--out", help="write the results there as JSON, and go on from there")
    options = parser.parse_args()
    results: dict[str, Any] = {"river": river.__version__, "cells": {}, "change": {}}
    if options.out and Path(options.out).exists():
        results = json.loads(Path(options.out).read_text())
    warnings.simplefilter("ignore")  # few labels: classes with one row, solvers that stop early
    with threadpool_limits(1):
        if options.change:
            run_change(results, options.out)
            print_change(results["change"])
        else:
            run_variants(results, options.streams or list(STREAMS), options.out)
            print_variants(results["cells"])


if __name__ == "__main__":
    main()
