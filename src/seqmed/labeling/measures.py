"""Accuracy on random checks and on queried rows, the agreement of people, and a stopping hint.

Every answer stores the class that the model predicted when it chose the row, before the label was
known. Random checks are a uniform sample of the rows, so their accuracy is an unbiased estimate of
the accuracy of the models that predicted them. Queried rows are chosen because they are difficult:
their accuracy is usually lower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from seqmed.labeling.events import RowKey
from seqmed.labeling.ledger import Ledger
from seqmed.selection.measures import wilson_interval

# Random checks in the current accuracy: the latest ones, because older models were worse.
LATEST = 50
# Outcomes in the moving mean of the chart, at most and at least, and its largest number of points.
WINDOW, LEAST, POINTS = 30, 5, 120
# Share of changed predictions below which more labels are likely to change little.
LITTLE = 0.01


class Accuracy(NamedTuple):
    """Correct predictions among n rows, and the interval of the accuracy."""

    correct: int
    n: int
    low: float
    high: float

    @property
    def value(self) -> float | None:
        """The accuracy, None without rows."""
        return self.correct / self.n if self.n else None


class Agreement(NamedTuple):
    """The agreement of two people.

    Attributes
    ----------
    people : their names.
    n : rows that both labeled.
    agreement : share of these rows with equal labels.
    kappa : Cohen's kappa; None if it is not defined, because both used a single class.
    """

    people: tuple[str, str]
    n: int
    agreement: float
    kappa: float | None


class Outcome(NamedTuple):
    """Whether the prediction of a row was correct, and the number of the row among the answers."""

    number: int
    hit: bool


def outcomes(ledger: Ledger, keys: Iterable[RowKey]) -> list[Outcome]:
    """Return the outcomes of rows; rows without a label or a prediction are left out."""
    numbers = {key: number for number, key in enumerate(ledger.rows, 1)}
    found = []
    for key in keys:
        row = ledger.rows[key]
        if row.label is not None and row.asked is not None and row.asked.guess:
            found.append(Outcome(numbers[key], row.asked.guess == row.label))
    return found


def accuracy(found: Sequence[Outcome], latest: int = LATEST) -> Accuracy:
    """Return the accuracy of the latest outcomes.

    They may have different probabilities of being correct, as with a model that improves. The
    variance of their sum is then smaller than that of a binomial distribution of the same mean, so
    that the interval of their mean is rather too wide than too narrow.
    """
    found = found[-latest:]
    correct, n = sum(each.hit for each in found), len(found)
    return Accuracy(correct, n, *wilson_interval(correct, n))


def moving_means(found: Sequence[Outcome]) -> list[tuple[int, float]]:
    """Return numbers of answers and means of the last outcomes, at most `POINTS` for a chart."""
    step = max(1, -(-len(found) // POINTS))
    means = []
    for end in range(len(found), LEAST - 1, -step):
        last = found[max(0, end - WINDOW) : end]
        means.append((last[-1].number, sum(each.hit for each in last) / len(last)))
    return means[::-1]


def cohen_kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Return Cohen's kappa of two people's labels of the same rows, None if it is not defined."""
    n = len(pairs)
    ours, theirs = Counter(pair[0] for pair in pairs), Counter(pair[1] for pair in pairs)
    observed = sum(one == other for one, other in pairs) / n
    expected = sum(ours[label] * theirs[label] for label in ours) / n**2
    return None if expected == 1.0 else (observed - expected) / (1.0 - expected)


def agreements(ledger: Ledger) -> list[Agreement]:
    """Return the agreement of every two people with rows in common, by their first labels."""
    common: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in ledger.rows.values():
        for pair in combinations(sorted(row.first), 2):
            common.setdefault(pair, []).append((row.first[pair[0]], row.first[pair[1]]))
    return [
        Agreement(
            people, len(pairs), sum(a == b for a, b in pairs) / len(pairs), cohen_kappa(pairs)
        )
        for people, pairs in sorted(common.items())
    ]


def stopping_hint(changes: Sequence[tuple[int, float, float | None]], every: int, over: int) -> str:
    """Return a sentence on what the last labels changed.

    Parameters
    ----------
    changes : as in `seqmed.labeling.learner.LabelLearner`.
    every, over : labels from one probe to the next, and number of probes compared.
    """
    if not changes:
        return f"After {2 * every} labels you see here how much labels still change."
    _, last, since = changes[-1]
    if since is None:
        return f"The last {every} labels changed {percent(last)} of predictions."
    text = f"The last {every * over} labels changed {percent(since)} of predictions."
    if since < LITTLE:
        return f"{text} More labels will probably change little: this is a good point to stop."
    return f"{text} More labels still help."


def percent(share: float) -> str:
    """Return a share in per cent."""
    return f"{100 * share:.1f} %"
