"""Errors and warnings about the columns and cells of a table."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import pyarrow as pa

from seqmed.tables import cells, kinds
from seqmed.tables.cells import NOT_A_NUMBER, NOT_FINITE, TableError
from seqmed.tables.date_formats import NOT_A_DATE, other_order
from seqmed.tables.encoding import LISTED, BadCell, Choices, Encoding
from seqmed.tables.kinds import ColumnKind

# Why a column is left out, in words.
REASONS = {
    "empty": "no cell has a value",
    "constant": "all cells are equal",
    "id": "a different value in every row",
    "nested": "lists or other nested values",
}
# Expected value and remedy of a bad cell.
REMEDIES = {
    NOT_A_NUMBER: "a number",
    NOT_FINITE: "a finite number of at most 1e70",
    NOT_A_DATE: "a date in the format of the first batch",
}


class TableWarning(UserWarning):
    """A warning about the columns of a table."""


def warn_of_doubts(table: pa.Table, columns: Sequence[ColumnKind], choices: Choices) -> None:
    """Warn of dates in an ambiguous order, and of numbers with a unit that are categories."""
    for column in columns:
        name, form = column.name, column.form
        if name in choices.kinds and choices.kinds[name] != kinds.DATE:
            continue
        other = None
        if column.kind == kinds.DATE and form:
            texts = cells.levels(table.column(name), choices.missing_values).texts
            other = other_order(texts, form)
        if other is not None:
            warnings.warn(
                f"column {name!r}: dates are read as {form}, and could be {other}. To choose, use "
                f"--date '{name}={other}' or kinds={{{name!r}: 'date:{other}'}}.",
                TableWarning,
                stacklevel=3,
            )
        if column.kind == kinds.HASHED or column.reason == "id":
            example = kinds.number_with_unit(table.column(name), choices.missing_values)
            if example is not None:
                warnings.warn(
                    f"column {name!r} looks like numbers with a unit, for example {example!r}, and "
                    "is not used as numbers: remove the unit from its cells.",
                    TableWarning,
                    stacklevel=3,
                )


def warn_of_unused(columns: Sequence[ColumnKind]) -> None:
    """Warn of columns that are left out, except by choice."""
    unused = [each for each in columns if each.kind == kinds.DROP and each.reason in REASONS]
    if unused:
        texts = [f"{each.name!r} ({REASONS[each.reason]})" for each in unused[:LISTED]]
        more = f" and {len(unused) - len(texts)} others" if len(unused) > len(texts) else ""
        name = unused[0].name
        warnings.warn(
            f"columns that are not used: {', '.join(texts)}{more}. To use one, choose its kind, "
            f"for example --numeric {name} or kinds={{{name!r}: 'numeric'}}; drop it to hide this "
            "warning.",
            TableWarning,
            stacklevel=3,
        )


def refuse_numbers_for_codes(encoding: Encoding, table: pa.Table) -> None:
    """Refuse numbers in a column of codes such as 01234, whose leading zeros they have lost."""
    for column in encoding.one_hot:
        if column.name not in table.column_names or not column.has_codes:
            continue
        kind = table.column(column.name).type
        if cells.is_number_type(kind) and not pa.types.is_null(kind):
            raise TableError(
                f"column {column.name!r} holds {kind}, expected texts such as "
                f"{column.levels[0]!r}: read it as text, for example with dtype=str in pandas."
            )


def refuse_bad(bad: Mapping[int, BadCell]) -> None:
    """Refuse a table with a bad cell."""
    if bad:
        row = min(bad)
        reason, column, got = bad[row]
        more = f" ({len(bad)} rows have such cells)" if len(bad) > 1 else ""
        raise TableError(
            f"row {row}, column {column!r}: {got} is {reason}{more}, expected {REMEDIES[reason]}: "
            f"correct it, add it to missing_values, or choose another kind for the column."
        )
