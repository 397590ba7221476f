"""Options of commands that decide for a class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqmed.cli.errors import CommandError
from seqmed.cli.options import option

if TYPE_CHECKING:
    from seqmed.selection.decisions import DecisionRule


@dataclass(frozen=True)
class DecisionOptions:
    """The rule of decision that --threshold, --positive and --cost describe."""

    threshold: float | None = option(
        min=0.0,
        max=1.0,
        metavar="P",
        help="With two classes, predict the positive class where its probability is at least P.",
    )
    positive: str | None = option(
        metavar="CLASS", help="The positive of two classes (default: the second)."
    )
    cost: list[str] | None = option(
        metavar="TRUE:PREDICTED=NUMBER",
        help="Cost of predicting PREDICTED for a row of class TRUE; may be repeated. Other "
        "errors cost 1. The prediction has the smallest expected cost.",
    )

    def rule(self, classes: Any, *, positive_alone: bool = False) -> DecisionRule:
        """Return the rule of decision; refuse one that the classes of the model do not allow.

        Parameters
        ----------
        classes : (n_classes,) the classes of the model.
        positive_alone : whether --positive has a use without --threshold.
        """
        from seqmed.selection.decisions import (
            DecisionRule,
            named_class,
            parse_costs,
            positive_place,
        )
        from seqmed.tables.cells import cell_text

        threshold, positive, costs = self.threshold, self.positive, self.cost
        names = {str(cell_text(label)): label for label in classes.tolist()}
        if threshold is not None and costs:
            raise CommandError(
                "--threshold and --cost are given, expected one of them: leave one out."
            )
        if threshold is not None and math.isnan(threshold):
            raise CommandError("--threshold got nan, expected a probability from 0 to 1.")
        if positive is not None and threshold is None and not positive_alone:
            raise CommandError(
                "--positive is used only with --threshold: add it, or leave both out."
            )
        chosen = None
        if threshold is not None or positive is not None:
            option = "--positive" if threshold is None else "--threshold"
            try:
                positive_place(classes)
                chosen = None if positive is None else named_class(positive, names)
            except ValueError as error:
                raise CommandError(f"{option}: {error}") from error
        try:
            return DecisionRule(threshold, chosen, parse_costs(costs or (), names))
        except ValueError as error:
            raise CommandError(f"--cost: {error}") from error
