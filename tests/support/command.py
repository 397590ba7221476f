"""The `seqmed` command in processes of its own, and rows to run it on.

`start` runs the real entry point in a process forked from one that has imported everything: that
takes a tenth of a second instead of three. `popen` starts a new interpreter, as a shell does.

New models have no refitted experts, which take most of the time of small batches. A test that is
about them passes ``--experts auto``; they then have few trees. With ``quick=False`` the command is
that of users.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.support.command_imports"])
PATIENCE = 300  # seconds, after which a process that hangs fails its test
NAMES = ("setosa", "versicolor", "virginica")


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def seqmed(folder, *arguments, **options) -> Result:
    """Run a command to its end, from the folder; see `start` for options."""
    process = start(folder, *arguments, **options)
    process.join(PATIENCE)
    assert process.exitcode is not None, "the command hangs"
    return Result(process.exitcode, *((folder / name).read_text() for name in ("out", "err")))


def start(
    folder,
    *arguments,
    stdin=os.devnull,
    failing=None,
    columns=60,
    outputs=("out", "err"),
    quick=True,
):
    """Start a command in a forked process; its output goes to two files or pipes of the folder.

    `failing` makes the disk full when something is forced to it for that many times. `columns` is
    the width of the output.
    """
    arguments = without_experts(folder, arguments) if quick else [*map(str, arguments)]
    target = (str(folder), arguments, str(stdin), failing, columns, outputs, quick)
    process = FORKS.Process(target=run, args=target)
    process.start()
    return process


def without_experts(folder, arguments) -> list[str]:
    """Return arguments that make a new model without refitted experts, unless these are chosen."""
    arguments = [*map(str, arguments)]
    chosen = {"--experts", "--estimator", "--help"} & set(arguments)
    if arguments[:1] != ["learn"] or chosen or (Path(folder) / arguments[1]).exists():
        return arguments
    return [*arguments, "--experts", "none"]


def run(folder, arguments, stdin, failing, columns, outputs, quick):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.dup2(os.open(stdin, os.O_RDONLY), 0)
    for number, name in enumerate(outputs, 1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    sys.argv = ["seqmed", *arguments]
    os.environ["COLUMNS"] = str(columns)
    if failing is not None:
        fill_disk(failing)
    from seqmed.cli import main
    from seqmed.mixture import experts

    if quick:
        experts.N_TREES = 8  # as in the tests themselves
    main()


def fill_disk(times):
    force, left = os.fsync, [times]

    def fsync(descriptor):
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        force(descriptor)

    os.fsync = fsync


def popen(folder, *arguments, **options):
    """Start a command in an interpreter of its own."""
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-m", "seqmed", *without_experts(folder, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        **options,
    )


def make_rows(path: Path, n_rows: int, *, seed=0, labeled=0.3, start=0) -> Path:
    """Write a CSV of three overlapping clouds, or add rows to one."""
    lines = [] if start else ["a,b,c,kind,id"]
    for number in range(start, start + n_rows):
        generator = np.random.default_rng((seed, number))
        kind = int(generator.integers(3))
        label = NAMES[kind] if generator.random() < labeled else ""
        point = (generator.normal(size=3) + 2.0 * np.eye(3)[kind]).round(5)
        lines.append(",".join([*map(str, point.tolist()), label, str(number)]))
    with path.open("a" if start else "w") as file:
        file.writelines(f"{line}\n" for line in lines)
    return path


LEARN = (
    "learn", "model", "rows.csv", "--label", "kind", "--drop", "id", "--first-batch", "1",
    "--batch-size",
)  # fmt: skip


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of all files of a folder, for `restore`."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def restore(folder: Path, files: dict[str, bytes]) -> Path:
    """Give a folder these files and no others.

    A model knows its rows by their place, so that a copy of both would not do.
    """
    shutil.rmtree(folder)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def log_lines(path: Path) -> list[dict]:
    """Return the lines of a log."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def assert_same(first: Path, second: Path) -> None:
    """Compare two models to the last bit, by what they say of new rows and of themselves."""
    from seqmed.model_file import load_with_extra
    from tests.support.state import state_bits

    points = np.random.default_rng(9).normal(size=(50, 3)) + 1
    (one, kept), (other, also_kept) = map(load_with_extra, (first, second))
    assert one[-1].n_batches_ == other[-1].n_batches_
    for name in ("decision_function", "predict_proba"):
        np.testing.assert_array_equal(getattr(one, name)(points), getattr(other, name)(points))
    assert kept["record"] == also_kept["record"]
    assert state_bits(one) == state_bits(other)
    digests = [
        [each["digest"] for each in extra["position"]["files"]] for extra in (kept, also_kept)
    ]
    assert digests[0] == digests[1]
