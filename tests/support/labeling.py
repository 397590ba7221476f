"""Rows, models, a server in this process, and the `seqmed label` command for tests of labeling."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from seqmed import SeqGraphMED, SeqMED, StreamPipeline, make_stream_pipeline
from seqmed.labeling.desk import Desk
from seqmed.labeling.learner import Background, LabelLearner
from seqmed.labeling.log import LabelLog, RowKey
from seqmed.labeling.pool import FileRows, Pool, row_digests
from seqmed.labeling.server import Server
from tests.support import command

NAMES = ("setosa", "versicolor", "virginica")
INTENTS = [
    f"{subject}_{matter}"
    for subject in (
        "card_payment", "cash_withdrawal", "bank_transfer", "direct_debit", "exchange_rate",
        "top_up", "virtual_card", "identity_verification", "refund", "passcode", "contactless",
    )
    for matter in (
        "fee_charged", "not_recognised", "still_pending", "declined", "reverted",
        "exceeds_limit", "wrong_amount",
    )
]  # fmt: skip


class TableRows:
    """A source of rows in memory."""

    def __init__(self, table: pa.Table, file="rows.csv", piece=64, labeled=()):
        self.table, self.file, self.piece, self.labeled = table, file, piece, labeled

    def __iter__(self) -> Iterator[FileRows]:
        for start in range(0, self.table.num_rows, self.piece):
            part = self.table.slice(start, self.piece)
            numbers = np.arange(start + 1, start + 1 + part.num_rows)
            yield FileRows(self.file, numbers, part, np.isin(numbers, self.labeled))


def clouds(n_rows=120, seed=0) -> tuple[pa.Table, list[str]]:
    """Return a table of three overlapping clouds, and the class of every row."""
    generator = np.random.default_rng(seed)
    codes = generator.integers(3, size=n_rows)
    points = (generator.normal(size=(n_rows, 3)) + 2.5 * np.eye(3)[codes]).round(4)
    table = pa.table({name: points[:, place] for place, name in enumerate("abc")})
    return table, [NAMES[code] for code in codes]


def intents(n_rows, seed=0) -> tuple[pa.Table, list[str]]:
    """Return messages of 77 classes with long names, and the class of every message."""
    generator = np.random.default_rng(seed)
    codes = generator.integers(len(INTENTS), size=n_rows).tolist()
    ends = ("", ", please help", " since Monday", " and I do not know why", " once more", " today")
    texts = []
    for code in codes:
        words = INTENTS[code].split("_")
        if generator.random() < 0.3:  # one word is missing
            words.pop(int(generator.integers(len(words))))
        end = ends[int(generator.integers(len(ends)))]
        texts.append(f"My question is about the {' '.join(words)} in my account{end}.")
    return pa.table({"message": texts}), [INTENTS[code] for code in codes]


def new_model(table: pa.Table, window=None) -> StreamPipeline:
    """Return a model that has learned the rows of a table without labels."""
    final = SeqGraphMED(SeqMED(window=window, kernel="auto"), random_state=0)
    return make_stream_pipeline(final).partial_fit(table, np.full(table.num_rows, None))


def key_at(table: pa.Table, number: int, file="rows.csv") -> RowKey:
    """Return the key of the row with a number in a table."""
    return RowKey(file, number, *row_digests(table.slice(number - 1, 1)))


def replayed(table: pa.Table, events, model=None) -> LabelLearner:
    """Return the learner that replays a log from the beginning."""
    pool = Pool(TableRows(table), [event.key for event in events])
    learner = LabelLearner(new_model(table) if model is None else model, pool)
    learner.choose_rounds()
    for event in events:
        learner.learn(event)
    return learner


class Client:
    """Requests to a server.

    Parameters
    ----------
    address : address of the page.
    """

    def __init__(self, address: str):
        self.address = address
        self.host, path = address.removeprefix("http://").split("/", 1)
        self.path = f"/{path}"

    def request(self, method, path, body=None, *, headers=None, raw=None):
        """Send a request; return the status code, the headers and the body.

        A header that is None is left out. A path that begins with / is used as it is. Head and body
        are sent at once: a server that refuses the head closes the connection, and a body that came
        later would reset it, perhaps before the answer is read.
        """
        path, given = path if path.startswith("/") else self.path + path, {"Host": self.host}
        if method != "GET":
            given |= {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        given |= headers or {}
        content = json.dumps(body).encode() if body is not None else raw
        if content is not None:
            given.setdefault("Content-Length", str(len(content)))
        fields = [f"{key}: {value}" for key, value in given.items() if value is not None]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *fields, "", ""]).encode()
        with socket.create_connection(self.host.split(":"), timeout=60) as connection:
            connection.sendall(head + (content or b""))
            answer = http.client.HTTPResponse(connection, method=method)
            answer.begin()
            return answer.status, dict(answer.getheaders()), answer.read()

    def get(self, path):
        status, _, content = self.request("GET", path)
        assert status == 200, content
        return json.loads(content)

    def post(self, path, body):
        status, _, content = self.request("POST", path, body)
        return status, json.loads(content)

    def person(self, name="Ada") -> Person:
        return Person(self, name)


class Person:
    """A person who answers through a server."""

    def __init__(self, client: Client, name: str):
        status, joined = client.post("join", {"name": name})
        assert status == 200, joined
        self.client, self.session, self.number = client, joined["session"], 0
        self.look()

    def look(self):
        """Ask for the cards in hand, and wait for them."""
        while (cards := self.client.get(f"cards?session={self.session}")["cards"]) is None:
            time.sleep(0.01)
        self.cards = cards

    def wait_for(self, n_cards):
        """Look until there are that many cards in hand: the next round may still be chosen."""
        while len(self.cards) < n_cards:
            self.look()

    def act(self, action, card=None, **more):
        body = {"session": self.session, "number": self.number + 1, "action": action, **more}
        if card is not None:
            body = {name: card[name] for name in ("file", "row", "version")} | body
        status, answer = self.client.post("act", body)
        if status == 200:
            self.number, self.cards = answer["number"], answer["cards"]
            if not self.cards:
                self.look()
        return status, answer

    def label(self, truth):
        """Label the card shown, by a function of its row number; return the card."""
        card = self.cards[0]
        status, answer = self.act("label", card, label=truth(card["row"]))
        assert status == 200, answer
        return card


class Site(Client):
    """A desk with its server, log and learner, in threads of this process."""

    def __init__(
        self, folder: Path, table: pa.Table, model=None, file="rows.csv",
        save=lambda learner: None, **options: Any,
    ):  # fmt: skip
        self.log = LabelLog(folder / "labels.csv")
        pool = Pool(TableRows(table, file), [event.key for event in self.log.events])
        learner = LabelLearner(new_model(table) if model is None else model, pool)
        self.background = Background(learner, self.log.events, save)
        self.desk = Desk(self.log, self.log.events, self.background, title=file, **options)
        self.server = Server(self.desk)
        super().__init__(self.server.address)

    def __enter__(self):
        self.background.start()
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *raised):
        self.server.stop()
        self.thread.join()
        try:
            self.background.finish()
        finally:
            self.log.close()


class Command(Client):
    """The command `seqmed label` in an interpreter of its own."""

    def __init__(self, folder: Path, *arguments: Any):
        self.process = command.popen(
            folder, "label", *arguments, "--no-browser",
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("Labeling page: "), line or "the command ended"
        super().__init__(line.split()[-1])

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        if self.process.poll() is None:
            self.kill()

    def kill(self):
        """Kill the process at once."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def end(self):
        """End the command as Ctrl-C does, and return its output and exit code."""
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=120)
        return out, self.process.returncode


