"""File lock: one writer at a time, released by the system when its process ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqmed.cli.errors import CommandError
from seqmed.model_file.files import real_path

try:
    import fcntl
except ImportError:  # Windows, where models are not locked
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a model file; refuse if another process does.

    The lock is on a file beside the model, `.NAME.lock`: the model itself is replaced with every
    save. The file is removed at the end; one that a killed process left behind locks nothing.
    """
    if fcntl is None:
        yield
        return
    target = real_path(path)
    side = target.with_name(f".{target.name}.lock")
    descriptor = acquire(side, path)
    try:
        yield
    finally:
        side.unlink(missing_ok=True)
        os.close(descriptor)


def acquire(side: Path, path: Path) -> int:
    """Return the descriptor of a lock file that is locked and in its place."""
    while True:
        descriptor = os.open(side, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if in_place(descriptor, side):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise CommandError(
                f"{path} is locked: another seqmed learn is working on it. Wait until it is done, "
                "or end it: what it has saved is kept."
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def in_place(descriptor: int, side: Path) -> bool:
    """Whether an open file is the one of that name, and not one its owner has just removed."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(side))
    except FileNotFoundError:
        return False
