"""Encoding of estimators and their records as JSON, and decoding."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier

from seqmed.model_file import registry
from seqmed.model_file.annotations import as_written, check_fields, field_types, field_values
from seqmed.model_file.constraints import check
from seqmed.model_file.margins import MARGINS
from seqmed.model_file.registry import CLASSES, ESTIMATORS
from seqmed.model_file.transformers import TRANSFORMERS
from seqmed.model_file.values import Decoder, Encoder, checked

# The random generator of a RandomState that can be saved, and its state.
GENERATOR = "MT19937"
GENERATOR_TYPES = {"key": NDArray[np.uint32], "position": int, "has_gauss": int, "gauss": float}
GENERATOR_CONSTRAINTS = {"key": "624", "position": ">= 0 <= 624", "has_gauss": ">= 0 <= 1"}


class ModelEncoder(Encoder):
    """Encoder of estimators, records and random states."""

    def encode(self, value: Any, where: str) -> Any:
        """Return a value as JSON; ``where`` names it in errors."""
        if isinstance(value, type) and value in ESTIMATORS:
            return {"class": value.__name__}
        return super().encode(value, where)

    def node(self, value: Any, where: str) -> dict[str, Any]:
        """Return the node of a value that two places may share."""
        value = as_written(value)
        name = type(value).__name__
        if type(value) in ESTIMATORS:
            return {"estimator": {"class": name, **self._estimator(value, name)}}
        if type(value) is registry.records().get(name):
            parts = field_values(value)
            written = self.encode_named(parts, where)
            check_fields(parts, field_types(type(value)), name)
            return {"record": {"type": name, "fields": written}}
        if type(value) is np.random.RandomState:
            return {"random_state": self.encode_named(generator_state(value, where), where)}
        refuse_code(value, where)
        return super().node(value, where)

    def _estimator(self, estimator: Any, where: str) -> dict[str, Any]:
        kept = ESTIMATORS[type(estimator)]
        parameters, state = estimator.get_params(deep=False), kept.state(estimator)
        written = {
            "parameters": self.encode_named(parameters, where),
            "state": self.encode_named(state, where),
        }
        check_fields(state, kept.attributes, where, kept.optional if state else kept.attributes)
        kept.check(estimator, state)
        known = vars(kept.restored(type(estimator), parameters, state))
        strange = vars(estimator).keys() - known.keys()
        if strange:
            raise ValueError(
                f"{where} has {', '.join(sorted(strange))}, which a model file cannot hold, "
                "expected parameters and learned attributes: remove it, and set it after loading."
            )
        return written


def generator_state(generator: np.random.RandomState, where: str) -> dict[str, Any]:
    """Return the state of a random generator; refuse one that cannot be saved."""
    state: Any = generator.get_state(legacy=False)
    if state["bit_generator"] != GENERATOR:
        raise ValueError(
            f"{where} uses the generator {state['bit_generator']}, expected {GENERATOR}: pass a "
            "seed, or np.random.RandomState(seed)."
        )
    parts = (state["state"]["key"], state["state"]["pos"], state["has_gauss"], state["gauss"])
    return dict(zip(GENERATOR_TYPES, parts, strict=True))


def refuse_code(value: Any, where: str) -> None:
    """Refuse a value that is code, with a remedy for each kind."""
    if hasattr(value, "saving_remedy"):
        remedy = value.saving_remedy
    elif isinstance(value, BaseEstimator) and is_classifier(value):
        remedy = f"Expected {' or '.join(kind.__name__ for kind in MARGINS)}: use one of these."
    elif isinstance(value, BaseEstimator):
        remedy = (
            f"Expected {', '.join(CLASSES)}: transform the rows beforehand or by one of "
            f"{', '.join(kind.__name__ for kind in TRANSFORMERS)}, or save the model with skops."
        )
    elif callable(value):
        remedy = (
            "Expected the name of a kernel, or a kernel of seqmed.kernels: use one of these, or "
            "save the model with cloudpickle, and load such files only from trusted sources."
        )
    else:
        return
    raise ValueError(f"{where} is {value!r}, which cannot be saved in a model file. {remedy}")


class ModelDecoder(Decoder):
    """Decoder of estimators, records and random states, which must be valid."""

    def decode(self, value: Any) -> Any:
        """Return the value that a JSON value encodes."""
        if isinstance(value, dict) and set(value) == {"class"}:
            return registry.estimator_class(value["class"])
        return super().decode(value)

    def build(self, tag: str, content: Any) -> Any:
        """Return the value of a node."""
        builders: dict[str, Callable[[Any], Any]] = {
            "estimator": self._build_estimator,
            "record": self._build_record,
            "random_state": self._build_random_state,
        }
        return builders[tag](content) if tag in builders else super().build(tag, content)

    def _build_estimator(self, content: Any) -> Any:
        check_fields(content, {"class": str, "parameters": dict, "state": dict}, "estimator")
        kind = registry.estimator_class(content["class"])
        name, kept = kind.__name__, ESTIMATORS[kind]
        parameters = self.decode_named(content["parameters"])
        check_fields(parameters, dict.fromkeys(inspect.signature(kind).parameters, object), name)
        state = self.decode_named(content["state"])
        check_fields(state, kept.attributes, name, kept.optional if state else kept.attributes)
        kept.check(kind(**parameters), state)
        return kept.restored(kind, parameters, state)

    def _build_record(self, content: Any) -> Any:
        check_fields(content, {"type": str, "fields": dict}, "record")
        name = content["type"]
        kind = registry.records().get(name)
        if kind is None:
            raise ValueError(f"it holds a record {name!r}, which this version does not know")
        parts = self.decode_named(content["fields"])
        check_fields(parts, field_types(kind), name)
        record = kind(**parts)
        return record.as_read() if hasattr(record, "as_read") else record

    def _build_random_state(self, content: Any) -> np.random.RandomState:
        parts = self.decode_named(content)
        check_fields(parts, GENERATOR_TYPES, "random state")
        for name, constraint in GENERATOR_CONSTRAINTS.items():
            check(f"{name} of a random state", parts[name], constraint, {})
        generator = np.random.RandomState()
        generator.set_state((GENERATOR, *(parts[name] for name in GENERATOR_TYPES)))
        return generator


class Outline(Decoder):
    """Decoder that returns only the names of estimators, records and random states."""

    def build(self, tag: str, content: Any) -> Any:
        """Return the value of a node, or its name."""
        if tag in ("estimator", "record", "random_state"):
            named = checked(content, dict)
            return str(named.get("class", named.get("type", "RandomState")))
        return super().build(tag, content)
