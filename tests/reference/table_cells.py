"""Cells and features of raw tables, one cell at a time."""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal, InvalidOperation

import numpy as np
from sklearn.feature_extraction import FeatureHasher

MISSING = {
    "", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NAN", "-nan", "-NaN", "null", "NULL", "None",
    "<NA>", "NaT", "?", "-", ".",
}  # fmt: skip
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
BAD = "bad"


def text_of(cell):
    """Return a cell as text; None if it is missing."""
    if cell is None or cell != cell:
        return None
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, dt.datetime):
        return cell.isoformat(sep=" ")
    if isinstance(cell, float) and cell == int(cell):
        return str(int(cell))
    text = str(cell).strip()
    return None if text in MISSING else text


def number_of(cell):
    """Return a cell as a number, None if it is missing, BAD if it is no number."""
    text = text_of(cell)
    if text is None:
        return None
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    if not re.fullmatch(r"[-+.0-9eE]+", text):
        return BAD
    try:
        number = float(text)
    except ValueError:
        return BAD
    return number if abs(number) <= 1e70 else BAD


def level_of(cell):
    """Return the level of a cell, None if it is missing."""
    text = text_of(cell)
    if text is None or text.lower() in ("true", "false"):
        return text and text.lower()
    if re.fullmatch(r"[-+]?0[0-9].*", text):
        return text  # a code with leading zeros, or a date
    try:
        number = Decimal(text) if re.fullmatch(r"[-+.0-9eE]+", text) else None
    except InvalidOperation:
        number = None
    if number is not None and math.isfinite(float(number)):
        whole = number == number.to_integral_value() or float(number).is_integer()
        return str(int(number)) if whole else repr(float(number))
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return text
    if not re.match(r"\d{4}-\d\d-\d\d", text):
        return text
    moment = moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)
    return moment.isoformat(sep=" ").removesuffix(" 00:00:00")


def date_of(cell, form=""):
    """Return a cell as seconds since 1970, None if it is missing, BAD if it is no date."""
    if isinstance(cell, dt.datetime):
        cell = cell.isoformat()
    text = text_of(cell)
    if text is None:
        return None
    for read in (lambda: dt.datetime.strptime(text, form), lambda: dt.datetime.fromisoformat(text)):
        try:
            moment = read()
        except ValueError:
            continue
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return (moment - EPOCH) / dt.timedelta(seconds=1)
    return BAD


def features_of(encoding, row):
    """Return the features of one row, a dictionary, except those of its words."""
    features = []
    numbers = encoding.numbers
    for place, name in enumerate(numbers.names):
        cell = number_of(row.get(name))
        cell = numbers.medians[place] if cell is None else cell
        shift, scale = (
            (numbers.medians[place], numbers.scales[place]) if numbers.centred else (0, 1)
        )
        features.append((cell - shift) / scale)
    for name, flag in zip(numbers.names, numbers.flagged, strict=True):
        if flag:
            features.append(float(number_of(row.get(name)) is None))
    for date in encoding.dates:
        features += date_features(date, date_of(row.get(date.name), date.form))
    for column in encoding.one_hot:
        level = level_of(row.get(column.name))
        names = [*column.levels, *([None] if column.missing else []), "other"]
        known = level in names[:-1]
        features += [float(place == (names.index(level) if known else len(names) - 1))
                     for place in range(len(names))]  # fmt: skip
    for column in encoding.hashed:
        level = level_of(row.get(column.name))
        hasher = FeatureHasher(column.size, input_type="string")
        features += hasher.transform([[] if level is None else [level]]).toarray()[0].tolist()
    return np.array(features)


def date_features(date, seconds):
    """Return the features of a date."""
    day = 86_400
    lengths = {"day": day, "week": 7 * day, "year": 365.2425 * day}
    features = []
    if not date.clock:
        features.append(0.0 if seconds is None else (seconds - date.origin) / date.scale)
    for cycle in date.cycles:
        angle = (
            0.0 if seconds is None else 2 * math.pi * (seconds % lengths[cycle]) / lengths[cycle]
        )
        waves = (math.sin(angle), math.cos(angle))
        features += [0.0, 0.0] if seconds is None else waves
    if date.flagged:
        features.append(float(seconds is None))
    return features
