"""Predicting while another thread learns: every prediction comes from one consistent state.

By force, a function that is called in the middle of an answer learns a new class; by race, threads
predict while one learns.
"""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED, load, model_file, save
from seqmed.selection.queries import expected_regret, query
from seqmed.selection.search import PrequentialSearch
from seqmed.tables.stream_pipeline import StreamPipeline

CENTRES = np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 3.0]])
X = np.vstack([CENTRES, CENTRES[::-1] + 0.7, CENTRES.mean(axis=0, keepdims=True)])
Y = np.array([0, 1, 2, 3, 3, 2, 1, 0, 0])


def batch(classes, seed, n=24):
    """Return n rows around the centres of some classes, and their labels."""
    labels = np.resize(classes, n)
    return CENTRES[labels] + np.random.default_rng(seed).normal(size=(n, 3)), labels


# Classes come in the order 2, 3, 0, 1: a new class changes the places of those before it.
FIRST, SECOND = batch([2, 3], 0), batch([0, 2, 3], 1)


class Interruption:
    """Does something once, in the middle of whatever calls it."""

    def __init__(self):
        self.action = None

    def __call__(self):
        action, self.action = self.action, None
        if action is not None:
            action()

    def kernel(self):
        """Return a kernel function that lets the interruption happen after its values are known."""

        def values(left, right):
            distances = np.sum((left[:, None, :] - right[None, :, :]) ** 2, axis=2)
            self()
            return np.exp(-0.3 * distances)

        return values


class Passing(TransformerMixin, BaseEstimator):
    """A transformer that shifts rows by the number of batches learned, and is interrupted."""

    def __init__(self, interruption=None):
        self.interruption = interruption

    def __deepcopy__(self, memo):
        copied = Passing(self.interruption)
        copied.__dict__.update(self.__dict__)
        return copied

    def __sklearn_clone__(self):
        return Passing(self.interruption)

    def fit(self, X, y=None):
        self.shift_ = 0.0
        return self

    def partial_fit(self, X, y=None):
        self.shift_ = getattr(self, "shift_", 0.0) + 0.5
        return self

    def transform(self, X):
        moved = X + self.shift_
        self.interruption()
        return moved


MODELS = {
    "SeqMED": lambda i: SeqMED(i.kernel()),
    "SeqMED-budget": lambda i: SeqMED(i.kernel(), budget=80, random_state=0),
    "SeqLapMED": lambda i: SeqLapMED(i.kernel(), random_state=0),
    "GraphPropagation": lambda i: GraphPropagation(metric=i.kernel(), random_state=0),
    "SeqGraphMED": lambda i: SeqGraphMED(SeqMED(i.kernel()), mixture=0.5, random_state=0),
    "SeqGraphMED-metric": lambda i: SeqGraphMED(metric=i.kernel(), mixture=0.5, random_state=0),
    "pipeline": lambda i: StreamPipeline([("s", StandardScaler()), ("m", SeqMED(i.kernel()))]),
    "pipeline-transformer": lambda i: StreamPipeline(
        [("s", Passing(i)), ("m", SeqMED())]
    ),
    "pipeline-other": lambda i: StreamPipeline(
        [("s", Passing(i)), ("m", SGDClassifier(random_state=0))]
    ),
    "search": lambda i: PrequentialSearch(SeqMED(i.kernel()), {"C": [1.5, 10.0]}),
}  # fmt: skip
QUESTIONS = {
    "predict": lambda model: model.predict(X),
    "predict_proba": lambda model: model.predict_proba(X),
    "predict_log_proba": lambda model: model.predict_log_proba(X),
    "decision_function": lambda model: model.decision_function(X),
    "decision_std": lambda model: model.decision_std(X),
    "score": lambda model: model.score(X, Y),
    "query": lambda model: query(model, X, 3),
    "expected_regret": lambda model: expected_regret(model, X),
}
CASES = [
    (name, question)
    for name in MODELS
    for question in QUESTIONS
    if hasattr(MODELS[name](Interruption()), question)
    or (question in ("query", "expected_regret") and name not in ("pipeline-other",))
]


def first_batch(model, classes=None):
    return model.partial_fit(*FIRST, classes=classes)


def whole_answers(name, question, classes):
    """Return the answers before and after the second batch."""
    model = first_batch(MODELS[name](Interruption()), classes)
    before = QUESTIONS[question](model)
    return before, QUESTIONS[question](model.partial_fit(*SECOND))


@pytest.mark.parametrize(("name", "question"), CASES)
def test_a_batch_learned_in_the_middle_of_an_answer(name, question):
    classes = [0, 2, 3] if "other" in name else None
    before, after = whole_answers(name, question, classes)
    assert not np.array_equal(before, after) or question in ("decision_std", "score", "query")
    interruption = Interruption()
    model = first_batch(MODELS[name](interruption), classes)
    interruption.action = lambda: model.partial_fit(*SECOND)
    found = QUESTIONS[question](model)
    assert interruption.action is None  # it did come in between
    assert np.array_equal(found, before) or np.array_equal(found, after)
    assert np.array_equal(QUESTIONS[question](model), after)


