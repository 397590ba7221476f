"""What holds for every model: numbers in their ranges, indices that exist, parts that belong.

A checksum stops accidents, not malice. These rules are checked before a model is saved, so that
every file that is written can be read, and again before a loaded one is put together, so that
whatever a file holds, its model can be used like any other.

A rule is a statement and whether it is true. Each may take for granted those that come before it.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from seqmed.estimators.graph_propagation import GraphPropagation
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.estimators.seqlapmed import SeqLapMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.model_file.graph_rules import graph_stream_rules, mixture_stream_rules
from seqmed.model_file.registry import COLUMNS, ESTIMATORS, KERNELS, MARGINS, SCALERS
from seqmed.model_file.shapes import check_shapes
from seqmed.model_file.stream_rules import Rules, no_rules, stream_rules
from seqmed.pipelines.drift import ENOUGH_ROWS, Watch
from seqmed.pipelines.stream_pipeline import StreamPipeline
from seqmed.selection.search import PrequentialSearch

STREAM_CLASSIFIERS = (SeqMED, SeqLapMED, GraphPropagation, SeqGraphMED)


def check(estimator: Any, state: dict[str, Any]) -> None:
    """Refuse an estimator, with its parameters and the state it has or is to have, by a ValueError.

    Parameters
    ----------
    estimator : of a class in the registry. Estimators among its parameters have been checked.
    state : its attributes that are kept, of the types of the registry; empty if it is not fitted.
    """
    name = type(estimator).__name__
    for parameter, value in estimator.get_params(deep=False).items():
        if parameter not in NESTING.get(type(estimator), ()) and holds_estimator(value):
            raise ValueError(f"{name}.{parameter} holds an estimator, expected plain values")
    for statement, truth in FORMS.get(type(estimator), no_rules)(estimator):
        if not truth:
            raise ValueError(f"{name} is expected to have {statement}")
    estimator._validate_params()
    for statement, truth in STATES[type(estimator)](estimator, state) if state else ():
        if not truth:
            raise ValueError(f"the state of {name} is damaged: expected {statement}")


# -- parameters -----------------------------------------------------------------------------------

# Parameters that may hold estimators.
NESTING: dict[type, tuple[str, ...]] = {
    StreamPipeline: ("steps",),
    PrequentialSearch: ("estimator", "param_grid"),
    SeqGraphMED: ("estimator",),
}


def classifier_form(model: Any) -> Rules:
    """Yield what parameters are that the classifier's own constraints leave open."""
    named = isinstance(model.kernel, str)
    yield "a kernel by name, or of seqmed.kernels", named or type(model.kernel) in KERNELS
    yield from label_form(model)


def graph_form(model: Any) -> Rules:
    """Yield what parameters are that the constraints of `GraphPropagation` leave open."""
    named = isinstance(model.metric, str)
    yield "a metric by name, or a kernel of seqmed.kernels", named or type(model.metric) in KERNELS
    yield from label_form(model)


def mixture_form(model: SeqGraphMED) -> Rules:
    """Yield what parameters are that the constraints of `SeqGraphMED` leave open."""
    yield from graph_form(model)
    yield (
        f"{' or '.join(kind.__name__ for kind in MARGINS)} as its estimator: use one of these, or "
        "keep the model with skops",
        model.estimator is None or type(model.estimator) in MARGINS,
    )


def label_form(model: Any) -> Rules:
    """Yield what holds for the parameters of labels."""
    given = getattr(model, "class_weight", None)
    weights = given if isinstance(given, dict) else {}
    yield "weights of classes that are numbers", all(isinstance(w, Real) for w in weights.values())
    yield "a single value as marker", is_single(getattr(model, "unlabeled", None))


def pipeline_form(pipeline: StreamPipeline) -> Rules:
    """Yield what a pipeline consists of."""
    steps = pipeline.steps
    yield "a list of steps", isinstance(steps, list | tuple) and len(steps) > 0
    pairs = all(isinstance(step, list | tuple) and len(step) == 2 for step in steps)
    yield "steps that are pairs", pairs and all(isinstance(name, str) for name, _ in steps)
    yield (
        f"transformers among {', '.join(kind.__name__ for kind in SCALERS)}",
        all(type(step) in SCALERS or is_passing(step) for _, step in steps[:-1]),
    )
    final = type(steps[-1][1])
    yield "a classifier of seqmed at its end", final in (*STREAM_CLASSIFIERS, PrequentialSearch)
    yield (
        "memory=None: loading what it caches would execute code (set it after loading)",
        pipeline.memory is None,
    )
    pipeline._validate_params()
    pipeline._validate_steps()
    pipeline._check_incremental()


def search_form(search: PrequentialSearch) -> Rules:
    """Yield what a search consists of."""
    kinds = (*STREAM_CLASSIFIERS, StreamPipeline)
    yield "an estimator of seqmed", type(search.estimator) in kinds
    yield "a grid of parameters", isinstance(search.param_grid, dict | list)


FORMS: dict[type, Callable[[Any], Rules]] = {
    SeqMED: classifier_form,
    SeqLapMED: classifier_form,
    GraphPropagation: graph_form,
    SeqGraphMED: mixture_form,
    StreamPipeline: pipeline_form,
    PrequentialSearch: search_form,
}


def is_passing(step: Any) -> bool:
    """Whether a step of a pipeline is one that changes nothing."""
    return step is None or (isinstance(step, str) and step == "passthrough")


