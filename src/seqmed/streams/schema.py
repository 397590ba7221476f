"""Schema of a stream: fixed by its first batch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from seqmed.arrays import Array
from seqmed.streams.columns import VOCABULARY, Columns, refuse_missing
from seqmed.streams.errors import StreamError, read_fields, read_names, refuse_stored, shown
from seqmed.streams.label_types import LABEL_TYPES
from seqmed.streams.tables import Table


@dataclass(frozen=True, eq=False)
class Schema:
    """What a stream of rows is made of, the same from the first row to the last.

    Parameters
    ----------
    columns : the user's choices.
    features : the columns of numbers, in the order of the first file.
    ignored : columns of the first file that are not used.
    label_type : "integer", "boolean" or "string"; None while no label has come.
    means, spreads : (p,) of the features in the first batch; None before it, or without ``scale``.
    vocabulary : the words of the first batch, sorted; None before it, or for other methods.
    """

    columns: Columns
    features: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    label_type: str | None = None
    means: Array | None = None
    spreads: Array | None = None
    vocabulary: tuple[str, ...] | None = None

    @property
    def frozen(self) -> bool:
        """Whether all that the first batch decides has been decided."""
        measured = self.means is not None or not (self.columns.scale and self.features)
        return measured and (self.vocabulary is not None or not self._learns_words)

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
        """Return the schema as plain values that JSON can hold, and two arrays or None."""
        return {
            "columns": self.columns.to_dict(),
            "features": list(self.features),
            "ignored": list(self.ignored),
            "label_type": self.label_type,
            "means": self.means,
            "spreads": self.spreads,
            "vocabulary": None if self.vocabulary is None else list(self.vocabulary),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return a schema that was stored by `to_dict`; refuse anything else."""
        what, nothing, names = "schema", type(None), (list, tuple)
        found = read_fields(
            data, what, columns=dict, features=names, ignored=names, label_type=(str, nothing),
            means=(np.ndarray, nothing), spreads=(np.ndarray, nothing),
            vocabulary=(*names, nothing),
        )  # fmt: skip
        found["columns"] = columns = Columns.from_dict(found["columns"])
        for name in ("features", "ignored", "vocabulary"):
            if found[name] is not None:
                found[name] = read_names(what, name, found[name])
        schema = cls(**found)
        checks = {
            "features": (bool(schema.features) or columns.text is not None)
            and columns.features in (None, schema.features)
            and not {columns.label, columns.text, *columns.drop, *schema.ignored}
            & set(schema.features),
            "label_type": schema.label_type in (None, *LABEL_TYPES)
            and columns.label_type in (None, schema.label_type)
            and (schema.label_type is None or columns.label is not None),
            "means": schema._measured(schema.means) and (columns.scale or schema.means is None),
            "spreads": schema._measured(schema.spreads)
            and (schema.spreads is None) == (schema.means is None)
            and (schema.spreads is None or bool((schema.spreads > 0).all())),
            "vocabulary": schema.vocabulary is None
            or (schema._learns_words and 1 <= len(schema.vocabulary) <= columns.text_size),
        }
        for name, holds in checks.items():
            if not holds:
                refuse_stored(what, name, found[name])
        return schema

    def _measured(self, values: Any) -> bool:
        """Whether some statistics are what they can be: None, or a finite number for a feature."""
        return values is None or bool(
            values.shape == (len(self.features),)
            and values.dtype == np.float64
            and np.isfinite(values).all()
        )

    def check_same(self, columns: Columns) -> None:
        """Refuse choices that differ from those the stream began with; ones left open do not."""
        for each in fields(Columns):
            now, before = getattr(columns, each.name), getattr(self.columns, each.name)
            if now != each.default and now != before:
                option = each.name.replace("_", "-")
                raise StreamError(
                    f"--{option} is {shown(now)}, but the model was begun with {shown(before)}: "
                    "leave the option out, or start a new model."
                )

    def new_names(self, table: Table, source: str) -> list[str]:
        """Return the columns of a file that the first one did not have; refuse missing features.

        The order of columns does not matter.
        """
        needed = [*self.features, *([] if self.columns.text is None else [self.columns.text])]
        refuse_missing(needed, table, source)
        known = {*needed, self.columns.label, *self.ignored}
        return [name for name in table.names if name not in known]
