"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import glob
import os
import secrets
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

# Errors of file systems that cannot sync folders.
CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP)
# Paths of open descriptors.
DESCRIPTORS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a regular file; refuse pipes and devices, which may be endless."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("it is a folder, a pipe or a device, expected a file")
    return Path(path).read_bytes()


def replace_file(path: str | os.PathLike[str], parts: Iterable[bytes | memoryview]) -> None:
    """Replace a file so that at any moment it has either the old or the new content.

    The content is written to a temporary file in the same folder, synced to the disk, and renamed
    to the file. If that fails the old file is unchanged and the temporary file is removed. The
    permissions of an old file are kept. Symbolic links are followed.
    """
    target = real_path(path)
    there = target.exists()
    if there and not target.is_file():
        raise ValueError(f"{path} is a folder, a pipe or a device: choose the name of a file.")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            if there:
                shutil.copymode(target, temporary)
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return the path without symbolic links; OSError if they are circular."""
    real = os.path.realpath(path)
    if os.path.islink(real):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    return Path(real)


def write_output(path: str | os.PathLike[str], parts: Iterable[bytes | memoryview]) -> None:
    """Write a file as `replace_file` does, or part by part to a pipe or a device."""
    if not is_pipe_or_device(path):
        replace_file(path, parts)
        return
    # appended, because an open descriptor may be a file with content
    with open(os.open(path, os.O_WRONLY | os.O_APPEND), "wb", buffering=0) as file:
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[file.write(view) :]


def is_pipe_or_device(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a pipe, a device, or an open descriptor such as /dev/stdout."""
    if os.path.abspath(path).startswith(DESCRIPTORS):
        return True
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to the disk, where the system supports it."""
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove temporary files that a killed process left beside a file.

    The caller must hold a lock, so that no other process writes the file.
    """
    target = real_path(path)
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 16}.tmp"):
        leftover.unlink(missing_ok=True)
