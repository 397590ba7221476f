"""Ordinary, dirty tables are learned, resumed, evaluated and predicted with no option but --label.

Otherwise they are refused in one line, and its remedy works. The model is the same in Python.
"""

import csv
import json
import shutil

import numpy as np
import pandas as pd
import pytest

import seqmed as library
from tests.support.command import files_of, restore, seqmed
from tests.support.mixed_tables import DIRT, LABEL, PARTS, cars, hidden
from tests.support.state import assert_same_bits

pytestmark = [
    pytest.mark.filterwarnings("ignore:columns that are not used"),
    pytest.mark.filterwarnings("ignore:column 'Year'. dates are read as"),
]


def learn(folder, dirt, name, *options):
    """Learn a part in a new or an old model."""
    return seqmed(folder, "learn", "model", f"{name}.{DIRT[dirt].suffix}", *options)


def probabilities(folder):
    """The probabilities that `predict` has written."""
    with (folder / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name.startswith("probability_")]
    return np.array([[float(row[name]) for name in names] for row in rows])


@pytest.fixture(scope="module", params=DIRT)
def dirt(request):
    return request.param


@pytest.fixture(scope="module")
def written(dirt, tmp_path_factory):
    """The table as it is meant, and a folder where it is written in three dirty files."""
    frame, folder = DIRT[dirt].change(cars()), tmp_path_factory.mktemp("written")
    for part, rows in PARTS.items():
        rows = frame[rows] if part == "holdout" else hidden(frame[rows])
        DIRT[dirt].write(rows, folder / f"{part}.{DIRT[dirt].suffix}", part)
    return frame, folder


def again(dirt):
    """The options that are needed with every file."""
    remedy = DIRT[dirt].remedy
    return remedy if remedy[:1] == ("--on-error",) else ()


@pytest.fixture(scope="module")
def learned(dirt, written):
    """The folder with a model of the first two files."""
    _, folder = written
    result = learn(folder, dirt, "first", "--label", LABEL, *DIRT[dirt].remedy)
    assert result.code == 0, result.err
    result = learn(folder, dirt, "second", *again(dirt))
    assert result.code == 0, result.err
    return folder


@pytest.mark.parametrize("dirt", [name for name in DIRT if DIRT[name].remedy], indirect=True)
def test_a_table_that_cannot_be_read_is_refused_with_its_remedy(dirt, written, tmp_path):
    _, folder = written
    name = f"first.{DIRT[dirt].suffix}"
    shutil.copy(folder / name, tmp_path)
    result = learn(tmp_path, dirt, "first", "--label", LABEL)
    lines = [line for line in result.err.splitlines() if "warning" not in line]
    assert (result.code, len(lines)) == (2, 1), result
    assert DIRT[dirt].remedy[0] in lines[0], lines
    assert not (tmp_path / "model").exists()


def test_a_dirty_table_is_learned_resumed_evaluated_and_predicted(dirt, learned, tmp_path):
    shutil.copytree(learned, tmp_path, dirs_exist_ok=True)
    holdout = f"holdout.{DIRT[dirt].suffix}"
    result = seqmed(tmp_path, "evaluate", "model", holdout, "--json", *again(dirt))
    assert result.code == 0, result.err
    assert json.loads(result.out)["accuracy"] > 0.7
    result = seqmed(tmp_path, "predict", "model", holdout, "-o", "out.csv", *again(dirt))
    assert result.code == 0, result.err
    assert "Traceback" not in result.err


# Ways whose files have other cells than the table of the test.
OTHER_CELLS = ("mixed types", "thousands", "spaces", "row numbers")
# Ways that are always compared; the others are left to `make test-all`.
COMPARED = (
    "plain", "decimal commas", "utf-16", "another encoding", "words for missing cells",
    "new categories", "other columns first", "no labels in a file", "JSON lines", "Parquet",
)  # fmt: skip


