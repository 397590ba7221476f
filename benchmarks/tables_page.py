"""Write the tables on raw tables of docs/measurements.md from results.

    python benchmarks/tables.py --out benchmarks/results/tables.json
    python benchmarks/tables_page.py [--check]

With --check nothing is written: the program fails if the page differs from the results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common import make_parser, markdown, with_tables

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "tables.json"
PAGE = HERE.parent / "docs" / "measurements.md"
METHODS = ("raw table", "arrays", "LinearSVC", "SVC", "HistGradientBoosting")
MEASURES = ("accuracy", "precision", "recall")


def spread(cell: dict[str, float]) -> str:
    """Return a mean and its standard error."""
    return f"{cell['mean']:.1f} ± {cell['error']:.1f}"


def difference(cell: dict[str, float]) -> str:
    """Return a mean difference and its standard error."""
    return f"{cell['mean']:+.1f} ± {cell['error']:.1f}"


def accuracies(tables: dict[str, Any]) -> str:
    """Return prequential / held-out accuracies of every method, and the gain over arrays."""
    rows = [
        [
            f"{name}, {found['rows']} rows",
            *(f"{spread(found[method]['prequential'])} / {spread(found[method]['held out'])}"
              for method in METHODS[:2]),
            f"{difference(found['gain']['prequential'])} / {difference(found['gain']['held out'])}",
            *(f"{found[method]['prequential']['mean']:.1f} / "
              f"{found[method]['held out']['mean']:.1f}" for method in METHODS[2:]),
            str(found["id changed"]),
        ]
        for name, found in tables.items()
    ]  # fmt: skip
    header = ["", *METHODS[:2], "raw - arrays", *METHODS[2:], "changed by an id"]
    return markdown(header, rows)


def spam(found: dict[str, Any]) -> str:
    """Return the measures of spam on held-out messages."""
    rows = [
        [method, *(spread(cell[measure]) for measure in MEASURES)] for method, cell in found.items()
    ]
    return markdown(["", *MEASURES], rows)


def main() -> None:
    """Replace the tables, or check them."""
    parser = make_parser(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    check = parser.parse_args().check
    results = json.loads(RESULTS.read_text())
    tables = {"raw tables": accuracies(results["tables"]), "raw text": spam(results["sms_spam"])}
    text = with_tables(PAGE, tables)
    if not check:
        PAGE.write_text(text)
    elif text != PAGE.read_text():
        raise SystemExit(f"{PAGE.name} differs from benchmarks/results: run {Path(__file__).name}.")


if __name__ == "__main__":
    main()
