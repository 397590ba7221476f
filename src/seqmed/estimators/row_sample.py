"""A sample of the rows of a table that does not depend on how the table is divided.

Every row has a key, a hash of a seed and its number in the whole table. The sample has the
unlabeled rows and the labeled rows with the smallest keys, and of every class the labeled row with
the smallest key. A `Summary` is the sample of a part of a table, in the order of the table. `merge`
returns the summary of two parts: parts of any sizes, merged in any order, give the sample of the
whole table, which `fit` learns.

Rows are sampled as they came, before they are validated or encoded.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_consistent_length

from seqmed.estimators.labels import (
    Labels,
    are_plus_one,
    as_label_array,
    is_minus_one,
    is_missing,
    kind_of,
    split_labels,
    typed_labels,
)
from seqmed.numeric.arrays import Array, Indices, random_keys

# Message about a column that cannot be put together.
SEVERAL_TYPES = (
    "a column has several types ({}), expected one type in all parts of a table: convert it."
)
# Kinds of rows: without a label; marked by -1, which is a class if no label but +1 is found in the
# whole table (see `SamplePlan.signs`); with a label.
MISSING, MARKED, LABELED = 0, 1, 2


class SamplePlan(NamedTuple):
    """How a table is sampled for a model.

    Attributes
    ----------
    seed : seed of the keys.
    unlabeled, labeled : largest numbers of rows. Every class has a labeled row in any case.
    marker : marker of unlabeled rows in y.
    signs : whether -1 is a class if all other labels are +1, as in `SeqMED.fit`.
    """

    seed: int
    unlabeled: int
    labeled: int
    marker: Any
    signs: bool

    def chosen(self, numbers: Indices, kinds: NDArray[np.int8], labels: Labels) -> Indices:
        """Return the places of the rows of the sample, in order.

        Parameters
        ----------
        numbers : (n,) different numbers of the rows in the whole table.
        kinds : (n,) `MISSING`, `MARKED` or `LABELED`.
        labels : (n,) labels or classes; those of rows that are missing are not read.
        """
        taken = np.zeros(numbers.size, dtype=bool)
        sizes = {
            MISSING: self.unlabeled,
            MARKED: max(self.unlabeled, self.labeled),  # they become one or the other
            LABELED: self.labeled,
        }
        for kind, size in sizes.items():
            rows = np.flatnonzero(kinds == kind)
            if rows.size > size:
                order = np.lexsort((numbers[rows], random_keys(numbers[rows], self.seed)))
                if kind == LABELED:
                    firsts = np.unique(labels[rows[order]], return_index=True)[1]
                    taken[rows[order[firsts]]] = True
                rows = rows[order[:size]]
            taken[rows] = True
        return np.flatnonzero(taken)


@dataclass(frozen=True)
class Summary:
    """The sample of a part of a table, n rows in the order of the table.

    Parameters
    ----------
    first : number of the first row of the part in the whole table.
    rows : n rows in the form in which they came.
    numbers : (n,) their numbers in the whole table, increasing.
    kinds : (n,) `MISSING`, `MARKED` or `LABELED`.
    labels : (n,) their labels; arbitrary for rows without a label.
    weights : (n,) their weights > 0.
    signs : whether -1 is a class if all other parts have no labels but -1 and +1.
    n_seen : (3,) numbers of all rows of positive weight of the part, by kind.
    """

    first: int
    rows: Any
    numbers: Indices
    kinds: NDArray[np.int8]
    labels: Labels
    weights: Array
    signs: bool
    n_seen: Indices

    @property
    def size(self) -> int:
        """Number of rows of the sample."""
        return self.numbers.size

    @property
    def y(self) -> NDArray[np.object_]:
        """The labels as objects, (n,), None for rows without a label."""
        labels = self.labels.astype(object)
        labels[self.kinds == MISSING] = None
        return labels

    @property
    def n_left_out(self) -> int:
        """Number of unlabeled rows of the part that are not in the sample."""
        return int(self.n_seen[MISSING] - np.count_nonzero(self.kinds == MISSING))

    def sampled(self, plan: SamplePlan) -> Summary:
        """Return the summary with the rows of the sample only, in the order of the table."""
        chosen = plan.chosen(self.numbers, self.kinds, self.labels)
        chosen = chosen[np.argsort(self.numbers[chosen])]
        return self if np.array_equal(chosen, np.arange(self.size)) else self.take(chosen)

    def take(self, chosen: Indices) -> Summary:
        """Return the summary with some of its rows, by their places."""
        return replace(
            self,
            rows=take(self.rows, chosen),
            numbers=self.numbers[chosen],
            kinds=self.kinds[chosen],
            labels=self.labels[chosen],
            weights=self.weights[chosen],
        )


def plan_for(model: Any, seed: int, sizes: tuple[int, int]) -> SamplePlan:
    """Return the plan of a classifier; ``sizes`` are numbers of unlabeled and labeled rows."""
    signs = not model._semi_supervised and is_minus_one(model.unlabeled)
    return SamplePlan(seed, *sizes, model.unlabeled, signs)


def summarise(
    plan: SamplePlan,
    X: Any,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None = None,
    *,
    first: int = 0,
) -> Summary:
    """Return the summary of a part of a table.

    Parameters
    ----------
    plan : the plan of the model.
    X : n rows: an array, a CSR matrix, a data frame of pandas or polars, a table of pyarrow, a
        list, or a dictionary of columns.
    y : (n,) labels, as `fit` takes them; None if no row is labeled.
    sample_weight : (n,) weights >= 0; None for 1. Rows of weight 0 are left out.
    first : number of the first row in the whole table.
    """
    n_rows = number_of_rows(X)
    array = as_label_array([None] * n_rows if y is None else y)
    check_consistent_length(range(n_rows), array)
    labeled, found = split_labels(array, plan.marker)
    weights = checked_weights(sample_weight, n_rows)
    kinds = np.where(labeled, LABELED, MISSING).astype(np.int8)
    signs = plan.signs and are_plus_one(found)
    if signs:
        kinds[~labeled & ~is_missing(array)] = MARKED
        labeled, found = split_labels(array, None)
    labels = np.zeros(n_rows, dtype=found.dtype)
    labels[labeled] = found
    used = np.flatnonzero(weights)
    part = Summary(
        first,
        X if used.size == n_rows else take(X, used),
        (first + used).astype(np.int64),
        kinds[used],
        labels[used],
        weights[used],
        signs,
        np.bincount(kinds[used], minlength=3),
    )
    return part.sampled(plan)


def checked_weights(given: ArrayLike | None, n_rows: int) -> Array:
    """Return the weights of the rows of a part, (n,), all of which may be 0."""
    if given is None:
        return np.ones(n_rows)
    weights = np.asarray(given)
    if weights.shape == (n_rows,) and not weights.any():
        return np.zeros(n_rows)
    checked = _check_sample_weight(given, np.empty(n_rows), ensure_non_negative=True)
    return np.asarray(checked, dtype=np.float64)


def merge(plan: SamplePlan, one: Summary, other: Summary) -> Summary:
    """Return the summary of two parts that have no row in common, in any order."""
    parts = sorted((one, other), key=lambda part: part.first)
    parts = [part for part in parts if part.size] or parts[:1]
    signs = one.signs and other.signs
    n_seen = one.n_seen + other.n_seen
    if not signs:
        n_seen = np.array([n_seen[MISSING] + n_seen[MARKED], 0, n_seen[LABELED]])
    kinds, labels = merged_labels(parts, signs)
    both = Summary(
        parts[0].first,
        stacked_rows([part.rows for part in parts]),
        np.concatenate([part.numbers for part in parts]),
        kinds,
        labels,
        np.concatenate([part.weights for part in parts]),
        signs,
        n_seen,
    )
    return both.sampled(plan)


def whole_sample(plan: SamplePlan, summary: Summary) -> Summary:
    """Return the sample that `fit` learns, from the merged summary of a whole table.

    If -1 turns out to be a class, its rows are labeled rows like others.
    """
    if not summary.size:
        raise ValueError(
            "the table has no row with a positive sample_weight, expected at least one: pass rows, "
            "or correct the weights."
        )
    if not (summary.kinds == MARKED).any():
        return summary
    kinds = np.where(summary.kinds == MARKED, LABELED, summary.kinds).astype(np.int8)
    n_seen = np.array(
        [summary.n_seen[MISSING], 0, summary.n_seen[MARKED] + summary.n_seen[LABELED]]
    )
    return replace(summary, kinds=kinds, n_seen=n_seen).sampled(plan)


def merged_labels(parts: Sequence[Summary], signs: bool) -> tuple[NDArray[np.int8], Labels]:
    """Return the kinds and labels of the rows of some parts.

    Integers become floats if there are floats. Other types cannot be mixed.
    """
    kinds = np.concatenate([part.kinds for part in parts])
    if not signs:
        kinds[kinds == MARKED] = MISSING
    labeled = kinds != MISSING
    ends = np.cumsum([part.size for part in parts])[:-1]
    masks = np.split(labeled, ends)
    found = [part.labels[mask] for part, mask in zip(parts, masks, strict=True) if mask.any()]
    if not found:
        return kinds, np.zeros(kinds.size)
    if len({kind_of(each) for each in found}) > 1:
        every = np.concatenate([each.astype(object) for each in found])
        values = typed_labels(every, np.zeros(0))
    else:
        values = np.concatenate(found)
    labels = np.zeros(kinds.size, dtype=values.dtype)
    labels[labeled] = values
    return kinds, labels


# -- rows in the forms in which they come ----------------------------------------------------------


def is_mapping(X: Any) -> bool:
    """Whether rows are a dictionary of columns; a sparse matrix by keys is a dictionary, too."""
    return isinstance(X, Mapping) and not sp.issparse(X)


def number_of_rows(X: Any) -> int:
    """Return the number of rows in any form."""
    if isinstance(X, pa.Table | pa.RecordBatch):
        return int(X.num_rows)
    if is_mapping(X):
        return max((len(column) for column in X.values()), default=0)
    return int(_num_samples(X))


def take(X: Any, rows: Indices) -> Any:
    """Return some rows, by their places."""
    if isinstance(X, pa.Table | pa.RecordBatch):
        return X.take(pa.array(rows))
    if is_mapping(X):
        return {name: _safe_indexing(column, rows) for name, column in X.items()}
    return _safe_indexing(X.tocsr() if sp.issparse(X) else X, rows)


def stacked_rows(parts: Sequence[Any]) -> Any:
    """Return the rows of parts in the same form, and with the same columns, as one."""
    first, *others = parts
    if not others:
        return first
    forms = {sp.csr_array if sp.issparse(part) else type(part) for part in parts}
    if len(forms) > 1:
        names = " and ".join(sorted(form.__name__ for form in forms))
        raise ValueError(
            f"the parts of the table are of the types {names}, expected one type: convert them."
        )
    for other in others:
        check_same_columns(names_of_columns(first), names_of_columns(other))
    if sp.issparse(first):
        return sp.csr_array(sp.vstack(parts, format="csr"))
    if isinstance(first, np.ndarray):
        return stacked_arrays(parts)
    if isinstance(first, list | tuple):
        return [row for part in parts for row in part]
    if is_mapping(first):
        return {name: stacked_rows([part[name] for part in parts]) for name in first}
    if isinstance(first, pa.Table | pa.RecordBatch):
        return stacked_tables(
            [part if isinstance(part, pa.Table) else pa.table(part) for part in parts]
        )
    return stacked_frames(parts)


def stacked_arrays(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays as one; numbers do not become texts, and booleans no numbers."""
    kinds = {part.dtype.kind for part in parts}
    if len(kinds) > 1 and not kinds <= {"i", "u", "f"}:
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts)


