"""The queue: which rows are asked next, and why.

Rows are chosen in rounds. Round r is chosen by the model after ``ROUND * r`` answers, and supplies
the cards from position ``ROUND * r + LAG`` on. The learner therefore has the time of `LAG` answers
to choose a round, and the card at a position depends on the label log only, not on the time that
learning takes.

One card in `BLOCK` is a random check, the next row of the reserve of the pool (`seqmed.labeling.
pool`). All others are chosen by `seqmed.query` from the candidates of largest expected regret.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from seqmed.labeling.log import RANDOM, UNCERTAIN, UNLIKE, RowKey
from seqmed.labeling.pool import CHECK_SHARE, Pool
from seqmed.selection import queries
from seqmed.tables.cells import cell_text

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
    """A row to be labeled, and why: one of `seqmed.labeling.log.REASONS`.

    The classes have their probabilities, the largest first. There are none before two classes have
    labels.
    """

    key: RowKey
    why: str
    probabilities: tuple[tuple[str, float], ...]


Round = tuple[Card, ...]


def round_at(position: int) -> int:
    """Return the round that supplies the card at a position, counted in answers from 0."""
    return max(0, (position - LAG) // ROUND)


def choose_round(
    model: Any, pool: Pool, number: int, answered: Collection[RowKey], before: Round
) -> Round:
    """Return the cards of a round, by the model after ``ROUND * number`` answers.

    Rows that were answered are left out, and those of the previous round that come before this one.
    """
    gone = {*answered, *(card.key for card in before[: ROUND + LAG])}
    checks = [place for place in pool.reserve.tolist() if pool.keys[place] not in gone]
    left = [place for place in pool.free.tolist() if pool.keys[place] not in gone]
    wanted = iter([(place, RANDOM) for place in checks[: -(-LENGTH // BLOCK)]])
    asked = iter(choose_queried(model, pool, number, np.array(left, dtype=np.intp)))
    cards: list[tuple[int, str]] = []
    random = np.random.default_rng((number, 1))
    while len(cards) < LENGTH:
        block = [next(asked, None) for _ in range(BLOCK - 1)]
        block.insert(int(random.integers(BLOCK)), next(wanted, None))
        found = [each for each in block if each is not None]
        if not found:
            break
        cards += found
    predicted = class_shares(model, pool, [place for place, _ in cards])
    return tuple(
        Card(pool.keys[place], why, shares)
        for (place, why), shares in zip(cards, predicted, strict=True)
    )


def choose_queried(
    model: Any, pool: Pool, number: int, left: NDArray[np.intp]
) -> list[tuple[int, str]]:
    """Return the most informative of the rows that are left, and why each is asked."""
    wanted = min(LENGTH - LENGTH // BLOCK, left.size)
    if not wanted:
        return []
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
    chosen = short[queries.query(model, table, wanted)]
    return list(zip(left[chosen].tolist(), why_asked(margins, deviations, chosen), strict=True))


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
    return [] if classes is None else [cell_text(label) or "" for label in classes.tolist()]


def class_counts(model: Any) -> Counter[str]:
    """Return the number of labels of each class of a model."""
    names = class_names(model)
    if not names:
        return Counter()
    counts = model.steps[-1][1]._state.counts.counts
    return Counter(dict(zip(names, counts.tolist(), strict=True)))
