"""How many threads an update may use.

numpy and scipy each bring a BLAS with a pool of its own, and the neighbour search an OpenMP pool.
On the small matrices of one batch the pools spend more time waiting for each other than computing,
so small work is given one thread. A large kernel matrix is cut in strips, each the work of one
thread from end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

# Rows up to which a second thread costs more than it brings, on two to eight cores.
SMALL = 1500
# Kernel values, some milliseconds of work, from which on threads of our own are worth beginning.
MANY_VALUES = 2**20

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
def threads_for(rows: int) -> Iterator[None]:
    """Use a single thread for work whose matrices have up to `SMALL` rows, else all there are."""
    if rows > SMALL:
        yield
        return
    _limit.acquire()
    try:
        yield
    finally:
        _limit.release()


def side_by_side(work: Callable[[Part], None], parts: Iterable[Part], n_values: int) -> None:
    """Do some work part by part, on as many threads as BLAS may use if there is much of it."""
    if n_values < MANY_VALUES or (count := allowed_threads()) == 1:
        for part in parts:
            work(part)
        return
    with threads_for(1), ThreadPoolExecutor(count) as pool:
        for _ in pool.map(work, parts):
            pass


def allowed_threads() -> int:
    """Return how many threads BLAS may use, whoever has limited them; 1 if there is no telling."""
    counts = [pool["num_threads"] for pool in _controller().info() if pool["user_api"] == "blas"]
    return min(counts, default=1)
