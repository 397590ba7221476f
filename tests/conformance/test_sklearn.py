"""scikit-learn's own checks of estimators."""

from __future__ import annotations

import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED
from tests.support.configurations import factors
from tests.support.pairwise import pairs, pairwise_cover

# Some checks compare two ways to the same optimum (weights against repeated rows, dense against
# sparse rows) to 1e-7: the duals must be solved further than the default asks.
TOL = 1e-10
# Rows around (100, 100), which some checks use, have linear kernel values of 2e4: what rounding
# leaves of a violation is then a few 1e-9.
LINEAR_TOL = 1e-8
# Linked rows leave constants alone, which the normalized Laplacian shrinks: more of it is left.
# The checks of sample weights ask for a tolerance no looser than this.
LINKED_LINEAR_TOL = 2e-9

MODELS = [
    SeqMED(tol=TOL),
    SeqLapMED(tol=TOL),
    SeqMED(tol=LINEAR_TOL, kernel="linear"),
    SeqMED(tol=LINEAR_TOL, kernel="linear", bias="exact"),
    SeqMED(tol=TOL, slack_shape=0.0),
    SeqMED(tol=TOL, bias="exact"),
    SeqMED(tol=TOL, class_weight="balanced"),
    SeqLapMED(tol=LINKED_LINEAR_TOL, kernel="linear"),
    SeqLapMED(tol=LINKED_LINEAR_TOL, kernel="linear", bias="exact"),
    SeqLapMED(tol=TOL, recursion="exact"),
    SeqLapMED(tol=TOL, lag=1),
    SeqLapMED(tol=TOL, slack_shape=0.0),
    SeqLapMED(tol=TOL, bias="exact"),
    SeqLapMED(tol=TOL, beta=0.5),
    SeqLapMED(tol=TOL, gamma_A=1e-4, gamma_I=1e-2),
    GraphPropagation(),
    SeqGraphMED(),
    SeqGraphMED(SeqLapMED(), mixture=0.5),
]
# By default those run that have every pair of the models' parameters (tests/support/pairwise.py).
COVER = pairwise_cover({place: factors(model) for place, model in enumerate(MODELS)})
OTHERS = [place for place in range(len(MODELS)) if place not in COVER]


def test_the_cover_has_every_pair_of_all_models():
    found = set().union(*(pairs(factors(MODELS[place])) for place in COVER))
    assert found == set().union(*(pairs(factors(model)) for model in MODELS))
    assert OTHERS


def expected_failed_checks(model):
    """The checks that cannot pass, for the estimators that cannot pass them."""
    expected = {}
    if type(model) is not SeqMED:
        reason = "it uses -1 and +1 as classes; -1 marks an unlabeled row here"
        expected["check_classifiers_classes"] = reason
    if isinstance(model, GraphPropagation | SeqGraphMED):
        reason = "a row given twice is two vertices of the graph, and a neighbour of itself"
        for form in ("dense", "sparse"):
            expected[f"check_sample_weight_equivalence_on_{form}_data"] = reason
    elif model.kernel == "linear" and model.bias == "auto":
        reason = "boundaries of a linear kernel without an intercept pass through the origin"
        expected["check_class_weight_classifiers"] = reason
    return expected


def models_with_checks(places):
    return parametrize_with_checks(
        [MODELS[place] for place in places], expected_failed_checks=expected_failed_checks
    )


def run(estimator, check):
    name = getattr(check, "func", check).__name__
    if name == "check_class_weight_classifiers":
        # this check sets max_iter=1000, which is too few for our tol: the warning is in order
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            check(estimator)
    else:
        check(estimator)


# scikit-learn skips a check where its own requirements are not met, and says so with a warning.
skips_allowed = pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")


@skips_allowed
@models_with_checks(COVER)
def test_scikit_learn_check(estimator, check):
    run(estimator, check)


@skips_allowed
@pytest.mark.exhaustive
@models_with_checks(OTHERS)
def test_scikit_learn_check_of_the_other_models(estimator, check):
    run(estimator, check)
