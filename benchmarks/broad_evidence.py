"""SeqGraphMED beside refitted classifiers on the public sets of `broad_sets.py`.

Small study: at most 4400 rows of each set, in a random order. 30 % of them, at most 1400, are held
out, and the others are the stream, in batches of 100. Labels of 15, 40, 120 and 350 rows of the
stream are shown, drawn at random (at least two classes, at most half of the stream), and of one row
per class. Large study (--large): streams of 12,000 to 16,000 rows in batches of 1000, with 1000,
3000 and 10,000 labels; 4000 other rows are held out. Three draws of rows, order and labels, the
same for all methods; more labels include the fewer ones.

- SeqGraphMED learns each batch once: raw numbers as they are, sets with categories or missing cells
  through `make_stream_pipeline`, without options but for columns of numbers and words, which are
  declared as categories. --variant adds further parameter sets.
- LogisticRegression(max_iter=1000), ExtraTrees(100), RandomForest(100), HistGradientBoosting:
  fitted once, on all labels, after the last batch.
- LabelSpreading over 10 nearest neighbours, small study only: fitted once, on all rows.

The other methods get numbers imputed with medians and standardised, and one-hot categories (the
100 most frequent of a column). This encoder is fitted to all rows of the stream. Reported are
accuracy, log loss (probabilities at least 1e-6; 0 for a class without a label) and calibration
error (15 equal bins of confidence) on the held-out rows, and processor seconds on one thread.

    python benchmarks/broad_evidence.py --out FILE.json [--half confirmation] [--large]
        [--draws N] [--sets NAME ...] [--methods NAME ...] [--variant 'NAME={"mixture": 0.5}' ...]
        [--jobs N] [--show]

Results are written after every draw of a set. Records that the file has are not run again: choose a
new file after a change of the code. --show runs nothing and prints the tables of the file.
`pip install '.[bench]'` provides the sets.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from broad_sets import CONFIRMATION, DEVELOPMENT, LARGE, SETS, is_numeric, load
from common import Later, make_encoder, make_parser, print_table, standard_error, write_json
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading
from threadpoolctl import threadpool_limits

from seqmed import SeqGraphMED, SeqMED, make_stream_pipeline

pd = Later("pandas")

UNLABELED = -1
OURS = "SeqGraphMED"
PER_CLASS = "one per class"
FLOOR, N_BINS = 1e-6, 15
# A cell is lost if the accuracy is lower by more than this, in points.
LOST = 1.0
HALVES = {"development": DEVELOPMENT, "confirmation": CONFIRMATION}
MEASURES = ("accuracy", "log_loss", "ece", "learning", "predicting")


class Study(NamedTuple):
    """Sizes of a study.

    Attributes
    ----------
    labels : numbers of labels.
    most_labeled : largest share of the rows of a stream that have a label.
    stream, held_out : largest numbers of rows.
    most_held_out : largest share of the rows that are held out.
    batch : rows of a batch.
    """

    labels: tuple[int | str, ...]
    most_labeled: float
    stream: int
    held_out: int
    most_held_out: float
    batch: int


SMALL = Study((PER_CLASS, 15, 40, 120, 350), 0.5, 3000, 1400, 0.3, 100)
MANY = Study((1000, 3000, 10_000), 1.0, 16_000, 4000, 0.3, 1000)


class Draw(NamedTuple):
    """A stream and held-out rows.

    Attributes
    ----------
    X, y : rows of the stream (n, p), and their class numbers (n,) from 0.
    X_test, y_test : held-out rows and class numbers.
    n_classes : number of classes.
    order : places of the stream (n,), in the order in which labels are shown.
    kinds : kinds of the columns that the table encoder must be told.
    numeric : whether the set has numbers only, and no missing cells.
    """

    X: pd.DataFrame
    y: np.ndarray
    X_test: pd.DataFrame
    y_test: np.ndarray
    n_classes: int
    order: np.ndarray
    kinds: dict[str, str]
    numeric: bool


class Fit(NamedTuple):
    """Held-out probabilities (m, K) of the given classes (K,), and processor seconds."""

    probabilities: np.ndarray
    classes: np.ndarray
    learning: float
    predicting: float


# -- data ------------------------------------------------------------------------------------------


def drawn(name: str, draw: int, study: Study) -> Draw:
    """Return the rows of a set for one draw."""
    X, y = load(name)
    classes, codes = np.unique(y.astype(str), return_inverse=True)
    rng = np.random.default_rng((draw, *name.encode()))
    rows = rng.permutation(len(y))[: study.stream + study.held_out]
    n = rows.size - min(study.held_out, round(study.most_held_out * rows.size))
    chosen, codes = X.iloc[rows].reset_index(drop=True), codes[rows]
    return Draw(
        X=chosen[:n],
        y=codes[:n],
        X_test=chosen[n:],
        y_test=codes[n:],
        n_classes=classes.size,
        order=rng.permutation(n),
        kinds=dict.fromkeys(SETS[name].categories, "categorical"),
        numeric=is_numeric(X),
    )


def shown(data: Draw, labels: int | str) -> np.ndarray:
    """Return the class numbers of the stream (n,), -1 where the label is not shown."""
    first = {code: place for place, code in reversed([(p, data.y[p]) for p in data.order])}
    if labels == PER_CLASS:
        places = np.array(list(first.values()))
    else:
        places = data.order[: int(labels)].copy()
        if np.unique(data.y[places]).size == 1:
            places[-1] = next(p for code, p in first.items() if code != data.y[places[0]])
    found = np.full(len(data.y), UNLABELED)
    found[places] = data.y[places]
    return found


def label_counts(data: Draw, study: Study) -> list[int | str]:
    """Return the numbers of labels that a stream allows."""
    most = study.most_labeled * len(data.y)
    return [each for each in study.labels if each == PER_CLASS or int(each) <= most]


def encoded(data: Draw) -> tuple[np.ndarray, np.ndarray]:
    """Return the stream and the held-out rows as numbers, encoded as the stream suggests."""
    words = [name for name in data.X if not pd.api.types.is_numeric_dtype(data.X[name])]
    text = dict.fromkeys(words, str)
    X, X_test = data.X.astype(text), data.X_test.astype(text)
    encoder = make_encoder(X)
    return encoder.fit_transform(X), encoder.transform(X_test)


# -- methods ---------------------------------------------------------------------------------------


def labeled_only(make: Callable[[int], Any]) -> Callable[[Any, Any, int], Any]:
    """Return a function that fits a classifier on labeled rows."""

    def fit(X: Any, y: Any, seed: int) -> Any:
        labeled = y != UNLABELED
        return make(seed).fit(X[labeled], y[labeled])

    return fit


def spreading(X: Any, y: Any, seed: int) -> Any:
    """Fit label spreading on all rows."""
    return LabelSpreading(kernel="knn", n_neighbors=10).fit(X, y)


PEERS: dict[str, Callable[[Any, Any, int], Any]] = {
    "LogisticRegression": labeled_only(lambda seed: LogisticRegression(max_iter=1000)),
    "ExtraTrees": labeled_only(lambda seed: ExtraTreesClassifier(100, random_state=seed)),
    "RandomForest": labeled_only(lambda seed: RandomForestClassifier(100, random_state=seed)),
    "HistGradientBoosting": labeled_only(
        lambda seed: HistGradientBoostingClassifier(random_state=seed)
    ),
    "LabelSpreading": spreading,
}


def refitted(name: str, rows: tuple[Any, Any], labels: Any, seed: int) -> Fit:
    """Fit a method once, and predict the held-out rows."""
    begin = time.process_time()
    model = PEERS[name](rows[0], labels, seed)
    learned = time.process_time()
    found = np.nan_to_num(model.predict_proba(rows[1]))
    return Fit(found, model.classes_, learned - begin, time.process_time() - learned)


def streamed(parameters: dict[str, Any], data: Draw, labels: Any, seed: int, batch: int) -> Fit:
    """Learn a stream in batches, and predict the held-out rows."""
    X, X_test = data.X, data.X_test
    if data.numeric:
        model = SeqGraphMED(random_state=seed, **parameters)
        X, X_test = (frame.to_numpy(dtype=float) for frame in (X, X_test))
    else:
        margin = SeqMED(kernel="auto", random_state=seed)  # as in the default pipeline
        model = SeqGraphMED(margin, random_state=seed, **parameters)
        model = make_stream_pipeline(model, kinds=data.kinds)
    begin = time.process_time()
    for start in range(0, len(labels), batch):
        model.partial_fit(X[start : start + batch], labels[start : start + batch])
    learned = time.process_time()
    found = model.predict_proba(X_test)
    return Fit(found, model.classes_, learned - begin, time.process_time() - learned)


# -- measures --------------------------------------------------------------------------------------


def calibration_error(confidence: Any, right: Any) -> float:
    """Return the mean difference of confidence and accuracy over equal bins of confidence."""
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    sums = np.bincount(bins, weights=confidence - right, minlength=N_BINS)
    return float(np.abs(sums).sum() / len(bins))


def measured(fit: Fit, codes: np.ndarray, n_classes: int) -> dict[str, float]:
    """Return the measures of held-out rows with the given class numbers (m,)."""
    probabilities = np.zeros((len(codes), n_classes))
    probabilities[:, fit.classes.astype(int)] = fit.probabilities
    winners = probabilities.argmax(axis=1)
    rows = np.arange(len(codes))
    right = winners == codes
    values = (
        100.0 * right.mean(),
        -np.log(np.maximum(probabilities[rows, codes], FLOOR)).mean(),
        calibration_error(probabilities[rows, winners], right),
        fit.learning,
        fit.predicting,
    )
    return {name: round(float(value), 5) for name, value in zip(MEASURES, values, strict=True)}


# -- runs ------------------------------------------------------------------------------------------

Key = tuple[str, Any, int, str]


class Task(NamedTuple):
    """One draw of a set: variants by name, names of the other methods, and records to leave out."""

    name: str
    draw: int
    study: Study
    variants: dict[str, dict[str, Any]]
    peers: tuple[str, ...]
    done: frozenset[Key]


def key(record: dict[str, Any]) -> Key:
    """Return what identifies a record."""
    return record["set"], record["labels"], record["draw"], record["method"]


@cache
def prepare() -> None:
    """Compile before anything is timed."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), np.arange(200) % 4 - 1
    model = SeqGraphMED(random_state=0)
    for start in range(0, 200, 40):
        model.partial_fit(X[start : start + 40], y[start : start + 40])
    model.predict_proba(X)


