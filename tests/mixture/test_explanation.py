"""Explanations: the votes add up, the rows are those of the user, and nothing else is said."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED, StreamPipeline, load, save
from seqmed.mixture import contributions, explanation, pooling
from seqmed.mixture.mixture_state import core_scores
from tests.support.state import state_bits

pytestmark = pytest.mark.filterwarnings(
    "ignore::seqmed.estimators.seqgraphmed.ConceptChangeWarning"
)

EVERYTHING = 10_000
FEW_TREES = (
    LogisticRegression(),
    ExtraTreesClassifier(5, max_depth=4),
    RandomForestClassifier(5, max_depth=4),
)
UNITS = np.array([1.0, 1000.0, 0.01, 1.0])


def stream(
    n_classes=3, n_batches=4, size=60, form="dense", share=0.3, seed=0, swap=None, units=UNITS
):
    """Overlapping clouds with columns of different units; the classes swap at a batch."""
    rng = np.random.default_rng(seed)
    for number in range(n_batches):
        codes = rng.integers(n_classes, size=size)
        X = rng.normal(size=(size, 4)) + 2.0 * np.eye(n_classes, 4)[codes]
        X = sp.csr_array(np.where(X > 0.3, X, 0.0)) if form == "csr" else X * units
        codes = codes if swap is None or number < swap else (codes + 1) % n_classes
        yield X, np.array(["a", "b", "c"])[codes], rng.random(size) < share


def learned(model, **options):
    """Return the model after a stream, its labeled rows and their labels, and rows to explain."""
    rows, labels = [], []
    for X, y, given in stream(**options):
        model.partial_fit(X, np.where(given, y, None))
        rows.append(X[np.flatnonzero(given)])
        labels += y[given].tolist()
    stacked = sp.csr_array(sp.vstack(rows)) if sp.issparse(rows[0]) else np.vstack(rows)
    X, _, _ = next(stream(seed=99, size=12, **{**options, "n_batches": 1}))
    return model, stacked, labels, X


def on_trial(experts=()):
    """Return a model with a new start on trial."""
    model = SeqGraphMED(experts=experts, random_state=0)
    for X, y, given in stream(n_classes=2, n_batches=20, share=0.5, swap=6):
        model.partial_fit(X, np.where(given, y, None))
        if model._state.trial is not None:
            return model, X
    raise AssertionError("no new start")


def vote_of(found, expert):
    (one,) = [each for each in found.votes if each.expert == expert]
    return one


def log_odds(probabilities, place):
    """The definition, from probabilities (K,)."""
    logs = np.log(probabilities)
    return logs[place] - np.delete(logs, place).mean()


# -- the parts add up -----------------------------------------------------------------------------

CORES = {
    "rbf": (SeqMED(), "dense", {}),
    "linear": (SeqMED("linear"), "dense", {}),
    "words": (SeqMED("linear"), "csr", {}),
    "sparse rbf": (SeqMED("rbf"), "csr", {}),
    "budget": (SeqMED(budget=20), "dense", {}),
    "averaged": (SeqMED(window=15), "dense", {}),
    "laplacian": (SeqLapMED(n_landmarks=20, random_state=0), "dense", {}),
    "one machine": (SeqMED(bias="exact"), "dense", {}),
    "fixed weight": (None, "dense", {"mixture": 0.4}),
    "class weights": (None, "dense", {"class_weight": {"a": 3.0}}),
    "proportions": (None, "dense", {"class_prior": {"a": 0.6, "b": 0.3, "c": 0.1}}),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("core", CORES)
def test_the_core_is_a_sum_of_terms_and_these_of_columns_and_rows(core, n_classes):
    estimator, form, more = CORES[core]
    if core == "proportions" and n_classes == 2:
        more = {"class_prior": {"a": 0.6, "b": 0.4}}
    model = SeqGraphMED(estimator, experts=(), random_state=0, **more)
    units = 1.0 if core == "linear" else UNITS  # it does not scale columns
    model, _, _, X = learned(model, n_classes=n_classes, form=form, units=units)
    state = model._state
    scores = core_scores(state, state.scaled(X))
    graph = state.graph.scores(state.graph.search(state.scaled(X)), state.class_weights)
    said = 0
    for row, found in enumerate(model.explain(X, n=EVERYTHING)):
        place = model.classes_.tolist().index(found.label)
        (member,) = found.members
        assert (member.name, member.weight) == ("core", 1.0)
        expected = scores[row, place] - np.delete(scores[row], place).mean()
        assert sum(member.terms.values()) == pytest.approx(expected, abs=1e-9)
        assert {*member.terms} == {name for name, w in model.core_weights_.items() if w > 0}
        for one in found.votes:
            parts = [part.contribution for part in (*one.columns, *one.rows)]
            assert one.baseline + sum(parts) == pytest.approx(one.score, abs=1e-9)
            assert one.rest == pytest.approx(0.0, abs=1e-9)
            assert one.weight == pytest.approx(model.core_weights_[one.expert])
            expected = member.terms[one.expert]
            if one.expert == "graph":
                expected = 2.0 * graph[row, place] - 1.0
            assert one.score == pytest.approx(expected, abs=1e-8)
            said += 1
    assert said >= X.shape[0]


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_support_vectors_speak_for_their_class(form):
    """The contribution is the multiplier times the kernel value, summed over the machines."""
    model = SeqGraphMED(SeqMED("rbf"), mixture=0.0, random_state=0)
    model, _, _, X = learned(model, form=form)
    state, posterior = model._state, model._state.margin.posterior
    kernel, window = posterior.covariance.kernel, posterior.window
    factors = contributions.core_factors(state)[0]
    for row, found in enumerate(model.explain(X, n=EVERYTHING)):
        place = model.classes_.tolist().index(found.label)
        expected = []
        for i in range(window.size):
            value = kernel(state.scaled(X[[row]]), window.points[[i]])[0, 0]
            terms = 0.5 * value * window.coefficients[i] * factors
            expected.append(terms[place] - np.delete(terms, place).mean())
        one = vote_of(found, "margin")
        values = [part.contribution for part in one.rows]
        np.testing.assert_allclose(sorted(values), sorted(v for v in expected if v), atol=1e-9)
        speaking = max(one.rows, key=lambda part: part.contribution)
        assert speaking.label == found.label
    assert all(part.label == found.label for part in one.rows[:1])


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_linear_contribution_is_the_change_of_the_log_odds(form, n_classes):
    """With the value of the reference instead, the log odds would be smaller by it."""
    model = SeqGraphMED(experts=FEW_TREES[:1], random_state=0)
    model, rows, _, X = learned(model, form=form, n_classes=n_classes)
    expert = model._state.experts[0].fit.classifier.model
    reference = np.zeros(4) if form == "csr" else rows.mean(axis=0)
    said = 0
    for row, found in enumerate(model.explain(X, n=EVERYTHING)):
        for one in found.votes:
            if one.expert != "logisticregression":
                continue
            x, place = X[[row]], model.classes_.tolist().index(found.label)
            x = x.toarray() if form == "csr" else x
            full = log_odds(expert.predict_proba(x)[0], place)
            assert one.score == pytest.approx(full, abs=1e-9)
            assert one.baseline == pytest.approx(
                log_odds(expert.predict_proba(reference[None])[0], place), abs=1e-9
            )
            for part in one.columns:
                column = int(part.name.removeprefix("x"))
                assert part.value == x[0, column]
                other = x.copy()
                other[0, column] = reference[column]
                without = log_odds(expert.predict_proba(other)[0], place)
                assert part.contribution == pytest.approx(full - without, abs=1e-9)
                said += 1
    assert said > 10


def naive_path(tree, x, place):
    """The root's probability of a class, and the changes on the path by column."""
    node, changes = 0, np.zeros(x.size)
    shares = tree.value[:, 0] / tree.value[:, 0].sum(axis=1, keepdims=True)
    while tree.children_left[node] >= 0:
        column = tree.feature[node]
        left = np.float32(x[column]) <= tree.threshold[node]
        child = (tree.children_left if left else tree.children_right)[node]
        changes[column] += shares[child, place] - shares[node, place]
        node = child
    return shares[0, place], changes


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize(
    "expert", [FEW_TREES[1], FEW_TREES[2], DecisionTreeClassifier(max_depth=4)]
)
def test_the_columns_of_a_forest_are_those_of_the_splits_on_the_path(expert, form):
    model, _, _, X = learned(SeqGraphMED(experts=[expert], random_state=0), form=form, share=0.6)
    (own,) = model._state.experts
    forest, said = own.fit.classifier.model, 0
    trees = [tree.tree_ for tree in getattr(forest, "estimators_", [forest])]
    for row, found in enumerate(model.explain(X, n=EVERYTHING)):
        x, place = X[[row]], model.classes_.tolist().index(found.label)
        x = (x.toarray() if form == "csr" else x)[0]
        for one in found.votes:
            if one.expert != own.name:
                continue
            roots, changes = zip(*(naive_path(tree, x, place) for tree in trees), strict=True)
            assert one.baseline == pytest.approx(np.mean(roots))
            expected = {f"x{c}": v for c, v in enumerate(np.mean(changes, axis=0)) if v}
            assert {part.name: part.contribution for part in one.columns} == pytest.approx(expected)
            assert one.score == pytest.approx(forest.predict_proba([x])[0, place])
            assert one.unit == "probability"
            said += 1
    assert said > 5


