"""Models saved and loaded, compared by their files and predictions."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest

import seqmed
from seqmed import SeqMED, model_file
from seqmed.model_file.models import saved_attributes
from tests.support.records import altered


def bits(model, extra=None):
    """The file of a model."""
    return b"".join(model_file.to_bytes(model, extra))


def restored(model, path):
    seqmed.save(model, path)
    return seqmed.load(path)


def outputs(model, X):
    """Everything that a model has to say of rows, in bytes."""
    methods = ("predict", "predict_proba", "decision_function", "decision_std")
    results = [getattr(model, each)(X) for each in methods if hasattr(model, each)]
    return [(each.dtype, each.shape, value_bytes(each)) for each in results]


def value_bytes(array):
    """The bytes of an array, but for those that pad a long double of 80 bits."""
    if array.dtype != np.longdouble or np.finfo(np.longdouble).nmant != 63:
        return array.tobytes()
    return np.ascontiguousarray(array)[..., None].view(np.uint8)[..., :10].tobytes()


def assert_same(first, second, X):
    assert outputs(first, X) == outputs(second, X)
    assert bits(first) == bits(second)


def product(left, right):
    return left @ right.T


def assert_refused(model, message, path):
    """Assert that a model is not saved, and that the file before it is unchanged."""
    seqmed.save(SeqMED(C=7.0), path)
    before = path.read_bytes()
    with pytest.raises((ValueError, TypeError), match=re.compile(message, re.DOTALL)):
        seqmed.save(model, path)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def with_state(model, path, change):
    """Return a copy of a model with a part of its saved attributes changed, as in `altered`."""
    changed = copy.copy(model)
    vars(changed).update(altered(saved_attributes(model), path, change))
    return changed
