"""What a model may consist of: the library's frozen records, and the estimators that hold them.

A file names its parts. The names are looked up here and nowhere else, so that no file can make
anything but these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from numbers import Integral
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from seqmed.calibration import Calibration
from seqmed.classes import ClassRegistry
from seqmed.covariance import (
    ExactRecursion,
    LandmarkRecursion,
    NystroemRecursion,
    SpectralRecursion,
)
from seqmed.covariance.basis import Basis
from seqmed.covariance.low_rank import LowRankCovariance, Reduction
from seqmed.covariance.nystroem import NystroemCovariance
from seqmed.covariance.protocol import CovarianceFunction, Recursion
from seqmed.covariance.spectral import Spectrum
from seqmed.dual import DualSolution
from seqmed.estimators.graph_propagation import GraphPropagation, GraphStream
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.estimators.seqlapmed import SeqLapMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.graph.kept_rows import KeptRows
from seqmed.graph.laplacian import GraphRecipe
from seqmed.graph.metrics import Cosine, Euclidean, KernelDistance, Metric
from seqmed.graph.neighbours import Lists
from seqmed.graph.propagation import GraphInfo, GraphState
from seqmed.kernels import (
    RBF,
    DCMFisher,
    Expansion,
    Kernel,
    Linear,
    Polynomial,
    Precomputed,
    TfIdf,
)
from seqmed.margin_state import MarginState
from seqmed.mixture.experts import MarginExpert, OwnExpert
from seqmed.mixture.update import MixtureInfo, MixtureStream
from seqmed.mixture.weighting import Choice, Scales, ScoreRecord
from seqmed.model_file.saved_rows import SavedRows, completed, from_saved, to_saved
from seqmed.pipelines.drift import ColumnStatistics, Comparison, Watch
from seqmed.pipelines.stream_pipeline import StreamPipeline
from seqmed.posterior import Posterior, ScoredTerms, Terms, Window
from seqmed.selection.race import Dropped, Record
from seqmed.selection.search import PrequentialSearch
from seqmed.update import UpdateInfo

KERNELS = (RBF, Linear, Polynomial, TfIdf, DCMFisher, Precomputed)
COVARIANCES = (LowRankCovariance, NystroemCovariance)
RECURSIONS = (ExactRecursion, LandmarkRecursion, SpectralRecursion, NystroemRecursion)
METRICS = (Euclidean, Cosine, KernelDistance)
# Estimators of `SeqGraphMED` that can be written.
MARGINS = (SeqMED, SeqLapMED)

# What an annotation that names an interface allows.
IMPLEMENTATIONS: dict[Any, tuple[type, ...]] = {
    Kernel: KERNELS,
    CovarianceFunction: COVARIANCES,
    Recursion: RECURSIONS,
    Metric: METRICS,
    MarginExpert: (OwnExpert,),
}
# Types of fields that are narrower than their annotations.
NARROWED: dict[type, dict[str, Any]] = {OwnExpert: {"estimator": SeqMED | SeqLapMED}}

RECORDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *KERNELS, *COVARIANCES, *RECURSIONS,
        MarginState, Posterior, Terms, ScoredTerms, Window, Expansion, GraphRecipe, Reduction,
        Basis,
        Spectrum, ClassRegistry, Calibration, UpdateInfo, DualSolution,
        Watch, ColumnStatistics, Comparison, Record, Dropped,
        *METRICS, GraphStream, GraphState, GraphInfo, SavedRows, Lists,
        MixtureStream, MixtureInfo, OwnExpert, ScoreRecord, Scales, Choice,
    )
}  # fmt: skip
# Records that are written as others, and how those are read.
WRITTEN_AS: dict[type, Callable[[Any], Any]] = {KeptRows: to_saved}
READ_AS: dict[type, Callable[[Any], Any]] = {SavedRows: from_saved}


@dataclass(frozen=True)
class Kept:
    """What is kept of a fitted estimator, besides its parameters.

    Parameters
    ----------
    attributes : those that are written, with their types.
    optional : those of them that not every fitted estimator has.
    made : those made of them when the estimator is restored.
    make : makes them, for an estimator that has the others.
    """

    attributes: dict[str, Any]
    optional: tuple[str, ...] = ("feature_names_in_",)
    made: tuple[str, ...] = ()
    make: Callable[[Any], Any] = lambda estimator: None


COLUMNS: dict[str, Any] = {"n_features_in_": int, "feature_names_in_": NDArray[Any]}
Statistic = NDArray[Any] | None

CLASSIFIER = Kept(
    attributes={**COLUMNS, "_stream": MarginState, "update_info_": UpdateInfo},
    made=("classes_", "n_batches_", "posterior_", "intercept_", "duality_gap_", "n_iter_"),
    make=lambda model: model._commit(model._stream, model.update_info_),
)


def complete(model: Any) -> None:
    """Give a model with a graph what is computed from its kept rows, and its public attributes."""
    stream = model._stream
    graph = replace(stream.graph, rows=completed(stream.graph.rows))
    model._commit(stream._replace(graph=graph), model.update_info_)


MADE_BY_GRAPHS = ("classes_", "n_batches_", "n_kept_", "duality_gap_", "n_iter_")
GRAPH_CLASSIFIER = Kept(
    attributes={**COLUMNS, "_stream": GraphStream, "update_info_": GraphInfo},
    made=MADE_BY_GRAPHS,
    make=complete,
)
MIXTURE_CLASSIFIER = Kept(
    attributes={**COLUMNS, "_stream": MixtureStream, "update_info_": MixtureInfo},
    made=(*MADE_BY_GRAPHS, "estimator_", "graph_weight_"),
    make=complete,
)
PIPELINE = Kept(attributes={"_watch": tuple[bool, Watch] | None, "drift_": Comparison | None})
SEARCH = Kept(
    attributes={
        **COLUMNS, "candidates_": list, "record_": Record, "n_batches_": int, "_begun": dict
    },
    optional=("n_features_in_", "feature_names_in_"),
    made=("best_index_", "best_estimator_", "best_params_", "best_score_", "classes_"),
    make=lambda search: search._commit(
        search.candidates_, search.record_, search.n_batches_, search._begun
    ),
)  # fmt: skip


def scaler(*statistics: str) -> Kept:
    """Return what is kept of a transformer that scales columns."""
    counts: dict[str, Any] = {"n_samples_seen_": float | NDArray[Any]}
    return Kept({**COLUMNS, **counts, **dict.fromkeys(statistics, Statistic)})


SCALERS: dict[type, Kept] = {
    StandardScaler: scaler("mean_", "var_", "scale_"),
    MinMaxScaler: scaler("min_", "scale_", "data_min_", "data_max_", "data_range_"),
    MaxAbsScaler: scaler("max_abs_", "scale_"),
}
ESTIMATORS: dict[type, Kept] = {
    SeqMED: CLASSIFIER,
    SeqLapMED: CLASSIFIER,
    GraphPropagation: GRAPH_CLASSIFIER,
    SeqGraphMED: MIXTURE_CLASSIFIER,
    StreamPipeline: PIPELINE,
    PrequentialSearch: SEARCH,
    **SCALERS,
}
CLASSES: dict[str, type] = {kind.__name__: kind for kind in ESTIMATORS}


def estimator_class(name: Any) -> Any:
    """Return the class of estimators of this name."""
    if not isinstance(name, str) or name not in CLASSES:
        raise ValueError(f"it holds a {name!r}, expected one of {', '.join(CLASSES)}")
    return CLASSES[name]


def kept_state(estimator: Any) -> dict[str, Any]:
    """Return the attributes of an estimator that are kept; none if it is not fitted."""
    names = ESTIMATORS[type(estimator)].attributes
    return {name: vars(estimator)[name] for name in names if name in vars(estimator)}


@cache
def field_types(kind: Any) -> dict[str, Any]:
    """Return the fields of a record and their types."""
    hints = {**get_type_hints(kind), **NARROWED.get(kind, {})}
    return {name: hints[name] for name in field_names(kind)}


def as_written(value: Any) -> Any:
    """Return a value, or the record it is written as."""
    return WRITTEN_AS[type(value)](value) if type(value) in WRITTEN_AS else value


def field_names(record: Any) -> tuple[str, ...]:
    """Return the names of the fields of a record, or of its class."""
    return tuple(f.name for f in fields(record)) if is_dataclass(record) else record._fields


def check_names(given: Any, known: Any, optional: Any, what: str) -> None:
    """Refuse names that are not known, and the lack of those that are not optional."""
    strange, missing = set(given) - set(known), set(known) - set(optional) - set(given)
    if strange or missing:
        parts = f"unknown: {sorted(strange)}; missing: {sorted(missing)}"
        raise ValueError(f"the parts of a {what} are not those expected ({parts})")


def check_types(values: dict[str, Any], types: dict[str, Any], what: str) -> None:
    """Refuse values that are not of the types of their names."""
    for name, value in values.items():
        if not of_type(value, types[name]):
            got = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
            raise ValueError(f"{name} of a {what} is a {got}, expected {types[name]}")


def of_type(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says; numbers may be numpy's.

    Of the library's records only rows of data are annotated as anything.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return isinstance(value, np.ndarray) or sp.issparse(value)
    if origin in (Union, UnionType):
        return any(of_type(value, each) for each in arguments)
    if origin is np.ndarray:
        (scalar,) = get_args(arguments[1])
        return isinstance(value, np.ndarray) and (scalar is Any or value.dtype == scalar)
    if origin is tuple:
        if type(value) is not tuple:
            return False
        if arguments[-1] is Ellipsis:
            return all(of_type(each, arguments[0]) for each in value)
        return len(value) == len(arguments) and all(map(of_type, value, arguments))
    if hint is int:  # larger ones would pass for numbers, and fail as sizes
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        return whole and -(2**63) <= value < 2**63
    if hint is float:
        return isinstance(value, float | np.floating) or of_type(value, int)
    return isinstance(value, IMPLEMENTATIONS.get(hint, origin or hint))
