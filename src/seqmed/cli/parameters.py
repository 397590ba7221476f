"""Parameters of estimators on the command line."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seqmed.cli.checkpoint import classifier_of, encoder_of
from seqmed.cli.terminal import CommandError
from seqmed.estimators.graph_propagation import GraphPropagation
from seqmed.estimators.seqgraphmed import SeqGraphMED
from seqmed.estimators.seqlapmed import SeqLapMED
from seqmed.estimators.seqmed import SeqMED
from seqmed.estimators.validation import PROPORTIONS_ERROR
from seqmed.streams.label_column import DEFAULT_MARKER, Label, LabelColumn, label_of, whole
from seqmed.tables.encoder import TableEncoder
from seqmed.tables.features import COUNTS
from seqmed.tables.messages import similar_name
from seqmed.tables.stream_pipeline import StreamPipeline, make_stream_pipeline

Classifier = SeqGraphMED | SeqMED | SeqLapMED | GraphPropagation
# Functions that make a classifier with default parameters; the first is the default.
ESTIMATORS: dict[str, Callable[[], Classifier]] = {
    "seqgraphmed": lambda: SeqGraphMED(SeqMED(kernel="auto")),
    "seqmed": lambda: SeqMED(kernel="auto"),
    "seqlapmed": lambda: SeqLapMED(kernel="auto"),
    "graphpropagation": GraphPropagation,
}

DEFAULT_ESTIMATOR = next(iter(ESTIMATORS))
# Prefix of the parameters of the estimator within `SeqGraphMED`; parameters that are set for both.
# (class_weight is passed on to the estimator.)
NESTED, COMMON = "estimator__", ("forgetting", "random_state")
# A fixed seed: a command that was killed before its first save gives the same result again.
DEFAULT_SEED = 0
# Kernels of plain counts of words.
COUNT_KERNELS = ("tfidf",)
# Options of the encoder, by parameter, and those that are lists.
ENCODER_OPTIONS = {
    "features": "--features", "missing_values": "--na", "scale": "--no-scale",
}  # fmt: skip
LISTS = ("features", "missing_values")
# Values of --class-prior that are no proportions.
PRIOR_WORDS = ("auto", "evidence", "uniform")
WORDS = {"none": None, "true": True, "false": False, "inf": float("inf")}


def value_of(text: str) -> Any:
    """Return the value of a text: a number, none, true, false, inf, a list, a dict or a string."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):  # not a literal
        return text


def given_parameters(options: Mapping[str, Any], pairs: Sequence[str]) -> dict[str, Any]:
    """Return the parameters given by their own options or as NAME=VALUE; the last one counts."""
    given = {
        name: value_of(value) if isinstance(value, str) else value
        for name, value in options.items()
        if value is not None
    }
    for pair in pairs:
        name, found, text = pair.partition("=")
        if not found:
            raise CommandError(f"--param got {pair!r}, expected NAME=VALUE, for example degree=2.")
        given[name] = value_of(text)
    return given


def parse_class_prior(texts: Sequence[str]) -> str | dict[str, float]:
    """Return class proportions by name from texts NAME=NUMBER; a single word is returned as it is.

    The number follows the last equal sign.
    """
    if len(texts) == 1 and texts[0] in PRIOR_WORDS:
        return texts[0]
    proportions: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        name = whole(name.strip())
        try:
            proportion = float(number)
        except ValueError:
            proportion = math.nan
        if not name or not 0.0 < proportion < math.inf:
            raise CommandError(
                f"--class-prior got {text!r}, expected NAME=NUMBER with a class and a number > 0, "
                "such as spam=0.13: correct it."
            )
        if name in proportions:
            raise CommandError(
                f"--class-prior names class {name!r} twice, expected every class once: leave one "
                "out."
            )
        proportions[name] = proportion
    total = sum(proportions.values())
    if abs(total - 1.0) > PROPORTIONS_ERROR:
        raise CommandError(
            f"the proportions of --class-prior have the sum {total:.6g}, expected 1: name every "
            "class, or divide the proportions by their sum."
        )
    return proportions


def typed_class_prior(given: Any, label: LabelColumn) -> Any:
    """Return class proportions by label instead of name; unchanged before the first label.

    Labels have the type of the column. Anything but a dict is unchanged.
    """
    if not isinstance(given, dict) or label.type is None:
        return given
    proportions: dict[Label, float] = {}
    for name, proportion in given.items():
        value = label_of(name, label.type) if isinstance(name, str) else name
        if value is None:
            raise CommandError(
                f"--class-prior names class {name!r}, expected a class of type {label.type}, as "
                f"the labels in column {label.name!r} are: correct the name."
            )
        if value in proportions:
            raise CommandError(
                f"--class-prior names class {value!r} twice, the second time as {name!r}, expected "
                "every class once: leave one out."
            )
        proportions[value] = proportion
    return proportions


