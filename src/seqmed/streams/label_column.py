"""The label column of a stream: texts, types and values of labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from seqmed.numeric.words import in_words
from seqmed.streams.faults import LABEL, Fault, StreamError
from seqmed.streams.pieces import coded
from seqmed.streams.positions import read_stored, refuse_stored
from seqmed.tables.cells import MISSING_WORDS, NUMBER, cell_text
from seqmed.tables.messages import shown

WHOLE = re.compile(r"([+-]?(?:0|[1-9][0-9]{0,18}))(?:\.0*)?")
INTEGER, BOOLEAN, STRING = LABEL_TYPES = ("integer", "boolean", "string")
TRUTH = {"true": True, "1": True, "false": False, "0": False}
# The default marker of unlabeled rows, as in the estimators.
DEFAULT_MARKER = "-1"

Label = int | bool | str


@dataclass(frozen=True)
class LabelColumn:
    """The column of labels.

    Parameters
    ----------
    name : its name.
    unlabeled : marker of unlabeled rows besides `MISSING_WORDS`. None means -1, as in the
        estimators; with the empty string only empty cells are unlabeled.
    type : "integer", "boolean" or "string"; None to infer it from the first labels.
    spelling : how false and true are written, of booleans; None for "false" and "true".
    """

    name: str
    unlabeled: str | None = None
    type: str | None = None
    spelling: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.unlabeled, str):
            object.__setattr__(self, "unlabeled", cell_text(self.unlabeled))
        if self.type not in (None, *LABEL_TYPES):
            accepted = ", ".join(LABEL_TYPES)
            raise StreamError(f"the label type is {self.type!r}, expected one of {accepted}.")
        if self.spelling is not None and len(self.spelling) != 2:
            raise StreamError(f"the spelling is {self.spelling!r}, expected two texts.")

    def to_dict(self) -> dict[str, Any]:
        """Return the column as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return a column that was stored by `to_dict`; refuse anything else."""
        if isinstance(data, dict) and data.get("type") not in (None, *LABEL_TYPES):
            refuse_stored("label column", "type", data["type"])
        return read_stored(cls, data, "label column")

    def check_same(self, chosen: LabelColumn) -> None:
        """Refuse a choice that differs from this column; default values are not compared."""
        options = {"name": "--label", "unlabeled": "--unlabeled", "type": "--label-type"}
        for name, option in options.items():
            now, before = getattr(chosen, name), getattr(self, name)
            if now is not None and now != before:
                fixed = f"without {option}, which cannot be added"
                if before is not None:
                    fixed = f"with {option} {shown(before)}, not {shown(now)}"
                raise StreamError(
                    f"the model was made {fixed}: leave the option out, or start a new model."
                )

    def of_first(self, labels: Sequence[TextLabels]) -> LabelColumn:
        """Return the column with the type of the first labels; unchanged if there are none."""
        found = list(dict.fromkeys(text for each in labels for text in each.found))
        if self.type == BOOLEAN and found and self.spelling is None:
            return replace(self, spelling=spelling_of(found))
        if self.type is not None or not found:
            return self
        signs = any(each.signs for each in labels)
        if self.unlabeled is None and signs and set(found) <= {"1", "+1"}:
            raise StreamError(
                f"column {self.name!r} holds only -1 and +1, so -1 may be a class or mark "
                "unlabeled rows. If it is a class, pass "
                + in_words(
                    "--unlabeled NA; if not, pass --unlabeled -1.",
                    "LabelColumn(unlabeled='NA'); if not, pass LabelColumn(unlabeled='-1').",
                )
            )
        kind = label_type(found, self.name)
        return replace(self, type=kind, spelling=spelling_of(found) if kind == BOOLEAN else None)

    def text(self, label: Any) -> str:
        """Return a class as the first labels are spelled."""
        if self.spelling is not None and isinstance(label, bool):
            return self.spelling[label]
        return str(cell_text(label))

    def values(self, labels: Sequence[TextLabels]) -> NDArray[np.object_]:
        """Return labels of one type, None for unlabeled rows, (n,)."""
        parts = []
        for each in labels:
            values = np.empty(len(each.texts), dtype=object)
            values[:] = [text and label_of(text, str(self.type)) for text in each.texts]
            parts.append(values[each.codes])
        return np.concatenate(parts)


class TextLabels(NamedTuple):
    """Labels of n consecutive rows: codes (n,) of distinct texts, None for unlabeled rows.

    ``signs`` tells whether the default marker -1 occurs among the cells.
    """

    codes: NDArray[np.intp]
    texts: list[str | None]
    signs: bool

    @property
    def found(self) -> list[str]:
        """The texts that occur, in the order of the rows."""
        texts = [self.texts[code] for code in dict.fromkeys(self.codes.tolist())]
        return [text for text in texts if text is not None]

    def of(self, rows: NDArray[np.intp]) -> TextLabels:
        """Return the labels of some rows."""
        return self._replace(codes=self.codes[rows])

    def misfits(self, column: LabelColumn) -> dict[int, Fault]:
        """Return the faults of rows whose label is of another type, by their index."""
        if column.type is None:
            return {}
        wrong = np.array(
            [bool(text) and label_of(str(text), column.type) is None for text in self.texts]
        )
        return {
            row: Fault(LABEL, column.name, shown(self.texts[self.codes[row]]))
            for row in np.flatnonzero(wrong[self.codes]).tolist()
        }


def labels_in(cells: Any, column: LabelColumn) -> TextLabels:
    """Return the labels in an array of cells."""
    codes, values = coded(cells)
    found = [cell_text(value) for value in values]
    texts = [text and text_label(text, column.unlabeled) for text in found]
    return TextLabels(codes, texts, any(text and whole(text) == DEFAULT_MARKER for text in found))


@lru_cache(maxsize=4096)
def text_label(text: str, unlabeled: str | None) -> str | None:
    """Return the label written as a text, None for an unlabeled row; see `LabelColumn`."""
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
            + in_words(
                "another column with --label, or use every number as a class with --label-type "
                "string.",
                "another LabelColumn, or use every number as a class with its type='string'.",
            )
        )
    return STRING


def spelling_of(texts: Sequence[str]) -> tuple[str, str]:
    """Return how false and true are written, by the first of some texts that is a word."""
    first = next((text for text in texts if text.lower() in ("false", "true")), "true")
    change = str.upper if first.isupper() else str.title if first[0].isupper() else str.lower
    return change("false"), change("true")


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
