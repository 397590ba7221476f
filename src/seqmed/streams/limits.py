"""Limits on the size of rows, cells and compressed inputs, checked before memory is taken."""

from __future__ import annotations

from dataclasses import dataclass, fields

from seqmed.streams.errors import StreamError

# Bytes read at once, of a text or of the values in a binary format; largest number of rows.
BLOCK, MOST = 2**20, 2**13
# Bytes that any input may expand to, however small it is.
ALWAYS_ALLOWED = 2**26


@dataclass(frozen=True)
class Limits:
    """Limits on an input.

    Parameters
    ----------
    columns : largest number of columns.
    row_bytes, cell_bytes : largest size of a row and of a cell in bytes.
    expansion : largest ratio of decoded to stored bytes of a compressed or encoded input. The first
        64 MiB are always allowed.
    """

    columns: int = 100_000
    row_bytes: int = 2**24
    cell_bytes: int = 2**20
    expansion: int = 200

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value < 1:
                raise StreamError(f"{option(each.name)} got {value}, expected at least 1.")

    def check(self, name: str, source: str, got: int) -> None:
        """Refuse an input with more than the limit ``name`` allows."""
        limit = getattr(self, name)
        if got > limit:
            what = {
                "columns": f"{got} columns",
                "row_bytes": f"a row of {got} bytes",
                "cell_bytes": f"cells of {got} bytes",
            }[name]
            raise StreamError(
                f"{source} has {what}, expected at most {limit}: check the file, or raise the "
                f"limit with {option(name)}."
            )


def option(name: str) -> str:
    """Return the option of the command line that sets a limit."""
    return f"--max-{name.replace('_', '-')}"


class Allowance:
    """Counts the decoded bytes of one input.

    Parameters
    ----------
    limits : the limits of the stream.
    source : name of the input for messages.
    stored : size of the input in bytes.
    """

    def __init__(self, limits: Limits, source: str, stored: int):
        self.limits, self.source = limits, source
        self._stored, self._decoded = stored, 0

    def store(self, size: int) -> None:
        """Add bytes that were read from a pipe, whose size is not known beforehand."""
        self._stored += size

    def spend(self, size: int) -> None:
        """Count decoded bytes; refuse the input if there are too many."""
        self._decoded += size
        if self._decoded > max(ALWAYS_ALLOWED, self.limits.expansion * self._stored):
            raise StreamError(
                f"{self.source} expands to more than {self.limits.expansion} times its "
                f"{self._stored} bytes: check the file, or raise the limit with "
                f"{option('expansion')}."
            )