@pytest.mark.parametrize(
    ("expert", "is_linear"),
    [
        (RidgeClassifier(), True),
        (LinearSVC(), True),
        (LinearDiscriminantAnalysis(), True),
        (SVC(kernel="linear", probability=False), False),  # one coefficient per pair of classes
        (GaussianNB(), False),
        (make_pipeline(StandardScaler(), LogisticRegression()), False),
    ],
)
def test_experts_whose_log_odds_are_linear_are_recognised(expert, is_linear):
    model = SeqGraphMED(experts=[expert], random_state=0)
    model, _, _, X = learned(model, share=0.6, units=1.0)
    (own,) = model._state.experts
    assert own.fit is not None
    linear = contributions.linear_form(own, X, 3)
    assert (linear is not None) == is_linear
    if is_linear:
        scores = linear.scores(X)
        found = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found, own.fit.classifier.probabilities(X), atol=1e-6)


def test_a_class_that_an_expert_has_not_seen():
    """Its linear score is the smallest of the others, and a forest has no vote on it."""
    model, _, _, X = learned(SeqGraphMED(experts=FEW_TREES, random_state=0), n_classes=2)
    logistic, _, forest = model._state.experts
    known, codes = np.ones(3, dtype=bool), np.array([0, 1, 2])
    gains = contributions.contrasts(codes, known)
    reference = X.mean(axis=0)
    baseline, columns = contributions.expert_contributions(
        logistic, X[:3], reference, codes, gains
    )[2:4]
    probabilities = logistic.fit.classifier.probabilities(X[:3])
    full = np.column_stack([probabilities, probabilities.min(axis=1)])
    expected = [log_odds(full[row], row) for row in range(3)]
    np.testing.assert_allclose(baseline + columns.sum(axis=1), expected, atol=1e-9)
    found = contributions.expert_contributions(forest, X[:3], reference, codes, gains)
    assert np.isfinite(found.baseline).tolist() == [True, True, False]


