"""Labels in and out: unlabeled markers, types, classes that come late, class weights."""

from __future__ import annotations

import warnings
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.utils.multiclass import check_classification_targets

from seqmed import SeqLapMED, SeqMED
from seqmed.classes import no_classes
from seqmed.estimators.labels import find, with_labels

NAMES = ("ham", "spam")

# Duals are solved to this violation where two ways to the same optimum are compared; the scores of
# the two then differ by less than AGREEMENT (the problems here have scores and bounds around 1).
TIGHT = 1e-10
AGREEMENT = 1e-7


def codes_with_gaps(n):
    """Codes 0 and 1 with every third row unlabeled, coded -1."""
    codes = np.arange(n) % 2
    codes[::3] = -1
    return codes


def as_objects(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def spelled(codes, labels, missing):
    """Return codes as a list of labels, with ``missing`` for the unlabeled."""
    return [missing if code < 0 else labels[code] for code in codes.tolist()]


def class_scores(model, points):
    """Return the score of every class as a function of the points."""
    scores = model.decision_function(points)
    labels = model.classes_.tolist()
    if len(labels) == 1:
        return {labels[0]: scores}
    if len(labels) == 2:
        return {labels[0]: -scores, labels[1]: scores}
    return {label: scores[:, position] for position, label in enumerate(labels)}


# -- representations of the same labels -----------------------------------------------------------

NUMBERS = {
    "int array with -1": lambda codes: codes,
    "float array with -1": lambda codes: codes.astype(float),
    "float array with NaN": lambda codes: np.where(codes < 0, np.nan, codes),
    "list of ints with -1": lambda codes: codes.tolist(),
    "list with None": lambda codes: spelled(codes, (0, 1), None),
    "list with NaN": lambda codes: spelled(codes, (0, 1), np.nan),
    "list with NA": lambda codes: spelled(codes, (0, 1), pd.NA),
    "object array with -1": lambda codes: codes.astype(object),
    "object array with None": lambda codes: as_objects(spelled(codes, (0, 1), None)),
    "Series with -1": lambda codes: pd.Series(codes),
    "object Series with None": lambda codes: pd.Series(spelled(codes, (0, 1), None), dtype=object),
}

STRINGS = {
    "str array with '-1'": lambda codes: np.array(spelled(codes, NAMES, -1)),
    "list with -1": lambda codes: spelled(codes, NAMES, -1),
    "list with None": lambda codes: spelled(codes, NAMES, None),
    "list with NaN": lambda codes: spelled(codes, NAMES, np.nan),
    "list with NA": lambda codes: spelled(codes, NAMES, pd.NA),
    "object array with -1": lambda codes: as_objects(spelled(codes, NAMES, -1)),
    "object array with None": lambda codes: as_objects(spelled(codes, NAMES, None)),
    "str Series with None": lambda codes: pd.Series(spelled(codes, NAMES, None)),
}

BOOLEANS = {
    "list with None": lambda codes: spelled(codes, (False, True), None),
    "list with -1": lambda codes: as_objects(spelled(codes, (False, True), -1)),
    "object array with NaN": lambda codes: as_objects(spelled(codes, (False, True), np.nan)),
    "boolean Series with NA": lambda codes: pd.Series(
        spelled(codes, (False, True), pd.NA), dtype="boolean"
    ),
}


@pytest.fixture
def reference(blobs):
    """A model learned from ints with -1, its points, and the codes of their labels."""
    points, _ = blobs
    codes = codes_with_gaps(len(points))
    return points, codes, SeqLapMED().fit(points, codes)


@pytest.mark.parametrize("spelling", NUMBERS)
def test_numbers_of_any_type_give_the_same_model(reference, spelling):
    points, codes, expected = reference
    model = SeqLapMED().fit(points, NUMBERS[spelling](codes))
    assert model.classes_.tolist() == [0, 1]
    assert model.classes_.dtype.kind in "if"
    assert model.update_info_.n_labeled == np.sum(codes >= 0)
    np.testing.assert_array_equal(
        model.decision_function(points), expected.decision_function(points)
    )


@pytest.mark.parametrize("spelling", STRINGS)
def test_strings_of_any_type_give_the_same_model(reference, spelling):
    points, codes, expected = reference
    model = SeqLapMED().fit(points, STRINGS[spelling](codes))
    assert model.classes_.tolist() == list(NAMES)
    assert model.classes_.dtype.kind == "U"
    np.testing.assert_array_equal(
        model.decision_function(points), expected.decision_function(points)
    )
    np.testing.assert_array_equal(model.predict(points), np.array(NAMES)[expected.predict(points)])


@pytest.mark.parametrize("spelling", BOOLEANS)
def test_booleans_of_any_type_give_the_same_model(reference, spelling):
    points, codes, expected = reference
    model = SeqLapMED().fit(points, BOOLEANS[spelling](codes))
    assert model.classes_.dtype == bool
    assert model.classes_.tolist() == [False, True]
    np.testing.assert_array_equal(model.predict(points), expected.predict(points) == 1)


def test_plain_booleans_are_classes(blobs):
    points, labels = blobs
    model = SeqLapMED().fit(points, labels == 1)
    assert model.predict(points).dtype == bool
    np.testing.assert_array_equal(
        model.decision_function(points), SeqLapMED().fit(points, labels).decision_function(points)
    )


@pytest.mark.parametrize("spelling", [name for name in NUMBERS if "-1" not in name])
def test_seqmed_ignores_missing_labels(reference, spelling):
    """SeqMED learns from labeled rows only, as if the others were not there."""
    points, codes, _ = reference
    model = SeqMED(gamma=0.5).fit(points, NUMBERS[spelling](codes))
    labeled = codes >= 0
    alone = SeqMED(gamma=0.5).fit(points[labeled], codes[labeled])
    # the rows left out still take part in centring the data, hence not bit-identical
    np.testing.assert_allclose(
        model.decision_function(points), alone.decision_function(points), atol=1e-10
    )


# -- the marker -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "labels"),
    [
        (0, (1, 2)),
        (99, (0, 1)),
        (-7, (-1, 1)),
        (2.5, (0.0, 1.0)),
        ("?", NAMES),
        ("", NAMES),
        ("-1", NAMES),
        (-1.0, (0, 1)),
    ],
)
@pytest.mark.parametrize("container", [list, np.array, as_objects, pd.Series])
def test_the_marker_may_be_any_label(reference, marker, labels, container):
    points, codes, expected = reference
    model = SeqLapMED(unlabeled=marker).fit(points, container(spelled(codes, labels, marker)))
    assert model.classes_.tolist() == list(labels)
    np.testing.assert_array_equal(
        model.decision_function(points), expected.decision_function(points)
    )


