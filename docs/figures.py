"""Draw the figures of the guide: python docs/figures.py [--only NAME] (about two minutes)."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, make_classification

from seqmed import GraphPropagation, SeqGraphMED, SeqMED, plotting, query

IMAGES = Path(__file__).parent / "images"
N_ROWS, BATCH = 1400, 100
SIZE = (5.2, 3.4)


def shuffled(X, y, seed):
    """Return the rows of a stream and test rows, each with their classes."""
    order = np.random.default_rng(seed).permutation(len(y))
    X, y = X[order], y[order]
    return X[:N_ROWS], y[:N_ROWS], X[N_ROWS:], y[N_ROWS:]


def digits(seed):
    """Return the digits in a random order."""
    return shuffled(*load_digits(return_X_y=True), seed)


def noisy(seed):
    """Return rows of two classes in which 5 of 40 columns are informative."""
    X, y = make_classification(
        1800, 40, n_informative=5, n_redundant=0, class_sep=1.5, random_state=0
    )
    return shuffled(X, y, seed)


def batches(X, y, fraction, seed):
    """Yield batches in which a fraction of the labels is given."""
    given = np.random.default_rng((seed, 1)).random(len(y)) < fraction
    labels = np.where(given, y, -1)
    for start in range(0, len(y), BATCH):
        yield X[start : start + BATCH], labels[start : start + BATCH]


def accuracy(model, X, y):
    """Return the accuracy, or that of a guess as long as there is no label."""
    known = len(getattr(model, "classes_", ()))
    return model.score(X, y) if known else 1 / np.unique(y).size


def learned(make, data, fraction, seeds, measure):
    """Return a measure after each batch, (seeds, batches)."""
    runs = []
    for seed in seeds:
        X, y, X_test, y_test = data(seed)
        model, run = make(), []
        for rows, labels in batches(X, y, fraction, seed):
            model.partial_fit(rows, labels, classes=np.unique(y))
            run.append(measure(model, X_test, y_test))
        runs.append(run)
    return np.array(runs)


def draw_curves(axes, curves, title):
    """Draw accuracies after each batch, with the legend inside."""
    plotting.accuracy_curves(axes, curves, title=title)
    axes.legend(frameon=False, fontsize="small")
    axes.set_xlabel("batch of 100 rows")


def first_model(path):
    """Draw SeqGraphMED beside SeqMED."""
    figure, (axes,) = plotting.panels(1, SIZE)
    curves = {
        name: learned(make, digits, 0.1, range(5), accuracy)
        for name, make in (
            ("SeqGraphMED", lambda: SeqGraphMED(random_state=0)), ("SeqMED", SeqMED),
        )
    }  # fmt: skip
    draw_curves(axes, curves, "Digits, 10 % labels")
    plotting.save_figure(figure, path)


def few_labels(path):
    """Draw queried beside random labels."""

    def run(seed, choose):
        X, y, X_test, y_test = digits(seed)
        model, accuracies = SeqGraphMED(random_state=0), []
        for start in range(0, N_ROWS, BATCH):
            rows, truth = X[start : start + BATCH], y[start : start + BATCH]
            model.partial_fit(rows, [None] * len(rows))
            chosen = choose(model, rows, 2)
            model.partial_fit(rows[chosen], truth[chosen], new_points=False)
            accuracies.append(model.score(X_test, y_test))
        return accuracies

    rng = np.random.default_rng(1)
    rules = {
        "queried": query,
        "random": lambda model, rows, n: rng.choice(len(rows), n, replace=False),
    }
    curves = {
        name: np.array([run(seed, rule) for seed in range(5)]) for name, rule in rules.items()
    }
    figure, (axes,) = plotting.panels(1, SIZE)
    draw_curves(axes, curves, "Digits, two labels per batch")
    plotting.save_figure(figure, path)


def drift(path):
    """Draw several values of forgetting."""

    def run(forgetting, seed):
        rng = np.random.default_rng(seed)
        model, accuracies = SeqGraphMED(forgetting=forgetting, random_state=0), []
        for t in range(40):
            cluster = rng.integers(4, size=100)
            y, angle = cluster % 2, np.pi / 2 * (cluster + t / 40)
            X = 2.5 * np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(size=(100, 2))
            accuracies.append(model.score(X, y) if t else np.nan)
            model.partial_fit(X, np.where(rng.random(100) < 0.1, y, -1))
        return accuracies

    curves = {
        f"forgetting={value}": np.array([run(value, seed) for seed in range(10)])
        for value in (1.0, 0.9, "auto")
    }
    figure, (axes,) = plotting.panels(1, SIZE)
    draw_curves(axes, curves, "Two classes that exchange places")
    axes.set_ylabel("accuracy on the next batch")
    plotting.save_figure(figure, path)


def late_labels(path):
    """Draw labels that arrive with their rows beside labels that arrive five batches later."""

    def run(seed, delay):
        X, y, X_test, y_test = digits(seed)
        stream = list(batches(X, y, 0.1, seed))
        model, accuracies = SeqGraphMED(random_state=0), []
        for number, (rows, labels) in enumerate(stream):
            model.partial_fit(rows, labels if delay == 0 else [None] * len(rows))
            if 0 < delay <= number:
                model.partial_fit(*stream[number - delay], new_points=False)
            accuracies.append(model.score(X_test, y_test) if number >= delay else np.nan)
        return accuracies

    delays = {"labels with their rows": 0, "labels five batches later": 5}
    curves = {
        name: np.array([run(seed, delay) for seed in range(5)]) for name, delay in delays.items()
    }
    figure, (axes,) = plotting.panels(1, SIZE)
    draw_curves(axes, curves, "Digits, 10 % labels")
    plotting.save_figure(figure, path)


def predictions(path):
    """Draw the calibration of probabilities."""
    confidence, correct = [], []
    for seed in range(10):
        X, y, X_test, y_test = digits(seed)
        model = SeqGraphMED(random_state=0)
        for rows, labels in batches(X, y, 0.05, seed):
            model.partial_fit(rows, labels)
        confidence.extend(model.predict_proba(X_test).max(axis=1))
        correct.extend(model.predict(X_test) == y_test)
    confidence, correct = np.array(confidence), np.array(correct)
    bins = np.minimum((confidence * 10).astype(int), 9)
    used = np.unique(bins)
    means = [[values[bins == each].mean() for each in used] for values in (confidence, correct)]
    figure, (axes,) = plotting.panels(1, (3.6, 3.6))
    plotting.reliability(axes, *means, np.bincount(bins)[used], bins=10)
    axes.set(title="Digits, 5 % labels", ylabel="fraction of correct predictions")
    plotting.save_figure(figure, path)


def how_it_works(path):
    """Draw both experts, their mixture and its weight."""
    experts = {
        "mixture": lambda: SeqGraphMED(random_state=0),
        "margin expert": SeqMED,
        "graph expert": lambda: GraphPropagation(random_state=0),
    }
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2, sharex=True, height_ratios=[2, 1])
    streams = (("Digits, 5 % labels", digits, 0.05), ("Mostly noise, 10 % labels", noisy, 0.1))
    for (top, bottom), (title, data, fraction) in zip(panels.T, streams, strict=True):
        curves = {
            name: learned(make, data, fraction, range(5), accuracy)
            for name, make in experts.items()
        }
        draw_curves(top, curves, title)
        top.set_xlabel("")
        weights = learned(
            experts["mixture"], data, fraction, range(5), lambda model, X, y: model.graph_weight_
        )
        bottom.plot(range(1, 15), weights.mean(axis=0), color=plotting.PALETTE[0], marker="o")
        bottom.set(ylim=(0, 1), xlabel="batch of 100 rows", ylabel="graph weight")
        bottom.grid(alpha=0.3, linewidth=0.6)
    plotting.save_figure(figure, path)


def command_line(path):
    """Run the commands of the page up to the plot of `seqmed evaluate`."""
    commands = (
        "example orders orders",
        "learn orders.model orders/orders.csv --label outcome --first-batch 200 --batch-size 200",
        f"evaluate orders.model orders/test.csv --force --plot {shlex.quote(str(path))}",
    )
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            run = [sys.executable, "-m", "seqmed", *shlex.split(command)]
            subprocess.run(run, cwd=folder, check=True)


# Curves of the picture of the paper: figure of results.json, its methods and their labels.
PAPER = {
    "figure1": {
        "seqmed": "SeqMED", "independent": "each batch alone", "full_med": "full retraining",
        "ours": "SeqMED, averaged",
    },
    "figure2": {
        "spectral": "SeqLapMED, spectral", "independent": "each batch alone",
        "full_lapmed": "full retraining", "landmarks": "SeqLapMED, landmarks",
    },
    "figure3": {
        "spectral": "SeqLapMED, spectral", "independent": "each batch alone",
        "full_lapmed": "full retraining", "landmarks": "SeqLapMED, landmarks",
    },
}  # fmt: skip


def paper(path):
    """Draw the three experiments of the paper from the results of `make paper`."""
    results = json.loads((IMAGES.parent.parent / "results/results.json").read_text())["figures"]
    figure, panels = plotting.panels(3, (3.9, 3.9))
    for axes, (name, methods) in zip(panels, PAPER.items(), strict=True):
        runs = results[name]["accuracies"]
        curves = {label: np.array(runs[each], dtype=float) for each, label in methods.items()}
        plotting.accuracy_curves(
            axes, curves, title=results[name]["title"].replace(", one", ",\none")
        )
        axes.title.set_size("medium")
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.15), frameon=False, fontsize="small",
            ncols=2, columnspacing=1.0,
        )  # fmt: skip
    plotting.save_figure(figure, path)


FIGURES = {
    "first-model": first_model, "few-labels": few_labels, "drift": drift,
    "late-labels": late_labels, "predictions": predictions, "how-it-works": how_it_works,
    "command-line": command_line, "paper": paper,
}  # fmt: skip


def main():
    """Draw all figures, or one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=FIGURES, help="draw one figure")
    only = parser.parse_args().only
    for name, draw in FIGURES.items():
        if only in (None, name):
            draw((IMAGES / f"{name}.png").resolve())


if __name__ == "__main__":
    main()
