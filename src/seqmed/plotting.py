"""Plots: functions that draw on Axes and return them."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmed.arrays import Array
from seqmed.measures import BINS, Measures, wilson_interval
from seqmed.model_file.files import write_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, which is safe for colour-blind readers.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
# Areas have colours that no curve above them has.
AREAS = (PALETTE[6], PALETTE[5], PALETTE[2], PALETTE[3])
# Cycles of different lengths, so that two curves of one colour differ in marker and dash.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1)))
LONG_LABEL = 24
# Width and height of a panel in inches; largest number of classes whose names are written, and
# number of classes from which on the confusion matrix is larger than the other panels.
PANEL = (4.6, 4.2)
NAMED_CLASSES, WIDE_CONFUSION = 30, 12
# Longest name of a class; largest number of curves whose legend is below the panel.
LONGEST_NAME, CURVES_BELOW = 16, 3
# Letters of the names of all classes that fit side by side.
UPRIGHT = 30
# Height of the panel of a calibration, in heights of the highest bar of counts.
COUNTS_HEIGHT = 3.5
FORMATS = ("png", "svg", "pdf")
# Labels in the moving mean of the prequential accuracy.
MOVING_LABELS = 100
# Smallest distance of two changes whose rows are written, as a fraction of the stream.
NAMED_CHANGES = 0.03

Record = Mapping[str, Any]
"""A line of the log of `seqmed learn`."""
MEMBERS = (
    "batch", "rows", "labeled", "scored", "correct", "accuracy_so_far", "rows_so_far",
)  # fmt: skip


def require_matplotlib() -> None:
    """Raise an ImportError with a remedy if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "figures need matplotlib, which is not installed: run pip install '.[plot]' in the "
            "source folder, or pip install matplotlib."
        ) from error


def panels(number: int, size: tuple[float, float] = PANEL) -> tuple[Figure, list[Axes]]:
    """Return a figure for saving, and its panels side by side."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(number * size[0], size[1]), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, [figure.add_subplot(1, number, place + 1) for place in range(number)]


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file name; the same figure gives the same file."""
    import matplotlib

    kind, content = picture_format(path), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "seqmed"}):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(content, format=kind, dpi=200, metadata=metadata)
    write_output(path, [content.getvalue()])


def picture_format(path: Path) -> str:
    """Return the format of a picture by the suffix of its name; png without a suffix."""
    kind = path.suffix[1:].lower() or FORMATS[0]
    if kind not in FORMATS:
        raise ValueError(f"{path} ends in {path.suffix!r}, expected .png, .svg or .pdf: rename it.")
    return kind


def evaluation(measures: Measures, positive: Any = None, records: Sequence[Record] = ()) -> Figure:
    """Return a figure of the measures of `seqmed evaluate`.

    Panels: calibration, precision and recall, confusion, and the accuracy over the stream.

    Parameters
    ----------
    measures : measures of the labeled rows.
    positive : the positive class, the only one whose precision and recall are drawn; None to draw
        all classes.
    records : as in `learning_log`; without them, the accuracy over the stream is left out.
    """
    names = list(map(str, measures.classes))
    curves = {
        label: curve
        for label, curve in measures.curves().items()
        if positive is None or label == positive
    }
    others = ["calibration", *(["precision"] if curves else []), *(["accuracy"] if records else [])]
    wide = PANEL[0] + 1.6 * (len(curves) > CURVES_BELOW)
    figure, axes = evaluation_panels(others, len(names), wide)
    counts, probabilities, accuracies = measures.calibration
    reliability(axes["calibration"], probabilities, accuracies, counts, bins=BINS)
    confusion(axes["confusion"], measures.matrix, names)
    if curves:
        averages = {str(label): measures.ranking(label) for label in curves}
        precision_recall(
            axes["precision"],
            {str(label): curve for label, curve in curves.items()},
            {name: each.average_precision for name, each in averages.items() if each is not None},
        )
    if records:
        prequential_accuracy(axes["accuracy"], records, outside=False)
        axes["accuracy"].set(xlabel="row of the stream", title="accuracy over the stream")
        axes["accuracy"].xaxis.set_major_formatter("{x:,.0f}")
        axes["accuracy"].locator_params(axis="x", nbins=5)
    return figure


