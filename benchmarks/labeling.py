"""The labeling page: labels needed, coverage of its interval, and time and memory.

Labels. An oracle answers through the server, on the training rows of USPS and on four fifths of SMS
spam. The model is that of `seqmed label`, which has learned all training rows without labels.
Random labeling gives the labels of 10 % of the rows, drawn at random, to the same model in the same
way. Printed are the test accuracy of random labeling, and the accuracy of the page with 20 to 60 %
of these labels. A seed gives the order of rows and all draws.

Coverage. 100 simulations of 120 answers on clouds that overlap: how often the interval of the
random checks covers the accuracy of the last model, and the mean accuracy of the models that
predicted them, measured on 2000 other rows.

Latency. `seqmed label` on 100,000 rows of 20 numbers, on 100,000 messages that mix the words of SMS
spam, and on 10,000 rows of numbers and 77 classes, in a process of its own. A client answers twice
per second, faster than people do, while the model learns. Printed are the times from an answer to
its confirmation with the next card, and the peak memory of the process.

    SEQMED_DATA=FOLDER python benchmarks/labeling.py [labels|coverage|latency] [--quick]
        [--jobs 2] [--out FILE.json]

The full run takes about half an hour.
"""

from __future__ import annotations

import csv
import gzip
import http.client
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import data_file, make_parser, print_table, write_json

from seqmed import SeqGraphMED, SeqMED, make_stream_pipeline
from seqmed.labeling.desk import Desk
from seqmed.labeling.learner import Background, LabelLearner
from seqmed.labeling.ledger import outcomes, present_accuracy
from seqmed.labeling.log import Event, LabelLog
from seqmed.labeling.pool import FileRows, Pool
from seqmed.labeling.queue import round_at
from seqmed.labeling.server import Server

SETS, SEEDS = ("usps", "sms_spam"), (0, 1, 2)
RANDOM_SHARE, SHARES = 0.1, (0.2, 0.3, 0.4, 0.5, 0.6)
BATCH, FIRST_BATCH = 500, 1000
SIMULATIONS, ANSWERS, OTHER_ROWS = 100, 120, 2000
N_ROWS, N_ANSWERS, PAUSE = 100_000, 120, 0.5


class TableRows:
    """The rows of a table in memory."""

    def __init__(self, table):
        self._table = table

    def __iter__(self):
        for start in range(0, self._table.num_rows, 2000):
            part = self._table.slice(start, 2000)
            numbers = np.arange(start + 1, start + 1 + part.num_rows)
            yield FileRows("rows", numbers, part, np.zeros(part.num_rows, dtype=bool))


