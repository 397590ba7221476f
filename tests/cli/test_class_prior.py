"""--class-prior: class proportions by name become proportions of labels of the right type."""

import json

import pytest

import seqmed as library
from seqmed.cli.parameters import parse_class_prior, typed_class_prior
from seqmed.cli.terminal import CommandError
from seqmed.streams import LabelColumn
from tests.support.command import seqmed


def test_proportions_are_named_by_classes():
    """The number follows the last equal sign, and whole numbers have one notation."""
    assert parse_class_prior(["spam=0.13", "a=b=.87"]) == {"spam": 0.13, "a=b": 0.87}
    assert parse_class_prior(["1.0=0.5", "+2=5e-1"]) == {"1": 0.5, "2": 0.5}
    assert parse_class_prior(["a=0.33", "b=0.33", "c=0.33"])["c"] == 0.33
    for word in ("auto", "evidence", "uniform"):
        assert parse_class_prior([word]) == word


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["spam=much", "ham=0.87"], "--class-prior got 'spam=much', expected NAME=NUMBER with"),
        (["spam=nan", "ham=1"], "--class-prior got 'spam=nan', expected NAME=NUMBER"),
        (["spam=0", "ham=1"], "--class-prior got 'spam=0', expected NAME=NUMBER"),
        (["spam=-1", "ham=2"], "--class-prior got 'spam=-1', expected NAME=NUMBER"),
        (["spam=inf"], "--class-prior got 'spam=inf', expected NAME=NUMBER"),
        (["=0.5", "ham=0.5"], "--class-prior got '=0.5', expected NAME=NUMBER"),
        (["uniform", "ham=1"], "--class-prior got 'uniform', expected NAME=NUMBER"),
        (["balanced"], "--class-prior got 'balanced', expected NAME=NUMBER"),
        (["a=0.5", "a=0.5"], "--class-prior names class 'a' twice, expected every class once"),
        (["1=0.5", "1.0=0.5"], "--class-prior names class '1' twice"),
        (["a=0.5", "b=0.4"], "--class-prior have the sum 0.9, expected 1: name every class"),
    ],
)
def test_proportions_that_cannot_be(texts, said):
    with pytest.raises(CommandError, match=said):
        parse_class_prior(texts)


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("integer", {"0": 0.5, "-1": 0.5}, {0: 0.5, -1: 0.5}),
        ("boolean", {"True": 0.2, "0": 0.8}, {True: 0.2, False: 0.8}),
        ("string", {"1": 0.5, "true": 0.5}, {"1": 0.5, "true": 0.5}),
        ("integer", {0: 0.5, 1: 0.5}, {0: 0.5, 1: 0.5}),
        (None, {"0": 0.5, "1": 0.5}, {"0": 0.5, "1": 0.5}),
        ("integer", "uniform", "uniform"),
        ("integer", None, None),
    ],
)
def test_names_become_labels_of_the_column(kind, given, expected):
    found = typed_class_prior(given, LabelColumn("y", type=kind))
    assert found == expected
    if isinstance(found, dict):
        assert [*map(type, found)] == [*map(type, expected)]


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("integer", {"spam": 1.0}, "names class 'spam', expected a class of type integer, as the"),
        ("boolean", {"2": 1.0}, "names class '2', expected a class of type boolean, as the labels"),
        ("boolean", {"1": 0.5, "true": 0.5}, "class True twice, the second time as 'true'"),
    ],
)
def test_names_of_another_type(kind, given, said):
    with pytest.raises(CommandError, match=said):
        typed_class_prior(given, LabelColumn("y", type=kind))


def write_rows(path, names=("0", "1"), n_rows=40):
    lines = [f"{row % 2 + row / 100},{names[row % 2] if row % 4 < 2 else ''}" for row in range(40)]
    path.write_text("\n".join(["a,y", *lines[:n_rows], ""]))


def test_a_word_is_stored(tmp_path):
    write_rows(tmp_path / "rows.csv")
    learn = ("learn", "model", "rows.csv", "--label", "y")
    assert seqmed(tmp_path, *learn, "--class-prior", "uniform").code == 0
    assert library.load(tmp_path / "model")[-1].class_prior_ == "uniform"
    result = seqmed(tmp_path, *learn, "--class-prior", "evidence")
    assert result.code == 2
    assert "made with class_prior='uniform', which cannot be changed to 'evidence'" in result.err


def test_wrong_proportions_make_no_model(tmp_path):
    write_rows(tmp_path / "rows.csv")
    learn = ("learn", "model", "rows.csv", "--label", "y")
    result = seqmed(tmp_path, *learn, "--class-prior", "0=0.5", "--class-prior", "1=0.6")
    assert result.code == 2
    assert "the proportions of --class-prior have the sum 1.1, expected 1" in result.err
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("names", "labels"),
    [(("0", "1"), (0, 1)), (("false", "true"), (False, True)), (("no", "yes"), ("no", "yes"))],
)
def test_known_proportions_reach_the_model(tmp_path, names, labels):
    """Labels have the type of the column, also if the first rows have none."""
    learn = (
        "learn", "model", "rows.csv", "--label", "y", "--class-prior", f"{names[0]}=0.2",
        "--class-prior", f"{names[1]}=0.8",
    )  # fmt: skip
    write_rows(tmp_path / "rows.csv", ("", ""), 20)
    assert seqmed(tmp_path, *learn).code == 0
    write_rows(tmp_path / "more.csv", names)
    for _ in range(2):  # the same proportions again are accepted
        result = seqmed(tmp_path, *learn[:2], "more.csv", *learn[3:])
        assert result.code == 0, result.err
    assert library.load(tmp_path / "model")[-1].class_prior == dict(
        zip(labels, (0.2, 0.8), strict=True)
    )
    found = json.loads(seqmed(tmp_path, "inspect", "model", "--json").out)
    assert [*found["model"]["changed"]["class_prior"].values()] == [0.2, 0.8]
    wrong = seqmed(tmp_path, *learn[:2], "more.csv", *learn[3:6], "maybe=0.2", *learn[7:])
    assert wrong.code == 2


def test_a_class_of_another_type_is_refused_by_name(tmp_path):
    write_rows(tmp_path / "rows.csv")
    learn = ("learn", "model", "rows.csv", "--label", "y")
    result = seqmed(tmp_path, *learn, "--class-prior", "spam=0.2", "--class-prior", "ham=0.8")
    assert result.code == 2
    assert "names class 'spam', expected a class of type integer" in result.err