def evaluation_panels(
    others: Sequence[str], n_classes: int, wide: float
) -> tuple[Figure, dict[str, Axes]]:
    """Return a figure, and its panels by name: a confusion, which may be large, and others.

    Parameters
    ----------
    others : names of the other panels.
    n_classes : number of classes of the confusion.
    wide : width of the panel of precision and recall, in inches.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    if n_classes > WIDE_CONFUSION:  # the others are in a column of their own
        rows = max(len(others), 2)
        named = 0.29 * n_classes + 1.6 if n_classes <= NAMED_CLASSES else 0.0
        large = max(0.85 * rows * PANEL[1], named)
        figure.set_size_inches(wide + large + 0.4, large)
        sides: Any = figure.subfigures(1, 2, width_ratios=[wide, large + 0.4])
        free = sides[0].subplots(rows, 1)
        axes = {"confusion": sides[1].subplots(), **dict(zip(others, free, strict=False))}
        for each in free[len(others) :]:
            each.set_visible(False)
        return figure, axes
    names = [others[0], "confusion", *others[1:]]
    columns = 2 if len(names) == 4 else len(names)
    rows = len(names) // columns
    own = [wide if name == "precision" else PANEL[0] for name in names]
    widths = [max(own[place::columns]) for place in range(columns)]
    figure.set_size_inches(sum(widths), rows * PANEL[1])
    grid = figure.subplots(rows, columns, squeeze=False, width_ratios=widths)
    return figure, dict(zip(names, grid.ravel().tolist(), strict=True))


def shortened(name: str) -> str:
    """Return the name of a class, shortened if it is long."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[1 - half :]}"


def reliability(
    axes: Axes, probabilities: Array, accuracies: Array, counts: Array, *, bins: int = BINS
) -> Axes:
    """Draw the accuracy of predictions against their probability, and the rows of every bin.

    Error bars are 95 % intervals of the accuracy (Wilson). Bars at the bottom, with the axis on the
    right, are the numbers of rows.

    Parameters
    ----------
    axes : where to draw.
    probabilities, accuracies : (m,) means of the predictions in every bin that is not empty.
    counts : (m,) number of predictions.
    bins : number of bins, which divide the probabilities from 0 to 1 equally.
    """
    probabilities, accuracies = np.asarray(probabilities), np.asarray(accuracies)
    counts = np.asarray(counts)
    rows = axes.twinx()
    places = np.minimum((probabilities * bins).astype(int), bins - 1)
    rows.bar((places + 0.5) / bins, counts, 0.9 / bins, color="0.85", linewidth=0)
    top = float(counts.max())
    rows.set(ylim=(0, COUNTS_HEIGHT * top))
    rows.set_yticks([0, top], ["0", f"{top:,.0f}\nrows"])
    rows.tick_params(labelsize="small")
    rows.set_zorder(0)
    axes.set_zorder(1)
    axes.patch.set_visible(False)
    ends = np.array(
        [
            wilson_interval(round(accuracy * count), round(count))
            for accuracy, count in zip(accuracies, counts, strict=True)
        ]
    )
    errors = np.maximum(np.abs(ends - accuracies[:, None]).T, 0.0)
    axes.plot([0, 1], [0, 1], color="0.5", linewidth=1, linestyle="--", label="calibrated")
    axes.errorbar(
        probabilities, accuracies, errors, color=PALETTE[0], linewidth=1.4, elinewidth=1,
        capsize=2, marker="o", markersize=4, label="accuracy, 95 % interval",
    )  # fmt: skip
    axes.set(
        xlabel="probability of the predicted class", ylabel="accuracy",
        title="calibration", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02),
    )  # fmt: skip
    axes.grid(alpha=0.3, linewidth=0.6)
    legend_below(axes)
    return axes


def legend_below(axes: Axes) -> None:
    """Draw the legend in one line below the axes, where it covers no curve."""
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False, fontsize="small", ncols=3,
        columnspacing=1.2, handlelength=2.4,
    )  # fmt: skip


def confusion(axes: Axes, matrix: Any, names: Sequence[str]) -> Axes:
    """Draw a confusion matrix: counts, shaded by their fraction of the true class.

    Parameters
    ----------
    axes : where to draw.
    matrix : (K, K) counts, a row for every true class and a column for every predicted one.
    names : (K,) names of the classes. Names and counts are written if there are at most
        `NAMED_CLASSES`.
    """
    matrix = np.asarray(matrix)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="true", title="confusion")
    if len(names) <= NAMED_CLASSES:
        size = 9.0 if len(names) <= 10 else 7.5 if len(names) <= 20 else 6.5
        texts = [shortened(name) for name in names]
        upright = max(map(len, texts), default=0) * len(names) <= UPRIGHT
        turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(range(len(names)), texts, fontsize=size, **({} if upright else turned))
        axes.set_yticks(range(len(names)), texts, fontsize=size)
        few = len(names) <= 5
        for true, predicted in np.argwhere(matrix):
            count = matrix[true, predicted]
            axes.text(
                predicted, true, f"{count:,}" if few else short_count(count), ha="center",
                va="center", fontsize=size - 1.0,
                color="white" if shares[true, predicted] > 0.5 else "black",
            )  # fmt: skip
    else:
        axes.set(xticks=[], yticks=[])
    return axes


