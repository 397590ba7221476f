"""The learner in a thread of its own, and the saves of its model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from seqmed.labeling.events import Event
from seqmed.labeling.learner import LabelLearner

# Seconds of work for every second of saving, and least number of seconds between two saves.
WORK_PER_SAVE, PAUSE = 20.0, 2.0


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
