"""Streams of batches from files and pipes.

CSV, JSON lines, Parquet and Arrow files give the same batches: raw columns, labels of one type, and
a position from which to resume. See docs/stream-input.md.
"""

from seqmed.streams.batches import StreamBatch
from seqmed.streams.columns import AllColumnsCheck, EncoderCheck
from seqmed.streams.dialects import Dialect
from seqmed.streams.faults import BadRow, Fault, Skipped, StreamError, StreamWarning
from seqmed.streams.label_column import LabelColumn
from seqmed.streams.positions import FilePosition, Position
from seqmed.streams.stream import Stream

__all__ = [
    "AllColumnsCheck",
    "BadRow",
    "Dialect",
    "EncoderCheck",
    "Fault",
    "FilePosition",
    "LabelColumn",
    "Position",
    "Skipped",
    "Stream",
    "StreamBatch",
    "StreamError",
    "StreamWarning",
]