def names_of_columns(X: Any) -> Sequence[Any] | None:
    """Return the names of columns, or their numbers for an array; None for other forms."""
    if is_mapping(X):
        return list(X)
    if isinstance(X, pa.Table):
        return list(X.column_names)
    if isinstance(X, pa.RecordBatch):
        return list(X.schema.names)
    if hasattr(X, "columns"):
        return list(X.columns)
    return range(X.shape[1]) if len(getattr(X, "shape", ())) == 2 else None


def check_same_columns(one: Sequence[Any] | None, other: Sequence[Any] | None) -> None:
    """Refuse other columns in another part of a table; their order may differ."""
    if one is None or other is None or sorted(map(str, one)) == sorted(map(str, other)):
        return
    if isinstance(one, range):
        raise ValueError(
            f"some rows have {len(one)} columns, others have {len(other)}, expected the same "
            "columns in all parts of a table: correct them."
        )
    known = {*map(str, one)} ^ {*map(str, other)}
    raise ValueError(
        f"column {min(known)!r} is in some parts of the table only, expected the same columns in "
        "all parts: add or leave out the column."
    )


def stacked_tables(parts: Sequence[pa.Table]) -> pa.Table:
    """Return tables of pyarrow as one; integers and floats become floats."""
    try:
        return pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(SEVERAL_TYPES.format(error)) from error


def stacked_frames(parts: Sequence[Any]) -> Any:
    """Return data frames of pandas or polars, or columns of them, as one."""
    import narwhals as nw

    library: Any = nw.get_native_namespace(nw.from_native(parts[0], allow_series=True))
    names = names_of_columns(parts[0])
    if names is not None:
        parts = [part[names] for part in parts]
    if library.__name__ == "polars":
        for name in names or ():
            types = {part.schema[name] for part in parts} - {library.Null}
            if library.String in types and len(types) > 1:  # polars would write numbers as texts
                raise ValueError(SEVERAL_TYPES.format(f"{name!r} is text in some parts only"))
        try:
            return library.concat(parts, how="vertical_relaxed")
        except library.exceptions.PolarsError as error:
            raise ValueError(SEVERAL_TYPES.format(error)) from error
    for name in names or ():
        kinds = [part[name].dtype for part in parts]
        categorical = all(isinstance(each, library.CategoricalDtype) for each in kinds)
        if categorical and any(each != kinds[0] for each in kinds):
            levels = {level for each in kinds for level in each.categories}
            union = library.CategoricalDtype(sorted(levels, key=str))
            parts = [part.astype({name: union}) for part in parts]
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # of empty columns
        return library.concat(parts)
