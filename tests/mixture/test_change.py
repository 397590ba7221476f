"""Changes of the concept: when they are found, and what the experts forget then."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import seqmed
from seqmed import SeqGraphMED, SeqMED
from seqmed.cli.parameters import new_classifier
from seqmed.mixture import change
from seqmed.mixture.change import (
    FEWEST_LABELS,
    SIGNIFICANT,
    SMALLEST_SIDE,
    find_change,
    weigh_start,
)
from seqmed.mixture.learning import rescaled
from seqmed.mixture.pooling import Recorded
from seqmed.mixture.record import record_probabilities
from tests.reference import naive_pool
from tests.reference.change import naive_change

pytestmark = pytest.mark.filterwarnings(
    "ignore::seqmed.estimators.seqgraphmed.ConceptChangeWarning"
)

SIZE, N_BATCHES, SWAP = 50, 16, 8


def batches(swap=SWAP, seed=0, sparse=False, back=N_BATCHES):
    """Yield rows, classes and labels, a third of them shown; classes swap at a batch, and back."""
    rng = np.random.default_rng(seed)
    for number in range(N_BATCHES):
        side = rng.integers(2, size=SIZE)
        X = rng.normal(size=(SIZE, 3)) + 2.0 * (2 * side - 1)[:, None]
        y = 1 - side if swap <= number < back else side
        labels = np.where(rng.random(SIZE) < 0.34, y, None)
        yield (sp.csr_array(X) if sparse else X), y, labels


def automatic_model():
    return SeqGraphMED(forgetting="auto", experts=(), random_state=0)


def constant_model():
    return SeqGraphMED(forgetting=1.0, experts=(), random_state=0)


def learned(model, **options):
    """Return the model after the stream, the changes by batch, and the accuracy in each batch."""
    changes, accuracies = {}, []
    for number, (X, y, labels) in enumerate(batches(**options)):
        if number:
            accuracies.append(np.mean(model.predict(X) == y))
        model.partial_fit(X, labels, classes=[0, 1])
        if model.update_info_.change is not None:
            changes[number] = model.update_info_.change
    return model, changes, accuracies


@pytest.mark.parametrize("seed", range(20))
def test_a_change_is_the_most_significant_division(seed):
    """The result is that of testing every division on its own."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 120))
    rates = np.where(np.arange(n) < rng.integers(n), 0.1, rng.choice([0.1, 0.4, 0.9]))
    wrong = rng.random(n) < rates
    expected = naive_change(wrong.tolist(), SMALLEST_SIDE, FEWEST_LABELS, SIGNIFICANT)
    found = find_change(wrong)
    assert (found is None) == (expected is None)
    if expected is not None:
        assert tuple(found) == pytest.approx(expected)


def test_the_random_records_above_have_changes_and_none():
    """Both outcomes are compared with the reference."""
    rng = np.random.default_rng(0)
    steady, changed = rng.random(100) < 0.2, np.arange(100) >= 70
    assert find_change(steady) is None
    assert find_change(changed) == (30, 0.0, 1.0)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(0, dtype=bool),
        np.ones(100, dtype=bool),
        np.arange(2 * SMALLEST_SIDE - 1) >= SMALLEST_SIDE,
        np.arange(100) < 30,
    ],
    ids=["empty", "always wrong", "too short", "better than before"],
)
def test_no_change(wrong):
    assert find_change(wrong) is None


def test_a_change_may_be_younger_than_the_rows_that_prove_it():
    """Seven wrong predictions in a row are found, and no right one before them is counted."""
    wrong = np.arange(200) >= 193
    assert find_change(wrong) == (7, 0.0, 1.0)


def test_two_errors_after_many_right_predictions_are_no_change():
    """With rare errors the normal approximation alone would report a change."""
    wrong = np.zeros(300, dtype=bool)
    wrong[[-9, -4]] = True
    assert find_change(wrong) is None


