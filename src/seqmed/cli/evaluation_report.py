"""Measures of a model as JSON and as tables."""

from __future__ import annotations

from typing import Any

from seqmed.cli import terminal
from seqmed.cli.terminal import percent, percent_range
from seqmed.selection.decisions import DecisionRule, positive_place
from seqmed.selection.measures import CONFIDENCE, ClassMeasures, Measures, wilson_interval

# Largest number of classes for which the confusion matrix is printed, and number of confusions that
# are printed for more classes.
FEW_CLASSES, WORST_PAIRS = 10, 10
# Largest number of classes of which all are printed, and number of classes that are printed of
# more.
LISTED_CLASSES, WORST_CLASSES = 30, 10
# Largest error that four decimals do not show.
VISIBLE = 5e-5


def results(measures: Measures, classes: Any, rule: DecisionRule) -> dict[str, Any]:
    """Return all measures as plain values."""
    counts, probabilities, accuracies = measures.calibration
    positive = ranking = None
    if classes.size == 2:
        positive = classes.tolist()[positive_place(classes, rule.positive)]
        ranking = measures.ranking(positive)
    ranked = ("roc_auc", "roc_auc_error", "average_precision", "average_precision_error")
    return {
        "labeled": measures.size,
        "confidence": CONFIDENCE,
        "accuracy": measures.accuracy,
        "accuracy_interval": [*wilson_interval(measures.correct, measures.size)],
        "balanced_accuracy": measures.balanced_accuracy,
        "macro_f1": measures.macro_f1,
        "log_loss": measures.log_loss,
        "calibration_error": measures.calibration_error,
        "positive": positive,
        **{name: None if ranking is None else getattr(ranking, name) for name in ranked},
        "threshold": rule.threshold,
        "costs": [
            {"true": true, "predicted": predicted, "cost": cost}
            for (true, predicted), cost in rule.costs.items()
        ],
        "mean_cost": measures.mean_cost if rule.costs else None,
        "per_class": [class_results(each) for each in measures.by_class()],
        "classes": measures.classes,
        "confusion": measures.matrix.tolist(),
        "calibration": {
            "count": counts.astype(int).tolist(),
            "probability": probabilities.tolist(),
            "accuracy": accuracies.tolist(),
        },
    }


def class_results(each: ClassMeasures) -> dict[str, Any]:
    """Return the measures of a class as plain values."""
    found: dict[str, Any] = {"class": each.label}
    for name, total in (("precision", each.predicted), ("recall", each.support)):
        interval = [*wilson_interval(each.correct, total)] if total else None
        found |= {name: getattr(each, name), f"{name}_interval": interval}
    names = ("f1", "support", "predicted", "average_precision")
    return {**found, **{name: getattr(each, name) for name in names}}


def show_measures(measures: Measures, found: dict[str, Any]) -> None:
    """Print tables of the measures."""
    interval = percent_range(*found["accuracy_interval"])
    lines = [
        ("accuracy", percent(found["accuracy"]), interval),
        ("balanced accuracy", percent(found["balanced_accuracy"]), ""),
        ("macro F1", percent(found["macro_f1"]), ""),
        ("log loss", f"{found['log_loss']:.4f}", ""),
        ("calibration error", f"{found['calibration_error']:.4f}", ""),
    ]
    for name, title in (("roc_auc", "ROC AUC"), ("average_precision", "average precision")):
        if found[name] is not None:
            bound = found[f"{name}_error"]
            error = f"error at most {bound:.1g}" * (bound > VISIBLE)
            lines.append((f"{title} of {found['positive']}", f"{found[name]:.4f}", error))
    if found["mean_cost"] is not None:
        lines.append(("mean cost", f"{found['mean_cost']:.4f}", ""))
    terminal.show_table(("measure", "value", "95 % interval"), lines)
    terminal.show("")
    every = found["per_class"]
    if len(every) > LISTED_CLASSES:
        every = sorted(every, key=lambda each: each["f1"])[:WORST_CLASSES]
        terminal.show(f"the {WORST_CLASSES} classes with the lowest F1 (all: --json)")
    terminal.show_table(
        ("class", "precision", "recall", "F1", "support"),
        [
            (
                each["class"], *(percent(each[name]) for name in ("precision", "recall", "f1")),
                f"{each['support']:,}",
            )
            for each in every
        ],
    )  # fmt: skip
    terminal.show("")
    if len(found["classes"]) <= FEW_CLASSES:
        rows = zip(found["classes"], found["confusion"], strict=True)
        table = [(name, *(f"{count:,}" for count in row)) for name, row in rows]
        terminal.show_table(("true, predicted", *map(str, found["classes"])), table)
    else:
        pairs = [
            (*pair, f"{count:,}")
            for pair, count in measures.confusion.most_common()
            if len(set(pair)) > 1
        ]
        terminal.show_table(("true", "predicted", "rows"), pairs[:WORST_PAIRS])
