"""Registry of the estimators that a model file can hold, with their saved attributes and rules.

A file can create only these estimators, and the records in the annotations of their attributes.

The checksum detects accidental damage, not attacks. The rules are therefore checked when a model is
loaded. They are also checked when it is saved, so that every saved file can be loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from seqmed.batch import UpdateInfo
from seqmed.estimators.graph_propagation import GraphPropagation
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.estimators.seqlapmed import SeqLapMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.graph.propagation import GraphInfo
from seqmed.margin_state import MarginState
from seqmed.mixture.state import MixtureInfo, MixtureState
from seqmed.model_file import consistency
from seqmed.model_file.annotations import kernel_classes, record_classes
from seqmed.model_file.records import Rules, refuse_broken
from seqmed.model_file.saved_rows import completed
from seqmed.pipelines.drift import Comparison, DriftMonitor
from seqmed.pipelines.stream_pipeline import StreamPipeline
from seqmed.pipelines.transformers import is_passing
from seqmed.propagation_state import PropagationState
from seqmed.selection.race import Record
from seqmed.selection.search import PrequentialSearch
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.encoding import Encoding


@dataclass(frozen=True)
class Kept:
    """Saved attributes of an estimator, and rules on them and its parameters.

    Parameters
    ----------
    attributes : the saved attributes of a fitted estimator, with their types.
    rules : rules on the state of a fitted estimator: its saved attributes by name.
    parameter_rules : rules on the parameters, besides the constraints of the estimator.
    nesting : parameters that may hold estimators.
    optional : attributes that not every fitted estimator has.
    complete : adds the computed parts to a loaded state.
    make : sets the other attributes of an estimator.
    """

    attributes: dict[str, Any]
    rules: Callable[[Any, dict[str, Any]], Rules]
    parameter_rules: Callable[[Any], Rules] = lambda estimator: iter(())
    nesting: tuple[str, ...] = ()
    optional: tuple[str, ...] = ("feature_names_in_",)
    complete: Callable[[dict[str, Any]], dict[str, Any]] = lambda state: state
    make: Callable[[Any], Any] = lambda estimator: None


def check(estimator: Any, state: dict[str, Any]) -> None:
    """Raise a ValueError if the parameters or the state of an estimator are not valid.

    Parameters
    ----------
    estimator : of a class in `ESTIMATORS`. Estimators among its parameters have been checked.
    state : its saved attributes; empty if it is not fitted.
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
    """Return an estimator with some parameters and saved attributes."""
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
    """Yield rules on the parameters of every classifier."""
    for name in {"kernel", "metric"} & set(model.get_params(deep=False)):
        value = getattr(model, name)
        known = isinstance(value, str) or type(value) in kernel_classes()
        yield f"a {name} by name, or a kernel of seqmed.kernels", known
    given = getattr(model, "class_weight", None)
    weights = given.values() if isinstance(given, dict) else ()
    yield "class weights that are numbers", all(isinstance(each, Real) for each in weights)
    unlabeled = getattr(model, "unlabeled", None)
    single = unlabeled is None or isinstance(unlabeled, bool | Real | str | np.generic)
    yield "a single value as marker", single


def mixture_parameters(model: SeqGraphMED) -> Rules:
    """Yield rules on the parameters of a `SeqGraphMED`."""
    yield from classifier_parameters(model)
    yield (
        f"{' or '.join(kind.__name__ for kind in MARGINS)} as its estimator: use one of these, or "
        "save the model with skops",
        model.estimator is None or type(model.estimator) in MARGINS,
    )


def classifier(stream: type, info: type, rules: Any, **more: Any) -> Kept:
    """Return the declaration of a classifier."""

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
    """Return the state of a model with a graph, with the sketches of its kept rows."""
    stream = state["_stream"]
    trial = getattr(stream, "trial", None)
    if trial is not None:
        before = with_sketches({"_stream": trial.state})["_stream"]
        stream = stream._replace(trial=trial._replace(state=before))
    graph = replace(stream.graph, rows=completed(stream.graph.rows))
    return {**state, "_stream": stream._replace(graph=graph)}


