"""Sessions: the pages that people have opened, and the cards in their hands.

A session has a counter, so that a request that is repeated or comes out of order is refused. A card
belongs to one session at a time.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from seqmed.labeling.events import LabelingError, RowKey
from seqmed.labeling.queue import Card

# Largest number of sessions; seconds after which the cards of a silent session are free again.
MOST_SESSIONS, LEASE = 64, 600.0


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
