"""Columns of text: tf-idf weights of hashed words and pairs of words. Signs are words, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from seqmed.numeric.expectations import expect, expect_shape

TFIDF, COUNTS = WEIGHTS = ("tfidf", "counts")
LARGEST_SIZE = 2**31 - 1
# Words of any length, and single signs such as ! and £, as a regular expression.
TOKENS = r"(?u)\w+|[^\w\s]"


@dataclass(frozen=True, eq=False)
class WordColumn:
    """A column of text.

    Parameters
    ----------
    name : the column.
    size : number of hashed features.
    n_rows : texts in the first batch.
    places : (m,) features that occur in the first batch, in increasing order; None for plain
        counts of words.
    frequencies : (m,) number of texts in which each of them occurs; None for plain counts.
    """

    name: str
    size: int
    n_rows: int
    places: NDArray[np.int32] | None
    frequencies: NDArray[np.int32] | None

    def validate(self) -> None:
        """Raise a ValueError if there are too many features, or not a frequency for each."""
        expect(1 <= self.size <= LARGEST_SIZE, f"1 to {LARGEST_SIZE} features")
        n_places = 0 if self.places is None else self.places.size
        expect_shape(self, (n_places,), "places", "frequencies")

    @classmethod
    def fit(cls, name: str, texts: Sequence[str], size: int, weights: str) -> Self:
        """Count the words of the first batch."""
        if weights == COUNTS:
            return cls(name, size, len(texts), None, None)
        counts = hashed_words(texts, size, pairs=True)
        places, frequencies = np.unique(counts.indices, return_counts=True)
        return cls(name, size, len(texts), places.astype(np.int32), frequencies.astype(np.int32))

    def encode(self, texts: Sequence[str]) -> sp.csr_array:
        """Return the features of some texts, (n, size), of length 1 unless they are counts.

        The weights are those of TfidfTransformer with sublinear_tf, fitted to the first batch.
        """
        if self.places is None or self.frequencies is None:
            return hashed_words(texts, self.size, pairs=False)
        rows = hashed_words(texts, self.size, pairs=True)
        if not rows.nnz:
            return rows
        place = np.searchsorted(self.places, rows.indices)
        place = np.minimum(place, max(self.places.size - 1, 0))
        found = np.zeros(rows.indices.size)
        if self.places.size:
            known = self.places[place] == rows.indices
            found[known] = self.frequencies[place[known]]
        rows.data = (1.0 + np.log(rows.data)) * (np.log((1 + self.n_rows) / (1 + found)) + 1.0)
        return sp.csr_array(normalize(rows, copy=False))

    @property
    def feature_names(self) -> list[str]:
        """The names of the features."""
        return [f"{self.name}_{place}" for place in range(self.size)]


def hashed_words(texts: Sequence[str], size: int, *, pairs: bool) -> sp.csr_array:
    """Return counts of words, and of pairs of neighbouring words, hashed to ``size`` columns."""
    if not texts:
        return sp.csr_array((0, size))
    vectorizer: Any = HashingVectorizer(
        n_features=size,
        token_pattern=TOKENS,
        ngram_range=(1, 2 if pairs else 1),
        alternate_sign=False,
        norm=None,
        dtype=np.float64,
    )
    return sp.csr_array(vectorizer.transform(texts))
