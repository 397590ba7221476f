"""Explanations of predictions: the votes of the experts, and the columns and rows behind them.

`seqmed.mixture.contributions` has the numbers. None of them is causal: they say how a fitted expert
comes to its vote, not what would happen if a column had another value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from seqmed.mixture.contributions import Contributions, Report, report_of
from seqmed.mixture.mixture_state import MixtureState
from seqmed.numeric.arrays import Array, Indices, Points, row_keys, stack
from seqmed.numeric.execution import one_thread

# Rows that are explained at once.
AT_ONCE = 64
# Cells of a labeled row that are printed, and characters of a cell: more in rows of few cells.
FEW_CELLS, LONGEST, LONGEST_ROW = 8, 40, 160


# -- what is returned ------------------------------------------------------------------------------


class Member(NamedTuple):
    """A member of the pool, and its vote.

    Attributes
    ----------
    name : "core", "graph", or the name of a refitted expert; with the prefix "new " if it belongs
        to a new start on trial.
    weight : its weight, in (0, 1].
    probabilities : (K,) its probabilities at its temperature, 0 for unknown classes. The pool is
        their weighted mean, at one more temperature.
    terms : of a core, the terms of its log odds by expert: "margin", "graph" and "linear".
    """

    name: str
    weight: float
    probabilities: Array
    terms: dict[str, float]


class ColumnPart(NamedTuple):
    """The contribution of a column.

    The value is its cell. A column of text has a part for each of its words and pairs of words,
    which is the value then.
    """

    name: str
    value: Any
    contribution: float
    is_word: bool = False


class RowPart(NamedTuple):
    """The contribution of a labeled row.

    The label is None if it is not known any more. The row is an array (p,) or a CSR array (1, p) as
    it was learned, or a dict of its cells if columns have names; None if it is not kept.
    """

    label: Any
    row: Any
    contribution: float


@dataclass(frozen=True, eq=False)
class Vote:
    """What the vote of an expert consists of: ``baseline + contributions + rest = score``.

    Attributes
    ----------
    expert : "margin", "graph", "linear" or the name of a refitted expert; with the prefix "new " if
        it belongs to a new start on trial.
    weight : its weight in the prediction; that of margin and linear expert is their weight in the
        core times that of the core, and that of the graph is its weight alone and in the core.
    unit : "log odds" or "probability".
    score : its log odds or probability of the predicted class.
    baseline : the score without the contributions.
    columns : the columns of largest contributions, largest first.
    rows : the labeled rows that speak most for the class, then those that speak most against it.
    rest : sum of all other contributions.
    """

    expert: str
    weight: float
    unit: str
    score: float
    baseline: float
    columns: tuple[ColumnPart, ...]
    rows: tuple[RowPart, ...]
    rest: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a class is predicted for a row; printed, it is a text.

    Attributes
    ----------
    label : the predicted class.
    classes, probabilities : (K,) all classes, and their probabilities.
    members : the members of the pool of weight > 0, the largest first. Without refitted experts
        the core is the only one.
    votes : what the votes consist of, where they are sums over columns or labeled rows; those of
        the largest weight first.
    """

    label: Any
    classes: tuple[Any, ...]
    probabilities: Array
    members: tuple[Member, ...]
    votes: tuple[Vote, ...]

    @property
    def probability(self) -> float:
        """Probability of the predicted class."""
        return float(self.probabilities[self.classes.index(self.label)])

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values, for JSON."""
        return {
            "label": self.label,
            "probabilities": dict(
                zip(map(str, self.classes), self.probabilities.tolist(), strict=True)
            ),
            "members": [
                {
                    "name": each.name,
                    "weight": each.weight,
                    "probabilities": dict(
                        zip(map(str, self.classes), each.probabilities.tolist(), strict=True)
                    ),
                    **({"terms": each.terms} if each.terms else {}),
                }
                for each in self.members
            ],
            "votes": [
                {
                    "expert": each.expert,
                    "weight": each.weight,
                    "unit": each.unit,
                    "score": each.score,
                    "baseline": each.baseline,
                    "columns": [part._asdict() for part in each.columns],
                    "rows": [{**part._asdict(), "row": plain_row(part.row)} for part in each.rows],
                    "rest": each.rest,
                }
                for each in self.votes
            ],
        }

    def __str__(self) -> str:
        place = self.classes.index(self.label)
        order = np.argsort(-self.probabilities, kind="stable")[:FEW_CELLS]
        lines = [", ".join(f"{self.classes[k]} {self.probabilities[k]:.3f}" for k in order), ""]
        width = max(len("expert"), *(len(each.name) for each in self.members))
        title = f"P({self.label})"
        lines.append(f"{'expert':{width}}  weight  {title}")
        for each in self.members:
            vote = f"{each.probabilities[place]:.3f}"
            lines.append(f"{each.name:{width}}  {each.weight:6.3f}  {vote:>{len(title)}}")
            if each.terms:
                terms = ", ".join(f"{name} {term:+.2f}" for name, term in each.terms.items())
                lines[-1] += f"  log odds {sum(each.terms.values()):+.2f}: {terms}"
        for found in self.votes:
            lines += ["", heading(found)]
            lines += [f"  {part.contribution:+.3f}  {shown_column(part)}" for part in found.columns]
            lines += [
                f"  {part.contribution:+.3f}  {shown_label(part.label)}: {shown_row(part.row)}"
                for part in found.rows
            ]
            lines.append(f"  {found.rest:+.3f}  others")
        return "\n".join(lines)


def heading(found: Vote) -> str:
    """Return the line above the contributions of an expert."""
    if found.expert.endswith("graph"):
        return f"{found.expert}, contributions of labeled rows to the probabilities"
    what = "labeled rows" if found.rows else "columns"
    return f"{found.expert}, {what}: {found.unit} from {found.baseline:.3f} to {found.score:.3f}"


def shown_column(part: ColumnPart) -> str:
    """Return a column and its value as text."""
    if part.is_word:
        return f'{part.name} has "{part.value}"'
    return f"{part.name} = {shown_value(part.value, LONGEST)}"


def shown_label(label: Any) -> str:
    """Return a label as text."""
    return "label not kept" if label is None else str(label)


def shown_value(value: Any, longest: int) -> str:
    """Return a value as text on one line, shortened."""
    if value is None:
        return "(missing)"
    text = f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def shown_row(row: Any) -> str:
    """Return a labeled row as text, shortened."""
    if row is None:
        return "(not kept)"
    if isinstance(row, dict):
        cells = {name: value for name, value in row.items() if value is not None}
    elif sp.issparse(row):
        cells = dict(zip((f"x{place}" for place in row.indices), row.data.tolist(), strict=True))
    else:
        cells = {f"x{place}": value for place, value in enumerate(row.tolist())}
    longest = max(LONGEST, LONGEST_ROW // max(1, len(cells)))
    texts = [f"{name}={shown_value(value, longest)}" for name, value in cells.items()]
    more = f" and {len(texts) - FEW_CELLS} more" if len(texts) > FEW_CELLS else ""
    return (", ".join(texts[:FEW_CELLS]) or "(its cells are not stored)") + more


def plain_row(row: Any) -> Any:
    """Return a labeled row as plain values; a sparse one as values by column."""
    if sp.issparse(row):
        return dict(zip(map(str, row.indices.tolist()), row.data.tolist(), strict=True))
    return row.tolist() if isinstance(row, np.ndarray) else row


# -- how columns and rows are shown ----------------------------------------------------------------


class View(Protocol):
    """How the columns and the labeled rows are shown."""

    def columns(self, row: int, contributions: Points) -> list[ColumnPart]:
        """Return the columns of an explained row, by the contributions (1, p) of its features."""

    def rows(self, features: Points) -> list[Any]:
        """Return some labeled rows, given their features (r, p)."""


LearnedRows = tuple[Points, Callable[[int], Any]]
"""Features (n, p) of rows of the user, and a function that returns a row by its place."""


@dataclass(frozen=True, eq=False)
class ArrayView:
    """Columns and rows as they are.

    Parameters
    ----------
    points : (m, p) the rows that are explained.
    names : (p,) the names of the columns; None for x0, x1, ...
    """

    points: Points
    names: Sequence[str] | None = None

    def columns(self, row: int, contributions: Points) -> list[ColumnPart]:
        places, values = nonzero(contributions)
        cells = self.points[[row]]
        cells = cells.toarray() if sp.issparse(cells) else cells
        return [
            ColumnPart(self.name(place), float(cells[0, place]), value)
            for place, value in zip(places.tolist(), values.tolist(), strict=True)
        ]

    def name(self, place: int) -> str:
        """Return the name of a column."""
        return f"x{place}" if self.names is None else str(self.names[place])

    def rows(self, features: Points) -> list[Any]:
        if sp.issparse(features):
            return [features[[place]] for place in range(features.shape[0])]
        if self.names is None:
            return list(features)
        return [dict(zip(self.names, row, strict=True)) for row in features.tolist()]


def nonzero(row: Points) -> tuple[Indices, Array]:
    """Return the places of the values of a row (1, p) that are not 0, and these values."""
    if sp.issparse(row):
        return row.indices[row.data != 0], row.data[row.data != 0]
    places = np.flatnonzero(row[0])
    return places, row[0, places]


# -- explanations ----------------------------------------------------------------------------------


def explained(
    state: MixtureState,
    points: Points,
    codes: Indices,
    probabilities: Array,
    labels: Sequence[Any],
    n: int,
    view: View,
    learned: Iterable[LearnedRows] = (),
) -> list[Explanation]:
    """Return explanations of predictions.

    Parameters
    ----------
    state : state of the mixture, with at least two known classes.
    points : (m, p) rows.
    codes : (m,) their predicted classes.
    probabilities : (m, K) of all classes.
    labels : (K,) the classes.
    n : largest number of columns, of labeled rows for the class and of rows against it, per expert.
    view : how columns and rows are shown.
    learned : rows among which labeled rows are looked up; the others are shown by the view.
    """
    states = [("", 1.0, state)]
    if state.trial is not None:
        weight = state.trial.weight
        states = [("", 1.0 - weight, state.trial.state), ("new ", weight, state)]
    found = []
    for start in range(0, points.shape[0], AT_ONCE):
        part = slice(start, start + AT_ONCE)
        members: list[list[Member]] = [[] for _ in codes[part]]
        votes: list[list[Vote]] = [[] for _ in codes[part]]
        for prefix, weight, each in states:
            with one_thread(), np.errstate(over="ignore", invalid="ignore"):
                said = report_of(each, points[part], codes[part])
            for row, own in enumerate(members):
                own += members_of(said, row, prefix, weight)
            for own_weight, sums in said.contributions:
                rows = largest_rows(sums, labels, n)
                for row in np.flatnonzero(said.telling & np.isfinite(sums.baseline)).tolist():
                    columns = []
                    if sums.columns is not None:
                        columns = view.columns(start + row, sums.columns[[row]])
                    votes[row].append(
                        vote_of(prefix, weight * own_weight, sums, row, columns, rows[row], n)
                    )
        for row, code in enumerate(codes[part].tolist()):
            members[row].sort(key=lambda each: -each.weight)
            votes[row].sort(key=lambda each: -each.weight)
            found.append(
                Explanation(
                    labels[code], tuple(labels), probabilities[start + row], tuple(members[row]),
                    tuple(votes[row]),
                )
            )  # fmt: skip
    return with_labeled_rows(found, view, learned)


def members_of(said: Report, row: int, prefix: str, weight: float) -> Iterator[Member]:
    """Yield the members of a state of some weight, with their votes for a row."""
    terms = {name: float(each[row]) for name, each in said.terms.items() if said.telling[row]}
    for place, name in enumerate(said.names):
        own = weight * float(said.weights[place])
        if own > 0:
            found = said.probabilities[row, place]
            yield Member(prefix + name, own, found, terms if name == "core" else {})


def vote_of(
    prefix: str,
    weight: float,
    sums: Contributions,
    row: int,
    columns: list[ColumnPart],
    rows: list[RowPart],
    n: int,
) -> Vote:
    """Return the largest contributions to the vote of an expert for a row.

    ``columns`` are all of them, and ``rows`` are those that are listed.
    """
    total = sum(part.contribution for part in columns)
    if sums.rows is not None:
        total = float(sums.rows.contributions[row].sum())
    columns = sorted(columns, key=lambda part: -abs(part.contribution))[:n]
    shown = [part.contribution for part in columns] + [part.contribution for part in rows]
    baseline, rest = float(sums.baseline[row]), total - sum(shown)
    return Vote(
        prefix + sums.expert, weight, sums.unit, baseline + total, baseline, tuple(columns),
        tuple(rows), rest,
    )  # fmt: skip


def largest_rows(sums: Contributions, labels: Sequence[Any], n: int) -> list[list[RowPart]]:
    """Return the labeled rows of largest contributions for each of m rows, as features."""
    if sums.rows is None:
        return [[] for _ in sums.baseline]
    values = sums.rows.contributions
    largest = [most(each, n) for each in values]
    places = sorted({place for each in largest for place in each})
    found = sums.rows.kept(np.array(places)) if places else []
    kept = dict(zip(places, found, strict=True))
    return [
        [
            RowPart(labels[code] if code >= 0 else None, features, float(values[row, place]))
            for place in each
            for features, code in (kept[place],)
        ]
        for row, each in enumerate(largest)
    ]


def most(values: Array, n: int) -> list[int]:
    """Return the places of the n largest positive values, then of the n smallest negative ones."""
    order = np.argsort(-values, kind="stable")
    positive, negative = order[values[order] > 0], order[values[order] < 0]
    return [*positive[:n].tolist(), *negative[::-1][:n].tolist()]


def with_labeled_rows(
    explanations: list[Explanation], view: View, learned: Iterable[LearnedRows]
) -> list[Explanation]:
    """Return explanations with labeled rows as they were learned, or as the view shows them."""
    parts = [part for each in explanations for one in each.votes for part in one.rows]
    given = [part.row for part in parts if part.row is not None]
    if not given:
        return explanations
    features = stack(*given)
    rows, wanted = view.rows(features), defaultdict(list)
    for number, key in enumerate(row_keys(features)):
        wanted[key].append(number)
    for found, row_at in learned:
        for place, key in enumerate(row_keys(found)):
            for number in wanted.pop(key, ()):
                rows[number] = row_at(place)
        if not wanted:
            break
    following = iter(rows)

    def shown(one: Vote) -> Vote:
        own = (
            part if part.row is None else part._replace(row=next(following)) for part in one.rows
        )
        return replace(one, rows=tuple(own))

    return [replace(each, votes=tuple(map(shown, each.votes))) for each in explanations]
