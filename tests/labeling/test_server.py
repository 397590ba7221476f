"""The server: who may ask, what is refused, and that refusals change nothing."""

from __future__ import annotations

import csv
import json
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from seqmed import SeqMED, make_stream_pipeline
from seqmed.labeling import learner
from seqmed.labeling.ledger import Ledger
from seqmed.labeling.log import LabelLog
from seqmed.labeling.server import LARGEST_BODY, Guard
from tests.support.labeling import Site, clouds, new_model, replayed
from tests.support.state import state_bits

TABLE, TRUTH = clouds(200)


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, TABLE) as made:
        yield made


def truth(row):
    return TRUTH[row - 1]


def content(site):
    return site.log.path.read_bytes()


def wait_for_learner(site):
    while site.background.n_learned < len(site.log.events):
        assert site.background.trouble is None
        time.sleep(0.01)


# -- labeling --------------------------------------------------------------------------------------


def test_labels_are_on_the_disk_when_they_are_confirmed(site):
    ada = site.person()
    for number in range(1, 13):
        card = ada.label(truth)
        with LabelLog(site.log.path) as log:
            assert len(log.events) == number
            assert log.events[-1].key[:2] == (card["file"], card["row"])
            assert log.events[-1].label == truth(card["row"])


def test_the_next_card_is_the_one_that_was_prefetched(site):
    ada = site.person()
    for _ in range(30):
        ada.wait_for(2)
        following = ada.cards[1]
        ada.label(truth)
        assert (ada.cards[0]["row"], ada.cards[0]["why"]) == (following["row"], following["why"])


def test_a_new_server_continues_with_the_same_cards(tmp_path):
    rows = []
    for _ in range(4):
        with Site(tmp_path, TABLE) as site:
            ada = site.person()
            ada.wait_for(len(rows))
            assert [card["row"] for card in ada.cards][: len(rows)] == rows
            for _ in range(7):
                ada.label(truth)
            rows = [card["row"] for card in ada.cards]
            wait_for_learner(site)
            model, events = site.background.learner.model, list(site.log.events)
    assert len(events) == 28
    assert state_bits(replayed(TABLE, events).model) == state_bits(model)


def test_undo_shows_the_card_again_also_after_a_restart(tmp_path):
    with Site(tmp_path, TABLE) as site:
        ada = site.person()
        cards = [ada.label(truth) for _ in range(3)]
        assert ada.act("skip", ada.cards[0])[0] == 200
        for _ in range(2):
            assert ada.act("undo")[0] == 200
        assert ada.cards[0]["row"] == cards[-1]["row"]
        assert ada.cards[0]["again"]
        assert site.get("status")["labels"] == 2
        row = ada.cards[0]["row"]
    with Site(tmp_path, TABLE) as site:
        ada = site.person()
        assert ada.cards[0]["row"] == row
        ada.label(truth)
        assert ada.act("undo")[0] == 200
        assert ada.act("undo")[0] == 200
        assert ada.act("undo")[0] == 200
        status, answer = ada.act("undo")
        assert (status, answer["error"]) == (422, "there is no answer to undo")
        assert site.get("status")["labels"] == 0


def test_history_change_and_withdraw(site):
    ada = site.person()
    for _ in range(8):
        ada.label(truth)
    found = site.get("history?search=setosa")
    assert all("setosa" in row["label"] for row in found["rows"])
    row = site.get("history")["rows"][3]
    assert ada.act("label", row, label="changed")[0] == 200
    assert ada.act("withdraw", row)[0] == 409  # the row has changed since
    row = next(each for each in site.get("history")["rows"] if each["row"] == row["row"])
    assert row["label"] == "changed"
    assert ada.act("withdraw", row)[0] == 200
    assert site.get("status")["labels"] == 7
    assert [event.event for event in site.log.events[-2:]] == ["change", "withdraw"]
    assert site.get("history")["total"] == 7


