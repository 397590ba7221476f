"""Random sequences of operations on the classifiers, as a careless user would write them.

A sequence is drawn from its number: a classifier with random parameters, a table with its defects
(constant columns, repeated rows, rows with opposite labels, scales that differ), and operations.
After every operation:

- an error is a ValueError, a TypeError or a NotFittedError that this package or scikit-learn's
  validation raised, and the classifier is the same as before, to the last bit;
- a warning is a UserWarning, never one of numpy;
- no solver has taken more steps than such small batches need;
- predictions are numbers, and those of a row do not depend on the rows beside it;
- a copy by pickle or by a file gives the same predictions.

All 2,000 sequences, and the slowest of them: ``pytest -n 2 --durations 10
tests/property/test_sequences.py``. With ``-m "not exhaustive"`` it is the first 60 only.
"""

from __future__ import annotations

import linecache
import pickle
import traceback
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import seqmed
from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED
from seqmed.selection.queries import query
from tests.support.state import state_bits

SEQUENCES, BY_DEFAULT = 2000, 60
REFUSALS = (ValueError, TypeError, NotFittedError)
# Largest number of steps of a solver, and of iterations of conjugate gradients, in one operation.
# A batch has at most 40 rows.
MOST_STEPS, MOST_ITERATIONS = 500_000, 2_000
# Largest difference of a prediction between alone and beside other rows, relative to its size; and
# of a decision value, relative to the sum of |term| over its terms: these may cancel, and products
# of matrices round their sums differently beside other rows.
COMPANY, OF_TERMS = 1e-9, float(np.finfo(float).eps)
PREDICTIONS = ("decision_function", "predict_proba", "decision_std")
CLASSES = {
    "integers": np.array([0, 1, 2, 3]),
    "strings": np.array(["ant", "bee", "cat", "dog"]),
    "floats": np.array([0.0, 1.0, 2.0, 3.0]),
    "signs": np.array([1, -1, 2, 3]),
}


def cauchy(left, right):
    """A kernel function as a user might write it, for dense and sparse rows."""
    left = left.toarray() if sp.issparse(left) else left
    right = right.toarray() if sp.issparse(right) else right
    return 1.0 / (1.0 + ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2))


class Drawing:
    """Random choices from a seed."""

    def __init__(self, seed):
        self.generator = np.random.default_rng((29, seed))

    def of(self, *choices):
        """Return one of the choices."""
        return choices[int(self.generator.integers(len(choices)))]

    def chance(self, probability):
        return bool(self.generator.random() < probability)

    def up_to(self, n):
        """Return an integer from 1 to n, small ones more often."""
        return int(np.ceil(n ** self.generator.random()))


# -- classifiers -----------------------------------------------------------------------------------


def margin_parameters(draw, counts):
    kernels = [{"kernel": "tfidf"}] * 3 if counts else []
    kernels += [
        {}, {}, {"gamma": 0.5}, {"kernel": "linear"}, {"kernel": "poly", "degree": 2, "coef0": 1.0},
        {"kernel": "auto"}, {"kernel": cauchy},
    ]  # fmt: skip
    return {
        **draw.of(*kernels),
        "C": draw.of(10.0, 10.0, 2.0, 1.01, 1.0, 0.1, 100.0, 1e6),
        "bias": draw.of("auto", "auto", "auto", "exact", "median"),
        "window": draw.of(500, None, 1, 7),
        "lag": draw.of(None, None, 1, 2),
        "averaging": draw.chance(0.2),
        "forgetting": draw.of(1.0, 1.0, 0.9, 0.05),
        "budget": draw.of(None, None, None, 2, 5, 20),
        "class_weight": draw.of(None, None, "balanced"),
        "random_state": draw.of(0, 0, None, np.random.RandomState(1)),
    }


def smooth_parameters(draw, counts):
    parameters = margin_parameters(draw, counts)
    recursion = draw.of("landmarks", "landmarks", "exact", "spectral")
    if recursion == "spectral":  # what it does not support is refused: test_bad_input
        parameters |= {"averaging": False, "forgetting": 1.0, "kernel": draw.of("rbf", "linear")}
    if recursion != "landmarks":
        parameters["budget"] = None
    penalties = [{}, {"beta": 0.0}, {"beta": 0.1}, {"beta": 10.0}]
    penalties.append({"gamma_A": 0.01, "gamma_I": 0.01, "C": 10.0})
    return {
        **parameters,
        **draw.of(*penalties),
        "recursion": recursion,
        "n_landmarks": draw.of(500, 1, 4),
        "n_neighbors": draw.of(10, 1, 3),
        "weights": draw.of("heat", "binary"),
    }


