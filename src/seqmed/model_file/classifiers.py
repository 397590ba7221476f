"""Declarations that all classifiers share: kernels, the class registry, and parameters."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from seqmed.classes import ClassRegistry
from seqmed.kernels import KERNELS, RBF, DCMFisher, Kernel, Polynomial, Precomputed, TfIdf
from seqmed.labels import is_label_dtype
from seqmed.model_file.annotations import INTERFACES
from seqmed.model_file.declarations import COLUMNS, Kept, Rules, column_rules, declare

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


@declare(
    ClassRegistry, classes="classes any", counts="classes >= 0", weights="classes >= 0",
    discounted="classes >= 0", declared="classes",
)  # fmt: skip
def _(registry: ClassRegistry) -> Rules:
    yield "labels of a type that can be learned", is_label_dtype(registry.classes.dtype)
    yield "classes in order, each once", (registry.classes[1:] > registry.classes[:-1]).all()


def same_classes(first: ClassRegistry, second: ClassRegistry) -> bool:
    """Whether two registries have the same classes, of the same type."""
    kinds = first.classes.dtype.kind == second.classes.dtype.kind
    return kinds and np.array_equal(first.classes, second.classes)


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


def classifier(state: type, info: type, rules: Any, **more: Any) -> Kept:
    """Return the declaration of a classifier."""

    def state_rules(model: Any, attributes: dict[str, Any]) -> Rules:
        yield from column_rules(attributes)
        fixed = attributes["_state"].fixed
        yield "the parameters that may not change", set(fixed) == set(model._fixed_parameters)
        began = type(model)(**{**model.get_params(deep=False), **fixed})
        kept.check(began, {})
        yield from rules(began, attributes)

    kept = Kept(
        attributes={**COLUMNS, "_state": state, "update_info_": info},
        rules=state_rules,
        make=lambda model: model._commit(model._state, model.update_info_),
        **{"parameter_rules": classifier_parameters, **more},
    )
    return kept
