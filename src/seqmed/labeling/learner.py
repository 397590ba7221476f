"""The learner follows the label log: the model, the rounds and the probes are functions of it.

Every event that changes the label of a row is one step of learning, in the order of the log. A new
label is a late label (``new_points=False``). A label that is withdrawn, disputed or changed is
retracted first. Nothing depends on time, so replaying the log gives the same model to the bit.
The learner runs in a thread of its own, which saves its model.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.labeling.ledger import LabelProgress, Ledger
from seqmed.labeling.log import Event, LabelingError, RowKey
from seqmed.labeling.pool import Pool
from seqmed.labeling.queue import (
    Card,
    choose_round,
    class_names,
    due,
    round_at,
    rounds_from_json,
)

# Labels from one probe to the next, probes that are compared for the stopping hint, and rows.
PROBE_EVERY, COMPARED_PROBES, PROBED_ROWS = 10, 10, 1000
# Transitions between classes that are reported.
REPORTED = 3
# Seconds of work for every second of saving, and least number of seconds between two saves.
WORK_PER_SAVE, PAUSE = 20.0, 2.0


class LabelLearner:
    """A model that follows a label log.

    Parameters
    ----------
    model : a fitted model that takes raw tables; see `seqmed.StreamPipeline`.
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
                label = labels(self._as_label(after))
                self.model.partial_fit(table, label, new_points=False, find_rows=False)
            except ValueError:  # counted, because learning must not end
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
            before = zip(self._probes[0], now, strict=True)
            since = sum(old != new for old, new in before) / len(now) if full else None
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
                "rounds": self.rounds,
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


# -- the learner in a thread of its own, and the saves of its model --------------------------------


class Background:
    """Learns the events of a log as they arrive.

    Parameters
    ----------
    learner : the learner.
    events : all events, the events already learned included; others are appended to it.
    save : function that saves the learner.

    Attributes
    ----------
    learner : the learner. Other threads may read its attributes, which are replaced as a whole.
    n_learned, n_saved : number of events learned, and in the saved model.
    trouble : the error that ended the learning, None if there was none.
    unsaved : why the last save failed, such as a full disk; None if it did not. The learning goes
        on, and the model is saved as soon as that is possible again.
    """

    def __init__(
        self,
        learner: LabelLearner,
        events: Sequence[Event],
        save: Callable[[LabelLearner], None],
    ):
        self.learner, self._events, self._save_learner = learner, events, save
        self.n_learned = self.n_saved = learner.ledger.n_events
        self.trouble: Exception | None = None
        self.unsaved: str | None = None
        self._arrived = threading.Condition()
        self._ending = False
        self._last_save, self._cost = time.monotonic(), 0.0
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def notify(self) -> None:
        """Tell the thread that events have arrived."""
        with self._arrived:
            self._arrived.notify()

    def finish(self) -> None:
        """Learn and save everything, and end the thread.

        Raises the error that ended it before, or that of a last save that fails.
        """
        with self._arrived:
            self._ending = True
            self._arrived.notify()
        self._thread.join()
        if self.trouble is not None:
            raise self.trouble

    def _run(self) -> None:
        try:
            self.learner.begin()
            while self._wait():
                self.learner.learn(self._events[self.n_learned])
                self.n_learned += 1
                if self._save_is_due():
                    self._try_to_save()
            self._save()
        except Exception as error:
            self.trouble = error

    def _wait(self) -> bool:
        """Wait for an event, and save if none comes; return False at the end."""
        while len(self._events) <= self.n_learned:
            if self._ending:
                return False
            with self._arrived:
                if len(self._events) <= self.n_learned and not self._ending:
                    self._arrived.wait(PAUSE)
            idle = len(self._events) <= self.n_learned and not self._ending
            if idle and (self.unsaved is None or self._save_is_due()):
                self._try_to_save()
        return True

    def _save_is_due(self) -> bool:
        return time.monotonic() - self._last_save >= max(PAUSE, WORK_PER_SAVE * self._cost)

    def _try_to_save(self) -> None:
        """Save; if the disk refuses, note why, and try again later."""
        try:
            self._save()
        except OSError as error:
            self.unsaved = error.strerror or "the disk does not answer"

    def _save(self) -> None:
        if self.n_saved == self.n_learned:
            return
        begin = time.monotonic()
        try:
            self._save_learner(self.learner)
            self.n_saved, self.unsaved = self.n_learned, None
        finally:
            self._last_save = time.monotonic()
            self._cost = self._last_save - begin