@pytest.mark.parametrize("sparse", [False, True])
def test_a_swap_is_found_and_forgotten(sparse):
    _, changes, accuracies = learned(automatic_model(), sparse=sparse)
    assert len(changes) == 1
    (batch, change), *_ = changes.items()
    assert SWAP <= batch <= SWAP + 3
    assert change.error_after > change.error_before + 0.4
    assert min(accuracies[batch + 1 :]) > 0.8
    fixed = constant_model()
    _, none, slower = learned(fixed, sparse=sparse)
    assert not none
    assert np.mean(slower[batch:]) < np.mean(accuracies[batch:])


def test_nothing_is_forgotten_without_a_change():
    """Without a change "auto" is the model that never forgets."""
    X = next(batches())[0]
    automatic, changes, _ = learned(automatic_model(), swap=N_BATCHES)
    never, _, _ = learned(constant_model(), swap=N_BATCHES)
    assert not changes
    np.testing.assert_array_equal(automatic.predict_proba(X), never.predict_proba(X))


def test_late_labels_begin_no_new_start():
    """They may be older than a change; the next batch of new rows may begin one."""
    model, late, new = automatic_model(), [], []
    for X, _, labels in batches():
        labeled = np.array([label is not None for label in labels])
        model.partial_fit(X, np.full(SIZE, None), classes=[0, 1])
        new.append(model.update_info_.change)
        model.partial_fit(X[labeled], labels[labeled], new_points=False)
        late.append(model.update_info_.change)
    assert not any(late)
    assert any(new)


def test_the_experts_start_again_from_the_labels_since_the_change():
    """Margin, graph, record and label counts are those of the labels since the change."""
    model, since = automatic_model(), None
    for X, _, labels in batches():
        model.partial_fit(X, labels, classes=[0, 1])
        if model.update_info_.change is not None:
            since = model.update_info_.change.n_labels
            break
    state = model._state
    assert state.labels.size == state.record.size == since
    assert np.count_nonzero(state.graph.codes >= 0) == since
    np.testing.assert_allclose(state.counts.discounted, np.bincount(state.recent.codes))
    window = model.estimator_.posterior_.window
    np.testing.assert_array_equal(window.points, state.recent.points)
    kernel = model.estimator_.posterior_.covariance.kernel
    alone = SeqMED(gamma=kernel.gamma).partial_fit(
        state.recent.points, state.recent.codes, classes=[0, 1]
    )
    np.testing.assert_allclose(
        model.estimator_.decision_function(X), alone.decision_function(X), atol=1e-2
    )


def test_no_change_begins_before_the_rows_that_are_searched():
    """Errors of an earlier group, which was no change, are not found again."""
    wrong = (np.arange(200) >= 100) & (np.arange(200) < 140)
    assert find_change(wrong[:140]).n_labels == 40
    assert find_change(wrong[:140], 39).n_labels == 39
    assert find_change(wrong[:140], SMALLEST_SIDE - 1) is None
    assert find_change(wrong[:160], 20) is None
    assert find_change(np.append(wrong[:160], np.ones(30, dtype=bool)), 50).n_labels == 30


def test_the_weight_of_a_new_start_is_that_of_a_mixture_distribution():
    """It equals expectation maximisation written out, and grows with what the start predicts."""
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=40)
    record = Recorded(np.zeros((40, 0, 3)), np.ones((40, 3), dtype=bool), codes, np.ones(40))
    good = 0.8 * np.eye(3)[codes] + 0.2 / 3
    poor = np.full((40, 3), 1 / 3)
    weights = []
    for before, after in ((good, poor), (poor, poor), (poor, good)):
        weight, temperatures = weigh_start(before, after, record)
        likelihoods = [
            naive_pool.sharpened(each, temperature)[np.arange(40), codes]
            for each, temperature in zip((before, after), temperatures, strict=True)
        ]
        expected = naive_pool.mixture_weights(likelihoods, np.ones(40), [2.0, 2.0])
        assert weight == pytest.approx(expected[1], abs=1e-3)
        weights.append(weight)
    assert weights[0] < 0.1 < weights[1] < 0.9 < weights[2]


