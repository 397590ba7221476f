"""Bad input raises a clear error and leaves the model unchanged.

Every case is tried twice: on a new model, and on one that has learned two batches. The error must
be a ValueError that says what was wrong, what is accepted and what to do. The fitted model must be
unchanged, and must learn further batches as if there had been no error.
"""

from __future__ import annotations

import datetime
import pickle
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED
from seqmed.estimators import validation

ESTIMATORS = [SeqMED, SeqLapMED]


def make_batch(seed, n=24, p=3):
    generator = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return generator.normal(size=(n, p)) + 1.5 * y[:, None], y


FIRST, SECOND, THIRD, PROBES = make_batch(1), make_batch(2), make_batch(3), make_batch(4)[0]


def learned(estimator, **parameters):
    """A model that has learned two batches."""
    return estimator(**parameters).partial_fit(*FIRST).partial_fit(*SECOND)


def observed(model):
    """All visible results of a fitted model."""
    return {
        "scores": model.decision_function(PROBES),
        "spread": model.decision_std(PROBES),
        "labels": model.predict(PROBES),
        "classes": model.classes_,
        "intercept": model.intercept_,
        "n_batches": model.n_batches_,
        "n_features": model.n_features_in_,
        "gap": model.duality_gap_,
    }


def assert_same(first, second):
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value, err_msg=name)


def assert_refused(model, method, arguments, words, error=ValueError):
    """Call, expect an error with these words, and return its text."""
    with pytest.raises(error) as refusal:
        getattr(model, method)(**arguments)
    text = str(refusal.value)
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"
    return text


def assert_nothing_lost(model, arguments, words):
    """Expect a refused batch to leave a fitted model unchanged and able to learn more batches."""
    untouched = pickle.loads(pickle.dumps(model))
    before = observed(model)
    assert_refused(model, "partial_fit", arguments, words)
    assert_same(before, observed(model))
    assert_same(
        observed(untouched.partial_fit(*THIRD)),
        observed(model.partial_fit(*THIRD)),
    )
    assert model.n_batches_ == 3


# -- bad batches ----------------------------------------------------------------------------------


class Bad(NamedTuple):
    """Arguments of a call that must be refused, and words of the error message."""

    arguments: dict[str, Any]
    words: tuple[str, ...]


def spoiled(value):
    points = THIRD[0].copy()
    points[5, 1] = value
    return points


