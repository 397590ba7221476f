"""`seqmed evaluate` with two classes, thresholds and costs, and what all commands print."""

import csv
import json
import re
import time

import numpy as np
import pytest
from sklearn import metrics

import seqmed as library
from seqmed.cli import terminal
from seqmed.cli.terminal import CommandError
from tests.support.command import LEARN, make_rows, seqmed

NAMES = ("a:b", "x=1")
KEYS = {
    "rows", "labeled", "prequential", "learned_files", "confidence", "accuracy",
    "accuracy_interval", "balanced_accuracy", "macro_f1", "log_loss", "calibration_error",
    "positive", "roc_auc", "average_precision",
    "threshold", "costs", "mean_cost", "per_class", "classes", "confusion", "calibration",
}  # fmt: skip
CLASS_KEYS = {
    "class", "precision", "precision_interval", "recall", "recall_interval", "f1", "support",
    "predicted", "average_precision",
}  # fmt: skip


def write_rows(path, n_rows, *, seed, labeled=1.0):
    rng = np.random.default_rng(seed)
    with path.open("w") as file:
        file.write("p,q,kind,code\n")
        for row in range(n_rows):
            place = int(rng.random() < 0.3)
            p, q = (rng.normal(size=2) + 1.2 * place).round(5)
            label = NAMES[place] if rng.random() < labeled else ""
            file.write(f"{p},{q},{label},code-{row}\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model of two classes, whose names contain a colon and an equal sign."""
    folder = tmp_path_factory.mktemp("two")
    write_rows(folder / "rows.csv", 200, seed=0, labeled=0.5)
    write_rows(folder / "test.csv", 150, seed=1)
    result = seqmed(
        folder, "learn", "model", "rows.csv", "--label", "kind", "--drop", "code",
        "--batch-size", 50,
    )  # fmt: skip
    assert result.code == 0, result.err
    return folder


@pytest.fixture(scope="module")
def truth(folder):
    """The labels of the test rows, and the probabilities of the model."""
    with (folder / "test.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    points = np.array([[float(row["p"]), float(row["q"])] for row in rows])
    model = library.model_file.load_with_extra(folder / "model")[0]
    return np.array([row["kind"] for row in rows]), model.predict_proba(points)


def measured(folder, *options):
    result = seqmed(folder, "evaluate", "model", "test.csv", "--json", *options)
    assert result.code == 0, result.err
    return json.loads(result.out)


def predicted(folder, *options):
    result = seqmed(folder, "predict", "model", "test.csv", *options)
    assert result.code == 0, result.err
    return np.array([row["label"] for row in csv.DictReader(result.out.splitlines())])


def test_the_keys_of_json_are_stable(folder):
    for options in ((), ("--prequential",), ("--cost", "a:b:x=1=2"), ("--threshold", 0.5)):
        found = measured(folder, *options)
        assert set(found) == KEYS
        for each in found["per_class"]:
            assert set(each) == CLASS_KEYS
            for name, total in (("precision", "predicted"), ("recall", "support")):
                low, high = each[f"{name}_interval"]
                assert low <= each[name] <= high, total


def test_ranking_measures_of_two_classes(folder, truth):
    labels, probabilities = truth
    for options, place in (((), 1), (("--positive", NAMES[0]), 0)):
        found, own = measured(folder, *options), labels == NAMES[place]
        score = probabilities[:, place]
        assert found["positive"] == NAMES[place]
        for name, measure in (
            ("roc_auc", metrics.roc_auc_score),
            ("average_precision", metrics.average_precision_score),
        ):
            assert found[name] == pytest.approx(measure(own, score), abs=1e-3)  # ties
    shown = seqmed(folder, "evaluate", "model", "test.csv").out
    assert f"ROC AUC of {NAMES[1]}" in shown
    assert f"average precision of {NAMES[1]}" in shown


@pytest.mark.parametrize("place", [0, 1])
def test_a_threshold_in_predict_and_evaluate(folder, truth, place):
    labels, probabilities = truth
    options = ("--threshold", 0.2, *(() if place else ("--positive", NAMES[0])))
    expected = np.where(probabilities[:, place] >= 0.2, NAMES[place], NAMES[1 - place])
    np.testing.assert_array_equal(predicted(folder, *options), expected)
    found = measured(folder, *options)
    assert found["accuracy"] == pytest.approx((expected == labels).mean())
    assert (found["threshold"], found["mean_cost"]) == (0.2, None)
    assert (expected != predicted(folder)).any(), "otherwise nothing is tested"


def test_costs_in_predict_and_evaluate(folder, truth):
    """A missed second class costs 9: it is predicted from 1 / 10 on."""
    labels, probabilities = truth
    options = ("--cost", f"{NAMES[1]}:{NAMES[0]}=9")
    expected = np.where(probabilities[:, 1] >= 0.1, NAMES[1], NAMES[0])
    np.testing.assert_array_equal(predicted(folder, *options), expected)
    found = measured(folder, *options)
    wrong = expected != labels
    costs = np.where(wrong & (labels == NAMES[1]), 9.0, wrong)
    assert found["mean_cost"] == pytest.approx(costs.mean())
    assert found["costs"] == [{"true": NAMES[1], "predicted": NAMES[0], "cost": 9.0}]
    shown = seqmed(folder, "evaluate", "model", "test.csv", *options).out
    assert re.search(rf"mean cost +{costs.mean():.4f}", shown)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--threshold", 0.5, "--cost", "a:b:x=1=2"), "a threshold and costs are given"),
        (
            ("--threshold", 0.5, "--positive", "c"),
            "positive='c', expected one of the classes ['a:b', 'x=1']",
        ),
        (("--cost", "a:b:c=2"), "expected TRUE:PREDICTED=NUMBER with two of the classes"),
        (("--cost", "a:b"), "expected TRUE:PREDICTED=NUMBER"),
        (("--cost", "a:b:a:b=2"), "a correct prediction costs 0"),
        (("--threshold", "nan"), "threshold"),
        (("--threshold", "1.5"), "threshold"),
    ],
)
def test_options_that_are_refused(folder, options, message):
    for command in ("predict", "evaluate"):
        result = seqmed(folder, command, "model", "test.csv", *options)
        assert (result.code, result.out) == (2, "")
        assert message in result.err


