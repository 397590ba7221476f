"""Input files and pipes: their order, formats and bytes."""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

from seqmed.streams.errors import StreamError, listed, notice

FORMATS = ("csv", "tsv", "jsonl", "parquet", "feather", "npz")
TEXT_FORMATS = ("csv", "tsv", "jsonl")
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".ipc": "feather",
    ".npz": "npz",
}
STANDARD_INPUT = "-"
HIDDEN = (".", "_")


class Input(NamedTuple):
    """A file or pipe to read.

    Parameters
    ----------
    name : as the user knows it, for messages.
    path : absolute and without links, so that a file is the same however it is named; None for
        standard input.
    kind : the format; None for a pipe, to be told by its first byte.
    compressed : whether it is a text compressed by gzip.
    resumable : whether it can be read again from any place: a file, not a pipe.
    """

    name: str
    path: Path | None
    kind: str | None
    compressed: bool
    resumable: bool

    @property
    def key(self) -> str:
        """The path under which positions know the file."""
        return STANDARD_INPUT if self.path is None else str(self.path)


def find_inputs(paths: Sequence[str | os.PathLike[str]], kind: str | None) -> list[Input]:
    """Return the inputs that paths stand for, folders replaced by their files in name order."""
    if kind is not None and kind not in FORMATS:
        raise StreamError(f"format={kind!r} is not known: expected one of {', '.join(FORMATS)}.")
    if not paths:
        raise StreamError("no input is given: name files, a folder, or - for standard input.")
    inputs: list[Input] = []
    for path in paths:
        with accessing(path):
            if os.fspath(path) == STANDARD_INPUT:
                inputs.append(Input("standard input", None, kind, False, False))
            elif Path(path).is_dir():
                inputs.extend(files_in(Path(path), kind))
            else:
                inputs.append(as_input(Path(path), kind))
    seen: set[str] = set()
    for each in inputs:
        if each.key in seen:
            raise StreamError(
                f"{each.name} is given twice: name it once, and read it again later if it is to "
                "count twice."
            )
        seen.add(each.key)
    return inputs


@contextmanager
def accessing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what the system says of a file into a `StreamError`."""
    try:
        yield
    except OSError as error:
        raise StreamError(
            f"{path} cannot be opened ({error.strerror or error}): check the path and its "
            "permissions."
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
                "formats also with .gz): rename it, or name its format with --format."
            )
    return Input(shown_path(path), path.resolve(), kind, compressed, resumable)


def shown_path(path: str | os.PathLike[str]) -> str:
    r"""Return a path as text; bytes that are no UTF-8 are written as \xe9."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def files_in(folder: Path, kind: str | None) -> list[Input]:
    """Return the files of a folder in the order of their names, hidden ones left out."""
    inputs, others = [], []
    for path in sorted(folder.iterdir(), key=lambda each: each.name):
        if path.name.startswith(HIDDEN):
            continue
        if is_readable(path, kind):
            inputs.append(as_input(path, kind))
        else:
            others.append(path.name)
    if not inputs:
        raise StreamError(
            f"{folder} holds no file that can be read, expected {', '.join(SUFFIXES)}: check the "
            "path, or name the format of its files with --format."
        )
    if others:
        notice(
            f"{folder}: left out {listed(others)}: neither folders in it nor files of other "
            "formats are read."
        )
    return inputs


def is_readable(path: Path, kind: str | None) -> bool:
    """Whether an entry of a folder is a file of a known or given format, and not hidden."""
    known = path.name.lower().removesuffix(".gz").endswith(tuple(SUFFIXES))
    return path.is_file() and not path.name.startswith(HIDDEN) and (kind is not None or known)


class Bytes(NamedTuple):
    """The open bytes of a text.

    Parameters
    ----------
    read : returns some bytes, at most as many as it is asked for, none at the end. From a pipe
        comes what there is, so that rows are not held back until a block is full.
    seek : goes to a place.
    fraction : returns how much of the file has been read, 0 to 1.
    """

    read: Callable[[int], bytes]
    seek: Callable[[int], object]
    fraction: Callable[[], float]


@contextmanager
def opened(source: Input) -> Iterator[Bytes]:
    """Open a text, uncompressed if need be."""
    if source.path is None:
        pipe = cast(io.BufferedReader, sys.stdin.buffer)
        yield Bytes(pipe.read1, pipe.seek, lambda: 0.0)
        return
    with accessing(source.name):
        handle = io.BufferedReader(io.FileIO(source.path))
    with handle:
        if not source.resumable:
            yield Bytes(handle.read1, handle.seek, lambda: 0.0)
            return
        size = max(os.fstat(handle.fileno()).st_size, 1)
        with gzip.GzipFile(fileobj=handle) if source.compressed else handle as text:
            yield Bytes(text.read, text.seek, lambda: min(handle.tell() / size, 1.0))