def test_a_list_of_rows_with_one_label_each_is_a_column(blobs):
    X, codes = blobs
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = SeqMED().partial_fit(X, [[code] for code in codes.tolist()])
    assert model.classes_.tolist() == [0, 1]
    with pytest.raises(ValueError, match="1d array"):
        SeqMED().partial_fit(X, [[code, code] for code in codes.tolist()])


@pytest.mark.parametrize("marker", [None, np.nan, float("nan"), pd.NA])
@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_without_a_marker_only_missing_values_are_unlabeled(reference, marker, missing):
    points, codes, expected = reference
    y = as_objects(spelled(codes, (-1, 1), missing))
    model = SeqLapMED(unlabeled=marker).fit(points, y)
    assert model.classes_.tolist() == [-1, 1]
    np.testing.assert_array_equal(
        model.decision_function(points), expected.decision_function(points)
    )


@pytest.mark.parametrize("container", [np.array, as_objects, pd.Series])
def test_false_is_not_the_marker_zero(blobs, container):
    points, labels = blobs
    model = SeqLapMED(unlabeled=0).fit(points, container((labels == 1).tolist()))
    assert model.classes_.tolist() == [False, True]
    assert model.update_info_.n_labeled == len(points)


def test_a_marker_of_another_type_marks_nothing(blobs):
    points, labels = blobs
    model = SeqLapMED(unlabeled="?").fit(points, labels)
    assert model.update_info_.n_labeled == len(points)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["ham", "spam", np.nan] * 20),
        np.array(["ham", "spam", None] * 20, dtype=str),
        np.array(["ham", "spam", pd.NA] * 20, dtype=str),
    ],
    ids=["nan", "None", "<NA>"],
)
@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_missing_values_that_numpy_made_strings_are_refused(blobs, estimator, y):
    points, _ = blobs
    text = y[2]
    with pytest.raises(ValueError, match="numpy makes of a missing value") as refusal:
        estimator().fit(points, y)
    assert repr(str(text)) in str(refusal.value)
    assert "dtype object" in str(refusal.value)


