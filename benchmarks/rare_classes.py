"""Probabilities of rare classes, with 5, 10 or 30 labels of the rare class.

Adult (24 % positive), bank marketing (12 %), Telco churn (27 %), and made-up tables of eight
numbers and two categories with 5, 2 and 1 % positive rows. A stream has up to 6000 rows in batches
of 100, and up to 4000 other rows are held out. Labels of 5, 10 or 30 positive rows are shown, and
of as many negative ones as the share of the class gives. Ten draws of rows, order and labels, the
same for all methods.

- SeqGraphMED, through `make_stream_pipeline`; --variant adds further parameter sets;
- LogisticRegression(max_iter=1000), fitted on the labels after the last batch, on one-hot
  categories and imputed, standardised numbers (encoder fitted to the stream);
- class fractions: the fractions of the labels, for every row.

Reported are log loss (probabilities at least 1e-6), calibration error (15 equal bins of
confidence), accuracy, and the mean probability of the rare class beside its share.

    SEQMED_DATA=FOLDER python benchmarks/rare_classes.py [--quick] [--tables NAME ...]
        [--variant 'NAME={"mixture": 0.5}' ...] [--jobs 2] [--out FILE.json]
"""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import mixed_tables
import numpy as np
from broad_evidence import OURS, UNLABELED, Fit, add_run_options, measured, prepare
from common import (
    Later,
    MissingDataError,
    make_encoder,
    make_parser,
    mean_and_error,
    print_table,
    write_json,
)
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from seqmed import SeqGraphMED, SeqMED, make_stream_pipeline

pd = Later("pandas")

POSITIVES, DRAWS = (5, 10, 30), 10
STREAM, HELD_OUT, MOST_HELD_OUT, BATCH = 6000, 4000, 0.3, 100
MADE_UP = {"made up, 5 %": 0.05, "made up, 2 %": 0.02, "made up, 1 %": 0.01}
TABLES = (*mixed_tables.TABLES, *MADE_UP)
REGRESSION, FRACTIONS = "LogisticRegression", "class fractions"
MEASURES = ("log_loss", "ece", "accuracy", "probability", "learning")


class Rows(NamedTuple):
    """A stream and held-out rows as frames, with classes 0 and 1, and columns of ids."""

    X: pd.DataFrame
    y: np.ndarray
    X_test: pd.DataFrame
    y_test: np.ndarray
    ids: tuple[str, ...]


