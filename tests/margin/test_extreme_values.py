"""Parameters, weights and features at the ends of the range of doubles.

Each gives a finite result or an error that says what was expected; never a division by zero, NaN,
or a warning of numpy.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED
from seqmed.selection.queries import query
from seqmed.selection.search import PrequentialSearch
from seqmed.tables.stream_pipeline import StreamPipeline

# Those whose reciprocal, square or product leaves the range; and the values between.
VALUES = [5e-324, 1e-200, 1e200, 1e300] + [
    pytest.param(value, marks=pytest.mark.exhaustive) for value in (1e-300, 1e-100, 1e100)
]
LABELS = np.arange(30) % 3
POINTS = np.random.default_rng(0).normal(size=(30, 3)) + 2.0 * np.eye(3)[LABELS]
LABELS = np.where(np.arange(30) % 5 == 4, -1, LABELS)


def lap(**parameters):
    return SeqLapMED(**{"random_state": 0, "max_iter": 1000, **parameters})


def med(**parameters):
    return SeqMED(**{"random_state": 0, "max_iter": 1000, **parameters})


MODELS = {
    "SeqMED": med,
    "SeqMED-exact": lambda **p: med(**{"bias": "exact", **p}),
    "SeqMED-budget": lambda **p: med(budget=16, **p),
    "SeqMED-linear": lambda **p: med(kernel="linear", **p),
    "SeqMED-poly": lambda **p: med(kernel="poly", **p),
    "SeqLapMED": lap,
    "SeqLapMED-exact": lambda **p: lap(recursion="exact", **p),
    "SeqLapMED-spectral": lambda **p: lap(recursion="spectral", **p),
    "SeqLapMED-budget": lambda **p: lap(budget=16, **p),
    "SeqGraphMED": lambda **p: SeqGraphMED(random_state=0, **p),
    "SeqGraphMED-SeqLapMED": lambda **p: SeqGraphMED(lap(**p), random_state=0),
    "GraphPropagation": lambda **p: GraphPropagation(random_state=0, **p),
    "PrequentialSearch": lambda **p: PrequentialSearch(med(), {"C": [1.5, 10.0]}, **p),
    "StreamPipeline": lambda **p: StreamPipeline([("model", med())], **p),
}
MARGIN = ("C", "slack_shape", "gamma", "coef0", "forgetting")
SMOOTH = ("beta", "heat_width", "gamma_A", "gamma_I")
PARAMETERS = {
    **{name: MARGIN for name in MODELS if name.startswith("SeqMED")},
    **{name: MARGIN + SMOOTH for name in MODELS if "SeqLapMED" in name},
    "SeqGraphMED": ("alpha", "forgetting", "mixture"),
    "GraphPropagation": ("alpha", "forgetting"),
    "PrequentialSearch": ("discount", "drop_limit"),
}
OTHERS = {
    "gamma_A": {"gamma_I": 1e-3},
    "gamma_I": {"gamma_A": 1e-3},
}


def attempt(make, points=POINTS, weights=None, asked=None):
    """Learn three batches and call every method; return the scores, or None after an error."""
    asked = points if asked is None else asked
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model = make()
            keep = LABELS >= -1 if "unlabeled" in model.get_params() else LABELS >= 0
            for start in range(0, 30, 10):
                rows = np.arange(start, start + 10)[keep[start : start + 10]]
                given = {} if weights is None else {"sample_weight": weights[rows]}
                model.partial_fit(points[rows], LABELS[rows], **given)
            answers = [model.decision_function(asked), model.predict_proba(asked)]
            if hasattr(model, "decision_std"):
                answers.append(model.decision_std(asked))
            assert query(model, asked, 3).size == 3
            model.predict(asked)
        except ValueError as error:
            if "expected" in str(error) or "must be a" in str(error):
                return None
            raise
    assert all(np.isfinite(each).all() for each in answers)
    return answers[0]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    ("name", "parameter"), [(name, each) for name in PARAMETERS for each in PARAMETERS[name]]
)
def test_parameters(name, parameter, value):
    attempt(lambda: MODELS[name](**{parameter: value, **OTHERS.get(parameter, {})}))


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", [name for name in MODELS if name != "PrequentialSearch"])
def test_weights(name, value):
    attempt(MODELS[name], weights=np.full(30, value))
    attempt(MODELS[name], weights=np.where(np.arange(30) % 2, value, 1.0))


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", MODELS)
def test_features(name, value):
    attempt(MODELS[name], value * POINTS)
    attempt(MODELS[name], POINTS * np.array([value, 1.0, 1.0]))
    attempt(MODELS[name], np.where(np.arange(30)[:, None] == 5, value, 1.0) * POINTS)
    attempt(MODELS[name], asked=value * POINTS)


@pytest.mark.parametrize("value", [5e-324, 1e-300, 1e-200, 1e-100, 1e-15])
@pytest.mark.parametrize("name", ["SeqMED", "SeqMED-exact", "SeqMED-linear", "SeqLapMED-exact"])
def test_a_forgetting_factor_of_almost_zero_leaves_the_last_batch(name, value):
    make = MODELS[name]
    options = {"gamma": 0.3, "tol": 1e-9, "max_iter": -1}
    if "Lap" in name:
        options |= {"beta": 0.0}
    found = attempt(lambda: make(forgetting=value, **options))
    keep = np.arange(20, 30)[LABELS[20:] >= 0]
    last = make(**options).partial_fit(POINTS[keep], LABELS[keep])
    np.testing.assert_allclose(found, last.decision_function(POINTS), atol=1e-6)


def test_penalties_that_are_too_large_are_named():
    with pytest.raises(ValueError, match=r"C=1e\+200, expected at most 1e\+100: lower the value"):
        SeqMED(C=1e200).fit(POINTS, np.arange(30) % 3)
    with pytest.raises(ValueError, match=r"gamma_A=1e-300 with \d+ labels makes C=.*expected at"):
        SeqLapMED(gamma_A=1e-300, gamma_I=0.0).fit(POINTS, LABELS)
    with pytest.raises(ValueError, match=r"gamma_I=1e\+200 with 30 rows makes beta=.*expected at"):
        SeqLapMED(gamma_A=1e-3, gamma_I=1e200).fit(POINTS, LABELS)


def polynomial_stream(seed):
    """Rows whose kernel values have 10 to 30 digits, and the parameters to learn them with."""
    generator = np.random.default_rng(seed)
    scale = 10.0 ** generator.integers(2, 6)
    parameters = {"degree": int(generator.integers(2, 6)), "coef0": float(seed % 2)}
    batches = [
        (scale * generator.normal(size=(20, 3)), np.arange(20) % 3 - (np.arange(20) % 5 == 0))
        for _ in range(4)
    ]
    return batches, {"kernel": "poly", "gamma": 0.5, "forgetting": 0.5, "beta": 10.0, **parameters}


@pytest.mark.parametrize("options", [{"recursion": "exact"}, {}, {"budget": 16}], ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_matrices_that_rounding_makes_indefinite(seed, options):
    """Large kernel values are learned or refused with a remedy, and the state stays usable."""
    batches, parameters = polynomial_stream(seed)
    model = lap(**parameters, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for points, labels in batches:
            try:
                model.partial_fit(points, labels, classes=[0, 1, 2])
            except ValueError as error:
                if isinstance(error, np.linalg.LinAlgError) or "scale the" not in str(error):
                    raise
                if not hasattr(model, "classes_"):
                    return
            assert query(model, points, 3).size == 3
