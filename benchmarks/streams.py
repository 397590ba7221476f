"""SeqGraphMED beside the learners of river, CapyMOA and scikit-learn, on streams that change.

Streams:

- elec2: electricity prices in time order, the date left out;
- USPS: ten digits, in a random order; SMS spam: counts of words, hashed to 1024 columns;
- river's generators, 10,000 rows: SEA (four concepts, one after the other), a hyperplane that
  turns, radial basis functions that move, LED (seven columns change places at row 5,000);
- the classification sets that river bundles: bananas, image segments, phishing, and the first
  10,000 rows of shuttle.

Batches have 100 rows. A batch is predicted before it is learned, with a share of its labels, drawn
at random. Accuracy is over all rows. Rows, order and labels are the same for all methods.
"standardised" rows have mean 0 and standard deviation 1 over the whole stream; "raw" rows are as
they come.

Methods learn every batch once, row by row where they have no other way:

- SeqGraphMED, and its experts alone: SeqMED and GraphPropagation;
- river: Hoeffding adaptive tree, adaptive random forest, Gaussian naive Bayes, and, behind river's
  StandardScaler, softmax regression, and nearest neighbours that start anew when ADWIN finds a
  change;
- SGDClassifier, logistic loss, behind a StandardScaler that goes on learning;
- CapyMOA, where it is installed: SLEADE, which learns from unlabeled rows too;
- refitted on everything so far when there are a tenth more labels: SVC with C = 10 on the labeled
  rows, and SelfTraining of a logistic regression on all rows, both behind a StandardScaler.

All parameters are defaults or as said above. Trees, naive Bayes and what is behind a scaler of its
own do not depend on the scale of the rows: they run on the raw rows only, and the table shows that
result twice. `LEFT_OUT` names what takes too long.

    SEQMED_DATA=FOLDER python benchmarks/streams.py [--quick] [--streams NAME ...]
        [--methods NAME ...] [--seeds SEED ...] [--again] [--out FILE.json]

Results are written after every cell. Cells that the file has are not run again, unless --again is
given. `streams_page.py` writes the table of docs/streams.md.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from common import Later, data_file, make_parser, print_table, write_json
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from seqmed import GraphPropagation, SeqGraphMED, SeqMED

river, bundled, synth = Later("river"), Later("river.datasets"), Later("river.datasets.synth")
drift, forest, linear_model = (
    Later(f"river.{name}") for name in ("drift", "forest", "linear_model")
)
naive_bayes, neighbors, preprocessing, tree = (
    Later(f"river.{name}") for name in ("naive_bayes", "neighbors", "preprocessing", "tree")
)

SHARES, N_SEEDS = (0.01, 0.05, 0.1), 3
QUICK_SHARES, QUICK_ROWS = (0.05,), 2000
ROWS, BATCH = 10_000, 100
WORDS = 1024
UNLABELED = -1
# Growth of the labels after which a method is fitted again.
GROWTH = 1.1


# -- streams ---------------------------------------------------------------------------------------


def elec2(seed: int) -> tuple[Any, Any]:
    """Return rows in time order, without the date, and whether the price goes up."""
    with np.load(data_file("elec2.npz")) as file:
        return file["X"][:, 1:].astype(float), file["y"].astype(int)


def usps(seed: int) -> tuple[Any, Any]:
    """Return all digits in a random order."""
    with np.load(data_file("usps.npz")) as file:
        return shuffled(file["X"].astype(float), file["y"].astype(int), seed)


def sms_spam(seed: int) -> tuple[Any, Any]:
    """Return counts of hashed words in a random order, and whether a message is spam."""
    with gzip.open(data_file("sms_spam.tsv.gz"), "rt", encoding="utf-8") as file:
        pairs = [line.rstrip("\n").split("\t", 1) for line in file if "\t" in line]
    hashing = HashingVectorizer(n_features=WORDS, norm=None, alternate_sign=False)
    X = hashing.transform([text for _, text in pairs]).toarray()
    return shuffled(X, np.array([label == "spam" for label, _ in pairs]).astype(int), seed)


def shuffled(X: Any, y: Any, seed: int) -> tuple[Any, Any]:
    """Return rows in a random order."""
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order], y[order]


def as_arrays(rows: Any, n: int) -> tuple[Any, Any]:
    """Return the first rows of a river stream as arrays, classes by number."""
    pairs = list(rows.take(n))
    X = np.array([list(row.values()) for row, _ in pairs], dtype=float)
    return X, np.unique([str(label) for _, label in pairs], return_inverse=True)[1]


def joined(streams: list[Any], n: int) -> tuple[Any, Any]:
    """Return equally many rows of every stream, one stream after the other."""
    parts = [as_arrays(stream, n // len(streams)) for stream in streams]
    return np.vstack([X for X, _ in parts]), np.concatenate([y for _, y in parts])


def sea(seed: int) -> tuple[Any, Any]:
    """Return SEA: four concepts, one label in ten wrong."""
    return joined([synth.SEA(v, noise=0.1, seed=10 * seed + v) for v in range(4)], ROWS)


def hyperplane(seed: int) -> tuple[Any, Any]:
    """Return a hyperplane of ten columns, all of whose weights change."""
    stream = synth.Hyperplane(
        seed=seed, n_features=10, n_drift_features=10, mag_change=0.001, noise_percentage=0.05
    )
    return as_arrays(stream, ROWS)


def radial(seed: int) -> tuple[Any, Any]:
    """Return five classes, generated by fifty radial basis functions that move."""
    stream = synth.RandomRBFDrift(
        seed_model=seed, seed_sample=seed, n_classes=5, n_features=10, n_centroids=50,
        change_speed=0.0001, n_drift_centroids=50,
    )  # fmt: skip
    return as_arrays(stream, ROWS)


def led(seed: int) -> tuple[Any, Any]:
    """Return LED digits whose relevant columns move in the middle of the stream."""
    parts = [
        synth.LEDDrift(seed=seed + half, noise_percentage=0.1, irrelevant_features=True,
                       n_drift_features=7 * half)
        for half in range(2)
    ]  # fmt: skip
    return joined(parts, ROWS)


def of_river(name: str) -> Callable[[int], tuple[Any, Any]]:
    """Return a loader of a set that river bundles, in a random order, shuttle in its own."""

    def load(seed: int) -> tuple[Any, Any]:
        rows = getattr(bundled, name)()
        X, y = as_arrays(rows, min(rows.n_samples, ROWS))
        return (X, y) if name == "Shuttle" else shuffled(X, y, seed)

    return load


STREAMS: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "elec2": elec2, "USPS": usps, "SMS spam": sms_spam,
    "SEA": sea, "hyperplane": hyperplane, "radial basis functions": radial, "LED": led,
    "bananas": of_river("Bananas"), "image segments": of_river("ImageSegments"),
    "phishing": of_river("Phishing"), "shuttle": of_river("Shuttle"),
}  # fmt: skip


@cache
def load(name: str, seed: int, scaling: str) -> tuple[Any, Any]:
    """Return the rows and classes of a stream."""
    X, y = STREAMS[name](seed)
    if scaling == "standardised":
        deviations = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)
    return X, y


def shown(n: int, share: float, seed: int) -> Any:
    """Return which labels are shown, (n,)."""
    return np.random.default_rng((seed, round(1000 * share))).random(n) < share


# -- methods ---------------------------------------------------------------------------------------


class Own:
    """A classifier of this package."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def learn(self, X: Any, y: Any) -> None:
        """Learn a batch, unlabeled rows included."""
        self.model.partial_fit(X, np.where(y == UNLABELED, None, y))

    def predict(self, X: Any) -> Any:
        """Return the predicted classes."""
        return self.model.predict(X)


