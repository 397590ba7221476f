"""The state of all labels: a fold over the label log, and what it says of models and people.

Every answer stores the class that the model predicted when it chose the row, before the label was
known. Random checks are a uniform sample of the rows, so their accuracy is an unbiased estimate of
the accuracy of the models that predicted them. Queried rows are chosen because they are difficult:
their accuracy is usually lower.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

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
from seqmed.selection.measures import wilson_interval

# Random checks in the current accuracy: the latest ones, because older models were worse.
LATEST = 50


@dataclass
class RowLabels:
    """The labels of one row.

    ``given`` and ``first`` are the current and the first label of each person. People may settle on
    a label. ``asked`` is the first answer to the card of the row: why it was asked, and the
    prediction. ``version`` is the number of its last event, 0 without one.
    """

    given: dict[str, str] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    settled: str | None = None
    asked: Event | None = None
    id: str = ""
    version: int = 0

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
    """The labels after some events. Everything is a function of the events in their order.

    ``classes`` are numbers of rows with each label, in the order of first use. ``answers`` are the
    rows that each person answered, the last one at the end, for `undo`; the people are in the order
    of their first event. ``returned`` are rows whose answer a person has undone, to be shown again,
    the next one at the end.
    """

    def __init__(self, events: Iterable[Event] = ()):
        self.rows: dict[RowKey, RowLabels] = {}
        self.n_events = self.n_answers = 0
        self.classes: Counter[str] = Counter()
        self.answers: dict[str, list[RowKey]] = {}
        self.returned: dict[str, list[RowKey]] = {}
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
            raise LabelingError(
                "fewer than two people labeled this row: there is nothing to settle"
            )

    def apply(self, event: Event) -> tuple[str | None, str | None]:
        """Apply an event; return the label learned for the row before and after it, or None."""
        self.check(event)
        key, person = event.key, event.person
        row = self.rows.setdefault(key, RowLabels())
        before = row.label
        if event.event == SKIP:
            row.skipped.add(person)
        elif event.event == SETTLE:
            row.settled = event.label
        else:
            row.settled = None
            row.skipped.discard(person)
            if event.event in (LABEL, CHANGE):
                row.given[person] = event.label
                row.first.setdefault(person, event.label)
            else:
                row.given.pop(person, None)
                row.first.pop(person, None)
        self._follow_cards(event, row)
        self.n_events += 1
        row.version, row.id = self.n_events, event.id or row.id
        self._digest.update("\x00".join(as_cells(event)).encode() + b"\n")
        after = row.label
        if before is not None:
            self.classes[before] -= 1
        if after is not None:
            self.classes[after] += 1
        return before, after

    def _follow_cards(self, event: Event, row: RowLabels) -> None:
        """Keep the answers of a person in order, and note why the row was asked."""
        key, answers = event.key, self.answers.setdefault(event.person, [])
        returned = self.returned.setdefault(event.person, [])
        if event.event in (LABEL, SKIP):
            answers.append(key)
            if key in returned:
                returned.remove(key)
            if event.why:  # an answer to a card
                self.n_answers += 1
                row.asked = row.asked or event
        elif event.event in (UNDO, WITHDRAW) and key in answers:
            answers.remove(key)
            if event.event == UNDO:
                returned.append(key)


def current_labels(
    header: Sequence[str], ledger: Ledger, where: Callable[[RowKey], tuple[str, int]]
) -> Iterator[bytes]:
    """Yield the lines of a CSV with the current label of every row: file, row, digest, id, label.

    ``header`` has the columns of the label log. ``where`` returns the present file and number of a
    row.
    """
    yield line(header[3:8])
    for key, row in ledger.rows.items():
        if row.label is not None:
            file, number = where(key)
            yield line([file, str(number), key.digest, row.id, row.label])


@dataclass(frozen=True)
class LabelProgress:
    """The events that a model has learned: their number and digest, and the rows with a label.

    ``state`` is the state of the learner besides the model, as JSON.
    """

    n_events: int
    digest: str
    n_labeled: int
    state: str


# -- accuracy on random checks and on queried rows, and the agreement of people --------------------


class Outcome(NamedTuple):
    """Whether the prediction of a row was correct, and the number of the row among the answers."""

    number: int
    hit: bool


class Accuracy(NamedTuple):
    """The share of n predictions that are correct, None without any, and its interval."""

    value: float | None
    n: int
    low: float
    high: float


def outcomes(ledger: Ledger, *, checks: bool) -> list[Outcome]:
    """Return the outcomes of random checks, or of queried rows.

    Rows without a label or a prediction are left out.
    """
    return [
        Outcome(number, row.asked.guess == row.label)
        for number, row in enumerate(ledger.rows.values(), 1)
        if row.asked is not None and row.asked.guess and row.label is not None
        if (row.asked.why == RANDOM) is checks
    ]


def accuracy_of(found: Sequence[Outcome], latest: int = LATEST) -> Accuracy:
    """Return the accuracy of the latest outcomes.

    They may have different probabilities of being correct, as with a model that improves. The
    variance of their sum is then smaller than that of a binomial distribution of the same mean, so
    that the interval of their mean is rather too wide than too narrow.
    """
    found = found[-latest:]
    correct, n = sum(each.hit for each in found), len(found)
    return Accuracy(correct / n if n else None, n, *wilson_interval(correct, n))


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
    common: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in ledger.rows.values():
        for pair in combinations(sorted(row.first), 2):
            common.setdefault(pair, []).append((row.first[pair[0]], row.first[pair[1]]))
    return [
        {
            "people": people,
            "n": len(pairs),
            "agreement": sum(one == other for one, other in pairs) / len(pairs),
            "kappa": cohen_kappa(pairs),
        }
        for people, pairs in sorted(common.items())
    ]