# -- transformers ---------------------------------------------------------------------------------


def scaler(*statistics: str) -> Kept:
    """Return the declaration of a scaler."""
    counts: dict[str, Any] = {"n_samples_seen_": float | NDArray[Any]}
    optional = dict.fromkeys(statistics, NDArray[Any] | None)
    return Kept({**consistency.COLUMNS, **counts, **optional}, consistency.scaler_rules)


# -- pipelines ------------------------------------------------------------------------------------


def pipeline_parameters(pipeline: StreamPipeline) -> Rules:
    """Yield rules on the parameters of a pipeline."""
    steps = pipeline.steps
    yield "a list of steps", isinstance(steps, list | tuple) and len(steps) > 0
    pairs = all(isinstance(step, list | tuple) and len(step) == 2 for step in steps)
    yield "steps that are pairs", pairs and all(isinstance(name, str) for name, _ in steps)
    yield (
        f"transformers among {', '.join(kind.__name__ for kind in TRANSFORMERS)}",
        all(type(step) in TRANSFORMERS or is_passing(step) for _, step in steps[:-1]),
    )
    final = type(steps[-1][1])
    yield "a classifier of seqmed at its end", final in (*CLASSIFIERS, PrequentialSearch)
    yield (
        "memory=None, because its cache would execute code: set it after loading",
        pipeline.memory is None,
    )
    pipeline._check_parameters()


# -- searches -------------------------------------------------------------------------------------


def search_parameters(search: PrequentialSearch) -> Rules:
    """Yield rules on the parameters of a search."""
    yield "an estimator of seqmed", type(search.estimator) in (*CLASSIFIERS, StreamPipeline)
    yield "a grid of parameters", isinstance(search.param_grid, dict | list)


# -- all estimators -------------------------------------------------------------------------------

# Estimators of `SeqGraphMED` that can be saved.
MARGINS: dict[type, Kept] = dict.fromkeys(
    (SeqMED, SeqLapMED),
    classifier(MarginState, UpdateInfo, consistency.margin_rules),
)
CLASSIFIERS: dict[type, Kept] = {
    **MARGINS,
    GraphPropagation: classifier(
        PropagationState, GraphInfo, consistency.graph_rules, complete=with_sketches
    ),
    SeqGraphMED: classifier(
        MixtureState, MixtureInfo, consistency.mixture_rules, complete=with_sketches,
        parameter_rules=mixture_parameters, nesting=("estimator",),
    ),
}  # fmt: skip
SCALERS: dict[type, Kept] = {
    StandardScaler: scaler("mean_", "var_", "scale_"),
    MinMaxScaler: scaler("min_", "scale_", "data_min_", "data_max_", "data_range_"),
    MaxAbsScaler: scaler("max_abs_", "scale_"),
}
TRANSFORMERS: dict[type, Kept] = {
    **SCALERS,
    TableEncoder: Kept(
        {"encoding_": Encoding}, consistency.encoder_rules, consistency.encoder_parameters,
        optional=(),
    ),
}  # fmt: skip
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
ESTIMATORS: dict[type, Kept] = {**MODELS, **TRANSFORMERS}
CLASSES: dict[str, type] = {kind.__name__: kind for kind in ESTIMATORS}


def estimator_class(name: Any) -> Any:
    """Return the class of an estimator by its name."""
    if not isinstance(name, str) or name not in CLASSES:
        raise ValueError(f"it holds a {name!r}, expected one of {', '.join(CLASSES)}")
    return CLASSES[name]


def kept_state(estimator: Any) -> dict[str, Any]:
    """Return the saved attributes of an estimator; none if it is not fitted."""
    names = ESTIMATORS[type(estimator)].attributes
    return {name: vars(estimator)[name] for name in names if name in vars(estimator)}


def records() -> dict[str, Any]:
    """Return the record classes of all models by name."""
    kept = (hint for each in ESTIMATORS.values() for hint in each.attributes.values())
    return record_classes(tuple(kept))
