"""Streams of batches from files and pipes.

CSV, TSV, JSON lines, Parquet, Feather and .npz files give the same batches: checked rows, labels of
one type, and a position from which to resume. See docs/stream-input.md.
"""

from seqmed.streams.batches import Stream, StreamBatch
from seqmed.streams.errors import BadRow, Fault, Skipped, StreamError, StreamWarning
from seqmed.streams.positions import FilePosition, Position
from seqmed.streams.schema import Columns, Schema
from seqmed.streams.values import likely_typo

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
