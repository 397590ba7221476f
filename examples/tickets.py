"""Messages to a shop, to try `seqmed label`: 2000 without labels, and 500 with labels for a test.

    python examples/tickets.py [FOLDER]

writes tickets.csv and tickets-test.csv.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

CLASSES = ["delivery", "payment", "returns", "technical"]
SENTENCES = {
    "delivery": [
        "My parcel should have arrived on {day}, and the tracking page has not changed since.",
        "The courier left the {thing} at a neighbour whose name I cannot read.",
        "Can you send the {thing} to another address? I am away until {day}.",
        "Half of the order came on {day}, the {thing} is missing.",
    ],
    "payment": [
        "I was charged twice for the {thing}, please refund one of the two payments.",
        "The invoice of {day} has the wrong company name.",
        "My card was declined although the bank says that nothing is wrong.",
        "The voucher was not taken off the price of the {thing}.",
    ],
    "returns": [
        "The {thing} is too small, how do I send it back?",
        "I returned the {thing} on {day} and have not heard anything since.",
        "Please send me a label to return the {thing}, it does not suit the room.",
        "May I exchange the {thing} for another colour?",
    ],
    "technical": [
        "After the update of {day} the {thing} no longer connects.",
        "The {thing} switches itself off after a few minutes.",
        "The app asks for a code that never arrives.",
        "The display of the {thing} flickers when it is charging.",
    ],
}
THINGS = ["lamp", "headphones", "kettle", "desk", "speaker", "jacket", "watch", "shelf", "scale"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
ENDINGS = [
    "",
    " Thank you.",
    " I write for the second time.",
    " Kind regards, M.",
    " Please hurry.",
]
COLUMNS = ("ticket", "message", "country", "orders")


def tickets(n_rows, seed=0):
    """Return rows as dictionaries, and the class of each."""
    random = np.random.default_rng(seed)
    rows, classes = [], []
    for number in range(n_rows):
        first, second = random.choice(CLASSES, 2)
        text = str(random.choice(SENTENCES[first]))
        if random.random() < 0.25:  # some messages are about two things
            text += " " + str(random.choice(SENTENCES[second]))
        text = text.format(thing=random.choice(THINGS), day=random.choice(DAYS))
        text += str(random.choice(ENDINGS))
        country = str(random.choice(["DE", "FR", "IT", "NL"]))
        values = (f"T{10_000 * (seed + 1) + number}", text, country, int(random.integers(1, 30)))
        rows.append(dict(zip(COLUMNS, values, strict=True)))
        classes.append(str(first))
    return rows, classes


def write(path, rows, classes=None):
    """Write rows to a CSV, with their classes if they are given."""
    with path.open("w", newline="", encoding="utf-8") as file:
        names = [*COLUMNS, *([] if classes is None else ["label"])]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        for place, row in enumerate(rows):
            writer.writerow(row if classes is None else {**row, "label": classes[place]})


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    write(folder / "tickets.csv", tickets(2000)[0])
    write(folder / "tickets-test.csv", *tickets(500, seed=1))
