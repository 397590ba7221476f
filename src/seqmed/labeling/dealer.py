"""The dealer: which cards a person gets next.

Cards that were undone come back first. Then come the cards of the current round of the queue, and
regularly a random check that one other person has labeled.
"""

from __future__ import annotations

from seqmed.labeling.background import Background
from seqmed.labeling.events import RANDOM, REASONS, RowKey
from seqmed.labeling.ledger import Ledger
from seqmed.labeling.queue import BLOCK, Card, round_at
from seqmed.labeling.rows import Pool
from seqmed.labeling.sessions import Session, Sessions

# Cards in hand: the one that is shown, and the next.
IN_HAND = 2


class Dealer:
    """Gives sessions their cards.

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
