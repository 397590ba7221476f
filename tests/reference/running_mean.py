"""``averaging="auto"`` by its definition: all posterior means are kept, then averaged."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqmed.numeric.arrays import Array


class NaiveRunningMean:
    """Which posterior means predict, given models that predict with the newest mean only.

    Parameters
    ----------
    window : the largest number of labels in the window.
    width : the number of columns.
    """

    def __init__(self, window: int, width: int) -> None:
        self.window = window
        self.n_in_window, self.begun = 0, False
        self.models: list[Any] = []
        self.signs: list[int] = []
        self.removed = np.zeros((0, width))
        self.seen: set[int] = set()

    def learn(self, model: Any, points: Array, labels: Array) -> None:
        """Note the labeled rows of a batch, and the model that has learned them."""
        begun, labels = self.begun, labels.astype(int)
        new = set(labels.tolist()) - self.seen
        if self.begun and new:
            self.restart()
        elif self.begun:
            self.compare(points, labels)
        self.seen |= new
        if self.n_in_window + labels.size > self.window and self.n_in_window:
            self.begun = True
        self.n_in_window = max(min(self.n_in_window + labels.size, self.window), labels.size)
        self.models = [*self.models, model] if begun else [model]

    def retract(self, model: Any, points: Array, *, restarts: bool) -> None:
        """Note the model after the labels of some points were retracted."""
        if restarts:
            self.restart()
        self.removed = np.vstack([self.removed, points])
        self.n_in_window -= len(points)
        self.models.append(model)

    def restart(self) -> None:
        """Forget all means and compared rows."""
        self.models, self.signs = [], []

    def compare(self, points: Array, labels: Array) -> None:
        """Compare the newest mean and the running mean on the labeled rows of a batch."""
        newest, averaged = self.scores(points, 1), self.scores(points, len(self.models))
        batch = []
        for row, label in enumerate(labels):
            right = [self.predicted(scores[row]) == label for scores in (newest, averaged)]
            if right[0] != right[1]:
                batch.append(1 if right[0] else -1)
        self.signs = [*self.signs, *batch] if sum(self.signs) + sum(batch) > 0 else []
        if self.lead >= 3.0:
            self.restart()

    @property
    def lead(self) -> float:
        """The lead of the newest mean in standard errors, with 10 rows more than were compared."""
        return sum(self.signs) / np.sqrt(len(self.signs) + 10)

    def predicted(self, scores: Array) -> int:
        """Return the class of class scores (K,), or of one score of two classes."""
        return int(scores.argmax()) if scores.size > 1 else int(scores[0] > 0)

    def mean(self, model: Any, points: Array) -> Array:
        """Return the posterior mean without the terms of retracted labels, (n, machines)."""
        posterior = model._state.posterior
        found: Array = posterior.mean(points)
        for point, coefficients in zip(
            posterior.window.points, posterior.window.coefficients, strict=True
        ):
            if any(np.array_equal(point, each) for each in self.removed):
                kernel = posterior.covariance.kernel(points, point[None, :])
                found = found - kernel * coefficients
        return found

    def scores(self, points: Array, n_means: int) -> Array:
        """Return the class scores of the mean of the last means, (n, K).

        They are the mean of the scores of the newest mean times factors of the newest labels.
        """
        state = self.models[-1]._state
        means = [self.mean(model, points) for model in self.models[-n_means:]]
        scores = state.counts.class_scores(sum(means) / n_means)
        compared = state.counts.compared(scores)
        return compared[:, None] if compared.ndim == 1 else compared

    def decision_function(self, points: Array) -> Array:
        """Return the scores that predict."""
        newest = not self.begun or self.lead >= 1.5
        return self.scores(points, 1 if newest else len(self.models))