def test_the_remedies_for_missing_values_as_strings_work(blobs):
    points, _ = blobs
    spelled_out = np.array(["ham", "spam", np.nan] * 20)
    as_marker = SeqLapMED(unlabeled="nan").fit(points, spelled_out)
    assert as_marker.classes_.tolist() == list(NAMES)
    as_class = SeqLapMED().partial_fit(points, spelled_out, classes=["ham", "nan", "spam"])
    assert as_class.classes_.tolist() == ["ham", "nan", "spam"]
    as_object = SeqLapMED().fit(points, np.array(["ham", "spam", np.nan] * 20, dtype=object))
    np.testing.assert_array_equal(
        as_object.decision_function(points), as_marker.decision_function(points)
    )


def test_without_a_marker_minus_one_is_a_class(blobs):
    points, labels = blobs
    model = SeqLapMED(unlabeled=None).fit(points, 2 * labels - 1)
    assert model.classes_.tolist() == [-1, 1]
    assert model.update_info_.n_labeled == len(points)
    np.testing.assert_array_equal(
        model.decision_function(points), SeqLapMED().fit(points, labels).decision_function(points)
    )


def test_minus_and_plus_one_are_clear_once_classes_are_known(blobs):
    points, labels = blobs
    model = SeqLapMED().partial_fit(points, labels)
    model.partial_fit(points, 2 * labels - 1)
    assert model.classes_.tolist() == [0, 1]
    assert model.update_info_.n_labeled == np.sum(labels == 1)


def test_only_minus_one_is_an_unlabeled_batch_and_only_plus_one_a_class(blobs):
    points, _ = blobs
    assert SeqLapMED().partial_fit(points, np.full(60, -1)).classes_.size == 0
    assert SeqLapMED().partial_fit(points, np.ones(60)).classes_.tolist() == [1]


# -- types across batches -------------------------------------------------------------------------


def test_int_classes_stay_ints_when_a_batch_comes_as_floats_with_nan(blobs):
    points, labels = blobs
    with_gaps = np.where(np.arange(60) < 10, np.nan, labels)
    model = SeqMED().partial_fit(points, labels).partial_fit(points, with_gaps)
    assert model.classes_.dtype == labels.dtype
    assert model.predict(points).dtype == labels.dtype
    model.partial_fit(points, np.where(np.arange(60) < 10, 2.0, with_gaps))
    assert model.classes_.dtype == labels.dtype
    assert model.classes_.tolist() == [0, 1, 2]


def test_bool_classes_take_booleans_only(blobs):
    points, labels = blobs
    model = SeqMED().partial_fit(points, labels == 1)
    with pytest.raises(ValueError, match=r"floats \(1.0\), expected .* booleans \(False\)"):
        model.partial_fit(points, np.where(np.arange(60) < 10, np.nan, 1.0))
    assert model.classes_.dtype == bool
    model.partial_fit(points, [None, *(labels == 1).tolist()[1:]])
    assert model.predict(points).dtype == bool


