"""Valid records of a model: constraints on their fields, and rules between them.

Each record is declared once, here, with its constraints (see `annotations`) and rules. Fields named
``n_...`` and seeds are counts, and need no declaration.

A rule is a statement and whether it is true. It is evaluated after the constraints of all fields,
the rules of the nested records and the rules before it.

Sizes of the whole stream: p columns, machines, classes, kept rows of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from seqmed.batch import UpdateInfo
from seqmed.calibration import SLOPES, Calibration
from seqmed.classes import ClassRegistry
from seqmed.covariance import LandmarkRecursion, NystroemRecursion, SpectralRecursion
from seqmed.covariance.basis import Basis
from seqmed.covariance.low_rank import Reduction
from seqmed.covariance.nystroem import NystroemCovariance
from seqmed.covariance.spectral import Spectrum
from seqmed.dual import DualSolution
from seqmed.graph.graph_state import GraphState
from seqmed.graph.kept_rows import SPARE
from seqmed.graph.laplacian import GraphParameters
from seqmed.graph.metrics import Euclidean
from seqmed.graph.neighbours import Lists
from seqmed.graph.propagation import GraphInfo
from seqmed.kernels import RBF, DCMFisher, Expansion, Polynomial, Precomputed, TfIdf
from seqmed.label_dtypes import is_label_dtype
from seqmed.mixture.change import Change
from seqmed.mixture.recent_rows import RecentRows
from seqmed.mixture.record import PRIOR_EXPONENTS, RECORD, Scales, ScoreRecord
from seqmed.mixture.refitted import LinearExpert
from seqmed.mixture.state import PROBES, MixtureState
from seqmed.mixture.weighting import Choice
from seqmed.model_file.annotations import check, field_types, field_values, parts_of
from seqmed.model_file.saved_rows import SavedRows
from seqmed.pipelines.column_statistics import ColumnStatistics
from seqmed.pipelines.drift import ENOUGH_ROWS, Comparison, DriftMonitor
from seqmed.posterior import Posterior
from seqmed.selection.race import Record
from seqmed.tables import kinds
from seqmed.tables.categories import HashedColumn, OneHotColumn
from seqmed.tables.cells import level_text
from seqmed.tables.dates import CYCLES, FORMATS, DateColumn
from seqmed.tables.encoder import REASONS
from seqmed.tables.encoding import Encoding
from seqmed.tables.kinds import ColumnKind
from seqmed.tables.numbers import NumberColumns
from seqmed.tables.words import LARGEST_SIZE, WordColumn
from seqmed.terms import ScoredTerms, Terms
from seqmed.window import Window

Rules = Iterator[tuple[str, Any]]

# A count or an index.
COUNT = ">= 0 < 9e15"
CONSTRAINTS: dict[type, dict[str, str]] = {}
RULES: dict[type, Callable[[Any], Rules]] = {}


def declare(kind: type, /, **constraints: str) -> Callable[[Callable[[Any], Rules]], None]:
    """Declare the constraints of a record; decorates its rules, if there are any."""
    CONSTRAINTS[kind] = constraints
    return lambda rules: RULES.update({kind: rules})


def check_records(value: Any, **sizes: int) -> None:
    """Refuse a record, or a tuple of records, with a part that is not valid.

    ``sizes`` are known sizes by name. Other sizes must be the same within each record.
    """
    records = list(parts_of(value))
    for record in records:
        known = {"slopes": SLOPES.size, "exponents": PRIOR_EXPONENTS.size, **sizes}
        declared = CONSTRAINTS.get(type(record), {})
        for name, field in field_values(record).items():
            count = COUNT if name.startswith("n_") or name == "seed" else None
            constraint = declared.get(name, count)
            if field is not None and constraint is not None:
                check(f"{name} of a {type(record).__name__}", field, constraint, known)
    for record in records:
        rules = RULES.get(type(record))
        refuse_broken(rules(record) if rules else (), f"a {type(record).__name__} is damaged")


def refuse_broken(rules: Any, subject: str) -> None:
    """Raise a ValueError for the first rule that is broken."""
    for statement, truth in rules:
        if not truth:
            raise ValueError(f"{subject}: expected {statement}")


def points_in(value: Any) -> Iterator[Any]:
    """Yield all rows of data in a value."""
    for record in parts_of(value):
        types = field_types(type(record))
        yield from (each for name, each in field_values(record).items() if types[name] is Any)


TERMS = {"points": "n p", "coefficients": "n machines", "averages": "n machines"}

# -- kernels, once they are frozen ----------------------------------------------------------------

declare(RBF, gamma="> 0", centre="p")
declare(Polynomial, gamma="> 0", degree=">= 1", coef0=">= 0")
declare(Precomputed, gram="features features")


@declare(TfIdf, idf="p")
def _(kernel: TfIdf) -> Rules:
    yield "idf weights", kernel.idf is not None


@declare(
    DCMFisher, information="identity | diagonal", concentrations="p > 0", precisions="p > 0"
)  # fmt: skip
def _(kernel: DCMFisher) -> Rules:
    learned = (kernel.concentrations, kernel.precisions)
    yield "concentrations and precisions", all(each is not None for each in learned)


# -- covariances ----------------------------------------------------------------------------------

declare(Reduction, landmarks="m p", factor="m r")
declare(Basis, landmarks="m p", whitening="m m", gram="m m", coefficient_covariance="m m")
declare(NystroemCovariance, landmarks="m p", whitening="m m")
declare(Spectrum, vectors="r p", singular_values="r", laplacian_values="r >= 0", count=">= 1")


@declare(LandmarkRecursion, keys="m inf", capacity=">= 1")
def _(recursion: LandmarkRecursion) -> Rules:
    size, keys = n_landmarks(recursion), recursion.keys
    yield "keys if and only if there are landmarks", (keys is None) == (recursion.basis is None)
    yield "one key for each landmark", keys is None or keys.size == size
    yield "no more landmarks than the capacity", size <= recursion.capacity
    yield "no more pending points than points seen", recursion.n_pending <= recursion.n_seen
    reduction = recursion.covariance.reduction
    yield (
        "a reduction of the same landmarks",
        reduction is None or reduction.landmarks.shape[0] == size,
    )


@declare(NystroemRecursion, capacity=">= 1")
def _(recursion: NystroemRecursion) -> Rules:
    yield "no more landmarks than the capacity", recursion.size <= recursion.capacity


@declare(SpectralRecursion, penalty_weight=">= 0")
def _(recursion: SpectralRecursion) -> Rules:
    begun = recursion.n_folds > 0
    yield "a spectrum after the first batch", (recursion.spectrum is not None) == begun


def n_landmarks(recursion: Any) -> int:
    """Return the number of landmarks of a recursion."""
    return 0 if recursion.landmarks is None else recursion.landmarks.shape[0]


# -- the margin classifiers -----------------------------------------------------------------------

declare(Terms, **TERMS)
declare(ScoredTerms, **TERMS, frozen_scores="n machines")
declare(Expansion, points="n p", coefficients="n machines")
declare(Calibration, log_likelihoods="slopes")
declare(UpdateInfo, projection_cost="machines", C="inf > 0", beta=">= 0")
declare(DualSolution, multipliers="window", status="converged | max_iter | rounding")
declare(
    GraphParameters, n_neighbors=">= 1", weights="heat | binary", heat_width="> 0",
    laplacian="normalized | unnormalized", power=">= 1",
)  # fmt: skip


@declare(
    Posterior, intercepts="machines", biases="machines", bias_means="machines",
    frozen_sums="machines", n_solved="machines >= 0", projection_errors="2 machines >= 0",
    bias_variance="inf >= 0",
)  # fmt: skip
def _(posterior: Posterior) -> Rules:
    yield "a mean", len(posterior.mean_parts) > 0
    yield "a window of learned batches", (posterior.window.batches < posterior.n_batches).all()


@declare(
    Window, **TERMS, frozen_scores="n machines", signs="n machines", bounds="n > 0",
    shapes="n >= 0", weights="n > 0", discounted="n >= 0", batches="n >= 0",
)  # fmt: skip
def _(window: Window) -> Rules:
    yield "signs that are -1 or 1", (np.abs(window.signs) == 1).all()
    yield "slack shapes up to the bounds", (window.shapes <= window.bounds).all()


@declare(
    ClassRegistry, classes="classes any", counts="classes >= 0", weights="classes >= 0",
    discounted="classes >= 0", declared="classes",
)  # fmt: skip
def _(registry: ClassRegistry) -> Rules:
    yield "labels of a type that can be learned", is_label_dtype(registry.classes.dtype)
    yield "classes in order, each once", (registry.classes[1:] > registry.classes[:-1]).all()


# -- the graph ------------------------------------------------------------------------------------

declare(GraphInfo, residual=">= 0", gap=">= 0")


@declare(Euclidean, centre="p", scale="> 0", directions="p q")
def _(metric: Euclidean) -> Rules:
    p, q = metric.directions.shape
    yield "fewer directions than columns", q < p
    departure = np.abs(metric.directions.T @ metric.directions - np.eye(q))
    yield "orthonormal directions", (departure <= 1e-8).all()  # larger than rounding errors


@declare(
    Lists, slots="kept length >= -1", distances="kept length inf >= 0", horizons="kept inf >= 0",
    sizes="kept >= 0",
)  # fmt: skip
def _(lists: Lists) -> Rules:
    slots, distances, sizes = lists.slots, lists.distances, lists.sizes
    n, length = slots.shape
    yield "fewer neighbours than kept rows", (sizes <= min(length, n - 1)).all()
    used = np.arange(length, dtype=np.int32) < sizes[:, None]
    yield "neighbours among the kept rows", ((slots >= 0) == used).all() and (slots < n).all()
    yield "a distance for every neighbour", (np.isfinite(distances) == used).all()
    yield "neighbours in order of distance", (distances[:, 1:] >= distances[:, :-1]).all()
    yield "neighbours other than the row", (slots != np.arange(n, dtype=np.int32)[:, None]).all()
    ordered = np.sort(slots, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    yield "each neighbour once", not twice.any()
    rows = np.flatnonzero(sizes)
    last = distances[rows, sizes[rows] - 1]
    yield "neighbours within the horizon", (last <= lists.horizons[rows]).all()


@declare(SavedRows, n_neighbors=">= 1", rows="kept p", norms="kept >= 0")
def _(saved: SavedRows) -> Rules:
    lists, metric, limit = saved.lists, saved.metric, np.float32(saved.metric.limit)
    if metric.unit_norms:
        yield "squared norms of 1", np.all(saved.norms == 1)
    length = np.ceil(SPARE * saved.n_neighbors)
    yield "lists of the right length", lists.slots.shape[1] == length
    complete = lists.horizons == limit
    yield "horizons within the limit", (lists.horizons <= limit).all()
    yield "enough neighbours", (complete | (lists.sizes >= saved.n_neighbors)).all()
    everything = (lists.sizes[complete] == lists.sizes.size - 1).all()
    yield "all other rows in complete lists", everything or not metric.refines


@declare(
    GraphState, codes="kept >= -1", label_weights="kept >= 0", influence="kept classes >= 0",
    solution="kept classes", solved_label_weights="classes >= 0",
)  # fmt: skip
def _(graph: GraphState) -> Rules:
    yield "no more kept rows than the capacity", graph.rows.size <= graph.capacity
    yield (
        "a label weight for every labeled row, and for no other",
        ((graph.label_weights > 0) == (graph.codes >= 0)).all(),
    )


# -- the mixture ----------------------------------------------------------------------------------

declare(Scales, counts="classes >= 0", margin="exponents > 0", graph="> 0", others="others > 0")
declare(Choice, weight=">= 0 <= 1", temperature="> 0", exponent=f">= 0 < {PRIOR_EXPONENTS.size}")
declare(
    LinearExpert, columns="used >= 0", coef="classes used", intercept="classes",
    fitted="classes >= 0 <= 1", n_new=">= 0",
)  # fmt: skip


@declare(
    MixtureState, class_weights="classes > 0", probes="probes p", scale="scaled > 0",
    n_rows=">= 0", n_measured=">= 0",
)  # fmt: skip
def _(state: MixtureState) -> Rules:
    yield "a scale for every column or none", state.scale.size in (0, state.probes.shape[1])
    yield f"at most {PROBES} probes", state.probes.shape[0] <= PROBES


@declare(
    ScoreRecord, margin="scored classes", graph="scored classes", others="scored others classes",
    counts="scored classes >= 0", margin_scales="scored exponents > 0", graph_scales="scored > 0",
    other_scales="scored others > 0", codes="scored >= 0", weights="scored >= 0",
)  # fmt: skip
def _(record: ScoreRecord) -> Rules:
    yield f"a record of at most {RECORD} rows", record.size <= RECORD


declare(Change, n_labels=">= 1", error_before=">= 0 <= 1", error_after=">= 0 <= 1")


@declare(RecentRows, points="recent p", codes="recent >= 0", weights="recent > 0")
def _(recent: RecentRows) -> Rules:
    yield f"at most {RECORD} recent rows", recent.size <= RECORD


# -- pipelines and searches -----------------------------------------------------------------------

STATISTICS = dict.fromkeys(field_types(ColumnStatistics), "columns nan")
declare(ColumnStatistics, **{**STATISTICS, "count": "columns >= 0"})
declare(Comparison, **dict.fromkeys(field_types(Comparison), "columns nan"))
declare(
    Record, correct="c >= 0", wins="c c >= 0", squared_wins="c c >= 0", total=">= 0",
    correct_undiscounted="c >= 0", total_undiscounted="c >= 0",
)  # fmt: skip


@declare(DriftMonitor, drifted="columns", pending="rows columns nan")
def _(monitor: DriftMonitor) -> Rules:
    yield (
        "a name for every column",
        monitor.names is None or len(monitor.names) == monitor.drifted.size,
    )
    few = monitor.pending is None or monitor.pending.shape[0] < ENOUGH_ROWS
    yield "fewer pending rows than needed", few


# -- encoders of tables ---------------------------------------------------------------------------

declare(NumberColumns, medians="p >= -1e70 <= 1e70", scales="p > 0", flagged="p")
declare(HashedColumn, size=">= 1 <= 65536")


@declare(ColumnKind, kind=" | ".join((*kinds.CHOICES, kinds.HASHED)))
def _(column: ColumnKind) -> Rules:
    left_out = column.kind == kinds.DROP
    reasons = (*REASONS, "chosen") if left_out else ("",)
    yield "a reason if and only if it is left out", column.reason in reasons
    known = ("", *FORMATS) if column.kind == kinds.DATE else ("",)
    yield "a known format of dates", column.form in known


@declare(OneHotColumn)
def _(column: OneHotColumn) -> Rules:
    yield "sorted levels", list(column.levels) == sorted(set(column.levels))
    usual = all(level_text(level) == level != "" for level in column.levels)
    yield "levels in their usual notation", usual


# Dates have microseconds, and years of at most 6 digits.
@declare(DateColumn, origin=">= -1e13 <= 1e13", scale=">= 1e-6 <= 1e14")
def _(column: DateColumn) -> Rules:
    yield "known cycles", column.cycles == tuple(each for each in CYCLES if each in column.cycles)


@declare(WordColumn, size=f">= 1 <= {LARGEST_SIZE}", places="m >= 0", frequencies="m >= 1")
def _(column: WordColumn) -> Rules:
    places, frequencies = column.places, column.frequencies
    yield "both or no statistics", (places is None) == (frequencies is None)
    if places is not None and frequencies is not None:
        yield "distinct features in order", (np.diff(places.astype(np.int64)) > 0).all()
        yield "features within the size", (places < column.size).all()
        yield "no word in more texts than there are", (frequencies <= column.n_rows).all()


@declare(Encoding, weight="> 0 <= 1")
def _(encoding: Encoding) -> Rules:
    names = [each.name for each in encoding.columns]
    yield "distinct columns", len(set(names)) == len(names)
    yield "a column that is used", len(encoding.needed) > 0
    parts = {
        kinds.NUMERIC: encoding.numbers.names,
        kinds.DATE: tuple(each.name for each in encoding.dates),
        kinds.CATEGORICAL: tuple(each.name for each in encoding.one_hot),
        kinds.HASHED: tuple(each.name for each in encoding.hashed),
        kinds.TEXT: tuple(each.name for each in encoding.words),
    }
    for kind, found in parts.items():
        wanted = tuple(each.name for each in encoding.columns if each.kind == kind)
        yield f"the encoding of every {kind} column", found == wanted
    yield "a scale for every number", encoding.numbers.medians.size == len(encoding.numbers.names)
    scaled = encoding.numbers.centred or (encoding.numbers.scales == 1).all()
    yield "no scales if the numbers are not standardised", scaled
    forms = tuple(each.form for each in encoding.columns if each.kind == kinds.DATE)
    yield "the formats of the dates", tuple(each.form for each in encoding.dates) == forms
