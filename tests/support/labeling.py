"""Rows, models and a running server for tests of the labeling page."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import HashingVectorizer

from seqmed import SeqGraphMED, SeqMED, StreamPipeline
from seqmed.labeling.background import Background
from seqmed.labeling.desk import Desk
from seqmed.labeling.learner import LabelLearner
from seqmed.labeling.ledger import Ledger
from seqmed.labeling.log import LabelLog
from seqmed.labeling.rows import Pool, Rows
from seqmed.labeling.server import Server


class Columns(TransformerMixin, BaseEstimator):
    """Columns of a table as features: numbers, or the words of a text."""

    def __init__(self, names, text=None):
        self.names, self.text = names, text

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        if self.text is not None:
            return HashingVectorizer(n_features=2**12).transform(X.column(self.text).to_pylist())
        return np.column_stack([X.column(name).to_numpy() for name in self.names]).astype(float)


class TableRows:
    """A source of rows in memory."""

    def __init__(self, table: pa.Table, file="rows.csv", piece=64):
        self.table, self.file, self.piece = table, file, piece

    def __iter__(self) -> Iterator[Rows]:
        for start in range(0, self.table.num_rows, self.piece):
            part = self.table.slice(start, self.piece)
            numbers = np.arange(start + 1, start + 1 + part.num_rows)
            yield Rows(self.file, numbers, part, np.zeros(part.num_rows, dtype=bool))


def clouds(n_rows=120, seed=0, n_classes=3) -> tuple[pa.Table, list[str]]:
    """Return a table of overlapping clouds, and the class of every row."""
    generator = np.random.default_rng(seed)
    codes = generator.integers(n_classes, size=n_rows)
    points = generator.normal(size=(n_rows, 3)) + 2.5 * np.eye(max(3, n_classes))[codes][:, :3]
    names = ("setosa", "versicolor", "virginica", "other")
    table = pa.table({name: points[:, place] for place, name in enumerate("abc")})
    return table, [names[code] for code in codes]


def new_model(table: pa.Table, **columns: Any) -> StreamPipeline:
    """Return a model that has learned the rows of a table without labels."""
    columns = columns or {"names": list("abc")}
    final = SeqGraphMED(SeqMED(window=None), random_state=0)
    model = StreamPipeline([("table", Columns(**{"names": None, **columns})), ("model", final)], drift_limit=None)
    return model.partial_fit(table, np.full(table.num_rows, None))


class Site:
    """A desk with its server, log and learner, in threads of this process."""

    def __init__(self, folder: Path, table: pa.Table, model=None, **options: Any):
        self.log = LabelLog(folder / "labels.csv")
        self.pool = Pool(TableRows(table), [event.key for event in self.log.events])
        learner = LabelLearner(new_model(table) if model is None else model, self.pool)
        self.background = Background(learner, self.log.events, lambda _: None)
        self.background.start()
        self.desk = Desk(self.log, self.pool, self.background, title="rows.csv", **options)
        self.server = Server(self.desk)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()

    @property
    def port(self) -> int:
        return int(self.server.address.split(":")[2].split("/")[0])

    @property
    def path(self) -> str:
        return "/" + self.server.address.split("/", 3)[3]

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self.server.stop()
        self.thread.join()
        self.background.finish()
        self.log.close()

    def request(self, method, path, body=None, *, headers=None, raw=None):
        """Send a request; return the status code, the headers and the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = {"Host": f"127.0.0.1:{self.port}"}
        if method != "GET":
            given |= {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/json"}
        given |= headers or {}
        content = json.dumps(body).encode() if body is not None else raw
        try:
            connection.request(
                method,
                self.path + path if not path.startswith("/") else path,
                content,
                {name: value for name, value in given.items() if value is not None},
            )
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

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
    """A person who answers through the server."""

    def __init__(self, site: Site, name: str):
        status, joined = site.post("join", {"name": name})
        assert status == 200, joined
        self.site, self.session, self.number = site, joined["session"], 0
        self.cards = site.get(f"cards?session={self.session}")["cards"]

    def act(self, action, card=None, **more):
        body = {"session": self.session, "number": self.number + 1, "action": action, **more}
        if card is not None:
            body |= {name: card[name] for name in ("file", "row", "version")}
        status, answer = self.site.post("act", body)
        if status == 200:
            self.number = answer["number"]
            self.cards = answer["cards"]
            if not self.cards:
                self.cards = self.site.get(f"cards?session={self.session}")["cards"]
        return status, answer

    def label(self, truth):
        """Label the card shown, by a function of its row number."""
        card = self.cards[0]
        status, answer = self.act("label", card, label=truth(card["row"]))
        assert status == 200, answer
        return card


def replayed(table: pa.Table, events, model=None) -> LabelLearner:
    """Return the learner that replays a log."""
    pool = Pool(TableRows(table), [event.key for event in events])
    learner = LabelLearner(new_model(table) if model is None else model, pool)
    learner.begin()
    for event in events:
        learner.learn(event)
    assert learner.ledger.digest == Ledger(events).digest
    return learner
