"""How the default of beta was chosen: prequential accuracy on streams made of embedded data.

Every stream is shuffled, cut into batches, and labeled at random in a fraction of its rows. Each
batch is predicted before it is learned. Printed is the mean gain over beta = 0 in points of
accuracy, paired over the same orders and labels, with its standard error.

    python benchmarks/default_beta.py [--repeats 5] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_blobs, make_moons
from sklearn.preprocessing import StandardScaler

from seqmed import SeqLapMED

BETAS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
LABEL_FRACTIONS = (0.02, 0.05, 0.1, 0.25)


def streams():
    """Return name -> (X, y, batch size)."""
    shell = np.random.default_rng(0)
    directions = shell.normal(size=(1500, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    inner = np.arange(1500) % 2
    radii = np.where(inner, shell.uniform(0, 0.55, 1500), shell.uniform(0.45, 1, 1500))
    cancer, wine = load_breast_cancer(), load_wine()
    moons = make_moons(1500, noise=0.2, random_state=0)
    blobs = make_blobs(1500, 10, centers=4, cluster_std=5.0, random_state=0)
    return {
        "digits": (*load_digits(return_X_y=True), 150),
        "breast cancer": (StandardScaler().fit_transform(cancer.data), cancer.target, 60),
        "wine": (StandardScaler().fit_transform(wine.data), wine.target, 30),
        "moons": (*moons, 150),
        "blobs": (*blobs, 150),
        "ball in shell": (directions * radii[:, None], inner, 150),
    }


def prequential_accuracy(X, y, masked, size, beta):
    """Return the accuracy over all rows from the second batch on, each scored before learned."""
    model = SeqLapMED(beta=beta, random_state=0)
    right = total = 0
    for start in range(0, len(y) - size + 1, size):
        rows = slice(start, start + size)
        if (masked[:start] != -1).any():
            right += (model.predict(X[rows]) == y[rows]).sum()
            total += size
        model.partial_fit(X[rows], masked[rows], classes=np.unique(y))
    return right / max(total, 1)


def main():
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out")
    options = parser.parse_args()
    table = []
    print(f"{'stream':14s} labels  beta=0 " + "".join(f"{beta:>14g}" for beta in BETAS[1:]))
    for name, (X, y, size) in streams().items():
        for fraction in LABEL_FRACTIONS:
            accuracies = []
            for repeat in range(options.repeats):
                rng = np.random.default_rng((repeat, int(1000 * fraction)))
                order = rng.permutation(len(y))
                masked = np.where(rng.random(len(y)) < fraction, y[order], -1)
                accuracies.append(
                    [prequential_accuracy(X[order], y[order], masked, size, b) for b in BETAS]
                )
            points = 100 * np.array(accuracies)
            gains = points[:, 1:] - points[:, :1]
            error = gains.std(axis=0, ddof=1) / np.sqrt(options.repeats)
            cells = [
                f"{g:+7.2f} ± {e:4.2f}" for g, e in zip(gains.mean(axis=0), error, strict=True)
            ]
            print(f"{name:14s} {fraction:5.0%} {points[:, 0].mean():7.1f} " + " ".join(cells))
            table.append({
                "stream": name, "labels": fraction, "baseline": points[:, 0].mean(),
                "betas": BETAS[1:], "gain": gains.mean(axis=0).tolist(), "error": error.tolist(),
            })  # fmt: skip
    if options.out:
        with open(options.out, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
