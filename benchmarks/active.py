"""Labels that are asked for, against labels at random: few per batch, on three streams.

USPS: the 7291 training rows, ten digits, in batches of 200; tested on the 2007 test rows. ISOLET:
26 letters, 24 batches of five of the 120 training speakers; tested on the 30 speakers of isolet5.
SMS spam: 4400 messages as counts of words, digits and signs, tf-idf kernel, in batches of 200;
tested on the other 1174, by balanced accuracy too, since an eighth is spam.

Every batch is first learned without labels; then a rule chooses the rows to label, and their labels
are learned as late ones, the very first batch included. Rules:

- random: drawn at random;
- margin: the smallest difference of the two best scores (at random until two classes are known);
- query: `seqmed.selection.queries.query`.

The learner is SeqMED with its defaults, or with --model SeqLapMED that one. A seed gives the order
of rows, or of speakers, and the draws; rules are compared seed by seed. Printed are test accuracies
after the last batch and the area under the curve, that is their mean over every third batch; then
query with 60 % of the labels against random, and the labels per batch that query needs for the
accuracy of random, interpolated between the budgets (a bound where it lies outside).

Nothing is tuned here. The rule was chosen by other orders of training rows, scored on training rows
that were held out (of SMS: of the 4400), and on scikit-learn's digits.

    SEQMED_DATA=FOLDER python benchmarks/active.py [--model SeqLapMED] [--only STREAM]
        [--budgets 3 5 6 10 12 20] [--seeds 10] [--quick] [--jobs 2] [--out FILE.json]

The full run takes about 20 minutes of processor time.
"""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import pairwise
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import sms_spam
import usps
from common import data_file, make_parser, mean_and_error, print_table, write_json
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from threadpoolctl import threadpool_limits

from paper import data
from seqmed import SeqLapMED, SeqMED, query

MODELS = {"SeqMED": SeqMED, "SeqLapMED": SeqLapMED}
STREAMS = ("usps", "isolet", "sms_spam")
RULES = ("random", "margin", "query")
BUDGETS = (3, 5, 6, 10, 12, 20)
PAIRS = ((3, 5), (6, 10), (12, 20))  # query with 60 % of random's labels
QUICK_BUDGETS, QUICK_SEEDS, QUICK_BATCHES = (6, 10), 2, 10
BATCH, SCORED_EVERY = 200, 3
SMS_TOKENS = "words, digits, signs"
MEASURES = {"accuracy": accuracy_score, "balanced accuracy": balanced_accuracy_score}
BALANCED = ("sms_spam",)


class Rows(NamedTuple):
    """Training rows (n, p) and classes (n,), where batches begin and end, test rows, and kernel."""

    X: Any
    y: Any
    bounds: tuple[int, ...]
    X_test: Any
    y_test: Any
    kernel: str = "rbf"


class Run(NamedTuple):
    """One pass: which stream, rule, labels per batch, seed, learner; batches, None for all."""

    stream: str
    rule: str
    budget: int
    seed: int
    model: str
    n_batches: int | None


# -- data ------------------------------------------------------------------------------------------


@cache
def load(stream: str, seed: int) -> Rows:
    """Return the rows of a stream in the order of a seed."""
    generator = np.random.default_rng(seed)
    return {"usps": load_usps, "isolet": load_isolet, "sms_spam": load_sms}[stream](generator)


def load_usps(generator) -> Rows:
    """Return USPS digits, training rows in a random order."""
    X, y, X_test, y_test = usps.load()
    order = generator.permutation(len(y))
    return Rows(X[order], y[order], (*range(0, len(y), BATCH), len(y)), X_test, y_test)


