"""The desk: what people do, and what they see. All of it may happen in several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from seqmed.labeling.background import Background
from seqmed.labeling.dealer import Dealer
from seqmed.labeling.events import (
    CHANGE,
    LABEL,
    SETTLE,
    UNDO,
    WITHDRAW,
    Event,
    LabelingError,
    RowKey,
    as_one_line,
    checked_label,
    checked_name,
    one_label,
)
from seqmed.labeling.ledger import Ledger, current_labels
from seqmed.labeling.log import LabelLog
from seqmed.labeling.page import Page
from seqmed.labeling.queue import Card
from seqmed.labeling.rows import Pool
from seqmed.labeling.sessions import ConflictError, Session, Sessions

# Largest number of classes.
MOST_CLASSES = 200


class Desk:
    """The actions of people and the contents of their pages, behind one lock.

    Parameters
    ----------
    log : the label log.
    pool : the rows.
    background : the learner.
    classes : classes that are offered from the beginning.
    shown : columns on a card; None for all.
    id_name : the id column, None without one.
    goal : number of labels to reach.
    check_label : function that returns a label as it is stored, or refuses it.
    title : name of the data, without folders.
    """

    def __init__(
        self,
        log: LabelLog,
        pool: Pool,
        background: Background,
        *,
        classes: Sequence[str] = (),
        shown: Sequence[str] | None = None,
        id_name: str | None = None,
        goal: int = 200,
        check_label: Callable[[str], str] = one_label,
        title: str = "",
    ):
        self.log, self.ledger = log, Ledger(log.placed)
        self._pool, self._background = pool, background
        self._id_name, self._check_label = id_name, check_label
        self._sessions = Sessions()
        self._dealer = Dealer(self._sessions, self.ledger, pool, background)
        self._page = Page(
            self.ledger, pool, background, classes=classes, shown=shown, goal=goal, title=title
        )
        self._lock = threading.RLock()

    # -- sessions and cards ------------------------------------------------------------------------

    def join(self, name: Any) -> dict[str, Any]:
        """Begin a session."""
        person = checked_name(name if isinstance(name, str) else "")
        with self._lock:
            return {"session": self._sessions.begin(person), "number": 0, "person": person}

    def session(self, key: Any) -> Session:
        """Return a session."""
        return self._sessions.find(key)

    def cards(self, key: Any) -> list[dict[str, Any]] | None:
        """Return the cards in hand, new ones if needed; None if a round is being chosen."""
        with self._lock:
            session = self._sessions.find(key)
            if not self._dealer.deal(session):
                return None
            return [self._page.card(card, session.person) for card in session.cards.values()]

    # -- actions -----------------------------------------------------------------------------------

    def act(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a person asks for; the event is on the disk when this returns."""
        with self._lock:
            session = self._sessions.find(request.get("session"))
            number, action = request.get("number"), request.get("action")
            if type(number) is not int or number != session.number + 1:
                raise ConflictError(
                    "this request was repeated or came out of order: nothing was changed"
                )
            event = self._event(session, str(action), request)
            self.ledger.check(event)
            self.log.append([event])
            self.ledger.apply(event)
            session.number = number
            session.cards.pop(event.key, None)
            self._background.notify()
            file, row = self._pool.where(event.key)
            shown = {"event": event.event, "file": file, "row": row, "label": event.label}
            return {"number": number, "event": shown}

    def _event(self, session: Session, action: str, request: dict[str, Any]) -> Event:
        """Return the event of a request."""
        person = session.person
        if action == "undo":
            answers = self.ledger.answers.get(person)
            if not answers:
                raise LabelingError("there is no answer to undo")
            return self._new_event(UNDO, person, answers[-1])
        key = self._key(request)
        row = self.ledger.row(key)
        if request.get("version") != row.version:
            if (
                action in ("label", "skip")
                and key in session.cards
                and (person in row.given or person in row.skipped)
            ):
                raise ConflictError("you have answered this row on another page")
            raise ConflictError("this row has changed since you saw it: look at it again")
        if action in ("label", "skip") and key in session.cards:
            card = session.cards[key]
            label = self._label(request) if action == "label" else ""
            return self._new_event(action, person, key, label, card)
        if action == "label" and person in row.given:
            return self._new_event(CHANGE, person, key, self._label(request))
        if action == "label" and row.given:  # of another person, in the history
            return self._new_event(LABEL, person, key, self._label(request))
        if action == WITHDRAW:
            return self._new_event(WITHDRAW, person, key)
        if action == SETTLE:
            return self._new_event(SETTLE, person, key, self._label(request))
        if action in ("label", "skip"):
            raise ConflictError("this row was not asked on this page")
        raise LabelingError("unknown action, expected label, skip, undo, withdraw or settle")

    def _new_event(
        self, kind: str, person: str, key: RowKey, label: str = "", card: Card | None = None
    ) -> Event:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        event = Event(kind, now, person, *key, self._id(key), label)
        if card is None:
            return event
        guess = as_one_line(card.guess)
        return event._replace(why=card.why, guess=guess, probability=card.probability)

    def _id(self, key: RowKey) -> str:
        if self._id_name is None:
            return ""
        text = self._pool.cells(key, [self._id_name]).get(self._id_name, "")
        return as_one_line(text)

    def _key(self, request: dict[str, Any]) -> RowKey:
        file, row = request.get("file"), request.get("row")
        key = self._pool.at(file, row) if isinstance(file, str) and type(row) is int else None
        if key is None:
            raise LabelingError("there is no such row")
        return key

    def _label(self, request: dict[str, Any]) -> str:
        label = request.get("label")
        text: str = self._check_label(label if isinstance(label, str) else "")
        if text in self._page.classes:
            return text
        if len(self._page.classes) >= MOST_CLASSES:
            raise LabelingError(f"there are {MOST_CLASSES} classes already, the largest number")
        return checked_label(text)

    # -- what the page shows -----------------------------------------------------------------------

    @property
    def version(self) -> tuple[int, ...]:
        """Numbers that change whenever `status` may change."""
        return self._page.version

    def status(self) -> dict[str, Any]:
        """Return the live numbers of the page."""
        with self._lock:
            return self._page.status()

    def history(self, search: str = "", only: str = "", start: int = 0) -> dict[str, Any]:
        """Return rows that were answered, as `Page.history` does."""
        with self._lock:
            return self._page.history(search, only, start)

    def whole_row(self, file: Any, row: Any) -> dict[str, Any]:
        """Return a row of the history with all its cells."""
        number = int(row) if isinstance(row, str) and row.isdecimal() and len(row) < 19 else 0
        with self._lock:
            key = self._key({"file": file, "row": number})
            if key not in self.ledger.rows:
                raise LabelingError("there is no such row")
            return self._page.whole_row(key)

    def labels(self) -> bytes:
        """Return the current labels as CSV."""
        with self._lock:
            return b"".join(current_labels(self.log.header, self.ledger, self._pool.where))
