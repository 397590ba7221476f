"""Declarations that all classifiers share: kernels, the class registry, and parameters."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.classes import ClassCounts
from seqmed.estimators.base import Started
from seqmed.estimators.labels import is_label_dtype
from seqmed.estimators.seqgraphmed import MARGIN_CLASSIFIERS
from seqmed.kernels import KERNELS, RBF, Kernel, Polynomial, Precomputed, TfIdf
from seqmed.model_file.annotations import INTERFACES
from seqmed.model_file.declarations import COLUMNS, Kept, Rules, column_rules, declare

declare(RBF, gamma="> 0", centre="p")
declare(Polynomial, gamma="> 0", degree=">= 1", coef0=">= 0")
declare(Precomputed, gram="features features")


@declare(TfIdf, idf="p")
def _(kernel: TfIdf) -> Rules:
    yield "idf weights", kernel.idf is not None


declare(
    ClassCounts, counts="classes >= 0", weights="classes >= 0", discounted="classes >= 0",
    declared="classes",
)  # fmt: skip


def kernel_classes() -> tuple[type, ...]:
    """Return the classes of all kernels."""
    made = (type(make(1.0, 1, 1.0)) for make in KERNELS.values())
    return (*made, Precomputed)


INTERFACES[Kernel] = kernel_classes


def classifier_parameters(model: Any) -> Rules:
    """Yield rules on the parameters of every classifier."""
    for name in {"kernel", "metric"} & set(model.get_params(deep=False)):
        value = getattr(model, name)
        known = isinstance(value, str) or type(value) in kernel_classes()
        yield f"a {name} by name, or a kernel of seqmed.kernels", known
    given = getattr(model, "class_weight", None)
    weights = given.values() if isinstance(given, dict) else ()
    yield "class weights that are numbers", all(isinstance(each, Real) for each in weights)
    unlabeled = getattr(model, "unlabeled", None)
    single = unlabeled is None or isinstance(unlabeled, bool | Real | str | np.generic)
    yield "a single value as marker", single


def began_with(model: Any, fixed: dict[str, Any]) -> Any:
    """Return an unfitted estimator with the parameters of the first batch."""
    own = {name: fixed[name] for name in model._fixed_parameters if name in fixed}
    began = type(model)(**{**model.get_params(deep=False), **own})
    if hasattr(model, "estimator"):
        kind = margin_class(fixed.get("estimator"))
        given, prefix = model.estimator, "estimator__"
        others = given.get_params(deep=False) if type(given) is kind else {}
        nested = {
            name: fixed[prefix + name] for name in kind._fixed_parameters if prefix + name in fixed
        }
        began.estimator, began.class_weight = kind(**{**others, **nested}), None
    return began


def margin_class(name: Any) -> Any:
    """Return the class of a margin expert by its name."""
    known = {kind.__name__: kind for kind in MARGIN_CLASSIFIERS}
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"its estimator is {name!r}, expected one of {', '.join(known)}")
    return known[name]


def classifier(state: type, info: type, rules: Any, **more: Any) -> Kept:
    """Return the declaration of a classifier."""

    def state_rules(model: Any, attributes: dict[str, Any]) -> Rules:
        yield from column_rules(attributes)
        classes, fixed = attributes["classes_"], attributes["_started"].fixed
        yield "labels of a type that can be learned", is_label_dtype(classes.dtype)
        one = classes.ndim == 1 and classes.size == attributes["_state"].counts.size
        yield "a label for every class", one
        yield "classes in order, each once", (classes[1:] > classes[:-1]).all()
        began = began_with(model, fixed)
        kept.check(began, {})
        yield "the parameters that may not change", fixed.keys() == began._fixed().keys()
        yield from rules(began, attributes)

    kept = Kept(
        attributes={
            **COLUMNS,
            "classes_": NDArray[Any],
            "_started": Started,
            "_state": state,
            "update_info_": info,
            "_minus_one_seen": bool,
        },
        optional=("feature_names_in_", "_minus_one_seen"),
        rules=state_rules,
        make=lambda model: model._commit(model._state, model.update_info_, model.classes_),
        **{"parameter_rules": classifier_parameters, **more},
    )
    return kept
