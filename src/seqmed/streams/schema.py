"""Columns of a stream: chosen by the user and the first file, and fixed with the first batch."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np

from seqmed.arrays import Array
from seqmed.streams.errors import StreamError, listed, notice, read_stored, refuse_stored, shown
from seqmed.streams.tables import Table
from seqmed.streams.values import LABEL_TYPES, cell_text

HASHING, VOCABULARY = TEXT_METHODS = ("hashing", "vocabulary")
UNIT, COUNTS = TEXT_WEIGHTS = ("unit", "counts")
LARGEST_TEXT_SIZE = 2**31 - 1
# Names that pandas gives to the index of a data frame.
ROW_NUMBERS, UNNAMED, UNNAMED_AGAIN = "__index_level_0__", "", "Unnamed: 0"


@dataclass(frozen=True)
class Columns:
    """The user's choice of columns.

    Parameters
    ----------
    label : the column of labels; None if there are none.
    features : the columns that are features; None for all columns of numbers.
    drop : columns that are not features.
    text : a column whose words are features.
    unlabeled : marker of unlabeled rows besides an empty cell, NA, NaN, null and None. None means
        -1, as in the estimators; with the empty string only empty cells are unlabeled.
    label_type : "integer", "boolean" or "string"; None to infer it from the first labels.
    scale : whether features are standardised by the first batch. Words are not.
    text_method : "hashing" of all words, or the "vocabulary" of the first batch.
    text_size : number of hashed features, or the largest size of the vocabulary.
    text_weights : "unit" for word counts scaled to length 1, "counts" for plain counts, which the
        kernels "tfidf" and "dcm" need.
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
        for name, choices in (
            ("label_type", (None, *LABEL_TYPES)),
            ("text_method", TEXT_METHODS),
            ("text_weights", TEXT_WEIGHTS),
        ):
            if getattr(self, name) not in choices:
                accepted = ", ".join(map(str, choices))
                raise StreamError(f"{name}={getattr(self, name)!r}, expected one of {accepted}.")
        if not 1 <= self.text_size <= LARGEST_TEXT_SIZE:
            raise StreamError(
                f"text_size={self.text_size}, expected 1 to {LARGEST_TEXT_SIZE}: choose another."
            )
        named = [self.label, self.text, *(self.features or ()), *self.drop]
        for each in named:
            if each is not None and named.count(each) > 1:
                raise StreamError(
                    f"column {each!r} is named twice, expected once: name it as label, as text, in "
                    "features or in drop."
                )


@dataclass(frozen=True, eq=False)
class Schema:
    """The columns of a stream, the same from the first row to the last.

    Parameters
    ----------
    columns : the user's choices.
    features : the columns of numbers, in the order of the first file.
    ignored : columns of the first file that are not used.
    label_type : "integer", "boolean" or "string"; None before the first label.
    means, deviations : (p,) means and standard deviations of the features in the first batch; None
        before it, or without ``scale``.
    vocabulary : the words of the first batch, sorted; None before it, or for other methods.
    """

    columns: Columns
    features: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    label_type: str | None = None
    means: Array | None = None
    deviations: Array | None = None
    vocabulary: tuple[str, ...] | None = None

    @property
    def frozen(self) -> bool:
        """Whether the first batch has been seen."""
        measured = self.means is not None or not (self.columns.scale and self.features)
        return measured and (self.vocabulary is not None or not self._learns_words)

    @property
    def needed(self) -> list[str]:
        """The columns that every file must have: the features, and the text column last."""
        return [*self.features, *([] if self.columns.text is None else [self.columns.text])]

    @property
    def n_features(self) -> int:
        """The number of columns of X, once the schema is frozen."""
        if self.columns.text is None:
            return len(self.features)
        words = self.columns.text_size if self.vocabulary is None else len(self.vocabulary)
        return len(self.features) + words

    @property
    def _learns_words(self) -> bool:
        return self.columns.text is not None and self.columns.text_method == VOCABULARY

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values and arrays."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return a schema that was stored by `to_dict`; refuse anything else."""
        schema = read_stored(cls, data, "schema")
        for name, valid in schema._validity().items():
            if not valid:
                refuse_stored("schema", name, getattr(schema, name))
        return schema

    def _validity(self) -> dict[str, bool]:
        """Return whether each field is valid, alone and together with the others."""
        columns, features, words = self.columns, set(self.features), self.vocabulary
        others = {columns.label, columns.text, *columns.drop, *self.ignored}
        return {
            "features": (bool(features) or columns.text is not None)
            and columns.features in (None, self.features)
            and len(features) == len(self.features)
            and not others & features,
            "ignored": len(set(self.ignored)) == len(self.ignored),
            "label_type": self.label_type in (None, *LABEL_TYPES)
            and columns.label_type in (None, self.label_type)
            and (self.label_type is None or columns.label is not None),
            "means": self._measured(self.means) and (columns.scale or self.means is None),
            "deviations": self._measured(self.deviations)
            and (self.deviations is None) == (self.means is None)
            and (self.deviations is None or bool((self.deviations > 0).all())),
            "vocabulary": words is None
            or (self._learns_words and 1 <= len(set(words)) == len(words) <= columns.text_size),
        }

    def _measured(self, values: Array | None) -> bool:
        """Whether statistics are None, or one finite number per feature."""
        return values is None or (
            values.shape == (len(self.features),) and bool(np.isfinite(values).all())
        )

    def check_same(self, columns: Columns) -> None:
        """Refuse choices that differ from those of the schema; default values are not compared."""
        for each in fields(Columns):
            now, before = getattr(columns, each.name), getattr(self.columns, each.name)
            if now != each.default and now != before:
                option = f"--{each.name.replace('_', '-')}"
                fixed = (
                    f"without {option}, which cannot be added"
                    if before in (None, (), False)
                    else f"with {option} {shown(before)}, which cannot be changed to {shown(now)}"
                )
                raise StreamError(
                    f"the model was made {fixed}: leave the option out, or start a new model."
                )


