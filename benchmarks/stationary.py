"""Streams without a change: how often a change is found, and what false alarms cost.

Simulated streams have 1000 labels and a constant error rate. The test for a change sees the last
300 labels, after every ten. Adult is shuffled: 22,561 rows in batches of 500, 3 % of them labeled,
and 10,000 rows held out. After the first 150 labels, the loss of a batch is the best held-out
accuracy so far minus the accuracy after it.

    SEQMED_DATA=FOLDER python benchmarks/stationary.py [--draws N] [--out FILE.json]
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from common import make_parser, print_table, write_json
from mixed_tables import load
from threadpoolctl import threadpool_limits

from seqmed import ConceptChangeWarning, SeqGraphMED, make_stream_pipeline
from seqmed.mixture.change import RECORD, find_change

RATES, N_STREAMS, N_LABELS, EVERY = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4), 1000, 1000, 10
BATCH, SHARE, HELD_OUT, FIRST = 500, 0.03, 10_000, 150


def alarms(rate: float, rng: np.random.Generator) -> int:
    """Return the number of simulated streams in which a change is found."""
    found = 0
    for _ in range(N_STREAMS):
        wrong = rng.random(N_LABELS) < rate
        ends = range(EVERY, N_LABELS + 1, EVERY)
        found += any(find_change(wrong[max(0, end - RECORD) : end]) is not None for end in ends)
    return found


def shuffled(X: Any, y: np.ndarray, draw: int, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the largest loss, the last accuracy, and the number of alarms of one draw."""
    rng = np.random.default_rng(draw)
    order = rng.permutation(len(y))
    test, rows = order[:HELD_OUT], order[HELD_OUT:]
    labels = np.where(rng.random(rows.size) < SHARE, y[rows], None)
    model = make_stream_pipeline(SeqGraphMED(random_state=draw, **parameters))
    accuracies, n_labels, n_alarms, encoded = [], 0, 0, None
    for start in range(0, rows.size, BATCH):
        batch = labels[start : start + BATCH]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.partial_fit(X.iloc[rows[start : start + BATCH]], batch)
        n_alarms += sum(issubclass(each.category, ConceptChangeWarning) for each in caught)
        n_labels += sum(each is not None for each in batch)
        if encoded is None:
            encoded = model[:-1].transform(X.iloc[test])
        if n_labels >= FIRST:
            accuracies.append(100 * np.mean(model.steps[-1][1].predict(encoded) == y[test]))
    losses = np.maximum.accumulate(accuracies) - accuracies
    return {
        "draw": draw,
        "largest loss": float(losses.max()),
        "accuracy": float(accuracies[-1]),
        "alarms": n_alarms,
    }


def main() -> None:
    """Run both studies and print the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--draws", type=int, default=24)
    parser.add_argument("--out")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    simulated = {str(rate): alarms(rate, rng) for rate in RATES}
    found = [f"alarms in {N_STREAMS}", *map(str, simulated.values())]
    print_table(["error rate", *simulated], [found])
    X, y = load("adult")
    draws = []
    with threadpool_limits(1):
        for draw in range(options.draws):
            draws.append(shuffled(X, np.asarray(y, dtype=object), draw, {}))
            print(draws[-1], flush=True)
            if options.out:
                write_json(options.out, {"simulated": simulated, "adult": draws})
    print("largest loss", max(each["largest loss"] for each in draws))


if __name__ == "__main__":
    main()
