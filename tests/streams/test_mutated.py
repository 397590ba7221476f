"""Damaged files: each gives valid batches or is refused with the library's own error."""

from __future__ import annotations

import io
import random
import resource
import struct
import warnings

import pyarrow as pa
import pytest
from pyarrow import ipc

from seqmed.streams import LabelColumn, Stream, StreamError, StreamWarning, inputs
from seqmed.streams.delimited import Grammar
from seqmed.streams.inputs import Bytes
from seqmed.streams.pieces import Text
from tests.support.stream_files import (
    FORMATS,
    TEXTS,
    make_columns,
    open_stream,
    write,
)

# Damaged files of every kind and policy, and the bytes that reading them may take.
MUTANTS, LARGEST = 60, 2**27
TOKENS = (
    b"\n", b"\r", b'"', b",", b"\t", b"\0", b"\xff", b"{", b"}", b"[", b"NaN", b"1e999", b"-",
    b"\\u", b"\xef\xbb\xbf", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f",
    b"PAR1", b"PK",
)  # fmt: skip


def mutated(data, chance):
    """Some bytes with flips, cuts, repeats, swaps or insertions."""
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        place = chance.randrange(len(data) + 1)
        length = chance.choice((1, 4, 16, 200))
        match chance.randrange(6):
            case 0:
                data[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                data[place : place + length] = b""
            case 2:
                data[place:place] = chance.choice(TOKENS)
            case 3:
                data[place : place + length] = chance.choice(TOKENS)
            case 4:
                del data[place:]
            case 5:
                data[place:place] = data[place : place + length]
    return bytes(data)


def peak():
    """Bytes of memory that this process has used at most.

    What a damaged file says of its size is sometimes allocated, but then there is nothing to fill
    it with: it is the memory in use that counts.
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def check(stream):
    """See that batches are valid, and not more than there can be."""
    count = 0
    for batch in stream:
        count += batch.row.size
        assert batch.table.num_rows == batch.row.size
        batch.table.validate(full=True)
        assert len({type(label) for label in batch.y if label is not None}) <= 1
        assert batch.position.from_dict(batch.position.to_dict()) == batch.position
        assert count <= 1000


@pytest.mark.filterwarnings("ignore::seqmed.streams.StreamWarning")
@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_files_are_read_or_refused(tmp_path, kind, on_error):
    columns = make_columns(40)
    columns["y"] = [f"class {label}" if label else None for label in columns["y"]]
    whole = write(tmp_path / f"whole.{kind}", columns)
    chance, refused, before = random.Random(f"{kind} {on_error}"), [], peak()
    for number in range(MUTANTS):
        path = tmp_path / f"{number}.{kind}"
        path.write_bytes(mutated(whole.read_bytes(), chance))
        for features in (None, ("x0", "x1", "x2")):
            try:
                check(open_stream(path, features=features, on_error=on_error)[0])
            except StreamError as error:
                refused.append(str(error))
    assert peak() - before < LARGEST
    assert not any("\n" in message for message in refused)
    assert refused or kind in TEXTS


@pytest.mark.parametrize("offsets", [(0, 10**6, 14), (0, -8, 14), (0, 14, 7), (10**6, 7, 14)])
def test_offsets_that_lead_out_of_a_file_are_not_followed(tmp_path, offsets):
    table = pa.table({"a": [1.0, 2.0], "y": ["class 0", "class 1"]})
    path = tmp_path / "data.arrow"
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)
    data, found = path.read_bytes(), struct.pack("<3i", 0, 7, 14)
    assert data.count(found) == 1
    path.write_bytes(data.replace(found, struct.pack("<3i", *offsets)))
    with pytest.raises(StreamError, match=r"cannot be read as Arrow .*(Offset|offset|length)"):
        check(Stream(path, label=LabelColumn("y")))


@pytest.mark.exhaustive
@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_records_do_not_depend_on_the_blocks_they_come_in(monkeypatch, delimiter):
    """Random texts of difficult characters, cut in blocks of every size."""
    chance = random.Random(delimiter)
    grammar = Grammar(delimiter)
    for _ in range(150):
        letters = ("a", "1", '"', '""', '"', "\n", "\r\n", "\r", delimiter, delimiter)
        content = "".join(chance.choices(letters, k=chance.randrange(1, 60))).encode()
        final, growing = (records(content, grammar, grows) for grows in (False, True))
        assert letters_of(b"".join(record for _, record in final)) == letters_of(content)
        assert final[: len(growing)] == growing
        assert (final == growing) == (content.rstrip(b"\r")[-1:] in (b"\n", b""))
        for block in (1, 2, 3, 7, 20):
            monkeypatch.setattr(inputs, "BLOCK", block)
            monkeypatch.setattr(inputs, "COLUMN_BYTES", 0)
            assert records(content, grammar, False) == final
            assert records(content, grammar, True) == growing
        monkeypatch.undo()


def records(content, grammar, grows):
    """The records of a text, each with its line."""
    file = io.BytesIO(content)
    source = Text(Bytes(file.read, lambda: 0.0, b""), "text", grows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamWarning)
        pieces = list(source.pieces(grammar.split, 1))
    return [
        (piece.line_of(place), piece.record(place))
        for piece in pieces
        for place in range(piece.ends.size)
    ]


def letters_of(content):
    return content.translate(None, b"\r\n")
