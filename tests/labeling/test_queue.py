"""The pool, the queue and the learner: functions of the files and the label log only."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from seqmed.cli.label_log import file_names
from seqmed.labeling import pool as pool_module
from seqmed.labeling import queue
from seqmed.labeling.learner import LabelLearner
from seqmed.labeling.ledger import Ledger
from seqmed.labeling.log import DIGEST, Event, LabelingError, RowKey
from seqmed.labeling.pool import CHECK_SHARE, Pool, row_digests, row_ranks
from seqmed.labeling.queue import choose_round, round_at, why_asked
from tests.support.labeling import TableRows, clouds, key_at, new_model, replayed
from tests.support.state import state_bits


def numbered(n_rows, text=""):
    return pa.table({"n": np.arange(n_rows), "text": [text] * n_rows})


def keys(pool):
    return [pool.keys[place] for place in pool.candidates.tolist()]


def make_events(learner: LabelLearner, truth, n_events: int, seed=0) -> list[Event]:
    """Answer the cards of a learner, with some changes, and return the events."""
    generator, events, ledger = np.random.default_rng(seed), [], Ledger()
    learner.choose_rounds()
    while len(events) < n_events:
        cards = learner.rounds[round_at(ledger.n_answers)]
        card = next(card for card in cards if not ledger.row(card.key).people)
        guess, probability = card.probabilities[0] if card.probabilities else ("", None)
        asked = {"why": card.why, "guess": guess, "probability": probability}
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


def labels_of(table, truth, n_rows) -> list[Event]:
    """Return the labels of the first rows of a table."""
    keys = (key_at(table, number) for number in range(1, n_rows + 1))
    return [Event("label", "t", "Ada", *key, "", truth[key.row - 1]) for key in keys]


# -- the pool --------------------------------------------------------------------------------------


def test_the_pool_does_not_depend_on_how_the_files_are_read(monkeypatch):
    table = numbered(500)
    monkeypatch.setattr(pool_module, "LARGEST_POOL", 50)
    first = Pool(TableRows(table, piece=7))
    second = Pool(TableRows(table, piece=500))
    assert keys(first) == keys(second)
    assert len(first.keys) == 50
    places = [first.places[key] for key in keys(first)]
    numbers = first.take(places).column("n").to_pylist()
    assert numbers == [key.row - 1 for key in keys(first)]


def test_the_pool_is_a_uniform_sample(monkeypatch):
    monkeypatch.setattr(pool_module, "LARGEST_POOL", 10)
    counts = np.zeros(40)
    for number in range(300):
        pool = Pool(TableRows(numbered(40), f"{number}.csv"))
        counts[[key.row - 1 for key in keys(pool)]] += 1
    # each row is in a quarter of the pools: 75 of 300, standard deviation 7.5
    assert np.all(np.abs(counts - 75) < 4.5 * 7.5)
    ranks = row_ranks("rows.csv", np.arange(1, 10_001))
    assert np.all(np.abs(np.histogram(ranks, 10, (0, 1))[0] - 1000) < 150)


def test_the_pool_holds_a_limited_number_of_bytes(monkeypatch):
    monkeypatch.setattr(pool_module, "LARGEST_BYTES", 50_000)
    pool = Pool(TableRows(numbered(300, "x" * 1000), piece=20))
    assert 40 <= len(pool.keys) <= 50
    assert pool.table.nbytes < 60_000


def test_labeled_rows_are_not_asked_and_wanted_rows_are_found():
    table = numbered(100)
    wanted = [key_at(table, 3), key_at(table, 77)]
    pool = Pool(TableRows(table, labeled=range(1, 71)), wanted)
    assert all(key in pool.places for key in wanted)
    assert {key.row for key in keys(pool)} == set(range(71, 101))


class Files:
    """Tables of several files."""

    def __init__(self, **tables):
        self.tables = tables

    def __iter__(self):
        for name, table in self.tables.items():
            yield from TableRows(table, name, piece=7)


def test_rows_of_labels_are_found_by_their_cells(monkeypatch):
    table = numbered(50)
    wanted = [key_at(table, number, "old") for number in (1, 20, 50)]
    order = np.random.default_rng(0).permutation(50)
    sources = {
        "as it was": (TableRows(table, "old"), {1, 20, 50}),
        "renamed": (TableRows(table, "new"), {1, 20, 50}),
        "other columns first": (TableRows(table.select(["text", "n"]), "old"), {1, 20, 50}),
        "sorted": (TableRows(table.take(order), "new"), {1, 20, 50}),
        "others first": (Files(old=numbered(9, "x"), new=table), {1, 20, 50}),
        "other cells": (TableRows(numbered(50, "x"), "old"), set()),
        "cut": (TableRows(table.slice(0, 30), "old"), {1, 20}),
        "begins later": (TableRows(table.slice(1), "old"), {20, 50}),
    }
    for name, (source, there) in sources.items():
        for size in (3, 100):  # in the sample, or beside it
            monkeypatch.setattr(pool_module, "LARGEST_POOL", size)
            pool = Pool(source, wanted)
            assert {key.row for key in wanted if key in pool.places} == there, name
            for key in wanted:
                if key in pool.places:
                    assert pool.cells(key)["n"] == str(key.row - 1), name
                    assert pool.at[pool.where[key]] == key, name
            assert len(set(pool.keys)) == len(pool.keys), name


def test_equal_rows_are_different_rows():
    table = pa.table({"text": ["same", "other", "same", "same", "last"]})
    wanted = [key_at(table, number, "old") for number in (3, 4)]
    assert [Pool(TableRows(table, "old"), wanted).where[key] for key in wanted] == [
        ("old", 3), ("old", 4),
    ]  # fmt: skip
    pool = Pool(TableRows(table, "new"), wanted)
    assert [pool.where[key] for key in wanted] == [("new", 1), ("new", 3)]
    pool = Pool(TableRows(table.slice(3), "new"), wanted)
    assert sum(key in pool.places for key in wanted) == 1


def test_digests_of_rows():
    table = pa.table({"a": ["1", None, "x"], "b": ["2.5", " y ", "2024-01-01"]})
    digests = row_digests(table)
    assert len(set(digests)) == 3
    assert row_digests(table.select(["b", "a"])) == digests
    assert [row_digests(table.slice(place, 1))[0] for place in range(3)] == digests
    assert row_digests(table.append_column("c", pa.array(["", None, " "]))) == digests
    numbers = pa.table({"a": [1.0], "b": [2.5]})  # the same cells in another format
    assert row_digests(numbers) == digests[:1]
    assert row_digests(pa.table({"a": [1], "b": ["2.5"]})) == digests[:1]
    # a cell that is moved, joined or renamed is another row
    others = [{"a": ["2.5"], "b": ["1"]}, {"a": ["12.5"]}, {"a": ["1"], "c": ["2.5"]}]
    assert not {*digests} & {row_digests(pa.table(each))[0] for each in others}
    assert all(DIGEST.fullmatch(each) for each in digests)


def test_names_of_files_are_distinct_and_do_not_depend_on_their_order(tmp_path):
    inside = ["rows.csv", "may/rows.csv", "data/rows.csv", "a\nb.csv", "a b.csv"]
    outside = ["/x/rows.csv", "/x/data/rows.csv", "/y/data/rows.csv", "/rows.csv", "/y/b/c.csv"]
    paths = [*(str(tmp_path / name) for name in inside), *outside]
    names = file_names(paths, tmp_path)
    assert len(set(names)) == len(paths)
    assert names[:3] == inside[:3]
    assert names[5:] == [
        "x/rows.csv",
        "data/rows.csv (2)",
        "data/rows.csv (3)",
        "/rows.csv",
        "b/c.csv",
    ]
    assert file_names(paths[::-1], tmp_path) == names[::-1]
    assert not any(str(tmp_path) in name for name in names)


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
    assert pool.cells(pool.at["one.csv", 2]) == {"a": "2"}
    assert pool.cells(pool.at["two.csv", 1]) == {"a": "x", "b": "1.5"}


# -- rounds ----------------------------------------------------------------------------------------


def test_every_position_has_a_round_that_is_chosen_before():
    for position in range(200):
        number = round_at(position)
        assert queue.ROUND * number <= max(0, position - queue.LAG)
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
    checks = [pool.places[card.key] for card in cards if card.why == "random"]
    assert checks == pool.reserve[: len(checks)].tolist()
    assert all(pool.places[c.key] in set(pool.free) for c in cards if c.why != "random")
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
    assert again.progress() == learner.progress()
    assert not learner.kept_labels


def test_a_learner_that_was_saved_anywhere_continues_in_the_same_way():
    table, truth = clouds(150)
    learner = LabelLearner(new_model(table), Pool(TableRows(table)))
    events = make_events(learner, truth, 40)
    for stop in (0, 1, 4, 5, 6, 23, 39, 40):
        first = replayed(table, events[:stop])
        second = LabelLearner(first.model, Pool(TableRows(table)))
        second.resume(events, first.progress())
        second.choose_rounds()
        for event in events[stop:]:
            second.learn(event)
        assert state_bits(second.model) == state_bits(learner.model)
        assert second.progress() == learner.progress()


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
    again.choose_rounds()
    cards = again.rounds[round_at(again.ledger.n_answers)]
    assert any(card.key.row > 150 for card in cards)
    answered = {key for key, row in again.ledger.rows.items() if row.people}
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
    rows = [
        Event("label", "t", "Ada", *key_at(table, n), "", "x" if n % 2 else "y") for n in (1, 2, 3)
    ]
    dispute = Event("label", "t", "Bo", *key_at(table, 3), "", "y")
    settled = Event("settle", "t", "Bo", *key_at(table, 3), "", "y")
    counts = []
    for events in (rows, [*rows, dispute], [*rows, dispute, settled]):
        learner = replayed(table, events)
        counts.append(learner.model.steps[-1][1]._state.counts.counts.sum())
    assert counts == [3, 2, 3]


def test_a_label_that_has_left_the_window_is_kept_and_reported():
    table, truth = clouds(60)
    events = labels_of(table, truth, 20)
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


def test_a_label_that_the_model_refuses_is_left_out_and_reported(monkeypatch):
    table, truth = clouds(60)
    events = labels_of(table, truth, 12)
    model = new_model(table)
    learn, refused = model.partial_fit, events[4]

    def partial_fit(X, y, **options):
        if X.equals(table.slice(4, 1)):
            raise ValueError("refused")
        return learn(X, y, **options)

    monkeypatch.setattr(model, "partial_fit", partial_fit)
    events.append(refused._replace(event="withdraw", label=""))
    learner = replayed(table, events[:12], model)
    assert learner.kept_labels == {refused.key: None}
    again = LabelLearner(learner.model, learner.pool)
    again.resume(events, learner.progress())
    assert again.kept_labels == learner.kept_labels
    assert not again.earlier
    again.learn(events[12])
    assert again.kept_labels == {}
    assert again.model.steps[-1][1]._state.counts.counts.sum() == 11


def test_labels_that_the_model_had_before_are_counted_also_after_a_restart():
    table, truth = clouds(150)
    source = TableRows(table, labeled=range(1, 31))
    model = new_model(table, window=5).partial_fit(table, [*truth[:30], *[None] * 120])
    learner = LabelLearner(model, Pool(source))
    assert learner.earlier == Counter(truth[:30])
    events = make_events(learner, truth, 30)
    assert learner.kept_labels  # labels that left the window count as labels of the log
    again = LabelLearner(learner.model, Pool(source))
    again.resume(events, learner.progress())
    assert again.earlier == Counter(truth[:30])


def test_probes_measure_what_labels_change():
    table, truth = clouds(150)
    events = labels_of(table, truth, 130)
    learner = replayed(table, events)
    labels = [entry[0] for entry in learner.changes]
    assert labels == list(range(20, 131, 10))
    assert [entry[2] is None for entry in learner.changes] == [True] * 9 + [False] * 3
    assert all(0 <= entry[1] <= 1 for entry in learner.changes)