BAD_BATCHES = {
    "empty batch": Bad(
        {"X": np.empty((0, 3)), "y": np.empty(0)},
        ("0 sample(s)", "minimum of 1"),
    ),
    "empty batch of lists": Bad({"X": [], "y": []}, ("got", "Reshape your data")),
    "no columns": Bad({"X": np.empty((4, 0)), "y": [0, 1, 0, 1]}, ("0 feature(s)", "minimum of 1")),
    "flat X": Bad({"X": np.arange(4.0), "y": [0, 1, 0, 1]}, ("Expected 2D array", "Reshape")),
    "three-dimensional X": Bad({"X": np.zeros((4, 3, 2)), "y": [0, 1, 0, 1]}, ("dim 3",)),
    "y too short": Bad({"X": THIRD[0], "y": THIRD[1][:-1]}, ("inconsistent", "[24, 23]")),
    "y too long": Bad({"X": THIRD[0][:-1], "y": THIRD[1]}, ("inconsistent", "[23, 24]")),
    "y missing": Bad({"X": THIRD[0], "y": None}, ("requires y", "None")),
    "NaN in X": Bad({"X": spoiled(np.nan), "y": THIRD[1]}, ("Input X contains NaN",)),
    "infinity in X": Bad({"X": spoiled(np.inf), "y": THIRD[1]}, ("Input X contains infinity",)),
    "-infinity in X": Bad({"X": spoiled(-np.inf), "y": THIRD[1]}, ("Input X contains infinity",)),
    "NaN in sparse X": Bad(
        {"X": sp.csr_array(spoiled(np.nan)), "y": THIRD[1]}, ("Input X contains NaN",)
    ),
    "NaN among unlabeled rows": Bad(
        {"X": spoiled(np.nan), "y": np.full(24, np.nan)}, ("Input X contains NaN",)
    ),
    "words in X": Bad(
        {"X": [["a", "b", "c"]] * 4, "y": [0, 1, 0, 1]},
        ("contains 'a'", "finite numbers", "make_stream_pipeline"),
    ),
    "complex X": Bad({"X": THIRD[0] + 1j, "y": THIRD[1]}, ("Complex data not supported",)),
    "continuous y": Bad({"X": THIRD[0], "y": THIRD[0][:, 0]}, ("continuous", "discrete")),
    "two columns of y": Bad(
        {"X": THIRD[0], "y": np.zeros((24, 2))}, ("1d array", "(24, 2)"),
    ),
    "labels of two types": Bad(
        {"X": THIRD[0], "y": ["a", 1] * 12}, ("mixes label types", "expected one", "convert"),
    ),
    "a label outside classes": Bad(
        {"X": THIRD[0], "y": THIRD[1], "classes": [0, 2]},
        ("y contains 1", "expected one of classes=[0, 2]", "leave classes out"),
    ),
    "negative weight": Bad(
        {"X": THIRD[0], "y": THIRD[1], "sample_weight": np.r_[-1.0, np.ones(23)]},
        ("Negative values", "sample_weight"),
    ),
    "weights of a wrong length": Bad(
        {"X": THIRD[0], "y": THIRD[1], "sample_weight": np.ones(23)},
        ("sample_weight.shape == (23,)", "expected (24,)"),
    ),
    "weights in two dimensions": Bad(
        {"X": THIRD[0], "y": THIRD[1], "sample_weight": np.ones((24, 2))}, ("1D array",)
    ),
    "NaN weight": Bad(
        {"X": THIRD[0], "y": THIRD[1], "sample_weight": np.r_[np.nan, np.ones(23)]},
        ("sample_weight contains NaN",),
    ),
    "infinite weight": Bad(
        {"X": THIRD[0], "y": THIRD[1], "sample_weight": np.r_[np.inf, np.ones(23)]},
        ("sample_weight contains infinity",),
    ),
    "all weights zero": Bad(
        {"X": THIRD[0], "y": THIRD[1], "sample_weight": np.zeros(24)},
        ("Sample weights must contain at least one non-zero",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED, GraphPropagation, SeqGraphMED])
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["a", 1.0]] * 4, "'a'"),
        (["win a prize", "lunch", "win", "see you"], "'win a prize'"),
        (pd.DataFrame({"size": [1, 2, 3, 4], "colour": list("rgbr")}), "'r'"),
        (pd.DataFrame({"colour": pd.Categorical(list("rgbr"))}), "'r'"),
        ([[1.0, datetime.date(2026, 1, 1)]] * 4, "'2026-01-01'"),
        (pd.DataFrame({"size": pd.array([1, None, 3, 4], dtype="Int64")}), "NaN (missing values)"),
        ([[1.0, None]] * 4, "NaN (missing values)"),
        ([["1", ""]] * 4, "NaN (missing values)"),
        ([[1.0, np.nan]] * 4, "NaN (missing values)"),
        (sp.csr_array([[1.0, np.nan]] * 4), "NaN (missing values)"),
    ],
)
def test_cells_that_are_no_numbers_name_the_pipeline_that_takes_them(estimator, rows, words):
    labels = [0, 1, 0, 1]
    fitted = estimator().fit(np.ones((4, np.shape(rows)[-1])) * np.arange(4)[:, None], labels)
    for call in (
        lambda: estimator().fit(rows, labels),
        lambda: estimator().partial_fit(rows, labels),
    ):
        with pytest.raises(ValueError, match="finite numbers") as refusal:
            call()
        assert f"Input X contains {words}" in str(refusal.value)
        assert f"seqmed.make_stream_pipeline({estimator.__name__}(...))" in str(refusal.value)
    if not hasattr(rows, "columns"):  # a classifier of arrays asks for arrays first
        with pytest.raises(ValueError, match="make_stream_pipeline"):
            fitted.predict(rows)


