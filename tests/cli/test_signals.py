"""A signal ends a command, also while pyarrow reads."""

import signal
import subprocess
import sys

import pytest

from tests.support.command import PATIENCE

BEGINNING = """
import os, signal, sys, threading, time
from seqmed.cli.terminal import end_by_exception
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored if the tests run under nohup
end_by_exception()
def kill(number=getattr(signal, sys.argv[1])):
    time.sleep(0.2)
    os.kill(os.getpid(), number)
"""
BLOCKED = """
threading.Thread(target=kill, daemon=True).start()
os.read(os.pipe()[0], 1)
"""
# pyarrow would have its own handlers while it reads this file. Those of Python write to a pipe.
READING = """
import io, pyarrow, select
from pyarrow import csv
from seqmed.cli.terminal import keep_handlers
keep_handlers()
arrived, writer = os.pipe()
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)
class File(io.BytesIO):
    def read(self, size=-1):
        kill()
        print(len(select.select([arrived], [], [], 10)[0]), flush=True)
        return super().read(size)
csv.read_csv(pyarrow.PythonFile(File(b"a\\n1\\n"), "r"))
"""


def status(number: signal.Signals, rest: str) -> tuple[int, str]:
    command = [sys.executable, "-c", BEGINNING + rest, number.name]
    process = subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE, text=True)
    return process.returncode, process.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_during_a_read_ends_the_command(number):
    code, _ = status(number, BLOCKED)
    assert code == (-number if number == signal.SIGINT else 128 + number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_pyarrow_reads_ends_the_command(number):
    code, out = status(number, READING)
    assert out.splitlines()[0] == "1"
    assert code == (-number if number == signal.SIGINT else 128 + number)
