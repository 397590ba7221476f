"""Rows for a model that is there: read as it has learned them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.cli.errors import CommandError
from seqmed.cli.terminal import counted, say
from seqmed.streams import Batch, Schema, Skipped, Stream


def without_labels(schema: Schema) -> Schema:
    """Return a schema in which the column of labels is passed over, whatever is in it."""
    label = schema.columns.label
    columns = replace(schema.columns, label=None, label_type=None)
    ignored = schema.ignored if label is None else (*schema.ignored, label)
    return replace(schema, columns=columns, ignored=ignored, label_type=None)


def labeled(batch: Batch) -> NDArray[np.bool_]:
    """Return a mask (n,) of the rows of a batch that have a label."""
    if batch.y is None:
        return np.zeros(batch.row.size, dtype=bool)
    return np.array([label is not None for label in batch.y], dtype=bool)


def labeled_stream(data: Sequence[Path], schema: Schema, **options: Any) -> Stream:
    """Return a stream in which every file must have the column of labels."""
    if schema.columns.label is None:
        raise CommandError("the model was made without a column of labels: make one with --label.")
    return Stream(data, schema=schema, final=True, **options)


@contextmanager
def placing(batch: Batch, names: Sequence[str]) -> Iterator[None]:
    """Say which rows a model refuses."""
    try:
        yield
    except ValueError as error:
        first, last = (f"{names[batch.file[at]]}, row {batch.row[at]}" for at in (0, -1))
        raise CommandError(
            f"the batch from {first} to {last} cannot be learned: {error}"
        ) from error


def tell_skipped(skipped: Skipped) -> None:
    """Say how many bad rows were passed over, why, and where the first of each kind is."""
    for reason, count in skipped.counts.items():
        rows = counted(count, "bad row")
        say(f"skipped {rows}: {reason}; for example {skipped.examples[reason][0]}.")
