"""The several-class rule: one machine per class, a known bias of -1, scores by label counts."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

import seqmed
from seqmed import SeqLapMED, SeqMED
from seqmed.classes import no_classes
from seqmed.margin import calibration
from tests.reference import naive

TIGHT = 1e-10
# Scores of two ways to the same optimum, solved to TIGHT.
AGREEMENT = 1e-7
GAMMA = 0.4
BOUND = 3.0


def cloud(codes, seed):
    """Overlapping points around one corner per code, (n, 3)."""
    corners = 1.5 * np.vstack([np.zeros(3), np.eye(3), -np.eye(3)])
    return corners[codes] + np.random.default_rng(seed).normal(size=(len(codes), 3))


def batches_of(arrivals, size=9, seed=0):
    """Batches of points, classes and weights; batch t holds the classes ``arrivals[t]``."""
    rng = np.random.default_rng(seed)
    found = []
    for t, classes in enumerate(arrivals):
        codes = rng.choice(classes, size=size)
        found.append((cloud(codes, (seed, t)), codes, rng.uniform(0.5, 2.0, size)))
    return found


ARRIVALS = {
    "one class": [[0]] * 3,
    "two classes": [[0, 1]] * 4,
    "two classes, each alone": [[1], [0], [1], [0]],
    "three classes": [[0, 1, 2]] * 4,
    "later classes": [[1], [1, 2], [2, 4], [4], [0, 1, 2, 3, 4]],
}
SETTINGS = {
    "all together": {},
    "hinge": {"slack_shape": 0.0},
    "paper's recursion": {"lag": 1},
    "lag": {"lag": 2},
    "window": {"window": 13},
    "lag and window": {"lag": 3, "window": 20},
    "forgetting": {"forgetting": 0.8},
    "forgetting, window": {"forgetting": 0.8, "window": 13},
}
PROBES = cloud(np.arange(21) % 7, 99)


def learned(batches, kernel="rbf", **settings):
    defaults = {"window": None, "lag": None, "averaging": False}
    model = SeqMED(kernel, gamma=GAMMA, C=BOUND, tol=TIGHT, **{**defaults, **settings})
    for points, labels, weights in batches:
        model.partial_fit(points, labels, sample_weight=weights)
    return model


def reference(batches, kernel=None, **settings):
    machines = naive.ClassMachines(**settings)
    for points, labels, weights in batches:
        machines.learn(kernel or naive.rbf(GAMMA), points, labels, weights, BOUND)
    return machines


def as_decisions(scores):
    """Return what decision_function makes of class scores (n, K)."""
    if scores.shape[1] == 2:
        return scores[:, 1] - scores[:, 0]
    return scores[:, 0] if scores.shape[1] == 1 else scores


def assert_same_scores(model, machines, averaging=False):
    scores = machines.class_scores(PROBES, averaging)
    assert model.classes_.tolist() == machines.classes
    np.testing.assert_allclose(
        model.decision_function(PROBES), as_decisions(scores), atol=AGREEMENT
    )
    best = np.array(machines.classes)[scores.argmax(axis=1)]
    np.testing.assert_array_equal(model.predict(PROBES), best)


# -- the reference ---------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("arrivals", ARRIVALS.values(), ids=ARRIVALS)
def test_scores_are_those_of_the_reference(arrivals, settings):
    batches = batches_of(arrivals)
    for end in range(1, len(batches) + 1):
        model = learned(batches[:end], **settings)
        assert_same_scores(model, reference(batches[:end], **settings))


def test_machines_are_those_of_the_reference():
    batches = batches_of(ARRIVALS["later classes"])
    model, machines = learned(batches, window=13), reference(batches, window=13)
    own = [machines.machine(label, PROBES) for label in machines.classes]
    np.testing.assert_allclose(model.posterior_.mean(PROBES).T, own, atol=AGREEMENT)


@pytest.mark.parametrize("settings", [{}, {"lag": 1}, {"window": 13, "forgetting": 0.8}])
@pytest.mark.parametrize("arrivals", ARRIVALS.values(), ids=ARRIVALS)
def test_averaged_scores_are_those_of_the_reference(arrivals, settings):
    batches = batches_of(arrivals)
    model = learned(batches, averaging=True, **settings)
    assert_same_scores(model, reference(batches, **settings), averaging=True)


@pytest.mark.parametrize("settings", [{}, {"window": 13, "forgetting": 0.8}])
def test_a_linear_kernel_is_that_of_the_reference(settings):
    batches = batches_of(ARRIVALS["later classes"])
    model = learned(batches, "linear", **settings)
    machines = reference(batches, naive.linear(), **settings)
    assert_same_scores(model, machines)
    found = model.class_scale_ * (PROBES @ model.coef_.T + model.intercept_ + 1)
    np.testing.assert_allclose(found, machines.class_scores(PROBES), atol=AGREEMENT)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.exhaustive),
        {"window": 13},
        pytest.param({"forgetting": 0.8}, marks=pytest.mark.exhaustive),
        {"forgetting": 0.8, "lag": 2},
    ],
)
@pytest.mark.parametrize("arrivals", ARRIVALS.values(), ids=ARRIVALS)
def test_retracted_labels_as_in_the_reference(arrivals, settings):
    batches = batches_of(arrivals)
    model, machines = learned(batches, **settings), reference(batches, **settings)
    free = [place for place, row in enumerate(machines.rows) if not row.frozen]
    for place in free[::-2]:
        row = machines.rows[place]
        model.retract(row.point[None, :], [row.label])
        machines.retract(place)
        assert_same_scores(model, machines)
    machines.learn(naive.rbf(GAMMA), *batches_of([[0, 1, 2]], seed=7)[0], BOUND)
    points, labels, weights = batches_of([[0, 1, 2]], seed=7)[0]
    model.partial_fit(points, labels, sample_weight=weights)
    assert_same_scores(model, machines)


def test_class_weights_do_not_enter_the_label_counts():
    """They multiply bounds and slack shapes, as if a row's weight were for its machine alone."""
    points, labels, weights = batches_of([[0, 1, 2]], size=15)[0]
    model = SeqMED(gamma=GAMMA, C=BOUND, tol=TIGHT, class_weight={1: 2.0})
    model.fit(points, labels, sample_weight=weights)
    machines = naive.ClassMachines()
    doubled = np.where(labels == 1, 2.0, 1.0)
    machines.learn(naive.rbf(GAMMA), points, labels, doubled * weights, BOUND)
    for row, weight in zip(machines.rows, weights, strict=True):
        row.weight = weight
    assert_same_scores(model, machines)


