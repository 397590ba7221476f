"""Write the tables of docs/broad-evidence.md from results.

    python benchmarks/broad_evidence.py --half confirmation --out benchmarks/results/broad.json
    python benchmarks/broad_evidence.py --half confirmation --large \
        --out benchmarks/results/broad_large.json
    python benchmarks/rare_classes.py --out benchmarks/results/rare_classes.json
    python benchmarks/robustness.py --out benchmarks/results/robustness.json
    python benchmarks/few_labels.py --out benchmarks/results/few_labels.json
    python benchmarks/broad_page.py

A table without results says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from broad_evidence import (
    LOST,
    MANY,
    OURS,
    SMALL,
    Study,
    averaged,
    compared,
    overview,
    without_one_per_class,
)
from broad_sets import CONFIRMATION, DEVELOPMENT
from common import make_parser, markdown, with_tables
from rare_classes import REGRESSION

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results", HERE.parent / "docs" / "broad-evidence.md"
NOT_RUN = "Not measured yet."


def results(name: str) -> dict[str, Any] | None:
    """Return the results of a file, None if there is none."""
    path = RESULTS / name
    return json.loads(path.read_text()) if path.exists() else None


def confirmed(found: dict[str, Any] | None, study: Study) -> dict[str, str]:
    """Return the tables of a study: means, differences, and all sets."""
    if found is None:
        return dict.fromkeys(("means", "differences", "sets"), NOT_RUN)
    records = [each for each in found["records"] if each["set"] in CONFIRMATION]
    means = averaged(records)
    labels = set(means.index.get_level_values("labels"))
    counts = [str(each) for each in study.labels if str(each) in labels]
    header = ["", *counts, "accuracy", "log loss", "calibration error", "seconds", "predicting"]
    differences = [
        [
            "SeqGraphMED minus",
            "accuracy",
            "log loss",
            f"cells {LOST:g} point lower",
            "higher",
            "worst",
        ],
        *compared(means, OURS),
    ]
    accuracy = without_one_per_class(means)["accuracy"].groupby(["set", "method"]).mean()
    by_set = accuracy.unstack("method")
    rows = [[name, *(f"{value:.1f}" for value in row)] for name, row in by_set.iterrows()]
    return {
        "means": markdown(header, overview(means, counts)),
        "differences": markdown(differences[0], differences[1:]),
        "sets": markdown(["set", *by_set.columns], rows),
    }


def rare_table(found: dict[str, Any] | None) -> str:
    """Return log losses and calibration errors of SeqGraphMED and LogisticRegression by table."""
    if found is None:
        return NOT_RUN
    cells = {(each["table"], each["positives"], each["method"]): each for each in found["cells"]}
    rows = []
    for table, positives, method in cells:
        if method == OURS:
            pair = [cells[table, positives, name] for name in (OURS, REGRESSION)]
            values = (
                " / ".join(f"{each[measure]['mean']:.3f}" for each in pair)
                for measure in ("log_loss", "ece")
            )
            rows.append([f"{table}, {positives} of {pair[0]['labels']} labels", *values])
    means = []
    for measure in ("log_loss", "ece"):
        of_method = [
            [each[measure]["mean"] for key, each in cells.items() if key[2] == name]
            for name in (OURS, REGRESSION)
        ]
        means.append(" / ".join(f"{sum(values) / len(values):.4f}" for values in of_method))
    rows.append(["**mean**", *means])
    return markdown(["positive labels", "log loss", "calibration error"], rows)


def robustness_table(found: dict[str, Any] | None) -> str:
    """Return the accuracies on logs in time order and with columns of noise."""
    if found is None:
        return NOT_RUN
    cells = found["accuracies"]
    methods = list(next(iter(cells.values())))
    rows = [[case, *(with_error(cell[name]) for name in methods)] for case, cell in cells.items()]
    return markdown(["", *methods], rows)


def few_labels_table(found: dict[str, Any] | None) -> str:
    """Return the accuracies with one to five labels per class."""
    if found is None:
        return NOT_RUN
    rows = [
        [f"{method}, {name}", *(with_error(each) for each in by_labels.values())]
        for name, methods in found["accuracies"].items()
        for method, by_labels in methods.items()
    ]
    return markdown(["labels per class", *(str(each) for each in range(1, len(rows[0])))], rows)


def with_error(cell: dict[str, float]) -> str:
    """Return a mean with its standard error."""
    return f"{cell['mean']:.1f} ± {cell['error']:.1f}"


def main() -> None:
    """Write the page."""
    make_parser(__doc__).parse_args()
    small, large = (
        confirmed(results("broad.json"), SMALL),
        confirmed(results("broad_large.json"), MANY),
    )
    tables = {
        "means": small["means"],
        "differences": small["differences"],
        "sets": small["sets"],
        "large means": large["means"],
        "large sets": large["sets"],
        "development": ", ".join(DEVELOPMENT) + ".",
        "confirmation": ", ".join(CONFIRMATION) + ".",
    }
    tables["rare classes"] = rare_table(results("rare_classes.json"))
    tables["robustness"] = robustness_table(results("robustness.json"))
    tables["few labels"] = few_labels_table(results("few_labels.json"))
    PAGE.write_text(with_tables(PAGE, tables))


if __name__ == "__main__":
    main()
