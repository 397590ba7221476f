"""Model files of this version and of older ones are read, as docs/model-file.md says."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

import seqmed
from seqmed import model_file
from seqmed.model_file.models import CLASSES, records
from tests.data.make_golden import (
    FOLDER,
    MODELS,
    WITH_EXPERTS,
    machine,
    make_batch,
    make_table,
)
from tests.reference.model_file import Part, read_container, scores_and_labels

FILES = sorted(FOLDER.glob("*.safetensors"))
PRESENT = [path for path in FILES if path.stem.startswith(f"format-{model_file.FORMAT}-")]
# Other machines round differently, in the learning and in the predicting.
ROUNDING = 1e-9
# Distances and influences in graphs are of single precision.
SINGLE_ROUNDING = 1e-5
# Experts are fitted again on load, by solvers that stop at a tolerance.
REFITTED = 1e-6


def rounding_of(path):
    return SINGLE_ROUNDING if "Graph" in path.stem else ROUNDING


def allowed_difference(path, written_on):
    """Return how far probabilities may be from those that were saved."""
    if written_on != machine():
        return rounding_of(path)
    return REFITTED if path.stem.endswith(WITH_EXPERTS) else 0.0


every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@every_file
def test_golden_files_are_read(path):
    """To the bit without experts, where the processor and the libraries are those of the file."""
    model, extra = model_file.load_with_extra(path)
    expected = json.loads(path.with_suffix(".json").read_text())
    X = extra["probes"]
    assert path.stem.endswith(extra["name"])
    assert model.predict(X).tolist() == expected["labels"]
    difference = allowed_difference(path, expected["machine"])
    np.testing.assert_allclose(
        model.predict_proba(X), expected["probabilities"], rtol=difference, atol=difference
    )
    contents = model_file.read(path)
    assert contents.classes == model.classes_.tolist()
    assert contents.model == type(model).__name__
    assert contents.library >= "0.2.0"


@every_file
def test_models_of_golden_files_go_on(path):
    model, extra = model_file.load_with_extra(path)
    if extra["name"].endswith("precomputed"):
        return
    before = model.predict_proba(extra["probes"])
    tabular = "table" in extra["name"]
    model.partial_fit(*(make_table(50) if tabular else make_batch(50, tuple(model.classes_))))
    assert not np.array_equal(model.predict_proba(extra["probes"]), before)


def nodes_of(path):
    document, _ = read_container(path)
    return [*document["model"], *document["extra"]]


def test_golden_files_hold_whatever_there_is():
    """A part that is new in the library has to be added, in a file of its own."""
    nodes = [node for path in PRESENT for node in nodes_of(path)]
    kinds = {next(iter(node)) for node in nodes}
    assert kinds >= {"array", "csr", "record", "estimator", "random_state", "value"}
    assert {node["record"]["type"] for node in nodes if "record" in node} == set(records())
    assert {node["estimator"]["class"] for node in nodes if "estimator" in node} == set(CLASSES)
    assert {node["array"][0] for node in nodes if "array" in node} >= {"plain", "mask", "text"}
    assert {path.stem for path in PRESENT} == {
        f"format-{model_file.FORMAT}-{name}" for name in MODELS
    }


PLAIN = [
    path for path in PRESENT
    if "MED" in path.stem or "Graph" in path.stem
    # experts are fitted by scikit-learn
    if not path.stem.endswith((*WITH_EXPERTS, "precomputed"))
]  # fmt: skip


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_the_description_is_enough_for_another_reader(path):
    model, extra = model_file.load_with_extra(path)
    X = extra["probes"]
    scores, labels = scores_and_labels(path, X)
    rounding = rounding_of(path)
    np.testing.assert_allclose(scores, model.decision_function(X), rtol=rounding, atol=rounding)
    assert labels.tolist() == model.predict(X).tolist()


def test_the_description_of_arrays(tmp_path):
    extra = {
        "by columns": np.arange(6.0).reshape(2, 3).T,
        "mask": np.array([True, False]),
        "text": np.array(["größe", ""]),
        "rows": sp.csr_array([[0.0, 1.5], [2.0, 0.0]]),
    }
    seqmed.save(seqmed.SeqMED(), tmp_path / "model", extra=extra)
    document, tensors = read_container(tmp_path / "model")
    *nodes, last = document["extra"]
    for key, value in last["value"]["dict"]:
        found = Part(value, nodes, tensors).array()
        expected = extra[key].toarray() if sp.issparse(extra[key]) else extra[key]
        np.testing.assert_array_equal(found, expected)
