"""Check the rule by which SeqGraphMED weighs the graph against the margin, on sets of its own.

Three methods learn the same streams: SeqMED (the margin expert alone), GraphPropagation (the graph
expert alone) and SeqGraphMED, all with defaults. The sets are scikit-learn's own and made-up ones
(`guard_sets.py`). Rules of `seqmed.mixture.record` may be chosen on the choosing half; the
confirming half only confirms. `defaults.py` uses breast_cancer, wine and two moons too, all of the
choosing half; no other program uses the rest. Digits serve for batch sizes only.

1. Few labels: streams of at most 1000 rows in batches of 100, 5 to 100 of them labeled at random.
   Other rules for the weight are evaluated on the same records and scores (`RULES`).
2. Rare positives: 1, 5 and 10 % of the rows, at least ten of them labeled.
3. Batch sizes: the same stream in batches of 1, 20, 200 and 1000 rows.

Columns are standardised by the first 100 rows. Every mask draws the split in stream and test rows,
the order, and the labeled rows. Accuracies are percentages of the test rows.

    python benchmarks/guard.py [--quick] [--jobs 1] [--out FILE.json]
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from common import parse, print_table, standard_error, write_json
from guard_sets import ADDED, CHOOSING, CONFIRMING, RARE_SETS, SETS, Table, bunch, rare_table
from joblib import Parallel, delayed
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score, balanced_accuracy_score, log_loss
from sklearn.preprocessing import StandardScaler

from seqmed import GraphPropagation, SeqGraphMED, SeqMED
from seqmed.mixture import record as mixture_record
from seqmed.mixture.mixture_state import expert_scores, mix

# Targets, in points of accuracy unless said otherwise.
BELOW_BETTER = 0.5  # the mixture below the better expert, overall, from 20 labels on
BELOW_MARGIN = 1.0  # the mixture below the margin, overall, with 5 and 10 labels
BELOW_MARGIN_SET = 2.5  # the same of every set, plus two standard errors of the difference
BELOW_PRECISION, ABOVE_LOG_LOSS = 1.0, 0.01  # average precision (points), log loss
SIZES_APART = 1.0  # batch sizes

LABELS = (5, 10, 20, 50, 100)
RARE_SHARES = (0.01, 0.05, 0.1)
RARE_LABELS = {0.01: 1000, 0.05: 300, 0.1: 150}
RARE_POSITIVES = 10
BATCH, BATCH_SIZES = 100, (1, 20, 200, 1000)
SIZE_SETS = ("digits", "swiss_roll", "hypercube")
STREAM_ROWS, TEST_SHARE = 1000, 1 / 3
# First of the classes' names: the marker -1 of unlabeled rows and a single class 1 are ambiguous.
FIRST_CLASS = 2

METHODS = {
    "margin": SeqMED(random_state=0),
    "graph": GraphPropagation(random_state=0),
    "mixture": SeqGraphMED(random_state=0),
}
RARE_METHODS = {
    "margin": METHODS["margin"],
    "evidence": METHODS["mixture"],
    "uniform": SeqGraphMED(class_prior="uniform", random_state=0),
}

# -- streams ---------------------------------------------------------------------------------------


class Stream(NamedTuple):
    """Rows in the order of the stream, labels with NaN where there is none, and test rows."""

    X: Any
    labels: Any
    X_test: Any
    y_test: Any


def make_stream(
    table: Table, n_labels: int, mask: int, *, rows: int = STREAM_ROWS, positives: int = 0
) -> Stream | None:
    """Return a stream of which ``n_labels`` rows are labeled; None if that is more than 70 %.

    At least two classes have a label, and class 1 at least ``positives`` of them.
    """
    rng = np.random.default_rng((mask, n_labels))
    order = rng.permutation(len(table.y))
    n_test = int(TEST_SHARE * len(order))
    if len(order) > rows:
        n_test = min(n_test, len(order) - rows)
    test, stream = order[:n_test], order[n_test:][:rows]
    if n_labels > 0.7 * stream.size:
        return None
    y = table.y[stream]
    while True:
        shown = rng.choice(stream.size, n_labels, replace=False)
        if np.unique(y[shown]).size > 1 and np.sum(y[shown] == 1) >= positives:
            break
    labels = np.full(stream.size, np.nan)
    labels[shown] = y[shown] + FIRST_CLASS
    scaler = StandardScaler().fit(table.X[stream[:BATCH]])
    X, X_test = scaler.transform(table.X[stream]), scaler.transform(table.X[test])
    return Stream(X, labels, X_test, table.y[test] + FIRST_CLASS)


def learned(method: Any, stream: Stream, size: int = BATCH) -> Any:
    """Return a new classifier that has learned a stream in batches."""
    model = clone(method)
    for start in range(0, len(stream.labels), size):
        batch = slice(start, start + size)
        model.partial_fit(stream.X[batch], stream.labels[batch])
    return model


def accuracy(model: Any, stream: Stream) -> float:
    """Return the percentage of test rows classified well."""
    return 100 * float(np.mean(model.predict(stream.X_test) == stream.y_test))


# -- rules -----------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """A rule for the weight of the graph.

    Attributes
    ----------
    weight : maps the costs J of a grid of weights, the grid, and the number of record rows to it.
    first : the weight while the record is empty; None for what `weight` makes of equal costs.
    grid : the weights.
    """

    weight: Callable[[Any, Any, int], float]
    first: float | None = None
    grid: Any = mixture_record.WEIGHTS


def smallest_within(nats: Callable[[int], float]) -> Rule:
    """Return the rule of the smallest weight whose cost is within some nats of the lowest."""
    grid = np.array([0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 1.0])
    return Rule(lambda J, w, n: w[np.flatnonzero(J - J.min() <= nats(n))[0]], 0.1, grid)


def posterior_mean(log_prior: Callable[[Any], Any]) -> Rule:
    """Return the rule of the posterior mean of the weight; a small one is 0."""

    def weight(J: Any, w: Any, n: int) -> float:
        mean = float(softmax(-J + log_prior(w)) @ w)
        return mean if mean >= mixture_record.SMALLEST_WEIGHT else 0.0

    return Rule(weight)


RULES = {
    "smallest within 1.5 nats": smallest_within(lambda n: 1.5),
    "within .5 nats": smallest_within(lambda n: 0.5),
    "lowest cost": smallest_within(lambda n: 0.0),
    "within 1.5 n / (n + 20) nats": smallest_within(lambda n: 1.5 * n / (n + 20)),
    "within min(1.5, n / 40) nats": smallest_within(lambda n: min(1.5, n / 40)),
    "mean, uniform prior": posterior_mean(np.zeros_like),
    "mean, prior exp(-2 w)": posterior_mean(lambda w: -2 * w),
    "mean, prior exp(-3 w)": posterior_mean(lambda w: -3 * w),
    "mean, prior exp(-5 w)": posterior_mean(lambda w: -5 * w),
    "mean, prior (1 - w)": posterior_mean(lambda w: np.log(1.001 - w)),
    "mean, prior (1 - w)^2": posterior_mean(lambda w: 2 * np.log(1.001 - w)),
    "always .5": Rule(lambda J, w, n: 0.5),
}


def by_rules(model: Any, stream: Stream) -> dict[str, tuple[float, float]]:
    """Return accuracy and weight of a SeqGraphMED for every rule, with its scores and record."""
    state = model._state
    scores = expert_scores(state, state.scaled(stream.X_test))
    found = {}
    for name, rule in RULES.items():
        size = state.record.size
        choice = state.choice
        if size:
            with (
                patch.object(mixture_record, "WEIGHTS", rule.grid),
                patch.object(
                    mixture_record, "mean_weight", lambda J, r=rule, n=size: r.weight(J, r.grid, n)
                ),
            ):
                choice = mixture_record.choose(state.record, state.by_counts, None, True)
        else:
            first = rule.first
            if first is None:
                first = rule.weight(np.zeros(rule.grid.size), rule.grid, 0)
            choice = choice._replace(weight=first)
        mixed = mix(scores, state.score_scales, choice, state.by_counts)
        labels = state.registry.classes[state.registry.best(mixed)]
        found[name] = 100 * float(np.mean(labels == stream.y_test)), float(choice.weight)
    return found


# -- 1. few labels ---------------------------------------------------------------------------------


def few_labels(name: str, n_labels: int, n_masks: int) -> dict[str, Any] | None:
    """Return the accuracies of all methods on a set with some labels, one per mask."""
    warnings.simplefilter("ignore")
    table = SETS[name]()
    cell: dict[str, Any] = {"set": name, "labels": n_labels, "weight": []}
    cell |= {method: [] for method in METHODS}
    cell |= {"rules": {rule: [] for rule in RULES}, "rule_weights": {rule: [] for rule in RULES}}
    for mask in range(n_masks):
        stream = make_stream(table, n_labels, mask)
        if stream is None:
            return None
        for label, method in METHODS.items():
            model = learned(method, stream)
            cell[label].append(accuracy(model, stream))
        cell["weight"].append(model.graph_weight_)
        for rule, (value, weight) in by_rules(model, stream).items():
            cell["rules"][rule].append(value)
            cell["rule_weights"][rule].append(weight)
    return cell


def label_targets(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what targets say of cells: value, limit, and whether it is reached."""
    targets = []
    for n_labels in sorted({cell["labels"] for cell in cells}):
        chosen = [cell for cell in cells if cell["labels"] == n_labels]
        means = {m: float(np.mean([np.mean(cell[m]) for cell in chosen])) for m in METHODS}
        of_margin = n_labels < 20
        best = means["margin"] if of_margin else max(means["margin"], means["graph"])
        limit = BELOW_MARGIN if of_margin else BELOW_BETTER
        what = "the margin" if of_margin else "the better expert"
        targets.append(target(f"{n_labels} labels, below {what}", best - means["mixture"], limit))
    worst = max(
        (
            target(
                f"{cell['set']}, {cell['labels']} labels, below the margin (worst of all)",
                float(lost.mean()),
                BELOW_MARGIN_SET + 2 * standard_error(lost),
            )
            for cell in cells
            for lost in [np.subtract(cell["margin"], cell["mixture"])]
        ),
        key=lambda found: found["value"] - found["limit"],
    )
    return [*targets, worst]


