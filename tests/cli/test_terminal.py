"""The command at a terminal and in a pipe, in an interpreter of its own."""

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time

import pytest

from tests.support.command import LEARN, PATIENCE, log_lines, make_rows, popen, seqmed

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command that runs at a terminal of its own."""

    def __init__(self, folder, *arguments):
        self.master, terminal = pty.openpty()

        def control():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # our own parent may ignore Ctrl-C

        self.process = popen(
            folder, *arguments, stdin=terminal, stdout=terminal, stderr=terminal,
            start_new_session=True, preexec_fn=control,
        )  # fmt: skip
        os.close(terminal)

    def finish(self):
        """Return everything that was shown, and the exit code."""
        shown = b""
        while True:
            try:
                part = os.read(self.master, 4096)
            except OSError:  # the last one who could write has closed it
                part = b""
            if not part:
                break
            shown += part
        os.close(self.master)
        return ESCAPES.sub("", shown.decode()), self.process.wait(PATIENCE)


def test_a_bar_at_a_terminal(tmp_path):
    make_rows(tmp_path / "rows.csv", 200)
    shown, code = Terminal(tmp_path, *LEARN, 20).finish()
    assert code == 0, shown
    assert "learning ━" in shown
    assert "100%" in shown
    assert "rows/s" in shown
    assert "model: 10 batches, 200 rows" in shown


def test_control_c_at_a_terminal(tmp_path):
    make_rows(tmp_path / "rows.csv", 20_000, labeled=0.05)
    terminal = Terminal(tmp_path, *LEARN, 10, "--log", "log")
    deadline = time.monotonic() + PATIENCE
    while not (tmp_path / "log").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.write(terminal.master, b"\x03")
    shown, code = terminal.finish()
    assert code == 130, shown
    saved = re.search(r"model was saved after batch (\d+)", shown)
    assert saved is not None
    assert "Traceback" not in shown
    assert [line["batch"] for line in log_lines(tmp_path / "log")][-1] == int(saved[1])
    assert f"{saved[1]} batch" in seqmed(tmp_path, "inspect", "model").out


@pytest.mark.parametrize("closed", [False, True])
def test_lines_in_a_pipe(tmp_path, closed):
    make_rows(tmp_path / "rows.csv", 200)
    process = popen(
        tmp_path, *LEARN[:2], "-", *LEARN[3:], 20,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    text = (tmp_path / "rows.csv").read_text()
    out, err = process.communicate("" if closed else text, timeout=PATIENCE)
    lines = err.splitlines()
    assert lines[0].startswith("a pipe cannot be resumed")
    if closed:
        assert process.returncode == 2
        assert "no row to learn from" in lines[-1]
        return
    assert process.returncode == 0
    assert re.fullmatch(r"learning: batch 1, 20 rows, graph weight [\d.]+, [\d,]+ rows/s", lines[1])
    assert "\x1b" not in out + err
    assert out.startswith("model: 10 batches, 200 rows")


@pytest.mark.exhaustive
def test_killed_as_a_shell_would_start_it(tmp_path):
    make_rows(tmp_path / "rows.csv", 600)
    codes = []
    for more in (5, 20, None):
        process = popen(tmp_path, *LEARN, 10, "--log", "log", stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while more is not None and time.monotonic() < deadline and process.poll() is None:
            if (tmp_path / "log").exists() and (tmp_path / "log").read_bytes().count(b"\n") >= more:
                process.kill()
                break
        codes.append(process.wait(PATIENCE))
    assert codes == [-9, -9, 0]
    assert [line["batch"] for line in log_lines(tmp_path / "log")] == list(range(1, 61))


def test_completion_knows_the_commands():
    script = "import sys; sys.argv = ['seqmed']; from seqmed.cli import main; main()"
    asked = {"_SEQMED_COMPLETE": "complete_bash", "COMP_WORDS": "seqmed le", "COMP_CWORD": "1"}
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **asked}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert result.stdout.split() == ["learn"]


def test_completion_is_offered(monkeypatch):
    # else the shell is the one found among the processes above, if any
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    process = popen(
        None, "--show-completion", "bash", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    shown, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert b"_COMPLETE" in shown


COMMANDS = (
    (*LEARN, "20"),
    ("predict", "model", "rows.csv"),
    ("evaluate", "model", "rows.csv", "--json"),
    ("inspect", "model"),
    ("query", "model", "rows.csv", "-n", "3"),
)


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A folder with rows and a model of them."""
    folder = tmp_path_factory.mktemp("taught")
    make_rows(folder / "rows.csv", 60)
    assert seqmed(folder, *LEARN, 20).code == 0
    return folder


def ended(folder, commands=COMMANDS, **options):
    """Run all commands at once, each with an exit code and what it said."""
    processes = [popen(folder, *each, stdin=subprocess.DEVNULL, **options) for each in commands]
    said = [process.communicate(timeout=PATIENCE) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


# Messages and rows; the others end in the same way as one of these.
@pytest.mark.parametrize(
    "commands", [COMMANDS[:2], pytest.param(COMMANDS[2:], marks=pytest.mark.exhaustive)]
)
def test_every_command_ends_with_141_where_nobody_reads(taught, commands):
    reader, writer = os.pipe()
    os.close(reader)
    for code, _, err in ended(taught, commands, stdout=writer, stderr=subprocess.PIPE):
        assert (code, b"Error" in err) == (141, False), err
    os.close(writer)


@pytest.mark.exhaustive
def test_no_command_hides_that_its_results_are_lost(taught):
    with open("/dev/full", "wb") as full:
        lost = ended(taught, stdout=full, stderr=subprocess.PIPE)
    for code, _, err in lost:
        assert code == 2, err
        last = err.decode().splitlines()[-1]
        assert last.startswith("seqmed: standard output: ")
        assert b"Error" not in err
