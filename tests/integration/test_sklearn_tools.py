"""The classifiers among scikit-learn's tools."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import BaggingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.multiclass import OneVsOneClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from seqmed import SeqLapMED, SeqMED

ESTIMATORS = [SeqMED, SeqLapMED]


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600]


# -- pipelines and model selection ----------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_pipeline(iris, estimator):
    X, y = iris
    pipeline = make_pipeline(StandardScaler(), estimator()).fit(X[::2], y[::2])
    assert pipeline.score(X[1::2], y[1::2]) >= 0.92
    by_hand = estimator().fit(StandardScaler().fit(X[::2]).transform(X[::2]), y[::2])
    scaled = StandardScaler().fit(X[::2]).transform(X[1::2])
    np.testing.assert_array_equal(
        pipeline.decision_function(X[1::2]), by_hand.decision_function(scaled)
    )


def test_a_pipeline_step_can_go_on_learning(iris):
    X, y = iris
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    pipeline = make_pipeline(StandardScaler(), SeqMED()).fit(X[:50], y[:50])
    scaler, model = pipeline.named_steps.values()
    model.partial_fit(scaler.transform(X[50:100]), y[50:100])
    assert model.n_batches_ == 2
    assert pipeline.score(X[100:], y[100:]) >= 0.9


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_sample_weight_through_a_pipeline(iris, estimator):
    X, y = iris
    weights = np.where(y == 2, 0.0, 1.0)
    pipeline = make_pipeline(StandardScaler(), estimator())
    pipeline.fit(X, y, **{f"{estimator.__name__.lower()}__sample_weight": weights})
    assert set(pipeline.predict(X).tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("estimator", "grid"),
    [
        (SeqMED, {"C": [2.0, 50.0], "kernel": ["rbf", "linear"]}),
        (SeqLapMED, {"beta": [0.0, 0.1], "recursion": ["exact", "landmarks"]}),
    ],
)
def test_grid_search(iris, estimator, grid):
    X, y = iris
    search = GridSearchCV(
        make_pipeline(StandardScaler(), estimator()),
        {f"{estimator.__name__.lower()}__{name}": values for name, values in grid.items()},
        cv=StratifiedKFold(3, shuffle=True, random_state=0),
        error_score="raise",
    ).fit(X, y)
    assert search.best_score_ >= 0.93
    assert len(search.cv_results_["mean_test_score"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_the_search_sees_differences_between_parameters(iris):
    X, y = iris
    search = GridSearchCV(SeqMED(), {"gamma": [1e-6, 0.5]}, cv=3, error_score="raise").fit(X, y)
    assert search.best_params_ == {"gamma": 0.5}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_cross_validation_slices_a_precomputed_kernel(iris, estimator):
    """On the training folds and between test and training folds, as with the kernel itself."""
    X, y = iris
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    parameters = {"beta": 0.0} if estimator is SeqLapMED else {}
    given = cross_val_score(
        estimator(kernel="precomputed", **parameters), rbf_kernel(X, gamma=0.3), y, cv=folds
    )
    evaluated = cross_val_score(estimator(gamma=0.3, **parameters), X, y, cv=folds)
    np.testing.assert_array_equal(given, evaluated)
    assert given.mean() > 0.93


def test_a_precomputed_kernel_gives_the_same_scores(iris):
    X, y = iris
    gram = rbf_kernel(X, gamma=0.3)
    given = SeqMED(kernel="precomputed", tol=1e-10).fit(gram[::2, ::2], y[::2])
    evaluated = SeqMED(gamma=0.3, tol=1e-10).fit(X[::2], y[::2])
    np.testing.assert_allclose(
        given.decision_function(gram[1::2, ::2]), evaluated.decision_function(X[1::2]), atol=1e-8
    )


def test_slack_shape_zero_predicts_as_svc(iris):
    X, y = iris
    two = y > 0
    X, y = X[two], y[two]
    machine = SeqMED(slack_shape=0.0, bias="exact", C=1.0, tol=1e-8)
    ours = cross_val_predict(machine, X, y, cv=5)
    theirs = cross_val_predict(SVC(C=1.0, tol=1e-8), X, y, cv=5)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: BaggingClassifier(model, n_estimators=3, random_state=0),
        lambda model: OneVsOneClassifier(model),
        lambda model: CalibratedClassifierCV(model, cv=3),
    ],
    ids=["bagging", "one against one", "calibration"],
)
def test_meta_estimators(iris, estimator, wrap):
    X, y = iris
    assert wrap(estimator()).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) >= 0.9


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_text_representation(estimator):
    assert repr(estimator()) == f"{estimator.__name__}()"
    assert repr(estimator(C=3.0)) == f"{estimator.__name__}(C=3.0)"
    assert estimator.__name__ in estimator()._repr_html_()


# -- data frames ----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_column_names_are_kept_and_checked(iris, estimator):
    frame, y = load_iris(return_X_y=True, as_frame=True)
    model = estimator().partial_fit(frame[::3], y[::3])
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    assert model.n_features_in_ == 4
    scores = model.decision_function(frame)
    plain = estimator().partial_fit(iris[0][::3], iris[1][::3])
    np.testing.assert_allclose(scores, plain.decision_function(iris[0]), atol=1e-9)

    renamed = frame.rename(columns={"petal width (cm)": "petal width (mm)"})
    with pytest.raises(ValueError, match=r"(?s)feature names should match.*petal width \(mm\)"):
        model.partial_fit(renamed[1::3], y[1::3])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(renamed)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(iris[0])
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    assert model.partial_fit(frame[1::3], y[1::3]).n_batches_ == 2


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_frames_pass_through_a_pipeline_that_puts_out_frames(estimator):
    """With set_output the classifier sees the names the step before gives."""
    frame, y = load_iris(return_X_y=True, as_frame=True)
    pipeline = make_pipeline(StandardScaler(), estimator()).set_output(transform="pandas")
    assert pipeline.fit(frame, y).score(frame, y) > 0.95
    assert pipeline[-1].feature_names_in_.tolist() == frame.columns.tolist()
    with config_context(transform_output="pandas"):
        again = make_pipeline(StandardScaler(), estimator()).fit(frame, y)
        scores = again.decision_function(frame)
    np.testing.assert_array_equal(scores, pipeline.decision_function(frame))


def test_a_frame_of_names_and_gaps():
    """Labels as pandas reads them from a file: strings with gaps."""
    frame, y = load_iris(return_X_y=True, as_frame=True)
    names = y.map({0: "setosa", 1: "versicolor", 2: "virginica"}).astype("string")
    names[np.random.default_rng(0).random(len(y)) < 0.6] = pd.NA
    order = np.random.default_rng(1).permutation(len(y))
    model = SeqLapMED(random_state=0)
    for rows in np.array_split(order, 3):
        model.partial_fit(frame.iloc[rows], names.iloc[rows])
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    truth = y.map({0: "setosa", 1: "versicolor", 2: "virginica"})
    assert model.score(frame, truth) >= 0.9


# -- sparse rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_array, sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_sparse_rows_score_as_dense_ones(digits, estimator, kernel, make):
    X, y = digits[0] / 16.0, digits[1] % 3
    dense = estimator(kernel=kernel, gamma=0.05, tol=1e-8, random_state=0)
    sparse = estimator(kernel=kernel, gamma=0.05, tol=1e-8, random_state=0)
    for rows in (slice(0, 60), slice(60, 120)):
        dense.partial_fit(X[rows], y[rows])
        sparse.partial_fit(make(X[rows]), y[rows])
    np.testing.assert_allclose(
        sparse.decision_function(make(X[120:300])), dense.decision_function(X[120:300]), atol=1e-5
    )
    np.testing.assert_array_equal(sparse.predict(make(X[120:300])), sparse.predict(X[120:300]))


TEXTS = {
    "ham": ["meet me for lunch", "the report is ready", "lunch at noon then", "see the report"],
    "spam": ["win money now", "cheap money offer", "win a cheap offer now", "free money win"],
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_words_from_a_count_vectorizer(estimator):
    texts = TEXTS["ham"] + TEXTS["spam"]
    labels = ["ham"] * 4 + ["spam"] * 4
    pipeline = make_pipeline(CountVectorizer(), estimator(kernel="tfidf")).fit(texts, labels)
    assert pipeline.predict(["the lunch report", "cheap free offer"]).tolist() == ["ham", "spam"]


# -- a stream as in the README ---------------------------------------------------------------------


def test_a_partially_labeled_stream(digits):
    """Accuracy rises, gaps are reported, and unlabeled rows shrink the spread."""
    X, y = digits
    labels = np.where(np.random.default_rng(0).random(len(y)) < 0.2, y, -1)
    model, accuracies = SeqLapMED(lag=1, random_state=0), []
    for rows in np.array_split(np.arange(500), 5):
        model.partial_fit(X[rows], labels[rows])
        assert model.duality_gap_ >= 0
        accuracies.append(model.score(X[500:], y[500:]))
    assert accuracies[-1] > accuracies[0] + 0.2
    assert accuracies[-1] > 0.75
    before = model.decision_std(X[500:])
    model.partial_fit(X[500:], np.full(100, -1))
    shrunk = before - model.decision_std(X[500:])
    assert shrunk.mean() > 0.004
    assert shrunk.min() >= -1e-9
