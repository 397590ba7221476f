"""The learner follows the label log: the model, the rounds and the probes are functions of it.

Every event that changes the label of a row is one step of learning, in the order of the log. A new
label is a late label (``new_points=False``). A label that is withdrawn, disputed or changed is
retracted first. Nothing depends on time, so replaying the log gives the same model to the bit.
The learner runs in a thread of its own, which saves its model.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seqmed.labeling.ledger import LabelProgress, Ledger
from seqmed.labeling.log import Event, LabelingError, RowKey
from seqmed.labeling.pool import Pool
from seqmed.labeling.queue import (
    ROUND,
    Card,
    Round,
    choose_round,
    class_counts,
    class_names,
    round_at,
)

# Labels from one probe to the next, probes that are compared for the stopping hint, and rows.
PROBE_EVERY, COMPARED_PROBES, PROBED_ROWS = 10, 10, 1000
# Seconds of work for every second of saving, and least number of seconds between two saves.
WORK_PER_SAVE, PAUSE = 20.0, 2.0


class LabelLearner:
    """A model that follows a label log.

    The model takes raw tables. ``as_label`` returns the label that it learns for the text of a
    label.
    """

    def __init__(self, model: Any, pool: Pool, as_label: Callable[[str], Any] = str):
        self.model, self.pool, self._as_label = model, pool, as_label
        self.ledger = Ledger()
        self.rounds: dict[int, Round] = {}  # those that are still needed
        # rows of which the model has another label: the old one, if it could not be retracted, or
        # None, if the label was refused
        self.kept_labels: dict[RowKey, str | None] = {}
        # for every probe: number of labels, share of predictions changed since the last probe, and
        # since COMPARED_PROBES probes ago (None before that)
        self.changes: list[tuple[int, float, float | None]] = []
        self.earlier = class_counts(model)  # labels that the model has besides those of the log
        self._n_steps = self._next_round = 0
        self._probes: list[list[str]] = []
        self._probed = np.sort(pool.candidates[:PROBED_ROWS])

    def learn(self, event: Event) -> None:
        """Learn the next event of the log."""
        before, after = self.ledger.apply(event)
        if before != after:
            self._update(event.key, before, after)
            self._n_steps += 1
            if self._n_steps % PROBE_EVERY == 0:
                self._probe()
        self.choose_rounds()

    def _update(self, key: RowKey, before: str | None, after: str | None) -> None:
        """Replace the label of a row in the model."""
        table = self.pool.take([self.pool.places[key]])
        features = set(self.model.feature_names_in_)  # others are shown, such as an id
        table = table.select([name for name in table.column_names if name in features])
        held = self.kept_labels.pop(key, before)
        if held == after:
            return
        if held is not None:
            try:
                self.model.retract(table, np.array([self._as_label(held)], dtype=object))
            except ValueError:  # the label has left the window, or averaging=True
                self.kept_labels[key] = held
                return
        if after is not None:
            try:
                y = np.array([self._as_label(after)], dtype=object)
                self.model.partial_fit(table, y, new_points=False, find_rows=False)
            except ValueError:  # counted, because learning must not end
                self.kept_labels[key] = None

    def choose_rounds(self) -> None:
        """Choose the rounds that are due; call it before the first event."""
        while ROUND * self._next_round <= self.ledger.n_answers:
            number = self._next_round
            answered = {key for key, row in self.ledger.rows.items() if row.people}
            before = self.rounds.get(number - 1, ())
            self.rounds[number] = choose_round(self.model, self.pool, number, answered, before)
            self._next_round += 1
        current = round_at(self.ledger.n_answers)
        # replaced, not changed: the desk reads it in another thread
        self.rounds = {n: cards for n, cards in self.rounds.items() if n >= current - 1}

    def _probe(self) -> None:
        """Predict the same rows again, and measure how many predictions changed."""
        names = class_names(self.model)
        if len(names) < 2 or not self._probed.size:
            return
        shares = self.model.predict_proba(self.pool.take(self._probed))
        now = [names[code] for code in shares.argmax(axis=1).tolist()]
        if self._probes:
            full = len(self._probes) >= COMPARED_PROBES
            since = share_changed(self._probes[0], now) if full else None
            entry = (self._n_steps, share_changed(self._probes[-1], now), since)
            self.changes = [*self.changes, entry]
        self._probes = [*self._probes, now][-COMPARED_PROBES:]

    # -- stored state ----------------------------------------------------------------------------

    def progress(self) -> LabelProgress:
        """Return what is saved with the model."""
        state = {
            "pool": self.pool.fingerprint,
            "rounds": list(self.rounds.items()),
            "next_round": self._next_round,
            "n_steps": self._n_steps,
            "probes": self._probes,
            "changes": self.changes,
            "kept_labels": list(self.kept_labels.items()),
        }
        ledger, text = self.ledger, json.dumps(state, ensure_ascii=False)
        return LabelProgress(ledger.n_events, ledger.digest, ledger.n_labeled, text)

    def resume(self, events: Sequence[Event], progress: LabelProgress) -> None:
        """Continue after the events that a saved model has learned.

        If the files have grown since then, the rounds are chosen again from the new pool.
        """
        self.ledger = learned_labels(events, progress)
        state = json.loads(progress.state)
        self._n_steps = state["n_steps"]
        self.changes = [(n, last, since) for n, last, since in state["changes"]]
        self.kept_labels = {RowKey(*key): label for key, label in state["kept_labels"]}
        held = (self.kept_labels.get(key, row.label) for key, row in self.ledger.rows.items())
        self.earlier = class_counts(self.model) - Counter(filter(None, held))
        if state["pool"] != self.pool.fingerprint:
            self._next_round = round_at(self.ledger.n_answers)
            return
        self._next_round, self._probes = state["next_round"], state["probes"]
        self.rounds = {
            number: tuple(
                Card(RowKey(*key), why, tuple((label, share) for label, share in probabilities))
                for key, why, probabilities in cards
            )
            for number, cards in state["rounds"]
        }


def share_changed(before: Sequence[str], now: Sequence[str]) -> float:
    """Return the share of predictions that changed."""
    return sum(old != new for old, new in zip(before, now, strict=True)) / len(now)


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


# -- the learner in a thread of its own, and the saves of its model --------------------------------


class Background:
    """Learns events in a thread of its own, as they arrive, after all events so far.

    Other threads may read the attributes of the learner, which are replaced as a whole.
    """

    def __init__(
        self,
        learner: LabelLearner,
        events: Sequence[Event],
        save: Callable[[LabelLearner], None],
    ):
        self.learner, self._save_learner = learner, save
        self.n_learned = self.n_saved = learner.ledger.n_events
        self.trouble: Exception | None = None  # the error that ended the learning
        self.unsaved: OSError | None = None  # why the last save failed; it is tried again
        self._arrived: queue.SimpleQueue[Event | None] = queue.SimpleQueue()  # None is the end
        for event in events[self.n_learned :]:
            self._arrived.put(event)
        self._next_save = time.monotonic() + PAUSE
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, event: Event) -> None:
        """Learn an event, after those that were submitted before."""
        self._arrived.put(event)

    def finish(self) -> None:
        """Learn and save everything, and end the thread.

        Raises the error that ended it before, or that of a last save that fails.
        """
        self._arrived.put(None)
        self._thread.join()
        error = self.trouble or self.unsaved
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            self.learner.choose_rounds()
            ended = False
            while not ended:
                try:
                    event = self._arrived.get(timeout=PAUSE)
                except queue.Empty:  # nobody answers: a good time to save
                    pass
                else:
                    ended = event is None
                    if event is not None:
                        self.learner.learn(event)
                        self.n_learned += 1
                if self.n_saved < self.n_learned and (ended or time.monotonic() >= self._next_save):
                    self._save()
        except Exception as error:
            self.trouble = error

    def _save(self) -> None:
        """Save; if the disk refuses, note why, and try again later."""
        begin = time.monotonic()
        try:
            self._save_learner(self.learner)
            self.n_saved, self.unsaved = self.n_learned, None
        except OSError as error:
            self.unsaved = error
        end = time.monotonic()
        self._next_save = end + max(PAUSE, WORK_PER_SAVE * (end - begin))