def choose_columns(columns: Columns, table: Table, source: str, batch_by: str | None) -> Schema:
    """Return the schema of a stream whose first file is ``table``.

    By default a column is a feature if more than half of its values in the first rows are numbers,
    except row numbers and ``batch_by``.
    """
    named = [*(columns.features or ()), *columns.drop, columns.text, batch_by]
    refuse_missing([name for name in named if name is not None], table, source)
    special = {columns.label, columns.text}
    features = columns.features
    if features is None:
        features = numeric_columns(table, {*special, *columns.drop, batch_by}, source)
    if not features and columns.text is None:
        raise StreamError(
            f"{source} has no column of numbers to learn from: name columns with --features, or a "
            "column of text with --text."
        )
    ignored = tuple(name for name in table.names if name not in {*features, *special})
    return Schema(columns, features, ignored, columns.label_type)


def numeric_columns(table: Table, excluded: set[str | None], source: str) -> tuple[str, ...]:
    """Return the columns of numbers; warn of other columns, except the excluded ones."""
    features, unused = [], []
    for name, column in table.sample().items():
        values = [value for value in column if value is not None]
        texts = [value for value in values if not isinstance(value, int | float)]
        if name in excluded:
            continue
        if not values:
            unused.append(f"{name!r} (empty)")
        elif are_row_numbers(name, values):
            unused.append(f"{name!r} (row numbers)")
        elif 2 * len(texts) >= len(values):
            unused.append(f"{name!r} (for example {shown(texts[0])})")
        elif name == UNNAMED:
            raise StreamError(
                f"{source} has a column of numbers without a name (for example "
                f"{shown(values[0])}), expected a name for every column: name it in the file, or "
                "choose columns with --features."
            )
        else:
            features.append(name)
    if unused:
        notice(
            f"{source}: columns that are not numbers are not used: {listed(unused)}. Choose "
            "features with --features or a column of text with --text; --drop hides this warning."
        )
    return tuple(features)


def are_row_numbers(name: str, values: Sequence[Any]) -> bool:
    """Whether a column is the index of a data frame, by its name and its first values."""
    if name == ROW_NUMBERS:
        return True
    if name != UNNAMED and not name.startswith(UNNAMED_AGAIN):
        return False
    whole = (
        isinstance(each, int) or (isinstance(each, float) and each.is_integer()) for each in values
    )
    return all(whole) and min(values) >= 0 and len(set(values)) == len(values)


def refuse_missing(names: Sequence[str], table: Table, source: str) -> None:
    """Refuse a file in which columns are missing; suggest a similar name."""
    for name in names:
        if name not in table.names:
            folded = {each.casefold(): each for each in table.names}
            close = difflib.get_close_matches(name.casefold(), folded, 1)
            if close:
                raise StreamError(
                    f"{source} has no column {name!r}: did you mean {folded[close[0]]!r}?"
                )
            found = listed([shown(each) for each in table.names])
            raise StreamError(
                f"{source} has no column {name!r} (it has {found}): check the name, or the file."
            )