# -- properties of the rule ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"lag": 1},
        {"window": 13},
        {"averaging": True},
        {"forgetting": 0.8},
        {"averaging": True, "forgetting": 0.8, "lag": 2},
        {"budget": 200},
        {"budget": 16, "random_state": 0},
    ],
)
@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_a_class_of_the_fifth_batch_is_as_if_declared(estimator, settings):
    batches = batches_of([[0, 1], [1], [0, 1], [1, 0], [0, 1, 2], [2]])
    late, declared = (estimator(gamma=GAMMA, tol=TIGHT, **settings) for _ in range(2))
    for t, (points, labels, weights) in enumerate(batches):
        late.partial_fit(points, labels, sample_weight=weights)
        classes = [0, 1, 2] if t == 0 else None
        declared.partial_fit(points, labels, classes=classes, sample_weight=weights)
        if t >= 4:
            found, expected = late.decision_function(PROBES), declared.decision_function(PROBES)
            np.testing.assert_allclose(found, expected, atol=AGREEMENT)
            np.testing.assert_allclose(
                late.predict_proba(PROBES), declared.predict_proba(PROBES), atol=AGREEMENT
            )


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_the_classes_does_not_matter(order):
    batches = batches_of([[0, 1], [2], [0, 2], [1]])
    model = learned(batches, forgetting=0.9, window=20)
    names = np.array(order)
    renamed = learned(
        [(points, names[labels], weights) for points, labels, weights in batches],
        forgetting=0.9,
        window=20,
    )
    np.testing.assert_allclose(
        renamed.decision_function(PROBES)[:, names], model.decision_function(PROBES), atol=AGREEMENT
    )
    np.testing.assert_array_equal(renamed.predict(PROBES), names[model.predict(PROBES)])


@pytest.mark.parametrize("arrivals", ARRIVALS.values(), ids=ARRIVALS)
def test_without_limits_a_stream_is_one_fit(arrivals):
    batches = batches_of(arrivals)
    points, labels, weights = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    whole = SeqMED(gamma=GAMMA, C=BOUND, tol=TIGHT).fit(points, labels, sample_weight=weights)
    found = learned(batches).decision_function(PROBES)
    np.testing.assert_allclose(found, whole.decision_function(PROBES), atol=AGREEMENT)


@pytest.mark.parametrize("settings", [{}, {"lag": 1}, {"forgetting": 0.8}, {"averaging": True}])
def test_a_weight_of_two_is_a_row_given_twice(settings):
    batches = batches_of(ARRIVALS["later classes"])
    twice, weighted = [], []
    for points, labels, _ in batches:
        weights = 1.0 + np.arange(len(labels)) % 2
        weighted.append((points, labels, weights))
        rows = np.repeat(np.arange(len(labels)), weights.astype(int))
        twice.append((points[rows], labels[rows], np.ones(rows.size)))
    model, other = learned(weighted, **settings), learned(twice, **settings)
    np.testing.assert_allclose(model.class_scale_, other.class_scale_, rtol=1e-14)
    np.testing.assert_allclose(
        model.decision_function(PROBES), other.decision_function(PROBES), atol=AGREEMENT
    )


