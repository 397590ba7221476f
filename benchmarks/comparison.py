"""SeqGraphMED beside what is otherwise used for streams with few labels.

Four tasks: USPS (ten digits, batches of 200, test rows), ISOLET (26 letters, batches of five
speakers, test speakers), SMS spam (words hashed to 2^14 columns, rows of length 1, batches of 200,
a fifth of the messages held out), and scikit-learn's digits (batches of 100, 397 rows held out).
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
- SelfTrainingClassifier: of a logistic regression on standardised features, on all rows so far.

Nothing is tuned: all parameters are defaults or as said above.

    SEQMED_DATA=FOLDER python benchmarks/comparison.py [--quick] [--only TASK] [--methods NAME ...]
        [--out FILE.json]

Results are written after every draw. Draws of a method that the file already has are replaced, all
others are kept, so that one method or one task can be run again. `comparison_page.py` writes the
tables of the documents.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
import warnings
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import river
import scipy.sparse as sp
from common import data_file, mean_and_error, print_table, write_json
from river import compose, linear_model, neighbors, preprocessing, tree
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits
from unlabeled import Rows, load_isolet, load_usps, percent_right

from seqmed import SeqGraphMED, SeqMED

FRACTIONS, N_MASKS = (0.01, 0.02, 0.05, 0.1), 5
QUICK_FRACTIONS, QUICK_MASKS = (0.01, 0.1), 1
QUICK_ROWS = 1000
# Label fraction and draw with which refitting after every batch is timed, and every how many.
TIMED_FRACTION, TIMED_MASK, TIMED_EVERY = 0.05, 0, 6
UNLABELED = -1
TEXT_COLUMNS, TEXT_BATCH = 2**14, 200
DIGITS_BATCH, DIGITS_TEST = 100, 397
SEED = 0
LEFT_OUT = {("isolet-26", "river HoeffdingTree")}


# -- data ------------------------------------------------------------------------------------------


@cache
def load(task: str, quick: bool) -> Rows:
    """Return the rows of a task."""
    return TASKS[task](quick)


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


TASKS: dict[str, Callable[[bool], Rows]] = {
    "usps": usps, "isolet-26": isolet, "sms_spam": sms_spam, "digits": digits,
}  # fmt: skip


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
    engine = neighbors.LazySearch(window_size=1000, dist_func=distance)
    model = neighbors.KNNClassifier(n_neighbors=5, engine=engine)
    return RiverStream(model, as_arrays, scaled=False)


def river_softmax() -> RiverStream:
    """Return river's softmax regression."""
    return RiverStream(linear_model.SoftmaxRegression(), as_features, scaled=True)


def river_tree() -> RiverStream:
    """Return river's Hoeffding tree."""
    return RiverStream(tree.HoeffdingTreeClassifier(), as_features, scaled=True)


def svc(X: Any, y: Any) -> Any:
    """Fit an SVC on the labeled rows."""
    labeled = y != UNLABELED
    return SVC(C=10.0).fit(X[labeled], y[labeled])


def label_spreading(X: Any, y: Any) -> Any:
    """Fit label spreading on all rows."""
    return LabelSpreading(kernel="knn", n_neighbors=10).fit(X, y)


def self_training(X: Any, y: Any) -> Any:
    """Fit a self-training logistic regression on all rows."""
    base = LogisticRegression(max_iter=200)
    scaler = StandardScaler(with_mean=False, with_std=False) if sp.issparse(X) else StandardScaler()
    return make_pipeline(scaler, SelfTrainingClassifier(base)).fit(X, y)


STREAMS: dict[str, Callable[[], Any]] = {
    "SeqGraphMED": lambda: SeqGraphMED(random_state=SEED),
    "SeqMED": lambda: SeqMED(random_state=SEED),
    "SGDClassifier": LabeledStream,
    "SGDClassifier, constant rate": lambda: LabeledStream(learning_rate="constant", eta0=0.01),
    "river KNNClassifier": river_neighbours,
    "river SoftmaxRegression": river_softmax,
    "river HoeffdingTree": river_tree,
}
REFITTED: dict[str, Callable[[Any, Any], Any]] = {
    "SVC": svc,
    "LabelSpreading": label_spreading,
    "SelfTraining": self_training,
}


# -- runs ------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Test accuracy in per cent, and processor seconds of learning and of predicting."""

    accuracy: float
    learning: float
    predicting: float


def run(name: str, rows: Rows, labels: Any) -> Run:
    """Learn a stream, or fit once after its last batch, and predict the test rows."""
    begin = time.process_time()
    if name in REFITTED:
        model = REFITTED[name](rows.X, labels)
    else:
        model, classes = STREAMS[name](), np.unique(rows.y)
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows, one draw, two fractions")
    parser.add_argument("--only", choices=list(TASKS), help="one task")
    parser.add_argument("--methods", nargs="+", choices=[*STREAMS, *REFITTED], metavar="NAME")
    parser.add_argument("--out", help="write the results there as JSON")
    options = parser.parse_args()
    fractions = QUICK_FRACTIONS if options.quick else FRACTIONS
    n_masks = QUICK_MASKS if options.quick else N_MASKS
    cells: dict[str, Any] = {}
    if options.out and Path(options.out).exists():
        cells = json.loads(Path(options.out).read_text())["cells"]

    prepare()
    with threadpool_limits(1):
        for task in [options.only] if options.only else list(TASKS):
            rows = load(task, options.quick)
            for fraction in fractions:
                cell = cells.setdefault(task, {}).setdefault(str(fraction), {})
                for name in options.methods or [*STREAMS, *REFITTED]:
                    if (task, name) in LEFT_OUT:
                        continue
                    found = cell.setdefault(
                        name, {"accuracies": {}, "learning_seconds": {}, "predicting_seconds": {}}
                    )
                    for mask in range(n_masks):
                        labels = np.where(shown(len(rows.y), fraction, mask), rows.y, UNLABELED)
                        result = run(name, rows, labels)
                        found["accuracies"][str(mask)] = result.accuracy
                        found["learning_seconds"][str(mask)] = result.learning
                        found["predicting_seconds"][str(mask)] = result.predicting
                        timed = fraction == TIMED_FRACTION and mask == TIMED_MASK
                        if name in REFITTED and timed:
                            found["every_batch_seconds"] = every_batch_seconds(name, rows, labels)
                        results = {"quick": options.quick, "river": river.__version__}
                        write_json(options.out, {**results, "cells": cells})
                    mean = np.mean(list(found["accuracies"].values()))
                    print(f"{task}, {fraction:.0%}, {name}: {mean:.1f}", flush=True)
    summary(cells)


if __name__ == "__main__":
    main()
