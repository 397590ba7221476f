"""Every rule that a model has to keep is there, and is checked: one test breaks each of them."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, get_args, get_origin

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from typing_extensions import TypeAliasType

import seqmed
from seqmed import SeqLapMED, SeqMED
from seqmed.kernels import RBF, Precomputed, TfIdf
from seqmed.margin.covariance import RECURSIONS
from seqmed.margin.covariance.exact import ExactRecursion
from seqmed.mixture.mixture_state import Trial
from seqmed.model_file import ModelFileError
from seqmed.model_file.annotations import field_types, of_type, written_out
from seqmed.model_file.declarations import CONSTRAINTS
from seqmed.model_file.registry import records
from seqmed.selection.race import Dropped
from tests.data.make_golden import FOLDER
from tests.support.records import altered, put, without_last
from tests.support.saved_models import check, kept_state

# Where parts of a stream are to be found.
PLACES = {
    "fixed": "_started.fixed",
    "sparse": "_started.sparse",
    "counts": "_state.counts",
    "calibration": "_state.calibration",
    "posterior": "_state.posterior",
    "window": "_state.posterior.window",
    "graph": "_state.posterior.graph_parameters",
    "recursion": "_state.posterior.recursion",
    "kernel": "_state.posterior.recursion.covariance.kernel",
    "info": "update_info_",
    "state": "_state.graph",
    "kept": "_state.graph.rows",
    "metric": "_state.graph.rows.metric",
    "lists": "_state.graph.rows.lists",
    "scores": "_state.record",
    "margin": "_state.margin",
    "trial": "_state.trial",
}


def full(path):
    first, *rest = path.split(".")
    return [*PLACES.get(first, first).split("."), *rest]


RULES = [
    ("SeqMED", "n_features_in_", 0, "at least one column"),
    ("SeqMED", "n_features_in_", 3, "p=3"),
    ("SeqMED", "fixed", {}, "parameters that may not change"),
    ("SeqMED", "fixed.gamma", -1.0, "'gamma' parameter"),
    ("SeqMED", "fixed.kernel", np.zeros(2), "a kernel by name"),
    ("SeqMED", "fixed.kernel", "linear", "the kernel of the parameters"),
    ("SeqMED", "fixed.bias", "exact", "the number of machines of the bias parameter"),
    ("SeqMED-diffuse", "fixed.bias", "auto", "the number of machines of the bias parameter"),
    ("SeqMED", "counts.per_class", False, "the number of machines of the bias parameter"),
    ("SeqMED", "posterior.known_bias", False, "the bias of the parameters"),
    ("SeqMED", "posterior.intercepts", put(0.0), "biases of -1 with bias='auto'"),
    ("SeqMED", "posterior.biases", put(0.0), "biases of -1 with bias='auto'"),
    ("SeqMED", "counts.discounted", put(-1.0), "discounted of a ClassCounts .* >= 0"),
    ("SeqMED", "window.discounted", put(-1.0), "discounted of a Window .* >= 0"),
    ("SeqMED", "fixed.budget", 8, "the recursion of the parameters"),
    ("SeqMED", "sparse", True, "points that suit the kernel"),
    ("SeqMED", "classes_", lambda a: a[::-1], "classes in order"),
    ("SeqMED", "classes_", lambda a: a[[0, 0, 1]], "classes in order"),
    ("SeqMED", "classes_", without_last, "a label for every class"),
    ("SeqMED", "classes_", np.array([1, 2, 3], dtype="m8[s]"), "can be learned"),
    ("SeqMED", "counts.counts", put(-1), "counts of a ClassCounts .* >= 0"),
    ("SeqMED", "counts.counts", put(1), "no fewer labels than in the window"),
    ("SeqMED", "counts.weights", put(-1.0), "weights of a ClassCounts .* >= 0"),
    ("SeqMED", "calibration.n_scored", -1.0, "n_scored of a Calibration .* >= 0"),
    ("SeqMED", "calibration.log_likelihoods", without_last, "slopes=35"),
    ("SeqMED", "posterior.intercepts", put(np.nan), "NaN or infinity"),
    ("SeqMED", "posterior.biases", without_last, "machines=3"),
    ("SeqMED", "posterior.n_solved", put(-1), "n_solved of a Posterior .* >= 0"),
    ("SeqMED", "posterior.n_batches", 1, "window of learned batches"),
    ("SeqMED", "posterior.n_batches", 2**60, "n_batches of a Posterior .* < 9e"),
    ("SeqMED", "posterior.mean_parts", (), "a mean"),
    ("SeqMED", "posterior.mean_parts.0.coefficients", lambda a: a.T, "has the shape"),
    ("SeqMED", "posterior.frozen.points", put(np.inf), "NaN or infinity"),
    ("SeqMED", "window.points", lambda a: a.astype(np.float32), "suit the kernel"),
    ("SeqMED", "window.signs", put(0.0), "-1 or 1"),
    ("SeqMED", "window.signs", np.abs, "one class for every row of the window"),
    ("SeqMED", "window.bounds", put(0.0), "bounds of a Window .* > 0"),
    ("SeqMED", "window.weights", put(0.0), "weights of a Window .* > 0"),
    ("SeqMED", "window.shapes", put(-1.0), "shapes of a Window .* >= 0"),
    ("SeqMED", "window.shapes", put(1e9), "slack shapes"),
    ("SeqMED", "window.batches", put(-1), "batches of a Window .* >= 0"),
    ("SeqMED", "graph.n_neighbors", 0, "n_neighbors of a GraphParameters .* >= 1"),
    ("SeqMED", "graph.weights", "cold", "weights of a GraphParameters .* heat"),
    ("SeqMED", "graph.heat_width", 0.0, "heat_width of a GraphParameters .* > 0"),
    ("SeqMED", "kernel.gamma", "scale", "gamma of a RBF is .* expected numbers"),
    ("SeqMED", "kernel.centre", np.zeros(3), "p=4"),
    ("SeqMED", "info.solutions", lambda a: a[:-1], "one solution for every machine"),
    ("SeqMED", "info.solutions.0.status", "perfect", "status of .* rounding"),
    ("SeqMED", "info.solutions.0.n_iter", -1, "n_iter of a DualSolution .* >= 0"),
    ("SeqMED", "info.solutions.0.multipliers", without_last, "window="),
    ("SeqMED", "info.n_points", -1, "n_points of a UpdateInfo .* >= 0"),
    ("SeqMED-two-classes", "kernel.degree", 0, "degree of a Polynomial .* >= 1"),
    ("SeqMED-precomputed", "window.points", put(12), "suit the kernel"),
    ("SeqMED-precomputed", "window.points", put(-1), "suit the kernel"),
    ("SeqMED-precomputed", "n_features_in_", 11, "features=11"),
    ("SeqMED-budget", "recursion.capacity", 3, "no more landmarks than"),
    ("SeqMED-budget", "recursion.n_seen", -1.0, "n_seen of a NystroemRecursion .* >= 0"),
    ("SeqMED-budget", "recursion.seed", -1, "seed of a NystroemRecursion .* >= 0"),
    ("SeqMED-budget", "recursion.n_calls", -1, "n_calls of a NystroemRecursion .* >= 0"),
    ("SeqMED-budget", "recursion.covariance.whitening", without_last, "m="),
    ("SeqMED-budget", "posterior.landmarks", lambda a: a.take(np.arange(2)), "every landmark"),
    ("SeqLapMED", "fixed.recursion", "exact", "the recursion of the parameters"),
    ("SeqLapMED", "recursion.capacity", 3, "no more landmarks than"),
    ("SeqLapMED", "recursion.keys", None, "keys if and only if there are landmarks"),
    ("SeqLapMED", "recursion.keys", put(np.nan), "keys of a LandmarkRecursion holds NaN"),
    ("SeqLapMED", "recursion.keys", without_last, "one key"),
    ("SeqLapMED", "recursion.n_folds", -1, "n_folds of a LandmarkRecursion .* >= 0"),
    ("SeqLapMED", "recursion.seed", -1, "seed of a LandmarkRecursion .* >= 0"),
    ("SeqLapMED", "recursion.basis.coefficient_covariance", without_last, "has the shape"),
    ("SeqLapMED", "posterior.landmarks", lambda a: a.take(np.arange(2)), "every landmark"),
    ("SeqLapMED-tfidf-sparse", "kernel.idf", None, "idf"),
    ("SeqLapMED", "recursion.n_pending", -1.0, "n_pending of a LandmarkRecursion .* >= 0"),
    ("SeqLapMED", "recursion.n_pending", 1e6, "pending points"),
    ("SeqLapMED", "recursion.n_seen", np.inf, "n_seen .* NaN or infinity"),
    ("SeqLapMED-spectral", "recursion.n_folds", 0, "a spectrum after"),
    ("SeqLapMED-spectral", "recursion.penalty_weight", -1.0, "penalty_weight .* >= 0"),
    ("SeqLapMED-spectral", "recursion.spectrum.count", 0, "count of a Spectrum .* >= 1"),
    ("SeqLapMED-spectral", "recursion.spectrum.laplacian_values", put(-1.0), "values .* >= 0"),
    ("PrequentialSearch", "candidates_", lambda a: a[:-1], "a parameter combination for each"),
    ("PrequentialSearch", "candidates_", lambda a: [*a[:-1], SeqMED()], "of one class"),
    ("PrequentialSearch", "_begun.estimator", SeqMED, "the class and the grid of the search"),
    ("PrequentialSearch", "_begun.param_grid", lambda a: [*a[:-1], 3], "as dictionaries"),
    ("PrequentialSearch", "record_.dropped", lambda a: a[:-1], "a record of each"),
    ("PrequentialSearch", "record_.dropped", (Dropped(1, 0, 1.0, 1.0),) * 2, "not dropped"),
    ("PrequentialSearch", "record_.dropped", (None, Dropped(1, 2, 1.0, 1.0)), "leaders"),
    ("PrequentialSearch", "record_.wins", without_last, "has the shape"),
    ("PrequentialSearch", "record_.correct", put(-1.0), "correct of a Record .* >= 0"),
    ("PrequentialSearch", "record_.total", np.inf, "total of a Record holds NaN or infinity"),
    ("PrequentialSearch", "n_batches_", -1, "number of batches"),
]  # fmt: skip


def each(change):
    """Return a change of a copy of an array."""

    def changed(array):
        array = array.copy()
        change(array)
        return array

    return changed


def shortened(lists):
    """Return neighbour lists of which the first has one entry."""
    lists = lists.copy()
    lists.slots[0, 1:], lists.distances[0, 1:], lists.sizes[0] = -1, np.inf, 1
    return lists


def repeated(record):
    """Return a record of more scores than are kept."""
    return type(record)._make(np.concatenate([part] * 301) for part in record)


def lacking(name):
    """Return a change that removes a part of a dictionary."""
    return lambda parts: {key: parts[key] for key in parts if key != name}


def double_first(slots):
    slots[0, 1] = slots[0, 0]


def fitted(kernel="rbf", columns=4, classes=("ant", "bee", "cicada"), sparse=False):
    """Return the margin expert of another stream."""
    X = np.abs(np.random.default_rng(0).normal(size=(len(classes), columns)))
    return SeqMED(kernel=kernel).fit(sp.csr_array(X) if sparse else X, classes)._state


def given(kernel):
    return Precomputed(np.eye(4))


def precomputed():
    return SeqMED(kernel="precomputed").fit(np.eye(4), ["ant", "bee", "cicada", "ant"])._state


GRAPH_RULES = [
    ("GraphPropagation", "n_features_in_", 3, "p=3"),
    ("GraphPropagation", "fixed", {}, "parameters that may not change"),
    ("GraphPropagation", "fixed.graph_memory", 17, "the graph memory of the parameters"),
    ("GraphPropagation", "fixed.n_neighbors", 4, "the number of neighbours of the parameters"),
    ("GraphPropagation", "fixed.alpha", 0.5, "the alpha of the parameters"),
    ("GraphPropagation", "fixed.alpha", 1.5, "'alpha' parameter"),
    ("GraphPropagation", "fixed.metric", "cosine", "the metric of the parameters"),
    ("GraphPropagation", "fixed.metric", lambda _: RBF(1.0), "the metric of the parameters"),
    ("GraphPropagation", "fixed.metric", np.zeros(2), "a metric by name"),
    ("GraphPropagation-sparse", "fixed.metric", "euclidean", "the metric of the parameters"),
    ("GraphPropagation-tfidf-sparse", "fixed.metric", "auto", "the metric of the parameters"),
    ("SeqGraphMED", "fixed.metric", lambda _: TfIdf(), "the metric of the parameters"),
    ("GraphPropagation", "_state.n_batches", -1, "n_batches of a PropagationState .* >= 0"),
    ("GraphPropagation", "sparse", True, "the metric of the parameters"),
    ("GraphPropagation-tfidf-sparse", "sparse", False, "in the format of the stream"),
    ("GraphPropagation", "classes_", lambda a: a[::-1], "classes in order"),
    ("GraphPropagation", "counts.counts", np.zeros_like, "classes that have been learned"),
    ("GraphPropagation", "state.capacity", 15, "no more kept rows than"),
    ("GraphPropagation", "state.codes", put(-2), "codes of a GraphState .* >= -1"),
    ("GraphPropagation", "state.codes", lambda a: np.where(a < 0, a, 3), "a known class for every"),
    ("GraphPropagation", "state.codes", without_last, "kept=16"),
    ("GraphPropagation", "state.label_weights", put(-1.0), "label_weights of a GraphState .* >= 0"),
    ("GraphPropagation", "state.label_weights", np.zeros_like, "a label weight for every"),
    ("GraphPropagation", "state.label_weights", lambda a: a + 1.0, "a label weight for every"),
    ("GraphPropagation", "state.influence", put(-1.0), "influence of a GraphState .* >= 0"),
    ("GraphPropagation", "state.influence", put(np.nan), "NaN or infinity"),
    ("GraphPropagation", "state.influence", lambda a: a[:, :2], "classes=3"),
    ("GraphPropagation", "state.solution", put(np.inf), "NaN or infinity"),
    ("GraphPropagation", "state.solution", without_last, "kept=16"),
    ("GraphPropagation", "state.solved_label_weights", put(-1.0), "solved_label_weights .* >= 0"),
    ("GraphPropagation", "state.solved_label_weights", without_last, "classes=3"),
    ("GraphPropagation", "state.n_unlabeled", -1.0, "n_unlabeled of a GraphState .* >= 0"),
    ("GraphPropagation", "state.n_unlabeled", np.inf, "n_unlabeled .* NaN or infinity"),
    ("GraphPropagation", "state.n_stale", -1, "n_stale of a GraphState .* >= 0"),
    ("GraphPropagation", "state.n_updates", -1, "n_updates of a GraphState .* >= 0"),
    ("GraphPropagation", "state.seed", -1, "seed of a GraphState .* >= 0"),
    ("GraphPropagation", "kept.n_neighbors", 2, "lists of the right length"),
    ("GraphPropagation", "kept.n_neighbors", 0, "n_neighbors of a SavedRows .* >= 1"),
    ("GraphPropagation", "kept.blocks.0.rows", put(np.nan), "NaN or infinity"),
    ("GraphPropagation", "kept.blocks.0.rows", without_last, "kept=16"),
    ("GraphPropagation", "kept.blocks.0.rows", lambda a: a.astype(float), "single precision"),
    ("GraphPropagation-sparse", "kept.blocks.0.norms", put(0.5), "norms of 1"),
    ("GraphPropagation-tfidf-sparse", "kept.blocks.0.norms", put(-1.0), "norms .* >= 0"),
    ("GraphPropagation-tfidf-sparse", "kept.blocks.0.rows", lambda a: -a, "suit the kernel"),
    ("GraphPropagation-tfidf-sparse", "metric.kernel.idf", None, "idf"),
    ("GraphPropagation-tfidf-sparse", "metric.kernel", given, "the metric of the parameters"),
    ("GraphPropagation", "metric.scale", 0.0, "scale of a Euclidean .* > 0"),
    ("GraphPropagation", "metric.scale", np.nan, "scale of a Euclidean holds NaN or infinity"),
    ("GraphPropagation", "metric.n_measured", -1, "n_measured of a Euclidean .* >= 0"),
    ("GraphPropagation", "metric.centre", without_last, "p=4"),
    ("GraphPropagation", "metric.centre", put(np.inf), "NaN or infinity"),
    ("GraphPropagation", "metric.directions", np.eye(4), "fewer directions"),
    ("GraphPropagation", "metric.directions", 2 * np.eye(4, 3), "orthonormal"),
    ("GraphPropagation", "lists.sizes", put(-1), "sizes of a Lists .* >= 0"),
    ("GraphPropagation", "lists.sizes", put(6), "fewer neighbours than kept rows"),
    ("GraphPropagation", "lists.sizes", put(1), "neighbours among the kept rows"),
    ("GraphPropagation", "lists.sizes", without_last, "kept="),
    ("GraphPropagation", "lists.slots", put(16), "neighbours among the kept rows"),
    ("GraphPropagation", "lists.slots", put(-1), "neighbours among the kept rows"),
    ("GraphPropagation", "lists.slots", lambda a: np.where(a < 0, -2, a), "slots .* >= -1"),
    ("GraphPropagation", "lists.slots", put(0), "other than the row"),
    ("GraphPropagation", "lists.slots", each(double_first), "each neighbour once"),
    ("GraphPropagation", "lists.slots", without_last, "kept=16"),
    ("GraphPropagation", "lists.slots", lambda a: a[:, :4], "length="),
    ("GraphPropagation", "lists.distances", put(np.inf), "a distance for every neighbour"),
    ("GraphPropagation", "lists.distances", put(np.nan), "distances of a Lists holds NaN"),
    ("GraphPropagation", "lists.distances", put(-1.0), "distances of a Lists .* >= 0"),
    ("GraphPropagation", "lists.distances", put(1e9), "neighbours in order of distance"),
    ("GraphPropagation", "lists.horizons", put(-1.0), "horizons of a Lists .* >= 0"),
    ("GraphPropagation", "lists.horizons", put(0.0), "within the horizon"),
    ("GraphPropagation", "lists.horizons", put(np.nan), "horizons of a Lists holds NaN"),
    ("GraphPropagation", "lists.horizons", put(np.inf), "all other rows in complete lists"),
    ("GraphPropagation-sparse", "lists.horizons", put(3.0), "within the limit"),
    ("GraphPropagation", "lists", shortened, "enough neighbours"),
    ("GraphPropagation", "info.n_entered", -1, "n_entered of a GraphInfo .* >= 0"),
    ("GraphPropagation", "info.n_iter", -1, "n_iter of a GraphInfo .* >= 0"),
    ("GraphPropagation", "info.gap", np.nan, "gap of a GraphInfo holds NaN or infinity"),
    ("GraphPropagation", "info.residual", -1.0, "residual of a GraphInfo .* >= 0"),
    ("SeqGraphMED", "scores.codes", put(-1), "codes of a ScoreRecord .* >= 0"),
    ("SeqGraphMED", "scores.codes", put(3), "known classes in the record"),
    ("SeqGraphMED", "scores.weights", put(-1.0), "weights of a ScoreRecord .* >= 0"),
    ("SeqGraphMED", "scores.counts", put(-1.0), "counts of a ScoreRecord .* >= 0"),
    ("SeqGraphMED", "scores.counts", np.zeros_like, "classes that had a label"),
    ("SeqGraphMED", "scores.margin", put(np.nan), "NaN or infinity"),
    ("SeqGraphMED", "scores.graph", without_last, "scored="),
    ("SeqGraphMED", "scores.margin_scales", put(0.0), "margin_scales of a ScoreRecord .* > 0"),
    ("SeqGraphMED", "scores.margin_scales", lambda a: a[:, :2], "exponents=3"),
    ("SeqGraphMED", "scores.graph_scales", put(0.0), "graph_scales of a ScoreRecord .* > 0"),
    ("SeqGraphMED", "scores", repeated, "at most 300 rows"),
    ("SeqGraphMED", "_state.score_scales.counts", put(-1.0), "counts of a ScoreScales .* >= 0"),
    ("SeqGraphMED", "_state.score_scales.counts", without_last, "classes=3"),
    ("SeqGraphMED", "_state.score_scales.margin", put(0.0), "margin of a ScoreScales .* > 0"),
    ("SeqGraphMED", "_state.score_scales.graph", 0.0, "graph of a ScoreScales .* > 0"),
    (
        "SeqGraphMED", "_state.score_scales.graph", np.inf,
        "graph of a ScoreScales holds NaN or infinity",
    ),
    ("SeqGraphMED", "_state.choice.weight", 1.5, "weight of a Choice .* <= 1"),
    ("SeqGraphMED", "_state.choice.weight", 0.123, "the last choice in update_info_"),
    ("SeqGraphMED", "_state.choice.temperature", 0.0, "temperature of a Choice .* > 0"),
    ("SeqGraphMED", "_state.choice.exponent", 3, "exponent of a Choice .* < 3"),
    ("SeqGraphMED", "_state.class_weights", put(0.0), "class_weights of a MixtureState .* > 0"),
    ("SeqGraphMED", "_state.class_weights", without_last, "classes=3"),
    ("SeqGraphMED", "_state.probes", np.ones((51, 4)), "at most 50 probes"),
    ("SeqGraphMED", "_state.probes", lambda a: a[:, :3], "p=4"),
    ("SeqGraphMED", "_state.probes", lambda a: a.astype(np.float32), "probes in the format"),
    ("SeqGraphMED-sparse", "_state.probes", lambda a: a.toarray(), "probes in the format"),
    ("SeqGraphMED", "info.n_mini_batches", -1, "n_mini_batches of a MixtureInfo .* >= 0"),
    ("SeqGraphMED", "info.n_recorded", 0, "the last choice in update_info_"),
    ("SeqGraphMED", "_state.margin_seed", -1, "margin_seed of a MixtureState .* >= 0"),
    ("SeqGraphMED", "_state.margin_info", None, "a report of the margin expert"),
    ("SeqGraphMED", "_state.margin_info.n_window", 3, "window=3"),
    ("SeqGraphMED", "_state.margin_info.solutions", lambda a: a[:-1], "one solution for every"),
    ("SeqGraphMED", "margin", fitted(columns=3), "p=4"),
    ("SeqGraphMED", "margin", fitted(sparse=True), "points that suit the kernel"),
    ("SeqGraphMED", "margin", fitted(classes=("ant", "bee")), "the same classes in all experts"),
    ("SeqGraphMED", "margin", precomputed(), "the kernel of the parameters"),
    ("SeqGraphMED", "margin", fitted("tfidf"), "the kernel of the parameters"),
    ("SeqGraphMED", "margin.counts.counts", put(0), "no fewer labels than in the window"),
    ("SeqGraphMED", "margin.posterior.window.points", put(np.nan), "NaN or infinity"),
    ("SeqGraphMED", "fixed", {}, "its estimator is None, expected one of"),
    ("SeqGraphMED", "fixed", lacking("alpha"), "parameters that may not change"),
    ("SeqGraphMED", "fixed", lacking("estimator__gamma"), "parameters that may not change"),
    ("SeqGraphMED", "fixed.estimator", "SeqLapMED", "parameters that may not change"),
    ("SeqGraphMED", "fixed.estimator", "os.system", "'os.system', expected one of"),
    ("SeqGraphMED", "fixed.estimator", np.zeros(2), "expected one of SeqMED, SeqLapMED"),
    ("SeqGraphMED", "fixed.estimator__gamma", -1.0, "'gamma' parameter"),
    ("SeqGraphMED", "fixed.estimator__kernel", np.zeros(2), "a kernel by name"),
    ("SeqGraphMED", "fixed.estimator__kernel", SeqMED(), "holds an estimator"),
    ("SeqGraphMED", "fixed.estimator__kernel", "linear", "the kernel of the parameters"),
    ("SeqGraphMED", "fixed.estimator__kernel", "precomputed", "between batches"),
    ("SeqGraphMED", "fixed.estimator__budget", 8, "the recursion of the parameters"),
    ("SeqGraphMED-SeqLapMED", "fixed.estimator__recursion", "exact", "recursion of the param"),
    ("SeqGraphMED-SeqLapMED", "fixed.estimator", "SeqMED", "parameters that may not change"),
    ("SeqGraphMED-change", "trial.n_labels", 10**6, "fewer labels in a trial"),
    ("SeqGraphMED-change", "trial.state.trial", Trial(None, 0), "no trial within a trial"),
    ("SeqGraphMED-change", "trial.state.n_rows", 1, "the same rows in a trial"),
    ("SeqGraphMED-change", "trial.state.margin", fitted("tfidf"), "the kernel of the parameters"),
    ("SeqGraphMED-change", "trial.state.margin_info", None, "a report of the margin expert"),
    ("SeqGraphMED", "sparse", True, "points that suit the kernel"),
    ("SeqGraphMED", "classes_", without_last, "a label for every class"),
]  # fmt: skip
RULES += GRAPH_RULES


@pytest.mark.parametrize(
    ("name", "path", "change", "reason"), RULES, ids=[f"{rule[0]}.{rule[1]}" for rule in RULES]
)
def test_every_rule_is_kept(name, path, change, reason):
    model = seqmed.load(FOLDER / f"format-2-{name}.safetensors")
    state = kept_state(model)
    check(model, state)
    broken = altered(state, full(path), change)
    with pytest.raises(ValueError, match=reason):
        check(model, broken)


SCALER_RULES = [
    (StandardScaler, "mean_", None, "all statistics of the scaler"),
    (StandardScaler, "scale_", None, "all statistics of the scaler"),
    (StandardScaler, "var_", without_last, "var_ for every column"),
    (StandardScaler, "mean_", np.array(["a", "b"]), "numbers in mean_"),
    (StandardScaler, "n_samples_seen_", np.zeros(3), "n_samples_seen_ for every column"),
    (MinMaxScaler, "data_min_", None, "all statistics of the scaler"),
    (MinMaxScaler, "feature_names_in_", np.array(["a"], dtype=object), "a name for every column"),
    (MaxAbsScaler, "scale_", without_last, "scale_ for every column"),
    (MaxAbsScaler, "feature_names_in_", np.array(["a", "b"]), "names that are text"),
]


@pytest.mark.parametrize(("scaler", "name", "change", "reason"), SCALER_RULES)
def test_every_rule_of_scalers_is_kept(scaler, name, change, reason):
    model = scaler().fit(np.arange(6.0).reshape(3, 2))
    state = {"feature_names_in_": None, **kept_state(model)}
    check(model, state)
    with pytest.raises(ValueError, match=reason):
        check(model, altered(state, [name], change))


def names_an_array(hint):
    hint = written_out(hint)
    return hint is Any or get_origin(hint) is np.ndarray or any(map(names_an_array, get_args(hint)))


@pytest.mark.parametrize("kind", records().values(), ids=records())
def test_every_array_of_a_record_has_a_declared_size(kind):
    arrays = {name for name, hint in field_types(kind).items() if names_an_array(hint)} - {"fixed"}
    assert arrays <= set(CONSTRAINTS.get(kind, ()))
    assert set(CONSTRAINTS.get(kind, ())) <= set(field_types(kind))


@dataclasses.dataclass(frozen=True)
class Step:
    """A record from outside the package."""

    sizes: NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class OtherRecursion(ExactRecursion):
    """A recursion from outside the package."""

    steps: tuple[Step, ...] = (Step(np.ones(3)),)


def test_a_recursion_is_kept_once_it_is_registered(tmp_path, monkeypatch):
    path, X = tmp_path / "model", np.random.default_rng(0).normal(size=(20, 3))
    with monkeypatch.context() as registered:
        registered.setitem(RECURSIONS, "exact", lambda base, size, seed: OtherRecursion(base))
        registered.setitem(CONSTRAINTS, Step, {"sizes": "3 > 0"})
        model = SeqLapMED(recursion="exact", beta=0.0).partial_fit(X, np.arange(20) % 2)
        seqmed.save(model, path)
        loaded = seqmed.load(path)
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
        steps = loaded._state.posterior.recursion.steps
        np.testing.assert_array_equal(steps[0].sizes, np.ones(3))
        registered.setitem(CONSTRAINTS, Step, {"sizes": "3 > 1"})
        with pytest.raises(ModelFileError, match=r"sizes of a Step holds .* > 1"):
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
