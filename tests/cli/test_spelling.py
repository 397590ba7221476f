"""Classes as the file spells them, row numbers, new columns and .txt files, on the command line."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import seqmed as library
from tests.support.command import seqmed


def frame_of(size=240, false="FALSE", true="TRUE"):
    """Rows with a label each, written as false and true."""
    generator = np.random.default_rng(0)
    kind = generator.integers(2, size=size)
    x = (generator.normal(size=size) + 3.0 * kind).round(3)
    return pd.DataFrame({"x": x, "y": np.where(kind, true, false)})


def learn(folder, *more, name="rows.csv"):
    result = seqmed(
        folder, "learn", "model", name, "--label", "y", "--estimator", "seqmed", *more, columns=300
    )
    assert result.code == 0, result.err
    return result


@pytest.mark.parametrize(
    "texts", [("FALSE", "TRUE"), ("False", "True"), ("false", "true"), ("no", "yes"), ("0", "1")]
)
def test_predictions_are_written_as_the_file_spells_them(tmp_path, texts):
    frame_of(true=texts[1], false=texts[0]).to_csv(tmp_path / "rows.csv", index=False)
    learn(tmp_path)
    assert seqmed(tmp_path, "predict", "model", "rows.csv", "-o", "out.csv").code == 0
    out = pd.read_csv(tmp_path / "out.csv", dtype=str)
    assert set(out["label"]) == set(texts)
    assert [name for name in out if name.startswith("prob")] == [f"probability_{t}" for t in texts]
    options = ("--threshold", "0.9", "--positive", texts[1], "--plot", "plot.svg", "--force")
    shown = seqmed(tmp_path, "evaluate", "model", "rows.csv", *options, columns=200)
    assert shown.code == 0, shown.err
    (header,) = (line.split() for line in shown.out.splitlines() if line.startswith("true, "))
    assert header == ["true,", "predicted", *texts]
    cost = f"{texts[0]}:{texts[1]}=5"
    assert seqmed(tmp_path, "predict", "model", "rows.csv", "--cost", cost).code == 0
    lines = seqmed(tmp_path, "inspect", "model").out.splitlines()
    start = lines.index("class  labels")
    assert [line.split()[0] for line in lines[start + 1 : start + 3]] == [*texts]


def test_other_spellings_in_later_files_are_the_same_classes(tmp_path):
    frame_of().to_csv(tmp_path / "rows.csv", index=False)
    learn(tmp_path)
    frame_of(true="true", false="false").to_csv(tmp_path / "more.csv", index=False)
    learn(tmp_path, name="more.csv")
    assert library.load(tmp_path / "model").classes_.tolist() == [False, True]
    seqmed(tmp_path, "predict", "model", "more.csv", "-o", "out.csv")
    assert set(pd.read_csv(tmp_path / "out.csv", dtype=str)["label"]) == {"TRUE", "FALSE"}
    seqmed(tmp_path, "predict", "model", "more.csv", "-o", "out.jsonl")
    lines = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert {line["label"] for line in lines} == {True, False}


def test_labels_and_columns_of_a_model_saved_in_python_are_spelled_the_same(tmp_path):
    """It does not keep the spelling of the file; then classes are false and true."""
    frame_of().to_csv(tmp_path / "rows.csv", index=False)
    learn(tmp_path)
    library.save(library.load(tmp_path / "model"), tmp_path / "model")
    assert seqmed(tmp_path, "predict", "model", "rows.csv", "-o", "out.csv").code == 0
    out = pd.read_csv(tmp_path / "out.csv", dtype=str)
    assert set(out["label"]) == {"false", "true"}
    assert {"probability_false", "probability_true"} < {*out}


def test_row_numbers_that_pandas_writes_are_not_used(tmp_path):
    frame = frame_of(20)
    frame.to_csv(tmp_path / "rows.csv")
    result = learn(tmp_path)
    assert "'Unnamed: 0' (row numbers of a data frame)" in result.err
    assert "--drop 'Unnamed: 0'" in result.err
    assert library.load(tmp_path / "model")["table"].needed_ == ("x",)
    pd.read_csv(tmp_path / "rows.csv").to_csv(tmp_path / "twice.csv")
    (tmp_path / "model").unlink()
    quiet = learn(tmp_path, "--drop", '"Unnamed: 0","Unnamed: 0.1"', name="twice.csv")
    assert "warning" not in quiet.err


def test_row_names_without_a_field_in_the_header(tmp_path):
    """As R writes them."""
    rows = frame_of(40)
    lines = [f'"r{number}",{x},{y}' for number, (x, y) in enumerate(rows.to_numpy().tolist())]
    (tmp_path / "rows.txt").write_text("\n".join(['"x","y"', *lines, ""]))
    result = learn(tmp_path, name="rows.txt")
    assert "one field more than the header" in result.err
    assert library.load(tmp_path / "model")["table"].needed_ == ("x",)
    rows.to_csv(tmp_path / "plain.csv", index=False)
    outputs = []
    for name in ("plain.csv", "rows.txt"):
        assert seqmed(tmp_path, "predict", "model", name, "-o", "out.csv", "--force").code == 0
        outputs.append(pd.read_csv(tmp_path / "out.csv")["probability_TRUE"])
    np.testing.assert_array_equal(*outputs)


def test_one_bad_row_is_no_row_name(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y\n1,2,TRUE\n1.5,TRUE\n")
    result = seqmed(tmp_path, "learn", "model", "rows.csv", "--label", "y")
    assert "wrong number of fields" in result.err


@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_a_text_file_with_a_header_is_a_table(tmp_path, separator):
    frame_of().to_csv(tmp_path / "rows.txt", index=False, sep=separator)
    learn(tmp_path, name="rows.txt")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("Read me first.\n")
    frame_of().to_csv(tmp_path / "folder" / "rows.csv", index=False)
    result = seqmed(tmp_path, "predict", "model", "folder", "-o", "out.csv")
    assert (result.code, "not read: notes.txt" in result.err) == (0, True)


def test_a_new_column_of_a_resumed_run_is_named(tmp_path):
    frame_of().to_csv(tmp_path / "rows.csv", index=False)
    learn(tmp_path)
    frame_of().assign(extra=1).to_csv(tmp_path / "more.csv", index=False)
    told = "more.csv: columns that were not in the first batch are ignored: 'extra'."
    assert told in learn(tmp_path, name="more.csv").err
    assert "extra" not in seqmed(tmp_path, "predict", "model", "more.csv").err


def test_a_model_with_decimal_commas_made_in_python(tmp_path):
    frame = frame_of(true="up", false="down")
    texts = frame.assign(x=[f"{x:.3f}".replace(".", ",") for x in frame["x"]])
    texts.to_csv(tmp_path / "rows.csv", index=False)
    texts.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    model = library.make_stream_pipeline(library.SeqMED(), decimal=",", label="y")
    library.save(model.partial_fit(texts, texts["y"]), tmp_path / "model")
    for name in ("rows.csv", "rows.jsonl"):
        result = seqmed(tmp_path, "predict", "model", name, "-o", "out.csv", "--force")
        assert result.code == 0, result.err
        found = pd.read_csv(tmp_path / "out.csv")
        np.testing.assert_array_equal(found["probability_up"], model.predict_proba(frame)[:, 1])
    result = seqmed(tmp_path, "predict", "model", "rows.csv", "--decimal", ".", columns=200)
    assert (result.code, "leave --decimal out" in result.err) == (2, True)


def test_messages_use_the_words_of_where_they_are_shown(tmp_path):
    frame = frame_of().assign(one=1)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    shown = learn(tmp_path).err
    assert "--categorical one; to hide this warning, drop it, for example --drop one." in shown
    assert "kinds=" not in shown
    with pytest.warns(UserWarning, match=r"kinds=\{'one': 'drop'\}") as told:
        library.make_stream_pipeline(library.SeqMED()).partial_fit(frame[["x", "one"]], frame["y"])
    assert not any("--" in str(each.message) for each in told)


def test_inspect_leaves_out_what_is_unknown(tmp_path):
    """A model that was saved in Python has no counts of rows of files."""
    frame = frame_of(true="up", false="down")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    learn(tmp_path)
    model = library.load(tmp_path / "model")
    library.save(model.partial_fit(frame, frame["y"]), tmp_path / "model")
    shown = seqmed(tmp_path, "inspect", "model", columns=200).out
    assert "learned:  2 batches, 480 labeled\n" in shown
    assert not any(word in shown for word in ("unknown", "none", "accuracy", "finished", "0 rows"))
    seen = json.loads(seqmed(tmp_path, "inspect", "model", "--json").out)["seen"]
    assert [seen[name] for name in ("rows", "labeled", "skipped")] == [None, 480, None]
    result = learn(tmp_path, "--batch-size", 120)
    assert "model: 4 batches, 2 of them before it was saved in Python; since then 240" in result.out
    shown = seqmed(tmp_path, "inspect", "model", columns=200).out
    assert "learned:  4 batches (2 before it was saved in Python), 720 labeled, 0 bad rows" in shown
    assert "of 240 labeled rows" in shown


def test_rows_of_a_mixture_are_known_after_it_was_continued_in_python(tmp_path):
    frame = frame_of(true="up", false="down")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    more = ("--label", "y", "--experts", "none")
    assert seqmed(tmp_path, "learn", "model", "rows.csv", *more).code == 0
    model = library.load(tmp_path / "model")
    library.save(model.partial_fit(frame, frame["y"]), tmp_path / "model")
    shown = seqmed(tmp_path, "inspect", "model", columns=200).out
    assert "learned:  2 batches, 480 rows, 480 labeled\n" in shown
