"""Open a file or pipe of any format as a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from seqmed.streams.arrow_ipc import CONTINUES, FILE_MARK, open_arrow
from seqmed.streams.delimited import Delimited
from seqmed.streams.errors import StreamError, refusing
from seqmed.streams.files import Bytes, Input, as_utf8, opened
from seqmed.streams.jsonlines import JsonLines
from seqmed.streams.limits import Limits
from seqmed.streams.numpy_archive import open_archive
from seqmed.streams.parquet import open_parquet
from seqmed.streams.tables import ReadOptions, Table
from seqmed.streams.text import Text

ARROW = "feather"
BINARY = ("parquet", ARROW, "npz")
# Formats that are read from a place in a file, and so not from a pipe.
SEEKING: dict[str, Callable[[Path, str, Limits], AbstractContextManager[Table]]] = {
    "parquet": open_parquet,
    "npz": open_archive,
}
# First bytes of formats that cannot be read from a pipe.
SIGNATURES = {b"PAR1": "a Parquet file", b"PK": "a numpy archive", b"\x1f\x8b": "compressed"}


@contextmanager
def open_table(source: Input, options: ReadOptions) -> Iterator[Table]:
    """Open a file or pipe."""
    if source.kind in SEEKING:
        if source.path is None or not source.resumable:
            raise StreamError(
                f"{source.name} is a pipe and cannot be read as {source.kind}, expected csv, tsv, "
                "jsonl or feather: save it to a file first."
            )
        with SEEKING[source.kind](source.path, source.name, options.limits) as table:
            yield table
        return
    with opened(source, options.limits) as content:
        kind = source.kind or pipe_format(content, source.name)
        if kind == ARROW:
            size = None
            if source.path is not None and source.resumable:
                size = os.stat(source.path).st_size
            with open_arrow(content, source.name, size, options.limits) as table:
                yield table
            return
        grows = source.resumable and not options.final
        utf8, encoding = as_utf8(content, options.dialect.encoding, source.name)
        text = Text(utf8, source.name, options.limits, grows)
        if kind is not None and kind != "jsonl":
            yield Delimited(text, kind, encoding, options)
        elif kind == "jsonl" or text_format(text) == "jsonl":
            yield JsonLines(text, options)
        else:
            yield Delimited(text, "csv", encoding, options)


def pipe_format(content: Bytes, name: str) -> str | None:
    """Return the format of a pipe, inferred from its first bytes; None for a text."""
    if content.start.startswith((CONTINUES, FILE_MARK[:6])):
        return ARROW
    for signature, kind in SIGNATURES.items():
        if content.start.startswith(signature):
            raise StreamError(
                f"{name} is {kind}, expected CSV, JSON lines or an Arrow stream from a pipe: save "
                "it to a file, or convert it."
            )
    return None


def text_format(text: Text) -> str:
    """Return the format of a text from a pipe, inferred from its first character."""
    with refusing(text.name, "text"):
        while not (start := text.buffer.lstrip()) and not text.at_end:
            text.fill()
    return "jsonl" if start.startswith((b"{", b"[")) else "csv"
