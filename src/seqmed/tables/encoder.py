"""TableEncoder: a transformer of raw tables to features."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from seqmed.estimators.bases import BaseEstimator, TransformerMixin
from seqmed.estimators.validation import LARGEST_FEATURE
from seqmed.numeric.arrays import Array, Points
from seqmed.numeric.execution import callers_level
from seqmed.numeric.words import in_words
from seqmed.tables import kinds
from seqmed.tables.cells import (
    COMMA,
    NOT_A_NUMBER,
    NOT_FINITE,
    POINT,
    THOUSANDS,
    TableError,
    usual_numbers,
)
from seqmed.tables.dates import NOT_A_DATE
from seqmed.tables.features import (
    BESIDE_TEXT,
    LARGEST_SIZE,
    TEXT_SIZE,
    TFIDF,
    WEIGHTS,
    Encoding,
)
from seqmed.tables.frames import as_array, as_table, is_array, named_columns
from seqmed.tables.kinds import Choices, ColumnKind, Fault, TableWarning, typed
from seqmed.tables.messages import listed, quoted

# Why a column is left out, in words.
REASONS = {
    "empty": "no cell has a value",
    "constant": "all cells are equal",
    "id": "a different value in every row",
    "index": "row numbers of a data frame",
    "nested": "lists or other nested values",
}
# Expected value and remedy of a bad cell.
REMEDIES = {
    NOT_A_NUMBER: "a number",
    NOT_FINITE: "a finite number of at most 1e70",
    NOT_A_DATE: "a date in the format of the first batch",
}
# Metadata of a table whose kinds are decided: the parameters that decided them, and the kinds; and
# of a table whose numbers are in the usual notation.
DECIDED, USUAL = b"seqmed.kinds", b"seqmed.numbers"


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode the columns of a raw table as features.

    The first batch decides the kind of every column and is measured; later tables are encoded in
    the same way. Columns are found by name, in any order, and additional columns are ignored.

    - Numbers are standardised by the median and a robust standard deviation, unless `scale` says
      otherwise, and clipped at a million standard deviations. Durations are seconds. A missing cell
      is replaced by the median. If the first batch has missing cells in a column, an indicator is
      added. If all numbers of a column have the same unit, as in "12 €" or "35 %", the unit is
      left out; a later cell with another unit is refused.
    - Categories are one-hot, with one feature for all other levels, such as those of less than one
      row in a hundred of the first batch. Categories with more than 50
      levels are hashed to 256 features.
    - Dates become a number and their positions in the day, the week and the year. If the rows are
      nearly in the order of the dates, the number is left out, because it would grow with the
      stream. Dates without a time zone are in UTC. Strings may be in ISO 8601 or in a format such
      as 31.12.2024, 12/31/2024 or 31-Dec-2024, with or without a time. If days and months cannot
      be told apart, 1/2/2024 is in January, and 1.2.2024 in February.
    - Texts become tf-idf weights of hashed words, signs (such as ! and £) and pairs of neighbours,
      scaled to length 1. The output is then sparse, and the other features of a row are scaled to
      a length of about 1.
    - Empty columns, constant columns, and columns with a different integer or string in every row
      (ids) are left out, with a warning. So are columns of lists and other nested values, and whole
      numbers in a column named "" or "Unnamed: 0", which are the row numbers that pandas writes.

    A cell means the same in every storage: 1, 1.0 and "1" are one cell, and so are True and "true".
    Only the kind of a column may depend on storage: categorical columns of a data frame are
    categories, whatever they hold.

    Parameters
    ----------
    kinds : dict of str to str or None, default=None
        Kinds of columns by name: "numeric", "categorical", "text", "date" or "drop". A date may
        have a format, such as "date:%d/%m/%Y". The kinds of all other columns are inferred.
    features : list of str or None, default=None
        The columns to use. None uses all columns.
    label : str or None, default=None
        The column of labels, which is never a feature.
    scale : bool or "text", default=True
        Whether numbers are standardised. "text" standardises them only if there is a column of
        text: it is for classifiers that scale dense rows themselves, such as `SeqGraphMED`, which
        measures the scales again as the stream goes on. Missing cells are always replaced.
    missing_values : list of str, default=()
        Further strings that mark a missing cell, besides "", "NA", "N/A", "n/a", "#N/A", "NaN",
        "nan", "NAN", "-nan", "-NaN", "null", "NULL", "None", "<NA>", "NaT", "?", "-" and ".". Those
        that are numbers or dates apply to typed columns as well.
    decimal : {".", ","}, default="."
        The decimal character of numbers in strings. It may be changed between two tables.
    thousands : {",", ".", " ", "'"} or None, default=None
        The character between groups of three digits of numbers in strings. It may be changed
        between two tables.
    text_size : int >= 1, default=262144
        Number of features of a column of text. Words are hashed to them: with fewer features, more
        words share one. Time and memory depend on the words that occur, not on this number.
    text_weights : {"tfidf", "counts"}, default="tfidf"
        Weights of words. "counts" are plain counts of words, which the kernels "tfidf" and "dcm"
        need.

    Attributes
    ----------
    encoding_ : Encoding
        Kinds and statistics of the columns.
    needed_ : tuple of str
        The columns that every table must have.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        All columns of the first batch, without the column of labels.
    n_features_in_ : int
        Number of these columns.

    See Also
    --------
    make_stream_pipeline : The encoder in front of a stream classifier.
    sklearn.compose.ColumnTransformer : Transformers for chosen columns.

    Notes
    -----
    The statistics are fixed by the first batch, because a classifier keeps rows of earlier batches.
    The first batch should have at least 1000 rows; unlabeled rows serve as well as labeled ones.

    Examples
    --------
    >>> from seqmed import TableEncoder
    >>> rows = [
    ...     {"weight": 70, "city": "Oslo"},
    ...     {"weight": None, "city": "Bergen"},
    ...     {"weight": 80, "city": "Oslo"},
    ... ]
    >>> encoder = TableEncoder().fit(rows)
    >>> encoder.get_feature_names_out().tolist()
    ['weight', 'weight_missing', 'city_Oslo', 'city_other']
    >>> encoder.transform([{"city": "Oslo", "weight": "75"}])
    array([[0., 0., 1., 0.]])
    """

    encoding_: Encoding

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kinds": [dict, None],
        "features": ["array-like", None],
        "label": [str, None],
        "scale": ["boolean", StrOptions({BESIDE_TEXT})],
        "missing_values": ["array-like"],
        "decimal": [StrOptions({POINT, COMMA})],
        "thousands": [StrOptions({*THOUSANDS}), None],
        "text_size": [Interval(Integral, 1, LARGEST_SIZE, closed="both")],
        "text_weights": [StrOptions(set(WEIGHTS))],
    }

    def __init__(
        self,
        kinds: Mapping[str, str] | None = None,
        *,
        features: Sequence[str] | None = None,
        label: str | None = None,
        scale: bool | str = True,
        missing_values: Sequence[str] = (),
        decimal: str = POINT,
        thousands: str | None = None,
        text_size: int = TEXT_SIZE,
        text_weights: str = TFIDF,
    ) -> None:
        self.kinds = kinds
        self.features = features
        self.label = label
        self.scale = scale
        self.missing_values = missing_values
        self.decimal = decimal
        self.thousands = thousands
        self.text_size = text_size
        self.text_weights = text_weights

    # -- learning ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the kinds of the columns, and measure them.

        Parameters
        ----------
        X : table of shape (n_samples, n_columns)
            The first batch: a data frame of pandas or polars, a table of pyarrow, a list of
            dictionaries, a dictionary of columns, or an array of numbers.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted encoder.
        """
        choices, table = self._choices(), self._usual(X)
        if table.num_columns and not table.num_rows:
            raise TableError("the first batch has no rows, expected at least one: pass some.")
        decided = (table.schema.metadata or {}).get(DECIDED, b"[null, []]")
        parameters, found = json.loads(decided)
        if parameters == repr(choices):
            columns = tuple(ColumnKind(**each) for each in found)
        else:
            columns = self._decided_kinds(table)
        batch, bad = typed(columns, choices.missing_values, table)
        refuse_bad(bad)
        fitted = Encoding.fit(columns, batch, choices)
        warn_of_unused(columns)
        self.encoding_ = fitted
        return self

    def _decided_kinds(self, X: Any) -> tuple[ColumnKind, ...]:
        """Return the kinds that `fit` would use, of a first batch that may have bad cells."""
        return kinds.column_kinds(self._usual(X), self._choices())

    @property
    def _reads_numbers(self) -> bool:
        """Whether numbers in strings are in another notation than the usual one."""
        return self.decimal != POINT or bool(self.thousands)

    def _usual(self, X: Any) -> pa.Table:
        """Return rows as a table whose strings have numbers in the usual notation."""
        table = as_table(X)
        metadata = table.schema.metadata or {}
        if not self._reads_numbers or USUAL in metadata:
            return table
        for place, name in enumerate(table.column_names):
            column = table.column(place)
            if types.is_string(column.type) or types.is_large_string(column.type):
                usual = usual_numbers(column.cast(pa.string()), self.decimal, self.thousands or "")
                table = table.set_column(place, name, usual)
        return table.replace_schema_metadata({**metadata, USUAL: b""})

    def _choices(self) -> Choices:
        """Return the valid parameters."""
        self._validate_params()
        chosen = {} if self.kinds is None else dict(self.kinds)
        for name, kind in chosen.items():
            if not isinstance(name, str) or kind not in kinds.CHOOSABLE:
                raise ValueError(
                    f"kinds has {name!r}: {kind!r}, expected a column name and one of "
                    f"{', '.join(kinds.CHOICES)}, or a date with its format, such as "
                    "'date:%d/%m/%Y': correct it."
                )
        for name in ("features", "missing_values"):
            value = getattr(self, name)
            if value is not None and not all(isinstance(each, str) for each in value):
                raise ValueError(f"{name}={value!r}, expected a list of strings: correct it.")
        if self.thousands == self.decimal:
            raise ValueError(
                f"decimal and thousands are both {self.decimal!r}, expected different characters: "
                "correct one of them."
            )
        features = None if self.features is None else tuple(map(str, self.features))
        twice = [name for name in features or () if chosen.get(name) == kinds.DROP]
        if twice:
            raise ValueError(
                f"column {twice[0]!r} is named twice, to be used and to be dropped: leave one out."
            )
        if self.label is not None and self.label in (*chosen, *(features or ())):
            raise ValueError(
                f"column {self.label!r} is the column of labels and cannot be a feature: leave it "
                "out of kinds and features."
            )
        return Choices(
            kinds=chosen,
            features=features,
            label=self.label,
            scale=self.scale if self.scale == BESIDE_TEXT else bool(self.scale),
            missing_values=tuple(map(str, self.missing_values)),
            text_size=int(self.text_size),
            text_weights=self.text_weights,
        )

    # -- rows ------------------------------------------------------------------------------------

    def transform(self, X: Any) -> Points:
        """Return the features of rows.

        Parameters
        ----------
        X : table of shape (n_samples, n_columns)
            Rows with the columns `needed_`, in any order; see `fit`. An array of numbers must have
            all columns of the first batch, or the columns `needed_`, in their order.

        Returns
        -------
        features : ndarray or CSR array of shape (n_samples, n_features)
            Sparse if there is a column of text.

        Raises
        ------
        TableError
            If a column is missing, or a cell cannot be encoded.
        """
        check_is_fitted(self)
        numbers = self._only_numbers(X)
        if numbers is not None:
            return self.encoding_.encode_numbers(numbers)
        table, bad = self._typed_rows(X)
        refuse_bad(bad)
        return self.encoding_.encode(table)

    def _only_numbers(self, X: Any) -> Array | None:
        """Return the used columns of an array of numbers, if they are valid numbers; else None.

        A table of pyarrow would take as long to make as wide rows to encode.
        """
        fitted = self.encoding_
        if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "iuf":
            return None
        if fitted.needed != fitted.numbers.names or fitted.missing_values:
            return None
        if self._column_names(X.shape[1]) != fitted.needed:
            X = X[:, [each.kind != kinds.DROP for each in fitted.columns]]
        numbers = np.asarray(X, dtype=np.float64)
        sizes = np.nanmax(np.abs(numbers), initial=0.0) if numbers.size else 0.0
        return numbers if sizes <= LARGEST_FEATURE else None

    def _column_names(self, width: int) -> tuple[str, ...]:
        """Return the names of the columns of an array."""
        names, needed = tuple(self.feature_names_in_), self.needed_
        if width not in (len(names), len(needed)):
            raise TableError(
                f"X has {width} features, but TableEncoder is expecting {len(names)} features as "
                f"input, or the {len(needed)} that are used: {listed(list(map(repr, needed)))}."
            )
        return names if width == len(names) else needed

    def _typed_rows(
        self, X: Any, columns: Sequence[ColumnKind] | None = None
    ) -> tuple[pa.Table, dict[int, Fault]]:
        """Return the used columns with their types, and the first bad cell of each bad row.

        `transform` encodes this table as X, but faster. If X has rows of the first batch,
        ``columns`` are from `_decided_kinds`, and `fit` does not infer the kinds of this table
        again.
        """
        if columns is not None:
            choices = self._choices()
            usual = self._usual(X)
            table, bad = typed(columns, choices.missing_values, usual)
            decided = json.dumps([repr(choices), [asdict(each) for each in columns]])
            metadata = usual.schema.metadata or {}
            return table.replace_schema_metadata({**metadata, DECIDED: decided}), bad
        check_is_fitted(self)
        if is_array(X):
            X = as_array(X)
            X = dict(zip(self._column_names(X.shape[1]), X.T, strict=True))
        fitted, usual = self.encoding_, self._usual(X)
        table, bad = typed(fitted.columns, fitted.missing_values, usual)
        return table.replace_schema_metadata(usual.schema.metadata), bad

    def _warn_of_new_columns(self, X: Any) -> None:
        """Warn of columns that the first batch did not have."""
        if is_array(X):
            return
        known = {*self.feature_names_in_.tolist(), self.label}
        new = [str(name) for name in named_columns(X)[0] if str(name) not in known]
        if new:
            warnings.warn(
                f"columns that were not in the first batch are ignored: "
                f"{listed(list(map(repr, new)))}. To use them, start a new model.",
                TableWarning,
                stacklevel=callers_level(),
            )

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the features.

        Parameters
        ----------
        input_features : None
            Ignored: the columns have names.

        Returns
        -------
        names : ndarray of shape (n_features,)
            Names of columns, with the level, the cycle or the number of a hashed feature.
        """
        check_is_fitted(self)
        return np.array(self.encoding_.feature_names, dtype=object)

    @property
    def needed_(self) -> tuple[str, ...]:
        """The columns that every table must have."""
        return self.encoding_.needed

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns that were left out because they are an id, or the row numbers of a frame."""
        found = self.encoding_.columns
        return tuple(each.name for each in found if each.reason in ("id", "index"))

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """All columns of the first batch, without the column of labels."""
        return np.array([each.name for each in self.encoding_.columns], dtype=object)

    @property
    def n_features_in_(self) -> int:
        """The number of columns of the first batch, without the column of labels."""
        return len(self.encoding_.columns)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.string = tags.input_tags.allow_nan = True
        return tags


# -- warnings and errors ---------------------------------------------------------------------------


def warn_of_unused(columns: Sequence[ColumnKind]) -> None:
    """Warn of columns that are left out, except by choice."""
    unused = [each for each in columns if each.kind == kinds.DROP and each.reason in REASONS]
    if unused:
        texts = listed([f"{each.name!r} ({REASONS[each.reason]})" for each in unused])
        name = unused[0].name
        kind = in_words(f"--categorical {quoted(name)}", f"kinds={{{name!r}: 'categorical'}}")
        drop = in_words(f"--drop {quoted(name)}", f"kinds={{{name!r}: 'drop'}}")
        warnings.warn(
            f"columns that are not used: {texts}. To use one, choose its kind, for example {kind}; "
            f"to hide this warning, drop it, for example {drop}.",
            TableWarning,
            stacklevel=3,
        )


def refuse_bad(bad: Mapping[int, Fault]) -> None:
    """Refuse a table with a bad cell."""
    if bad:
        row = min(bad)
        reason, column, got, _ = bad[row]
        more = f" ({len(bad)} rows have such cells)" if len(bad) > 1 else ""
        raise TableError(
            f"row {row}, column {column!r}: {got} is {reason}{more}, expected {REMEDIES[reason]}: "
            f"correct it, add it to missing_values, or choose another kind for the column."
        )
