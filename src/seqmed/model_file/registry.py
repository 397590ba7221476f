"""Registry of the estimators and records that a model file can hold.

A file can create only these estimators, and the records in the annotations of their attributes.
"""

from __future__ import annotations

from typing import Any

from seqmed.model_file.annotations import INTERFACES, reachable
from seqmed.model_file.declarations import Kept
from seqmed.model_file.pipelines import CLASSIFIERS, PIPELINES
from seqmed.model_file.searches import SEARCHES
from seqmed.model_file.transformers import TRANSFORMERS

MODELS: dict[type, Kept] = {**CLASSIFIERS, **PIPELINES, **SEARCHES}
ESTIMATORS: dict[type, Kept] = {**MODELS, **TRANSFORMERS}
CLASSES: dict[str, type] = {kind.__name__: kind for kind in ESTIMATORS}


def estimator_class(name: Any) -> Any:
    """Return the class of an estimator by its name."""
    if not isinstance(name, str) or name not in CLASSES:
        raise ValueError(f"it holds a {name!r}, expected one of {', '.join(CLASSES)}")
    return CLASSES[name]


def records() -> dict[str, Any]:
    """Return the classes of all records by name: those of attributes, and of their fields."""
    attributes = (hint for kept in ESTIMATORS.values() for hint in kept.attributes.values())
    registered = (kind for known in INTERFACES.values() for kind in known())
    return reachable((*attributes, *registered))
