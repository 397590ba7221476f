"""Load a model together with its preprocessing."""

from __future__ import annotations

from typing import Any

from seqmed.model_file import AnyPath, load_with_extra, refusals
from seqmed.pipelines.stream_pipeline import StreamPipeline


def load(path: AnyPath) -> Any:
    """Return the model in a file; it predicts and learns exactly as the saved model did.

    Nothing in the file is executed, and every part is checked before it is used.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    model : estimator
        The saved model. A model made by `seqmed learn` with scaling, text or ignored columns is
        returned as a StreamPipeline with the steps "columns" and "model". Pass it data frames,
        dictionaries of columns, or arrays of the columns in `feature_names_in_`. This pipeline
        predicts as the command does. It cannot be saved: continue training with `seqmed learn`.

    Raises
    ------
    ModelFileError
        If the file is not a model file, was altered, or has another format version.
    OSError
        If the file cannot be read.
    """
    model, extra = load_with_extra(path)
    stored = None if extra is None else extra.get("schema")
    if not isinstance(stored, dict) or not {"columns", "features", "ignored"} <= set(stored):
        return model

    from seqmed.streams.features import ColumnEncoder
    from seqmed.streams.schema import Schema

    with refusals(path):
        schema = Schema.from_dict(stored)
    if not (schema.columns.scale or schema.columns.text is not None or schema.ignored):
        return model
    steps = [("columns", ColumnEncoder(schema)), ("model", model)]
    pipeline = StreamPipeline(steps, drift_limit=None)
    pipeline.__dict__.update(_monitor=None, drift_=None)  # as after a first batch
    return pipeline