def graph_parameters(draw):
    return {
        "graph_memory": draw.of("auto", 2, 5, 30),
        "n_neighbors": draw.of(10, 1, 3),
        "alpha": draw.of(0.97, 0.0, 0.5, 0.999),
        "metric": draw.of("auto", "auto", "euclidean", "cosine", cauchy),
        "random_state": draw.of(0, 0, None, np.random.RandomState(1)),
    }


def drawn_classifier(draw, counts):
    kind = draw.of(SeqMED, SeqLapMED, GraphPropagation, SeqGraphMED, SeqGraphMED)
    if kind is SeqMED:
        return SeqMED(**margin_parameters(draw, counts))
    if kind is SeqLapMED:
        return SeqLapMED(**smooth_parameters(draw, counts))
    if kind is GraphPropagation:
        return GraphPropagation(**graph_parameters(draw), forgetting=draw.of(1.0, 0.9, 0.05))
    estimator = draw.of(
        None, None, SeqMED(**margin_parameters(draw, counts)),
        SeqLapMED(**smooth_parameters(draw, counts)),
    )  # fmt: skip
    return SeqGraphMED(
        estimator,
        **graph_parameters(draw),
        scale=draw.of("auto", None),
        mixture=draw.of("evidence", "evidence", 0.0, 0.5, 1.0),
        class_prior=draw.of("auto", "evidence", "uniform"),
        forgetting=draw.of("auto", "auto", 1.0, 0.9, 0.05),
        class_weight=None if estimator is not None else draw.of(None, "balanced"),
    )


# What `set_params` may set between batches, and what it may not.
ALLOWED = {
    "C": (0.1, 1.0, 2.0, 50.0),
    "class_weight": (None, "balanced"),
    "window": (None, 3, 500),
    "lag": (None, 1, 3),
    "forgetting": (1.0, 0.5, 0.01),
    "tol": (1e-3, 1e-6),
    "mixture": ("evidence", 0.3),
    "class_prior": ("uniform", "evidence"),
    "beta": (None, 0.0, 1.0),
}
REFUSED = {
    "C": (-1.0, 0.0, np.nan, "ten"),
    "kernel": ("cubic", 3),
    "gamma": (0.123, -1.0),
    "forgetting": (0.0, 1.5, "never"),
    "n_neighbors": (0, 4, 2.5),
    "window": (0,),
    "budget": (1, 17),
    "recursion": ("wrong",),
    "metric": ("manhattan", 3),
    "graph_memory": (1, 12_345, "all"),
    "class_weight": ("equal", {"fox": 2.0, 7: 1.0}, {0: -1.0}),
    "estimator": (SeqMED, "SeqMED"),
    "mixture": (-0.5, "all"),
    "random_state": ("seed",),
    "averaging": ("yes",),
}


# -- tables ----------------------------------------------------------------------------------------


class Table:
    """Rows as a user may have them: a pool, from which rows may come more than once."""

    def __init__(self, draw):
        self.draw, generator = draw, draw.generator
        self.counts = draw.chance(0.2)
        self.width = draw.up_to(6)
        self.sparse = draw.chance(0.25)
        self.n_classes = draw.of(1, 2, 2, 3, 4)
        self.kind = draw.of(*CLASSES)
        self.codes = generator.integers(self.n_classes, size=80)
        centres = draw.of(0.0, 1.0, 4.0) * generator.normal(size=(4, self.width))
        self.rows = centres[self.codes] + generator.normal(size=(80, self.width))
        if self.counts:
            self.rows = generator.poisson(np.exp(np.clip(self.rows, -3, 3))).astype(float)
        elif draw.chance(0.2):
            self.rows *= 10.0 ** generator.integers(-3, 4, self.width)
        self.rows[:, generator.random(self.width) < 0.15] = draw.of(0.0, 1.0)
        if draw.chance(0.2):  # few distinct rows
            self.rows = self.rows[generator.integers(draw.up_to(10), size=80)]
        if draw.chance(0.15):  # labels that say nothing
            self.codes = generator.integers(self.n_classes, size=80)

    def batch(self, unlabeled=None):
        """Return places in the pool, and codes, -1 for unlabeled rows."""
        generator = self.draw.generator
        places = generator.integers(80, size=self.draw.up_to(40))
        codes = self.codes[places].copy()
        flipped = generator.random(codes.size) < self.draw.of(0.0, 0.0, 0.2)
        codes[flipped] = generator.integers(self.n_classes, size=flipped.sum())
        if self.draw.chance(0.2):  # one class only
            codes[:] = codes[0]
        share = self.draw.of(0.0, 0.5, 0.9, 1.0) if unlabeled is None else unlabeled
        codes[generator.random(codes.size) < share] = -1
        return places, codes

    def form(self, rows):
        return sp.csr_array(rows) if self.sparse else rows.copy()

    def labels(self, codes):
        """Return labels as a user writes them, with a random marker for missing labels."""
        names = CLASSES[self.kind][codes].astype(object)
        missing = {"strings": ("", None), "floats": (np.nan, -1.0), "signs": (None, np.nan)}
        names[codes < 0] = self.draw.of(*missing.get(self.kind, (-1, None, np.nan)))
        if self.kind == "floats":
            return names.astype(float)
        return self.draw.of(names, names.tolist())


