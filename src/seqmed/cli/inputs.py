"""Rows for a model that is there: read as it has learned them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seqmed.cli.errors import CommandError
from seqmed.cli.terminal import counted, say
from seqmed.streams import Schema, Skipped, Stream


def without_labels(schema: Schema) -> Schema:
    """Return a schema in which the column of labels is passed over, whatever is in it."""
    label = schema.columns.label
    columns = replace(schema.columns, label=None, label_type=None)
    ignored = schema.ignored if label is None else (*schema.ignored, label)
    return replace(schema, columns=columns, ignored=ignored, label_type=None)


def labeled_stream(data: Sequence[Path], schema: Schema, **options: Any) -> Stream:
    """Return a stream in which every file must have the column of labels."""
    if schema.columns.label is None:
        raise CommandError("the model was made without a column of labels: make one with --label.")
    return Stream(data, schema=schema, **options)


def tell_skipped(skipped: Skipped) -> None:
    """Say how many bad rows were passed over, why, and where the first of each kind is."""
    for reason, count in skipped.counts.items():
        rows = counted(count, "bad row")
        say(f"skipped {rows}: {reason}; for example {skipped.examples[reason][0]}.")