@pytest.mark.parametrize(
    "dirt",
    [
        pytest.param(name, marks=[] if name in COMPARED else pytest.mark.exhaustive)
        for name in DIRT
        if name not in OTHER_CELLS
    ],
    indirect=True,
)
def test_python_agrees_with_the_command_to_the_bit(dirt, written, learned, tmp_path):
    (table, _), remedy = written, DIRT[dirt].remedy
    shutil.copytree(learned, tmp_path, dirs_exist_ok=True)
    model = library.make_stream_pipeline(
        label=LABEL, missing_values=remedy[1:] if "--na" in remedy else (), random_state=0
    ).set_params(model__experts=())
    for part in ("first", "second"):
        rows = hidden(table[PARTS[part]])
        labels = rows[LABEL]
        if dirt == "no labels in a file" and part == "second":
            labels = [None] * len(rows)
        model.partial_fit(rows, labels)
    loaded = library.load(tmp_path / "model")
    assert_same_bits(model, loaded)
    holdout = table[PARTS["holdout"]]
    seqmed(tmp_path, "predict", "model", f"holdout.{DIRT[dirt].suffix}", "-o", "out.csv")
    np.testing.assert_array_equal(probabilities(tmp_path), model.predict_proba(holdout))
    # and back: the command continues what Python has saved
    library.save(model, tmp_path / "model")
    result = learn(tmp_path, dirt, "holdout", *(remedy if "--encoding" in remedy else ()))
    assert result.code == 0, result.err
    model.partial_fit(holdout, holdout[LABEL])
    assert_same_bits(model, library.load(tmp_path / "model"))


@pytest.mark.parametrize("kind", ["integers", "floats", "texts"])
def test_an_id_changes_nothing(tmp_path, kind):
    frame = cars().drop(columns="plate")
    ids = pd.Series(np.random.default_rng(0).permutation(10_000)[: len(frame)])
    ids = {"integers": ids, "floats": ids.astype(float), "texts": "a" + ids.astype(str)}[kind]
    found = []
    for name, rows in (("without", frame), ("with", frame.assign(number=ids.to_numpy()))):
        hidden(rows[:300]).to_csv(tmp_path / f"{name}.csv", index=False)
        rows[300:].to_csv(tmp_path / "holdout.csv", index=False)
        result = seqmed(tmp_path, "learn", name, f"{name}.csv", "--label", LABEL)
        assert result.code == 0, result.err
        assert ("'number' (a different value in every row)" in result.err) == (name == "with")
        seqmed(tmp_path, "predict", name, "holdout.csv", "-o", "out.csv", "--force")
        found.append(probabilities(tmp_path))
        kept = (tmp_path / "out.csv").read_text().startswith("file,row,number,label")
        assert kept == (name == "with"), "predictions keep the id"
    np.testing.assert_array_equal(*found)


# -- late labels ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned_early(tmp_path_factory):
    """A folder with rows of which few have labels, their model, and all labels by id."""
    frame, folder = cars(), tmp_path_factory.mktemp("late")
    hidden(frame).to_csv(folder / "rows.csv", index=False)
    frame[["plate", LABEL]][:100].to_csv(folder / "late.csv", index=False)
    assert seqmed(folder, "learn", "model", "rows.csv", "--label", LABEL).code == 0
    return folder, files_of(folder)


@pytest.fixture
def late(learned_early):
    """The folder as it was before all tests."""
    return restore(*learned_early)


LATE = ("learn", "model", "rows.csv", "--late", "late.csv", "--id", "plate")


def test_late_labels_are_learned_once(late):
    before = library.load(late / "model")
    result = seqmed(late, *LATE)
    assert result.code == 0, result.err
    frame = cars()
    known = hidden(frame)[LABEL].notna()
    new = frame[:100][~known[:100]]
    assert f"{len(new)} late labels added, 0 corrected, {known[:100].sum()} known" in result.out
    before.partial_fit(new, new[LABEL], new_points=False, find_rows=False)
    assert_same_bits(before, library.load(late / "model"))
    again = seqmed(late, *LATE)
    assert "0 late labels added, 0 corrected, 100 known before" in again.out
    assert_same_bits(before, library.load(late / "model"))


def test_a_corrected_label_withdraws_the_old_one(late):
    assert seqmed(late, *LATE).code == 0
    model, frame = library.load(late / "model"), cars()
    row = frame[:1]
    wrong = {"USA": "Japan", "Japan": "Europe", "Europe": "USA"}[row[LABEL].item()]
    (late / "late.csv").write_text(f"plate,Origin\n{row['plate'].item()},{wrong}\n")
    result = seqmed(late, *LATE)
    assert "0 late labels added, 1 corrected, 0 known before" in result.out
    model.retract(row, row[LABEL])
    model.partial_fit(row, [wrong], new_points=False, find_rows=False)
    assert_same_bits(model, library.load(late / "model"))


