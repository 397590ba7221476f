"""What the page shows: cards, live numbers and the history, as values for JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from seqmed.labeling.learner import COMPARED_PROBES, PROBE_EVERY, Background
from seqmed.labeling.ledger import (
    Ledger,
    Outcome,
    agreements,
    labels_for_point,
    labels_without_rise,
    outcomes,
    present_accuracy,
)
from seqmed.labeling.log import LabelingError, RowKey
from seqmed.labeling.queue import Card, class_counts
from seqmed.tables.cells import cell_text

# Characters of a row in the history.
SNIPPET = 160
# Rows of the history in one answer.
ROWS_OF_HISTORY = 50
# Largest number of points of a chart.
POINTS = 120
# Share of changed predictions below which more labels are likely to change little.
LITTLE = 0.01


class Page:
    """The contents of the page.

    It offers some classes from the beginning, and shows the columns ``shown`` on a card, None for
    all. The title names the data, without folders.
    """

    def __init__(
        self,
        ledger: Ledger,
        background: Background,
        *,
        classes: Sequence[str] = (),
        shown: Sequence[str] | None = None,
        goal: int = 200,
        title: str = "",
    ):
        self._ledger, self._background = ledger, background
        self._pool = background.learner.pool
        self._classes, self._shown = classes, shown
        self._goal, self._title = goal, title
        self._snippets: dict[RowKey, str] = {}

    # -- cards -------------------------------------------------------------------------------------

    def card(self, card: Card, person: str) -> dict[str, Any]:
        """Return a card for JSON."""
        file, number = self._pool.where[card.key]
        return {
            "file": file,
            "row": number,
            "why": card.why,
            "version": self._ledger.row(card.key).version,
            "probabilities": card.probabilities,
            "cells": self._cells(card.key),
            "again": card.key in self._ledger.returned.get(person, ()),
        }

    def _cells(self, key: RowKey) -> list[dict[str, Any]]:
        """Return the cells of a row for JSON."""
        return [
            {"name": name, "text": text, "long": name in self._pool.text_columns}
            for name, text in self._pool.cells(key, self._shown).items()
        ]

    def explanation(self, key: RowKey) -> Callable[[], dict[str, Any]]:
        """Return a function that explains the predicted class of a row; any thread may call it."""
        model = self._background.learner.model
        if not hasattr(model, "explain"):
            raise LabelingError(
                "this model does not explain its classes, only a SeqGraphMED does: make a model "
                "with seqmed learn --estimator seqgraphmed, the default"
            )
        if sum(number > 0 for number in class_counts(model).values()) < 2:
            raise LabelingError(
                "the model has learned labels of fewer than two classes: label rows of two classes"
            )
        answered = [self._pool.places[each] for each, row in self._ledger.rows.items() if row.given]
        row, learned = self._pool.take([self._pool.places[key]]), self._pool.take(answered)
        return partial(explanation_for_card, model, row, learned, self._shown)

    # -- live numbers ------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the live numbers of the page.

        The classes have a fixed order: those offered from the beginning, then as they were used.
        Their labels include those that the model had ``earlier``.
        """
        ledger, background, learner = self._ledger, self._background, self._background.learner
        rows, unsaved = ledger.rows.values(), background.unsaved
        earlier = learner.earlier
        classes = dict.fromkeys([*self._classes, *ledger.classes])
        n_earlier = earlier.total()
        n_labels = n_earlier + ledger.n_labeled
        checks = outcomes(ledger, checks=True, n_earlier=n_earlier)
        queried = outcomes(ledger, checks=False, n_earlier=n_earlier)
        return {
            "title": self._title,
            "goal": self._goal,
            "labels": ledger.n_labeled,
            "earlier": n_earlier,
            "classes": [[name, earlier[name] + ledger.classes[name]] for name in classes],
            "checks": present_accuracy(checks, n_labels)._asdict(),
            "queried": present_accuracy(queried, n_labels)._asdict(),
            "changes": learner.changes[-POINTS:],
            "hint": stopping_hint(learner.changes, checks, n_labels),
            "people": [[name, sum(name in row.given for row in rows)] for name in ledger.answers],
            "agreement": agreements(ledger),
            "disputes": sum(row.disputed for row in rows),
            "waiting": ledger.n_events - background.n_learned,
            "events": ledger.n_events,
            "kept": len(learner.kept_labels),
            "trouble": background.trouble is not None,
            "unsaved": (unsaved.strerror or "the disk does not answer") if unsaved else "",
        }

    # -- history -----------------------------------------------------------------------------------

    def history(self, search: str, only: str, start: int) -> dict[str, Any]:
        """Return rows that were answered, the last one first, from number ``start`` on.

        All words of the search occur in the row, its labels or its people. ``only`` is "disputes",
        "skipped" or nothing.
        """
        rows, words = self._ledger.rows, search.lower().split()
        keys = sorted(rows, key=lambda key: -rows[key].version)
        found = [key for key in keys if self._matches(key, words, only)]
        shown = [self._answered_row(key) for key in found[start : start + ROWS_OF_HISTORY]]
        return {"total": len(found), "start": start, "rows": shown}

    def _matches(self, key: RowKey, words: Sequence[str], only: str) -> bool:
        row = self._ledger.rows[key]
        kinds = {"disputes": row.disputed, "skipped": row.skipped and not row.given}
        if not kinds.get(only, row.people):
            return False
        labels = [*row.given.values(), row.settled or ""]
        where = map(str, self._pool.where[key])
        text = " ".join([*labels, *row.given, *where, row.id, self._snippet(key)]).lower()
        return all(word in text for word in words)

    def _snippet(self, key: RowKey) -> str:
        """Return the beginning of the cells of a row."""
        if key not in self._snippets:
            cells = self._cells(key)
            long = [cell["text"] for cell in cells if cell["long"]]
            short = [f"{cell['name']} {cell['text']}" for cell in cells if not cell["long"]]
            text = " · ".join(each[:SNIPPET] for each in (long or short)[:12])
            self._snippets[key] = " ".join(text.split())[:SNIPPET]
        return self._snippets[key]

    def _answered_row(self, key: RowKey) -> dict[str, Any]:
        row = self._ledger.row(key)
        file, number = self._pool.where[key]
        return {
            "file": file,
            "row": number,
            "version": row.version,
            "text": self._snippet(key),
            "label": row.label,
            "given": row.given,
            "skipped": sorted(row.skipped),
            "settled": row.settled,
            "disputed": row.disputed,
            "guess": row.asked.guess if row.asked else "",
        }

    def whole_row(self, key: RowKey) -> dict[str, Any]:
        """Return a row of the history with all its cells."""
        return {**self._answered_row(key), "cells": self._cells(key)}


