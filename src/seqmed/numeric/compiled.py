"""Functions compiled by numba, with a cache on the disk where there is a place for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles a function at its first call, and caches the result.

    Numba caches in the folder of the source, in the home folder of the user, or in
    ``NUMBA_CACHE_DIR``. If none of them can be written, or if reading or writing fails later, the
    function is compiled in every process.

    Parameters
    ----------
    **options : further options of `numba.njit`.
    """

    def decorate(function: Any) -> Any:
        try:
            made = njit(cache=True, **options)(function)
        except RuntimeError:  # numba found no folder that can be written
            return njit(**options)(function)
        cache = getattr(made, "_cache", None)  # none if compilation is switched off
        if cache is not None:
            cache.load_overload = without_io_errors(cache.load_overload)
            cache.save_overload = without_io_errors(cache.save_overload)
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
