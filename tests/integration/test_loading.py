"""A model is the same on the command line and in Python, in both directions."""

import csv
import io
import json
import warnings

import numpy as np
import pandas as pd
import pytest

import seqmed
from tests.support.command import make_rows
from tests.support.command import seqmed as command
from tests.support.state import assert_same_bits

CHOICES = {
    "all": (),
    "unscaled": ("--no-scale", "--drop", "id,words"),
    "features": ("--features", "c,a"),
    "text": ("--features", "c,a", "--text", "words"),
    "words alone": ("--drop", "a,b,c,id", "--text", "words"),
    "categories": ("--categorical", "id,words"),
}


def with_words(path, n_rows, **options):
    """Write rows with features of very different units, and a column of words."""
    with make_rows(path, n_rows, **options).open(newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows):
        row["a"] = str(1000 * float(row["a"]))
        row["words"] = f"{row['kind']} row {number % 70}, of words" if number % 5 else ""
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
    learn = ("learn", "model", "rows.csv", "--label", "kind", "--features", "c,a")
    assert command(folder, *learn).code == 0
    model, frame = seqmed.load(folder / "model"), table((folder / "holdout.csv").read_text())
    assert model[0].needed_ == ("a", "c")
    points = frame[["a", "c"]].to_numpy()
    np.testing.assert_array_equal(model.predict_proba(points), model.predict_proba(frame))
    for wrong in (frame[["a", "b"]], points[:, :1], points[0], frame.to_numpy()):
        with pytest.raises(ValueError, match=r"column|array|features"):
            model.predict(wrong)


@pytest.mark.parametrize("choice", CHOICES)
def test_what_is_loaded_learns_as_the_command_does(folder, choice):
    learn = ("learn", "model", "rows.csv", "--label", "kind", *CHOICES[choice])
    assert command(folder, *learn).code == 0
    model, frame = seqmed.load(folder / "model"), table((folder / "holdout.csv").read_text())
    model.partial_fit(frame, frame["kind"].to_numpy(dtype=object))
    assert command(folder, "learn", "model", "holdout.csv").code == 0
    assert_same_bits(model, seqmed.load(folder / "model"))


@pytest.mark.parametrize("named", [True, False])
def test_the_command_continues_a_model_made_in_python(folder, named):
    rows = table((folder / "rows.csv").read_text())
    labels = [label or None for label in rows["kind"]]
    label = "kind" if named else None
    rows = rows if named else rows.drop(columns="kind")
    model = seqmed.make_stream_pipeline(kinds={"id": "drop"}, label=label, random_state=0)
    model.partial_fit(rows, labels)
    seqmed.save(model, folder / "model")
    option = () if named else ("--label", "kind")
    if not named:
        said = command(folder, "evaluate", "model", "holdout.csv")
        assert (said.code, "no column of labels" in said.err) == (2, True)
    assert command(folder, "predict", "model", "holdout.csv").code == 0
    result = command(folder, "learn", "model", "holdout.csv", *option)
    assert result.code == 0, result.err
    frame = table((folder / "holdout.csv").read_text())
    labels = frame["kind"].to_numpy(dtype=object)
    model.partial_fit(frame if named else frame.drop(columns="kind"), labels)  # it is no feature
    other = seqmed.load(folder / "model")
    np.testing.assert_array_equal(model.predict_proba(frame), other.predict_proba(frame))
    seqmed.save(other, folder / "again")  # without progress: the command begins a new one
    assert command(folder, "evaluate", "again", "holdout.csv").code == 0


def test_a_feature_cannot_become_the_label(folder):
    rows = table((folder / "rows.csv").read_text()).drop(columns=["id", "words"])
    model = seqmed.make_stream_pipeline(random_state=0).partial_fit(rows, rows["kind"])
    seqmed.save(model, folder / "model")
    said = command(folder, "learn", "model", "holdout.csv", "--label", "kind")
    assert (said.code, "'kind' is a feature of the model" in said.err) == (2, True)


def test_a_plain_model_is_loaded_as_it_is(folder):
    for extra in (None, {"schema": 3}):
        seqmed.save(seqmed.SeqMED(), folder / "plain", extra=extra)
        assert type(seqmed.load(folder / "plain")) is seqmed.SeqMED


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
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "score leaves unlabeled rows out")
        assert model.score(X, y) > 0.9
