"""Separators, decimal commas and encodings: detected, told in one line, or chosen."""

from __future__ import annotations

import gzip
import io
import sys

import pyarrow as pa
import pytest
from pyarrow import ipc

from seqmed.numeric.words import Shown
from seqmed.streams import Dialect, LabelColumn, Stream, StreamError
from tests.support.stream_files import make_columns, read, same_rows, write


@pytest.fixture(autouse=True)
def shown_by_command(monkeypatch):
    """Messages name options of the command line."""
    monkeypatch.setattr(Shown, "by_command", True)


def test_in_python_messages_name_parameters(monkeypatch, tmp_path):
    monkeypatch.setattr(Shown, "by_command", False)
    path = tmp_path / "rows.csv"
    path.write_text(as_text(";", ","))
    _, (line,) = cells_of(path)
    assert line.endswith("read with sep=';', decimal=',' (detected from the first lines).")
    with pytest.raises(StreamError, match=r"Dialect\(encoding="):
        cells_of(path, dialect=Dialect(encoding="ascii"))


NAMES = ("size", "price", "note", "y")
CELLS = [("1234.5", "0.25", "größe, x", "p"), ("-7", "1000000.125", "a;b|c\td", "q")]
CELLS += [(f"{row}.5", f"{row * 1000}.75", f"n{row}", "pq"[row % 2]) for row in range(1, 30)]
EXPECTED = [tuple(row) for row in CELLS]


def cell(text, decimal, thousands):
    """A number as another country writes it; any other text as it is."""
    try:
        float(text)
    except ValueError:
        return text
    whole, _, fraction = text.partition(".")
    if thousands:
        whole = f"{int(whole):,}".replace(",", thousands)
    return whole + (decimal + fraction if fraction else "")


def as_text(sep=",", decimal=".", thousands="", end="\n", quote="needed", head=""):
    lines = []
    for number, row in enumerate([NAMES, *CELLS]):
        fields = [cell(text, decimal, thousands) if number else text for text in row]
        marks = (sep, '"', "\n")
        if quote == "all":
            fields = [f'"{field}"' for field in fields]
        else:
            fields = [f'"{each}"' if any(m in each for m in marks) else each for each in fields]
        lines.append(sep.join(fields) + end)
    return head + "".join(lines)


def cells_of(path, **options):
    """All cells of a file with its labels, and what was told."""
    told = []
    stream = Stream(path, label=LabelColumn("y"), tell=told.append, **options)
    rows = []
    for batch in stream:
        columns = [batch.table.column(name).to_pylist() for name in NAMES[:-1]]
        rows += list(zip(*columns, batch.y, strict=True))
    return rows, told