# -- the pool, and a trial ------------------------------------------------------------------------


def assert_members_make_the_prediction(model, X):
    """The weighted means at the temperatures, one for each state, are the probabilities."""
    state, expected = model._state, model.predict_proba(X)
    weights = {name: weight for name, weight in model.expert_weights_.items() if weight > 0}
    states = [(False, state)]
    if state.trial is not None:
        states = [(False, state.trial.state), (True, state)]
    for row, found in enumerate(model.explain(X)):
        assert found.label == model.predict(X)[row]
        assert found.probability == expected[row].max()
        np.testing.assert_array_equal(found.probabilities, expected[row])
        if state.has_pool:
            assert {each.name: each.weight for each in found.members} == pytest.approx(weights)
        sizes = [each.weight for each in found.members]
        assert sizes == sorted(sizes, reverse=True)
        assert sum(sizes) == pytest.approx(1.0)
        pooled = []
        for place, (new, each) in enumerate(states):
            own = [member for member in found.members if member.name.startswith("new ") == new]
            weight = sum(member.weight for member in own)
            mean = sum(member.weight * member.probabilities for member in own) / weight
            at = each.pool.temperature if each.has_pool else 1.0
            shares = pooling.sharpened(mean[None], at)
            if state.trial is not None:
                shares = pooling.sharpened(shares, state.trial.temperatures[place])
            pooled.append((weight, shares))
        total = sum(weight * each[0] for weight, each in pooled)
        np.testing.assert_allclose(total, expected[row], atol=1e-9)


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_the_members_make_the_prediction(form):
    model, _, _, X = learned(SeqGraphMED(experts=FEW_TREES, random_state=0), form=form)
    assert_members_make_the_prediction(model, X)


