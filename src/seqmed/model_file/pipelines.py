"""Declarations of pipelines, and of the statistics of their input."""

from __future__ import annotations

from typing import Any

from seqmed.model_file.annotations import field_types
from seqmed.model_file.declarations import Kept, Rules, check_records, declare
from seqmed.model_file.graphs import GRAPHS
from seqmed.model_file.margins import MARGINS
from seqmed.model_file.mixtures import MIXTURES
from seqmed.model_file.transformers import TRANSFORMERS
from seqmed.pipelines.column_statistics import ColumnStatistics
from seqmed.pipelines.drift import ENOUGH_ROWS, Comparison, DriftMonitor
from seqmed.pipelines.stream_pipeline import StreamPipeline
from seqmed.pipelines.transformers import is_passing
from seqmed.selection.search import PrequentialSearch

CLASSIFIERS: dict[type, Kept] = {**MARGINS, **GRAPHS, **MIXTURES}

STATISTICS = dict.fromkeys(field_types(ColumnStatistics), "columns nan")
declare(ColumnStatistics, **{**STATISTICS, "count": "columns >= 0"})
declare(Comparison, **dict.fromkeys(field_types(Comparison), "columns nan"))


@declare(DriftMonitor, drifted="columns", pending="rows columns nan")
def _(monitor: DriftMonitor) -> Rules:
    named = monitor.names is None or len(monitor.names) == monitor.drifted.size
    yield "a name for every column", named
    few = monitor.pending is None or monitor.pending.shape[0] < ENOUGH_ROWS
    yield "fewer pending rows than needed", few


def pipeline_parameters(pipeline: StreamPipeline) -> Rules:
    """Yield rules on the parameters of a pipeline."""
    steps = pipeline.steps
    yield "a list of steps", isinstance(steps, list | tuple) and len(steps) > 0
    pairs = all(isinstance(step, list | tuple) and len(step) == 2 for step in steps)
    yield "steps that are pairs", pairs and all(isinstance(name, str) for name, _ in steps)
    names = ", ".join(kind.__name__ for kind in TRANSFORMERS)
    known = all(type(step) in TRANSFORMERS or is_passing(step) for _, step in steps[:-1])
    yield f"transformers among {names}", known
    final = type(steps[-1][1])
    yield "a classifier of seqmed at its end", final in (*CLASSIFIERS, PrequentialSearch)
    memory = "memory=None, because its cache would execute code: set it after loading"
    yield memory, pipeline.memory is None
    pipeline._check_parameters()


def pipeline_rules(pipeline: StreamPipeline, state: dict[str, Any]) -> Rules:
    """Yield rules on a fitted pipeline."""
    *transformers, final = (step for _, step in pipeline.steps if not is_passing(step))
    fitted = all(hasattr(each, "n_features_in_") for each in transformers)
    yield "transformers that are fitted", fitted
    yield "a classifier that is fitted", hasattr(final, "classes_")
    last: Any = transformers[-1] if transformers else None
    if hasattr(last, "encoding_") and hasattr(final, "n_features_in_"):
        width = final.n_features_in_
        yield "a classifier of the encoded features", last.encoding_.n_features == width
    if state["_monitor"] is not None:
        monitor = state["_monitor"][1]
        check_records(monitor, columns=monitor.drifted.size)
    check_records(state["drift_"])


PIPELINES: dict[type, Kept] = {
    StreamPipeline: Kept(
        attributes={"_monitor": tuple[bool, DriftMonitor] | None, "drift_": Comparison | None},
        rules=pipeline_rules,
        parameter_rules=pipeline_parameters,
        nesting=("steps",),
    ),
}
