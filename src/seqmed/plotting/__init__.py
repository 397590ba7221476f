"""Plots: functions that draw on Axes and return them, and figures of logs and measures."""

from seqmed.plotting.evaluations import (
    accuracy_curves,
    confusion,
    evaluation,
    precision_recall,
    reliability,
)
from seqmed.plotting.figures import (
    PALETTE,
    expert_weight_areas,
    learning_log,
    panels,
    picture_format,
    prequential_accuracy,
    read_log,
    require_matplotlib,
    save_figure,
)

__all__ = [
    "PALETTE",
    "accuracy_curves",
    "confusion",
    "evaluation",
    "expert_weight_areas",
    "learning_log",
    "panels",
    "picture_format",
    "precision_recall",
    "prequential_accuracy",
    "read_log",
    "reliability",
    "require_matplotlib",
    "save_figure",
]