def short_count(count: float) -> str:
    """Return a count in at most four characters."""
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * unit:
            return (
                f"{count / unit:.1f}{sign}" if count < 9.95 * unit else f"{count / unit:.0f}{sign}"
            )
    return f"{count:.0f}"


def precision_recall(
    axes: Axes,
    curves: Mapping[str, tuple[Array, Array]],
    averages: Mapping[str, float] | None = None,
) -> Axes:
    """Draw precision against recall, a curve for every class.

    Parameters
    ----------
    axes : where to draw.
    curves : recall and precision (m,) by the name of the class, recall increasing from 0.
    averages : average precision of the classes, for the legend.
    """
    averages = averages or {}
    for place, (name, (recall, precision)) in enumerate(curves.items()):
        label = shortened(name) + (f" ({averages[name]:.2f})" if name in averages else "")
        axes.plot(
            recall, precision, color=PALETTE[place % len(PALETTE)], label=label, linewidth=1.5,
            linestyle=DASHES[place % len(DASHES)], marker=MARKERS[place % len(MARKERS)],
            markersize=4, markevery=marked(recall, place / max(len(curves), 1)),
            drawstyle="steps-pre", clip_on=False,
        )  # fmt: skip
    axes.set(
        xlabel="recall", ylabel="precision", title="precision and recall", xlim=(0, 1.0),
        ylim=(0, 1.02),
    )  # fmt: skip
    axes.grid(alpha=0.3, linewidth=0.6)
    if len(curves) <= CURVES_BELOW:
        legend_below(axes)
    else:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    legend = axes.get_legend()
    assert legend is not None  # drawn above
    legend.set_title("class (average precision)" if averages else "class")
    legend.get_title().set_fontsize("small")
    return axes


def marked(values: Array, offset: float) -> list[int]:
    """Return places of about five marks that are evenly spaced on an axis from 0 to 1."""
    wanted = (np.arange(5) + 0.1 + 0.8 * offset) / 5
    places = np.unique(np.searchsorted(values, wanted).clip(max=values.size - 1))
    return [int(place) for place in places]


def accuracy_curves(axes: Axes, curves: dict[str, Array], *, title: str = "") -> Axes:
    """Draw the mean of several runs per label, with a band of one standard error.

    Parameters
    ----------
    axes : where to draw.
    curves : label -> (runs, batches) accuracies; NaN where a batch was not evaluated.
    title : title of the axes.
    """
    for position, (label, runs) in enumerate(curves.items()):
        seen = np.flatnonzero(~np.isnan(runs).all(axis=0))
        values = runs[:, seen]
        mean = values.mean(axis=0)
        colour = PALETTE[position % len(PALETTE)]
        axes.plot(
            seen + 1, mean, color=colour, label=label, linewidth=1.6, markersize=4,
            marker=MARKERS[position % len(MARKERS)], linestyle=DASHES[position % len(DASHES)],
            markevery=max(1, len(seen) // 8),
        )  # fmt: skip
        if runs.shape[0] > 1:
            error = values.std(axis=0, ddof=1) / np.sqrt(runs.shape[0])
            axes.fill_between(
                seen + 1, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0
            )
    axes.set(xlabel="batch", ylabel="test accuracy", title=title)
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False,
        ncols=2 if max(map(len, curves)) > LONG_LABEL else 3,
        fontsize="small", columnspacing=1.2,
    )  # fmt: skip
    return axes