def test_two_people_lose_nothing_and_settle(site):
    people = [site.person("Ada"), site.person("Bo")]

    def work(person):
        for _ in range(25):
            person.label(lambda row: truth(row) if person is people[0] or row % 4 else "odd")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, people))
    with LabelLog(site.log.path) as log:
        events = log.events
    assert len(events) == 50
    assert Ledger(events).rows == site.desk.ledger.rows
    twice = [row for row in site.desk.ledger.rows.values() if len(row.given) == 2]
    assert twice  # random checks are labeled by both
    assert all(row.asked.why == "random" for row in twice)
    status = site.get("status")
    assert status["agreement"][0]["n"] == len(twice)
    disputes = site.get("history?only=disputes")["rows"]
    assert len(disputes) == status["disputes"] == sum(row.disputed for row in twice)
    for row in disputes:
        assert people[0].act("settle", row, label=truth(row["row"]))[0] == 200
    assert site.get("status")["disputes"] == 0


def test_a_skipped_row_is_labeled_from_the_history(site):
    ada = site.person()
    ada.label(truth)
    assert ada.act("skip", ada.cards[0])[0] == 200
    (row,) = site.get("history?only=skipped")["rows"]
    assert ada.act("label", row, label="later")[0] == 200
    assert site.get("history?only=skipped")["total"] == 0
    assert site.get("status")["labels"] == 2


def test_a_card_is_in_one_hand_only(site):
    hands = [{card["row"] for card in site.person(f"P{n}").cards} for n in range(5)]
    assert len(set.union(*hands)) == 10


def test_two_pages_of_one_person_do_not_block_each_other(site):
    pages = [site.person("Ada"), site.person("Ada")]
    row = pages[0].label(truth)["row"]
    assert pages[0].act("undo")[0] == 200
    for page in pages:
        page.look()
        assert page.cards[0]["row"] == row
    assert pages[0].act("label", pages[0].cards[0], label="x")[0] == 200
    status, answer = pages[1].act("label", pages[1].cards[0], label="y")
    assert (status, answer["error"]) == (
        409,
        "this row has changed since you saw it: look at it again",
    )
    pages[1].look()
    assert row not in [card["row"] for card in pages[1].cards]
    assert pages[1].label(truth)["row"] != row
    assert site.get("status")["labels"] == 2
    assert site.get("status")["people"] == [["Ada", 2]]


def test_people_who_only_joined_are_not_listed(site):
    site.person("Bo")
    site.person("Ada").label(truth)
    assert site.get("status")["people"] == [["Ada", 1]]


def test_counts_and_accuracy_include_the_labels_of_before(tmp_path):
    names = [*TRUTH[:90], *[None] * 110]
    model = new_model(TABLE).partial_fit(TABLE, names)
    with Site(tmp_path, TABLE.slice(90), model) as site:
        before, ada = dict(site.get("status")["classes"]), site.person()
        assert site.get("status")["earlier"] == 90
        given = Counter(
            TRUTH[89 + ada.label(lambda row: TRUTH[89 + row])["row"]] for _ in range(30)
        )
        status = site.get("status")
        assert status["labels"] == 30
        assert before == {}  # no class is offered yet
        expected = Counter(TRUTH[:90]) + given
        assert dict(status["classes"]) == {name: expected[name] for name in given}
        # with 120 labels, the model had two thirds of them from the beginning
        checks = [event for event in site.log.events if event.why == "random"]
        assert status["checks"]["n"] == len(checks) == 6


def test_classes_have_any_name(tmp_path):
    with Site(tmp_path, TABLE, classes=["=1+1", "@home"]) as site:
        ada = site.person()
        for label in ("@home", "@work"):
            assert ada.act("label", ada.cards[0], label=label)[0] == 200
        names = [name for name, _ in site.get("status")["classes"]]
        assert names == ["=1+1", "@home", "@work"]
        cells = [cell for row in csv.reader(content(site).decode().splitlines()) for cell in row]
        assert {"'@home", "'@work"} < set(cells)


def test_all_rows_are_asked_once_by_one_person(tmp_path):
    table, classes = clouds(23)
    with Site(tmp_path, table) as site:
        ada = site.person()
        rows = []
        while ada.cards:
            rows.append(ada.label(lambda row: classes[row - 1])["row"])
        assert sorted(rows) == list(range(1, 24))