def target(what: str, value: float, limit: float) -> dict[str, Any]:
    """Return a target: reached if its value is not above its limit."""
    return {"target": what, "value": value, "limit": limit, "reached": bool(value <= limit)}


# -- 2. rare positives -----------------------------------------------------------------------------


def rare(name: str, share: float, n_masks: int) -> dict[str, Any] | None:
    """Return what every method makes of rare positives, means over masks."""
    warnings.simplefilter("ignore")
    table = rare_table(name, share, int(1.5 * RARE_POSITIVES / (1 - TEST_SHARE)))
    if table is None:
        return None
    found: dict[str, list] = {method: [] for method in RARE_METHODS}
    n_labels = min(RARE_LABELS[share], int(0.65 * len(table.y) * (1 - TEST_SHARE)))
    for mask in range(n_masks):
        stream = make_stream(table, n_labels, mask, rows=2000, positives=RARE_POSITIVES)
        assert stream is not None
        truth = stream.y_test == FIRST_CLASS + 1
        for label, method in RARE_METHODS.items():
            model = learned(method, stream)
            probabilities = model.predict_proba(stream.X_test)
            found[label].append(
                (
                    100 * average_precision_score(truth, probabilities[:, 1]),
                    log_loss(truth, probabilities),
                    100 * balanced_accuracy_score(stream.y_test, model.predict(stream.X_test)),
                    accuracy(model, stream),
                )
            )
    names = ("average_precision", "log_loss", "balanced_accuracy", "accuracy")
    means = {
        label: dict(zip(names, np.mean(values, axis=0).tolist(), strict=True))
        for label, values in found.items()
    }
    return {"set": name, "share": share, "labels": n_labels, **means}


