"""Tables as output: CSV, TSV, JSON lines, Parquet, as they come, and whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqmed.cli.errors import CommandError, naming
from seqmed.cli.options import STANDARD_OUTPUT
from seqmed.cli.overwriting import refuse_existing, refuse_shared
from seqmed.model_file.files import is_pipe_or_device, write_output
from seqmed.streams import Batch
from seqmed.streams.cells import plain

Kind = str
TEXT, INTEGER, BOOLEAN, NUMBER = "text", "integer", "boolean", "number"
Header = Mapping[str, Kind]
# Values of some rows, column by column in the order of the header.
Chunk = Sequence[Sequence[Any]]

FILE, ROW = "file", "row"
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def located(batch: Batch, names: Sequence[str]) -> list[list[Any]]:
    """Return where the rows of a batch come from, and as texts the columns kept of them."""
    files = [names[place] for place in batch.file.tolist()]
    return [files, batch.row.tolist(), *([*map(plain, each)] for each in batch.kept.values())]


def header(keep: Sequence[str], more: Header) -> dict[str, Kind]:
    """Return the columns of an output: where rows come from, those kept, and more."""
    own = {FILE: TEXT, ROW: INTEGER}
    for name in keep:
        if name in own or name in more:
            raise CommandError(
                f"--keep got {name!r}, which the output has a column of its own for."
            )
    return {**own, **dict.fromkeys(keep, TEXT), **more}


def checked_kind(
    path: Path,
    kind: str | None,
    model: Path,
    data: Sequence[Path],
    file_format: str | None,
    *,
    force: bool,
) -> str:
    """Return the format of an output; refuse one that would overwrite something."""
    refuse_shared({"--output": path}, model, data, file_format)
    refuse_existing(path, force=force)
    kind = kind or kind_of(path)
    if kind == "parquet" and path == STANDARD_OUTPUT and sys.stdout.isatty():
        raise CommandError("Parquet is not for a terminal to show: name a file with -o.")
    return kind


def write(path: Path, kind: str, columns: Header, chunks: Iterable[Chunk]) -> None:
    """Write a table to a file, which then is there as a whole or not at all, or to the output."""
    pieces = WRITERS[kind](columns, chunks)
    if path == STANDARD_OUTPUT:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        return
    with naming(path):
        write_output(path, pieces)


def kind_of(path: Path) -> str:
    """Return the format that the name of a file stands for; csv for pipes and devices."""
    if path == STANDARD_OUTPUT or (not path.suffix and is_pipe_or_device(path)):
        return "csv"
    if path.suffix.lower() not in SUFFIXES:
        raise CommandError(
            f"{path} ends in {path.suffix!r}, expected one of {', '.join(SUFFIXES)}: rename it, or "
            "name the format with --to."
        )
    return SUFFIXES[path.suffix.lower()]


def delimited(delimiter: str) -> Callable[[Header, Iterable[Chunk]], Iterator[bytes]]:
    """Return a writer of lines with a delimiter."""

    def pieces(columns: Header, chunks: Iterable[Chunk]) -> Iterator[bytes]:
        head = lines([columns])  # goes with the first rows: a refusal leaves nothing behind
        for chunk in chunks:
            yield head + lines(zip(*chunk, strict=True))
            head = b""
        yield head

    def lines(rows: Iterable[Iterable[Any]]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
        return text.getvalue().encode()

    return pieces


def json_lines(columns: Header, chunks: Iterable[Chunk]) -> Iterator[bytes]:
    """Yield an object on every line."""
    for chunk in chunks:
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*chunk, strict=True))
        yield "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def parquet(columns: Header, chunks: Iterable[Chunk]) -> Iterator[bytes]:
    """Yield the bytes of a Parquet file."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    types = {TEXT: pa.string(), INTEGER: pa.int64(), BOOLEAN: pa.bool_(), NUMBER: pa.float64()}
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    sink = Sink()
    with ParquetWriter(sink, schema) as writer:
        for chunk in chunks:
            arrays = [pa.array(values, of.type) for values, of in zip(chunk, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            yield sink.drain()
    yield sink.drain()


class Sink(io.RawIOBase):
    """A file whose bytes are taken away as they come."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._bytes += content
        return len(content)

    def drain(self) -> bytes:
        """Return what has been written since the last time."""
        content, self._bytes = bytes(self._bytes), bytearray()
        return content


WRITERS: dict[str, Callable[[Header, Iterable[Chunk]], Iterator[bytes]]] = {
    "csv": delimited(","),
    "tsv": delimited("\t"),
    "jsonl": json_lines,
    "parquet": parquet,
}
