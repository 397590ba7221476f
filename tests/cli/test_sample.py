"""`seqmed learn --sample` learns what `fit` learns, however the rows are cut into files."""

import json

import numpy as np
import pandas as pd
import pytest

from seqmed import SeqGraphMED, SeqMED, make_stream_pipeline
from seqmed.cli import learn_sample
from seqmed.cli.checkpoint import Progress, load_checkpoint
from seqmed.cli.options import Reading
from seqmed.streams import LabelColumn
from tests.support.command import make_rows, seqmed
from tests.support.state import assert_same_bits

N_ROWS = 1500
OPTIONS = ("--label", "kind", "--drop", "id", "--graph-memory", 100, "--sample")


def write_parts(folder, frame, name, sizes):
    """Write the rows of a table to files of some sizes; return their names."""
    names, first = [], 0
    for place, size in enumerate(sizes):
        part = frame.iloc[first : first + size]
        first += size
        names.append(f"{name}{place}.{name}")
        if name == "csv":
            part.to_csv(folder / names[-1], index=False)
        elif name == "parquet":
            part.to_parquet(folder / names[-1], index=False)
        else:
            part.to_json(folder / names[-1], orient="records", lines=True)
    return names


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table in several cuts and formats, and its models by --sample."""
    folder = tmp_path_factory.mktemp("sample")
    make_rows(folder / "rows.csv", N_ROWS)
    frame = pd.read_csv(folder / "rows.csv")
    cuts = {
        "one": ["rows.csv"],
        "cut": write_parts(folder, frame, "csv", [1, 699, 800]),
        "parquet": write_parts(folder, frame, "parquet", [1000, 500]),
        "jsonl": write_parts(folder, frame, "jsonl", [750, 750]),
    }
    for name, files in cuts.items():
        result = seqmed(folder, "learn", name, *files, *OPTIONS)
        assert result.code == 0, result.err
        assert result.out.startswith(f"{name}: learned ")
    return folder


@pytest.fixture(scope="module")
def in_python(folder):
    """The pipeline that Python fits to the same rows."""
    frame = pd.read_csv(folder / "rows.csv")
    labels = frame.pop("kind").where(frame["id"] >= 0, None)
    estimator = SeqGraphMED(
        SeqMED(kernel="auto", random_state=0), graph_memory=100, experts=(), random_state=0
    )
    model = make_stream_pipeline(estimator, kinds={"id": "drop"}, label="kind")
    return model.fit(frame, labels)


@pytest.mark.parametrize("name", ["one", "cut", "parquet", "jsonl"])
def test_files_cut_in_any_way_give_the_model_of_python(folder, in_python, name):
    model, progress = load_checkpoint(folder / name)
    assert model[-1].n_kept_ == 100
    assert model[-1]._state.graph.n_unlabeled > 900
    points = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)) + 1, columns=list("abc"))
    for method in ("decision_function", "predict_proba"):
        np.testing.assert_array_equal(
            getattr(model, method)(points), getattr(in_python, method)(points)
        )
    assert_same_bits(model["table"].encoding_, in_python["table"].encoding_)
    assert (progress.record.rows, progress.record.scored) == (N_ROWS, 0)
    assert progress.record.labeled == np.count_nonzero(in_python_labels(folder))


def in_python_labels(folder):
    """The mask of the labeled rows."""
    return pd.read_csv(folder / "rows.csv")["kind"].notna()


def test_the_sizes_of_what_is_read_at_once_do_not_matter(folder, in_python, monkeypatch, tmp_path):
    monkeypatch.setattr(learn_sample, "READ_AT_ONCE", 130)
    model = make_stream_pipeline(
        SeqGraphMED(
            SeqMED(kernel="auto", random_state=0), graph_memory=100, experts=(), random_state=0
        ),
        kinds={"id": "drop"},
        label="kind",
    )
    data, progress = [folder / "rows.csv"], Progress(label=LabelColumn("kind"))
    learn_sample.learn_sample(tmp_path / "model", model, progress, data, Reading())
    points = np.random.default_rng(0).normal(size=(60, 3)) + 1
    np.testing.assert_array_equal(model.predict_proba(points), in_python.predict_proba(points))
    assert (tmp_path / "model").exists()


def test_another_seed_gives_another_sample(folder):
    assert seqmed(folder, "learn", "seed", "rows.csv", *OPTIONS, "--seed", 1).code == 0
    one, other = (load_checkpoint(folder / name)[0] for name in ("one", "seed"))
    points = np.zeros((1, 3))
    assert (one.predict_proba(points) != other.predict_proba(points)).any()


def test_the_model_goes_on_with_new_files_only(folder):
    """The files of the sample count as learned."""
    seqmed(folder, "learn", "goes-on", "rows.csv", *OPTIONS)
    result = seqmed(folder, "learn", "goes-on", "rows.csv")
    assert "no new rows in rows.csv" in result.out
    make_rows(folder / "more.csv", 40, seed=5)
    result = seqmed(folder, "learn", "goes-on", "rows.csv", "more.csv")
    assert "2 batches, 1,540 rows" in result.out, result.err
    found = json.loads(seqmed(folder, "inspect", "goes-on", "--json").out)
    assert "more.csv" in str(found)


def test_an_existing_model_is_refused(folder):
    before = (folder / "one").read_bytes()
    result = seqmed(folder, "learn", "one", "rows.csv", *OPTIONS)
    assert result.code == 2
    assert "one exists, and --sample makes a new model" in result.err
    assert (folder / "one").read_bytes() == before


@pytest.mark.parametrize(
    "options",
    [
        ("--batch-size", 10),
        ("--first-batch", 10),
        ("--batch-by", "id"),
        ("--checkpoint-every", 2),
        ("--log", "log.jsonl"),
        ("--again",),
        ("--late", "labels.csv", "--id", "id"),
        ("--no-labels",),
    ],
)
def test_options_of_batches_are_refused(folder, options):
    result = seqmed(folder, "learn", "new", "rows.csv", *OPTIONS, *options)
    assert result.code == 2
    assert options[0] in result.err
    assert "leave" in result.err
    assert not (folder / "new").exists()
    assert not (folder / "log.jsonl").exists()


@pytest.fixture
def two_files(tmp_path):
    """A folder with two files; a test changes the second."""
    for name, seed in (("one.csv", 0), ("two.csv", 1)):
        make_rows(tmp_path / name, 30, seed=seed)
    return tmp_path


def test_a_bad_cell_of_the_sample_names_file_and_row(two_files):
    lines = (two_files / "two.csv").read_text().splitlines()
    lines[3] = "oops" + lines[3][lines[3].index(",") :]
    (two_files / "two.csv").write_text("\n".join(lines))
    result = seqmed(two_files, "learn", "model", "one.csv", "two.csv", *OPTIONS)
    assert result.code == 2
    assert "two.csv, row 3: not a number in column 'a', got 'oops'" in result.err
    assert not (two_files / "model").exists()
    result = seqmed(
        two_files, "learn", "model", "one.csv", "two.csv", *OPTIONS, "--on-error", "skip"
    )
    assert result.code == 0
    assert "skipped 1 bad row: not a number; for example two.csv, row 3" in result.err
    assert "learned 59 of 59 rows" in result.out
    assert load_checkpoint(two_files / "model")[1].record.skipped == 1


def test_a_file_without_a_column_is_named(two_files):
    frame = pd.read_csv(two_files / "two.csv")
    frame.drop(columns="b").to_csv(two_files / "two.csv", index=False)
    result = seqmed(two_files, "learn", "model", "one.csv", "two.csv", *OPTIONS)
    assert result.code == 2
    assert "two.csv has no column 'b'" in result.err
    assert not (two_files / "model").exists()


def test_a_dropped_column_may_be_absent(two_files):
    frame = pd.read_csv(two_files / "two.csv")
    frame.drop(columns="id").to_csv(two_files / "less.csv", index=False)
    for name, file in (("full", "two.csv"), ("less", "less.csv")):
        assert seqmed(two_files, "learn", name, "one.csv", file, *OPTIONS).code == 0
    full, less = (load_checkpoint(two_files / name)[0] for name in ("full", "less"))
    assert_same_bits(full, less)


def test_files_of_several_formats(two_files):
    frame = pd.read_csv(two_files / "two.csv")
    frame.to_parquet(two_files / "two.parquet")
    for name, file in (("text", "two.csv"), ("typed", "two.parquet")):
        assert seqmed(two_files, "learn", name, "one.csv", file, *OPTIONS).code == 0
    text, typed = (load_checkpoint(two_files / name)[0] for name in ("text", "typed"))
    assert_same_bits(text, typed)


def test_rows_without_any_label_are_refused(two_files):
    make_rows(two_files / "none.csv", 30, labeled=0.0)
    result = seqmed(two_files, "learn", "model", "none.csv", *OPTIONS)
    assert result.code == 2
    assert "no row has a label in column 'kind'" in result.err
    assert not (two_files / "model").exists()


def test_a_last_line_without_an_end_is_read(two_files):
    text = (two_files / "one.csv").read_text()
    (two_files / "open.csv").write_text(text.rstrip("\n"))
    for name in ("one", "open"):
        assert seqmed(two_files, "learn", name, f"{name}.csv", *OPTIONS).code == 0
    one, other = (load_checkpoint(two_files / name)[0] for name in ("one", "open"))
    assert_same_bits(one, other)
