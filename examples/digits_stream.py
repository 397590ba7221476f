"""SeqGraphMED beside other classifiers on a stream with few labels, live in the terminal.

Handwritten digits arrive in batches of 100, and 5 % of the rows have a label. After each batch all
classifiers are scored on test rows. SeqGraphMED, SeqMED and SGDClassifier learn each batch once.
SVC, LabelSpreading and SelfTrainingClassifier are refitted on all rows so far. The program draws
two figures: accuracy along the stream, and accuracy with and without unlabeled rows.

    python examples/digits_stream.py [--out demo]
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from seqmed import SeqGraphMED, SeqMED, plotting

BATCH, TEST_ROWS, DRAWS = 100, 397, 3
FRACTION = 0.05
FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.2)
SPIRAL_FRACTION, SPIRAL_SEED = 0.02, 0
UNLABELED, CLASSES = -1, range(10)
SPARKS = "▁▂▃▄▅▆▇█"


def digits(draw, fraction):
    """Return rows, labels of which most are missing, test rows and their classes."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng((draw, round(1000 * fraction)))
    order = rng.permutation(len(y))
    X, y = X[order] / 16.0, y[order]
    labels = np.where(rng.random(len(y)) < fraction, y, UNLABELED)
    return X[:-TEST_ROWS], labels[:-TEST_ROWS], X[-TEST_ROWS:], y[-TEST_ROWS:]


def spiral(n, rng):
    """Return rows of two spirals and their classes."""
    y = rng.integers(0, 2, n)
    radius = np.sqrt(rng.uniform(0.05, 1.0, n))
    angle = 2.5 * np.pi * radius + np.pi * y
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    return X + rng.normal(scale=0.03, size=X.shape), y


class Refitted:
    """A classifier that is refitted on all rows so far."""

    def __init__(self, model, *, labeled_only):
        self.model, self.labeled_only = model, labeled_only
        self.X, self.y, self.fitted = [], [], False

    def partial_fit(self, X, y, classes):
        chosen = y != UNLABELED if self.labeled_only else slice(None)
        self.X.append(X[chosen])
        self.y.append(y[chosen])
        labels = np.concatenate(self.y)
        if np.unique(labels[labels != UNLABELED]).size > 1:
            self.model.fit(np.concatenate(self.X), labels)
            self.fitted = True

    def score(self, X, y):
        return self.model.score(X, y) if self.fitted else np.nan


class Standardised:
    """A classifier that learns labeled rows, standardised by the first batch."""

    def __init__(self, model):
        self.model, self.scaler = model, None

    def partial_fit(self, X, y, classes):
        self.scaler = self.scaler or StandardScaler().fit(X)
        labeled = y != UNLABELED
        if labeled.any():
            self.model.partial_fit(self.scaler.transform(X[labeled]), y[labeled], classes=classes)

    def score(self, X, y):
        fitted = hasattr(self.model, "classes_")
        return self.model.score(self.scaler.transform(X), y) if fitted else np.nan


METHODS = {
    "SeqGraphMED": lambda: SeqGraphMED(random_state=0),
    "SeqMED, labels only": SeqMED,
    "SGDClassifier": lambda: Standardised(
        SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.01, random_state=0)
    ),
    "SVC, refitted": lambda: Refitted(SVC(C=10.0), labeled_only=True),
    "LabelSpreading, refitted": lambda: Refitted(
        LabelSpreading(kernel="knn", n_neighbors=10), labeled_only=False
    ),
    "SelfTraining, refitted": lambda: Refitted(
        SelfTrainingClassifier(LogisticRegression()), labeled_only=False
    ),
}
OURS, WITHOUT = list(METHODS)[:2]


def batches(X, labels):
    """Yield the rows and labels of every batch."""
    for start in range(0, len(X), BATCH):
        yield X[start : start + BATCH], labels[start : start + BATCH]


def sparks(accuracies):
    """Return accuracies from 30 to 100 % as a line of block characters."""
    scaled = np.clip((np.nan_to_num(accuracies) - 0.3) / 0.7, 0.0, 0.999)
    return "".join(SPARKS[int(len(SPARKS) * value)] for value in scaled)


def table_of(title, curves, seconds):
    """Return the table of the current draw."""
    table = Table(title=title, title_justify="left")
    table.add_column("classifier", no_wrap=True)
    table.add_column("accuracy, batch by batch", no_wrap=True)
    table.add_column("now", justify="right")
    table.add_column("seconds", justify="right")
    for name, accuracies in curves.items():
        now = f"{accuracies[-1]:.1%}" if accuracies else ""
        style = "bold" if name == OURS else None
        table.add_row(name, sparks(accuracies), now, f"{seconds[name]:.2f}", style=style)
    return table


def compile_solver(console):
    """Learn one batch with every classifier, so that the times do not include compilation."""
    console.print("compiling the solver, the first time about 10 seconds")
    X, labels, X_test, y_test = digits(0, FRACTION)
    for make in METHODS.values():
        model = make()
        model.partial_fit(X[:BATCH], labels[:BATCH], classes=CLASSES)
        model.score(X_test, y_test)