@pytest.mark.parametrize("order", [["USA", "Japan"], ["Japan", "Japan"]])
def test_rows_of_equal_values_are_told_apart_by_their_ids(tmp_path, order):
    """Each label is learned, in one run or in two, whatever the labels of equal rows are."""
    frame = cars()[:60].copy()
    same = [name for name in frame if name not in ("plate", LABEL)]
    frame.loc[frame.index[1], same] = frame.loc[frame.index[0], same]
    frame.drop(columns=LABEL).to_csv(tmp_path / "rows.csv", index=False)
    given = frame[["plate"]].assign(Origin=frame[LABEL])
    given.loc[given.index[:2], LABEL] = order
    result = seqmed(
        tmp_path,
        "learn",
        "model",
        "rows.csv",
        "--label",
        LABEL,
        "--no-labels",
        "--estimator",
        "seqmed",
    )
    assert result.code == 0, result.err
    for part in (given[:1], given[1:40]):
        part.to_csv(tmp_path / "late.csv", index=False)
        result = seqmed(tmp_path, *LATE)
        assert f"{len(part)} late label" in result.out, result.err
    labels = library.load(tmp_path / "model")
    assert labels.named_steps["model"]._state.counts.counts.sum() == 40


@pytest.mark.parametrize("numbers", [False, True])
def test_the_first_labels_of_a_model_are_late(tmp_path, numbers):
    frame = cars().drop(columns=LABEL)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    labels = cars()[LABEL]
    labels = labels.map({"USA": 1, "Europe": 2, "Japan": 3}) if numbers else labels
    frame[["plate"]].assign(Origin=labels)[:50].to_csv(tmp_path / "late.csv", index=False)
    result = seqmed(tmp_path, "learn", "model", "rows.csv", "--label", LABEL, "--no-labels")
    assert result.code == 0, result.err
    assert "50 late labels added, 0 corrected, 0 known" in seqmed(tmp_path, *LATE).out
    assert "0 late labels added, 0 corrected, 50 known" in seqmed(tmp_path, *LATE).out
    model = library.load(tmp_path / "model")
    assert model.classes_.tolist() == sorted(set(labels[:50]))


def test_an_empty_label_withdraws_a_late_one(late):
    frame = cars()
    known = hidden(frame)[LABEL].notna()
    row, labeled = frame[~known][:1], frame[known][:1]
    given, other = (each["plate"].item() for each in (row, labeled))
    assert seqmed(late, *LATE).code == 0
    before = library.load(late / "model")
    before.retract(row, row[LABEL])
    (late / "late.csv").write_text(f"plate,Origin\n{given},\n{other},\nK-0405,USA\n")
    result = seqmed(late, *LATE)
    assert result.code == 0, result.err
    last = frame[405:]
    if not known[405]:
        before.partial_fit(last, ["USA"], new_points=False)
    assert before.score(frame, frame[LABEL]) == library.load(late / "model").score(
        frame, frame[LABEL]
    )
    (late / "late.csv").write_text(f"plate,Origin\n{given},{row[LABEL].item()}\n")
    assert "1 late label added" in seqmed(late, *LATE).out


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("plate,Origin\nK-0001,\n", "has no labels in column 'Origin'"),
        ("number,Origin\nK-0001,USA\n", "late.csv has no column 'plate'"),
    ],
)
def test_late_labels_that_cannot_be_joined(late, labels, said):
    (late / "late.csv").write_text(labels)
    before = (late / "model").read_bytes()
    result = seqmed(late, *LATE)
    assert (result.code, said in result.err) == (2, True), result.err
    assert (late / "model").read_bytes() == before


def test_late_labels_of_unknown_and_repeated_ids(late):
    (late / "late.csv").write_text("plate,Origin\nnone,USA\nK-0001,USA\n")
    result = seqmed(late, *LATE)
    assert result.code == 0
    assert "1 id of late.csv not found in the data: 'none'" in result.err
    rows = pd.read_csv(late / "rows.csv")
    pd.concat([rows, rows[1:2]]).to_csv(late / "rows.csv", index=False)
    result = seqmed(late, *LATE)
    assert (result.code, "id 'K-0001' occurs twice" in result.err) == (2, True), result.err


def test_late_labels_of_rows_that_were_not_learned(late):
    cars().to_csv(late / "other.csv", index=False)
    result = seqmed(late, "learn", "model", "other.csv", *LATE[3:])
    assert (result.code, "has not been learned" in result.err) == (2, True), result.err
    result = seqmed(late, *LATE[:-2])
    assert (result.code, "--late and --id are used only together" in result.err) == (2, True)


# -- doubtful tables -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["a,b,y\n1,2,u\n3,4,v\n", "Export of the shop\n\na;target\n1;u\n2;v\n"],
    ids=["another name", "a title above the header"],
)
def test_a_new_model_needs_a_file_with_its_label(tmp_path, text):
    (tmp_path / "rows.csv").write_text(text)
    result = seqmed(tmp_path, "learn", "model", "rows.csv", "--label", "target")
    assert (result.code, "has no column 'target'" in result.err) == (2, True), result.err
    assert not (tmp_path / "model").exists()
    result = seqmed(tmp_path, "learn", "model", "rows.csv", "--label", "target", "--no-labels")
    assert result.code == 0, result.err