def test_a_batch_of_one_class_is_learned():
    model = SeqMED(gamma=GAMMA)
    model.partial_fit(cloud(np.zeros(5, int), 1), np.zeros(5))
    assert np.isfinite(model.duality_gap_)
    assert (model.posterior_.mean(cloud(np.zeros(5, int), 1)) > 0).all()
    np.testing.assert_array_equal(model.predict(PROBES), 0)


@pytest.mark.parametrize("label", [0, 1])
def test_the_only_class_seen_is_predicted(label):
    points = cloud(np.zeros(9, int), 1)
    model = SeqMED().partial_fit(points, np.full(9, label), classes=[0, 1])
    assert model.decision_function(PROBES).shape == (21,)
    assert (np.sign(model.decision_function(points)) == 2 * label - 1).all()
    np.testing.assert_array_equal(model.predict(50 * PROBES), label)
    alone = SeqMED().partial_fit(points, np.full(9, label))
    assert (alone.decision_function(points) > 0).all()
    np.testing.assert_array_equal(alone.predict_proba(PROBES), 1.0)


def test_a_budget_larger_than_all_labels_approximates_nothing():
    batches = batches_of(ARRIVALS["later classes"])
    found = learned(batches, budget=200).decision_function(PROBES)
    expected = learned(batches).decision_function(PROBES)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_labels_that_come_late_are_those_of_the_last_batch():
    batches = batches_of([[0, 1], [2, 3]])
    points, labels, weights = batches[1]
    late = learned(batches[:1], forgetting=0.8)
    shown = np.where(np.arange(9) < 5, labels, np.nan)
    late.partial_fit(points, shown, sample_weight=weights)
    late.partial_fit(points[5:], labels[5:], sample_weight=weights[5:], new_points=False)
    whole = learned(batches, forgetting=0.8)
    np.testing.assert_allclose(late.class_scale_, whole.class_scale_, rtol=1e-14)
    np.testing.assert_allclose(
        late.decision_function(PROBES), whole.decision_function(PROBES), atol=AGREEMENT
    )


def test_all_labels_retracted_are_as_if_never_learned():
    points, labels, weights = batches_of([[0, 1, 2]])[0]
    model = learned([(points, np.full(9, np.nan), weights), (points, labels, weights)])
    model.retract(points, labels)
    assert model.classes_.size == 0
    second = batches_of([[0, 1]], seed=5)[0]
    model.partial_fit(*second[:2])
    fresh = SeqMED(gamma=GAMMA, C=BOUND, tol=TIGHT).fit(*second[:2])
    np.testing.assert_array_equal(model.intercept_, -1.0)
    np.testing.assert_allclose(
        model.decision_function(PROBES), fresh.decision_function(PROBES), atol=AGREEMENT
    )


# -- attributes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_attributes_have_one_row_per_class(n_classes):
    (points, labels, _) = batches_of([list(range(n_classes))], size=12)[0]
    model = SeqMED().fit(points, labels)
    assert model.dual_coef_.shape == (n_classes, len(model.support_vectors_))
    np.testing.assert_array_equal(model.intercept_, np.full(n_classes, -1.0))
    linear = SeqMED("linear").fit(points, labels)
    assert linear.coef_.shape == (n_classes, 3)


def test_the_class_scale_is_by_the_labels_of_a_class():
    weights = np.array([1.0, 2.0, 3.0, 6.0])
    model = SeqMED().partial_fit(
        cloud(np.arange(4), 0), [0, 0, 1, 3], classes=[0, 1, 2, 3], sample_weight=weights
    )
    expected = [np.sqrt(4 / 3) / 2, np.sqrt(4 / 3) / 2, 0.0, np.sqrt(4 / 6) / 2]
    np.testing.assert_allclose(model.class_scale_, expected, rtol=1e-14)
    found = model.class_scale_ * (model.posterior_.mean(PROBES) + 1)
    np.testing.assert_array_equal(model.decision_function(PROBES), found)


@pytest.mark.parametrize("bias", ["exact", "median"])
def test_there_is_no_class_scale_with_a_diffuse_bias(blobs, bias):
    with pytest.raises(AttributeError, match="only available with bias='auto'"):
        _ = SeqMED(bias=bias).fit(*blobs).class_scale_