# -- sequences -------------------------------------------------------------------------------------


class Sequence:
    """A classifier, the rows it was given, and the operations so far."""

    def __init__(self, seed, folder):
        self.draw = Drawing(seed)
        self.table = Table(self.draw)
        self.model = drawn_classifier(self.draw, self.table.counts)
        if self.table.kind == "signs":
            set_unlabeled(self.model, None)
        self.folder = folder
        self.learned: list[tuple[int, int]] = []  # places in the pool, and codes
        self.log = [f"{self.model!r}, {vars(self.table)['kind']}, {self.table.rows.shape}"]

    def run(self):
        operations = (
            self.partial_fit, self.partial_fit, self.partial_fit, self.fit, self.late_labels,
            self.retract, self.change_parameters, self.refused_parameters, self.refused_input,
            self.refused_input, self.copy, self.read,
        )  # fmt: skip
        self.partial_fit()
        for _ in range(5 + self.draw.up_to(10)):
            self.draw.of(*operations)()
        self.check_predictions()

    # -- calls -------------------------------------------------------------------------------------

    def call(self, words, function, *, refused=False):
        """Call a function of the model; return whether it was accepted."""
        self.log.append(words)
        before, generators = state_bits(self.model), random_states(self.model)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                function()
            except REFUSALS as refusal:
                assert_ours(refusal)
                self.log[-1] += f": {type(refusal).__name__}: {refusal}"
                assert state_bits(self.model) == before, "a refused call changed the state"
                assert random_states(self.model) == generators, "a refused call drew numbers"
                return False
        for warning in caught:
            assert issubclass(warning.category, UserWarning), str(warning.message)
        assert not refused, "this call must be refused"
        steps, iterations = solver_steps(self.model)
        assert steps <= MOST_STEPS
        assert iterations <= MOST_ITERATIONS
        return True

    def arguments(self, places, codes, *, weighted=True):
        """Return X, y and further arguments."""
        more = {}
        if weighted and self.draw.chance(0.2):
            more["sample_weight"] = self.draw.generator.choice([0.0, 0.1, 1.0, 5.0], places.size)
        return self.table.form(self.table.rows[places]), self.table.labels(codes), more

    def partial_fit(self):
        places, codes = self.table.batch()
        X, y, more = self.arguments(places, codes)
        if self.draw.chance(0.1):
            more["classes"] = CLASSES[self.table.kind][: self.table.n_classes]
        words = f"partial_fit {list(y)} {list(more)}"
        if self.call(words, lambda: self.model.partial_fit(X, y, **more)):
            self.learned += zip(places.tolist(), codes.tolist(), strict=True)
            self.maybe_check_predictions()

    def fit(self):
        if self.learned and self.draw.chance(0.5):
            return
        places, codes = self.table.batch(unlabeled=0.5)
        X, y, more = self.arguments(places, codes)
        if self.call(f"fit {list(y)} {list(more)}", lambda: self.model.fit(X, y, **more)):
            self.learned = list(zip(places.tolist(), codes.tolist(), strict=True))
            self.maybe_check_predictions()

    def earlier(self, n):
        """Return places and codes of some rows that were learned."""
        chosen = self.draw.generator.integers(len(self.learned), size=n)
        places, codes = np.array([self.learned[each] for each in chosen]).T
        return places, codes

    def late_labels(self):
        places, codes = self.table.batch(unlabeled=0.1)
        if self.learned and self.draw.chance(0.8):
            places, codes = self.earlier(self.draw.up_to(20))
            hidden = codes < 0
            codes = np.where(hidden, self.table.codes[places], codes)
        X, y, more = self.arguments(places, codes)
        words = f"late {list(y)} {list(more)}"
        if self.call(words, lambda: self.model.partial_fit(X, y, new_points=False, **more)):
            self.learned += zip(places.tolist(), codes.tolist(), strict=True)
            self.maybe_check_predictions()

    def retract(self):
        labeled = [each for each in self.learned if each[1] >= 0]
        if not labeled:
            return
        n = self.draw.of(1, self.draw.up_to(len(labeled)), len(labeled))
        chosen = self.draw.generator.permutation(len(labeled))[:n]
        places, codes = np.array([labeled[each] for each in chosen]).T
        X = self.table.form(self.table.rows[places])
        y = self.draw.of(None, self.table.labels(codes))
        words = f"retract {places.tolist()} {y if y is None else list(y)}"
        if self.call(words, lambda: self.model.retract(X, y)):
            for each in chosen:
                self.learned.remove(labeled[each])
            self.maybe_check_predictions()

    def change_parameters(self):
        names = [name for name in ALLOWED if name in self.model.get_params()]
        name = self.draw.of(*names)
        value = self.draw.of(*ALLOWED[name])
        self.call(f"set_params {name}={value!r}", lambda: self.model.set_params(**{name: value}))

    def refused_parameters(self):
        """Set a parameter that is wrong, or may not change; set it back after the refusal."""
        parameters = self.model.get_params()
        name = self.draw.of(*(name for name in REFUSED if name in parameters))
        value, before = self.draw.of(*REFUSED[name]), parameters[name]
        self.model.set_params(**{name: value})
        X, y, _ = self.arguments(*self.table.batch(unlabeled=0.2))
        self.call(f"{name}={value!r}", lambda: self.model.partial_fit(X, y))
        self.model.set_params(**{name: before})

    def refused_input(self):
        places, codes = self.table.batch(unlabeled=0.2)
        codes[0] = 0
        X, y, _ = self.arguments(places, codes, weighted=False)
        dense, n = self.table.rows[places], places.size
        spoiled = dense.copy()
        spoiled[-1, -1] = self.draw.of(np.nan, np.inf, -np.inf, 1e80)
        text = dense.astype(object)
        text[0, 0] = self.draw.of("red", None, "", [1], {})
        cases = {
            "NaN": (self.table.form(spoiled), y, {}),
            "text": (text, y, {}),
            "one row more": (np.vstack([dense, dense[:1]]), y, {}),
            "flat": (dense[:, 0], y, {}),
            "no rows": (dense[:0], [], {}),
            "no columns": (dense[:, :0], y, {}),
            "no y": (X, None, {}),
            "continuous": (X, codes + 0.5, {}),
            "mixed": (np.vstack([dense, dense]), ["a"] * n + [1] * n, {}),
            "labels in rows": (X, np.zeros((n, 2)), {}),
            "complex labels": (X, [1j] * n, {}),
            "negative weights": (X, y, {"sample_weight": -np.ones(n)}),
            "no weight": (X, y, {"sample_weight": np.zeros(n)}),
            "strange weights": (X, y, {"sample_weight": ["heavy"] * n}),
            "large weights": (X, y, {"sample_weight": np.full(n, 1e200)}),
            "NaN weights": (X, y, {"sample_weight": np.full(n, np.nan)}),
            "other classes": (X, y, {"classes": ["fox", "gnu"]}),
            "no classes": (X, y, {"classes": np.zeros((2, 2))}),
        }
        if hasattr(self.model, "n_features_in_"):
            cases["one column more"] = (np.column_stack([dense, dense]), y, {})
            cases["known rows"] = (X, y, {"new_points": "no"})
            if len(getattr(self.model, "classes_", ())):
                other = "strings" if self.table.kind != "strings" else "integers"
                cases["another type"] = (X, CLASSES[other][np.zeros(n, int)], {})
        name = self.draw.of(*cases)
        X, y, more = cases[name]
        method = self.draw.of("fit", "partial_fit", "partial_fit")
        if (method == "fit" and set(more) - {"sample_weight"}) or name.endswith("type"):
            method = "partial_fit"
        if name == "one column more":
            method = self.draw.of("partial_fit", "predict", "retract")
        if method in ("predict", "retract"):
            self.call(f"{method} {name}", lambda: getattr(self.model, method)(X), refused=True)
        else:
            call = getattr(self.model, method)
            self.call(f"{method} {name}", lambda: call(X, y, **more), refused=True)

    def copy(self):
        before = self.predictions()
        if self.draw.chance(0.5):
            copied = pickle.loads(pickle.dumps(self.model))
        else:
            path = self.folder / "model"
            words = "save"
            if not self.call(words, lambda: seqmed.save(self.model, path)):
                return
            copied = seqmed.load(path)
        self.log.append("copy")
        self.model = copied
        after = self.predictions()
        assert before.keys() == after.keys()
        for name, values in before.items():
            assert np.array_equal(values, after[name]), f"a copy differs: {name}"

    def read(self):
        """Ask for what changes nothing."""
        places, codes = self.table.batch()
        X, y, more = self.arguments(places, codes)
        before = state_bits(self.model)
        self.call("score", lambda: self.model.score(X, y, **more))
        self.call("query", lambda: query(self.model, X, self.draw.of(0, 1, places.size)))
        self.call("predict_log_proba", lambda: self.model.predict_log_proba(X))
        assert state_bits(self.model) == before, "an answer changed the state"

    # -- predictions -------------------------------------------------------------------------------

    def probes(self):
        """Return rows like those that were learned, zeros, and a row far away."""
        rows = self.table.rows[[0, 1, 2, 40]]
        far = np.ceil(100.0 * np.abs(rows).max(initial=1.0)) * np.ones((1, self.table.width))
        return np.vstack([rows, np.zeros_like(far), far])

    def predictions(self):
        """Return all predictions for the probes, by method; nothing before the first label."""
        methods = [each for each in (*PREDICTIONS, "predict") if hasattr(self.model, each)]
        X = self.table.form(self.probes())
        answers: dict[str, Any] = {}

        def ask():
            for name in methods:
                answers[name] = getattr(self.model, name)(X)

        return answers if self.call("predictions", ask) else {}

    def terms(self, X):
        """Return the largest sum of |term| over the terms of a score of SeqMED or SeqLapMED."""
        if not hasattr(self.model, "posterior_"):
            return 0.0
        points = self.model._points(self.table.form(X))
        return float(self.model.posterior_.summed_sizes(points).max())

    def maybe_check_predictions(self):
        if self.draw.chance(0.4):
            self.check_predictions()

    def check_predictions(self):
        together, X = self.predictions(), self.probes()
        for name in set(together) & set(PREDICTIONS):
            values = together[name].reshape(len(X), -1)
            assert np.isfinite(values).all(), name
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", UserWarning)
                alone = np.vstack([
                    getattr(self.model, name)(self.table.form(X[row : row + 1])).reshape(1, -1)
                    for row in range(len(X))
                ])  # fmt: skip
            size = 1.0 if name == "predict_proba" else max(1.0, np.abs(values).max())
            worst = np.abs(alone - values).max()
            allowed = COMPANY * size
            if name == "decision_function":
                allowed = max(allowed, OF_TERMS * self.terms(X))
            assert worst <= allowed, f"{name} differs by {worst:.1e} beside other rows"
        if together:
            probabilities = together["predict_proba"]
            assert np.allclose(probabilities.sum(axis=1), 1.0)
            best = self.model.classes_[probabilities.argmax(axis=1)]
            assert (best == together["predict"]).all(), "predict and predict_proba differ"


