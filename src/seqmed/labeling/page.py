"""What the page shows: cards, live numbers and the history, as values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqmed.labeling.learner import COMPARED_PROBES, PROBE_EVERY, Background
from seqmed.labeling.ledger import Accuracy, Ledger, Outcome, accuracy_of, agreements, outcomes
from seqmed.labeling.log import RowKey
from seqmed.labeling.pool import Pool
from seqmed.labeling.queue import Card

# Characters of a cell and of a card that are sent, and of a row in the history.
LONGEST_CELL, LONGEST_CARD, SNIPPET = 200_000, 1_000_000, 160
# Rows of the history in one answer.
PAGE = 50
# Outcomes in the moving mean of the chart, at most and at least, and its largest number of points.
WINDOW, LEAST, POINTS = 30, 5, 120
# Share of changed predictions below which more labels are likely to change little.
LITTLE = 0.01


class Page:
    """The contents of the page.

    Parameters
    ----------
    ledger : the labels.
    pool : the rows.
    background : the learner.
    classes : classes that are offered from the beginning.
    shown : columns on a card; None for all.
    goal : number of labels to reach.
    title : name of the data, without folders.
    """

    def __init__(
        self,
        ledger: Ledger,
        pool: Pool,
        background: Background,
        *,
        classes: Sequence[str] = (),
        shown: Sequence[str] | None = None,
        goal: int = 200,
        title: str = "",
    ):
        self._ledger, self._pool, self._background = ledger, pool, background
        self._declared, self._shown = list(dict.fromkeys(classes)), shown
        self._goal, self._title = goal, title
        self._snippets: dict[RowKey, str] = {}
        self._status: tuple[tuple[int, ...], dict[str, Any]] | None = None

    @property
    def classes(self) -> list[str]:
        """All classes in a fixed order: declared classes first, then in order of first use."""
        return list(dict.fromkeys([*self._declared, *self._ledger.classes]))

    @property
    def version(self) -> tuple[int, ...]:
        """Numbers that change whenever `status` may change."""
        background = self._background
        return (
            self._ledger.n_events,
            background.n_learned,
            background.n_saved,
            int(background.trouble is not None),
            int(background.unsaved is not None),
        )

    # -- cards -------------------------------------------------------------------------------------

    def card(self, card: Card, person: str) -> dict[str, Any]:
        """Return a card for JSON."""
        file, number = self._pool.where(card.key)
        return {
            "file": file,
            "row": number,
            "why": card.why,
            "version": self._ledger.row(card.key).version,
            "probabilities": [list(each) for each in card.probabilities],
            "cells": self.cells(card.key),
            "again": card.key in self._ledger.returned.get(person, ()),
        }

    def cells(self, key: RowKey) -> list[dict[str, Any]]:
        """Return the cells of a row for JSON, columns of text first."""
        cells, left, found = self._pool.cells(key, self._shown), LONGEST_CARD, []
        for name in sorted(cells, key=lambda name: name not in self._pool.text_columns):
            text = cells[name]
            sent = text[: min(LONGEST_CELL, left)]
            left -= len(sent)
            is_text = name in self._pool.text_columns
            found.append(
                {"name": name, "text": sent, "long": is_text, "cut": len(text) - len(sent)}
            )
        return found

    # -- live numbers ------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the live numbers of the page."""
        version = self.version
        if self._status is None or self._status[0] != version:
            self._status = (version, self._new_status())
        return self._status[1]

    def _new_status(self) -> dict[str, Any]:
        ledger, background, learner = self._ledger, self._background, self._background.learner
        checks = outcomes(ledger, ledger.checks)
        queried = outcomes(ledger, ledger.queried)
        disputed = sum(row.disputed for row in ledger.rows.values())
        changes = learner.changes
        return {
            "title": self._title,
            "goal": self._goal,
            "labels": ledger.n_labeled,
            "rows": self._pool.n_rows,
            "skipped": sum(bool(row.skipped) for row in ledger.rows.values()),
            "classes": [[name, ledger.classes[name]] for name in self.classes],
            "checks": shown_accuracy(accuracy_of(checks)),
            "queried": shown_accuracy(accuracy_of(queried)),
            "chart": {
                "checks": moving_means(checks),
                "queried": moving_means(queried),
            },
            "changes": [list(each) for each in changes[-POINTS :]],
            "moved": [list(each) for each in learner.moved],
            "hint": stopping_hint(changes, PROBE_EVERY, COMPARED_PROBES),
            "people": [
                [name, sum(name in row.given for row in ledger.rows.values())]
                for name in ledger.people
            ],
            "agreement": [each._asdict() for each in agreements(ledger)],
            "disputes": disputed,
            "waiting": ledger.n_events - background.n_learned,
            "saved": background.n_saved,
            "events": ledger.n_events,
            "kept": len(learner.kept_labels),
            "trouble": background.trouble is not None,
            "unsaved": background.unsaved or "",
        }  # fmt: skip

    # -- history -----------------------------------------------------------------------------------

    def history(self, search: str = "", only: str = "", start: int = 0) -> dict[str, Any]:
        """Return rows that were answered, the last one first.

        Parameters
        ----------
        search : words that must all occur in the row, its labels or its people.
        only : "disputes", "skipped" or nothing.
        start : number of rows to leave out.
        """
        words = search.lower().split()
        keys = sorted(self._ledger.rows, key=lambda key: -self._ledger.rows[key].last)
        found = [key for key in keys if self._matches(key, words, only)]
        rows = [self._shown_row(key) for key in found[start : start + PAGE]]
        return {"total": len(found), "start": start, "rows": rows}

    def _matches(self, key: RowKey, words: Sequence[str], only: str) -> bool:
        row = self._ledger.rows[key]
        if only == "disputes" and not row.disputed:
            return False
        if only == "skipped" and not (row.skipped and not row.given):
            return False
        if not only and not row.answered:
            return False
        labels = [*row.given.values(), row.settled or ""]
        where = map(str, self._pool.where(key))
        text = " ".join([*labels, *row.given, *where, row.id, self._snippet(key)])
        return all(word in text.lower() for word in words)

    def _snippet(self, key: RowKey) -> str:
        """Return the beginning of the cells of a row."""
        if key not in self._snippets:
            cells = self.cells(key)
            long = [cell["text"] for cell in cells if cell["long"]]
            short = [f"{cell['name']} {cell['text']}" for cell in cells if not cell["long"]]
            text = " · ".join(each[:SNIPPET] for each in (long or short)[:12])
            self._snippets[key] = " ".join(text.split())[:SNIPPET]
        return self._snippets[key]

    def _shown_row(self, key: RowKey) -> dict[str, Any]:
        row = self._ledger.rows[key]
        asked = row.asked
        file, number = self._pool.where(key)
        return {
            "file": file,
            "row": number,
            "id": row.id,
            "version": row.version,
            "text": self._snippet(key),
            "label": row.label,
            "given": row.given,
            "skipped": sorted(row.skipped),
            "settled": row.settled,
            "disputed": row.disputed,
            "why": asked.why if asked else "",
            "guess": asked.guess if asked else "",
        }

    def whole_row(self, key: RowKey) -> dict[str, Any]:
        """Return a row of the history with all its cells."""
        return {**self._shown_row(key), "cells": self.cells(key)}


