"""SeqGraphMED beside what is otherwise used for streams with few labels.

Seven tasks: USPS (ten digits, batches of 200, test rows), ISOLET (26 letters, batches of five
speakers, test speakers), SMS spam (words hashed to 2^14 columns, rows of length 1, batches of 200,
a fifth of the messages held out), scikit-learn's digits (batches of 100, 397 rows held out), and
the mixed tables Adult, bank marketing and Telco churn (at most 12,000 rows in a random order, a
fifth of them but at most 2000 held out, batches of 200). SeqGraphMED and SeqMED learn the mixed
tables raw, with their ids, through `make_stream_pipeline`. The other methods get one-hot categories
and imputed, standardised numbers without ids; this encoder is fitted to all rows of the stream. A
task whose data are not found is left out.

Labels of 1, 2, 5 or 10 % of the training rows are shown, drawn at random; five draws, the same for
all methods. Reported are the accuracy on the test rows after the last batch, and processor seconds
on one thread.

Streams learn every batch once:

- SeqGraphMED and SeqMED with their defaults;
- SGDClassifier: logistic loss on labeled rows, features standardised by the first batch (not the
  words), with its default learning rate and with a constant one of 0.01;
- river: nearest neighbours, softmax regression and Hoeffding tree, row by row on labeled rows,
  features standardised by river for the last two (not the words). The tree is left out of ISOLET:
  with 26 classes and 617 columns it takes longer than everything else together.

Tables show the better of the two learning rates and the best of river's three by test accuracy,
which favours them.

Refitted methods start from scratch. Their seconds are those of one fit after the last batch; the
seconds of a fit after every batch are measured with 5 % labels and one draw, at every sixth batch,
and multiplied by six:

- SVC: C = 10, on the labels so far;
- LabelSpreading: 10 nearest neighbours, on all rows so far;
- SelfTrainingClassifier: of a logistic regression on standardised features, on all rows so far;
- LogisticRegression(max_iter=1000) on standardised features (not the words), ExtraTrees(100) and
  RandomForest(100), on the labels so far.

Nothing is tuned: all parameters are defaults or as said above.

    pip install '.[bench]'
    SEQMED_DATA=FOLDER python benchmarks/comparison.py [--quick] [--only TASK] [--methods NAME ...]
        [--out FILE.json]

Results are written after every draw. Draws of a method that the file already has are replaced, all
others are kept, so that one method or one task can be run again. `comparison_page.py` writes the
tables of the documents.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import mixed_tables
import numpy as np
import scipy.sparse as sp
from common import (
    INSTALL,
    MissingDataError,
    data_file,
    make_encoder,
    mean_and_error,
    print_table,
    write_json,
)
from sklearn.datasets import load_digits
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits
from unlabeled import Rows, load_isolet, load_usps, percent_right

from seqmed import SeqGraphMED, SeqMED, make_stream_pipeline

FRACTIONS, N_MASKS = (0.01, 0.02, 0.05, 0.1), 5
QUICK_FRACTIONS, QUICK_MASKS = (0.01, 0.1), 1
QUICK_ROWS = 1000
# Label fraction and draw with which refitting after every batch is timed, and every how many.
TIMED_FRACTION, TIMED_MASK, TIMED_EVERY = 0.05, 0, 6
UNLABELED = -1
TEXT_COLUMNS, TEXT_BATCH = 2**14, 200
DIGITS_BATCH, DIGITS_TEST = 100, 397
TABLE_BATCH, TABLE_ROWS, TABLE_TEST = 200, 12_000, 2000
SEED = 0
LEFT_OUT = {("isolet-26", "river HoeffdingTree")}


# -- data ------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """The rows of a task; those of a mixed table as numbers, and as raw data frames."""

    rows: Rows
    raw: Rows | None = None


@cache
def load(task: str, quick: bool) -> Task:
    """Return the rows of a task."""
    if task in mixed_tables.TABLES:
        return mixed_table(task, quick)
    return Task(TASKS[task](quick))


def usps(quick: bool) -> Rows:
    """Return USPS."""
    return load_usps(quick)


def isolet(quick: bool) -> Rows:
    """Return ISOLET, 26 letters."""
    return load_isolet(quick)


def sms_spam(quick: bool) -> Rows:
    """Return SMS spam as hashed words, in a random order."""
    with gzip.open(data_file("sms_spam.tsv.gz"), "rt", encoding="utf-8") as file:
        pairs = [line.rstrip("\n").split("\t", 1) for line in file if "\t" in line]
    hashing = HashingVectorizer(n_features=TEXT_COLUMNS, alternate_sign=False)
    X = hashing.transform([text for _, text in pairs]).tocsr()
    y = np.array([label == "spam" for label, _ in pairs]).astype(int)
    return held_out(X, y, len(y) // 5, TEXT_BATCH, quick)


def digits(quick: bool) -> Rows:
    """Return scikit-learn's digits, in a random order."""
    X, y = load_digits(return_X_y=True)
    return held_out(X / 16.0, y, DIGITS_TEST, DIGITS_BATCH, quick)