def test_a_class_whose_weight_underflows_has_finite_scores():
    nothing = np.zeros(0, dtype=np.intp)
    counts = no_classes(per_class=True).with_classes(nothing, np.zeros(2, dtype=bool))
    counts = counts.add(np.array([0, 1]), np.ones(2))
    for _ in range(4000):
        counts = counts.forget(0.5).add(np.array([1]), np.ones(1))
    assert counts.discounted[0] == 0.0
    assert np.isfinite(counts.scale).all()
    assert (counts.scale > 0).all()


# -- the window ------------------------------------------------------------------------------------


def test_the_oldest_rows_leave_the_window():
    batches = batches_of([[0, 1]] * 4)
    model = learned(batches, window=13)
    rows = np.vstack([points for points, _, _ in batches])
    np.testing.assert_array_equal(model.posterior_.window.points, rows[-13:])
    assert model.update_info_.n_window == 13
    model.set_params(window=20).partial_fit(*batches[0][:2])
    assert model.posterior_.window.size == 20
    model.set_params(window=4).partial_fit(*batches[0][:2])
    assert model.posterior_.window.size == 9  # the newest batch stays whole
    model.set_params(window=None).partial_fit(*batches[0][:2])
    assert model.posterior_.window.size == 18


def test_one_fit_optimises_all_rows_whatever_the_window():
    (points, labels, _) = batches_of([[0, 1, 2]], size=30)[0]
    small, large = (SeqMED(window=window, tol=TIGHT).fit(points, labels) for window in (1, None))
    np.testing.assert_array_equal(small.decision_function(PROBES), large.decision_function(PROBES))


def test_rows_beyond_the_window_cannot_be_retracted():
    batches = batches_of([[0, 1]] * 2)
    model = learned(batches, window=12)
    with pytest.raises(ValueError, match=r"window=12, lag=None.*window=None, lag=None"):
        model.retract(batches[0][0][:1])
    model.retract(batches[0][0][-1:])


# -- probabilities and queries ---------------------------------------------------------------------


def test_the_record_keeps_the_class_scores_of_the_time():
    batches = batches_of(ARRIVALS["three classes"], size=15)
    model, record = learned(batches[:1]), calibration.Calibration()
    for points, labels, weights in batches[1:]:
        scores = model.decision_function(points)
        record = record.add(scores, labels.astype(np.intp), weights)
        model.partial_fit(points, labels, sample_weight=weights)
    np.testing.assert_allclose(
        model._state.calibration.log_likelihoods, record.log_likelihoods, rtol=1e-12
    )
    expected = record.probabilities(model.decision_function(PROBES))
    np.testing.assert_allclose(model.predict_proba(PROBES), expected, rtol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_margins_of_queries_are_in_units_of_the_machines(n_classes):
    """The difference of two scores q_1 f_1 - q_2 f_2 has the variance (q_1^2 + q_2^2) k(x, x)."""
    codes = np.repeat(np.arange(n_classes), np.arange(1, n_classes + 1) * 3)
    model = SeqMED(gamma=GAMMA).fit(cloud(codes, 4), codes)
    scores = model.class_scale_ * (model.posterior_.mean(PROBES) + 1)
    for row, margin in zip(scores, model._uncertainty(PROBES).margins, strict=True):
        second, best = np.argsort(row)[-2:]
        deviation = np.hypot(model.class_scale_[best], model.class_scale_[second])
        assert margin == pytest.approx((row[best] - row[second]) / deviation)


# -- errors and saved models -----------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [*permutations(["auto", "exact", "median"], 2)])
def test_the_rule_may_not_change_between_batches(blobs, first, second):
    model = SeqMED(bias=first).partial_fit(*blobs)
    before = model.decision_function(blobs[0])
    model.set_params(bias=second)
    with pytest.raises(ValueError, match=f"bias was changed from '{first}' to '{second}'"):
        model.partial_fit(*blobs)
    np.testing.assert_array_equal(model.decision_function(blobs[0]), before)


@pytest.mark.parametrize("bias", ["auto", "exact", "median"])
@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_a_saved_model_goes_on_to_the_bit(tmp_path, bias, n_classes):
    batches = batches_of([list(range(n_classes))] * 3)
    parameters = {"bias": bias, "forgetting": 0.9, "window": 13}
    model = SeqMED(**parameters)
    for points, labels, _ in batches[:2]:
        model.partial_fit(points, labels)
    seqmed.save(model, tmp_path / "model.seqmed")
    loaded = seqmed.load(tmp_path / "model.seqmed")
    for each in (model, loaded):
        each.partial_fit(*batches[2][:2])
    np.testing.assert_array_equal(loaded.decision_function(PROBES), model.decision_function(PROBES))
    np.testing.assert_array_equal(loaded.predict_proba(PROBES), model.predict_proba(PROBES))