def holds_estimator(value: Any) -> bool:
    """Whether a value is an estimator, or a container that holds one."""
    if isinstance(value, dict):
        return holds_estimator([*value.keys(), *value.values()])
    if isinstance(value, list | tuple):
        return any(map(holds_estimator, value))
    return type(value) in ESTIMATORS


def is_single(value: Any) -> bool:
    """Whether a value is None, a number, a string or a boolean."""
    return value is None or isinstance(value, bool | Real | str | np.generic)


# -- states ---------------------------------------------------------------------------------------


def column_rules(state: dict[str, Any]) -> Rules:
    """Yield what holds for the columns an estimator was fitted on."""
    width, names = state.get("n_features_in_"), state.get("feature_names_in_")
    yield "at least one column", width is None or width >= 1
    yield "a name for every column", names is None or names.shape == (width,)
    yield "names that are text", names is None or names.dtype.kind == "O"


def classifier_state(model: Any, state: dict[str, Any]) -> Rules:
    """Yield what holds for a fitted classifier."""
    yield from column_rules(state)
    fixed = state["_stream"].fixed
    yield "the parameters that may not change", set(fixed) == set(model._fixed_parameters)
    began = type(model)(**{**model.get_params(deep=False), **fixed})
    check(began, {})
    yield from STREAM_RULES[type(model)](began, state)


STREAM_RULES: dict[type, Callable[[Any, dict[str, Any]], Rules]] = {
    SeqMED: stream_rules,
    SeqLapMED: stream_rules,
    GraphPropagation: graph_stream_rules,
    SeqGraphMED: mixture_stream_rules,
}


def scaler_state(scaler: Any, state: dict[str, Any]) -> Rules:
    """Yield what holds for a fitted scaler."""
    yield from column_rules(state)
    measured = {name: value for name, value in state.items() if name not in COLUMNS}
    known = {name: value for name, value in measured.items() if value is not None}
    for name, value in known.items():
        single = name == "n_samples_seen_" and np.ndim(value) == 0
        yield f"{name} for every column", single or value.shape == (state["n_features_in_"],)
        yield f"{name} in numbers", np.asarray(value).dtype.kind in "iuf"
    needed = set(measured)
    if isinstance(scaler, StandardScaler):  # what it does not use it does not measure
        needed = {"mean_"} if scaler.with_mean else set()
        needed |= {"mean_", "var_", "scale_"} if scaler.with_std else set()
    yield "all that it scales by", needed <= set(known)


def pipeline_state(pipeline: StreamPipeline, state: dict[str, Any]) -> Rules:
    """Yield what holds for a fitted pipeline."""
    *scalers, final = (step for _, step in pipeline.steps if not is_passing(step))
    yield "scalers that are fitted", all(hasattr(each, "n_features_in_") for each in scalers)
    yield "a classifier that is fitted", hasattr(final, "classes_")
    if state["_watch"] is not None:
        yield from watch_rules(state["_watch"][1])
    check_shapes((state["drift_"],), {})


def watch_rules(watch: Watch) -> Rules:
    """Yield what holds for a watch on columns."""
    check_shapes(watch, {"columns": watch.away.size})
    yield "a name for every column", watch.names is None or len(watch.names) == watch.away.size
    yield "counts >= 0", (watch.first.count >= 0).all()
    if watch.pending is not None:
        yield "few rows that wait", watch.pending.shape[0] < ENOUGH_ROWS
        yield "rows of numbers", watch.pending.dtype.kind in "biuf"


def search_state(search: PrequentialSearch, state: dict[str, Any]) -> Rules:
    """Yield what holds for a search that has begun."""
    candidates, record, begun = state["candidates_"], state["record_"], state["_begun"]
    kind, grid = begun.get("estimator"), begun.get("param_grid")
    yield from column_rules(state)
    yield "a class and a grid", kind is type(search.estimator) and type(grid) is list
    yield "a combination for each candidate", len(grid) == len(candidates)
    yield "combinations by name", all(type(each) is dict for each in grid)
    yield "candidates of one class", all(type(each) is kind for each in candidates)
    yield "candidates that have begun", all(hasattr(each, "classes_") for each in candidates)
    check_shapes(record, {"c": len(candidates)})
    yield "a record of each candidate", len(record.dropped) == len(candidates)
    yield "a candidate in the race", record.racing.size > 0
    leaders = (why.leader for why in record.dropped if why is not None)
    yield "leaders among the candidates", all(0 <= each < len(candidates) for each in leaders)
    counts = (record.right, record.alone, record.squares, record.right_in_all, record.total_in_all)
    yield "counts >= 0", all((each >= 0).all() for each in counts) and 0 <= record.total < np.inf
    yield "a number of batches >= 0", state["n_batches_"] >= 0
    first, *others = (candidates[place] for place in record.racing)
    yield (
        "candidates that agree on the classes",
        all(np.array_equal(first.classes_, each.classes_) for each in others),
    )


STATES: dict[type, Callable[[Any, dict[str, Any]], Rules]] = {
    SeqMED: classifier_state,
    SeqLapMED: classifier_state,
    GraphPropagation: classifier_state,
    SeqGraphMED: classifier_state,
    StreamPipeline: pipeline_state,
    PrequentialSearch: search_state,
    **dict.fromkeys(SCALERS, scaler_state),
}
