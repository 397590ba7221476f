"""Model files of `GraphPropagation` and `SeqGraphMED`.

A loaded model equals the saved one to the last bit, and continues to learn to the last bit. Equal
models are saved in equal bytes, so files are compared.
"""

from __future__ import annotations

from typing import NamedTuple

import cloudpickle
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import skops.io
from sklearn.base import clone
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

import seqmed
from seqmed import (
    GraphPropagation,
    PrequentialSearch,
    SeqGraphMED,
    SeqLapMED,
    SeqMED,
    StreamPipeline,
)
from seqmed.graph.kept_rows import BLOCK
from seqmed.kernels import RBF, Polynomial, TfIdf
from seqmed.numeric.arrays import bytes_of, distinct_arrays
from tests.support.saved_models import assert_refused, assert_same, bits, product, restored

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
    "mixture, polynomial": Case(SeqGraphMED(SeqMED(kernel="poly"), **FULL)),
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


def by_skops(model):
    content = skops.io.dumps(model)
    return skops.io.loads(content, trusted=skops.io.get_untrusted_types(data=content))


def by_cloudpickle(model):
    return cloudpickle.loads(cloudpickle.dumps(model))


@pytest.mark.parametrize("kept", [by_skops, by_cloudpickle])
@pytest.mark.parametrize(
    "name", ["graph", "graph, kernel", "mixture, sparse", "mixture, Laplacian"]
)
def test_other_libraries_keep_everything(name, kept):
    model = learned(CASES[name])
    assert bits(kept(model)) == bits(model)


# -- what is written ------------------------------------------------------------------------------


def made_rows(seed, n, p):
    """Return rows of p columns near a space of 10 dimensions, and labels, one in twenty known."""
    generator = np.random.default_rng(seed)
    axes = np.random.default_rng(99).normal(size=(10, p))
    codes = generator.integers(2, size=n)
    X = (generator.normal(size=(n, 10)) + codes[:, None]) @ axes
    X += 0.1 * generator.normal(size=(n, p))
    return X, np.where(np.arange(n) % 20 == 0, codes, -1)


def arrays_in(value):
    return distinct_arrays(value, {}).values()


@pytest.mark.parametrize("p", [20, 100, 300])
def test_the_size_of_a_graph(p, path):
    model = GraphPropagation(graph_memory=1500, random_state=0)
    for seed in range(4):
        model.partial_fit(*made_rows(seed, 500, p))
    graph = model._state.graph
    assert graph.rows.size == 1500
    assert (graph.rows.blocks[0].sketch.size > 0) == (p >= 100)
    kept = sum(array.nbytes for array in arrays_in(graph.rows.blocks))
    assert 4 * 1500 * p <= kept <= 1.5 * 4 * 1500 * p
    rest = (graph.rows.lists, graph.codes, graph.label_weights, graph.influence, graph.solution)
    both = kept + sum(array.nbytes for array in arrays_in(rest))
    assert (
        both < bytes_of(graph) < both + 8 * p * (2 + p / 3) + 1000
    )  # the metric, and label weights
    assert bytes_of(restored(model, path)._state.graph) == bytes_of(graph)


def test_sketches_are_not_written(path):
    model = GraphPropagation(graph_memory=2 * BLOCK, random_state=0)
    for seed in range(5):
        model.partial_fit(*made_rows(seed, 500, 200))
    graph = model._state.graph
    assert [block.size for block in graph.rows.blocks] == [BLOCK, BLOCK]
    seqmed.save(model, path)
    sketches = sum(block.sketch.nbytes for block in graph.rows.blocks)
    assert sketches > 100_000
    assert path.stat().st_size < bytes_of(graph) - sketches + 10_000
    loaded = seqmed.load(path)._state.graph
    for before, after in zip(graph.rows.blocks, loaded.rows.blocks, strict=True):
        for name in ("rows", "norms", "sketch"):
            np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
            assert getattr(after, name).flags.writeable
    assert all(array.flags.writeable for array in loaded.rows.lists)
    other = seqmed.load(path)
    for seed in (5, 6):
        X, y = made_rows(seed, 500, 200)
        assert_same(model, other, X[:50])
        assert_same(model.partial_fit(X, y), other.partial_fit(X, y), X[:50])


def test_a_model_that_was_fitted_at_once(path):
    X, y = made_rows(0, 1700, 4)  # two parts
    model = SeqGraphMED(graph_memory=900, random_state=0).fit(X, y)
    loaded = restored(model, path)
    assert_same(model, loaded, X[:20])
    assert_same(model.partial_fit(X, y), loaded.partial_fit(X, y), X[:20])


def assert_continues(model, path):
    """Assert that a model learns the same batches after it was saved and loaded."""
    for seed in range(3):
        model.partial_fit(*batch(seed))
    loaded = restored(model, path)
    for seed in (3, 4):
        assert_same(model, loaded, batch(9)[0])
        for each in (model, loaded):
            each.partial_fit(*batch(seed))


@pytest.mark.parametrize("kind", [GraphPropagation, SeqGraphMED])
def test_pipelines(kind, path):
    model = StreamPipeline([("scale", StandardScaler()), ("model", kind(**FULL))])
    assert_continues(model, path)


def test_searches(path):
    base = StreamPipeline([("scale", MaxAbsScaler()), ("model", SeqGraphMED(**FULL))])
    model = PrequentialSearch(base, {"model__n_neighbors": [3, 10]})
    assert_continues(model, path)


# -- what cannot be saved -------------------------------------------------------------------------


REFUSED = {
    "a classifier of another library": (
        SeqGraphMED(SGDClassifier(random_state=0)),
        r"estimator=SGDClassifier\(.*expected None, or a SeqMED or SeqLapMED object",
    ),
    "one that is set later": (
        SeqGraphMED(random_state=0).partial_fit(*batch(0)).set_params(estimator=GaussianNB()),
        "estimator=GaussianNB",
    ),
    "a graph in a graph": (
        SeqGraphMED(GraphPropagation()), r"estimator=GraphPropagation\(\), expected None, or"
    ),
    "a function for a metric": (
        GraphPropagation(metric=product),
        "GraphPropagation.metric is <function product.*cannot be saved.*cloudpickle",
    ),
    "a function for a kernel": (
        SeqGraphMED(SeqMED(kernel=product)), "SeqMED.kernel is <function product.*cloudpickle"
    ),
    "a function in the stream": (
        GraphPropagation(metric=product).partial_fit(*batch(0)).set_params(metric="auto"),
        "_started.*<function product.*cannot be saved in a model file",
    ),
    "a wrong parameter": (GraphPropagation(alpha=2.0), "'alpha' parameter"),
    "a marker": (GraphPropagation(unlabeled=pd.NaT), "GraphPropagation.unlabeled is NaT"),
}  # fmt: skip


@pytest.mark.parametrize(("model", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_leaves_the_old_file(model, message, path):
    assert_refused(model, message, path)


def test_parameters_that_may_not_change_still_may_not(path):
    loaded = restored(GraphPropagation(metric=RBF(0.5)).partial_fit(*batch(0)), path)
    with pytest.raises(ValueError, match="alpha was changed"):
        loaded.set_params(alpha=0.5).partial_fit(*batch(1))
    loaded.set_params(alpha=0.97).partial_fit(*batch(1))  # the metric is still the same object