class River:
    """A river classifier, row by row on labeled rows, with or without river's scaler."""

    def __init__(self, model: Any, *, scaled: bool = False) -> None:
        self.model = model
        self.scaler = preprocessing.StandardScaler() if scaled else None

    def _rows(self, X: Any) -> Any:
        for row in X.tolist():
            features = dict(enumerate(row))
            yield features if self.scaler is None else self.scaler.transform_one(features)

    def learn(self, X: Any, y: Any) -> None:
        """Learn the labeled rows of a batch."""
        if self.scaler is not None:
            for row in X.tolist():
                self.scaler.learn_one(dict(enumerate(row)))
        labeled = y != UNLABELED
        for row, label in zip(self._rows(X[labeled]), y[labeled].tolist(), strict=True):
            self.model.learn_one(row, label)

    def predict(self, X: Any) -> Any:
        """Return the predicted classes, class 0 where river gives none."""
        found = [self.model.predict_one(row) for row in self._rows(X)]
        return np.array([0 if label is None else label for label in found])


class Sgd:
    """SGDClassifier behind a scaler that goes on learning."""

    def __init__(self, classes: Any) -> None:
        self.scaler, self.classes = StandardScaler(), classes
        self.model = SGDClassifier(loss="log_loss", random_state=0)

    def learn(self, X: Any, y: Any) -> None:
        """Learn the scale of all rows and the labels of some."""
        self.scaler.partial_fit(X)
        labeled = y != UNLABELED
        if labeled.any():
            scaled = self.scaler.transform(X[labeled])
            self.model.partial_fit(scaled, y[labeled], classes=self.classes)

    def predict(self, X: Any) -> Any:
        """Return the predicted classes."""
        return self.model.predict(self.scaler.transform(X))


