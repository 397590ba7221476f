"""Model configurations that the checks of stream learners run on, and small batches for them.

`CONFIGURATIONS` is the full list. `COVER` is a part of it in which every pair of values of two
`factors` occurs that occurs in the full list; the others are marked `exhaustive`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED
from tests.support.pairwise import pairwise_cover

# -- configurations -------------------------------------------------------------------------------


def overlap(left, right):
    """A kernel function for dense and sparse rows."""
    product = left @ right.T
    return (1.0 + (product.toarray() if sp.issparse(product) else product)) ** 2 / 100.0


# The paper's recursion: every batch optimised once.
PAPER = {"lag": 1}


class Configuration(NamedTuple):
    """A model to check, the paper's but for its parameters, and the format its stream comes in."""

    estimator: type
    parameters: dict
    format: str

    @property
    def of_graph(self):
        return self.estimator in (GraphPropagation, SeqGraphMED)

    def model(self, **more):
        paper = {} if self.of_graph else PAPER
        return self.estimator(**{**paper, **self.parameters, **more})

    def exact_model(self):
        """The model with its duals solved far enough to be compared."""
        if not self.of_graph:
            return self.model(tol=1e-9)
        return self.model()

    def factors(self):
        return {**factors(self.model()), "format": self.format}


KERNELS = {
    "rbf": {"kernel": "rbf"},
    "linear": {"kernel": "linear"},
    "poly": {"kernel": "poly", "degree": 2, "coef0": 1.0},
    "tfidf": {"kernel": "tfidf"},
    "callable": {"kernel": overlap},
}


# Batches have 16 labels: a budget of 30 keeps 15 landmarks and 15 labeled points.
UPKEEP = {
    "lag-averaging": (SeqMED, {"lag": 2, "averaging": True}, "dense"),
    "lag-averaging-linear": (SeqLapMED, {"kernel": "linear", "lag": 2, "averaging": True}, "csr"),
    "all-lags-forgetting": (SeqLapMED, {"lag": None, "forgetting": 0.8}, "csr"),
    "exact-averaging-forgetting": (
        SeqLapMED,
        {"recursion": "exact", "averaging": True, "forgetting": 0.8},
        "dense",
    ),
    "window": (SeqMED, {"lag": None, "window": 20, "forgetting": 0.8}, "dense"),
    "budget": (SeqMED, {"budget": 30, "averaging": True}, "dense"),
    "budget-diffuse": (SeqMED, {"bias": "exact", "budget": 30, "averaging": True}, "dense"),
    "budget-landmarks": (SeqLapMED, {"budget": 30, "lag": 2, "forgetting": 0.8}, "csr"),
    "landmarks-budget-averaging": (SeqLapMED, {"budget": 30, "averaging": True}, "dense"),
    "landmarks-forgetting": (SeqLapMED, {"forgetting": 0.8}, "dense"),
    "landmarks-tfidf-forgetting": (SeqLapMED, {"kernel": "tfidf", "forgetting": 0.8}, "csr"),
}


def posterior_configurations():
    for kernel, parameters in KERNELS.items():
        for form in ("dense", "csr"):
            yield f"SeqMED-{kernel}-{form}", Configuration(SeqMED, parameters, form)
            for recursion in ("landmarks", "exact", "spectral"):
                if recursion == "spectral" and (form == "csr" or kernel == "tfidf"):
                    continue  # not defined there: test_bad_input
                more = {"recursion": recursion, "n_landmarks": 25, "beta": 0.1, "random_state": 0}
                yield (
                    f"{recursion}-{kernel}-{form}",
                    Configuration(SeqLapMED, {**parameters, **more}, form),
                )
    diffuse = {"bias": "exact", "random_state": 0}
    yield "SeqMED-diffuse-bias", Configuration(SeqMED, diffuse, "dense")
    yield "SeqLapMED-diffuse-bias", Configuration(SeqLapMED, diffuse, "csr")
    yield "SeqMED-median-bias", Configuration(SeqMED, {**diffuse, "bias": "median"}, "csr")
    for name, (estimator, parameters, form) in UPKEEP.items():
        more = {} if estimator is SeqMED else {"beta": 0.1, "n_landmarks": 25}
        yield name, Configuration(estimator, {**more, **parameters, "random_state": 0}, form)
    for form in ("dense", "csr"):
        for estimator in (SeqMED, SeqLapMED):
            parameters = estimator(random_state=0).get_params()
            yield (
                f"{estimator.__name__}-defaults-{form}",
                Configuration(estimator, parameters, form),
            )


