"""Sessions and the dealer of the labeling page: whose cards are whose, and which come next."""

import time
from types import SimpleNamespace

import pytest

from seqmed.labeling.desk import IN_HAND, LEASE, MOST_SESSIONS, ConflictError, Dealer, Sessions
from seqmed.labeling.ledger import Ledger
from seqmed.labeling.log import LABEL, RANDOM, SKIP, UNCERTAIN, UNDO, Event
from seqmed.labeling.pool import Pool
from seqmed.labeling.queue import BLOCK, LENGTH, Card, round_at
from tests.support.labeling import TableRows, clouds


def make_dealer():
    """A dealer whose rounds are all the same: uncertain rows in the order of the pool."""
    table, _ = clouds(200)
    pool = Pool(TableRows(table, "rows.csv"))
    cards = tuple(Card(pool.keys[place], UNCERTAIN, ()) for place in pool.free.tolist()[:LENGTH])
    learner = SimpleNamespace(rounds=dict.fromkeys(range(100), cards))
    background = SimpleNamespace(learner=learner, trouble=None)
    open_sessions, ledger = Sessions(), Ledger()
    return open_sessions, ledger, pool, Dealer(open_sessions, ledger, pool, background)


def answer(ledger, person, key, why=UNCERTAIN):
    ledger.apply(Event(LABEL, "2026-01-01", person, *key, "", "a", why=why))


# -- sessions --------------------------------------------------------------------------------------


def test_a_card_belongs_to_one_session_at_a_time():
    open_sessions, _, _, dealer = make_dealer()
    ada, bob = (open_sessions.find(open_sessions.begin(name)) for name in ("Ada", "Bob"))
    assert dealer.deal(ada)
    assert dealer.deal(bob)
    assert len(ada.cards) == len(bob.cards) == IN_HAND
    assert not ada.cards.keys() & bob.cards.keys()
    assert open_sessions.taken(ada) == {*ada.cards, *bob.cards}


def test_the_cards_of_a_silent_session_are_free_again():
    open_sessions, _, _, dealer = make_dealer()
    ada, bob = (open_sessions.find(open_sessions.begin(name)) for name in ("Ada", "Bob"))
    dealer.deal(ada)
    now = time.monotonic()
    for seconds, free in ((LEASE - 1, False), (LEASE + 1, True)):
        ada.seen = now - seconds
        assert ada.cards.keys() <= open_sessions.taken(ada)  # a session keeps its own cards
        assert (not ada.cards.keys() & open_sessions.taken(bob)) is free
    dealer.deal(bob)
    assert bob.cards.keys() == ada.cards.keys()


def test_only_a_silent_session_makes_room_for_another():
    open_sessions = Sessions()
    keys = [open_sessions.begin(f"person {number}") for number in range(MOST_SESSIONS)]
    with pytest.raises(ConflictError, match="too many pages are open"):
        open_sessions.begin("Ada")
    open_sessions.find(keys[3]).seen -= LEASE + 1
    open_sessions.begin("Ada")
    with pytest.raises(ConflictError, match="not known to the server"):
        open_sessions.find(keys[3])
    assert open_sessions.find(keys[0]).person == "person 0"


@pytest.mark.parametrize("key", [None, 7, "unknown", ["a"]])
def test_an_unknown_session_is_refused(key):
    with pytest.raises(ConflictError, match="reload it"):
        Sessions().find(key)


# -- the dealer ------------------------------------------------------------------------------------


def test_the_last_card_of_every_block_is_a_second_opinion():
    """Bob checks again what Ada has labeled at random: one card in BLOCK, as long as there are."""
    open_sessions, ledger, pool, dealer = make_dealer()
    checked = [pool.keys[place] for place in pool.reserve.tolist()[:2]]
    for key in checked:
        answer(ledger, "Ada", key, RANDOM)
    bob = open_sessions.find(open_sessions.begin("Bob"))
    order = []
    for _ in range(3 * BLOCK):
        assert dealer.deal(bob)
        key = next(iter(bob.cards))
        order.append(key)
        answer(ledger, "Bob", bob.cards.pop(key).key, RANDOM if key in checked else UNCERTAIN)
    places = [order.index(key) for key in checked]
    assert places == [BLOCK - 1, 2 * BLOCK - 1]


def test_no_one_checks_their_own_labels():
    open_sessions, ledger, pool, dealer = make_dealer()
    checked = pool.keys[int(pool.reserve[0])]
    answer(ledger, "Ada", checked, RANDOM)
    ada = open_sessions.find(open_sessions.begin("Ada"))
    for _ in range(2 * BLOCK):
        assert dealer.deal(ada)
        key = next(iter(ada.cards))
        assert key != checked
        answer(ledger, "Ada", ada.cards.pop(key).key)


def test_a_person_waits_while_a_round_is_chosen():
    open_sessions, _, _, dealer = make_dealer()
    rounds = dealer._background.learner.rounds
    ada = open_sessions.find(open_sessions.begin("Ada"))
    cards = rounds.pop(round_at(0))
    assert not dealer.deal(ada)
    rounds[round_at(0)] = cards
    assert dealer.deal(ada)
    assert list(ada.cards) == [card.key for card in cards[:IN_HAND]]


def test_people_who_only_joined_are_not_listed():
    open_sessions, ledger, pool, dealer = make_dealer()
    answer(ledger, "Ada", pool.keys[0])
    dealer.deal(open_sessions.find(open_sessions.begin("Bob")))
    assert ledger.people == ["Ada"]


@pytest.mark.parametrize("kind", [LABEL, SKIP])
def test_a_card_that_was_answered_on_another_page_is_taken_away(kind):
    open_sessions, ledger, _, dealer = make_dealer()
    pages = [open_sessions.find(open_sessions.begin("Ada")) for _ in range(2)]
    dealer.deal(pages[0])
    key = next(iter(pages[0].cards))
    answer(ledger, "Ada", key)
    del pages[0].cards[key]
    ledger.apply(Event(UNDO, "2026-01-01", "Ada", *key))
    for page in pages:  # both show it again
        assert dealer.deal(page)
        assert next(iter(page.cards)) == key
    event = Event(kind, "2026-01-01", "Ada", *key, "", "a" if kind == LABEL else "", why=UNCERTAIN)
    ledger.apply(event)
    del pages[0].cards[key]
    assert dealer.deal(pages[1])
    assert key not in pages[1].cards
    assert len(pages[1].cards) == IN_HAND
