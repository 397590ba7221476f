"""Decisions by probabilities, for errors of unequal cost.

The most probable class is the best prediction if all errors cost the same. Otherwise the best
prediction is the class j with the smallest expected cost, sum_i p_i cost(i, j), where i is the true
class and p_i its probability. With two classes this is a threshold on one probability: if a missed
positive costs a and a false alarm costs b, the positive class is predicted where its probability is
at least b / (a + b).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.numeric.arrays import Array
from seqmed.numeric.words import in_words

# Classes that are listed in an error.
LISTED = 10


@dataclass(frozen=True)
class DecisionRule:
    """How a class is chosen by the probabilities of all classes.

    By default, the most probable class is chosen.

    Parameters
    ----------
    threshold : with two classes, ``positive`` is chosen where its probability is at least this; in
        [0, 1]. None to use the costs.
    positive : the class of the threshold; None for the second class.
    costs : cost of an error by true and predicted class. All other errors cost 1, and correct
        predictions 0. The class with the smallest expected cost is chosen.

    Examples
    --------
    >>> import numpy as np
    >>> classes = np.array(["ham", "spam"])
    >>> probabilities = np.array([[0.7, 0.3], [0.95, 0.05]])
    >>> classes[DecisionRule(threshold=0.2).decide(classes, probabilities)]
    array(['spam', 'ham'], dtype='<U4')
    >>> rule = DecisionRule(costs={("ham", "spam"): 10.0})  # a lost message is worse
    >>> classes[rule.decide(classes, np.array([[0.2, 0.8], [0.05, 0.95]]))]
    array(['ham', 'spam'], dtype='<U4')
    """

    threshold: float | None = None
    positive: Any = None
    costs: Mapping[tuple[Any, Any], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0.0 <= self.threshold <= 1.0:
            raise ValueError(
                f"threshold={self.threshold}, expected a probability: choose a number from 0 to 1."
            )
        if self.threshold is not None and self.costs:
            raise ValueError(
                "a threshold and costs are given, expected one of them: leave one out. For two "
                "classes, costs are a threshold."
            )
        for (true, predicted), cost in self.costs.items():
            if true == predicted:
                raise ValueError(
                    f"a cost is given for class {true!r} predicted as itself, expected two "
                    "different classes: a correct prediction costs 0."
                )
            if not (math.isfinite(cost) and cost >= 0.0):
                raise ValueError(
                    f"the cost of class {true!r} predicted as {predicted!r} is {cost}, expected a "
                    "finite number of at least 0."
                )

    def decide(self, classes: NDArray[Any], probabilities: Array) -> NDArray[np.intp]:
        """Return the indices (n,) of the chosen classes by the probabilities (n, K) of classes."""
        if self.threshold is not None:
            place = positive_place(classes, self.positive)
            return np.where(probabilities[:, place] >= self.threshold, place, 1 - place)
        if not self.costs:
            return np.asarray(probabilities.argmax(axis=1))
        places = {label: place for place, label in enumerate(classes.tolist())}
        costs = 1.0 - np.eye(len(places))  # of true (rows) and predicted (columns) classes
        for (true, predicted), cost in self.costs.items():
            if true in places and predicted in places:
                costs[places[true], places[predicted]] = cost
        return np.asarray((probabilities @ costs).argmin(axis=1))

    def costs_of(self, truth: Sequence[Any], predicted: Sequence[Any]) -> Array:
        """Return the costs (n,) of predictions, given the true classes."""
        pairs = zip(truth, predicted, strict=True)
        return np.array([self.costs.get(pair, float(pair[0] != pair[1])) for pair in pairs])


def positive_place(classes: NDArray[Any], positive: Any = None) -> int:
    """Return the index of the positive class among two classes, the second one by default."""
    names = classes.tolist()
    if len(names) != 2:
        raise ValueError(
            f"the model has {len(names)} {'class' if len(names) == 1 else 'classes'}, expected two "
            f"for a threshold or a positive class: use {in_words('--cost', 'costs')} instead."
        )
    if positive is not None and positive not in names:
        raise ValueError(
            f"positive={positive!r}, expected one of the classes {names}: choose one of them."
        )
    return 1 if positive is None else names.index(positive)


def parse_costs(texts: Sequence[str], names: Mapping[str, Any]) -> dict[tuple[Any, Any], float]:
    """Return costs by true and predicted class from texts TRUE:PREDICTED=NUMBER.

    The classes have names, which may contain colons. Of two costs of the same classes, the last one
    counts.
    """
    costs: dict[tuple[Any, Any], float] = {}
    for text in texts:
        pair, _, number = text.rpartition("=")
        try:
            ((true, predicted),) = (two for two in product(names, names) if ":".join(two) == pair)
            costs[names[true], names[predicted]] = float(number)
        except ValueError as error:
            listed = ", ".join(map(repr, list(names)[:LISTED])) + ", ..." * (len(names) > LISTED)
            raise ValueError(
                f"a cost got {text!r}, expected TRUE:PREDICTED=NUMBER with two of the classes "
                f"{listed}, for example spam:ham=5: correct it. If colons in names leave two ways "
                "to read it, use seqmed.selection.decisions.DecisionRule in Python."
            ) from error
    return costs