def load_isolet(generator) -> Rows:
    """Return ISOLET's letters, five training speakers to a batch, speakers in a random order."""
    arrays = data.load_isolet(data_file("isolet.npz").parent, download=False)
    X, X_test = (arrays[name] * data.UNIT for name in ("X_train", "X_test"))
    y, y_test = (arrays[name].astype(int) for name in ("y_train", "y_test"))
    speakers = data.speakers()[: len(y)]
    groups = generator.permutation(np.unique(speakers)).reshape(-1, 5)
    batches = [generator.permutation(np.flatnonzero(np.isin(speakers, group))) for group in groups]
    bounds = tuple(np.cumsum([0, *map(len, batches)]).tolist())
    order = np.concatenate(batches)
    return Rows(X[order], y[order], bounds, X_test, y_test)


def load_sms(generator) -> Rows:
    """Return SMS as counts, the rows of the stream in a random order."""
    counts, y, held_out = sms_spam.load()
    X = counts[SMS_TOKENS]
    order = generator.permutation(held_out)
    bounds = tuple(range(0, held_out + 1, BATCH))
    return Rows(X[order], y[order], bounds, X[held_out:], y[held_out:], "tfidf")


# -- one pass --------------------------------------------------------------------------------------


def prepare() -> None:
    """Give a process one thread, and spare the reader warnings that change nothing here."""
    threadpool_limits(1)
    warnings.simplefilter("ignore", ConvergenceWarning)


def choose(rule: str, model, X, budget: int, generator):
    """Return the rows of a batch to label, (budget,)."""
    if rule == "query":
        return query(model, X, budget)
    if rule == "random" or len(model.classes_) < 2:
        return generator.choice(X.shape[0], budget, replace=False)
    scores = model.decision_function(X)
    if scores.ndim == 1:
        margins = np.abs(scores)
    else:
        second, best = np.sort(scores, axis=1)[:, -2:].T
        margins = best - second
    return np.argsort(margins, kind="stable")[:budget]


def follow(run: Run) -> dict[str, Any]:
    """Return test scores in per cent, of every third batch and the last, and times in seconds."""
    rows, generator = load(run.stream, run.seed), np.random.default_rng((run.seed, 1))
    model = MODELS[run.model](kernel=rows.kernel, random_state=0)
    batches = list(pairwise(rows.bounds))[: run.n_batches]
    curves: dict[str, list[float]] = {name: [] for name in MEASURES}
    asking = learning = 0.0
    for number, (start, end) in enumerate(batches, 1):
        X, y = rows.X[start:end], rows.y[start:end]
        begin = time.process_time()
        model.partial_fit(X, [None] * len(y))
        learned = time.process_time()
        chosen = choose(run.rule, model, X, min(run.budget, len(y)), generator)
        asked = time.process_time()
        model.partial_fit(X[chosen], y[chosen], new_points=False)
        asking += asked - learned
        learning += time.process_time() - asked + learned - begin
        if number % SCORED_EVERY == 0 or number == len(batches):
            predicted = model.predict(rows.X_test)
            for name, measure in MEASURES.items():
                curves[name].append(100.0 * measure(rows.y_test, predicted))
    return {
        "curves": curves,
        "seconds_of_asking": asking / len(batches),
        "seconds_of_learning": learning / len(batches),
    }


# -- the tables ------------------------------------------------------------------------------------


def summary(curves: list[list[float]]) -> dict[str, Any]:
    """Return the score after the last batch and the area under the curve, of all seeds."""
    last, area = [curve[-1] for curve in curves], [float(np.mean(curve)) for curve in curves]
    return {"last": last, "area": area, "mean_last": mean_and_error(last),
            "mean_area": mean_and_error(area)}  # fmt: skip


def compared(table: dict[tuple[str, int], dict[str, Any]], budgets) -> list[dict[str, Any]]:
    """Return query with 60 % of the labels against random, and the labels it needs instead."""
    found = []
    for few, many in PAIRS:
        if few not in budgets or many not in budgets:
            continue
        row: dict[str, Any] = {"query": few, "random": many}
        for part in ("last", "area"):
            gains = np.subtract(table["query", few][part], table["random", many][part])
            curve = [np.mean(table["query", budget][part]) for budget in budgets]
            target = np.mean(table["random", many][part])
            # accuracies may dip by chance; the first budget that reaches the target counts
            needed = float(np.interp(target, np.maximum.accumulate(curve), budgets))
            outside = "<" if target < curve[0] else ">" if target > max(curve) else ""
            row[part] = {"gain": mean_and_error(gains), "gains": gains, "needed": needed,
                         "outside": outside}  # fmt: skip
        found.append(row)
    return found


