"""How many threads an update may use.

numpy and scipy each bring a BLAS with a pool of its own, and the neighbour search an OpenMP pool.
On the small matrices of one batch the pools spend more time waiting for each other than computing,
so small work is given one thread.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

# Rows up to which a second thread costs more than it brings, on two to eight cores.
SMALL = 1500


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def threads_for(rows: int) -> AbstractContextManager[Any]:
    """Return a context with a single thread if no matrix in it has more than `SMALL` rows."""
    if rows > SMALL:
        return nullcontext()
    return _controller().limit(limits=1)