def run(task: Task) -> list[dict[str, Any]]:
    """Return the missing records of a draw of a set."""
    warnings.simplefilter("ignore")  # classes with one row, iterations that end early
    records = []
    with threadpool_limits(1):
        prepare()
        data = drawn(task.name, task.draw, task.study)
        rows = encoded(data)
        for count in label_counts(data, task.study):
            labels = shown(data, count)
            for method in (*task.variants, *task.peers):
                cell = {"set": task.name, "labels": count, "draw": task.draw, "method": method}
                if key(cell) in task.done:
                    continue
                if method in task.variants:
                    parameters = task.variants[method]
                    fit = streamed(parameters, data, labels, task.draw, task.study.batch)
                else:
                    fit = refitted(method, rows, labels, task.draw)
                records.append(cell | measured(fit, data.y_test, data.n_classes))
    return records


def run_all(results: dict[str, Any], tasks: list[Task], jobs: int, out: str | None) -> None:
    """Run tasks, and write the results after each of them."""
    begin = time.perf_counter()
    with ProcessPoolExecutor(jobs) as pool:
        pending = {pool.submit(run, task): task for task in tasks}
        for place, future in enumerate(as_completed(pending), start=1):
            task = pending[future]
            try:
                records = future.result()
            except Exception as error:
                print(f"{task.name}, draw {task.draw}: {type(error).__name__}: {error}", flush=True)
                continue
            results["records"].extend(records)
            if out is not None and records:
                write_json(f"{out}.new", results)
                os.replace(f"{out}.new", out)
            passed = time.perf_counter() - begin
            print(f"{place} of {len(tasks)}, {passed:.0f} s: {task.name}, draw {task.draw}")