VARIANTS = {
    "comma": (as_text(), "utf-8", ""),
    "semicolon": (as_text(";"), "utf-8", "--sep ';'"),
    "tab": (as_text("\t"), "utf-8", "--sep tab"),
    "pipe": (as_text("|"), "utf-8", "--sep '|'"),
    "decimal comma": (as_text(";", ","), "utf-8", "--sep ';' --decimal ','"),
    "comma and point": (
        as_text(";", ",", "."),
        "utf-8",
        "--sep ';' --decimal ',' --thousands '.'",
    ),
    "quoted decimal commas": (as_text(",", ","), "utf-8", "--decimal ','"),
    "quoted thousands": (as_text(",", ".", ","), "utf-8", "--thousands ','"),
    "tab and thousands": (as_text("\t", ".", ","), "utf-8", "--sep tab --thousands ','"),
    "all quoted": (as_text(";", ",", quote="all"), "utf-8", "--sep ';' --decimal ','"),
    "line ends of two bytes": (as_text(";", end="\r\n"), "utf-8", "--sep ';'"),
    "excel": (as_text(";", ",", head="sep=;\r\n", end="\r\n"), "utf-8", "--decimal ','"),
    "excel's tab": (as_text("\t", head="SEP=\t\n"), "utf-8", "--sep tab"),
    "mark": (as_text(), "utf-8-sig", ""),
    "mark and semicolon": (as_text(";", ","), "utf-8-sig", "--sep ';' --decimal ','"),
    "UTF-16": (as_text("\t"), "utf-16", "--sep tab --encoding utf-16"),
    "UTF-16, decimal comma": (as_text(";", ","), "utf-16", "--encoding utf-16"),
    "UTF-32": (as_text(), "utf-32", "--encoding utf-32"),
    "blank lines": (as_text(";").replace("\n", "\n\n", 7), "utf-8", "--sep ';'"),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_dirty_variants_are_read_without_options(tmp_path, variant, suffix):
    text, encoding, said = VARIANTS[variant]
    data = text.encode(encoding)
    path = tmp_path / f"data.{suffix}"
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    rows, told = cells_of(path)
    assert rows == EXPECTED
    assert len(told) == bool(said)
    assert not said or (said in told[0] and str(path) in told[0] and "\n" not in told[0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_resumed_after_every_batch(tmp_path, variant):
    text, encoding, _ = VARIANTS[variant]
    (tmp_path / "data.csv").write_bytes(text.encode(encoding))
    options = {"features": ("size", "price"), "batch_size": 7, "keep": ["note"]}
    batches, whole = read(tmp_path / "data.csv", **options)
    for place, batch in enumerate(batches, 1):
        rest, stream = read(
            tmp_path / "data.csv", label=batch.label, position=batch.position, **options
        )
        assert same_rows(rest, batches[place:])
        assert [each.kept for each in rest] == [each.kept for each in batches[place:]]
        assert stream.position == whole.position


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "mac_roman", "utf-16-le", "cp437"])
def test_an_encoding_can_be_named(tmp_path, encoding):
    path = tmp_path / "data.csv"
    path.write_bytes(as_text(";", ",").encode(encoding))
    with pytest.raises(StreamError, match="--encoding"):
        list(Stream(path, label=LabelColumn("y")))
    rows, told = cells_of(path, dialect=Dialect(encoding=encoding))
    assert rows == EXPECTED
    assert told == [f"{path}: read with --sep ';' --decimal ',' (detected from the first lines)."]


def test_the_remedy_for_invalid_utf8_works(tmp_path):
    path = tmp_path / "data.csv"
    for text in ("größe,y\n1,p\n", "a,y\ngroß,p\n"):
        path.write_bytes(text.encode("cp1252"))
        with pytest.raises(StreamError, match="--encoding cp1252"):
            list(Stream(path, label=LabelColumn("y")))
        (batch,) = Stream(path, label=LabelColumn("y"), dialect=Dialect(encoding="cp1252"))
        assert "größe" in batch.table.column_names or batch.table["a"].to_pylist() == ["groß"]


def test_a_wrong_encoding_is_refused(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(as_text().encode("cp1252"))
    with pytest.raises(StreamError, match=r"is not in ascii.*--encoding"):
        list(Stream(path, dialect=Dialect(encoding="ascii")))
    for name in ("klingon", "zip", "hex", "rot13"):
        with pytest.raises(StreamError, match="is not known"):
            Dialect(encoding=name)


def test_what_is_chosen_is_not_detected(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a;b,y\n1,5;2,p\n2,5;3,q\n")
    options = {"label": LabelColumn("y"), "dialect": Dialect(",", ".", "")}
    with pytest.raises(StreamError, match=r"wrong number of fields.*--sep"):
        list(Stream(path, **options))
    path.write_text("a,y\n1;5,p\n")
    (batch,) = Stream(path, **options)
    assert batch.table.to_pydict() == {"a": ["1;5"]}


def test_only_cells_that_are_wholly_numbers_are_rewritten(tmp_path):
    """With or without a unit."""
    cells = ["1.234,5", "1,5 kg", "01.02.2024", "1.2.3", "12,5e3", "-,5", "+1.000", "1.5", "a,b"]
    path = tmp_path / "data.csv"
    path.write_text("a;id;y\n" + "".join(f"{each};1.234,5;p\n" for each in cells))
    options = {"dialect": Dialect(";", ",", "."), "keep": ["id"], "label": LabelColumn("y")}
    (batch,) = Stream(path, **options)
    assert batch.table["a"].to_pylist() == [
        "1234.5", "1.5 kg", "01.02.2024", "1.2.3", "12.5e3", "-.5", "+1000", "1.5", "a,b",
    ]  # fmt: skip
    assert batch.kept["id"] == ["1.234,5"] * len(cells)


def test_each_file_has_its_own_dialect(tmp_path):
    (tmp_path / "a.csv").write_text(as_text())
    (tmp_path / "b.csv").write_text(as_text(";", ",", "."))
    (tmp_path / "c.tsv").write_text(as_text("\t", ","))
    (tmp_path / "d.csv").write_text(as_text("|"), encoding="utf-16")
    rows, told = cells_of(tmp_path)
    assert rows == EXPECTED * 4
    assert len(told) == 3


def test_a_recoded_file_is_the_same_file(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(as_text(";", ","), encoding="utf-16")
    options = {"features": ("size", "price"), "batch_size": 7}
    batches, _ = read(path, **options)
    path.write_text(as_text(";", ","), encoding="utf-8")
    rest, _ = read(path, label=batches[1].label, position=batches[1].position, **options)
    assert same_rows(rest, batches[2:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sep": ""}, "sep=''"), ({"sep": "ab"}, "sep='ab'"), ({"sep": '"'}, "sep="),
        ({"sep": "a"}, "sep='a'"), ({"decimal": ";"}, "decimal=';'"),
        ({"thousands": "x"}, "thousands='x'"),
        ({"decimal": ",", "thousands": ","}, "are both ','"),
    ],
)  # fmt: skip
def test_dialects_that_cannot_be(options, message):
    with pytest.raises(StreamError, match=message):
        Dialect(**options)


def test_a_single_column_of_words_has_no_separator(tmp_path):
    (tmp_path / "a.csv").write_text("words\nhello; world\nno separator\n")
    (batch,) = Stream(tmp_path / "a.csv")
    assert batch.table.to_pydict() == {"words": ["hello; world", "no separator"]}


def through_standard_input(monkeypatch, data, **options):
    class Input:
        buffer = io.BufferedReader(io.BytesIO(data))

    monkeypatch.setattr(sys, "stdin", Input())
    return list(Stream("-", label=LabelColumn("y"), **options))


def test_dialects_of_standard_input(monkeypatch):
    for variant in ("semicolon", "comma and point", "UTF-16"):
        text, encoding, _ = VARIANTS[variant]
        (batch,) = through_standard_input(monkeypatch, text.encode(encoding))
        assert batch.table["price"].to_pylist() == [row[1] for row in EXPECTED]


@pytest.mark.parametrize("make", [ipc.new_stream, ipc.new_file])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_arrow_streams_from_standard_input(tmp_path, monkeypatch, make, compression):
    columns = make_columns(23)
    table, file = pa.table(columns), io.BytesIO()
    options = ipc.IpcWriteOptions(compression=compression)
    with make(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=5)
    batches = through_standard_input(monkeypatch, file.getvalue(), batch_size=10)
    expected = list(
        Stream(write(tmp_path / "a.parquet", columns), label=LabelColumn("y"), batch_size=10)
    )
    assert [batch.table for batch in batches] == [batch.table for batch in expected]
    assert [batch.y.tolist() for batch in batches] == [batch.y.tolist() for batch in expected]