def set_class_prior(model: StreamPipeline, label: LabelColumn | None) -> None:
    """Name the class proportions of a model by labels of the type of its column."""
    classifier = classifier_of(model)
    given = getattr(classifier, "class_prior", None)
    if isinstance(given, dict) and label is not None:
        classifier.set_params(class_prior=typed_class_prior(given, label))


def new_classifier(
    estimator: str | None, given: Mapping[str, Any], marker: str | None = None
) -> Classifier:
    """Return a classifier with the parameters given; ``marker`` is the value of --unlabeled."""
    model = ESTIMATORS[estimator or DEFAULT_ESTIMATOR]()
    model.set_params(**full_names(model, {"random_state": DEFAULT_SEED, **given}))
    if marker not in (None, DEFAULT_MARKER):
        names = {"unlabeled", NESTED + "unlabeled"} & set(model.get_params())
        model.set_params(**dict.fromkeys(names))  # with this marker, -1 may be a class
    model._validate_params()
    inner: Any = getattr(model, "estimator", model)
    inner._check_parameters()
    return model


def new_model(classifier: Classifier, columns: Mapping[str, Any]) -> StreamPipeline:
    """Return a pipeline of an encoder with the parameters in ``columns``, and a classifier."""
    model = make_stream_pipeline(classifier, scale="auto" if columns["scale"] else False)
    scale = encoder_of(model).scale
    encoder = encoder_of(model).set_params(
        **{**columns, "kinds": columns["kinds"] or None, "scale": scale}
    )
    if getattr(getattr(classifier, "estimator", classifier), "kernel", None) in COUNT_KERNELS:
        encoder.set_params(text_weights=COUNTS, scale=False)
    encoder._choices()  # refuses wrong parameters
    return model


def check_same(
    model: StreamPipeline,
    estimator: str | None,
    given: Mapping[str, Any],
    columns: Mapping[str, Any],
) -> None:
    """Refuse parameters of the classifier or the encoder that differ from those of a model."""
    classifier = classifier_of(model)
    kind = type(classifier).__name__.lower()
    if estimator not in (None, kind):
        raise differs("estimator", estimator, kind)
    known = classifier.get_params()
    for name, value in full_names(classifier, given).items():
        if value != known[name]:
            raise differs(name.removeprefix(NESTED), value, known[name])
    encoder = encoder_of(model)
    kinds = encoder.kinds or {}
    chosen = {
        f"--{kind} {name}": kinds.get(name) == kind for name, kind in columns["kinds"].items()
    }
    default = TableEncoder()
    for name, option in ENCODER_OPTIONS.items():
        value, before = columns[name], getattr(encoder, name)
        if value != getattr(default, name):
            chosen[option] = list(value) == list(before or ()) if name in LISTS else value == before
    for option, same in chosen.items():
        if not same:
            raise CommandError(
                f"the model was made without {option}, which cannot be added or changed: leave the "
                "option out, or start a new model."
            )


def differs(name: str, now: Any, before: Any) -> CommandError:
    """Return the error for a changed parameter."""
    return CommandError(
        f"the model was made with {name}={before!r}, which cannot be changed to {now!r}: leave the "
        "option out, or start a new model."
    )


def full_names(model: Classifier, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters by their names in `set_params`; refuse unknown ones.

    Parameters of the estimator of a `SeqGraphMED` may be named without prefix. Parameters in
    `COMMON` are set for both estimators.
    """
    known = set(model.get_params()) - {"device", "estimator", "unlabeled", NESTED + "unlabeled"}
    found = {}
    for name, value in given.items():
        nested = NESTED + name
        if name not in known and nested not in known:
            plain = sorted({each.removeprefix(NESTED) for each in known})
            similar = similar_name(name, plain)
            meant = f"did you mean {similar}?" if similar else f"it has {', '.join(plain)}."
            raise CommandError(f"{type(model).__name__} has no parameter {name!r} to set: {meant}")
        if name in known:
            found[name] = value
        common = name in COMMON and value != "auto"  # of SeqGraphMED only
        if nested in known and (name not in known or common):
            found[nested] = value
    return found
