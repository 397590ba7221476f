"""No output overwrites what it should not, and none is left half-written."""

import os
import signal
import subprocess
import time

import pytest

from tests.support.command import LEARN, PATIENCE, make_rows, popen, restore, seqmed

COMMANDS = {
    "predict": ("predict", "model", "rows.csv", "--to", "csv", "-o"),
    "query": ("query", "model", "rows.csv", "-n", "3", "--to", "csv", "-o"),
    "evaluate": ("evaluate", "model", "rows.csv", "--plot"),
    "learn": ("learn", "model", "rows.csv", "--log"),
    "learn and plot": ("learn", "model", "rows.csv", "--log", "log", "--plot"),
}


@pytest.fixture
def folder(learned):
    """The folder as it was before all tests, and other names of rows and model."""
    folder = restore(*learned)
    for name, target in (("model", "m"), ("rows.csv", "r")):
        (folder / f"{target}-link.png").symlink_to(name)
        (folder / f"{target}-hard.png").hardlink_to(folder / name)
    (folder / "sub").mkdir()
    return folder


def contents(folder):
    """Everything in a folder but what the commands themselves say."""
    paths = [path for path in folder.rglob("*") if path.name not in ("out", "err")]
    return {path: path.read_bytes() for path in paths if path.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_onto_the_model_or_an_input_is_refused(folder, command):
    before = contents(folder)
    for name in ("model", "m-link.png", "m-hard.png", "rows.csv", "r-link.png", "r-hard.png"):
        result = seqmed(folder, *COMMANDS[command], f"sub/../{name}", "--force")
        assert result.code == 2, (name, result)
        refused = ("and would overwrite it: choose another file", "expected .png, .svg or .pdf")
        assert any(reason in result.err for reason in refused)
    assert contents(folder) == before


def test_files_of_a_folder_and_standard_streams_are_inputs_and_outputs_too(folder):
    make_rows(folder / "sub" / "a.csv", 20)
    before = contents(folder)
    for arguments in (
        ("predict", "model", "sub", "-o", "sub/a.csv", "--force"),
        ("learn", "sub/a.csv", "sub", "--label", "kind"),
        ("learn", "new", "sub", "--label", "kind", "--log", "new"),
    ):
        assert "would overwrite" in seqmed(folder, *arguments).err
    result = seqmed(
        folder, "predict", "model", "-", "-o", "rows.csv", "--force", stdin=folder / "rows.csv"
    )
    assert "is standard input" in result.err
    with (folder / "rows.csv").open("a") as rows:  # else it would read what it writes, without end
        process = popen(
            folder, "predict", "model", "rows.csv", stdout=rows, stderr=subprocess.DEVNULL
        )
    assert process.wait(PATIENCE) == 2
    assert contents(folder) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_an_existing_file_needs_force(folder, command):
    target = folder / "mine.png"
    target.write_text("of some value\n")
    make_rows(folder / "rows.csv", 10, start=60)
    before = contents(folder)
    result = seqmed(folder, *COMMANDS[command], "mine.png")
    assert result.code == 2
    assert contents(folder) == before
    if command == "learn":
        assert "mine.png is not a log of seqmed learn: choose another name" in result.err
        return
    assert "mine.png exists" in result.err
    assert "--force" in result.err
    assert seqmed(folder, *COMMANDS[command], "mine.png", "--force").code == 0
    assert b"of some value" not in target.read_bytes()


def test_a_log_is_added_to_without_force(folder):
    for start in (60, 70):
        make_rows(folder / "rows.csv", 10, start=start)
        assert seqmed(folder, *LEARN, 20, "--log", "log").code == 0
    assert (folder / "log").read_text().count("\n") == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", ["predict", "query", "evaluate"])
def test_pipes_and_devices_are_written_to(folder, command):
    os.mkfifo(folder / "pipe")
    for name in ("/dev/null", "/dev/stdout", "pipe"):
        process = popen(
            folder, *COMMANDS[command], name, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        read = (folder / "pipe").read_bytes() if name == "pipe" else b""
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        found = {"/dev/null": b"", "/dev/stdout": out, "pipe": read}[name]
        assert found.startswith(b"" if name == "/dev/null" else (b"file,row", b"\x89PNG"))
    result = seqmed(folder, *COMMANDS[command], "/dev/full")
    assert result.code == 2
    assert "/dev/full: No space left on device" in result.err
    assert (folder / "pipe").is_fifo()


def test_a_file_behind_a_descriptor_is_added_to(folder):
    with (folder / "all.csv").open("wb") as file:
        file.write(b"before\n")
        file.flush()
        process = popen(
            folder, *COMMANDS["predict"], f"/dev/fd/{file.fileno()}", pass_fds=[file.fileno()]
        )
        assert process.wait(PATIENCE) == 0
    assert (folder / "all.csv").read_bytes().startswith(b"before\nfile,row")


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("command", ["predict", "query"])
def test_a_stopped_run_leaves_the_old_output_and_nothing_else(folder, number, command):
    os.mkfifo(folder / "pipe")
    (folder / "old.csv").write_text("old\n")
    before = contents(folder)
    arguments = ["pipe" if each == "rows.csv" else each for each in COMMANDS[command]]
    process = popen(
        folder, *arguments, "old.csv", "--force", stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )  # fmt: skip
    with (folder / "pipe").open("w") as pipe:  # it has begun to read, and does not get to the end
        pipe.write((folder / "rows.csv").read_text())
        pipe.flush()
        deadline = time.monotonic() + PATIENCE
        while command == "predict" and time.monotonic() < deadline:
            if any(path.name.startswith(".old.csv.") for path in folder.iterdir()):
                break
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number
    assert contents(folder) == before


def test_a_symbolic_link_that_leads_nowhere(folder):
    (folder / "loop.csv").symlink_to("loop.csv")
    for arguments in ((*COMMANDS["predict"], "loop.csv"), ("learn", "loop.csv", "rows.csv")):
        result = seqmed(folder, *arguments)
        assert (result.code, "Too many levels of symbolic links" in result.err) == (2, True)
    assert (folder / "loop.csv").is_symlink()
