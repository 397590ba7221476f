"""Text in any encoding, read as UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any

from seqmed.streams.errors import StreamError

UTF8 = "utf-8"
# Byte order marks besides that of UTF-8, longest first.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
LONGEST_MARK = 4


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
    """Return the encoding of a text, by its byte order mark, the user's choice or the default.

    Parameters
    ----------
    start : the first bytes, at least `LONGEST_MARK` unless the text is shorter.
    chosen : encoding that the user has chosen.
    source : name of the text for messages.
    """
    if start.startswith(codecs.BOM_UTF8):
        return UTF8
    for mark, name in MARKS.items():
        if start.startswith(mark):
            return name
    if chosen is not None:
        return known_encoding(chosen)
    if len(start) >= 2 and start[:2].count(0) == 1:
        name = "utf-16-le" if start[1] == 0 else "utf-16-be"
        raise StreamError(
            f"{source} looks like UTF-16 without a byte order mark, expected UTF-8: name its "
            f"encoding with --encoding {name}."
        )
    return UTF8


def encodable(value: Any) -> bool:
    """Whether a value can be encoded as UTF-8; JSON allows strings that cannot."""
    if not isinstance(value, str) or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class Transcoded:
    """Bytes of a text in another encoding, read as UTF-8.

    Parameters
    ----------
    read : returns at most the given number of bytes, none at the end.
    rewind : moves to the beginning of the text.
    encoding : encoding of the text.
    source : name of the text for messages.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        rewind: Callable[[], object],
        encoding: str,
        source: str,
    ):
        self._read, self._rewind = read, rewind
        self._encoding, self._source = encoding, source
        self._begin()

    def _begin(self) -> None:
        self._decoder = codecs.getincrementaldecoder(self._encoding)()
        self._ready, self._ended = b"", False

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes of UTF-8, none at the end."""
        while not self._ready and not self._ended:
            block = self._read(size)
            self._ended = not block
            try:
                text = self._decoder.decode(block, final=self._ended)
                self._ready = text.encode()
            except UnicodeError as error:
                raise StreamError(
                    f"{self._source} is not in {self._encoding} ({error.__class__.__name__}): name "
                    "its encoding with --encoding, for example cp1252 or utf-8."
                ) from None
        taken, self._ready = self._ready[:size], self._ready[size:]
        return taken

    def seek(self, offset: int) -> None:
        """Move to an offset in the bytes of UTF-8."""
        self._rewind()
        self._begin()
        while offset:
            taken = self.read(offset if offset < 2**20 else 2**20)
            if not taken:
                return
            offset -= len(taken)
