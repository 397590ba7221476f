"""The columns of a table as the features that a model has learned from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from seqmed.arrays import Array, Points
from seqmed.streams.errors import StreamError, listed
from seqmed.streams.features import encode
from seqmed.streams.schema import Schema

MISSING_TYPES = ("NAType", "NaTType")  # of pandas, which need not be installed


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
