"""Declarations of records and estimators: what is saved, and what is valid.

A record has constraints on its fields (see `constraints`) and rules between them. Fields named
``n_...`` and seeds are counts, and need no declaration. An estimator has rules between its saved
attributes and its parameters.

A rule is a statement and whether it is true. It is evaluated after the constraints of all fields,
the rules of the nested records and the rules before it.

Sizes of the whole stream: p columns, machines, classes, kept rows of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from seqmed.model_file.annotations import field_types, field_values, parts_of
from seqmed.model_file.constraints import check

Rules = Iterator[tuple[str, Any]]

# A count or an index.
COUNT = ">= 0 < 9e15"
CONSTRAINTS: dict[type, dict[str, str]] = {}
RULES: dict[type, Callable[[Any], Rules]] = {}
# Sizes that are the same in all models, by name.
SIZES: dict[str, int] = {}


def declare(kind: type, /, **constraints: str) -> Callable[[Callable[[Any], Rules]], None]:
    """Declare the constraints of a record; decorates its rules, if there are any."""
    CONSTRAINTS[kind] = constraints
    return lambda rules: RULES.update({kind: rules})


def check_records(value: Any, **sizes: int) -> None:
    """Refuse a record, or a tuple of records, with a part that is not valid.

    ``sizes`` are known sizes by name. Other sizes must be the same within each record.
    """
    records = list(parts_of(value))
    for record in records:
        known = {**SIZES, **sizes}
        declared = CONSTRAINTS.get(type(record), {})
        for name, field in field_values(record).items():
            count = COUNT if name.startswith("n_") or name == "seed" else None
            constraint = declared.get(name, count)
            if field is not None and constraint is not None:
                check(f"{name} of a {type(record).__name__}", field, constraint, known)
    for record in records:
        rules = RULES.get(type(record))
        refuse_broken(rules(record) if rules else (), f"a {type(record).__name__} is damaged")


def refuse_broken(rules: Any, subject: str) -> None:
    """Raise a ValueError for the first rule that is broken."""
    for statement, truth in rules:
        if not truth:
            raise ValueError(f"{subject}: expected {statement}")


def points_in(value: Any) -> Iterator[Any]:
    """Yield all rows of data in a value."""
    for record in parts_of(value):
        types = field_types(type(record))
        yield from (each for name, each in field_values(record).items() if types[name] is Any)


# -- estimators -----------------------------------------------------------------------------------

# Attributes on the columns of an estimator, with their types.
COLUMNS: dict[str, Any] = {"n_features_in_": int, "feature_names_in_": NDArray[Any]}


def column_rules(state: dict[str, Any]) -> Rules:
    """Yield rules on the columns of an estimator."""
    width, names = state.get("n_features_in_"), state.get("feature_names_in_")
    yield "at least one column", width is None or width >= 1
    yield "a name for every column", names is None or names.shape == (width,)
    yield "names that are text", names is None or names.dtype.kind == "O"


@dataclass(frozen=True)
class Kept:
    """Saved attributes of the estimators of a class, and rules on them and the parameters.

    The checksum of a file detects accidental damage, not attacks. The rules are therefore checked
    when a model is loaded. They are also checked when it is saved, so that every saved file can be
    loaded.

    Parameters
    ----------
    attributes : the saved attributes of a fitted estimator, with their types.
    rules : rules on the state of a fitted estimator: its saved attributes by name.
    parameter_rules : rules on the parameters, besides the constraints of the estimator.
    nesting : parameters that may hold estimators.
    optional : attributes that not every fitted estimator has.
    make : sets the other attributes of an estimator.
    """

    attributes: dict[str, Any]
    rules: Callable[[Any, dict[str, Any]], Rules]
    parameter_rules: Callable[[Any], Rules] = lambda estimator: iter(())
    nesting: tuple[str, ...] = ()
    optional: tuple[str, ...] = ("feature_names_in_",)
    make: Callable[[Any], Any] = lambda estimator: None

    def check(self, estimator: Any, state: dict[str, Any]) -> None:
        """Raise a ValueError if the parameters or the state of an estimator are not valid.

        Parameters
        ----------
        estimator : of this class. Estimators among its parameters have been checked.
        state : its saved attributes; empty if it is not fitted.
        """
        name = type(estimator).__name__
        for parameter, value in estimator.get_params(deep=False).items():
            if parameter not in self.nesting and holds_estimator(value):
                raise ValueError(f"{name}.{parameter} holds an estimator, expected plain values")
        refuse_broken(self.parameter_rules(estimator), f"a parameter of {name} is wrong")
        estimator._validate_params()
        if state:
            refuse_broken(self.rules(estimator, state), f"the state of {name} is damaged")

    def state(self, estimator: Any) -> dict[str, Any]:
        """Return the saved attributes of an estimator; none if it is not fitted."""
        found = vars(estimator)
        return {name: found[name] for name in self.attributes if name in found}

    def restored(self, kind: Any, parameters: dict[str, Any], state: dict[str, Any]) -> Any:
        """Return an estimator with some parameters and saved attributes."""
        estimator = kind(**parameters)
        vars(estimator).update(state)
        if state:
            self.make(estimator)
        return estimator


def holds_estimator(value: Any) -> bool:
    """Whether a value is an estimator, or a container that holds one."""
    if isinstance(value, dict):
        return holds_estimator([*value.keys(), *value.values()])
    if isinstance(value, list | tuple):
        return any(map(holds_estimator, value))
    return isinstance(value, BaseEstimator)