def test_other_errors_do_not_name_the_pipeline():
    """Numbers as text are accepted; column names, kernel values and infinity are other cases."""
    assert SeqMED().fit([["1", "2"], ["3", "-4.5"]], [0, 1]).n_features_in_ == 2
    frame = pd.DataFrame({"b": ["x", "y"], "a": [1.0, 2.0]})
    model = SeqMED().fit(pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 1.0]}), [0, 1])
    cases = (
        (lambda: model.predict(frame), "feature names should match"),
        (
            lambda: SeqMED("precomputed").fit(np.full((2, 2), np.nan), [0, 1]),
            "Input X contains NaN",
        ),
        (lambda: SeqMED().fit([[1.0, np.inf], [0.0, 1.0]], [0, 1]), "contains infinity"),
        (lambda: SeqMED().fit([[1.0, 2.0], [1.0]], [0, 1]), "inhomogeneous"),
    )
    for call, words in cases:
        with pytest.raises(ValueError, match=words) as refusal:
            call()
        assert "make_stream_pipeline" not in str(refusal.value)


@pytest.mark.parametrize("name", BAD_BATCHES)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_bad_batch_is_refused_and_a_learning_model_goes_on(estimator, name):
    assert_nothing_lost(learned(estimator), *BAD_BATCHES[name])


@pytest.mark.parametrize("name", BAD_BATCHES)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_bad_batch_leaves_a_new_model_new(estimator, name):
    model = estimator()
    assert_refused(model, "partial_fit", *BAD_BATCHES[name])
    assert vars(model) == vars(estimator())


@pytest.mark.parametrize("name", [name for name in BAD_BATCHES if "classes" not in name])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_fit_refuses_it_too_and_keeps_what_was_learned(estimator, name):
    model = learned(estimator)
    before = observed(model)
    assert_refused(model, "fit", *BAD_BATCHES[name])
    assert_same(before, observed(model))


@pytest.mark.parametrize("columns", [1, 2, 4])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_wrong_number_of_features(estimator, columns, make):
    points, y = make_batch(3, p=columns)
    words = (f"X has {columns} features", f"{estimator.__name__} is expecting 3 features")
    model = learned(estimator)
    assert_nothing_lost(model, {"X": make(points), "y": y}, words)
    for method in ("predict", "decision_function", "decision_std"):
        assert_refused(model, method, {"X": make(points)}, words)