@pytest.mark.parametrize(
    ("given", "kept"),
    [(np.int8, np.int64), (np.uint64, np.int64), (np.int64, np.int64), (np.float32, np.float64)],
)
def test_the_first_labels_fix_the_type_not_its_size(blobs, given, kept):
    points, labels = blobs
    model = SeqMED().partial_fit(points, labels.astype(given)).partial_fit(points, labels + 200)
    assert model.classes_.dtype == kept
    assert model.classes_.tolist() == [0, 1, 200, 201]


def test_longer_class_names_are_not_cut_off(blobs):
    points, labels = blobs
    model = SeqMED().partial_fit(points, np.array(["b", "d"])[labels])
    model.partial_fit(points, np.array(["b", "a much longer name"])[labels])
    assert model.classes_.tolist() == ["a much longer name", "b", "d"]
    later = np.array(["d", "c as long as the others"])[labels]
    assert model.partial_fit(points, later).classes_[2] == "c as long as the others"


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (["a", "b"], [0, 1], ("integers", "strings", "same type")),
        ([0, 1], ["a", "b"], ("integers", "strings", "same type")),
        (["a", "b"], [0.0, np.nan], ("floats", "strings", "same type")),
        ([False, True], ["a", "b"], ("booleans", "strings", "same type")),
    ],
)
def test_strings_and_numbers_in_different_batches_are_refused(blobs, first, second, words):
    points, labels = blobs
    model = SeqMED().partial_fit(points, np.array(first)[labels])
    before = model.decision_function(points)
    with pytest.raises(ValueError, match="the type of the classes so far") as refusal:
        model.partial_fit(points, np.array(second)[labels])
    assert all(word in str(refusal.value) for word in words)
    np.testing.assert_array_equal(model.decision_function(points), before)
    assert model.classes_.tolist() == first


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_infinite_labels_are_refused(blobs, estimator):
    points, labels = blobs
    with pytest.raises(ValueError, match="Input y contains infinity"):
        estimator().fit(points, np.where(labels == 1, np.inf, 0.0))


# -- a column vector ------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.array, lambda y: pd.DataFrame({"label": y[:, 0]})])
@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_column_of_labels_is_accepted_with_a_warning(blobs, estimator, method, container):
    points, labels = blobs
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = getattr(estimator(), method)(points, container(labels[:, None]))
    np.testing.assert_array_equal(
        model.decision_function(points), estimator().fit(points, labels).decision_function(points)
    )


# -- subsets of the classes, and new classes ------------------------------------------------------

CLASSES = ("ant", "bee", "cat", "dog")


def cloud(codes, seed):
    """Points around one corner per code."""
    corners = 2.0 * np.eye(4)[:, :3]
    return corners[codes] + np.random.default_rng(seed).normal(size=(len(codes), 3))


EXACT = {"bias": "exact"}


def one_against_rest(batches, label, **parameters):
    """An oracle for one class: a two-class model of "is it ``label``", with classes declared."""
    model = SeqMED(**parameters)
    for points, labels in batches:
        model.partial_fit(points, np.array(labels) == label)
    return model


@pytest.mark.parametrize("subset", [(1, 3), (0, 3), (2,), (0, 1), (3, 2, 1)])
def test_a_later_batch_with_some_of_the_classes_is_encoded_right(subset):
    """Labels are encoded by value, not by their rank within the batch."""
    parameters = {"gamma": 0.3, "tol": TIGHT, "lag": 10, **EXACT}
    first, second = np.arange(40) % 4, np.array(subset)[np.arange(30) % len(subset)]
    names = np.array(CLASSES)
    batches = [(cloud(first, 1), names[first]), (cloud(second, 2), names[second])]
    model = SeqMED(**parameters)
    for points, labels in batches:
        model.partial_fit(points, labels)
    probes = cloud(np.arange(20) % 4, 3)
    for label, scores in class_scores(model, probes).items():
        alone = class_scores(one_against_rest(batches, label, **parameters), probes)[True]
        np.testing.assert_allclose(scores, alone, atol=AGREEMENT)


