"""Declarations of pipelines."""

from __future__ import annotations

from typing import Any

from seqmed.model_file.declarations import Kept, Rules
from seqmed.model_file.graphs import GRAPHS
from seqmed.model_file.margins import MARGINS
from seqmed.model_file.mixtures import MIXTURES
from seqmed.model_file.transformers import TRANSFORMERS
from seqmed.selection.search import PrequentialSearch
from seqmed.tables.stream_pipeline import StreamPipeline, is_passing

CLASSIFIERS: dict[type, Kept] = {**MARGINS, **GRAPHS, **MIXTURES}


def pipeline_rules(pipeline: StreamPipeline) -> Rules:
    """Yield rules on the steps of a pipeline, which are all that it holds."""
    steps = pipeline.steps
    yield "a list of steps", isinstance(steps, list | tuple) and len(steps) > 0
    pairs = all(isinstance(step, list | tuple) and len(step) == 2 for step in steps)
    yield "steps that are pairs", pairs and all(isinstance(name, str) for name, _ in steps)
    names = ", ".join(kind.__name__ for kind in TRANSFORMERS)
    known = all(type(step) in TRANSFORMERS or is_passing(step) for _, step in steps[:-1])
    yield f"transformers among {names}", known
    final: Any = steps[-1][1]
    yield "a classifier of seqmed at its end", type(final) in (*CLASSIFIERS, PrequentialSearch)
    pipeline._check_parameters()
    transformers = [step for _, step in steps[:-1] if not is_passing(step)]
    # by attributes: scikit-learn's test asks nested steps again and again
    fitted = hasattr(final, "classes_")
    same = all(hasattr(each, "n_features_in_") == fitted for each in transformers)
    yield "steps that are all fitted, or none", same
    last: Any = transformers[-1] if transformers else None
    if hasattr(last, "encoding_") and hasattr(final, "n_features_in_"):
        width = final.n_features_in_
        yield "a classifier of the encoded features", last.encoding_.n_features == width


PIPELINES: dict[type, Kept] = {
    StreamPipeline: Kept(
        attributes={},
        rules=lambda pipeline, state: iter(()),
        parameter_rules=pipeline_rules,
        nesting=("steps",),
    ),
}
