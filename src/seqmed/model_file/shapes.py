"""How large the arrays of a model are: the sizes in their docstrings, to be checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from seqmed.calibration import Calibration
from seqmed.classes import ClassRegistry
from seqmed.covariance import LandmarkRecursion
from seqmed.covariance.basis import Basis
from seqmed.covariance.low_rank import Reduction
from seqmed.covariance.nystroem import NystroemCovariance
from seqmed.covariance.spectral import Spectrum
from seqmed.dual import DualSolution
from seqmed.graph.metrics import Euclidean
from seqmed.graph.neighbours import Lists
from seqmed.graph.propagation import GraphState
from seqmed.kernels import RBF, DCMFisher, Expansion, Precomputed, TfIdf
from seqmed.mixture.update import MixtureStream
from seqmed.mixture.weighting import Scales, ScoreRecord
from seqmed.model_file.registry import RECORDS, as_written, field_names
from seqmed.model_file.saved_rows import SavedRows
from seqmed.pipelines.drift import ColumnStatistics, Comparison, Watch
from seqmed.posterior import Posterior, ScoredTerms, Terms, Window
from seqmed.selection.race import Record
from seqmed.update import UpdateInfo

TERMS = {"points": "n p", "coefficients": "n heads", "averages": "n heads"}
EACH_HEAD = ("intercepts", "biases", "bias_means", "frozen_sums", "solved")
# The sizes of a record's arrays. Those that have a name, and are not given from outside, must be
# the same in all arrays of one record.
SHAPES: dict[type, dict[str, str]] = {
    Posterior: {**dict.fromkeys(EACH_HEAD, "heads"), "projection_errors": "2 heads"},
    Terms: TERMS,
    ScoredTerms: {**TERMS, "frozen_scores": "n heads"},
    Window: {
        **TERMS, "frozen_scores": "n heads", "signs": "n heads",
        "bounds": "n", "shapes": "n", "weights": "n", "discounted": "n", "batches": "n",
    },
    Expansion: {"points": "n p", "coefficients": "n heads"},
    Reduction: {"landmarks": "m p", "factor": "m r"},
    Basis: {"landmarks": "m p", "whitening": "m m", "gram": "m m", "rest": "m m"},
    LandmarkRecursion: {"keys": "m"},
    NystroemCovariance: {"landmarks": "m p", "whitening": "m m"},
    Spectrum: {"vectors": "r p", "singular_values": "r", "laplacian_values": "r"},
    RBF: {"centre": "p"},
    TfIdf: {"idf": "p"},
    DCMFisher: {"concentrations": "p", "precisions": "p"},
    Precomputed: {"gram": "features features"},
    ClassRegistry: dict.fromkeys(
        ("classes", "counts", "weights", "discounted", "declared"), "classes"
    ),
    Calibration: {"log_likelihoods": "slopes"},
    UpdateInfo: {"projection_cost": "heads"},
    DualSolution: {"multipliers": "window"},
    ColumnStatistics: dict.fromkeys(field_names(ColumnStatistics), "columns"),
    Comparison: dict.fromkeys(field_names(Comparison), "columns"),
    Watch: {"away": "columns", "pending": "rows columns"},
    Record: {
        "right": "c", "alone": "c c", "squares": "c c", "right_in_all": "c", "total_in_all": "c",
    },
    Euclidean: {"centre": "p", "directions": "p q"},
    SavedRows: {"rows": "kept p", "norms": "kept"},
    Lists: {
        "slots": "kept length", "distances": "kept length", "horizons": "kept", "sizes": "kept",
    },
    GraphState: {
        "codes": "kept", "masses": "kept", "influence": "kept classes", "solution": "kept classes",
        "solved_masses": "classes",
    },
    ScoreRecord: {
        "margin": "scored classes", "graph": "scored classes", "counts": "scored classes",
        "margin_scales": "scored exponents", "graph_scales": "scored", "codes": "scored",
        "weights": "scored",
    },
    Scales: {"counts": "classes", "margin": "exponents"},
    MixtureStream: {"class_weights": "classes", "probes": "probes p"},
}  # fmt: skip
# Rows of data by the names they go by.
POINTS = ("points", "landmarks")
# Arrays that may hold infinities; those of `drift` may hold NaN too.
UNBOUNDED = ("keys", "distances", "horizons")
ANYTHING = (ColumnStatistics, Comparison, Watch)


def records_in(value: Any) -> Iterator[Any]:
    """Yield a record and all records it consists of."""
    value = as_written(value)
    if type(value) is tuple:
        for part in value:
            yield from records_in(part)
    elif type(value) in RECORDS.values():
        yield value
        for name in field_names(value):
            yield from records_in(getattr(value, name))


def points_in(value: Any) -> Iterator[Any]:
    """Yield all rows of data in the records of a value."""
    for record in records_in(value):
        for name in POINTS:
            if name in SHAPES.get(type(record), ()) and getattr(record, name) is not None:
                yield getattr(record, name)


def check_shapes(value: Any, sizes: dict[str, int]) -> None:
    """Refuse arrays, in all records of a value, of sizes that do not agree, and NaN in them.

    Parameters
    ----------
    value : a record, or a tuple that holds some.
    sizes : those known already, by name.
    """
    for record in records_in(value):
        known = dict(sizes)
        for name, expected in SHAPES.get(type(record), {}).items():
            array = getattr(record, name)
            if array is None:
                continue
            title = f"{name} of a {type(record).__name__}"
            wanted = expected.split()
            if len(wanted) != array.ndim:
                raise ValueError(f"{title} has {array.ndim} axes, expected {len(wanted)}")
            for size, axis in zip(array.shape, wanted, strict=True):
                fits = int(axis) if axis.isdigit() else known.setdefault(axis, size)
                if size != fits:
                    raise ValueError(f"{title} has the shape {array.shape}, expected {axis}={fits}")
            if not isinstance(record, ANYTHING) and not holds_numbers(array, name):
                raise ValueError(f"{title} holds NaN or infinity, expected numbers")


def holds_numbers(array: Any, name: str) -> bool:
    """Whether an array, dense or CSR, is free of NaN and of infinity, as far as its name asks."""
    values = array.data if sp.issparse(array) else array
    if values.dtype.kind != "f":
        return True
    return bool((~np.isnan(values) if name in UNBOUNDED else np.isfinite(values)).all())
