"""Model files of `GraphPropagation` and `SeqGraphMED`.

A loaded model equals the saved one to the last bit, and continues to learn to the last bit. Equal
models are saved in equal bytes, so files are compared.
"""

from __future__ import annotations

import copy
import pickle
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from seqmed import (
    GraphPropagation,
    SeqGraphMED,
    SeqLapMED,
    SeqMED,
)
from seqmed.kernels import RBF, Polynomial, TfIdf
from tests.unit.test_persistence import assert_same, bits, restored

INSECTS = ("ant", "bee", "cow")
# Batches learned before a model is saved.
CALLS = 3


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def batch(seed, n=40, classes=INSECTS, form="dense", p=5, labeled=0.3):
    """Return counts around the profiles of some classes, and labels, most of them missing."""
    generator = np.random.default_rng(seed)
    codes = generator.integers(len(classes), size=n)
    X = generator.poisson(0.5 + 3.0 * np.eye(3, p)[codes]).astype(float)
    y = np.array(classes, dtype=object)[codes]
    y[generator.random(n) >= labeled] = None
    return (sp.csr_array(X) if form == "csr" else X), y


class Case(NamedTuple):
    """A model and its stream.

    Labels are not taken back where a row may have none, or where the distance of equal rows is
    rounded, so that a graph does not find them.
    """

    model: object
    form: str = "dense"
    options: dict | None = None
    retracts: bool = True


# Fewer than the rows of three batches; half of it is more than their labels.
FULL = {"graph_memory": 80, "random_state": 0}
CASES = {
    "graph": Case(GraphPropagation(random_state=0)),
    "graph, full": Case(GraphPropagation(**FULL)),
    "graph, sparse": Case(GraphPropagation(**FULL), "csr", retracts=False),
    "graph, sparse Euclidean": Case(
        GraphPropagation(metric="euclidean", **FULL), "csr", retracts=False
    ),
    "graph, dense cosine": Case(
        GraphPropagation(metric="cosine", **FULL), retracts=False
    ),
    "graph, kernel": Case(GraphPropagation(metric=TfIdf(), **FULL), "csr", retracts=False),
    "graph, dense kernel": Case(
        GraphPropagation(metric=Polynomial("scale", 2, 1.0), **FULL), retracts=False
    ),
    "graph, forgetting": Case(GraphPropagation(forgetting=0.7, **FULL)),
    "graph, options": Case(GraphPropagation(n_neighbors=3, alpha=0.5, **FULL)),
    "graph, few rows": Case(GraphPropagation(random_state=0), options={"n": 3, "labeled": 1.0}),
    "graph, sketches": Case(GraphPropagation(graph_memory=400, random_state=0),
                            options={"p": 100, "n": 150}),
    "graph, one class": Case(GraphPropagation(**FULL), options={"classes": ("ant",)}),
    "graph, no label": Case(GraphPropagation(**FULL), options={"labeled": 0.0}, retracts=False),
    "graph, numpy's numbers": Case(
        GraphPropagation(graph_memory=np.int64(80), alpha=np.float32(0.5), random_state=0)
    ),
    "graph, random state": Case(
        GraphPropagation(graph_memory=80, random_state=np.random.RandomState(3))
    ),
    "mixture": Case(SeqGraphMED(random_state=0)),
    "mixture, full": Case(SeqGraphMED(**FULL)),
    "mixture, sparse": Case(SeqGraphMED(**FULL), "csr"),
    "mixture, kernel": Case(SeqGraphMED(SeqMED(kernel="tfidf"), **FULL), "csr"),
    "mixture, Fisher kernel": Case(SeqGraphMED(SeqMED(kernel="dcm"), **FULL)),
    "mixture, kernel object": Case(SeqGraphMED(SeqMED(kernel=RBF(0.1)), **FULL)),
    "mixture, linear": Case(SeqGraphMED(SeqMED(kernel="linear"), **FULL), "csr"),
    "mixture, Laplacian": Case(SeqGraphMED(SeqLapMED(random_state=0), **FULL)),
    "mixture, Laplacian with options": Case(
        SeqGraphMED(
            SeqLapMED(kernel="tfidf", n_landmarks=9, lag=2, forgetting=0.9, beta=0.1,
                      random_state=np.random.RandomState(1)),
            metric="cosine", forgetting=0.9, mixture=0.4, class_prior="uniform", **FULL
        ),
        "csr",
    ),
    "mixture, paper's bias": Case(SeqGraphMED(SeqMED(bias="exact", lag=2), **FULL)),
    "mixture, budget": Case(
        SeqGraphMED(SeqMED(budget=20, random_state=0), **FULL), retracts=False
    ),
    "mixture, forgetting": Case(SeqGraphMED(forgetting=0.7, **FULL)),
    "mixture, weights": Case(SeqGraphMED(class_weight={"ant": 2.0}, **FULL)),
    "mixture, balanced": Case(SeqGraphMED(class_weight="balanced", **FULL)),
    "mixture, one class": Case(SeqGraphMED(**FULL), options={"classes": ("ant",)}),
    "mixture, two classes": Case(SeqGraphMED(**FULL), options={"classes": (0, 1)}),
    "mixture, no label": Case(SeqGraphMED(**FULL), options={"labeled": 0.0}, retracts=False),
    "mixture, random state": Case(
        SeqGraphMED(graph_memory=80, random_state=np.random.RandomState(3))
    ),
}  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def learned(case):
    model = clone(case.model)
    for seed in range(CALLS):
        model.partial_fit(*batch(seed, form=case.form, **(case.options or {})))
    return model


def continued(case, model):
    """Yield a model after each of: late labels, labels taken back, more batches, more classes."""
    first = {"form": case.form, **(case.options or {})}
    X, y = batch(CALLS - 1, **first)
    names = first.get("classes", INSECTS)
    missing = np.flatnonzero(y == None)[:4]  # noqa: E711
    if missing.size:
        late = np.array(names, dtype=object)[missing % len(names)]
        yield model.partial_fit(X[missing], late, new_points=False)
    if case.retracts:
        row = np.flatnonzero(y != None)[:1]  # noqa: E711
        yield model.retract(X[row], y[row])
    for seed in (50, 51):
        yield model.partial_fit(*batch(seed, **first))
    if names == INSECTS:
        more = {**first, "classes": ("ant", "bee", "elk"), "labeled": 1.0}
        yield model.partial_fit(*batch(52, **more))


def assert_equal(first, second, case):
    """Compare files, and predictions once there is a label."""
    assert bits(first) == bits(second)
    if first.classes_.size:
        assert_same(first, second, batch(9, form=case.form, **(case.options or {}))[0])


@every_case
def test_a_loaded_model_equals_the_saved_one_and_continues(case, path):
    model = learned(case)
    loaded = restored(model, path)
    assert_equal(model, loaded, case)
    assert vars(loaded).keys() == vars(model).keys()
    assert clone(loaded).get_params(deep=False).keys() == model.get_params(deep=False).keys()
    steps = zip(continued(case, model), continued(case, loaded), strict=True)
    assert [assert_equal(*pair, case) for pair in steps]


COPIES = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@every_case
def test_copies_continue(case, copied):
    model = learned(case)
    other = copied(model)
    assert_equal(model, other, case)
    before = bits(model)
    for _ in continued(case, other):
        pass
    assert bits(model) == before
    for _ in continued(case, model):
        pass
    assert_equal(model, other, case)
