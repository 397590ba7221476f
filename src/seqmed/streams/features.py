"""Features of rows: standardised numbers and word counts."""

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
from seqmed.streams.errors import StreamError, listed
from seqmed.streams.schema import UNIT, VOCABULARY, Schema
from seqmed.streams.values import cell_text

# A column is constant if its standard deviation is below this fraction of its mean, or below this
# number.
CONSTANT, SMALLEST_DEVIATION = 1e-12, 1e-70
MISSING_TYPES = ("NAType", "NaTType")  # of pandas, which need not be installed


def freeze_schema(schema: Schema, numbers: Array, texts: Sequence[Any]) -> Schema:
    """Return the schema with the means, standard deviations and vocabulary of the first batch."""
    columns = schema.columns
    if columns.scale and schema.features:
        if numbers.shape[0] < 2:
            raise StreamError(
                "--scale got a first batch of one row, expected at least two to measure a standard "
                "deviation: make batches larger."
            )
        means, deviations = numbers.mean(axis=0), numbers.std(axis=0)
        constant = deviations <= np.maximum(CONSTANT * np.abs(means), SMALLEST_DEVIATION)
        schema = replace(schema, means=means, deviations=np.where(constant, 1.0, deviations))
    if columns.text is not None and columns.text_method == VOCABULARY:
        words = CountVectorizer(max_features=columns.text_size)
        try:
            words.fit([cell_text(text) or "" for text in texts])
        except ValueError:
            raise StreamError(
                f"column {columns.text!r} holds no words in the first batch of {len(texts)} rows, "
                "expected some: make batches larger, or use --text-method hashing."
            ) from None
        schema = replace(schema, vocabulary=tuple(words.get_feature_names_out().tolist()))
    return schema


def encode(schema: Schema, numbers: Array, texts: Sequence[Any]) -> Points:
    """Return rows as features: an array, or a CSR array with word counts after the numbers."""
    if schema.means is not None and schema.deviations is not None:
        numbers = (numbers - schema.means) / schema.deviations
    columns = schema.columns
    if columns.text is None:
        return numbers
    counter = word_counter(columns.text_size, schema.vocabulary)
    words = counter.transform([cell_text(text) or "" for text in texts])
    if columns.text_weights == UNIT:
        words = normalize(words, copy=False)
    parts = [sp.csr_array(numbers), words] if schema.features else [words]
    return sp.csr_array(sp.hstack(parts, format="csr"))


@lru_cache(maxsize=4)
def word_counter(size: int, vocabulary: tuple[str, ...] | None) -> Any:
    """Return a counter of the words in a vocabulary, or of all words in hashed columns."""
    if vocabulary is not None:
        return CountVectorizer(vocabulary=vocabulary, dtype=np.float64)
    return HashingVectorizer(n_features=size, alternate_sign=False, norm=None, dtype=np.float64)


class ColumnEncoder(TransformerMixin, BaseEstimator):
    """Transformer of tables to features: chooses columns by name, scales them and counts words.

    Parameters
    ----------
    schema : the columns of the model. Nothing is fitted.
    """

    saving_remedy = (
        "Update the model file with seqmed learn, or save the step 'model' of the pipeline alone."
    )

    def __init__(self, schema: Schema):
        self.schema = schema

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return f"ColumnEncoder({listed(self.feature_names_in_.tolist())})"

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def feature_names_in_(self) -> Any:
        """The columns that are used, the text column last."""
        return np.array(self.schema.needed, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """The number of columns that are used."""
        return len(self.schema.needed)

    def fit(self, X: Any, y: Any = None) -> ColumnEncoder:
        """Return the encoder unchanged."""
        return self

    def transform(self, X: Any) -> Points:
        """Return rows as features.

        Parameters
        ----------
        X : a data frame or a dictionary with the columns in `feature_names_in_`, in any order; or,
            without a text column, an array of these columns.
        """
        text, names = self.schema.columns.text, self.schema.needed
        found = X if isinstance(X, Mapping) else getattr(X, "columns", None)
        if found is None:
            return encode(self.schema, self._as_array(X, names), ())
        missing = [repr(name) for name in names if name not in found]
        if missing:
            raise StreamError(f"X has no column {listed(missing)}: check the names of its columns.")
        columns = [np.asarray(X[name], dtype=np.float64) for name in self.schema.features]
        words = [] if text is None else [present(value) for value in list(X[text])]
        numbers = np.column_stack(columns) if columns else np.zeros((len(words), 0))
        return encode(self.schema, numbers, words)

    def _as_array(self, X: Any, names: list[str]) -> Array:
        """Return an array of numbers; refuse other shapes."""
        numbers = None if self.schema.columns.text else np.asarray(X, dtype=np.float64)
        if numbers is None or numbers.ndim != 2 or numbers.shape[1] != len(names):
            raise StreamError(
                f"X has the shape {np.shape(X)}, expected a data frame or a dictionary with the "
                f"columns {listed(names)}" + ("." if numbers is None else ", or an array of them.")
            )
        return numbers


def present(value: Any) -> Any:
    """Return a value, None for a missing value of pandas."""
    return None if type(value).__name__ in MISSING_TYPES else value
