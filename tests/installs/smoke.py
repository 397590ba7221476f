"""What a user does first: fit, save, load, predict, the commands, examples, the labeling page.

Usage: python smoke.py, in an environment in which only seqmed is installed, from an empty folder.
It imports nothing from the tests.
"""

from __future__ import annotations

import csv
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris

import seqmed
from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED, make_stream_pipeline

NAMES = ("setosa", "versicolor", "virginica")
PATIENCE = 300  # seconds, after which a command hangs


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of iris in random order, and their classes."""
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def check_estimators() -> None:
    """Every estimator predicts well, and the same after it is saved and loaded."""
    X, y = rows()
    known = np.where(np.arange(len(y)) % 3 == 0, y, -1)
    models = [SeqMED(), SeqLapMED(), GraphPropagation(), SeqGraphMED(random_state=0)]
    models.append(SeqLapMED(recursion="exact", kernel="linear"))
    for model in models:
        model.fit(X[:60], known[:60])
        for start in (60, 90):
            model.partial_fit(X[start : start + 30], known[start : start + 30])
        assert model.score(X[120:], y[120:]) > 0.7, model
        check_saved(model, X)


def check_saved(model, X) -> None:
    """A model predicts the same after it is saved and loaded."""
    seqmed.save(model, "saved")
    loaded = seqmed.load("saved")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def check_table() -> None:
    """A pipeline takes a raw table: numbers, categories, dates, text, missing cells."""
    table, names = raw_table()
    labels = [name if row % 2 else None for row, name in enumerate(names)]
    model = make_stream_pipeline(SeqGraphMED(random_state=0))
    for start in (0, 60):
        part = slice(start, start + 60)
        model.partial_fit({name: cells[part] for name, cells in table.items()}, labels[part])
    check_saved(model, table)
    assert np.mean(model.predict(table) == np.array(names)) > 0.7


def raw_table() -> tuple[dict[str, list], list[str]]:
    """Return columns of numbers, categories, dates and texts, and the class of every row."""
    X, y = rows()
    names = [NAMES[code] for code in y]
    table: dict[str, list] = {f"size{column}": list(X[:, column]) for column in range(3)}
    table["size2"][::10] = [None] * 15
    table["petal"] = ["wide" if width > 1.6 else "narrow" for width in X[:, 3]]
    table["day"] = [f"2024-{row % 12 + 1:02}-{row % 28 + 1:02}" for row in range(len(y))]
    table["since"] = [f"{row % 28 + 1}.{row % 12 + 1}.2023" for row in range(len(y))]
    table["remark"] = [
        f"seen near place {row % 7}, {width} cm" for row, width in enumerate(X[:, 3])
    ]
    return table, names


def check_commands() -> None:
    """The commands read a file of labeled rows, and write predictions and questions."""
    write_rows("rows.csv", every=2)
    write_rows("new.csv", every=1)
    run("learn", "model", "rows.csv", "--label", "kind")
    assert json.loads(run("evaluate", "model", "new.csv", "--json"))["accuracy"] > 0.7
    run("predict", "model", "new.csv", "-o", "predictions.csv")
    run("predict", "model", "new.csv", "-o", "predictions.parquet")
    with open("predictions.csv") as file:
        assert len(list(csv.DictReader(file))) == 150
    assert run("query", "model", "rows.csv", "-n", "5").strip()
    assert "SeqGraphMED" in run("inspect", "model")
    assert seqmed.load("model").predict(raw_table()[0]).shape == (150,)


def check_example() -> None:
    """The data of `seqmed example` are installed, and the command that it prints learns them."""
    command_line = run("example", "pump", "pump").splitlines()[-1].removeprefix("next: seqmed ")
    assert "prequential accuracy" in run(*command_line.split())


def write_rows(path: str, every: int) -> None:
    """Write the raw table with the label of every n-th row."""
    table, names = raw_table()
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*table, "kind"])
        for row, cells in enumerate(zip(*table.values(), strict=True)):
            writer.writerow([*cells, names[row] if row % every == 0 else ""])


def run(*arguments: str) -> str:
    """Run a command to its end, and return what it prints."""
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, f"seqmed {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


def command(*arguments: str) -> list[str]:
    """Return the command that the installation has put beside the interpreter."""
    found = shutil.which("seqmed", path=sysconfig.get_path("scripts"))
    assert found, "the command was not installed"
    return [found, *arguments]


def check_labeling() -> None:
    """The labeling page is served, takes a label, and ends with the model saved."""
    process = subprocess.Popen(
        command("label", "model", "rows.csv", "--no-browser"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        assert line.startswith("Labeling page: http://127.0.0.1:"), process.communicate(timeout=9)
        host, token, _ = line.split()[-1].removeprefix("http://").split("/")
        assert b"<html" in ask(host, f"/{token}/")
        session = json.loads(ask(host, f"/{token}/join", {"name": "Ada"}))["session"]
        cards = None
        while cards is None:  # the rows are still being chosen
            cards = json.loads(ask(host, f"/{token}/cards?session={session}"))["cards"]
            time.sleep(0.05)
        card = {name: cards[0][name] for name in ("file", "row", "version")}
        action = {"session": session, "number": 1, "action": "label", "label": "setosa", **card}
        ask(host, f"/{token}/act", action)
        if os.name == "nt":  # Windows has no signal that interrupts one process
            return
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, (process.returncode, out, err)
        assert "1 labeled row" in out, (out, err)
    finally:
        process.kill()


def ask(host: str, path: str, body=None) -> bytes:
    """Send a request to the labeling page, and return the body of the answer."""
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    headers = {"Origin": f"http://{host}", "Content-Type": "application/json"}
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    assert answer.status == 200, (path, answer.status, content)
    return content


if __name__ == "__main__":
    assert Path(sys.prefix) in Path(seqmed.__file__).parents, seqmed.__file__
    packages = ("numpy", "scipy", "scikit-learn", "numba", "pyarrow")
    print(", ".join(f"{package} {version(package)}" for package in packages))
    for outdated in (DeprecationWarning, FutureWarning):  # what fails with the next versions
        warnings.filterwarnings("error", category=outdated, module="seqmed")
    check_estimators()
    check_table()
    check_commands()
    check_example()
    check_labeling()
