"""Figures: their colours, curves and legends, and the files they are saved to."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqmed.model_file.files import write_output

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


def save(figure: Figure, path: Path) -> None:
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
