"""A pipeline in a stream: frozen transformers and a classifier.

The reference is always the same thing done by hand: a transformer fitted to the first batch, and a
classifier that learns the transformed batches.
"""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from seqmed import (
    GraphPropagation,
    SeqGraphMED,
    SeqLapMED,
    SeqMED,
    load,
    make_stream_pipeline,
    query,
    save,
)
from seqmed.selection.splitting import SemiSupervisedSplit
from seqmed.tables.stream_pipeline import StreamPipeline


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


def make(model=None, scaler=None):
    scaler = StandardScaler() if scaler is None else scaler
    model = SeqMED() if model is None else model
    return StreamPipeline([("scale", scaler), ("model", model)])


def learned(pipeline, batches=BATCHES):
    for X, y in batches:
        pipeline.partial_fit(X, y)
    return pipeline


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


def test_fit_starts_anew_and_partial_fit_goes_on():
    pipeline = learned(make(), BATCHES[2:]).fit(*BATCHES[0])
    assert pipeline["model"].n_batches_ == 1
    learned(pipeline, BATCHES[1:])
    scaler = StandardScaler().fit(BATCHES[0][0])
    model = SeqMED().fit(scaler.transform(BATCHES[0][0]), BATCHES[0][1])
    for X, y in BATCHES[1:]:
        model.partial_fit(scaler.transform(X), y)
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), model.decision_function(scaler.transform(PROBES))
    )


def test_after_a_fit_that_failed_the_stream_goes_on():
    pipeline, expected = learned(make()), learned(make())
    with pytest.raises(ValueError, match="no labeled row"):
        pipeline.fit(100 * BATCHES[3][0] + 5, np.full(40, np.nan))
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), expected.decision_function(PROBES)
    )
    for each in (pipeline, expected):
        each.partial_fit(*BATCHES[3])
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), expected.decision_function(PROBES)
    )


def test_the_estimators_given_and_referenced_steps_stay_as_they_are():
    """Copies learn and take their place, so that a reader never finds steps of two batches."""
    scaler, model = StandardScaler(), SeqMED()
    steps = [("scale", scaler), ("model", model)]
    pipeline = StreamPipeline(steps).partial_fit(*BATCHES[0])
    assert not hasattr(scaler, "mean_")
    assert not hasattr(model, "classes_")
    assert steps == [("scale", scaler), ("model", model)]
    fitted = pipeline["model"]
    learned(pipeline, BATCHES[1:])
    assert fitted.n_batches_ == 1
    assert pipeline["model"].n_batches_ == 4


@pytest.mark.parametrize("nothing", ["passthrough", None])
def test_steps_that_do_nothing_and_a_model_alone(nothing):
    steps = [("first", nothing), ("scale", StandardScaler()), ("last", nothing)]
    pipeline = learned(StreamPipeline([*steps, ("model", SeqMED())]))
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), learned(make()).decision_function(PROBES)
    )
    expected = learned(SeqMED()).decision_function(PROBES)
    for steps in ([], [("first", nothing)]):
        alone = learned(StreamPipeline([*steps, ("model", SeqMED())]))
        np.testing.assert_array_equal(alone.decision_function(PROBES), expected)


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


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_weights_with_and_without_the_name_of_their_step(method):
    X, y = BATCHES[0]
    weights = 1.0 + 9.0 * (np.arange(40) < 20)
    scaled = StandardScaler().fit(X, sample_weight=weights)
    for scaler, more in (
        (StandardScaler().fit(X), {}),
        (scaled, {"scale__sample_weight": weights}),
    ):
        expected = SeqMED()
        getattr(expected, method)(scaler.transform(X), y, sample_weight=weights)
        for name in ("sample_weight", "model__sample_weight"):
            pipeline = make()
            getattr(pipeline, method)(X, y, **{name: weights}, **more)
            np.testing.assert_array_equal(
                pipeline.decision_function(PROBES),
                expected.decision_function(scaler.transform(PROBES)),
            )
    X, y = BATCHES[1]  # a later batch fits no transformer
    pipeline.partial_fit(X, y, model__sample_weight=weights, scale__sample_weight=weights)
    expected.partial_fit(scaled.transform(X), y, sample_weight=weights)
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), expected.decision_function(scaled.transform(PROBES))
    )


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"modle__sample_weight": None}, "modle__sample_weight, expected .* scale, model"),
        ({"sample_weight": None, "model__sample_weight": None}, "which are the same"),
        ({"sample_wieght": None}, "sample_wieght"),
    ],
)
def test_arguments_that_no_step_takes(method, more, message):
    pipeline = learned(make())
    before = pipeline.decision_function(PROBES)
    with pytest.raises(TypeError, match=message):
        getattr(pipeline, method)(*BATCHES[0], **more)
    np.testing.assert_array_equal(pipeline.decision_function(PROBES), before)


def test_a_transformer_fitted_elsewhere():
    scaler = StandardScaler().fit(np.vstack([X for X, _ in BATCHES]))
    pipeline = learned(make(scaler=FrozenEstimator(scaler)))
    model = SeqMED()
    for X, y in BATCHES:
        model.partial_fit(scaler.transform(X), y)
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), model.decision_function(scaler.transform(PROBES))
    )


