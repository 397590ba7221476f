"""Write tables of README.md, docs/measurements.md and docs/performance.md from results.

    python benchmarks/comparison.py --out benchmarks/results/comparison.json
    python benchmarks/comparison_page.py [--check]

With --check nothing is written: the program fails if a page differs from the results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from common import make_parser, markdown, standard_error, with_tables

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "comparison.json"
UNLABELED, COSTS = HERE / "results" / "unlabeled.json", HERE / "results" / "graph_cost.json"
README, DOCS = HERE.parent / "README.md", HERE.parent / "docs"
MEASUREMENTS, PERFORMANCE = DOCS / "measurements.md", DOCS / "performance.md"
KINDS = {"update": "an update", "predict": "predicting a row"}

TASKS = {
    "usps": "USPS digits", "isolet-26": "ISOLET letters", "sms_spam": "SMS spam",
    "digits": "scikit-learn digits", "adult": "Adult", "bank": "bank marketing",
    "telco": "Telco churn",
}  # fmt: skip
# Tasks that have a place of their own in docs/measurements.md; the others follow one another.
OWN_PLACE = ("usps", "isolet-26", "sms_spam", "digits")
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
    "LogisticRegression, refitted": ["LogisticRegression"],
    "ExtraTrees, refitted": ["ExtraTrees"],
    "RandomForest, refitted": ["RandomForest"],
}  # fmt: skip
# Label fraction for which times are shown, and the task whose times README.md shows.
TIMED, TIMED_TASK = "0.05", "usps"


def accuracies(run: dict[str, Any]) -> list[float]:
    """Return the test accuracies of a method, one for each draw of labels."""
    return list(run["accuracies"].values())


def best(cell: dict[str, Any], names: list[str]) -> dict[str, Any] | None:
    """Return the runs of the method with the largest mean accuracy; None if there are no runs."""
    runs = [cell[name] for name in names if name in cell]
    return max(runs, key=lambda run: np.mean(accuracies(run)), default=None)


def means(cell: dict[str, Any]) -> dict[str, float]:
    """Return the mean accuracy of every row of the tables that has runs."""
    runs = {label: best(cell, names) for label, names in METHODS.items()}
    return {label: float(np.mean(accuracies(run))) for label, run in runs.items() if run}


def tasks_of(cells: dict[str, Any]) -> dict[str, str]:
    """Return the tasks that have results, by name."""
    return {task: title for task, title in TASKS.items() if task in cells}


def rows_of(by_fraction: dict[str, Any]) -> list[str]:
    """Return the rows of the tables that have results in some cell."""
    return [label for label in METHODS if any(label in means(c) for c in by_fraction.values())]


def seconds(value: float) -> str:
    """Return seconds with two digits."""
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else f"{value:.0f}"


def times(cell: dict[str, Any], names: list[str]) -> tuple[str, str]:
    """Return the seconds of the stream or of the last fit, and of a fit after every batch."""
    run = best(cell, names)
    if run is None:
        return "", ""
    learning = seconds(float(np.median(list(run["learning_seconds"].values()))))
    return learning, seconds(run["every_batch_seconds"]) if "every_batch_seconds" in run else ""


def readme_table(cells: dict[str, Any]) -> str:
    """Return mean accuracies of all tasks, the best of each cell in bold, and times of one task."""
    tasks = tasks_of(cells)
    shown = {label for task in tasks for label in rows_of(cells[task])}
    rows = []
    for label in (each for each in METHODS if each in shown):
        row = [label, *(accuracy_texts(cells[task], label) for task in tasks)]
        learning, every = times(cells[TIMED_TASK][TIMED], METHODS[label])
        rows.append([*row, f"{learning}; {every}" if every else learning])
    return markdown(["", *tasks.values(), "seconds, USPS"], rows)


def accuracy_texts(by_fraction: dict[str, Any], label: str) -> str:
    """Return the mean accuracies of a row and a task, bold where they are the best."""
    texts = []
    for found in map(means, by_fraction.values()):
        text = f"{found[label]:.1f}" if label in found else "-"
        texts.append(f"**{text}**" if text == f"{max(found.values()):.1f}" else text)
    return " / ".join(texts) if set(texts) != {"-"} else ""


def verdict(cells: dict[str, Any]) -> str:
    """Return a text on the cells in which the first method has the highest mean, and the others."""
    ours, *others = METHODS
    lost = []
    for task, name in tasks_of(cells).items():
        for fraction, cell in cells[task].items():
            found = means(cell)
            rival = max((label for label in others if label in found), key=found.__getitem__)
            behind = found[rival] - found[ours]
            if behind > 0:
                where = f"{name} with {100 * float(fraction):g} % labels"
                points = f"{behind:.1f} points" if behind >= 0.05 else "less than 0.05 points"
                lost.append(f"{points} below {rival.split(',')[0]} on {where}")
    total = sum(len(cells[task]) for task in tasks_of(cells))
    won = f"SeqGraphMED has the highest mean accuracy in {total - len(lost)} of {total} cells"
    return "\n".join([f"{won}. It is", "", *(f"- {each}" for each in lost)]) if lost else f"{won}."


def task_table(cells: dict[str, Any]) -> str:
    """Return accuracies of one task with standard errors, and seconds."""
    rows = []
    for label in rows_of(cells):
        runs = [best(cell, METHODS[label]) for cell in cells.values()]
        values = [accuracies(run) if run else [] for run in runs]
        texts = [f"{np.mean(v):.1f} ± {standard_error(v):.1f}" if v else "" for v in values]
        rows.append([label, *texts, *times(cells[TIMED], METHODS[label])])
    header = [f"{float(fraction):.0%} labels" for fraction in cells]
    return markdown(["", *header, "seconds", "fitted after every batch"], rows)


def mixed_tables(cells: dict[str, Any]) -> str:
    """Return the tables of the tasks without a place of their own, each below its name."""
    tasks = {task: title for task, title in tasks_of(cells).items() if task not in OWN_PLACE}
    return "\n\n".join(f"{tasks[task]}:\n\n{task_table(cells[task])}" for task in tasks)


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
    parser = make_parser(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    check = parser.parse_args().check
    cells = json.loads(RESULTS.read_text())["cells"]
    by_task = {f"comparison {task}": task_table(cells[task]) for task in OWN_PLACE}
    by_task["comparison of mixed tables"] = mixed_tables(cells)
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