@pytest.mark.parametrize("name", [name for name in MODELS if "other" not in name])
def test_a_new_fit_in_the_middle_of_an_answer(name):
    """Columns and classes of another fit take no part in the answer."""
    model = MODELS[name](Interruption()).fit(*FIRST)
    before = model.predict_proba(X)
    interruption = Interruption()
    model = MODELS[name](interruption).fit(*FIRST)
    narrow = SECOND[0][:, :2], SECOND[1]
    interruption.action = lambda: model.fit(*narrow)
    assert np.array_equal(model.predict_proba(X), before)
    assert model.predict_proba(X[:, :2]).shape == (X.shape[0], 3)


def test_a_fit_that_is_refused_in_the_middle_changes_nothing_at_any_time():
    """While a batch of other columns is learned, rows of the columns before are predicted."""
    interruption, answers = Interruption(), []
    model = SeqMED(interruption.kernel()).fit(*FIRST)
    before = model.predict(X)

    def ask_and_fail():
        answers.append(model.predict(X))
        raise KeyboardInterrupt

    interruption.action = ask_and_fail
    with pytest.raises(KeyboardInterrupt):
        model.fit(SECOND[0][:, :2], SECOND[1])
    assert np.array_equal(answers[0], before)
    assert np.array_equal(model.predict(X), before)


SAVED = {
    "SeqMED": SeqMED,
    "SeqGraphMED": lambda: SeqGraphMED(random_state=0),
    "pipeline": lambda: StreamPipeline([("s", StandardScaler()), ("m", SeqMED())]),
    "search": lambda: PrequentialSearch(SeqMED(), {"C": [1.5, 10.0]}),
}


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("moment", range(6))
def test_saving_while_a_batch_is_learned(name, moment, monkeypatch, tmp_path):
    """Whenever the batch comes, the file holds the model before it or after it."""
    model = first_batch(SAVED[name]())
    before = model.predict_proba(X)
    interruption, encode, calls = Interruption(), model_file.ModelEncoder.encode, []
    interruption.action = lambda: model.partial_fit(*SECOND)

    def interrupted(self, value, where):
        calls.append(where)
        if len(calls) > moment:
            interruption()
        return encode(self, value, where)

    monkeypatch.setattr(model_file.ModelEncoder, "encode", interrupted)
    save(model, tmp_path / "model")
    assert interruption.action is None
    found = load(tmp_path / "model").predict_proba(X)
    assert np.array_equal(found, before) or np.array_equal(found, model.predict_proba(X))


# -- by race ---------------------------------------------------------------------------------------

STREAM = [
    batch([2, 3], 10, 8),
    batch([2, 3, 0], 11, 8),
    batch([3, 0], 12, 8),
    batch([0, 1, 2, 3], 13, 8),
]
RACERS = {
    "SeqMED": (SeqMED, 45_000),
    "SeqGraphMED": (lambda: SeqGraphMED(random_state=0), 25_000),
    "StreamPipeline": (
        lambda: StreamPipeline([("s", StandardScaler()), ("m", SeqMED())]),
        30_000,
    ),
}
READERS = 3
ROWS = X[:1]
ASKED = {
    "predict": lambda model: model.predict(ROWS),
    "predict_proba": lambda model: model.predict_proba(ROWS),
    "decision_function": lambda model: model.decision_function(ROWS),
}


def learned_in_turn(model):
    """Learn the stream from its beginning, yielding after every batch."""
    for number, rows in enumerate(STREAM):
        (model.fit if number == 0 else model.partial_fit)(*rows)
        yield


def key(answer):
    answer = np.asarray(answer)
    return answer.shape, answer.dtype.str, answer.tobytes()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", RACERS)
def test_threads_that_predict_while_one_learns(name):
    """All in all 100,000 answers, each equal to the last bit to that of some state."""
    make, n_calls = RACERS[name]
    model, whole = make(), {asked: set() for asked in ASKED}
    for _ in learned_in_turn(model):
        for asked, ask in ASKED.items():
            whole[asked].add(key(ask(model)))
    assert all(len(answers) > 1 for answers in whole.values())

    found = [{asked: {} for asked in ASKED} for _ in range(READERS)]
    failures, done = [], threading.Event()

    def read(answers):
        try:
            for call in range(n_calls // READERS + 1):
                asked = tuple(ASKED)[call % len(ASKED)]
                answer = key(ASKED[asked](model))
                answers[asked][answer] = answers[asked].get(answer, 0) + 1
        except Exception as failure:
            failures.append(failure)

    def learn():
        try:
            while not done.is_set():
                for _ in learned_in_turn(model):
                    done.wait(0.001)  # for the readers
        except Exception as failure:
            failures.append(failure)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    readers = [threading.Thread(target=read, args=(answers,)) for answers in found]
    learner = threading.Thread(target=learn)
    try:
        for thread in (*readers, learner):
            thread.start()
        for thread in readers:
            thread.join()
    finally:
        done.set()
        learner.join()
        sys.setswitchinterval(interval)
    assert not failures, failures[0]
    assert sum(sum(each.values()) for answers in found for each in answers.values()) >= n_calls
    for asked, answers in whole.items():
        seen = set().union(*(each[asked] for each in found))
        assert seen <= answers
        assert len(seen) > 1  # several states were met
