"""The state of all labels: a fold over the label log, and what it says of models and people.

Every answer stores the class that the model predicted when it chose the row, before the label was
known. Random checks are a uniform sample of the rows, so their accuracy is an unbiased estimate of
the accuracy of the models that predicted them. The present accuracy is that of the latest checks;
the curve of all checks tells how many labels one more point takes. Queried rows are chosen because
they are difficult: their accuracy is usually lower.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from seqmed.labeling.log import (
    CHANGE,
    LABEL,
    RANDOM,
    SETTLE,
    SKIP,
    UNDO,
    WITHDRAW,
    Event,
    LabelingError,
    RowKey,
    as_cells,
    line,
)
from seqmed.selection.measures import CONFIDENCE, wilson_interval

# The present accuracy is that of rows that were predicted when the model had at least this share of
# its labels, because older models were worse. If the error is a power of the number of labels with
# an exponent of up to 1/2, it fell by less than a fifth since then. At most LATEST rows count.
PRESENT_SHARE, LATEST = 2 / 3, 50
# The labels for one more point are told if the slope of the accuracy is at least so many standard
# errors above 0, and if the outcomes are at least so many times as likely as with an accuracy that
# has been constant since this share of the labels.
CLEAR_SLOPE, CLEAR_RISE, FLAT_SINCE = 3.0, 2.0, 1 / 4
# Standard deviations of the normal prior of the two coefficients of the learning curve. They are
# large, and only keep the coefficients finite if all early predictions are wrong and all late ones
# correct.
PRIOR = (3.0, 2.0)


@dataclass
class RowLabels:
    """The labels of one row."""

    given: dict[str, str] = field(default_factory=dict)  # current label of each person
    first: dict[str, str] = field(default_factory=dict)  # first label of each person
    skipped: set[str] = field(default_factory=set)  # people who skipped the row
    settled: str | None = None  # the label on which people settled
    asked: Event | None = None  # the first answer to its card: the reason, and the prediction
    n_before: int = 0  # rows that had a label before this answer
    id: str = ""
    version: int = 0  # number of the last event of the row

    @property
    def label(self) -> str | None:
        """The label to learn; None if there is none or people disagree."""
        if self.settled is not None:
            return self.settled
        labels = set(self.given.values())
        return labels.pop() if len(labels) == 1 else None

    @property
    def disputed(self) -> bool:
        """Whether people disagree."""
        return self.settled is None and len(set(self.given.values())) > 1

    @property
    def people(self) -> set[str]:
        """People who labeled or skipped the row."""
        return self.skipped | self.given.keys()


class Ledger:
    """The labels after some events: everything is a function of the events in their order."""

    def __init__(self, events: Iterable[Event] = ()):
        self.rows: dict[RowKey, RowLabels] = {}  # all that have had an event
        self.n_events = self.n_answers = 0  # events, and answers to cards
        # number of rows with each label, in the order of first use
        self.classes: Counter[str] = Counter()
        # rows that each person answered, and those whose answer was undone, to be shown again; the
        # last one, or the next one, is at the end
        self.answers: defaultdict[str, list[RowKey]] = defaultdict(list)
        self.returned: defaultdict[str, list[RowKey]] = defaultdict(list)
        self._digest = hashlib.sha256()
        for event in events:
            self.apply(event)

    @property
    def digest(self) -> str:
        """Digest of all events."""
        return self._digest.hexdigest()

    @property
    def n_labeled(self) -> int:
        """The number of rows with a label."""
        return self.classes.total()

    def row(self, key: RowKey) -> RowLabels:
        """Return the labels of a row."""
        return self.rows.get(key) or RowLabels()

    def check(self, event: Event) -> None:
        """Refuse an event that is not possible now."""
        kind, row, person = event.event, self.row(event.key), event.person
        if kind == LABEL and person in row.given:
            raise LabelingError(f"{person} has labeled this row before: change that label")
        if kind in (CHANGE, WITHDRAW) and person not in row.given:
            raise LabelingError(f"{person} has not labeled this row")
        if kind == SKIP and person in row.people:
            raise LabelingError(f"{person} has answered this row before")
        if kind == UNDO and person not in row.people:
            raise LabelingError(f"{person} has no answer of this row to undo")
        if kind == SETTLE and len(row.given) < 2:
            raise LabelingError("fewer than two people labeled this row: nothing is to be settled")

    def apply(self, event: Event) -> tuple[str | None, str | None]:
        """Apply an event; return the label learned for the row before and after it, or None."""
        self.check(event)
        key, person, kind = event.key, event.person, event.event
        row = self.rows.setdefault(key, RowLabels())
        answers, returned, before = self.answers[person], self.returned[person], row.label
        if person in row.people and kind not in (CHANGE, SETTLE):
            answers.remove(key)
        if kind == SETTLE:
            row.settled = event.label
        elif kind == SKIP:
            row.skipped.add(person)
        else:
            row.settled = None
            row.skipped.discard(person)
            if kind in (LABEL, CHANGE):
                row.given[person] = event.label
                row.first.setdefault(person, event.label)
            else:
                row.given.pop(person, None)
                row.first.pop(person, None)
        if kind in (LABEL, SKIP):
            answers.append(key)
            if key in returned:
                returned.remove(key)
        if kind == UNDO:
            returned.append(key)
        if event.why:  # an answer to a card
            self.n_answers += 1
            if row.asked is None:
                row.asked, row.n_before = event, self.n_labeled
        self.n_events += 1
        row.version, row.id = self.n_events, event.id or row.id
        self._digest.update("\x00".join(as_cells(event)).encode() + b"\n")
        after = row.label
        if before is not None:
            self.classes[before] -= 1
        if after is not None:
            self.classes[after] += 1
        return before, after


def current_labels(
    header: Sequence[str], ledger: Ledger, where: Mapping[RowKey, tuple[str, int]]
) -> Iterator[bytes]:
    """Yield the lines of a CSV with the current label of every row: file, row, digest, id, label.

    ``where`` has the file and the number of every row now.
    """
    yield line(header[3:8])
    for key, row in ledger.rows.items():
        if row.label is not None:
            file, number = where[key]
            yield line([file, str(number), key.digest, row.id, row.label])


@dataclass(frozen=True)
class LabelProgress:
    """The events that a model has learned."""

    n_events: int
    digest: str  # of these events
    n_labeled: int  # rows with a label after them
    state: str  # of the learner besides the model, as JSON


# -- accuracy on random checks and on queried rows, and the agreement of people --------------------


class Accuracy(NamedTuple):
    """The share of n predictions that are correct, None without any, and its interval."""

    value: float | None
    n: int
    low: float
    high: float


class Outcome(NamedTuple):
    """Whether the prediction of a row was correct, and the labels that the model had by then."""

    correct: bool
    n_labels: int


def outcomes(ledger: Ledger, *, checks: bool, n_earlier: int = 0) -> list[Outcome]:
    """Return the outcomes of random checks, or of queried rows, in the order of their cards.

    Rows without a label or a prediction are left out. The model had ``n_earlier`` labels before
    those of the log.
    """
    return [
        Outcome(row.asked.guess == row.label, n_earlier + row.n_before)
        for row in ledger.rows.values()
        if row.asked is not None and row.asked.guess and row.label is not None
        if (row.asked.why == RANDOM) is checks
    ]


def present_accuracy(found: Sequence[Outcome], n_labels: int) -> Accuracy:
    """Return the accuracy of the latest outcomes, for a model that has a number of labels.

    If the model improves meanwhile, the interval is rather too wide than too narrow: the variance
    of the sum is smaller than that of a binomial distribution of the same mean.
    """
    latest = [each.correct for each in found if each.n_labels >= PRESENT_SHARE * n_labels][-LATEST:]
    correct, n = sum(latest), len(latest)
    return Accuracy(correct / n if n else None, n, *wilson_interval(correct, n))


class LabelsForPoint(NamedTuple):
    """The number of labels that raise the accuracy by one point, and its interval."""

    value: float
    low: float
    high: float


def labels_for_point(found: Sequence[Outcome], n_labels: int) -> LabelsForPoint | None:
    """Return how many labels raise the accuracy by one point; None if no rise is clear.

    The odds of a correct prediction are assumed to be a power of the number of labels, up to the
    present one. The rise is clear if its slope is, and if the outcomes are likelier than with odds
    that are constant since ``FLAT_SINCE`` of the labels. Curves that flatten from now on take more
    labels than this.
    """
    if not found or n_labels < 1:
        return None
    rising = learning_curve(found, n_labels)
    flat = learning_curve(found, FLAT_SINCE * n_labels)
    now = float(expit(rising.coefficients[0]))
    # accuracy gained if the labels are multiplied by e, and its derivative by the coefficients
    slope, spread = now * (1.0 - now) * rising.coefficients[1], now * (1.0 - now)
    gradient = np.array([(1.0 - 2.0 * now) * slope, spread])
    error = float(np.sqrt(gradient @ np.linalg.solve(rising.information, gradient)))
    if slope < CLEAR_SLOPE * error or rising.log_density < flat.log_density + np.log(CLEAR_RISE):
        return None
    half = float(ndtri(0.5 + CONFIDENCE / 2)) * error
    with np.errstate(over="ignore"):
        needed = n_labels * np.expm1(0.01 / np.array([slope, slope + half, slope - half]))
    return LabelsForPoint(*needed.tolist()) if np.isfinite(needed).all() else None


class LearningCurve(NamedTuple):
    """The log odds of a correct prediction: a constant, and a slope times log(labels / top)."""

    coefficients: NDArray[np.float64]
    information: NDArray[np.float64]  # inverse of their covariance
    log_density: float  # of outcomes and coefficients, without the constant of the prior


def learning_curve(found: Sequence[Outcome], top: float) -> LearningCurve:
    """Fit a logistic regression on the logarithm of the number of labels, constant from top on."""
    correct, labels = np.array(found, dtype=float).T
    design = np.column_stack([np.ones(labels.size), np.log(np.clip(labels, 1.0, top) / top)])
    prior, curve = np.diag(1.0 / np.square(PRIOR)), np.zeros(2)
    for _ in range(20):  # Newton's method, from curves without a slope
        chance = expit(design @ curve)
        information = design.T @ (design * (chance * (1.0 - chance))[:, None]) + prior
        curve += np.linalg.solve(information, design.T @ (correct - chance) - prior @ curve)
    misses = np.logaddexp(0.0, (1.0 - 2.0 * correct) * (design @ curve))
    return LearningCurve(curve, information, float(-misses.sum() - curve @ prior @ curve / 2))


def labels_without_rise(found: Sequence[Outcome], n_labels: int) -> int | None:
    """Return since how many labels no rise is clear, if `labels_for_point` knows of none.

    None if there are too few outcomes since ``FLAT_SINCE`` of the labels.
    """
    recent = [each.n_labels for each in found if each.n_labels >= FLAT_SINCE * n_labels]
    return n_labels - min(recent) if len(recent) >= LATEST else None


def cohen_kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Return Cohen's kappa of two people's labels of the same rows, None if it is not defined."""
    n = len(pairs)
    ours, theirs = Counter(pair[0] for pair in pairs), Counter(pair[1] for pair in pairs)
    observed = sum(one == other for one, other in pairs) / n
    expected = sum(ours[label] * theirs[label] for label in ours) / n**2
    return None if expected == 1.0 else (observed - expected) / (1.0 - expected)


def agreements(ledger: Ledger) -> list[dict[str, Any]]:
    """Return the agreement of every two people with rows in common, by their first labels.

    Each has the names of the ``people``, the number ``n`` of rows that both labeled, the share of
    equal labels as ``agreement``, and Cohen's ``kappa``.
    """
    common = defaultdict(list)
    for row in ledger.rows.values():
        for one, other in combinations(sorted(row.first), 2):
            common[one, other].append((row.first[one], row.first[other]))
    return [
        {
            "people": people,
            "n": len(pairs),
            "agreement": sum(one == other for one, other in pairs) / len(pairs),
            "kappa": cohen_kappa(pairs),
        }
        for people, pairs in sorted(common.items())
    ]
