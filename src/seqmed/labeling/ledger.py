"""The state of all labels: a fold over the label log, and what it says of models.

Every answer stores the class that the model predicted when it chose the row, before the label was
known. Random checks are a uniform sample of the rows, so their accuracy is an unbiased estimate of
the accuracy of the models that predicted them. Queried rows are chosen because they are difficult:
their accuracy is usually lower.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seqmed.labeling.log import (
    CHANGE,
    LABEL,
    RANDOM,
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
class RowLabel:
    """The label of one row, None if there is none.

    The person labeled or skipped the row, or changed its label; None if it is to be asked.
    """

    label: str | None = None
    person: str | None = None
    asked: Event | None = None  # the first answer to its card: the reason, and the prediction
    id: str = ""
    version: int = 0  # number of the last event of the row


class Ledger:
    """The labels after some events.

    Everything is a function of the events in their order.

    Attributes
    ----------
    rows : label of every row that has had an event.
    n_events, n_answers : number of events, and of answers to cards.
    classes : number of rows with each label, in the order of first use.
    answers : rows that each person answered, the last one at the end, for `undo`. The people are in
        the order of their first answer.
    returned : rows whose answer a person has undone, to be shown again; the next one at the end.
    """

    def __init__(self, events: Iterable[Event] = ()):
        self.rows: dict[RowKey, RowLabel] = {}
        self.n_events = self.n_answers = 0
        self.classes: Counter[str] = Counter()
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

    def row(self, key: RowKey) -> RowLabel:
        """Return the label of a row."""
        return self.rows.get(key) or RowLabel()

    def check(self, event: Event) -> None:
        """Refuse an event that is not possible now."""
        kind, row = event.event, self.row(event.key)
        if kind in (LABEL, SKIP) and row.person is not None:
            raise LabelingError(f"{row.person} has answered this row before: change that label")
        if kind == CHANGE and row.person is None:
            raise LabelingError("this row has no answer to change")
        if kind == WITHDRAW and row.label is None:
            raise LabelingError("this row has no label to withdraw")
        if kind == UNDO and row.person != event.person:
            raise LabelingError(f"{event.person} has no answer of this row to undo")

    def apply(self, event: Event) -> tuple[str | None, str | None]:
        """Apply an event.

        Returns
        -------
        before, after : the label that is learned for the row; None is unlabeled.
        """
        self.check(event)
        key, person = event.key, event.person
        row = self.rows.setdefault(key, RowLabel())
        before, after = row.label, event.label or None
        owner = person if event.event in (LABEL, CHANGE, SKIP) else None
        if owner != row.person:  # the answer is that of another person now
            if row.person is not None:
                self.answers[row.person].remove(key)
            if owner is not None:
                self.answers[owner].append(key)
            row.person = owner
        if event.event == UNDO:
            self.returned[person].append(key)
        else:
            for keys in self.returned.values():
                if key in keys:
                    keys.remove(key)
        if event.why:  # an answer to a card
            self.n_answers += 1
            row.asked = row.asked or event
        self.n_events += 1
        row.label, row.version, row.id = after, self.n_events, event.id or row.id
        self._digest.update("\x00".join(as_cells(event)).encode() + b"\n")
        if before is not None:
            self.classes[before] -= 1
        if after is not None:
            self.classes[after] += 1
        return before, after


def current_labels(
    header: Sequence[str], ledger: Ledger, where: Callable[[RowKey], tuple[str, int]]
) -> Iterator[bytes]:
    """Yield the lines of a CSV with the current label of every row: file, row, digest, id, label.

    ``where`` returns the file and the number of a row, where it is now.
    """
    yield line(header[3:8])
    for key, row in ledger.rows.items():
        if row.label is not None:
            file, number = where(key)
            yield line([file, str(number), key.digest, row.id, row.label])


@dataclass(frozen=True)
class LabelProgress:
    """The events that a model has learned.

    Parameters
    ----------
    n_events, digest : number of events of the label log, and digest of the ledger after these.
    n_labeled : rows with a label after these events.
    state : state of the learner besides the model, as JSON.
    """

    n_events: int
    digest: str
    n_labeled: int
    state: str


# -- accuracy on random checks and on queried rows -------------------------------------------------


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
