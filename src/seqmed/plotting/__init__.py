"""Plots: functions that draw on Axes and return them, and figures of logs and measures."""

from seqmed.plotting.evaluations import (
    accuracy_curves,
    confusion,
    evaluation,
    precision_recall,
    reliability,
)
from seqmed.plotting.figures import PALETTE, panels, picture_format, require_matplotlib, save
from seqmed.plotting.logs import expert_weights, learning_log, prequential_accuracy, read_log

__all__ = [
    "PALETTE",
    "accuracy_curves",
    "confusion",
    "evaluation",
    "expert_weights",
    "learning_log",
    "panels",
    "picture_format",
    "precision_recall",
    "prequential_accuracy",
    "read_log",
    "reliability",
    "require_matplotlib",
    "save",
]
