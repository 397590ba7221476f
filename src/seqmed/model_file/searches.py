"""Declarations of searches."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqmed.model_file.declarations import (
    COLUMNS,
    Kept,
    Rules,
    check_records,
    column_rules,
    declare,
)
from seqmed.model_file.pipelines import CLASSIFIERS
from seqmed.selection.race import Record
from seqmed.selection.search import PrequentialSearch
from seqmed.tables.stream_pipeline import StreamPipeline

declare(
    Record, correct="c >= 0", wins="c c >= 0", squared_wins="c c >= 0", total=">= 0",
    correct_undiscounted="c >= 0", total_undiscounted="c >= 0",
)  # fmt: skip


def search_parameters(search: PrequentialSearch) -> Rules:
    """Yield rules on the parameters of a search."""
    yield "an estimator of seqmed", type(search.estimator) in (*CLASSIFIERS, StreamPipeline)
    yield "a grid of parameters", isinstance(search.param_grid, dict | list)


def search_rules(search: PrequentialSearch, state: dict[str, Any]) -> Rules:
    """Yield rules on a fitted search."""
    candidates, record, begun = state["candidates_"], state["record_"], state["_begun"]
    kind, grid = begun.get("estimator"), begun.get("param_grid")
    yield from column_rules(state)
    same = kind is type(search.estimator) and type(grid) is list
    yield "the class and the grid of the search", same
    yield "a parameter combination for each candidate", len(grid) == len(candidates)
    yield "parameter combinations as dictionaries", all(type(each) is dict for each in grid)
    yield "candidates of one class", all(type(each) is kind for each in candidates)
    yield "candidates that are fitted", all(hasattr(each, "classes_") for each in candidates)
    check_records(record, c=len(candidates))
    yield "a record of each candidate", len(record.dropped) == len(candidates)
    yield "a candidate that was not dropped", record.racing.size > 0
    leaders = (why.leader for why in record.dropped if why is not None)
    yield "leaders among the candidates", all(0 <= each < len(candidates) for each in leaders)
    yield "a number of batches >= 0", state["n_batches_"] >= 0
    first, *others = (candidates[place] for place in record.racing)
    agree = all(np.array_equal(first.classes_, each.classes_) for each in others)
    yield "candidates with the same classes", agree


SEARCHES: dict[type, Kept] = {
    PrequentialSearch: Kept(
        attributes={
            **COLUMNS, "candidates_": list, "record_": Record, "n_batches_": int, "_begun": dict,
        },
        rules=search_rules,
        parameter_rules=search_parameters,
        nesting=("estimator", "param_grid"),
        optional=("n_features_in_", "feature_names_in_"),
        make=lambda search: search._commit(
            search.candidates_, search.record_, search.n_batches_, search._begun
        ),
    ),
}  # fmt: skip
