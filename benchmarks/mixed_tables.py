"""Adult, bank marketing and Telco churn as raw tables.

A table is read from the folder that SEQMED_DATA names (`adult.csv.gz`, `bank.csv.gz`,
`telco.csv.gz`), or from the cache of the user. If it is in neither, it is downloaded to the cache:
Adult and bank from UCI, Telco from its publisher. Sources order rows and columns differently, so
both are sorted. The hash is that of the sorted cells, and other data are refused.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import urllib.error
import urllib.request
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from common import MissingDataError

from paper.data import cache_folder, write_file

if TYPE_CHECKING:
    import pandas as pd

MISSING = ["", "?"]
SECONDS = 60


class MixedTable(NamedTuple):
    """Where a table is, and what it holds.

    Attributes
    ----------
    file : name of the file in the folder of the data.
    url : where it is published.
    member : names of the file in the archive, and in archives in it; empty for a plain file.
    columns : names of the columns; empty if the file has a header.
    label, positive : column of classes, and the rarer class.
    ids : columns of ids.
    sha256 : hash of the sorted cells.
    """

    file: str
    url: str
    member: tuple[str, ...]
    columns: tuple[str, ...]
    label: str
    positive: str
    ids: tuple[str, ...]
    sha256: str


UCI = "https://archive.ics.uci.edu/static/public"
TABLES = {
    "adult": MixedTable(
        "adult.csv.gz", f"{UCI}/2/adult.zip", ("adult.data",),
        (
            "age", "workclass", "fnlwgt", "education", "education.num", "marital.status",
            "occupation", "relationship", "race", "sex", "capital.gain", "capital.loss",
            "hours.per.week", "native.country", "income",
        ),
        "income", ">50K", (),
        "0bc7ff0874115115e95d35893e91315bc0e8f374bdbcf8b83c1c78cb28412b9c",
    ),
    "bank": MixedTable(
        "bank.csv.gz", f"{UCI}/222/bank+marketing.zip", ("bank.zip", "bank-full.csv"), (),
        "y", "yes", (), "7f225726a2ee1f0e2b40b5345dd24e632e96033be54948af93e2a74dc4b70f99",
    ),
    "telco": MixedTable(
        "telco.csv.gz",
        "https://raw.githubusercontent.com/IBM/telco-customer-churn-on-icp4d/master/data/"
        "Telco-Customer-Churn.csv",
        (), (), "Churn", "Yes", ("customerID",),
        "f4b77e0e66437f526019a524b661842602562156a97f49681cfb460ccbf2699e",
    ),
}  # fmt: skip


@cache
def load(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Return raw rows (n, p), sorted, and whether they are of the rarer class, (n,), as 0 or 1."""
    table = TABLES[name]
    for folder in (os.environ.get("SEQMED_DATA"), cache_folder()):
        path = Path(folder or "") / table.file
        if folder and path.is_file():
            return verified(table, frame_of(gzip.decompress(path.read_bytes())), str(path))
    try:
        content = published(table)
    except (OSError, zipfile.BadZipFile, KeyError, urllib.error.URLError) as error:
        raise MissingDataError(
            f"{table.file} is not in the folder SEQMED_DATA, and cannot be downloaded from "
            f"{table.url} ({error}): set SEQMED_DATA to the folder that holds it."
        ) from error
    found = verified(table, frame_of(content), table.url)
    write_file(cache_folder() / table.file, gzip.compress(content))
    return found


def published(table: MixedTable) -> bytes:
    """Download a table as CSV with a header."""
    with urllib.request.urlopen(table.url, timeout=SECONDS) as response:
        content = response.read()
    for member in table.member:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(member)
    header = ",".join(table.columns)
    return f"{header}\n".encode() + content if header else content


def frame_of(content: bytes) -> pd.DataFrame:
    """Return the columns of a CSV file, in the order of their names; separators are found."""
    import pandas as pd

    first = content[: content.index(b"\n")].decode()
    frame = pd.read_csv(
        io.BytesIO(content), sep=";" if ";" in first else ",", na_values=MISSING,
        keep_default_na=False, skipinitialspace=True,
    )  # fmt: skip
    return frame[sorted(frame)]


def cell_text(value: Any) -> str:
    """Return a cell as text that does not depend on the type of its column."""
    if isinstance(value, str):
        return value.strip()
    return "" if value != value else f"{float(value):.10g}"


def verified(
    table: MixedTable, frame: pd.DataFrame, origin: str
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return sorted rows and classes if they are the published ones; refuse others."""
    columns = [[cell_text(value) for value in frame[name]] for name in frame]
    lines = ["\t".join(row) for row in zip(*columns, strict=True)]
    order = sorted(range(len(lines)), key=lines.__getitem__)
    text = "\n".join(["\t".join(frame), *(lines[place] for place in order)])
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != table.sha256:
        raise MissingDataError(
            f"{origin} differs from the published table (sha256 of the sorted cells "
            f"{found[:12]}..., expected {table.sha256[:12]}...): remove the file."
        )
    frame = frame.iloc[order].reset_index(drop=True)
    positive = (frame.pop(table.label) == table.positive).to_numpy(dtype=int)
    return frame, positive
