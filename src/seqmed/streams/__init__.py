"""Streams of batches from files and pipes.

CSV, TSV, JSON lines, Parquet, Feather and .npz become the same batches: rows that are checked,
labels of one type, and a position from which reading goes on another time. See
docs/stream-input.md.
"""

from seqmed.streams.batches import Stream, StreamBatch
from seqmed.streams.columns import Columns
from seqmed.streams.errors import BadRow, Fault, Skipped, StreamError, StreamWarning
from seqmed.streams.label_types import likely_typo
from seqmed.streams.positions import FilePosition, Position
from seqmed.streams.schema import Schema

__all__ = [
    "BadRow",
    "Columns",
    "Fault",
    "FilePosition",
    "Position",
    "Schema",
    "Skipped",
    "Stream",
    "StreamBatch",
    "StreamError",
    "StreamWarning",
    "likely_typo",
]