def rare_means(cells: list[dict[str, Any]], share: float) -> dict[str, dict[str, float]]:
    """Return the means over sets of every measure of every method."""
    chosen = [cell for cell in cells if cell["share"] == share]
    return {
        label: {
            name: float(np.mean([cell[label][name] for cell in chosen]))
            for name in chosen[0][label]
        }
        for label in RARE_METHODS
    }


def rare_targets(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the targets say of rare positives."""
    targets = []
    for share in sorted({cell["share"] for cell in cells}):
        means = rare_means(cells, share)
        margin, mixture = means["margin"], means["evidence"]
        lost = margin["average_precision"] - mixture["average_precision"]
        more = mixture["log_loss"] - margin["log_loss"]
        what = f"{share:.0%} positives"
        targets.append(target(f"{what}, average precision below the margin", lost, BELOW_PRECISION))
        targets.append(target(f"{what}, log loss above the margin", more, ABOVE_LOG_LOSS))
    return targets


# -- 3. batch sizes --------------------------------------------------------------------------------


def batch_sizes(name: str, n_masks: int) -> dict[str, Any]:
    """Return the accuracy of the mixture for every batch size, one per mask."""
    warnings.simplefilter("ignore")
    table = bunch(load_digits) if name == "digits" else SETS[name]()
    rows = 1500 if name == "digits" else STREAM_ROWS
    found: dict[str, list[float]] = {str(size): [] for size in BATCH_SIZES}
    for mask in range(n_masks):
        stream = make_stream(table, int(0.05 * rows), mask, rows=rows)
        assert stream is not None
        for size in BATCH_SIZES:
            found[str(size)].append(accuracy(learned(METHODS["mixture"], stream, size), stream))
    return {"set": name, "accuracy": found}


def size_target(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the target says of batch sizes: the set whose means are furthest apart."""
    apart = {cell["set"]: float(np.ptp(list(size_means(cell).values()))) for cell in cells}
    worst = max(apart, key=lambda name: apart[name])
    return target(f"{worst}, batch sizes apart (worst of all)", apart[worst], SIZES_APART)


def size_means(cell: dict[str, Any]) -> dict[str, float]:
    """Return the mean accuracy for every batch size."""
    return {size: float(np.mean(values)) for size, values in cell["accuracy"].items()}


# -- report ----------------------------------------------------------------------------------------


def print_labels(title: str, cells: list[dict[str, Any]]) -> None:
    """Print margin / graph / mixture for every set and number of labels, and the overall means."""
    print(f"\n{title}: margin / graph / mixture")
    counts = sorted({cell["labels"] for cell in cells})

    def text(chosen: list[dict[str, Any]]) -> str:
        if not chosen:
            return "-"
        return " / ".join(f"{np.mean([np.mean(c[m]) for c in chosen]):.1f}" for m in METHODS)

    rows = []
    for name in dict.fromkeys(cell["set"] for cell in cells):
        own = [cell for cell in cells if cell["set"] == name]
        rows.append((name, *(text([c for c in own if c["labels"] == n]) for n in counts)))
    rows.append(("mean", *(text([c for c in cells if c["labels"] == n]) for n in counts)))
    print_table(("", *(f"{n} labels" for n in counts)), rows)


def rule_table(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for every rule the mean accuracy by labels, and its worst cell below the margin."""
    counts = sorted({cell["labels"] for cell in cells})
    found = []
    for rule in RULES:
        lost = [float(np.mean(c["margin"]) - np.mean(c["rules"][rule])) for c in cells]
        means = [
            float(np.mean([np.mean(c["rules"][rule]) for c in cells if c["labels"] == n]))
            for n in counts
        ]
        zero = float(np.mean([w == 0 for c in cells for w in c["rule_weights"][rule]]))
        found.append({"rule": rule, "accuracy": means, "worst": max(lost), "zero_weights": zero})
    return found


def print_rules(title: str, table: list[dict[str, Any]], counts: list[int]) -> None:
    """Print mean accuracies of the rules."""
    print(f"\n{title}: mean accuracy of rules, and the largest loss of a cell against the margin")
    rows = [
        (
            of["rule"],
            *(f"{value:.2f}" for value in [*of["accuracy"], of["worst"], of["zero_weights"]]),
        )
        for of in table
    ]
    print_table(("", *(f"{n} labels" for n in counts), "largest loss", "share of w = 0"), rows)


def print_rare(cells: list[dict[str, Any]]) -> None:
    """Print the means over sets for rare positives."""
    print("\nRare positives, means over sets")
    rows = [
        (
            f"{share:.0%}, {label}",
            *(
                f"{value:.3f}" if name == "log_loss" else f"{value:.1f}"
                for name, value in of.items()
            ),
        )
        for share in sorted({cell["share"] for cell in cells})
        for label, of in rare_means(cells, share).items()
    ]
    print_table(("", *(name.replace("_", " ") for name in cells[0]["margin"])), rows)


def print_sizes(cells: list[dict[str, Any]]) -> None:
    """Print the means of every batch size."""
    print("\nAccuracy of the mixture by batch size")
    rows = [(c["set"], *(f"{value:.1f}" for value in size_means(c).values())) for c in cells]
    print_table(("", *map(str, BATCH_SIZES)), rows)


def print_targets(title: str, targets: list[dict[str, Any]]) -> None:
    """Print targets, their values and limits."""
    print(f"\n{title}")
    rows = [
        (
            each["target"],
            f"{each['value']:.3f}",
            f"{each['limit']:.3f}",
            "reached" if each["reached"] else f"missed by {each['value'] - each['limit']:.3f}",
        )
        for each in targets
    ]
    print_table(("target", "value", "limit", ""), rows)


def without_rules(cell: dict[str, Any]) -> dict[str, Any]:
    """Return a cell as it is written: the rules are summed up elsewhere."""
    return {key: value for key, value in cell.items() if key not in ("rules", "rule_weights")}


def rounded(value: Any) -> Any:
    """Return results with numbers of four decimals."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    """Run all parts, print tables and targets, and write them as JSON."""
    options = parse(__doc__ or "")
    quick = options.quick
    names = [*list(CHOOSING)[:2], *list(CONFIRMING)[:2]] if quick else list(SETS)
    masks = 2 if quick else 10
    parallel = Parallel(options.jobs)
    jobs = [(name, n) for name in names for n in LABELS]
    cells = [c for c in parallel(delayed(few_labels)(*job, masks) for job in jobs) if c]
    rare_jobs = [(name, share) for share in RARE_SHARES for name in RARE_SETS[: 2 if quick else 5]]
    rare_cells = [c for c in parallel(delayed(rare)(*job, masks) for job in rare_jobs) if c]
    size_sets = SIZE_SETS[1:2] if quick else SIZE_SETS
    sizes = parallel(delayed(batch_sizes)(name, 1 if quick else 5) for name in size_sets)

    halves = {
        "choosing": [cell for cell in cells if cell["set"] in CHOOSING],
        "confirming": [cell for cell in cells if cell["set"] in CONFIRMING],
        "all": cells,
    }
    targets = {half: label_targets(of_half) for half, of_half in halves.items()}
    targets["rare positives"] = rare_targets(rare_cells)
    targets["batch sizes"] = [size_target(sizes)]
    for half in ("choosing", "confirming"):
        print_labels(f"{half} half".capitalize(), halves[half])
    rules = {
        "choosing half": rule_table(halves["choosing"]),
        "confirming half": rule_table(halves["confirming"]),
        "without added sets": rule_table([c for c in cells if c["set"] not in ADDED]),
    }
    for title, table in rules.items():
        print_rules(title.capitalize(), table, sorted({c["labels"] for c in cells}))
    print_rare(rare_cells)
    print_sizes(sizes)
    for title, found in targets.items():
        print_targets(title.capitalize(), found)
    write_json(
        options.out,
        rounded(
            {
                "quick": quick,
                "choosing": list(CHOOSING),
                "confirming": list(CONFIRMING),
                "targets": targets,
                "rules": rules,
                "few_labels": [without_rules(cell) for cell in cells],
                "rare_positives": rare_cells,
                "batch_sizes": sizes,
            }
        ),
    )


if __name__ == "__main__":
    main()
