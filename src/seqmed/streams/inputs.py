"""Input files and pipes: their order and formats, and their bytes as UTF-8."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from seqmed.numeric.words import in_words
from seqmed.streams.faults import StreamError, notice, refusing
from seqmed.tables.messages import listed

# Bytes read at once, of a text or of the values in a binary format; largest number of rows.
BLOCK, MOST = 2**20, 2**13
# Largest number of columns, and largest size of a row and of a cell in bytes.
COLUMNS, ROW_BYTES, CELL_BYTES = 50_000, 2**24, 2**20
# Largest size of the rows by which columns are chosen, and of those of a batch, in bytes.
FIRST_BYTES, BATCH_BYTES = 2**27, 2**27
# Bytes that a column of a few rows takes besides its cells, and that a bad row or cell takes.
COLUMN_BYTES, FAULT_BYTES = 2**10, 2**9

PARQUET, ARROW = "parquet", "feather"
FORMATS = ("csv", "tsv", "jsonl", PARQUET, ARROW)
TEXT_FORMATS = ("csv", "tsv", "jsonl")
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": PARQUET,
    ".pq": PARQUET,
    ".feather": ARROW,
    ".arrow": ARROW,
    ".ipc": ARROW,
}
STANDARD_INPUT = "-"
HIDDEN = (".", "_")
# Files that are tables only if they are named: in a folder they may be notes.
ONLY_NAMED = (".txt",)
UTF8 = "utf-8"
# Byte order marks besides that of UTF-8, longest first.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Number of bytes that show the format or the encoding of an input.
START = 6


class Input(NamedTuple):
    """A file or pipe to read."""

    name: str  # in messages
    path: Path | None  # absolute and without links; None for standard input
    kind: str | None  # format; None for a pipe whose first bytes tell it
    compressed: bool  # a text compressed by gzip
    resumable: bool  # a file, which can be read again from any position

    @property
    def key(self) -> str:
        """The path that identifies the file in a `Position`."""
        return STANDARD_INPUT if self.path is None else str(self.path)


def find_inputs(paths: Sequence[str | os.PathLike[str] | Input], kind: str | None) -> list[Input]:
    """Return the inputs of some paths; a folder means its files, sorted by name."""
    if kind is not None and kind not in FORMATS:
        raise StreamError(f"format={kind!r} is not known: expected one of {', '.join(FORMATS)}.")
    if not paths:
        raise StreamError("no input is given: name files, a folder, or - for standard input.")
    inputs: list[Input] = []
    for path in paths:
        if isinstance(path, Input):
            inputs.append(path)
            continue
        with accessing(path):
            if os.fspath(path) == STANDARD_INPUT:
                inputs.append(Input("standard input", None, kind, False, False))
            elif Path(path).is_dir():
                inputs.extend(files_in(Path(path), kind))
            else:
                inputs.append(as_input(Path(path), kind))
    counts = Counter(each.key for each in inputs)
    for each in inputs[::-1]:
        if counts[each.key] > 1:
            raise StreamError(
                f"{each.name} is given twice, expected each file once: leave one out. To learn it "
                + in_words("twice, run the command again with --again.", "twice, pass again=True.")
            )
    return inputs


@contextmanager
def accessing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError into a `StreamError`."""
    try:
        yield
    except OSError as error:
        said = error.strerror or error
        raise StreamError(
            f"{path} cannot be opened ({said}): check the path and its permissions."
        ) from error


def as_input(path: Path, kind: str | None) -> Input:
    """Return a single file or named pipe as an input."""
    if not path.exists():
        raise StreamError(f"{path} does not exist: check the path.")
    resumable = path.is_file()
    suffix = path.suffix.lower()
    compressed = suffix == ".gz"
    if compressed:
        suffix = path.with_suffix("").suffix.lower()
    if kind is None and resumable:
        kind = SUFFIXES.get(suffix)
        if kind is None or (compressed and kind not in TEXT_FORMATS):
            raise StreamError(
                f"{path} ends in {path.suffix!r}, expected one of {', '.join(SUFFIXES)} (the text "
                "formats also with .gz): rename it, or set the format with "
                + in_words("--format.", "file_format=.")
            )
    return Input(shown_path(path), path.resolve(), kind, compressed, resumable)


