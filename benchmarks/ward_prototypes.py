"""Graph memory against its simpler relative, Ward prototypes.

The relative keeps M centroids, with counts, of all unlabeled rows so far, made anew at every batch
by Ward clustering of the old centroids and the new rows; it then fits one LapMED to all labeled
rows, the centroids and the new batch, a centroid's row of the Laplacian counting as often as the
rows it stands for. The library's graph memory keeps M real rows and commits what it drops.

ISOLET, A-M against N-Z, 18 batches, scored on the speakers of isolet4 (validation). All labeled
rows are kept and all multipliers optimised by both.

    python benchmarks/ward_prototypes.py [--out FILE.json]
"""

from __future__ import annotations

import argparse
import time

import common
import numpy as np
from scipy.cluster.hierarchy import fcluster, ward
from scipy.sparse import diags_array
from threadpoolctl import threadpool_limits

from seqmed import SeqLapMED, SeqMED
from seqmed.experiments import isolet
from seqmed.graph import GraphRecipe, find_neighbours, residual_rows
from seqmed.kernels import RBF
from seqmed.recursion.basis import whiten_points
from seqmed.recursion.continuity import conditioned

GAMMA, BOUND, NEIGHBOURS = 0.005, 100.0, 10
RECIPE = GraphRecipe(n_neighbors=NEIGHBOURS, laplacian="rows")


def condensed(points, counts, wanted):
    """Return at most ``wanted`` centroids of weighted points, and the weight of each."""
    if len(points) <= wanted:
        return points, counts
    cluster = fcluster(ward(points), wanted, criterion="maxclust") - 1
    weight = np.bincount(cluster, counts)
    sums = np.zeros((weight.size, points.shape[1]))
    np.add.at(sums, cluster, counts[:, None] * points)
    return sums / weight[:, None], weight


def ward_curve(stream, beta, memory):
    """Yield accuracy and seconds of learning after every batch."""
    width = stream.X_test.shape[1]
    labeled, labels = np.zeros((0, width)), np.zeros(0, dtype=int)
    centroids, counts = np.zeros((0, width)), np.zeros(0)
    for batch in stream.batches:
        begun = time.process_time()
        labeled = np.vstack([labeled, batch.X[batch.shown]])
        labels = np.append(labels, batch.y[batch.shown])
        new = batch.X[~batch.shown]
        points = np.vstack([labeled, centroids, new])
        weight = np.concatenate([np.ones(len(labeled)), counts, np.ones(len(new))])
        kernel = RBF(GAMMA).freeze(points, np.ones(len(points)))
        rows = residual_rows(find_neighbours(kernel, points, NEIGHBOURS), RECIPE)
        rows = diags_array(np.sqrt(2 * beta * weight)) @ rows
        covariance = conditioned(kernel(points, points), rows.tocsr())
        known = covariance[: len(labels), : len(labels)]
        model = SeqMED("precomputed", C=BOUND, bias="exact").fit(0.5 * (known + known.T), labels)
        coefficients = np.zeros(len(points))
        coefficients[model.posterior_.support.points.ravel()] = model.dual_coef_[0]
        whitening = whiten_points(kernel, points).whitening
        weights = whitening @ (whitening.T @ (covariance @ coefficients))
        centroids, counts = condensed(
            np.vstack([centroids, new]), np.append(counts, np.ones(len(new))), memory
        )
        seconds = time.process_time() - begun
        scores = kernel(stream.X_test, points) @ weights + model.intercept_[0]
        yield np.mean((scores > 0) == stream.y_test), seconds


def memory_curve(stream, beta, memory):
    """Yield the same for the library's graph memory."""
    model = SeqLapMED(
        gamma=GAMMA, C=BOUND, beta=beta, n_neighbors=NEIGHBOURS, window=None, bias="exact",
        laplacian="rows", graph_memory=memory, random_state=0,
    )  # fmt: skip
    for batch in stream.batches:
        begun = time.process_time()
        model.partial_fit(batch.X, batch.labels, classes=[0, 1])
        seconds = time.process_time() - begun
        yield model.score(stream.X_test, stream.y_test), seconds


def main():
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    options = parser.parse_args()
    stream = isolet.validation_stream(isolet.load_arrays(download=False))
    table = []
    for memory in (500, 1000):
        for beta in (1.5, 4.5, 10.0):
            for name, curve in (("graph memory", memory_curve), ("Ward", ward_curve)):
                with threadpool_limits(1):
                    accuracies, seconds = zip(*curve(stream, beta, memory), strict=True)
                table.append({
                    "method": name, "kept": memory, "beta": beta, "last": float(accuracies[-1]),
                    "mean": float(np.mean(accuracies)), "seconds": float(np.mean(seconds)),
                })  # fmt: skip
                print(
                    f"{name:13s} {memory:5d} beta {beta:4g}  last {100 * accuracies[-1]:.2f}  "
                    f"mean {100 * np.mean(accuracies):.2f}  {np.mean(seconds):.2f} s a batch",
                    flush=True,
                )
    common.write_json(options.out, {"rows": table})


if __name__ == "__main__":
    main()