def test_a_threshold_needs_two_classes(tmp_path):
    make_rows(tmp_path / "rows.csv", 60)
    assert seqmed(tmp_path, *LEARN, 20).code == 0
    for command in ("predict", "evaluate"):
        result = seqmed(tmp_path, command, "model", "rows.csv", "--threshold", 0.5)
        assert result.code == 2
        assert "the model has 3 classes, expected two" in result.err
        assert "--cost" in result.err
    found = seqmed(tmp_path, "evaluate", "model", "rows.csv", "--cost", "setosa:virginica=3")
    assert found.code == 0
    assert "ROC AUC" not in found.out
    lonely = seqmed(tmp_path, "predict", "model", "rows.csv", "--positive", "setosa")
    assert "--positive is used only with --threshold" in lonely.err


def test_an_id_column_is_copied(folder):
    for options, first in ((("--id", "code"), "code"), (("--id", "code", "--keep", "q,code"), "q")):
        result = seqmed(folder, "predict", "model", "test.csv", *options)
        rows = list(csv.DictReader(result.out.splitlines()))
        assert [row["code"] for row in rows] == [f"code-{row}" for row in range(150)]
        assert first in rows[0]
        assert result.out.splitlines()[0].count("code") == 1
    result = seqmed(folder, "query", "model", "rows.csv", "-n", 2, "--id", "code")
    assert result.out.splitlines()[0] == "file,row,code"
    missing = seqmed(folder, "predict", "model", "test.csv", "--id", "nothing")
    assert (missing.code, "nothing" in missing.err) == (2, True)