@pytest.mark.parametrize("method", ["predict", "decision_function", "decision_std"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_predicting_for_bad_points_is_refused(estimator, value, method):
    model = learned(estimator)
    before = observed(model)
    assert_refused(model, method, {"X": spoiled(value)}, ("Input X contains",))
    assert_refused(model, method, {"X": np.empty((0, 3))}, ("0 sample(s)", "minimum of 1"))
    assert_refused(model, method, {"X": THIRD[0][0]}, ("Expected 2D array", "Reshape"))
    assert_same(before, observed(model))


@pytest.mark.parametrize("method", ["predict", "decision_function", "decision_std"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_predicting_before_learning(estimator, method):
    words = (f"This {estimator.__name__} instance is not fitted yet", "Call 'fit'")
    assert_refused(estimator(), method, {"X": PROBES}, words, error=NotFittedError)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_attributes_before_learning(estimator):
    model = estimator()
    for name in ("support_vectors_", "dual_coef_", "coef_"):
        with pytest.raises(AttributeError, match="not fitted yet"):
            getattr(model, name)
    with pytest.raises(AttributeError, match="linear"):
        _ = learned(estimator).coef_
    with pytest.raises(AttributeError, match="use coef_"):
        _ = learned(estimator, kernel="linear").support_vectors_


# -- parameters -----------------------------------------------------------------------------------


class Parameters(NamedTuple):
    """Parameters that must be refused, and words of the error message."""

    estimators: list[type]
    values: dict[str, Any]
    words: tuple[str, ...]


SMALL_BOUND = ("expected C > slack_shape", "nothing can be learned", "Raise C", "lower slack_shape")
MED = {"slack_shape": 1.0}
ONE_PAIR = ("expected one pair", "(C, beta) or (gamma_A, gamma_I)", "defaults")

BAD_PARAMETERS = {
    "C below slack_shape": Parameters(ESTIMATORS, {"C": 0.5, **MED}, ("C=0.5", *SMALL_BOUND)),
    "C at slack_shape": Parameters(ESTIMATORS, {"C": 1.0, **MED}, ("C=1", *SMALL_BOUND)),
    "slack_shape above C": Parameters(
        ESTIMATORS, {"slack_shape": 20.0}, ("slack_shape=20", *SMALL_BOUND)
    ),
    "gamma_A that makes C small": Parameters(
        [SeqLapMED],
        {"gamma_A": 0.5, "gamma_I": 0.1, **MED},
        ("gamma_A=0.5", "24 labels", *SMALL_BOUND),
    ),
    "C zero": Parameters(ESTIMATORS, {"C": 0.0}, ("'C' parameter", "range (0.0", "Got 0.0")),
    "C negative": Parameters(ESTIMATORS, {"C": -3.0}, ("'C' parameter", "range (0.0", "Got -3.0")),
    "C NaN": Parameters(ESTIMATORS, {"C": np.nan}, ("C", "nan")),
    "C infinite": Parameters(ESTIMATORS, {"C": np.inf}, ("C", "inf")),
    "slack_shape negative": Parameters(
        ESTIMATORS, {"slack_shape": -0.1}, ("'slack_shape' parameter", "range [0.0", "Got -0.1")
    ),
    "slack_shape a word": Parameters(
        ESTIMATORS, {"slack_shape": "half"}, ("'slack_shape' parameter", "'auto'", "Got 'half'")
    ),
    "beta negative": Parameters(
        [SeqLapMED], {"beta": -1.0}, ("'beta' parameter", "range [0.0", "Got -1.0")
    ),
    "beta infinite": Parameters([SeqLapMED], {"beta": np.inf}, ("beta", "inf")),
    "tol zero": Parameters(ESTIMATORS, {"tol": 0.0}, ("'tol' parameter", "Got 0.0")),
    "max_iter below -1": Parameters(ESTIMATORS, {"max_iter": -2}, ("'max_iter'", "Got -2")),
    "class_weight a word": Parameters(
        ESTIMATORS, {"class_weight": "even"}, ("'class_weight'", "'balanced'", "Got 'even'")
    ),
    "class_weight zero": Parameters(
        ESTIMATORS, {"class_weight": {0: 0.0}}, ("class_weight", "positive", "remove the rows")
    ),
    "both parametrisations, C": Parameters(
        [SeqLapMED],
        {"C": 5.0, "gamma_A": 1e-3, "gamma_I": 1.0},
        ("C=5", "gamma_A=0.001", "gamma_I=1", *ONE_PAIR),
    ),
    "both parametrisations, beta": Parameters(
        [SeqLapMED],
        {"beta": 0.25, "gamma_A": 1e-3, "gamma_I": 1.0},
        ("beta=0.25", "gamma_A=0.001", "gamma_I=1", *ONE_PAIR),
    ),
    "only gamma_A": Parameters(
        [SeqLapMED], {"gamma_A": 1e-3}, ("gamma_A=0.001", "gamma_I=None", *ONE_PAIR)
    ),
    "only gamma_I": Parameters(
        [SeqLapMED], {"gamma_I": 1e-3}, ("gamma_A=None", "gamma_I=0.001", *ONE_PAIR)
    ),
    "gamma_A zero": Parameters(
        [SeqLapMED], {"gamma_A": 0.0, "gamma_I": 1.0}, ("'gamma_A' parameter", "Got 0.0")
    ),
    "gamma_I negative": Parameters(
        [SeqLapMED], {"gamma_A": 1e-3, "gamma_I": -1.0}, ("'gamma_I' parameter", "Got -1.0")
    ),
}


PARAMETER_CASES = [
    (estimator, name) for name, bad in BAD_PARAMETERS.items() for estimator in bad.estimators
]


@pytest.mark.parametrize(("estimator", "name"), PARAMETER_CASES)
def test_bad_parameters_are_refused_from_the_start(estimator, name):
    _, values, words = BAD_PARAMETERS[name]
    for method in ("fit", "partial_fit"):
        model = estimator(**values)
        assert_refused(model, method, {"X": FIRST[0], "y": FIRST[1]}, words)
        assert not hasattr(model, "classes_")


@pytest.mark.parametrize(("estimator", "name"), PARAMETER_CASES)
def test_bad_parameters_between_batches_lose_nothing(estimator, name):
    _, values, words = BAD_PARAMETERS[name]
    model = learned(estimator)
    good = {parameter: getattr(model, parameter) for parameter in values}
    untouched = pickle.loads(pickle.dumps(model))
    before = observed(model)
    model.set_params(**values)
    assert_refused(model, "partial_fit", {"X": THIRD[0], "y": THIRD[1]}, words)
    assert_same(before, observed(model))
    model.set_params(**good)
    assert_same(observed(untouched.partial_fit(*THIRD)), observed(model.partial_fit(*THIRD)))


# every parameter that may not change between batches, with another value
FIXED = {
    "kernel": "linear",
    "gamma": 0.7,
    "degree": 2,
    "coef0": 1.0,
    "bias": "exact",
    "n_neighbors": 4,
    "weights": "binary",
    "heat_width": 0.3,
    "recursion": "exact",
    "n_landmarks": 30,
    "averaging": True,
    "budget": 40,
}
CHANGEABLE = {
    "C": 3.0,
    "slack_shape": 0.5,
    "beta": 2.0,
    "class_weight": {0: 2.0},
    "tol": 1e-6,
    "max_iter": 100_000,
    "window": 24,
    "lag": 1,
    "forgetting": 0.5,
    "unlabeled": 7,
    "random_state": 3,
}


def test_every_parameter_is_either_fixed_or_changeable():
    pair = {"gamma_A", "gamma_I"}  # not alone: see the test of the pair below
    assert set(SeqLapMED().get_params()) == set(FIXED) | set(CHANGEABLE) | pair


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (estimator, name)
        for estimator in ESTIMATORS
        for name in FIXED
        if name in estimator().get_params()
    ],
)
def test_a_fixed_parameter_changed_between_batches(estimator, name):
    model = learned(estimator)
    untouched = pickle.loads(pickle.dumps(model))
    old, new = getattr(model, name), FIXED[name]
    before = observed(model)
    model.set_params(**{name: new})
    words = (f"{name} was changed from {old!r} to {new!r}", "expected the same value", "new model")
    text = assert_refused(model, "partial_fit", {"X": THIRD[0], "y": THIRD[1]}, words)
    assert f"set {name}={old!r} again" in text
    assert_same(before, observed(model))
    model.set_params(**{name: old})
    assert_same(observed(untouched.partial_fit(*THIRD)), observed(model.partial_fit(*THIRD)))
    # a new model is the other remedy
    assert model.set_params(**{name: new}).fit(*THIRD).n_batches_ == 1


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (estimator, name)
        for estimator in ESTIMATORS
        for name in CHANGEABLE
        if name in estimator().get_params()
    ],
)
def test_other_parameters_may_change_between_batches(estimator, name):
    model = learned(estimator).set_params(**{name: CHANGEABLE[name]}).partial_fit(*THIRD)
    assert model.n_batches_ == 3
    if name in ("C", "slack_shape", "beta", "class_weight", "window", "lag", "forgetting"):
        unchanged = learned(estimator).partial_fit(*THIRD)
        difference = model.decision_function(PROBES) - unchanged.decision_function(PROBES)
        assert np.abs(difference).max() > 1e-4  # it has an effect


