"""What unlabeled rows add: streams with few labels, with and without smoothness.

Three tasks. USPS: ten digits, the 7291 training rows in one random order, in batches of 200, and
the 2007 test rows. ISOLET: 24 batches of five speakers in the original order, tested on the 30
speakers of isolet5; once as A-M against N-Z, once as 26 letters. Of 1, 2, 5, 10 or 25 % of the
training rows, drawn one by one at random, the label is shown: five draws for each, the same for all
methods. Printed are test accuracies, their mean over the draws, and the gain over the stream
without smoothness, paired over the draws, with its standard error.

- stream: `SeqLapMED` as in STREAM, with beta = 0, with the default, and with a beta chosen;
- full SVM: scikit-learn's SVC, one class against the rest, on all labeled rows at once;
- full LapSVM: the same with the kernel deformed by the graph of all rows, labeled or not;
- label spreading: scikit-learn's, on all rows at once, over 10 nearest neighbours.

C = 10 and gamma, measured on the first batch, are the same wherever there is a kernel. A beta is
chosen for each task and each share of labels, by accuracy after the last batch on training rows
that are held out of the stream: the last 1200 rows of USPS, the 30 speakers of isolet4; with one
draw of labels that is not among those reported. A tie goes to the smaller beta. Test rows choose
nothing.

Every process has one thread. Streams are timed in processor seconds of learning, predictions left
out, so that the 26 letters can be compared with the two halves of the alphabet.

    SEQMED_DATA=FOLDER python benchmarks/unlabeled.py [--quick] [--only TASK] [--jobs 2]
        [--out FILE.json]

The file is written anew after every cell, that is one task with one share of labels. The full run
takes 40 to 50 processor minutes, the quick one a minute and a half.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from functools import cache
from itertools import pairwise
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from common import data_file, mean_and_error, print_table, write_json
from scipy.linalg import lu_factor, lu_solve
from sklearn.exceptions import ConvergenceWarning
from sklearn.multiclass import OneVsRestClassifier
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from seqmed import SeqLapMED, graph
from seqmed.experiments import isolet
from seqmed.kernels import make_kernel

STREAM = {"random_state": 0, "lag": 10, "n_landmarks": 500}
DEFAULT_BETA = 0.01
C = 10.0
STREAM_BETAS = (0.0, 0.01, 0.1, 1.0)
FULL_BETAS = (0.03, 0.3, 3.0)
N_NEIGHBORS = 10
LABEL_FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.25)
N_MASKS = 5
SCORED_EVERY = 6

# The rows a task is made of: two tasks with the same rows share their full kernel.
TASKS = {"usps": "usps", "isolet-binary": "isolet", "isolet-26": "isolet"}
USPS_BATCH, USPS_HELD_OUT, USPS_SEED = 200, 1200, 0
VALIDATION_SEED = 1000
UNLABELED = -1

QUICK_FRACTIONS, QUICK_MASKS = (0.01, 0.1), 1
QUICK_USPS_ROWS, QUICK_USPS_HELD_OUT, QUICK_ISOLET_BATCHES = 3000, 600, 12

NO_GRAPH, DEFAULT, CHOSEN = "stream, beta = 0", "stream, default", "stream, beta chosen"
FULL_SVM, FULL_LAPSVM, SPREADING = "full SVM", "full LapSVM", "label spreading"


class Rows(NamedTuple):
    """Training rows (n, p) and classes (n,), where batches begin and end, and the rows scored."""

    X: Any
    y: Any
    bounds: tuple[int, ...]
    X_scored: Any
    y_scored: Any

    @property
    def kernel(self):
        """The kernel as the stream measures it, on the first batch."""
        first = self.X[: self.bounds[1]]
        return make_kernel("rbf", "scale", 3, 0.0).freeze(first, np.ones(len(first)))


class Draw(NamedTuple):
    """Which labels are shown: of which task, how many, and the number of the draw.

    ``held_out`` draws are for choices: of a stream that leaves out the rows it is scored on.
    """

    task: str
    fraction: float
    mask: int
    quick: bool
    held_out: bool = False

    @property
    def rows(self) -> Rows:
        """The rows of the task."""
        return load(self.task, self.held_out, self.quick)

    @property
    def shown(self):
        """Mask (n,) of the training rows whose label is shown; ISOLET's tasks show the same."""
        seed = VALIDATION_SEED if self.held_out else self.mask
        rng = np.random.default_rng((seed, round(1000 * self.fraction)))
        return rng.random(len(self.rows.y)) < self.fraction


