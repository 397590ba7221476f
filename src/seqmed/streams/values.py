"""Values of cells: texts and labels."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from seqmed.streams.errors import StreamError, shown
from seqmed.tables.texts import cell_text

# Texts that mark a missing value.
MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")

NUMBER = re.compile(r"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
WHOLE = re.compile(r"([+-]?(?:0|[1-9][0-9]{0,18}))(?:\.0*)?")

INTEGER, BOOLEAN, STRING = LABEL_TYPES = ("integer", "boolean", "string")
TRUTH = {"true": True, "1": True, "false": False, "0": False}
# The default marker of unlabeled rows, as in the estimators.
DEFAULT_MARKER = "-1"
# Smallest length of class names that are compared for typing errors.
LONG_ENOUGH = 4

Label = int | bool | str


def encodable(value: Any) -> bool:
    """Whether a value can be encoded as UTF-8; JSON allows strings that cannot."""
    if not isinstance(value, str) or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def label_text(value: Any, unlabeled: str | None) -> str | None:
    """Return a label as text, None for an unlabeled row.

    Parameters
    ----------
    value : the stored value.
    unlabeled : marker of unlabeled rows besides `MISSING_WORDS`. None means -1; with the empty
        string only empty cells are unlabeled.
    """
    text = cell_text(value)
    return None if text is None else text_label(text, unlabeled)


@lru_cache(maxsize=4096)
def text_label(text: str, unlabeled: str | None) -> str | None:
    """Return the label written as a text; see `label_text`."""
    text = whole(text)
    marker = DEFAULT_MARKER if unlabeled is None else whole(unlabeled.strip())
    return None if text in (*MISSING_WORDS, marker) and unlabeled != "" else text


def whole(text: str) -> str:
    """Return a whole number in its usual notation, and any other text unchanged."""
    match = WHOLE.fullmatch(text)
    return str(int(match[1])) if match else text


def label_type(texts: Iterable[str], column: str) -> str:
    """Return the type of the labels with these texts.

    Whole numbers with leading zeros, or beyond 64 bits, are strings.
    """
    texts = sorted(set(texts))
    if all(label_of(text, INTEGER) is not None and WHOLE.fullmatch(text) for text in texts):
        return INTEGER
    if all(text.lower() in TRUTH for text in texts):
        return BOOLEAN
    measured = [text for text in texts if not text.lstrip("+-").isdecimal()]
    if measured and all(NUMBER.fullmatch(text) for text in texts):
        raise StreamError(
            f"column {column!r} holds numbers like {shown(measured[0])}, expected classes: name "
            "another column with --label, or use every number as a class with --label-type string."
        )
    return STRING


def check_signs(texts: Iterable[str], values: Iterable[Any], column: str) -> None:
    """Refuse labels -1 and +1 while -1 is the default marker of unlabeled rows.

    Parameters
    ----------
    texts : the labels of the labeled rows.
    values : the column as it was stored.
    column : its name.
    """
    if set(texts) <= {"1", "+1"} and any(label_text(each, "") == DEFAULT_MARKER for each in values):
        raise StreamError(
            f"column {column!r} holds only -1 and +1, so -1 may be a class or mark unlabeled rows. "
            "If it is a class, pass --unlabeled NA; if not, pass --unlabeled -1."
        )


@lru_cache(maxsize=4096)
def label_of(text: str, kind: str) -> Label | None:
    """Return the label of a given type written as a text, None if it is not of this type."""
    if kind == STRING:
        return text
    truth = TRUTH.get(text.lower())
    if kind == BOOLEAN:
        return truth
    if WHOLE.fullmatch(text):
        number = int(text)
        return number if -(2**63) <= number < 2**63 else None
    return None if truth is None else int(truth)


def likely_typo(label: Any, known: Iterable[Any]) -> Any:
    """Return the known class that a new label probably misspells, None if there is none.

    The two differ only in case or spaces, or, if both are long enough, by one typing error: a
    wrong, missing, additional or misplaced character. Numbers, and names with different digits, are
    never misspellings.
    """
    if not isinstance(label, str):
        return None
    first = "".join(label.casefold().split())
    for other in known:
        if isinstance(other, str) and other != label:
            second = "".join(other.casefold().split())
            long = min(len(first), len(second)) >= LONG_ENOUGH
            if first == second or (long and one_error(first, second)):
                return other
    return None


def one_error(first: str, second: str) -> bool:
    """Whether two texts have the same digits and differ by at most one typing error."""
    matched = difflib.SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    unmatched = len(first) + len(second) - 2 * sum(block.size for block in matched)
    return re.sub(r"\D", "", first) == re.sub(r"\D", "", second) and unmatched <= 2
