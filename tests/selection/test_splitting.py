"""Folds where labels are missing: unlabeled rows always train, and are never tested on."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    PredefinedSplit,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from seqmed import SeqLapMED
from seqmed.selection.splitting import SemiSupervisedSplit

ROWS = 60
CODES = np.where(np.arange(ROWS) % 3 == 1, -1, np.arange(ROWS) % 2)  # every third row unlabeled
LABELED = np.flatnonzero(CODES >= 0)
UNLABELED = np.flatnonzero(CODES < 0)
GROUPS = np.arange(ROWS) // 6  # ten groups of four labeled rows and two others
X = np.arange(2.0 * ROWS).reshape(ROWS, 2)


def folds(splitter, y=CODES, groups=None, points=X):
    return list(splitter.split(points, y, groups))


def assert_folds_equal(first, second):
    assert len(first) == len(second)
    for (train, test), (other_train, other_test) in zip(first, second, strict=True):
        np.testing.assert_array_equal(train, other_train)
        np.testing.assert_array_equal(test, other_test)


def spelled(labels, missing):
    return [missing if code < 0 else labels[code] for code in CODES.tolist()]


# -- folds ----------------------------------------------------------------------------------------

PARTITIONS = {
    "default": SemiSupervisedSplit(),
    "three": SemiSupervisedSplit(3),
    "numpy int": SemiSupervisedSplit(np.int64(4)),
    "KFold": SemiSupervisedSplit(KFold(4)),
    "shuffled": SemiSupervisedSplit(StratifiedKFold(4, shuffle=True, random_state=3)),
    "LeaveOneOut": SemiSupervisedSplit(LeaveOneOut()),
    "GroupKFold": SemiSupervisedSplit(GroupKFold(3)),
    "StratifiedGroupKFold": SemiSupervisedSplit(StratifiedGroupKFold(3)),
    "LeaveOneGroupOut": SemiSupervisedSplit(LeaveOneGroupOut()),
    "one in another": SemiSupervisedSplit(SemiSupervisedSplit(3)),
}
OTHERS = {
    "RepeatedStratifiedKFold": SemiSupervisedSplit(
        RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=1)
    ),
    "ShuffleSplit": SemiSupervisedSplit(ShuffleSplit(7, test_size=0.25, random_state=1)),
    "GroupShuffleSplit": SemiSupervisedSplit(GroupShuffleSplit(4, random_state=1)),
    "TimeSeriesSplit": SemiSupervisedSplit(TimeSeriesSplit(3)),
}


def groups_for(name):
    return GROUPS if "Group" in name else None


@pytest.mark.parametrize("name", PARTITIONS | OTHERS)
def test_unlabeled_rows_are_in_every_training_fold_and_in_no_test_fold(name):
    splitter = (PARTITIONS | OTHERS)[name]
    for train, test in folds(splitter, groups=groups_for(name)):
        assert train.dtype.kind == test.dtype.kind == "i"
        assert (np.diff(train) > 0).all()
        assert (np.diff(test) > 0).all()
        assert not np.isin(test, train).any()
        assert np.isin(test, LABELED).all()
        assert np.isin(UNLABELED, train).all()


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_labeled_row_is_tested_on_once_and_trains_otherwise(name):
    pairs = folds(PARTITIONS[name], groups=groups_for(name))
    tested = np.concatenate([test for _, test in pairs])
    np.testing.assert_array_equal(np.sort(tested), LABELED)
    for train, test in pairs:
        assert train.size + test.size == ROWS


@pytest.mark.parametrize("name", PARTITIONS | OTHERS)
def test_the_number_of_folds_and_their_repetition(name):
    splitter = (PARTITIONS | OTHERS)[name]
    groups = groups_for(name)
    pairs = folds(splitter, groups=groups)
    assert splitter.get_n_splits(X, CODES, groups) == len(pairs)
    assert_folds_equal(folds(splitter, groups=groups), pairs)
    assert_folds_equal(folds(pickle.loads(pickle.dumps(splitter)), groups=groups), pairs)


@pytest.mark.parametrize("name", PARTITIONS | OTHERS)
def test_the_number_of_folds_without_data(name):
    splitter = (PARTITIONS | OTHERS)[name]
    if name in ("LeaveOneOut", "LeaveOneGroupOut"):
        with pytest.raises((TypeError, ValueError), match=r"'X'|'groups'"):
            splitter.get_n_splits()
    else:
        assert splitter.get_n_splits() == splitter.get_n_splits(X, CODES, groups_for(name))


def test_the_labeled_rows_are_split_as_if_they_were_alone():
    inner = StratifiedKFold(4, shuffle=True, random_state=3)
    alone = inner.split(X[LABELED], CODES[LABELED])
    for (train, test), (own_train, own_test) in zip(
        folds(SemiSupervisedSplit(inner)), alone, strict=True
    ):
        np.testing.assert_array_equal(test, LABELED[own_test])
        np.testing.assert_array_equal(train, np.sort(np.append(LABELED[own_train], UNLABELED)))


def test_folds_of_a_number_are_stratified():
    y = np.where(np.arange(ROWS) < 40, 0, 1)
    y[::4] = -1
    for _, test in folds(SemiSupervisedSplit(5), y):
        assert np.bincount(y[test]).tolist() == [6, 3]


def test_without_missing_labels_the_folds_are_the_splitters_own():
    y = np.arange(ROWS) % 2
    assert_folds_equal(folds(SemiSupervisedSplit(4), y), list(StratifiedKFold(4).split(X, y)))


def test_random_folds_differ_from_call_to_call_unless_seeded():
    splitter = SemiSupervisedSplit(ShuffleSplit(1, random_state=np.random.RandomState(0)))
    assert folds(splitter)[0][1].tolist() != folds(splitter)[0][1].tolist()


# -- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "y",
    [
        CODES.tolist(),
        np.where(CODES < 0, np.nan, CODES),
        np.array(spelled(("ham", "spam"), pd.NA), dtype=object),
        spelled(("ham", "spam"), None),
        spelled(("ham", "spam"), -1),
        pd.Series(CODES, index=np.arange(ROWS)[::-1]),
        pd.Series(spelled(("ham", "spam"), pd.NA), dtype="string"),
    ],
)
def test_labels_of_any_type_give_the_same_folds(y):
    assert_folds_equal(folds(SemiSupervisedSplit(4), y), folds(SemiSupervisedSplit(4)))


@pytest.mark.parametrize(("marker", "labels"), [("?", ("ham", "spam")), (0, (1, 2)), (9, (-1, 1))])
def test_the_marker_may_be_any_label(marker, labels):
    y = spelled(labels, marker)
    splitter = SemiSupervisedSplit(4, unlabeled=marker)
    assert_folds_equal(folds(splitter, y), folds(SemiSupervisedSplit(4)))


def test_only_minus_and_plus_one_is_refused_with_the_remedy():
    y = np.where(np.arange(ROWS) % 2, 1, -1)
    with pytest.raises(ValueError, match=r"only -1 and \+1") as refusal:
        folds(SemiSupervisedSplit(), y)
    for words in ("unlabeled=None", "-1 is a class", "rename the class +1"):
        assert words in str(refusal.value)
    assert "partial_fit" not in str(refusal.value)  # a splitter has none
    tested = np.concatenate([test for _, test in folds(SemiSupervisedSplit(unlabeled=None), y)])
    assert tested.size == ROWS


@pytest.mark.parametrize(
    "points",
    [None, sp.csr_array(X), pd.DataFrame(X, index=np.arange(ROWS) + 7), X.tolist(), ["a"] * ROWS],
    ids=["None", "sparse", "frame", "lists", "texts"],
)
def test_rows_of_any_kind_can_be_split(points):
    pairs = folds(SemiSupervisedSplit(4), points=points)
    assert_folds_equal(pairs, folds(SemiSupervisedSplit(4)))


patterns = st.lists(st.sampled_from([-1, 0, 1, 2]), min_size=1, max_size=40)


@settings(max_examples=150)
@given(y=patterns, n_splits=st.integers(2, 5), seed=st.integers(0, 3), shuffle=st.booleans())
def test_any_pattern_of_labels_is_split_or_refused(y, n_splits, seed, shuffle):
    codes = np.array(y)
    labeled = np.flatnonzero(codes >= 0)
    inner = StratifiedKFold(n_splits, shuffle=shuffle, random_state=seed if shuffle else None)
    splitter = SemiSupervisedSplit(inner)
    counts = np.bincount(codes[labeled], minlength=1)
    signs = {-1, 1} == set(y)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        if signs or counts.max() < n_splits:
            with pytest.raises(ValueError, match=r"expected|labeled rows"):
                folds(splitter, codes, points=None)
            return
        pairs = folds(splitter, codes, points=None)
    assert len(pairs) == n_splits
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in pairs])), labeled)
    for train, test in pairs:
        np.testing.assert_array_equal(np.sort(np.append(train, test)), np.arange(codes.size))


# -- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [GroupKFold(3), StratifiedGroupKFold(3), LeaveOneGroupOut()])
@pytest.mark.parametrize("groups", [GROUPS, pd.Series([f"g{g}" for g in GROUPS]), GROUPS.tolist()])
def test_groups_are_not_split(inner, groups):
    for train, test in folds(SemiSupervisedSplit(inner), groups=groups):
        assert not set(GROUPS[train[CODES[train] >= 0]]) & set(GROUPS[test])
        assert np.isin(UNLABELED, train).all()


@pytest.mark.parametrize("inner", [GroupKFold(3), LeaveOneGroupOut()])
@pytest.mark.parametrize("groups", [GROUPS, pd.Series([f"g{g}" for g in GROUPS]), GROUPS.tolist()])
def test_separate_groups_leaves_nothing_of_the_tested_groups_in_training(inner, groups):
    apart = folds(SemiSupervisedSplit(inner, separate_groups=True), groups=groups)
    kept = folds(SemiSupervisedSplit(inner), groups=groups)
    for (train, test), (all_train, all_test) in zip(apart, kept, strict=True):
        np.testing.assert_array_equal(test, all_test)
        np.testing.assert_array_equal(train, all_train[~np.isin(GROUPS[all_train], GROUPS[test])])


def test_separate_groups_with_folds_that_know_no_groups():
    """Labeled rows stay where the folds put them, and no warning says that groups are ignored."""
    for train, test in folds(SemiSupervisedSplit(3, separate_groups=True), groups=GROUPS):
        others = train[CODES[train] < 0]
        assert not set(GROUPS[others]) & set(GROUPS[test])
        assert np.isin(np.setdiff1d(LABELED, test), train).all()


def test_the_splitter_warns_about_unused_groups():
    with pytest.warns(UserWarning, match="groups parameter is ignored by StratifiedKFold"):
        folds(SemiSupervisedSplit(3), groups=GROUPS)


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("splitter", "arguments", "words"),
    [
        (SemiSupervisedSplit(), {"y": None}, ("got y=None", "expected labels")),
        (
            SemiSupervisedSplit(),
            {"y": np.full(ROWS, -1)},
            ("no labeled row among 60", "unlabeled=-1", "add labels"),
        ),
        (
            SemiSupervisedSplit(5),
            {"y": [0, 1, 0, 1, *[-1] * (ROWS - 4)]},
            ("4 labeled rows", "n_splits=5", "Lower the number of folds"),
        ),
        (
            SemiSupervisedSplit(KFold(5)),
            {"y": [0, 1, 0, 1, *[-1] * (ROWS - 4)]},
            ("KFold", "4 labeled rows", "n_splits=5"),
        ),
        (SemiSupervisedSplit(GroupKFold(2)), {"y": CODES}, ("GroupKFold", "'groups'", "pass")),
        (
            SemiSupervisedSplit(2, separate_groups=True),
            {"y": CODES},
            ("separate_groups=True", "groups=None", "pass groups"),
        ),
        (SemiSupervisedSplit(), {"y": CODES[:-1]}, ("inconsistent", "[60, 59]")),
        (
            SemiSupervisedSplit(GroupKFold(2)),
            {"y": CODES, "groups": GROUPS[:-1]},
            ("inconsistent", "59"),
        ),
        (SemiSupervisedSplit(1), {"y": CODES}, ("n_splits=1",)),
    ],
)
def test_what_cannot_be_split_is_refused(splitter, arguments, words):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the words follow
        folds(splitter, **arguments)
    for word in words:
        assert word in str(refusal.value)


@pytest.mark.parametrize("cv", ["five", 2.5, None, [([0], [1])], PredefinedSplit([0, 1])])
def test_what_is_no_cv_is_refused_at_once(cv):
    """The indices of pairs, and of a PredefinedSplit, would be taken for those of labeled rows."""
    with pytest.raises(ValueError, match=r"cv=.*expected a number of folds.*Pass pairs"):
        SemiSupervisedSplit(cv)


def test_the_representation_is_that_of_a_splitter():
    assert repr(SemiSupervisedSplit()) == (
        "SemiSupervisedSplit(cv=5, separate_groups=False, unlabeled=-1)"
    )
    assert "cv=GroupKFold(n_splits=3" in repr(SemiSupervisedSplit(GroupKFold(3), unlabeled="?"))


# -- scikit-learn's tools -------------------------------------------------------------------------


@pytest.fixture
def stream(generator):
    """Two clouds of 90 rows, one label in three, and groups of nine."""
    truth = np.arange(90) % 2
    points = generator.normal(size=(90, 3)) + 2.0 * truth[:, None]
    y = np.where(generator.random(90) < 0.4, truth, -1)
    return points, y, np.arange(90) // 9


def test_grid_search(stream):
    points, y, _ = stream
    search = GridSearchCV(
        SeqLapMED(random_state=0),
        {"gamma": [1e-6, 0.3]},
        cv=SemiSupervisedSplit(3),
        error_score="raise",
    ).fit(points, y)
    assert search.best_params_ == {"gamma": 0.3}
    assert search.n_splits_ == 3
    assert search.best_score_ > 0.8
    assert search.best_estimator_.update_info_.n_labeled == np.sum(y >= 0)
    assert "SemiSupervisedSplit" in repr(clone(search))


def test_unlabeled_rows_reach_the_model(stream):
    """The training folds hold all of them: the graph of every fold has all rows but the tested."""
    points, y, _ = stream
    results = cross_validate(
        SeqLapMED(random_state=0),
        points,
        y,
        cv=SemiSupervisedSplit(3),
        return_estimator=True,
        return_indices=True,
    )
    for model, train, test in zip(results["estimator"], *results["indices"].values(), strict=True):
        assert train.size == len(y) - test.size
        assert model.update_info_.n_labeled == np.sum(y[train] >= 0)
        by_hand = SeqLapMED(random_state=0).fit(points[train], y[train])
        np.testing.assert_array_equal(
            model.decision_function(points), by_hand.decision_function(points)
        )
    assert results["test_score"].mean() > 0.8


@pytest.mark.parametrize(
    "model",
    [SelfTrainingClassifier(LogisticRegression()), LabelSpreading(kernel="knn", n_neighbors=5)],
    ids=["SelfTrainingClassifier", "LabelSpreading"],
)
def test_semi_supervised_models_of_scikit_learn(stream, model):
    points, y, _ = stream
    scores = cross_val_score(model, points, y, cv=SemiSupervisedSplit(4), error_score="raise")
    assert scores.shape == (4,)
    assert scores.mean() > 0.8


@pytest.mark.parametrize("separate", [False, True])
def test_groups_reach_the_splitter(stream, separate):
    points, y, groups = stream
    splitter = SemiSupervisedSplit(GroupKFold(3), separate_groups=separate)
    model = LabelSpreading(gamma=0.5)
    plain = cross_val_score(model, points, y, cv=splitter, groups=groups, error_score="raise")
    by_hand = [
        clone(model).fit(points[train], y[train]).score(points[test], y[test])
        for train, test in splitter.split(points, y, groups)
    ]
    np.testing.assert_array_equal(plain, by_hand)
    with config_context(enable_metadata_routing=True):
        routed = cross_val_score(
            model, points, y, cv=splitter, params={"groups": groups}, error_score="raise"
        )
        search = GridSearchCV(model, {"gamma": [0.5]}, cv=splitter, error_score="raise")
        found = search.fit(points, y, groups=groups).best_score_
    np.testing.assert_array_equal(routed, plain)
    np.testing.assert_allclose(found, plain.mean(), rtol=1e-15)
    search = GridSearchCV(model, {"gamma": [0.5]}, cv=splitter, error_score="raise")
    np.testing.assert_allclose(search.fit(points, y, groups=groups).best_score_, found)


def test_routing_without_groups(stream):
    points, y, _ = stream
    with config_context(enable_metadata_routing=True):
        scores = cross_val_score(LabelSpreading(), points, y, cv=SemiSupervisedSplit(3))
    assert np.isfinite(scores).all()


def test_cross_val_predict_says_why_not(stream):
    points, y, _ = stream
    with pytest.raises(ValueError, match="only works for partitions"):
        cross_val_predict(LabelSpreading(), points, y, cv=SemiSupervisedSplit(3))
