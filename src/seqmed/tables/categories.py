"""Columns of categories: one-hot, or hashed if there are many levels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction import FeatureHasher

from seqmed.numeric.arrays import Array
from seqmed.numeric.expectations import expect
from seqmed.tables.cells import BOOLEANS, CODE, Levels

# A level has its own column if at least this fraction of the first batch has it, and two rows.
SMALLEST_SHARE, FEWEST = 0.002, 2
# Number of columns of a hashed column.
HASHED_SIZE = 256


@dataclass(frozen=True)
class OneHotColumn:
    """A column of few levels: one feature for each of them, and one for all others.

    Parameters
    ----------
    name : the column.
    levels : the levels with their own feature, sorted.
    missing : whether missing cells have their own feature; otherwise they belong to the others.
    """

    name: str
    levels: tuple[str, ...]
    missing: bool

    @classmethod
    def fit(cls, name: str, found: Levels) -> Self:
        """Choose the levels of the first batch."""
        counts = found.counts
        fewest = min(max(FEWEST, SMALLEST_SHARE * found.codes.size), counts.max(initial=1))
        kept = (text for text, count in zip(found.texts, counts, strict=True) if count >= fewest)
        return cls(name, tuple(sorted(kept)), bool((found.codes < 0).any()))

    def encode(self, found: Levels, features: Array) -> None:
        """Write the features of some cells into zeros, (n, width)."""
        places = {text: place for place, text in enumerate(self.levels)}
        if places.keys() <= BOOLEANS.keys():  # stored as numbers, 1 is true and 0 is false
            places |= {str(int(BOOLEANS[text])): place for text, place in places.items()}
        other = len(self.levels) + self.missing
        absent = len(self.levels)  # the feature of missing cells, or of the others
        own = np.array([*(places.get(text, other) for text in found.texts), absent], dtype=np.intp)
        features[np.arange(found.codes.size), own[found.codes]] = 1.0

    @property
    def has_codes(self) -> bool:
        """Whether a level is a number with leading zeros, such as 01234."""
        return any(re.match(CODE, level) for level in self.levels)

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.levels) + self.missing + 1

    @property
    def feature_names(self) -> list[str]:
        """The names of the features."""
        more = ["missing", "other"] if self.missing else ["other"]
        return [f"{self.name}_{level}" for level in (*self.levels, *more)]


@dataclass(frozen=True)
class HashedColumn:
    """A column of many levels, each hashed to one of ``size`` features and a sign."""

    name: str
    size: int = HASHED_SIZE

    def validate(self) -> None:
        """Raise a ValueError if the features would take too much memory."""
        expect(self.size == HASHED_SIZE, f"{HASHED_SIZE} features")

    def encode(self, found: Levels, features: Array) -> None:
        """Write the features of some cells into zeros, (n, width)."""
        if found.texts:
            hasher = FeatureHasher(self.size, input_type="string")
            hashed = sp.csr_array(hasher.transform([[text] for text in found.texts]))
            rows = np.flatnonzero(found.codes >= 0)  # zeros for missing cells
            codes = found.codes[rows]
            features[rows, hashed.indices[codes]] = hashed.data[codes]

    @property
    def width(self) -> int:
        """The number of features."""
        return self.size

    @property
    def feature_names(self) -> list[str]:
        """The names of the features."""
        return [f"{self.name}_{place}" for place in range(self.size)]
