"""The desk: what people do, and which cards they get.

A session is a page that a person has opened. It has a counter, so that a request that is repeated
or comes out of order is refused. A card belongs to one session at a time. All requests are handled
in one thread; the learner runs in another.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from seqmed.labeling.learner import Background
from seqmed.labeling.ledger import Ledger, current_labels
from seqmed.labeling.log import (
    CHANGE,
    LABEL,
    RANDOM,
    SETTLE,
    SKIP,
    UNCERTAIN,
    UNDO,
    WITH_LABEL,
    WITHDRAW,
    Event,
    LabelingError,
    LabelLog,
    RowKey,
    as_one_line,
    checked_label,
    checked_name,
)
from seqmed.labeling.page import Page
from seqmed.labeling.queue import BLOCK, Card, Round, round_at

# Seconds after which the cards of a silent session are free again.
LEASE = 600.0
# Cards in hand: the one that is shown, and the next.
IN_HAND = 2


class ConflictError(LabelingError):
    """A request that is repeated, out of order, or about an older state."""


@dataclass
class Session:
    """A page that a person has opened."""

    person: str
    number: int = 0  # of the last action
    cards: dict[RowKey, Card] = field(default_factory=dict)  # in hand, the one shown first
    seen: float = field(default_factory=time.monotonic)  # time of the last request


class Desk:
    """The actions of people, and their cards.

    The rows of the events are in the pool. ``check_label`` returns a label as it is stored, or
    refuses it. The further arguments are those of `Page`.
    """

    def __init__(
        self,
        log: LabelLog,
        events: Sequence[Event],
        background: Background,
        *,
        id_name: str | None = None,
        check_label: Callable[[str], str] = checked_label,
        **page: Any,
    ):
        self.ledger = Ledger(events)
        self.page = Page(self.ledger, background, **page)
        self._log, self._background, self._pool = log, background, background.learner.pool
        self._id_name, self._check_label = id_name, check_label
        self._sessions: dict[str, Session] = {}
        self._reserved = set(self._pool.reserve.tolist())

    # -- sessions ----------------------------------------------------------------------------------

    def join(self, name: Any) -> dict[str, Any]:
        """Begin a session."""
        person, key = checked_name(name if isinstance(name, str) else ""), secrets.token_urlsafe(16)
        self._sessions[key] = Session(person)
        return {"session": key, "number": 0, "person": person}

    def _session(self, key: Any) -> Session:
        found = self._sessions.get(key) if isinstance(key, str) else None
        if found is None:
            raise ConflictError("this page is not known to the server any more: reload it")
        found.seen = time.monotonic()
        return found

    # -- actions -----------------------------------------------------------------------------------

    def act(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a person asks for; the event is on the disk when this returns."""
        session = self._session(request.get("session"))
        number = request.get("number")
        if type(number) is not int or number != session.number + 1:
            raise ConflictError(
                "this request was repeated or came out of order: nothing was changed"
            )
        event = self._event(session, request)
        self.ledger.check(event)
        self._log.append(event)
        self.ledger.apply(event)
        self._background.submit(event)
        session.number = number
        session.cards.pop(event.key, None)
        return {
            "row": self._pool.where[event.key][1],
            "status": self.page.status(),
            **self.cards(request["session"]),
        }

    def _event(self, session: Session, request: dict[str, Any]) -> Event:
        """Return the event of a request."""
        person, action = session.person, request.get("action")
        card, label = None, ""
        if action == UNDO:
            if not self.ledger.answers.get(person):
                raise LabelingError("there is no answer to undo")
            key = self.ledger.answers[person][-1]
        elif action in (LABEL, SKIP, WITHDRAW, SETTLE):
            key = self.key_of(request.get("file"), request.get("row"))
            row = self.ledger.row(key)
            if request.get("version") != row.version:
                raise ConflictError("this row has changed since you saw it: look at it again")
            card = session.cards.get(key) if action in (LABEL, SKIP) else None
            if card is None and (action == SKIP or (action == LABEL and not row.people)):
                raise ConflictError("this row was not asked on this page")
            if action == LABEL and card is None and person in row.given:
                action = CHANGE
            if action in WITH_LABEL:
                text = request.get("label")
                label = self._check_label(text if isinstance(text, str) else "")
        else:
            raise LabelingError("unknown action, expected label, skip, undo, withdraw or settle")
        now, of_row = datetime.now(UTC).isoformat(timespec="milliseconds"), ""
        if self._id_name is not None:
            of_row = as_one_line(self._pool.cells(key, [self._id_name]).get(self._id_name, ""))
        event = Event(action, now, person, *key, of_row, label)
        if card is None:
            return event
        guess, probability = card.probabilities[0] if card.probabilities else ("", None)
        return event._replace(why=card.why, guess=as_one_line(guess), probability=probability)

    def key_of(self, file: Any, row: Any) -> RowKey:
        """Return the row with some number in a file."""
        known = isinstance(file, str) and type(row) is int
        key = self._pool.at.get((file, row)) if known else None
        if key is None:
            raise LabelingError("there is no such row")
        return key

    def labels(self) -> bytes:
        """Return the current labels as CSV."""
        return b"".join(current_labels(self._log.header, self.ledger, self._pool.where))

    # -- cards -------------------------------------------------------------------------------------

    def cards(self, key: Any) -> dict[str, Any]:
        """Return the cards in hand, new ones if needed, and the number of the last action.

        The cards are None if there is none until a round is chosen.
        """
        session = self._session(key)
        waits = self._deal(session)
        cards = [self.page.card(card, session.person) for card in session.cards.values()]
        return {"cards": None if waits else cards, "number": session.number}

    def _deal(self, session: Session) -> bool:
        """Fill the hand of a session; return whether it is empty until a round is chosen."""
        person = session.person
        back = self.ledger.returned.get(person, [])[::-1]  # first cards that were undone
        rest = [  # without cards that the person has answered on another page
            key
            for key in session.cards
            if key not in back and person not in self.ledger.row(key).people
        ]
        hand = [*back, *rest][: max(IN_HAND, len(back))]
        session.cards = {key: session.cards.get(key) or self._card_again(key) for key in hand}
        while len(session.cards) < IN_HAND:
            cards = self._round(session)
            card = self._next_card(session, cards)
            if card is None:
                return cards is None and not session.cards
            session.cards[card.key] = card
        return False

    def _round(self, session: Session) -> Round | None:
        """Return the round with the next card of a session; None if it is being chosen."""
        rounds, number = self._background.learner.rounds, self.ledger.n_answers + len(session.cards)
        found = rounds.get(round_at(number))
        if found is None and self._background.trouble is not None:
            return rounds[max(rounds)] if rounds else ()  # no other will be chosen
        return found

    def _next_card(self, session: Session, cards: Round | None) -> Card | None:
        """Return the next card of a session, None without one; in turn, it is a second opinion."""
        person, now = session.person, time.monotonic()
        taken = {
            key
            for each in self._sessions.values()
            if each is session or now - each.seen < LEASE
            for key in each.cards
        }
        turn = len(self.ledger.answers.get(person, ())) + len(session.cards)
        if turn % BLOCK == BLOCK - 1:
            second = self._second_opinion(person, taken)
            if second is not None:
                return second
        if cards is None:
            return None
        others = (  # if the round is used up
            Card(self._pool.keys[place], RANDOM if place in self._reserved else UNCERTAIN, ())
            for place in self._pool.candidates
        )
        for card in chain(cards, others):
            if card.key not in taken and not self.ledger.row(card.key).people:
                return card
        return self._second_opinion(person, taken)

    def _second_opinion(self, person: str, taken: set[RowKey]) -> Card | None:
        """Return a random check that one other person has labeled."""
        for key, row in self.ledger.rows.items():
            is_check = row.asked is not None and row.asked.why == RANDOM
            if is_check and len(row.given) == 1 and person not in row.people and key not in taken:
                return self._card_again(key)
        return None

    def _card_again(self, key: RowKey) -> Card:
        """Return the card of a row that was answered before."""
        asked = self.ledger.row(key).asked
        if asked is None or asked.probability is None:
            return Card(key, asked.why if asked else RANDOM, ())
        return Card(key, asked.why, ((asked.guess, asked.probability),))
