"""Files of older formats are read: what is missing has its default, the rest is upgraded."""

from __future__ import annotations

import numpy as np
import pytest

import seqmed
from seqmed import SeqMED, model_file
from seqmed.kernels import Polynomial
from seqmed.model_file import FORMAT, container
from seqmed.model_file.models import CLASSES, defaults, records
from tests.data.make_golden import make_batch


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model"


@pytest.fixture
def model():
    kernel = Polynomial("scale", 3, 1.0)  # the default degree
    return SeqMED(kernel=kernel, C=2.0).partial_fit(*make_batch(0)).partial_fit(*make_batch(1))


def rewritten(path, change):
    """Change the header and the tensors of a file."""
    header, tensors = container.unpack(path.read_bytes())
    change(header, tensors)
    path.write_bytes(b"".join(container.pack(header, tensors)))


def assert_same(path, model):
    X, y = make_batch(2)
    loaded = seqmed.load(path)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    loaded.partial_fit(X, y)
    model.partial_fit(X, y)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.get_params(deep=False).keys() == model.get_params(deep=False).keys()


def without_defaults(header, tensors):
    """Leave out parameters and fields that have their default: those that came later."""
    known, n_left_out = records(), {"estimator": 0, "record": 0}
    for node in header["model"]:
        ((tag, content),) = node.items()
        if tag in n_left_out:
            kind = CLASSES[content["class"]] if tag == "estimator" else known[content["type"]]
            parts = content["parameters" if tag == "estimator" else "fields"]
            for name, default in defaults(kind).items():
                if parts[name] == default:
                    del parts[name]
                    n_left_out[tag] += 1
    assert min(n_left_out.values()) > 0


def test_parts_that_came_later_have_their_defaults(path, model):
    seqmed.save(model, path)
    rewritten(path, without_defaults)
    assert_same(path, model)


def older(header, tensors):
    """Turn a file into one of a made-up format, two before the present one."""
    header["format"], header["library"] = FORMAT - 2, "0.0.7"
    root = header["model"][-1]["estimator"]
    root["parameters"]["cost"] = root["parameters"].pop("C")
    for name in [*tensors]:
        tensors[f"old.{name}"] = tensors.pop(name)


def with_new_tensors(header, tensors):
    assert not any(name.startswith("model.") for name in tensors)
    for name in [*tensors]:
        tensors[name.removeprefix("old.")] = tensors.pop(name)


def with_a_new_name(header, tensors):
    assert all(name.startswith("model.") for name in tensors)  # the first upgrade was before
    root = header["model"][-1]["estimator"]
    root["parameters"]["C"] = root["parameters"].pop("cost")


def test_an_older_format_is_upgraded_step_by_step(path, model, monkeypatch):
    seqmed.save(model, path)
    rewritten(path, older)
    with pytest.raises(
        model_file.ModelFileError, match=rf"expected format {FORMAT}, .*reads: load"
    ):
        seqmed.load(path)

    upgrades = {FORMAT - 2: with_new_tensors, FORMAT - 1: with_a_new_name}
    monkeypatch.setattr(model_file, "UPGRADES", upgrades)
    monkeypatch.setattr(model_file, "OLDEST_FORMAT", FORMAT - 2)
    assert_same(path, model)
    contents = model_file.read(path)
    assert (contents.format, contents.library) == (FORMAT - 2, "0.0.7")
    assert contents.parameters["C"] == 2.0

    seqmed.save(seqmed.load(path), path)
    assert model_file.read(path).format == FORMAT


def test_a_format_without_an_upgrade_is_read_as_the_next(path, model, monkeypatch):
    """New fields with defaults are all that the next format has."""
    seqmed.save(model, path)
    monkeypatch.setattr(model_file, "FORMAT", FORMAT + 1)
    assert_same(path, model)
    assert model_file.read(path).format == FORMAT


def test_a_failed_upgrade_is_a_refusal(path, model, monkeypatch):
    seqmed.save(model, path)
    monkeypatch.setattr(model_file, "FORMAT", FORMAT + 1)
    monkeypatch.setattr(model_file, "UPGRADES", {FORMAT: with_a_new_name})  # of a missing part
    for function in (seqmed.load, model_file.read):
        with pytest.raises(model_file.ModelFileError, match=r"cannot be loaded: .*'cost'"):
            function(path)


def test_a_newer_format_names_what_to_install(path, model):
    seqmed.save(model, path)
    rewritten(path, lambda header, _: header.update(format=FORMAT + 3, library="0.9.1"))
    reason = (
        f"it is of format {FORMAT + 3}, written by seqmed '0.9.1', expected format {FORMAT}, which "
        f"seqmed {seqmed.__version__} reads: install the version that wrote it, or a newer one"
    )
    for function in (seqmed.load, model_file.read):
        with pytest.raises(model_file.ModelFileError) as error:
            function(path)
        assert reason in str(error.value)
