"""Small files that would take much memory or time if they were believed."""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import zlib

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

LARGE = 2**27


def hostile_file(folder, number):
    """Write the file of a number, and return its path. The same number gives the same file."""
    chance = random.Random(number)
    make = MAKERS[number % len(MAKERS)]
    kind, data = make(chance)
    if chance.random() < 0.15:
        data = damaged(data, chance)
    path = folder / f"{number:03}_{make.__name__}.{kind}"
    path.write_bytes(data)
    return path


def damaged(data, chance):
    """Some bytes with a few of them changed or cut."""
    data = bytearray(data)
    for _ in range(chance.choice((1, 3))):
        place = chance.randrange(len(data))
        if chance.random() < 0.8:
            data[place : place + 4] = bytes(chance.randrange(256) for _ in range(4))
        else:
            del data[max(place, len(data) // 2) :]
            break
    return bytes(data)


def repeated_gzip(part, size):
    """A gzip file of about ``size`` bytes that repeat ``part``, made without all of them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = part * (2**20 // len(part) + 1)
    packed = [packer.compress(block) for _ in range(size // len(block) + 1)]
    return b"".join([*packed, packer.flush()])


# -- texts ----------------------------------------------------------------------------------------


def unclosed_quote(chance):
    line = chance.choice(("1,2,p\n", "1,2,3\n", '1,"2",p\n', "1,,\n", '"",2,""\n'))
    lines = [line] * chance.choice((1000, 100_000))
    lines.insert(chance.randrange(20), '1,"2,p\n')
    return "csv", ("a,b,y\n" + "".join(lines)).encode()


def many_quotes(chance):
    letters = ['"', '"', '""', ",", "\n", "a", '",', ',"', "\r\n"]
    return "csv", b"a,b,y\n" + "".join(chance.choices(letters, k=200_000)).encode()


def many_columns(chance):
    count = chance.choice((110_000, 1_500_000))
    names = ",".join(f"c{place}" for place in range(count))
    return "csv", (names + "\n" + "1," * (count - 1) + "1\n").encode()


def many_separators(chance):
    separator = chance.choice(",;|\t")
    rows = (separator * chance.choice((10, 3_000_000)) + "\n") * chance.choice((1, 3))
    return "csv", f"a{separator}b{separator}y\n{rows}".encode()


def no_line_end(chance):
    return "csv.gz", gzip.compress(b"a,y\n1,p\n") + repeated_gzip(
        chance.choice((b"1,", b"a", b'"', b"\r", b"\0")), chance.choice((2**25, 2**27))
    )


def blank_lines(chance):
    kind = chance.choice(("csv.gz", "jsonl.gz"))
    head = b"a,y\n1,p\n" if kind == "csv.gz" else b'{"a": 1, "y": 2}\n'
    return kind, gzip.compress(head) + repeated_gzip(chance.choice((b"\n", b"\r\n")), 2**28)


def many_rows(chance):
    return "csv.gz", gzip.compress(b"a,y\n") + repeated_gzip(b"1,ppppppppppppppppppp\n", 2**27)


def long_cells(chance):
    cell = b"x" * chance.choice((2**19, 2**21)) + b",p\n"
    return "csv.gz", gzip.compress(b"a,y\n" + cell * chance.choice((3, 200)))


def long_rows(chance):
    """Nearly as long as a row may be, and made of as many parts as possible."""
    kind, head, part = chance.choice(
        (
            ("csv.gz", b'a,y\n1,p\n2,"', b'""'),
            ("csv.gz", b"a,y\n1,p\n2", b',"aa"'),
            ("csv.gz", b'a,y\n1,p\n2,"x"y', b",34"),
            ("csv.gz", b"a,y\n1,p\n2", b",34"),
            ("jsonl.gz", b'{"a": 1, "y": 1}\n{"a": [', b'{"":1},'),
            ("jsonl.gz", b'{"a": 1, "y": 1}\n{"a": "', b"[{"),
        )
    )
    data = head + part * ((2**24 - 100) // len(part)) + b'"\n' + b"1,p\n" * 10
    return kind, gzip.compress(data, 1)


def broken_rows(chance):
    """No row can be used, until there is one."""
    part = chance.choice((b"1,2,3,4\n", b"x" * 2**20 + b',"p"q\n'))
    return "csv.gz", gzip.compress(b"a,y\n") + repeated_gzip(part, 2**28) + gzip.compress(b"1,p\n")


def wide_rows(chance):
    count = chance.choice((20_000, 45_000))
    names = ",".join(f"c{place}" for place in range(count)).encode()
    row = b",".join([chance.choice((b"1", b'"2"', b""))] * count)
    rows = 10_000_000 // len(row)
    return "csv.gz", gzip.compress(names + b"\n" + (row + b"\n") * rows, 1)


def noise(chance):
    kind = chance.choice(("csv", "tsv", "jsonl", "parquet", "arrow", "csv.gz"))
    return kind, bytes(chance.randrange(256) for _ in range(chance.choice((1, 100, 5000))))


def other_encodings(chance):
    text = "a;b;y\n" + "1,5;ü;p\n" * 1000
    encoding = chance.choice(("utf-16", "utf-16-le", "utf-32", "cp1252", "utf-7", "utf-8-sig"))
    return "csv", text.encode(encoding)


def deep_json(chance):
    depth = chance.choice((1000, 100_000, 3_000_000))
    opening = chance.choice(("[", '{"a":'))
    line = '{"a": 1, "y": 1}\n'
    return "jsonl", (line + '{"a": ' + opening * depth + "\n" + line).encode()


def nested_json(chance):
    inner = ",".join([chance.choice(("[]", "{}", "1", '""', "[1]"))] * 2_000_000)
    return "jsonl", ('{"a": 1, "y": 1}\n{"a": [' + inner + '], "y": 2}\n').encode()


def many_keys(chance):
    count = chance.choice((110_000, 700_000))
    return "jsonl", ("{" + ",".join(f'"c{place}": 1' for place in range(count)) + "}\n").encode()


def other_keys(chance):
    count = chance.choice((20_000, 60_000))
    return "jsonl", "".join(f'{{"k{place}": 1}}\n' for place in range(count)).encode()


def strange_json(chance):
    values = (
        "1" * 5000,
        "1e999",
        "-0",
        '"\\ud800"',
        "NaN",
        "1" * 30,
        "null",
        '"' + "x" * 10**6 + '"',
    )
    rows = [f'{{"a": {chance.choice(values)}, "y": 1}}\n' for _ in range(20)]
    return "jsonl", "".join(rows).encode()


# -- parquet and arrow ----------------------------------------------------------------------------


def expanding_table(chance):
    """A table that is small as a dictionary, and large when decoded."""
    rows = chance.choice((10_000, 1_000_000))
    length = chance.choice((10, 10_000, 2_000_000))
    indices = pa.array(np.zeros(rows, dtype=np.int32))
    texts = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * length]))
    return pa.table({"a": texts, "y": pa.nulls(rows)})


def expanding_parquet(chance):
    file = io.BytesIO()
    parquet.write_table(expanding_table(chance), file)
    return "parquet", file.getvalue()


def zeros_parquet(chance):
    file = io.BytesIO()
    zeros = pa.table({"a": np.zeros(LARGE // 8), "y": np.zeros(LARGE // 8)})
    coded = chance.random() < 0.5
    parquet.write_table(
        zeros,
        file,
        use_dictionary=coded,
        compression=chance.choice(("zstd", "gzip")),
        data_page_size=LARGE,
        write_batch_size=LARGE,
        row_group_size=LARGE,
    )
    return "parquet", file.getvalue()


def wide_parquet(chance):
    file = io.BytesIO()
    width = chance.choice((5_000, 20_000))
    parquet.write_table(pa.table({f"c{place}": [1.0] for place in range(width)}), file)
    return "parquet", file.getvalue()


def arrow_file(table, chance, compression=None):
    file = io.BytesIO()
    options = ipc.IpcWriteOptions(compression=compression)
    make = chance.choice((ipc.new_stream, ipc.new_file))
    with make(file, table.schema, options=options) as writer:
        writer.write_table(table)
    return "arrow", file.getvalue()


def expanding_arrow(chance):
    return arrow_file(expanding_table(chance), chance)


def zeros_arrow(chance):
    zeros = pa.table({"a": np.zeros(LARGE // 32)})  # a record batch must fit in memory
    return arrow_file(zeros, chance, chance.choice(("zstd", "lz4")))


def compressed_arrow(chance):
    """Record batches, or dictionaries that are kept, of 300 MB in 30 kB."""
    texts = pa.array(["x" * 2**20] * 100)
    tables = [pa.table({"a": np.zeros(5 * LARGE // 16)})]
    if chance.random() < 0.5:
        tables = [
            pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0]), texts[: 100 * count])})
            for count in (1, 1, 1)
        ]
    file, options = io.BytesIO(), ipc.IpcWriteOptions(compression="zstd")
    with ipc.new_stream(file, tables[0].schema, options=options) as writer:
        for table in tables:
            writer.write_table(table)
    return "arrow", file.getvalue()


def uneven_dictionary(chance):
    """One long text among many short ones, which every row has."""
    texts = pa.array(["x" * 2**17, *map(str, range(10_000))])
    codes = pa.array(np.zeros(chance.choice((100, 5000)), dtype=np.int32))
    return arrow_file(pa.table({"a": pa.DictionaryArray.from_arrays(codes, texts)}), chance)


def shared_views(chance):
    """Views of one long text, many times."""
    rows, length = 10_000, chance.choice((1000, 2**19))
    text = pa.py_buffer(b"x" * length)
    view = struct.pack("<i4sii", length, b"xxxx", 0, 0)
    views = pa.Array.from_buffers(pa.string_view(), rows, [None, pa.py_buffer(view * rows), text])
    return arrow_file(pa.table({"a": views}), chance)


def lying_lengths(chance):
    table = pa.table({"a": [f"text {place}" for place in range(1003)], "y": list(range(1003))})
    kind, data = arrow_file(table, chance, chance.choice((None, "zstd", "lz4")))
    return kind, data.replace(
        struct.pack("<q", chance.choice((1003, 8024))), struct.pack("<q", 2**40)
    )


def plain_rows(chance):
    """Nothing hostile, so that reading is tested as well as refusing."""
    rows = [{"a": chance.random(), "t": chance.choice("xyz"), "y": 1} for _ in range(300)]
    return "jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode()


MAKERS = (
    unclosed_quote, many_quotes, many_columns, many_separators, no_line_end, blank_lines, many_rows,
    long_cells, long_rows, broken_rows, wide_rows, noise, other_encodings, deep_json, nested_json,
    many_keys, other_keys, strange_json, expanding_parquet, zeros_parquet, wide_parquet,
    expanding_arrow, zeros_arrow, compressed_arrow, uneven_dictionary, shared_views, lying_lengths,
    plain_rows,
)  # fmt: skip
