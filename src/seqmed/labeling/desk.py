"""The desk: people, the cards they have in hand, and what they do with them.

A person opens a page and joins: that is a session. A session has a counter, so that a request that
is repeated or comes out of order is refused. A card belongs to one session at a time.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from seqmed.labeling import measures
from seqmed.labeling.background import Background
from seqmed.labeling.events import (
    CHANGE,
    LABEL,
    RANDOM,
    REASONS,
    SETTLE,
    UNDO,
    WITHDRAW,
    Event,
    LabelingError,
    RowKey,
    as_one_line,
    checked_label,
    checked_name,
)
from seqmed.labeling.learner import COMPARED_PROBES, PROBE_EVERY
from seqmed.labeling.ledger import Ledger, current_labels
from seqmed.labeling.log import LabelLog
from seqmed.labeling.queue import BLOCK, Card, round_at
from seqmed.labeling.rows import Pool

# Largest number of sessions; seconds after which the cards of a silent session are free again.
SESSIONS, LEASE = 64, 600.0
# Cards in hand: the one that is shown, and the next.
IN_HAND = 2
# Characters of a cell and of a card that are sent, and of a row in the history.
LONGEST_CELL, LONGEST_CARD, SNIPPET = 200_000, 1_000_000, 160
# Rows of the history in one answer, and classes.
PAGE, MOST_CLASSES = 50, 200


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


class Desk:
    """What people see and do. All methods may be called from several threads.

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
        check_label: Callable[[str], str] = checked_label,
        title: str = "",
    ):
        self.log, self.pool, self.background = log, pool, background
        self.title, self.goal = title, goal
        self.ledger = Ledger(log.events)
        self._declared = list(dict.fromkeys(classes))
        self._shown, self._id_name, self._check_label = shown, id_name, check_label
        self._sessions: dict[str, Session] = {}
        self._lock = threading.RLock()
        self._reserved = set(pool.reserve.tolist())
        self._snippets: dict[RowKey, str] = {}
        self._status: tuple[tuple[int, ...], dict[str, Any]] | None = None

    # -- sessions and cards ------------------------------------------------------------------------

    def join(self, name: Any) -> dict[str, Any]:
        """Begin a session."""
        person = checked_name(name if isinstance(name, str) else "")
        with self._lock:
            now = time.monotonic()
            if len(self._sessions) >= SESSIONS:
                oldest = min(self._sessions, key=lambda each: self._sessions[each].seen)
                if now - self._sessions[oldest].seen < LEASE:
                    raise ConflictError("too many pages are open: close one, and try again")
                del self._sessions[oldest]
            key = secrets.token_urlsafe(16)
            self._sessions[key] = Session(person)
            return {"session": key, "number": 0, "person": person}

    def session(self, key: Any) -> Session:
        """Return a session."""
        found = self._sessions.get(key) if isinstance(key, str) else None
        if found is None:
            raise ConflictError("this page is not known to the server any more: reload it")
        found.seen = time.monotonic()
        return found

    def cards(self, key: Any) -> list[dict[str, Any]] | None:
        """Return the cards in hand, new ones if needed; None if a round is being chosen."""
        with self._lock:
            session = self.session(key)
            if not self._deal(session):
                return None
            return [self.card(card, session.person) for card in session.cards.values()]

    def _deal(self, session: Session) -> bool:
        """Give a session its cards; return whether there is one, or none is left."""
        first = [key for key in self.ledger.returned[session.person][::-1] if key in self.pool]
        back = {key: session.cards.get(key) or self._card_again(key) for key in first}
        rest = {key: card for key, card in session.cards.items() if key not in back}
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
        position = self.ledger.n_answers + len(session.cards)
        return round_at(position) not in self.background.learner.rounds and (
            self.background.trouble is None
        )

    def _next_card(self, session: Session) -> Card | None:
        """Return the next card of a person; None if there is none, or a round is missing."""
        person, taken = session.person, self._taken(session)
        turn = len(self.ledger.answers[person]) + len(session.cards)
        if turn % BLOCK == BLOCK - 1:
            second = self._second_opinion(person, taken)
            if second is not None:
                return second
        rounds = self.background.learner.rounds
        position = self.ledger.n_answers + len(session.cards)
        number = round_at(position)
        if number not in rounds:
            if self._round_missing(session):
                return None
            number = max(rounds, default=-1)
        for card in rounds.get(number, ()):
            if card.key not in taken and not self.ledger.row(card.key).answered:
                return card
        for place in self.pool.candidates.tolist():  # the round is used up
            key = self.pool.keys[place]
            if key not in taken and not self.ledger.row(key).answered:
                return Card(key, RANDOM if place in self._reserved else REASONS[0], ())
        return self._second_opinion(person, taken)

    def _taken(self, session: Session) -> set[RowKey]:
        """Return the cards in all hands."""
        now = time.monotonic()
        return {
            key
            for each in self._sessions.values()
            if each is session or now - each.seen < LEASE
            for key in each.cards
        }

    def _second_opinion(self, person: str, taken: set[RowKey]) -> Card | None:
        """Return a random check that one other person has labeled."""
        for key in self.ledger.checks:
            row = self.ledger.rows[key]
            alone = len(row.given) == 1 and person not in row.given
            if alone and person not in row.skipped and key not in taken and key in self.pool:
                return self._card_again(key)
        return None

    def _card_again(self, key: RowKey) -> Card:
        """Return the card of a row that was answered before."""
        event = self.ledger.row(key).answer
        if event is None or not event.guess or event.probability is None:
            return Card(key, RANDOM if event is None else event.why, ())
        return Card(key, event.why, ((event.guess, event.probability),))

    def card(self, card: Card, person: str) -> dict[str, Any]:
        """Return a card for JSON."""
        return {
            "file": card.key.file,
            "row": card.key.row,
            "why": card.why,
            "version": self.ledger.row(card.key).version,
            "probabilities": [list(each) for each in card.probabilities],
            "cells": self.cells(card.key),
            "again": person in self.ledger.returned and card.key in self.ledger.returned[person],
        }

    def cells(self, key: RowKey) -> list[dict[str, Any]]:
        """Return the cells of a row for JSON, columns of text first."""
        cells, left, found = self.pool.cells(key, self._shown), LONGEST_CARD, []
        for name in sorted(cells, key=lambda name: name not in self.pool.text_columns):
            text = cells[name]
            sent = text[: min(LONGEST_CELL, left)]
            left -= len(sent)
            is_text = name in self.pool.text_columns
            found.append(
                {"name": name, "text": sent, "long": is_text, "cut": len(text) - len(sent)}
            )
        return found

    # -- actions -----------------------------------------------------------------------------------

    def act(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a person asks for; the event is on the disk when this returns."""
        with self._lock:
            session = self.session(request.get("session"))
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
            self.background.notify()
            return {"number": number, "event": self._shown_event(event)}

    def _event(self, session: Session, action: str, request: dict[str, Any]) -> Event:
        """Return the event of a request."""
        person = session.person
        if action == "undo":
            answers = self.ledger.answers[person]
            if not answers:
                raise LabelingError("there is no answer to undo")
            return self._new_event(UNDO, person, answers[-1])
        key = self._key(request)
        row = self.ledger.row(key)
        if request.get("version") != row.version:
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
        event = Event(kind, now, person, key.file, key.row, self._id(key), label)
        if card is None:
            return event
        guess = as_one_line(card.guess)
        return event._replace(why=card.why, guess=guess, probability=card.probability)

    def _id(self, key: RowKey) -> str:
        if self._id_name is None:
            return ""
        text = self.pool.cells(key, [self._id_name]).get(self._id_name, "")
        return as_one_line(text)

    def _key(self, request: dict[str, Any]) -> RowKey:
        file, row = request.get("file"), request.get("row")
        if not isinstance(file, str) or type(row) is not int or RowKey(file, row) not in self.pool:
            raise LabelingError("there is no such row")
        return RowKey(file, row)

    def _label(self, request: dict[str, Any]) -> str:
        label = request.get("label")
        text: str = self._check_label(label if isinstance(label, str) else "")
        if text not in self.classes and len(self.classes) >= MOST_CLASSES:
            raise LabelingError(f"there are {MOST_CLASSES} classes already, the largest number")
        return text

    # -- what the page shows -----------------------------------------------------------------------

    @property
    def classes(self) -> list[str]:
        """All classes in a fixed order: declared classes first, then in order of first use."""
        return list(dict.fromkeys([*self._declared, *self.ledger.classes]))

    @property
    def version(self) -> tuple[int, ...]:
        """Numbers that change whenever `status` may change."""
        background = self.background
        return (
            self.ledger.n_events,
            background.n_learned,
            background.n_saved,
            int(background.trouble is not None),
        )

    def status(self) -> dict[str, Any]:
        """Return the live numbers of the page."""
        with self._lock:
            version = self.version
            if self._status is None or self._status[0] != version:
                self._status = (version, self._new_status())
            return self._status[1]

    def _new_status(self) -> dict[str, Any]:
        ledger, background, learner = self.ledger, self.background, self.background.learner
        checks = measures.outcomes(ledger, ledger.checks)
        queried = measures.outcomes(ledger, ledger.queried)
        disputed = sum(row.disputed for row in ledger.rows.values())
        changes = learner.changes
        return {
            "title": self.title,
            "goal": self.goal,
            "labels": ledger.n_labeled,
            "rows": self.pool.n_rows,
            "skipped": sum(bool(row.skipped) for row in ledger.rows.values()),
            "classes": [[name, ledger.classes[name]] for name in self.classes],
            "checks": shown_accuracy(measures.accuracy(checks)),
            "queried": shown_accuracy(measures.accuracy(queried)),
            "chart": {
                "checks": measures.moving_means(checks),
                "queried": measures.moving_means(queried),
            },
            "changes": [list(each) for each in changes[-measures.POINTS :]],
            "moved": [list(each) for each in learner.moved],
            "hint": measures.stopping_hint(changes, PROBE_EVERY, COMPARED_PROBES),
            "people": [
                [name, sum(name in row.given for row in ledger.rows.values())]
                for name in ledger.people
            ],
            "agreement": [each._asdict() for each in measures.agreements(ledger)],
            "disputes": disputed,
            "waiting": ledger.n_events - background.n_learned,
            "saved": background.n_saved,
            "events": ledger.n_events,
            "kept": len(learner.kept_labels),
            "trouble": background.trouble is not None,
        }  # fmt: skip

    def history(self, search: str = "", only: str = "", start: int = 0) -> dict[str, Any]:
        """Return rows that were answered, the last one first.

        Parameters
        ----------
        search : words that must all occur in the row, its labels or its people.
        only : "disputes", "skipped" or nothing.
        start : number of rows to leave out.
        """
        words = search.lower().split()
        with self._lock:
            keys = sorted(self.ledger.rows, key=lambda key: -self.ledger.rows[key].last)
            found = [key for key in keys if self._matches(key, words, only)]
            rows = [self._shown_row(key) for key in found[start : start + PAGE]]
        return {"total": len(found), "start": start, "rows": rows}

    def _matches(self, key: RowKey, words: Sequence[str], only: str) -> bool:
        row = self.ledger.rows[key]
        if only == "disputes" and not row.disputed:
            return False
        if only == "skipped" and not (row.skipped and not row.given):
            return False
        if not only and not row.answered:
            return False
        labels = [*row.given.values(), row.settled or ""]
        text = " ".join([*labels, *row.given, key.file, str(key.row), row.id, self._snippet(key)])
        return all(word in text.lower() for word in words)

    def _snippet(self, key: RowKey) -> str:
        """Return the beginning of the cells of a row."""
        if key not in self._snippets:
            cells = self.cells(key)
            long = [cell["text"] for cell in cells if cell["long"]]
            short = [f"{cell['name']} {cell['text']}" for cell in cells if not cell["long"]]
            text = " · ".join(each[:SNIPPET] for each in (long or short)[:12])
            self._snippets[key] = " ".join(text.split())[:SNIPPET]
        return self._snippets[key]

    def _shown_row(self, key: RowKey) -> dict[str, Any]:
        row = self.ledger.rows[key]
        asked = row.asked
        return {
            "file": key.file,
            "row": key.row,
            "id": row.id,
            "version": row.version,
            "text": self._snippet(key),
            "label": row.label,
            "given": row.given,
            "skipped": sorted(row.skipped),
            "settled": row.settled,
            "disputed": row.disputed,
            "why": asked.why if asked else "",
            "guess": asked.guess if asked else "",
        }

    def whole_row(self, file: Any, row: Any) -> dict[str, Any]:
        """Return a row of the history with all its cells."""
        number = int(row) if isinstance(row, str) and row.isdecimal() and len(row) < 19 else 0
        with self._lock:
            key = self._key({"file": file, "row": number})
            if key not in self.ledger.rows:
                raise LabelingError("there is no such row")
            return {**self._shown_row(key), "cells": self.cells(key)}

    def _shown_event(self, event: Event) -> dict[str, Any]:
        return {"event": event.event, "file": event.file, "row": event.row, "label": event.label}

    def labels(self) -> bytes:
        """Return the current labels as CSV."""
        with self._lock:
            return b"".join(current_labels(self.log.header, self.ledger))


def shown_accuracy(found: measures.Accuracy) -> dict[str, Any]:
    """Return an accuracy for JSON."""
    return {"value": found.value, "n": found.n, "low": found.low, "high": found.high}
