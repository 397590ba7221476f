"""Small hostile files are read or refused in one line, in bounded memory."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from seqmed.streams import LabelColumn, Stream, StreamError, inputs
from tests.support.hostile_files import MAKERS, arrow_file, hostile_file
from tests.support.stream_files import read, write

PARTS = 2
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


def test_columns_are_chosen_by_the_first_rows_of_a_large_batch(tmp_path, monkeypatch):
    """The batch is as large as before; rows behind the limit do not make `a` a column of texts."""
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n" + "1,p\n" * 100 + "word,p\n" * 300 + "2,q\n" * 50)
    monkeypatch.setattr(inputs, "BLOCK", 16)
    monkeypatch.setattr(inputs, "COLUMN_BYTES", 0)
    assert read(path, batch_size=500, features=None)[1].skipped.total == 0
    monkeypatch.setattr(inputs, "FIRST_BYTES", 200)
    batches, stream = read(path, batch_size=500, features=None, on_error="skip")
    assert [batch.X.shape for batch in batches] == [(150, 1)]
    assert stream.skipped.counts == {"not a number": 300}


def test_a_file_of_bad_rows_is_not_kept_until_there_is_a_good_one(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n" + "1,2,3\n" * 100 + "1,p\n")
    monkeypatch.setattr(inputs, "BLOCK", 16)
    monkeypatch.setattr(inputs, "COLUMN_BYTES", 0)
    assert len(read(path, features=None, on_error="skip")[0]) == 1
    monkeypatch.setattr(inputs, "FIRST_BYTES", 200)
    with pytest.raises(StreamError, match="has no row that can be read"):
        read(path, features=None, on_error="skip")
    with pytest.raises(StreamError, match="line 2: wrong number of fields"):
        read(path, features=None)


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_arrow_is_refused_before_it_is_decompressed(tmp_path, coded, compression):
    texts = pa.array(["x" * 2**20] * 300)
    column = pa.array(np.zeros(2**26))
    if coded:
        column = pa.DictionaryArray.from_arrays(pa.array([0]), texts)
    _, data = arrow_file(pa.table({"a": column}), random.Random(0), compression)
    path = tmp_path / "zeros.arrow"
    path.write_bytes(data)
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(StreamError, match=r"compressed record batch of \d+ bytes in"):
            list(Stream(path))
    finally:
        pa.set_memory_pool(usual)
    assert pool.max_memory() < 2**25


def test_a_large_record_batch_that_is_hardly_compressed_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("seqmed.streams.columnar.EXPANDED", 1000)
    table = pa.table({"a": np.random.default_rng(0).normal(size=5000)})
    for compression in (None, "zstd", "lz4"):
        path = tmp_path / "rows.arrow"
        path.write_bytes(arrow_file(table, random.Random(0), compression)[1])
        assert pa.concat_tables([batch.table for batch in Stream(path)]).equals(table)


def test_many_brackets_make_a_bad_row_of_json(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    inner = ",".join(["[]"] * 600_000)
    path.write_bytes(gzip.compress(f'{{"a": 1}}\n{{"b": [{inner}]}}\n{{"a": 2}}\n'.encode()))
    with pytest.raises(StreamError, match="line 2: not a single value"):
        list(Stream(path))
    (batch,) = Stream(path, on_error="skip")
    assert batch.table.to_pylist() == [{"a": 1}, {"a": 2}]


def test_short_rows_after_a_long_one_are_read_in_blocks(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n1,p\n" + "x" * 1000 + ",q\n" + "2,p\n" * 200)
    expected = [batch.table for batch in Stream(path, batch_size=1000)]
    monkeypatch.setattr(inputs, "BLOCK", 32)
    monkeypatch.setattr(inputs, "COLUMN_BYTES", 0)
    assert [batch.table for batch in Stream(path, batch_size=1000)] == expected


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
@pytest.mark.parametrize("block", [64, 2**20])
def test_a_batch_of_large_rows_ends_early(tmp_path, monkeypatch, kind, block):
    """Where it ends depends on the rows alone: not on blocks, nor on where reading begins."""
    monkeypatch.setattr(inputs, "BLOCK", block)
    monkeypatch.setattr(inputs, "BATCH_BYTES", 1000)
    columns = {"a": ["x" * (1 + place % 7) ** 3 for place in range(60)], "y": ["p", "q"] * 30}
    path = write(tmp_path / f"rows.{kind}", columns)
    label = LabelColumn("y")
    batches = list(Stream(path, label=label, batch_size=20))
    rows = [batch.row.tolist() for batch in batches]
    texts = [batch.table["a"].to_pylist() for batch in batches]
    sizes = [sum(map(len, own)) for own in texts]
    assert sum(map(len, rows)) == 60
    assert all(len(own) == 20 or size > 500 for own, size in zip(rows[:-1], sizes, strict=False))
    assert all(size <= 1000 for size in sizes)
    rest = list(Stream(path, label=label, batch_size=20, position=batches[1].position))
    assert [batch.row.tolist() for batch in rest] == rows[2:]
