"""What the commands say is what the library, scikit-learn and the formats say."""

import csv
import functools
import json
import os
from typing import get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn import metrics

import seqmed as library
from seqmed import plotting
from seqmed.cli import checkpoint, learn, options, outputs, parameters
from seqmed.selection.measures import wilson_interval
from seqmed.selection.queries import Shortlist
from seqmed.streams import EncoderCheck, LabelColumn, Stream
from seqmed.streams.inputs import FORMATS
from seqmed.streams.label_column import LABEL_TYPES
from tests.support.command import LEARN, NAMES, log_lines, make_rows, seqmed
from tests.support.state import state_bits

MODELS = {
    "seqgraphmed": None,  # the default
    "seqmed": library.SeqMED(kernel="auto", random_state=0),
    "seqlapmed": library.SeqLapMED(kernel="auto", random_state=0),
    "graphpropagation": library.GraphPropagation(random_state=0),
}


@pytest.fixture(scope="module", params=MODELS)
def estimator(request):
    return request.param


def rarely(name):
    """Leave the other models than the default to `make test-all`."""
    return () if name == "seqgraphmed" else pytest.mark.exhaustive


# For what a command does alike with every model.
default_model = pytest.mark.parametrize(
    "estimator",
    [pytest.param(name, marks=rarely(name)) for name in MODELS],
    indirect=True,
    scope="module",
)


def chosen(estimator):
    """Return the options of an estimator; the default one has its default experts."""
    return ("--experts", "auto") if estimator == "seqgraphmed" else ("--estimator", estimator)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, estimator):
    """A folder with a model, the rows it has learned, and others with all labels."""
    folder = tmp_path_factory.mktemp("commands")
    make_rows(folder / "rows.csv", 300)
    make_rows(folder / "holdout.csv", 200, seed=1, labeled=1.0)
    result = seqmed(folder, *LEARN, 50, "--log", "log", *chosen(estimator))
    assert result.code == 0, result.err
    return folder


