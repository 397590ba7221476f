"""Learning and prediction with Dask: the same results as without it, for tables of any size.

Data are a Dask DataFrame, a Dask array, or a list of delayed tables. Tasks run on the cluster of
the current `distributed.Client`, which belongs to the caller. Without a client they run in this
process, one partition after the other.

Results do not depend on the partitions, the number of workers, or the order of the tasks: rows are
sampled by their number in the whole table, and predicted in blocks of one size. A task that runs
again, after its worker died, changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from numbers import Integral
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from sklearn.pipeline import Pipeline

from seqmed.estimators import row_sample
from seqmed.estimators.base import (
    StreamClassifier,
    generators_restored,
    in_blocks,
    snapshot,
    transformed,
)
from seqmed.estimators.graph_propagation import GraphPropagation
from seqmed.estimators.row_sample import number_of_rows, take
from seqmed.estimators.validation import read_labels
from seqmed.graph.kept_rows import Lists, joined_lists, joined_rows, nearest_of_both
from seqmed.selection import queries
from seqmed.selection.measures import Measures
from seqmed.selection.queries import Shortlist
from seqmed.tables.encoder import TableEncoder

try:
    import dask
    import dask.array as da
    import dask.dataframe as dd
    import distributed
    import psutil
    from dask.delayed import Delayed, delayed
except ImportError as error:
    raise ImportError(
        "seqmed.dask needs Dask, which is not installed: pip install 'seqmed[dask]'."
    ) from error

__all__ = [
    "PartitionError",
    "evaluate",
    "fit",
    "partial_fit",
    "predict",
    "predict_proba",
    "query",
]

# Number of rows in one of the blocks whose pairs are tasks, in blocks of kept rows.
BLOCKS_AT_ONCE = 20
# Bytes that a row in a whole graph takes besides its columns, and for every column: it is held in
# double and in single precision, and some copies of these are needed at the same time.
BYTES_OF_ROW, BYTES_OF_CELL = 1000, 32
# Number of results that one task merges.
FAN = 8
# Number of rows that are measured at once, which bounds exact sums.
MEASURED_AT_ONCE = 2**20
# What to do if workers are killed, usually because a partition does not fit their memory.
KILLED = (
    "the worker was killed every time, probably because it has too little memory: use smaller "
    "partitions or files, such as data.repartition(partition_size='50MB'), or give every worker "
    "more memory."
)
# Columns of these kinds may not be mixed in the partitions of a table.
NUMBERS, DATES, TEXTS = "numbers", "dates", "texts"

DaskData = Any
"""A Dask DataFrame, a Dask array (n, p), or a list of delayed tables or arrays."""


class PartitionError(ValueError):
    """A partition cannot be read, learned or predicted; partitions are counted from 0."""


# -- learning --------------------------------------------------------------------------------------


def fit(model: Any, data: DaskData, label: Any = None, sample_weight: Any = None) -> Any:
    """Fit a model to a table, as ``model.fit`` does with the whole table in memory.

    Workers read, hash and select rows. The merged sample is learned in the process of the caller.

    Parameters
    ----------
    model : SeqGraphMED, SeqMED, SeqLapMED, GraphPropagation or StreamPipeline
        What it has learned is discarded. A StreamPipeline ends in one of these classifiers.
    data : Dask DataFrame, Dask array of shape (n_samples, n_features), or list of delayed tables
        A table is anything that the model takes. Rows are counted first, in a pass of its own
        unless the array knows the sizes of its chunks.
    label : column name, or Dask or numpy array of shape (n_samples,)
        Labels as ``model.fit`` takes them. A Dask array or Series has the partitions of ``data``.
    sample_weight : column name, or Dask or numpy array of shape (n_samples,), default=None
        Weights >= 0.

    Returns
    -------
    model : object
        The same model, fitted. After an error it is unchanged.

    Raises
    ------
    PartitionError
        If a partition cannot be read or has other columns or types of columns.

    Notes
    -----
    `GraphPropagation` with ``graph_memory`` of at least the number of rows keeps all rows. Their
    neighbours are then found by pairs of blocks on the workers.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> import seqmed.dask
    >>> from seqmed import make_stream_pipeline
    >>> rows = pd.DataFrame({"x": [0.0, 1.0] * 50, "kind": ["a", "b"] * 5 + [None] * 90})
    >>> table = dd.from_pandas(rows, npartitions=4)
    >>> model = seqmed.dask.fit(make_stream_pipeline(random_state=0), table, label="kind")
    >>> seqmed.dask.predict(model, table.drop(columns="kind")).compute().tolist()[:2]
    ['a', 'b']
    """
    parts = partitions(data, label, sample_weight)
    described = described_rows(data, parts)
    with generators_restored(model):
        plan = model._sample_plan()
        work = partial(summarised, plan, described.kinds)
        starts = zip(parts, described.firsts, strict=True)
        tasks = [delayed(work)(*part, first) for part, first in starts]
        whole = isinstance(model, GraphPropagation) and described.total <= model._sample_sizes()[0]
        if whole and hasattr(data, "shape"):
            check_memory(described.total, data.shape[1])
        summary = merged_results(tasks, partial(row_sample.merge, plan))
        if whole and model._keeps_all(summary):
            return model._fit_whole(plan, summary, neighbours_by_blocks)
        return model._fit_summary(plan, summary)


def partial_fit(
    model: Any, data: DaskData, label: Any = None, sample_weight: Any = None, *, ahead: int = 2
) -> Any:
    """Learn a stream in order, a partition as one batch, as ``model.partial_fit`` does.

    Learning is sequential, in the process of the caller. Workers read the next partitions.
    Partitions without rows are left out.

    Parameters
    ----------
    model, data, label, sample_weight : see `fit`
    ahead : int >= 0, default=2
        Number of partitions that are read ahead of the one that is learned.

    Returns
    -------
    model : object
        The same model. If a partition causes an error, the partitions before it have been learned.
    """
    parts = partitions(data, label, sample_weight)
    tasks = [delayed(separated)(*part) for part in parts]
    for number, (X, y, weight) in enumerate(in_order(tasks, ahead)):
        if not number_of_rows(X):
            continue
        with naming_partition(number, tasks[number]):
            model.partial_fit(X, y, **({} if weight is None else {"sample_weight": weight}))
    return model


# -- predictions -----------------------------------------------------------------------------------


def predict(model: Any, data: DaskData) -> Any:
    """Return the predicted labels of all rows, lazily.

    Parameters
    ----------
    model : fitted model
    data : Dask DataFrame, Dask array of shape (n_samples, n_features), or list of delayed tables
        Rows in the form that ``model.predict`` takes.

    Returns
    -------
    labels : Dask Series, Dask array of shape (n_samples,), or list of delayed arrays
        In the form of ``data``; a Series has its index.
    """
    return predicted(model, data, "predict")


def predict_proba(model: Any, data: DaskData) -> Any:
    """Return the probabilities of all classes at all rows, lazily.

    Parameters
    ----------
    model : fitted model
    data : see `predict`

    Returns
    -------
    probabilities : Dask DataFrame, Dask array of shape (n_samples, n_classes), or list of arrays
        In the form of ``data``. The columns of a DataFrame are the classes, and its index is that
        of ``data``. The arrays of the list are delayed.
    """
    return predicted(model, data, "predict_proba")


def evaluate(model: Any, data: DaskData, label: Any) -> Measures:
    """Return measures of the predictions at the labeled rows, as `seqmed evaluate` prints them.

    Parameters
    ----------
    model : fitted model
    data, label : see `fit`

    Returns
    -------
    measures : seqmed.selection.measures.Measures
        ``accuracy``, ``balanced_accuracy``, ``macro_f1``, ``log_loss``, ``calibration_error``,
        ``by_class()``, ``classes``, ``matrix`` and others.
    """
    shared = on_workers(model)
    final = fitted_classifier(model)
    tasks = [delayed(measured_part)(shared, X, y) for X, y, _ in partitions(data, label, None)]
    measures: Measures = merged_results(tasks, Measures.plus)
    if not measures.size:
        raise ValueError(
            f"evaluate got no row with a label of {type(final).__name__}, expected at least one: "
            "pass true labels."
        )
    return measures


def query(model: Any, data: DaskData, n: int) -> Any:
    """Return the rows to label next, the most valuable first, as `seqmed.query` does.

    Parameters
    ----------
    model : fitted SeqMED, SeqLapMED, SeqGraphMED, GraphPropagation or StreamPipeline of these
    data : rows that can be labeled; see `predict`
    n : int >= 1
        Number of rows to choose; at most the number of distinct rows.

    Returns
    -------
    rows : ndarray of shape (n,)
        Numbers of the rows in the whole table, from 0, in the order of the partitions.
    """
    if not isinstance(n, Integral) or isinstance(n, bool | np.bool_) or n < 1:
        raise ValueError(f"query got n={n!r}, expected an integer >= 1.")
    shared, final = on_workers(model), fitted_classifier(model)
    parts = partitions(data, None, None)
    firsts, total = described_rows(data, parts)[:2]
    work = partial(shortlisted, max(queries.SHORTLIST, int(n)), total)
    starts = zip(parts, firsts, strict=True)
    tasks = [delayed(work)(shared, X, first) for (X, *_), first in starts]
    best: Shortlist = merged_results(tasks, Shortlist.plus)
    if len(best.cells) < n:
        raise ValueError(
            f"query got n={n} for {len(best.cells)} distinct rows: choose fewer rows, or pass more."
        )
    return best.numbers[queries.query(final, best.points, int(n))]


# -- partitions ------------------------------------------------------------------------------------


class Described(NamedTuple):
    """The rows of all partitions."""

    firsts: list[int]  # number of the first row of every partition
    total: int  # number of rows
    kinds: dict[str, str]  # kinds of columns, of those that are known


def partitions(data: DaskData, label: Any, sample_weight: Any) -> list[tuple[Any, Any, Any]]:
    """Return rows, labels and weights of every partition.

    Each of them is delayed. Labels and weights may also be an array or the name of a column.
    """
    if isinstance(data, dd.DataFrame):
        tables = data.to_delayed()
    elif isinstance(data, da.Array):
        tables = whole_rows(data).to_delayed().ravel().tolist()
    elif isinstance(data, Sequence) and data and all(isinstance(each, Delayed) for each in data):
        tables = list(data)
    else:
        raise TypeError(
            f"data is a {type(data).__name__}, expected a Dask DataFrame, a Dask array or a list "
            "of delayed tables: convert it, for example with dask.dataframe.from_pandas."
        )
    columns = [
        aligned(name, values, data, len(tables))
        for name, values in (("label", label), ("sample_weight", sample_weight))
    ]
    return list(zip(tables, *columns, strict=True))


def whole_rows(data: Any) -> Any:
    """Return a Dask array (n, p) whose chunks have all columns."""
    if data.ndim != 2:
        raise ValueError(
            f"data has the shape {data.shape}, expected (rows, columns): reshape the array."
        )
    return data if data.numblocks[1] == 1 else data.rechunk({1: -1})


def aligned(name: str, values: Any, data: DaskData, count: int) -> list[Any]:
    """Return the labels or weights of every partition; the name of a column stays one."""
    if values is None or np.ndim(values) == 0:
        if isinstance(data, dd.DataFrame) and values is not None and values not in data.columns:
            raise ValueError(
                f"{name} is {values!r}, expected a column of data, which has "
                f"{', '.join(map(str, data.columns))}: correct the name."
            )
        return [values] * count
    if isinstance(data, da.Array) and not np.isnan(data.shape[0]):
        if not hasattr(values, "dask"):
            values = da.from_array(np.asarray(values), chunks=-1)
        if isinstance(values, da.Array) and len(values) == len(data):
            values = values.rechunk((data.chunks[0],))
    parts = values.to_delayed() if hasattr(values, "to_delayed") else None
    if parts is None or len(parts) != count:
        got = "no partitions" if parts is None else f"{len(parts)} partitions"
        raise ValueError(
            f"{name} has {got}, expected the {count} partitions of data: pass a column name, or a "
            "Dask array with the chunks of data."
        )
    return list(parts)


def described_rows(data: DaskData, parts: Sequence[tuple[Any, Any, Any]]) -> Described:
    """Return the numbers of rows of all partitions, and the kinds of columns.

    Of a DataFrame one column is read, and the kinds are those that Dask expects. Of delayed tables
    the kinds are those of the first one.
    """
    if isinstance(data, da.Array) and not np.isnan(data.shape[0]):
        sizes, kinds = list(data.chunks[0]), dict[str, str]()
    else:
        narrow = [part[0] for part in parts]
        if isinstance(data, dd.DataFrame) and len(data.columns):
            narrow = data[[data.columns[0]]].to_delayed()
        found = list(in_order([delayed(rows_and_kinds)(each) for each in narrow], len(parts)))
        sizes, kinds = [size for size, _ in found], found[0][1]
        if isinstance(data, dd.DataFrame):
            kinds = kinds_of_columns(data._meta)
    ends = np.cumsum([0, *sizes]).tolist()
    return Described(ends[:-1], ends[-1], kinds)


def rows_and_kinds(table: Any) -> tuple[int, dict[str, str]]:
    """Return the number of rows of a partition, and the kinds of its columns."""
    return number_of_rows(table), kinds_of_columns(table)


def kinds_of_columns(table: Any) -> dict[str, str]:
    """Return the kinds of the columns of a data frame whose types tell it."""
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return {}
    kinds = {}
    for name, kind in frame.schema.items():
        if kind.is_numeric() or kind == nw.Boolean:
            kinds[name] = NUMBERS
        elif kind.is_temporal():
            kinds[name] = DATES
        elif kind in (nw.String, nw.Categorical, nw.Enum):
            kinds[name] = TEXTS
    return kinds


def check_kinds(table: Any, expected: dict[str, str]) -> None:
    """Refuse a partition without an expected column, or with a column of another kind."""
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return
    kinds = kinds_of_columns(table)
    for name, kind in expected.items():
        if name not in frame.columns:
            raise ValueError(f"column {name!r} is missing, expected the columns of all partitions.")
        if kinds.get(name, kind) != kind and not frame[name].is_null().all():
            raise ValueError(
                f"column {name!r} has {kinds[name]}, expected {kind} as in the other partitions: "
                "convert it."
            )


def separated(table: Any, label: Any, weight: Any) -> tuple[Any, Any, Any]:
    """Return the rows of a partition without its columns of labels and weights, and these."""
    names = [each for each in (label, weight) if each is not None and np.ndim(each) == 0]
    if not names:
        return table, label, weight
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        raise TypeError(
            f"the partition is a {type(table).__name__}, which has no column {names[0]!r}: pass "
            "data frames, or labels as a Dask array."
        )
    for name in names:
        if name not in frame.columns:
            raise ValueError(
                f"column {name!r} is missing (it has {', '.join(map(str, frame.columns))}): "
                "correct the name, or the partition."
            )
    rest = frame.drop(names).to_native()
    found = {name: nw.to_native(frame[name]) for name in names}
    return rest, *(found[each] if each in names else each for each in (label, weight))


# -- what tasks do ---------------------------------------------------------------------------------


def summarised(
    plan: row_sample.SamplePlan, kinds: dict[str, str], table: Any, label: Any, weight: Any,
    first: int,
) -> row_sample.Summary:  # fmt: skip
    """Return the sample of a partition, whose first row has the number ``first``."""
    check_kinds(table, kinds)
    X, y, weights = separated(table, label, weight)
    return row_sample.summarise(plan, X, y, weights, first=first)


def measured_part(model: Any, table: Any, label: Any) -> Measures:
    """Return the measures of the labeled rows of a partition."""
    X, y, _ = separated(table, label, None)
    final, measures = fitted_classifier(model), Measures()
    if not number_of_rows(X):
        return measures
    labeled, labels = read_labels(final, y, final.classes_)
    places = np.flatnonzero(labeled)
    for start in range(0, places.size, MEASURED_AT_ONCE):
        part = slice(start, start + MEASURED_AT_ONCE)
        found = results_of_rows(model, "predict_proba", take(X, places[part]))
        measures.add(labels[part], final.classes_, found)
    return measures


def shortlisted(size: int, total: int, model: Any, X: Any, first: int) -> Shortlist:
    """Return the rows of a partition of largest expected regret.

    If fewer than two classes have labels, they are evenly spaced among all ``total`` rows.
    """
    final = fitted_classifier(model)
    numbers = first + np.arange(number_of_rows(X))
    if final._snapshot()._state.counts.seen.sum() < 2:
        spaced = np.arange(queries.SHORTLIST) * total // queries.SHORTLIST
        places = np.flatnonzero(np.isin(numbers, spaced))
        if total > queries.SHORTLIST:
            X, numbers = take(X, places), numbers[places]
    rows = features(model, X) if numbers.size else X
    return Shortlist.of(final, size, rows, numbers, [None] * numbers.size)


def predicted(model: Any, data: DaskData, method: str) -> Any:
    """Return the results of a method for all rows, lazily, in the form of the data."""
    classes = fitted_classifier(model).classes_
    shared, wide = on_workers(model), method == "predict_proba"
    if isinstance(data, dd.DataFrame):
        empty = np.zeros((0, classes.size)) if wide else classes[:0]
        meta = like(data._meta.iloc[:0], empty, classes)
        return data.map_partitions(
            predict_frame, shared, method, classes, meta=meta, enforce_metadata=False
        )
    if isinstance(data, da.Array):
        rows = whole_rows(data)
        form: dict[str, Any] = (
            {"chunks": (rows.chunks[0], (classes.size,))} if wide else {"drop_axis": 1}
        )
        kind = np.dtype(float) if wide else classes.dtype
        meta = np.zeros((0, 0) if wide else 0, dtype=kind)
        return rows.map_blocks(
            predict_block, shared, method, classes, dtype=kind, meta=meta, **form
        )
    parts = partitions(data, None, None)
    work = delayed(predict_rows)
    return [work(X, shared, method, classes, number) for number, (X, *_) in enumerate(parts)]


def results_of_rows(model: Any, method: str, X: Any) -> Any:
    """Return the results of a method for at least one row; see `in_blocks`.

    An encoder of tables treats every row alone, so it takes all rows at once. Other transformers
    may not.
    """
    if isinstance(model, Pipeline) and len(model.steps) == 2:
        encoder, final = (step for _, step in model.steps)
        if isinstance(encoder, TableEncoder):
            model, X = final, features(model, X)
    return in_blocks(lambda rows: (getattr(model, method)(rows),), X)[0]


def predict_rows(X: Any, model: Any, method: str, classes: Any, number: int) -> Any:
    """Return the result of a method for the rows of a partition."""
    with naming_partition(number):
        if number_of_rows(X):
            return results_of_rows(model, method, X)
    return classes[:0] if method == "predict" else np.zeros((0, classes.size))


def predict_frame(
    frame: Any, model: Any, method: str, classes: Any, partition_info: Any = None
) -> Any:
    """Return the result of `predict_rows` with the index of a data frame."""
    number = (partition_info or {}).get("number", 0)
    return like(frame, predict_rows(frame, model, method, classes, number), classes)


def predict_block(rows: Any, model: Any, method: str, classes: Any, block_id: Any = (0,)) -> Any:
    """Return the result of `predict_rows` for a chunk of an array."""
    return predict_rows(rows, model, method, classes, block_id[0])


def like(frame: Any, values: Any, classes: Any) -> Any:
    """Return labels or probabilities with the index of a data frame of pandas."""
    import pandas as pd

    if values.ndim == 1:
        return pd.Series(values, index=frame.index)
    return pd.DataFrame(values, index=frame.index, columns=pd.Index(classes))


def fitted_classifier(model: Any) -> Any:
    """Return the fitted classifier at the end of a model."""
    final = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not isinstance(final, StreamClassifier):
        raise TypeError(
            f"the model is a {type(model).__name__} that ends in {type(final).__name__}, expected "
            "a classifier of seqmed, or a StreamPipeline that ends in one."
        )
    final._snapshot()  # refuses a model that is not fitted
    return final


def features(model: Any, X: Any) -> Any:
    """Return rows as the classifier at the end of a model takes them."""
    return transformed(model.steps, X) if isinstance(model, Pipeline) else X


# -- the whole graph -------------------------------------------------------------------------------


def check_memory(n_rows: int, n_columns: int) -> None:
    """Refuse a whole graph that does not fit the memory of this machine."""
    needed = n_rows * (BYTES_OF_ROW + BYTES_OF_CELL * n_columns)
    free = psutil.virtual_memory().available
    if needed > free:
        raise MemoryError(
            f"a graph of all {n_rows:,} rows of {n_columns} columns needs about "
            f"{needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free: choose a smaller "
            "graph_memory, which keeps a sample of the rows, or a machine with more memory."
        )


def neighbours_by_blocks(metric: Any, blocks: Sequence[Any], length: int) -> Lists:
    """Return exact neighbour lists of rows; each pair of blocks of rows is one task.

    Parameters
    ----------
    metric : how rows are compared.
    blocks : all rows as the metric stores them, in blocks of the same size except the last.
    length : number of entries of a list.
    """
    groups = [blocks[at : at + BLOCKS_AT_ONCE] for at in range(0, len(blocks), BLOCKS_AT_ONCE)]
    firsts = np.arange(len(groups)) * BLOCKS_AT_ONCE * blocks[0].size
    rows = [on_workers(joined_rows(group)) for group in groups]
    found: list[list[Any]] = [[] for _ in groups]
    search = partial(nearest_of_both, metric, length)
    for one, first in enumerate(firsts.tolist()):
        for other, second in enumerate(firsts.tolist()[: one + 1]):
            pair = delayed(search, nout=2)(rows[one], first, rows[other], second)
            found[one].append(pair[0])
            if other < one:
                found[other].append(pair[1])
    tasks = [delayed(joined_lists)(parts, length, metric.limit) for parts in found]
    client = current_client()
    if client is None:
        lists = dask.compute(*tasks, scheduler="synchronous")
    else:
        with computing(client, tasks) as futures:
            lists = client.gather(futures)
    return Lists._make(np.concatenate(arrays) for arrays in zip(*lists, strict=True))


# -- running tasks ---------------------------------------------------------------------------------


def current_client() -> Any:
    """Return the client of the caller, None without one."""
    try:
        return distributed.default_client()
    except ValueError:
        return None


def itself(value: Any) -> Any:
    """Return the value. As a task, this puts the value on a worker."""
    return value


def on_workers(value: Any) -> Any:
    """Return a future of a value, which is sent to a worker once, and from there to others.

    It is the result of a task. A scattered value would be lost if all workers that have it died.
    Without a client it is delayed.
    """
    value = snapshot(value) if hasattr(value, "_snapshot") else value  # it may learn meanwhile
    client = current_client()
    if client is None:
        return delayed(value, traverse=False)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        return client.submit(itself, value, pure=False)


def merged_results(
    tasks: Sequence[Any],
    merge: Callable[[Any, Any], Any],
    report: Callable[[int], None] = lambda done: None,
    *,
    named: bool = True,
) -> Any:
    """Return the results of all tasks, merged by a function that is commutative and associative.

    The results of tasks are merged on the workers as they come. ``report`` is called with the
    number of tasks that are done. Errors name the partition if ``named``.
    """
    client = current_client()
    if client is None:
        return reduce(merge, in_order(tasks, 0))
    with computing(client, tasks) as futures:
        numbers = {future.key: number for number, future in enumerate(futures)}
        queue, ready, done = distributed.as_completed(futures), list[Any](), 0
        futures.clear()  # results that are merged are released
        for future in queue:
            check(future, numbers if named else {}, tasks)
            if future.key in numbers:
                done += 1
                report(done)
            ready.append(future)
            if len(ready) == FAN or (len(ready) > 1 and not queue.count()):
                ready = [client.submit(merge_all, merge, ready, pure=False)]
                queue.update(ready)
                ready.clear()
        return ready[0].result()


def merge_all(merge: Callable[[Any, Any], Any], parts: Sequence[Any]) -> Any:
    """Return some results, merged."""
    return reduce(merge, parts)


def in_order(tasks: Sequence[Any], ahead: int) -> Iterator[Any]:
    """Yield the results of all tasks in order; workers compute ``ahead`` tasks in advance."""
    client = current_client()
    if client is None:
        for number, task in enumerate(tasks):
            with naming_partition(number, task):
                found = task.compute(scheduler="synchronous")
            yield found
        return
    with computing(client, tasks[: ahead + 1]) as futures:
        started, pending = len(futures), deque(enumerate(futures))
        futures.clear()
        while pending:
            number, future = pending.popleft()
            check(future, {future.key: number}, tasks)
            found = future.result()
            del future
            if started < len(tasks):
                pending.append((started, client.compute(tasks[started])))
                started += 1
            yield found


@contextmanager
def computing(client: Any, tasks: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield futures of tasks; afterwards, those that have not been dropped are cancelled."""
    futures = list(client.compute(list(tasks)))
    try:
        yield futures
    finally:
        client.cancel(futures)


