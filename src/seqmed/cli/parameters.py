"""Parameters of models as they are written at a shell."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from seqmed.cli.errors import CommandError
from seqmed.cli.state import ESTIMATORS, Classifier

DEFAULT_ESTIMATOR = "seqlapmed"
# Repeating a command must repeat its result, also if it was killed before anything was saved.
DEFAULT_SEED = 0
WORDS = {"none": None, "true": True, "false": False, "inf": float("inf")}


def value_of(text: str) -> Any:
    """Return the value that a text stands for: a number, none, true, false, inf, a list or a dict.

    Any other text stands for itself.
    """
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):  # a literal it is not, nor could it be one
        return text


def collect(options: Mapping[str, Any], pairs: Sequence[str]) -> dict[str, Any]:
    """Return all parameters that were given, by options of their own or as NAME=VALUE."""
    given = {
        name: value_of(value) if isinstance(value, str) else value
        for name, value in options.items()
        if value is not None
    }
    for pair in pairs:
        name, found, text = pair.partition("=")
        if not found:
            raise CommandError(f"--param got {pair!r}, expected NAME=VALUE, for example degree=2.")
        if name in given and given[name] != value_of(text):
            raise CommandError(f"parameter {name} is given twice: {given[name]!r} and {text}.")
        given[name] = value_of(text)
    return given


def new_model(estimator: str | None, given: Mapping[str, Any]) -> Classifier:
    """Return a model with the parameters given."""
    kind = ESTIMATORS[estimator or DEFAULT_ESTIMATOR]
    parameters = {"random_state": DEFAULT_SEED, **given}
    model = kind()
    check_names(model, parameters)
    if isinstance(model, ESTIMATORS["seqlapmed"]):
        parameters["unlabeled"] = None  # what marks an unlabeled row is the reader's to know
    model.set_params(**parameters)
    model._validate_params()
    return model


def check_same(model: Classifier, estimator: str | None, given: Mapping[str, Any]) -> None:
    """Refuse parameters that differ from those a model was begun with."""
    kind = type(model).__name__.lower()
    if estimator not in (None, kind):
        raise differs("estimator", estimator, kind)
    check_names(model, given)
    known = model.get_params()
    for name, value in given.items():
        if value != known[name]:
            raise differs(name, value, known[name])


def differs(name: str, now: Any, before: Any) -> CommandError:
    """Return the refusal of a parameter that is not what it was."""
    return CommandError(
        f"{name} is {now!r}, but the model was begun with {before!r}: leave it out, or start a new "
        "model."
    )


def check_names(model: Classifier, given: Mapping[str, Any]) -> None:
    """Refuse parameters that a model does not have; name the one that may be meant."""
    known = sorted(set(model.get_params()) - {"unlabeled"})
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            meant = f"is {close[0]} meant?" if close else f"it has {', '.join(known)}."
            raise CommandError(f"{type(model).__name__} has no parameter {name!r} to set: {meant}")