def watch(console):
    """Learn the digits with every classifier; return accuracies (draws, batches) of each."""
    found = {name: [] for name in METHODS}
    for draw in range(DRAWS):
        X, labels, X_test, y_test = digits(draw, FRACTION)
        title = f"digits, {np.sum(labels != UNLABELED)} labels in {len(X)} rows, draw {draw + 1}"
        models = {name: make() for name, make in METHODS.items()}
        curves, seconds = {name: [] for name in METHODS}, dict.fromkeys(METHODS, 0.0)
        with Live(table_of(title, curves, seconds), console=console, auto_refresh=False) as live:
            for X_batch, y_batch in batches(X, labels):
                for name, model in models.items():
                    begin = time.perf_counter()
                    model.partial_fit(X_batch, y_batch, classes=CLASSES)
                    seconds[name] += time.perf_counter() - begin
                    curves[name].append(model.score(X_test, y_test))
                live.update(table_of(title, curves, seconds), refresh=True)
        for name in METHODS:
            found[name].append(curves[name])
    return {name: np.array(runs) for name, runs in found.items()}


def after_the_stream(name, draw, fraction):
    """Return the accuracy of a classifier after all batches."""
    X, labels, X_test, y_test = digits(draw, fraction)
    model = METHODS[name]()
    for X_batch, y_batch in batches(X, labels):
        model.partial_fit(X_batch, y_batch, classes=CLASSES)
    return model.score(X_test, y_test)


def draw_stream(curves, path):
    """Draw accuracy along the stream."""
    figure, (axes,) = plotting.panels(1, (6.4, 4.6))
    title = (
        f"Handwritten digits, {100 * FRACTION:g} % labels (mean of {DRAWS} draws, ± standard error)"
    )
    plotting.accuracy_curves(axes, curves, title=title)
    axes.set_xlabel("batches of 100 rows")
    axes.title.set_size("medium")
    plotting.save_figure(figure, path)


def draw_unlabeled(path):
    """Draw results with and without unlabeled rows: two spirals, and digits by number of labels."""
    figure, panels = plotting.panels(3, (3.3, 3.4))
    rng = np.random.default_rng(SPIRAL_SEED)
    (X, y), (X_test, y_test) = spiral(1000, rng), spiral(1000, rng)
    labels = np.where(rng.random(len(y)) < SPIRAL_FRACTION, y, UNLABELED)
    grid = np.linspace(-1.25, 1.25, 200)
    points = np.array(np.meshgrid(grid, grid)).reshape(2, -1).T
    for axes, name in zip(panels, (WITHOUT, OURS), strict=False):
        model = METHODS[name]()
        for X_batch, y_batch in batches(X, labels):
            model.partial_fit(X_batch, y_batch, classes=[0, 1])
        regions = model.predict(points).reshape(grid.size, grid.size)
        colours = [plotting.PALETTE[0], plotting.PALETTE[1]]
        axes.contourf(grid, grid, regions, levels=[-0.5, 0.5, 1.5], colors=colours, alpha=0.25)
        axes.scatter(*X[labels == UNLABELED].T, s=3, color="0.45", linewidths=0)
        for value, colour in enumerate(colours):
            shown = X[labels == value]
            axes.scatter(*shown.T, s=55, color=colour, edgecolors="white", linewidths=1.2)
        n_labels = np.sum(labels != UNLABELED)
        axes.set(xticks=[], yticks=[], aspect="equal")
        axes.set_xlabel(f"{n_labels} labels in {len(X)} rows")
        correct = f"{100 * model.score(X_test, y_test):.0f} % correct"
        axes.set_title(f"{name}\n{correct}", fontsize="medium")
    for place, name in enumerate((OURS, WITHOUT)):
        runs = np.array([
            [after_the_stream(name, draw, fraction) for fraction in FRACTIONS]
            for draw in range(DRAWS)
        ])  # fmt: skip
        error = runs.std(axis=0, ddof=1) / np.sqrt(DRAWS)
        panels[2].errorbar(
            100 * np.array(FRACTIONS), runs.mean(axis=0), error, label=name, capsize=2,
            color=plotting.PALETTE[place], marker="os"[place], linestyle=("-", "--")[place],
        )  # fmt: skip
    panels[2].set(xscale="log", xlabel="labels, per cent", ylabel="test accuracy")
    panels[2].set_xticks([100 * f for f in FRACTIONS], [f"{100 * f:g}" for f in FRACTIONS])
    panels[2].minorticks_off()
    panels[2].grid(alpha=0.3, linewidth=0.6)
    panels[2].legend(frameon=False, fontsize="small", loc="lower right")
    panels[2].set_title("handwritten digits\nafter 1400 rows", fontsize="medium")
    plotting.save_figure(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the figures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    # Baselines that do not converge, and rows that label propagation does not reach.
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)

    console = Console()
    compile_solver(console)
    curves = watch(console)
    table = Table(title=f"after the last batch, mean of {DRAWS} draws ± standard error")
    table.add_column("classifier", no_wrap=True)
    table.add_column("accuracy", justify="right")
    for name, runs in curves.items():
        error = runs[:, -1].std(ddof=1) / np.sqrt(DRAWS)
        style = "bold" if name == OURS else None
        table.add_row(name, f"{runs[:, -1].mean():.1%} ± {error:.1%}", style=style)
    console.print(table)
    try:
        plotting.require_matplotlib()
    except ImportError as error:
        console.print(f"No figures: {error}", markup=False)
        return
    draw_stream(curves, out / "stream.png")
    draw_unlabeled(out / "unlabeled.png")
    console.print(f"Figures: {out / 'stream.png'}, {out / 'unlabeled.png'}")


if __name__ == "__main__":
    main()
