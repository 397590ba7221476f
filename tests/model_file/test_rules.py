"""Every rule that compiled loops, memory and termination rely on: one test breaks each of them."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from typing_extensions import TypeAliasType

import seqmed
from seqmed import SeqLapMED, SeqMED
from seqmed.margin.covariance import RECURSIONS
from seqmed.margin.covariance.exact import ExactRecursion
from seqmed.model_file import FORMAT, ModelFileError
from seqmed.numeric.annotations import of_type
from seqmed.numeric.expectations import expect
from tests.data.make_golden import FOLDER
from tests.support.records import put, without_last
from tests.support.saved_models import bits, with_state

# Where parts of a model are to be found.
PLACES = {
    "counts": "_state.counts",
    "posterior": "_state.posterior",
    "window": "_state.posterior.window",
    "recursion": "_state.posterior.recursion",
    "kernel": "_state.posterior.recursion.covariance.kernel",
    "graph": "_state.graph",
    "kept": "_state.graph.rows",
    "lists": "_state.graph.rows.lists",
    "record": "_state.record",
    "encoding": "encoding_",
}


def full(path):
    first, *rest = path.split(".")
    return [*PLACES.get(first, first).split("."), *rest]


def longer(lists):
    """Return neighbour lists with room for one more entry."""
    n = lists.sizes.size
    slots = np.hstack([lists.slots, np.full((n, 1), -1, dtype=np.int32)])
    distances = np.hstack([lists.distances, np.full((n, 1), np.inf, dtype=np.float32)])
    return lists._replace(slots=slots, distances=distances)


def fewer(counts):
    """Return the labels of two of three classes."""
    return counts.with_classes(np.array([0, 1, -1]), counts.declared[:2])


def fitted(columns=4, classes=("ant", "bee", "cicada"), sparse=False):
    """Return the margin expert of another stream."""
    X = np.abs(np.random.default_rng(0).normal(size=(len(classes), columns)))
    return SeqMED().fit(sp.csr_array(X) if sparse else X, classes)._state


RULES = [
    # attributes of a classifier
    ("SeqMED", "n_features_in_", 3, "kept rows of 3 columns"),
    ("SeqMED", "_started.sparse", True, "kept rows in the format of the stream"),
    ("SeqMED", "classes_", lambda a: a[::-1], "classes in order"),
    ("SeqMED", "classes_", lambda a: a[[0, 0, 1]], "classes in order"),
    ("SeqMED", "classes_", without_last, "a label for every class"),
    ("SeqMED", "classes_", np.arange(3, dtype=np.int8), "can be learned"),
    ("SeqMED", "_state", None, "_state of a SeqMED is a NoneType"),
    ("SeqMED-precomputed", "n_features_in_", 11, "kept rows of 11 columns"),
    ("GraphPropagation", "n_features_in_", 3, "kept rows of 3 columns"),
    ("SeqGraphMED", "n_features_in_", 3, "kept rows of 3 columns"),
    # types and numbers of all records
    ("SeqMED", "posterior.n_batches", 1.5, "n_batches of a Posterior is a float"),
    ("SeqMED", "posterior.n_batches", 2**63, "n_batches of a Posterior is a int"),
    ("SeqMED", "posterior.mean_parts", [], "mean_parts of a Posterior is a list"),
    ("SeqMED", "window.points", lambda a: a[:, 0], "points of a Window"),
    ("SeqMED", "window.points", lambda a: a.astype(str), "points of a Window"),
    ("SeqMED", "window.points", put(np.nan), "points of a Window holds nan"),
    ("SeqMED", "posterior.frozen.points", put(np.inf), "points of a Terms holds inf"),
    ("SeqMED", "posterior.intercepts", lambda a: a.astype(int), "a int64 array, expected"),
    ("SeqMED-linear-sparse", "window.points", lambda a: a * np.inf, "points of a Window holds"),
    ("GraphPropagation", "lists.distances", put(np.nan), "distances of a Lists holds nan"),
    # the margin learner
    ("SeqMED", "counts.weights", without_last, "weights has the shape"),
    ("SeqMED", "counts", fewer, "a machine for every class"),
    ("SeqMED", "posterior.biases", without_last, "has the shape"),
    ("SeqMED", "posterior.mean_parts", (), "a mean"),
    ("SeqMED", "posterior.mean_parts.0.coefficients", lambda a: a.T, "coefficients has the shape"),
    ("SeqMED", "posterior.mean_parts.0.points", lambda a: a[:, :3], "points of 4 columns"),
    ("SeqMED", "window.signs", put(0.0), "signs that are -1 or 1"),
    ("SeqMED", "window.bounds", put(0.0), "bounds and weights > 0"),
    ("SeqMED", "window.bounds", without_last, "bounds of 18 points"),
    ("SeqMED", "window.weights", put(0.0), "bounds and weights > 0"),
    ("SeqMED", "window.shapes", put(1e9), "slack shapes between"),
    ("SeqMED", "window.frozen_scores", lambda a: a[:1], "frozen_scores of 18 points"),
    ("SeqLapMED", "recursion.capacity", 3, "at most 3 landmarks"),
    ("SeqLapMED", "recursion.keys", without_last, "keys has the shape"),
    # the graph
    ("GraphPropagation", "counts", fewer, "influence of every class"),
    ("GraphPropagation", "graph.capacity", 15, "n <= capacity"),
    ("GraphPropagation", "graph.alpha", 1.0, r"alpha in \[0, 1\)"),
    ("GraphPropagation", "graph.codes", put(-2), "known classes"),
    ("GraphPropagation", "graph.codes", lambda a: np.where(a < 0, a, 3), "known classes"),
    ("GraphPropagation", "graph.codes", without_last, "codes has the shape"),
    ("GraphPropagation", "graph.label_weights", np.zeros_like, "a label weight for every labeled"),
    ("GraphPropagation", "graph.influence", without_last, "influence has the shape"),
    ("GraphPropagation", "graph.solution", lambda a: a[:, :2], "solution has the shape"),
    ("GraphPropagation", "graph.solved_label_weights", without_last, "has the shape"),
    ("GraphPropagation", "graph.class_factors", without_last, "class_factors has the shape"),
    ("GraphPropagation", "graph.class_factors", np.zeros_like, "factors > 0"),
    ("GraphPropagation", "kept.n_neighbors", 2, "entries"),
    ("GraphPropagation", "kept.n_neighbors", 0, "entries"),
    ("GraphPropagation", "kept.lists", longer, "entries"),
    ("GraphPropagation", "kept.blocks", lambda a: a * 2, "blocks of 960 rows"),
    ("GraphPropagation", "kept.blocks", lambda a: (a[0].take(np.arange(15)),), "a list for every"),
    ("GraphPropagation", "kept.blocks", lambda a: (a[0].take(np.zeros(961, int)),), "a list for"),
    ("GraphPropagation", "kept.blocks.0.norms", without_last, "norms has the shape"),
    ("GraphPropagation", "kept.blocks.0.rows", lambda a: a.astype(float), "single precision"),
    ("GraphPropagation", "kept.blocks.0.rows", lambda a: a[:, :3], "rows of the same columns"),
    ("GraphPropagation", "kept.blocks.0.rows", sp.csr_array, "dense rows"),
    ("GraphPropagation", "kept.metric.scale", 0.0, "scale > 0"),
    ("GraphPropagation", "kept.metric.centre", without_last, "directions has the shape"),
    ("GraphPropagation", "lists.sizes", put(-1), "sizes from 0"),
    ("GraphPropagation", "lists.sizes", put(6), "sizes from 0"),
    ("GraphPropagation", "lists.sizes", put(1), "as many neighbours"),
    ("GraphPropagation", "lists.sizes", without_last, "sizes has the shape"),
    ("GraphPropagation", "lists.slots", put(16), "neighbours among the kept rows"),
    ("GraphPropagation", "lists.slots", put(-1), "as many neighbours"),
    ("GraphPropagation", "lists.slots", without_last, "distances has the shape"),
    ("GraphPropagation", "lists.distances", put(np.inf), "a distance for every neighbour"),
    ("GraphPropagation", "lists.horizons", without_last, "horizons has the shape"),
    # the mixture
    ("SeqGraphMED", "record.codes", put(3), "known classes"),
    ("SeqGraphMED", "record.codes", put(-1), "known classes"),
    ("SeqGraphMED", "record.weights", without_last, "weights has the shape"),
    ("SeqGraphMED", "record.graph", without_last, "graph has the shape"),
    ("SeqGraphMED", "record.margin_scales", lambda a: a[:, :2], "margin_scales has the shape"),
    ("SeqGraphMED", "record.linear", without_last, "linear has the shape"),
    ("SeqGraphMED", "record.probabilities", lambda a: a[:, :, :2], "probabilities of all classes"),
    ("SeqGraphMED-experts", "record.probabilities", lambda a: a[:, :3], "a record of all members"),
    ("SeqGraphMED-experts", "_state.pool.weights", without_last, "temperatures has the shape"),
    ("SeqGraphMED-experts", "_state.pool.weights", put(-1.0), "weights >= 0"),
    ("SeqGraphMED-experts", "_state.experts.0.fit.numbers", without_last, "weights has the shape"),
    ("SeqGraphMED-experts", "_state.experts.0.fit.numbers", put(10**6, -1), "rows of experts"),
    ("SeqGraphMED-experts", "_state.experts.0.fit.weights", put(-1.0), "weights > 0"),
    ("SeqGraphMED-experts", "_state.experts.0.fit.present", put(2), "classes in order"),
    ("SeqGraphMED-experts", "_state.experts.0.fit.present", put(-1), "classes in order"),
    (
        "SeqGraphMED-experts",
        "_state.experts.0.fit.present",
        put(3, -1),
        "known classes in the experts",
    ),
    ("SeqGraphMED-experts", "_state.experts.0.fit.seed", -1, "a seed"),
    (
        "SeqGraphMED-experts",
        "_state.experts.2.template",
        RandomForestClassifier(10**6),
        "n_estimators of an expert",
    ),
    ("SeqGraphMED", "_state.score_scales.counts", without_last, "counts has the shape"),
    ("SeqGraphMED", "_state.score_scales.margin", without_last, "margin has the shape"),
    ("SeqGraphMED", "_state.choice.exponent", 3, "a known exponent"),
    ("SeqGraphMED", "_state.class_weights", without_last, "class_weights has the shape"),
    ("SeqGraphMED", "_state.column_scale", np.ones(3), "a scale for every column"),
    ("SeqGraphMED", "_state.probes", lambda a: a[:, :3], "rows of 3 columns"),
    ("SeqGraphMED-sparse", "_state.probes", lambda a: a.toarray(), "rows of the same format"),
    ("SeqGraphMED", "_state.labels.codes", put(3), "known classes in the kept labels"),
    ("SeqGraphMED", "_state.labels.codes", put(-1), "classes >= 0"),
    ("SeqGraphMED", "_state.labels.weights", without_last, "weights has the shape"),
    ("SeqGraphMED", "_state.labels.weights", put(0.0), "weights > 0"),
    ("SeqGraphMED", "_state.labels.numbers", put(9), "numbers in order"),
    ("SeqGraphMED", "_state.linear.columns", put(-1), "distinct columns in order"),
    ("SeqGraphMED", "_state.linear.coef", without_last, "coef has the shape"),
    ("SeqGraphMED", "_state.linear.intercept", without_last, "intercept has the shape"),
    ("SeqGraphMED", "_state.margin", fitted(columns=3), "rows of 4 columns"),
    ("SeqGraphMED", "_state.margin", fitted(sparse=True), "rows of the same format"),
    ("SeqGraphMED", "_state.margin", fitted(classes=("ant", "bee")), "the same classes in all"),
    ("SeqGraphMED-change", "_state.trial.temperatures", without_last, "temperatures has the shape"),
    # searches, encoders and scalers
    ("PrequentialSearch", "record_.wins", without_last, "wins has the shape"),
    ("PrequentialSearch", "record_.correct", without_last, "correct has the shape"),
    ("StreamPipeline-table", "encoding.numbers.scales", put(0.0), "scales > 0"),
    ("StreamPipeline-table", "encoding.numbers.medians", without_last, "medians has the shape"),
    ("StreamPipeline-table", "encoding.hashed.0.size", 10**9, "256 features"),
    ("StreamPipeline-table", "encoding.words.0.size", 2**40, "features"),
    ("StreamPipeline-table", "encoding.words.0.frequencies", without_last, "has the shape"),
    ("StreamPipeline-table", "encoding.columns.0.kind", "other", "a known kind"),
    ("StreamPipeline-table", "encoding.columns.5.form", "(a+)+$", "a known format"),
    ("StreamPipeline-table", "encoding.dates.0.cycles", ("moon",), "known cycles"),
    ("StreamPipeline-table", "encoding.dates.0.scale", 0.0, "scale > 0"),
    ("StreamPipeline-table", "encoding.weight", "1", "weight of a Encoding is a str"),
    ("StreamPipeline", "n_samples_seen_", "1", "n_samples_seen_ of a StandardScaler is a str"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "path", "change", "reason"), RULES, ids=[f"{rule[0]}.{rule[1]}" for rule in RULES]
)
def test_every_rule_is_kept(name, path, change, reason):
    """The rules are checked when a model is saved, by the same functions as when it is loaded."""
    model = seqmed.load(FOLDER / f"format-{FORMAT}-{name}.safetensors")
    model = model.steps[0][1] if name.startswith("StreamPipeline") else model
    pipeline = seqmed.StreamPipeline([("first", model), ("model", SeqMED())])
    wrap = pipeline.set_params if name.startswith("StreamPipeline") else (lambda first: first)
    assert bits(wrap(first=model))
    with pytest.raises(ValueError, match=reason):
        bits(wrap(first=with_state(model, full(path), change)))


def test_trials_are_not_nested():
    model = seqmed.load(FOLDER / f"format-{FORMAT}-SeqGraphMED-change.safetensors")
    trial = model._state.trial
    assert trial is not None
    nested = trial._replace(state=trial.state._replace(trial=trial))
    with pytest.raises(ValueError, match="no trial within a trial"):
        bits(with_state(model, ["_state", "trial"], nested))
    other = model.partial_fit(np.ones((1, 4)), ["dog"])._state
    with pytest.raises(ValueError, match="the same classes"):
        bits(with_state(model, ["_state"], other._replace(trial=trial)))


@dataclasses.dataclass(frozen=True)
class Step:
    """A record from outside the package."""

    sizes: NDArray[np.float64]

    def validate(self):
        expect((self.sizes >= 1).all(), "sizes >= 1")


@dataclasses.dataclass(frozen=True)
class OtherRecursion(ExactRecursion):
    """A recursion from outside the package."""

    steps: tuple[Step, ...] = (Step(np.ones(3)),)


def test_a_recursion_is_kept_once_it_is_registered(tmp_path, monkeypatch):
    path, X = tmp_path / "model", np.random.default_rng(0).normal(size=(20, 3))
    with monkeypatch.context() as registered:
        registered.setitem(RECURSIONS, "exact", lambda base, size, seed: OtherRecursion(base))
        model = SeqLapMED(recursion="exact", beta=0.0).partial_fit(X, np.arange(20) % 2)
        seqmed.save(model, path)
        loaded = seqmed.load(path)
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
        steps = loaded._state.posterior.recursion.steps
        np.testing.assert_array_equal(steps[0].sizes, np.ones(3))
        registered.setattr(Step, "validate", lambda step: expect(False, "another step"))
        with pytest.raises(ModelFileError, match="a Step is damaged: expected another step"):
            seqmed.load(path)
    with pytest.raises(ModelFileError, match=r"'Step', which this version does not know"):
        seqmed.load(path)


def test_aliases_of_types_are_types():
    """From numpy 2.5 on, NDArray is an alias of this form."""
    scalar, other = TypeVar("scalar", bound=np.generic), TypeVar("other")
    shape = TypeAliasType("shape", tuple[Any, ...])
    array = np.ndarray[shape, np.dtype[scalar]]
    alias: Any = TypeAliasType("alias", array, type_params=(scalar,))
    swapped: Any = TypeAliasType(
        "swapped", tuple[other, alias[scalar]], type_params=(scalar, other)
    )
    numbers, counts = np.zeros(2), np.zeros(2, int)
    assert of_type(numbers, alias[np.float64])
    assert not of_type(counts, alias[np.float64])
    assert not of_type([0.0], alias[np.float64])
    assert of_type(counts, alias[Any])
    assert of_type(None, alias[np.float64] | None)
    assert of_type((numbers, numbers), tuple[alias[np.float64], ...])
    assert not of_type((numbers, counts), tuple[alias[np.float64], ...])
    assert of_type((1, numbers), swapped[np.float64, int])
    assert not of_type((numbers, 1), swapped[np.float64, int])
    assert of_type((1, 2), TypeAliasType("pair", tuple[int, int]))
