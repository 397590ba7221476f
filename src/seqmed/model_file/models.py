"""Estimators and records of the library in a model file.

A file can create only the estimators of `ATTRIBUTES`, and the records in the annotations of these
attributes. A record has a method ``validate`` if its fields could hurt compiled loops, memory or
termination. Everything is validated when a model is loaded, and when it is saved, so that every
saved file can be loaded.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from seqmed.estimators.base import StreamClassifier
from seqmed.estimators.graph_propagation import GraphPropagation
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.estimators.seqlapmed import SeqLapMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.graph.kept_rows import Lists
from seqmed.graph.metrics import Cosine, Euclidean, KernelDistance, Metric
from seqmed.kernels import KERNELS, Kernel, Linear, Precomputed
from seqmed.margin.covariance import RECURSIONS, make_recursion
from seqmed.margin.covariance.exact import Recursion
from seqmed.margin.covariance.landmarks import LandmarkRecursion
from seqmed.margin.covariance.nystroem import NystroemRecursion
from seqmed.mixture.experts import StandardisedLogisticRegression
from seqmed.model_file.values import Decoder, Encoder, checked, in_range
from seqmed.numeric.annotations import (
    INTERFACES,
    check_fields,
    field_types,
    reachable,
    type_hints,
)
from seqmed.selection.search import PrequentialSearch
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.stream_pipeline import StreamPipeline

# Saved attributes of fitted estimators. The others follow from the arguments of ``_commit``.
COLUMNS = ("n_features_in_", "feature_names_in_")
OF_CLASSIFIERS = ("_state", "update_info_", "classes_")
OF_SEARCHES = ("candidates_", "record_", "n_batches_", "_begun")
MODELS: dict[type, tuple[str, ...]] = {
    **dict.fromkeys(
        (SeqMED, SeqLapMED, GraphPropagation, SeqGraphMED),
        (*COLUMNS, "_started", "_minus_one_seen", *OF_CLASSIFIERS),
    ),
    StreamPipeline: (),
    PrequentialSearch: (*COLUMNS, *OF_SEARCHES),
}
TRANSFORMERS: dict[type, tuple[str, ...]] = {
    StandardScaler: (*COLUMNS, "n_samples_seen_", "mean_", "var_", "scale_"),
    MinMaxScaler: (
        *COLUMNS, "n_samples_seen_", "min_", "scale_", "data_min_", "data_max_", "data_range_",
    ),
    MaxAbsScaler: (*COLUMNS, "n_samples_seen_", "max_abs_", "scale_"),
    TableEncoder: ("encoding_",),
}  # fmt: skip
# Classifiers that may be experts of SeqGraphMED. They are saved without what they learned.
EXPERTS: dict[type, tuple[str, ...]] = dict.fromkeys(
    (
        StandardisedLogisticRegression,
        LogisticRegression,
        ExtraTreesClassifier,
        RandomForestClassifier,
        HistGradientBoostingClassifier,
        GaussianNB,
        KNeighborsClassifier,
        DecisionTreeClassifier,
    ),
    (),
)
ATTRIBUTES = {**MODELS, **TRANSFORMERS, **EXPERTS}
# The container that `set_output` of scikit-learn chooses, of any transformer; and its values.
OUTPUT, CONTAINERS = "_sklearn_output_config", ("default", "pandas", "polars")
# Attributes that not every fitted estimator has.
OPTIONAL = (*COLUMNS, "_minus_one_seen", OUTPUT)
# Parameters of a process, which are not saved: a file can be loaded on another machine.
UNSAVED_PARAMETERS = ("device",)
CLASSES = {kind.__name__: kind for kind in ATTRIBUTES}
# Types of attributes without annotation; all others are arrays or None.
TYPES = {
    "n_features_in_": int,
    "feature_names_in_": NDArray[Any],
    "n_samples_seen_": float | NDArray[Any],
    OUTPUT: dict,
}
# Fields of records that may be infinite; no number may be NaN.
INFINITE: dict[type, tuple[str, ...]] = {
    Lists: ("distances", "horizons"),
    LandmarkRecursion: ("keys",),
}

INTERFACES[Metric] = lambda: (Euclidean, Cosine, KernelDistance)
INTERFACES[Kernel] = lambda: (*(type(make(1.0, 1, 1.0)) for make in KERNELS.values()), Precomputed)
INTERFACES[Recursion] = lambda: (
    *(type(make_recursion(name, Linear())) for name in RECURSIONS),
    NystroemRecursion,
)

# The random generator of a RandomState that can be saved, and the size of its key.
GENERATOR, KEY_SIZE = "MT19937", 624


def attribute_types(kind: Any) -> dict[str, Any]:
    """Return the types of the saved attributes of an estimator class."""
    known = {**TYPES, **type_hints(kind)}
    more = (OUTPUT,) if kind in TRANSFORMERS else ()
    return {name: known.get(name, NDArray[Any] | None) for name in (*ATTRIBUTES[kind], *more)}


def records() -> dict[str, Any]:
    """Return the classes of all records by name: those of attributes, and of their fields."""
    attributes = (hint for kind in ATTRIBUTES for hint in attribute_types(kind).values())
    registered = (kind for known in INTERFACES.values() for kind in known())
    return reachable((*attributes, *registered))


def estimator_class(name: Any) -> Any:
    """Return the class of an estimator by its name."""
    if not isinstance(name, str) or name not in CLASSES:
        raise ValueError(f"it holds a {name!r}, expected one of {', '.join(CLASSES)}")
    return CLASSES[name]


@cache
def defaults(kind: Any) -> dict[str, Any]:
    """Return the defaults of fields and parameters, which files of older versions may lack."""
    parameters = inspect.signature(kind).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def made_record(kind: Any, parts: dict[str, Any]) -> Any:
    """Return a record with the given fields; refuse fields that are not valid."""
    name = kind.__name__
    check_fields(parts, field_types(kind), name, defaults(kind))
    for part, value in parts.items():
        numbers = value.data if sp.issparse(value) else value
        if isinstance(numbers, np.ndarray) and numbers.dtype.kind == "f":
            infinite = part in INFINITE.get(kind, ())
            wrong = np.isnan(numbers) if infinite else ~np.isfinite(numbers)
            if wrong.any():
                what = "numbers" if infinite else "finite numbers"
                raise ValueError(f"{part} of a {name} holds {numbers[wrong][0]}, expected {what}")
    record = kind(**parts)
    if hasattr(record, "validate"):
        try:
            record.validate()
        except ValueError as error:
            raise ValueError(f"a {name} is damaged: {error}") from error
    return record


def saved_attributes(estimator: Any) -> dict[str, Any]:
    """Return the saved attributes of an estimator; none if it is not fitted."""
    found = vars(estimator)
    return {name: found[name] for name in attribute_types(type(estimator)) if name in found}


def restored(kind: Any, parameters: dict[str, Any], state: dict[str, Any]) -> Any:
    """Return an estimator with valid parameters and saved attributes."""
    optional = OPTIONAL if state.keys() - {OUTPUT} else (*ATTRIBUTES[kind], OUTPUT)
    if not set(state.get(OUTPUT, {}).values()) <= {*CONTAINERS}:
        raise ValueError(
            f"a {kind.__name__} has the output {state[OUTPUT]!r}, expected a container"
        )
    check_fields(state, attribute_types(kind), kind.__name__, optional)
    estimator = kind(**parameters)
    if isinstance(estimator, StreamClassifier | StreamPipeline):
        estimator._check_parameters()
    else:
        estimator._validate_params()
    vars(estimator).update(state)
    if state and isinstance(estimator, StreamClassifier):
        estimator._validate_state()
        estimator._commit(*(state[name] for name in OF_CLASSIFIERS))
    if state and isinstance(estimator, PrequentialSearch):
        estimator._commit(*(state[name] for name in OF_SEARCHES))
    return estimator


class ModelEncoder(Encoder):
    """Encoder of estimators, records and random states."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix)
        self.records = records()

    def encode(self, value: Any, where: str) -> Any:
        """Return a value as JSON; ``where`` names it in errors."""
        if isinstance(value, type) and value in ATTRIBUTES:
            return {"class": value.__name__}
        return super().encode(value, where)

    def node(self, value: Any, where: str) -> dict[str, Any]:
        """Return the node of a value that may be shared."""
        name = type(value).__name__
        if type(value) in ATTRIBUTES:
            return {"estimator": {"class": name, **self._estimator(value, name)}}
        if type(value) is self.records.get(name):
            value = value.for_file() if hasattr(value, "for_file") else value
            parts = {each: getattr(value, each) for each in field_types(type(value))}
            fields = self.encode_named(parts, where)  # names a part that cannot be saved
            made_record(type(value), parts)
            return {"record": {"type": name, "fields": fields}}
        if type(value) is np.random.RandomState:
            return {"random_state": self.encode_named(generator_state(value, where), where)}
        refuse_code(value, where)
        return super().node(value, where)

    def _estimator(self, estimator: Any, where: str) -> dict[str, Any]:
        parameters, state = estimator.get_params(deep=False), saved_attributes(estimator)
        if type(estimator) in EXPERTS:  # other versions of scikit-learn have other parameters
            parameters = other_than_default(type(estimator), parameters)
            restored(type(estimator), parameters, {})
            return {"parameters": self.encode_named(parameters, where), "state": {}}
        written = self.encode_named(state, where)
        known = vars(restored(type(estimator), parameters, state))
        strange = vars(estimator).keys() - known.keys()
        if strange:
            raise ValueError(
                f"{where} has {', '.join(sorted(strange))}, expected parameters and learned "
                "attributes: remove it, and set it after loading."
            )
        saved = {name: each for name, each in parameters.items() if name not in UNSAVED_PARAMETERS}
        return {"parameters": self.encode_named(saved, where), "state": written}


