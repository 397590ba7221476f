"""Outputs: tables and plots, written completely or not at all, over no other file."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from seqmed import plotting
from seqmed.cli.options import STANDARD_OUTPUT, OutputFormat, OutputOptions
from seqmed.cli.terminal import CommandError, naming_file
from seqmed.model_file.files import is_pipe_or_device, remove_leftovers, write_output
from seqmed.streams import StreamBatch
from seqmed.streams.inputs import SUFFIXES as INPUT_SUFFIXES
from seqmed.streams.inputs import find_inputs
from seqmed.tables.cells import cell_text, safe_cell

ColumnType = Literal["text", "integer", "boolean", "number"]
Header = Mapping[str, ColumnType]
Chunk = Sequence[Sequence[Any]]
"""Columns of some rows, in the order of the header."""
# Identity of a file: its device and inode, or its path without links if it does not exist.
Identity = str | tuple[int, int]


def located(batch: StreamBatch, names: Sequence[str]) -> list[list[Any]]:
    """Return the files, row numbers and kept columns of a batch; the kept columns as text."""
    files = [names[place] for place in batch.file.tolist()]
    return [files, batch.row.tolist(), *([*map(cell_text, each)] for each in batch.kept.values())]


def output_columns(keep: Sequence[str], more: Header) -> Header:
    """Return the columns of an output: file and row number, kept columns, and more."""
    own: dict[str, ColumnType] = {"file": "text", "row": "integer"}
    for name in keep:
        if name in own or name in more:
            raise CommandError(
                f"{name!r} cannot be copied, because the output has a column of this name: leave "
                "it out of --keep and --id, or rename it."
            )
    return {**own, **dict.fromkeys(keep, "text"), **more}


def free_names(names: Sequence[str], keep: Sequence[str], more: Header) -> list[str]:
    """Return those names that are not a column of the output otherwise."""
    return [name for name in names if name not in {"file", "row", *keep, *more}]


def checked_format(
    output: OutputOptions, model: Path, data: Sequence[Path], file_format: str | None
) -> OutputFormat:
    """Return the format of an output; refuse to overwrite a file."""
    path = output.path
    refuse_shared([("--output", path)], model, data, file_format)
    refuse_existing(path, force=output.force)
    chosen = output.to or format_of_name(path)
    if chosen == "parquet" and path == STANDARD_OUTPUT and sys.stdout.isatty():
        raise CommandError("Parquet cannot be shown on a terminal: name a file with -o.")
    return chosen


def checked_folder(
    output: OutputOptions, model: Path, data: Sequence[Path], file_format: str | None
) -> tuple[OutputFormat, list[Path]]:
    """Return the format of a folder of outputs, and its file for every input.

    Files that exist are refused, unless they are to be replaced.
    """
    folder, kind = output.path, output.to or "csv"
    if folder == STANDARD_OUTPUT or (folder.exists() and not folder.is_dir()):
        raise CommandError(f"-o is {folder}, expected a folder with --cluster: name a folder.")
    targets: dict[Path, str] = {}
    for source in find_inputs(data, file_format):
        if source.path is None or not source.resumable:
            raise CommandError(
                f"{source.name} cannot be read with --cluster, expected files: leave --cluster out."
            )
        stem = source.path.with_suffix("") if source.compressed else source.path
        target = folder / f"{stem.stem}.{kind}"
        if target in targets:
            raise CommandError(
                f"{source.name} and {targets[target]} would both be written to {target}: rename "
                "one, or predict them one after the other."
            )
        targets[target] = source.name
    refuse_shared([("-o", each) for each in targets], model, data, file_format)
    for target in targets:
        if target.exists():
            refuse_existing(target, force=output.force)
    return kind, list(targets)


@contextmanager
def whole_files(folder: Path, targets: Sequence[Path]) -> Iterator[None]:
    """Make a folder; afterwards remove what killed processes have left of files in it.

    If it is empty then, it is removed too.
    """
    if not folder.is_dir():
        with naming_file(folder):
            folder.mkdir()
    try:
        yield
    finally:
        for target in targets:
            remove_leftovers(target)
        with suppress(OSError):  # it is not empty
            folder.rmdir()


def format_of_name(path: Path) -> OutputFormat:
    """Return the format of a file by its suffix; csv for pipes and devices."""
    if path == STANDARD_OUTPUT or (not path.suffix and is_pipe_or_device(path)):
        return "csv"
    if path.suffix.lower() not in SUFFIXES:
        raise CommandError(
            f"{path} ends in {path.suffix!r}, expected one of {', '.join(SUFFIXES)}: rename it, or "
            "set the format with --to."
        )
    return SUFFIXES[path.suffix.lower()]


def write_table(path: Path, kind: OutputFormat, columns: Header, chunks: Iterable[Chunk]) -> None:
    """Write a table to a file, completely or not at all, or to standard output."""
    pieces = WRITERS[kind](columns, chunks)
    if path == STANDARD_OUTPUT:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        return
    with naming_file(path):
        write_output(path, pieces)


def delimited_lines(delimiter: str, columns: Header, chunks: Iterable[Chunk]) -> Iterator[bytes]:
    """Yield lines of fields, the header with the first rows: an early error writes nothing.

    No cell is a formula; see `safe_cell`.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(map(safe_cell, columns))
    for chunk in chunks:
        safe = [
            [value and safe_cell(value) for value in values] if kind == "text" else values
            for kind, values in zip(columns.values(), chunk, strict=True)
        ]
        writer.writerows(zip(*safe, strict=True))
        yield drained(text).encode()
    yield drained(text).encode()


