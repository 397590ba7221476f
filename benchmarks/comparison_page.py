"""Write tables of README.md, docs/measurements.md and docs/performance.md from results.

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
UNLABELED, COSTS = HERE / "results" / "unlabeled.json", HERE / "results" / "graph_cost.json"
README, DOCS = HERE.parent / "README.md", HERE.parent / "docs"
MEASUREMENTS, PERFORMANCE = DOCS / "measurements.md", DOCS / "performance.md"
KINDS = {"update": "an update", "predict": "predicting a row"}

TASKS = {
    "usps": "USPS digits", "isolet-26": "ISOLET letters", "sms_spam": "SMS spam",
    "digits": "scikit-learn digits",
}  # fmt: skip
# Rows of the tables, with their methods. The one with the best test accuracy is shown.
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
# Label fraction for which times are shown, and the task whose times README.md shows.
TIMED, TIMED_TASK = "0.05", "usps"


def accuracies(run: dict[str, Any]) -> list[float]:
    """Return the test accuracies of a method, one for each draw of labels."""
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
    """Return mean accuracies of all tasks, the best of each cell in bold, and times of one task."""
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
    """Return a text on the cells in which the first method has the highest mean, and the others."""
    ours, *others = METHODS
    lost = []
    for task, name in TASKS.items():
        for fraction, cell in cells[task].items():
            means = {label: np.mean(accuracies(best(cell, METHODS[label]))) for label in METHODS}
            rival = max(others, key=lambda label: means[label])
            behind = means[rival] - means[ours]
            if behind > 0:
                where = f"{name} with {100 * float(fraction):g} % labels"
                points = f"{behind:.1f} points" if behind >= 0.05 else "less than 0.05 points"
                lost.append(f"{points} below {rival.split(',')[0]} on {where}")
    total = sum(len(cells[task]) for task in TASKS)
    won = f"SeqGraphMED has the highest mean accuracy in {total - len(lost)} of {total} cells"
    return "\n".join([f"{won}. It is", "", *(f"- {each}" for each in lost)]) if lost else f"{won}."


def task_table(cells: dict[str, Any]) -> str:
    """Return accuracies of one task with standard errors, and seconds."""
    rows = []
    for label, names in METHODS.items():
        runs = [accuracies(best(cell, names)) for cell in cells.values()]
        texts = [f"{np.mean(values):.1f} ± {standard_error(values):.1f}" for values in runs]
        rows.append([label, *texts, *times(cells[TIMED], names)])
    header = [f"{float(fraction):.0%} labels" for fraction in cells]
    return markdown(["", *header, "seconds", "fitted after every batch"], rows)


def experts_table(cells: list[dict[str, Any]]) -> str:
    """Return accuracies of margin, graph and mixture, and the gain of the mixture, by task."""
    rows = []
    for cell in cells:
        found = cell["methods"]
        texts = [number_and_error(each["accuracy"]) for each in found.values()]
        gain = number_and_error(found["SeqGraphMED"]["gain"], sign="+")
        rows.append([f"{cell['task']}, {cell['labels']:.0%} labels", *texts, gain])
    return markdown(["", *cells[0]["methods"], "gain over the margin"], rows)


def number_and_error(value: dict[str, float], sign: str = "") -> str:
    """Return a mean and its standard error as text."""
    return f"{value['mean']:{sign}.2f} ± {value['error']:.2f}"


def cost_table(cells: list[dict[str, Any]]) -> str:
    """Return times of SeqGraphMED and their ratios to those of others, from `graph_cost.py`."""
    names = [name for name in cells[0]["ratios"] if name != "SeqGraphMED"]
    rows = []
    for cell in cells:
        times = cell["times"]["SeqGraphMED"]
        for kind, unit in (("update", "ms"), ("predict", "µs")):
            ratios = [f"{cell['ratios'][name][kind]:.2f}" for name in names]
            label = f"{cell['task']}, {cell['labels']:.0%} labels, {KINDS[kind]}"
            rows.append([label, f"{times[kind]:.1f} {unit}", *ratios])
    return markdown(["", "SeqGraphMED", *(f"over {name}" for name in names)], rows)


def main() -> None:
    """Replace the tables, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    check = parser.parse_args().check
    cells = json.loads(RESULTS.read_text())["cells"]
    by_task = {f"comparison {task}": task_table(cells[task]) for task in TASKS}
    by_task["unlabeled"] = experts_table(json.loads(UNLABELED.read_text())["cells"])
    costs = {"graph cost": cost_table(json.loads(COSTS.read_text())["cells"])}
    overview = {"comparison": f"{readme_table(cells)}\n\n{verdict(cells)}"}
    for page, tables in ((README, overview), (MEASUREMENTS, by_task), (PERFORMANCE, costs)):
        text = with_tables(page, tables)
        if not check:
            page.write_text(text)
        elif text != page.read_text():
            raise SystemExit(
                f"{page.name} differs from benchmarks/results: run {Path(__file__).name}."
            )


if __name__ == "__main__":
    main()
