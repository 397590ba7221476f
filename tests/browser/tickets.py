"""Messages to a shop, for screenshots."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

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
    " This is the second time I write.",
    " Kind regards, M.",
    " Please hurry.",
]


def tickets(n_rows: int, seed: int = 0) -> tuple[pa.Table, list[str]]:
    """Return messages, and the class of each."""
    random = np.random.default_rng(seed)
    rows, truth = [], []
    for number in range(n_rows):
        first, second = random.choice(CLASSES, 2)
        text = str(random.choice(SENTENCES[first]))
        if random.random() < 0.25:  # some messages are about two things
            text += " " + str(random.choice(SENTENCES[second]))
        text = text.format(thing=random.choice(THINGS), day=random.choice(DAYS))
        rows.append(
            {
                "ticket": f"T{10_000 + number}",
                "message": text + str(random.choice(ENDINGS)),
                "country": str(random.choice(["DE", "FR", "IT", "NL"])),
                "orders": int(random.integers(1, 30)),
            }
        )
        truth.append(str(first))
    return pa.Table.from_pylist(rows), truth
