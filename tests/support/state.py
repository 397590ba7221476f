"""The state of a model: everything reachable, to the last bit, and the rows it keeps."""

import dataclasses
import pickle

import numpy as np
import scipy.sparse as sp
from numpy.random import RandomState
from sklearn.base import BaseEstimator
from sklearn.tree._tree import Tree

from seqmed.mixture.experts import FittedClassifier


def leaves(value, path="model"):
    """Yield (path, leaf) for everything reachable; an array is a leaf."""
    if isinstance(value, BaseEstimator | FittedClassifier):
        yield from leaves(vars(value), path)
    elif isinstance(value, Tree | RandomState | type):
        yield path, pickle.dumps(value)
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


def equal_parameters(first, second):
    """Whether two parameter values are equal. Estimators are compared by their parameters."""
    if first is second:
        return True
    if isinstance(first, BaseEstimator) and type(first) is type(second):
        first, second = first.get_params(deep=False), second.get_params(deep=False)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            equal_parameters(first[name], second[name]) for name in first
        )
    if isinstance(first, list | tuple) and type(first) is type(second):
        return len(first) == len(second) and all(map(equal_parameters, first, second))
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.array_equal(first, second)
    return bool(first == second or (first != first and second != second))  # NaN equals NaN
