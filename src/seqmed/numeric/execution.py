"""How functions run: in one thread or several, compiled, and on behalf of which line of code.

For the small matrices of one batch, synchronising the pools of BLAS takes longer than computing, so
small work uses one thread. A large kernel matrix or product is divided into strips, and each strip
is computed by one Python thread. A thread that gets no core then does not delay the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from seqmed.numeric.arrays import Float

# Largest number of rows for which a second thread costs more than it saves, on 2 to 8 cores.
SMALL = 1500
# Smallest number of kernel values for which Python threads are started: a few milliseconds of work.
MANY_VALUES = 2**20
# Smallest number of values that are reduced in threads: ten milliseconds of reading.
VERY_MANY_VALUES = 2**24
# Smallest number of multiplications for which a product uses two threads.
LARGE_PRODUCT = 2**26

Part = TypeVar("Part")


class _Limit:
    """A limit shared by all Python threads: the first one sets it, the last one removes it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0
        self.limiter: Any = None
        self.allowed = 1

    def __enter__(self) -> None:
        with self.lock:
            if self.users == 0:
                self.allowed = threads_of_blas()
                self.limiter = _controller().limit(limits=1)
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.limiter.restore_original_limits()


_limit = _Limit()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread(wanted: bool = True) -> AbstractContextManager[None]:
    """Use a single thread if ``wanted``, else all available threads."""
    return _limit if wanted else nullcontext()


def threads_for(rows: int, columns: int | None = None) -> AbstractContextManager[None]:
    """Use a single thread for products that cost no more than those of `SMALL` rows, else all."""
    columns = rows if columns is None else min(rows, columns)
    return one_thread(rows * columns**2 <= SMALL**3)


def threads_to_score(n_rows: int, n_points: int) -> AbstractContextManager[None]:
    """Use a single thread to score rows if there are few kernel values."""
    return one_thread(n_rows > 1 and n_rows * n_points < MANY_VALUES)


def run_in_threads(work: Callable[[Part], None], parts: Iterable[Part], n_values: int) -> None:
    """Call ``work`` for every part; for much work, on as many threads as BLAS may use."""
    pending = tuple(parts)
    count = min(allowed_threads(), len(pending)) if n_values >= MANY_VALUES else 1
    with one_thread():
        if count == 1:
            for part in pending:
                work(part)
            return
        with ThreadPoolExecutor(count) as pool:
            started = [pool.submit(copy_context().run, work, part) for part in pending]
            try:
                for each in started:
                    each.result()
            finally:  # after an error, or an interrupt
                pool.shutdown(wait=False, cancel_futures=True)


def by_parts(reduce: Callable[[NDArray[Any]], Any], values: NDArray[Any]) -> NDArray[Any]:
    """Return ``reduce`` of the rows ``values`` (n, ...), or of parts of very many, in threads."""
    if values.size < VERY_MANY_VALUES:
        return np.asarray([reduce(values)])
    size = -(-values.shape[0] // allowed_threads())
    starts = range(0, values.shape[0], size)
    found = np.empty(len(starts), dtype=np.float64)

    def fill(place: int) -> None:
        found[place] = reduce(values[starts[place] : starts[place] + size])

    run_in_threads(fill, range(len(starts)), values.size)
    return found


def product(left: NDArray[Float], right: NDArray[Float]) -> NDArray[Float]:
    """Return ``left @ right``, (n, m); if it is large, on two threads."""
    n, inner = left.shape
    if n * inner * right.shape[1] < LARGE_PRODUCT:
        return np.asarray(left @ right)
    found: NDArray[Float] = np.empty((n, right.shape[1]), dtype=np.result_type(left, right))

    def fill(rows: slice) -> None:
        np.matmul(left[rows], right, out=found[rows])

    run_in_threads(fill, (slice(0, n // 2), slice(n // 2, n)), MANY_VALUES)
    return found


def allowed_threads() -> int:
    """Return how many threads BLAS may use without the limit of this module."""
    return _limit.allowed if _limit.users else threads_of_blas()


def threads_of_blas() -> int:
    """Return how many threads BLAS is set to use; 1 if unknown."""
    pools = _controller().lib_controllers
    return min((pool.num_threads for pool in pools if pool.user_api == "blas"), default=1)


# -- compiled functions ----------------------------------------------------------------------------


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles a function at its first call, and caches it.

    If the cache cannot be written or read, the function is compiled in every process.
    """
    from numba import njit  # takes a second; needed by the first update

    def decorate(function: Any) -> Any:
        try:
            made = njit(cache=True, **options)(function)
        except RuntimeError:  # numba found no folder that can be written
            return njit(**options)(function)
        stored = getattr(made, "_cache", None)  # none if compilation is switched off
        if stored is not None:
            stored.load_overload = without_io_errors(stored.load_overload)
            stored.save_overload = without_io_errors(stored.save_overload)
        return made

    return decorate


def without_io_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that does nothing, and returns None, where the disk refuses."""

    def attempt(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except OSError:
            return None

    return attempt


# -- warnings --------------------------------------------------------------------------------------

PACKAGE = __name__.partition(".")[0]


def callers_level() -> int:
    """Return the ``stacklevel`` for which a warning shows the line that called the package."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(f"{PACKAGE}."):
        level, frame = level + 1, frame.f_back
    return level - 1