# -- data ------------------------------------------------------------------------------------------


@cache
def load(task: str, held_out: bool, quick: bool) -> Rows:
    """Return the rows of a task, scored on test rows or on training rows held out."""
    return load_usps(held_out, quick) if task == "usps" else load_isolet(task, held_out, quick)


def load_usps(held_out: bool, quick: bool) -> Rows:
    """Return USPS digits in a fixed random order."""
    with np.load(data_file("usps.npz")) as file:
        X, y, n = file["X"].astype(float), file["y"].astype(int), int(file["n_train"])
    order = np.random.default_rng(USPS_SEED).permutation(n)
    order = order[:QUICK_USPS_ROWS] if quick else order
    learned, scored = order, np.arange(n, len(y))
    if held_out:
        cut = order.size - (QUICK_USPS_HELD_OUT if quick else USPS_HELD_OUT)
        learned, scored = order[:cut], order[cut:]
    bounds = (*range(0, learned.size, USPS_BATCH), learned.size)
    return Rows(X[learned], y[learned], bounds, X[scored], y[scored])


def load_isolet(task: str, held_out: bool, quick: bool) -> Rows:
    """Return ISOLET in its original order, as two halves of the alphabet or as 26 letters."""
    arrays = isolet.load_arrays(data_file("isolet.npz").parent, download=False)
    stream = (isolet.validation_stream if held_out else isolet.isolet_stream)(arrays)
    batches = stream.batches
    if quick:
        batches = batches[: QUICK_ISOLET_BATCHES * 3 // 4 if held_out else QUICK_ISOLET_BATCHES]
    bounds = tuple(np.cumsum([0, *(len(batch.y) for batch in batches)]).tolist())
    X = np.concatenate([batch.X for batch in batches])
    if task == "isolet-binary":
        y = np.concatenate([batch.y for batch in batches])
        return Rows(X, y, bounds, stream.X_test, stream.y_test)
    # Both streams keep the published order, so letters are found by position.
    letters = arrays["y_train"].astype(int)
    first = np.searchsorted(isolet.speakers(), isolet.N_SPEAKERS - isolet.N_VALIDATION_SPEAKERS)
    scored = letters[first:] if held_out else arrays["y_test"].astype(int)
    return Rows(X, letters[: bounds[-1]], bounds, stream.X_test, scored)


# -- methods: each runs in a process of the pool, and returns accuracies in per cent ---------------


def prepare() -> None:
    """Give a process one thread, and have everything compiled before anything is timed."""
    threadpool_limits(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    # scikit-learn takes the few labels of one batch, nearly all different, for a regression.
    warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = SeqLapMED(**STREAM | {"n_landmarks": 20}, beta=DEFAULT_BETA)
    for start in (0, 30):
        model.partial_fit(X[start : start + 30], np.arange(30) % 4 - 1)


def counted(method: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Return what a method returns, and the processor seconds it took."""
    begin = time.process_time()
    result = method(*arguments)
    return result, time.process_time() - begin


def percent_right(predicted: Any, y: Any) -> float:
    """Return accuracy in per cent."""
    return 100.0 * float(np.mean(predicted == y))


def run_stream(draw: Draw, beta: float) -> dict[str, float]:
    """Return accuracy after the last batch, its mean over every sixth, and seconds of learning."""
    rows, seconds, scores = draw.rows, 0.0, []
    labels, classes = np.where(draw.shown, rows.y, UNLABELED), np.unique(rows.y)
    parameters = STREAM | {"C": C, "gamma": rows.kernel.gamma}
    model = SeqLapMED(**parameters, beta=beta)
    for number, (start, end) in enumerate(pairwise(rows.bounds), 1):
        begin = time.process_time()
        model.partial_fit(rows.X[start:end], labels[start:end], classes=classes)
        seconds += time.process_time() - begin
        if number % SCORED_EVERY == 0:
            scores.append(percent_right(model.predict(rows.X_scored), rows.y_scored))
    last = percent_right(model.predict(rows.X_scored), rows.y_scored)
    return {"last": last, "mean": float(np.mean(scores)), "seconds": seconds}


def full_svm(draw: Draw) -> float:
    """Return the accuracy of an SVC on all labeled rows at once."""
    rows, shown = draw.rows, draw.shown
    model = OneVsRestClassifier(SVC(C=C, gamma=rows.kernel.gamma))
    model.fit(rows.X[shown], rows.y[shown])
    return percent_right(model.predict(rows.X_scored), rows.y_scored)


def label_spreading(draw: Draw) -> float:
    """Return the accuracy of label spreading over all rows at once.

    Rows that no label reaches are given to the first class, as scikit-learn does.
    """
    rows = draw.rows
    model = LabelSpreading(kernel="knn", n_neighbors=N_NEIGHBORS)
    with np.errstate(invalid="ignore"):
        model.fit(rows.X, np.where(draw.shown, rows.y, UNLABELED))
        return percent_right(model.predict(rows.X_scored), rows.y_scored)


def full_lapsvm(draws: Sequence[Draw], beta: float) -> list[float]:
    """Return the accuracies of an SVC with the kernel deformed by the graph of all rows.

    All draws are of the same rows. With K the kernel of all n rows and ``M = 2 beta L``, the
    deformed kernel ``k - k(., X) (I + M K)^{-1} M k(X, .)`` is ``k(., X) (I + M K)^{-1}`` in the
    columns of training rows, and only those of labeled rows are needed.
    """
    rows = draws[0].rows
    neighbours = graph.find_neighbours(rows.kernel, rows.X, N_NEIGHBORS)
    width = graph.measure_heat_width(neighbours)
    weights = graph.weight_matrix(neighbours, graph.GraphRecipe(heat_width=width))
    laplacian = graph.laplacian_of(weights, "normalized")

    gram = rows.kernel(rows.X, rows.X)
    system = 2.0 * beta * (laplacian @ gram)
    system[np.diag_indices_from(system)] += 1.0
    labeled = np.flatnonzero(np.any([draw.shown for draw in draws], axis=0))
    columns = np.zeros((len(rows.y), labeled.size))
    columns[labeled, np.arange(labeled.size)] = 1.0
    factors = lu_factor(system, overwrite_a=True, check_finite=False)
    columns = lu_solve(factors, columns, overwrite_b=True, check_finite=False)
    learned = gram[labeled] @ columns
    scored = rows.kernel(rows.X_scored, rows.X) @ columns

    accuracies = []
    for draw in draws:
        of_draw = np.flatnonzero(draw.shown[labeled])
        model = OneVsRestClassifier(SVC(C=C, kernel="precomputed"))
        model.fit(learned[np.ix_(of_draw, of_draw)], draw.rows.y[labeled[of_draw]])
        accuracies.append(percent_right(model.predict(scored[:, of_draw]), draw.rows.y_scored))
    return accuracies


# -- the run ---------------------------------------------------------------------------------------


class Bench:
    """Runs methods in a pool of processes, and adds up the processor time they take."""

    def __init__(self, pool: ProcessPoolExecutor, quick: bool):
        self.pool = pool
        self.quick = quick
        self.fractions = QUICK_FRACTIONS if quick else LABEL_FRACTIONS
        self.n_masks = QUICK_MASKS if quick else N_MASKS
        self.spent: list[float] = []

    def start(self, method: Callable[..., Any], *arguments: Any) -> Future:
        """Have a method run in the pool."""
        return self.pool.submit(counted, method, *arguments)

    def value(self, future: Future) -> Any:
        """Wait for a method, and return what it returned."""
        result, seconds = future.result()
        self.spent.append(seconds)
        return result

    def draws(self, task: str, fraction: float) -> list[Draw]:
        """Return the draws that are reported."""
        return [Draw(task, fraction, mask, self.quick) for mask in range(self.n_masks)]

    def choosing(self, task: str, fraction: float) -> Draw:
        """Return the draw that choices are made by."""
        return Draw(task, fraction, 0, self.quick, held_out=True)

    def full_lapsvms(self, tasks: Sequence[str]) -> dict[tuple[str, float], dict[str, Any]]:
        """Return accuracies and the choice of beta in every cell of tasks with the same rows."""
        cells = [(task, fraction) for task in tasks for fraction in self.fractions]
        choosing = [self.choosing(*cell) for cell in cells]
        started = {beta: self.start(full_lapsvm, choosing, beta) for beta in FULL_BETAS}
        by_beta = {beta: self.value(future) for beta, future in started.items()}
        found = {}
        for number, cell in enumerate(cells):
            scores = {beta: by_beta[beta][number] for beta in FULL_BETAS}
            found[cell] = {"beta": best(scores), "validation": scores}
        started = {}
        for beta in FULL_BETAS:
            draws = [
                draw for cell in cells if found[cell]["beta"] == beta for draw in self.draws(*cell)
            ]
            if draws:
                started[beta] = draws, self.start(full_lapsvm, draws, beta)
        for draws, future in started.values():
            for draw, accuracy in zip(draws, self.value(future), strict=True):
                found[draw.task, draw.fraction].setdefault("last", []).append(accuracy)
        return found

    def cell(self, task: str, fraction: float, lapsvm: dict[str, Any]) -> dict[str, Any]:
        """Return everything about one task with one share of labels."""
        draws, choosing = self.draws(task, fraction), self.choosing(task, fraction)
        validation = {beta: self.start(run_stream, choosing, beta) for beta in STREAM_BETAS}
        runs: dict[Any, list[Future]] = {
            beta: [self.start(run_stream, draw, beta) for draw in draws]
            for beta in (0.0, DEFAULT_BETA)
        }
        others = {
            FULL_SVM: [self.start(full_svm, draw) for draw in draws],
            SPREADING: [self.start(label_spreading, draw) for draw in draws],
        }
        scores = {beta: self.value(future)["last"] for beta, future in validation.items()}
        chosen = best(scores)
        if chosen not in runs:
            runs[chosen] = [self.start(run_stream, draw, chosen) for draw in draws]
        done = {beta: [self.value(future) for future in runs[beta]] for beta in runs}
        last = {name: [self.value(future) for future in others[name]] for name in others}
        streams = {NO_GRAPH: done[0.0], DEFAULT: done[DEFAULT_BETA], CHOSEN: done[chosen]}
        every = {name: [run["mean"] for run in ran] for name, ran in streams.items()}
        last = {
            **{name: [run["last"] for run in ran] for name, ran in streams.items()},
            FULL_SVM: last[FULL_SVM], FULL_LAPSVM: lapsvm["last"], SPREADING: last[SPREADING],
        }  # fmt: skip
        return {
            "task": task, "labels": fraction,
            "labels_shown": [int(draw.shown.sum()) for draw in draws],
            "chosen": {"stream": chosen, FULL_LAPSVM: lapsvm["beta"]},
            "validation": {"stream": scores, FULL_LAPSVM: lapsvm["validation"]},
            "last": compared(last), "every_sixth": compared(every),
            "seconds": {name: [run["seconds"] for run in ran] for name, ran in streams.items()},
        }  # fmt: skip


def best(scores: dict[float, float]) -> float:
    """Return the beta of the largest score, the smallest of equals."""
    return max(sorted(scores), key=lambda beta: scores[beta])


def compared(accuracies: dict[str, list[float]]) -> dict[str, Any]:
    """Return mean accuracies and gains over beta = 0, paired over the draws, of every method."""
    base = np.array(accuracies[NO_GRAPH])
    return {
        name: {
            "accuracies": values,
            "accuracy": mean_and_error(values),
            "gain": mean_and_error(np.array(values) - base),
        }
        for name, values in accuracies.items()
    }


def report(cell: dict[str, Any]) -> None:
    """Print one cell."""
    shown = np.mean(cell["labels_shown"])
    chosen = ", ".join(f"{name} {beta:g}" for name, beta in cell["chosen"].items())
    print(f"\n{cell['task']}, {cell['labels']:.0%} labeled ({shown:.0f} rows); chosen: {chosen}")
    table = []
    for name, last in cell["last"].items():
        row = [name, f"{last['accuracy']['mean']:.2f}", gain_text(last)]
        if name in cell["every_sixth"]:
            every = cell["every_sixth"][name]
            row += [f"{every['accuracy']['mean']:.2f}", gain_text(every)]
            row += [f"{np.median(cell['seconds'][name]):.1f}"]
        table.append(row + [""] * (6 - len(row)))
    header = ("method", "after the last batch", "gain", "mean of every 6th", "gain", "seconds")
    print_table(header, table)


def gain_text(values: dict[str, Any]) -> str:
    """Return a gain and, if there is more than one draw, its standard error as text."""
    gain = f"{values['gain']['mean']:+.2f}"
    return gain + f" ± {values['gain']['error']:.2f}" * (len(values["accuracies"]) > 1)


def time_ratios(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how much longer the stream of 26 letters takes than that of two halves."""
    found = {(cell["task"], cell["labels"]): cell["seconds"] for cell in cells}
    ratios = []
    for (task, fraction), seconds in sorted(found.items()):
        binary = found.get(("isolet-binary", fraction))
        if task == "isolet-26" and binary:
            ratios.append({"labels": fraction, **{
                name: float(np.median(np.divide(seconds[name], binary[name])))
                for name in (NO_GRAPH, DEFAULT)
            }})  # fmt: skip
    return ratios


def main():
    """Run cell by cell; print each, and write all that there are as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows, one draw, two fractions")
    parser.add_argument("--only", choices=list(TASKS), help="one task")
    parser.add_argument("--jobs", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--out", help="write the results there as JSON")
    options = parser.parse_args()
    names = [options.only] if options.only else list(TASKS)
    cells: list[dict[str, Any]] = []

    # Spawned, not forked: the pool is used from several threads.
    with (
        ProcessPoolExecutor(options.jobs, get_context("spawn"), prepare) as pool,
        ThreadPoolExecutor(options.jobs) as drivers,
    ):
        bench = Bench(pool, options.quick)
        for source in dict.fromkeys(TASKS[name] for name in names):
            tasks = [name for name in names if TASKS[name] == source]
            lapsvms = bench.full_lapsvms(tasks)
            running = [drivers.submit(bench.cell, *cell, lapsvms[cell]) for cell in lapsvms]
            for future in as_completed(running):
                cells.append(future.result())
                report(cells[-1])
                write_json(options.out, {
                    "quick": options.quick, "stream": STREAM | {"C": C, "beta": DEFAULT_BETA},
                    "cells": cells, "time_of_26_letters_to_binary": time_ratios(cells),
                    "processor_minutes": sum(bench.spent) / 60,
                })  # fmt: skip
    for ratio in time_ratios(cells):
        print(f"\n26 letters take, with {ratio['labels']:.0%} labeled, "
              f"{ratio[DEFAULT]:.2f} times the time of two halves "
              f"({ratio[NO_GRAPH]:.2f} times without smoothness)")  # fmt: skip
    print(f"\n{sum(bench.spent) / 60:.1f} processor minutes in all")


if __name__ == "__main__":
    main()
