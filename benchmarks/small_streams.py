"""The streams that several programs use, as lists of batches.

ISOLET: 24 batches of five speakers in the original order, the first of each labeled, A-M against
N-Z. USPS: the 7291 training rows, ten digits, in a random order. Elec2: prices in time order, the
date left out, standardised by the first ten batches. SMS: counts of words, spam or not, in a random
order. The paper's two simulations: categorical, with all labels, and a ball inside a shell, in
batches of 100. "shell" and "shell, few labels" are that again in batches of 200, with a label in
ten and in a hundred; smoothing is known to hurt there. Batches have 200 rows where nothing else is
said; the labels shown are a tenth, drawn at random, of SMS a twentieth.
"""

from __future__ import annotations

import gzip
from typing import Any, NamedTuple

import numpy as np
from common import data_file
from sklearn.feature_extraction.text import HashingVectorizer

from paper import data

BATCH = 200
MEASURED_BATCHES = 10
SHELLS = {"shell": 20, "shell, few labels": 2}  # labels in a batch


class Part(NamedTuple):
    """A batch: rows (n, p), classes (n,), and which labels are shown, (n,)."""

    X: Any
    y: Any
    shown: Any


def load(name: str, seed: int, n_batches: int | None = None) -> list[Part]:
    """Return the batches of a stream; ``seed`` draws orders and the labels shown."""
    if name == "isolet":
        arrays = data.load_isolet(data_file("isolet.npz").parent, download=False)
        batches = data.isolet_stream(arrays).batches
        return [Part(batch.X, batch.y, batch.shown) for batch in batches][:n_batches]
    if name in ("categorical", "sphere", *SHELLS):
        kind = data.categorical_stream if name == "categorical" else data.sphere_stream
        options = {"labels": SHELLS[name], "size": BATCH} if name in SHELLS else {}
        batches = kind((77, seed), **options).batches
        return [Part(batch.X, batch.y, batch.shown) for batch in batches][:n_batches]
    rng = np.random.default_rng(seed)
    X, y = {"usps": usps, "elec2": elec2, "sms_spam": sms_spam}[name]()
    if name != "elec2":
        order = rng.permutation(len(y))
        X, y = X[order], y[order]
    shown = rng.random(len(y)) < (0.05 if name == "sms_spam" else 0.1)
    starts = range(0, len(y) - BATCH + 1, BATCH)[:n_batches]
    return [Part(*(each[at : at + BATCH] for each in (X, y, shown))) for at in starts]


def usps() -> tuple[Any, Any]:
    """Return the training rows and digits."""
    with np.load(data_file("usps.npz")) as file:
        n = int(file["n_train"])
        return file["X"][:n].astype(float), file["y"][:n].astype(int)


def elec2() -> tuple[Any, Any]:
    """Return standardised rows in time order and whether the price is up."""
    with np.load(data_file("elec2.npz")) as file:
        X, y = file["X"][:, 1:].astype(float), file["y"].astype(int)
    first = X[: MEASURED_BATCHES * BATCH]
    scale = first.std(axis=0)
    return (X - first.mean(axis=0)) / np.where(scale > 1e-8, scale, 1.0), y


def sms_spam() -> tuple[Any, Any]:
    """Return sparse counts of words and whether the message is spam."""
    with gzip.open(data_file("sms_spam.tsv.gz"), "rt", encoding="utf-8") as file:
        pairs = [line.rstrip("\n").split("\t", 1) for line in file if "\t" in line]
    counting = HashingVectorizer(n_features=2**14, norm=None, alternate_sign=False)
    y = np.array([label == "spam" for label, _ in pairs]).astype(int)
    return counting.transform([text for _, text in pairs]), y
