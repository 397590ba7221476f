"""Texts for messages: values, lists of names, and names that are probably misspelled."""

from __future__ import annotations

import csv
import difflib
import io
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

# Characters shown of a value, and names in a list.
SHOWN, LISTED = 40, 10
# Smallest similarity of two column names of which one is probably a misspelling of the other.
SIMILAR = 0.8
# Smallest length of class names that are compared for typing errors.
LONG_ENOUGH = 4


def quoted(column: str) -> str:
    """Return the name of a column as an option takes it at a shell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([column])
    return shlex.quote(text.getvalue())


def shown(value: Any) -> str:
    """Return a value for a message: on one line, and shortened."""
    if isinstance(value, bytes):
        value = value[: 4 * SHOWN].decode("utf-8", "replace")
    text = repr(value[: SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN + 2 else f"{text[:SHOWN]}..."


def listed(texts: Sequence[str]) -> str:
    """Return texts separated by commas, shortened if there are many."""
    more = f" and {len(texts) - LISTED} others" if len(texts) > LISTED else ""
    return ", ".join(texts[:LISTED]) + more


def similar_name(name: str, names: Sequence[str]) -> str | None:
    """Return the column that a name probably misspells, None if there is none."""
    folded = {each.casefold(): each for each in names}
    close = difflib.get_close_matches(name.casefold(), folded, 1, SIMILAR)
    return folded[close[0]] if close else None


def likely_typo(label: Any, known: Iterable[Any]) -> Any:
    """Return the known class that a new label probably misspells, None if there is none.

    The two differ only in case or spaces, or, if both are long enough, by one typo: a wrong,
    missing, additional or misplaced character. Numbers, and names with different digits, are
    never misspellings.
    """
    if not isinstance(label, str):
        return None
    first = "".join(label.casefold().split())
    for other in known:
        if isinstance(other, str) and other != label:
            second = "".join(other.casefold().split())
            matched = difflib.SequenceMatcher(None, first, second, autojunk=False)
            same = sum(block.size for block in matched.get_matching_blocks())
            one_error = len(first) + len(second) - 2 * same <= 2
            same_digits = re.sub(r"\D", "", first) == re.sub(r"\D", "", second)
            long = min(len(first), len(second)) >= LONG_ENOUGH
            if first == second or (long and one_error and same_digits):
                return other
    return None