@pytest.mark.parametrize("experts", [(), FEW_TREES[:1]])
def test_both_states_of_a_trial_are_explained(experts):
    model, X = on_trial(experts)
    assert_members_make_the_prediction(model, X[:10])
    names = {each.expert for found in model.explain(X[:10]) for each in found.votes}
    assert {"margin", "new margin"} <= names or {"graph", "new graph"} <= names


# -- rows and columns of the user -----------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_rows_are_labeled_rows_as_they_were_learned(form):
    """Columns are divided by scales in the model, and rows of the graph have single precision."""
    model = SeqGraphMED(experts=FEW_TREES, random_state=0)
    model, rows, labels, X = learned(model, form=form)
    assert form == "csr" or (model.scale_ != 1.0).any()
    known = {}
    for place, label in enumerate(labels):
        row = rows[[place]].toarray()[0] if form == "csr" else rows[place]
        known.setdefault(row.tobytes(), set()).add(label)
    said = set()
    for found in model.explain(X):
        for one in found.votes:
            for part in one.rows:
                row = part.row.toarray()[0] if form == "csr" else part.row
                assert part.label in known[row.tobytes()]
                if one.expert == "graph":
                    assert (part.contribution > 0) == (part.label == found.label)
                said.add(one.expert)
    assert said == {"graph", "margin"}


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_labeled_rows_that_are_not_kept_are_not_invented(form):
    """A support vector has its values still, and nothing but its label is known of a graph's."""
    model, _, _, X = learned(SeqGraphMED(SeqMED("rbf"), mixture=0.5, random_state=0), form=form)
    before, state = model.explain(X), model._state
    model._state = state._replace(labels=state.labels.take(np.arange(1)))
    for old, new in zip(before, model.explain(X), strict=True):
        for one in ("margin", "graph"):
            for was, now in zip(vote_of(old, one).rows, vote_of(new, one).rows, strict=True):
                assert now.contribution == was.contribution
                if one == "graph":
                    assert now.label == was.label
                    assert now.row is None or abs(now.row - was.row).max() == 0
                else:
                    assert now.label in (None, was.label)
                    assert abs(now.row - was.row).max() <= 1e-12 * abs(was.row).max()
        assert "(not kept)" in str(new)


def test_columns_have_the_names_of_the_frame():
    model = SeqGraphMED(experts=FEW_TREES, random_state=0)
    names = ["length", "mass", "width", "age"]
    for X, y, given in stream():
        model.partial_fit(pd.DataFrame(X, columns=names), np.where(given, y, None))
    found = model.explain(pd.DataFrame(X[:5], columns=names), n=4)
    said = {
        (row, part.name, part.value)
        for row, each in enumerate(found)
        for one in each.votes
        for part in one.columns
    }
    assert said
    assert all(value == X[row, names.index(name)] for row, name, value in said)
    rows = [part.row for each in found for one in each.votes for part in one.rows]
    assert rows
    assert all([*row] == names for row in rows)


