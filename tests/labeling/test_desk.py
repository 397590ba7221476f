"""Sessions and cards of the labeling page: whose cards are whose, and which come next."""

from types import SimpleNamespace

import pytest

from seqmed.labeling.desk import IN_HAND, LEASE, ConflictError, Desk
from seqmed.labeling.log import LABEL, RANDOM, SKIP, UNCERTAIN, UNDO, Event
from seqmed.labeling.pool import Pool
from seqmed.labeling.queue import BLOCK, LENGTH, Card, round_at
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


def answer(desk, person, key, why=UNCERTAIN, kind=LABEL):
    label = "a" if kind == LABEL else ""
    desk.ledger.apply(Event(kind, "2026-01-01", person, *key, "", label, why=why))


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


def test_the_last_card_of_every_block_is_a_second_opinion(desk):
    """Bob checks again what Ada has labeled at random: one card in BLOCK, as long as there are."""
    pool = desk._pool
    checked = [pool.keys[place] for place in pool.reserve.tolist()[:2]]
    for key in checked:
        answer(desk, "Ada", key, RANDOM)
    session, bob = join(desk, "Bob")
    order = []
    for _ in range(3 * BLOCK):
        desk.cards(session)
        key = next(iter(bob.cards))
        order.append(key)
        answer(desk, "Bob", bob.cards.pop(key).key, RANDOM if key in checked else UNCERTAIN)
    assert [order.index(key) for key in checked] == [BLOCK - 1, 2 * BLOCK - 1]


def test_no_one_checks_their_own_labels(desk):
    checked = desk._pool.keys[int(desk._pool.reserve[0])]
    answer(desk, "Ada", checked, RANDOM)
    session, ada = join(desk)
    for _ in range(2 * BLOCK):
        desk.cards(session)
        key = next(iter(ada.cards))
        assert key != checked
        answer(desk, "Ada", ada.cards.pop(key).key)


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
def test_a_card_that_was_answered_on_another_page_is_taken_away(desk, kind):
    pages = [join(desk) for _ in range(2)]
    desk.cards(pages[0][0])
    key = next(iter(pages[0][1].cards))
    answer(desk, "Ada", key)
    del pages[0][1].cards[key]
    desk.ledger.apply(Event(UNDO, "2026-01-01", "Ada", *key))
    for session, page in pages:  # both show it again
        desk.cards(session)
        assert next(iter(page.cards)) == key
    answer(desk, "Ada", key, kind=kind)
    session, page = pages[1]
    desk.cards(session)
    assert key not in page.cards
    assert len(page.cards) == IN_HAND