def messages():
    """Return the pairs of class and text of SMS spam."""
    with gzip.open(data_file("sms_spam.tsv.gz"), "rt", encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t", 1) for line in file]


def load(name, seed):
    """Return tables and classes of training and test rows."""
    random = np.random.default_rng(seed)
    if name == "usps":
        with np.load(data_file("usps.npz")) as stored:
            rows, labels, cut = stored["X"], stored["y"].astype(str), int(stored["n_train"])
        order = random.permutation(cut)
        train, y_train = rows[order], labels[order]
        test, y_test = rows[cut:], labels[cut:]
        tables = [
            pa.table({f"p{place}": rows[:, place].astype(float) for place in range(rows.shape[1])})
            for rows in (train, test)
        ]
        return tables[0], y_train, tables[1], y_test
    pairs = messages()
    order = random.permutation(len(pairs))
    labels = np.array([pair[0] for pair in pairs])[order]
    texts = [pairs[place][1] for place in order]
    cut = len(pairs) * 4 // 5
    return (
        pa.table({"message": texts[:cut]}), labels[:cut],
        pa.table({"message": texts[cut:]}), labels[cut:],
    )  # fmt: skip


def new_model(table, seed):
    """Return the model of `seqmed label` after it has learned the rows without labels."""
    final = SeqGraphMED(SeqMED(window=None, kernel="auto", random_state=seed), random_state=seed)
    model = make_stream_pipeline(final)
    starts = [0, *range(FIRST_BATCH, table.num_rows, BATCH)]
    for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
        model.partial_fit(table.slice(start, end - start), np.full(end - start, None))
    return model


def accuracy(model, table, truth):
    """Return the accuracy of a model."""
    return float(np.mean(model.predict(table) == truth))


# -- labels ----------------------------------------------------------------------------------------


class Oracle:
    """Answers every card through the server."""

    def __init__(self, address, truth):
        host, self._path = address.removeprefix("http://").split("/", 1)
        self._host = host
        self._headers = {"Origin": f"http://{host}", "Content-Type": "application/json"}
        self._truth, self._number = truth, 0
        self._session = self._send("POST", "join", {"name": "oracle"})["session"]
        self._cards = None

    def _send(self, method, path, body=None):
        content = None if body is None else json.dumps(body)
        connection = http.client.HTTPConnection(self._host, timeout=600)
        connection.request(method, f"/{self._path}{path}", content, self._headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        connection.close()
        assert answer.status == 200, found
        return found

    def look(self):
        """Wait for a card."""
        while not self._cards:
            self._cards = self._send("GET", f"cards?session={self._session}")["cards"]
            time.sleep(0.005)

    def answer(self):
        """Label the next card; return the seconds until the next one."""
        self.look()
        card = self._cards[0]
        self._number += 1
        body = {
            "session": self._session, "number": self._number, "action": "label",
            "label": str(self._truth(card["row"])),
            **{name: card[name] for name in ("file", "row", "version")},
        }  # fmt: skip
        begin = time.perf_counter()
        self._cards = self._send("POST", "act", body)["cards"]
        return time.perf_counter() - begin


def labels_needed(task):
    """Return the accuracies of random labeling and of the page."""
    name, seed, quick = task
    table, truth, test, test_truth = load(name, seed)
    if quick:
        table, truth = table.slice(0, 1500), truth[:1500]
    n_random = int(RANDOM_SHARE * len(truth))
    model = new_model(table, seed)
    for row in np.random.default_rng((seed, 1)).permutation(len(truth))[:n_random].tolist():
        model.partial_fit(
            table.slice(row, 1), truth[row : row + 1].astype(object), new_points=False
        )
    of_random = accuracy(model, test, test_truth)
    found = {}
    with tempfile.TemporaryDirectory() as folder, LabelLog(Path(folder) / "log.csv") as log:
        pool = Pool(TableRows(table))
        learner = LabelLearner(new_model(table, seed), pool)
        background = Background(learner, log.events, lambda learner: None)
        server = Server(Desk(log, log.events, background))
        background.start()
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        oracle = Oracle(server.address, lambda row: truth[row - 1])
        for share in SHARES:
            while len(log.events) < int(share * n_random):
                oracle.answer()
                while background.n_learned < len(log.events) - 5:
                    time.sleep(0.005)
            while background.n_learned < len(log.events) and background.trouble is None:
                time.sleep(0.005)
            found[str(share)] = accuracy(learner.model, test, test_truth)
        ledger = learner.ledger
        checks = present_accuracy(outcomes(ledger, checks=True), ledger.n_labeled)
        server.stop()
        thread.join()
        background.finish()
    return {"data": name, "seed": seed, "labels of random": n_random, "random": of_random,
            "page": found, "random checks": checks._asdict()}  # fmt: skip


def report_labels(results):
    """Print the accuracies."""
    rows = []
    for each in results:
        shown = [f"{100 * each['page'][str(share)]:.1f}" for share in SHARES]
        reached = each["page"][str(SHARES[-1])] >= each["random"]
        rows.append([f"{each['data']}, seed {each['seed']}", each["labels of random"],
                     f"{100 * each['random']:.1f}", *shown, "yes" if reached else "no",
        ])  # fmt: skip
    shares = [f"{share:.0%}" for share in SHARES]
    print_table(["", "labels", "random", *shares, "reached"], rows)


# -- coverage --------------------------------------------------------------------------------------


def clouds(n_rows, random, centres):
    """Return rows of clouds that overlap, and their classes."""
    codes = random.integers(len(centres), size=n_rows)
    points = centres[codes] + random.normal(size=(n_rows, centres.shape[1]))
    table = pa.table({f"x{place}": points[:, place] for place in range(points.shape[1])})
    return table, np.array(list("abcdef"))[codes]


def simulate(seed):
    """Return the interval of the random checks, and the accuracies of the models."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(4, 6)) * 1.1
    table, truth = clouds(800, random, centres)
    others, others_truth = clouds(OTHER_ROWS, random, centres)
    learner = LabelLearner(new_model(table, seed), Pool(TableRows(table)))
    learner.choose_rounds()
    of_round = {}
    while learner.ledger.n_answers < ANSWERS:
        for number in set(learner.rounds) - set(of_round):
            known = len(getattr(learner.model, "classes_", ())) > 1
            of_round[number] = accuracy(learner.model, others, others_truth) if known else None
        position = learner.ledger.n_answers
        cards = learner.rounds[round_at(position)]
        card = next(card for card in cards if learner.ledger.row(card.key).people == set())
        label = str(truth[card.key.row - 1])
        guess, probability = card.probabilities[0] if card.probabilities else ("", None)
        event = Event("label", str(round_at(position)), "oracle", *card.key, "", label,
                      card.why, guess, probability)  # fmt: skip
        learner.learn(event)
    ledger = learner.ledger
    found, queried = (
        present_accuracy(outcomes(ledger, checks=checks), ledger.n_labeled)
        for checks in (True, False)
    )
    scored = [row.asked for row in ledger.rows.values() if row.asked.why == "random"]
    predicted = [of_round[int(event.time)] for event in scored if event.guess]
    return {**found._asdict(), "queried": queried.value, "all": float(np.mean(predicted)),
            "predicted": float(np.mean(predicted[-found.n:])),
            "last": accuracy(learner.model, others, others_truth)}  # fmt: skip


def report_coverage(results):
    """Print the coverage."""
    for name, what in (("last", "the last model"), ("predicted", "the models that predicted")):
        covered = sum(each["low"] <= each[name] <= each["high"] for each in results)
        print(f"the interval covers the accuracy of {what} in {covered} of {len(results)} cases")
    means = {
        name: np.mean([each[name] for each in results])
        for name in ("last", "predicted", "value", "all", "queried")
    }
    print(
        f"mean accuracy of the last model {means['last']:.3f}, of those that predicted the recent "
        f"random checks {means['predicted']:.3f}; on these checks {means['value']:.3f}; of those "
        f"that predicted any random check {means['all']:.3f}; on queried rows "
        f"{means['queried']:.3f}"
    )


# -- latency ---------------------------------------------------------------------------------------


def rows_of_numbers(n_rows, n_classes=5):
    """Return names of columns, rows of 20 numbers around some centres, and their classes."""
    random = np.random.default_rng(0)
    codes = random.integers(n_classes, size=n_rows)
    points = random.normal(size=(n_rows, 20)) + 1.2 * random.normal(size=(n_classes, 20))[codes]
    names = [f"x{n}" for n in range(20)]
    return names, points.round(3).tolist(), [f"class {code}" for code in codes]


def rows_of_text(n_rows):
    """Return the name of a column, messages, and their classes.

    A message is the first half of one message of SMS spam, followed by random words of its class.
    """
    random = np.random.default_rng(0)
    pairs = messages()
    words = {
        name: np.array(" ".join(text for kind, text in pairs if kind == name).split())
        for name in {kind for kind, _ in pairs}
    }
    texts, classes = [], []
    for place in random.integers(len(pairs), size=n_rows).tolist():
        kind, text = pairs[place]
        half = text.split()[: len(text.split()) // 2 + 1]
        texts.append([" ".join([*half, *random.choice(words[kind], len(half))])])
        classes.append(kind)
    return ["message"], texts, classes


def rows_of_many_classes(n_rows):
    """Return rows of 77 classes, for a tenth of the rows."""
    return rows_of_numbers(n_rows // 10, 77)


def measure_latency(make_rows, quick):
    """Return the times of answers, and the memory of the command."""
    names, rows, classes = make_rows(N_ROWS // (10 if quick else 1))
    offered = ",".join(sorted(set(classes)))
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "rows.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(names)
            writer.writerows(rows)
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "seqmed", "label", "model", "rows.csv", "--no-browser", "-q",
             "--classes", offered],
            cwd=folder, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            address = process.stdout.readline().split()[-1]
            ready = time.perf_counter() - begin
            oracle = Oracle(address, lambda row: classes[row - 1])
            oracle.look()
            first_card = time.perf_counter() - begin
            times = []
            for _ in range(N_ANSWERS // (4 if quick else 1)):
                times.append(oracle.answer())
                time.sleep(max(0.0, PAUSE - times[-1]))
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=300)
    return {"rows": len(rows), "answers": len(times), "seconds until the page": ready,
            "seconds until the first card": first_card, "peak MB": peak,
            **{f"p{q} ms": 1000 * float(np.percentile(times, q)) for q in (50, 95, 99)},
            "largest ms": 1000 * max(times)}  # fmt: skip


def main():
    """Run the parts, and write the results."""
    parser = make_parser(__doc__)
    parser.add_argument("part", nargs="*", choices=["labels", "coverage", "latency", []])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out")
    given = parser.parse_args()
    results, parts = {}, given.part or ["labels", "coverage", "latency"]
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        if "labels" in parts:
            seeds = SEEDS[:1] if given.quick else SEEDS
            tasks = [(name, seed, given.quick) for name in SETS for seed in seeds]
            results["labels"] = list(pool.map(labels_needed, tasks))
            report_labels(results["labels"])
        if "coverage" in parts:
            number = 10 if given.quick else SIMULATIONS
            results["coverage"] = list(pool.map(simulate, range(number)))
            report_coverage(results["coverage"])
    if "latency" in parts:
        tables = {
            "numbers": rows_of_numbers, "text": rows_of_text, "77 classes": rows_of_many_classes,
        }  # fmt: skip
        results["latency"] = {
            name: measure_latency(make_rows, given.quick) for name, make_rows in tables.items()
        }
        for table, found in results["latency"].items():
            for name, value in found.items():
                print(f"{table}, {name}: {value:,.1f}")
    if given.out:
        write_json(given.out, results)


if __name__ == "__main__":
    main()
