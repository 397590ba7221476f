"""The state of a model: everything reachable, to the last bit, and the rows it keeps."""

import dataclasses
import pickle

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from seqmed.mixture.experts import FittedClassifier


def leaves(value, path="model"):
    """Yield (path, leaf) for everything reachable; an array is a leaf.

    A fitted expert is what it was fitted on, which is beside it.
    """
    if isinstance(value, FittedClassifier):
        yield path, type(value.model)
    elif isinstance(value, BaseEstimator):
        yield from leaves(vars(value), path)
    elif sp.issparse(value):
        for part in ("data", "indices", "indptr"):
            yield f"{path}.{part}", getattr(value, part)
        yield f"{path}.shape", value.shape
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, list | tuple):
        yield f"{path}.length", len(value)
        for position, item in enumerate(value):
            yield from leaves(item, f"{path}[{position}]")
    else:
        yield path, value


def bits(value):
    """Return something equal for equal bits only: 0.0 is not -0.0, and NaN is NaN."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, float):
        return type(value), np.float64(value).tobytes()
    return value


def state_bits(value):
    """Return the bits of everything reachable, by path."""
    return {path: bits(leaf) for path, leaf in leaves(value)}


def assert_same_bits(first, second):
    """Expect two models to be equal in every bit of everything reachable."""
    ours, theirs = state_bits(first), state_bits(second)
    assert ours.keys() == theirs.keys()
    for path, leaf in ours.items():
        assert leaf == theirs[path], path


def arrays(model):
    return [leaf for _, leaf in leaves(model) if isinstance(leaf, np.ndarray)]


def snapshot(model):
    return pickle.loads(pickle.dumps(model))


def kept_rows(posterior):
    """Return the distinct rows that a state keeps after their batch."""
    landmarks = posterior.recursion.landmarks
    parts = [posterior.window.points]
    if not posterior.covariance.kernel.compact:  # otherwise the frozen expansion is a weight vector
        parts.append(posterior.frozen.points)
    if landmarks is not None:
        parts.append(landmarks)
    dense = (part.toarray() if sp.issparse(part) else part for part in parts)
    return {tuple(row) for part in dense for row in (part + 0.0).tolist()}
