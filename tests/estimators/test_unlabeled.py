"""One rule for unlabeled rows in every estimator: `unlabeled=-1`, NaN, None, NaT, empty strings."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

import seqmed
from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED
from seqmed.selection.search import PrequentialSearch
from seqmed.streams import LabelColumn, Stream, StreamError
from seqmed.tables.stream_pipeline import StreamPipeline

CLASSIFIERS = {
    "SeqMED": SeqMED(gamma=0.5),
    "SeqLapMED": SeqLapMED(gamma=0.5, random_state=0),
    "SeqGraphMED": SeqGraphMED(random_state=0),
    "GraphPropagation": GraphPropagation(random_state=0),
}
COMPOSED = {
    "pipeline": lambda model: StreamPipeline([("model", model)]),
    "search": lambda model: PrequentialSearch(model, [{}]),
}
MODELS = CLASSIFIERS | {
    f"{how} of {name}": make(clone(model))
    for how, make in COMPOSED.items()
    for name, model in CLASSIFIERS.items()
}
LABELED_ONLY = [name for name in MODELS if name.endswith("SeqMED") and "Graph" not in name]
SEMI_SUPERVISED = [name for name in MODELS if name not in LABELED_ONLY]


@pytest.fixture
def batch():
    """Rows of two classes, their codes, and a mask of the labeled ones."""
    generator = np.random.default_rng(0)
    codes = np.arange(40) % 2
    points = generator.normal(size=(40, 2)) + 4.0 * codes[:, None]
    return points, codes, np.arange(40) % 4 < 2


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_estimator_has_the_marker(name):
    parameters = inspect.signature(type(CLASSIFIERS[name])).parameters
    assert parameters["unlabeled"].default == -1


@pytest.mark.filterwarnings("ignore:score leaves unlabeled rows out")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "missing", [-1, None, np.nan, pd.NA, pd.NaT, ""], ids=["-1", "None", "NaN", "NA", "NaT", "''"]
)
@pytest.mark.parametrize("names", [(0, 1), ("ham", "spam")], ids=["integers", "strings"])
def test_missing_labels_are_no_class(name, missing, names, batch):
    points, codes, labeled = batch
    y = np.empty(40, dtype=object)
    y[:] = [names[code] if known else missing for code, known in zip(codes, labeled, strict=True)]
    models = [clone(MODELS[name]).fit(points, y), clone(MODELS[name]).partial_fit(points, y)]
    for model in models:
        assert model.classes_.tolist() == list(names)
        assert model.score(points, y) == 1.0


def test_empty_strings_in_a_string_array_are_unlabeled(batch):
    points, codes, labeled = batch
    y = np.where(labeled, np.array(["ham", "spam"])[codes], "")
    model = SeqMED(gamma=0.5, unlabeled=None).partial_fit(points, y)
    assert model.classes_.tolist() == ["ham", "spam"]
    assert model.update_info_.n_labeled == labeled.sum()


@pytest.mark.parametrize("kind", [SeqMED, SeqLapMED, SeqGraphMED])
def test_the_example_of_the_readme_with_every_estimator(kind):
    X, y = load_digits(return_X_y=True)
    labels = np.where(np.random.default_rng(0).random(len(y)) < 0.1, y, -1)
    model = kind(random_state=0)
    for start in range(0, 1500, 100):
        model.partial_fit(X[start : start + 100], labels[start : start + 100])
    assert model.classes_.tolist() == list(range(10))
    assert model.score(X[1500:], y[1500:]) > 0.85


def test_seqmed_ignores_a_batch_without_labels(batch):
    points, codes, _ = batch
    model = SeqMED(gamma=0.5).partial_fit(points, codes)
    before = model.decision_function(points)
    model.partial_fit(points + 1.0, np.full(40, -1))
    assert model.n_batches_ == 2
    np.testing.assert_array_equal(model.decision_function(points), before)


# -- y of only -1 and +1 ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", LABELED_ONLY)
@pytest.mark.parametrize("kind", [int, float, str, object])
def test_fit_of_seqmed_takes_signs_for_classes(name, kind, batch, tmp_path):
    points, codes, _ = batch
    signs = (2 * codes - 1).astype(kind)
    model = clone(MODELS[name]).fit(points, signs)
    assert sorted(model.classes_.tolist()) == sorted(set(signs.tolist()))
    assert model.score(points, signs) == 1.0
    seqmed.save(model, tmp_path / "model")
    for each in (model, seqmed.load(tmp_path / "model")):
        each.partial_fit(points, signs)  # -1 remains a class
        assert each.score(points[codes == 0], signs[codes == 0]) == 1.0


ONLY_CLASS = "1(.0)? is the only class so far, and labels -1 were taken for missing ones"


def predictions(model, points):
    """Call every method that predicts."""
    yield lambda: model.predict(points)
    yield lambda: model.predict_proba(points)
    yield lambda: model.decision_function(points)
    yield lambda: model.score(points, np.full(len(points), model.classes_[0]))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [int, float, str, object])
def test_a_first_batch_of_signs_is_learned_and_predictions_warn(name, kind, batch, tmp_path):
    """Until there is another class, as in the first batch of a stream with ten classes."""
    points, codes, _ = batch
    signs = (2 * codes - 1).astype(kind)
    model = clone(MODELS[name]).partial_fit(points, signs)
    assert model.classes_.tolist() == [signs[1]]
    seqmed.save(model, tmp_path / "model")
    for each in (model, seqmed.load(tmp_path / "model")):
        for predict in predictions(each, points):
            with pytest.warns(UserWarning, match=ONLY_CLASS) as caught:
                predict()
            assert len(caught) == 1
            assert "unlabeled=None" in str(caught[0].message)
    other = np.full(40, 3 if kind is int else str(3) if kind is str else 3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a search predicts before it learns
        model.partial_fit(points, np.where(codes == 0, other, signs))
    for predict in predictions(model, points):
        predict()


@pytest.mark.parametrize("name", MODELS)
def test_minus_one_and_then_plus_one_are_as_ambiguous(name, batch):
    points, codes, _ = batch
    model = clone(MODELS[name]).partial_fit(points, np.full(40, -1))
    model.partial_fit(points + 0.5, np.where(codes == 0, None, 1))
    with pytest.warns(UserWarning, match=ONLY_CLASS):
        model.predict(points)


@pytest.mark.parametrize("name", MODELS)
def test_a_single_class_without_minus_one_or_with_declared_classes_is_clear(name, batch):
    points, codes, _ = batch
    missing = clone(MODELS[name]).partial_fit(points, np.where(codes == 0, None, 1))
    declared = clone(MODELS[name]).partial_fit(points, 2 * codes - 1, classes=[1, 2])
    for model in (missing, declared):
        assert set(model.predict(points)) == {1}
    later = clone(MODELS[name]).partial_fit(points, np.full(40, -1))
    later.partial_fit(points + 0.5, 2 * codes - 1, classes=[1])
    assert set(later.predict(points)) == {1}


@pytest.mark.parametrize("name", LABELED_ONLY)
def test_partial_fit_of_seqmed_takes_declared_signs_for_classes(name, batch):
    points, codes, _ = batch
    signs = 2 * codes - 1
    declared = clone(MODELS[name]).partial_fit(points, signs, classes=[-1, 1])
    declared.partial_fit(points[:3], np.full(3, -1))
    assert declared.classes_.tolist() == [-1, 1]
    assert declared.score(points, signs) == 1.0
    marked = clone(MODELS[name]).partial_fit(points, signs, classes=[1, 2])
    assert set(marked.predict(points)) == {1}


@pytest.mark.parametrize("name", SEMI_SUPERVISED)
def test_fit_of_semi_supervised_estimators_warns_of_signs(name, batch):
    points, codes, _ = batch
    signs = 2 * codes - 1
    model = clone(MODELS[name])
    with pytest.warns(UserWarning, match=ONLY_CLASS) as caught:
        model.fit(points, signs)
    assert "unlabeled=None" in str(caught[0].message)
    assert set(model.predict(points)) == {1}
    with pytest.raises(ValueError, match="marks unlabeled rows"):
        clone(MODELS[name]).partial_fit(points, signs, classes=[-1, 1])


def test_minus_one_remains_a_class_when_its_labels_are_retracted(batch, tmp_path):
    points, codes, _ = batch
    signs = 2 * codes - 1
    model = SeqMED(gamma=0.5).fit(points, signs).retract(points[codes == 0], signs[codes == 0])
    seqmed.save(model, tmp_path / "model")
    for each in (model, seqmed.load(tmp_path / "model")):
        assert each.classes_.tolist() == [-1, 1]
        each.partial_fit(points, signs)
        assert each.score(points, signs) == 1.0


def test_minus_one_among_other_labels_is_unlabeled_unless_declared(batch):
    points, codes, _ = batch
    y = np.where(np.arange(40) < 10, -1, codes)
    assert SeqMED().fit(points, y).classes_.tolist() == [0, 1]
    assert SeqMED().partial_fit(points, y, classes=[-1, 0, 1]).classes_.tolist() == [-1, 0, 1]


def test_a_marker_of_ones_own_cannot_be_a_class(batch):
    points, codes, _ = batch
    with pytest.raises(ValueError, match="marks unlabeled rows"):
        SeqMED(unlabeled=0).partial_fit(points, codes, classes=[0, 1])


# -- files -----------------------------------------------------------------------------------------


def labels_in(path, cells, unlabeled=None):
    path.write_text("x,y\n" + "".join(f"{row},{cell}\n" for row, cell in enumerate(cells)))
    label = LabelColumn("y", unlabeled)
    return [each for batch in Stream([path], label=label) for each in batch.y]


def test_minus_one_in_a_file_is_unlabeled(tmp_path):
    assert labels_in(tmp_path / "data.csv", ["-1", "0", "1", "-1.0"]) == [None, 0, 1, None]


def test_signs_in_a_file_are_refused_with_the_remedies(tmp_path):
    path = tmp_path / "data.csv"
    with pytest.raises(StreamError, match=r"only -1 and \+1") as refusal:
        labels_in(path, ["-1", "1", ""])
    for remedy in ("LabelColumn(unlabeled='NA')", "LabelColumn(unlabeled='-1')"):
        assert remedy in str(refusal.value)
    assert labels_in(path, ["-1", "1", ""], "NA") == [-1, 1, None]
    assert labels_in(path, ["-1", "1", ""], "-1") == [None, 1, None]
    assert labels_in(path, ["1", "1", ""]) == [1, 1, None]