def shown_accuracy(found: Accuracy) -> dict[str, Any]:
    """Return an accuracy for JSON."""
    return {"value": found.value, "n": found.n, "low": found.low, "high": found.high}


def moving_means(found: Sequence[Outcome]) -> list[tuple[int, float]]:
    """Return numbers of answers and means of the last outcomes, at most `POINTS` for a chart."""
    step = max(1, -(-len(found) // POINTS))
    means = []
    for end in range(len(found), LEAST - 1, -step):
        last = found[max(0, end - WINDOW) : end]
        means.append((last[-1].number, sum(each.hit for each in last) / len(last)))
    return means[::-1]


def stopping_hint(changes: Sequence[tuple[int, float, float | None]], every: int, over: int) -> str:
    """Return a sentence on what the last labels changed.

    Parameters
    ----------
    changes : as in `seqmed.labeling.learner.LabelLearner`.
    every, over : labels from one probe to the next, and number of probes compared.
    """
    if not changes:
        return f"After {2 * every} labels you see here how much labels still change."
    _, last, since = changes[-1]
    if since is None:
        return f"The last {every} labels changed {100 * last:.1f} % of predictions."
    text = f"The last {every * over} labels changed {100 * since:.1f} % of predictions."
    if since < LITTLE:
        return f"{text} More labels will probably change little: this is a good point to stop."
    return f"{text} More labels still help."
