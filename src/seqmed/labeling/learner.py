"""The learner follows the label log: the model, the rounds and the probes are functions of it.

Every event that changes the label of a row is one step of learning, in the order of the log. A new
label is a late label (``new_points=False``). A label that is withdrawn, disputed or changed is
retracted first. Nothing depends on time, so replaying the log gives the same model to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.labeling.events import Event, LabelingError, RowKey
from seqmed.labeling.ledger import Ledger
from seqmed.labeling.progress import LabelProgress
from seqmed.labeling.queue import (
    Card,
    choose_round,
    class_names,
    due,
    round_at,
    rounds_from_json,
    rounds_to_json,
)
from seqmed.labeling.rows import Pool

# Labels from one probe to the next, probes that are compared for the stopping hint, and rows.
PROBE_EVERY, COMPARED_PROBES, PROBED_ROWS = 10, 10, 1000
# Transitions between classes that are reported.
REPORTED = 3


class LabelLearner:
    """A model that follows a label log.

    Parameters
    ----------
    model : a fitted model; see `seqmed.labeling.queue.Model`.
    pool : the rows.
    as_label : function from the text of a label to the label that the model learns.

    Attributes
    ----------
    model : the model after the events so far.
    ledger : the labels after the events so far.
    rounds : the cards of the rounds that are still needed.
    kept_labels : rows of which the model has another label: the old one, if it could not be
        retracted, or None, if the label was refused.
    changes : for every probe, number of labels, share of the predictions that the labels since the
        last probe changed, and share since `COMPARED_PROBES` probes ago (None before that).
    moved : the most frequent changes of predictions at the last probe: from, to, number of rows.
    """

    def __init__(self, model: Any, pool: Pool, as_label: Callable[[str], Any] = str):
        self.model, self.pool, self._as_label = model, pool, as_label
        self.ledger = Ledger()
        self.rounds: dict[int, tuple[Card, ...]] = {}
        self.kept_labels: dict[RowKey, str | None] = {}
        self.changes: list[tuple[int, float, float | None]] = []
        self.moved: list[tuple[str, str, int]] = []
        self._n_steps = 0
        self._probes: list[list[str]] = []
        self._next_round = 0
        self._probed = np.sort(pool.candidates[:PROBED_ROWS])

    def begin(self) -> None:
        """Choose the rounds that need no event."""
        self._choose_rounds()

    def learn(self, event: Event) -> None:
        """Learn the next event of the log."""
        key, before, after = self.ledger.apply(event)
        if before != after:
            self._update(key, before, after)
            self._n_steps += 1
            if self._n_steps % PROBE_EVERY == 0:
                self._probe()
        self._choose_rounds()

    def _update(self, key: RowKey, before: str | None, after: str | None) -> None:
        """Replace the label of a row in the model."""
        table = self.pool.take([self.pool.place(key)])
        held = self.kept_labels.pop(key, before)
        if held is not None and held != after:
            try:
                self.model.retract(table, labels(self._as_label(held)))
            except ValueError:  # the label has left the window, or the model averages
                self.kept_labels[key] = held
                return
        if after is not None and held != after:
            try:
                self.model.partial_fit(table, labels(self._as_label(after)), new_points=False)
            except ValueError:  # an equal row has another label
                self.kept_labels[key] = None

    def _choose_rounds(self) -> None:
        while due(self._next_round) <= self.ledger.n_answers:
            number = self._next_round
            taken = {key for key, row in self.ledger.rows.items() if row.answered}
            self.rounds[number] = choose_round(
                self.model, self.pool, number, taken, self.rounds.get(number - 1, ())
            )
            self._next_round += 1
        current = round_at(self.ledger.n_answers)
        # replaced, not changed: other threads read it
        self.rounds = {n: cards for n, cards in self.rounds.items() if n >= current - 1}

    def _probe(self) -> None:
        """Predict the same rows again, and measure how many predictions changed."""
        names = class_names(self.model)
        if len(names) < 2 or not self._probed.size:
            return
        shares = self.model.predict_proba(self.pool.take(self._probed))
        now = [names[code] for code in shares.argmax(axis=1).tolist()]
        if self._probes:
            pairs = [pair for pair in zip(self._probes[-1], now, strict=True) if pair[0] != pair[1]]
            frequent = sorted(set(pairs), key=lambda pair: (-pairs.count(pair), pair))
            self.moved = [(*pair, pairs.count(pair)) for pair in frequent[:REPORTED]]
            full = len(self._probes) >= COMPARED_PROBES
            since = differing(self._probes[0], now) if full else None
            entry = (self._n_steps, len(pairs) / len(now), since)
            self.changes = [*self.changes, entry]
        self._probes = [*self._probes, now][-COMPARED_PROBES:]

    # -- stored state ----------------------------------------------------------------------------

    def progress(self) -> LabelProgress:
        """Return what is saved with the model."""
        ledger = self.ledger
        return LabelProgress(ledger.n_events, ledger.digest, ledger.n_labeled, self.to_json())

    def resume(self, events: Sequence[Event], progress: LabelProgress) -> None:
        """Continue after the events that a saved model has learned."""
        self.restore(learned_labels(events, progress), progress.state)

    def to_json(self) -> str:
        """Return everything but the model and the ledger."""
        return json.dumps(
            {
                "pool": self.pool.fingerprint,
                "rounds": rounds_to_json(self.rounds),
                "next_round": self._next_round,
                "n_steps": self._n_steps,
                "probes": self._probes,
                "changes": self.changes,
                "moved": self.moved,
                "kept_labels": [[*key, label] for key, label in self.kept_labels.items()],
            },
            ensure_ascii=False,
        )

    def restore(self, ledger: Ledger, stored: str) -> None:
        """Continue from a ledger and the result of `to_json`.

        If the files have grown since then, the rounds are chosen again from the new pool.
        """
        try:
            state = json.loads(stored)
            rounds = rounds_from_json(state["rounds"])
            changes = [
                (int(n), float(last), None if since is None else float(since))
                for n, last, since in state["changes"]
            ]
            moved = [(str(old), str(new), int(count)) for old, new, count in state["moved"]]
            kept = {
                RowKey(str(file), int(row), str(digest)): None if label is None else str(label)
                for file, row, digest, label in state["kept_labels"]
            }
            probes = [[str(label) for label in probe] for probe in state["probes"]]
            numbers = int(state["next_round"]), int(state["n_steps"])
            pool = str(state["pool"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LabelingError(
                "the stored state of the labeling is not valid: the model file is damaged. Restore "
                "it from a copy, or delete it to learn the label log again."
            ) from error
        if pool != self.pool.fingerprint:  # the files have grown
            rounds, probes, numbers = {}, [], (round_at(ledger.n_answers), numbers[1])
        self.ledger, self.rounds, self.changes, self.moved = ledger, rounds, changes, moved
        self.kept_labels, self._probes = kept, probes
        self._next_round, self._n_steps = numbers


def learned_labels(events: Sequence[Event], progress: LabelProgress) -> Ledger:
    """Return the labels that a saved model has learned; refuse events that it has not learned."""
    ledger = Ledger(events[: progress.n_events])
    if ledger.digest != progress.digest:
        raise LabelingError(
            f"the model has learned {progress.n_events} events of another label log, or of rows "
            "that are not in the data: pass the files and the label log (--labels) of before, or "
            "delete the model to learn these from the beginning."
        )
    return ledger


def labels(label: Any) -> NDArray[np.object_]:
    """Return one label as an object array (1,)."""
    found = np.empty(1, dtype=object)
    found[0] = label
    return found


def differing(first: list[str], second: list[str]) -> float:
    """Return the share of predictions that differ."""
    return sum(a != b for a, b in zip(first, second, strict=True)) / len(first)
