"""The pool, the queue and the learner: functions of the files and the label log only."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from seqmed.labeling import queue
from seqmed.labeling.events import Event, LabelingError, RowKey
from seqmed.labeling.learner import LabelLearner
from seqmed.labeling.ledger import Ledger
from seqmed.labeling.queue import Card, choose_round, due, round_at, why_asked
from seqmed.labeling.rows import CHECK_SHARE, Pool, row_ranks
from tests.support.labeling import TableRows, clouds, new_model, replayed
from tests.support.state import state_bits


def numbered(n_rows, text=""):
    return pa.table({"n": np.arange(n_rows), "text": [text] * n_rows})


def keys(pool):
    return [pool.keys[place] for place in pool.candidates.tolist()]


def make_events(learner: LabelLearner, truth, n_events: int, seed=0) -> list[Event]:
    """Answer the cards of a learner, with some changes, and return the events."""
    generator, events, ledger = np.random.default_rng(seed), [], Ledger()
    learner.begin()
    while len(events) < n_events:
        cards = learner.rounds[round_at(ledger.n_answers)]
        card = next(card for card in cards if not ledger.row(card.key).answered)
        asked = {"why": card.why, "guess": card.guess, "probability": card.probability}
        event = Event("label", "t", "Ada", *card.key, "", truth[card.key.row - 1])._replace(**asked)
        labeled = [key for key, row in ledger.rows.items() if row.given]
        draw = generator.random()
        if labeled and draw < 0.3:
            key = labeled[int(generator.integers(len(labeled)))]
            event = Event("withdraw", "t", "Ada", *key)
            if draw < 0.1:
                event = Event("change", "t", "Ada", *key, "", "virginica")
            elif draw < 0.2:
                event = Event("undo", "t", "Ada", *key)
        elif draw > 0.95:
            event = event._replace(event="skip", label="")
        ledger.apply(event)
        learner.learn(event)
        events.append(event)
    return events


# -- the pool --------------------------------------------------------------------------------------


def test_the_pool_does_not_depend_on_how_the_files_are_read():
    table = numbered(500)
    first = Pool(TableRows(table, piece=7), size=50)
    second = Pool(TableRows(table, piece=500), size=50)
    assert keys(first) == keys(second)
    assert len(first) == 50
    assert first.n_rows == 500
    places = [first.place(key) for key in keys(first)]
    numbers = first.take(places).column("n").to_pylist()
    assert numbers == [key.row - 1 for key in keys(first)]


def test_the_pool_is_a_uniform_sample():
    counts = np.zeros(40)
    for seed in range(300):
        counts[
            [key.row - 1 for key in keys(Pool(TableRows(numbered(40)), size=10, seed=seed))]
        ] += 1
    # each row is in a quarter of the pools: 75 of 300, standard deviation 7.5
    assert np.all(np.abs(counts - 75) < 4.5 * 7.5)
    ranks = row_ranks("rows.csv", np.arange(1, 10_001), 0)
    assert np.all(np.abs(np.histogram(ranks, 10, (0, 1))[0] - 1000) < 150)


def test_the_pool_holds_a_limited_number_of_bytes():
    pool = Pool(TableRows(numbered(300, "x" * 1000), piece=20), size=200, n_bytes=50_000)
    assert 40 <= len(pool) <= 50
    assert pool.table.nbytes < 60_000


def test_labeled_rows_are_not_asked_and_wanted_rows_are_found():
    wanted = [RowKey("rows.csv", 3), RowKey("rows.csv", 77)]
    source = TableRows(numbered(100), labeled=[3])
    pool = Pool(source, wanted, size=10)
    assert all(key in pool for key in wanted)
    assert wanted[0] not in keys(pool)
    with pytest.raises(LabelingError, match=r"row 200 of rows\.csv, which is not in the data"):
        Pool(source, [RowKey("rows.csv", 200)])


def test_reserved_rows_are_the_share_of_random_checks():
    pool = Pool(TableRows(numbered(100)))
    assert pool.reserve.size == 100 * CHECK_SHARE
    assert not set(pool.reserve) & set(pool.free)
    # those of lowest rank: a uniform sample that does not depend on the model
    assert pool.reserve.tolist() == pool.candidates[:20].tolist()


def test_files_that_store_a_column_in_other_types_are_joined():
    class Two:
        def __iter__(self):
            yield from TableRows(pa.table({"a": [1, 2]}), "one.csv")
            yield from TableRows(pa.table({"a": ["x", None], "b": [1.5, 2.0]}), "two.csv")

    pool = Pool(Two())
    assert pool.cells(RowKey("one.csv", 2)) == {"a": "2"}
    assert pool.cells(RowKey("two.csv", 1)) == {"a": "x", "b": "1.5"}


# -- rounds ----------------------------------------------------------------------------------------


def test_every_position_has_a_round_that_is_chosen_before():
    for position in range(200):
        number = round_at(position)
        assert due(number) <= max(0, position - queue.LAG)
        assert round_at(position + 1) in (number, number + 1)


def test_one_card_in_five_is_a_random_check():
    table, _ = clouds(300)
    pool = Pool(TableRows(table))
    model = new_model(table)
    cards = choose_round(model, pool, 0, set(), ())
    assert len({card.key for card in cards}) == len(cards) == queue.LENGTH
    for start in range(0, queue.LENGTH, queue.BLOCK):
        block = cards[start : start + queue.BLOCK]
        assert [card.why for card in block].count("random") == 1
    checks = [pool.place(card.key) for card in cards if card.why == "random"]
    assert checks == pool.reserve[: len(checks)].tolist()
    assert all(pool.place(c.key) in set(pool.free) for c in cards if c.why != "random")
    # rows that were answered, and those that come before, are left out
    taken = {card.key for card in cards[10:]}
    again = {card.key for card in choose_round(model, pool, 1, taken, cards)}
    assert not again & {card.key for card in cards}


def test_all_rows_are_asked_at_last():
    table, _ = clouds(40)
    pool = Pool(TableRows(table))
    taken: set[RowKey] = set()
    model = new_model(table)
    for number in range(20):
        cards = choose_round(model, pool, number, taken, ())
        taken |= {card.key for card in cards}
        if not cards:
            break
    assert len(taken) == 40


def test_cards_survive_json():
    card = Card(RowKey("rows.csv", 3), "random", (("a", 0.75), ("b", 0.25)))
    stored = queue.rounds_to_json({4: (card,)})
    assert queue.rounds_from_json(stored) == {4: (card,)}


def test_why_a_row_is_asked():
    margins, deviations = np.array([0.0, 0.9, 0.5]), np.array([0.1, 0.9, 0.5])
    assert why_asked(margins, deviations, np.array([0, 1])) == ["uncertain", "unlike"]
    assert why_asked(np.zeros(3), deviations, np.array([0])) == ["unlike"]


# -- the learner -----------------------------------------------------------------------------------


def test_replaying_the_log_gives_the_same_model_and_queue_to_the_bit():
    table, truth = clouds(150)
    learner = LabelLearner(new_model(table), Pool(TableRows(table)))
    events = make_events(learner, truth, 60)
    assert {event.event for event in events} >= {"label", "change", "withdraw", "undo"}
    again = replayed(table, events)
    assert state_bits(again.model) == state_bits(learner.model)
    assert again.to_json() == learner.to_json()
    assert not learner.kept_labels


def test_a_learner_that_was_saved_anywhere_continues_in_the_same_way():
    table, truth = clouds(150)
    learner = LabelLearner(new_model(table), Pool(TableRows(table)))
    events = make_events(learner, truth, 40)
    for stop in (0, 1, 4, 5, 6, 23, 39, 40):
        first = replayed(table, events[:stop])
        second = LabelLearner(first.model, Pool(TableRows(table)))
        second.resume(events, first.progress())
        second.begin()
        for event in events[stop:]:
            second.learn(event)
        assert state_bits(second.model) == state_bits(learner.model)
        assert second.to_json() == learner.to_json()


def test_another_log_is_refused():
    table, truth = clouds(150)
    learner = LabelLearner(new_model(table), Pool(TableRows(table)))
    events = make_events(learner, truth, 12)
    progress = learner.progress()
    other = [events[0]._replace(time="later"), *events[1:]]
    with pytest.raises(LabelingError, match="another label log"):
        LabelLearner(learner.model, learner.pool).resume(other, progress)
    with pytest.raises(LabelingError, match="another label log"):
        LabelLearner(learner.model, learner.pool).resume(events[:3], progress)


def test_files_that_have_grown_give_new_rounds():
    table, truth = clouds(150)
    learner = LabelLearner(new_model(table), Pool(TableRows(table)))
    events = make_events(learner, truth, 32)
    grown = pa.concat_tables([table, clouds(100, seed=1)[0]])
    again = LabelLearner(learner.model, Pool(TableRows(grown)))
    again.resume(events, learner.progress())
    again.begin()
    cards = again.rounds[round_at(again.ledger.n_answers)]
    assert any(card.key.row > 150 for card in cards)
    answered = {key for key, row in again.ledger.rows.items() if row.answered}
    assert not {card.key for card in cards} & answered
    assert again.changes == learner.changes


def test_the_model_has_the_labels_of_the_ledger():
    table, truth = clouds(150)
    learner = LabelLearner(new_model(table), Pool(TableRows(table)))
    make_events(learner, truth, 60)
    counts = learner.model.steps[-1][1]._state.counts.counts
    counts = dict(zip(learner.model.classes_.tolist(), counts.tolist(), strict=True))
    assert counts == {label: n for label, n in learner.ledger.classes.items() if n}


def test_a_disputed_row_is_not_learned_until_it_is_settled():
    table, _ = clouds(60)
    rows = [Event("label", "t", "Ada", "rows.csv", n, "", "x" if n % 2 else "y") for n in (1, 2, 3)]
    dispute = Event("label", "t", "Bo", "rows.csv", 3, "", "y")
    settled = Event("settle", "t", "Bo", "rows.csv", 3, "", "y")
    counts = []
    for events in (rows, [*rows, dispute], [*rows, dispute, settled]):
        learner = replayed(table, events)
        counts.append(learner.model.steps[-1][1]._state.counts.counts.sum())
    assert counts == [3, 2, 3]


def test_a_label_that_has_left_the_window_is_kept_and_reported():
    table, truth = clouds(60)
    events = [Event("label", "t", "Ada", "rows.csv", n, "", truth[n - 1]) for n in range(1, 21)]
    first = events[0]
    other = "setosa" if first.label != "setosa" else "virginica"
    events.append(first._replace(event="change", label=other))
    learner = replayed(table, events, new_model(table, window=5))
    assert learner.kept_labels == {first.key: first.label}
    # when the person returns to the old label, model and log agree again
    events.append(first._replace(event="change"))
    learner = replayed(table, events, new_model(table, window=5))
    assert learner.kept_labels == {}
    assert learner.model.steps[-1][1]._state.counts.counts.sum() == 20


def test_probes_measure_what_labels_change():
    table, truth = clouds(150)
    events = [Event("label", "t", "Ada", "rows.csv", n, "", truth[n - 1]) for n in range(1, 131)]
    learner = replayed(table, events)
    labels = [entry[0] for entry in learner.changes]
    assert labels == list(range(20, 131, 10))
    assert [entry[2] is None for entry in learner.changes] == [True] * 9 + [False] * 3
    assert all(0 <= entry[1] <= 1 for entry in learner.changes)
