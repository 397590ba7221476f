"""Expectations of records that come from a file.

Methods ``validate`` of records raise a ValueError if compiled loops, memory or termination could be
hurt. They rely on the types of the fields, and on finite numbers; `seqmed.model_file` checks both.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def expect(holds: Any, what: str) -> None:
    """Raise a ValueError that says what was expected, unless a condition holds."""
    if not holds:
        raise ValueError(f"expected {what}")


def expect_shape(record: Any, shape: tuple[int, ...], *names: str) -> None:
    """Raise a ValueError unless the named arrays of a record have a shape, or are None."""
    for name in names:
        value = getattr(record, name)
        if value is not None and np.shape(value) != shape:
            raise ValueError(f"{name} has the shape {np.shape(value)}, expected {shape}")
