"""Progress of a model in a label log, saved with the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LabelProgress:
    """The events that a model has learned.

    Parameters
    ----------
    n_events, digest : number of events of the label log, and their digest.
    n_labeled : rows with a label after these events.
    state : state of the learner besides the model, as JSON.
    """

    n_events: int
    digest: str
    n_labeled: int
    state: str