def made_up(share: float, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table of eight numbers and two categories, with a share of positive rows."""
    X, y = make_classification(
        STREAM + HELD_OUT, 10, n_informative=5, weights=[1 - share], flip_y=0.0, class_sep=1.0,
        random_state=seed,
    )  # fmt: skip
    frame = pd.DataFrame(X, columns=[f"column {place}" for place in range(10)])
    for name in ("column 0", "column 1"):
        frame[name] = np.array(list("abcd"))[np.searchsorted([-1, 0, 1], frame[name])]
    return frame, y


def drawn(table: str, draw: int) -> Rows:
    """Return the rows of one draw."""
    rng = np.random.default_rng((draw, *table.encode()))
    if table in MADE_UP:
        (frame, y), ids = made_up(MADE_UP[table], draw), ()
    else:
        (frame, y), ids = mixed_tables.load(table), mixed_tables.TABLES[table].ids
    order = rng.permutation(len(y))[: STREAM + HELD_OUT]
    n = order.size - min(HELD_OUT, round(MOST_HELD_OUT * order.size))
    frame, y = frame.iloc[order].reset_index(drop=True), y[order]
    return Rows(frame[:n], y[:n], frame[n:], y[n:], ids)


def shown(rows: Rows, positives: int, draw: int) -> np.ndarray:
    """Return the classes of the stream, -1 where the label is not shown."""
    share = rows.y.mean()
    rng = np.random.default_rng((draw, 1))
    places = [rng.permutation(np.flatnonzero(rows.y == code)) for code in (0, 1)]
    negatives = round(positives * (1 - share) / share)
    found = np.full(len(rows.y), UNLABELED)
    found[places[0][:negatives]], found[places[1][:positives]] = 0, 1
    return found


def streamed(parameters: dict[str, Any], rows: Rows, labels: np.ndarray, draw: int) -> Fit:
    """Learn the stream through the pipeline, and predict the held-out rows."""
    margin = SeqMED(kernel="auto", random_state=draw)  # as in the default pipeline
    model = make_stream_pipeline(SeqGraphMED(margin, random_state=draw, **parameters))
    begin = time.process_time()
    for start in range(0, len(labels), BATCH):
        model.partial_fit(rows.X[start : start + BATCH], labels[start : start + BATCH])
    learned = time.process_time()
    found = model.predict_proba(rows.X_test)
    return Fit(found, model.classes_, learned - begin, time.process_time() - learned)


def regression(rows: Rows, labels: np.ndarray) -> Fit:
    """Fit a logistic regression on the labels, and predict the held-out rows."""
    encoder = make_encoder(rows.X, rows.ids).fit(rows.X)
    known = labels != UNLABELED
    begin = time.process_time()
    model = LogisticRegression(max_iter=1000).fit(encoder.transform(rows.X[known]), labels[known])
    learned = time.process_time()
    found = model.predict_proba(encoder.transform(rows.X_test))
    return Fit(found, model.classes_, learned - begin, time.process_time() - learned)


def fractions(rows: Rows, labels: np.ndarray) -> Fit:
    """Return the fractions of the labels for every held-out row."""
    counts = np.bincount(labels[labels != UNLABELED])
    found = np.tile(counts / counts.sum(), (len(rows.y_test), 1))
    return Fit(found, np.arange(2), 0.0, 0.0)


def run(task: tuple[str, int, dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the records of a table and a draw."""
    table, draw, variants = task
    warnings.simplefilter("ignore")  # a column with missing cells only, few labels
    records = []
    with threadpool_limits(1):
        prepare()
        rows = drawn(table, draw)
        for positives in POSITIVES:
            labels = shown(rows, positives, draw)
            fits = {name: streamed(given, rows, labels, draw) for name, given in variants.items()}
            fits |= {REGRESSION: regression(rows, labels), FRACTIONS: fractions(rows, labels)}
            for method, fit in fits.items():
                found = measured(fit, rows.y_test, 2)
                found["probability"] = 100.0 * float(fit.probabilities[:, 1].mean())
                found["share"] = 100.0 * float(rows.y_test.mean())
                found["labels"] = int((labels != UNLABELED).sum())
                cell = {"table": table, "positives": positives, "draw": draw, "method": method}
                records.append(cell | found)
    return records


def summary(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return means and standard errors over draws, by table, number of positives and method.

    "gain" is the log loss of LogisticRegression minus that of the method, paired over draws.
    """
    frame = pd.DataFrame(records).set_index(["table", "positives", "method", "draw"])
    losses = frame["log_loss"].unstack("method")
    cells = []
    for place, runs in frame.groupby(["table", "positives", "method"], sort=False):
        of_cell = losses.loc[place[:2]]
        cells.append(
            dict(zip(("table", "positives", "method"), place, strict=True))
            | {"labels": round(runs["labels"].mean()), "share": runs["share"].mean()}
            | {name: mean_and_error(runs[name]) for name in MEASURES}
            | {"gain": mean_and_error(of_cell[REGRESSION] - of_cell[place[2]])}
        )
    return cells


def print_summary(cells: list[dict[str, Any]]) -> None:
    """Print a table of all cells, and the means over them."""
    rows = [
        [
            f"{cell['table']}, {cell['positives']} of {cell['labels']} labels, {cell['method']}",
            *(f"{cell[name]['mean']:.3f} ± {cell[name]['error']:.3f}" for name in MEASURES[:2]),
            f"{cell['gain']['mean']:+.3f} ± {cell['gain']['error']:.3f}",
            f"{cell['accuracy']['mean']:.1f}",
            f"{cell['probability']['mean']:.1f} ({cell['share']:.1f})",
            f"{cell['learning']['mean']:.2f}",
        ]
        for cell in cells
    ]
    header = ("", "log loss", "calibration error", "gain in log loss", "accuracy")
    print_table((*header, "% positive (true)", "seconds"), rows)
    frame = pd.DataFrame(
        [
            {"method": cell["method"], **{name: cell[name]["mean"] for name in MEASURES}}
            for cell in cells
        ]
    )
    print("\nmean of all cells")
    print(frame.groupby("method", sort=False).mean().round(4).to_string())


def main() -> None:
    """Run all tables, print means and write them as JSON."""
    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="one draw")
    parser.add_argument("--tables", nargs="+", choices=TABLES, metavar="NAME", default=TABLES)
    add_run_options(parser)
    parser.add_argument("--out", help="write the results there as JSON")
    options = parser.parse_args()
    variants = {OURS: {}} | dict(options.variant)
    found = []
    for table in options.tables:
        try:
            drawn(table, 0)
            found.append(table)
        except MissingDataError as error:
            print(f"{table} is left out: {error}")
    draws = range(1 if options.quick else DRAWS)
    tasks = [(table, draw, variants) for table in found for draw in draws]
    with ProcessPoolExecutor(options.jobs) as pool:
        records = [record for part in pool.map(run, tasks) for record in part]
    cells = summary(records)
    print_summary(cells)
    write_json(options.out, {"variants": variants, "cells": cells, "records": records})


if __name__ == "__main__":
    main()