class Refitted:
    """A scikit-learn classifier, fitted on everything so far when there are a tenth more labels."""

    def __init__(self, model: Any, *, all_rows: bool) -> None:
        self.model, self.all_rows = model, all_rows
        self.X: list[Any] = []
        self.y: list[Any] = []
        self.n_labels, self.n_fitted = 0, 0

    def learn(self, X: Any, y: Any) -> None:
        """Keep a batch, and fit again if there are enough new labels."""
        kept = np.ones(y.size, dtype=bool) if self.all_rows else y != UNLABELED
        self.X.append(X[kept])
        self.y.append(y[kept])
        self.n_labels += int((y != UNLABELED).sum())
        if self.n_labels < max(GROWTH * self.n_fitted, 1):
            return
        y = np.concatenate(self.y)
        known = np.unique(y[y != UNLABELED])
        self.only = known[0]
        if known.size > 1:
            self.model.fit(np.vstack(self.X), y)
            self.n_fitted = self.n_labels

    def predict(self, X: Any) -> Any:
        """Return the predicted classes, the only one while there is one."""
        return self.model.predict(X) if self.n_fitted else np.full(X.shape[0], self.only)


class CapyMoa:
    """A CapyMOA classifier, row by row; a semi-supervised one learns from unlabeled rows too."""

    def __init__(self, make: Callable[[Any], Any], n_features: int, classes: Any) -> None:
        from capymoa.stream import Schema

        columns = [f"x{place}" for place in range(n_features)]
        self.schema = Schema.from_custom(
            [*columns, "y"], target="y", categories={"y": [str(label) for label in classes]}
        )
        self.model, self.begun = make(self.schema), False

    def learn(self, X: Any, y: Any) -> None:
        """Learn the rows of a batch. SLEADE cannot learn before the first label."""
        from capymoa.core import Instance, LabeledInstance

        for row, label in zip(X, y.tolist(), strict=True):
            if label != UNLABELED:
                self.model.train(LabeledInstance.from_array(self.schema, row, label))
                self.begun = True
            elif self.begun and hasattr(self.model, "train_on_unlabeled"):
                self.model.train_on_unlabeled(Instance.from_array(self.schema, row))

    def predict(self, X: Any) -> Any:
        """Return the predicted classes, class 0 where there is none."""
        from capymoa.core import Instance

        found = [self.model.predict(Instance.from_array(self.schema, row)) for row in X]
        return np.array([0 if label is None else label for label in found])


class RestartedNeighbours:
    """River's nearest neighbours, started anew when ADWIN finds a change of their error."""

    def __init__(self) -> None:
        self.model, self.detector = neighbors.KNNClassifier(), drift.ADWIN()

    def learn_one(self, x: Any, y: Any) -> None:
        """Learn a row, after it has been predicted for the detector."""
        self.detector.update(float(self.model.predict_one(x) != y))
        if self.detector.drift_detected:
            self.model = neighbors.KNNClassifier()
        self.model.learn_one(x, y)

    def predict_one(self, x: Any) -> Any:
        """Return the predicted class."""
        return self.model.predict_one(x)


def sleade(schema: Any) -> Any:
    """Return SLEADE."""
    from capymoa.ssl import SLEADE

    return SLEADE(schema)


OURS: dict[str, Callable[..., Any]] = {
    "SeqGraphMED": lambda X, classes: Own(SeqGraphMED(random_state=0)),
    "SeqMED": lambda X, classes: Own(SeqMED(random_state=0)),
    "GraphPropagation": lambda X, classes: Own(GraphPropagation(random_state=0)),
}
PEERS: dict[str, Callable[..., Any]] = {
    "river adaptive tree": lambda X, classes: River(tree.HoeffdingAdaptiveTreeClassifier(seed=0)),
    "river adaptive forest": lambda X, classes: River(forest.ARFClassifier(seed=0)),
    "river naive Bayes": lambda X, classes: River(naive_bayes.GaussianNB()),
    "river softmax regression": lambda X, classes: River(
        linear_model.SoftmaxRegression(), scaled=True
    ),
    "river nearest neighbours": lambda X, classes: River(RestartedNeighbours(), scaled=True),
    "SGDClassifier": lambda X, classes: Sgd(classes),
    "SVC, refitted": lambda X, classes: Refitted(
        make_pipeline(StandardScaler(), SVC(C=10.0)), all_rows=False
    ),
    "SelfTraining, refitted": lambda X, classes: Refitted(
        make_pipeline(StandardScaler(), SelfTrainingClassifier(LogisticRegression(max_iter=200))),
        all_rows=True,
    ),
    "CapyMOA SLEADE": lambda X, classes: CapyMoa(sleade, X.shape[1], classes),
}
METHODS = OURS | PEERS
# Methods whose results depend on the scale of the rows.
SCALED = set(OURS)
SCALINGS = ("raw", "standardised")
# Too slow with hundreds of columns.
LEFT_OUT = {
    (stream, method)
    for stream in ("USPS", "SMS spam")
    for method in ("CapyMOA SLEADE", "river naive Bayes")
}