def test_the_pair_of_gammas_may_come_between_batches():
    """``C = 1 / (2 l gamma_A)`` and ``beta = gamma_I / (2 gamma_A n^2)``, for 24 labels of 24."""
    model = learned(SeqLapMED).set_params(gamma_A=1e-3, gamma_I=1.0)
    model.partial_fit(*THIRD)
    equal = learned(SeqLapMED)
    equal.set_params(C=1 / (2 * 24 * 1e-3), beta=1 / (2e-3 * 24**2)).partial_fit(*THIRD)
    np.testing.assert_allclose(
        model.decision_function(PROBES), equal.decision_function(PROBES), rtol=1e-9
    )


def test_gamma_a_is_checked_batch_by_batch():
    """A larger batch makes a smaller C: refused when it falls below slack_shape, not before."""
    model = SeqLapMED(gamma_A=1 / 50, gamma_I=0.0, **MED).partial_fit(FIRST[0][:20], FIRST[1][:20])
    before = model.decision_function(PROBES)
    words = ("gamma_A=0.02", "26 labels", "C=0.961538", *SMALL_BOUND)
    points, y = make_batch(5, n=26)
    assert_refused(model, "partial_fit", {"X": points, "y": y}, words)
    np.testing.assert_array_equal(model.decision_function(PROBES), before)
    unlabeled = np.r_[y[:20], np.full(6, -1)]
    assert model.partial_fit(points, unlabeled).n_batches_ == 2


