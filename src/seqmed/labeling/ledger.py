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
from typing import NamedTuple

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


class Transition(NamedTuple):
    """The effect of an event on the label that is learned for a row; None is unlabeled."""

    key: RowKey
    before: str | None
    after: str | None


@dataclass
class RowLabels:
    """The labels of one row.

    Attributes
    ----------
    given : current label of each person.
    first : first label of each person, for the agreement.
    skipped : people who skipped the row.
    settled : label on which people settled.
    asked : the first label with a reason: why the row was asked, and the prediction.
    answer : the last answer, a label or a skip, with a reason.
    id : value of the id column.
    version : number of events of the row.
    last : number of the last event of the row.
    """

    given: dict[str, str] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    settled: str | None = None
    asked: Event | None = None
    answer: Event | None = None
    id: str = ""
    version: int = 0
    last: int = 0

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
    def answered(self) -> bool:
        """Whether anyone labeled or skipped the row."""
        return bool(self.given or self.skipped)


class Ledger:
    """The labels after some events.

    Everything is a function of the events in their order.

    Attributes
    ----------
    rows : labels of every row that has had an event.
    n_events, n_answers : number of events, and of answers to cards.
    classes : number of rows with each label, in the order of first use.
    answers : rows that each person answered, the last one at the end, for `undo`.
    returned : rows whose answer a person has undone, to be shown again; the next one at the end.
    checks : rows asked as random checks, in the order of their first answer.
    queried : rows asked for other reasons, in the same order.
    """

    def __init__(self, events: Iterable[Event] = ()):
        self.rows: dict[RowKey, RowLabels] = {}
        self.n_events = self.n_answers = 0
        self.classes: Counter[str] = Counter()
        self.answers: dict[str, list[RowKey]] = {}
        self.returned: dict[str, list[RowKey]] = {}
        self.checks: dict[RowKey, None] = {}
        self.queried: dict[RowKey, None] = {}
        self._digest = hashlib.sha256()
        for event in events:
            self.apply(event)

    @property
    def digest(self) -> str:
        """Digest of all events."""
        return self._digest.hexdigest()

    @property
    def people(self) -> list[str]:
        """People who have labeled or skipped a row, in the order of their first event."""
        return list(self.answers)

    @property
    def n_labeled(self) -> int:
        """The number of rows with a label."""
        return self.classes.total()

    def row(self, key: RowKey) -> RowLabels:
        """Return the labels of a row."""
        return self.rows.get(key) or RowLabels()

    def check(self, event: Event) -> None:
        """Refuse an event that is not possible now."""
        row, person = self.row(event.key), event.person
        if event.event == LABEL and person in row.given:
            raise LabelingError(f"{person} has labeled this row before: change that label")
        if event.event in (CHANGE, WITHDRAW) and person not in row.given:
            raise LabelingError(f"{person} has not labeled this row")
        if event.event == SKIP and (person in row.given or person in row.skipped):
            raise LabelingError(f"{person} has answered this row before")
        if event.event == UNDO and not (person in row.given or person in row.skipped):
            raise LabelingError(f"{person} has no answer of this row to undo")
        if event.event == SETTLE and len(row.given) < 2:
            raise LabelingError(
                "fewer than two people labeled this row: there is nothing to settle"
            )

    def apply(self, event: Event) -> Transition:
        """Apply an event, and return its effect."""
        self.check(event)
        key, person = event.key, event.person
        row = self.rows.setdefault(key, RowLabels())
        before = row.label
        if event.event in (LABEL, CHANGE):
            row.given[person] = event.label
            row.first.setdefault(person, event.label)
            row.skipped.discard(person)
            row.settled = None
        elif event.event == SETTLE:
            row.settled = event.label
        elif event.event == SKIP:
            row.skipped.add(person)
        else:
            row.given.pop(person, None)
            row.first.pop(person, None)
            row.skipped.discard(person)
            row.settled = None
        self._follow_cards(event, row)
        self.n_events += 1
        row.version += 1
        row.last, row.id = self.n_events, event.id or row.id
        self._digest.update("\x00".join(as_cells(event)).encode() + b"\n")
        after = row.label
        if before != after:
            if before is not None:
                self.classes[before] -= 1
            if after is not None:
                self.classes[after] += 1
        return Transition(key, before, after)

    def _follow_cards(self, event: Event, row: RowLabels) -> None:
        """Keep the answers of a person in order, and note why the row was asked."""
        key, answers = event.key, self.answers.setdefault(event.person, [])
        returned = self.returned.setdefault(event.person, [])
        if event.event in (LABEL, SKIP):
            answers.append(key)
            if key in returned:
                returned.remove(key)
        elif event.event in (UNDO, WITHDRAW) and key in answers:
            answers.remove(key)
            if event.event == UNDO:
                returned.append(key)
        if event.is_answer:
            self.n_answers += 1
            row.answer = event
        if event.event == LABEL and event.why and row.asked is None:
            row.asked = event
            (self.checks if event.why == RANDOM else self.queried)[key] = None


def current_labels(
    header: Sequence[str], ledger: Ledger, where: Callable[[RowKey], tuple[str, int]]
) -> Iterator[bytes]:
    """Yield the lines of a CSV with the current label of every row: file, row, digest, id, label.

    Parameters
    ----------
    header : the columns of the label log.
    ledger : the labels.
    where : function that returns the file and the number of a row, where it is now.
    """
    places = [Event._fields.index(name) for name in ("file", "row", "digest", "id", "label")]
    yield line(header[place] for place in places)
    for key, row in ledger.rows.items():
        if row.label is not None:
            file, number = where(key)
            yield line([file, str(number), key.digest, row.id, row.label])


@dataclass(frozen=True)
class LabelProgress:
    """The events that a model has learned.

    Parameters
    ----------
    n_events, digest : number of events of the label log, and their digest.
    n_labeled : rows with a label after these events.
    state : state of the learner besides the model, as JSON.
    """

    n_events: int
    digest: str
    n_labeled: int
    state: str


# -- accuracy on random checks and on queried rows, and the agreement of people --------------------


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


def accuracy_of(found: Sequence[Outcome], latest: int = LATEST) -> Accuracy:
    """Return the accuracy of the latest outcomes.

    They may have different probabilities of being correct, as with a model that improves. The
    variance of their sum is then smaller than that of a binomial distribution of the same mean, so
    that the interval of their mean is rather too wide than too narrow.
    """
    found = found[-latest:]
    correct, n = sum(each.hit for each in found), len(found)
    return Accuracy(correct, n, *wilson_interval(correct, n))


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
