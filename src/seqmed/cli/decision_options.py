"""The rule of decision that --threshold, --positive and --cost describe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from seqmed.cli.errors import CommandError
from seqmed.decisions import DecisionRule, named_class, parse_costs, positive_place
from seqmed.tables.texts import cell_text


def decision_rule(
    classes: Any,
    threshold: float | None,
    positive: str | None,
    costs: Sequence[str] | None,
    *,
    positive_alone: bool = False,
) -> DecisionRule:
    """Return the rule of decision; refuse one that the classes of the model do not allow.

    Parameters
    ----------
    classes : (n_classes,) the classes of the model.
    threshold, positive, costs : values of the options.
    positive_alone : whether --positive has a use without --threshold.
    """
    names = {str(cell_text(label)): label for label in classes.tolist()}
    if threshold is not None and costs:
        raise CommandError("--threshold and --cost are given, expected one of them: leave one out.")
    if threshold is not None and math.isnan(threshold):
        raise CommandError("--threshold got nan, expected a probability from 0 to 1.")
    if positive is not None and threshold is None and not positive_alone:
        raise CommandError("--positive is used only with --threshold: add it, or leave both out.")
    chosen = None
    if threshold is not None or positive is not None:
        option = "--positive" if threshold is None else "--threshold"
        try:
            positive_place(classes)
            chosen = None if positive is None else named_class(positive, names)
        except ValueError as error:
            raise CommandError(f"{option}: {error}") from error
    try:
        parsed = parse_costs(costs or (), names)
        return DecisionRule(threshold, chosen, parsed)
    except ValueError as error:
        raise CommandError(f"--cost: {error}") from error
