"""Parameters of SeqGraphMED and of its estimator that change after the first batch."""

import copy
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone

from seqmed import SeqGraphMED, SeqLapMED, SeqMED
from tests.support.state import state_bits


def make_batch(seed, n=40):
    """Rows of three overlapping classes, half of them labeled."""
    generator = np.random.default_rng(seed)
    y = generator.integers(3, size=n)
    X = generator.normal(size=(n, 3)) + 1.5 * np.eye(3)[y]
    return X, np.where(np.arange(n) % 2, y, -1)


BATCHES = [make_batch(seed) for seed in range(4)]
PROBES = make_batch(99)[0]


def learn(model, batches=BATCHES):
    for X, y in batches:
        model.partial_fit(X, y)
    return model


class Product(BaseEstimator):
    """A kernel as an object that is equal to nothing but itself."""

    def __call__(self, left, right):
        return (left @ right.T + 1.0) ** 2


# -- parameters that may change --------------------------------------------------------------------

CHANGES = {
    "C": {"C": 1.5},
    "tol": {"tol": 1e-9},
    "forgetting": {"forgetting": 0.5},
    "window": {"window": 5},
    "lag": {"lag": 1},
    "class_weight": {"class_weight": {0: 5.0}},
    "slack_shape": {"slack_shape": 0.0},
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("inner", [SeqMED(random_state=0), SeqLapMED(random_state=0)])
def test_a_changed_parameter_of_the_estimator_takes_effect_with_the_next_batch(inner, name):
    """The margin expert is then what the estimator alone would be, but for its mini-batches."""
    changes = {f"estimator__{each}": value for each, value in CHANGES[name].items()}
    model = learn(SeqGraphMED(clone(inner), random_state=0), BATCHES[:2])
    unchanged = learn(clone(model), BATCHES[:2])
    before = model.decision_function(PROBES)
    model.set_params(**changes)
    np.testing.assert_array_equal(model.decision_function(PROBES), before)
    learn(model, BATCHES[2:])
    learn(unchanged, BATCHES[2:])
    assert {each: getattr(model.estimator_, each) for each in CHANGES[name]} == CHANGES[name]
    assert (
        model.estimator_.decision_function(PROBES) != unchanged.estimator_.decision_function(PROBES)
    ).any()


def test_late_labels_and_retractions_use_the_parameters_of_their_time():
    X = BATCHES[1][0]
    for change in (
        lambda model: model.partial_fit(X[:10:2], [0, 1, 2, 0, 1], new_points=False),
        lambda model: model.retract(X[1:2]),
    ):
        model = learn(SeqGraphMED(SeqMED(), random_state=0), BATCHES[:2])
        twin = learn(clone(model), BATCHES[:2])
        model.set_params(estimator__C=1.2, estimator__tol=1e-9)
        change(model)
        change(twin)
        assert model.estimator_.C == 1.2
        ours, theirs = (each.estimator_.decision_function(PROBES) for each in (model, twin))
        assert (ours != theirs).any()


@pytest.mark.parametrize(
    "change",
    [
        {"mixture": 0.85},
        {"class_prior": "uniform", "mixture": 0.0},
        {"forgetting": 0.4},
        {"class_weight": {0: 20.0}},
        {"class_weight": "balanced"},
    ],
)
def test_parameters_of_the_mixture_may_change(change):
    """The default estimator follows, and what was scored before the change stays as it was."""
    model = learn(SeqGraphMED(forgetting=1.0, random_state=0), BATCHES[:3])
    unchanged = learn(SeqGraphMED(forgetting=1.0, random_state=0), BATCHES[:3])
    before = model.predict_proba(PROBES)
    model.set_params(**change)
    np.testing.assert_array_equal(model.predict_proba(PROBES), before)
    learn(model, BATCHES[3:])
    learn(unchanged, BATCHES[3:])
    assert (model.predict_proba(PROBES) != unchanged.predict_proba(PROBES)).any()
    for name in ("forgetting", "class_weight"):
        assert getattr(model.estimator_, name) == getattr(model, name)


def test_an_equal_estimator_may_take_the_place_of_another():
    model = learn(SeqGraphMED(SeqMED(C=3.0), random_state=0), BATCHES[:2])
    expected = learn(clone(model))
    learn(model.set_params(estimator=SeqMED(C=3.0)), BATCHES[2:])
    np.testing.assert_array_equal(
        model.decision_function(PROBES), expected.decision_function(PROBES)
    )


def test_a_kernel_that_is_an_object_is_the_same_in_every_batch():
    """With a class_weight the estimator is copied for every batch, its kernel is not."""
    model = SeqGraphMED(SeqMED(kernel=Product()), class_weight={0: 2.0}, random_state=0)
    assert learn(model).estimator_.class_weight == {0: 2.0}
    model.set_params(estimator__kernel=Product())
    with pytest.raises(ValueError, match="estimator__kernel was changed"):
        learn(model, BATCHES[:1])


def test_the_estimator_given_is_not_touched():
    inner = SeqMED(C=3.0)
    learn(SeqGraphMED(inner, random_state=0))
    assert vars(inner) == vars(SeqMED(C=3.0))


def test_class_weight_reaches_an_estimator_of_this_package():
    """As if the estimator were the default one."""
    given = SeqGraphMED(SeqMED(random_state=0), class_weight={0: 9.0}, random_state=0)
    default = SeqGraphMED(class_weight={0: 9.0}, random_state=0)
    np.testing.assert_array_equal(
        learn(given).predict_proba(PROBES), learn(default).predict_proba(PROBES)
    )


# -- parameters that may not change ----------------------------------------------------------------

REFUSED = {
    "kernel": (
        {"estimator__kernel": "linear"},
        "estimator__kernel was changed from 'rbf' to 'linear' after",
    ),
    "gamma": (
        {"estimator__gamma": 2.0},
        "estimator__gamma was changed from 'scale' to 2.0 after the first batch",
    ),
    "bias": (
        {"estimator__bias": "exact"},
        "estimator__bias was changed from 'auto' to 'exact' after",
    ),
    "budget": (
        {"estimator__budget": 50},
        "estimator__budget was changed from None to 50 after the first batch",
    ),
    "type": (
        {"estimator": SeqLapMED()},
        "changed from a SeqMED to a SeqLapMED after the first batch",
    ),
    "value": ({"estimator__C": -1.0}, "The 'C' parameter of SeqMED must be"),
    "C": (
        {"estimator__C": 0.5, "estimator__slack_shape": 1.0},
        "C=0.5, expected C > slack_shape=1",
    ),
    "graph_memory": ({"graph_memory": 50}, "graph_memory was changed from 'auto' to 50 after"),
    "n_neighbors": (
        {"n_neighbors": 3},
        "n_neighbors was changed from 10 to 3 after the first batch",
    ),
    "alpha": ({"alpha": 0.5}, "alpha was changed from 0.97 to 0.5 after the first batch"),
    "metric": (
        {"metric": "cosine"},
        "metric was changed from 'auto' to 'cosine' after the first batch",
    ),
    "mixture": ({"mixture": 2.0}, "The 'mixture' parameter of SeqGraphMED must be"),
    "two weights": (
        {"class_weight": "balanced", "estimator__class_weight": {0: 2.0}},
        "class_weight='balanced' was given with estimator=SeqMED",
    ),
}


# A retraction needs no C: those of the labels that were learned are in the model.
CALLS = [
    (name, call)
    for name in REFUSED
    for call in ("partial_fit", "late labels", "retract")
    if (name, call) != ("C", "retract")
]


@pytest.fixture(scope="module")
def two_and_three():
    """The models of two and of three batches; a test may change copies of them."""
    model = learn(SeqGraphMED(SeqMED(), random_state=0), BATCHES[:2])
    return model, learn(clone(model), BATCHES[:3])


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_a_change_that_is_refused_leaves_the_model_as_it_was(name, call, two_and_three):
    change, message = REFUSED[name]
    model, expected = copy.deepcopy(two_and_three)
    given = {each: model.get_params()[each] for each in change}
    model.set_params(**change)
    held = state_bits(model)
    X, y = BATCHES[1]
    calls = {
        "partial_fit": lambda: model.partial_fit(*BATCHES[2]),
        "late labels": lambda: model.partial_fit(X[:1], [0], new_points=False),
        "retract": lambda: model.retract(X[1:2], y[1:2]),
    }
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        calls[call]()
    assert state_bits(model) == held
    learn(model.set_params(**given), BATCHES[2:3])
    np.testing.assert_array_equal(
        model.decision_function(PROBES), expected.decision_function(PROBES)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"C": -1.0}, "The 'C' parameter of SeqMED must be"),
        ({"kernel": "precomputed"}, "estimator has kernel='precomputed'"),
    ],
)
def test_an_estimator_with_wrong_parameters_is_refused_in_the_first_batch(change, message):
    model = SeqGraphMED(SeqMED(**change), random_state=0)
    for method in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=message):
            method(*BATCHES[0])
        assert not hasattr(model, "classes_")


def test_labels_are_not_retracted_from_a_running_mean():
    """As in SeqMED: the running mean depends on the labels."""
    model = learn(SeqGraphMED(SeqMED(averaging=True), random_state=0))
    before = model.decision_function(PROBES)
    with pytest.raises(ValueError, match="retract got averaging=True"):
        model.retract(BATCHES[3][0][1:2])
    np.testing.assert_array_equal(model.decision_function(PROBES), before)


def test_parameters_of_no_estimator_are_refused():
    with pytest.raises(ValueError, match="estimator__C was given with estimator=None"):
        SeqGraphMED().set_params(estimator__C=3.0)
    assert SeqGraphMED().set_params(estimator=SeqMED(), estimator__C=3.0).estimator.C == 3.0


def test_a_warning_made_an_error_refuses_the_batch():
    model = learn(SeqGraphMED(SeqMED(), random_state=0), BATCHES[:2])
    model.set_params(estimator__max_iter=1, estimator__tol=1e-12)
    held = state_bits(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="tol"):
            learn(model, BATCHES[2:])
    assert state_bits(model) == held