def test_a_prediction_is_explained_by_rows_of_the_user(tmp_path):
    with Site(tmp_path, TABLE, shown=["a", "b"]) as site:
        ada = site.person()
        while len({truth(each.key.row) for each in site.log.events}) < 3 or ada.number < 20:
            ada.label(truth)
        wait_for_learner(site)
        before = content(site), state_bits(site.background.learner.model)
        file, row = (ada.cards[0][name] for name in ("file", "row"))
        found = site.get(f"explanation?file={file}&row={row}")
        model = site.background.learner.model
        (expected,) = model.explain(TABLE.slice(row - 1, 1))
        assert found["label"] == expected.label
        assert found["probability"] == pytest.approx(expected.probability)
        place = expected.classes.index(expected.label)
        assert [(each["name"], each["weight"]) for each in found["members"]] == [
            (each.name, pytest.approx(each.weight)) for each in expected.members
        ]
        assert [each["probability"] for each in found["members"]] == pytest.approx(
            [each.probabilities[place] for each in expected.members]
        )
        assert [each["expert"] for each in found["votes"]] == [v.expert for v in expected.votes]
        labeled = {
            (*(str(TABLE[name][event.row - 1].as_py()) for name in "ab"), event.label)
            for event in site.log.events
        }
        parts = [part for vote in found["votes"] for part in vote["rows"]]
        assert parts
        for part in parts:
            assert [*part["row"]] == ["a", "b"]
            assert (*part["row"].values(), part["label"]) in labeled
        assert (content(site), state_bits(site.background.learner.model)) == before


def test_an_explanation_needs_two_classes_and_a_row(site):
    ada = site.person()
    card = ada.cards[0]
    path = f"explanation?file={card['file']}&row={card['row']}"
    assert refused(site, "GET", path) == 422
    ada.act("label", card, label="only")
    wait_for_learner(site)
    assert refused(site, "GET", path) == 422
    for other in ("explanation", "explanation?file=rows.csv&row=9999", "explanation?row=x"):
        assert refused(site, "GET", other) == 422
    assert refused(site, "GET", path, headers={"Origin": "http://example.org"}) == 403
    assert refused(site, "GET", f"/wrong/{path}") == 403


def test_a_model_without_explanations_says_so(tmp_path):
    model = make_stream_pipeline(SeqMED(random_state=0)).partial_fit(TABLE, TRUTH)
    with Site(tmp_path, TABLE, model) as site:
        assert refused(site, "GET", "explanation?file=rows.csv&row=1") == 422


def test_labels_are_downloaded(site):
    ada = site.person()
    for _ in range(5):
        ada.label(truth)
    ada.act("undo")
    lines = site.request("GET", "labels.csv")[2].decode().splitlines()
    assert lines[0] == "file,row,digest,id,label"
    assert len(lines) == 5


def test_the_files_of_the_page_are_served(site):
    kinds = {"": "text/html", "app.js": "text/javascript", "style.css": "text/css"}
    for path, kind in kinds.items():
        status, headers, body = site.request("GET", path)
        assert (status, headers["content-type"].split(";")[0]) == (200, kind)
        assert body


# -- refusals --------------------------------------------------------------------------------------


def refused(site, *arguments, **options):
    """Send a request that must be refused, and check that it changed nothing."""
    before = content(site), site.desk.ledger.digest
    status, headers, body = site.request(*arguments, **options)
    assert (content(site), site.desk.ledger.digest) == before
    assert status >= 400
    assert "default-src 'none'" in headers["content-security-policy"]
    assert set(json.loads(body)) == {"error"}
    return status


def answer_of(person, **more):
    card = person.cards[0]
    body = {"session": person.session, "number": person.number + 1, "action": "label", "label": "x"}
    return {**{name: card[name] for name in ("file", "row", "version")}, **body, **more}


@pytest.mark.parametrize("path", ["/", "/wrong/", "/wrong/status", "//", "/%2e%2e/", "/app.js"])
def test_requests_without_the_token_are_refused(site, path):
    assert refused(site, "GET", path) == 403


@pytest.mark.parametrize(
    "host",
    ["example.org", "example.org:{port}", "127.0.0.1", "127.0.0.1:1", "10.0.0.1:{port}", "",
     "127.0.0.1:{port}@example.org", "localhost.example.org:{port}", "user@127.0.0.1:{port}"],
)  # fmt: skip
def test_another_host_is_refused(site, host):
    host = host.format(port=site.host.split(":")[1])
    ada = site.person()
    assert refused(site, "GET", "status", headers={"Host": host}) == 421
    body = answer_of(ada)
    assert refused(site, "POST", "act", body, headers={"Host": host}) == 421