@pytest.mark.parametrize("arrival", list(permutations(CLASSES)))
def test_classes_may_arrive_one_by_one_in_any_order(arrival):
    """After 1, 2, 3 and 4 classes every class scores as in a two-class model of its own."""
    parameters = {"gamma": 0.3, "tol": TIGHT, "lag": 10, **EXACT}
    probes = cloud(np.arange(12) % 4, 9)
    model, batches = SeqMED(**parameters), []
    for count in range(1, 5):
        chosen = np.array([CLASSES.index(name) for name in arrival[:count]])
        codes = chosen[np.arange(14) % count]
        batches.append((cloud(codes, count), np.array(CLASSES)[codes]))
        model.partial_fit(*batches[-1])
        assert model.classes_.tolist() == sorted(arrival[:count])
        for label, scores in class_scores(model, probes).items():
            oracle = one_against_rest(batches, label, **parameters)
            expected = class_scores(oracle, probes)[True]
            np.testing.assert_allclose(scores, expected, atol=AGREEMENT)


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
@pytest.mark.parametrize("added", list(permutations(("aardvark", "cow", "zebra"), 2)))
@pytest.mark.parametrize("known", [("bee",), ("bee", "dog"), ("bee", "dog", "emu")])
def test_adding_a_class_keeps_the_scores_of_the_others(estimator, added, known):
    """A new class declared with a batch without a dual does not change earlier scores."""
    parameters = {"beta": 0.0} if estimator is SeqLapMED else {}
    model = estimator(**EXACT, **parameters)
    codes = np.arange(30) % len(known)
    points = cloud(codes, 5)
    for rows in (slice(0, 15), slice(15, 30)):
        model.partial_fit(points[rows], np.array(known)[codes[rows]])
    nothing = np.full(2, None, dtype=object)
    for newcomer in added:
        before = class_scores(model, points)
        model.partial_fit(points[:2], nothing, classes=[newcomer])
        after = class_scores(model, points)
        assert sorted(after) == sorted([*before, newcomer])
        for label, scores in before.items():
            # the same coefficients, summed in an order that depends on the number of machines
            np.testing.assert_allclose(after[label], scores, atol=1e-12)
        np.testing.assert_array_equal(model.predict(points), best_of(before))


def best_of(scores):
    """Return the best class of every row; a class alone is best."""
    labels = sorted(label for label in scores if label not in ("aardvark", "cow", "zebra"))
    columns = np.column_stack([scores[label] for label in labels])
    return np.array(labels)[columns.argmax(axis=1)]


def test_a_class_first_seen_later_starts_from_minus_one():
    codes = np.arange(30) % 3
    points = cloud(codes, 5)
    model = SeqMED(**EXACT).partial_fit(points, np.array(CLASSES)[codes])
    model.partial_fit(points[:1], [None], classes=[*CLASSES])
    np.testing.assert_array_equal(class_scores(model, points)["dog"], -1.0)


# -- classes declared, classes seen ---------------------------------------------------------------

