"""Sessions and cards of the labeling page: whose cards are whose, and which come next."""

from types import SimpleNamespace

import pytest

from seqmed.labeling.desk import IN_HAND, LEASE, ConflictError, Desk
from seqmed.labeling.log import LABEL, SKIP, UNCERTAIN, UNDO, Event
from seqmed.labeling.pool import Pool
from seqmed.labeling.queue import LENGTH, Card, round_at
from tests.support.labeling import TableRows, clouds


@pytest.fixture
def desk():
    """A desk whose rounds are all the same: uncertain rows in the order of the pool."""
    table, _ = clouds(200)
    pool = Pool(TableRows(table, "rows.csv"))
    cards = tuple(Card(pool.keys[place], UNCERTAIN, ()) for place in pool.free.tolist()[:LENGTH])
    learner = SimpleNamespace(rounds=dict.fromkeys(range(100), cards), pool=pool)
    background = SimpleNamespace(learner=learner, trouble=None)
    return Desk(None, [], background)


def join(desk, person="Ada"):
    """Return the key of a new session, and the session."""
    key = desk.join(person)["session"]
    return key, desk._session(key)


def answer(desk, person, key, kind):
    label = "a" if kind == LABEL else ""
    desk.ledger.apply(Event(kind, "2026-01-01", person, *key, "", label, why=UNCERTAIN))


def test_a_card_belongs_to_one_session_until_that_is_silent(desk):
    (first, ada), (second, bob) = join(desk), join(desk, "Bob")
    desk.cards(first)
    for seconds, free in ((LEASE - 1, False), (LEASE + 1, True)):
        ada.seen -= seconds
        bob.cards.clear()
        desk.cards(second)
        assert len(ada.cards) == len(bob.cards) == IN_HAND
        assert (ada.cards.keys() == bob.cards.keys()) is free
        assert bool(ada.cards.keys() & bob.cards.keys()) is free
        ada.seen += seconds
    cards = list(ada.cards)
    desk.cards(first)
    assert list(ada.cards) == cards  # a session keeps its own cards


@pytest.mark.parametrize("key", [None, 7, "unknown", ["a"]])
def test_an_unknown_session_is_refused(desk, key):
    with pytest.raises(ConflictError, match="reload it"):
        desk.cards(key)


def test_a_person_waits_while_a_round_is_chosen(desk):
    rounds = desk._background.learner.rounds
    session, ada = join(desk)
    cards = rounds.pop(round_at(0))
    assert desk.cards(session)["cards"] is None
    desk._background.trouble = RuntimeError("no round will be chosen")
    assert desk.cards(session)["cards"]
    ada.cards.clear()
    desk._background.trouble = None
    rounds[round_at(0)] = cards
    assert desk.cards(session)["cards"]
    assert list(ada.cards) == [card.key for card in cards[:IN_HAND]]


@pytest.mark.parametrize("kind", [LABEL, SKIP])
@pytest.mark.parametrize("person", ["Ada", "Bo"])
def test_a_card_that_was_answered_on_another_page_is_taken_away(desk, person, kind):
    pages = [join(desk) for _ in range(2)]
    desk.cards(pages[0][0])
    key = next(iter(pages[0][1].cards))
    answer(desk, "Ada", key, LABEL)
    del pages[0][1].cards[key]
    desk.ledger.apply(Event(UNDO, "2026-01-01", "Ada", *key))
    for session, page in pages:  # both show it again
        desk.cards(session)
        assert next(iter(page.cards)) == key
    answer(desk, person, key, kind)
    session, page = pages[1]
    desk.cards(session)
    assert key not in page.cards
    assert len(page.cards) == IN_HAND
