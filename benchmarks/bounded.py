"""Staying within a budget: labels learned with the whole kernel, or within a span.

Every model is SeqMED, once bounded only in its lag and otherwise within the same budget of points:

- projected: labels are learned with the whole kernel, and points beyond the budget are projected on
  landmarks, a uniform sample of the stream (what `SeqLapMED(budget=...)` does with beta = 0);
- within a span: labels are learned within the span of landmarks, labeled points (the default).

Accuracy is by batches before they are learned, over the second half of a stream, all labels
shown. The streams are made up (see `made_up`; not those of `speed.py`), the training rows of USPS,
and elec2.

    SEQMED_DATA=... python benchmarks/bounded.py [--quick] [--jobs 2] [--out FILE.json]
"""

from __future__ import annotations

import os
import warnings
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import small_streams
from common import make_parser, print_table, write_json
from joblib import Parallel, delayed
from sklearn.datasets import make_classification
from sklearn.preprocessing import StandardScaler

from seqmed import SeqMED
from seqmed.margin import margin_state
from seqmed.margin.covariance import make_recursion

RULES = ("unbounded", "projected", "within a span")
RECIPES = {"averaged": {"lag": 1, "averaging": True}, "lag 10": {"lag": 10}}
BUDGETS = (300, 800)
BATCH = 400


class Run(NamedTuple):
    """One stream learned by one rule."""

    stream: str
    rule: str
    recipe: str
    budget: int


def projected(parameters, kernel, points, seed):
    """Return the recursion of a SeqMED that projects points beyond the budget on landmarks."""
    return make_recursion("landmarks", kernel, n_landmarks=parameters.n_landmarks, seed=seed)


def made_up(seed: int) -> tuple[Any, Any]:
    """Return 8000 rows of a stream that differs from seed to seed in columns, noise and classes."""
    n_features = (10, 20, 40)[seed % 3]
    X, y = make_classification(
        8000, n_features, n_informative=n_features // 2, n_classes=(2, 4)[seed % 2],
        n_clusters_per_class=(2, 4)[seed // 2 % 2], class_sep=(0.7, 1.0)[seed // 3 % 2],
        flip_y=0.03, random_state=100 + seed,
    )  # fmt: skip
    return StandardScaler().fit_transform(X), y


def load(name: str) -> list[tuple[Any, Any]]:
    """Return the batches of a stream."""
    if name.startswith("made up"):
        X, y = made_up(int(name.split()[-1]))
    elif name == "usps":
        X, y = small_streams.usps()
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order], y[order]
    else:
        X, y = (each[:12000] for each in small_streams.elec2())
    starts = range(0, len(y) - BATCH + 1, BATCH)
    return [(X[at : at + BATCH], y[at : at + BATCH]) for at in starts]


def accuracy(run: Run, n_batches: int | None) -> float:
    """Return the percentage of rows classified well before they were learned, second half."""
    warnings.simplefilter("ignore")
    budget = None if run.rule == "unbounded" else run.budget
    model = SeqMED(C=10.0, budget=budget, random_state=0, **RECIPES[run.recipe])
    right: list[float] = []
    begin = projected if run.rule == "projected" else margin_state.first_recursion
    with patch.object(margin_state, "first_recursion", begin):
        for X, y in load(run.stream)[:n_batches]:
            if hasattr(model, "classes_"):
                right.append(float(np.mean(model.predict(X) == y)))
            model.partial_fit(X, y)
    return 100 * float(np.mean(right[len(right) // 2 :]))


def main():
    """Run all, print a table per recipe and budget, and write them as JSON."""
    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="three streams of eight batches")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", help="write the results there as JSON")
    options = parser.parse_args()
    names = [f"made up {seed}" for seed in range(3 if options.quick else 8)]
    if "SEQMED_DATA" in os.environ and not options.quick:
        names += ["usps", "elec2"]
    runs = [Run(*each) for each in product(names, RULES, RECIPES, BUDGETS)]
    found = Parallel(options.jobs)(
        delayed(accuracy)(run, 8 if options.quick else None) for run in runs
    )
    table = dict(zip(runs, found, strict=True))
    for recipe, budget in product(RECIPES, BUDGETS):
        print(f"\n{recipe}, budget {budget}")
        print_table(
            ("", *RULES),
            [
                (name, *(f"{table[Run(name, rule, recipe, budget)]:.2f}" for rule in RULES))
                for name in names
            ],
        )
    cells = [run._asdict() | {"accuracy": value} for run, value in table.items()]
    write_json(options.out, {"quick": options.quick, "cells": cells})


if __name__ == "__main__":
    main()