def test_the_largest_contributions_are_listed():
    model, _, _, X = learned(SeqGraphMED(experts=FEW_TREES, random_state=0))
    for few, full in zip(model.explain(X, n=2), model.explain(X, n=EVERYTHING), strict=True):
        for one, every in zip(few.votes, full.votes, strict=True):
            sizes = sorted((abs(part.contribution) for part in every.columns), reverse=True)
            assert [abs(part.contribution) for part in one.columns] == sizes[:2]
            values = [part.contribution for part in every.rows]
            most, least = sorted(values)[::-1][:2], sorted(values)[:2]
            expected = [v for v in most if v > 0] + [v for v in least if v < 0]
            assert [part.contribution for part in one.rows] == expected
            parts = [part.contribution for part in (*one.columns, *one.rows)]
            assert one.baseline + sum(parts) + one.rest == pytest.approx(one.score)
            assert one.score == pytest.approx(every.score)


def test_rows_are_explained_alike_in_small_parts(monkeypatch):
    model, _, _, X = learned(SeqGraphMED(experts=FEW_TREES, random_state=0))
    whole = [each.to_dict() for each in model.explain(X)]
    monkeypatch.setattr(explanation, "AT_ONCE", 5)
    for one, other in zip(whole, model.explain(X), strict=True):
        assert one["label"] == other.label
        for first, second in zip(one["votes"], other.to_dict()["votes"], strict=True):
            assert first["score"] == pytest.approx(second["score"], abs=1e-9)
            assert [part["row"] for part in first["rows"]] == [
                part["row"] for part in second["rows"]
            ]


# -- the whole ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_an_explanation_is_plain_values_and_a_text(form):
    model, _, _, X = learned(SeqGraphMED(experts=FEW_TREES, random_state=0), form=form)
    for found in model.explain(X):
        values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert values["label"] == found.label
        assert len(values["votes"]) == len(found.votes)
        text = str(found)
        assert text.startswith(f"{found.label} {found.probability:.3f}, ")
        assert all(each.name in text for each in found.members)
        assert text.count("others") == len(found.votes)


def test_nothing_changes_and_a_loaded_model_explains_alike(tmp_path):
    model, _, _, X = learned(SeqGraphMED(experts=FEW_TREES, random_state=0))
    before = state_bits(model)
    found = [each.to_dict() for each in model.explain(X)]
    assert state_bits(model) == before
    save(model, tmp_path / "model")
    assert [each.to_dict() for each in load(tmp_path / "model").explain(X)] == found


def test_models_that_cannot_explain_say_so():
    model = SeqGraphMED(experts=(), random_state=0)
    with pytest.raises(NotFittedError):
        model.explain([[0.0]])
    model.partial_fit([[0.0], [1.0]], [None, None])
    with pytest.raises(NotFittedError, match="has learned no label"):
        model.explain([[0.0]])
    model.partial_fit([[0.0], [1.0]], ["a", None])
    with pytest.raises(ValueError, match="knows the class 'a' only, expected at least two"):
        model.explain([[0.0]])
    model.partial_fit([[0.0], [1.0]], ["a", "b"])
    with pytest.raises(ValueError, match="2 features"):
        model.explain([[0.0, 1.0]])
    for n in (0, 1.5, True, None):
        with pytest.raises(ValueError, match="expected an integer >= 1"):
            model.explain([[0.0]], n=n)
    assert len(model.explain([[0.0], [1.0]])) == 2
    for other in (SeqMED(), GraphPropagation()):
        assert not hasattr(StreamPipeline([("model", other)]), "explain")


def test_rows_that_overflow_no_expert_are_explained():
    """A row far from all others has no neighbours worth the name, but an explanation."""
    model, _, _, X = learned(SeqGraphMED(experts=FEW_TREES, random_state=0))
    (found,) = model.explain(1e30 * X[:1])
    assert np.isfinite([one.score for one in found.votes]).all()
    assert replace(found, votes=()).label == model.predict(1e30 * X[:1])[0]
