"""Features of rows: scaled numbers and words, with the statistics of the first batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.preprocessing import normalize

from seqmed.arrays import Array, Points
from seqmed.streams.cells import cell_text
from seqmed.streams.columns import UNIT, VOCABULARY
from seqmed.streams.errors import StreamError, listed
from seqmed.streams.schema import Schema

# A spread below this share of the mean, or this size, is rounding: the column is constant.
CONSTANT, SMALLEST_SPREAD = 1e-12, 1e-70
MISSING_TYPES = ("NAType", "NaTType")  # of pandas, which need not be installed


def freeze_schema(schema: Schema, numbers: Array, texts: Sequence[Any]) -> Schema:
    """Return the schema with what its first batch decides.

    Parameters
    ----------
    schema : not frozen yet.
    numbers : (n, p) features of the first batch.
    texts : (n,) its texts, of no meaning without a text column.
    """
    columns = schema.columns
    if columns.scale and schema.features:
        if numbers.shape[0] < 2:
            raise StreamError(
                "--scale got a first batch of one row, expected at least two to measure a spread: "
                "make batches larger."
            )
        means, spreads = numbers.mean(axis=0), numbers.std(axis=0)
        constant = spreads <= np.maximum(CONSTANT * np.abs(means), SMALLEST_SPREAD)
        schema = replace(schema, means=means, spreads=np.where(constant, 1.0, spreads))
    if columns.text is not None and columns.text_method == VOCABULARY:
        words = CountVectorizer(max_features=columns.text_size)
        try:
            words.fit(map(word_text, texts))
        except ValueError:
            raise StreamError(
                f"column {columns.text!r} holds no words in the first batch of {len(texts)} rows, "
                "expected some: make batches larger, or use --text-method hashing."
            ) from None
        schema = replace(schema, vocabulary=tuple(words.get_feature_names_out().tolist()))
    return schema


def encode(schema: Schema, numbers: Array, texts: Sequence[Any]) -> Points:
    """Return rows as features: an array, or a CSR array with the words after the numbers."""
    if schema.means is not None and schema.spreads is not None:
        numbers = (numbers - schema.means) / schema.spreads
    columns = schema.columns
    if columns.text is None:
        return numbers
    counter = word_counter(columns.text_size, schema.vocabulary)
    words = counter.transform(map(word_text, texts))
    if columns.text_weights == UNIT:
        words = normalize(words, copy=False)
    parts = [sp.csr_array(numbers), words] if schema.features else [words]
    return sp.csr_array(sp.hstack(parts, format="csr"))


@lru_cache(maxsize=4)
def word_counter(size: int, vocabulary: tuple[str, ...] | None) -> Any:
    """Return what counts words: those of a vocabulary, or all in ``size`` places."""
    if vocabulary is not None:
        return CountVectorizer(vocabulary=vocabulary, dtype=np.float64)
    return HashingVectorizer(n_features=size, alternate_sign=False, norm=None, dtype=np.float64)


def word_text(value: Any) -> str:
    """Return a value of a text column, whatever its type, as a text."""
    return cell_text(value) or ""


class ColumnEncoder(TransformerMixin, BaseEstimator):
    """Chooses the columns of a model by name, scales them, and counts words, as `seqmed` does.

    Parameters
    ----------
    schema : of the rows that the model has learned. Nothing is fitted.
    """

    def __init__(self, schema: Schema):
        self.schema = schema

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return f"ColumnEncoder({listed(self.feature_names_in_.tolist())})"

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def feature_names_in_(self) -> Any:
        """The columns that are used, the one of words last."""
        text = self.schema.columns.text
        names = [*self.schema.features, *([] if text is None else [text])]
        return np.array(names, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """The number of columns that are used."""
        return self.feature_names_in_.size

    def fit(self, X: Any, y: Any = None) -> ColumnEncoder:
        """Return the encoder as it is."""
        return self

    def transform(self, X: Any) -> Points:
        """Return rows as features.

        Parameters
        ----------
        X : a data frame or a dictionary of columns, in any order, with others among them; or,
            without a column of words, an array of the columns in `feature_names_in_`.
        """
        text, names = self.schema.columns.text, self.feature_names_in_.tolist()
        found = X if isinstance(X, Mapping) else getattr(X, "columns", None)
        if found is None:
            return encode(self.schema, self._as_array(X, names), ())
        missing = [repr(name) for name in names if name not in found]
        if missing:
            raise StreamError(f"X has no column {listed(missing)}: check the names of its columns.")
        columns = [np.asarray(X[name], dtype=np.float64) for name in self.schema.features]
        words = [] if text is None else [known(value) for value in list(X[text])]
        numbers = np.column_stack(columns) if columns else np.zeros((len(words), 0))
        return encode(self.schema, numbers, words)

    def _as_array(self, X: Any, names: list[str]) -> Array:
        """Return the rows of an array of numbers; refuse what cannot hold the columns needed."""
        numbers = None if self.schema.columns.text else np.asarray(X, dtype=np.float64)
        if numbers is None or numbers.ndim != 2 or numbers.shape[1] != len(names):
            raise StreamError(
                f"X has the shape {np.shape(X)}, expected a data frame or a dictionary with the "
                f"columns {listed(names)}" + ("." if numbers is None else ", or an array of them.")
            )
        return numbers


def known(value: Any) -> Any:
    """Return a value, None for one that pandas has marked as missing."""
    return None if type(value).__name__ in MISSING_TYPES else value