# -- tables ----------------------------------------------------------------------------------------


def without_one_per_class(means: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of labels drawn at random."""
    return means[means.index.get_level_values("labels") != PER_CLASS]


def averaged(records: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Return the means over draws: a row for each set, number of labels and method.

    Cells that some method lacks are left out.
    """
    frame = pd.DataFrame(records)
    frame["labels"] = frame["labels"].astype(str)
    means = frame.groupby(["set", "labels", "method"])[list(MEASURES)].mean().unstack("method")
    return means.dropna().stack("method", future_stack=True)


def overview(means: pd.DataFrame, counts: list[str]) -> list[list[str]]:
    """Return accuracies by number of labels, and the means of all measures, for every method.

    Means are over labels drawn at random. With one label per class, a method that has learned
    nothing and always predicts the first class is right in most rows of some sets.
    """
    rows = []
    for method, of_method in means.groupby("method"):
        accuracy = of_method["accuracy"].groupby("labels").mean()
        over_sets = without_one_per_class(of_method).groupby("set").mean()
        average, error = over_sets.mean(), standard_error(over_sets["accuracy"])
        rows.append(
            [
                method,
                *(f"{accuracy[each]:.1f}" for each in counts),
                f"{average['accuracy']:.2f} ± {error:.2f}",
                f"{average['log_loss']:.3f}",
                f"{average['ece']:.3f}",
                f"{average['learning']:.2f}",
                f"{average['predicting']:.2f}",
            ]
        )
    return sorted(rows, key=lambda row: -float(row[len(counts) + 1].split()[0]))


def compared(means: pd.DataFrame, method: str) -> list[list[str]]:
    """Return how a method differs from each other one, and from the best other of each cell.

    Differences are averaged over the numbers of labels of a set, and then over sets. A cell is a
    set with a number of labels. One label per class is left out.
    """
    means = without_one_per_class(means)
    accuracy, loss = (means[measure].unstack("method") for measure in ("accuracy", "log_loss"))
    others = [name for name in accuracy if name != method]
    pairs = [(name, accuracy[name], loss[name]) for name in others]
    if len(others) > 1:
        pairs.append(("best of each cell", accuracy[others].max(axis=1), loss[others].min(axis=1)))
    rows = []
    for name, of_other, loss_of_other in pairs:
        gain = accuracy[method] - of_other
        over_sets = gain.groupby("set").mean()
        loss_gain = (loss[method] - loss_of_other).groupby("set").mean()
        worst = gain.idxmin()
        rows.append(
            [
                name,
                f"{over_sets.mean():+.2f} ± {standard_error(over_sets):.2f}",
                f"{loss_gain.mean():+.3f} ± {standard_error(loss_gain):.3f}",
                f"{(gain < -LOST).sum()} of {gain.size}",
                f"{(gain > LOST).sum()}",
                f"{gain.min():+.1f} ({worst[0]}, {worst[1]})",
            ]
        )
    return rows


def print_tables(results: dict[str, Any], study: Study) -> None:
    """Print the tables of both halves."""
    for half, names in HALVES.items():
        records = [record for record in results["records"] if record["set"] in names]
        if not records:
            continue
        means = averaged(records)
        found = set(means.index.get_level_values("labels"))
        counts = [str(each) for each in study.labels if str(each) in found]
        n_sets = len(set(means.index.get_level_values("set")))
        print(f"\n{half}, {n_sets} sets: accuracy by labels, means ± standard error over sets")
        header = ["", *counts, "accuracy", "log loss", "calibration error", "seconds", "predicting"]
        print_table(header, overview(means, counts))
        for method in results["variants"]:
            if method in means.index.get_level_values("method"):
                print(f"\n{half}: {method} minus the others; cells by more than {LOST:g} point")
                header = ["", "accuracy", "log loss", "cells lost", "won", "worst cell"]
                print_table(header, compared(means, method))


# -- options ---------------------------------------------------------------------------------------


def variant(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters of NAME=JSON."""
    name, _, parameters = text.partition("=")
    found = json.loads(parameters)
    if not isinstance(found, dict):
        raise ValueError(f"{parameters} is not a JSON object of parameters.")
    return name, found


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add --variant and --jobs."""
    parser.add_argument(
        "--variant", type=variant, action="append", default=[], metavar="NAME=JSON",
        help="SeqGraphMED with other parameters",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")


def known_results(path: str | None, variants: dict[str, Any], study: str) -> dict[str, Any]:
    """Return the results of a file, or none; end if the file has other parameters by a name."""
    if path is None or not Path(path).exists():
        return {"study": study, "variants": dict(variants), "records": []}
    results = json.loads(Path(path).read_text())
    if results["study"] != study:
        raise SystemExit(f"{path} has the {results['study']} study: choose another file.")
    for name, parameters in variants.items():
        if results["variants"].setdefault(name, parameters) != parameters:
            raise SystemExit(f"{path} has {name} with other parameters: choose another name.")
    return results


def main() -> None:
    """Run the missing records, and print the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--half", choices=list(HALVES), default="development")
    parser.add_argument("--large", action="store_true", help="1000 to 10,000 labels, large sets")
    parser.add_argument("--draws", type=int, default=3, help="number of draws")
    parser.add_argument("--sets", nargs="+", metavar="NAME", help="some sets of the half")
    parser.add_argument("--methods", nargs="+", choices=[OURS, *PEERS], metavar="NAME")
    add_run_options(parser)
    parser.add_argument("--out", help="write the results there as JSON, and go on from there")
    parser.add_argument("--show", action="store_true", help="print the tables of --out only")
    options = parser.parse_args()
    study = MANY if options.large else SMALL
    names = [name for name in HALVES[options.half] if not options.large or name in LARGE]
    unknown = sorted(set(options.sets or ()) - set(names))
    if unknown:
        raise SystemExit(f"Not in this half: {', '.join(unknown)}. It has {', '.join(names)}.")
    methods = options.methods or [OURS, *PEERS]
    variants = {OURS: {}} if OURS in methods else {}
    variants |= dict(options.variant)
    peers = tuple(name for name in methods if name in PEERS)
    if options.large:
        peers = tuple(name for name in peers if name != "LabelSpreading")
    results = known_results(options.out, variants, "large" if options.large else "small")
    if not options.show:
        done = frozenset(key(record) for record in results["records"])
        tasks = [
            Task(name, draw, study, variants, peers, done)
            for draw in range(options.draws)
            for name in options.sets or names
        ]
        run_all(results, tasks, options.jobs, options.out)
    print_tables(results, study)


if __name__ == "__main__":
    main()
