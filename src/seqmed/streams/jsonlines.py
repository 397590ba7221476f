"""JSON lines: an object on every line."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from seqmed.arrays import Array
from seqmed.streams.errors import INVALID_TEXT, JSON, NESTED, Fault, StreamError, shown
from seqmed.streams.tables import Wanted, bad_numbers, check_column_names
from seqmed.streams.text import Cells, Chunk, Text, TextTable, line_ends
from seqmed.streams.values import encodable, number_of

# Types that numpy converts as `number_of` does.
NUMERIC = {int, float, bool, type(None)}


class JsonLines(TextTable):
    """A text of JSON lines; see `Table`. Its columns are the keys in its first rows."""

    complete = False

    def __init__(self, text: Text):
        super().__init__(text, line_ends)
        chunk = text.peek(line_ends)
        if text.buffer.lstrip(b"\r\n").startswith(b"["):
            raise StreamError(
                f"{text.name} begins with '[', expected an object on every line: convert the "
                "array, for example with jq -c '.[]'."
            )
        rows, faults = read_objects(chunk)
        self._first = [row for place, row in enumerate(rows) if place not in faults]
        names = dict.fromkeys(name for row in self._first for name in row)
        self.names = check_column_names(list(names), text.name)

    def sample(self) -> dict[str, list[Any]]:
        return {name: [row.get(name) for row in self._first] for name in self.names}

    def _parser(self, wanted: Wanted) -> Callable[[Chunk], Cells]:
        return partial(parse_objects, wanted=wanted)


def read_objects(chunk: Chunk) -> tuple[list[dict[str, Any]], dict[int, Fault]]:
    """Return the object on every line, and the faults of bad lines, whose objects are empty."""
    rows: list[dict[str, Any]] = []
    faults: dict[int, Fault] = {}
    for place in range(chunk.ends.size):
        record, row, reason = chunk.record(place), None, JSON
        try:
            row = json.loads(record.decode())
        except UnicodeDecodeError:
            reason = INVALID_TEXT
        except (ValueError, RecursionError):
            pass
        if not isinstance(row, dict):
            faults[place] = Fault(reason, None, shown(record), chunk.line_of(place))
            row = {}
        rows.append(row)
    return rows, faults


def parse_objects(chunk: Chunk, wanted: Wanted) -> Cells:
    """Return the rows of a chunk, including bad ones."""
    rows, faults = read_objects(chunk)
    values = {name: [row.get(name) for row in rows] for name in wanted.values}
    for name, column in values.items():
        for place, value in enumerate(column):
            reason = NESTED if isinstance(value, list | dict) else INVALID_TEXT
            if reason == NESTED or not encodable(value):
                faults[place] = Fault(reason, name, shown(value), chunk.line_of(place))
    cells = [[row.get(name) for name in wanted.numbers] for row in rows]
    numbers = float_rows(cells, len(wanted.numbers))
    for place in bad_numbers(numbers).tolist():
        if place not in faults:
            found = [number_of(cell) for cell in cells[place]]
            wrong = [(which, each) for which, each in enumerate(found) if isinstance(each, str)]
            if not wrong:
                numbers[place] = found
                continue
            which, reason = wrong[0]
            got = shown(cells[place][which])
            faults[place] = Fault(reason, wanted.numbers[which], got, chunk.line_of(place))
    return Cells(numbers, values, faults)


def float_rows(cells: list[list[Any]], width: int) -> Array:
    """Return cells as numbers, (n, width); all NaN if one of them is not a number."""
    if set(map(type, chain.from_iterable(cells))) <= NUMERIC:
        with suppress(OverflowError):
            return np.array(cells, dtype=np.float64).reshape(len(cells), width)
    return np.full((len(cells), width), np.nan)
