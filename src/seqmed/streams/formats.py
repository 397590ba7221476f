"""Open a file or pipe of any format as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from seqmed.streams.columnar import open_feather, open_parquet
from seqmed.streams.delimited import Delimited
from seqmed.streams.errors import StreamError
from seqmed.streams.files import Input, opened
from seqmed.streams.jsonlines import JsonLines
from seqmed.streams.numpy_archive import open_archive
from seqmed.streams.tables import Table
from seqmed.streams.text import Text

BINARY: dict[str, Callable[[Path, str], AbstractContextManager[Table]]] = {
    "parquet": open_parquet,
    "feather": open_feather,
    "npz": open_archive,
}
DELIMITERS = {"csv": ",", "tsv": "\t"}
# First bytes of formats that cannot be read from a pipe.
SIGNATURES = {
    b"PAR1": "a Parquet file",
    b"ARROW1": "a Feather file",
    b"PK": "a numpy archive",
    b"\x1f\x8b": "compressed",
}


@contextmanager
def open_table(source: Input, *, final: bool) -> Iterator[Table]:
    """Open a file or pipe.

    Parameters
    ----------
    source : the file or pipe.
    final : whether a last line without a line end is complete. The last line of a pipe is always
        complete.
    """
    if source.kind in BINARY:
        if source.path is None or not source.resumable:
            raise StreamError(
                f"{source.name} is a pipe and cannot be read as {source.kind}, expected csv, tsv "
                "or jsonl: save it to a file first."
            )
        with BINARY[source.kind](source.path, source.name) as table:
            yield table
        return
    with opened(source) as handle:
        text = Text(handle, source.name, grows=source.resumable and not final)
        kind = source.kind or pipe_format(text)
        if kind == "jsonl":
            yield JsonLines(text)
        else:
            yield Delimited(text, DELIMITERS[kind])


def pipe_format(text: Text) -> str:
    """Return the format of a pipe, inferred from its first character."""
    while not (start := text.buffer.lstrip()) and not text.at_end:
        text.fill()
    for signature, kind in SIGNATURES.items():
        if start.startswith(signature):
            raise StreamError(
                f"{text.name} is {kind}, expected CSV or JSON lines from a pipe: save it to a "
                "file, or convert it."
            )
    return "jsonl" if start.startswith((b"{", b"[")) else "csv"
