"""The state of all labels: a fold over the label log, and what it says of models and people.

Every answer stores the class that the model predicted when it chose the row, before the label was
known. Random checks are a uniform sample of the rows, so their accuracy is an unbiased estimate of
the accuracy of the models that predicted them. Queried rows are chosen because they are difficult:
their accuracy is usually lower.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """The labels of one row."""

    given: dict[str, str] = field(default_factory=dict)  # current label of each person
    first: dict[str, str] = field(default_factory=dict)  # first label of each person
    skipped: set[str] = field(default_factory=set)  # people who skipped the row
    settled: str | None = None  # the label on which people settled
    asked: Event | None = None  # the first answer to its card: the reason, and the prediction
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
        """Apply an event.

        Returns
        -------
        before, after : the label that is learned for the row; None is unlabeled.
        """
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
            row.asked = row.asked or event
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


def outcomes(ledger: Ledger, *, checks: bool) -> list[bool]:
    """Return whether the predictions of random checks, or of queried rows, were correct.

    Rows without a label or a prediction are left out.
    """
    return [
        row.asked.guess == row.label
        for row in ledger.rows.values()
        if row.asked is not None and row.asked.guess and row.label is not None
        if (row.asked.why == RANDOM) is checks
    ]


def accuracy_of(found: Sequence[bool]) -> Accuracy:
    """Return the accuracy of the latest outcomes.

    If the model improves meanwhile, the interval is rather too wide than too narrow: the variance
    of the sum is smaller than that of a binomial distribution of the same mean.
    """
    found = found[-LATEST:]
    correct, n = sum(found), len(found)
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
