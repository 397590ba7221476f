"""How many threads an update may use.

numpy and scipy each bring a BLAS with a pool of its own, and the neighbour search an OpenMP pool.
On the small matrices of one batch the pools spend more time waiting for each other than computing,
so small work is given one thread. A large kernel matrix is cut in strips, each the work of one
thread from end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

# Rows up to which a second thread costs more than it brings, on two to eight cores.
SMALL = 1500
# Kernel values, a dozen milliseconds of work, from which on threads of our own are worth beginning.
MANY_VALUES = 2**22

Part = TypeVar("Part")


class _Limit:
    """A limit shared by all Python threads: set by the first that asks, lifted by the last."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0
        self.limiter: Any = None

    def acquire(self) -> None:
        with self.lock:
            if self.users == 0:
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
    """Use a single thread, if wanted, else all there are."""
    if not wanted:
        yield
        return
    _limit.acquire()
    try:
        yield
    finally:
        _limit.release()


def threads_for(rows: int, columns: int | None = None) -> AbstractContextManager[None]:
    """Use a single thread for products of matrices of up to `SMALL` rows, else all there are.

    Of matrices with fewer columns than rows those count as small that cost as much.
    """
    columns = rows if columns is None else min(rows, columns)
    return one_thread(rows * columns**2 <= SMALL**3)


def threads_to_score(n_rows: int, n_points: int) -> AbstractContextManager[None]:
    """Use a single thread to score some rows by not too many points; one row asks for no more."""
    return one_thread(n_rows > 1 and n_rows * n_points < MANY_VALUES)


def side_by_side(work: Callable[[Part], None], parts: Iterable[Part], n_values: int) -> None:
    """Do some work part by part, on as many threads as BLAS may use if there is much of it.

    Each part has one thread to itself: BLAS begins no others.
    """
    count = allowed_threads() if n_values >= MANY_VALUES else 1
    with one_thread():
        if count == 1:
            for part in parts:
                work(part)
            return
        with ThreadPoolExecutor(count) as pool:
            for _ in pool.map(work, parts):
                pass


def allowed_threads() -> int:
    """Return how many threads BLAS may use, whoever has limited them; 1 if there is no telling."""
    counts = [pool["num_threads"] for pool in _controller().info() if pool["user_api"] == "blas"]
    return min(counts, default=1)