def test_a_row_does_not_count_in_its_own_class_frequency():
    frequencies = change.class_frequencies(np.array([0, 0, 1]), np.array([[True, True, False]] * 3))
    np.testing.assert_allclose(frequencies, [[0.5, 0.5, 0], [0.5, 0.5, 0], [5 / 6, 1 / 6, 0]])


@pytest.mark.parametrize(
    ("weight", "n_labels", "kept"),
    [
        (0.5, 0, None),
        (0.06, 99, None),
        (0.04, 20, False),
        (0.96, 20, True),
        (0.4, change.LONGEST, False),
        (0.5, change.LONGEST, True),
    ],
)
def test_the_end_of_a_trial(weight, n_labels, kept):
    assert change.is_decided(weight, n_labels) is kept


def states_by_batch(model, **options):
    """Yield the report of every batch and the model after it."""
    for X, _, labels in batches(**options):
        model.partial_fit(X, labels, classes=[0, 1])
        yield model.update_info_, model


def test_a_new_start_is_revoked_if_the_concept_comes_back():
    """The model is then the one that never forgets, and the same errors are no change again."""
    options = {"swap": SWAP, "back": SWAP + 1}
    never = constant_model()
    automatic = automatic_model()
    X, changes, revoked = next(batches())[0], [], []
    pairs = zip(
        states_by_batch(never, **options), states_by_batch(automatic, **options), strict=True
    )
    for number, (_, (report, _)) in enumerate(pairs):
        changes += [number] if report.change is not None else []
        revoked += [number] if report.revoked else []
    assert changes == [SWAP]
    assert len(revoked) == 1
    np.testing.assert_array_equal(automatic.predict_proba(X), never.predict_proba(X))


def test_a_change_may_begin_in_any_label_since_a_new_start_was_revoked():
    model = automatic_model()
    n_labels = None
    for X, _, labels in batches(swap=SWAP, back=SWAP + 1):
        model.partial_fit(X, labels, classes=[0, 1])
        if n_labels is not None:
            n_labels += sum(label is not None for label in labels)
            assert model._state.n_searched == n_labels
        if model.update_info_.revoked:
            n_labels = 0
    assert n_labels > 20


def test_a_new_start_is_kept_after_a_swap():
    """Without a return to the old concept, the trial ends soon, and the labels stay forgotten."""
    trials = [
        (model._state.trial is not None, report.revoked)
        for report, model in states_by_batch(automatic_model())
    ]
    assert 1 <= sum(on_trial for on_trial, _ in trials) <= 6
    assert not any(revoked for _, revoked in trials)


def on_trial():
    """Return a model with a new start on trial, and the batches that it has not learned."""
    model, rest = automatic_model(), batches(back=SWAP + 1)
    for X, _, labels in rest:
        model.partial_fit(X, labels, classes=[0, 1])
        if model._state.trial is not None:
            return model, list(rest)
    raise AssertionError("no new start")


def test_a_trial_goes_on_after_the_model_was_saved(tmp_path):
    """Both states are in the file."""
    model, rest = on_trial()
    seqmed.save(model, tmp_path / "model.safetensors")
    loaded = seqmed.load(tmp_path / "model.safetensors")
    for X, _, labels in rest:
        model.partial_fit(X, labels)
        loaded.partial_fit(X, labels)
        assert loaded.update_info_.revoked == model.update_info_.revoked
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_labels_are_retracted_from_both_states_of_a_trial():
    """The new start does not have the labels before the change."""
    model, _ = on_trial()
    state = model._state
    new, before = state.labels, state.trial.state.labels
    old = before.points[-new.size - 1]
    model.retract(np.vstack([old, new.points[-2:]]))
    state = model._state
    assert state.trial.state.labels.size == before.size - 3
    assert state.labels.size == new.size - 2
    assert state.counts.counts.sum() == state.trial.state.counts.counts.sum()