BIASES = {
    "auto": {},
    "diffuse": EXACT,
}
every_bias = pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
@every_bias
@pytest.mark.parametrize("declared", [(0, 1), (1, 2), (0, 1, 2), (1, 2, 3), (-5, 1, 7, 9)])
def test_one_seen_class_is_predicted_whatever_else_is_declared(blobs, estimator, bias, declared):
    points, _ = blobs
    model = estimator(**bias)
    model.partial_fit(points, np.ones(60, dtype=int), classes=declared)
    assert model.classes_.tolist() == list(declared)
    np.testing.assert_array_equal(model.predict(100 * points), 1)


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
@every_bias
@pytest.mark.parametrize("extra", [0, 5, 10])
def test_a_declared_class_without_example_is_never_predicted(blobs, estimator, bias, extra):
    """Far from all data both seen classes score below what an unseen one begins with."""
    points, labels = blobs
    model = estimator(**bias)
    model.partial_fit(points, np.array([3, 7])[labels], classes=[3, 7, extra])
    predicted = model.predict(np.vstack([points, 50 + points, -50 + points]))
    assert set(predicted.tolist()) <= {3, 7}
    model.partial_fit(points, np.full(60, extra))
    model.partial_fit(points, np.array([3, extra])[labels])
    assert extra in model.predict(points)


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
@pytest.mark.parametrize("label", [0, 1])
def test_before_both_classes_are_seen_the_seen_one_is_predicted(blobs, estimator, label):
    points, _ = blobs
    model = estimator(**EXACT).partial_fit(points, np.full(60, label))
    assert model.classes_.tolist() == [label]
    np.testing.assert_array_equal(model.predict(points), label)
    assert (model.decision_function(points) > 0).all()
    assert np.isnan(model.duality_gap_)
    declared = estimator(**EXACT).partial_fit(points, np.full(60, label), classes=[0, 1])
    np.testing.assert_array_equal(declared.predict(points), label)
    np.testing.assert_array_equal(declared.decision_function(points), 1.0 if label else -1.0)


@pytest.mark.parametrize("recursion", ["landmarks", "exact", "spectral"])
def test_an_unlabeled_first_batch_is_learned_and_predicting_explains(blobs, recursion):
    points, labels = blobs
    model = SeqLapMED(recursion=recursion).partial_fit(points, np.full(60, -1))
    assert model.n_batches_ == 1
    assert (model.decision_std(points) < 1).all()  # the geometry was learned
    for method in (model.predict, model.decision_function):
        with pytest.raises(NotFittedError, match="has learned no label") as refusal:
            method(points)
        for words in ("cannot predict", "at least one labeled row"):
            assert words in str(refusal.value)
    model.partial_fit(points, labels)
    assert model.n_batches_ == 2
    assert model.score(points, labels) > 0.7


def test_declared_classes_without_any_label_do_not_predict(blobs):
    points, _ = blobs
    model = SeqLapMED().partial_fit(points, np.full(60, -1), classes=[0, 1])
    with pytest.raises(NotFittedError, match="has learned no label"):
        model.predict(points)


@pytest.mark.parametrize(
    ("estimator", "y"), [(SeqMED, np.full(60, np.nan)), (SeqLapMED, np.full(60, -1))]
)
def test_fit_needs_a_label(blobs, estimator, y):
    points, _ = blobs
    with pytest.raises(ValueError, match="no labeled row among 60") as refusal:
        estimator().fit(points, y)
    assert "partial_fit" in str(refusal.value)


# -- class weights --------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
@pytest.mark.parametrize("names", [(0, 1), NAMES, (False, True)])
def test_class_weight_weighs_the_rows_of_a_class(blobs, estimator, names):
    points, labels = blobs
    y = np.array(names)[labels]
    parameters = {"gamma": 0.5, "tol": TIGHT, **EXACT}  # label counts do not include class weights
    model = estimator(class_weight={names[1]: 3.0}, **parameters).fit(points, y)
    plain = estimator(**parameters).fit(points, y)
    assert np.abs(model.decision_function(points) - plain.decision_function(points)).max() > 0.01
    # the graph ignores weights, so weighting a class equals weighting its rows
    weights = np.where(labels == 1, 3.0, 1.0)
    weighted = estimator(**parameters).fit(points, y, sample_weight=weights)
    np.testing.assert_allclose(
        model.decision_function(points), weighted.decision_function(points), atol=AGREEMENT
    )


def test_balanced_is_by_the_labels_seen_so_far(blobs):
    points, _ = blobs
    first = np.array([0] * 24 + [1] * 6)
    second = np.array([0] * 10 + [1] * 20)
    model = SeqMED(gamma=0.5, tol=TIGHT, class_weight="balanced")
    model.partial_fit(points[:30], first).partial_fit(points[30:], second)
    by_hand = SeqMED(gamma=0.5, tol=TIGHT)
    by_hand.set_params(class_weight={0: 30 / (2 * 24), 1: 30 / (2 * 6)})
    by_hand.partial_fit(points[:30], first)
    by_hand.set_params(class_weight={0: 60 / (2 * 34), 1: 60 / (2 * 26)})
    by_hand.partial_fit(points[30:], second)
    np.testing.assert_allclose(
        model.decision_function(points), by_hand.decision_function(points), atol=AGREEMENT
    )


