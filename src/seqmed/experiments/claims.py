"""The claims of the paper and of ours on each figure, and whether they hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmed.experiments.runner import FigureResult


class Claim(NamedTuple):
    """A statement, whether it holds (None: not testable with one run), and its numbers."""

    text: str
    holds: bool | None
    numbers: str

    @property
    def verdict(self) -> str:
        """The result as a word."""
        return {True: "yes", False: "no", None: "not testable with one run"}[self.holds]


# First batch of comparisons: before it all methods have few labels.
FROM_BATCH = 10
# The batch from which the paper's claim on the Laplacian learners is checked.
COMPARED_FROM = {"figure2": 5, "figure2b": 5, "figure3": 4}
# Number of last evaluated batches whose update time is reported.
LATE = 5
# One percentage point.
ONE_POINT = 0.01


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Return mean and standard error over trials; the error is NaN for a single one."""
    values = np.asarray(values, dtype=float)
    error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else float("nan")
    return float(values.mean()), float(error)


def points(values: np.ndarray) -> str:
    """Return a mean difference of accuracies in points, with its standard error."""
    mean, error = mean_and_error(100 * values)
    return f"{mean:+.2f}" if np.isnan(error) else f"{mean:+.2f} ± {error:.2f}"


def late_update(result: FigureResult, name: str) -> float:
    """Return the median processor seconds of learning one of the last batches evaluated."""
    times = result.update_seconds[name]
    seen = np.flatnonzero(~np.isnan(times).all(axis=0))[-LATE:]
    return float(np.median(times[:, seen]))


def claims(result: FigureResult) -> list[Claim]:
    """Return the claims of the paper on a figure, and whether they hold."""
    name, runs, found = result.figure.name, result.curves, []
    if name == "figure1":
        found = categorical_claims(runs)
    elif name in COMPARED_FROM:
        found = laplacian_claims(runs, COMPARED_FROM[name])
    return found + our_claims(result)


def our_claims(result: FigureResult) -> list[Claim]:
    """Return comparisons of our methods with the best full retraining, in accuracy and time."""
    runs, methods = result.curves, result.figure.methods
    ours = [name for name in runs if name.startswith("ours")]
    if not ours:
        return []
    reference = max(
        (name for name, method in methods.items() if method.retrains),
        key=lambda name: float(np.nanmean(runs[name])),
    )
    found = []
    for name in ours:
        both = ~np.isnan(runs[reference]).all(axis=0)
        both[: FROM_BATCH - 1] = False
        behind = (runs[name] - runs[reference])[:, both].mean(axis=1)
        last = runs[name][:, -1] - runs[reference][:, -1]
        ratio = late_update(result, name) / late_update(result, reference)
        found.append(
            Claim(
                f"{methods[name].label} is at most one point below {methods[reference].label}, "
                f"from batch {FROM_BATCH} on",
                bool(behind.mean() > -ONE_POINT) if result.trials > 1 else None,
                f"{points(behind)} points on average, {points(last)} at the last batch; an update "
                f"takes {100 * ratio:.1f} % of the time of {methods[reference].label}",
            )
        )
    return found


def categorical_claims(runs: dict[str, np.ndarray]) -> list[Claim]:
    """Return the claims of figure 1."""
    gain = runs["seqmed"] - runs["independent"]
    behind = runs["full_med"] - runs["seqmed"]
    solvers = (runs["full_med"] - runs["full_svm"]).mean(axis=0)
    solvers = solvers[~np.isnan(solvers)]
    return [
        Claim(
            "SeqMED is above the SVM trained on each batch alone, at every batch from 2 on",
            bool((gain[:, 1:].mean(axis=0) > 0).all()),
            f"smallest mean gain {100 * gain[:, 1:].mean(axis=0).min():+.2f} points; "
            f"at the last batch {points(gain[:, -1])}",
        ),
        Claim(
            "SeqMED is at most one point below full retraining",
            float(behind[:, -1].mean()) < ONE_POINT,
            f"at the last batch it is {points(-behind[:, -1])} points from Full MED",
        ),
        Claim(
            "Full SVM (scikit-learn) and Full MED (seqmed) are within half a point at every batch",
            bool(np.abs(solvers).max() <= 0.5 * ONE_POINT),
            f"mean difference {100 * solvers.mean():+.2f} points, largest difference at a batch "
            f"{100 * np.abs(solvers).max():.2f}",
        ),
    ]


def laplacian_claims(runs: dict[str, np.ndarray], from_batch: int) -> list[Claim]:
    """Return the claims of figures 2 and 3."""
    gain = runs["spectral"] - runs["independent"]
    last = slice(-10, None)
    found = [
        Claim(
            f"SeqLapMED (spectral) is above LapSVM on each batch alone from batch {from_batch} on",
            bool((gain[:, from_batch - 1 :].mean(axis=0) > 0).all()),
            f"smallest mean gain {100 * gain[:, from_batch - 1 :].mean(axis=0).min():+.2f} points; "
            f"over the last ten batches {points(gain[:, last].mean(axis=1))}",
        )
    ]
    for name in ("spectral", "landmarks"):
        added = (runs[name] - runs["beta0"])[:, last].mean(axis=1)
        mean, error = mean_and_error(added)
        certain = None if np.isnan(error) else mean > 2.0 * error
        found.append(
            Claim(
                f"Unlabeled data add accuracy to sequential learning ({name}, against beta = 0)",
                certain,
                f"{points(added)} points over the last ten batches",
            )
        )
    full = runs["full_lapmed"]
    seen = ~np.isnan(full).all(axis=0)
    both = (runs["full_lapsvm"] - full)[:, seen]
    behind = full[:, -1] - runs["spectral"][:, -1]
    found.append(
        Claim(
            "SeqLapMED (spectral) is at most one point below full retraining",
            float(behind.mean()) < ONE_POINT,
            f"at the last batch it is {points(-behind)} points from Full LapMED; Full LapSVM is "
            f"{points(both.mean(axis=1))} points from Full LapMED on average",
        )
    )
    return found
