"""Ten classes in one pass, against retraining on everything: USPS digits.

The 7291 training rows come once, in batches of 200 with all labels, in three random orders; the
2007 test rows are predicted at the end. The rival is scikit-learn's SVC with the same kernel, one
class against the rest as here, trained on all rows at once.

Nothing is tuned on what is reported. gamma and C are chosen on the training rows alone: four fifths
of a random half of them are learned, a fifth is predicted; for the SVC by one fit, for SeqMED by
one pass with lag 3, which all its variants then use.

    SEQMED_DATA=FOLDER python benchmarks/usps.py [--quick] [--out FILE.json]
"""

from __future__ import annotations

import time

import numpy as np
from common import (
    best_of_all,
    data_file,
    mean_and_error,
    parse,
    print_table,
    write_json,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC

from seqmed import SeqMED

BATCH = 200
GRID = {"gamma": (0.005, 0.01, 0.02, 0.04), "C": (3.0, 10.0, 30.0)}
CHOOSING_SEED = 1000
VARIANTS = {
    "SeqMED lag 3, support vectors kept": {"lag": 3},
    "SeqMED lag 3, budget 2000": {"lag": 3, "budget": 2000},
    "SeqMED lag 3, budget 1000": {"lag": 3, "budget": 1000},
    "SeqMED lag 1": {"lag": 1},
    "SeqMED lag 1, averaging": {"lag": 1, "averaging": True},
    "SeqMED lag 1, averaging, budget 2000": {"lag": 1, "averaging": True, "budget": 2000},
    "SeqMED lag 1, averaging, budget 1000": {"lag": 1, "averaging": True, "budget": 1000},
}


def load():
    """Return the training rows and classes, and those of the test."""
    with np.load(data_file("usps.npz")) as file:
        X, y, n = file["X"].astype(float), file["y"].astype(int), int(file["n_train"])
    return X[:n], y[:n], X[n:], y[n:]


def one_pass(X, y, parameters):
    """Return SeqMED after one pass, and the seconds of every batch."""
    model, seconds = SeqMED(random_state=0, **parameters), []
    for start in range(0, len(y), BATCH):
        rows = slice(start, start + BATCH)
        begin = time.perf_counter()
        model.partial_fit(X[rows], y[rows])
        seconds.append(time.perf_counter() - begin)
    return model, np.array(seconds)


def retrained(X, y, parameters):
    """Return SVCs trained on all rows at once, one class against the rest."""
    return OneVsRestClassifier(SVC(kernel="rbf", **parameters)).fit(X, y)


def choose(X, y, quick):
    """Return gamma and C for SeqMED and for the SVC, by validation within the training rows."""
    order = np.random.default_rng(CHOOSING_SEED).permutation(len(y))[: 1000 if quick else 3600]
    cut = int(0.8 * order.size)
    learned, held_out = order[:cut], order[cut:]

    def accuracy(model):
        return model.score(X[held_out], y[held_out])

    grid = {"gamma": GRID["gamma"], "C": (10.0,)} if quick else GRID
    ours, our_score = best_of_all(
        grid, lambda p: accuracy(one_pass(X[learned], y[learned], p | {"lag": 3})[0])
    )
    theirs, their_score = best_of_all(
        grid, lambda p: accuracy(retrained(X[learned], y[learned], p))
    )
    print(f"chosen on training rows: SeqMED {ours} ({100 * our_score:.2f}), ", end="")
    print(f"SVC {theirs} ({100 * their_score:.2f})", flush=True)
    return ours, theirs


def main():
    """Choose, run, print the table and write it as JSON."""
    options = parse(__doc__)
    X, y, X_test, y_test = load()
    ours, theirs = choose(X, y, options.quick)
    orders = [np.random.default_rng(s).permutation(len(y)) for s in range(3)]
    if options.quick:
        orders = [orders[0][:2000]]

    table, rows = [], []
    rival = []
    for order in orders[:1] if not options.quick else orders:  # its rows have no order
        begin = time.perf_counter()
        rival.append(100 * retrained(X[order], y[order], theirs).score(X_test, y_test))
        fit_seconds = time.perf_counter() - begin
    table.append({"learner": "SVC, all rows", "accuracy": mean_and_error(rival),
                  "seconds": fit_seconds, "chosen": theirs})  # fmt: skip
    rows.append(("SVC on all rows at once", f"{rival[0]:.2f}", "", f"{fit_seconds:.1f} in all", ""))
    for name, variant in VARIANTS.items():
        points, spent, sizes = [], [], []
        for order in orders:
            model, seconds = one_pass(X[order], y[order], ours | variant)
            points.append(100 * model.score(X_test, y_test))
            spent.append(seconds)
            sizes.append(model.posterior_.nbytes / 1e6)
        accuracy = mean_and_error(points)
        median, last = float(np.median(spent)), float(np.median([s[-5:] for s in spent]))
        table.append({
            "learner": name, "accuracy": accuracy, "accuracies": points,
            "behind_svc": rival[0] - accuracy["mean"], "seconds_per_batch": median,
            "seconds_last_batches": last, "state_megabytes": float(np.mean(sizes)),
            "chosen": ours,
        })  # fmt: skip
        rows.append((
            name, f"{accuracy['mean']:.2f} ± {accuracy['error']:.2f}",
            f"{rival[0] - accuracy['mean']:+.2f}", f"{median:.3f}; {last:.3f}",
            f"{np.mean(sizes):.1f}",
        ))  # fmt: skip
        print(".", end="", flush=True)
    print()
    print_table(
        ("learner", "test accuracy", "behind SVC", "s per batch: median; last five", "state MB"),
        rows,
    )
    write_json(options.out, {"quick": options.quick, "orders": len(orders), "table": table})


if __name__ == "__main__":
    main()
