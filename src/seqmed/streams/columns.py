"""Choice of columns: labels, features and text, by the user or from a first file."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from seqmed.streams.cells import cell_text
from seqmed.streams.errors import StreamError, listed, notice, read_fields, read_names, shown
from seqmed.streams.label_types import LABEL_TYPES
from seqmed.streams.tables import Table

HASHING, VOCABULARY = TEXT_METHODS = ("hashing", "vocabulary")
UNIT, COUNTS = TEXT_WEIGHTS = ("unit", "counts")
LARGEST_TEXT_SIZE = 2**31 - 1
# Row numbers, as pandas writes them unless told not to, and writes them again.
ROW_NUMBERS, UNNAMED, UNNAMED_AGAIN = "__index_level_0__", "", "Unnamed: 0"


@dataclass(frozen=True)
class Columns:
    """What the user wants of the columns.

    Parameters
    ----------
    label : the column of labels; None if there are none.
    features : the columns that are features; None for all that hold numbers.
    drop : columns that are not features.
    text : a column whose words are features.
    unlabeled : what marks unlabeled rows besides an empty cell and NA, NaN, null, None and their
        like; None for -1, as in the estimators, and the empty string if only an empty cell does.
    label_type : "integer", "boolean" or "string"; None to tell by the first labels.
    scale : whether features are standardised, with the means and spreads of the first batch. Those
        of text are not.
    text_method : "hashing", in which every word has a fixed place, or "vocabulary", the words of
        the first batch.
    text_size : places for words, or the size of the vocabulary at most.
    text_weights : "unit" for rows of length 1, "counts" for plain counts of words, as the kernels
        "tfidf" and "dcm" need them.
    """

    label: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    text: str | None = None
    unlabeled: str | None = None
    label_type: str | None = None
    scale: bool = False
    text_method: str = HASHING
    text_size: int = 2**18
    text_weights: str = UNIT

    def __post_init__(self) -> None:
        for name in ("features", "drop"):
            if isinstance(getattr(self, name), str):
                raise StreamError(
                    f"{name}={getattr(self, name)!r} is a single name, expected a list of names: "
                    "put it in brackets."
                )
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if not isinstance(self.unlabeled, str):
            object.__setattr__(self, "unlabeled", cell_text(self.unlabeled))
        self._check_choice("label_type", (None, *LABEL_TYPES))
        self._check_choice("text_method", TEXT_METHODS)
        self._check_choice("text_weights", TEXT_WEIGHTS)
        if not 1 <= self.text_size <= LARGEST_TEXT_SIZE:
            raise StreamError(
                f"text_size={self.text_size}, expected 1 to {LARGEST_TEXT_SIZE}: choose another."
            )
        chosen = [name for name in (self.label, self.text) if name is not None]
        named = [*chosen, *(self.features or ()), *self.drop]
        for name in named:
            if named.count(name) > 1:
                raise StreamError(
                    f"column {name!r} is named twice, expected one use of it: as label, text or "
                    "feature, or not at all."
                )

    def _check_choice(self, name: str, choices: Sequence[str | None]) -> None:
        if getattr(self, name) not in choices:
            raise StreamError(
                f"{name}={getattr(self, name)!r}, expected one of {', '.join(map(str, choices))}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the choices as plain values."""
        data = asdict(self)
        for name in ("features", "drop"):
            data[name] = None if data[name] is None else list(data[name])
        return data

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return choices that were stored; refuse anything else."""
        text, names = (str, type(None)), (list, tuple)
        found = read_fields(
            data, "columns", label=text, features=(*names, type(None)), drop=names, text=text,
            unlabeled=text, label_type=text, scale=bool, text_method=str, text_size=int,
            text_weights=str,
        )  # fmt: skip
        for name in ("features", "drop"):
            if found[name] is not None:
                found[name] = read_names("columns", name, found[name])
        return cls(**found)


def choose_features(
    columns: Columns, table: Table, source: str, batch_by: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the features of a stream whose first file is ``table``, and the columns not used.

    Without a choice of the user, a column is a feature if more than half of its values in the
    first rows are numbers; row numbers, and the column of batches, are not. Other numbers without a
    name are refused.
    """
    needed = [*(columns.features or ()), *columns.drop, columns.text, batch_by]
    refuse_missing([name for name in needed if name is not None], table, source)
    special = {columns.label, columns.text}
    if columns.features is not None:
        features = list(columns.features)
    else:
        features = numeric(table, {*special, *columns.drop, batch_by}, source)
    if not features and columns.text is None:
        raise StreamError(
            f"{source} has no column of numbers to learn from: name columns with --features, or "
            "one of words with --text."
        )
    used = {*features, *special}
    return tuple(features), tuple(name for name in table.names if name not in used)


def numeric(table: Table, others: set[str | None], source: str) -> list[str]:
    """Return the columns that hold numbers; say why those that are not among others do not."""
    features, said = [], []
    for name, column in table.sample().items():
        values = [value for value in column if value is not None]
        texts = [value for value in values if not isinstance(value, int | float)]
        if name in others:
            continue
        if not values:
            said.append(f"{name!r} (empty)")
        elif are_row_numbers(name, values):
            said.append(f"{name!r} (row numbers)")
        elif 2 * len(texts) >= len(values):
            said.append(f"{name!r} (for example {shown(texts[0])})")
        elif name == UNNAMED:
            raise StreamError(
                f"{source} has a column of numbers without a name (for example "
                f"{shown(values[0])}), expected a name for every column: name it in the file, or "
                "choose columns with --features."
            )
        else:
            features.append(name)
    if said:
        notice(
            f"{source}: not used, for want of numbers: {listed(said)}. Name features with "
            "--features, a column of words with --text, or be silent about a column with --drop."
        )
    return features


def are_row_numbers(name: str, values: Sequence[Any]) -> bool:
    """Whether a column is the index of a data frame, by its name and its first values."""
    if name == ROW_NUMBERS:
        return True
    if name != UNNAMED and not name.startswith(UNNAMED_AGAIN):
        return False
    if not all(isinstance(each, int | float) and each >= 0 for each in values):
        return False
    whole = all(isinstance(each, int) or each.is_integer() for each in values)
    return whole and len(set(values)) == len(values)


def refuse_missing(names: Sequence[str], table: Table, source: str) -> None:
    """Refuse a file in which columns are missing; name one that may be meant."""
    for name in names:
        if name not in table.names:
            folded = {each.casefold(): each for each in table.names}
            close = difflib.get_close_matches(name.casefold(), folded, 1)
            meant = f"is {folded[close[0]]!r} meant?" if close else "check its name, or the file."
            found = listed([shown(each) for each in table.names])
            raise StreamError(f"{source} has no column {name!r} (it has {found}): {meant}")