class ForkedCommand(Client):
    """The command `seqmed label` in a forked process, which starts sooner."""

    def __init__(self, folder: Path, *arguments: Any):
        pipe = folder / "page"
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        self.process = command.start(
            folder, "label", *arguments, "--no-browser", columns=200, outputs=("page", os.devnull)
        )
        self.stdout = pipe.open()  # waits for the process to open it
        line = self.stdout.readline()
        assert line.startswith("Labeling page: "), line or "the command ended"
        super().__init__(line.split()[-1])

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        if self.process.exitcode is None:
            self.kill()
        self.stdout.close()

    def kill(self):
        """Kill the process at once."""
        self.process.kill()
        self.process.join()

    def end(self):
        """End the command as Ctrl-C does, and return its output and exit code."""
        os.kill(self.process.pid, signal.SIGINT)
        self.process.join(command.PATIENCE)
        assert self.process.exitcode is not None, "the command hangs"
        return self.stdout.read(), self.process.exitcode


def write_rows(path: Path, n_rows=150, seed=0) -> list[str]:
    """Write a CSV of unlabeled rows with ids, and return the class of every row."""
    table, truth = clouds(n_rows, seed)
    lines = ["id,a,b,c"]
    for number, row in enumerate(
        zip(*(table.column(n).to_pylist() for n in "abc"), strict=True), 1
    ):
        lines.append(",".join([f"r{number:04}", *map(str, row)]))
    path.write_text("".join(f"{line}\n" for line in lines))
    return truth
