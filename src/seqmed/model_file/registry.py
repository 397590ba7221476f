"""The estimators that a model file can hold: what is kept of each, and what holds for it.

A file names its parts. Estimators are looked up here, and records among those that the attributes
of the estimators may hold, so that no file can make anything but these.

A checksum stops accidents, not malice. The rules are checked before a model is saved, so that every
file that is written can be read, and again before a loaded one is put together, so that whatever a
file holds, its model can be used like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from seqmed.estimators.graph_propagation import GraphPropagation, GraphStream
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.estimators.seqlapmed import SeqLapMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.graph.propagation import GraphInfo
from seqmed.margin_state import MarginState
from seqmed.mixture.update import MixtureInfo, MixtureStream
from seqmed.model_file import consistency
from seqmed.model_file.annotations import kernel_classes, record_classes
from seqmed.model_file.records import Rules, refuse_broken
from seqmed.model_file.saved_rows import completed
from seqmed.pipelines.drift import Comparison, DriftMonitor
from seqmed.pipelines.stream_pipeline import StreamPipeline
from seqmed.selection.race import Record
from seqmed.selection.search import PrequentialSearch
from seqmed.update import UpdateInfo


@dataclass(frozen=True)
class Kept:
    """What is kept of an estimator besides its parameters, and what holds for both.

    Parameters
    ----------
    attributes : those that are written of a fitted one, with their types.
    rules : what holds for the state of a fitted one: its kept attributes by name.
    parameter_rules : what holds for the parameters, beyond the estimator's own constraints.
    nesting : parameters that may hold estimators.
    optional : attributes that not every fitted estimator has.
    complete : adds to a state that was read what is not written.
    make : makes the other attributes, for an estimator that has those.
    """

    attributes: dict[str, Any]
    rules: Callable[[Any, dict[str, Any]], Rules]
    parameter_rules: Callable[[Any], Rules] = lambda estimator: iter(())
    nesting: tuple[str, ...] = ()
    optional: tuple[str, ...] = ("feature_names_in_",)
    complete: Callable[[dict[str, Any]], dict[str, Any]] = lambda state: state
    make: Callable[[Any], Any] = lambda estimator: None


def check(estimator: Any, state: dict[str, Any]) -> None:
    """Refuse an estimator, with its parameters and the state it has or is to have, by a ValueError.

    Parameters
    ----------
    estimator : of a class in `ESTIMATORS`. Estimators among its parameters have been checked.
    state : its attributes that are kept, of their types; empty if it is not fitted.
    """
    name, kept = type(estimator).__name__, ESTIMATORS[type(estimator)]
    for parameter, value in estimator.get_params(deep=False).items():
        if parameter not in kept.nesting and holds_estimator(value):
            raise ValueError(f"{name}.{parameter} holds an estimator, expected plain values")
    refuse_broken(kept.parameter_rules(estimator), f"a parameter of {name} is wrong")
    estimator._validate_params()
    if state:
        refuse_broken(kept.rules(estimator, state), f"the state of {name} is damaged")


def restored(kind: Any, parameters: dict[str, Any], state: dict[str, Any]) -> Any:
    """Return the estimator of some parameters and kept attributes, with all its attributes."""
    estimator = kind(**parameters)
    vars(estimator).update(state)
    if state:
        ESTIMATORS[kind].make(estimator)
    return estimator


def holds_estimator(value: Any) -> bool:
    """Whether a value is an estimator, or a container that holds one."""
    if isinstance(value, dict):
        return holds_estimator([*value.keys(), *value.values()])
    if isinstance(value, list | tuple):
        return any(map(holds_estimator, value))
    return type(value) in ESTIMATORS


# -- classifiers ----------------------------------------------------------------------------------


def classifier_parameters(model: Any) -> Rules:
    """Yield what holds for the parameters of every classifier."""
    for name in {"kernel", "metric"} & set(model.get_params(deep=False)):
        value = getattr(model, name)
        known = isinstance(value, str) or type(value) in kernel_classes()
        yield f"a {name} by name, or a kernel of seqmed.kernels", known
    given = getattr(model, "class_weight", None)
    weights = given.values() if isinstance(given, dict) else ()
    yield "weights of classes that are numbers", all(isinstance(each, Real) for each in weights)
    unlabeled = getattr(model, "unlabeled", None)
    single = unlabeled is None or isinstance(unlabeled, bool | Real | str | np.generic)
    yield "a single value as marker", single


def mixture_parameters(model: SeqGraphMED) -> Rules:
    """Yield what holds for the parameters of a `SeqGraphMED`."""
    yield from classifier_parameters(model)
    yield (
        f"{' or '.join(kind.__name__ for kind in MARGINS)} as its estimator: use one of these, or "
        "keep the model with skops",
        model.estimator is None or type(model.estimator) in MARGINS,
    )


def classifier(stream: type, info: type, rules: Any, **more: Any) -> Kept:
    """Return what is kept of a classifier of streams."""

    def state_rules(model: Any, state: dict[str, Any]) -> Rules:
        yield from consistency.column_rules(state)
        fixed = state["_stream"].fixed
        yield "the parameters that may not change", set(fixed) == set(model._fixed_parameters)
        began = type(model)(**{**model.get_params(deep=False), **fixed})
        check(began, {})
        yield from rules(began, state)

    return Kept(
        attributes={**consistency.COLUMNS, "_stream": stream, "update_info_": info},
        rules=state_rules,
        make=lambda model: model._commit(model._stream, model.update_info_),
        **{"parameter_rules": classifier_parameters, **more},
    )


def with_sketches(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a model with a graph, with what is computed from the kept rows."""
    stream = state["_stream"]
    graph = replace(stream.graph, rows=completed(stream.graph.rows))
    return {**state, "_stream": stream._replace(graph=graph)}