def test_query_without_unlabeled_rows_says_so(folder):
    result = seqmed(folder, "query", "model", "test.csv", "-n", 3)
    assert result.code == 2
    assert "all 150 rows have labels, expected unlabeled rows" in result.err
    assert "-n" not in result.err
    result = seqmed(folder, "query", "model", "rows.csv", "-n", 3000)
    assert re.search(r"choose at most \d+ with -n", result.err)


class TestMessages:
    def test_quiet(self, tmp_path):
        make_rows(tmp_path / "rows.csv", 60)
        result = seqmed(tmp_path, *LEARN, 20, "--quiet")
        assert (result.code, result.out, result.err) == (0, "", "")
        for command in ("predict", "evaluate", "query"):
            number = ("-n", 2) if command == "query" else ()
            result = seqmed(tmp_path, command, "model", "rows.csv", "-q", *number)
            assert result.code == 0
            assert result.out, "results are printed"
            assert all(line.startswith("seqmed: warning") for line in result.err.splitlines())
        assert seqmed(tmp_path, "inspect", "model", "-q").out

    def test_errors_and_skipped_rows_are_not_hidden(self, tmp_path):
        make_rows(tmp_path / "rows.csv", 40)
        with (tmp_path / "rows.csv").open("a") as file:
            file.write("1,2,smudge,setosa,41\n")
        result = seqmed(tmp_path, *LEARN, 20, "-q")
        assert (result.code, "smudge" in result.err) == (2, True)
        result = seqmed(tmp_path, *LEARN, 20, "-q", "--on-error", "skip")
        assert (result.code, result.out) == (0, "")
        assert "skipped 1 bad row" in result.err

    def test_lines_of_progress(self, monkeypatch, capsys):
        """The first line has no time left: its speed includes compilation."""
        monkeypatch.setattr(terminal, "PAUSE", 0.0)
        with terminal.Reporter("learning", wait=0) as bar:
            for number in range(1, 6):
                bar.report(number / 5, 20 * number, f"batch {number}")
                time.sleep(0.01)
        lines = capsys.readouterr().err.splitlines()
        found = [re.match(r"learning: (\d+)%, batch (\d+), ", line).groups() for line in lines]
        assert found == [(str(20 * number), str(number)) for number in range(1, 6)]
        assert [line.endswith(" left") for line in lines] == [False, True, True, True, False]

    def test_the_summary_has_an_interval(self, tmp_path):
        make_rows(tmp_path / "rows.csv", 100)
        out = seqmed(tmp_path, *LEARN, 20).out
        number = r"\d+\.\d"
        pattern = rf"prequential accuracy {number} % \({number} to {number} %\) of \d+ labeled rows"
        assert re.search(pattern, out)

    def test_flags_have_no_type_in_the_help(self, tmp_path):
        for command in ("learn", "predict", "evaluate", "inspect", "query", "label", "example"):
            shown = seqmed(tmp_path, command, "--help", columns=150).out
            typed = [line for line in shown.splitlines() if "<bool>" in line]
            assert [line.split()[1] for line in typed] == ["--help"], "that of typer"
            assert "--quiet" in shown
        shown = seqmed(tmp_path, "--help", columns=150).out
        assert "Exit codes: 0 success, 1 a defect in seqmed, 2 refused" in shown

    @pytest.mark.parametrize(
        ("seconds", "text"), [(0.2, "1 s"), (59.7, "60 s"), (400, "7 min"), (9000, "2 h 30 min")]
    )
    def test_durations(self, seconds, text):
        assert terminal.duration(seconds) == text


def test_too_few_rows_for_a_query():
    from seqmed.cli.query import refuse_too_few

    refuse_too_few(3, 3, 3)
    with pytest.raises(CommandError, match="there is 1 distinct row without a label"):
        refuse_too_few(1, 3, 3)
    with pytest.raises(CommandError, match="there are no rows, expected unlabeled rows"):
        refuse_too_few(0, 3, 0)
