"""Rules between the attributes of a fitted estimator, and its parameters.

A rule is a statement and whether it is true, as in `records`. All functions take an estimator and
its state: the saved attributes by name. Their types have been checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from seqmed.arrays import Points
from seqmed.classes import ClassRegistry
from seqmed.graph.metrics import Metric, make_metric
from seqmed.kernels import RBF, ByFormat, Kernel, Linear, Precomputed, make_kernel
from seqmed.mixture.own_expert import EUCLIDEAN_KERNELS
from seqmed.mixture.refitted import REFITTED
from seqmed.mixture.trial import LONGEST
from seqmed.model_file.records import Rules, check_records, n_landmarks, points_in
from seqmed.pipelines.stream_pipeline import StreamPipeline
from seqmed.pipelines.transformers import is_passing
from seqmed.selection.search import PrequentialSearch
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.encoding import weight_beside_words
from seqmed.tables.kinds import CATEGORICAL, HASHED
from seqmed.tables.words import COUNTS

# Attributes on the columns of an estimator, with their types.
COLUMNS: dict[str, Any] = {"n_features_in_": int, "feature_names_in_": NDArray[Any]}


def column_rules(state: dict[str, Any]) -> Rules:
    """Yield rules on the columns of an estimator."""
    width, names = state.get("n_features_in_"), state.get("feature_names_in_")
    yield "at least one column", width is None or width >= 1
    yield "a name for every column", names is None or names.shape == (width,)
    yield "names that are text", names is None or names.dtype.kind == "O"


# -- states of classifiers ------------------------------------------------------------------------


def margin_rules(began: Any, state: dict[str, Any]) -> Rules:
    """Yield rules on the state of a margin classifier.

    Parameters
    ----------
    began : SeqMED or SeqLapMED, not fitted, with the valid parameters of the first batch.
    state : the saved attributes.
    """
    stream, info, width = state["_stream"], state["update_info_"], state["n_features_in_"]
    posterior, registry = stream.posterior, stream.registry
    kernel, recursion = posterior.covariance.kernel, posterior.recursion
    given = isinstance(began.kernel, str) and began.kernel == "precomputed"
    named = None if given else make_kernel(began.kernel, began.gamma, began.degree, began.coef0)
    kind = type(named)
    if kind is ByFormat:
        kind = Linear if stream.sparse else RBF
    yield "the kernel of the parameters", type(kernel) is (Precomputed if given else kind)
    check_records(
        (stream, info), p=1 if given else width, features=width, machines=registry.n_machines,
        window=info.n_window,
    )  # fmt: skip
    fits = (suits(points, kernel, stream.sparse) for points in points_in(posterior))
    yield "points that suit the kernel", all(fits)
    begun = began._begin_recursion(kernel, posterior.window.points, seed=0)
    yield "the recursion of the parameters", type(recursion) is type(begun)
    auto = began.bias == "auto"
    yield "the number of machines of the bias parameter", registry.per_class == auto
    variance = 0.0 if auto else float(began.bias_variance)
    yield "the bias variance of the parameters", posterior.bias_variance == variance
    biases = (posterior.intercepts, posterior.biases, posterior.bias_means)
    yield "biases of -1 with bias='auto'", not auto or all((each == -1.0).all() for each in biases)
    yield "coefficients for every landmark", posterior.landmarks.size == n_landmarks(recursion)
    signs = posterior.window.signs
    yield (
        "one class for every row of the window",
        registry.n_machines == 1 or ((signs > 0).sum(axis=1) == 1).all(),
    )
    found = np.unique(registry.own_classes(signs), return_counts=True)
    yield "no fewer labels than in the window", has_counted(registry, *found)
    yield "one solution for every machine", len(info.solutions) == registry.n_machines


def has_counted(
    registry: ClassRegistry, classes: NDArray[np.intp], counts: NDArray[np.intp]
) -> bool:
    """Whether a registry has at least these counts of labels, by the index of the class."""
    known = (classes < registry.classes.size).all()
    return bool(known and (registry.counts[classes] >= counts).all())


def suits(points: Points, kernel: Kernel, sparse: bool) -> bool:
    """Whether points have the format and range of values that a kernel needs."""
    formed = sp.issparse(points) == sparse or kernel.compact  # explicit weights are always dense
    return formed and points.dtype in (np.float64, np.intp) and kernel.accepts(points)


def graph_rules(began: Any, state: dict[str, Any]) -> Rules:
    """Yield rules on the state of a classifier with a graph; parameters as in `margin_rules`."""
    stream, info = state["_stream"], state["update_info_"]
    graph, registry = stream.graph, stream.registry
    kept, metric = graph.rows, graph.rows.metric
    check_records(
        (stream, info), p=state["n_features_in_"], classes=registry.classes.size, kept=kept.size
    )  # fmt: skip
    yield "the graph memory of the parameters", graph.capacity == began.graph_memory
    yield "the number of neighbours of the parameters", kept.n_neighbors == began.n_neighbors
    yield "the alpha of the parameters", graph.alpha == began.alpha
    yield (
        "the metric of the parameters",
        kinds_in(metric) == kinds_in(named_metric(began.metric, stream)),
    )
    stored = [block.rows for block in kept.blocks]
    yield (
        "kept rows in single precision, in the format of the stream",
        all(rows.dtype == np.float32 and sp.issparse(rows) == stream.sparse for rows in stored),
    )
    yield "kept rows that suit the kernel", all(map(metric.kernel.accepts, stored))
    yield "a known class for every label", (graph.codes < registry.classes.size).all()
    yield (
        "labels of classes that have been learned",
        registry.seen[graph.codes[graph.codes >= 0]].all(),
    )


def kinds_in(metric: Metric) -> tuple[type, type]:
    """Return the class of a metric, and that of its kernel."""
    return type(metric), type(metric.kernel)


def named_metric(name: Any, stream: Any) -> Any:
    """Return the metric of the first batch."""
    margin, kernel = getattr(stream, "margin", None), None
    if margin is not None and margin.estimator._stream.fixed["kernel"] not in EUCLIDEAN_KERNELS:
        kernel = margin.estimator._stream.posterior.covariance.kernel
    return make_metric(name, sp.csr_array((1, 1)) if stream.sparse else np.zeros((1, 1)), kernel)


def mixture_rules(began: Any, state: dict[str, Any]) -> Rules:
    """Yield rules on the state of a `SeqGraphMED`; parameters as in `margin_rules`."""
    stream, info = state["_stream"], state["update_info_"]
    if stream.trial is not None:
        yield from trial_rules(began, state)
        stream = stream._replace(trial=None)
        state = {**state, "_stream": stream}
    record, choice, inner = stream.record, stream.choice, stream.margin.estimator
    yield "an estimator that is fitted", hasattr(inner, "_stream")
    yield (
        "an estimator with the same number of columns",
        inner.n_features_in_ == state["n_features_in_"],
    )
    yield "an estimator with the same row format", inner._stream.sparse == stream.sparse
    yield (
        "an estimator with the same classes",
        same_classes(inner._stream.registry, stream.registry),
    )
    kernel = inner._stream.posterior.covariance.kernel
    yield "an estimator whose kernel suits the probes", kernel.accepts(stream.probes)
    yield from graph_rules(began, state)
    yield "known classes in the record", (record.codes < stream.registry.classes.size).all()
    known = np.take_along_axis(record.counts, record.codes[:, None], axis=1)
    yield "a record of classes that had a label", (known > 0).all()
    chosen = (record.size, choice.weight, choice.temperature, choice.others)
    yield (
        "the last choice in update_info_",
        (info.n_recorded, info.weight, info.temperature, info.others) == chosen,
    )
    total = choice.weight + sum(choice.others)
    yield (
        "weights of experts that sum to 1",
        min(choice.others, default=0.0) >= 0 and total < 1 + 1e-12,
    )
    kinds = [type(make()) for make in REFITTED]
    yield "all refitted experts", [type(each) for each in stream.refitted] == kinds
    yield "a weight for every refitted expert", len(choice.others) == len(stream.refitted)
    for expert in stream.refitted:
        yield "refitted experts of known columns", expert.fits(state["n_features_in_"])
    yield (
        "known classes in the recent rows",
        (stream.recent.codes < stream.registry.classes.size).all(),
    )
    yield "recent rows of classes that had a label", stream.registry.seen[stream.recent.codes].all()
    kernel = stream.graph.rows.metric.kernel
    for name, points in (("probes", stream.probes), ("recent rows", stream.recent.points)):
        formed = points.dtype == np.float64 and sp.issparse(points) == stream.sparse
        yield f"{name} in the format of the rows", formed
        yield f"{name} that suit the kernel", kernel.accepts(points)


def trial_rules(began: Any, state: dict[str, Any]) -> Rules:
    """Yield rules on the state without a new start that is on trial."""
    stream, info = state["_stream"], state["update_info_"]
    before = stream.trial.state
    yield "no trial within a trial", before.trial is None
    yield "fewer labels in a trial than it may have", 0 <= stream.trial.n_labels < LONGEST
    yield "the same classes in a trial", same_classes(before.registry, stream.registry)
    yield (
        "the same rows in a trial",
        (before.n_rows, before.n_batches, before.sparse, before.scale.size)
        == (stream.n_rows, stream.n_batches, stream.sparse, stream.scale.size),
    )
    yield "the same parameters in a trial", before.fixed == stream.fixed
    choice = before.choice
    info = info._replace(
        n_recorded=before.record.size,
        weight=choice.weight,
        temperature=choice.temperature,
        others=choice.others,
    )
    yield from mixture_rules(began, {**state, "_stream": before, "update_info_": info})


def same_classes(first: ClassRegistry, second: ClassRegistry) -> bool:
    """Whether two registries have the same classes, of the same type."""
    kinds = first.classes.dtype.kind == second.classes.dtype.kind
    return kinds and np.array_equal(first.classes, second.classes)


# -- scalers, pipelines and searches --------------------------------------------------------------


def scaler_rules(scaler: Any, state: dict[str, Any]) -> Rules:
    """Yield rules on a fitted scaler."""
    yield from column_rules(state)
    measured = {name: value for name, value in state.items() if name not in COLUMNS}
    known = {name: value for name, value in measured.items() if value is not None}
    for name, value in known.items():
        single = name == "n_samples_seen_" and np.ndim(value) == 0
        yield f"{name} for every column", single or value.shape == (state["n_features_in_"],)
        yield f"numbers in {name}", np.asarray(value).dtype.kind in "iuf"
    needed = set(measured)
    if isinstance(scaler, StandardScaler):  # with_mean and with_std decide
        needed = {"mean_"} if scaler.with_mean else set()
        needed |= {"mean_", "var_", "scale_"} if scaler.with_std else set()
    yield "all statistics of the scaler", needed <= set(known)


def encoder_rules(encoder: TableEncoder, state: dict[str, Any]) -> Rules:
    """Yield rules on a fitted encoder of tables."""
    encoding = state["encoding_"]
    check_records(encoding)
    choices = encoder._choices()
    missing = tuple(choices.missing_values)
    yield "the missing values of the parameters", encoding.missing_values == missing
    found = {each.name: each for each in encoding.columns}
    yield "no feature from the labels", encoder.label not in found
    for name, kind in choices.kinds.items():
        kind, _, form = kind.partition(":")  # a date may have a format
        kinds = (kind, HASHED) if kind == CATEGORICAL else (kind,)
        yield "the kinds of the parameters", name in found and found[name].kind in kinds
        yield "the formats of the parameters", not form or found[name].form == form
    if choices.features is not None:
        used = {*choices.features, *choices.kinds}
        yield "the features of the parameters", used <= {*found} and used >= {*encoding.needed}
    yield "the scaling of the parameters", encoding.numbers.centred == choices.scale
    sizes = {each.size for each in encoding.words}
    yield "the text size of the parameters", sizes <= {choices.text_size}
    counts = all(
        (each.places is None) == (choices.text_weights == COUNTS) for each in encoding.words
    )
    yield "the text weights of the parameters", counts
    weight = weight_beside_words(encoding.columns, choices.text_weights)
    yield "the weight beside words", encoding.weight == weight


def encoder_parameters(encoder: TableEncoder) -> Rules:
    """Yield rules on the parameters of an encoder of tables."""
    encoder._choices()
    yield from ()


def pipeline_rules(pipeline: StreamPipeline, state: dict[str, Any]) -> Rules:
    """Yield rules on a fitted pipeline."""
    *transformers, final = (step for _, step in pipeline.steps if not is_passing(step))
    fitted = all(hasattr(each, "n_features_in_") for each in transformers)
    yield "transformers that are fitted", fitted
    yield "a classifier that is fitted", hasattr(final, "classes_")
    last: Any = transformers[-1] if transformers else None
    if hasattr(last, "encoding_") and hasattr(final, "n_features_in_"):
        width = final.n_features_in_
        yield "a classifier of the encoded features", last.encoding_.n_features == width
    if state["_monitor"] is not None:
        monitor = state["_monitor"][1]
        check_records(monitor, columns=monitor.drifted.size)
    check_records(state["drift_"])


def search_rules(search: PrequentialSearch, state: dict[str, Any]) -> Rules:
    """Yield rules on a fitted search."""
    candidates, record, begun = state["candidates_"], state["record_"], state["_begun"]
    kind, grid = begun.get("estimator"), begun.get("param_grid")
    yield from column_rules(state)
    yield (
        "the class and the grid of the search",
        kind is type(search.estimator) and type(grid) is list,
    )
    yield "a parameter combination for each candidate", len(grid) == len(candidates)
    yield "parameter combinations as dictionaries", all(type(each) is dict for each in grid)
    yield "candidates of one class", all(type(each) is kind for each in candidates)
    yield "candidates that are fitted", all(hasattr(each, "classes_") for each in candidates)
    check_records(record, c=len(candidates))
    yield "a record of each candidate", len(record.dropped) == len(candidates)
    yield "a candidate that was not dropped", record.racing.size > 0
    leaders = (why.leader for why in record.dropped if why is not None)
    yield "leaders among the candidates", all(0 <= each < len(candidates) for each in leaders)
    yield "a number of batches >= 0", state["n_batches_"] >= 0
    first, *others = (candidates[place] for place in record.racing)
    agree = all(np.array_equal(first.classes_, each.classes_) for each in others)
    yield "candidates with the same classes", agree
