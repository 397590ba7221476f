"""A pipeline in a stream: frozen transformers, incremental steps, and drift of the input.

The reference is always the same thing done by hand: a transformer fitted to the first batch, and a
classifier that learns the transformed batches.
"""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED
from seqmed.pipelines import drift
from seqmed.pipelines.column_statistics import measure, numeric_columns
from seqmed.pipelines.drift import compare
from seqmed.pipelines.stream_pipeline import InputDriftWarning, StreamPipeline
from seqmed.selection.splitting import SemiSupervisedSplit


def make_batch(seed, n=40, p=3):
    """Rows on scales of 1, 10, 100, ..., and labels 0 and 1."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return (generator.normal(size=(n, p)) + y[:, None]) * 10.0 ** np.arange(p), y


BATCHES = [make_batch(seed) for seed in range(4)]
PROBES = make_batch(99)[0]


class Bayes(GaussianNB):
    """A model that is not of this library, and learns in place."""

    def partial_fit(self, X, y):
        return super().partial_fit(X, y, classes=[0, 1])


def make(model=None, scaler=None, **parameters):
    scaler = StandardScaler() if scaler is None else scaler
    model = SeqMED() if model is None else model
    return StreamPipeline([("scale", scaler), ("model", model)], **parameters)


def learned(pipeline, batches=BATCHES):
    for X, y in batches:
        pipeline.partial_fit(X, y)
    return pipeline


def observed(pipeline):
    """Everything that a refused batch must leave alone."""
    return pickle.dumps((pipeline.decision_function(PROBES), pipeline))


# -- the same as by hand --------------------------------------------------------------------------


GRAPHS = [SeqGraphMED(random_state=0), GraphPropagation(random_state=0)]


@pytest.mark.parametrize(
    "model", [SeqMED(), SeqLapMED(random_state=0), SeqMED(kernel="linear"), *map(clone, GRAPHS)]
)
def test_transformers_are_fitted_once_and_the_model_learns_on(model):
    pipeline = learned(make(clone(model)))
    scaler = StandardScaler().fit(BATCHES[0][0])
    for X, y in BATCHES:
        model.partial_fit(scaler.transform(X), y)
    np.testing.assert_array_equal(pipeline["scale"].mean_, scaler.mean_)
    assert pipeline["model"].n_batches_ == 4
    rows = scaler.transform(PROBES)
    for method in ("predict", "predict_proba", "decision_function", "decision_std"):
        assert hasattr(pipeline, method) == hasattr(model, method)
        if hasattr(model, method):
            np.testing.assert_array_equal(
                getattr(pipeline, method)(PROBES), getattr(model, method)(rows), err_msg=method
            )
    assert pipeline.score(*BATCHES[0]) == model.score(
        scaler.transform(BATCHES[0][0]), BATCHES[0][1]
    )


def test_partial_fit_goes_on_after_fit():
    pipeline = make().fit(*BATCHES[0])
    learned(pipeline, BATCHES[1:])
    scaler = StandardScaler().fit(BATCHES[0][0])
    model = SeqMED().fit(scaler.transform(BATCHES[0][0]), BATCHES[0][1])
    for X, y in BATCHES[1:]:
        model.partial_fit(scaler.transform(X), y)
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), model.decision_function(scaler.transform(PROBES))
    )


def test_fit_starts_anew():
    pipeline = learned(make()).fit(*BATCHES[3])
    expected = make().fit(*BATCHES[3])
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), expected.decision_function(PROBES)
    )
    assert pipeline.drift_ is None
    assert pipeline["model"].n_batches_ == 1


def test_after_a_fit_that_failed_the_stream_goes_on():
    pipeline, expected = learned(make()), learned(make())
    with pytest.raises(ValueError, match="no labeled row"):
        pipeline.fit(100 * BATCHES[3][0] + 5, np.full(40, np.nan))
    with pytest.raises(ValueError, match="drift_limit"):
        pipeline.set_params(drift_limit=-1.0).fit(*BATCHES[3])
    pipeline.set_params(drift_limit=1.0)
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), expected.decision_function(PROBES)
    )
    for each in (pipeline, expected):
        each.partial_fit(*BATCHES[3])
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), expected.decision_function(PROBES)
    )


def test_the_estimators_given_stay_as_they_are():
    scaler, model = StandardScaler(), SeqMED()
    steps = [("scale", scaler), ("model", model)]
    pipeline = learned(StreamPipeline(steps))
    assert not hasattr(scaler, "mean_")
    assert not hasattr(model, "classes_")
    assert steps == [("scale", scaler), ("model", model)]
    assert pipeline["scale"] is not scaler
    check_is_fitted(pipeline["model"])


def test_a_referenced_step_does_not_change():
    """Copies learn and take its place, so that a reader never finds steps of different batches."""
    pipeline = make().partial_fit(*BATCHES[0])
    model = pipeline["model"]
    learned(pipeline, BATCHES[1:])
    assert model.n_batches_ == 1
    assert pipeline["model"].n_batches_ == 4


@pytest.mark.parametrize("nothing", ["passthrough", None])
def test_steps_that_do_nothing(nothing):
    steps = [("first", nothing), ("scale", StandardScaler()), ("last", nothing)]
    pipeline = learned(StreamPipeline([*steps, ("model", SeqMED())]))
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), learned(make()).decision_function(PROBES)
    )


def test_a_model_alone():
    pipeline = learned(StreamPipeline([("model", SeqMED())]))
    model = SeqMED()
    for X, y in BATCHES:
        model.partial_fit(X, y)
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), model.decision_function(PROBES)
    )


def test_several_transformers_and_labels_for_those_that_want_them():
    class Centre(BaseEstimator):
        """Subtracts the mean of the labeled rows; has no fit_transform."""

        def fit(self, X, y):
            self.centre_ = X[y >= 0].mean(axis=0)
            return self

        def transform(self, X):
            return X - self.centre_

    batches = [(X, np.where(np.arange(40) % 5, y, -1)) for X, y in BATCHES]
    pipeline = StreamPipeline(
        [("centre", Centre()), ("pca", PCA(2)), ("model", SeqLapMED(random_state=0))]
    )
    learned(pipeline, batches)
    X, y = batches[0]
    centre = X[y >= 0].mean(axis=0)
    pca = PCA(2).fit(X - centre)
    model = SeqLapMED(random_state=0)
    for X, y in batches:
        model.partial_fit(pca.transform(X - centre), y)
    np.testing.assert_allclose(
        pipeline.decision_function(PROBES),
        model.decision_function(pca.transform(PROBES - centre)),
        rtol=1e-9,
    )


def test_single_precision():
    batches = [(X.astype(np.float32), y) for X, y in BATCHES]
    pipeline = learned(make(), batches)
    assert pipeline["scale"].transform(batches[0][0]).dtype == np.float32
    np.testing.assert_allclose(
        pipeline.decision_function(PROBES.astype(np.float32)),
        learned(make()).decision_function(PROBES),
        atol=1e-3,
    )


def test_parameters_reach_the_final_estimator():
    X, y = BATCHES[0]
    weights = np.where(np.arange(40) < 20, 1.0, 0.0)
    pipeline = make().partial_fit(X, y, classes=[0, 1, 2], sample_weight=weights)
    assert pipeline.classes_.tolist() == [0, 1, 2]
    model = SeqMED().partial_fit(
        StandardScaler().fit_transform(X), y, classes=[0, 1, 2], sample_weight=weights
    )
    np.testing.assert_array_equal(pipeline["model"].dual_coef_, model.dual_coef_)
    with config_context(enable_metadata_routing=True):
        routed = make().partial_fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(
        routed.decision_function(PROBES),
        make().partial_fit(X, y, sample_weight=weights).decision_function(PROBES),
    )


def test_a_transformer_fitted_elsewhere():
    scaler = StandardScaler().fit(np.vstack([X for X, _ in BATCHES]))
    pipeline = learned(make(scaler=FrozenEstimator(scaler)))
    model = SeqMED()
    for X, y in BATCHES:
        model.partial_fit(scaler.transform(X), y)
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), model.decision_function(scaler.transform(PROBES))
    )


# -- incremental steps --------------------------------------------------------------------


def test_an_incremental_step_learns_before_it_transforms():
    pipeline = make(SGDClassifier(random_state=0), incremental=["scale"])
    scaler, model = StandardScaler(), SGDClassifier(random_state=0)
    for X, y in BATCHES:
        pipeline.partial_fit(X, y, classes=[0, 1])
        model.partial_fit(scaler.partial_fit(X).transform(X), y, classes=[0, 1])
    np.testing.assert_array_equal(pipeline["scale"].mean_, scaler.mean_)
    assert pipeline["scale"].n_samples_seen_ == 160
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), model.decision_function(scaler.transform(PROBES))
    )


def test_an_incremental_step_in_front_of_a_frozen_one():
    pipeline = StreamPipeline(
        [("scale", StandardScaler()), ("squeeze", MinMaxScaler()), ("model", Bayes())],
        incremental=("scale",),
    )
    learned(pipeline)
    first = StandardScaler().fit_transform(BATCHES[0][0])
    np.testing.assert_array_equal(pipeline["squeeze"].data_min_, first.min(axis=0))
    assert pipeline["scale"].n_samples_seen_ == 160


def test_an_incremental_step_that_is_switched_off():
    pipeline = make(scaler="passthrough", incremental=["scale"])
    assert learned(pipeline)["model"].n_batches_ == 4


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    ("incremental", "words"),
    [
        (["scaler"], ("'scaler'", "['scale', 'pca']", "correct the name")),
        (["model"], ("'model'", "The final step always learns")),
        (["pca"], ("'pca'", "PCA(", "with partial_fit", "to freeze it")),
    ],
)
def test_what_cannot_be_incremental_is_refused(method, incremental, words):
    pipeline = StreamPipeline(
        [("scale", StandardScaler()), ("pca", PCA(2)), ("model", SeqMED())],
        incremental=incremental,
    )
    with pytest.raises(ValueError, match="incremental contains") as refusal:
        getattr(pipeline, method)(*BATCHES[0])
    for word in words:
        assert word in str(refusal.value)


@pytest.mark.parametrize("parameters", [{"incremental": "scale"}, {"drift_limit": 0.0}])
def test_parameters_are_validated(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        make(**parameters).partial_fit(*BATCHES[0])


# -- late and retracted labels --------------------------------------------------------------------


class Recorder(BaseEstimator):
    """A final estimator that remembers how it was called."""

    def partial_fit(self, X, y=None, new_points=True):
        self.calls_ = [*getattr(self, "calls_", []), (X, y, new_points)]
        return self

    def fit(self, X, y=None):
        self.__dict__.pop("calls_", None)
        return self.partial_fit(X, y)

    def retract(self, X, y=None):
        self.retracted_ = (X, y)
        return self


def test_rows_seen_before_are_only_transformed():
    """Nothing learns but the model, and rows that are far away raise no warning."""
    pipeline = make(Recorder(), incremental=["scale"]).partial_fit(*BATCHES[0])
    before = pickle.dumps((pipeline["scale"], pipeline._monitor, pipeline.drift_))
    far = BATCHES[1][0] + 1e6
    pipeline.partial_fit(far, BATCHES[1][1], new_points=False)
    assert pickle.dumps((pipeline["scale"], pipeline._monitor, pipeline.drift_)) == before
    X, y, new_points = pipeline["model"].calls_[-1]
    np.testing.assert_array_equal(X, pipeline["scale"].transform(far))
    assert y is BATCHES[1][1]
    assert new_points is False


def test_late_labels_in_the_first_call_are_refused():
    with pytest.raises(ValueError, match=r"new_points=False in its first call.*learn the rows"):
        make(Recorder()).partial_fit(*BATCHES[0], new_points=False)


@pytest.mark.parametrize("model", [SeqLapMED(random_state=0), *GRAPHS])
def test_late_labels_of_a_stream_classifier(model):
    X, y = BATCHES[1]
    late = np.full(40, -1)
    pipeline = make(clone(model)).partial_fit(*BATCHES[0]).partial_fit(X, late)
    scores = pipeline.decision_function(PROBES)
    pipeline.partial_fit(X[:5], y[:5], new_points=False)
    assert pipeline["model"].n_batches_ == 2
    assert (pipeline.decision_function(PROBES) != scores).any()


def test_retract_transforms_first():
    pipeline = make(Recorder()).partial_fit(*BATCHES[0])
    X, y = BATCHES[0]
    assert pipeline.retract(X[:3], y[:3]) is pipeline
    np.testing.assert_array_equal(
        pipeline["model"].retracted_[0], pipeline["scale"].transform(X[:3])
    )
    np.testing.assert_array_equal(pipeline["model"].retracted_[1], y[:3])
    pipeline.retract(X[:3])
    assert pipeline["model"].retracted_[1] is None


def test_labels_of_a_stream_classifier_are_retracted():
    """A retracted label leaves the model as if it had never been learned."""
    X, y = BATCHES[1]
    pipeline = make(SeqMED(tol=1e-8)).partial_fit(*BATCHES[0])
    right = learned(make(SeqMED(tol=1e-8)), BATCHES[:1]).partial_fit(
        X, np.where(np.arange(40) < 2, np.nan, y)
    )
    pipeline.partial_fit(X, y).retract(X[:2])
    np.testing.assert_allclose(
        pipeline.decision_function(PROBES), right.decision_function(PROBES), atol=1e-5
    )


@pytest.mark.parametrize("model", GRAPHS)
def test_labels_of_a_graph_are_retracted(model):
    """By hand and in a pipeline; a row that was never learned is refused by both."""
    X, y = BATCHES[1]
    pipeline = make(clone(model)).partial_fit(*BATCHES[0]).partial_fit(X, y)
    alone, scaler = clone(model), pipeline["scale"]
    for rows, labels in BATCHES[:2]:
        alone.partial_fit(scaler.transform(rows), labels)
    taught = pipeline.decision_function(PROBES)
    pipeline.retract(X[:9], y[:9])
    alone.retract(scaler.transform(X[:9]), y[:9])
    after = pipeline.decision_function(PROBES)
    np.testing.assert_array_equal(after, alone.decision_function(scaler.transform(PROBES)))
    assert (after != taught).any()
    with pytest.raises(ValueError, match="row 0 of X is not among"):
        pipeline.retract(PROBES[:1])
    np.testing.assert_array_equal(pipeline.decision_function(PROBES), after)


@pytest.mark.parametrize("model", GRAPHS)
def test_a_graph_behind_a_transformer_of_frames(model):
    frames = [pd.DataFrame(X, columns=["a", "b", "c"]) for X, _ in BATCHES]
    model = clone(model)
    if isinstance(model, SeqGraphMED):  # frames are ordered by columns, which rounds differently
        model.set_params(estimator=SeqMED(tol=1e-8))
    scaler = StandardScaler().set_output(transform="pandas")
    pipeline = make(clone(model), scaler)
    for frame, (_, y) in zip(frames, BATCHES, strict=True):
        pipeline.partial_fit(frame, y)
    assert pipeline["model"].feature_names_in_.tolist() == ["a", "b", "c"]
    probes = pd.DataFrame(PROBES, columns=["a", "b", "c"])
    plain = learned(make(clone(model)))
    np.testing.assert_allclose(
        pipeline.decision_function(probes), plain.decision_function(PROBES), atol=1e-5
    )
    pipeline.set_params(scale="passthrough")
    with pytest.raises(ValueError, match="feature names"):
        pipeline.predict(probes[["b", "a", "c"]])


# -- methods that the final estimator lacks ------------------------------------------------------


@pytest.mark.parametrize("method", ["partial_fit", "retract", "decision_std"])
@pytest.mark.parametrize("final", [LogisticRegression(), "passthrough", None])
def test_methods_the_final_estimator_lacks(method, final):
    pipeline = StreamPipeline([("scale", StandardScaler()), ("model", final)])
    assert not hasattr(pipeline, method)
    with pytest.raises(AttributeError, match=method) as refusal:
        getattr(pipeline, method)
    reason = str(refusal.value.__cause__)
    assert f"expected an estimator with {method}" in reason
    assert repr(final if final is not None else "passthrough") in reason


@pytest.mark.parametrize("method", ["decision_std", "retract", "predict", "decision_function"])
def test_nothing_works_before_the_first_batch(method):
    with pytest.raises(NotFittedError):
        getattr(make(), method)(PROBES)
    with pytest.raises(NotFittedError):
        check_is_fitted(make())
    check_is_fitted(make().partial_fit(*BATCHES[0]))


# -- all or nothing -------------------------------------------------------------------------------


def spoiled(value):
    X = BATCHES[2][0].copy()
    X[5, 1] = value
    return X


class Moody(Bayes):
    """Learns a batch and then raises an error."""

    def partial_fit(self, X, y):
        super().partial_fit(X, y)
        if y[0] == 1:
            raise RuntimeError("not today")
        return self


BAD = {
    "a column too many": (np.ones((40, 4)), BATCHES[2][1], ValueError, "features"),
    "a column too few": (np.ones((40, 2)), BATCHES[2][1], ValueError, "features"),
    "NaN": (spoiled(np.nan), BATCHES[2][1], ValueError, "NaN"),
    "infinity": (spoiled(np.inf), BATCHES[2][1], ValueError, "infinity"),
    "y too short": (BATCHES[2][0], BATCHES[2][1][:-1], ValueError, "inconsistent"),
    "words": ([["a", "b", "c"]] * 2, [0, 1], ValueError, "could not convert"),
    "no rows": (np.ones((0, 3)), np.ones(0), ValueError, "0 sample"),
}
LEARNERS = {
    "SeqMED": lambda: make(),
    "SeqLapMED": lambda: make(SeqLapMED(random_state=0)),
    "incremental": lambda: make(Bayes(), incremental=["scale"]),
    "watchful": lambda: make(drift_limit=1e-3),
}


@pytest.mark.filterwarnings("ignore::seqmed.pipelines.drift.InputDriftWarning")
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_refused_batch_changes_nothing(learner, bad):
    X, y, error, words = BAD[bad]
    pipeline = learned(LEARNERS[learner](), BATCHES[:2])
    before = pickle.dumps(pipeline)
    with pytest.raises(error, match=words):
        pipeline.partial_fit(X, y)
    assert pickle.dumps(pipeline) == before
    untouched = pickle.loads(before)
    learned(pipeline, BATCHES[2:])
    learned(untouched, BATCHES[2:])
    np.testing.assert_array_equal(pipeline.predict(PROBES), untouched.predict(PROBES))


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_refused_first_batch_changes_nothing(learner, bad):
    X, y, error, words = BAD[bad]
    if "column" in bad:
        X = np.ones((40, 0))
        words = "0 feature"
    pipeline = LEARNERS[learner]()
    before, steps = pickle.dumps(pipeline), pipeline.steps
    with pytest.raises(error, match=words):
        pipeline.partial_fit(X, y)
    assert pickle.dumps(pipeline) == before
    assert pipeline.steps is steps


def test_a_final_estimator_that_fails_halfway_is_restored():
    """Also where it has changed before it failed, and the step before it has learned."""
    pipeline = make(Moody(), incremental=["scale"]).partial_fit(*BATCHES[0])
    model, before = pipeline["model"], pickle.dumps(pipeline)
    with pytest.raises(RuntimeError, match="not today"):
        pipeline.partial_fit(BATCHES[1][0], 1 - BATCHES[1][1])
    assert pickle.dumps(pipeline) == before
    assert pipeline["model"] is model
    assert pipeline["scale"].n_samples_seen_ == 40


def test_a_warning_made_an_error_refuses_the_batch():
    pipeline = learned(make(incremental=["scale"]), BATCHES[:2])
    before = pickle.dumps(pipeline)
    for _ in range(2):  # a batch that was refused is warned of again; here warnings are errors
        with pytest.raises(InputDriftWarning, match="column 1"):
            pipeline.partial_fit(BATCHES[2][0] + [0.0, 1e3, 0.0], BATCHES[2][1])
        assert pickle.dumps(pipeline) == before


# -- as an estimator of scikit-learn --------------------------------------------------------------


def test_cloning_keeps_the_parameters_and_nothing_else():
    pipeline = learned(make(incremental=["scale"], drift_limit=2.0, verbose=True))
    copy = clone(pipeline)
    assert copy.incremental == ["scale"]
    assert copy.drift_limit == 2.0
    assert copy.verbose is True
    assert copy["scale"] is not pipeline["scale"]
    assert not hasattr(copy, "drift_")
    with pytest.raises(NotFittedError):
        copy.predict(PROBES)
    copy.set_params(drift_limit=None).partial_fit(*BATCHES[0])
    assert copy["model"].n_batches_ == 1


def test_parameters_by_name():
    pipeline = make()
    assert {"incremental", "drift_limit", "memory", "scale__with_mean", "model__C"} <= set(
        pipeline.get_params()
    )
    pipeline.set_params(model__C=3.0, scale="passthrough", drift_limit=None)
    assert pipeline["model"].C == 3.0
    learned(pipeline)
    model = SeqMED(C=3.0)
    for X, y in BATCHES:
        model.partial_fit(X, y)
    np.testing.assert_array_equal(pipeline.predict(PROBES), model.predict(PROBES))


def test_parameters_of_an_update_may_change_between_batches():
    pipeline = make().partial_fit(*BATCHES[0]).set_params(model__C=2.0).partial_fit(*BATCHES[1])
    assert pipeline["model"].n_batches_ == 2
    with pytest.raises(ValueError, match="after the first batch"):
        pipeline.set_params(model__kernel="linear").partial_fit(*BATCHES[2])


def test_tags_names_and_text():
    pipeline = make()
    assert is_classifier(pipeline)
    assert get_tags(pipeline) == get_tags(Pipeline(pipeline.steps))
    assert get_tags(make(scaler=MaxAbsScaler())).input_tags.sparse
    assert repr(pipeline).startswith("StreamPipeline(steps=[")
    assert "StreamPipeline" in pipeline._repr_html_()
    frame = pd.DataFrame(BATCHES[0][0], columns=["a", "b", "c"])
    pipeline.partial_fit(frame, BATCHES[0][1])
    assert pipeline.n_features_in_ == 3
    assert pipeline.feature_names_in_.tolist() == ["a", "b", "c"]
    assert pipeline[:-1].get_feature_names_out().tolist() == ["a", "b", "c"]
    assert pipeline.classes_.tolist() == [0, 1]


def test_a_saved_pipeline_goes_on():
    pipeline = learned(make(SeqLapMED(random_state=0)), BATCHES[:2])
    saved = pickle.loads(pickle.dumps(pipeline))
    for one in (pipeline, saved):
        learned(one, BATCHES[2:])
    np.testing.assert_array_equal(
        saved.decision_function(PROBES), pipeline.decision_function(PROBES)
    )


@pytest.mark.parametrize("routing", [False, True])
def test_model_selection(routing):
    X, y = make_batch(5, n=120)
    gaps = np.where(np.arange(120) % 3, -1, y)
    pipeline = make(SeqLapMED(random_state=0))
    with config_context(enable_metadata_routing=routing):
        scores = cross_val_score(pipeline, X, gaps, cv=SemiSupervisedSplit(4), error_score="raise")
        search = GridSearchCV(
            pipeline,
            {"model__gamma": [1e-6, 0.3], "drift_limit": [None, 1.0]},
            cv=SemiSupervisedSplit(3),
            error_score="raise",
        ).fit(X, gaps)
    assert scores.mean() > 0.6
    assert search.best_params_["model__gamma"] == 0.3
    best = search.best_estimator_.partial_fit(*make_batch(6))
    assert best["model"].n_batches_ == 2


def test_caching_of_fitted_transformers(tmp_path):
    pipeline = make(memory=str(tmp_path)).fit(*BATCHES[0])
    learned(pipeline, BATCHES[1:])
    np.testing.assert_array_equal(
        pipeline.predict(PROBES), learned(make().fit(*BATCHES[0]), BATCHES[1:]).predict(PROBES)
    )


def test_transformers_that_put_out_frames():
    pipeline = make().set_output(transform="pandas")
    batches = [(pd.DataFrame(X, columns=["a", "b", "c"]), y) for X, y in BATCHES]
    learned(pipeline, batches)
    assert pipeline["model"].feature_names_in_.tolist() == ["a", "b", "c"]


def test_input_is_neither_changed_nor_kept():
    X, y = BATCHES[0][0][:5].copy(), BATCHES[0][1][:5].copy()
    pipeline = make().partial_fit(*BATCHES[0])
    before = X.copy()
    pipeline.partial_fit(X, y)  # too few rows to compare: they are collected
    np.testing.assert_array_equal(X, before)
    X[:] = 1e9
    pipeline.partial_fit(*BATCHES[1])
    assert np.abs(pipeline.drift_.mean_shift).max() < 1


# -- drift of the input -----------------------------------------------------------------------


def moved(columns, by=50.0, seed=7, n=40):
    X, y = make_batch(seed, n=n)
    X[:, columns] += by * 10.0 ** np.array(columns)
    return X, y


def drift_messages(pipeline, batches):
    """Learn, and return the texts of the warnings of every batch."""
    messages = []
    for X, y in batches:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pipeline.partial_fit(X, y)
        assert all(issubclass(warning.category, InputDriftWarning) for warning in caught)
        assert all(warning.filename == __file__ for warning in caught)
        messages.append([str(warning.message) for warning in caught])
    return messages


def test_a_column_that_has_moved_is_named_with_numbers_and_remedy():
    pipeline = learned(make(), BATCHES[:2])
    (texts,) = drift_messages(pipeline, [moved([1])])
    (text,) = texts
    mean = BATCHES[0][0].mean(axis=0)[1]
    assert f"expected {mean:.4g} and" in text
    for word in ("column 1 has mean 50", "drift_limit=1", "fit a new pipeline", "units"):
        assert word in text
    assert "column 0" not in text
    assert pipeline.drift_.drifted.tolist() == [False, True, False]
    np.testing.assert_allclose(
        pipeline.drift_.mean_shift[1],
        (moved([1])[0].mean(axis=0)[1] - mean) / BATCHES[0][0].std(axis=0)[1],
    )
    assert pipeline["model"].n_batches_ == 3  # a warning is not a refusal


def test_a_column_is_warned_of_once_until_it_returns():
    pipeline = learned(make(), BATCHES[:1])
    batches = [moved([1], seed=s) for s in range(20, 23)]
    batches += [make_batch(30), make_batch(31)]  # it comes back
    batches += [moved([1], seed=40), moved([1, 2], seed=41)]  # and leaves again, then another
    messages = drift_messages(pipeline, batches)
    assert [len(texts) for texts in messages] == [1, 0, 0, 0, 0, 1, 1]
    assert "column 1" in messages[5][0]
    assert "column 2" in messages[6][0]
    assert "column 1" not in messages[6][0]


def test_several_columns_are_one_warning_and_the_worst_come_first():
    generator = np.random.default_rng(0)
    pipeline = StreamPipeline([("scale", StandardScaler()), ("model", SeqMED())])
    pipeline.partial_fit(generator.normal(size=(100, 8)), np.arange(100) % 2)
    shifts = np.array([0, 3, 4, 50, 6, 200, 7, 100])
    ((text,),) = drift_messages(
        pipeline, [(generator.normal(size=(100, 8)) + shifts, np.arange(100) % 2)]
    )
    assert [text.index(f"column {c} ") for c in (5, 7, 3)] == sorted(
        text.index(f"column {c} ") for c in (5, 7, 3)
    )
    assert "and 4 more columns" in text
    assert "column 6" not in text


@pytest.mark.parametrize("by", [20.0, 0.02])
def test_a_column_whose_deviation_has_changed(by):
    generator = np.random.default_rng(1)
    pipeline = make().partial_fit(generator.normal(size=(200, 3)), np.arange(200) % 2)
    ((text,),) = drift_messages(
        pipeline, [(generator.normal(size=(100, 3)) * [1.0, 1.0, by], np.arange(100) % 2)]
    )
    assert "column 2" in text
    assert "column 1" not in text
    np.testing.assert_allclose(pipeline.drift_.scale_ratio, [1.0, 1.0, by], rtol=0.3)


@pytest.mark.parametrize("seed", range(4))
def test_a_stationary_stream_is_not_warned_of(seed):
    """200 batches of 50 rows, 30 columns: normal, skewed, heavy-tailed, counts, rare, constant."""
    generator = np.random.default_rng(seed)

    def batch():
        return np.column_stack(
            [
                1e6 + 1e-2 * generator.normal(size=(50, 6)),
                generator.lognormal(size=(50, 6)),
                generator.standard_cauchy(size=(50, 6)),
                generator.poisson(0.5, size=(50, 6)),
                generator.random((50, 5)) < [0.002, 0.02, 0.1, 0.5, 0.9],
                np.full((50, 1), 0.1) * 3,
            ]
        )

    pipeline = StreamPipeline([("model", Recorder())])
    pipeline.partial_fit(batch())
    for _ in range(200):
        pipeline["model"].calls_.clear()
        pipeline.partial_fit(batch())  # any warning is an error
    assert not pipeline.drift_.drifted.any()


@pytest.mark.parametrize("rows", [1, 7, 29])
def test_small_batches_are_collected_before_they_are_compared(rows):
    pipeline = learned(make(), BATCHES[:1])
    X, y = moved([0], n=60)
    batches = [(X[i : i + rows], y[i : i + rows]) for i in range(0, 60 - rows, rows)]
    messages = drift_messages(pipeline, batches)
    assert sum(map(len, messages)) == 1
    position = next(i for i, texts in enumerate(messages) if texts)
    assert position == -(-30 // rows) - 1


def test_one_outlier_is_not_drift():
    X, y = make_batch(50)
    X[3, 0] = 1e6
    assert drift_messages(learned(make(), BATCHES[:1]), [(X, y)]) == [[]]


def test_the_comparison_can_be_disabled_and_loosened():
    off = learned(make(drift_limit=None), [BATCHES[0], moved([1])])
    assert off.drift_ is None
    learned(make(drift_limit=500.0), [BATCHES[0], moved([1])])
    later = learned(make(), BATCHES[:1]).set_params(drift_limit=None)
    learned(later, [moved([1])])


def test_columns_of_a_frame_are_named_and_found_wherever_they_stand():
    def frame(X):
        names = ["height", "weight", "width"]
        return pd.DataFrame(X, columns=names).assign(kind="a").astype({"kind": "category"})

    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["kind"]), remainder=StandardScaler()
    )
    pipeline = make(scaler=encode).partial_fit(frame(BATCHES[0][0]), BATCHES[0][1])
    assert drift_messages(pipeline, [(frame(BATCHES[1][0]), BATCHES[1][1])]) == [[]]
    X, y = moved([1])
    swapped = frame(X)[["width", "kind", "weight", "height"]]
    ((text,),) = drift_messages(pipeline, [(swapped, y)])
    assert "column 'weight'" in text
    assert "'height'" not in text
    assert "'width'" not in text


def test_frames_with_gaps_and_other_numbers():
    """Missing values are left out; nullable integers and booleans are numbers, dates are not."""

    def frame(seed):
        X, y = make_batch(seed)
        gaps = pd.array(X[:, 2].round().astype(int), dtype="Int64")
        gaps[::4] = pd.NA
        frame = pd.DataFrame({"a": X[:, 0], "b": gaps, "c": X[:, 1] > 3})
        return frame.assign(day=pd.Timestamp("2020-01-01") + pd.to_timedelta(X[:, 0], "D")), y

    rows, names = numeric_columns(frame(0)[0])
    assert names == ("a", "b", "c")
    assert rows.dtype == np.float64
    assert np.isnan(rows[:, 1]).sum() == 10
    impute = make_column_transformer(
        (SimpleImputer(), ["a", "b"]), ("passthrough", ["c"]), remainder="drop"
    )
    pipeline = make(scaler=impute).partial_fit(*frame(0))
    assert drift_messages(pipeline, [frame(1)]) == [[]]
    far, y = frame(2)
    far["b"] = far["b"] + 100_000
    ((text,),) = drift_messages(pipeline, [(far, y)])
    assert "column 'b'" in text


def test_missing_values_in_front_of_an_imputer():
    batches = [(np.where(np.arange(40)[:, None] % 4 == 1, np.nan, X), y) for X, y in BATCHES]
    pipeline = learned(make(scaler=SimpleImputer()), batches)
    assert not pipeline.drift_.drifted.any()
    assert np.isfinite(pipeline.drift_.mean_shift).all()
    X, y = moved([2])
    X[::2, 2] = np.nan
    ((text,),) = drift_messages(pipeline, [(X, y)])
    assert "column 2" in text


@pytest.mark.parametrize("make_sparse", [sp.csr_array, sp.csc_array, sp.csr_matrix, sp.coo_array])
def test_sparse_input_is_compared_without_being_filled(make_sparse):
    generator = np.random.default_rng(3)
    width = 1 << 18  # dense, a batch would take 120 megabytes

    def batch(shift):
        rows = np.repeat(np.arange(60), 20)
        columns = np.where(np.arange(1200) % 20, generator.integers(100, width, 1200), 7)
        values = generator.normal(size=1200) + np.where(columns == 7, shift, 0.0)
        matrix = sp.coo_array((values, (rows, columns)), shape=(60, width))
        return make_sparse(matrix), np.arange(60) % 2

    pipeline = make(SeqMED(kernel="linear"), scaler=MaxAbsScaler()).partial_fit(*batch(0.0))
    none, (text,) = drift_messages(pipeline, [batch(0.0), batch(9.0)])
    assert none == []
    assert "column 7 has mean" in text
    assert np.flatnonzero(pipeline.drift_.drifted).tolist() == [7]


HAM = ["meet me for lunch", "the report is ready", "lunch at noon then", "see the report"]
SPAM = ["win money now", "cheap money offer", "win a cheap offer now", "free money win"]


@pytest.mark.parametrize(
    ("vectorizer", "named"),
    [(TfidfVectorizer(), True), (HashingVectorizer(n_features=64), False)],
)
def test_texts_are_compared_by_their_features(vectorizer, named):
    generator = np.random.default_rng(0)

    def batch(ham):
        texts = [str(generator.choice(HAM if i < ham else SPAM)) for i in range(60)]
        return texts, ["ham"] * ham + ["spam"] * (60 - ham)

    pipeline = StreamPipeline([("words", vectorizer), ("model", SeqMED(kernel="linear"))])
    pipeline.partial_fit(*batch(52))
    assert drift_messages(pipeline, [batch(52)]) == [[]]
    assert pipeline.predict(["see the report", "cheap money"]).tolist() == ["ham", "spam"]
    ((text,),) = drift_messages(pipeline, [batch(0)])
    assert any(f"column {word!r} has" in text for word in ("lunch", "report", "money")) == named
    pipeline = clone(pipeline).fit(*batch(52))  # its own transformers are not fitted before
    ((text,),) = drift_messages(pipeline, [batch(0)])
    assert "column" in text


def test_input_that_is_never_numeric_is_not_compared():
    class Lookup(TransformerMixin, BaseEstimator):
        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return X

    pipeline = make(Recorder(), scaler=Lookup())
    for _ in range(2):
        pipeline.partial_fit([{"a": 1}, {"a": 2}], [0, 1])
    assert pipeline.drift_ is None


# -- the statistics -------------------------------------------------------------------------------


def naive(X):
    """Mean, deviations, their standard deviation, extremes and count of columns, by loops."""
    rows = []
    for column in np.asarray(X, dtype=float).T:
        x = [float(value) for value in column if np.isfinite(value)]
        n = len(x)
        mean = sum(x) / n
        spread = sum(abs(value - mean) for value in x) / n
        tilt = sum((value < mean) - (value > mean) for value in x) / n
        parts = [abs(value - mean) + tilt * (value - mean) for value in x]
        rows.append(
            (
                mean,
                (sum((value - mean) ** 2 for value in x) / n) ** 0.5,
                spread,
                (sum((part - spread) ** 2 for part in parts) / n) ** 0.5,
                min(x),
                max(x),
                n,
            )
        )
    return np.array(rows).T


@pytest.mark.parametrize("make_rows", [np.asarray, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("gaps", [False, True])
def test_statistics_are_those_of_a_loop(generator, make_rows, gaps):
    X = generator.normal(size=(40, 6)) * [1, 1, 1e3, 1, 0, -2] + [0, 5, 0, -1e6, 0, 0]
    X[generator.random(X.shape) < 0.5] = 0
    if gaps:
        X[generator.random(X.shape) < 0.2] = np.nan
        X[3, 1] = np.inf
    found = measure(make_rows(X))
    expected = naive(X)
    values = (found.mean, found.std, found.mad, found.mad_std)
    for value, reference in zip((*values, found.low, found.high), expected, strict=False):
        np.testing.assert_allclose(value, reference, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.count, expected[-1])
    assert found.constant.tolist() == [False] * 4 + [True, False]


def test_the_deviation_of_a_deviation_is_that_of_samples(generator):
    """Also for skewed values, whose deviation depends on where the mean happens to be."""
    for draw in (
        generator.normal,
        generator.exponential,
        lambda size: generator.poisson(0.2, size),
    ):
        samples = measure(draw(size=(400, 2000)).astype(float))
        seen = samples.mad.std() * 20
        np.testing.assert_allclose(samples.mad_std.mean(), seen, rtol=0.1)


def test_sparse_entries_given_twice_are_added_up():
    twice = sp.coo_array(([1.0, 2.0, 4.0], ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    found = measure(twice)
    np.testing.assert_array_equal(found.mean, [1.5, 2.0])
    np.testing.assert_array_equal(found.high, [3.0, 4.0])


def test_sparse_rows_are_compared_as_dense_ones(generator):
    """Columns that are empty, fill, empty again, or move: step by step the same, either way."""
    stream = [generator.poisson(0.2, size=(80, 12)).astype(float) for _ in range(4)]
    for step, X in enumerate(stream):
        X[:, :4] = 0.0
        if step == 1:
            X[:, 1] = 1.0
            X[:, 5] += 9.0
    monitors = [drift.first_monitor(make(stream[0]), None) for make in (np.asarray, sp.csr_array)]
    seen = []
    for X in stream[1:]:
        (dense, first, text), (sparse, second, other) = (
            monitor.update(make(X), None, 1.0)
            for monitor, make in zip(monitors, (np.asarray, sp.csr_array), strict=True)
        )
        for name in ("mean_shift", "scale_ratio", "drifted"):
            np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-9)
        assert text == other
        seen.append(np.flatnonzero(first.drifted).tolist())
        monitors = [dense, sparse]
    assert seen == [[1, 5], [], []]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounding_of_a_constant_is_no_change(generator, dtype):
    value = np.full((50, 1), 1e6 / 3, dtype=dtype)
    rounded = value * (1 + 4 * np.finfo(dtype).eps * generator.choice([-1, 0, 1], size=(50, 1)))
    rounded = rounded.astype(dtype)
    first = measure(value)
    comparison, _ = compare(first, rounded, 1.0)
    assert comparison.mean_shift.tolist() == [0.0]
    assert not comparison.drifted.any()
    assert compare(first, value * (1 + 100 * np.finfo(dtype).eps), 1.0)[0].drifted.all()
    assert compare(measure(np.zeros((50, 1))), np.full((50, 1), 1e-300), 1.0)[0].drifted.all()


def test_a_constant_may_have_exceptions(generator):
    """A rare feature that the first batch happens to lack is no drift, half of the rows are."""
    first = measure(np.zeros((50, 1)))
    for ones, drifted in ((0, False), (1, False), (5, False), (40, True)):
        rows = (np.arange(50)[:, None] < ones).astype(float)
        comparison, _ = compare(first, rows, 1.0)
        assert comparison.drifted.tolist() == [drifted], ones
        assert comparison.mean_shift[0] == (np.inf if ones else 0.0)


def test_the_probability_of_values_outside_is_that_of_samples(generator):
    """Of the values of m rows, how many lie outside the range of n others: counted in draws."""
    n, m, draws = 10, 5, 20_000
    x = generator.random((draws, n + m))
    low, high = x[:, :n].min(axis=1), x[:, :n].max(axis=1)
    outside = ((x[:, n:] < low[:, None]) | (x[:, n:] > high[:, None])).sum(axis=1)
    for k in range(1, m + 1):
        bound = drift.probability_of_outside(np.array([float(k)]), np.array([n]), np.array([m]))[0]
        seen = np.mean(outside >= k)
        assert seen <= 1.1 * bound + 3 / draws
    constant = drift.probability_of_outside(np.array([0.0]), np.array([n]), np.array([m]))
    assert constant.tolist() == [1.0]


def test_too_few_values_are_not_compared():
    first = measure(np.zeros((9, 1)))
    comparison, _ = compare(first, np.ones((100, 1)), 1.0)
    assert np.isnan(comparison.mean_shift).all()
    assert not comparison.drifted.any()
    drifted_before, _ = compare(first, np.ones((100, 1)), 1.0, np.array([True]))
    assert drifted_before.drifted.all()  # and so nothing is said of a return


def test_a_column_at_the_limit_causes_one_warning():
    """It must return well within the limit before it can drift again."""
    generator = np.random.default_rng(0)
    first = measure(generator.normal(size=(1000, 1)))
    away, departures = None, 0
    for _ in range(100):
        comparison, _ = compare(first, generator.normal(size=(200, 1)) + 1.0, 1.0, away)
        departures += int(comparison.drifted[0] and not (away is not None and away[0]))
        away = comparison.drifted
    assert departures == 1
    assert not compare(first, generator.normal(size=(200, 1)) + 0.3, 1.0, away)[0].drifted.any()
