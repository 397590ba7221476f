"""`seqmed learn` loses nothing: killed, interrupted, out of disk, and run again."""

import gzip
import json
import os
import resource
import signal
import subprocess
import time
import warnings

import numpy as np
import pytest
from pyarrow import parquet
from pyarrow.csv import read_csv

from seqmed import StreamPipeline
from seqmed.cli import checkpoint, prequential
from seqmed.cli.checkpoint import PendingLines
from seqmed.cli.learn import BatchOptions, ColumnOptions, ParameterOptions, learn_command
from seqmed.cli.options import Reading
from tests.support.command import (
    LEARN,
    PATIENCE,
    assert_same,
    log_lines,
    make_rows,
    popen,
    seqmed,
    start,
)

BATCHES = 60
COMMAND = (*LEARN, "20", "--log", "log")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A folder with rows and the model that one run has made of them, and how long that took."""
    folder = tmp_path_factory.mktemp("whole")
    make_rows(folder / "rows.csv", 20 * BATCHES)
    begin = time.monotonic()
    assert seqmed(folder, *COMMAND).code == 0
    return folder, time.monotonic() - begin


def check_finished(folder, whole):
    """The model is the uninterrupted one, and the log has every batch once."""
    assert_same(folder / "model", whole / "model")
    logged, expected = log_lines(folder / "log"), log_lines(whole / "log")
    volatile = ("time", "seconds")
    for line in (*logged, *expected):
        for name in volatile:
            del line[name]
    assert logged == expected
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("number", "times", "options"),
    [
        (signal.SIGKILL, 50, ()),
        (signal.SIGKILL, 10, ("--checkpoint-every", "3")),
        (signal.SIGINT, 15, ()),
    ],
)
def test_stopped_at_random_moments_it_goes_on(uninterrupted, tmp_path, number, times, options):
    whole, seconds = uninterrupted
    generator = np.random.default_rng((number, times))
    stopped, rounds, places = 0, 0, set()
    while stopped < times or rounds == 0:
        folder = tmp_path / str(rounds)
        folder.mkdir()
        (folder / "rows.csv").symlink_to(whole / "rows.csv")
        code = None
        while code != 0:
            process = start(folder, *COMMAND, *options)
            if stopped < times or (len(places) <= 3 and stopped < 10 * times):
                process.join(generator.uniform(0, seconds / 2))
                if process.exitcode is None:
                    os.kill(process.pid, number)
                    stopped += 1
            process.join(PATIENCE)
            code = process.exitcode
            if (folder / "log").exists():
                places.add((rounds, (folder / "log").read_bytes().count(b"\n")))
        check_finished(folder, whole)
        rounds += 1
    assert len(places) > 3  # it was stopped at several places, not only at the beginning


def test_a_full_disk_costs_nothing_but_time(uninterrupted, tmp_path):
    whole, _ = uninterrupted
    (tmp_path / "rows.csv").symlink_to(whole / "rows.csv")
    attempts, code = 0, None
    while code != 0:
        # a save forces the file to the disk, then the folder: every turn fails at another of these
        failing = 3 + attempts % 8 if attempts < 12 else None
        result = seqmed(tmp_path, *COMMAND, "--checkpoint-every", "1", failing=failing)
        code = result.code
        attempts += 1
        if code:
            assert code == 2
            assert "model: No space left on device: free some space" in result.err
            assert result.err.count("seqmed:") == 1
    assert attempts > 10
    check_finished(tmp_path, whole)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "chosen",
    [
        ("seqmed", "--budget", "30"),
        ("seqlapmed", "--budget", "30"),
        ("seqgraphmed", "--budget", "30", "--graph-memory", "60"),
        ("graphpropagation", "--graph-memory", "60"),
    ],
    ids=lambda chosen: chosen[0],
)
def test_a_folder_of_all_kinds_of_files_goes_on_too(tmp_path, chosen):
    folders = [tmp_path / "whole", tmp_path / "parts"]
    for folder in folders:
        (folder / "data").mkdir(parents=True)
        for number in range(3):
            make_rows(folder / "data" / f"{number}.csv", 50, seed=number)
        tables = [read_csv(folder / "data" / f"{number}.csv") for number in (1, 2)]
        lines = "".join(json.dumps(row) + "\n" for row in tables[0].to_pylist())
        (folder / "data" / "1.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
        parquet.write_table(tables[1], folder / "data" / "2.parquet")
        for number in (1, 2):
            (folder / "data" / f"{number}.csv").unlink()
    command = (
        "learn", "model", "data", "--label", "kind", "--features", "a,b,c", "--first-batch", "1",
        "--batch-size", "7", "--log", "log", "--checkpoint-every", "1", "--estimator", *chosen,
    )  # fmt: skip
    assert seqmed(folders[0], *command).code == 0
    attempts = 0
    while (code := seqmed(folders[1], *command, failing=5).code) != 0:
        assert code == 2
        attempts += 1
        assert attempts < 50, "it does not get on"
    assert attempts > 5
    check_finished(folders[1], folders[0])
    assert [line["rows_so_far"] for line in log_lines(folders[0] / "log")][-1] == 150


class Saves:
    """Counts the saves of `seqmed learn`, and makes each as slow as is wanted."""

    def __init__(self, monkeypatch, seconds):
        self.batches, self.seconds = [], seconds
        save = checkpoint.save_checkpoint

        def slow(model, progress, path):
            self.batches.append(model[-1].n_batches_)
            save(model, progress, path)
            time.sleep(self.seconds)

        monkeypatch.setattr(checkpoint, "save_checkpoint", slow)


def learn_here(folder, data="rows.csv", batch_size=20):
    """Run `seqmed learn` in this process."""
    columns = ColumnOptions(label="kind", drop=["id"])
    batches = BatchOptions(batch_size=batch_size, first_batch=1, log=folder / "log")
    parameters = ParameterOptions(experts="none")
    learn_command(
        folder / "model", [folder / data], columns, batches, parameters, reading=Reading()
    )


@pytest.mark.exhaustive
def test_saves_are_as_rare_as_they_are_slow(uninterrupted, tmp_path, monkeypatch):
    """Of 60 batches the first and the last are saved, if a save takes longer than all of them."""
    whole, seconds = uninterrupted
    (tmp_path / "rows.csv").symlink_to(whole / "rows.csv")
    saves = Saves(monkeypatch, seconds)
    learn_here(tmp_path)
    assert saves.batches == [1, BATCHES]
    check_finished(tmp_path, whole)
    monkeypatch.setattr(prequential, "WORK_PER_SAVE", 0)
    (tmp_path / "model").unlink()
    (tmp_path / "log").unlink()
    saves.batches.clear()
    saves.seconds = 0
    learn_here(tmp_path)
    assert saves.batches == [*range(1, BATCHES + 1), BATCHES]


def test_every_batch_of_a_pipe_is_saved(tmp_path):
    """A save forces the file to the disk, then the folder: the seventh time is in the fourth."""
    rows = make_rows(tmp_path / "rows.csv", 200)
    result = seqmed(tmp_path, *LEARN[:2], "-", *LEARN[3:], 20, stdin=rows, failing=7)
    assert (result.code, "No space left" in result.err) == (2, True)
    assert checkpoint.load_checkpoint(tmp_path / "model")[0][-1].n_batches_ == 3


def test_what_was_learned_before_a_bad_row_is_saved(tmp_path, monkeypatch):
    make_rows(tmp_path / "rows.csv", 100)
    with (tmp_path / "rows.csv").open("a") as file:
        file.write("1,oops,2,,100\n")
    saves = Saves(monkeypatch, 1.0)
    with pytest.raises(ValueError, match="oops"):
        learn_here(tmp_path)
    pipeline, progress = checkpoint.load_checkpoint(tmp_path / "model")
    model = pipeline[-1]
    assert saves.batches == [1, model.n_batches_]
    assert progress.record.rows == 20 * model.n_batches_ >= 80
    assert [line["batch"] for line in log_lines(tmp_path / "log")] == [
        *range(1, model.n_batches_ + 1)
    ]


@pytest.mark.parametrize("learned", [False, True])
def test_an_interrupted_batch_is_saved_as_a_whole_or_not_at_all(tmp_path, monkeypatch, learned):
    """Interrupted once the model has learned a batch, but the progress does not know of it yet."""
    make_rows(tmp_path / "rows.csv", 100)
    partial_fit = StreamPipeline.partial_fit

    def interrupted(model, X, y):
        if getattr(model[-1], "n_batches_", 0) < 3:
            return partial_fit(model, X, y)
        if learned:
            partial_fit(model, X, y)
        raise KeyboardInterrupt

    saves = Saves(monkeypatch, 1.0)
    with monkeypatch.context() as patches:
        patches.setattr(StreamPipeline, "partial_fit", interrupted)
        with pytest.raises(KeyboardInterrupt, match=f"after batch {1 if learned else 3}\\."):
            learn_here(tmp_path)
    assert saves.batches == ([1] if learned else [1, 3])
    learn_here(tmp_path)
    (tmp_path / "whole").mkdir()
    make_rows(tmp_path / "whole" / "rows.csv", 100)
    learn_here(tmp_path / "whole")
    check_finished(tmp_path, tmp_path / "whole")


def test_a_file_that_may_not_grow_keeps_the_old_model(tmp_path):
    make_rows(tmp_path / "rows.csv", 40)
    assert seqmed(tmp_path, *LEARN, 20).code == 0
    before = (tmp_path / "model").read_bytes()
    make_rows(tmp_path / "rows.csv", 40, start=40)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, len(before) // 2))

    process = popen(
        tmp_path, *LEARN, 20, preexec_fn=limit, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert b"model: File too large: free some space" in said
    assert b"Traceback" not in said
    assert (tmp_path / "model").read_bytes() == before
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_a_full_disk_under_the_log(tmp_path):
    make_rows(tmp_path / "rows.csv", 40)
    result = seqmed(tmp_path, *LEARN, 20, "--log", "/dev/full")
    assert result.code == 2
    assert "/dev/full: No space left on device: free some space" in result.err
    (tmp_path / "log").write_text("")
    assert seqmed(tmp_path, *LEARN, 20, "--log", "log").code == 0
    assert [line["batch"] for line in log_lines(tmp_path / "log")] == [2]


def test_many_lines_are_added_to_the_log_in_linear_time(tmp_path):
    """Deferred saves leave thousands of lines for one call; a quadratic search would not end."""
    path = tmp_path / "log"
    first, rest = (
        "".join(json.dumps({"batch": n, "time": "x" * 300}) + "\n" for n in numbers)
        for numbers in (range(10_000), range(10_000, 20_000))
    )
    path.write_text(first + rest[:1_000_000])
    for _ in range(2):
        PendingLines(str(path), len(first), rest).append()
    assert path.read_text() == first + rest


def test_finished_grown_changed_and_again(tmp_path):
    rows = make_rows(tmp_path / "rows.csv", 60)
    assert "60 rows" in seqmed(tmp_path, *LEARN, 20).out
    finished = (tmp_path / "model").read_bytes()
    result = seqmed(tmp_path, *LEARN, 20)
    assert (result.code, "no new rows in rows.csv" in result.out) == (0, True)
    assert (tmp_path / "model").read_bytes() == finished
    make_rows(rows, 40, start=60)
    assert "5 batches, 100 rows" in seqmed(tmp_path, "learn", "model", "rows.csv").out
    assert "10 batches, 200 rows" in seqmed(tmp_path, *LEARN, 20, "--again").out
    text = rows.read_text()
    rows.write_text(text.replace(text.splitlines()[3], "0,0,0,setosa,2"))
    learned = (tmp_path / "model").read_bytes()
    result = seqmed(tmp_path, *LEARN, 20)
    assert result.code == 2
    assert "rows.csv has changed within the first 100 rows" in result.err
    assert (tmp_path / "model").read_bytes() == learned


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_file_that_grows_by_halves_of_lines_is_learned_once(tmp_path, kind):
    """Batches of one row: the model is that of the whole file, to the last bit."""
    (tmp_path / "whole").mkdir()
    rows = make_rows(tmp_path / "whole" / "rows.csv", 25, labeled=1)
    if kind == "jsonl":
        lines = [json.dumps(row) for row in read_csv(rows).to_pylist()]
        rows = tmp_path / "whole" / "rows.jsonl"
        rows.write_text("\n".join([*lines, ""]))
    learn_here(tmp_path / "whole", rows.name, batch_size=1)
    content = rows.read_bytes()
    cuts = np.random.default_rng(0).integers(200, len(content), size=12)
    for cut in [*sorted(cuts.tolist()), len(content)]:
        (tmp_path / rows.name).write_bytes(content[:cut])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            learn_here(tmp_path, rows.name, batch_size=1)
        left = [str(each.message) for each in said if "has no line end" in str(each.message)]
        assert bool(left) == (content[cut - 1 : cut] != b"\n")
    check_finished(tmp_path, tmp_path / "whole")


def test_a_last_line_without_a_line_end(tmp_path):
    rows = make_rows(tmp_path / "rows.csv", 40, labeled=1)
    rows.write_text(rows.read_text().rstrip("\n"))
    for _ in range(2):
        result = seqmed(tmp_path, *LEARN, 20)
        assert (result.code, "2 batches, 39 rows" in result.out) == (0, True)
        assert "line 41: the last line has no line end" in result.err
    for command in (("predict",), ("evaluate", "--json"), ("query", "-n", "1")):
        result = seqmed(tmp_path, command[0], "model", "rows.csv", *command[1:])
        assert "no line end" not in result.err
    assert seqmed(tmp_path, "predict", "model", "rows.csv").out.count("\n") == 41
    assert '"rows": 40' in seqmed(tmp_path, "evaluate", "model", "rows.csv", "--json").out
    result = seqmed(tmp_path, *LEARN, 20, "--final")
    assert (result.code, result.err.count("no line end")) == (0, 0)
    assert "3 batches, 40 rows" in result.out
    assert "no new rows" in seqmed(tmp_path, *LEARN, 20).out
    make_rows(rows, 1, seed=5, start=40)  # after a line end that is still missing
    result = seqmed(tmp_path, *LEARN, 20)
    assert (result.code, "has changed within the first 40 rows" in result.err) == (2, True)


def test_the_end_of_a_pipe_is_final(tmp_path):
    rows = make_rows(tmp_path / "rows.csv", 40)
    rows.write_text(rows.read_text().rstrip("\n"))
    result = seqmed(tmp_path, *LEARN[:2], "-", *LEARN[3:], 20, stdin=rows)
    assert (result.code, "2 batches, 40 rows" in result.out) == (0, True)
