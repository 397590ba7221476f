"""`seqmed explain`: what it prints is what the model says, with the rows of the files."""

import json

import pandas as pd
import pytest

import seqmed as library
from tests.support.command import LEARN, make_rows, restore, seqmed


@pytest.fixture
def folder(learned):
    return restore(*learned)


def lines(result):
    assert (result.code, result.err) == (0, "")
    return [json.loads(line) for line in result.out.splitlines()]


def test_every_row_has_the_explanation_of_the_pipeline(folder):
    found = lines(seqmed(folder, "explain", "model", "rows.csv", "--json", "-n", "2"))
    model = library.load(folder / "model")
    frame = pd.read_csv(folder / "rows.csv")
    expected = model.explain(frame, n=2)
    assert [each["row"] for each in found] == list(range(1, 61))
    assert {each["file"] for each in found} == {"rows.csv"}
    for each, own in zip(found, expected, strict=True):
        plain = {name: each[name] for name in own.to_dict()}
        assert plain == json.loads(json.dumps(own.to_dict()))


def test_chosen_rows_are_explained_as_text(folder):
    result = seqmed(folder, "explain", "model", "rows.csv", "--row", "7", "--row", "3")
    assert (result.code, result.err) == (0, "")
    model = library.load(folder / "model")
    frame = pd.read_csv(folder / "rows.csv")
    expected = "".join(
        f"rows.csv, row {n}\n{model.explain(frame[n - 1 : n])[0]}\n\n" for n in (3, 7)
    )
    assert result.out == expected


def test_labeled_rows_are_those_of_the_learned_files(folder):
    """With their file, number, and the columns that the model does not use as features."""
    options = ("--json", "--row", "2")
    given = lines(seqmed(folder, "explain", "model", "rows.csv", *options))[0]
    found = lines(seqmed(folder, "explain", "model", "rows.csv", *options, "--learned", "rows.csv"))
    frame = pd.read_csv(folder / "rows.csv", dtype=str)
    said = 0
    for plain, one in zip(given["votes"], found[0]["votes"], strict=True):
        for decoded, part in zip(plain["rows"], one["rows"], strict=True):
            row = frame.iloc[int(part["row"]["row"]) - 1]
            assert part["row"]["file"] == "rows.csv"
            assert part["label"] == decoded["label"] == row["kind"]
            assert {name: float(part["row"][name]) for name in "abc"} == {
                name: float(row[name]) for name in "abc"
            }
            assert {name: float(value) for name, value in decoded["row"].items()} == pytest.approx(
                {name: float(row[name]) for name in "abc"}
            )
            said += 1
    assert said


def test_learned_files_are_asked_for_if_no_cell_of_a_labeled_row_is_stored(folder):
    texts = [f"word{n % 7} and word{n % 5} of two" for n in range(60)]
    pd.DataFrame({"body": texts, "kind": ["x", "y"] * 30}).to_csv(folder / "texts.csv")
    assert seqmed(folder, "learn", "m", "texts.csv", "--label", "kind", "--text", "body").code == 0
    hint = "To show the cells of labeled rows, name the learned files with --learned."
    explain = ("explain", "m", "texts.csv", "--row", "3")
    assert hint in seqmed(folder, *explain).err.splitlines()
    for more in (("--learned", "texts.csv"), ("--json",), ("--quiet",)):
        assert hint not in seqmed(folder, *explain, *more).err


def test_ids_are_shown(tmp_path):
    make_rows(tmp_path / "rows.csv", 60)
    learn = [each for each in LEARN if each not in ("--drop", "id", "--first-batch", "1")]
    assert seqmed(tmp_path, *learn, "20", "--first-batch", "60").code == 0
    result = seqmed(tmp_path, "explain", "model", "rows.csv", "--row", "5")
    assert result.out.startswith("rows.csv, row 5, id 4\n")
    options = ("--row", "5", "--json", "--learned", "rows.csv")
    (found,) = lines(seqmed(tmp_path, "explain", "model", "rows.csv", *options))
    assert found["id"] == "4"
    rows = [part["row"] for one in found["votes"] for part in one["rows"]]
    assert all(int(row["id"]) == int(row["row"]) - 1 for row in rows)


def test_a_column_may_be_called_row(tmp_path):
    """The number of the row is that in the file."""
    frame = pd.read_csv(make_rows(tmp_path / "rows.csv", 60)).rename(columns={"a": "row"})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    assert seqmed(tmp_path, *LEARN, "20").code == 0
    options = ("--row", "5", "--json", "--learned", "rows.csv")
    (found,) = lines(seqmed(tmp_path, "explain", "model", "rows.csv", *options))
    assert found["row"] == 5
    rows = [part["row"] for one in found["votes"] for part in one["rows"]]
    assert rows
    assert {float(row["row"]) for row in rows} <= {*frame["row"]}


def test_what_cannot_be_explained_is_refused(folder):
    result = seqmed(folder, "explain", "model", "rows.csv", "--row", "61")
    assert (result.code, result.out) == (2, "")
    assert "there is no good row 61 in DATA" in result.err
    result = seqmed(folder, "explain", "model", "rows.csv", "--learned", "none.csv", "--row", "1")
    assert result.code == 2
    assert "none.csv" in result.err
    (folder / "other.csv").write_text("a,b\n1,2\n")
    result = seqmed(folder, "explain", "model", "other.csv")
    assert (result.code, result.out) == (2, "")
    assert "'c'" in result.err
    learn = [*LEARN[:1], "margin", *LEARN[2:], "20", "--estimator", "seqmed"]
    assert seqmed(folder, *learn).code == 0
    result = seqmed(folder, "explain", "margin", "rows.csv")
    assert (result.code, result.out) == (2, "")
    assert "margin holds a SeqMED, expected a SeqGraphMED" in result.err


def test_one_class_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a,kind\n" + "\n".join(f"{n}.5,x" for n in range(40)) + "\n")
    assert seqmed(tmp_path, "learn", "model", "rows.csv", "--label", "kind").code == 0
    result = seqmed(tmp_path, "explain", "model", "rows.csv")
    assert (result.code, result.out) == (2, "")
    assert "knows the class 'x' only" in result.err