def learning_log(log: str | os.PathLike[str] | Sequence[Record]) -> Figure:
    """Draw the log of `seqmed learn`: prequential accuracy, changes, and weights of the experts.

    Parameters
    ----------
    log : path of a log, or its records.

    Returns
    -------
    figure : the figure; ``figure.savefig("learning.png")`` saves it. The weights are left out if
        the log has none.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    records = read_log(log) if isinstance(log, str | os.PathLike) else log
    if not records:
        raise ValueError("the log has no batches, expected at least one: learn some rows first.")
    mixed = "expert_weights" in records[-1]
    figure = Figure(figsize=(7.2, 5.2 if mixed else 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    if mixed:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
        expert_weights(bottom, records)
    else:
        top = bottom = figure.subplots()
    prequential_accuracy(top, records)
    bottom.set_xlabel("row of the stream")
    bottom.xaxis.set_major_formatter("{x:,.0f}")
    bottom.locator_params(axis="x", nbins=6)
    return figure


def read_log(path: str | os.PathLike[str]) -> list[Record]:
    """Return the records of a log of `seqmed learn`, one per batch.

    A last line without a line end is incomplete and left out.
    """
    records: list[Record] = []
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):
                break
            try:
                record = json.loads(line)
                batch, *_ = (record[name] for name in MEMBERS)
            except (ValueError, TypeError, KeyError):
                raise ValueError(
                    f"{path}, line {number} is not a record of a batch: choose a file that was "
                    "written by seqmed learn --log."
                ) from None
            if records and batch <= records[-1]["batch"]:
                raise ValueError(
                    f"{path}, line {number}: batch {batch} follows batch {records[-1]['batch']}, "
                    "expected the batches of one model: use one log for every model."
                )
            records.append(record)
    return records


def prequential_accuracy(axes: Axes, records: Sequence[Record], *, outside: bool = True) -> Axes:
    """Draw the prequential accuracy over the rows of a stream, and the changes of the concept.

    The band is the 95 % interval of the mean so far.

    Parameters
    ----------
    axes : where to draw.
    records : records of a log. The accuracy of the last `MOVING_LABELS` labels assumes that the
        errors of a batch are evenly distributed over its labels.
    outside : whether the legend is to the right of the axes.
    """
    rows = column(records, "rows_so_far")
    scored, correct = (np.cumsum(column(records, name)) for name in ("scored", "correct"))
    size = np.minimum(scored, MOVING_LABELS)
    before = np.interp(scored - size, np.append(0, scored), np.append(0, correct))
    known = size > 0
    moving = (correct - before)[known] / size[known]
    mean = column(records, "accuracy_so_far")[known]
    curves = {f"last {MOVING_LABELS} labels": moving, "mean so far": mean}
    for place, (label, values) in enumerate(curves.items()):
        axes.plot(
            rows[known], values, color=PALETTE[place], label=label, linewidth=1.6, markersize=4,
            marker=MARKERS[place], linestyle=DASHES[place], markevery=max(1, known.sum() // 8),
            clip_on=False,
        )  # fmt: skip
    pairs = zip(correct[known], scored[known], strict=True)
    band = np.array([wilson_interval(int(hits), int(total)) for hits, total in pairs])
    if band.size:
        axes.fill_between(
            rows[known], band[:, 0], band[:, 1], color=PALETTE[1], alpha=0.18, linewidth=0,
            label="its 95 % interval",
        )  # fmt: skip
    draw_changes(axes, records)
    axes.set(ylabel="prequential accuracy", xlim=(rows[0] - records[0]["rows"], rows[-1]))
    axes.grid(alpha=0.3, linewidth=0.6)
    if outside:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    else:
        legend_below(axes)
    return axes


def draw_changes(axes: Axes, records: Sequence[Record]) -> None:
    """Mark changes of the concept, from their estimated rows to the batches that show them."""
    rows, labeled = column(records, "rows_so_far"), np.cumsum(column(records, "labeled"))
    start = rows[0] - records[0]["rows"]
    found = [place for place, record in enumerate(records) if "labels_since_change" in record]
    since = np.array([records[place]["labels_since_change"] for place in found])
    changes = np.interp(labeled[found] - since, np.append(0, labeled), np.append(start, rows))
    named: list[float] = []
    for change, place in zip(changes, found, strict=True):
        line, band = (None, None) if named else ("change of the concept", "until it is detected")
        axes.axvline(change, color="black", linewidth=1.2, linestyle=":", label=line, zorder=1)
        axes.axvspan(change, rows[place], color="0.85", linewidth=0, label=band, zorder=0)
        if not named or change - named[-1] >= NAMED_CHANGES * (rows[-1] - start):
            named.append(change)
    top = axes.secondary_xaxis("top")
    top.set_xticks(named, [f"row {round(each):,}" for each in named])
    top.tick_params(labelsize="small", rotation=90 if len(named) > 5 else 0)


def expert_weights(axes: Axes, records: Sequence[Record]) -> Axes:
    """Draw the weights of the experts after every batch, stacked, over the rows of a stream.

    Parameters
    ----------
    axes : where to draw.
    records : records of a log of `SeqGraphMED`.
    """
    rows = column(records, "rows_so_far")
    names = list(records[-1]["expert_weights"])
    weights = np.array([[each["expert_weights"][name] for each in records] for name in names])
    axes.stackplot(
        np.append(rows[0] - records[0]["rows"], rows), np.column_stack([weights[:, 0], weights]),
        labels=names, colors=AREAS, step="pre", edgecolor="white", linewidth=0.6,
    )  # fmt: skip
    axes.set(ylim=(0, 1), yticks=(0, 0.5, 1), ylabel="weight of expert")
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small", reverse=True
    )
    return axes


def column(records: Sequence[Record], name: str) -> Array:
    """Return one member of all records; NaN for null."""
    return np.array([record[name] for record in records], dtype=float)