def shown_path(path: str | os.PathLike[str]) -> str:
    r"""Return a path as text; bytes that are not UTF-8 are written as \xe9."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def files_in(folder: Path, kind: str | None) -> list[Input]:
    """Return the files of a folder, sorted by name, without hidden ones."""
    inputs, others = [], []
    for path in sorted(folder.iterdir(), key=lambda each: each.name):
        if path.name.startswith(HIDDEN):
            continue
        known = kind is not None or path.name.lower().removesuffix(".gz").endswith(
            tuple(SUFFIXES.keys() - ONLY_NAMED)
        )
        if known and path.is_file():
            inputs.append(as_input(path, kind))
        else:
            others.append(path.name)
    if not inputs:
        raise StreamError(
            f"{folder} holds no file that can be read, expected {', '.join(SUFFIXES)}: check the "
            "path, or set the format of its files with " + in_words("--format.", "file_format=.")
        )
    if others:
        notice(
            f"{folder}: not read: {listed(others)}. Subfolders and files of other formats are "
            "ignored."
        )
    return inputs


# -- bytes -----------------------------------------------------------------------------------------


class Bytes(NamedTuple):
    """An open file or pipe, and its first bytes, which ``read`` returns again.

    ``read`` returns about the given number of bytes, none at the end; those available in a pipe.
    ``fraction`` returns the fraction of the file that has been read, 0 to 1.
    """

    read: Callable[[int], bytes]
    fraction: Callable[[], float]
    start: bytes


@contextmanager
def opened(source: Input) -> Iterator[Bytes]:
    """Open a file or pipe, and decompress it if necessary."""
    if source.path is None:
        standard: Any = sys.stdin.buffer
        yield with_start(standard.read1, lambda: 0.0)
        return
    with accessing(source.name):
        handle = io.BufferedReader(io.FileIO(source.path))
    with handle:
        if not source.resumable:
            yield with_start(handle.read1, lambda: 0.0)
            return
        size = max(os.fstat(handle.fileno()).st_size, 1)
        content: Any = gzip.GzipFile(fileobj=handle) if source.compressed else handle
        with content:
            with refusing(source.name, "text"):
                found = with_start(content.read, lambda: min(handle.tell() / size, 1.0))
            yield found


def with_start(read: Callable[[int], bytes], fraction: Callable[[], float]) -> Bytes:
    """Return an open file or pipe with its first bytes."""
    start = b""
    while len(start) < START and (block := read(START - len(start))):
        start += block
    again = io.BytesIO(start)
    return Bytes(lambda size: again.read(size) or read(size), fraction, start)


def as_utf8(content: Bytes, chosen: str | None, source: str) -> tuple[Bytes, str]:
    """Return a text as UTF-8, and its encoding: the chosen one, if it has no byte order mark."""
    encoding = encoding_of(content.start, chosen, source)
    if encoding == UTF8:
        return content, encoding
    decoder = codecs.getincrementaldecoder(encoding)()

    def read(size: int) -> bytes:
        while True:
            block = content.read(size)
            try:
                text = decoder.decode(block, final=not block).encode()
            except UnicodeError as error:
                raise StreamError(
                    f"{source} is not in {encoding} ({error.__class__.__name__}): name its "
                    f"encoding with {in_words('--encoding', 'Dialect(encoding=)')}, for example "
                    "cp1252 or utf-8."
                ) from None
            if text or not block:
                return text

    return content._replace(read=read), encoding


def known_encoding(name: str) -> str:
    """Return the usual name of an encoding; refuse one that Python does not know."""
    try:
        "a".encode(name)  # refuses codecs that are not of text, such as zip
        found = codecs.lookup(name).name
    except (LookupError, ValueError, TypeError):
        raise StreamError(
            f"encoding={name!r} is not known, expected for example utf-8, cp1252, latin-1 or "
            "utf-16: correct the name."
        ) from None
    return UTF8 if found == "utf-8-sig" else found


def encoding_of(start: bytes, chosen: str | None, source: str) -> str:
    """Return the encoding of a text, by its byte order mark, the user's choice or the default."""
    if start.startswith(codecs.BOM_UTF8):
        return UTF8
    for mark, name in MARKS.items():
        if start.startswith(mark):
            return name
    if chosen is None and len(start) >= 2 and start[:2].count(0) == 1:
        name = "utf-16-le" if start[1] == 0 else "utf-16-be"
        raise StreamError(
            f"{source} looks like UTF-16 without a byte order mark, expected UTF-8: name its "
            "encoding with " + in_words(f"--encoding {name}.", f"Dialect(encoding={name!r}).")
        )
    return UTF8 if chosen is None else known_encoding(chosen)


def check_limit(what: str, got: int, limit: int, source: str) -> None:
    """Refuse an input that has more columns, or larger rows, than a limit allows."""
    if got > limit:
        raise StreamError(
            f"{source} has {what.format(got)}, expected at most {limit}: check the file and its "
            "format."
        )
