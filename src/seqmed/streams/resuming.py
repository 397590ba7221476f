"""Resumption: which files are known from an earlier run, and where to go on in each.

A file is known by its content: the part that was read has to be there, unchanged. Its path says
where to look first, and that another content there is refused rather than taken for a new file. A
file that was moved or renamed is found by its content, if its old place is empty now or holds
something else.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from seqmed.streams.errors import StreamError, listed, notice, refusing
from seqmed.streams.files import Input, opened
from seqmed.streams.formats import BINARY, open_table
from seqmed.streams.positions import FilePosition, Position, fresh_hash, stamp
from seqmed.streams.tables import BLOCK, Start, Wanted


class PlannedRead(NamedTuple):
    """A file or pipe to read.

    Parameters
    ----------
    source : the file or pipe.
    start : where to begin.
    content : the hash of all that comes before; None if the file has been read to its end and has
        not been touched since.
    """

    source: Input
    start: Start
    content: Any


def plan(
    inputs: Sequence[Input], position: Position, again: bool, wanted: Wanted | None
) -> tuple[list[PlannedRead], Position]:
    """Return what to read, and the position with all its files in it, new ones at their beginning.

    Parameters
    ----------
    inputs : the files and pipes of the stream.
    position : how far it has been read before.
    again : whether files that have been finished are read once more, and changed ones from their
        beginning. If the last time was interrupted it is completed instead.
    wanted : the columns by which rows of binary formats are known; None if nothing has been read.
    """
    files = [each for each in inputs if each.resumable]
    known = {each.path: each for each in position.files}
    tasks, places = recognise(files, position, wanted)
    changed = [each for each in files if each.key in known and each.key not in places]
    met = [known[path] for path in (*places, *(each.key for each in changed))]
    if again and all(each.finished for each in met):
        tasks, places, changed = {}, {}, []
        keys = {each.key for each in files}
        position = Position(tuple(each for each in position.files if each.path not in keys))
    if changed:
        name, rows = changed[0].name, known[changed[0].key].rows
        raise StreamError(
            f"{name} has changed before the end of row {rows}, up to which it has been read: "
            "restore it, put new rows in a file of their own, or start a new model."
        )
    moved = [f"{new} (as {old})" for old, new in places.items() if old != new]
    if moved:
        notice(f"read before, elsewhere, and not read again: {listed(moved)}.")
    records = {}
    for record in position.files:
        path = places.get(record.path, record.path)
        if record.rows or os.path.exists(path):
            records[path] = replace(record, path=path)
    for each in files:
        if each.key not in tasks:
            records[each.key] = FilePosition(each.key)
    begun = {each.key: PlannedRead(each, Start(), fresh_hash()) for each in inputs} | tasks
    return [begun[each.key] for each in inputs], Position(tuple(records.values()))


def recognise(
    files: Sequence[Input], position: Position, wanted: Wanted | None
) -> tuple[dict[str, PlannedRead], dict[str, str]]:
    """Return what to do with files that are known, and where they are now, by where they were."""
    known = {each.path: each for each in position.files}
    tasks: dict[str, PlannedRead] = {}
    places: dict[str, str] = {}
    for each in files:
        if each.key in known and (task := resumed(each, known[each.key], wanted)):
            tasks[each.key], places[each.key] = task, each.key
    strange = {each.key: each for each in files if each.key not in tasks}
    if not strange:
        return tasks, places
    vacant = {
        path: record
        for path, record in known.items()
        if record.rows and (path in strange or not os.path.exists(path))
    }
    for each in strange.values():
        for path, record in vacant.items():
            if may_be(each, record) and (task := resumed(each, record, wanted)):
                tasks[each.key], places[path] = task, each.key
                del vacant[path]
                break
    return tasks, places


def may_be(source: Input, record: FilePosition) -> bool:
    """Whether it is worth looking if a file is one that was read before: same name or size.

    It may have been compressed since.
    """
    path = Path(source.key)
    names = (Path(each).name.removesuffix(".gz") for each in (path, record.path))
    return len(set(names)) == 1 or stamp(path).size == record.size


def resumed(source: Input, record: FilePosition, wanted: Wanted | None) -> PlannedRead | None:
    """Return where to go on in a file; None if what was read of it is not there any more."""
    untouched = record.modified and stamp(Path(source.key)) == record.stamp
    if record.finished and untouched and source.key == record.path:
        return PlannedRead(source, Start(), None)
    lines = 0
    if source.kind in BINARY:
        content = values_read(source, record.rows, wanted)
    else:
        content, lines = text_read(source, record.offset)
    if content is None or content.hexdigest() != record.digest:
        return None
    return PlannedRead(source, Start(record.rows, record.offset, lines), content)


def text_read(source: Input, size: int) -> tuple[Any, int]:
    """Return the hash of the first bytes of a text and the lines in them; None if there are fewer.

    A last row that was read without a line end must have got none, or nothing else.
    """
    content, lines, last = fresh_hash(), 0, b"\n"
    with opened(source) as handle, refusing(source.name, "text"):
        while size:
            block = handle.read(min(size, BLOCK))
            if not block:
                return None, 0
            content.update(block)
            lines, last = lines + block.count(b"\n"), block[-1:]
            size -= len(block)
        longer = last != b"\n" and handle.read(1) not in (b"", b"\r", b"\n")
    return (None, 0) if longer else (content, lines)


def values_read(source: Input, rows: int, wanted: Wanted | None) -> Any:
    """Return the hash of the first rows of a binary file, None if there are fewer."""
    content = fresh_hash()
    if not rows or wanted is None:
        return content
    with open_table(source, final=True) as table:
        if not set(wanted.numbers) <= set(table.names):
            return None
        for piece in table.pieces(wanted, Start()):
            size = min(rows, piece.ends.size)
            content.update(piece.part(0, size))
            rows -= size
            if not rows:
                return content
    return None