# -- scalers --------------------------------------------------------------------------------------


def scaler(*statistics: str) -> Kept:
    """Return what is kept of a transformer that scales columns."""
    counts: dict[str, Any] = {"n_samples_seen_": float | NDArray[Any]}
    optional = dict.fromkeys(statistics, NDArray[Any] | None)
    return Kept({**consistency.COLUMNS, **counts, **optional}, consistency.scaler_rules)


# -- pipelines ------------------------------------------------------------------------------------


def pipeline_parameters(pipeline: StreamPipeline) -> Rules:
    """Yield what a pipeline consists of."""
    steps = pipeline.steps
    yield "a list of steps", isinstance(steps, list | tuple) and len(steps) > 0
    pairs = all(isinstance(step, list | tuple) and len(step) == 2 for step in steps)
    yield "steps that are pairs", pairs and all(isinstance(name, str) for name, _ in steps)
    yield (
        f"transformers among {', '.join(kind.__name__ for kind in SCALERS)}",
        all(type(step) in SCALERS or consistency.is_passing(step) for _, step in steps[:-1]),
    )
    final = type(steps[-1][1])
    yield "a classifier of seqmed at its end", final in (*CLASSIFIERS, PrequentialSearch)
    yield (
        "memory=None: loading what it caches would execute code (set it after loading)",
        pipeline.memory is None,
    )
    pipeline._validate_params()
    pipeline._validate_steps()
    pipeline._check_incremental()


# -- searches -------------------------------------------------------------------------------------


def search_parameters(search: PrequentialSearch) -> Rules:
    """Yield what a search consists of."""
    yield "an estimator of seqmed", type(search.estimator) in (*CLASSIFIERS, StreamPipeline)
    yield "a grid of parameters", isinstance(search.param_grid, dict | list)


# -- all of them ----------------------------------------------------------------------------------

# Estimators of `SeqGraphMED` that can be written.
MARGINS: dict[type, Kept] = dict.fromkeys(
    (SeqMED, SeqLapMED),
    classifier(MarginState, UpdateInfo, consistency.margin_rules),
)
CLASSIFIERS: dict[type, Kept] = {
    **MARGINS,
    GraphPropagation: classifier(
        GraphStream, GraphInfo, consistency.graph_rules, complete=with_sketches
    ),
    SeqGraphMED: classifier(
        MixtureStream, MixtureInfo, consistency.mixture_rules, complete=with_sketches,
        parameter_rules=mixture_parameters, nesting=("estimator",),
    ),
}  # fmt: skip
SCALERS: dict[type, Kept] = {
    StandardScaler: scaler("mean_", "var_", "scale_"),
    MinMaxScaler: scaler("min_", "scale_", "data_min_", "data_max_", "data_range_"),
    MaxAbsScaler: scaler("max_abs_", "scale_"),
}
MODELS: dict[type, Kept] = {
    **CLASSIFIERS,
    StreamPipeline: Kept(
        attributes={"_monitor": tuple[bool, DriftMonitor] | None, "drift_": Comparison | None},
        rules=consistency.pipeline_rules,
        parameter_rules=pipeline_parameters,
        nesting=("steps",),
    ),
    PrequentialSearch: Kept(
        attributes={
            **consistency.COLUMNS, "candidates_": list, "record_": Record, "n_batches_": int,
            "_begun": dict,
        },
        rules=consistency.search_rules,
        parameter_rules=search_parameters,
        nesting=("estimator", "param_grid"),
        optional=("n_features_in_", "feature_names_in_"),
        make=lambda search: search._commit(
            search.candidates_, search.record_, search.n_batches_, search._begun
        ),
    ),
}  # fmt: skip
ESTIMATORS: dict[type, Kept] = {**MODELS, **SCALERS}
CLASSES: dict[str, type] = {kind.__name__: kind for kind in ESTIMATORS}


def estimator_class(name: Any) -> Any:
    """Return the class of estimators of this name."""
    if not isinstance(name, str) or name not in CLASSES:
        raise ValueError(f"it holds a {name!r}, expected one of {', '.join(CLASSES)}")
    return CLASSES[name]


def kept_state(estimator: Any) -> dict[str, Any]:
    """Return the attributes of an estimator that are kept; none if it is not fitted."""
    names = ESTIMATORS[type(estimator)].attributes
    return {name: vars(estimator)[name] for name in names if name in vars(estimator)}


def records() -> dict[str, Any]:
    """Return, by name, the classes of records that a model may consist of."""
    kept = (hint for each in ESTIMATORS.values() for hint in each.attributes.values())
    return record_classes(tuple(kept))
