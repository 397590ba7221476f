"""Pipelines from raw tables to predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.pipelines.stream_pipeline import StreamPipeline
from seqmed.tables.encoder import TableEncoder


def make_stream_pipeline(
    estimator: Any = None,
    *,
    kinds: Mapping[str, str] | None = None,
    features: Sequence[str] | None = None,
    label: str | None = None,
    scale: bool = True,
    missing_values: Sequence[str] = (),
    random_state: int | np.random.RandomState | None = None,
) -> StreamPipeline:
    """Return a pipeline of a `TableEncoder` and a stream classifier.

    `partial_fit`, `predict`, `predict_proba`, `score`, `retract` and `query` take raw tables: data
    frames of pandas or polars, tables of pyarrow, lists of dictionaries, dictionaries of columns,
    and arrays of numbers. `seqmed learn` makes the same pipeline.

    Parameters
    ----------
    estimator : estimator with `partial_fit`, default=None
        The classifier. None is `SeqGraphMED` with a `SeqMED` of ``kernel="auto"``: a linear margin
        for tables with text, and an RBF kernel for other tables.
    kinds, features, label, scale, missing_values
        See `TableEncoder`.
    random_state : int, RandomState or None, default=None
        Seed of the default classifier.

    Returns
    -------
    pipeline : StreamPipeline
        The steps are "table" and "model".

    Examples
    --------
    >>> from seqmed import make_stream_pipeline
    >>> rows = [{"body": "win a free prize now"}, {"body": "see you at lunch"}] * 20
    >>> labels = ["spam", "ham"] * 2 + [None] * 36
    >>> pipeline = make_stream_pipeline(kinds={"body": "text"}, random_state=0)
    >>> pipeline.partial_fit(rows, labels).predict([{"body": "free prize"}]).tolist()
    ['spam']
    """
    if estimator is None:
        margin = SeqMED(kernel="auto", random_state=random_state)
        estimator = SeqGraphMED(margin, random_state=random_state)
    encoder = TableEncoder(
        kinds, features=features, label=label, scale=scale, missing_values=missing_values
    )
    return StreamPipeline([("table", encoder), ("model", estimator)], drift_limit=None)
