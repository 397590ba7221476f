"""How many threads dense algebra may use.

numpy and scipy each bring a BLAS with a pool of its own. On the small matrices of one batch the two
pools spend more time waiting for each other than multiplying, so small work is given one thread.
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
    """Return a context with one BLAS thread if no matrix in it has more than `SMALL` rows."""
    if rows > SMALL:
        return nullcontext()
    return _controller().limit(limits=1, user_api="blas")
