"""Which points should be landmarks once there are enough of them: four rules, measured.

first      the first n_landmarks rows of the stream stay
reservoir  a uniform sample of everything seen (the library's rule)
k-means++  the next landmark is drawn by its squared distance, in feature space, from those chosen
leverage   the rows with the largest ridge leverage scores

ISOLET, A-M against N-Z, validation speakers of isolet4; and two made-up streams whose inputs drift.
Accuracy is on rows of the stream's end; lag = 1 and lag = None.

    python benchmarks/landmark_rules.py [--repeats 3] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import time
from contextlib import contextmanager

import common
import numpy as np
from threadpoolctl import threadpool_limits

from seqmed import SeqLapMED, recursion
from seqmed.arrays import stack
from seqmed.covariance.landmarks import LandmarkRecursion
from seqmed.experiments import isolet
from seqmed.experiments.data import TrialBatch, TrialStream

RIDGE = 1e-2


class First(LandmarkRecursion):
    """Landmarks never change once there are enough."""

    def _choose(self, points, keys):
        return np.arange(min(keys.size, self.n_landmarks))


class KMeansPlusPlus(LandmarkRecursion):
    """Landmarks are drawn anew, by squared distance from those drawn already."""

    def _choose(self, points, keys):
        if keys.size <= self.n_landmarks:
            return np.arange(keys.size)
        candidates = points if self.basis is None else stack(self.basis.landmarks, points)
        gram = self.covariance.kernel(candidates, candidates)
        rng = np.random.default_rng((self.seed, self.n_folds))
        chosen = [int(rng.integers(keys.size))]
        distance = np.full(keys.size, np.inf)
        while len(chosen) < self.n_landmarks:
            own = np.diagonal(gram) + gram[chosen[-1], chosen[-1]] - 2 * gram[chosen[-1]]
            distance = np.minimum(distance, np.maximum(own, 0.0))
            distance[chosen] = 0.0
            chosen.append(int(rng.choice(keys.size, p=distance / distance.sum())))
        return np.sort(chosen)


class Leverage(LandmarkRecursion):
    """Landmarks are the rows that ridge regression on all candidates leans on most."""

    def _choose(self, points, keys):
        if keys.size <= self.n_landmarks:
            return np.arange(keys.size)
        candidates = points if self.basis is None else stack(self.basis.landmarks, points)
        gram = self.covariance.kernel(candidates, candidates)
        scores = np.diagonal(np.linalg.solve(gram + RIDGE * np.eye(keys.size), gram))
        return np.sort(np.argsort(scores)[-self.n_landmarks :])


RULES = {
    "first": First,
    "reservoir": LandmarkRecursion,
    "k-means++": KMeansPlusPlus,
    "leverage": Leverage,
}


@contextmanager
def rule(name):
    """Let the estimator use another rule for a while."""
    before = recursion.LandmarkRecursion
    recursion.LandmarkRecursion = RULES[name]
    try:
        yield
    finally:
        recursion.LandmarkRecursion = before


def drifting_moons(seed, n_batches=40, size=100):
    """Two moons that wander: the first landmarks end up far from the data."""
    rng = np.random.default_rng(seed)

    def draw(n, offset):
        y = rng.integers(0, 2, n)
        angle = np.pi * rng.random(n)
        X = np.where(
            y[:, None] == 0,
            np.stack([np.cos(angle), np.sin(angle)], 1),
            np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], 1),
        )
        return X + offset + 0.15 * rng.normal(size=(n, 2)), y

    batches = []
    for number in range(n_batches):
        X, y = draw(size, [0.15 * number, 0.0])
        batches.append(TrialBatch(X, y, rng.random(size) < 0.05))
    return TrialStream(tuple(batches), *draw(1000, [0.15 * (n_batches - 1), 0.0]))


def main():
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out")
    options = parser.parse_args()
    arrays = isolet.load_arrays(download=False)
    spoken = {"gamma": 0.005, "C": 100.0, "beta": 0.5, "n_landmarks": 300}
    moons = {"gamma": 2.0, "C": 10.0, "beta": 0.1, "n_landmarks": 100}
    cases = {
        "isolet": (lambda seed: isolet.validation_stream(arrays), spoken),
        "moons": (drifting_moons, moons),
    }
    table = []
    for case, (make, parameters) in cases.items():
        for lag in (1, None):
            for name in RULES:
                accuracies, seconds, costs = [], [], []
                for seed in range(options.repeats):
                    stream = make(seed)
                    model = SeqLapMED(lag=lag, random_state=seed, **parameters)
                    begun = time.process_time()
                    with threadpool_limits(1), rule(name):
                        for batch in stream.batches:
                            model.partial_fit(batch.X, batch.labels, classes=[0, 1])
                            costs.append(model.update_info_.replacement_cost)
                    seconds.append((time.process_time() - begun) / len(stream.batches))
                    accuracies.append(model.score(stream.X_test, stream.y_test))
                row = {
                    "stream": case, "lag": lag, "rule": name,
                    "accuracy": float(np.mean(accuracies)),
                    "error": float(np.std(accuracies, ddof=1) / np.sqrt(len(accuracies))),
                    "seconds per batch": float(np.mean(seconds)),
                    "largest replacement cost": float(np.max(costs)),
                }  # fmt: skip
                table.append(row)
                print(
                    f"{case:8s} lag {lag or 'all'!s:4s} {name:10s} {100 * row['accuracy']:6.2f} "
                    f"± {100 * row['error']:4.2f}  {1000 * row['seconds per batch']:6.0f} ms  "
                    f"cost {row['largest replacement cost']:.3f}",
                    flush=True,
                )
    common.write_json(options.out, {"rows": table})


if __name__ == "__main__":
    main()