def test_a_pipeline_of_fitted_steps_goes_on():
    whole = learned(make(), BATCHES[:2])
    pipeline = StreamPipeline(list(whole.steps)).partial_fit(*BATCHES[2])
    assert pipeline["model"].n_batches_ == 3
    assert whole["model"].n_batches_ == 2
    whole.partial_fit(*BATCHES[2])
    np.testing.assert_array_equal(
        pipeline.decision_function(PROBES), whole.decision_function(PROBES)
    )


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
    """Nothing learns but the model."""
    pipeline = make(Recorder()).partial_fit(*BATCHES[0])
    before = pickle.dumps(pipeline["scale"])
    rows = BATCHES[1][0]
    pipeline.partial_fit(rows, BATCHES[1][1], new_points=False)
    assert pickle.dumps(pipeline["scale"]) == before
    X, y, new_points = pipeline["model"].calls_[-1]
    np.testing.assert_array_equal(X, pipeline["scale"].transform(rows))
    assert y is BATCHES[1][1]
    assert new_points is False


def test_late_labels_in_the_first_call_are_refused():
    with pytest.raises(ValueError, match=r"new_points=False in its first call.*learn the rows"):
        make(SeqMED()).partial_fit(*BATCHES[0], new_points=False)


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
def test_the_container_of_set_output_changes_nothing(model, tmp_path):
    """Names would reach the classifier, which would then miss them after another set_output."""
    frames = [pd.DataFrame(X, columns=["a", "b", "c"]) for X, _ in BATCHES]
    model = clone(model)
    if isinstance(model, SeqGraphMED):  # frames are ordered by columns, which rounds differently
        model.set_params(estimator=SeqMED(tol=1e-8))
    pipeline, plain = make(clone(model)), learned(make(clone(model)))
    for container, frame, (_, y) in zip(
        ("pandas", "default", "polars", "pandas"), frames, BATCHES, strict=True
    ):
        pipeline.set_output(transform=container).partial_fit(frame, y)
    probes = pd.DataFrame(PROBES, columns=["a", "b", "c"])
    for container in ("polars", "default", "pandas"):
        pipeline.set_output(transform=container)
        scores = pipeline.decision_function(probes)
        np.testing.assert_allclose(scores, plain.decision_function(PROBES), atol=1e-5)
        save(pipeline, tmp_path / "model")
        loaded = load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.decision_function(probes), scores)
        assert type(loaded[:-1].transform(probes)) is type(pipeline[:-1].transform(probes))
    assert isinstance(loaded[:-1].transform(probes), pd.DataFrame)
    pipeline.retract(frames[3][:2])
    assert (
        query(pipeline, probes, 2).tolist()
        == query(plain.retract(BATCHES[3][0][:2]), PROBES, 2).tolist()
    )


def test_set_output_before_the_first_batch_is_saved(tmp_path):
    pipeline = make_stream_pipeline(SeqMED()).set_output(transform="pandas")
    save(pipeline, tmp_path / "model")
    loaded = load(tmp_path / "model").partial_fit(BATCHES[0][0], BATCHES[0][1])
    assert isinstance(loaded[:-1].transform(PROBES), pd.DataFrame)


# -- methods that the final estimator lacks ------------------------------------------------------


@pytest.mark.parametrize("method", ["partial_fit", "retract", "decision_std"])
@pytest.mark.parametrize("final", [LogisticRegression(), "passthrough", None])
def test_methods_the_final_estimator_lacks(method, final):
    pipeline = StreamPipeline([("scale", StandardScaler()), ("model", final)])
    assert not hasattr(pipeline, method)
    with pytest.raises(AttributeError, match=method):
        getattr(pipeline, method)


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
    "another library's": lambda: make(Bayes()),
}


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
    """Also where it has changed before it failed."""
    pipeline = make(Moody()).partial_fit(*BATCHES[0])
    model, before = pipeline["model"], pickle.dumps(pipeline)
    with pytest.raises(RuntimeError, match="not today"):
        pipeline.partial_fit(BATCHES[1][0], 1 - BATCHES[1][1])
    assert pickle.dumps(pipeline) == before
    assert pipeline["model"] is model


# -- as an estimator of scikit-learn --------------------------------------------------------------


def test_cloning_keeps_the_parameters_and_nothing_else():
    pipeline = learned(make(SeqMED(C=3.0)))
    copy = clone(pipeline)
    assert copy["model"].C == 3.0
    assert copy["scale"] is not pipeline["scale"]
    with pytest.raises(NotFittedError):
        copy.predict(PROBES)
    copy.partial_fit(*BATCHES[0])
    assert copy["model"].n_batches_ == 1


def test_parameters_by_name():
    pipeline = make()
    assert set(pipeline.get_params(deep=False)) == {"steps"}
    assert {"scale__with_mean", "model__C"} <= set(pipeline.get_params())
    pipeline.set_params(model__C=3.0, scale="passthrough")
    assert pipeline["model"].C == 3.0
    learned(pipeline)
    model = learned(SeqMED(C=3.0))
    np.testing.assert_array_equal(pipeline.predict(PROBES), model.predict(PROBES))
    with pytest.raises(ValueError, match="after the first batch"):
        pipeline.set_params(model__kernel="linear").partial_fit(*BATCHES[0])


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
            {"model__gamma": [1e-6, 0.3], "scale__with_mean": [False, True]},
            cv=SemiSupervisedSplit(3),
            error_score="raise",
        ).fit(X, gaps)
    assert scores.mean() > 0.6
    assert search.best_params_["model__gamma"] == 0.3
    best = search.best_estimator_.partial_fit(*make_batch(6))
    assert best["model"].n_batches_ == 2


def test_input_is_neither_changed_nor_kept():
    X, y = BATCHES[0][0].copy(), BATCHES[0][1].copy()
    pipeline = make().partial_fit(X, y)
    np.testing.assert_array_equal(X, BATCHES[0][0])
    scores = pipeline.decision_function(PROBES)
    X[:] = 1e9
    np.testing.assert_array_equal(pipeline.decision_function(PROBES), scores)