# -- kernels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_precomputed_kernel_cannot_be_continued(estimator):
    gram = FIRST[0] @ FIRST[0].T
    words = ("kernel='precomputed'", "expected a kernel that can be evaluated", "call fit")
    model = estimator(kernel="precomputed")
    assert_refused(model, "partial_fit", {"X": gram, "y": FIRST[1]}, words)
    before = model.fit(gram, FIRST[1]).decision_function(gram)
    assert_refused(model, "partial_fit", {"X": gram, "y": FIRST[1]}, words)
    np.testing.assert_array_equal(model.decision_function(gram), before)
    assert model.n_batches_ == 1


@pytest.mark.parametrize("shape", [(24, 23), (24, 25), (24, 1)])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_precomputed_kernel_must_be_square(estimator, make, shape):
    words = ("kernel='precomputed'", str(shape), "expected a square matrix", "between all")
    model = estimator(kernel="precomputed")
    assert_refused(model, "fit", {"X": make(np.ones(shape)), "y": FIRST[1]}, words)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_precomputed_kernel_has_no_standard_deviation_at_new_points(estimator):
    gram = FIRST[0] @ FIRST[0].T
    model = estimator(kernel="precomputed").fit(gram, FIRST[1])
    words = ("kernel='precomputed'", "k(x, x)", "callable kernel")
    assert_refused(model, "decision_std", {"X": gram}, words)


COUNTS = np.random.default_rng(5).poisson(1.0, size=(24, 6)).astype(float)
SPECTRAL = ("recursion='spectral'", "expected dense X", "Use recursion='landmarks' or 'exact'")


def test_spectral_with_a_kernel_of_counts():
    model = SeqLapMED(kernel="tfidf", recursion="spectral")
    for method in ("fit", "partial_fit"):
        arguments = {"X": COUNTS, "y": FIRST[1]}
        assert_refused(model, method, arguments, ("a TfIdf kernel", *SPECTRAL))


def test_spectral_with_a_precomputed_kernel():
    model = SeqLapMED(kernel="precomputed", recursion="spectral")
    arguments = {"X": FIRST[0] @ FIRST[0].T, "y": FIRST[1]}
    assert_refused(model, "fit", arguments, ("a Precomputed kernel", *SPECTRAL))


def test_spectral_with_sparse_rows():
    model = SeqLapMED(recursion="spectral")
    arguments = {"X": sp.csr_array(FIRST[0]), "y": FIRST[1]}
    assert_refused(model, "partial_fit", arguments, ("sparse X", *SPECTRAL))
    assert model.partial_fit(*FIRST).partial_fit(**arguments).n_batches_ == 2  # dense by now


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_negative_counts(estimator, make):
    negative = COUNTS.copy()
    negative[3, 2] = -2.0
    words = ("kernel='tfidf'", "negative entry (-2)", "counts >= 0", "choose another kernel")
    bad, good = {"X": make(negative), "y": FIRST[1]}, {"X": make(COUNTS), "y": FIRST[1]}
    model = estimator(kernel="tfidf")
    assert_refused(model, "partial_fit", bad, words)
    model.partial_fit(**good)
    before = model.decision_function(COUNTS)
    assert_refused(model, "partial_fit", bad, words)
    assert_refused(model, "predict", {"X": make(negative)}, words)
    np.testing.assert_array_equal(model.decision_function(COUNTS), before)
    assert model.partial_fit(**good).n_batches_ == 2


class Switchable:
    """A kernel function that works, until it is told to return something else."""

    def __init__(self):
        self.spoil = None

    def __call__(self, left, right):
        values = np.exp(-0.5 * ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2))
        return values if self.spoil is None else self.spoil(values)


def with_nan(values):
    values = values.copy()
    values[0, -1] = np.nan
    return values


