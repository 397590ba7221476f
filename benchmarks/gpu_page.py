"""Write the tables of docs/gpu.md from results.

    python benchmarks/gpu.py --device cpu --parts accuracy --usps usps.npz --scores cpu.npz
        --out benchmarks/results/gpu_cpu.json
    python benchmarks/gpu.py --usps usps.npz --scores gpu.npz --compare cpu.npz
        --out benchmarks/results/gpu.json
    python benchmarks/gpu_page.py [--check]

With --check nothing is written: the program fails if the page differs from the results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from common import make_parser, markdown, with_tables

from seqmed.graph.device import bytes_needed

HERE = Path(__file__).parent
RESULTS, OF_CPU = HERE / "results" / "gpu.json", HERE / "results" / "gpu_cpu.json"
PAGE = HERE.parent / "docs" / "gpu.md"
# Columns and classes of the made-up rows.
COLUMNS, CLASSES = 128, 10


def seconds(value: float) -> str:
    """Return a time with three digits."""
    return f"{value:.3g} s"


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.2f} %"


def machine(results: dict[str, Any]) -> str:
    """Return the card and the versions."""
    found = results["machine"]
    return (
        f"{found.get('card', found['device'])}, torch {found['torch']}, "
        f"{found['threads']} threads on the CPU."
    )


def graph(cells: list[dict[str, Any]]) -> str:
    """Return the table of labels of all rows."""
    header = ["rows", "columns", "`fit`", "search", "solution", "bare product",
              "(search + solution) / product", "`fit` / product", "same model twice"]  # fmt: skip
    rows = [
        [
            f"{cell['rows']:,}",
            str(cell["columns"]),
            *(seconds(cell[name]) for name in ("fit", "search", "solve", "product")),
            f"{cell['(search + solve) / product']:.2f}",
            f"{cell['fit / product']:.2f}",
            "yes" if cell["same twice"] else "no",
        ]
        for cell in cells
    ]
    return markdown(header, rows)


def stream(cells: list[dict[str, Any]]) -> str:
    """Return the table of updates."""
    header = ["kept rows", "rows of a batch", "`partial_fit`", "bare product", "rows a second"]
    rows = [
        [
            f"{cell['kept']:,}",
            f"{cell['batch']:,}",
            seconds(cell["median"]),
            seconds(cell["product"]),
            f"{cell['rows a second']:,.0f}",
        ]
        for cell in cells
    ]
    return markdown(header, rows)


def predict(cells: list[dict[str, Any]]) -> str:
    """Return the table of predictions."""
    header = ["kept rows", "predicted rows", "`predict`", "bare product", "ratio"]
    rows = [
        [
            f"{cell['kept']:,}",
            f"{cell['predicted']:,}",
            seconds(float(np.median(cell["predict"]))),
            seconds(cell["product"]),
            f"{cell['predict / product']:.2f}",
        ]
        for cell in cells
    ]
    return markdown(header, rows)


def accuracy(here: Any, on_cpu: Any, compared: list[dict[str, Any]]) -> str:
    """Return the table of accuracies on the CPU and on the device."""
    if not isinstance(here, list):
        return "Not measured."
    header = ["rows", "labels", "model", "CPU", "GPU", "other decisions", "of these not close"]

    def key(cell: dict[str, Any]) -> str:
        return " ".join((cell["data"], str(cell["labels"]), cell["model"]))

    theirs = {key(cell): cell["accuracy"] for cell in on_cpu}
    decisions = {cell["scores"]: cell for cell in compared}
    rows = []
    for cell in here:
        name = key(cell)
        found = decisions.get(name, {})
        rows.append(
            [
                cell["data"],
                f"{cell['labels']:,}",
                cell["model"],
                percent(theirs[name]) if name in theirs else "",
                percent(cell["accuracy"]),
                f"{found['other decisions']} of {found['rows']:,}" if found else "",
                str(found.get("of these not close", "")),
            ]
        )
    return markdown(header, rows)


def more(cells: list[dict[str, Any]]) -> str:
    """Return the table of accuracy by the number of kept rows."""
    rows = []
    for kept in sorted({cell["kept"] for cell in cells}):
        runs = [cell for cell in cells if cell["kept"] == kept]
        found = [cell["accuracy"] for cell in runs]
        rows.append(
            [
                f"{kept:,}",
                percent(float(np.mean(found))),
                f"{percent(min(found))} to {percent(max(found))}",
                seconds(float(np.median([cell["seconds"] for cell in runs]))),
            ]
        )
    return markdown(["kept rows", "mean accuracy", "of single draws", "`fit`"], rows)


def memory(results: dict[str, Any]) -> str:
    """Return the table of the largest memory, and of the bound that errors name."""
    rows = []
    for part, name in (("graph", "`fit`"), ("stream", "`partial_fit`"), ("predict", "`predict`")):
        for cell in results[part]:
            n, p = cell.get("rows", cell.get("kept")), cell.get("columns", COLUMNS)
            bound = bytes_needed(n, p, CLASSES) + 4 * (p + 64) * cell.get("predicted", 0)
            if cell["gigabytes"] is not None:
                rows.append(
                    [name, f"{n:,}", str(p), f"{cell['gigabytes']:.1f}", f"{bound / 1e9:.1f}"]
                )
    return markdown(["call", "kept rows", "columns", "measured, GB", "bound, GB"], rows)


def main() -> None:
    """Replace the tables, or check them."""
    parser = make_parser(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    check = parser.parse_args().check
    results, on_cpu = json.loads(RESULTS.read_text()), json.loads(OF_CPU.read_text())
    tables = {
        "machine": machine(results),
        "graph": graph(results["graph"]),
        "stream": stream(results["stream"]),
        "predict": predict(results["predict"]),
        "accuracy": accuracy(results["accuracy"], on_cpu["accuracy"], results.get("compared", [])),
        "more": more(results["more"]),
        "memory": memory(results),
    }
    text = with_tables(PAGE, tables)
    if not check:
        PAGE.write_text(text)
    elif text != PAGE.read_text():
        raise SystemExit(f"{PAGE.name} differs from benchmarks/results: run {Path(__file__).name}.")


if __name__ == "__main__":
    main()