def test_balanced_counts_neither_unlabeled_rows_nor_unseen_classes(blobs):
    points, labels = blobs
    y = np.where(np.arange(60) < 20, np.nan, labels)
    parameters = {"gamma": 0.5, "tol": TIGHT}
    model = SeqMED(class_weight="balanced", **parameters).partial_fit(points, y, classes=[0, 1, 2])
    by_hand = SeqMED(class_weight=dict.fromkeys((0, 1), 1.0), **parameters)
    by_hand.partial_fit(points, y, classes=[0, 1, 2])
    np.testing.assert_allclose(
        model.decision_function(points), by_hand.decision_function(points), atol=AGREEMENT
    )


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_class_weights_that_are_no_weights_are_refused(blobs, weight):
    points, labels = blobs
    model = SeqMED().partial_fit(points, labels).set_params(class_weight={1: weight})
    before = model.decision_function(points)
    with pytest.raises(ValueError, match="class_weight") as refusal:
        model.partial_fit(points, labels)
    assert "positive" in str(refusal.value)
    np.testing.assert_array_equal(model.decision_function(points), before)


# -- many classes among few labels ----------------------------------------------------------------


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
@pytest.mark.parametrize("names", [np.arange(24), np.array([f"class {i}" for i in range(24)])])
def test_many_classes_among_few_labels_cause_no_warning(blobs, estimator, names):
    """scikit-learn warns where half of the labels are classes of their own: so it is here."""
    points, _ = blobs
    with pytest.warns(UserWarning, match="number of unique classes"):
        check_classification_targets(names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = estimator().fit(points[:24], names)
        model.partial_fit(points[24:48], names)
        assert model.score(points[:24], names) > 0
    assert model.classes_.tolist() == sorted(names.tolist())


# -- classes and their labels ----------------------------------------------------------------------


def test_labels_are_found_by_value():
    classes = with_labels(np.zeros(0), np.array(["bee", "dog", "ant"]))
    assert classes.tolist() == ["ant", "bee", "dog"]
    assert find(np.array(["dog", "bee", "cow"]), classes).tolist() == [2, 1, -1]
    assert find(np.array([], dtype=str), classes).size == 0


def test_counts_keep_their_weights_when_classes_are_added():
    nothing = np.zeros(0, dtype=np.intp)
    counts = no_classes(per_class=False).with_classes(nothing, np.zeros(2, dtype=bool))
    counts = counts.add(np.array([0, 1, 0]), np.array([1.0, 2.0, 0.5]))
    assert counts.weights.tolist() == [1.5, 2.0]
    grown = counts.with_classes(np.array([0, 2]), np.array([False, True, False]))
    assert grown.seen.tolist() == [True, False, True]
    assert grown.kept.all()
    grown = grown.add(np.array([1, 2]), np.array([4.0, 1.0]))
    assert grown.weights.tolist() == [1.5, 4.0, 3.0]
    assert counts.weights.tolist() == [1.5, 2.0]  # counts are not changed in place


def counts_of(n_classes):
    nothing = np.zeros(0, dtype=np.intp)
    counts = no_classes(per_class=False).with_classes(nothing, np.zeros(n_classes, dtype=bool))
    return counts.add(np.arange(n_classes), np.ones(n_classes))


def test_targets_are_one_against_the_rest():
    assert counts_of(2).targets(np.array([0, 1])).tolist() == [[-1], [1]]
    found = counts_of(3).targets(np.array([2, 0])).tolist()
    assert found == [[-1, -1, 1], [1, -1, -1]]
