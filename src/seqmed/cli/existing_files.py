"""Refusal of outputs that would overwrite an existing file, the model or an input."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from seqmed.cli.errors import CommandError
from seqmed.cli.options import STANDARD_OUTPUT
from seqmed.model_file.files import is_pipe_or_device
from seqmed.streams.inputs import STANDARD_INPUT, is_readable

# Identity of a file: its device and inode, or its path without links if it does not exist.
Identity = str | tuple[int, int]


def refuse_shared(
    outputs: Mapping[str, Path | None],
    model: Path | None,
    data: Sequence[Path],
    file_format: str | None,
) -> None:
    """Refuse an output that is the same file as the model, an input or another output.

    Parameters
    ----------
    outputs : outputs by the option or argument that names them.
    model : a model that is read; None if it is an output.
    data, file_format : the inputs.
    """
    taken: dict[Identity, str] = {}
    if model is not None:
        taken |= dict.fromkeys(identities(model), "the model")
    for path in files_of(data, file_format):
        name = f"the input {path}" if isinstance(path, Path) else "standard input"
        taken |= dict.fromkeys(identities(path), name)
    for option, output in outputs.items():
        if output is None:
            continue
        own = identities(1 if output == STANDARD_OUTPUT else output)
        owner = next((taken[each] for each in own if each in taken), None)
        if owner is not None:
            raise CommandError(
                f"{option} {output} is {owner} and would overwrite it: choose another file."
            )
        taken |= dict.fromkeys(own, f"{option} {output}")


def refuse_existing(path: Path, *, force: bool, use: str = "replace it") -> None:
    """Refuse a folder, and an existing file unless ``force`` is set."""
    if path == STANDARD_OUTPUT or is_pipe_or_device(path):
        return
    if path.is_dir():
        raise CommandError(f"{path} is a folder, expected a file: choose another name.")
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if target.exists() and not force:
        raise CommandError(f"{path} exists: choose another name, or {use} with --force.")


def files_of(data: Sequence[Path], file_format: str | None) -> Iterator[Path | int]:
    """Yield the input files; standard input as its descriptor."""
    for path in data:
        if os.fspath(path) == STANDARD_INPUT:
            yield 0
        elif path.is_dir():
            yield from (each for each in path.iterdir() if is_readable(each, file_format))
        else:
            yield path


def identities(path: Path | int) -> set[Identity]:
    """Return the identity of a file or descriptor; none for terminals and other devices."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return {os.path.realpath(path)} if isinstance(path, Path) else set()
    return set() if stat.S_ISCHR(status.st_mode) else {(status.st_dev, status.st_ino)}
