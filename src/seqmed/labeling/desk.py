"""The desk: what people do, and which cards they get. All of it may happen in several threads.

A session is a page that a person has opened. It has a counter, so that a request that is repeated
or comes out of order is refused. A card belongs to one session at a time.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from seqmed.labeling.learner import Background
from seqmed.labeling.ledger import Ledger, current_labels
from seqmed.labeling.log import (
    CHANGE,
    LABEL,
    RANDOM,
    REASONS,
    SETTLE,
    UNDO,
    WITHDRAW,
    Event,
    LabelingError,
    LabelLog,
    RowKey,
    as_one_line,
    checked_label,
    checked_name,
    one_label,
)
from seqmed.labeling.page import Page
from seqmed.labeling.pool import Pool
from seqmed.labeling.queue import BLOCK, Card, round_at

# Largest number of sessions; seconds after which the cards of a silent session are free again.
MOST_SESSIONS, LEASE = 64, 600.0
# Cards in hand: the one that is shown, and the next.
IN_HAND = 2
# Largest number of classes.
MOST_CLASSES = 200

# -- sessions --------------------------------------------------------------------------------------


class ConflictError(LabelingError):
    """A request that is repeated, out of order, or about an older state."""


@dataclass
class Session:
    """A page that a person has opened.

    Attributes
    ----------
    person : name.
    number : number of the last action.
    cards : cards in hand, the one shown first.
    seen : time of the last request.
    """

    person: str
    number: int = 0
    cards: dict[RowKey, Card] = field(default_factory=dict)
    seen: float = field(default_factory=time.monotonic)


class Sessions:
    """All open sessions, by their keys."""

    def __init__(self) -> None:
        self._open: dict[str, Session] = {}

    def begin(self, person: str) -> str:
        """Begin a session and return its key."""
        if len(self._open) >= MOST_SESSIONS:
            oldest = min(self._open, key=lambda each: self._open[each].seen)
            if time.monotonic() - self._open[oldest].seen < LEASE:
                raise ConflictError("too many pages are open: close one, and try again")
            del self._open[oldest]
        key = secrets.token_urlsafe(16)
        self._open[key] = Session(person)
        return key

    def find(self, key: Any) -> Session:
        """Return a session."""
        found = self._open.get(key) if isinstance(key, str) else None
        if found is None:
            raise ConflictError("this page is not known to the server any more: reload it")
        found.seen = time.monotonic()
        return found

    def taken(self, session: Session) -> set[RowKey]:
        """Return the cards in all hands; those of other silent sessions are free again."""
        now = time.monotonic()
        return {
            key
            for each in self._open.values()
            if each is session or now - each.seen < LEASE
            for key in each.cards
        }


# -- cards -----------------------------------------------------------------------------------------


class Dealer:
    """Gives sessions their cards.

    Cards that were undone come back first. Then come the cards of the current round of the queue,
    and regularly a random check that one other person has labeled.

    Parameters
    ----------
    sessions : all sessions.
    ledger : the labels.
    pool : the rows.
    background : the learner, which chooses the rounds of the queue.
    """

    def __init__(self, sessions: Sessions, ledger: Ledger, pool: Pool, background: Background):
        self._sessions, self._ledger, self._pool = sessions, ledger, pool
        self._background = background
        self._reserved = set(pool.reserve.tolist())

    def deal(self, session: Session) -> bool:
        """Fill the hand of a session; return False if it is empty until a round is chosen."""
        person, rows = session.person, self._ledger.row
        first = [key for key in self._ledger.returned.get(person, [])[::-1] if key in self._pool]
        back = {key: session.cards.get(key) or self._card_again(key) for key in first}
        rest = {  # without cards that the person has answered on another page
            key: card
            for key, card in session.cards.items()
            if key not in back and person not in {*rows(key).given, *rows(key).skipped}
        }
        session.cards = dict([*back.items(), *rest.items()][: max(IN_HAND, len(back))])
        waiting = False
        while len(session.cards) < IN_HAND:
            card = self._next_card(session)
            if card is None:
                waiting = self._round_missing(session)
                break
            session.cards[card.key] = card
        return bool(session.cards) or not waiting

    def _round_missing(self, session: Session) -> bool:
        position = self._ledger.n_answers + len(session.cards)
        return round_at(position) not in self._background.learner.rounds and (
            self._background.trouble is None
        )

    def _next_card(self, session: Session) -> Card | None:
        """Return the next card of a person; None if there is none, or a round is missing."""
        person, taken = session.person, self._sessions.taken(session)
        turn = len(self._ledger.answers.get(person, ())) + len(session.cards)
        if turn % BLOCK == BLOCK - 1:
            second = self._second_opinion(person, taken)
            if second is not None:
                return second
        rounds = self._background.learner.rounds
        position = self._ledger.n_answers + len(session.cards)
        number = round_at(position)
        if number not in rounds:
            if self._round_missing(session):
                return None
            number = max(rounds, default=-1)
        for card in rounds.get(number, ()):
            if card.key not in taken and not self._ledger.row(card.key).answered:
                return card
        for place in self._pool.candidates.tolist():  # the round is used up
            key = self._pool.keys[place]
            if key not in taken and not self._ledger.row(key).answered:
                return Card(key, RANDOM if place in self._reserved else REASONS[0], ())
        return self._second_opinion(person, taken)

    def _second_opinion(self, person: str, taken: set[RowKey]) -> Card | None:
        """Return a random check that one other person has labeled."""
        for key in self._ledger.checks:
            row = self._ledger.rows[key]
            alone = len(row.given) == 1 and person not in row.given
            if alone and person not in row.skipped and key not in taken and key in self._pool:
                return self._card_again(key)
        return None

    def _card_again(self, key: RowKey) -> Card:
        """Return the card of a row that was answered before."""
        event = self._ledger.row(key).answer
        if event is None or not event.guess or event.probability is None:
            return Card(key, RANDOM if event is None else event.why, ())
        return Card(key, event.why, ((event.guess, event.probability),))


# -- the desk --------------------------------------------------------------------------------------


class Desk:
    """The actions of people and the contents of their pages, behind one lock.

    Parameters
    ----------
    log : the label log.
    pool : the rows.
    background : the learner.
    id_name : the id column, None without one.
    check_label : function that returns a label as it is stored, or refuses it.
    **page : further arguments of `Page`.
    """

    def __init__(
        self,
        log: LabelLog,
        pool: Pool,
        background: Background,
        *,
        id_name: str | None = None,
        check_label: Callable[[str], str] = one_label,
        **page: Any,
    ):
        self.log, self.ledger = log, Ledger(log.placed)
        self._pool, self._background = pool, background
        self._id_name, self._check_label = id_name, check_label
        self._sessions = Sessions()
        self._dealer = Dealer(self._sessions, self.ledger, pool, background)
        self._page = Page(self.ledger, pool, background, **page)
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
