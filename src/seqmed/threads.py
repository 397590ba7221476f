"""The number of threads of an update.

numpy and scipy each have a BLAS with a thread pool, and the neighbour search has an OpenMP pool. On
the small matrices of one batch synchronising the pools takes longer than computing, so small work
uses one thread. A large kernel matrix or product is cut in strips, each computed by one Python
thread: a thread without a core does not hold up the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import copy_context
from functools import cache
from threading import Lock, Thread
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from seqmed.arrays import Float

# Rows up to which a second thread costs more than it saves, on two to eight cores.
SMALL = 1500
# Kernel values, a few milliseconds of work, from which on Python threads are started.
MANY_VALUES = 2**20
# Multiplications from which on a product is cut in two, a few milliseconds.
LARGE_PRODUCT = 2**26

Part = TypeVar("Part")


class _Limit:
    """A limit shared by all Python threads: set by the first user, removed by the last."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0
        self.limiter: Any = None
        self.allowed = 1

    def acquire(self) -> None:
        with self.lock:
            if self.users == 0:
                self.allowed = threads_of_blas()
                self.limiter = _controller().limit(limits=1)
            self.users += 1

    def release(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.limiter.restore_original_limits()


_limit = _Limit()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Use a single thread, if ``wanted``, else all available ones."""
    if not wanted:
        yield
        return
    _limit.acquire()
    try:
        yield
    finally:
        _limit.release()


def threads_for(rows: int, columns: int | None = None) -> AbstractContextManager[None]:
    """Use a single thread for products of matrices of up to `SMALL` rows, else all available ones.

    Matrices with fewer columns than rows are small if their products cost as much.
    """
    columns = rows if columns is None else min(rows, columns)
    return one_thread(rows * columns**2 <= SMALL**3)


def threads_to_score(n_rows: int, n_points: int) -> AbstractContextManager[None]:
    """Use a single thread to score some rows by not too many points; one row uses no more."""
    return one_thread(n_rows > 1 and n_rows * n_points < MANY_VALUES)


def side_by_side(work: Callable[[Part], None], parts: Iterable[Part], n_values: int) -> None:
    """Do some work part by part; if there is much of it, on as many threads as BLAS may use.

    Each part has one thread: BLAS starts no others.
    """
    pending = tuple(parts)
    count = min(allowed_threads(), len(pending)) if n_values >= MANY_VALUES else 1
    with one_thread():
        drain(work, iter(pending), count)


def drain(work: Callable[[Part], None], parts: Iterator[Part], count: int) -> None:
    """Do the work of all parts, on this thread and on ``count - 1`` others."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            for part in parts:
                work(part)
        except BaseException as failure:
            failures.append(failure)

    workers: list[Thread] = []
    try:
        for _ in range(count - 1):
            worker = Thread(target=copy_context().run, args=(run,))
            with suppress(RuntimeError):  # the system may have no more threads
                worker.start()
                workers.append(worker)
        for part in parts:
            work(part)
    finally:
        for worker in workers:
            worker.join()
    if failures:
        raise failures[0]


def product(left: NDArray[Float], right: NDArray[Float]) -> NDArray[Float]:
    """Return ``left @ right``, (n, m), the rows in two halves if it is large."""
    n, inner = left.shape
    if n * inner * right.shape[1] < LARGE_PRODUCT:
        return np.asarray(left @ right)
    found: NDArray[Float] = np.empty((n, right.shape[1]), dtype=np.result_type(left, right))

    def fill(rows: slice) -> None:
        np.matmul(left[rows], right, out=found[rows])

    side_by_side(fill, (slice(0, n // 2), slice(n // 2, n)), MANY_VALUES)
    return found


def allowed_threads() -> int:
    """Return how many threads BLAS may use, not counting our own limit."""
    return _limit.allowed if _limit.users else threads_of_blas()


def threads_of_blas() -> int:
    """Return how many threads BLAS is set to use; 1 if unknown."""
    pools = _controller().lib_controllers
    return min((pool.num_threads for pool in pools if pool.user_api == "blas"), default=1)
