"""The margin expert of the mixture: its interface, and what all kinds of experts refuse.

An expert is immutable: learning returns a new one.
"""

from __future__ import annotations

from typing import Any, Protocol

from seqmed.arrays import Array, Points
from seqmed.batch import Rows
from seqmed.classes import ClassRegistry
from seqmed.kernels import Kernel
from seqmed.mixture.mini_batches import MiniBatch


class MarginExpert(Protocol):
    """The margin expert of the mixture.

    Attributes
    ----------
    estimator : the fitted classifier.
    by_counts : whether its scores are to be divided by the square roots of label counts.
    """

    @property
    def estimator(self) -> Any: ...
    @property
    def by_counts(self) -> bool: ...

    def frozen_kernel(self, rows: Rows) -> Kernel | None:
        """Return the kernel whose distances the graph uses; None for Euclidean distances."""

    def with_parameters(self, template: Any) -> MarginExpert:
        """Return the expert with the parameters of a template; refuse those that may not change."""

    def learn(self, mini_batch: MiniBatch) -> MarginExpert:
        """Return the expert after one mini-batch."""

    def scores(self, points: Points, registry: ClassRegistry) -> Array:
        """Return scores (n, K) of the classes of a registry; 0 for unseen classes."""

    def summed_size(self, points: Points) -> float:
        """Return the root mean square of the sum of ``|term|`` over the terms of a score.

        0 if the terms are unknown.
        """

    def label_counts(self, registry: ClassRegistry) -> Array:
        """Return the label weight of every class, (K,), discounted as in the expert."""

    def restarted(self) -> MarginExpert:
        """Return an expert with the same parameters that has learned nothing."""

    def scale_invariant(self) -> bool:
        """Whether the columns of dense rows may be scaled: no parameter depends on their unit."""

    def labeled_rows(self) -> Rows | None:
        """Return the labeled rows that the expert can still learn anew, with discounted weights.

        None if the expert keeps no rows.
        """

    def retract(self, points: Points, codes: Any) -> tuple[MarginExpert, Rows]:
        """Return the expert without the given labels, and these labels.

        `Rows.declared` are the classes that the expert keeps without labels.
        """


def check_type(before: Any, now: Any) -> None:
    """Refuse an estimator of another type than before."""
    if type(before) is not type(now):
        raise ValueError(
            f"estimator was changed from a {type(before).__name__} to a {type(now).__name__} after "
            "the first batch, expected the same type for all batches: set it back, or start a new "
            "model."
        )
