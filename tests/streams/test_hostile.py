"""Small hostile files are read or refused in one line, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.hostile_files import MAKERS, hostile_file

PARTS = 4
# Bytes of memory that a process which reads a file may use, including Python and its libraries.
LARGEST = 600 * 2**20
# Seconds after which reading is taken to hang.
PATIENCE = 1200

READER = """
import json, os, sys, warnings
from seqmed.streams import LabelColumn, Stream, StreamError

class Everything:
    columns = None
    def needed(self):
        return self.columns
    used = needed
    def decide(self, table):
        self.columns = tuple(table.column_names)
    def checked(self, table):
        return table, {}

def read(path, on_error):
    result, rows = "read", 0
    try:
        stream = Stream(
            path, label=LabelColumn("y"), check=Everything(), on_error=on_error,
            first_batch_size=1000,
        )
        for batch in stream:
            rows += batch.table.num_rows
    except StreamError as error:
        result = str(error)
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
    print(json.dumps([path, result, rows, peak]), flush=True)

warnings.simplefilter("ignore")
for line in sys.stdin.read().split("\\n"):
    path, *ways = json.loads(line)
    for on_error in ways:
        child = os.fork()
        if not child:
            read(path, on_error)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{path} ended the process ({on_error})")
"""


WAYS = ("stop", "skip")


def results(paths, ways):
    """What became of every file, each read in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", READER],
        input="\n".join(
            json.dumps([str(path), *own]) for path, own in zip(paths, ways, strict=True)
        ),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-300:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(paths, ways):
    found = results(paths, ways)
    assert len(found) == sum(map(len, ways))
    for path, result, _, peak in found:
        assert result == "read" or result.startswith(path), result
        assert "\n" not in result
        assert peak < LARGEST, (path, result, peak)
    return found


def test_one_of_each_kind(tmp_path):
    """Errors stop the reading of every other file, and are skipped in the rest."""
    numbers = range(len(MAKERS))
    paths = [hostile_file(tmp_path, number) for number in numbers]
    found = check(paths, [WAYS[number % 2 : number % 2 + 1] for number in numbers])
    assert {path for path, result, *_ in found if result == "read"}
    assert {path for path, result, *_ in found if result != "read"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_many_of_each_kind_in_both_ways(tmp_path, part):
    first = part * len(MAKERS)
    paths = [hostile_file(tmp_path, number) for number in range(first, first + len(MAKERS))]
    check(paths, [WAYS] * len(paths))