def points_of(path):
    """The features and labels of rows, read without the library."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    points = np.array([[float(row[name]) for name in "abc"] for row in rows])
    return points, np.array([row["kind"] for row in rows])


def test_learning_at_a_shell_is_learning_in_python(folder, estimator):
    rows = pd.read_csv(folder / "rows.csv")
    model = library.make_stream_pipeline(
        MODELS[estimator], kinds={"id": "drop"}, label="kind", random_state=0
    )
    scored = correct = 0
    for start in range(0, 300, 50):
        batch = rows[start : start + 50]
        labeled = batch.dropna(subset="kind")
        if start:
            scored += len(labeled)
            correct += (model.predict(labeled) == labeled["kind"]).sum()
        model.partial_fit(batch, batch["kind"])
    other = library.load(folder / "model")
    assert state_bits(other) == state_bits(model)
    holdout = pd.read_csv(folder / "holdout.csv")
    np.testing.assert_array_equal(model.predict_proba(holdout), other.predict_proba(holdout))
    model = model[-1]
    last = log_lines(folder / "log")[-1]
    assert last["accuracy_so_far"] == correct / scored
    assert last["accuracy_interval"] == pytest.approx([*wilson_interval(correct, scored)])
    assert (last["rows_so_far"], last["batch"], last["classes"]) == (300, 6, 3)
    assert last.get("graph_weight") == getattr(model, "graph_weight_", None)
    assert last.get("expert_weights") == getattr(model, "expert_weights_", None)


@default_model
def test_a_plot_shows_the_whole_log_after_a_resume(folder, estimator):
    lines = (folder / "rows.csv").read_text().splitlines(keepends=True)
    (folder / "part.csv").write_text("".join(lines[:101]))
    learn = ("learn", "parts", "part.csv", *LEARN[3:], 50)
    assert seqmed(folder, *learn, "--log", "parts-log", *chosen(estimator)).code == 0
    (folder / "part.csv").write_text("".join(lines))
    result = seqmed(folder, *learn, "--log", "parts-log", "--plot", "parts.png")
    assert result.code == 0, result.err
    plotting.save_figure(plotting.learning_log(folder / "log"), folder / "whole.png")
    assert (folder / "parts.png").read_bytes() == (folder / "whole.png").read_bytes()


def read_output(path):
    """The columns of an output, as texts, numbers or what the format has."""
    if path.suffix == ".parquet":
        return parquet.read_table(path).to_pydict()
    if path.suffix == ".jsonl":
        rows = log_lines(path)
        return {name: [row[name] for row in rows] for name in rows[0]}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    texts = ("file", "label", "id")
    return {
        name: values if name in texts else [*map(int if name == "row" else float, values)]
        for name, values in columns.items()
    }


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        pytest.param(model, f"out.{suffix}", marks=() if suffix == "csv" else rarely(model))
        for model in MODELS
        for suffix in ("csv", "tsv", "jsonl", "parquet")
    ],
    indirect=["estimator"],
    scope="module",
)
def test_predictions_in_every_format_are_those_of_the_model(folder, name):
    result = seqmed(folder, "predict", "model", "holdout.csv", "-o", name, "--keep", "id")
    assert (result.code, result.out) == (0, ""), result.err
    found = read_output(folder / name)
    model = library.load(folder / "model")
    points, _ = points_of(folder / "holdout.csv")
    assert found.pop("file") == ["holdout.csv"] * 200
    assert found.pop("row") == list(range(1, 201))
    assert found.pop("id") == [str(number) for number in range(200)]
    assert found.pop("label") == model.predict(points).tolist()
    expected = {
        **dict(
            zip(
                (f"probability_{each}" for each in NAMES),
                model.predict_proba(points).T,
                strict=True,
            )
        ),
        **dict(
            zip((f"score_{each}" for each in NAMES), model.decision_function(points).T, strict=True)
        ),
    }
    if hasattr(model, "decision_std"):
        expected["score_std"] = model.decision_std(points)
    assert list(found) == list(expected)
    for column, values in expected.items():
        np.testing.assert_array_equal(found[column], values)


@default_model
def test_predictions_on_standard_output(folder):
    result = seqmed(
        folder,
        "predict",
        "model",
        "-",
        stdin=folder / "holdout.csv",
    )
    assert result.code == 0
    assert len(result.out.splitlines()) == 201
    (folder / "named.csv").unlink(missing_ok=True)
    seqmed(folder, "predict", "model", "holdout.csv", "-o", "named.csv")
    assert (folder / "named.csv").read_text().replace("holdout.csv", "standard input") == result.out


@pytest.mark.parametrize(
    ("labels", "kind"),
    [(("0", "1"), pa.int64()), (("true", "false"), pa.bool_()), (("no", "yes"), pa.string())],
)
def test_labels_keep_their_type(tmp_path, labels, kind):
    lines = [f"{number % 2 + number / 100},{labels[number % 2]}" for number in range(20)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,y", *lines, ""]))
    assert seqmed(tmp_path, "learn", "model", "rows.csv", "--label", "y").code == 0
    assert seqmed(tmp_path, "predict", "model", "rows.csv", "-o", "out.pq").code == 0
    table = parquet.read_table(tmp_path / "out.pq")
    assert table.schema.field("label").type == kind
    assert [str(value).lower() for value in table["label"].to_pylist()] == [*labels] * 10
    assert "score" in table.column_names


@pytest.mark.exhaustive
def test_measures_are_those_of_scikit_learn(folder):
    result = seqmed(folder, "evaluate", "model", "holdout.csv", "--json", "--plot", "plot.png")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    points, labels = points_of(folder / "holdout.csv")
    model = library.load(folder / "model")
    predicted, probabilities = model.predict(points), model.predict_proba(points)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert found["balanced_accuracy"] == pytest.approx(
        metrics.balanced_accuracy_score(labels, predicted)
    )
    assert found["log_loss"] == pytest.approx(metrics.log_loss(labels, probabilities))
    assert found["confusion"] == metrics.confusion_matrix(labels, predicted).tolist()
    assert (found["classes"], found["labeled"]) == (list(NAMES), 200)
    assert found["calibration_error"] == pytest.approx(
        calibration_error(labels == predicted, probabilities.max(axis=1))
    )
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    precision, recall, f1, support = metrics.precision_recall_fscore_support(labels, predicted)
    for name, expected in (
        ("precision", precision), ("recall", recall), ("f1", f1), ("support", support),
    ):  # fmt: skip
        assert [each[name] for each in found["per_class"]] == pytest.approx(expected)
    assert found["macro_f1"] == pytest.approx(metrics.f1_score(labels, predicted, average="macro"))
    interval = wilson_interval((labels == predicted).sum(), 200)
    assert found["accuracy_interval"] == pytest.approx([*interval])
    shown = seqmed(folder, "evaluate", "model", "holdout.csv").out
    assert f"{100 * found['accuracy']:.1f} %" in shown
    assert "balanced accuracy" in shown


def calibration_error(right, confidence, bins=15):
    """The expected calibration error, by its definition."""
    total = 0.0
    for place in range(bins):
        inside = (confidence >= place / bins) & (confidence < (place + 1) / bins)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


@default_model
def test_a_class_the_model_does_not_know_counts_as_wrong(folder):
    text = (folder / "holdout.csv").read_text()
    (folder / "strange.csv").write_text(text + "1,1,1,unheard,200\n")
    found = json.loads(seqmed(folder, "evaluate", "model", "strange.csv", "--json").out)
    before = json.loads(seqmed(folder, "evaluate", "model", "holdout.csv", "--json").out)
    assert found["accuracy"] == pytest.approx(before["accuracy"] * 200 / 201)
    assert found["log_loss"] == pytest.approx(
        (before["log_loss"] * 200 - np.log(np.finfo(float).eps)) / 201
    )
    assert "has not learned: unheard" in seqmed(folder, "evaluate", "model", "strange.csv").err


def test_prequential_evaluation_predicts_before_it_learns(folder):
    before = (folder / "model").read_bytes()
    result = seqmed(
        folder, "evaluate", "model", "holdout.csv", "--prequential", "--json", "--plot", "plot.svg"
    )
    model, found = library.load(folder / "model"), json.loads(result.out)
    points, labels = points_of(folder / "holdout.csv")
    correct = 0
    for start in range(0, 200, 50):
        batch = slice(start, start + 50)
        correct += (model.predict(points[batch]) == labels[batch]).sum()
        model.partial_fit(points[batch], labels[batch])
    assert found["accuracy"] == correct / 200
    assert found["prequential"] is True
    assert (folder / "model").read_bytes() == before


@default_model
def test_evaluation_on_learned_rows_is_cautioned(folder):
    for more in ((), ("--prequential",)):
        result = seqmed(folder, "evaluate", "model", "rows.csv", *more)
        assert result.code == 0
        assert "seqmed: warning: the model has learned rows of" in result.err
        assert "rows.csv, so the measures are too optimistic" in result.err
    assert "warning" not in seqmed(folder, "evaluate", "model", "holdout.csv").err


def test_features_of_very_different_scales(tmp_path):
    """SeqGraphMED scales the column: the predictions are nearly those of other units."""
    make_rows(tmp_path / "rows.csv", 300)
    rows = pd.read_csv(tmp_path / "rows.csv")
    rows.assign(a=1024 * rows["a"]).to_csv(tmp_path / "scaled.csv", index=False)
    for name in ("rows", "scaled"):
        assert seqmed(tmp_path, "learn", name, f"{name}.csv", "--label", "kind").code == 0
        assert seqmed(tmp_path, "predict", name, f"{name}.csv", "-o", f"{name}-out.csv").code == 0
    plain, scaled = (pd.read_csv(tmp_path / f"{name}-out.csv") for name in ("rows", "scaled"))
    assert (plain["label"] == scaled["label"]).mean() > 0.9


def test_counts_of_very_different_scales_need_no_scaling(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y,kind\n" + "1,900,a\n2,100,b\n3,5000,a\n" * 9)
    result = seqmed(
        tmp_path, "learn", "model", "rows.csv", "--label", "kind", "--estimator", "seqmed",
        "--kernel", "tfidf",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "warning" not in result.err


def test_inspect_tells_what_the_model_has_seen(folder, estimator):
    found = json.loads(seqmed(folder, "inspect", "model", "--json").out)
    _, labels = points_of(folder / "rows.csv")
    names, counts = np.unique(labels[labels != ""], return_counts=True)
    assert {each["class"]: each["labels"] for each in found["classes"]} == dict(
        zip(names.tolist(), counts.tolist(), strict=True)
    )
    assert found["seen"]["rows"] == 300
    assert found["seen"]["labeled"] == counts.sum()
    assert found["seen"]["files"] == [
        {"path": os.path.realpath(folder / "rows.csv"), "rows": 300, "finished": True}
    ]
    model = library.load(folder / "model")[-1]
    kinds = {"a": "numeric", "b": "numeric", "c": "numeric", "id": "drop"}
    assert found["columns"]["kinds"] == kinds
    assert found["columns"]["left_out"] == {"id": "chosen"}
    assert found["model"]["changed"]["random_state"] == 0
    shown = seqmed(folder, "inspect", "model").out
    parts = [
        f"{type(model).__name__}(",
        "random_state=0",
        "not used (chosen)",
        "300 rows",
        "rows.csv",
    ]
    low, high = found["prequential"]["interval"]
    parts.append(f"({100 * low:.1f} to {100 * high:.1f} %) of")
    margin = getattr(model, "estimator_", model)
    if hasattr(margin, "posterior_"):
        assert found["margin"]["bytes"] == margin.posterior_.nbytes
        assert found["margin"]["duality_gap"] == model.duality_gap_
        parts += ["duality gap", f"{margin.posterior_.size} points of {type(margin).__name__}"]
    if "graph" in estimator:
        assert found["graph"]["kept_rows"] == model.n_kept_ == 300
        assert found["graph"]["labeled_rows"] == counts.sum()
        parts.append("rows of the data: 300 kept rows of the graph")
    assert ("mixture" in found) == (estimator == "seqgraphmed")
    if "mixture" in found:
        assert found["mixture"]["graph_weight"] == model.graph_weight_
        recorded = model.update_info_.n_recorded
        assert found["mixture"]["labels_in_record"] == recorded
        parts += [f"graph weight {model.graph_weight_:.3g}", f"labels in record {recorded}"]
        assert found["experts"] == model.expert_weights_
        assert found["core"] == model.core_weights_
        assert found["change"] is None
        weights = {name: weight for name, weight in model.expert_weights_.items() if weight > 0}
        shown_weights = [f"{name.replace('_', ' ')} {each:.3g}" for name, each in weights.items()]
        parts.append(f"experts:  {', '.join(shown_weights)}\ncore:     ")
    for part in parts:
        assert part in shown


def test_query_chooses_what_the_library_chooses(folder):
    result = seqmed(
        folder, "query", "model", "rows.csv", "-n", "7", "--keep", "id", "--to", "jsonl"
    )
    assert result.code == 0, result.err
    found = [json.loads(line) for line in result.out.splitlines()]
    points, labels = points_of(folder / "rows.csv")
    free = np.flatnonzero(labels == "")
    chosen = free[library.query(library.load(folder / "model"), points[free], 7)]
    assert [line["row"] for line in found] == (chosen + 1).tolist()
    assert [line["id"] for line in found] == [str(row) for row in chosen]


def test_query_of_more_rows_than_are_compared_at_once(folder):
    points, labels = points_of(folder / "rows.csv")
    model, free = library.load(folder / "model")[-1], np.flatnonzero(labels == "")
    regrets = library.expected_regret(model, points[free])
    parts = []
    for start in range(0, free.size, 30):
        rows = free[start : start + 30]
        parts.append(Shortlist.of(model, 20, points[rows], rows, rows.tolist()))
    again = 10**6 + np.arange(30)  # rows that are known are no others
    parts.append(Shortlist.of(model, 20, points[free[:30]], again, again.tolist()))
    best = np.sort(np.argsort(-regrets, kind="stable")[:20])
    for order in (parts, parts[::-1]):
        shortlist = functools.reduce(Shortlist.plus, order)
        assert list(shortlist.cells) == shortlist.numbers.tolist() == free[best].tolist()
        np.testing.assert_array_equal(shortlist.points, points[free[best]])


@pytest.mark.parametrize("estimator", MODELS)
def test_query_before_any_label(tmp_path, estimator):
    make_rows(tmp_path / "rows.csv", 60, labeled=0)
    assert seqmed(tmp_path, *LEARN, 20, "--estimator", estimator).code == 0
    result = seqmed(tmp_path, "query", "model", "rows.csv", "-n", "3")
    rows = [int(line.split(",")[1]) for line in result.out.splitlines()[1:]]
    assert len(set(rows)) == 3
    said = seqmed(tmp_path, "predict", "model", "rows.csv")
    assert said.code == 2
    assert "has learned no label" in said.err


def test_batches_are_as_before_unless_told_otherwise(tmp_path):
    make_rows(tmp_path / "rows.csv", 60)
    seqmed(tmp_path, *LEARN, 20)
    make_rows(tmp_path / "rows.csv", 60, start=60)
    assert "6 batches, 120 rows" in seqmed(tmp_path, "learn", "model", "rows.csv").out
    make_rows(tmp_path / "rows.csv", 60, start=120)
    result = seqmed(tmp_path, "learn", "model", "rows.csv", "--batch-size", 60)
    assert "7 batches, 180 rows" in result.out


@pytest.mark.parametrize(
    "chosen",
    [
        (),
        ("--kernel", "tfidf"),
        ("--estimator", "seqlapmed", "--kernel", "tfidf"),
        ("--estimator", "graphpropagation"),
    ],
)
def test_text_folders_and_groups(tmp_path, chosen):
    (tmp_path / "mail").mkdir()
    for day in range(3):
        lines = ["day,words,kind"]
        for number in range(10):
            words, kind = (("win money now", "spam"), ("see you at lunch", "ham"))[number % 2]
            lines.append(f"{day},{words} {number},{kind}")
        (tmp_path / "mail" / f"{day}.csv").write_text("\n".join([*lines, ""]))
    result = seqmed(
        tmp_path, "learn", "model", "mail", "--label", "kind", "--text", "words", "--drop", "day",
        "--batch-by", "day", "--first-batch", 1, *chosen,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "3 batches, 30 rows" in result.out
    (tmp_path / "new.csv").write_text("words\nmoney money\nlunch\n")
    result = seqmed(tmp_path, "predict", "model", "new.csv")
    assert [line.split(",")[2] for line in result.out.splitlines()[1:]] == ["spam", "ham"]


def test_the_version_is_that_of_the_library(tmp_path):
    result = seqmed(tmp_path, "--version")
    assert (result.code, result.out) == (0, f"seqmed {library.__version__}\n")


def test_help_joins_the_lines_of_a_paragraph(tmp_path):
    wide = seqmed(tmp_path, "label", "--help", columns=200).out
    assert "If the command is interrupted, run it again: it continues with the same queue." in wide


def test_columns_between_commas():
    assert options.column_names(['a, "b,c"', "d"]) == ("a", "b,c", "d")
    assert options.column_names(None) == ()


def test_choices_are_those_of_the_library():
    assert get_args(options.InputFormat) == FORMATS
    assert get_args(options.OutputFormat) == tuple(outputs.WRITERS)
    assert get_args(learn.LabelType) == LABEL_TYPES
    assert get_args(learn.Estimator) == tuple(parameters.ESTIMATORS)


PARAMETERS = (
    "lag=3", "averaging=true", "mixture=0.3", "alpha=0.5", "n_neighbors=4", "metric=cosine",
    "degree=2", "class_prior=uniform",
)  # fmt: skip


def test_parameters_reach_the_margin_and_the_mixture(tmp_path):
    make_rows(tmp_path / "rows.csv", 60)
    options = (
        "--C", "5", "--gamma", "0.5", "--kernel", "poly", "--budget", "50", "--graph-memory", "40",
        "--forgetting", "0.9", "--class-weight", "{'setosa': 3}", "--seed", "7",
        *(word for each in PARAMETERS for word in ("--param", each)),
    )  # fmt: skip
    for _ in range(2):  # the same options again are accepted
        result = seqmed(tmp_path, *LEARN, 20, *options)
        assert result.code == 0, result.err
    pipeline = library.load(tmp_path / "model")
    model = pipeline[-1]
    own = {
        "graph_memory": 40, "mixture": 0.3, "alpha": 0.5, "n_neighbors": 4, "metric": "cosine",
        "class_prior": "uniform", "forgetting": 0.9, "class_weight": {"setosa": 3},
        "random_state": 7, "experts": (),
    }  # fmt: skip
    inner = {
        "C": 5, "gamma": 0.5, "kernel": "poly", "lag": 3, "budget": 50, "averaging": True,
        "degree": 2, "forgetting": 0.9, "random_state": 7,
    }  # fmt: skip
    expected = library.SeqGraphMED(library.SeqMED(**inner), **own)
    assert repr(model) == repr(expected)
    assert model.estimator_.class_weight == {"setosa": 3}  # passed on
    points, labels = points_of(tmp_path / "rows.csv")
    points = pipeline[0].transform(points)
    for start in range(0, 60, 20):
        batch = slice(start, start + 20)
        expected.partial_fit(points[batch], [label or None for label in labels[batch].tolist()])
    np.testing.assert_array_equal(
        model.decision_function(points), expected.decision_function(points)
    )


@default_model
def test_the_rows_of_a_model_are_read_in_python(folder):
    pipeline, progress = checkpoint.load_checkpoint(folder / "model")
    check = EncoderCheck(lambda: pipeline[0])
    (batch,) = Stream(folder / "holdout.csv", label=progress.label, check=check)
    assert batch.table.column_names == ["a", "b", "c"]
    assert progress.label == LabelColumn("kind", type="string")
    assert pipeline.score(batch.table, batch.y.astype(str)) > 0.7
