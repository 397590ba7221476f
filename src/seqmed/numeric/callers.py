"""The line of the user's code that called the package, for warnings."""

from __future__ import annotations

import inspect

PACKAGE = __name__.partition(".")[0]


def callers_level() -> int:
    """Return the ``stacklevel`` for which a warning shows the line that called the package."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(f"{PACKAGE}."):
        level, frame = level + 1, frame.f_back
    return level - 1