BAD_KERNELS = {
    "too few columns": (lambda k: k[:, :-1], ("the kernel function returned shape", "expected (")),
    "a flat array": (lambda k: k.ravel(), ("the kernel function returned shape", "(n, m)")),
    "a number": (lambda k: 1.0, ("the kernel function returned shape ()", "(n, m)")),
    "NaN": (
        with_nan,
        ("the kernel function returned NaN", "expected finite", "correct the function"),
    ),
    "infinity": (
        lambda k: k * np.inf,
        ("returned NaN or infinity", "expected finite", "correct the function"),
    ),
}


@pytest.mark.parametrize("name", BAD_KERNELS)
@pytest.mark.parametrize(
    ("estimator", "parameters"),
    [
        (SeqMED, {}),
        (SeqLapMED, {"recursion": "landmarks"}),
        (SeqLapMED, {"recursion": "exact"}),
        (SeqLapMED, {"recursion": "spectral"}),
    ],
    ids=["SeqMED", "landmarks", "exact", "spectral"],
)
def test_a_kernel_function_that_goes_wrong(estimator, parameters, name):
    spoil, words = BAD_KERNELS[name]
    function = Switchable()
    function.spoil = spoil
    fresh = estimator(kernel=function, **parameters)
    assert_refused(fresh, "fit", {"X": FIRST[0], "y": FIRST[1]}, words)
    assert not hasattr(fresh, "classes_")
    function.spoil = None
    model = learned(estimator, kernel=function, **parameters)
    untouched = learned(estimator, kernel=Switchable(), **parameters)
    before = observed(model)
    function.spoil = spoil
    assert_refused(model, "partial_fit", {"X": THIRD[0], "y": THIRD[1]}, words)
    function.spoil = None
    assert_same(before, observed(model))
    assert_same(observed(untouched.partial_fit(*THIRD)), observed(model.partial_fit(*THIRD)))


# Which of two limits is met first, a feature's or a kernel value's, depends on the kernel.
OVERFLOW = ("row ", "expected ", "scale the features")
RECURSIONS = {
    "SeqMED": (SeqMED, {}),
    "landmarks": (SeqLapMED, {"recursion": "landmarks"}),
    "exact": (SeqLapMED, {"recursion": "exact"}),
    "spectral": (SeqLapMED, {"recursion": "spectral"}),
}
FORMATS = [
    (recursion, make)
    for recursion in RECURSIONS
    for make in (np.asarray, sp.csr_array, sp.csr_matrix)
    if recursion != "spectral" or make is np.asarray
]


@pytest.mark.parametrize(("recursion", "make"), FORMATS)
@pytest.mark.parametrize("kernel", ["linear", "poly"])
@pytest.mark.parametrize("size", [1e60, 1e200])
def test_a_kernel_that_overflows(size, kernel, recursion, make):
    """Rows so large that the kernel, or products of its values, overflow."""
    if kernel == "linear" and size == 1e60:
        size = 1e90  # where x . x alone is still a number
    estimator, parameters = RECURSIONS[recursion]
    huge = {"X": make(size * THIRD[0]), "y": THIRD[1]}
    model = estimator(kernel=kernel, gamma=0.5, **parameters)
    assert_refused(model, "partial_fit", huge, OVERFLOW)
    assert not hasattr(model, "classes_")
    model.partial_fit(make(FIRST[0]), FIRST[1]).partial_fit(make(SECOND[0]), SECOND[1])
    before = observed(model)
    assert_refused(model, "partial_fit", huge, OVERFLOW)
    assert_same(before, observed(model))
    assert model.partial_fit(make(THIRD[0]), THIRD[1]).n_batches_ == 3


@pytest.mark.parametrize("recursion", RECURSIONS)
def test_overflow_among_unlabeled_rows_only(recursion):
    estimator, parameters = RECURSIONS[recursion]
    points = THIRD[0].copy()
    points[3] = 1e200
    y = THIRD[1].astype(float)
    y[3] = np.nan
    model = learned(estimator, kernel="linear", **parameters)
    assert_nothing_lost(model, {"X": points, "y": y}, ("row 3", *OVERFLOW))


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gamma_scale_on_features_whose_variance_overflows(estimator, make, kernel):
    """``gamma="scale"`` cannot be measured on features of 1e200: refused with the remedy."""
    model = estimator(kernel=kernel)
    arguments = {"X": make(1e200 * FIRST[0]), "y": FIRST[1]}
    assert_refused(model, "partial_fit", arguments, ("scale the features",))
    assert not hasattr(model, "classes_")