def check(future: Any, numbers: dict[Any, int], tasks: Sequence[Any]) -> None:
    """Wait for a future; name the partition of one that failed."""
    error = future.exception()
    if error is not None:
        number = numbers.get(future.key)
        with naming_partition(number, None if number is None else tasks[number]):
            raise error


@contextmanager
def naming_partition(number: int | None, task: Any = None) -> Iterator[None]:
    """Name the partition in errors, and its file if it is known."""
    try:
        yield
    except PartitionError:
        raise
    except distributed.KilledWorker as error:
        raise PartitionError(f"{named_partition(number, task)}{KILLED}") from error
    except Exception as error:
        if number is None:
            raise
        said = " ".join(str(error).split()) or type(error).__name__
        raise PartitionError(f"{named_partition(number, task)}{said}") from error


def named_partition(number: int | None, task: Any) -> str:
    """Return a partition and its files for a message."""
    if number is None:
        return ""
    files = sorted(paths_of(task, number))
    return f"partition {number}{f' ({files[0]})' if len(files) == 1 else ''}: "


def paths_of(task: Any, number: int) -> set[str]:
    """Return the paths of files that the tasks of a partition read, as far as they are known."""
    if not isinstance(task, Delayed):
        return set()
    found = set[str]()

    def search(value: Any, depth: int = 0) -> None:
        path = value if isinstance(value, str) else getattr(value, "path", None)
        if isinstance(path, str) and "/" in path:
            found.add(path)
        inner = [getattr(value, name, ()) for name in ("args", "kwargs", "value")]
        for each in [*inner, value]:
            many = each.values() if isinstance(each, dict) else each
            if isinstance(each, dict | tuple | list) and depth < 8:
                for part in many:
                    search(part, depth + 1)

    for key, value in dict(task.__dask_graph__()).items():
        if isinstance(key, tuple) and key[1:] == (number,):
            search(value)
    return found