def held_out(X: Any, y: Any, n_test: int, batch: int, quick: bool) -> Rows:
    """Return rows in a random order, the last of them held out."""
    order = np.random.default_rng(SEED).permutation(len(y))
    learned, tested = order[:-n_test], order[-n_test:]
    learned = learned[:QUICK_ROWS] if quick else learned
    bounds = (*range(0, learned.size, batch), learned.size)
    return Rows(X[learned], y[learned], bounds, X[tested], y[tested])


def mixed_table(name: str, quick: bool) -> Task:
    """Return a mixed table in a random order, the last rows held out."""
    if importlib.util.find_spec("pandas") is None:
        raise MissingDataError(f"pandas is needed: {INSTALL}.")
    frame, y = mixed_tables.load(name)
    order = np.random.default_rng(SEED).permutation(len(y))[:TABLE_ROWS]
    n = order.size - min(TABLE_TEST, order.size // 5)
    learned, tested = order[: QUICK_ROWS if quick else n], order[n:]
    bounds = (*range(0, learned.size, TABLE_BATCH), learned.size)
    X, X_test = frame.iloc[learned], frame.iloc[tested]
    encoder = make_encoder(frame, mixed_tables.TABLES[name].ids).fit(X)
    numbers = encoder.transform(X), encoder.transform(X_test)
    return Task(
        rows=Rows(numbers[0], y[learned], bounds, numbers[1], y[tested]),
        raw=Rows(X, y[learned], bounds, X_test, y[tested]),
    )


TASKS: dict[str, Callable[[bool], Rows]] = {
    "usps": usps, "isolet-26": isolet, "sms_spam": sms_spam, "digits": digits,
}  # fmt: skip
ALL_TASKS = (*TASKS, *mixed_tables.TABLES)


def shown(n: int, fraction: float, mask: int) -> Any:
    """Return which labels are shown, (n,): the draws of `unlabeled.py`."""
    return np.random.default_rng((mask, round(1000 * fraction))).random(n) < fraction


# -- methods ---------------------------------------------------------------------------------------


class LabeledStream:
    """SGDClassifier on standardised labeled rows, batch by batch."""

    def __init__(self, **parameters: Any) -> None:
        self.scaler: StandardScaler | None = None
        self.model = SGDClassifier(loss="log_loss", random_state=SEED, **parameters)

    def _scaled(self, X: Any) -> Any:
        return X if sp.issparse(X) else self.scaler.transform(X)

    def partial_fit(self, X: Any, y: Any, classes: Any) -> None:
        """Learn the labeled rows of a batch."""
        if self.scaler is None and not sp.issparse(X):
            self.scaler = StandardScaler().fit(X)
        labeled = y != UNLABELED
        if labeled.any():
            self.model.partial_fit(self._scaled(X[labeled]), y[labeled], classes=classes)

    def predict(self, X: Any) -> Any:
        """Return the predicted classes."""
        return self.model.predict(self._scaled(X))


def as_features(X: Any) -> list[dict[Any, Any]]:
    """Return rows as dictionaries of their columns, of the nonzero ones where they are sparse."""
    if sp.issparse(X):
        return [dict(zip(r.indices.tolist(), r.data.tolist(), strict=True)) for r in X]
    return [dict(enumerate(row.tolist())) for row in X]


def as_arrays(X: Any) -> list[dict[Any, Any]]:
    """Return dense rows as dictionaries of a single array; sparse ones as `as_features`."""
    return as_features(X) if sp.issparse(X) else [{"row": row} for row in X]


def distance(first: dict[Any, Any], second: dict[Any, Any]) -> float:
    """Return the Euclidean distance of two rows, as river's, in numpy where they are arrays."""
    if "row" in first:
        difference = first["row"] - second["row"]
        return float(np.sqrt(difference @ difference))
    return sum((first.get(k, 0.0) - second.get(k, 0.0)) ** 2 for k in {*first, *second}) ** 0.5


class RiverStream:
    """A river classifier, row by row on labeled rows."""

    def __init__(self, model: Any, rows_of: Callable, *, scaled: bool) -> None:
        self.model, self.rows_of, self.scaled = model, rows_of, scaled
        self.classes: Any = None

    def partial_fit(self, X: Any, y: Any, classes: Any) -> None:
        """Learn the labeled rows of a batch."""
        if self.scaled and self.classes is None and not sp.issparse(X):
            from river import compose, preprocessing

            self.model = compose.Pipeline(preprocessing.StandardScaler(), self.model)
        self.classes = classes
        labeled = y != UNLABELED
        for row, label in zip(self.rows_of(X[labeled]), y[labeled].tolist(), strict=True):
            self.model.learn_one(row, label)

    def predict(self, X: Any) -> Any:
        """Return the predicted classes; the first class where river gives none."""
        found = [self.model.predict_one(row) for row in self.rows_of(X)]
        return np.array([self.classes[0] if label is None else label for label in found])


def river_neighbours() -> RiverStream:
    """Return river's nearest neighbours, with its default number and window of rows."""
    from river import neighbors

    engine = neighbors.LazySearch(window_size=1000, dist_func=distance)
    model = neighbors.KNNClassifier(n_neighbors=5, engine=engine)
    return RiverStream(model, as_arrays, scaled=False)


def river_softmax() -> RiverStream:
    """Return river's softmax regression."""
    from river import linear_model

    return RiverStream(linear_model.SoftmaxRegression(), as_features, scaled=True)


def river_tree() -> RiverStream:
    """Return river's Hoeffding tree."""
    from river import tree

    return RiverStream(tree.HoeffdingTreeClassifier(), as_features, scaled=True)


def fitted(model: Any, X: Any, y: Any) -> Any:
    """Fit a classifier on the labeled rows; a constant one where they are of one class."""
    labeled = y != UNLABELED
    if np.unique(y[labeled]).size == 1:
        model = DummyClassifier()
    return model.fit(X[labeled], y[labeled])


def svc(X: Any, y: Any) -> Any:
    """Fit an SVC on the labeled rows."""
    return fitted(SVC(C=10.0), X, y)


def label_spreading(X: Any, y: Any) -> Any:
    """Fit label spreading on all rows."""
    return LabelSpreading(kernel="knn", n_neighbors=10).fit(X, y)


def self_training(X: Any, y: Any) -> Any:
    """Fit a self-training logistic regression on all rows."""
    base = LogisticRegression(max_iter=200)
    if np.unique(y[y != UNLABELED]).size == 1:
        return fitted(base, X, y)
    return make_pipeline(scaler_of(X), SelfTrainingClassifier(base)).fit(X, y)


def scaler_of(X: Any) -> StandardScaler:
    """Return a scaler, which leaves sparse rows as they are."""
    return StandardScaler(with_mean=False, with_std=False) if sp.issparse(X) else StandardScaler()


def logistic_regression(X: Any, y: Any) -> Any:
    """Fit a logistic regression on the labeled rows."""
    return fitted(make_pipeline(scaler_of(X), LogisticRegression(max_iter=1000)), X, y)


def extra_trees(X: Any, y: Any) -> Any:
    """Fit extra trees on the labeled rows."""
    return fitted(ExtraTreesClassifier(100, random_state=SEED), X, y)


def random_forest(X: Any, y: Any) -> Any:
    """Fit a random forest on the labeled rows."""
    return fitted(RandomForestClassifier(100, random_state=SEED), X, y)


STREAMS: dict[str, Callable[[], Any]] = {
    "SeqGraphMED": lambda: SeqGraphMED(random_state=SEED),
    "SeqMED": lambda: SeqMED(random_state=SEED),
    "SGDClassifier": LabeledStream,
    "SGDClassifier, constant rate": lambda: LabeledStream(learning_rate="constant", eta0=0.01),
    "river KNNClassifier": river_neighbours,
    "river SoftmaxRegression": river_softmax,
    "river HoeffdingTree": river_tree,
}
# The methods that learn mixed tables raw.
PIPELINES: dict[str, Callable[[], Any]] = {
    "SeqGraphMED": lambda: make_stream_pipeline(random_state=SEED),
    "SeqMED": lambda: make_stream_pipeline(SeqMED(kernel="auto", random_state=SEED)),
}
REFITTED: dict[str, Callable[[Any, Any], Any]] = {
    "SVC": svc,
    "LabelSpreading": label_spreading,
    "SelfTraining": self_training,
    "LogisticRegression": logistic_regression,
    "ExtraTrees": extra_trees,
    "RandomForest": random_forest,
}


# -- runs ------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Test accuracy in per cent, and processor seconds of learning and of predicting."""

    accuracy: float
    learning: float
    predicting: float


def run(name: str, task: Task, labels: Any) -> Run:
    """Learn a stream, or fit once after its last batch, and predict the test rows."""
    raw = task.raw is not None and name in PIPELINES
    rows = task.raw if raw else task.rows
    begin = time.process_time()
    if name in REFITTED:
        model = REFITTED[name](rows.X, labels)
    else:
        model, classes = (PIPELINES if raw else STREAMS)[name](), np.unique(rows.y)
        for start, end in pairwise(rows.bounds):
            y = labels[start:end]
            if name == "SeqMED":  # has no marker of its own: None is a missing label
                y = np.where(y == UNLABELED, None, y)
            model.partial_fit(rows.X[start:end], y, classes=classes)
    learned = time.process_time()
    accuracy = percent_right(model.predict(rows.X_scored), rows.y_scored)
    return Run(accuracy, learned - begin, time.process_time() - learned)


def every_batch_seconds(name: str, rows: Rows, labels: Any) -> float:
    """Return the processor seconds of a fit after every batch, from those of every sixth."""
    total, ends = 0.0, rows.bounds[:0:-1]
    for place in range(0, len(ends), TIMED_EVERY):
        end = ends[place]
        if np.unique(labels[:end]).size <= 2:  # fewer than two classes: nothing to fit
            continue
        begin = time.process_time()
        REFITTED[name](rows.X[:end], labels[:end])
        total += time.process_time() - begin
    return TIMED_EVERY * total


def prepare() -> None:
    """Compile before anything is timed, and silence expected warnings."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
    warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)
    rng = np.random.default_rng(SEED)
    X, y = rng.normal(size=(120, 2)), np.arange(120) % 4 - 1
    for points in (X, sp.csr_matrix(X)):
        for make in (STREAMS["SeqGraphMED"], STREAMS["SeqMED"]):
            model = make()
            for start in range(0, 120, 40):
                model.partial_fit(points[start : start + 40], np.array(y[start : start + 40]))


def river_version() -> str | None:
    """Return the version of river; None if it is not installed."""
    if importlib.util.find_spec("river") is None:
        return None
    import river

    return str(river.__version__)


def found_tasks(tasks: Sequence[str], quick: bool) -> list[str]:
    """Return the tasks whose data are found, and print the others."""
    found = []
    for task in tasks:
        try:
            load(task, quick)
            found.append(task)
        except MissingDataError as error:
            print(f"{task} is left out: {error}", flush=True)
    return found


def found_methods(names: Sequence[str]) -> list[str]:
    """Return the methods whose packages are installed, and print whether river's are left out."""
    if river_version() is not None:
        return list(names)
    print(f"Methods of river are left out: {INSTALL}.", flush=True)
    return [name for name in names if not name.startswith("river")]


def summary(cells: dict[str, Any]) -> None:
    """Print mean accuracies and seconds, a table for every task."""
    for task, by_fraction in cells.items():
        names = list(dict.fromkeys(name for cell in by_fraction.values() for name in cell))
        table = []
        for name in names:
            row = [name]
            for cell in by_fraction.values():
                runs = cell.get(name, {}).get("accuracies")
                if runs:
                    found = mean_and_error(list(runs.values()))
                    seconds = np.median(list(cell[name]["learning_seconds"].values()))
                    row.append(f"{found['mean']:.1f} ± {found['error']:.1f}, {seconds:.1f} s")
                else:
                    row.append("")
            table.append(row)
        print(f"\n{task}: accuracy, seconds of learning")
        print_table(["method", *(f"{float(f):.0%}" for f in by_fraction)], table)


def main() -> None:
    """Run what is asked for, and print and write everything there is."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog=f"Methods of river and the mixed tables need further packages: {INSTALL}. "
        "SEQMED_DATA names the folder of the data. What is not found is left out.",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rows, one draw, two fractions")
    parser.add_argument("--only", choices=ALL_TASKS, help="one task")
    parser.add_argument("--methods", nargs="+", choices=[*STREAMS, *REFITTED], metavar="NAME")
    parser.add_argument("--out", help="write the results there as JSON")
    options = parser.parse_args()
    fractions = QUICK_FRACTIONS if options.quick else FRACTIONS
    n_masks = QUICK_MASKS if options.quick else N_MASKS
    cells: dict[str, Any] = {}
    if options.out and Path(options.out).exists():
        cells = json.loads(Path(options.out).read_text())["cells"]

    tasks = found_tasks([options.only] if options.only else ALL_TASKS, options.quick)
    names = found_methods(options.methods or [*STREAMS, *REFITTED])
    prepare()
    with threadpool_limits(1):
        for task, fraction, name in product(tasks, fractions, names):
            if (task, name) in LEFT_OUT:
                continue
            chosen = load(task, options.quick)
            cell = cells.setdefault(task, {}).setdefault(str(fraction), {})
            found = cell.setdefault(
                name, {"accuracies": {}, "learning_seconds": {}, "predicting_seconds": {}}
            )
            for mask in range(n_masks):
                given = shown(len(chosen.rows.y), fraction, mask)
                labels = np.where(given, chosen.rows.y, UNLABELED)
                result = run(name, chosen, labels)
                found["accuracies"][str(mask)] = result.accuracy
                found["learning_seconds"][str(mask)] = result.learning
                found["predicting_seconds"][str(mask)] = result.predicting
                if name in REFITTED and (fraction, mask) == (TIMED_FRACTION, TIMED_MASK):
                    found["every_batch_seconds"] = every_batch_seconds(name, chosen.rows, labels)
                results = {"quick": options.quick, "river": river_version()}
                write_json(options.out, {**results, "cells": cells})
            mean = np.mean(list(found["accuracies"].values()))
            print(f"{task}, {fraction:.0%}, {name}: {mean:.1f}", flush=True)
    summary(cells)


if __name__ == "__main__":
    main()
