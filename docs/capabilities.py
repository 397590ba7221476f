"""Write the table of what each estimator can do: python docs/capabilities.py [--check].

Every cell is found by trying it: a model learns a small stream and does what the row says. With
--check nothing is written: the program fails if the page differs.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.preprocessing import MaxAbsScaler

import seqmed
from seqmed import (
    GraphPropagation,
    PrequentialSearch,
    SeqGraphMED,
    SeqLapMED,
    SeqMED,
    StreamPipeline,
    make_stream_pipeline,
    query,
)

PAGE = Path(__file__).parent / "estimators.md"
START, END = "<!-- capabilities -->\n", "<!-- end -->"

# How each estimator is made for the trials. A pipeline is the classifier behind an encoder.
ESTIMATORS: dict[str, Callable[[], Any]] = {
    "SeqGraphMED": lambda: SeqGraphMED(random_state=0, experts=()),
    "SeqMED": SeqMED,
    "SeqLapMED": lambda: SeqLapMED(random_state=0),
    "GraphPropagation": lambda: GraphPropagation(random_state=0),
    "PrequentialSearch": lambda: PrequentialSearch(SeqMED(), {"C": [1.0, 10.0]}),
    "StreamPipeline": lambda: StreamPipeline([
        ("scale", MaxAbsScaler()), ("model", SeqGraphMED(random_state=0, experts=())),
    ]),
    "make_stream_pipeline": lambda: make_stream_pipeline(
        SeqGraphMED(random_state=0, experts=()), random_state=0
    ),
}  # fmt: skip


def clusters(n: int = 60, seed: int = 0) -> tuple[Any, Any]:
    """Return rows of two clusters and their classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return rng.normal(size=(n, 3)) + 3.0 * y[:, None], y


def learned(make: Callable[[], Any]) -> Any:
    """Return a model of two batches."""
    X, y = clusters()
    return make().partial_fit(X[:30], y[:30]).partial_fit(X[30:], y[30:])


def learns_a_stream(make: Callable[[], Any]) -> bool:
    """Return whether the model predicts new rows after two batches."""
    X, y = clusters(seed=1)
    return bool(learned(make).score(X, y) > 0.9)


def uses_unlabeled_rows(make: Callable[[], Any]) -> bool:
    """Return whether rows without a label change the predictions."""
    rng = np.random.default_rng(0)
    angle = np.linspace(0, np.pi, 100)
    upper = np.column_stack([np.cos(angle), np.sin(angle)])
    X = np.concatenate([upper, [1.0, 0.3] - upper]) + 0.03 * rng.normal(size=(200, 2))
    labels = np.full(200, -1)
    labels[[0, 60, 100, 160]] = [0, 0, 1, 1]
    known = labels != -1
    # The first batch decides scales, so that it is the same.
    alone, both = (make().partial_fit(X[known], labels[known]) for _ in range(2))
    both.partial_fit(X, [None] * len(X))
    return bool(np.abs(alone.predict_proba(X) - both.predict_proba(X)).max() > 1e-6)


def takes_new_classes(make: Callable[[], Any]) -> bool:
    """Return whether a class may appear in a later batch."""
    X, _ = clusters()
    model = learned(make)
    model.partial_fit(X[:20] + 30.0, np.full(20, 2))
    new, old = model.predict(X[:20] + 30.0) == 2, model.predict(X) == 2
    return bool(new.mean() > 0.9 and old.mean() < 0.1)


def takes_late_labels(make: Callable[[], Any]) -> bool:
    """Return whether labels may arrive after their rows."""
    X, y = clusters()
    model = make().partial_fit(X, [None] * len(X))
    model.partial_fit(X[:10], y[:10], new_points=False)
    return bool(model.score(X, y) > 0.9)


def retracts(make: Callable[[], Any]) -> bool:
    """Return whether labels can be removed again."""
    X, y = clusters()
    model = learned(make)
    before = model.predict_proba(X)
    model.retract(X[:6], y[:6])
    return bool(np.abs(model.predict_proba(X) - before).max() > 0)


def takes_sparse_rows(make: Callable[[], Any]) -> bool:
    """Return whether rows may be sparse arrays."""
    X, y = clusters()
    rows = csr_array(np.where(np.abs(X) < 0.5, 0.0, X))
    return bool(make().partial_fit(rows, y).predict(rows).shape == y.shape)