# Batches have 20 rows: a memory of 30 is full in the second.
GRAPHS = {
    "GraphPropagation-dense": (GraphPropagation, {}, "dense"),
    "GraphPropagation-csr": (GraphPropagation, {"graph_memory": 30}, "csr"),
    "GraphPropagation-callable": (GraphPropagation, {"metric": overlap, "alpha": 0.5}, "dense"),
    "GraphPropagation-forgetting": (
        GraphPropagation,
        {"graph_memory": 30, "forgetting": 0.8, "n_neighbors": 3},
        "dense",
    ),
    "GraphPropagation-class-prior": (
        GraphPropagation,
        {"graph_memory": 30, "class_prior": {0: 0.2, 1: 0.3, 2: 0.5}},
        "csr",
    ),
    "SeqGraphMED-dense": (SeqGraphMED, {}, "dense"),
    "SeqGraphMED-csr": (SeqGraphMED, {"graph_memory": 30, "forgetting": 0.8}, "csr"),
    "SeqGraphMED-balanced": (SeqGraphMED, {"class_weight": "balanced", "mixture": 0.5}, "dense"),
    "SeqGraphMED-tfidf": (SeqGraphMED, {"estimator": SeqMED("tfidf"), "mixture": 0.5}, "csr"),
    "SeqGraphMED-SeqLapMED": (
        SeqGraphMED,
        {"estimator": SeqLapMED(n_landmarks=25, random_state=0), "graph_memory": 30},
        "dense",
    ),
}


def graph_configurations():
    for name, (estimator, parameters, form) in GRAPHS.items():
        yield name, Configuration(estimator, {**parameters, "random_state": 0}, form)


POSTERIORS = dict(posterior_configurations())
CONFIGURATIONS = POSTERIORS | dict(graph_configurations())
FEW = ("SeqMED-rbf-dense", "SeqMED-linear-csr", "landmarks-rbf-dense", "exact-callable-csr",
       "spectral-rbf-dense", "landmarks-tfidf-csr", "budget-landmarks",
       "landmarks-budget-averaging", "SeqMED-defaults-csr", "SeqLapMED-defaults-dense")  # fmt: skip


# -- the pairwise cover ---------------------------------------------------------------------------


def factors(model):
    """Return the values of a model's parameters of which a cover has every pair."""
    own = model.get_params(deep=False)
    expert = own.get("estimator")
    inner = own if expert is None else expert.get_params(deep=False)
    kernel = inner.get("kernel", own.get("metric"))
    return {
        "estimator": (type(model), type(expert)),
        "kernel": "callable" if callable(kernel) else kernel,
        "recursion": inner.get("recursion"),
        "bias": inner.get("bias"),
        "lag": (inner.get("lag"), inner.get("window")),
        "averaging": inner.get("averaging"),
        "forgetting": own.get("forgetting"),
        "budget": inner.get("budget"),
        "graph memory": own.get("graph_memory"),
        "mixture": own.get("mixture"),
        "class weight": own.get("class_weight"),
        "class prior": isinstance(own.get("class_prior"), dict),
    }


COVER = pairwise_cover({name: case.factors() for name, case in CONFIGURATIONS.items()})


def over(cases):
    """Run a test on the named configurations, by default on those of the cover only."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(case, id=name, marks=() if name in COVER else pytest.mark.exhaustive)
            for name, case in cases.items()
        ],
    )


def only(*names):
    """Run a test on a few configurations, all of them by default."""
    return pytest.mark.parametrize("case", [CONFIGURATIONS[name] for name in names], ids=names)


# -- batches --------------------------------------------------------------------------------------


class Batch(NamedTuple):
    X: object
    y: np.ndarray
    sample_weight: np.ndarray


def make_batch(seed, form="dense", n=20):
    """Counts around one of three profiles, a fifth of them unlabeled, and weights."""
    generator = np.random.default_rng(seed)
    codes = generator.permutation(np.arange(n) % 3)
    points = generator.poisson(0.7 + 3.0 * np.eye(3, 5)[codes]).astype(float)
    y = np.where(np.arange(n) % 5 == 0, np.nan, codes)
    weights = generator.choice([0.5, 1.0, 2.0], n)
    return Batch(sp.csr_array(points) if form == "csr" else points, y, weights)


def learned(case, batches=2):
    model = case.model()
    for seed in range(batches):
        X, y, weights = make_batch(seed, case.format)
        model.partial_fit(X, y, sample_weight=weights)
    return model
