"""Labels in and out: unlabeled markers, classes known so far, one-vs-rest targets."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from seqmed.arrays import Array

# What numpy makes of None and NaN when a list of strings around them becomes a string array.
COERCED_MISSING = ("nan", "None", "<NA>", "NaT")


def is_missing(value: Any) -> bool:
    """Whether a single label is None, NaN or pandas' NA."""
    if value is None:
        return True
    try:
        return not bool(value == value)
    except (TypeError, ValueError):
        return True  # pandas' NA refuses to be compared


def missing_labels(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask (n,) of labels that are None or NaN."""
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind == "O":
        return np.fromiter((is_missing(value) for value in labels), bool, labels.size)
    return np.zeros(labels.size, dtype=bool)


def marked_unlabeled(labels: NDArray[Any], marker: Any) -> NDArray[np.bool_]:
    """Return a mask (n,) of labels equal to ``marker``.

    In a string array a marker that is a number is looked for in its string form, because numpy
    turns ``["spam", -1]`` into strings.
    """
    if is_missing(marker):
        return np.zeros(labels.size, dtype=bool)
    if labels.dtype.kind in "US":
        return labels == str(marker)
    if labels.dtype.kind == "O":
        return np.fromiter((same_label(value, marker) for value in labels), bool, labels.size)
    if isinstance(marker, str) or (labels.dtype.kind == "b") != is_boolean(marker):
        return np.zeros(labels.size, dtype=bool)
    return labels == marker


def same_label(value: Any, marker: Any) -> bool:
    """Whether an object label equals the marker; True and 1 are different labels.

    Among strings a marker that is a number is looked for as a string, as in string arrays.
    """
    if isinstance(value, str) and not isinstance(marker, str):
        return value == str(marker)
    return is_boolean(value) == is_boolean(marker) and bool(value == marker)


def is_boolean(value: Any) -> bool:
    """Whether a label is True or False."""
    return isinstance(value, bool | np.bool_)


def as_label_array(labels: Any) -> NDArray[Any]:
    """Return labels as a one-dimensional array of their own type, missing ones as None or NaN."""
    if hasattr(labels, "to_numpy") and getattr(labels, "ndim", 1) == 1:
        labels = labels.to_numpy()
    if isinstance(labels, list | tuple):
        flat = all(np.ndim(value) == 0 for value in labels)
        if flat and any(value is None or isinstance(value, str) for value in labels):
            # numpy would spell missing labels and numbers among strings out as strings
            objects = np.empty(len(labels), dtype=object)
            objects[:] = list(labels)
            labels = objects
    array = np.asarray(labels)
    return array if array.ndim == 1 else column_or_1d(array, warn=True)


def split_labels(
    labels: Any, marker: Any, *, marks: bool, known: NDArray[Any] | None
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Separate labeled from unlabeled rows.

    Parameters
    ----------
    labels : (n,) labels as the user gave them.
    marker : value that marks an unlabeled row, used if ``marks``.
    marks : whether ``marker`` marks anything; if not, only None and NaN do.
    known : classes known already, None if none are.

    Returns
    -------
    labeled : (n,) mask.
    values : the labels of the labeled rows, in a type of their own.
    """
    array = as_label_array(labels)
    unlabeled = missing_labels(array)
    if marks:
        present = ~unlabeled
        if known is None:
            refuse_ambiguous_signs(array[present], marker)
        unlabeled[present] = marked_unlabeled(array[present], marker)
    values = array[~unlabeled]
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise ValueError("Input y contains infinity or a value too large for dtype('float64').")
    if values.dtype.kind in "US":
        refuse_coerced_missing(values, known)
    if values.dtype.kind == "O":
        values = narrowed(values)
    if values.size and values.dtype.kind not in "biuU":  # those are classes whatever they are
        with warnings.catch_warnings():
            # many classes among few labels, which it warns of, is what partially labeled data have
            warnings.simplefilter("ignore", UserWarning)
            check_classification_targets(values)
    return ~unlabeled, values


def narrowed(values: NDArray[Any]) -> NDArray[Any]:
    """Return object labels in the type they share; refuse a mixture of strings and others."""
    if values.size == 0:
        return values
    are_strings = {isinstance(value, str | bytes) for value in values}
    if len(are_strings) > 1:
        example = sorted({type(value).__name__ for value in values})
        raise ValueError(
            f"y mixes label types ({', '.join(example)}), expected one: convert all labels to "
            "strings or all to numbers; None, NaN and the unlabeled marker may stand among either."
        )
    return np.array(values.tolist())


def refuse_ambiguous_signs(values: NDArray[Any], marker: Any) -> None:
    """Refuse y of only -1 and +1 where -1 is the marker: it may be meant as a class."""
    if is_missing(marker) or is_boolean(marker) or marker not in (-1, "-1"):
        return
    found = {str(value) for value in values.tolist() if not is_boolean(value)}
    if found in ({"-1", "1"}, {"-1", "+1"}, {"-1.0", "1.0"}):
        raise ValueError(
            "y holds only -1 and +1, and -1 marks unlabeled rows: expected labels among which -1 "
            "cannot be a class. If -1 is a class, set unlabeled=None (missing labels are then None "
            "or NaN); if -1 means unlabeled, pass classes= to partial_fit or name the classes "
            "differently."
        )


def refuse_coerced_missing(values: NDArray[Any], known: NDArray[Any] | None) -> None:
    """Refuse labels that numpy made of missing values, unless they are known classes."""
    suspicious = set(COERCED_MISSING) & set(values.tolist())
    if known is not None and known.dtype.kind in "US":
        suspicious -= set(known.tolist())
    if suspicious:
        text = sorted(suspicious)[0]
        raise ValueError(
            f"y is an array of strings that holds {text!r}, which numpy makes of a missing value: "
            "expected None or NaN in an object array. Pass a list, a pandas Series or an array of "
            f"dtype object, in which {text!r} is a label like any other and missing values stay "
            "missing."
        )


@dataclass(frozen=True)
class ClassBook:
    """The classes known so far and how much of each has been seen.

    Parameters
    ----------
    classes : (K,) sorted distinct labels.
    counts : (K,) labels seen of each; 0 for a class only declared.
    weights : (K,) their total weights.
    discounted : (K,) their total weights, discounted by forgetting.
    declared : (K,) mask of the classes that were named beforehand, and stay without examples.
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
        """Mask (K,) of the classes of which an example has been seen."""
        return self.counts > 0

    @property
    def n_heads(self) -> int:
        """The number of machines, at least one: see ``per_class``."""
        if self.per_class:
            return max(self.classes.size, 1)
        return 1 if self.classes.size <= 2 else self.classes.size

    def encode(self, values: NDArray[Any]) -> NDArray[np.intp]:
        """Return the index of every label among the classes; all must be known."""
        if values.size == 0:
            return np.zeros(0, dtype=np.intp)
        return np.searchsorted(self.classes, values)

    def find(self, values: NDArray[Any]) -> NDArray[np.intp]:
        """Return the index of every label among the classes, -1 for one that is not known."""
        if values.size == 0 or self.classes.size == 0:
            return np.full(values.size, -1, dtype=np.intp)
        values = matched(values, self.classes)
        places = np.minimum(np.searchsorted(self.classes, values), self.classes.size - 1)
        return np.where(self.classes[places] == values, places, -1)

    def add(self, values: NDArray[Any], weights: Array) -> ClassBook:
        """Return the book after seeing weighted labels, new classes included.

        Discounted weights stay as they are: see `discount`.
        """
        grown = self._with(values)
        codes = grown.encode(values)
        size = grown.classes.size
        return replace(
            grown,
            counts=grown.counts + np.bincount(codes, minlength=size),
            weights=grown.weights + np.bincount(codes, weights, minlength=size),
        )

    def discount(self, share: float, codes: NDArray[np.intp], weights: Array) -> ClassBook:
        """Return the book with discounted weights after an update with these labels.

        Those of earlier labels are scaled by ``share`` in (0, 1].
        """
        new = np.bincount(codes, weights, minlength=self.classes.size)
        return replace(self, discounted=share * self.discounted + new)

    def declare(self, values: NDArray[Any]) -> ClassBook:
        """Return the book with these classes known, whether seen or not."""
        grown = self._with(values)
        if values.size == 0:
            return grown
        declared = grown.declared.copy()
        declared[grown.encode(np.unique(values))] = True
        return replace(grown, declared=declared)

    def remove(self, codes: NDArray[np.intp], weights: Array, discounted: Array) -> ClassBook:
        """Return the book without some weighted labels that were seen.

        A class of which none is left, and that was not declared, is no longer known.
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

    def _with(self, values: NDArray[Any]) -> ClassBook:
        """Return the book with these classes in it."""
        if values.size == 0:
            return self
        if self.classes.size == 0:
            classes = np.unique(values)
        else:
            if (self.find(values) >= 0).all():
                return self
            classes = np.union1d(self.classes, matched(values, self.classes))
        grown = ClassBook(
            classes,
            np.zeros(classes.size, dtype=np.intp),
            np.zeros(classes.size),
            np.zeros(classes.size),
            np.zeros(classes.size, dtype=bool),
            self.per_class,
        )
        if self.classes.size:
            places = np.searchsorted(classes, self.classes)
            for name in ("counts", "weights", "discounted", "declared"):
                getattr(grown, name)[places] = getattr(self, name)
        return grown

    def targets(self, codes: NDArray[np.intp]) -> Array:
        """Return one-vs-rest targets, (l, heads): +1 for the head's own class, -1 otherwise.

        The single head of up to two classes belongs to the last of them.
        """
        if self.n_heads == 1:
            own = np.array([self.classes.size - 1])
        else:
            own = np.arange(self.classes.size)
        return np.where(codes[:, None] == own[None, :], 1.0, -1.0)

    def class_weights(self, given: Any) -> Array:
        """Return the weight of every class, (K,), from the estimator's ``class_weight``.

        "balanced" is by the labels seen so far: rare classes weigh more.
        """
        if given is None:
            return np.ones(self.classes.size)
        if isinstance(given, dict):
            chosen = [given.get(label, 1.0) for label in self.classes.tolist()]
            if not all(isinstance(value, Real) and 0 < float(value) < np.inf for value in chosen):
                raise ValueError(
                    f"class_weight got {given!r}, expected positive finite weights: to leave a "
                    "class out, remove its rows."
                )
            return np.array(chosen, dtype=np.float64)
        weights = np.ones(self.classes.size)
        seen = self.seen
        weights[seen] = self.weights.sum() / (seen.sum() * self.weights[seen])
        return weights

    def own_classes(self, signs: Array) -> NDArray[np.intp]:
        """Return the class of every row of one-vs-rest targets, (l, heads), by its place."""
        if self.n_heads == 1:
            return np.where(signs[:, 0] > 0, self.classes.size - 1, 0)
        return signs.argmax(axis=1)

    @property
    def scale(self) -> Array:
        """The factors of the class scores, (K,); 0 for a class without a label.

        With a machine per class they are ``sqrt(nbar / n_c) / 2``, n_c the discounted weight of the
        labels of a class and nbar its mean over the classes seen; otherwise 1.
        """
        if not self.per_class:
            return np.ones(self.classes.size)
        scale = np.zeros(self.classes.size)
        if self.seen.any():
            # a class whose labels have faded to nothing is still one that was seen
            labels = np.maximum(self.discounted[self.seen], np.finfo(np.float64).tiny)
            scale[self.seen] = 0.5 * np.sqrt(labels.mean()) / np.sqrt(labels)
        return scale

    def unscaled(self, scores: Array) -> Array:
        """Return class scores (n, K) before they are scaled by label counts, from (n, heads)."""
        return 0.5 * (scores + 1.0) if self.per_class else self.class_scores(scores)

    def class_scores(self, scores: Array) -> Array:
        """Return the score of every class known, (n, K), from those of the machines, (n, heads).

        With a machine per class, whose bias is -1, the score of a class is ``scale (f_c + 1)``.
        Where two classes share a machine the first scores 0 and the second f. The score of a class
        without a label takes no part in any decision.
        """
        if self.per_class:
            return self.scale * (scores + 1.0)
        if self.classes.size == 2:
            return np.hstack([np.zeros_like(scores), scores])
        return scores

    def decisions(self, scores: Array) -> Array:
        """Return decision values, (n, 1) for up to two classes, else (n, K), from (n, heads)."""
        return self.compared(self.class_scores(scores))

    def compared(self, scores: Array) -> Array:
        """Return decision values, (n, 1) for up to two classes, else (n, K), of class scores."""
        return scores[:, 1:] - scores[:, :1] if self.classes.size == 2 else scores

    def winners(self, scores: Array) -> NDArray[np.intp]:
        """Return the class of every row of scores, (n, heads), by its place among all; one seen."""
        return self.best(self.class_scores(scores))

    def best(self, scores: Array) -> NDArray[np.intp]:
        """Return the class of the largest class score, (n, K), among those seen."""
        return np.where(self.seen, scores, -np.inf).argmax(axis=1)

    def places_in(self, grown: ClassBook) -> NDArray[np.intp]:
        """Return where every class stands in a book of other classes, (K,), -1 if it does not."""
        return grown.find(self.classes)

    def transfer(self, grown: ClassBook) -> tuple[Array, Array]:
        """Return how heads carry over to a book of more or fewer classes, for `learning.rehead`.

        A class's score is its own head's, and in a single head of two classes the first one's is
        the negative of the second's. A class nothing is known of starts at -1: whatever has been
        seen was not of it. With a machine per class that is the known bias, labels or none.
        """
        old_heads = 0 if self.classes.size == 0 else self.n_heads
        scores: dict[Any, Array] = {}
        for position, label in enumerate(self.classes.tolist()):
            column = np.zeros(self.n_heads)
            if self.n_heads == 1:
                column[0] = 1.0 if position == self.classes.size - 1 else -1.0
            else:
                column[position] = 1.0
            scores[label] = column
        own = grown.classes.tolist() if grown.n_heads > 1 else grown.classes[-1:].tolist()
        transfer = np.zeros((max(old_heads, 1), grown.n_heads))
        offsets = np.zeros(grown.n_heads)
        for head, label in enumerate(own):
            if label in scores:
                transfer[:, head] = scores[label]
            elif grown.n_heads == 1 and self.classes.size == 1:
                transfer[:, head] = -scores[self.classes.tolist()[0]]
            elif self.seen.any():
                offsets[head] = -1.0
        if self.per_class:
            offsets = np.where(transfer.any(axis=0), 0.0, -1.0)
        return transfer, offsets


def empty_book(per_class: bool) -> ClassBook:
    """Return a book without classes."""
    nothing, none = np.zeros(0, dtype=np.intp), np.zeros(0)
    return ClassBook(nothing, nothing, none, none, np.zeros(0, dtype=bool), per_class)


def matched(values: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """Return new labels in the type of the known classes, or say why that cannot be."""
    texts = values.dtype.kind in "US", classes.dtype.kind in "US"
    if texts[0] != texts[1]:
        kinds = ["strings" if text else "numbers" for text in texts]
        raise ValueError(
            f"y holds {kinds[0]} ({values.tolist()[0]!r}), but the classes so far are {kinds[1]} "
            f"({classes.tolist()[0]!r}): pass labels of the same type in every batch."
        )
    if values.dtype.kind == "f" and classes.dtype.kind in "iub" and (values % 1 == 0).all():
        return values.astype(np.int64)
    return values
