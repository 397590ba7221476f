"""Declarations of SeqGraphMED."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from seqmed.estimators.seqgraphmed import EUCLIDEAN_KERNELS, SeqGraphMED
from seqmed.mixture.change import LONGEST, RECORD, Change
from seqmed.mixture.experts import REFITTED, LinearExpert, RecentRows, RefittedExpert
from seqmed.mixture.mixture_state import (
    PRIOR_EXPONENTS,
    Choice,
    MixtureInfo,
    MixtureState,
    ScoreRecord,
    ScoreScales,
)
from seqmed.mixture.record import PROBES
from seqmed.model_file.annotations import INTERFACES
from seqmed.model_file.classifiers import classifier, classifier_parameters
from seqmed.model_file.declarations import SIZES, Kept, Rules, declare
from seqmed.model_file.graphs import graph_rules
from seqmed.model_file.margins import MARGINS, posterior_rules

SIZES["exponents"] = PRIOR_EXPONENTS.size
declare(
    ScoreScales, counts="classes >= 0", margin="exponents > 0", graph="> 0", refitted="refitted > 0"
)
declare(Choice, weight=">= 0 <= 1", temperature="> 0", exponent=f">= 0 < {PRIOR_EXPONENTS.size}")
declare(
    LinearExpert, columns="used >= 0", coef="classes used", intercept="classes",
    fitted="classes >= 0 <= 1", n_new=">= 0",
)  # fmt: skip


@declare(
    MixtureState, class_weights="classes > 0", probes="probes p", column_scale="scaled > 0",
    margin_seed=">= 0",
)  # fmt: skip
def _(state: MixtureState) -> Rules:
    yield "a scale for every column or none", state.column_scale.size in (0, state.probes.shape[1])
    yield f"at most {PROBES} probes", state.probes.shape[0] <= PROBES


@declare(
    ScoreRecord, margin="scored classes", graph="scored classes",
    refitted="scored refitted classes",
    counts="scored classes >= 0", margin_scales="scored exponents > 0", graph_scales="scored > 0",
    refitted_scales="scored refitted > 0", codes="scored >= 0", weights="scored >= 0",
)  # fmt: skip
def _(record: ScoreRecord) -> Rules:
    yield f"a record of at most {RECORD} rows", record.size <= RECORD


declare(Change, n_labels=">= 1", error_before=">= 0 <= 1", error_after=">= 0 <= 1")


@declare(RecentRows, points="recent p", codes="recent >= 0", weights="recent > 0")
def _(recent: RecentRows) -> Rules:
    yield f"at most {RECORD} recent rows", recent.size <= RECORD


def refitted_classes() -> tuple[type, ...]:
    """Return the classes of all refitted experts."""
    return tuple(type(make()) for make in REFITTED)


INTERFACES[RefittedExpert] = refitted_classes


def mixture_parameters(model: SeqGraphMED) -> Rules:
    """Yield rules on the parameters of a `SeqGraphMED`."""
    yield from classifier_parameters(model)
    names = " or ".join(kind.__name__ for kind in MARGINS)
    kept = model.estimator is None or type(model.estimator) in MARGINS
    yield f"{names} as its estimator: use one of these", kept
    if model.estimator is not None:  # as it is now, or as it was in the first batch
        MARGINS[type(model.estimator)].check(model.estimator, {})


def mixture_rules(began: Any, attributes: dict[str, Any]) -> Rules:
    """Yield rules on the state of a `SeqGraphMED`; parameters as in `margin_rules`."""
    state, info, width = (
        attributes["_state"],
        attributes["update_info_"],
        attributes["n_features_in_"],
    )
    if state.trial is not None:
        yield from trial_rules(began, attributes)
        state = state._replace(trial=None)
        attributes = {**attributes, "_state": state}
    counts, record, choice, recent = state.counts, state.record, state.choice, state.recent
    margin, info_of_margin = state.margin, state.margin_info
    yield "a report of the margin expert", info_of_margin is not None
    yield "the same classes in all experts", margin.counts.size == counts.size
    template = began._template()
    yield from posterior_rules(
        template, margin, info_of_margin, width, attributes["_started"].sparse
    )
    kernel = margin.posterior.covariance.kernel
    yield "a margin expert whose kernel suits the probes", kernel.accepts(state.probes)
    euclidean = template.kernel in EUCLIDEAN_KERNELS
    yield from graph_rules(began, attributes, None if euclidean else kernel)
    yield "known classes in the record", (record.codes < counts.size).all()
    known = np.take_along_axis(record.counts, record.codes[:, None], axis=1)
    yield "a record of classes that had a label", (known > 0).all()
    chosen = (record.size, choice.weight, choice.temperature, choice.refitted)
    last = (info.n_recorded, info.weight, info.temperature, info.refitted)
    yield "the last choice in update_info_", last == chosen
    total, smallest = choice.weight + sum(choice.refitted), min(choice.refitted, default=0.0)
    yield "weights of experts that sum to 1", smallest >= 0 and total < 1 + 1e-12
    yield "all refitted experts", tuple(map(type, state.refitted)) == refitted_classes()
    yield "a weight for every refitted expert", len(choice.refitted) == len(state.refitted)
    for expert in state.refitted:
        yield "refitted experts of known columns", expert.fits(width)
    yield "known classes in the recent rows", (recent.codes < counts.size).all()
    yield "recent rows of classes that had a label", counts.seen[recent.codes].all()
    kernel = state.graph.rows.metric.kernel
    for name, points in (("probes", state.probes), ("recent rows", recent.points)):
        formed = points.dtype == np.float64 and sp.issparse(points) == attributes["_started"].sparse
        yield f"{name} in the format of the rows", formed
        yield f"{name} that suit the kernel", kernel.accepts(points)


def trial_rules(began: Any, attributes: dict[str, Any]) -> Rules:
    """Yield rules on the state without a new start that is on trial."""
    state, info = attributes["_state"], attributes["update_info_"]
    before = state.trial.state
    yield "no trial within a trial", before.trial is None
    yield "fewer labels in a trial than it may have", 0 <= state.trial.n_labels < LONGEST
    yield "the same classes in a trial", before.counts.size == state.counts.size
    rows, rows_before = (
        (each.n_rows, each.n_batches, each.column_scale.size) for each in (state, before)
    )
    yield "the same rows in a trial", rows == rows_before
    choice = before.choice
    info = info._replace(
        n_recorded=before.record.size,
        weight=choice.weight,
        temperature=choice.temperature,
        refitted=choice.refitted,
    )
    yield from mixture_rules(began, {**attributes, "_state": before, "update_info_": info})


MIXTURES: dict[type, Kept] = {
    SeqGraphMED: classifier(
        MixtureState, MixtureInfo, mixture_rules, parameter_rules=mixture_parameters,
        nesting=("estimator",),
    ),
}  # fmt: skip