@pytest.mark.parametrize(
    "origin",
    [None, "null", "http://example.org", "https://{host}", "http://{host}.example.org", ""],
)
def test_another_origin_is_refused(site, origin):
    ada = site.person()
    origin = origin and origin.format(host=site.host)
    assert refused(site, "POST", "act", answer_of(ada), headers={"Origin": origin}) == 403
    if origin:
        assert refused(site, "GET", "status", headers={"Origin": origin}) == 403


def test_requests_that_are_too_large_are_refused(site):
    ada = site.person()
    large = answer_of(ada, label="x" * LARGEST_BODY)
    assert refused(site, "POST", "act", large) == 413
    long = {"Content-Length": "9" * 5000}
    assert site.request("POST", "act", raw=b"{}", headers=long)[0] == 400  # by the server itself
    assert refused(site, "POST", "act", answer_of(ada, label="x" * 201)) == 422


def test_a_body_that_is_longer_than_announced_is_refused(site):
    port = int(site.host.split(":")[1])
    head = (
        f"POST {site.path}act HTTP/1.1\r\nHost: {site.host}\r\nOrigin: http://{site.host}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(head.encode() + b"ffff\r\n" + b" " * 0xFFFF + b"\r\n0\r\n\r\n")
        assert b" 413 " in connection.recv(65536).splitlines()[0]
    assert content(site).count(b"\n") == 1


def test_repeated_and_disordered_requests_are_refused(site):
    ada = site.person()
    first = answer_of(ada)
    assert site.post("act", first)[0] == 200
    assert refused(site, "POST", "act", first) == 409  # replayed
    assert refused(site, "POST", "act", {**first, "number": 2}) == 409  # the card is gone
    ada.number = 1
    ada.look()
    for number in (0, 1, 3, -1, 2**70, "2", 2.0, True, None):
        assert refused(site, "POST", "act", answer_of(ada, number=number)) == 409
    assert refused(site, "POST", "act", answer_of(ada, version=7)) == 409
    assert site.post("act", answer_of(ada))[0] == 200


def test_rows_that_were_not_asked_are_refused(site):
    ada = site.person()
    free = next(n for n in range(1, 200) if n not in [card["row"] for card in ada.cards])
    for row, file in (
        (free, "rows.csv"),
        (10**6, "rows.csv"),
        (1, "../rows.csv"),
        ("1", 1),
        (None, None),
    ):
        body = answer_of(ada, row=row, file=file, version=0)
        assert refused(site, "POST", "act", body) in (409, 422)


@pytest.mark.parametrize(
    "change",
    [{"session": "wrong"}, {"session": None}, {"action": "delete"}, {"action": None}, {"label": ""},
     {"label": None}, {"label": "a\nb"}, {"label": ["x"]}, {"label": "\x00"},
     {"action": "settle"}, {"action": "withdraw"}],
)  # fmt: skip
def test_wrong_requests_are_refused(site, change):
    assert refused(site, "POST", "act", answer_of(site.person(), **change)) in (409, 422)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"nul\x00", b"\xff\xfe", b"[" * 10_000])
def test_requests_that_are_no_json_objects_are_refused(site, raw):
    assert refused(site, "POST", "act", raw=raw) == 422


def test_other_paths_and_methods_are_refused(site):
    for path in ("nothing", "../desk.py", "%2e%2e%2fdesk.py", "act", "row"):
        assert refused(site, "GET", path) in (404, 405, 422)
    for method in ("PUT", "DELETE", "PATCH"):
        assert refused(site, method, "act") == 405


def test_no_answer_names_a_path_of_the_machine(site, tmp_path):
    ada = site.person()
    ada.label(truth)
    paths = [
        "", "app.js", "status", "history", "labels.csv", "nothing",
        f"cards?session={ada.session}", "row?file=rows.csv&row=0", "history?start=x",
    ]  # fmt: skip
    for path in paths:
        _, headers, body = site.request("GET", path)
        text = body.decode() + json.dumps(headers)
        assert str(tmp_path) not in text
        assert "site-packages" not in text
        assert "Traceback" not in text


