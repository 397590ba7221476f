"""Small values of C: the slack shape "auto" keeps multipliers that can learn."""

from itertools import product

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from paper import curves
from seqmed import SeqGraphMED, SeqLapMED, SeqMED, load, save

ESTIMATORS = [SeqMED, SeqLapMED]


def table(loader):
    X, y = loader(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return StandardScaler().fit_transform(X)[order], y[order]


@pytest.fixture(scope="module")
def cancer():
    return table(load_breast_cancer)


@pytest.fixture(scope="module")
def wine():
    return table(load_wine)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("C", "bias"), [(1e-3, "auto"), *product([0.1, 0.5, 1.0, 1.01, 1.5], ["auto", "exact"])]
)
def test_a_small_bound_learns(estimator, C, bias, cancer):
    X, y = cancer
    model = estimator(C=C, bias=bias)
    for start in (0, 100, 200):
        model.partial_fit(X[start : start + 100], y[start : start + 100])
    assert model.score(X[300:], y[300:]) > 0.85


@pytest.mark.parametrize("C", [1.01, 1.1])
def test_bounds_near_one_do_not_leave_most_multipliers_at_zero(C):
    """With the shape 1, most multipliers were 0, and accuracy was below that of one class."""
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    model = SeqMED(C=C).fit(X[order[:300]], y[order[:300]])
    assert model.score(X[order[300:]], y[order[300:]]) > 0.9


def test_the_usual_grid(wine):
    X, y = wine
    search = GridSearchCV(SeqMED(), {"C": [0.1, 1, 10]}, cv=3, error_score="raise").fit(X, y)
    assert search.cv_results_["mean_test_score"].min() > 0.9
    SeqGraphMED(SeqMED(C=0.1)).fit(X, y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("C", "shape"), [(0.1, 0.05), (1.0, 0.5), (1.99, 0.995), (2.0, 1.0)])
def test_auto_is_half_of_the_bound_and_at_most_one(estimator, C, shape, wine):
    """Sample and class weights multiply both, after the shape has been chosen."""
    X, y = wine
    weights = np.random.default_rng(1).uniform(0.5, 3.0, len(y))
    options = {"C": C, "class_weight": {0: 2.0}}
    auto = estimator(**options).fit(X, y, sample_weight=weights)
    given = estimator(slack_shape=shape, **options).fit(X, y, sample_weight=weights)
    window = auto.posterior_.window
    np.testing.assert_allclose(window.shapes / window.bounds, shape / C)
    np.testing.assert_array_equal(auto.decision_function(X), given.decision_function(X))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("C", [2.0, 10.0, 1e3])
def test_larger_bounds_have_the_shape_one(estimator, C, wine):
    X, y = wine
    auto, one = estimator(C=C), estimator(C=C, slack_shape=1.0)
    for start in (0, 60, 120):
        auto.partial_fit(X[start : start + 60], y[start : start + 60])
        one.partial_fit(X[start : start + 60], y[start : start + 60])
    np.testing.assert_array_equal(auto.decision_function(X), one.decision_function(X))


def test_the_shape_belongs_to_the_batch(wine, tmp_path):
    """C may change: every row keeps the bound and the shape of its own batch."""
    X, y = wine
    model = SeqMED(C=0.5).partial_fit(X[:50], y[:50])
    model.set_params(C=10.0).partial_fit(X[50:80], y[50:80])
    model.set_params(slack_shape=0.25).partial_fit(X[80:100], y[80:100])
    save(model, tmp_path / "model")
    for each in (model, load(tmp_path / "model")):
        window = each.posterior_.window
        np.testing.assert_array_equal(window.bounds, np.repeat([0.5, 10.0, 10.0], [50, 30, 20]))
        np.testing.assert_array_equal(window.shapes, np.repeat([0.25, 1.0, 0.25], [50, 30, 20]))


def test_a_batch_of_many_labels_makes_c_small(wine):
    """With gamma_A, C_t = 1 / (2 gamma_A l) falls below 1 as batches grow."""
    X, y = wine
    model = SeqLapMED(gamma_A=0.01, gamma_I=0.1).partial_fit(X[:40], y[:40])
    assert pytest.approx(1.25) == model.update_info_.C
    model.partial_fit(X[40:140], y[40:140])
    assert pytest.approx(0.5) == model.update_info_.C
    window = model.posterior_.window
    np.testing.assert_allclose(window.shapes, np.repeat([0.625, 0.25], [40, 100]))
    assert model.score(X[140:], y[140:]) > 0.85


def test_the_figures_of_the_paper_have_the_shape_one():
    models = curves.seqmed({"C": 1.5}), curves.seqlapmed({"C": 1.5, "beta": 1.0})
    assert [model.slack_shape for model in models] == [1.0, 1.0]
    with pytest.raises(ValueError, match="expected C > slack_shape=1"):
        curves.seqmed({"C": 0.5}).fit(np.eye(2), [0, 1])


def test_a_bound_whose_quotients_would_overflow_is_refused(wine):
    with pytest.raises(ValueError, match=r"C=1e-200, expected at least 1e-100: raise C"):
        SeqMED(C=1e-200).fit(*wine)