def test_spaces_around_names_of_columns(tmp_path):
    (tmp_path / "rows.csv").write_text("a , y \n1,u\n2,v\n")
    assert seqmed(tmp_path, "learn", "model", "rows.csv", "--label", "y").code == 0
    assert library.load(tmp_path / "model").classes_.tolist() == ["u", "v"]


def test_dates_of_which_day_and_month_can_be_exchanged(tmp_path):
    days = pd.date_range("2025-03-01", periods=40).repeat(50)
    frame = pd.DataFrame({"day": days.strftime("%d/%m/%Y"), "a": np.arange(2000) % 7 + 0.5})
    frame.assign(y=["u", "v"] * 1000).to_csv(tmp_path / "rows.csv", index=False)
    learn = ("learn", "model", "rows.csv", "--label", "y", "--first-batch", 500)
    result = seqmed(tmp_path, *learn)
    assert result.code == 2
    assert "dates are read as %m/%d/%Y, and could be %d/%m/%Y" in result.err
    assert "--date COLUMN=FORMAT" in result.err
    (tmp_path / "model").unlink()
    result = seqmed(tmp_path, *learn, "--date", "day=%d/%m/%Y")
    assert result.code == 0, result.err
    assert "could be" not in result.err
    assert "date, %d/%m/%Y" in seqmed(tmp_path, "inspect", "model").out


def test_codes_with_leading_zeros_are_categories(tmp_path):
    codes = ["01234", "04567", "10115", "80331"] * 30
    frame = pd.DataFrame(
        {"zip": codes, "a": np.arange(120) % 11 + 0.5, "y": ["u", "u", "v", "v"] * 30}
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    assert seqmed(tmp_path, "learn", "model", "rows.csv", "--label", "y").code == 0
    model = library.load(tmp_path / "model")
    assert model["table"].encoding_.columns[0].kind == "categorical"
    with pytest.raises(ValueError, match="'zip' holds int64, expected texts such as '01234'"):
        model.predict(pd.read_csv(tmp_path / "rows.csv"))
    seqmed(tmp_path, "predict", "model", "rows.csv", "-o", "out.csv")
    read = pd.read_csv(tmp_path / "rows.csv", dtype={"zip": str})
    np.testing.assert_array_equal(probabilities(tmp_path), model.predict_proba(read))


def test_numbers_with_a_unit(tmp_path):
    prices = [f"{number},50 €" for number in range(120)]
    frame = pd.DataFrame({"price": prices, "a": np.arange(120) % 11 + 0.5, "y": ["u", "v"] * 60})
    frame.to_csv(tmp_path / "rows.csv", index=False, sep=";")
    result = seqmed(tmp_path, "learn", "model", "rows.csv", "--label", "y")
    assert result.code == 0, result.err
    encoder = library.load(tmp_path / "model")["table"]
    assert [each.description for each in encoder.encoding_.columns] == ["numeric, €", "numeric"]
    numbers = pd.DataFrame({"price": np.arange(120) + 0.5, "a": frame["a"]})
    np.testing.assert_array_equal(
        encoder.set_params(decimal=",").transform(frame), encoder.transform(numbers)
    )
    frame.loc[3, "price"] = "3,50 $"
    frame.to_csv(tmp_path / "rows.csv", index=False, sep=";")
    result = seqmed(tmp_path, "predict", "model", "rows.csv", columns=200)
    assert "line 5: not a number in column 'price', got '3.50 $' (the unit is €)" in result.err


@pytest.mark.parametrize("options", [(), ("--drop", "user"), ("--features", "a")])
def test_nested_keys_that_are_not_used(tmp_path, options):
    rows = [{"a": row % 7 + 0.5, "user": {"age": row}, "y": "uv"[row % 2]} for row in range(80)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = seqmed(tmp_path, "learn", "model", "rows.jsonl", "--label", "y", *options)
    assert result.code == 0, result.err
    assert library.load(tmp_path / "model")["table"].needed_ == ("a",)


def test_a_model_without_labels_cannot_be_evaluated(tmp_path):
    frame = cars()
    frame.assign(Origin=None).to_csv(tmp_path / "rows.csv", index=False)
    frame.to_csv(tmp_path / "holdout.csv", index=False)
    assert seqmed(tmp_path, "learn", "model", "rows.csv", "--label", LABEL).code == 0
    result = seqmed(tmp_path, "evaluate", "model", "holdout.csv")
    assert (result.code, "has learned no label" in result.err) == (2, True), result.err
