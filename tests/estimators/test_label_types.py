"""Every label type after every other: the same classes, a refusal, or unlabeled rows; no merge.

What a batch holds is written beside it as exact Python values, and what must come of two batches is
worked out from these alone.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone

import seqmed
from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED
from seqmed.selection.search import PrequentialSearch
from seqmed.tables.stream_pipeline import StreamPipeline

pytestmark = pytest.mark.filterwarnings("ignore:score leaves unlabeled rows out")

BIG = 2**53  # from here on not every integer is a float
INTEGERS, FLOATS, BOOLEANS = "integers", "floats", "booleans"
STRINGS = "strings"


class Labels(NamedTuple):
    """The labels of a batch.

    Attributes
    ----------
    y : as a user passes them.
    kind : their type; what the refusal must name, if they cannot be learned at all.
    values : exactly what they are, None for unlabeled rows. None in all if they cannot be
        learned.
    """

    y: Any
    kind: str
    values: list[Any] | None


def objects(*values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def masked(values, mask):
    return np.ma.MaskedArray(values, mask=mask)


TYPES = {
    # integers
    "list of ints": Labels([0, 1, 2], INTEGERS, [0, 1, 2]),
    "int8": Labels(np.array([1, -7, 100], dtype=np.int8), INTEGERS, [1, -7, 100]),
    "int64 beyond floats": Labels(np.array([BIG, BIG + 1, 1]), INTEGERS, [BIG, BIG + 1, 1]),
    "big-endian int": Labels(np.array([1, 256], dtype=">i4"), INTEGERS, [1, 256]),
    "small uint64": Labels(np.array([1, 2], dtype=np.uint64), INTEGERS, [1, 2]),
    "ints with NaN": Labels([BIG + 1, float("nan"), BIG], INTEGERS, [BIG + 1, None, BIG]),
    "Int64": Labels(
        pd.Series([BIG + 1, pd.NA, BIG], dtype="Int64"), INTEGERS, [BIG + 1, None, BIG]
    ),
    "UInt64": Labels(pd.Series([BIG + 1, pd.NA, 0], dtype="UInt64"), INTEGERS, [BIG + 1, None, 0]),
    "categories of ints": Labels(
        pd.Series(pd.Categorical([BIG + 1, None, BIG], categories=[BIG, BIG + 1])),
        INTEGERS,
        [BIG + 1, None, BIG],
    ),
    "Arrow int64 in pandas": Labels(
        pd.Series([BIG + 1, None, 3], dtype="int64[pyarrow]"), INTEGERS, [BIG + 1, None, 3]
    ),
    "pyarrow int64": Labels(pa.array([BIG + 1, None, 0]), INTEGERS, [BIG + 1, None, 0]),
    "masked ints": Labels(masked([BIG + 1, 5, 2], [0, 1, 0]), INTEGERS, [BIG + 1, None, 2]),
    # floats
    "float64": Labels(np.array([0.0, 1.0, np.nan]), FLOATS, [0, 1, None]),
    "float16": Labels(np.array([1, 2], dtype=np.float16), FLOATS, [1, 2]),
    "float32": Labels(np.array([2.0**24, 3.0], dtype=np.float32), FLOATS, [2**24, 3]),
    "large floats": Labels([2.0**53 - 1, 1 - 2.0**53], FLOATS, [BIG - 1, 1 - BIG]),
    "Float64": Labels(pd.Series([0.0, pd.NA, 2.0], dtype="Float64"), FLOATS, [0, None, 2]),
    "negative zero": Labels(np.array([-0.0, 1.0], dtype=np.longdouble), FLOATS, [0, 1]),
    "ints among floats": Labels([1, 2.0, None], FLOATS, [1, 2, None]),
    # booleans
    "bool": Labels(np.array([True, False]), BOOLEANS, [True, False]),
    "boolean": Labels(
        pd.Series([True, pd.NA, False], dtype="boolean"), BOOLEANS, [True, None, False]
    ),
    # strings
    "list of strings": Labels(
        ["x", "\ud800", None, "é\0a"], STRINGS, ["x", "\ud800", None, "é\0a"]
    ),
    "str array": Labels(np.array(["x", "a longer one", ""]), STRINGS, ["x", "a longer one", None]),
    "digits": Labels(objects("0", "1", ""), STRINGS, ["0", "1", None]),
    "string": Labels(pd.Series(["x", pd.NA, "True"], dtype="string"), STRINGS, ["x", None, "True"]),
    "categories": Labels(pd.Series(["x", None, "z"], dtype="category"), STRINGS, ["x", None, "z"]),
    "Arrow strings": Labels(pa.array(["x", "", None, "y"]), STRINGS, ["x", None, None, "y"]),
    "StringDType": Labels(
        np.array(["x", "nan", "w"], dtype=np.dtypes.StringDType()), STRINGS, ["x", "nan", "w"]
    ),
    # no labels at all
    "only NaT": Labels(np.full(3, "NaT", dtype="M8[ns]"), "", [None] * 3),
    "only None": Labels([None, pd.NA, pd.NaT], "", [None] * 3),
    # refused
    "timedeltas": Labels(np.array([1, 2], dtype="m8[ns]"), "timedelta64", None),
    "Decimals": Labels([Decimal(1), Decimal(2)], "Decimal", None),
    "tuples": Labels(objects((1, 2), (3, 4)), "tuple", None),
    "complex": Labels(np.array([1j, 2]), "complex", None),
    "mixture": Labels([True, 1, None], "booleans, integers", None),
    "too wide a range": Labels([-1 - 2**62, 2**63], "int64", None),
    "fractions": Labels(np.array([0.5, 1.0]), "floats", None),
    "large uint64": Labels(np.array([2**63, 1], dtype=np.uint64), "within int64", None),
    "ints beyond int64": Labels([2**63 + 1, None, 2], "convert them to strings", None),
    "bytes array": Labels(np.array([b"x", b"long", b""]), "with decode", None),
    "list of bytes": Labels([b"x", b"\xff\0\xfe", None], "type bytes", None),
    "days": Labels(np.array(["1970-01-02", "NaT"], dtype="M8[D]"), "datetime64", None),
    "dates": Labels([datetime.date(1970, 1, 2), pd.NaT], "example with str", None),
    "Timestamps": Labels([pd.Timestamp("1970-01-02"), None], "Timestamp", None),
    "Arrow timestamps": Labels(pa.array([0, None], pa.timestamp("ns")), "expected integers", None),
    "integers that are no floats": Labels([BIG + 1, 1.0], "less than 2**53", None),
    "floats that may have been other integers": Labels([2.0**53, 1.0], "less than 2**53", None),
    "huge floats": Labels(np.array([1e300, 1.0]), "less than 2**53", None),
    "integers that overflow": Labels([10**400, 1.0], "less than 2**53", None),
}


def test_many_types_can_be_learned():
    assert sum(labels.values is not None for labels in TYPES.values()) == 30


# -- what must come of two batches -----------------------------------------------------------------


def held(labels):
    """Return the distinct values of a batch, unlabeled rows left out."""
    return {value for value in labels.values if value is not None}


def storable(kind, values):
    """Whether values of one type have an array type that is exact for all of them."""
    if kind == INTEGERS:
        low, high = min(values), max(values)
        return -(2**63) <= low <= high < 2**63
    if kind == FLOATS:
        return all(abs(value) < BIG for value in values)
    return True


def expected(first, second):
    """Return the classes of two batches, and None if the second does not fit the first."""
    if second.values is None:
        return None
    if not held(second):
        return held(first)
    numbers = {first.kind, second.kind} == {INTEGERS, FLOATS}
    if first.kind != second.kind and not numbers:
        return None
    every = held(first) | held(second)
    return every if storable(first.kind, every) else None


def exactly(kind, classes):
    """Return an array of classes as the Python values of `Labels`."""
    values = classes.tolist()
    if kind in (INTEGERS, FLOATS):
        assert {type(value) for value in values} == {int if kind == INTEGERS else float}
        return [int(value) for value in values]
    plain = {BOOLEANS: bool, STRINGS: str}
    assert {type(value) for value in values} == {plain[kind]}
    return values


# Every value of all types has a place of its own, so that a model that learned it predicts it.
PLACES = {
    (kind, value): place
    for place, (kind, value) in enumerate(
        sorted(
            {
                (INTEGERS if labels.kind == FLOATS else labels.kind, value)
                for labels in TYPES.values()
                if labels.values is not None
                for value in held(labels)
            },
            key=repr,
        )
    )
}


def points_of(labels):
    """Return a row for every label, equal for equal labels and far from all others."""
    kind = INTEGERS if labels.kind == FLOATS else labels.kind
    points = np.zeros((len(labels.y), 1 + len(PLACES)))
    for row, value in enumerate(labels.values or []):
        points[row, PLACES.get((kind, value), -1)] = 10.0
    return points


def learned(model, labels):
    return model.partial_fit(points_of(labels), labels.y)


def state_of(model):
    """Return what an update would replace."""
    final = model.steps[-1][1] if isinstance(model, StreamPipeline) else model
    return final._state if hasattr(final, "_state") else final.candidates_


def check_pair(model, first, second, path):
    """Learn two batches, and compare with what must come of it."""
    if first.values is None:
        with pytest.raises(ValueError, match=r"y holds|y mixes") as refusal:
            learned(model, first)
        assert first.kind in str(refusal.value)
        assert not hasattr(model, "classes_")
        return
    learned(model, first)
    classes, kind = expected(first, second), first.kind
    if not held(first):  # then the second is the first
        kind = second.kind
        classes = None if second.values is None else held(second)
    before, batches = state_of(model), [first, second]
    if classes is None:
        with pytest.raises(ValueError, match=r"y holds|y mixes") as refusal:
            learned(model, second)
        text = str(refusal.value)
        if second.values is None:  # refused for what it is, or for what is known
            known = ("the type of the classes so far", "where labels are floats")
            assert any(words in text for words in (second.kind, *known))
        else:
            assert second.kind in text
            assert kind in text
        assert state_of(model) is before
        classes, batches = held(first), [first]
    else:
        learned(model, second)
    if not classes:
        assert model.classes_.size == 0
        return
    assert exactly(kind, model.classes_) == sorted(classes)
    seqmed.save(model, path)
    loaded = seqmed.load(path)
    assert loaded.classes_.dtype == model.classes_.dtype
    for labels in batches:
        rows = [row for row, value in enumerate(labels.values) if value is not None]
        if rows:
            given = [labels.values[row] for row in rows]
            for each in (model, loaded):
                assert exactly(kind, each.predict(points_of(labels)[rows])) == given
            assert model.score(points_of(labels), labels.y) == 1.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", TYPES)
def test_every_type_after_every_other(first, tmp_path):
    for second in TYPES:
        model = SeqMED(gamma=0.1)
        check_pair(model, TYPES[first], TYPES[second], tmp_path / "model")


MODELS = {
    "SeqLapMED": SeqLapMED(gamma=0.1, n_neighbors=1, beta=0.0, random_state=0),
    "SeqGraphMED": SeqGraphMED(SeqMED(gamma=0.1), mixture=0.0, random_state=0),
    "GraphPropagation": GraphPropagation(n_neighbors=1, random_state=0),
    "StreamPipeline": StreamPipeline([("model", SeqMED(gamma=0.1))]),
    "PrequentialSearch": PrequentialSearch(SeqMED(gamma=0.1), {"C": [5.0, 10.0]}),
}


SHIFTS = (0, 1, 7, 20)


def marks_of(place, shift):
    """Every model runs with two shifts by default, and every shift with two models or more."""
    return () if shift in (SHIFTS[place % 4], SHIFTS[(place + 1) % 4]) else pytest.mark.exhaustive


@pytest.mark.parametrize(
    ("name", "shift"),
    [
        pytest.param(name, shift, marks=marks_of(place, shift))
        for place, name in enumerate(MODELS)
        for shift in SHIFTS
    ],
)
def test_a_sample_of_pairs_in_other_models(name, shift, tmp_path):
    every = list(TYPES.values())
    for place, first in enumerate(every):
        second = every[(place + shift) % len(every)]
        check_pair(clone(MODELS[name]), first, second, tmp_path / "model")
