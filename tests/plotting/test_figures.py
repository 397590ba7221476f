"""The plot of a log shows what the log says."""

import json

import numpy as np
import pytest

from seqmed import plotting
from seqmed.plotting.evaluations import CONFUSED_CLASSES, NAMED_CLASSES
from seqmed.selection.measures import BINS, Measures, wilson_interval


def records(right, *, size=1, start=0, changes=None):
    """Return records of batches of `size` rows, half of them labeled from size 2 on.

    `right` has the number of correct predictions of every batch, `changes` the labels since a
    change by the place of the batch that shows it.
    """
    labeled = max(1, size // 2)
    found = []
    for place, correct in enumerate(right):
        scored = labeled * (place + 1)
        share = (place + 1) / len(right)
        record = {
            "batch": place + 1,
            "rows": size,
            "labeled": labeled,
            "scored": labeled,
            "correct": int(correct),
            "accuracy_so_far": float(np.sum(right[: place + 1]) / scored),
            "rows_so_far": start + size * (place + 1),
            "expert_weights": {"margin": 1 - share, "graph": share / 4, "linear": 3 * share / 4},
        }
        if changes and place in changes:
            record["labels_since_change"] = changes[place]
        found.append(record)
    return found


def accuracy_lines(figure):
    lines = {each.get_label(): each for each in figure.axes[0].lines}
    return lines["last 100 labels"], lines["mean so far"]


def test_the_accuracy_of_the_last_labels():
    right = np.random.default_rng(0).random(250) < 0.8
    moving, mean = accuracy_lines(plotting.learning_log(records(right)))
    expected = [right[max(0, end - 100) : end].mean() for end in range(1, 251)]
    np.testing.assert_allclose(moving.get_ydata(), expected)
    np.testing.assert_allclose(mean.get_ydata(), np.cumsum(right) / np.arange(1, 251))
    np.testing.assert_array_equal(moving.get_xdata(), np.arange(1, 251))


def test_the_last_labels_are_a_part_of_a_large_batch():
    """100 labels are half of a batch of 200: the accuracy is that of the batch."""
    moving, _ = accuracy_lines(plotting.learning_log(records([40, 160, 100], size=400)))
    np.testing.assert_allclose(moving.get_ydata(), [0.2, 0.8, 0.5])


def test_batches_before_the_first_prediction_are_left_out():
    first, *rest = records([0, 1, 1], size=10)
    blank = {**first, "scored": 0, "accuracy_so_far": None}
    moving, mean = accuracy_lines(plotting.learning_log([blank, *rest]))
    for line in (moving, mean):
        np.testing.assert_array_equal(line.get_xdata(), [20, 30])
    assert np.isfinite(moving.get_ydata()).all()
    assert plotting.learning_log([blank]).axes


def test_a_change_is_marked_with_its_row():
    """The row is that of the first label since the change, also in an earlier batch."""
    log = records([4] * 40, size=10, start=1000, changes={19: 5, 30: 12})
    top, _ = plotting.learning_log(log).axes
    marks = [each.get_xdata()[0] for each in top.lines if each.get_linestyle() == ":"]
    np.testing.assert_allclose(marks, [1190, 1286])
    bands = [(each.get_x(), each.get_x() + each.get_width()) for each in top.patches]
    np.testing.assert_allclose(bands, [(1190, 1200), (1286, 1310)])
    (rows,) = top.child_axes
    assert [each.get_text() for each in rows.get_xticklabels()] == ["row 1,190", "row 1,286"]
    assert top.get_xlim() == (1000, 1400)


def test_rows_of_close_changes_are_written_once():
    log = records([4] * 100, size=10, changes=dict.fromkeys((50, 51, 90), 5))
    top, _ = plotting.learning_log(log).axes
    (rows,) = top.child_axes
    assert [each.get_text() for each in rows.get_xticklabels()] == ["row 500", "row 900"]
    assert len(top.patches) == 3


def test_a_change_whose_new_start_was_revoked_is_grey():
    """The end of a trial belongs to the change before it."""
    log = records([4] * 60, size=10, changes=dict.fromkeys((10, 30, 50), 5))
    log[12]["new_start"] = "kept"
    log[31]["new_start"], log[33]["new_start"] = "on trial", "revoked"
    top, _ = plotting.learning_log(log).axes
    marks = [each for each in top.lines if each.get_linestyle() == ":"]
    assert [each.get_color() for each in marks] == ["black", "0.6", "black"]
    texts = [each.get_text() for each in top.get_legend().get_texts()]
    assert texts[-3:] == ["change of the concept", "until it is detected", "change, revoked"]


def test_the_experts_of_a_new_start_are_hatched():
    """They are above the others, in the colours of these; experts without weight are left out."""
    log = records([4] * 6, size=10)
    old = {"core": 0.7, "extra_trees": 0.3, "boosting": 0.0}
    for record in log:
        record["expert_weights"] = old
    log[3]["expert_weights"] = {
        **{name: weight / 4 for name, weight in old.items()},
        "new core": 0.5, "new extra_trees": 0.25, "new boosting": 0.0,
    }  # fmt: skip
    _, bottom = plotting.learning_log(log).axes
    core, trees, new_core, new_trees, _ = bottom.collections
    for first, second in ((core, new_core), (trees, new_trees)):
        np.testing.assert_array_equal(first.get_facecolor(), second.get_facecolor())
        assert (first.get_hatch(), bool(second.get_hatch())) == (None, True)
    assert new_core.get_paths()[0].contains_point((35, 0.6))
    assert not new_core.get_paths()[0].contains_point((45, 0.6))
    texts = [each.get_text() for each in bottom.get_legend().get_texts()]
    assert texts == ["new start on trial", "extra trees", "core"]


def test_the_weights_of_the_experts_are_stacked():
    log = records([4] * 4, size=10)
    _, bottom = plotting.learning_log(log).axes
    assert [each.get_label() for each in bottom.collections] == ["margin", "graph", "linear"]
    graph = bottom.collections[1].get_paths()[0]
    assert graph.contains_point((15, 0.55))  # from .5 to .625 in the second batch
    assert not graph.contains_point((15, 0.45))
    assert not graph.contains_point((15, 0.7))


def test_a_log_without_weights_has_one_panel():
    log = [{**each} for each in records([4, 5], size=10)]
    for each in log:
        del each["expert_weights"]
    assert len(plotting.learning_log(log).axes) == 1


def write(path, log):
    path.write_text("".join(json.dumps(each) + "\n" for each in log))
    return path


def test_an_incomplete_last_line_is_left_out(tmp_path):
    log = records([4] * 5, size=10)
    path = write(tmp_path / "log", log)
    path.write_text(path.read_text()[:-1])
    assert plotting.read_log(path) == log[:-1]


def test_logs_that_cannot_be_drawn(tmp_path):
    log = records([4] * 3, size=10)
    with pytest.raises(ValueError, match="batch 1 follows batch 3, expected the batches of one"):
        plotting.learning_log(write(tmp_path / "two models", log + log))
    for text in ("no log\n", "[1]\n", '{"batch": 1}\n', "3\n"):
        (tmp_path / "other").write_text(text)
        with pytest.raises(ValueError, match="line 1 is not a record of a batch"):
            plotting.learning_log(tmp_path / "other")
    (tmp_path / "empty").write_text("")
    with pytest.raises(ValueError, match="the log has no batches"):
        plotting.learning_log(str(tmp_path / "empty"))


def measured(n_classes, n_rows=600, names=None):
    """Return measures of random predictions."""
    rng = np.random.default_rng(0)
    classes = np.array(names or [f"class {place:02}" for place in range(n_classes)])
    truth = rng.integers(n_classes, size=n_rows)
    scores = rng.normal(size=(n_rows, n_classes)) + 2.0 * np.eye(n_classes)[truth]
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    measures = Measures()
    measures.add(classes[truth], classes, probabilities)
    return measures


def titles(figure):
    return {each.get_title(): each for each in figure.axes if each.get_visible()}


@pytest.mark.parametrize("n_classes", [2, 3, 10, 11, 30, 35])
def test_panels_of_an_evaluation(n_classes):
    figure = plotting.evaluation(measured(n_classes))
    many = f"confusion of the {CONFUSED_CLASSES} most confused of {n_classes} classes"
    expected = {"calibration", many if n_classes > NAMED_CLASSES else "confusion"}
    expected |= {"precision and recall"} if n_classes <= 10 else set()
    assert set(titles(figure)) - {""} == expected


@pytest.mark.parametrize(
    ("n_classes", "names"),
    [
        (2, ["ham", "spam"]),
        (3, None),
        (10, None),
        (12, None),
        (30, None),
        (8, [f"a rather long name of class {place}" for place in range(8)]),
    ],
)
def test_texts_do_not_overlap(n_classes, names):
    figure = plotting.evaluation(measured(n_classes, names=names))
    figure.canvas.draw()
    for axes in figure.axes:
        if not axes.get_visible():
            continue
        ticks = [*axes.get_yticklabels(), axes.title, axes.xaxis.label, axes.yaxis.label]
        texts = [each for each in (*ticks, *axes.texts) if each.get_text() and each.get_visible()]
        boxes = [each.get_window_extent().padded(-1.0) for each in texts]
        for place, box in enumerate(boxes):
            others = [texts[at].get_text() for at in range(place) if box.overlaps(boxes[at])]
            assert not others, (texts[place].get_text(), others)
        legend = axes.get_legend()
        if legend is not None and axes.get_title():
            inside = axes.get_window_extent().padded(-1.0)
            assert not legend.get_window_extent().overlaps(inside), "it would hide curves"


def test_one_curve_for_a_positive_class():
    figure = plotting.evaluation(measured(2, names=["ham", "spam"]), positive="spam")
    axes = titles(figure)["precision and recall"]
    assert [each.get_label().split(" ")[0] for each in axes.lines] == ["spam"]
    assert axes.get_legend().get_title().get_text() == "class (average precision)"


def test_curves_differ_without_colours():
    figure = plotting.evaluation(measured(10))
    lines = titles(figure)["precision and recall"].lines
    assert len(lines) == 10
    assert len({(each.get_marker(), each.get_linestyle()) for each in lines}) == 10


def test_calibration_shows_the_rows_of_every_bin():
    measures = measured(3)
    counts, probabilities, accuracies = measures.calibration
    _, (axes,) = plotting.panels(1)
    plotting.reliability(axes, probabilities, accuracies, counts)
    (bars,) = [each for each in axes.figure.axes if each.patches]
    np.testing.assert_array_equal([each.get_height() for each in bars.patches], counts)
    for bar, probability in zip(bars.patches, probabilities, strict=True):
        middle = bar.get_x() + bar.get_width() / 2
        assert abs(middle - probability) <= 0.5 / BINS + 1e-12


def test_a_confusion_writes_every_count_of_thirty_classes():
    matrix = np.random.default_rng(0).integers(1, 2000, size=(30, 30))
    _, (axes,) = plotting.panels(1)
    plotting.confusion(axes, matrix, [f"c{place}" for place in range(30)])
    assert len(axes.texts) == 900
    assert len(axes.get_xticklabels()) == 30
    assert max(len(each.get_text()) for each in axes.texts) <= 4


def test_the_interval_of_the_accuracy_so_far():
    figure = plotting.learning_log(records([3] * 50, size=10))
    (band,) = [each for each in figure.axes[0].collections if each.get_label().startswith("its")]
    low, high = wilson_interval(150, 250)
    ends = band.get_paths()[0].vertices
    last = ends[np.isclose(ends[:, 0], 500)][:, 1]
    assert (last.min(), last.max()) == pytest.approx((low, high))


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_figure_gives_the_same_file_at_any_time(tmp_path, monkeypatch, kind):
    paths = []
    for moment in ("1000000000", "1500000000"):  # matplotlib takes the time from here
        monkeypatch.setenv("SOURCE_DATE_EPOCH", moment)
        paths.append(tmp_path / f"{moment}.{kind}")
        plotting.save_figure(plotting.learning_log(records([3, 4], size=10)), paths[-1])
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_confusion_of_many_classes_shows_the_most_confused():
    """Names and counts of 77 classes would be unreadable; no row is left out."""
    generator = np.random.default_rng(0)
    matrix = np.diag(generator.integers(20, 90, size=77))
    for true, predicted, count in ((70, 3, 40), (5, 6, 30), (6, 5, 2), (40, 41, 1)):
        matrix[true, predicted] = count
    names = [f"intent-{place:02}" for place in range(77)]
    axes = plotting.panels(1)[1][0]
    plotting.confusion(axes, matrix, names)
    assert axes.get_title() == "confusion of the 24 most confused of 77 classes"
    shown = [each.get_text() for each in axes.get_yticklabels()]
    assert shown == [each.get_text() for each in axes.get_xticklabels()]
    assert len(shown) == 25
    assert shown[-1] == "53 others"
    assert shown[:-1] == sorted(shown[:-1])
    wrong = {f"intent-{place:02}" for place in (3, 5, 6, 40, 41, 70)}
    assert wrong <= set(shown)
    others = np.setdiff1d(np.arange(77), [names.index(name) for name in shown[:-1]])
    largest = np.setdiff1d(np.arange(77), [3, 5, 6, 40, 41, 70, *others])
    assert np.diag(matrix)[largest].min() >= np.diag(matrix)[others].max()
    counts = {each.get_position(): each.get_text() for each in axes.texts}
    assert counts[shown.index("intent-03"), shown.index("intent-70")] == "40"
    shares = axes.images[0].get_array()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert counts[24, 24] == f"{matrix[np.ix_(others, others)].sum() / 1000:.0f}k"
