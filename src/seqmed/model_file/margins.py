"""Declarations of SeqMED and SeqLapMED."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from seqmed.estimators.seqlapmed import SeqLapMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.kernels import RBF, ByFormat, Expansion, Kernel, Linear, Precomputed
from seqmed.margin import covariance, margin_state
from seqmed.margin.calibration import SLOPES, Calibration
from seqmed.margin.covariance.exact import Recursion, Reduction
from seqmed.margin.covariance.landmarks import Basis, LandmarkRecursion
from seqmed.margin.covariance.nystroem import NystroemCovariance, NystroemRecursion
from seqmed.margin.covariance.spectral import SpectralRecursion, Spectrum
from seqmed.margin.dual.problem import DualSolution
from seqmed.margin.laplacian import GraphParameters
from seqmed.margin.margin_state import MarginState
from seqmed.margin.posterior import Posterior, ScoredTerms, Terms, Window
from seqmed.margin.update import UpdateInfo
from seqmed.model_file.annotations import INTERFACES
from seqmed.model_file.classifiers import classifier
from seqmed.model_file.declarations import SIZES, Kept, Rules, check_records, declare, points_in
from seqmed.numeric.arrays import Points

SIZES["slopes"] = SLOPES.size
TERMS = {"points": "n p", "coefficients": "n machines", "averages": "n machines"}

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
    same = reduction is None or reduction.landmarks.shape[0] == size
    yield "a reduction of the same landmarks", same


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


declare(Terms, **TERMS)
declare(ScoredTerms, **TERMS, frozen_scores="n machines")
declare(Expansion, points="n p", coefficients="n machines")
declare(Calibration, log_likelihoods="slopes")
declare(UpdateInfo, C="inf > 0", beta=">= 0")
declare(DualSolution, multipliers="window", status="converged | max_iter | rounding")
declare(GraphParameters, n_neighbors=">= 1", weights="heat | binary", heat_width="> 0")


@declare(
    Posterior, intercepts="machines", biases="machines",
    frozen_sums="machines", n_solved="machines >= 0",
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


def recursion_classes() -> tuple[type, ...]:
    """Return the classes of all recursions."""
    named = (type(covariance.make_recursion(name, Linear())) for name in covariance.RECURSIONS)
    return (*named, NystroemRecursion)


INTERFACES[Recursion] = recursion_classes


def margin_rules(began: Any, attributes: dict[str, Any]) -> Rules:
    """Yield rules on the state of a margin classifier.

    Parameters
    ----------
    began : SeqMED or SeqLapMED, not fitted, with the valid parameters of the first batch.
    attributes : the saved attributes.
    """
    width, sparse = attributes["n_features_in_"], attributes["_started"].sparse
    state, info = attributes["_state"], attributes["update_info_"]
    yield "a record for probabilities", state.calibration is not None
    yield from posterior_rules(began, state, info, width, sparse)


def posterior_rules(
    began: Any, state: MarginState, info: UpdateInfo, width: int, sparse: bool
) -> Rules:
    """Yield rules on the state of the margin learner, and the report of its last update."""
    posterior, counts = state.posterior, state.counts
    kernel, recursion = posterior.covariance.kernel, posterior.recursion
    given = isinstance(began.kernel, str) and began.kernel == "precomputed"
    kind = Precomputed if given else type(began._kernel())
    if kind is ByFormat:
        kind = Linear if sparse else RBF
    yield "the kernel of the parameters", type(kernel) is kind
    check_records(
        (state, info), p=1 if given else width, features=width, machines=counts.n_machines,
        window=info.n_window,
    )  # fmt: skip
    fits = (suits(points, kernel, sparse) for points in points_in(posterior))
    yield "points that suit the kernel", all(fits)
    parameters = began._parameters(None)
    begun = margin_state.first_recursion(parameters, kernel, posterior.window.points, 0)
    yield "the recursion of the parameters", type(recursion) is type(begun)
    auto = began.bias == "auto"
    yield "the number of machines of the bias parameter", counts.per_class == auto
    yield "the bias of the parameters", posterior.known_bias == auto
    biases = (posterior.intercepts, posterior.biases)
    yield "biases of -1 with bias='auto'", not auto or all((each == -1.0).all() for each in biases)
    yield "coefficients for every landmark", posterior.landmarks.size == n_landmarks(recursion)
    signs = posterior.window.signs
    single = counts.n_machines == 1 or ((signs > 0).sum(axis=1) == 1).all()
    yield "one class for every row of the window", single
    classes, found = np.unique(counts.own_classes(signs), return_counts=True)
    known = (classes < counts.size).all()
    counted = known and (counts.counts[classes] >= found).all()
    yield "no fewer labels than in the window", counted
    yield "one solution for every machine", len(info.solutions) == counts.n_machines


def suits(points: Points, kernel: Kernel, sparse: bool) -> bool:
    """Whether points have the format and range of values that a kernel needs."""
    formed = sp.issparse(points) == sparse or kernel.compact  # explicit weights are always dense
    return formed and points.dtype in (np.float64, np.intp) and kernel.accepts(points)


MARGINS: dict[type, Kept] = dict.fromkeys(
    (SeqMED, SeqLapMED), classifier(MarginState, UpdateInfo, margin_rules)
)
