"""Streams of batches from files and pipes.

CSV, JSON lines, Parquet, Arrow and .npz files give the same batches: raw columns, labels of one
type, and a position from which to resume. See docs/stream-input.md.
"""

from seqmed.streams.batch import StreamBatch
from seqmed.streams.cell_checks import CellCheck, EncoderCheck
from seqmed.streams.dialects import Dialect
from seqmed.streams.errors import BadRow, Fault, Skipped, StreamError, StreamWarning
from seqmed.streams.labels import LabelColumn
from seqmed.streams.limits import Limits
from seqmed.streams.positions import FilePosition, Position
from seqmed.streams.spelling import likely_typo
from seqmed.streams.stream import Stream

__all__ = [
    "BadRow",
    "CellCheck",
    "Dialect",
    "EncoderCheck",
    "Fault",
    "FilePosition",
    "LabelColumn",
    "Limits",
    "Position",
    "Skipped",
    "Stream",
    "StreamBatch",
    "StreamError",
    "StreamWarning",
    "likely_typo",
]