def json_lines(columns: Header, chunks: Iterable[Chunk]) -> Iterator[bytes]:
    """Yield an object on every line."""
    for chunk in chunks:
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*chunk, strict=True))
        yield "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def parquet(columns: Header, chunks: Iterable[Chunk]) -> Iterator[bytes]:
    """Yield the bytes of a Parquet file."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    types = {"text": "string", "integer": "int64", "boolean": "bool", "number": "float64"}
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    sink = io.BytesIO()
    with ParquetWriter(pa.PythonFile(sink, "w"), schema) as writer:
        for chunk in chunks:
            arrays = [pa.array(values, of.type) for values, of in zip(chunk, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            yield drained(sink)
    yield drained(sink)


def drained(buffer: Any) -> Any:
    """Return the content of an io.StringIO or io.BytesIO, and empty it."""
    content = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return content


WRITERS: dict[OutputFormat, Callable[[Header, Iterable[Chunk]], Iterator[bytes]]] = {
    "csv": partial(delimited_lines, ","),
    "tsv": partial(delimited_lines, "\t"),
    "jsonl": json_lines,
    "parquet": parquet,
}
SUFFIXES: dict[str, OutputFormat] = {
    suffix: kind for suffix, kind in INPUT_SUFFIXES.items() if kind in WRITERS and suffix != ".json"
}


# -- plots -----------------------------------------------------------------------------------------


def check_plot(path: Path, *, force: bool) -> None:
    """Refuse a plot that cannot be drawn or would overwrite a file."""
    refuse_existing(path, force=force)
    plotting.require_matplotlib()
    plotting.picture_format(path)


def save_plot(figure: Any, path: Path) -> None:
    """Save a figure of matplotlib."""
    with naming_file(path):
        plotting.save_figure(figure, path)


# -- outputs that would overwrite an existing file, the model or an input --------------------------


def refuse_shared(
    outputs: Iterable[tuple[str, Path | None]],
    model: Path | None,
    data: Sequence[Path],
    file_format: str | None,
) -> None:
    """Refuse an output that is the same file as the model, an input or another output.

    Outputs are named by their option or argument. ``model`` is None if it is an output.
    """
    taken: dict[Identity, str] = {}
    if model is not None:
        taken |= dict.fromkeys(identities(model), "the model")
    for source in find_inputs(data, file_format):
        name = source.name if source.path is None else f"the input {source.name}"
        taken |= dict.fromkeys(identities(source.path or 0), name)
    for option, output in outputs:
        if output is None:
            continue
        own = identities(1 if output == STANDARD_OUTPUT else output)
        owner = next((taken[each] for each in own if each in taken), None)
        if owner is not None:
            raise CommandError(
                f"{option} {output} is {owner} and would overwrite it: choose another file."
            )
        taken |= dict.fromkeys(own, f"{option} {output}")


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse a folder, and an existing file unless ``force`` is set."""
    if path == STANDARD_OUTPUT or is_pipe_or_device(path):
        return
    if path.is_dir():
        raise CommandError(f"{path} is a folder, expected a file: choose another name.")
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if target.exists() and not force:
        raise CommandError(f"{path} exists: choose another name, or replace it with --force.")


def identities(path: Path | int) -> set[Identity]:
    """Return the identity of a file or descriptor; none for terminals and other devices."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return {os.path.realpath(path)} if isinstance(path, Path) else set()
    return set() if stat.S_ISCHR(status.st_mode) else {(status.st_dev, status.st_ino)}
