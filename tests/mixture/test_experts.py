"""Refitted experts: what they are fitted on, when, and what happens if one fails."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from seqmed import SeqGraphMED, load, save
from seqmed.mixture import experts as refitted
from seqmed.mixture.experts import (
    Check,
    Expert,
    StandardisedLogisticRegression,
    column_standards,
    compare_checks,
    default_experts,
    forest_probabilities,
    named_experts,
)
from seqmed.mixture.labeled_rows import no_labeled_rows


def labeled_rows(n, n_classes=3, seed=0, p=4):
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n)
    points = rng.normal(size=(n, p)) + 2.0 * np.eye(n_classes, p)[codes]
    return no_labeled_rows(points).add(points, codes, np.ones(n), 0)


def stream(n=400, n_classes=3, seed=0, share=0.2):
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n)
    X = rng.normal(size=(n, 4)) + 2.0 * np.eye(n_classes, 4)[codes]
    return X, codes, np.where(rng.random(n) < share, codes, -1)


def learned(model, n=400, batch=100, **options):
    X, y, labels = stream(n, **options)
    for start in range(0, n, batch):
        model.partial_fit(X[start : start + batch], labels[start : start + batch])
    return model, X, y


SMALL = (LogisticRegression(), GaussianNB())


# -- one expert -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ExtraTreesClassifier, RandomForestClassifier])
@pytest.mark.parametrize("sparse", [False, True])
def test_forest_probabilities_are_those_of_scikit_learn(kind, sparse):
    rows = labeled_rows(80)
    points = sp.csr_array(rows.points * (rows.points > 0.5)) if sparse else rows.points
    forest = kind(7, random_state=0).fit(points, rows.codes)
    found = forest_probabilities(forest, points)
    np.testing.assert_allclose(found, forest.predict_proba(points), atol=1e-12)


def test_columns_are_standardised_but_for_those_of_zeros_and_ones():
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.normal(5, 9, 50), rng.random(50) < 0.1, np.full(50, 7.0)])
    mean, scale = column_standards(points)
    np.testing.assert_allclose(mean, [points[:, 0].mean(), 0.0, 7.0])
    np.testing.assert_allclose(scale, [points[:, 0].std(), 1.0, 1.0])
    sparse = sp.csr_array(np.column_stack([points[:, :2], np.zeros(50)]))
    mean, scale = column_standards(sparse)
    assert not mean.any()
    root = np.sqrt((sparse.toarray() ** 2).mean())
    np.testing.assert_allclose(scale, [root, 1.0, 1.0])


@pytest.mark.parametrize("name", ["logistic", "extra_trees", "random_forest"])
def test_empty_columns_of_sparse_rows_change_nothing(name):
    """Hashed words have a quarter of a million columns, and trees would draw the empty ones."""
    rows = labeled_rows(80)
    narrow = sp.csr_array(rows.points * (rows.points > 0.5))
    p = narrow.shape[1]
    places = np.arange(p) * 1000
    wide = sp.csr_array((narrow.data, places[narrow.indices], narrow.indptr), (80, 1000 * p))
    expert, known = Expert(name, default_experts()[name]), np.ones(3, dtype=bool)
    found = [
        expert.refitted(rows._replace(points=points), rows.weights, 0).probabilities(points, known)
        for points in (narrow, wide)
    ]
    np.testing.assert_array_equal(*found)
    new = wide.copy()
    new.indices = new.indices + 1  # columns without a row in the fit
    fitted = expert.refitted(rows._replace(points=wide), rows.weights, 0)
    nothing = fitted.probabilities(sp.csr_array((80, 1000 * p)), known)
    np.testing.assert_array_equal(fitted.probabilities(new, known), nothing)


def test_the_logistic_expert_does_not_depend_on_units():
    rows = labeled_rows(60)
    plain = StandardisedLogisticRegression().fit(rows.points, rows.codes, rows.weights)
    other = StandardisedLogisticRegression().fit(1e6 * rows.points, rows.codes, rows.weights)
    found = other.predict_proba(1e6 * rows.points)
    np.testing.assert_allclose(found, plain.predict_proba(rows.points), atol=1e-6)


def test_a_class_without_a_row_has_the_smallest_probability():
    rows = labeled_rows(60, 2)
    expert = Expert("nb", GaussianNB()).refitted(rows, rows.weights, 0)
    found = expert.probabilities(rows.points, np.array([True, True, True, False]))
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_allclose(found[:, 2], found[:, :2].min(axis=1))
    assert not found[:, 3].any()
    moved = expert.with_classes(np.array([3, 1]))
    shifted = moved.probabilities(rows.points, np.array([False, True, True, True]))
    np.testing.assert_allclose(shifted[:, 3], found[:, 0])


def test_an_expert_is_fitted_again_by_the_schedule():
    fitted = Expert("nb", GaussianNB()).refitted(labeled_rows(100), np.ones(100), 0)
    cases = (
        (0.2, 20, 4), (0.2, 100, 15), (0.2, 1000, 300), (0.2, 2000, 600), (0.2, 5000, 2500),
        (0.2, 8000, 4000), (0.01, 20, 100),
    )  # fmt: skip
    for weight, n_labels, needed in cases:
        expert = Expert("nb", GaussianNB(), fitted.fit, needed - 1)
        assert not expert.is_due(n_labels, 3, weight)
        assert Expert("nb", GaussianNB(), fitted.fit, needed).is_due(n_labels, 3, weight)


def test_the_expert_of_recent_labels_is_fitted_after_as_many_with_any_number_of_labels():
    fitted = Expert("nb", GaussianNB()).refitted(labeled_rows(100), np.ones(100), 0)
    for n_labels in (50, 1000, 20_000):
        expert = Expert("recent_logistic", GaussianNB(), fitted.fit, 7)
        assert not expert.is_due(n_labels, 3, 0.2)
        assert replace(expert, n_new=8).is_due(n_labels, 3, 0.2)
        assert not replace(expert, n_new=99).is_due(n_labels, 3, 0.04)
        assert replace(expert, n_new=100).is_due(n_labels, 3, 0.04)


@pytest.mark.parametrize(("failed", "needed"), [(False, 1), (True, 4)])
def test_an_expert_without_a_fit_is_fitted_soon_but_not_at_once_after_a_failure(failed, needed):
    """Otherwise a fit that fails would be tried at every label."""
    assert not Expert("nb", GaussianNB(), None, needed - 1, failed).is_due(50, 3, 0.2)
    assert Expert("nb", GaussianNB(), None, needed, failed).is_due(50, 3, 0.2)


@pytest.mark.parametrize(
    ("kind", "name", "most"),
    [
        (RandomForestClassifier, "n_estimators", 2000),
        (RandomForestClassifier, "n_jobs", 256),
        (ExtraTreesClassifier, "max_leaf_nodes", 100_000),
        (HistGradientBoostingClassifier, "max_iter", 10_000),
        (KNeighborsClassifier, "n_neighbors", 1000),
    ],
)
def test_parameters_of_an_expert_in_a_file_are_bounded(kind, name, most):
    """Loading a file fits its experts: it may not take hours, or thousands of threads."""
    Expert("name", kind(**{name: most})).validate()
    with pytest.raises(ValueError, match=f"{name} of an expert of at most {most}"):
        Expert("name", kind(**{name: most + 1})).validate()


def test_names_of_experts():
    found = named_experts([GaussianNB(), LogisticRegression(), GaussianNB()])
    assert list(found) == ["gaussiannb_1", "logisticregression", "gaussiannb_2"]
    names = ["logistic", "recent_logistic", "extra_trees", "random_forest", "boosting"]
    assert list(default_experts()) == names


# -- within the classifier ------------------------------------------------------------------------


def test_weights_have_the_names_of_all_members():
    model, X, y = learned(SeqGraphMED(random_state=0))
    assert list(model.expert_weights_) == ["core", "graph", *default_experts()]
    assert sum(model.expert_weights_.values()) == pytest.approx(1.0)
    assert list(model.core_weights_) == ["margin", "graph", "linear"]
    assert model.score(X, y) > 0.8
    assert 0.0 <= model.graph_weight_ <= 1.0


@pytest.mark.parametrize("options", [{"experts": ()}, {"experts": []}, {"mixture": 0.3}])
def test_without_experts_there_is_no_pool(options):
    model, _, _ = learned(SeqGraphMED(random_state=0, **options))
    assert list(model.expert_weights_) == ["margin", "graph", "linear"]
    assert model.expert_weights_ == model.core_weights_


def test_probabilities_are_those_of_the_scores():
    model, X, _ = learned(SeqGraphMED(experts=SMALL, random_state=0))
    scores, found = model.decision_function(X), model.predict_proba(X)
    np.testing.assert_allclose(np.exp(scores), found, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), found.argmax(axis=1))
    two, X, _ = learned(SeqGraphMED(experts=SMALL, random_state=0), n_classes=2)
    found = np.log(two.predict_proba(X))
    np.testing.assert_allclose(two.decision_function(X), found[:, 1] - found[:, 0], atol=1e-9)


def test_experts_learn_the_columns_of_the_user():
    """Not those divided by the scales of the columns, and all labels that are kept."""
    X, _, labels = stream()
    X = X * np.array([1.0, 1e3, 1.0, 1e-3])
    model = SeqGraphMED(experts=[GaussianNB()], random_state=0)
    model.fit(X[labels >= 0][:4], labels[labels >= 0][:4])
    for start in range(0, 400, 100):
        model.partial_fit(X[start : start + 100], labels[start : start + 100])
    state = model._state
    assert (model.scale_ != 1.0).any() or not state.column_scale.size
    (expert,) = state.experts
    rows = state.labels.take(np.isin(state.labels.numbers, expert.fit.numbers))
    alone = GaussianNB().fit(rows.points, rows.codes, rows.weights)
    found = expert.fit.classifier.probabilities(X[:20])
    np.testing.assert_array_equal(found, alone.predict_proba(X[:20]))


def test_weights_of_rows_and_classes_reach_the_experts():
    X, _, labels = stream()
    weights = np.random.default_rng(0).choice([0.5, 2.0], 400)
    model = SeqGraphMED(
        experts=[GaussianNB()], class_weight={0: 3.0}, forgetting=0.5, random_state=0
    )
    for start in (0, 200):
        rows = slice(start, start + 200)
        model.partial_fit(X[rows], labels[rows], sample_weight=weights[rows])
    (expert,) = model._state.experts
    rows = model._state.labels
    labeled = labels >= 0
    expected = weights[labeled] * np.where(np.arange(400)[labeled] < 200, 0.5, 1.0)
    np.testing.assert_allclose(rows.weights * rows.discounts, expected)
    used = np.isin(rows.numbers, expert.fit.numbers)
    factors = np.where(rows.codes == 0, 3.0, 1.0)
    np.testing.assert_allclose(expert.fit.weights, (expected * factors)[used])


def test_weights_of_recent_labels_halve_with_every_fifty_labels():
    model, _, _ = learned(SeqGraphMED(class_prior="evidence", random_state=0), n=2500)
    fits = {expert.name: expert.fit for expert in model._state.experts}
    recent, others = fits["recent_logistic"], fits["logistic"]
    newest = recent.numbers[-1]
    assert newest - recent.numbers[0] == 332  # of a weight of 0.01 and more
    np.testing.assert_allclose(recent.weights, 0.5 ** ((newest - recent.numbers) / 50))
    assert (others.weights == 1.0).all()
    assert others.numbers.size > recent.numbers.size


def test_the_expert_of_recent_labels_wins_if_the_boundary_turns():
    rng = np.random.default_rng(0)
    n, angles = 3000, np.linspace(0, np.pi, 3000)
    X = rng.normal(size=(n, 3))
    y = (np.cos(angles) * X[:, 0] + np.sin(angles) * X[:, 1] > 0).astype(int)
    labels = np.where(rng.random(n) < 0.15, y, -1)
    model = SeqGraphMED(random_state=0)
    for start in range(0, n, 100):
        model.partial_fit(X[start : start + 100], labels[start : start + 100])
    weights = model.expert_weights_
    assert weights["recent_logistic"] > 5 * weights["logistic"]


def test_labels_that_are_all_but_forgotten_are_not_fitted():
    X, _, labels = stream()
    model = SeqGraphMED(experts=[GaussianNB()], forgetting=1e-4, random_state=0)
    for rows in (slice(0, 100), slice(100, 200), slice(200, 400)):
        model.partial_fit(X[rows], labels[rows])
    (expert,) = model._state.experts
    assert expert.fit.numbers[0] == np.count_nonzero(labels[:100] >= 0)


def test_equal_classes_have_equal_weights_with_a_uniform_prior():
    X, y, labels = stream(n_classes=2)
    labels[(y == 0) & (np.arange(400) % 3 > 0)] = -1
    model = SeqGraphMED(experts=[GaussianNB()], class_prior="uniform", random_state=0)
    model.partial_fit(X, labels)
    fit = model._state.experts[0].fit
    codes = model._state.labels.codes[: fit.weights.size]
    totals = np.bincount(codes, fit.weights)
    assert totals[0] == pytest.approx(totals[1])


def test_foreign_classifiers_of_all_kinds():
    experts = [
        make_pipeline(StandardScaler(), LogisticRegression()),  # takes no sample weights
        KNeighborsClassifier(3),
        RidgeClassifier(),  # has no predict_proba
    ]
    model, X, y = learned(SeqGraphMED(experts=experts, random_state=0))
    assert list(model.expert_weights_)[2:] == [
        "pipeline",
        "kneighborsclassifier",
        "ridgeclassifier",
    ]
    assert model.score(X, y) > 0.8


def test_experts_may_change_between_batches():
    X, _, labels = stream()
    model = SeqGraphMED(experts=[GaussianNB()], random_state=0)
    model.partial_fit(X[:200], labels[:200])
    size = model._state.record.size
    model.set_params(experts=[GaussianNB(), LogisticRegression()])
    model.partial_fit(X[200:300], labels[200:300])
    record = model._state.record
    assert list(model.expert_weights_)[2:] == ["gaussiannb", "logisticregression"]
    known = record.counts[:size] > 0
    uniform = known / known.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(record.probabilities[:size, 3], uniform)
    assert (record.probabilities[:size, 2] != uniform).any()
    model.set_params(experts=()).partial_fit(X[300:], labels[300:])
    assert list(model.expert_weights_) == ["margin", "graph", "linear"]
    assert model._state.record.probabilities.shape[1] == 0


def test_retracted_labels_leave_the_experts_at_once():
    X, y, _ = stream(n=80)
    wrong = y.copy()
    wrong[60:] = (y[60:] + 1) % 3
    model = SeqGraphMED(experts=[GaussianNB()], forgetting=1.0, random_state=0)
    model.partial_fit(X, wrong).retract(X[60:])
    (expert,) = model._state.experts
    alone = GaussianNB().fit(X[:60], y[:60])
    found = expert.fit.classifier.probabilities(X)
    np.testing.assert_allclose(found, alone.predict_proba(X), atol=1e-9)


def test_boosting_waits_for_labels_and_few_classes(monkeypatch):
    monkeypatch.setattr(refitted, "BOOSTING_LABELS", 60)
    template = default_experts()["boosting"]
    few, many = labeled_rows(59), labeled_rows(60)
    assert Expert("boosting", template).refitted(few, few.weights, 0).fit is None
    assert Expert("boosting", template).refitted(many, many.weights, 0).fit is not None
    classes = labeled_rows(90, 7)
    assert Expert("boosting", template).refitted(classes, classes.weights, 0).fit is None


@pytest.mark.parametrize("experts", [[5], [GaussianNB], [StandardScaler()]])
def test_other_things_than_classifiers_are_refused(experts):
    X, _, labels = stream(n=40)
    model = SeqGraphMED(random_state=0).partial_fit(X, labels)
    state = model._state
    with pytest.raises(TypeError, match="expected classifiers of scikit-learn"):
        model.set_params(experts=experts).partial_fit(X, labels)
    assert model._state is state


def test_every_fit_of_every_expert_has_a_seed_of_its_own():
    """With equal seeds two equal forests would be one, and errors of a fit would stay."""
    X, _, labels = stream()
    model = SeqGraphMED(experts=[ExtraTreesClassifier(3)] * 2, random_state=0)
    seeds = []
    for rows in (slice(0, 200), slice(200, 400)):
        model.partial_fit(X[rows], labels[rows])
        seeds += [expert.fit.seed for expert in model._state.experts]
    assert len(set(seeds)) == 4


# -- failures -------------------------------------------------------------------------------------


class Failing(ClassifierMixin, BaseEstimator):
    """Nearest mean, which does something wrong while it is told to."""

    wrong: str | None = None

    def fit(self, X, y):
        if self.wrong == "raises":
            raise ZeroDivisionError("a bug")
        self.classes_ = np.arange(9) if self.wrong == "classes" else np.unique(y)
        self.means_ = np.array([X[y == each].mean(axis=0) for each in np.unique(y)])
        return self

    def predict_proba(self, X):
        if self.wrong == "interrupt":
            raise KeyboardInterrupt
        distances = ((X[:, None] - self.means_) ** 2).sum(axis=2)
        found = np.exp(-distances) + 1e-9
        found /= found.sum(axis=1, keepdims=True)
        if self.wrong == "nan":
            found[0, 0] = np.nan
        return found[:, :-1] if self.wrong == "shape" else found


@pytest.mark.parametrize("wrong", ["raises", "nan", "shape", "classes"])
def test_an_expert_that_fails_is_left_out_until_a_fit_succeeds(wrong, monkeypatch):
    X, _, labels = stream()
    model = SeqGraphMED(experts=[Failing(), GaussianNB()], random_state=0)
    alone = SeqGraphMED(experts=[GaussianNB()], random_state=0)
    monkeypatch.setattr(Failing, "wrong", wrong)
    with pytest.warns(RuntimeWarning, match="'failing' is left out") as caught:
        model.partial_fit(X[:200], labels[:200])
    assert len(caught) == 1
    assert model.expert_weights_["failing"] == 0.0
    alone.partial_fit(X[:200], labels[:200])
    np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(X), atol=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is not warned of again
        model.partial_fit(X[200:300], labels[200:300])
        monkeypatch.setattr(Failing, "wrong", None)
        model.partial_fit(X[300:], labels[300:])
    assert model._state.experts[0].fit is not None


def test_a_failure_after_a_success_is_warned_of_again(monkeypatch):
    rows, expert = labeled_rows(30), Expert("failing", Failing())
    for _ in range(2):
        monkeypatch.setattr(Failing, "wrong", "raises")
        with pytest.warns(RuntimeWarning, match="'failing' is left out"):
            expert = expert.refitted(rows, rows.weights, 0)
        assert expert.failed
        monkeypatch.setattr(Failing, "wrong", None)
        expert = expert.refitted(rows, rows.weights, 0)
        assert not expert.failed


def test_an_interrupt_during_a_fit_changes_nothing(monkeypatch):
    X, _, labels = stream()
    model = SeqGraphMED(experts=[Failing()], random_state=0).partial_fit(X[:200], labels[:200])
    before, state = model.predict_proba(X), model._state
    monkeypatch.setattr(Failing, "wrong", "interrupt")
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X[200:], labels[200:])
    monkeypatch.setattr(Failing, "wrong", None)
    assert model._state is state
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_a_slow_solver_is_used_without_a_warning():
    expert = MLPClassifier(4, max_iter=2, random_state=0)
    model, _, _ = learned(SeqGraphMED(experts=[expert], random_state=0), n=200)
    assert model._state.experts[0].fit is not None


# -- saving ---------------------------------------------------------------------------------------


def test_a_loaded_model_predicts_and_learns_to_the_bit(tmp_path):
    model, X, _ = learned(SeqGraphMED(random_state=0))
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    more, _, labels = stream(seed=1)
    for each in (model, loaded):
        each.partial_fit(more, labels)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    save(loaded, tmp_path / "again")
    save(model, tmp_path / "model")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_rows_of_a_fit_are_kept_for_the_file(tmp_path, monkeypatch):
    """An expert of a small weight waits, while the sample of labels goes on."""
    from seqmed.mixture import labeled_rows as store

    monkeypatch.setattr(store, "NEWEST", 10)
    monkeypatch.setattr(store, "MOST", 20)
    model = SeqGraphMED(experts=SMALL, random_state=0)
    X, _, labels = stream()
    sizes = []
    for start in range(0, 400, 10):
        model.partial_fit(X[start : start + 10], labels[start : start + 10])
        kept = model._state.labels
        sizes.append(kept.size)
        if kept.size > 20:
            assert np.count_nonzero(kept.sampled) == 20
            save(model, tmp_path / "model")
            loaded = load(tmp_path / "model")
            np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert 20 < max(sizes) < 50


def test_other_versions_are_named_if_they_differ(tmp_path, monkeypatch):
    model, _, _ = learned(SeqGraphMED(experts=[GaussianNB()], random_state=0))
    save(model, tmp_path / "model")
    monkeypatch.setattr("sklearn.__version__", "9.9")
    load(tmp_path / "model")  # the same probabilities
    monkeypatch.setattr(
        GaussianNB, "predict_proba", lambda self, X: np.full((X.shape[0], 3), 1 / 3)
    )
    with pytest.warns(RuntimeWarning, match=r"fitted again with scikit-learn 9\.9"):
        load(tmp_path / "model")


def test_probabilities_of_another_shape_are_other_probabilities():
    points = np.zeros((2, 4))
    saved, now = (Check(points, np.full((2, n, 3), 1 / 3), "1.0") for n in (1, 2))
    with pytest.warns(RuntimeWarning, match="differ by up to 1"):
        compare_checks(saved, now)


@pytest.mark.parametrize(
    ("expert", "reason"),
    [
        (make_pipeline(StandardScaler(), LogisticRegression()), "cannot be saved"),
        (MLPClassifier(4, max_iter=5), "cannot be saved"),
        (RandomForestClassifier(n_estimators=5000, max_depth=1), "n_estimators of an expert"),
    ],
)
def test_other_experts_are_refused_when_saved(expert, reason, tmp_path):
    X, _, labels = stream(n=60)
    model = SeqGraphMED(experts=[GaussianNB()], random_state=0).partial_fit(X, labels)
    model.set_params(experts=[expert])
    if "Forest" in str(expert):
        state = model._state
        other = state.experts[0].__class__("randomforestclassifier", expert)
        model._state = state._replace(experts=(other,))
    with pytest.raises(ValueError, match=reason):
        save(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()