# -- feature names --------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_renamed_columns(estimator):
    def frame(batch, names):
        return pd.DataFrame(batch[0], columns=list(names))

    model = estimator().partial_fit(frame(FIRST, "abc"), FIRST[1])
    before = model.decision_function(frame(SECOND, "abc"))
    words = ("feature names should match", "unseen at fit time", "- d")
    assert_refused(model, "partial_fit", {"X": frame(SECOND, "abd"), "y": SECOND[1]}, words)
    order = ("feature names", "same order")
    assert_refused(model, "partial_fit", {"X": frame(SECOND, "acb"), "y": SECOND[1]}, order)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(model.decision_function(frame(SECOND, "abc")), before)
    assert model.partial_fit(frame(SECOND, "abc"), SECOND[1]).n_batches_ == 2


# -- rows that need no conversion ------------------------------------------------------------------


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf, 1e71, 1.7e308])
def test_plain_rows_are_refused_like_others(strange):
    """Arrays of doubles of the known width skip conversion, but not the checks."""
    X = np.random.default_rng(0).normal(size=(20, 3))
    model = SeqMED().partial_fit(X, np.arange(20) % 2)
    assert validation.are_plain(X, model)
    bad = X.copy()
    bad[4, 1] = strange
    for call in (model.predict, lambda rows: model.partial_fit(rows, np.arange(20) % 2)):
        messages = []
        for rows in (bad, bad.tolist()):
            with pytest.raises(ValueError, match=r"row 4|NaN|infinity") as error:
                call(rows)
            messages.append(str(error.value))
        assert messages[0] == messages[1]
    assert model.n_batches_ == 1


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((2, 3), dtype=np.float32),
        np.zeros((2, 4)),
        np.zeros(3),
        np.zeros((0, 3)),
        np.zeros((2, 3)).astype(">f8"),
        np.ma.zeros((2, 3)),
        [[0.0, 0.0, 0.0]],
        np.full((2, 3), np.nan),
    ],
)
def test_other_rows_are_not_plain(rows):
    X = np.random.default_rng(0).normal(size=(20, 3))
    model = SeqMED().partial_fit(X, np.arange(20) % 2)
    assert not validation.are_plain(rows, model)


def test_rows_without_names_are_not_plain_where_names_are_known():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 3)), columns=list("abc"))
    model = SeqMED().partial_fit(X, np.arange(20) % 2)
    assert not validation.are_plain(X.to_numpy(), model)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X.to_numpy())


# -- refused means unchanged -----------------------------------------------------------------------


def of_strings(points, others):
    """A kernel function that returns no numbers."""
    return np.full((len(points), len(others)), "one")


SEEDED = {
    "SeqMED": lambda seed: SeqMED(budget=10, class_weight={"a": 2.0}, random_state=seed),
    "SeqLapMED": lambda seed: SeqLapMED(class_weight={"a": 2.0}, random_state=seed),
    "GraphPropagation": lambda seed: GraphPropagation(metric=of_strings, random_state=seed),
    "SeqGraphMED": lambda seed: SeqGraphMED(class_weight={"a": 2.0}, random_state=seed),
    "its estimator": lambda seed: SeqGraphMED(
        SeqMED(budget=10, class_weight={"a": 2.0}, random_state=seed), random_state=0
    ),
}


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("name", SEEDED)
def test_a_refusal_leaves_the_random_state_as_it_was(name, method):
    seed = np.random.RandomState(0)
    before = seed.get_state()
    model = SEEDED[name](seed)
    with pytest.raises((ValueError, TypeError)):
        getattr(model, method)(*FIRST)
    after = seed.get_state()
    assert after[2:] == before[2:]
    assert np.array_equal(after[1], before[1])
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize("key", ["a", (0, 1), True, b"0"])
@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED, SeqGraphMED])
def test_a_wrong_key_of_class_weight_is_named(estimator, key):
    model = estimator(class_weight={0: 2.0, key: 3.0})
    with pytest.raises(ValueError, match="class_weight has the key") as refusal:
        model.partial_fit(*FIRST)
    message = str(refusal.value)
    assert repr(key) in message
    assert "classes [0" in message
    assert not message.startswith("y ")
    assert not hasattr(model, "classes_")
