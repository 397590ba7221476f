"""A kernel and a recursion from outside the package: one class each."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.utils._param_validation import StrOptions

from seqmed import SeqGraphMED, SeqLapMED, SeqMED
from seqmed.kernels import Kernel
from seqmed.margin import covariance
from seqmed.margin.covariance.exact import ExactRecursion, Recursion


def rows(n=120, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.normal(size=(n, 3)) + 2.5 * np.eye(3)[y], y


@dataclass(frozen=True)
class Laplace(Kernel):
    """``exp(-gamma |x - x'|_1)``."""

    gamma: float = 1.0

    def __call__(self, left, right):
        return np.exp(-self.gamma * np.abs(left[:, None] - right[None]).sum(axis=2))

    def diagonal(self, points):
        return np.ones(points.shape[0])


def test_a_kernel():
    X, y = rows()
    for estimator in (SeqMED, SeqLapMED):
        model = estimator(Laplace(0.5), random_state=0)
        model.partial_fit(X[:60], y[:60]).partial_fit(X[60:], y[60:])
        assert model.score(*rows(seed=1)) > 0.8
    mixture = SeqGraphMED(SeqMED(Laplace(0.5)), random_state=0).fit(X, np.where(y < 9, y, -1))
    assert mixture.score(*rows(seed=1)) > 0.8
    same = SeqMED(lambda a, b: Laplace(0.5)(a, b)).partial_fit(X, y)
    named = SeqMED(Laplace(0.5)).partial_fit(X, y)
    np.testing.assert_allclose(same.decision_function(X), named.decision_function(X), atol=1e-9)


@dataclass(frozen=True)
class EveryOther(Recursion):
    """The exact recursion with every other batch left out."""

    exact: ExactRecursion
    n_folds: int = 0

    capacity = None

    @property
    def covariance(self):
        return self.exact.covariance

    @property
    def landmarks(self):
        return self.exact.landmarks

    def fold(self, points, smoothness, forgetting=1.0):
        smoothness = None if self.n_folds % 2 else smoothness
        folded = self.exact.fold(points, smoothness, forgetting)
        return folded._replace(recursion=EveryOther(folded.recursion, self.n_folds + 1))


def test_a_recursion(monkeypatch):
    X, y = rows()
    with pytest.raises(ValueError, match="'recursion'"):
        SeqLapMED(recursion="every other").fit(X, y)
    monkeypatch.setitem(
        covariance.RECURSIONS,
        "every other",
        lambda base, n_landmarks, seed: EveryOther(ExactRecursion(base)),
    )
    monkeypatch.setitem(
        SeqLapMED._parameter_constraints, "recursion", [StrOptions(set(covariance.RECURSIONS))]
    )
    model = SeqLapMED(recursion="every other", beta=0.5)
    exact = SeqLapMED(recursion="exact", beta=0.5)
    for start in range(0, 120, 40):
        part = slice(start, start + 40)
        model.partial_fit(X[part], y[part])
        exact.set_params(beta=0.0 if start == 40 else 0.5).partial_fit(X[part], y[part])
    np.testing.assert_allclose(model.decision_function(X), exact.decision_function(X), atol=1e-6)
