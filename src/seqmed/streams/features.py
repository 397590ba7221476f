"""Rows to features: scaled numbers and words, as the first batch has frozen them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.preprocessing import normalize

from seqmed.arrays import Array, Points
from seqmed.streams.cells import plain
from seqmed.streams.columns import UNIT, VOCABULARY
from seqmed.streams.errors import StreamError
from seqmed.streams.schema import Schema

# A spread below this share of the mean, or this size, is rounding: the column is constant.
CONSTANT, SMALLEST_SPREAD = 1e-12, 1e-70


def freeze(schema: Schema, numbers: Array, texts: Sequence[Any]) -> Schema:
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
            words.fit(map(as_text, texts))
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
    words = counter.transform(map(as_text, texts))
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


def as_text(value: Any) -> str:
    """Return a value of a text column, whatever its type, as a text."""
    return plain(value) or ""
