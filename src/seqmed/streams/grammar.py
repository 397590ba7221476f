"""Records and fields of comma- and tab-separated values."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from seqmed.streams.text import Ends, places, without_blank


class Grammar:
    """Grammar of records and fields, as in RFC 4180.

    A quoted field may hold delimiters, line ends and doubled quotes. In a field that does not begin
    with a quote, quotes are ordinary characters.

    Parameters
    ----------
    delimiter : the character between fields.
    """

    def __init__(self, delimiter: str):
        self.delimiter = delimiter
        quoted, bare = rb'"((?:[^"]++|"")*+)"(D|\r?\n|\r?\Z)', rb'((?!")[^D\n]*+)(D|\n|\Z)'
        self._field = re.compile(
            (quoted + b"|" + bare).replace(b"D", re.escape(delimiter).encode())
        )
        self._edges = np.zeros(256, dtype=bool)
        self._edges[[ord(delimiter), ord("\n")]] = True
        self._unclosed = re.compile(rb'"(?:[^"]++|"")*+\Z')

    def fields(self, record: bytes) -> list[bytes] | None:
        """Return the fields of one record; None if its quotes or line ends are broken."""
        found, end = self._scan(record, 0)
        return found or None if end == len(record) else None

    def split(self, raw: bytes, final: bool) -> Ends:
        """Return the ends of records; see `Split`."""
        ends = places(raw, "\n")
        ends += 1
        if b'"' in raw:
            quotes = places(raw, '"')
            unclosed = final and quotes.size % 2 == 1
            if self._is_regular(raw, quotes) and not unclosed:
                before = np.searchsorted(quotes, ends)
                before &= 1
                ends = ends[before == 0]
            else:
                ends = self._split_one_by_one(raw, final)
        return without_blank(raw, ends, final)

    def _is_regular(self, raw: bytes, quotes: NDArray[np.int64]) -> bool:
        """Whether all quotes are at the edges of fields, or doubled within quoted fields."""
        view = np.frombuffer(raw, np.uint8)
        opening, closing = quotes[0::2], quotes[1::2]
        doubled = opening[1:] == closing[: opening.size - 1] + 1
        opens = self._edges[view[opening - 1]]
        opens[:1] |= opening[:1] == 0
        opens[1:] |= doubled
        if not opens.all():
            return False
        after = view.take(closing + 1, mode="clip")
        closes = self._edges[after]
        closes[: doubled.size] |= doubled
        closes[-1:] |= closing[-1:] + 1 == view.size  # the end of a text is a line end
        if closes.all():
            return True
        second = view.take(closing + 2, mode="clip")
        line_end = (second == ord("\n")) | (closing + 2 == view.size)
        return bool((closes | ((after == ord("\r")) & line_end)).all())

    def is_closed(self, raw: bytes) -> bool:
        """Whether the quotes of whole records are regular, and all are closed."""
        quotes = places(raw, '"')
        return quotes.size % 2 == 0 and self._is_regular(raw, quotes)

    def separators(self, raw: bytes) -> NDArray[np.int64]:
        """Return the positions of separators outside quotes."""
        found = places(raw, self.delimiter)
        if b'"' in raw:
            found = found[np.searchsorted(places(raw, '"'), found) % 2 == 0]
        return found

    def _split_one_by_one(self, raw: bytes, final: bool) -> Ends:
        """Return the ends of records; a record with broken quotes ends with its first line."""
        ends, start = [], 0
        while start < len(raw):
            found, end = self._scan(raw, start)
            still_open = found is None and end == len(raw)
            if found is None:
                end = raw.find(b"\n", start) + 1 or len(raw)
            if not final and (still_open or raw[end - 1 : end] != b"\n"):
                break
            ends.append(end)
            start = end
        return np.array(ends, dtype=np.int64)

    def _scan(self, raw: bytes, start: int) -> tuple[list[bytes] | None, int]:
        """Return the fields of the record that begins at ``start``, and its end.

        The list of fields is empty if a field has a carriage return, and None if quotes are wrong.
        The end is then the length of ``raw`` if a quote is not closed, and -1 otherwise.
        """
        found, place, stray = [], start, False
        while match := self._field.match(raw, place):
            quoted, after_quote, bare, after_bare = match.groups()
            last = (after_quote or after_bare) != self.delimiter.encode()
            if quoted is not None:
                found.append(quoted.replace(b'""', b'"'))
            else:
                bare = bare.removesuffix(b"\r") if last else bare
                stray |= b"\r" in bare
                found.append(bare)
            place = match.end()
            if last:
                return ([] if stray else found), place
        return None, len(raw) if self._unclosed.match(raw, place) else -1
