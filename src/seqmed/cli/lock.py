"""Lock of a model file: one writer at a time, released when its process ends."""

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
    """Hold the lock of a model file; refuse if another process holds it.

    The locked file is `.NAME.lock` beside the model, because every save replaces the model. The
    lock file is removed at the end. If a process is killed, its lock file remains, but is not
    locked.
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
    """Create and lock a lock file, and return its descriptor."""
    while True:
        descriptor = os.open(side, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if in_place(descriptor, side):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise CommandError(
                f"{path} is locked by another seqmed learn or seqmed label: wait until it ends, or "
                "stop it. Its saved batches are kept."
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def in_place(descriptor: int, side: Path) -> bool:
    """Whether an open lock file still has its name; its owner may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(side))
    except FileNotFoundError:
        return False
