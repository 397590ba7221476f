"""`fit` of a table that is larger than its sample, against the pass over all its batches.

Three streams of 200,000 rows whose distribution does not change; 20,000 more rows are held out.
"few labels": ten clusters of five classes in 20 columns, 2 % of the rows labeled. "many labels": a
tree of seven levels in 10 columns, 15 % of the rows labeled. "table": numbers,
categories and missing cells, with a class of 2 % of the rows, 1 % labeled, through the pipeline of
tables.

    python benchmarks/sampled_fit.py [--draws N] [--rows N] [--out FILE.json]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from common import make_parser, print_table, write_json
from threadpoolctl import threadpool_limits

from seqmed import SeqGraphMED, make_stream_pipeline

HELD_OUT, BATCH = 20_000, 1000


def clusters(n: int, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Return rows of ten clusters, two for each of five classes."""
    centres = rng.normal(size=(10, 20))
    own = rng.integers(10, size=n)
    return centres[own] + rng.normal(size=(n, 20)), own % 5


def tree(n: int, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Return uniform rows with the classes of the leaves of a random tree, 5 % of them wrong."""
    X = rng.random((n, 10))
    columns, cuts = rng.integers(10, size=127), rng.uniform(0.3, 0.7, 127)
    node = np.zeros(n, dtype=int)
    for _ in range(7):
        node = 2 * node + 1 + (X[np.arange(n), columns[node]] > cuts[node])
    y = rng.integers(3, size=255)[node]
    return X, np.where(rng.random(n) < 0.05, rng.integers(3, size=n), y)


def table(n: int, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Return a table of numbers and categories with three classes, one of them rare."""
    y = rng.choice(3, size=n, p=[0.6, 0.38, 0.02])
    means, shares = rng.normal(size=(3, 6)), rng.dirichlet(np.ones(8), size=3)
    numbers = means[y] + 1.5 * rng.normal(size=(n, 6))
    numbers[rng.random(numbers.shape) < 0.05] = np.nan
    levels = (rng.random(n)[:, None] > np.cumsum(shares, axis=1)[y]).sum(axis=1)
    columns = {f"number {place}": each for place, each in enumerate(numbers.T)}
    texts = np.array([f"level {place}" for place in range(9)])[levels]
    return pa.table({**columns, "category": texts}), y


STREAMS: dict[str, tuple[Callable[..., Any], float]] = {
    "few labels": (clusters, 0.02),
    "many labels": (tree, 0.15),
    "table": (table, 0.01),
}


def rows_of(X: Any, first: int, last: int) -> Any:
    """Return rows of an array or a table."""
    return X[first:last] if isinstance(X, np.ndarray) else X.slice(first, last - first)


def compared(name: str, n: int, draw: int) -> dict[str, Any]:
    """Return the accuracies and the processor times of `fit` and of the pass."""
    make, share = STREAMS[name]
    rng = np.random.default_rng(draw)
    X, y = make(n + HELD_OUT, rng)
    labels = np.where(rng.random(n) < share, y[:n], -1)
    test, wanted = rows_of(X, n, n + HELD_OUT), y[n:]
    found: dict[str, Any] = {"stream": name, "draw": draw, "labels": int((labels >= 0).sum())}
    for way in ("fit", "pass"):
        model = SeqGraphMED(random_state=draw)
        learner = model if isinstance(X, np.ndarray) else make_stream_pipeline(model)
        begun = time.process_time()
        if way == "fit":
            learner.fit(rows_of(X, 0, n), labels)
        else:
            for first in range(0, n, BATCH):
                last = min(n, first + BATCH)
                learner.partial_fit(rows_of(X, first, last), labels[first:last])
        found[f"{way} seconds"] = round(time.process_time() - begun, 1)
        found[way] = 100 * float(np.mean(learner.predict(test) == wanted))
    return found


def main() -> None:
    """Run the streams and print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--streams", nargs="*", default=list(STREAMS))
    parser.add_argument("--out")
    options = parser.parse_args()
    results = []
    with threadpool_limits(1):
        for draw in range(options.draws):
            for name in options.streams:
                results.append(compared(name, options.rows, draw))
                print(results[-1], flush=True)
                if options.out:
                    write_json(options.out, {"rows": options.rows, "results": results})
    lines = []
    for name in options.streams:
        own = [each for each in results if each["stream"] == name]
        keys = ("labels", "fit", "pass", "fit seconds", "pass seconds")
        means = [np.mean([each[key] for each in own]) for key in keys]
        lines.append([name, f"{means[0]:.0f}", *(f"{mean:.2f}" for mean in means[1:])])
    print_table(["stream", "labels", "fit", "pass", "fit (s)", "pass (s)"], lines)


if __name__ == "__main__":
    main()
