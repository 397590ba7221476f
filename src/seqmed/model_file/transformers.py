"""Declarations of transformers: scalers, and encoders of tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from seqmed.model_file.declarations import (
    COLUMNS,
    Kept,
    Rules,
    check_records,
    column_rules,
    declare,
)
from seqmed.tables import kinds
from seqmed.tables.cells import level_text
from seqmed.tables.dates import FORMATS
from seqmed.tables.encoder import REASONS, TableEncoder
from seqmed.tables.features import (
    COUNTS,
    CYCLES,
    LARGEST_SIZE,
    DateColumn,
    Encoding,
    HashedColumn,
    NumberColumns,
    OneHotColumn,
    WordColumn,
    weight_beside_words,
)
from seqmed.tables.kinds import ColumnKind

declare(NumberColumns, medians="p >= -1e70 <= 1e70", scales="p > 0", flagged="p")
declare(HashedColumn, size=">= 1 <= 65536")


@declare(ColumnKind, kind=" | ".join((*kinds.CHOICES, kinds.HASHED)))
def _(column: ColumnKind) -> Rules:
    left_out = column.kind == kinds.DROP
    reasons = (*REASONS, "chosen") if left_out else ("",)
    yield "a reason if and only if it is left out", column.reason in reasons
    known = ("", *FORMATS) if column.kind == kinds.DATE else ("",)
    yield "a known format of dates", column.form in known


@declare(OneHotColumn)
def _(column: OneHotColumn) -> Rules:
    yield "sorted levels", list(column.levels) == sorted(set(column.levels))
    usual = all(level_text(level) == level != "" for level in column.levels)
    yield "levels in their usual notation", usual


# Dates have microseconds, and years of at most 6 digits.
@declare(DateColumn, origin=">= -1e13 <= 1e13", scale=">= 1e-6 <= 1e14")
def _(column: DateColumn) -> Rules:
    yield "known cycles", column.cycles == tuple(each for each in CYCLES if each in column.cycles)


@declare(WordColumn, size=f">= 1 <= {LARGEST_SIZE}", places="m >= 0", frequencies="m >= 1")
def _(column: WordColumn) -> Rules:
    places, frequencies = column.places, column.frequencies
    yield "both or no statistics", (places is None) == (frequencies is None)
    if places is not None and frequencies is not None:
        yield "distinct features in order", (np.diff(places.astype(np.int64)) > 0).all()
        yield "features within the size", (places < column.size).all()
        yield "no word in more texts than there are", (frequencies <= column.n_rows).all()


@declare(Encoding, weight="> 0 <= 1")
def _(encoding: Encoding) -> Rules:
    names = [each.name for each in encoding.columns]
    yield "distinct columns", len(set(names)) == len(names)
    yield "a column that is used", len(encoding.needed) > 0
    parts = {
        kinds.NUMERIC: encoding.numbers.names,
        kinds.DATE: tuple(each.name for each in encoding.dates),
        kinds.CATEGORICAL: tuple(each.name for each in encoding.one_hot),
        kinds.HASHED: tuple(each.name for each in encoding.hashed),
        kinds.TEXT: tuple(each.name for each in encoding.words),
    }
    for kind, found in parts.items():
        wanted = tuple(each.name for each in encoding.columns if each.kind == kind)
        yield f"the encoding of every {kind} column", found == wanted
    yield "a scale for every number", encoding.numbers.medians.size == len(encoding.numbers.names)
    scaled = encoding.numbers.centred or (encoding.numbers.scales == 1).all()
    yield "no scales if the numbers are not standardised", scaled
    forms = tuple(each.form for each in encoding.columns if each.kind == kinds.DATE)
    yield "the formats of the dates", tuple(each.form for each in encoding.dates) == forms


def scaler_rules(scaler: Any, state: dict[str, Any]) -> Rules:
    """Yield rules on a fitted scaler."""
    yield from column_rules(state)
    measured = {name: value for name, value in state.items() if name not in COLUMNS}
    known = {name: value for name, value in measured.items() if value is not None}
    for name, value in known.items():
        single = name == "n_samples_seen_" and np.ndim(value) == 0
        yield f"{name} for every column", single or value.shape == (state["n_features_in_"],)
        yield f"numbers in {name}", np.asarray(value).dtype.kind in "iuf"
    needed = set(measured)
    if isinstance(scaler, StandardScaler):  # with_mean and with_std decide
        needed = {"mean_"} if scaler.with_mean else set()
        needed |= {"mean_", "var_", "scale_"} if scaler.with_std else set()
    yield "all statistics of the scaler", needed <= set(known)


def scaler(*statistics: str) -> Kept:
    """Return the declaration of a scaler."""
    counts: dict[str, Any] = {"n_samples_seen_": float | NDArray[Any]}
    optional = dict.fromkeys(statistics, NDArray[Any] | None)
    return Kept({**COLUMNS, **counts, **optional}, scaler_rules)


def encoder_rules(encoder: TableEncoder, state: dict[str, Any]) -> Rules:
    """Yield rules on a fitted encoder of tables."""
    encoding = state["encoding_"]
    check_records(encoding)
    choices = encoder._choices()
    missing = tuple(choices.missing_values)
    yield "the missing values of the parameters", encoding.missing_values == missing
    found = {each.name: each for each in encoding.columns}
    yield "no feature from the labels", encoder.label not in found
    for name, kind in choices.kinds.items():
        kind, _, form = kind.partition(":")  # a date may have a format
        accepted = (kind, kinds.HASHED) if kind == kinds.CATEGORICAL else (kind,)
        yield "the kinds of the parameters", name in found and found[name].kind in accepted
        yield "the formats of the parameters", not form or found[name].form == form
    if choices.features is not None:
        used = {*choices.features, *choices.kinds}
        yield "the features of the parameters", used <= {*found} and used >= {*encoding.needed}
    yield "the scaling of the parameters", encoding.numbers.centred == choices.scale
    sizes = {each.size for each in encoding.words}
    yield "the text size of the parameters", sizes <= {choices.text_size}
    counts = all(
        (each.places is None) == (choices.text_weights == COUNTS) for each in encoding.words
    )
    yield "the text weights of the parameters", counts
    weight = weight_beside_words(encoding.columns, choices.text_weights)
    yield "the weight beside words", encoding.weight == weight


def encoder_parameters(encoder: TableEncoder) -> Rules:
    """Check the parameters of an encoder of tables, which refuses wrong ones itself."""
    encoder._choices()
    return iter(())


TRANSFORMERS: dict[type, Kept] = {
    StandardScaler: scaler("mean_", "var_", "scale_"),
    MinMaxScaler: scaler("min_", "scale_", "data_min_", "data_max_", "data_range_"),
    MaxAbsScaler: scaler("max_abs_", "scale_"),
    TableEncoder: Kept({"encoding_": Encoding}, encoder_rules, encoder_parameters, optional=()),
}
