"""Rows that come one by one: mini-batches, river and CapyMOA."""

import shutil

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import SGDClassifier

from seqmed import SeqGraphMED, SeqMED
from seqmed.adapters.row_by_row import MiniBatches

N_FEATURES = 3


def stream(n=130, seed=0):
    """Return rows, classes and labels. Two labels in three are None."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, N_FEATURES)) + 2.0 * y[:, None]
    labels = np.where(rng.random(n) < 0.34, y, None)
    return X, y, labels


@pytest.mark.parametrize("chunk", [1, 7, 130])
def test_rows_one_by_one_teach_as_their_mini_batches(chunk):
    """However rows are passed, the estimator learns batches of `batch_size`."""
    X, _, labels = stream()
    model = MiniBatches(SeqGraphMED(random_state=0), batch_size=40)
    for start in range(0, len(X), chunk):
        model.partial_fit(X[start : start + chunk], labels[start : start + chunk], classes=[0, 1])
    alone = SeqGraphMED(random_state=0)
    for start in range(0, 120, 40):
        alone.partial_fit(X[start : start + 40], labels[start : start + 40], classes=[0, 1])
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))
    assert model.n_pending_ == 10
    alone.partial_fit(X[120:], labels[120:])
    np.testing.assert_array_equal(model.flush().predict_proba(X), alone.predict_proba(X))
    assert model.n_pending_ == 0
    np.testing.assert_array_equal(model.flush().predict(X), alone.predict(X))
    assert not hasattr(clone(model), "estimator_")


def test_there_is_no_prediction_before_the_first_mini_batch():
    X, _, labels = stream()
    model = MiniBatches(batch_size=50).partial_fit(X[:49], labels[:49])
    with pytest.raises(NotFittedError, match="expected 50 rows"):
        model.predict(X)
    model.partial_fit(X[49:50], labels[49:50]).predict(X)


def test_a_refused_row_changes_nothing():
    X, _, labels = stream()
    model = MiniBatches(SeqMED(), batch_size=50).partial_fit(X[:60], labels[:60], classes=[0, 1])
    before = model.predict_proba(X)
    bad = X[60:62].copy()
    bad[1, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(bad, labels[60:62])
    with pytest.raises(ValueError, match="2 columns, expected 3"):
        model.partial_fit(X[:1, :2], labels[:1])
    assert model.n_pending_ == 10
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_a_refused_mini_batch_changes_nothing():
    """The first mini-batch of the call is not learned if the second is refused."""
    X, y, _ = stream()
    model = MiniBatches(SeqMED(), batch_size=20).partial_fit(X[:25], list(y[:25]))
    before = model.predict_proba(X)
    labels = [*y[25:59], "a word"]
    with pytest.raises(ValueError, match="mixes label types"):
        model.partial_fit(X[25:60], labels)
    assert model.n_pending_ == 5
    assert model.estimator_.n_batches_ == 1
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_an_estimator_without_probabilities_has_none():
    assert not hasattr(MiniBatches(SGDClassifier()), "predict_proba")


def test_through_river():
    """`convert_sklearn_to_river` gives the predictions of the classifier itself."""
    compat = pytest.importorskip("river.compat", reason="river is not installed")
    X, _, labels = stream()
    learner = compat.convert_sklearn_to_river(
        MiniBatches(SeqGraphMED(random_state=0), batch_size=40), classes=[0, 1]
    )
    rows = [dict(enumerate(row)) for row in X.tolist()]
    assert learner.predict_proba_one(rows[0]) == {0: 0.5, 1: 0.5}
    for row, label in zip(rows, labels, strict=True):
        learner.learn_one(row, label)
    alone = SeqGraphMED(random_state=0)
    for start in range(0, 120, 40):
        alone.partial_fit(X[start : start + 40], labels[start : start + 40], classes=[0, 1])
    expected = alone.predict_proba(X)
    for row, probabilities in zip(rows, expected, strict=True):
        assert list(learner.predict_proba_one(row).values()) == pytest.approx(probabilities)


@pytest.fixture
def capymoa():
    """Return CapyMOA's evaluation and streams; skip without Java or CapyMOA."""
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    return pytest.importorskip("capymoa", reason="CapyMOA is not installed")


@pytest.mark.filterwarnings("ignore")
def test_through_capymoa(capymoa):
    """CapyMOA's own evaluation of partly labeled streams runs, and the learner learns."""
    from capymoa.evaluation import prequential_ssl_evaluation
    from capymoa.stream import NumpyStream

    from seqmed.adapters.capymoa import MiniBatchClassifierSSL

    X, y, _ = stream(n=600)
    source = NumpyStream(X, y, target_name="y", target_type="categorical")
    learner = MiniBatchClassifierSSL(source.get_schema(), batch_size=50)
    assert learner.predict_proba(source.next_instance()) is None
    found = prequential_ssl_evaluation(source, learner, label_probability=0.2, random_seed=1)
    # nothing is predicted in the first mini-batch, one row in twelve
    assert found.cumulative.accuracy() > 85
    assert learner.model.n_pending_ == 0
    assert learner.model.estimator_.n_batches_ == 12
