"""Write the tables of docs/performance.md from the results of `speed.py`.

A table is between ``<!-- NAME -->`` and ``<!-- end -->``. NAME is a section of `speed.py`. The
section "solver" has two tables: "solver" for the duals and "kernel" for the fit. The table "speed
versions" is that of `speed_versions.py`.

    python benchmarks/speed.py --out results/speed.json
    python benchmarks/speed_versions.py OLD --out results/speed_versions.json
    python benchmarks/performance_page.py
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from common import make_parser, markdown, with_tables

HERE = Path(__file__).parent
RESULTS, PAGE = HERE.parent / "results" / "speed.json", HERE.parent / "docs" / "performance.md"
VERSIONS = HERE.parent / "results" / "speed_versions.json"
# Ratio above which a row of `speed_versions.py` is named.
SLOWER = 1.1
DUAL = re.compile(r"n (\d+), C (\d+), tol (\S+), shape (\d)")


def seconds(value: float) -> str:
    """Return a time with three digits."""
    return f"{1e3 * value:.3g} ms" if value < 1 else f"{value:.3g} s"


def ratio(value: float | None) -> str:
    """Return a ratio, a small one as a fraction."""
    if value is None:
        return ""
    return f"1/{1 / value:.0f}" if value < 0.095 else f"{value:.2f}"


def verdict(row: dict[str, Any]) -> str:
    """Return the target that a ratio reaches."""
    if row["must"] is None:
        return ""
    reached = "must" if row["ratio"] <= row["must"] else "**missed**"
    return "aim" if row["ratio"] <= row["aim"] else reached


def comparison(rows: list[dict[str, Any]]) -> str:
    """Return a table of times and ratios, with targets if there are any."""
    targets = any(row["must"] is not None for row in rows)
    header = ["what", "ours", "theirs", "ratio", *(["must", "aim", "reached"] if targets else [])]
    return markdown(
        [*header, "remarks"],
        [
            [
                row["what"], seconds(row["ours"]), seconds(row["theirs"]), ratio(row["ratio"]),
                *([ratio(row["must"]), ratio(row["aim"]), verdict(row)] if targets else []),
                row["note"],
            ]
            for row in rows
        ],
    )  # fmt: skip


def duals(rows: list[dict[str, Any]]) -> str:
    """Return the ratios of the solver by n and C, and the time of LIBSVM."""
    table: dict[tuple[str, str], dict[tuple[str, str], dict[str, Any]]] = {}
    for row in rows:
        found = DUAL.fullmatch(row["what"])
        if found:
            n, C, tol, shape = found.groups()
            table.setdefault((n, C), {})[tol, shape] = row
    kinds = [(tol, shape) for tol in ("0.001", "1e-06") for shape in "01"]
    lines = [
        [
            n,
            C,
            *(f"{cells[kind]['ratio']:.2f}" for kind in kinds),
            seconds(cells["0.001", "0"]["theirs"]),
        ]
        for (n, C), cells in table.items()
    ]
    ratios = [cell["ratio"] for cells in table.values() for cell in cells.values()]
    header = ["n", "C", "tol 1e-3, shape 0", "tol 1e-3, shape 1", "tol 1e-6, shape 0",
              "tol 1e-6, shape 1", "SVC, tol 1e-3"]  # fmt: skip
    low = sum(value <= 0.35 for value in ratios)
    summary = (
        f"The largest ratio is {max(ratios):.2f}. {low} of {len(ratios)} ratios are at most 0.35."
    )
    return f"{markdown(header, lines)}\n\n{summary}"


def versions(sections: dict[str, list[dict[str, Any]]]) -> str:
    """Return the ratios of two versions by section, and the rows that became slower."""
    lines = [
        [
            name,
            str(len(rows)),
            *(
                f"{measure([row['ratio'] for row in rows]):.2f}"
                for measure in (min, statistics.median, max)
            ),
            ", ".join(
                f"{row['what']}: {row['ratio']:.2f}" for row in rows if row["ratio"] > SLOWER
            ),
        ]
        for name, rows in sections.items()
    ]
    header = ["section", "rows", "smallest", "median", "largest", f"above {SLOWER:.2f}"]
    return markdown(header, lines)


def main():
    """Replace every table of the page."""
    make_parser(__doc__).parse_args()
    sections = json.loads(RESULTS.read_text())["sections"]
    tables = {name: comparison(rows) for name, rows in sections.items()}
    tables["solver"] = duals(sections["solver"])
    tables["kernel"] = comparison(
        [row for row in sections["solver"] if not DUAL.fullmatch(row["what"])]
    )
    tables["speed versions"] = versions(json.loads(VERSIONS.read_text())["sections"])
    PAGE.write_text(with_tables(PAGE, tables))


if __name__ == "__main__":
    main()
