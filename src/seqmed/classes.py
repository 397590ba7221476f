"""The rows of a batch, the labels of every class counted, and one-vs-rest targets.

Classes are numbered from 0 to K - 1. `seqmed.estimators` turns labels into these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmed.numeric.arrays import Array, Indices, Mask, Points, take_rows
from seqmed.numeric.expectations import expect_shape

# Class of an unlabeled row.
UNLABELED = -1


class Rows(NamedTuple):
    """A validated batch of n rows, or a part of it."""

    points: Points  # (n, p) rows, or (n, 1) indices into gram
    codes: Indices  # (n,) classes, -1 for unlabeled rows
    weights: Array  # (n,) positive
    gram: Array | None = None  # (n, n) precomputed kernel matrix

    @property
    def labeled(self) -> Mask:
        """Mask (n,) of the labeled rows."""
        return self.codes >= 0

    def take(self, rows: NDArray[Any]) -> Rows:
        """Return some of the rows, by a mask or by indices."""
        return Rows(take_rows(self.points, rows), self.codes[rows], self.weights[rows])


@dataclass(frozen=True)
class ClassCounts:
    """The number and the weight of the labels of every class, (K,)."""

    counts: Indices  # 0 for a class that was only declared
    weights: Array
    discounted: Array  # weights after forgetting
    declared: Mask  # declared by the caller: kept even without labels
    per_class: bool  # a machine per class, with the bias -1; else two classes share one

    def validate(self) -> None:
        """Raise a ValueError if the arrays are not of the same classes."""
        expect_shape(self, (self.size,), "counts", "weights", "discounted", "declared")

    @property
    def size(self) -> int:
        """The number of classes K."""
        return self.counts.size

    @property
    def seen(self) -> Mask:
        """Mask (K,) of the classes with at least one label."""
        return self.counts > 0

    @property
    def kept(self) -> Mask:
        """Mask (K,) of the classes that have a label or were declared."""
        return self.seen | self.declared

    @property
    def n_machines(self) -> int:
        """The number of machines, at least one: see ``per_class``."""
        return max(self.size, 1) if self.per_class or self.size > 2 else 1

    def with_classes(self, places: Indices, declared: Mask) -> ClassCounts:
        """Return the counts with class c moved to ``places[c]``; -1 drops it.

        ``declared`` is the mask of the classes afterwards that were declared.
        """
        size = declared.size
        counts, weights, discounted = (
            moved(each, places, size) for each in (self.counts, self.weights, self.discounted)
        )
        return ClassCounts(counts, weights, discounted, declared, self.per_class)

    def add(self, codes: Indices, weights: Array) -> ClassCounts:
        """Return the counts with more weighted labels."""
        added = np.bincount(codes, weights, minlength=self.size)
        return replace(
            self,
            counts=self.counts + np.bincount(codes, minlength=self.size),
            weights=self.weights + added,
            discounted=self.discounted + added,
        )

    def forget(self, forgetting: float) -> ClassCounts:
        """Return the counts with weights discounted by ``forgetting`` in [0, 1]."""
        return replace(self, discounted=forgetting * self.discounted)

    def remove(self, codes: Indices, weights: Array, discounted: Array) -> ClassCounts:
        """Return the counts without the given weighted labels."""
        counts = self.counts - np.bincount(codes, minlength=self.size)

        def less(totals: Array, taken: Array) -> Array:
            rest = totals - np.bincount(codes, taken, minlength=self.size)
            return np.where(counts > 0, np.maximum(rest, 0.0), 0.0)

        weights, discounted = less(self.weights, weights), less(self.discounted, discounted)
        return replace(self, counts=counts, weights=weights, discounted=discounted)

    def class_weights(self, given: Any) -> Array:
        """Return the weight of every class, (K,).

        ``given`` are these weights, None for equal weights, or "balanced": rare classes among the
        labels so far then get larger weights.
        """
        if isinstance(given, np.ndarray):
            return given
        weights, seen = np.ones(self.size), self.seen
        if given is not None:
            weights[seen] = self.weights.sum() / (seen.sum() * self.weights[seen])
        return weights

    def targets(self, codes: Indices) -> Array:
        """Return one-vs-rest targets, (l, machines): +1 for the machine's own class, -1 otherwise.

        A single machine is that of the last class.
        """
        own = np.arange(self.size) if self.n_machines > 1 else np.array([self.size - 1])
        return np.where(codes[:, None] == own[None, :], 1.0, -1.0)

    def own_classes(self, signs: Array) -> Indices:
        """Return the class of every row of one-vs-rest targets, (l, machines)."""
        if self.n_machines == 1:
            return np.where(signs[:, 0] > 0, self.size - 1, 0)
        return np.asarray(signs.argmax(axis=1))

    def transfer(self, places: Indices, grown: ClassCounts) -> tuple[Array, Array]:
        """Return the machines of other classes as combinations of these machines, and offsets.

        Class c becomes class ``places[c]`` of ``grown``. The score of a class is that of its own
        machine. In a single machine of two classes the first class has the negative of the second
        class's score. A new class starts with score -1, because all labels so far belong to other
        classes. With a machine per class this is the known bias.
        """
        former = np.full(grown.size, -1)
        former[places[places >= 0]] = np.flatnonzero(places >= 0)
        own = former if grown.n_machines > 1 else former[-1:]
        known, new = np.flatnonzero(own >= 0), np.flatnonzero(own < 0)
        # the coefficients with which the machines give the class scores
        signs = np.eye(self.size)
        if self.n_machines == 1:
            signs = np.where(np.arange(self.size) == self.size - 1, 1.0, -1.0)[None, :]
        transfer = np.zeros((self.n_machines, grown.n_machines))
        offsets = np.zeros(grown.n_machines)
        transfer[:, known] = signs[:, own[known]]
        if grown.n_machines == 1 and self.size == 1:
            transfer[:, new] = -1.0
        elif self.seen.any():
            offsets[new] = -1.0
        if self.per_class:
            offsets = np.where(transfer.any(axis=0), 0.0, -1.0)
        return transfer, offsets

    @property
    def scale(self) -> Array:
        """The factors of the class scores, (K,); 0 for a class without a label.

        With a machine per class they are ``sqrt(nbar / n_c) / 2``, where n_c is the discounted
        weight of the labels of a class and nbar is the mean of n_c over the classes seen. Otherwise
        they are 1.
        """
        if not self.per_class:
            return np.ones(self.size)
        scale = np.zeros(self.size)
        if self.seen.any():
            # the discounted weight of a class may underflow to 0
            labels = np.maximum(self.discounted[self.seen], np.finfo(np.float64).tiny)
            scale[self.seen] = 0.5 * np.sqrt(labels.mean()) / np.sqrt(labels)
        return scale

    def unscaled(self, scores: Array) -> Array:
        """Return class scores (n, K), not scaled by label counts, from (n, machines)."""
        return 0.5 * (scores + 1.0) if self.per_class else self.class_scores(scores)

    def class_scores(self, scores: Array) -> Array:
        """Return the score of every class, (n, K), from machine scores, (n, machines).

        With a machine per class, whose bias is -1, the score of a class is ``scale (f_c + 1)``.
        If two classes share a machine, the first has score 0 and the second has score f. The score
        of a class without a label is not compared.
        """
        if self.per_class:
            return self.scale * (scores + 1.0)
        if self.size == 2:
            return np.hstack([np.zeros_like(scores), scores])
        return scores

    def compared(self, scores: Array) -> Array:
        """Return decision values from class scores: (n,) for up to two classes, else (n, K)."""
        if self.size == 2:
            return scores[:, 1] - scores[:, 0]
        return scores[:, 0] if self.size == 1 else scores

    def best(self, scores: Array) -> Indices:
        """Return the class with the largest score, (n, K), among the classes seen."""
        return np.asarray(np.where(self.seen, scores, -np.inf).argmax(axis=1))


def no_classes(per_class: bool) -> ClassCounts:
    """Return the counts before the first class."""
    none = np.zeros(0)
    return ClassCounts(np.zeros(0, dtype=np.intp), none, none, np.zeros(0, dtype=bool), per_class)


def moved(values: NDArray[Any], places: Indices, n_classes: int) -> NDArray[Any]:
    """Return values per class, along the last axis, with class c moved to ``places[c]``.

    A class with index -1 is dropped. The values of new classes are 0.
    """
    result = np.zeros((*values.shape[:-1], n_classes), dtype=values.dtype)
    result[..., places[places >= 0]] = values[..., places >= 0]
    return result
