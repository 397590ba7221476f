"""The queue: which rows are asked next, and why.

Rows are chosen in rounds. Round r is chosen by the model after ``ROUND * r`` answers, and supplies
the cards from position ``ROUND * r + LAG`` on. The learner therefore has the time of `LAG` answers
to choose a round, and the card at a position depends on the label log only, not on the time that
learning takes.

One card in `BLOCK` is a random check, the next row of the reserve of the pool (`seqmed.labeling.
pool`). All others are chosen by `seqmed.query` from the candidates of largest expected regret.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from seqmed.labeling.log import RANDOM, UNCERTAIN, UNLIKE, RowKey
from seqmed.labeling.pool import CHECK_SHARE, Pool, shown_text
from seqmed.selection import queries

# Answers from one round to the next, and from the choice of a round to its first card.
ROUND, LAG = 5, 5
# Cards of a round. More than ROUND, for cards that are skipped or open on several pages.
LENGTH = 25
# Cards of which one is a random check.
BLOCK = round(1 / CHECK_SHARE)
# Rows of the pool that are scored for a round, and rows that are compared with each other.
SCORED, COMPARED = 3000, 500
# Classes shown with their probabilities.
SHOWN_CLASSES = 10


class Card(NamedTuple):
    """A row to be labeled.

    Attributes
    ----------
    key : the row.
    why : one of `seqmed.labeling.log.REASONS`.
    probabilities : classes and their probabilities, the largest first; empty before two classes
        have labels.
    """

    key: RowKey
    why: str
    probabilities: tuple[tuple[str, float], ...]

    @property
    def guess(self) -> str:
        """The predicted class, empty without a prediction."""
        return self.probabilities[0][0] if self.probabilities else ""

    @property
    def probability(self) -> float | None:
        """The probability of the predicted class."""
        return self.probabilities[0][1] if self.probabilities else None

    @classmethod
    def from_json(cls, stored: Any) -> Card:
        """Return a card from JSON."""
        (file, row, digest), why, probabilities = stored
        pairs = tuple((str(label), float(share)) for label, share in probabilities)
        return cls(RowKey(str(file), int(row), str(digest)), str(why), pairs)


def due(number: int) -> int:
    """Return the number of answers after which a round is chosen."""
    return ROUND * number


def round_at(position: int) -> int:
    """Return the round that supplies the card at a position, counted in answers from 0."""
    return max(0, (position - LAG) // ROUND)


def choose_round(
    model: Any, pool: Pool, number: int, taken: Collection[RowKey], before: tuple[Card, ...]
) -> tuple[Card, ...]:
    """Return the cards of a round.

    Parameters
    ----------
    model : the model after ``due(number)`` answers.
    pool : the rows.
    number : number of the round.
    taken : rows that were answered.
    before : the cards of the previous round; those that come before this round are left out.
    """
    pending = {card.key for card in before[: ROUND + LAG]}
    checks = unanswered(pool, pool.reserve, taken, pending, -(-LENGTH // BLOCK))
    queried, reasons = choose_queried(model, pool, number, taken, pending)
    cards: list[tuple[int, str]] = []
    random = np.random.default_rng((number, 1))
    wanted, asked = iter(checks), iter(zip(queried, reasons, strict=True))
    while len(cards) < LENGTH:
        place = int(random.integers(BLOCK))
        block = [next(asked, None) for _ in range(BLOCK - 1)]
        check = next(wanted, None)
        block.insert(place, None if check is None else (check, RANDOM))
        found = [each for each in block if each is not None]
        if not found:
            break
        cards += found
    places = [place for place, _ in cards]
    predicted = class_shares(model, pool, places)
    return tuple(
        Card(pool.keys[place], why, shares)
        for (place, why), shares in zip(cards, predicted, strict=True)
    )


def unanswered(
    pool: Pool,
    order: NDArray[np.intp],
    taken: Collection[RowKey],
    pending: Collection[RowKey],
    number: int,
) -> list[int]:
    """Return the first rows of an order that are neither answered nor pending."""
    found: list[int] = []
    for place in order.tolist():
        if len(found) == number:
            break
        if pool.keys[place] not in taken and pool.keys[place] not in pending:
            found.append(place)
    return found


def choose_queried(
    model: Any, pool: Pool, number: int, taken: Collection[RowKey], pending: Collection[RowKey]
) -> tuple[list[int], list[str]]:
    """Return the most informative rows, and why each is asked."""
    left = np.array(unanswered(pool, pool.free, taken, pending, pool.free.size), dtype=np.intp)
    wanted = min(LENGTH - LENGTH // BLOCK, left.size)
    if not wanted:
        return [], []
    if left.size > SCORED:  # other rows in every round
        chosen = np.random.default_rng((number, 0)).choice(left.size, SCORED, replace=False)
        left = left[np.sort(chosen)]
    table = pool.take(left)
    margins, deviations = queries.margins_and_deviations(model, table)
    short = np.arange(left.size)
    if left.size > COMPARED:
        values = queries.regret(margins, deviations) if margins.any() else -short.astype(float)
        short = np.sort(np.argsort(-values, kind="stable")[:COMPARED])
        table = table.take(pa.array(short))
    rows = queries.query(model, table, wanted)
    chosen = short[rows]
    reasons = why_asked(margins, deviations, chosen)
    return left[chosen].tolist(), reasons


def why_asked(
    margins: NDArray[np.float64], deviations: NDArray[np.float64], chosen: NDArray[np.intp]
) -> list[str]:
    """Return why each chosen row is asked: what sets it apart from the other rows.

    A row is uncertain if the rank of its small margin is higher than that of its large deviation,
    which rows have that are unlike the labeled ones.
    """
    if not margins.any():
        return [UNLIKE] * chosen.size
    smaller = np.searchsorted(np.sort(margins), margins[chosen], "left")
    larger = np.searchsorted(np.sort(-deviations), -deviations[chosen], "left")
    return [UNCERTAIN if few <= many else UNLIKE for few, many in zip(smaller, larger, strict=True)]


def class_shares(model: Any, pool: Pool, places: list[int]) -> list[tuple[tuple[str, float], ...]]:
    """Return the most probable classes of rows; nothing before two classes have labels."""
    classes = class_names(model)
    if len(classes) < 2 or not places:
        return [()] * len(places)
    shares = model.predict_proba(pool.take(places))
    order = np.argsort(-shares, axis=1, kind="stable")[:, :SHOWN_CLASSES]
    return [
        tuple((classes[code], float(row[code])) for code in best.tolist())
        for row, best in zip(shares, order, strict=True)
    ]


def class_names(model: Any) -> list[str]:
    """Return the classes of a model as texts."""
    classes = getattr(model, "classes_", None)
    return [] if classes is None else [shown_text(label) for label in classes.tolist()]


def rounds_from_json(stored: Mapping[str, Any]) -> dict[int, tuple[Card, ...]]:
    """Return rounds from JSON."""
    return {int(number): tuple(map(Card.from_json, cards)) for number, cards in stored.items()}