def test_a_full_disk_is_reported_and_nothing_changes(site, monkeypatch):
    ada = site.person()

    def full(events):
        raise OSError(28, "No space left on device", "/some/where")

    with monkeypatch.context() as patch:
        patch.setattr(site.log, "append", full)
        status, answer = ada.act("label", ada.cards[0], label="x")
    assert status == 507
    assert "/some/where" not in answer["error"]
    assert ada.act("label", ada.cards[0], label="x")[0] == 200


def test_remote_machines_are_refused_unless_allowed():
    def own(host, **options):
        return Guard(None, "t", 80, ("localhost", "127.0.0.1"), **options).is_own(host)

    assert own("127.0.0.1", remote=False)
    assert own("LOCALHOST:80", remote=False)
    assert not own("192.168.0.1", remote=False)
    assert own("192.168.0.1", remote=True)
    assert not own("example.org", remote=True)


def test_cells_are_sent_as_text(tmp_path):
    cells = ["<script>alert(1)</script>", "\x00\x07\x1b", "\u202eabc", "x" * 300_000, "&amp;"] * 4
    table = TABLE.slice(0, 20).append_column("text", pa.array(cells))
    with Site(tmp_path, table, new_model(table.drop_columns(["text"]))) as site:
        ada = site.person()
        seen = set()
        for _ in range(20):
            card = ada.cards[0]
            text = next(cell for cell in card["cells"] if cell["name"] == "text")
            assert text["text"] == cells[card["row"] - 1]
            seen.add(text["text"][:5])
            ada.label(truth)
        assert len(seen) == 5


def test_a_learner_that_fails_is_reported_and_labels_are_still_saved(tmp_path, monkeypatch):
    site = Site(tmp_path, TABLE)

    def broken(*arguments, **options):
        raise RuntimeError("a defect")

    def work():
        with site:
            ada = site.person()
            for _ in range(20):
                ada.label(truth)
            assert site.get("status")["trouble"]

    monkeypatch.setattr(site.background.learner, "_update", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        work()
    assert content(site).count(b"\n") == 21


def test_a_full_disk_stops_the_saves_only_while_it_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(learner, "PAUSE", 0.0)
    full, saved = [True], []

    def save(learner):
        if full:
            raise OSError(28, "No space left on device", "/some/where")
        saved.append(learner.ledger.n_events)

    def wait_for(holds):
        while not holds(site.get("status")):
            time.sleep(0.01)

    with Site(tmp_path, TABLE, save=save) as site:
        ada = site.person()
        for _ in range(12):
            ada.label(truth)
        wait_for(lambda status: status["unsaved"])
        for _ in range(8):
            ada.label(truth)  # and the model goes on learning
        wait_for(lambda status: not status["waiting"])
        status = site.get("status")
        assert status["unsaved"] == "No space left on device"
        assert (site.background.n_saved, status["trouble"]) == (0, False)
        full.clear()
        wait_for(lambda status: site.background.n_saved == 20 and not status["unsaved"])
        full.append(True)
        ada.label(truth)
        wait_for(lambda status: status["unsaved"])
        full.clear()
    assert saved[-1] == 21  # Ctrl-C saves


def test_a_disk_that_is_full_to_the_end_is_an_error(tmp_path):
    def save(learner):
        raise OSError(28, "No space left on device", "/some/where")

    site = Site(tmp_path, TABLE, save=save)
    with pytest.raises(OSError, match="No space left"), site:
        site.person().label(truth)
    assert content(site).count(b"\n") == 2


def test_ids_and_classes_with_control_characters_leave_a_log_that_can_be_read(tmp_path):
    ids = [f"a\x00\n{number}\u2028" for number in range(20)]
    table = TABLE.slice(0, 20)
    model = new_model(table)
    odd = ["x\ny", "=1+1"] * 10
    model.partial_fit(table, odd, new_points=False)
    with Site(tmp_path, table.append_column("id", pa.array(ids)), model, id_name="id") as site:
        ada = site.person()
        for _ in range(12):
            ada.label(truth)
    with LabelLog(site.log.path) as log:
        assert len(log.events) == 12
        assert {event.guess for event in log.events} <= {"x y", "=1+1", *TRUTH}
        assert all(event.id.startswith("a  ") for event in log.events)
