"""A model file is there as a whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest

import seqmed
from seqmed import SeqMED
from seqmed.model_file import ModelFileError, files, load_with_extra, read, remove_leftovers

OLD, NEW = SeqMED(C=2.0), SeqMED(C=3.0)


@pytest.fixture
def path(tmp_path):
    """A file that holds the old model."""
    path = tmp_path / "model"
    seqmed.save(OLD, path)
    return path


def assert_holds(path, model):
    """Expect a file to hold a model, and nothing else to be in its folder."""
    assert seqmed.load(path).C == model.C
    assert list(path.parent.iterdir()) == [path]


# -- failures -------------------------------------------------------------------------------------


def failing(error, call=1):
    """Return a function of the system that fails when it is called for the n-th time."""
    calls = []

    def fail(*arguments):
        calls.append(arguments)
        if len(calls) == call:
            raise error

    return fail


ERRORS = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EIO, "Input/output error"),
    KeyboardInterrupt(),
    MemoryError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file(function, error, path, monkeypatch):
    monkeypatch.setattr(files.os, function, failing(error))
    with pytest.raises(type(error)):
        seqmed.save(NEW, path)
    monkeypatch.undo()
    assert_holds(path, OLD)
    seqmed.save(NEW, path)
    assert_holds(path, NEW)


def test_a_disk_that_is_full(path):
    """The system itself stops the write half way."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            seqmed.save(NEW, path, extra={"large": np.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert_holds(path, OLD)


def test_a_folder_that_cannot_be_written_to_disk_on_demand(path, monkeypatch):
    monkeypatch.setattr(files.os, "fsync", failing(OSError(errno.EINVAL, "Invalid"), call=2))
    seqmed.save(NEW, path)
    monkeypatch.setattr(files.os, "fsync", failing(OSError(errno.EIO, "Broken"), call=2))
    with pytest.raises(OSError, match="Broken"):
        seqmed.save(OLD, path)
    monkeypatch.undo()
    assert_holds(path, OLD)  # in its place, though not certainly for good


def test_all_is_on_the_disk_before_the_file_is_replaced(path, monkeypatch):
    done = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)

        def noted(*arguments, name=name, original=original):
            kind = stat.S_IFMT(os.fstat(arguments[0]).st_mode) if name == "fsync" else None
            done.append((name, kind))
            original(*arguments)

        monkeypatch.setattr(files.os, name, noted)
    seqmed.save(NEW, path)
    assert done == [("fsync", stat.S_IFREG), ("replace", None), ("fsync", stat.S_IFDIR)]


KILLED = """
import os, signal, sys
import seqmed
def kill(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
path, function, call = sys.argv[1:]
original, calls = getattr(os, function), []
def counted(*arguments):
    calls.append(arguments)
    kill() if len(calls) == int(call) else original(*arguments)
setattr(os, function, counted)
seqmed.save(seqmed.SeqMED(C=3.0), path)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("function", "call", "expected"),
    [("fsync", 1, OLD), ("replace", 1, OLD), ("fsync", 2, NEW)],
    ids=["before the disk", "before the name", "after the name"],
)
def test_a_process_that_is_killed(function, call, expected, path):
    result = subprocess.run(
        [sys.executable, "-c", KILLED, path, function, str(call)], timeout=60, check=False
    )
    assert result.returncode == -signal.SIGKILL
    assert seqmed.load(path).C == expected.C
    bystander = path.with_name(f".{path.name}.notes.tmp")
    bystander.touch()
    remove_leftovers(path)
    assert set(path.parent.iterdir()) == {path, bystander}
    bystander.unlink()
    assert_holds(path, expected)


# -- names and permissions ------------------------------------------------------------------------


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_permissions_are_those_of_the_mask_or_of_the_old_file(tmp_path):
    path = tmp_path / "model"
    before = os.umask(0o027)
    try:
        seqmed.save(OLD, path)
        assert mode(path) == 0o640
        path.chmod(0o606)
        seqmed.save(NEW, path)
        assert mode(path) == 0o606
    finally:
        os.umask(before)


def test_a_link_stays_a_link(path, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    link = folder / "latest"
    link.symlink_to("../model")
    seqmed.save(NEW, link)
    assert link.is_symlink()
    assert seqmed.load(path).C == seqmed.load(link).C == NEW.C
    assert list(folder.iterdir()) == [link]
    fresh = folder / "fresh"
    fresh.symlink_to(tmp_path / "made")
    seqmed.save(OLD, fresh)
    assert seqmed.load(tmp_path / "made").C == OLD.C


@pytest.mark.parametrize("name", ["größe [1]*?.model", " ", "a" * 200])
def test_names_are_taken_as_they_are(name, tmp_path):
    path = tmp_path / name
    seqmed.save(OLD, str(path))
    remove_leftovers(path)
    assert_holds(path, OLD)


def test_what_is_no_file_is_refused_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (tmp_path, pipe, "/dev/zero"):
        for function in (seqmed.load, read, load_with_extra):
            with pytest.raises(ModelFileError, match="a folder, a pipe or a device"):
                function(place)
        with pytest.raises(ValueError, match="choose the name of a file"):
            seqmed.save(OLD, place)
    assert list(tmp_path.iterdir()) == [pipe]


def test_what_is_not_there_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        seqmed.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        seqmed.save(OLD, tmp_path / "nowhere" / "model")


def test_links_in_a_circle_are_refused_and_stay(tmp_path):
    """They were replaced by a file."""
    first, second, itself = (tmp_path / name for name in ("first", "second", "itself"))
    first.symlink_to("second")
    second.symlink_to("first")
    itself.symlink_to("itself")
    for link in (first, second, itself):
        with pytest.raises(OSError, match=r"symbolic links.*" + link.name):
            seqmed.save(NEW, link)
    assert sorted(tmp_path.iterdir()) == [first, itself, second]
    assert all(link.is_symlink() for link in tmp_path.iterdir())
