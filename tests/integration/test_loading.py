"""A model of the command line keeps its preprocessing in Python."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest

import seqmed
from seqmed.model_file import ModelFileError, load_with_extra
from seqmed.pipelines.stream_pipeline import StreamPipeline
from tests.support.command import make_rows
from tests.support.command import seqmed as command

CHOICES = {
    "scale": ("--scale", "--drop", "id"),
    "features": ("--features", "c,a"),
    "text": ("--features", "c,a", "--scale", "--text", "words"),
    "vocabulary": ("--features", "c", "--text", "words", "--text-method", "vocabulary"),
    "words alone": ("--drop", "a,b,c,id", "--text", "words"),
}


def with_words(path, n_rows, **options):
    """Write rows with features of very different units, and a column of words."""
    with make_rows(path, n_rows, **options).open(newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows):
        row["a"] = str(1000 * float(row["a"]))
        row["words"] = f"{row['kind']} row {number % 7}, of words" if number % 5 else ""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def folder(tmp_path):
    with_words(tmp_path / "rows.csv", 120, labeled=0.5)
    with_words(tmp_path / "holdout.csv", 60, seed=1, labeled=1.0)
    return tmp_path


def table(text):
    """The rows of a CSV as a data frame, every number read as Python reads it."""
    rows = list(csv.DictReader(io.StringIO(text)))
    texts = ("kind", "words", "file", "label")
    return pd.DataFrame({
        name: [row[name] if name in texts else float(row[name]) for row in rows]
        for name in rows[0]
    })  # fmt: skip


@pytest.mark.parametrize("choice", CHOICES)
def test_what_is_loaded_predicts_as_the_command_does(folder, choice):
    learn = ("learn", "model", "rows.csv", "--label", "kind", "--batch-size", 40)
    assert command(folder, *learn, *CHOICES[choice]).code == 0
    told = table(command(folder, "predict", "model", "holdout.csv").out)
    model, frame = seqmed.load(folder / "model"), table((folder / "holdout.csv").read_text())
    probabilities = told[[f"probability_{name}" for name in model.classes_]].to_numpy()
    shuffled = frame[sorted(frame.columns, reverse=True)]
    for rows in (frame, shuffled, {name: frame[name].tolist() for name in frame.columns}):
        np.testing.assert_array_equal(model.predict_proba(rows), probabilities)
        assert model.predict(rows).tolist() == told["label"].tolist()
    measured = json.loads(command(folder, "evaluate", "model", "holdout.csv", "--json").out)
    assert model.score(frame, frame["kind"]) == pytest.approx(measured["accuracy"])


def test_an_array_holds_the_columns_that_the_model_names(folder):
    learn = ("learn", "model", "rows.csv", "--label", "kind", "--features", "c,a", "--scale")
    assert command(folder, *learn).code == 0
    model, frame = seqmed.load(folder / "model"), table((folder / "holdout.csv").read_text())
    assert model.feature_names_in_.tolist() == ["c", "a"]
    points = frame[["c", "a"]].to_numpy()
    np.testing.assert_array_equal(model.predict_proba(points), model.predict_proba(frame))
    for wrong in (frame[["a", "b"]], points[:, :1], points[0], frame.to_numpy()):
        with pytest.raises(ValueError, match=r"column|could not convert"):
            model.predict(wrong)
    with pytest.raises(
        ValueError,
        match=r"ColumnEncoder\(c, a\), which cannot be saved.*Update the model file with",
    ):
        seqmed.save(model, folder / "other")


def test_what_is_loaded_learns_as_the_command_does(folder):
    learn = ("learn", "model", "rows.csv", "--label", "kind", "--scale", "--drop", "id")
    assert command(folder, *learn, "--batch-size", 200).code == 0
    model, frame = seqmed.load(folder / "model"), table((folder / "holdout.csv").read_text())
    model.partial_fit(frame, frame["kind"].to_numpy(dtype=object))
    assert command(folder, "learn", "model", "holdout.csv").code == 0
    other = seqmed.load(folder / "model")
    np.testing.assert_array_equal(model.predict_proba(frame), other.predict_proba(frame))


def test_a_model_without_preprocessing_is_loaded_as_it_is(folder):
    frame = table((folder / "rows.csv").read_text())[["a", "b", "kind"]]
    frame.to_csv(folder / "plain.csv", index=False)
    assert command(folder, "learn", "model", "plain.csv", "--label", "kind").code == 0
    assert type(seqmed.load(folder / "model")) is seqmed.SeqGraphMED
    for extra in (None, {"schema": 3}, {"schema": {"mine": 1}}):
        seqmed.save(seqmed.SeqMED(), folder / "plain", extra=extra)
        assert type(seqmed.load(folder / "plain")) is seqmed.SeqMED


def test_a_schema_that_cannot_be_is_refused(folder):
    learn = ("learn", "model", "rows.csv", "--label", "kind", "--scale", "--drop", "id")
    assert command(folder, *learn).code == 0
    assert type(seqmed.load(folder / "model")) is StreamPipeline
    model, extra = load_with_extra(folder / "model")
    extra["schema"]["deviations"][0] = 0.0
    seqmed.save(model, folder / "model", extra=extra)
    with pytest.raises(ModelFileError, match="the stored schema has deviations"):
        seqmed.load(folder / "model")


def test_missing_words(folder):
    assert (
        command(folder, "learn", "model", "rows.csv", "--label", "kind", "--text", "words").code
        == 0
    )
    model, frame = seqmed.load(folder / "model"), table((folder / "holdout.csv").read_text())[:3]
    expected = model.predict_proba(frame.assign(words=""))
    for missing in (None, np.nan, pd.NA, pd.NaT):
        np.testing.assert_array_equal(model.predict_proba(frame.assign(words=missing)), expected)


@pytest.mark.parametrize("marker", [None, "-1", "NA"])
@pytest.mark.parametrize("estimator", ["seqgraphmed", "seqmed"])
def test_a_loaded_model_knows_what_marks_unlabeled_rows(tmp_path, estimator, marker):
    rng = np.random.default_rng(0)
    y = np.where(np.arange(60) % 3 == 0, -1, np.arange(60) % 3)
    X = rng.normal(size=(60, 2)) + 3.0 * y[:, None]
    rows = "\n".join(f"{a},{b},{label}" for (a, b), label in zip(X, y, strict=True))
    (tmp_path / "rows.csv").write_text(f"a,b,kind\n{rows}\n")
    options = [] if marker is None else ["--unlabeled", marker]
    learned = command(
        tmp_path, "learn", "model", "rows.csv", "--label", "kind", "--estimator", estimator,
        *options,
    )  # fmt: skip
    assert learned.code == 0
    model = seqmed.load(tmp_path / "model")
    is_class = marker == "NA"
    assert model.classes_.tolist() == ([-1, 1, 2] if is_class else [1, 2])
    assert model.score(X, y) > 0.9
