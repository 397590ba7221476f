"""A thousand batches in bounded memory: whether the state grows and an update slows down.

A made-up stream of two classes in 20 features, each class a mixture of three Gaussians; 200 rows a
batch, 20 of them labeled. For SeqMED and SeqLapMED within the same budget: bytes of the state after
batches 100 and 1000, and the median time of an update over batches 951 to 1000 against 101 to 150,
by the clock and in processor time (which other work on the machine disturbs less). There is nothing
to tune.

    python benchmarks/long_stream.py [--quick] [--out FILE.json]
"""

from __future__ import annotations

import time

import numpy as np
from common import parse, print_table, write_json

from seqmed import SeqLapMED, SeqMED

N, LABELED, FEATURES = 200, 20, 20
PARAMETERS = {"gamma": 0.02, "C": 10.0, "lag": 3, "budget": 200, "random_state": 0}
MODELS = {
    "SeqMED": lambda: SeqMED(**PARAMETERS),
    "SeqMED, averaging, forgetting .99": lambda: SeqMED(
        **PARAMETERS, averaging=True, forgetting=0.99
    ),
    "SeqLapMED": lambda: SeqLapMED(**PARAMETERS, n_landmarks=100, beta=0.1),
}


def batches(n_batches: int):
    """Yield X, (N, FEATURES), and y, (N,), NaN for rows without a label."""
    centres = np.random.default_rng(0).normal(size=(2, 3, FEATURES))
    for number in range(n_batches):
        rng = np.random.default_rng((1, number))
        classes = rng.permutation(np.arange(N) % 2)
        X = centres[classes, rng.integers(3, size=N)] + 1.2 * rng.normal(size=(N, FEATURES))
        y = classes.astype(float)
        y[LABELED:] = np.nan
        yield X, y


def follow(model, n_batches: int):
    """Return the state bytes, clock seconds, and processor seconds of every update, (3, n)."""
    record = []
    for X, y in batches(n_batches):
        clock, processor = time.perf_counter(), time.process_time()
        model.partial_fit(X, y, classes=[0, 1])
        record.append((
            model.posterior_.nbytes,
            time.perf_counter() - clock,
            time.process_time() - processor,
        ))  # fmt: skip
    return np.array(record).T


def main():
    """Run, print the table and write it as JSON."""
    options = parse(__doc__)
    n_batches = 200 if options.quick else 1000
    early, late = slice(100, 150), slice(n_batches - 50, n_batches)
    table, rows = [], []
    for name, make in MODELS.items():
        sizes, clock, processor = follow(make(), n_batches)
        row = {
            "model": name, "bytes_100": int(sizes[99]), "bytes_last": int(sizes[-1]),
            "bytes_smallest_from_100": int(sizes[99:].min()),
            "bytes_largest_from_100": int(sizes[99:].max()),
            "seconds_early": float(np.median(clock[early])),
            "seconds_late": float(np.median(clock[late])),
            "ratio": float(np.median(clock[late]) / np.median(clock[early])),
            "processor_ratio": float(np.median(processor[late]) / np.median(processor[early])),
        }  # fmt: skip
        table.append(row)
        rows.append((
            name, row["bytes_100"], row["bytes_last"],
            f"{row['bytes_smallest_from_100']}..{row['bytes_largest_from_100']}",
            f"{1e3 * row['seconds_early']:.2f}", f"{1e3 * row['seconds_late']:.2f}",
            f"{row['ratio']:.3f}", f"{row['processor_ratio']:.3f}",
        ))  # fmt: skip
    print_table(
        ("model", "bytes at 100", f"at {n_batches}", "range between", "ms 101-150",
         f"ms {late.start + 1}-{n_batches}", "ratio", "processor time"),
        rows,
    )  # fmt: skip
    write_json(options.out, {"quick": options.quick, "batches": n_batches, "table": table})


if __name__ == "__main__":
    main()
