"""Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from seqmed.streams.columnar import AS_BYTES, Columnar
from seqmed.streams.errors import refusing
from seqmed.streams.limits import BLOCK, MOST, Allowance, Limits


@contextmanager
def open_parquet(path: Path, name: str, limits: Limits) -> Iterator[Columnar]:
    """Open a Parquet file; columns are buffered, not read as a whole.

    Strings are read as dictionaries, because a dictionary can expand to any size.
    """
    with refusing(name, "Parquet"):
        plain = parquet.ParquetFile(pa.OSFile(os.fsencode(path)))
        metadata = plain.metadata
        limits.check("columns", name, metadata.num_columns)
        Allowance(limits, name, path.stat().st_size).spend(
            sum(
                abs(metadata.row_group(place).total_byte_size)
                for place in range(metadata.num_row_groups)
            )
        )
        texts = [
            field.name
            for field in plain.schema_arrow
            if field.type in AS_BYTES or field.type in AS_BYTES.values()
        ]
        plain.close()
        file = parquet.ParquetFile(
            pa.OSFile(os.fsencode(path)),
            buffer_size=BLOCK // 16,
            pre_buffer=False,
            read_dictionary=texts,
        )
    with file:
        names = file.schema_arrow.names

        def batches() -> Iterator[tuple[Any, float]]:
            seen = 0
            size = min(max(BLOCK // (8 * max(len(names), 1)), 1), MOST)
            for batch in file.iter_batches(size, use_threads=False):
                seen += batch.num_rows
                yield batch, seen / max(file.metadata.num_rows, 1)

        allowance = Allowance(limits, name, path.stat().st_size)
        yield Columnar(names, batches(), "Parquet", allowance)
