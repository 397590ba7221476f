"""Kernel values in bounded memory and range: blocks of rows, and refusal of overflow."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

# Number of kernel values held at once while scores are computed: 16 MB, which are reused.
BLOCK_VALUES = 2**21


def blocks(n_rows: int, width: int) -> Iterator[slice]:
    """Yield slices of rows whose products with ``width`` columns stay within `BLOCK_VALUES`."""
    size = max(1, BLOCK_VALUES // max(width, 1))
    for start in range(0, n_rows, size):
        yield slice(start, start + size)


def check_overflow(values: NDArray[np.floating]) -> None:
    """Refuse rows on which the kernel overflows."""
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values.reshape(values.shape[0], -1)).all(axis=1))[0])
        raise ValueError(
            f"the kernel overflows on row {row} of X, expected finite values: scale the features "
            "as in the batches the model has learned."
        )