def explanation_for_card(
    model: Any, row: pa.Table, learned: pa.Table, shown: Sequence[str] | None
) -> dict[str, Any]:
    """Return why the model predicts the class of a row, for JSON.

    Labeled rows are looked up among the ``learned`` ones, and have the columns ``shown``.
    """
    (found,) = model.explain(row, learned=learned if learned.num_rows else None)
    place, votes = found.classes.index(found.label), found.to_dict()["votes"]
    for part in (part for vote in votes for part in vote["rows"]):
        cells = part["row"] or {}
        names = cells if shown is None else shown
        part["label"] = cell_text(part["label"])
        part["row"] = {name: cells[name] for name in names if cells.get(name) is not None}
    return {
        "label": cell_text(found.label),
        "probability": found.probability,
        "members": [
            {"name": each.name, "weight": each.weight, "probability": each.probabilities[place]}
            for each in found.members
        ],
        "votes": votes,
    }


def stopping_hint(
    changes: Sequence[tuple[int, float, float | None]], checks: Sequence[Outcome], n_labels: int
) -> str:
    """Return what the last labels changed, and how many more labels one more point takes.

    The changes are those of `LabelLearner`. The model has learned ``n_labels`` labels.
    """
    if not changes:
        return f"After {2 * PROBE_EVERY} labels you see here how much labels still change."
    _, last, since = changes[-1]
    n_last = PROBE_EVERY if since is None else PROBE_EVERY * COMPARED_PROBES
    changed = f"{100 * (last if since is None else since):.1f}"
    text = f"The last {n_last} labels changed {changed} % of predictions"
    if since is not None and since < LITTLE:
        return f"{text}: the accuracy changes no more than that. This is a good point to stop."
    needed = labels_for_point(checks, n_labels)
    if needed is None:
        flat = labels_without_rise(checks, n_labels)
        if flat is None:
            return (
                f"{text}. The random checks are too few to tell how many more labels one more "
                "point of accuracy takes."
            )
        return (
            f"{text}. The random checks of the last {flat:,} labels show no clear further rise of "
            "the accuracy."
        )
    number, low, high = (f"{max(1, round(each)):,}" for each in needed)
    return (
        f"{text}. About {number} more labels for one more point of accuracy ({low} to {high}), if "
        "it goes on rising as in the random checks so far."
    )