def takes_raw_tables(make: Callable[[], Any]) -> bool:
    """Return whether tables with texts and missing cells can be learned as they are."""
    rows = [{"size": i % 7 if i % 5 else None, "colour": ["red", "blue"][i % 2]} for i in range(60)]
    model = make().partial_fit(rows, [i % 2 for i in range(60)])
    return bool((model.predict(rows) == np.arange(60) % 2).all())


def takes_sample_weights(make: Callable[[], Any]) -> bool:
    """Return whether weights of rows change the model."""
    X, y = clusters()
    X = X + np.random.default_rng(0).normal(scale=2.0, size=X.shape)
    weights = (None, 1.0 + 9.0 * (np.arange(len(y)) % 3 == 0))
    models = [make().partial_fit(X, y, sample_weight=each) for each in weights]
    one, other = (model.predict_proba(X) for model in models)
    return bool(np.abs(one - other).max() > 1e-6)


def forgets(make: Callable[[], Any]) -> bool:
    """Return whether a forgetting factor can be set."""
    model = make()
    names = [name for name in model.get_params() if name.rpartition("__")[2] == "forgetting"]
    return bool(names) and learns_a_stream(lambda: make().set_params(**{names[0]: 0.9}))


def finds_changes(make: Callable[[], Any]) -> bool:
    """Return whether an abrupt change of the concept is reported."""
    model = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(12):
            X, y = clusters(100, seed=number)
            model.partial_fit(X, y if number < 8 else 1 - y)
    return any(issubclass(each.category, seqmed.ConceptChangeWarning) for each in caught)


def explains(make: Callable[[], Any]) -> bool:
    """Return whether a prediction is taken apart."""
    X, _ = clusters()
    (explanation,) = learned(make).explain(X[:1])
    return bool(explanation.votes)


def chooses_rows_to_label(make: Callable[[], Any]) -> bool:
    """Return whether `query` takes the model."""
    X, _ = clusters(seed=2)
    return len(query(learned(make), X, 3)) == 3


def has_standard_deviations(make: Callable[[], Any]) -> bool:
    """Return whether scores have a standard deviation."""
    X, _ = clusters()
    return bool(np.all(learned(make).decision_std(X) > 0))


def is_saved(make: Callable[[], Any]) -> bool:
    """Return whether a loaded model predicts the same."""
    X, _ = clusters()
    model = learned(make)
    with tempfile.TemporaryDirectory() as folder:
        seqmed.save(model, Path(folder) / "model")
        loaded = seqmed.load(Path(folder) / "model")
    return bool((loaded.predict_proba(X) == model.predict_proba(X)).all())


CAPABILITIES: dict[str, Callable[[Callable[[], Any]], bool]] = {
    "learns batch by batch (`partial_fit`)": learns_a_stream,
    "uses unlabeled rows": uses_unlabeled_rows,
    "takes new classes at any time": takes_new_classes,
    "takes late labels (`new_points=False`)": takes_late_labels,
    "removes labels (`retract`)": retracts,
    "takes sample weights": takes_sample_weights,
    "takes sparse rows": takes_sparse_rows,
    "takes raw tables": takes_raw_tables,
    "forgets slowly (`forgetting` below 1)": forgets,
    "finds abrupt changes": finds_changes,
    "explains predictions (`explain`)": explains,
    "chooses rows to label (`query`)": chooses_rows_to_label,
    "standard deviation of scores (`decision_std`)": has_standard_deviations,
    "saved without code (`save`, `load`)": is_saved,
}


def can(what: Callable[[Callable[[], Any]], bool], make: Callable[[], Any]) -> bool:
    """Return whether an estimator can do something; refusing it is an error or a missing method."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return what(make)
        except (AttributeError, TypeError, ValueError):
            return False


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| | " + " | ".join(f"`{name}`" for name in ESTIMATORS) + " |"]
    lines.append("|---" * (1 + len(ESTIMATORS)) + "|")
    for text, what in CAPABILITIES.items():
        cells = ("yes" if can(what, make) else "no" for make in ESTIMATORS.values())
        lines.append(f"| {text} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Replace the table, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    check = parser.parse_args().check
    before, _, rest = PAGE.read_text().partition(START)
    text = before + START + table() + END + rest.partition(END)[2]
    if not check:
        PAGE.write_text(text)
    elif text != PAGE.read_text():
        raise SystemExit("docs/estimators.md differs from the code: run docs/capabilities.py.")


if __name__ == "__main__":
    main()
