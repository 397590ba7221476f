"""The class registry, and one-vs-rest targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array
from seqmed.labels import split_labels


@dataclass(frozen=True)
class ClassRegistry:
    """The classes so far, with label counts and weights.

    Parameters
    ----------
    classes : (K,) sorted distinct labels.
    counts : (K,) number of labels seen; 0 for a class that was only declared.
    weights : (K,) total weights of these labels.
    discounted : (K,) total weights of these labels, discounted by forgetting.
    declared : (K,) mask of the classes declared by the caller; they are kept even without labels.
    per_class : whether every class has a machine of its own, with a known bias of -1; if not, two
        classes share one machine.
    """

    classes: NDArray[Any]
    counts: NDArray[np.intp]
    weights: Array
    discounted: Array
    declared: NDArray[np.bool_]
    per_class: bool

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Mask (K,) of the classes with at least one label."""
        return self.counts > 0

    @property
    def n_machines(self) -> int:
        """The number of machines, at least one: see ``per_class``."""
        if self.per_class:
            return max(self.classes.size, 1)
        return 1 if self.classes.size <= 2 else self.classes.size

    def find(self, values: NDArray[Any]) -> NDArray[np.intp]:
        """Return the index of every label among the classes, -1 if it is not found."""
        return find(values, self.classes)

    def add(self, values: NDArray[Any], weights: Array) -> ClassRegistry:
        """Return the registry with more weighted labels; new classes are added.

        Discounted weights are not changed: see `discount`.
        """
        grown = self._with(values)
        codes = grown.find(values)
        size = grown.classes.size
        return replace(
            grown,
            counts=grown.counts + np.bincount(codes, minlength=size),
            weights=grown.weights + np.bincount(codes, weights, minlength=size),
        )

    def discount(self, forgetting: float, codes: NDArray[np.intp], weights: Array) -> ClassRegistry:
        """Return the registry with updated discounted weights.

        The weights of earlier labels are scaled by ``forgetting`` in [0, 1]. Then the weights of
        the new labels are added.
        """
        new = np.bincount(codes, weights, minlength=self.classes.size)
        return replace(self, discounted=forgetting * self.discounted + new)

    def declare(self, values: NDArray[Any]) -> ClassRegistry:
        """Return the registry with these classes declared."""
        grown = self._with(values)
        if values.size == 0:
            return grown
        declared = grown.declared.copy()
        declared[grown.find(np.unique(values))] = True
        return replace(grown, declared=declared)

    def remove(self, codes: NDArray[np.intp], weights: Array, discounted: Array) -> ClassRegistry:
        """Return the registry without the given weighted labels.

        A class without labels is removed, unless it was declared.
        """
        counts = self.counts.copy()
        np.subtract.at(counts, codes, 1)
        kept = (counts > 0) | self.declared

        def less(totals: Array, taken: Array) -> Array:
            rest = totals - np.bincount(codes, taken, minlength=totals.size)
            return np.where(counts > 0, np.maximum(rest, 0.0), 0.0)[kept]

        return replace(
            self,
            classes=self.classes[kept],
            counts=counts[kept],
            weights=less(self.weights, weights),
            discounted=less(self.discounted, discounted),
            declared=self.declared[kept],
        )

    def _with(self, values: NDArray[Any]) -> ClassRegistry:
        """Return the registry with these classes added."""
        if (self.find(values) >= 0).all():
            return self
        classes = union(self.classes, values)
        places, size = find(self.classes, classes), classes.size
        return replace(
            self,
            classes=classes,
            counts=moved(self.counts, places, size),
            weights=moved(self.weights, places, size),
            discounted=moved(self.discounted, places, size),
            declared=moved(self.declared, places, size),
        )

    def targets(self, codes: NDArray[np.intp]) -> Array:
        """Return one-vs-rest targets, (l, machines): +1 for the machine's own class, -1 otherwise.

        With up to two classes there is a single machine, for the last class.
        """
        if self.n_machines == 1:
            own = np.array([self.classes.size - 1])
        else:
            own = np.arange(self.classes.size)
        return np.where(codes[:, None] == own[None, :], 1.0, -1.0)

    def class_weights(self, given: Any) -> Array:
        """Return the weight of every class, (K,), from the estimator's ``class_weight``.

        "balanced" uses the labels seen so far: rare classes get larger weights.
        """
        if given is None:
            return np.ones(self.classes.size)
        if isinstance(given, dict):
            chosen = self._chosen_weights(given)
            if not all(isinstance(value, Real) and 0 < float(value) < np.inf for value in chosen):
                raise ValueError(
                    f"class_weight got {given!r}, expected positive finite weights: correct the "
                    "weights, or remove the rows of a class to leave it out."
                )
            return np.array(chosen, dtype=np.float64)
        weights = np.ones(self.classes.size)
        seen = self.seen
        weights[seen] = self.weights.sum() / (seen.sum() * self.weights[seen])
        return weights

    def _chosen_weights(self, given: dict[Any, Any]) -> list[Any]:
        """Return the weight of every class from a dict, 1 for a class that is not in it."""
        chosen: list[Any] = [1.0] * self.classes.size
        for label, weight in given.items():
            place = find(split_labels([label], None, known=self.classes)[1], self.classes)
            if place.size and place[0] >= 0:
                chosen[place[0]] = weight
        return chosen

    def own_classes(self, signs: Array) -> NDArray[np.intp]:
        """Return the class index of every row of one-vs-rest targets, (l, machines)."""
        if self.n_machines == 1:
            return np.where(signs[:, 0] > 0, self.classes.size - 1, 0)
        return np.asarray(signs.argmax(axis=1))

    @property
    def scale(self) -> Array:
        """The factors of the class scores, (K,); 0 for a class without a label.

        With a machine per class they are ``sqrt(nbar / n_c) / 2``, where n_c is the discounted
        weight of the labels of a class and nbar is the mean of n_c over the classes seen. Otherwise
        they are 1.
        """
        if not self.per_class:
            return np.ones(self.classes.size)
        scale = np.zeros(self.classes.size)
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
        if self.classes.size == 2:
            return np.hstack([np.zeros_like(scores), scores])
        return scores

    def compared(self, scores: Array) -> Array:
        """Return decision values from class scores: (n, 1) for up to two classes, else (n, K)."""
        return scores[:, 1:] - scores[:, :1] if self.classes.size == 2 else scores

    def best(self, scores: Array) -> NDArray[np.intp]:
        """Return the index of the largest class score, (n, K), among the classes seen."""
        return np.asarray(np.where(self.seen, scores, -np.inf).argmax(axis=1))

    def indices_in(self, grown: ClassRegistry) -> NDArray[np.intp]:
        """Return the index of every class in another registry, (K,), -1 if it is not found."""
        return grown.find(self.classes)

    def transfer(self, grown: ClassRegistry) -> tuple[Array, Array]:
        """Return the machines of another registry as combinations of these machines, and offsets.

        The score of a class is that of its own machine. In a single machine of two classes the
        first class has the negative of the second class's score. A new class starts with score -1,
        because all labels so far belong to other classes. With a machine per class this is the
        known bias.
        """
        former = grown.indices_in(self)
        own = former if grown.n_machines > 1 else former[-1:]
        known, new = np.flatnonzero(own >= 0), np.flatnonzero(own < 0)
        transfer = np.zeros((self.n_machines, grown.n_machines))
        offsets = np.zeros(grown.n_machines)
        transfer[:, known] = self._score_signs()[:, own[known]]
        if grown.n_machines == 1 and self.classes.size == 1:
            transfer[:, new] = -1.0
        elif self.seen.any():
            offsets[new] = -1.0
        if self.per_class:
            offsets = np.where(transfer.any(axis=0), 0.0, -1.0)
        return transfer, offsets

    def _score_signs(self) -> Array:
        """Return the coefficients (machines, K) with which the machines give the class scores."""
        if self.n_machines > 1:
            return np.eye(self.classes.size)
        return np.where(np.arange(self.classes.size) == self.classes.size - 1, 1.0, -1.0)[None, :]


def empty_registry(per_class: bool) -> ClassRegistry:
    """Return a registry without classes."""
    nothing, none = np.zeros(0, dtype=np.intp), np.zeros(0)
    return ClassRegistry(nothing, nothing, none, none, np.zeros(0, dtype=bool), per_class)


def moved(values: NDArray[Any], places: NDArray[np.intp], n_classes: int) -> NDArray[Any]:
    """Return values per class, along the last axis, with class c moved to ``places[c]``.

    A class with index -1 is dropped. The values of new classes are 0.
    """
    result = np.zeros((*values.shape[:-1], n_classes), dtype=values.dtype)
    result[..., places[places >= 0]] = values[..., places >= 0]
    return result


def find(values: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the index of every label in sorted classes of the same type, -1 if it is not found."""
    if values.size == 0 or classes.size == 0:
        return np.full(values.size, -1, dtype=np.intp)
    places = np.minimum(np.searchsorted(classes, values), classes.size - 1)
    return np.where(classes[places] == values, places, -1)


def union(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Return the sorted classes of two arrays of labels of the same type."""
    if not first.size or not second.size:
        return np.unique(first if first.size else second)
    return np.union1d(first, second)
