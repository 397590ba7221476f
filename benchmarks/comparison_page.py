"""Write the tables of README.md and docs/measurements.md anew, from benchmarks/results.

    python benchmarks/comparison.py --out benchmarks/results/comparison.json
    python benchmarks/comparison_page.py [--check]

With --check nothing is written: the program fails if a page differs from the results.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from common import markdown, standard_error, with_tables

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "comparison.json"
UNLABELED = HERE / "results" / "unlabeled.json"
README, MEASUREMENTS = HERE.parent / "README.md", HERE.parent / "docs" / "measurements.md"

TASKS = {
    "usps": "USPS digits", "isolet-26": "ISOLET letters", "sms_spam": "SMS spam",
    "digits": "scikit-learn digits",
}  # fmt: skip
# Rows of the tables. Of several methods the best by test accuracy is shown.
METHODS = {
    "**SeqGraphMED**": ["SeqGraphMED"],
    "SeqMED, labels only": ["SeqMED"],
    "SGDClassifier, better of two": ["SGDClassifier", "SGDClassifier, constant rate"],
    "river, best of three": [
        "river KNNClassifier", "river SoftmaxRegression", "river HoeffdingTree",
    ],
    "SVC, refitted": ["SVC"],
    "LabelSpreading, refitted": ["LabelSpreading"],
    "SelfTraining, refitted": ["SelfTraining"],
}  # fmt: skip
# Label fraction whose seconds are shown, and the task of the README's.
TIMED, TIMED_TASK = "0.05", "usps"


def accuracies(run: dict[str, Any]) -> list[float]:
    """Return the test accuracies of a method, a value for each draw."""
    return list(run["accuracies"].values())


def best(cell: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the runs of the method with the largest mean accuracy."""
    return max((cell[n] for n in names if n in cell), key=lambda run: np.mean(accuracies(run)))


def seconds(value: float) -> str:
    """Return seconds with two digits."""
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else f"{value:.0f}"


def times(cell: dict[str, Any], names: list[str]) -> tuple[str, str]:
    """Return the seconds of the stream or of the last fit, and of a fit after every batch."""
    run = best(cell, names)
    learning = seconds(float(np.median(list(run["learning_seconds"].values()))))
    return learning, seconds(run["every_batch_seconds"]) if "every_batch_seconds" in run else ""


def readme_table(cells: dict[str, Any]) -> str:
    """Return mean accuracies of all tasks, the best of a cell in bold, and seconds of one."""
    rows = []
    for label, names in METHODS.items():
        row = [label]
        for task in TASKS:
            texts = []
            for cell in cells[task].values():
                means = [np.mean(accuracies(best(cell, other))) for other in METHODS.values()]
                text = f"{np.mean(accuracies(best(cell, names))):.1f}"
                texts.append(f"**{text}**" if text == f"{max(means):.1f}" else text)
            row.append(" / ".join(texts))
        learning, every = times(cells[TIMED_TASK][TIMED], names)
        rows.append([*row, f"{learning}; {every}" if every else learning])
    return markdown(["", *TASKS.values(), "seconds, USPS"], rows)


def verdict(cells: dict[str, Any]) -> str:
    """Return in how many cells the first method has the largest mean, and where it has not."""
    ours, *others = METHODS
    lost = []
    for task, name in TASKS.items():
        for fraction, cell in cells[task].items():
            means = {label: np.mean(accuracies(best(cell, METHODS[label]))) for label in METHODS}
            rival = max(others, key=lambda label: means[label])
            behind = means[rival] - means[ours]
            if behind > 0:
                where = f"{name} with {float(fraction):.0%} labels"
                lost.append(f"{behind:.1f} points behind {rival.split(',')[0]} on {where}")
    total = sum(len(cells[task]) for task in TASKS)
    won = f"SeqGraphMED has the highest mean accuracy in {total - len(lost)} of {total} cells"
    return f"{won}. It is {'; '.join(lost)}." if lost else f"{won}."


def task_table(cells: dict[str, Any]) -> str:
    """Return accuracies of one task with standard errors, and seconds."""
    rows = []
    for label, names in METHODS.items():
        runs = [accuracies(best(cell, names)) for cell in cells.values()]
        texts = [f"{np.mean(values):.1f} ± {standard_error(values):.1f}" for values in runs]
        rows.append([label, *texts, *times(cells[TIMED], names)])
    header = [f"{float(fraction):.0%} labels" for fraction in cells]
    return markdown(["", *header, "seconds", "fitted after every batch"], rows)


def full_table(cells: list[dict[str, Any]]) -> str:
    """Return accuracies of the methods of `unlabeled.py` that get all rows at once."""
    names = ("full SVM", "full LapSVM", "label spreading")
    rows = []
    for cell in sorted(cells, key=lambda cell: (cell["task"], cell["labels"])):
        found = [cell["last"][name]["accuracy"] for name in names]
        texts = [f"{each['mean']:.1f} ± {each['error']:.1f}" for each in found]
        rows.append([f"{cell['task']}, {cell['labels']:.0%} labels", *texts])
    return markdown(["", *names], rows)


def main() -> None:
    """Replace the tables, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    check = parser.parse_args().check
    cells = json.loads(RESULTS.read_text())["cells"]
    by_task = {f"comparison {task}": task_table(cells[task]) for task in TASKS}
    by_task["unlabeled"] = full_table(json.loads(UNLABELED.read_text())["cells"])
    overview = {"comparison": f"{readme_table(cells)}\n\n{verdict(cells)}"}
    for page, tables in ((README, overview), (MEASUREMENTS, by_task)):
        text = with_tables(page, tables)
        if not check:
            page.write_text(text)
        elif text != page.read_text():
            raise SystemExit(
                f"{page.name} differs from benchmarks/results: run {Path(__file__).name}."
            )


if __name__ == "__main__":
    main()
