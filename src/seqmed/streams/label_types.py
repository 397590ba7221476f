"""Types of labels: integers, booleans or strings, the same in a whole stream."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from seqmed.streams.cells import MISSING_WORDS, NUMBER, WHOLE, cell_text
from seqmed.streams.errors import StreamError, shown

INTEGER, BOOLEAN, STRING = LABEL_TYPES = ("integer", "boolean", "string")
TRUTH = {"true": True, "1": True, "false": False, "0": False}
# What marks an unlabeled row if nothing is said, as in the estimators.
DEFAULT_MARKER = "-1"
# Characters that a class must have for a change in one of them to look like a typing error.
LONG_ENOUGH = 4

Label = int | bool | str


def label_text(value: Any, unlabeled: str | None) -> str | None:
    """Return a label as a text, None for an unlabeled row.

    Labels are the same if their texts are: 1, 1.0, "1" and "1.0" are.

    Parameters
    ----------
    value : as it was stored.
    unlabeled : what marks unlabeled rows besides `MISSING_WORDS`; None for -1, and the empty string
        for nothing but an empty cell.
    """
    text = cell_text(value)
    return None if text is None else text_label(text, unlabeled)


@lru_cache(maxsize=4096)
def text_label(text: str, unlabeled: str | None) -> str | None:
    """Return the label that a text stands for, as in `label_text`."""
    text = whole(text)
    marker = DEFAULT_MARKER if unlabeled is None else whole(unlabeled.strip())
    return None if text in (*MISSING_WORDS, marker) and unlabeled != "" else text


def whole(text: str) -> str:
    """Return a whole number as it is usually written, and other texts as they are."""
    match = WHOLE.fullmatch(text)
    return str(int(match[1])) if match else text


def label_type(texts: Iterable[str], column: str) -> str:
    """Return the type that the labels of a column have, given their texts.

    Whole numbers with zeros before them, or too large for 64 bits, are names rather than numbers.
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
            "another with --label, or take every number for a class with --label-type string."
        )
    return STRING


def check_signs(texts: Iterable[str], values: Iterable[Any], column: str) -> None:
    """Refuse first labels that are only -1 and +1, where -1 marks unlabeled rows by default.

    Parameters
    ----------
    texts : the labels, those that mark unlabeled rows left out.
    values : the column as it was stored.
    column : its name.
    """
    if set(texts) <= {"1", "+1"} and any(label_text(each, "") == DEFAULT_MARKER for each in values):
        raise StreamError(
            f"column {column!r} holds only -1 and +1, and -1 marks unlabeled rows: expected labels "
            "among which -1 cannot be a class. If -1 is a class, name what else marks unlabeled "
            "rows, for example --unlabeled NA; if -1 means unlabeled, pass --unlabeled -1."
        )


@lru_cache(maxsize=4096)
def label_of(text: str, kind: str) -> Label | None:
    """Return the label of a given type that a text stands for, None if it stands for none."""
    if kind == STRING:
        return text
    if kind == BOOLEAN:
        return TRUTH.get(text.lower())
    if WHOLE.fullmatch(text):
        number = int(text)
        return number if -(2**63) <= number < 2**63 else None
    truth = TRUTH.get(text.lower())
    return None if truth is None else int(truth)


def likely_typo(label: Any, known: Iterable[Any]) -> Any:
    """Return the known class that a new one was probably meant to be, None if there is none.

    It differs in case or spaces only, or, if it is not short, by a character that is wrong,
    missing, too many or has changed places with its neighbour; but not by a digit, as "part 1" and
    "part 2" do. Numbers are never mistaken for one another.

    Parameters
    ----------
    label : a class that has just come up.
    known : classes seen before.
    """
    if not isinstance(label, str):
        return None
    for other in known:
        if isinstance(other, str) and other != label:
            first, second = "".join(label.casefold().split()), "".join(other.casefold().split())
            if first == second or (
                min(len(first), len(second)) >= LONG_ENOUGH and one_slip(first, second)
            ):
                return other
    return None


def one_slip(first: str, second: str) -> bool:
    """Whether two different texts differ by one typing error, digits not counted."""
    if len(first) > len(second):
        first, second = second, first
    pairs = enumerate(zip(first, second, strict=False))
    start = next((place for place, (one, other) in pairs if one != other), len(first))
    shorter, longer = first[start:], second[start:]
    if len(first) < len(second):
        return shorter == longer[1:] and not longer[0].isdigit()
    if shorter[1:] == longer[1:]:
        return not (shorter[0].isdigit() or longer[0].isdigit())
    swapped = shorter[1] + shorter[0] + shorter[2:]
    return swapped == longer and not any(each.isdigit() for each in shorter[:2])