def set_unlabeled(model, marker):
    model.set_params(unlabeled=marker)
    estimator = getattr(model, "estimator", None)
    if hasattr(estimator, "unlabeled"):
        estimator.set_params(unlabeled=marker)


def random_states(model):
    """Return the states of the random generators that were passed as parameters."""
    parameters = model.get_params().values()
    return [pickle.dumps(each) for each in parameters if isinstance(each, np.random.RandomState)]


def assert_ours(refusal):
    """Expect an error of scikit-learn's validation, or of a ``raise`` of this package."""
    frame = traceback.extract_tb(refusal.__traceback__)[-1]
    line = linecache.getline(frame.filename, frame.lineno).strip()
    ours = "seqmed" in frame.filename and line.startswith("raise ")
    assert ours or "sklearn/utils" in frame.filename, f"{frame.filename}:{frame.lineno}: {line}"


def solver_steps(model):
    """Return the steps of the dual and the iterations of conjugate gradients of the last batch."""
    if not hasattr(model, "n_iter_"):
        return 0, 0
    if isinstance(model, GraphPropagation):
        return 0, model.n_iter_
    if isinstance(model, SeqGraphMED):
        return getattr(model.estimator_, "n_iter_", 0), model.n_iter_
    return model.n_iter_, 0


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=() if seed < BY_DEFAULT else pytest.mark.exhaustive)
        for seed in range(SEQUENCES)
    ],
)
def test_a_sequence_of_operations(seed, tmp_path):
    sequence = Sequence(seed, tmp_path)
    try:
        sequence.run()
    except BaseException as failure:
        failure.add_note("\n".join(sequence.log))
        raise
