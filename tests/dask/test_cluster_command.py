"""`--cluster`: the same results as without it, and outputs that are whole or absent."""

import os
import signal
import time

import numpy as np
import pandas as pd
import pytest

from seqmed.cli.checkpoint import load_checkpoint
from tests.support.command import popen, seqmed
from tests.support.partitions import table, write_parts
from tests.support.state import assert_same_bits

SIZES = [300, 777, 50, 373]
COMMANDS = {
    "evaluate": ("evaluate", "model", "rows", "--json"),
    "query": ("query", "model", "rows", "-n", "6"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model and rows in four files of each format."""
    made = tmp_path_factory.mktemp("cluster")
    frame = table().assign(number=np.arange(1500))
    for kind in ("csv", "parquet"):
        write_parts(frame, made / f"rows-{kind}", SIZES, kind)
    learned = seqmed(
        made, "learn", "model", "rows-csv", "--label", "kind", "--drop", "number",
        "--graph-memory", "200", "--batch-size", "500",
    )  # fmt: skip
    assert learned.code == 0, learned.err
    return made


@pytest.fixture
def address(clusters):
    return clusters(2).scheduler.address


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("name", COMMANDS)
def test_results_are_the_same(folder, address, name, kind):
    arguments = [each.replace("rows", f"rows-{kind}") for each in COMMANDS[name]]
    alone = seqmed(folder, *arguments, "-q")
    together = seqmed(folder, *arguments, "-q", "--cluster", address)
    assert together.code == 0, together.err
    assert together.out == alone.out
    assert together.err == alone.err


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_sample_is_the_same(folder, address, kind, tmp_path):
    options = ("--label", "kind", "--drop", "number", "--graph-memory", 200, "--sample")
    arguments = (folder / f"rows-{kind}", *options)
    alone = seqmed(tmp_path, "learn", "alone", *arguments)
    together = seqmed(tmp_path, "learn", "together", *arguments, "--cluster", address)
    assert together.code == 0, together.err
    assert together.out == alone.out.replace("alone", "together")
    models = [load_checkpoint(tmp_path / name) for name in ("alone", "together")]
    assert_same_bits(*(model for model, _ in models))
    assert models[0][1] == models[1][1]  # the position, and the counts
    refused = seqmed(tmp_path, "learn", "together", *arguments[:-1], "--cluster", address)
    assert refused.code == 2
    assert "--cluster needs --sample" in refused.err


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_predictions_are_the_same_in_a_file_for_every_input(folder, address, kind, tmp_path):
    rows, out = f"rows-{kind}", tmp_path / "out"
    arguments = ("predict", "model", rows, "--keep", "number", "-q", "-o")
    assert seqmed(folder, *arguments, tmp_path / "alone.csv").code == 0
    done = seqmed(folder, *arguments, out, "--cluster", address)
    assert done.code == 0, done.err
    assert sorted(each.name for each in out.iterdir()) == [f"part-{n}.csv" for n in range(4)]
    lines = [path.read_text().splitlines() for path in sorted(out.iterdir())]
    found = [lines[0][0], *(line for part in lines for line in part[1:])]
    assert found == (tmp_path / "alone.csv").read_text().splitlines()
    before = (out / "part-2.csv").read_bytes()
    again = seqmed(folder, *arguments, out, "--cluster", address)
    assert again.code == 2
    assert "part-0.csv exists: choose another name, or replace it with --force." in again.err
    assert seqmed(folder, *arguments, out, "--cluster", address, "--force").code == 0
    assert (out / "part-2.csv").read_bytes() == before


def test_a_bad_file_is_named_and_nothing_is_half_written(folder, address, tmp_path):
    rows = tmp_path / "rows"
    paths = write_parts(table().assign(number=1), rows, SIZES, "csv")
    cells = paths[1].read_text().splitlines()
    paths[1].write_text("\n".join([*cells[:700], "bad,1,1,1,north,,1", *cells[700:]]) + "\n")
    out = tmp_path / "out"
    arguments = ("predict", folder / "model", rows, "-q", "--cluster", address, "-o", out)
    done = seqmed(folder, *arguments)
    assert done.code == 2
    assert f"{paths[1]}, line 701: not a number in column 'a', got 'bad'" in done.err
    assert not (out / "part-1.csv").exists()
    assert not out.exists() or not [each for each in out.iterdir() if each.suffix != ".csv"]
    skipped = seqmed(folder, *arguments, "--force", "--on-error", "skip")
    assert skipped.code == 0, skipped.err
    assert "skipped 1 bad row: not a number" in skipped.err
    assert len(pd.read_csv(out / "part-1.csv")) == 777


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "model", "rows-csv", "--cluster", "lokal"), "expected local, local:N or the"),
        (("evaluate", "model", "rows-csv", "--cluster", "local:0"), "with N >= 1 processes"),
        (("evaluate", "model", "-", "--cluster", "local"), "expected files"),
        (("evaluate", "model", "rows-csv", "--prequential", "--cluster", "local"), "--prequential"),
        (("predict", "model", "rows-csv", "--cluster", "local"), "expected a folder with"),
        (("predict", "model", "rows-csv", "rows-parquet", "-o", "o", "--cluster", "local"),
         "would both be written to o/part-0.csv"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(folder, arguments, message):
    done = seqmed(folder, *arguments)
    assert done.code == 2
    assert message in done.err
    assert not (folder / "o").exists()


def test_an_interrupt_cancels_the_tasks_and_leaves_whole_files(folder, tmp_path):
    rows = tmp_path / "rows"
    frame = pd.concat([table().assign(number=1)] * 10)
    write_parts(frame, rows, [500] * 30, "csv")
    out = tmp_path / "out"
    process = popen(
        folder, "predict", "model", rows, "-o", out, "--cluster", "local:1", stderr=-1,
        text=True, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 120
    while not (out.exists() and list(out.glob("*.csv"))) and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does in a terminal
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    written = list(out.iterdir())
    assert 0 < len(written) < 30
    assert all(len(pd.read_csv(path)) == 500 for path in written)