def available(name: str) -> bool:
    """Whether what a method needs is installed."""
    return "CapyMOA" not in name or importlib.util.find_spec("capymoa") is not None


def run(make: Callable[..., Any], X: Any, y: Any, labels: Any) -> tuple[float, float]:
    """Return the accuracy of predictions before learning, in per cent, and processor seconds.

    Rows before the first label count as wrong.
    """
    classes = np.unique(y)
    begin, right = time.process_time(), 0
    model = make(X, classes)
    for start in range(0, len(y), BATCH):
        batch = slice(start, start + BATCH)
        if (labels[:start] != UNLABELED).any():
            right += int((model.predict(X[batch]) == y[batch]).sum())
        model.learn(X[batch], labels[batch])
    return 100.0 * right / len(y), time.process_time() - begin


def summary(cells: dict[str, Any]) -> None:
    """Print mean accuracies, a table for every stream and scaling."""
    for stream, by_scaling in cells.items():
        for scaling, by_share in by_scaling.items():
            names = list(dict.fromkeys(name for cell in by_share.values() for name in cell))
            rows = []
            for name in names:
                runs = [cell.get(name, {}) for cell in by_share.values()]
                seconds = sum(sum(run["seconds"].values()) for run in runs if run)
                means = [
                    f"{np.mean(list(r['accuracies'].values())):.1f}" if r else "" for r in runs
                ]
                rows.append([name, *means, f"{seconds:.0f}"])
            print(f"\n{stream}, {scaling}")
            print_table(["method", *(f"{float(s):.0%}" for s in by_share), "seconds"], rows)


def main() -> None:
    """Run the cells that are missing, and print and write everything there is."""
    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="2000 rows, one seed, one share")
    parser.add_argument("--streams", nargs="+", choices=list(STREAMS), metavar="NAME")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=range(N_SEEDS), metavar="SEED")
    parser.add_argument("--again", action="store_true", help="run cells that the file has")
    parser.add_argument("--out", help="write the results there as JSON, and go on from there")
    options = parser.parse_args()
    shares, seeds = (QUICK_SHARES, [0]) if options.quick else (SHARES, options.seeds)
    names = [name for name in options.methods or METHODS if available(name)]
    cells: dict[str, Any] = {}
    if options.out and Path(options.out).exists():
        cells = json.loads(Path(options.out).read_text())["cells"]

    warnings.simplefilter("ignore")  # few labels: classes with one row, solvers that stop early
    with threadpool_limits(1):
        for stream in options.streams or STREAMS:
            for seed, scaling in ((s, kind) for s in seeds for kind in SCALINGS):
                X, y = load(stream, seed, scaling)
                n = min(len(y), QUICK_ROWS) if options.quick else len(y)
                for share in shares:
                    labels = np.where(shown(len(y), share, seed), y, UNLABELED)
                    cell = cells.setdefault(stream, {}).setdefault(scaling, {})
                    cell = cell.setdefault(str(share), {})
                    for name in names:
                        left_out = (stream, name) in LEFT_OUT
                        if left_out or (scaling == "standardised" and name not in SCALED):
                            continue
                        found = cell.setdefault(name, {"accuracies": {}, "seconds": {}})
                        if str(seed) in found["accuracies"] and not options.again:
                            continue
                        accuracy, seconds = run(METHODS[name], X[:n], y[:n], labels[:n])
                        found["accuracies"][str(seed)] = round(accuracy, 3)
                        found["seconds"][str(seed)] = round(seconds, 2)
                        print(
                            f"{stream}, {scaling}, {share:.0%}, {name}: {accuracy:.1f}", flush=True
                        )
                        versions = {"quick": options.quick, "river": river.__version__}
                        write_json(options.out, {**versions, "cells": cells})
    summary(cells)


if __name__ == "__main__":
    main()
