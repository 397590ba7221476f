"""Figures: their colours, curves, legends, files, and the figure of a log of `seqmed learn`."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmed.model_file.files import write_output
from seqmed.numeric.arrays import Array
from seqmed.selection.measures import wilson_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, which is safe for colour-blind readers.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
# Cycles of different lengths, so that two curves of one colour differ in marker and dash.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1)))
# Width and height of a panel in inches.
PANEL = (4.6, 4.2)
FORMATS = ("png", "svg", "pdf")
# Metadata that leave the time of saving out of a file.
UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
# Areas have colours that no curve above them has; yellow is also of Okabe and Ito.
AREAS = (PALETTE[6], PALETTE[5], PALETTE[2], PALETTE[3], "#F0E442", "#999999")
# Prefix of the experts of a new start, and hatches of their areas.
NEW, HATCHES = "new ", "////"
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


def new_figure(width: float, height: float) -> Figure:
    """Return a figure for saving, of this size in inches."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panels(number: int, size: tuple[float, float] = PANEL) -> tuple[Figure, list[Axes]]:
    """Return a figure for saving, and its panels side by side."""
    figure = new_figure(number * size[0], size[1])
    return figure, [figure.add_subplot(1, number, place + 1) for place in range(number)]


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file name; the same figure gives the same file."""
    import matplotlib

    kind, content = picture_format(path), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "seqmed"}):
        figure.savefig(content, format=kind, dpi=200, metadata=UNDATED.get(kind))
    write_output(path, [content.getvalue()])


def picture_format(path: Path) -> str:
    """Return the format of a picture by the suffix of its name; png without a suffix."""
    kind = path.suffix[1:].lower() or FORMATS[0]
    if kind not in FORMATS:
        raise ValueError(f"{path} ends in {path.suffix!r}, expected .png, .svg or .pdf: rename it.")
    return kind


def curve_style(place: int) -> dict[str, Any]:
    """Return the colour, marker and dash of a curve by its place among the curves."""
    return {
        "color": PALETTE[place % len(PALETTE)],
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 4,
        "linestyle": DASHES[place % len(DASHES)],
    }


def legend_below(axes: Axes) -> None:
    """Draw the legend in one line below the axes, where it covers no curve."""
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False, fontsize="small", ncols=3,
        columnspacing=1.2, handlelength=2.4,
    )  # fmt: skip


def legend_right(axes: Axes, **options: Any) -> None:
    """Draw the legend to the right of the axes."""
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    axes.legend(**place, frameon=False, fontsize="small", **options)


# -- the log of `seqmed learn` ---------------------------------------------------------------------


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
    records = read_log(log) if isinstance(log, str | os.PathLike) else log
    if not records:
        raise ValueError("the log has no batches, expected at least one: learn some rows first.")
    mixed = "expert_weights" in records[-1]
    figure = new_figure(7.2, 5.2 if mixed else 3.6)
    if mixed:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
        expert_weight_areas(bottom, records)
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


def prequential_accuracy(axes: Axes, records: Sequence[Record]) -> Axes:
    """Draw the prequential accuracy over the rows of a stream, and the changes of the concept.

    The band is the 95 % interval of the mean so far. The accuracy of the last `MOVING_LABELS`
    labels assumes that the errors of a batch are evenly distributed over its labels.
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
            rows[known], values, **curve_style(place), label=label, linewidth=1.6,
            markevery=max(1, known.sum() // 8), clip_on=False,
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
    legend_right(axes)
    return axes


def draw_changes(axes: Axes, records: Sequence[Record]) -> None:
    """Mark changes of the concept, from their estimated rows to the batches that show them.

    Changes whose new start was revoked are grey.
    """
    rows, labeled = column(records, "rows_so_far"), np.cumsum(column(records, "labeled"))
    start = rows[0] - records[0]["rows"]
    found = [place for place, record in enumerate(records) if "labels_since_change" in record]
    since = np.array([records[place]["labels_since_change"] for place in found])
    changes = np.interp(labeled[found] - since, np.append(0, labeled), np.append(start, rows))
    named: list[float] = []
    labels: set[str] = set()  # each is once in the legend
    ends = [*found, len(records)][1:]
    for change, place, end in zip(changes, found, ends, strict=True):
        revoked = any(each.get("new_start") == "revoked" for each in records[place:end])
        colour, line = ("0.6", "change, revoked") if revoked else ("black", "change of the concept")
        band = "until it is detected"
        axes.axvline(
            change, color=colour, linewidth=1.2, linestyle=":", zorder=1,
            label=None if line in labels else line,
        )  # fmt: skip
        axes.axvspan(
            change, rows[place], color="0.85", linewidth=0, zorder=0,
            label=None if band in labels else band,
        )  # fmt: skip
        labels |= {line, band}
        if not named or change - named[-1] >= NAMED_CHANGES * (rows[-1] - start):
            named.append(change)
    top = axes.secondary_xaxis("top")
    top.set_xticks(named, [f"row {round(each):,}" for each in named])
    top.tick_params(labelsize="small", rotation=90 if len(named) > 5 else 0)


def expert_weight_areas(axes: Axes, records: Sequence[Record]) -> Axes:
    """Draw the weights of the experts after every batch, stacked, over the rows of a stream.

    The experts of a new start on trial are hatched, in the colours of the others. Experts that
    never have a weight are left out.
    """
    rows = column(records, "rows_so_far")
    logged = [each["expert_weights"] for each in records]
    members = dict.fromkeys(name for each in logged for name in each)
    found = [name for name in members if any(each.get(name, 0.0) > 0 for each in logged)]
    names = sorted(found, key=lambda name: name.startswith(NEW))  # those of a new start on top
    experts = list(dict.fromkeys(name.removeprefix(NEW) for name in names))
    weights = np.array([[each.get(name, 0.0) for each in logged] for name in names])
    areas = axes.stackplot(
        np.append(rows[0] - records[0]["rows"], rows), np.column_stack([weights[:, 0], weights]),
        colors=[AREAS[experts.index(name.removeprefix(NEW)) % len(AREAS)] for name in names],
        labels=["" if name.startswith(NEW) else name.replace("_", " ") for name in names],
        step="pre", edgecolor="white", linewidth=0.6,
    )  # fmt: skip
    on_trial = [area for area, name in zip(areas, names, strict=True) if name.startswith(NEW)]
    for area in on_trial:
        area.set_hatch(HATCHES)
    if on_trial:
        axes.fill_between(
            [], [], facecolor="0.8", hatch=HATCHES, edgecolor="white", label="new start on trial"
        )
    axes.set(ylim=(0, 1), yticks=(0, 0.5, 1), ylabel="weight of expert")
    legend_right(axes, reverse=True)
    return axes


def column(records: Sequence[Record], name: str) -> Array:
    """Return one member of all records; NaN for null."""
    return np.array([record[name] for record in records], dtype=float)
