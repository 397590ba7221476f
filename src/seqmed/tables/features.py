"""Columns become features: a class for every kind, and the encoding of a whole table.

`fit` measures cells of the first batch, and `encode` returns the features of cells, or writes them
into zeros. `feature_names` are their names. The cells have the types of `kinds.typed`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import normalize

from seqmed.mixture.column_scales import column_deviations
from seqmed.numeric.arrays import Array, Mask, Points
from seqmed.numeric.expectations import expect, expect_shape
from seqmed.tables import cells, kinds
from seqmed.tables.cells import BOOLEANS, CODE, TableError
from seqmed.tables.kinds import Choices, ColumnKind

# Standardised numbers are clipped at this size: a wrong unit in one cell is no reason to overflow.
LARGEST_SCORE = 1e6
DAY = 86_400.0
# Length of each cycle in seconds. The week begins on a Monday: 1 January 1970 was a Thursday.
CYCLES = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}
# Dates in the order of the rows (rank correlation at least this, in at least this many rows) are
# the clock of the stream.
SORTED, ENOUGH_ROWS = 0.95, 30
# A level has its own column if at least this fraction of the first batch has it, and two rows.
SMALLEST_SHARE, FEWEST = 0.01, 2
# The parameter `scale` with which numbers are standardised only if there is a column of text.
BESIDE_TEXT = "text"
# Number of features of categories with many levels; that of texts, and the largest one.
HASHED_SIZE, TEXT_SIZE, LARGEST_SIZE = 256, 2**18, 2**31 - 1
TFIDF, COUNTS = WEIGHTS = ("tfidf", "counts")
# Words of any length, and single signs such as ! and £, as a regular expression.
TOKENS = r"(?u)\w+|[^\w\s]"


@dataclass(frozen=True, eq=False)
class NumberColumns:
    """All p columns of numbers, with statistics of the first batch."""

    names: tuple[str, ...]
    medians: Array  # (p,) replace missing cells
    scales: Array  # (p,) robust standard deviations, or 1
    flagged: Mask  # (p,) mask of columns with an additional indicator of missing cells
    centred: bool  # whether medians are subtracted, and differences divided by scales

    def validate(self) -> None:
        """Raise a ValueError if numbers cannot be scaled."""
        expect_shape(self, (len(self.names),), "medians", "scales", "flagged")
        expect((self.scales > 0).all(), "scales > 0")

    @classmethod
    def fit(cls, names: tuple[str, ...], numbers: Array, *, scale: bool) -> Self:
        """Measure the columns of the first batch, (n, p) with NaN for missing cells.

        Scales are root mean squares of the deviations from the median, outliers clipped. The
        interquartile range of RobustScaler is 0 if more than half of the cells are equal.
        """
        absent = np.isnan(numbers)
        if not names:
            return cls(names, np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool), scale)
        imputer = SimpleImputer(strategy="median", keep_empty_features=True).fit(numbers)
        medians = np.asarray(imputer.statistics_, dtype=np.float64)
        sizes, _ = column_deviations(np.where(absent, medians, numbers))
        scales = np.where(sizes > 0, sizes, 1.0)
        return cls(names, medians, scales, np.asarray(absent.any(axis=0)), scale)

    def encode(self, numbers: Array, features: Array) -> None:
        """Write the features of numbers (n, p), then the indicators, (n, p + flagged)."""
        p, absent = len(self.names), np.isnan(numbers)
        values = features[:, :p]
        values[:] = numbers
        if absent.any():
            np.copyto(values, self.medians, where=absent)
        if self.centred:
            values -= self.medians
            with np.errstate(over="ignore"):
                values /= self.scales
            np.clip(values, -LARGEST_SCORE, LARGEST_SCORE, out=values)
        elif self.names:
            largest = LARGEST_SCORE * self.scales
            np.clip(values, self.medians - largest, self.medians + largest, out=values)
        features[:, p:] = absent[:, self.flagged]

    @property
    def feature_names(self) -> list[str]:
        flagged = [name for name, flag in zip(self.names, self.flagged, strict=True) if flag]
        return [*self.names, *(f"{name}_missing" for name in flagged)]


@dataclass(frozen=True)
class DateColumn:
    """A column of dates: a number, and positions in the cycles that the first batch covers.

    If the rows are in the order of the dates, the number would grow with the stream, away from all
    earlier rows, and only the cycles are features.
    """

    name: str
    form: str  # of strings, as in strptime; empty for ISO 8601
    origin: float  # median of the first batch, in seconds since 1970
    scale: float  # robust standard deviation of the first batch, in seconds
    clock: bool  # whether the rows are in the order of the dates
    cycles: tuple[str, ...]
    flagged: bool  # whether there is an additional indicator of missing cells

    def validate(self) -> None:
        """Raise a ValueError if dates cannot be scaled, or a cycle is unknown."""
        expect(abs(self.origin) < np.inf and 0 < self.scale < np.inf, "scale > 0")
        expect({*self.cycles} <= {*CYCLES}, "known cycles")

    @classmethod
    def fit(cls, kind: ColumnKind, column: Any) -> Self:
        """Measure a column of the first batch."""
        times = cells.seconds(column)
        known = times[~np.isnan(times)]
        known = known if known.size else np.zeros(1)
        size = float(column_deviations(known[:, None])[0][0])
        covered = {
            "day": np.floor(known % DAY / 3600),
            "week": np.floor(known / DAY) % 7,
            "year": np.floor(known % CYCLES["year"] / (30 * DAY)),
        }
        cycles = tuple(cycle for cycle in CYCLES if np.unique(covered[cycle]).size > 1)
        clock = False
        if known.size >= ENOUGH_ROWS and np.ptp(known) > 0:
            correlation = np.corrcoef(rankdata(known), np.arange(known.size))[0, 1]
            clock = bool(abs(correlation) >= SORTED)
        flagged, origin = known.size < times.size, float(np.median(known))
        return cls(kind.name, kind.form, origin, size or 1.0, clock, cycles, flagged)

    def encode(self, column: Any, missing: tuple[str, ...], features: Array) -> None:
        """Write the features of some cells; zeros for missing cells."""
        times = cells.seconds(column)
        absent = np.isnan(times)
        known = np.where(absent, self.origin, times)
        found = [] if self.clock else [(known - self.origin) / self.scale]
        for cycle in self.cycles:
            angles = 2 * np.pi * (known % CYCLES[cycle]) / CYCLES[cycle]
            found += [np.where(absent, 0.0, wave(angles)) for wave in (np.sin, np.cos)]
        if self.flagged:
            found.append(absent)
        for place, values in enumerate(found):
            features[:, place] = values

    @property
    def feature_names(self) -> list[str]:
        waves = [f"{self.name}_{cycle}_{wave}" for cycle in self.cycles for wave in ("sin", "cos")]
        number = [] if self.clock else [self.name]
        return [*number, *waves, *([f"{self.name}_missing"] if self.flagged else [])]


@dataclass(frozen=True)
class OneHotColumn:
    """A column of few levels: one feature for each of them, and one for all others."""

    name: str
    levels: tuple[str, ...]  # those with a feature of their own, sorted
    missing: bool  # whether missing cells have their own feature, or that of the others

    @classmethod
    def fit(cls, kind: ColumnKind, column: Any, missing: tuple[str, ...]) -> Self:
        """Choose the levels of the first batch."""
        found = cells.levels(column, missing)
        counts = found.counts
        fewest = min(max(FEWEST, SMALLEST_SHARE * found.codes.size), counts.max(initial=1))
        kept = (text for text, count in zip(found.texts, counts, strict=True) if count >= fewest)
        return cls(kind.name, tuple(sorted(kept)), bool((found.codes < 0).any()))

    def encode(self, column: Any, missing: tuple[str, ...], features: Array) -> None:
        """Write the features of some cells.

        Codes such as 01234 that are stored as numbers, which have lost leading zeros, are refused.
        """
        if cells.is_number_type(column.type) and any(re.match(CODE, each) for each in self.levels):
            raise TableError(
                f"column {self.name!r} holds {column.type}, expected texts such as "
                f"{self.levels[0]!r}: read it as text, for example with dtype=str in pandas."
            )
        found = cells.levels(column, missing)
        places = {text: place for place, text in enumerate(self.levels)}
        if places.keys() <= BOOLEANS.keys():  # stored as numbers, 1 is true and 0 is false
            places |= {str(int(BOOLEANS[text])): place for text, place in places.items()}
        other = len(self.levels) + self.missing
        absent = len(self.levels)  # the feature of missing cells, or of the others
        own = np.array([*(places.get(text, other) for text in found.texts), absent], dtype=np.intp)
        features[np.arange(found.codes.size), own[found.codes]] = 1.0

    @property
    def feature_names(self) -> list[str]:
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

    def encode(self, column: Any, missing: tuple[str, ...], features: Array) -> None:
        """Write the features of some cells; zeros for missing cells."""
        found = cells.levels(column, missing)
        if found.texts:
            hasher = FeatureHasher(self.size, input_type="string")
            hashed = sp.csr_array(hasher.transform([[text] for text in found.texts]))
            rows = np.flatnonzero(found.codes >= 0)
            codes = found.codes[rows]
            features[rows, hashed.indices[codes]] = hashed.data[codes]

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name}_{place}" for place in range(self.size)]


@dataclass(frozen=True, eq=False)
class WordColumn:
    """A column of text: weights of hashed words and pairs of words. Signs are words, too."""

    name: str
    size: int  # number of hashed features
    n_rows: int  # texts in the first batch
    places: NDArray[np.int32] | None  # (m,) features in the first batch, sorted; None for counts
    frequencies: NDArray[np.int32] | None  # (m,) number of texts with each; None for counts

    def validate(self) -> None:
        """Raise a ValueError if there are too many features, or not a frequency for each."""
        expect(1 <= self.size <= LARGEST_SIZE, f"1 to {LARGEST_SIZE} features")
        n_places = 0 if self.places is None else self.places.size
        expect_shape(self, (n_places,), "places", "frequencies")

    @classmethod
    def fit(
        cls, kind: ColumnKind, column: Any, missing: tuple[str, ...], *, size: int, weights: str
    ) -> Self:
        """Count the words of the first batch."""
        name, texts = kind.name, cells.strings(column, missing)
        if weights == COUNTS:
            return cls(name, size, len(texts), None, None)
        counts = hashed_words(texts, size, pairs=True)
        places, frequencies = np.unique(counts.indices, return_counts=True)
        return cls(name, size, len(texts), places.astype(np.int32), frequencies.astype(np.int32))

    def encode(self, column: Any, missing: tuple[str, ...]) -> sp.csr_array:
        """Return the features of some texts, (n, size), of length 1 unless they are counts.

        The weights are those of TfidfTransformer with sublinear_tf, fitted to the first batch.
        """
        texts = cells.strings(column, missing)
        if self.places is None or self.frequencies is None:
            return hashed_words(texts, self.size, pairs=False)
        rows = hashed_words(texts, self.size, pairs=True)
        if not rows.nnz:
            return rows
        place = np.searchsorted(self.places, rows.indices)
        known = np.append(self.places, -1)[place] == rows.indices
        found = np.where(known, np.append(self.frequencies, 0)[place], 0)
        rows.data = (1.0 + np.log(rows.data)) * (np.log((1 + self.n_rows) / (1 + found)) + 1.0)
        return sp.csr_array(normalize(rows, copy=False))

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name}_{place}" for place in range(self.size)]


def hashed_words(texts: Sequence[str], size: int, *, pairs: bool) -> sp.csr_array:
    """Return counts of words, and of pairs of neighbouring words, hashed to ``size`` columns."""
    if not texts:
        return sp.csr_array((0, size))
    return sp.csr_array(word_counter(size, pairs=pairs).transform(texts))


def word_counter(size: int, *, pairs: bool) -> Any:
    """Return a transformer that counts hashed words, and pairs of neighbouring words."""
    return HashingVectorizer(
        n_features=size,
        token_pattern=TOKENS,
        ngram_range=(1, 2 if pairs else 1),
        alternate_sign=False,
        norm=None,
        dtype=np.float64,
    )


def word_places(text: str, column: WordColumn) -> dict[int, str]:
    """Return the words and pairs of words of a text by their features."""
    words = word_counter(column.size, pairs=column.places is not None).build_analyzer()(text)
    if not words:
        return {}
    hasher = FeatureHasher(column.size, input_type="string", alternate_sign=False)
    places = hasher.transform([[word] for word in words]).indices
    return dict(zip(places.tolist(), words, strict=True))


# -- all columns -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Encoding:
    """The encoding of a table, fixed by the first batch: the kinds of columns and their features.

    All features except words have the factor ``weight``. If there are words, a row without them has
    a length of about 1, as the words of a text have.
    """

    columns: tuple[ColumnKind, ...]
    missing_values: tuple[str, ...]
    numbers: NumberColumns
    dates: tuple[DateColumn, ...]
    one_hot: tuple[OneHotColumn, ...]
    hashed: tuple[HashedColumn, ...]
    words: tuple[WordColumn, ...]
    weight: float

    @classmethod
    def fit(cls, columns: tuple[ColumnKind, ...], table: pa.Table, choices: Choices) -> Self:
        """Return the encoding of a stream whose first batch is a table from `kinds.typed`."""
        missing, weights = choices.missing_values, choices.text_weights

        def of_kind(kind: str) -> list[tuple[ColumnKind, Any]]:
            return [(each, table.column(each.name)) for each in columns if each.kind == kind]

        names = tuple(each.name for each, _ in of_kind(kinds.NUMERIC))
        scale = choices.scale
        if scale == BESIDE_TEXT:
            scale = any(each.kind == kinds.TEXT for each in columns)
        return cls(
            columns=columns,
            missing_values=missing,
            numbers=NumberColumns.fit(names, number_matrix(table, names), scale=scale),
            dates=tuple(DateColumn.fit(*each) for each in of_kind(kinds.DATE)),
            one_hot=tuple(OneHotColumn.fit(*each, missing) for each in of_kind(kinds.CATEGORICAL)),
            hashed=tuple(HashedColumn(each.name) for each, _ in of_kind(kinds.HASHED)),
            words=tuple(
                WordColumn.fit(*each, missing, size=choices.text_size, weights=weights)
                for each in of_kind(kinds.TEXT)
            ),
            weight=weight_beside_words(columns, weights),
        )

    def encode(self, table: pa.Table) -> Points:
        """Return the features of a table from `kinds.typed`: an array; a CSR array with words."""
        features = self.encode_numbers(number_matrix(table, self.numbers.names))
        begin = len(self.numbers.feature_names)
        for part in self.dense[1:]:
            end = begin + len(part.feature_names)
            column = table.column(part.name)
            part.encode(column, self.missing_values, features[:, begin:end])
            begin = end
        if not self.words:
            return features
        words = [each.encode(table.column(each.name), self.missing_values) for each in self.words]
        parts = [sp.csr_array(features * self.weight)] if features.shape[1] else []
        return sp.csr_array(sp.hstack([*parts, *words], format="csr"))

    def encode_numbers(self, numbers: Array) -> Array:
        """Return features (n, n_dense) with those of numbers (n, p); all others are 0."""
        features = np.zeros((numbers.shape[0], self.n_dense))
        self.numbers.encode(numbers, features[:, : len(self.numbers.feature_names)])
        return features

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that every table must have, in the order of the first batch."""
        return tuple(each.name for each in self.columns if each.kind != kinds.DROP)

    @property
    def feature_names(self) -> list[str]:
        """The names of the features."""
        return [name for each in (*self.dense, *self.words) for name in each.feature_names]

    @property
    def dense(self) -> list[Any]:
        """The encoded columns except words, in the order of their features."""
        return [self.numbers, *self.dates, *self.one_hot, *self.hashed]

    @property
    def n_dense(self) -> int:
        """The number of features except words."""
        return sum(len(each.feature_names) for each in self.dense)

    @property
    def n_features(self) -> int:
        """The number of features."""
        return self.n_dense + sum(each.size for each in self.words)


def weight_beside_words(columns: Sequence[ColumnKind], text_weights: str) -> float:
    """Return the factor of all features except words: a length of about 1 if there are words."""
    found = [each.kind for each in columns if each.kind != kinds.DROP]
    others = sum(kind != kinds.TEXT for kind in found)
    combined = 0 < others < len(found) and text_weights != COUNTS
    return float(others**-0.5) if combined else 1.0


def number_matrix(table: pa.Table, names: Sequence[str]) -> Array:
    """Return columns of floats, (n, p), NaN for missing cells."""
    matrix = np.empty((table.num_rows, len(names)))
    for place, name in enumerate(names):
        matrix[:, place] = cells.floats(table.column(name))
    return matrix
