"""Features become cells again, and contributions of features become those of columns and words."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from seqmed import SeqGraphMED, SeqMED, StreamPipeline, TableEncoder, make_stream_pipeline
from seqmed.tables.decoding import OTHER_LEVEL, decoded
from seqmed.tables.features import word_places
from tests.support.raw_tables import mixed_rows

pytestmark = pytest.mark.filterwarnings("ignore:columns that are not used")

ROWS = mixed_rows()


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("with_text", [True, False])
def test_numbers_dates_and_levels_are_decoded(scale, with_text):
    rows = [{k: v for k, v in row.items() if with_text or k != "note"} for row in ROWS]
    encoder = TableEncoder(scale=scale, text_size=64).fit(rows)
    found = decoded(encoder.encoding_, encoder.transform(rows))
    levels = {"colour": {"gray ": "gray", "2.50": "2.5"}}
    rare = set()
    for row, cells in zip(rows, found, strict=True):
        assert list(cells) == ["whole", "real", "flag", "colour", "when"]
        for name, cell in cells.items():
            if row[name] is None:
                assert cell is None
            elif isinstance(row[name], dt.datetime):
                assert dt.datetime.fromisoformat(cell) == row[name]
            elif isinstance(row[name], bool):
                assert cell == str(row[name]).lower()
            elif isinstance(row[name], str):
                expected = levels.get(name, {}).get(row[name], row[name])
                assert cell in (expected, OTHER_LEVEL)
                rare |= {cell}
            else:
                assert float(cell) == row[name]
    assert {"red", "blue", "gray", "2.5"} <= rare


def test_a_level_that_is_new_or_rare_is_another():
    encoder = TableEncoder().fit({"city": ["Oslo"] * 60 + ["Bergen"] * 60, "x": np.arange(120.0)})
    found = decoded(encoder.encoding_, encoder.transform({"city": ["Tromsø", None], "x": [0, 1]}))
    assert [row["city"] for row in found] == [OTHER_LEVEL, OTHER_LEVEL]


def test_dates_whose_number_is_left_out_are_not_decoded():
    days = pd.date_range("2024-01-01", periods=60, freq="D")
    encoder = TableEncoder().fit(pd.DataFrame({"day": days, "x": np.arange(60) % 7}))
    assert encoder.encoding_.dates[0].clock
    assert decoded(encoder.encoding_, encoder.transform({"day": days[:1], "x": [3]})) == [
        {"x": "3"}
    ]


def test_dates_beyond_the_calendar_are_left_out():
    days = pd.to_datetime(np.random.default_rng(0).integers(1e9, size=60), unit="s")
    encoder = TableEncoder().fit(pd.DataFrame({"day": days, "x": np.arange(60) % 7}))
    features = encoder.transform({"day": days[:1], "x": [3]})
    features[0, 1] = 1e6
    assert list(decoded(encoder.encoding_, features)[0]) == ["x"]


@pytest.mark.parametrize("weights", ["tfidf", "counts"])
def test_words_are_named_by_the_features_that_they_are_hashed_to(weights):
    text = "Win £100 now, win!"
    encoder = TableEncoder({"note": "text"}, text_weights=weights).fit({"note": [text, "now see"]})
    (column,) = encoder.encoding_.words
    places = word_places(text, column)
    features = encoder.transform({"note": [text]})
    assert {*places} == {*features.indices.tolist()}
    single = {"win", "£", "100", "now", ",", "!"}
    pairs = {"win £", "£ 100", "100 now", "now ,", ", win", "win !"}
    assert {*places.values()} == (single | pairs if weights == "tfidf" else single)
    assert word_places("", column) == {}


# -- pipelines ------------------------------------------------------------------------------------


def table(n, seed=0):
    """Numbers of different units, a category, a date and a text, which tell the class."""
    rng = np.random.default_rng(seed)
    spam = rng.random(n) < 0.5
    words = np.where(spam[:, None], ["prize", "cash", "call"], ["lunch", "train", "call"])
    frame = pd.DataFrame(
        {
            "grams": np.where(rng.random(n) < 0.1, np.nan, 1000 * rng.normal(spam)),
            "metres": rng.normal(spam.astype(float)).round(3),
            "colour": np.where(rng.random(n) < 0.2 + 0.6 * spam, "red", "blue"),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(365, size=n), "D"),
            "note": [f"{' '.join(rng.permutation(each))} {k}" for k, each in enumerate(words)],
        }
    )
    return frame, np.where(spam, "spam", "ham")


def learned(kinds, drop=()):
    estimator = SeqGraphMED(
        SeqMED(kernel="auto"), experts=[LogisticRegression()], mixture="evidence", random_state=0
    )
    model = make_stream_pipeline(estimator, kinds=kinds)
    frame, labels = table(300)
    frame = frame.drop(columns=list(drop))
    for start in range(0, 300, 100):
        given = np.where(np.arange(100) % 3 == 0, labels[start : start + 100], None)
        model.partial_fit(frame[start : start + 100], given)
    return model, frame, labels


def cells(frame, place):
    return {
        name: None if pd.isna(value) else str(getattr(value, "date", lambda v=value: v)())
        for name, value in frame.iloc[place].items()
    }


def test_features_of_a_column_are_one_contribution():
    """The sum over all levels, the indicator of missing cells, and the waves of a date."""
    model, frame, _ = learned({}, drop=["note"])
    X = frame[:40]
    encoder, classifier = model.steps[0][1], model.steps[1][1]
    features, names = encoder.transform(X), encoder.get_feature_names_out()
    plain = classifier.explain(features, n=1000)
    for place, found in enumerate(model.explain(X, n=1000)):
        for one, of_features in zip(found.votes, plain[place].votes, strict=True):
            expected: dict[str, float] = {}
            for part in of_features.columns:
                owner = str(names[int(part.name.removeprefix("x"))]).split("_")[0]
                expected[owner] = expected.get(owner, 0.0) + part.contribution
            assert {part.name: part.contribution for part in one.columns} == pytest.approx(expected)
            for part in one.columns:
                cell = cells(X, place)[part.name]
                same = part.value == cell or float(part.value) == float(cell)
                assert same, part


def test_labeled_rows_are_decoded():
    model, frame, labels = learned({}, drop=["note"])
    given = [(cells(frame, place), labels[place]) for place in range(0, 300)]
    said = 0
    for found in model.explain(frame[:20]):
        for one in found.votes:
            for part in one.rows:
                assert list(part.row) == ["grams", "metres", "colour", "day"]
                assert any(
                    part.label == label
                    and part.row["day"] == row["day"]
                    and part.row["colour"] == row["colour"]
                    and float(part.row["metres"]) == float(row["metres"])
                    and (part.row["grams"] is None) == (row["grams"] is None)
                    for row, label in given
                )
                said += 1
    assert said > 20


def test_words_of_a_row_are_columns_and_other_words_are_together():
    model, frame, _ = learned({"note": "text"})
    found = model.explain(frame[:30], n=1000)
    said = set()
    for place, each in enumerate(found):
        for one in each.votes:
            words = [part for part in one.columns if part.is_word]
            assert {part.name for part in words} <= {"note"}
            known = f" {frame['note'][place]} "
            assert all(f" {part.value} " in known for part in words)
            said |= {part.value for part in words}
            plain = [part.name for part in one.columns if not part.is_word]
            assert len(plain) == len(set(plain))
            total = sum(part.contribution for part in (*one.columns, *one.rows))
            assert one.baseline + total == pytest.approx(one.score)
    assert {"prize", "lunch", "call"} <= said


def test_absent_words_of_a_forest_are_one_contribution():
    frame, labels = table(300)
    frame = frame[["note"]]
    estimator = SeqGraphMED(experts=[RandomForestClassifier(10)], random_state=0)
    model = make_stream_pipeline(estimator, kinds={"note": "text"}).partial_fit(frame, labels)
    found = [one for each in model.explain(frame[:20], n=1000) for one in each.votes]
    absent = [part for one in found for part in one.columns if not part.is_word]
    assert absent
    assert {(part.name, part.value) for part in absent} == {("note", "(words it does not have)")}
    assert "note = (words it does not have)" in "".join(map(str, model.explain(frame[:20])))


@pytest.mark.parametrize("storage", ["pandas", "polars", "records"])
def test_labeled_rows_are_looked_up_among_learned_rows(storage):
    model, frame, labels = learned({"note": "text"})
    undecoded = model.explain(frame[:10])
    assert any(
        "note" not in part.row for each in undecoded for one in each.votes for part in one.rows
    )
    rows = frame.assign(kind=labels, number=np.arange(300))
    given = {
        "pandas": rows,
        "polars": pl.from_pandas(rows),
        "records": rows.astype(object).where(rows.notna(), None).to_dict("records"),
    }[storage]
    said = 0
    for found in model.explain(frame[:10], learned=given):
        for one in found.votes:
            for part in one.rows:
                place = int(part.row["number"])
                assert part.row["note"] == frame["note"][place]
                assert part.label == part.row["kind"] == labels[place]
                said += 1
    assert said > 10


def test_rows_that_are_not_among_the_learned_ones_are_decoded():
    model, frame, _ = learned({}, drop=["note"])
    own = model.explain(frame[:3])
    found = model.explain(frame[:3], learned=frame[:0].assign(extra=1))
    assert [each.to_dict() for each in found] == [each.to_dict() for each in own]


def test_other_transformers_show_features_or_learned_rows():
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=80)
    X = 100.0 * (rng.normal(size=(80, 2)) + 2.0 * codes[:, None])
    model = StreamPipeline([("scale", StandardScaler()), ("model", SeqGraphMED(experts=()))])
    model.fit(X, codes)
    features = model.steps[0][1].transform(X)
    for one in model.explain(X[:2])[0].votes:
        assert all((features == part.row).all(axis=1).any() for part in one.rows)
    for one in model.explain(X[:2], learned=X)[0].votes:
        assert all((part.row == X).all(axis=1).any() for part in one.rows)


def test_texts_of_a_vectorizer_are_looked_up():
    texts = ["win a prize", "cash prize now", "see you", "lunch today"] * 5
    model = StreamPipeline([("words", HashingVectorizer()), ("model", SeqGraphMED(experts=()))])
    model.fit(texts, ["spam", "spam", "ham", "ham"] * 5)
    (found,) = model.explain(["win cash"], learned=texts)
    rows = [part.row for one in found.votes for part in one.rows]
    assert rows
    assert {*rows} <= {*texts}
    assert sp.issparse(model.explain(["win cash"])[0].votes[0].rows[0].row)
