"""Makes the golden model files of the current format, and what their models predict.

Run once for every version of the format, from the root of the repository:

    python -m tests.data.make_golden

Existing files are not overwritten: once a version is released, later ones have to read them.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
import scipy
import scipy.linalg  # loads its BLAS
import scipy.sparse as sp
import sklearn
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_info

import seqmed
from seqmed import (
    ConceptChangeWarning,
    GraphPropagation,
    PrequentialSearch,
    SeqGraphMED,
    SeqLapMED,
    SeqMED,
    StreamPipeline,
    TableEncoder,
)
from seqmed.kernels import Polynomial, TfIdf
from seqmed.mixture.experts import StandardisedLogisticRegression
from seqmed.model_file import FORMAT

FOLDER = Path(__file__).parent
INSECTS = ("ant", "bee", "cicada")


def make_batch(seed, classes=INSECTS, n=12):
    """Rows of counts around three profiles, and labels, a quarter of them missing."""
    generator = np.random.default_rng(seed)
    codes = generator.permutation(np.arange(n) % len(classes))
    X = generator.poisson(0.5 + 3.0 * np.eye(3, 4)[codes]).astype(float)
    y = np.array(classes, dtype=object)[codes]
    y[::4] = None
    return X, y


def caught(number):
    """Return a date and time as text."""
    return f"{1 + number % 28:02d}.{1 + number % 12:02d}.2024 {number % 24}:30"


def make_table(seed, n=60):
    """Rows with a column of every kind, as dictionaries, and labels, a quarter of them missing."""
    X, _ = make_batch(seed, n=n)
    generator = np.random.default_rng(seed)
    codes = X[:, :3].argmax(axis=1)
    days = generator.permutation(n)
    rows = [
        {
            "count": None if place % 7 == 0 else int(row[0]),
            "size": float(row[1] + generator.random()),
            "sunny": None if place % 9 == 0 else bool(place % 2),
            "colour": ["black", "yellow", "green", None][codes[place] + (place % 5 == 0)],
            "code": f"c{generator.integers(90)}",
            "caught": None if place % 11 == 0 else caught(days[place]),
            "note": f"the {INSECTS[codes[place]]} number {place} of the day {days[place]}",
            "id": seed * n + place,
        }
        for place, row in enumerate(X)
    ]
    y = np.array(INSECTS, dtype=object)[codes]
    y[::4] = None
    return rows, y


def landmarks(**parameters):
    return SeqLapMED(n_landmarks=6, n_neighbors=3, random_state=0, **parameters)


# Three batches have 36 rows, 9 of them unlabeled: the memory is full.
GRAPH = {"graph_memory": 16, "n_neighbors": 3, "random_state": 0}

# One of every kind that a model file may hold.
EXPERTS = [
    StandardisedLogisticRegression(C=2.0),
    LogisticRegression(C=0.5),
    RandomForestClassifier(5, max_depth=3),
    ExtraTreesClassifier(5),
    HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2),
    GaussianNB(),
    KNeighborsClassifier(3),
    DecisionTreeClassifier(max_depth=2),
]

MODELS = {
    "SeqMED": lambda: SeqMED(lag=2),
    "SeqMED-diffuse": lambda: SeqMED(lag=2, bias="exact"),
    "SeqMED-two-classes": lambda: SeqMED(kernel=Polynomial("scale", 2, 1.0), bias="exact"),
    "SeqMED-linear-sparse": lambda: SeqMED(kernel="linear", lag=1),
    "SeqMED-budget": lambda: SeqMED(budget=8, averaging=True, lag=2, random_state=0),
    "SeqMED-running-mean": lambda: SeqMED(window=6),
    "SeqMED-precomputed": lambda: SeqMED(kernel="precomputed"),
    "SeqLapMED": lambda: landmarks(lag=2, class_weight={"ant": 2.0}),
    "SeqLapMED-tfidf-sparse": lambda: SeqLapMED(
        kernel="tfidf", n_landmarks=5, random_state=np.random.RandomState(0)
    ),
    "SeqLapMED-exact": lambda: SeqLapMED(recursion="exact", lag=1),
    "SeqLapMED-spectral": lambda: SeqLapMED(recursion="spectral", lag=1),
    "GraphPropagation": lambda: GraphPropagation(forgetting=0.9, **GRAPH),
    "GraphPropagation-late": lambda: GraphPropagation(**GRAPH),
    "GraphPropagation-sparse": lambda: GraphPropagation(**GRAPH),
    "GraphPropagation-tfidf-sparse": lambda: GraphPropagation(metric=TfIdf(), **GRAPH),
    "SeqGraphMED": lambda: SeqGraphMED(class_weight={"ant": 2.0}, experts=(), **GRAPH),
    "SeqGraphMED-default": lambda: SeqGraphMED(random_state=0),
    "SeqGraphMED-experts": lambda: SeqGraphMED(experts=EXPERTS, **GRAPH),
    "SeqGraphMED-sparse": lambda: SeqGraphMED(SeqMED(kernel="linear"), mixture=0.5, **GRAPH),
    "SeqGraphMED-SeqLapMED": lambda: SeqGraphMED(landmarks(lag=2), mixture=0.5, **GRAPH),
    "SeqGraphMED-change": lambda: SeqGraphMED(experts=(), **GRAPH),
    "StreamPipeline": lambda: StreamPipeline(
        [("scale", StandardScaler()), ("range", MinMaxScaler()), ("model", landmarks())]
    ),
    "StreamPipeline-table": lambda: StreamPipeline(
        [
            # fewer features of words than usual, because a linear model has a weight for each
            ("table", TableEncoder(label="kind", missing_values=["unknown"], text_size=512)),
            ("model", SeqMED(kernel="auto", random_state=0)),
        ]
    ),
    "StreamPipeline-table-counts": lambda: StreamPipeline(
        [
            (
                "table",
                TableEncoder(
                    {"note": "text"}, features=["note"], text_size=64, text_weights="counts"
                ),
            ),
            ("model", SeqMED(kernel="tfidf")),
        ]
    ),
    "PrequentialSearch": lambda: PrequentialSearch(
        StreamPipeline([("scale", MaxAbsScaler()), ("model", SeqMED(random_state=0))]),
        {"model__gamma": ["scale", 1e4]},
    ),
}
# Models with experts, which `load` fits again.
WITH_EXPERTS = (
    "SeqGraphMED-default",
    "SeqGraphMED-experts",
    "SeqGraphMED-sparse",
    "SeqGraphMED-SeqLapMED",
)

# Batches that a model learns, if not three.
N_BATCHES = {"PrequentialSearch": 8, "SeqGraphMED-change": 10}


def learned(name):
    """Return a model that has learned its batches, or one matrix."""
    model = MODELS[name]()
    if name.endswith("precomputed"):
        X, y = make_batch(0)
        return model.fit(X @ X.T, y)
    if "table" in name:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "columns that are not used")
            return model.partial_fit(*make_table(0, n=120)).partial_fit(*make_table(1))
    for seed in range(N_BATCHES.get(name, 3)):
        classes = INSECTS[:2] if "two-classes" in name else INSECTS
        X, y = make_batch(seed, classes, 24 if name.endswith("change") else 12)
        if name.endswith("change") and seed > 6:  # all three profiles change places
            X[:, :3] = np.roll(X[:, :3], 1, axis=1)
        if "Graph" in name:  # no two rows are equally far from a third, whatever the rounding
            X = X + np.random.default_rng(seed).random(X.shape) / 10
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConceptChangeWarning)
            model.partial_fit(sp.csr_array(X) if "sparse" in name else X, y)
    if name.endswith("late"):
        model.partial_fit(X[::4], list(INSECTS), new_points=False)
    return model


def probes(name):
    """Return rows to predict."""
    if "table" in name:
        return make_table(99, n=12)[0]
    X, _ = make_batch(99)
    return X @ make_batch(0)[0].T if name.endswith("precomputed") else X


def machine():
    """Return what the rounding of results depends on: the processor and the libraries."""
    pools = threadpool_info()  # after numpy and scipy have loaded theirs
    return {
        "processor": llvmlite.binding.get_host_cpu_name(),
        "kernels": sorted({pool["architecture"] for pool in pools if "architecture" in pool}),
        **{each.__name__: each.__version__ for each in (numba, np, scipy, sklearn)},
    }


def main():
    for name in MODELS:
        path = FOLDER / f"format-{FORMAT}-{name}.safetensors"
        if path.exists():
            continue
        model, X = learned(name), probes(name)
        seqmed.save(model, path, extra={"name": name, "probes": X})
        expected = {
            "labels": model.predict(X).tolist(),
            "probabilities": model.predict_proba(X).tolist(),
            "machine": machine(),
        }
        path.with_suffix(".json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
