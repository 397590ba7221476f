"""Rows that are learned or predicted together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.streams.columns import stacked
from seqmed.streams.labels import LabelColumn, Labels
from seqmed.streams.positions import Position


class StreamBatch(NamedTuple):
    """Rows to be learned or predicted together.

    Parameters
    ----------
    table : pyarrow table of raw columns, (n rows), without the label column. Cells of CSV are
        texts, null if empty; those of other formats have their types.
    y : (n,) object array of labels of one type, None for unlabeled rows; None without a label
        column.
    file, row : (n,) the origin of each row: an index in `Stream.names`, and the number of the row
        in the file, from 1, without the header.
    kept : the columns of ``keep`` by name, n values each.
    position : position after the batch; save it with the model to resume.
    skipped : bad rows skipped so far.
    """

    table: Any
    y: NDArray[np.object_] | None
    file: NDArray[np.intp]
    row: NDArray[np.int64]
    kept: dict[str, list[Any]]
    position: Position
    skipped: int

    @property
    def labeled(self) -> NDArray[np.bool_]:
        """A mask (n,) of the rows that have a label."""
        if self.y is None:
            return np.zeros(self.row.size, dtype=bool)
        return np.array([label is not None for label in self.y], dtype=bool)


class Part(NamedTuple):
    """Good rows of one piece for the next batch.

    Parameters
    ----------
    table : pyarrow table of raw columns, (n rows).
    kept : the columns to return unchanged by name, n values each.
    labels : labels of the rows; None without a label column.
    file : index of the input.
    rows : (n,) numbers of the rows in the file, from 1.
    """

    table: Any
    kept: dict[str, list[Any]]
    labels: Labels | None
    file: int
    rows: NDArray[np.int64]


def joined(
    parts: Sequence[Part], label: LabelColumn | None, position: Position, skipped: int
) -> StreamBatch:
    """Return parts as one batch; ``position`` and ``skipped`` are those after it."""
    y = None
    if label is not None:
        y = label.values([part.labels for part in parts if part.labels is not None])
    return StreamBatch(
        stacked([part.table for part in parts]),
        y,
        np.concatenate([np.full(part.rows.size, part.file) for part in parts]),
        np.concatenate([part.rows for part in parts]),
        {name: [value for part in parts for value in part.kept[name]] for name in parts[0].kept},
        position,
        skipped,
    )
