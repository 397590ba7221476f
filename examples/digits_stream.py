"""Learn handwritten digits from a stream in which one label in ten is given.

Each batch is first predicted, then learned. The table shows how well that went; the plot compares
with a support vector machine that starts afresh on the labels of every batch.

    python examples/digits_stream.py [--out demo]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib
import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from seqmed import SeqLapMED

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BATCH_SIZE = 100
LABELED_SHARE = 0.1
UNLABELED = -1


def digit_stream(seed):
    """Yield (X, labels with most of them hidden, true labels), batch by batch."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    X, y = X[order] / 16.0, y[order]
    shown = rng.random(len(y)) < LABELED_SHARE
    for start in range(0, len(y) - BATCH_SIZE + 1, BATCH_SIZE):
        rows = slice(start, start + BATCH_SIZE)
        yield X[rows], np.where(shown[rows], y[rows], UNLABELED), y[rows]


def table_of(rows):
    """Return the progress table; only the newest rows that fit a small terminal."""
    table = Table(title="digits, batches of 100, one label in ten")
    for heading in ("batch", "labels", "accuracy before learning", "gap", "support", "seconds"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the plot")
    out = parser.parse_args().out

    console = Console()
    console.print("First use compiles the solver; this takes a few seconds, once.")
    model = SeqLapMED(random_state=0)
    alone = None
    rows, sequential, independent = [], [], []
    with Live(table_of(rows), console=console, refresh_per_second=8) as live:
        for batch, (X, y, truth) in enumerate(digit_stream(seed=0), start=1):
            accuracy = model.score(X, truth) if batch > 1 else None
            if accuracy is not None:
                sequential.append(accuracy)
                independent.append(alone.score(X, truth))
            begun = time.perf_counter()
            model.partial_fit(X, y)
            seconds = time.perf_counter() - begun
            labeled = y != UNLABELED
            alone = SVC(C=10.0).fit(X[labeled], y[labeled])
            rows.append((
                str(batch), str(labeled.sum()), "-" if accuracy is None else f"{accuracy:.2f}",
                f"{model.duality_gap_:.1e}", str(len(model.support_vectors_)), f"{seconds:.2f}",
            ))  # fmt: skip
            live.update(table_of(rows))

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    batches = np.arange(2, len(sequential) + 2)
    axes.plot(batches, sequential, "o-", color="#0072B2", label="SeqLapMED, batch by batch")
    axes.plot(batches, independent, "s--", color="#D55E00", label="SVM, each batch alone")
    axes.set(
        xlabel="batch",
        ylabel="accuracy on the next batch",
        ylim=(0, 1),
        xlim=(1.5, batches[-1] + 0.5),
    )
    axes.set_title("Handwritten digits, one label in ten")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "digits.png", dpi=150)
    console.print(
        f"Last five batches: {np.mean(sequential[-5:]):.3f} sequential, "
        f"{np.mean(independent[-5:]):.3f} each batch alone. Plot: {out / 'digits.png'}"
    )


if __name__ == "__main__":
    main()