def text(value: dict[str, float], sign: str = "") -> str:
    """Return a mean and its standard error."""
    return f"{value['mean']:{sign}.2f} ± {value['error']:.2f}"


def report(stream: str, measure: str, table, pairs, budgets) -> None:
    """Print the tables of one stream and one measure."""
    print(f"\n{stream}, {measure}: after the last batch; area under the curve")
    lines = [
        (budget, *(
            f"{text(table[rule, budget]['mean_last'])}; {text(table[rule, budget]['mean_area'])}"
            for rule in RULES
        ))
        for budget in budgets
    ]  # fmt: skip
    print_table(("labels per batch", *RULES), lines)
    lines = []
    for row in pairs:
        cells = []
        for part in ("last", "area"):
            needed = f"{row[part]['outside']}{row[part]['needed']:.1f}"
            cells += [text(row[part]["gain"], "+"), needed]
        lines.append((f"query {row['query']} against random {row['random']}", *cells))
    print_table(("", "gain, last", "labels needed", "gain, area", "labels needed"), lines)


def main():
    """Run all passes; print the tables and write them as JSON."""
    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds, two budgets, ten batches")
    parser.add_argument("--only", choices=STREAMS, help="one stream")
    parser.add_argument("--model", choices=list(MODELS), default="SeqMED", help="the learner")
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS, help="labels per batch")
    parser.add_argument("--seeds", type=int, default=10, help="orders of the rows")
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--out", help="write the results there as JSON")
    options = parser.parse_args()
    budgets = QUICK_BUDGETS if options.quick else tuple(sorted(options.budgets))
    seeds = range(min(options.seeds, QUICK_SEEDS) if options.quick else options.seeds)
    n_batches = QUICK_BATCHES if options.quick else None
    results = []

    with ProcessPoolExecutor(options.jobs, get_context("spawn"), prepare) as pool:
        for stream in [options.only] if options.only else STREAMS:
            runs = [
                Run(stream, rule, budget, seed, options.model, n_batches)
                for seed in seeds for rule in RULES for budget in budgets
            ]  # fmt: skip
            done = dict(zip(runs, pool.map(follow, runs), strict=True))
            result = {"stream": stream, "measures": {}}
            for name in ("asking", "learning"):
                result[f"seconds_of_{name}"] = {
                    rule: float(np.median(
                        [found[f"seconds_of_{name}"] for run, found in done.items()
                         if run.rule == rule]
                    ))
                    for rule in RULES
                }  # fmt: skip
            for measure in MEASURES if stream in BALANCED else ("accuracy",):
                table = {
                    (rule, budget): summary([
                        done[Run(stream, rule, budget, seed, options.model, n_batches)]
                        ["curves"][measure] for seed in seeds
                    ])
                    for rule in RULES for budget in budgets
                }  # fmt: skip
                pairs = compared(table, budgets)
                report(stream, measure, table, pairs, budgets)
                cells = [{"rule": rule, "labels": budget, **values}
                         for (rule, budget), values in table.items()]  # fmt: skip
                result["measures"][measure] = {"cells": cells, "pairs": pairs}
            asking, learning = result["seconds_of_asking"], result["seconds_of_learning"]
            print(f"seconds per batch: query {asking['query']:.3f} to ask, "
                  f"{learning['query']:.3f} to learn")  # fmt: skip
            results.append(result)
            write_json(options.out, {"quick": options.quick, "model": options.model,
                                     "seeds": len(seeds), "streams": results})  # fmt: skip


if __name__ == "__main__":
    main()