def test_labels_are_retracted_from_states_of_other_column_scales():
    """The rows of a trial are divided by the scales of each state."""
    model, _ = on_trial()
    state = model._state
    scale = 4.0 * state.trial.state.column_scale
    parameters = model._parameters(model.classes_, state.counts.declared)
    other, _ = rescaled(state.trial.state, scale, parameters)
    model._state = state._replace(trial=state.trial._replace(state=other))
    model.retract(state.labels.points[-2:])
    for before, after in ((state, model._state), (other, model._state.trial.state)):
        assert after.labels.size == before.labels.size - 2
        assert after.graph.n_labeled == before.graph.n_labeled - 2
        assert after.margin.posterior.window.size == before.margin.posterior.window.size - 2


def test_a_trial_is_decided_by_all_rows_since_the_change():
    """The new start was fitted on those before the alarm: they have class frequencies there."""
    model, rest = on_trial()
    n_labels = 0
    for X, _, labels in rest[:2]:
        state = model._state
        trial = state.trial
        assert trial.n_labels == n_labels
        n_rows = min(state.record.size, trial.state.record.size)
        record = state.record.newest(n_rows).of_members()
        before, after = (record_probabilities(each)[-n_rows:] for each in (trial.state, state))
        older = slice(0, n_rows - n_labels)
        after[older] = change.class_frequencies(record.codes[older], record.known[older])
        expected, temperatures = weigh_start(before, after, record)
        assert trial.weight == pytest.approx(expected)
        np.testing.assert_allclose(trial.temperatures, temperatures)
        model.partial_fit(X, labels)
        n_labels += sum(label is not None for label in labels)


def test_parameters_apply_to_both_states_of_a_trial():
    model, rest = on_trial()
    model.set_params(estimator=SeqMED(random_state=0, C=3.0))
    model.partial_fit(rest[0][0], np.full(SIZE, None))
    state = model._state
    assert state.margin_info.C == state.trial.state.margin_info.C == 3.0


def test_a_class_without_a_label_since_the_change_stays_known():
    """A third class, absent when the others swap, is still predicted."""
    rng = np.random.default_rng(1)
    far = rng.normal(size=(20, 3)) + np.array([12.0, -12.0, 0.0])
    model = automatic_model().partial_fit(far, np.full(20, 2), classes=[0, 1, 2])
    found = False
    for X, _, labels in batches():
        model.partial_fit(X, labels)
        if model.update_info_.change is not None:
            found = True
            kept = model._state.labels
            assert kept.numbers[kept.codes == 2].tolist() == [19]  # its newest label
    assert found
    assert np.mean(model.predict(far) == 2) > 0.9


def test_a_model_goes_on_after_it_was_saved(tmp_path):
    """The recent rows are in the file: the change is found and answered as without saving."""
    expected, _, _ = learned(automatic_model())
    model = automatic_model()
    for number, (X, _, labels) in enumerate(batches()):
        model.partial_fit(X, labels, classes=[0, 1])
        if number in (SWAP, N_BATCHES - 1):
            path = tmp_path / f"{number}.safetensors"
            seqmed.save(model, path)
            model = seqmed.load(path)
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))


def test_retracted_labels_are_not_learned_again():
    X, _, labels = next(batches())
    model = automatic_model().partial_fit(X, labels, classes=[0, 1])
    labeled = np.array([label is not None for label in labels])
    model.retract(X[labeled][:3])
    np.testing.assert_array_equal(model._state.recent.points, X[labeled][3:])


def test_python_warns_once_of_a_change():
    """Neither the batches of the trial nor its end warn again; nor does a batch without labels."""
    model, warned = automatic_model(), []
    for number, (X, _, labels) in enumerate(batches()):
        for y in (labels, np.full(SIZE, None)):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                model.partial_fit(X, y, classes=[0, 1])
            warned += [(number, str(each.message)) for each in said]
    ((number, message),) = warned
    assert number == SWAP
    assert message.startswith("the error rate rose from 0% to 100% in the last 21 labels: the")


def test_the_command_line_sets_auto_for_the_mixture_only():
    """`SeqMED` has a factor only; a number is set for both."""
    model = new_classifier(None, {"forgetting": "auto"})
    assert (model.forgetting, model.estimator.forgetting) == ("auto", 1.0)
    model = new_classifier(None, {"forgetting": 0.9})
    assert (model.forgetting, model.estimator.forgetting) == (0.9, 0.9)