def other_than_default(kind: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of an estimator that differ from the defaults of its class."""
    usual = defaults(kind)
    return {name: each for name, each in parameters.items() if repr(each) != repr(usual[name])}


def generator_state(generator: np.random.RandomState, where: str) -> dict[str, Any]:
    """Return the state of a random generator; refuse one that cannot be saved."""
    state: Any = generator.get_state(legacy=False)
    if state["bit_generator"] != GENERATOR:
        raise ValueError(
            f"{where} uses the generator {state['bit_generator']}, expected {GENERATOR}: pass a "
            "seed, or np.random.RandomState(seed)."
        )
    return {**state.pop("state"), **state}


def refuse_code(value: Any, where: str) -> None:
    """Refuse a value that is code."""
    if isinstance(value, BaseEstimator) or callable(value):
        raise ValueError(
            f"{where} is {value!r}, which cannot be saved in a model file, expected one of "
            f"{', '.join(CLASSES)}, or a kernel of seqmed.kernels: transform the rows beforehand, "
            "set experts to classifiers of this list, or save the model with skops or cloudpickle, "
            "and load such files only from trusted sources."
        )


class ModelDecoder(Decoder):
    """Decoder of estimators, records and random states, which must be valid."""

    def __init__(self, nodes: Any, tensors: dict[str, NDArray[Any]]) -> None:
        self.records = records()
        super().__init__(nodes, tensors)

    def decode(self, value: Any) -> Any:
        """Return the value that a JSON value encodes."""
        if isinstance(value, dict) and set(value) == {"class"}:
            return estimator_class(value["class"])
        return super().decode(value)

    def build(self, tag: str, content: Any) -> Any:
        """Return the value of a node."""
        if tag == "estimator":
            return self._build_estimator(content)
        if tag == "record":
            return self._build_record(content)
        if tag == "random_state":
            return self._build_random_state(content)
        return super().build(tag, content)

    def _build_estimator(self, content: Any) -> Any:
        check_fields(content, {"class": str, "parameters": dict, "state": dict}, "estimator")
        kind = estimator_class(content["class"])
        parameters = self.decode_named(content["parameters"])
        names = inspect.signature(kind).parameters.keys() - {*UNSAVED_PARAMETERS}
        known = dict.fromkeys(names, object)
        check_fields(parameters, known, kind.__name__, defaults(kind))
        return restored(kind, parameters, self.decode_named(content["state"]))

    def _build_record(self, content: Any) -> Any:
        check_fields(content, {"type": str, "fields": dict}, "record")
        name = content["type"]
        if name not in self.records:
            raise ValueError(f"it holds a record {name!r}, which this version does not know")
        record = made_record(self.records[name], self.decode_named(content["fields"]))
        return record.from_file() if hasattr(record, "from_file") else record

    def _build_random_state(self, content: Any) -> np.random.RandomState:
        parts = self.decode_named(content)
        key = checked(parts["key"], np.ndarray)
        position = in_range(parts["pos"], KEY_SIZE + 1, "a place")
        generator = np.random.RandomState()
        generator.set_state((GENERATOR, key, position, parts["has_gauss"], parts["gauss"]))
        return generator


class Outline(Decoder):
    """Decoder that returns only the names of estimators, records and random states."""

    def build(self, tag: str, content: Any) -> Any:
        """Return the value of a node, or its name."""
        if tag in ("estimator", "record", "random_state"):
            named = checked(content, dict)
            return str(named.get("class", named.get("type", "RandomState")))
        return super().build(tag, content)
