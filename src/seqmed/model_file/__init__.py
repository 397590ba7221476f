"""Model files: one file per model, verified by a checksum. Loading a file executes no code.

A file is written completely or not at all (`files`), and ends with its checksum (`container`). The
header describes plain values and arrays (`values`), estimators and records (`models`), and the
annotations of the records are its schema (`annotations`). docs/model-file.md describes the format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn, TypeAlias

from seqmed.estimators.base import GraphClassifier, StreamClassifier, snapshot
from seqmed.estimators.validation import refuse_plain_pipeline
from seqmed.model_file.container import Tensors, pack, unpack
from seqmed.model_file.files import read_file, remove_leftovers, replace_file
from seqmed.model_file.models import MODELS, ModelDecoder, ModelEncoder, Outline, estimator_class
from seqmed.model_file.values import Decoder, Encoder, checked, tagged
from seqmed.numeric.annotations import check_fields
from seqmed.selection.search import PrequentialSearch
from seqmed.tables.stream_pipeline import StreamPipeline

__all__ = [
    "Contents",
    "ModelFileError",
    "load",
    "load_with_extra",
    "put_on_device",
    "read",
    "remove_leftovers",
    "save",
]

AnyPath = str | os.PathLike[str]
Model: TypeAlias = StreamClassifier | PrequentialSearch | StreamPipeline
"""A model that can be saved."""

FORMAT = 5
# The oldest format that is read. An upgrade changes header and tensors of a format in place into
# those of the next, and so on; not needed if only fields with defaults are new.
OLDEST_FORMAT = 5
UPGRADES: dict[int, Callable[[dict[str, Any], Tensors], None]] = {}
# Remedy for a file with a valid checksum and invalid content.
ADVICE = (
    " Its checksum is valid, so it was written by another program or a newer version: use a file "
    "written by seqmed.save, or install a newer version of seqmed."
)
# Largest number of characters of a reason, which may quote any text of the file.
LONGEST_REASON = 500
# What is refused with a reason: errors on values that a model cannot have.
REFUSALS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# The parts of the header and of its summary of the model, with their types.
HEADER = {"format": int, "library": str, "about": dict, "model": list, "extra": list}
ABOUT = {"classes": list | None, "n_features": int | None, "n_batches": int | None}


class ModelFileError(ValueError):
    """A file is refused: it is not a model file, was altered, or is of another version."""


class Contents(NamedTuple):
    """Summary of a model file.

    Attributes
    ----------
    format : version of the file format.
    library : version of the library that wrote it.
    model : name of the class of the model.
    parameters : parameters of the model; estimators and other objects by the name of their class.
    classes : known labels, None before the first batch.
    n_features : number of columns, None before the first batch.
    n_batches : number of batches learned, None before the first.
    extra : values saved with the model, None if there are none.
    n_bytes : size of the file.
    """

    format: int
    library: str
    model: str
    parameters: dict[str, Any]
    classes: list[Any] | None
    n_features: int | None
    n_batches: int | None
    extra: dict[str, Any] | None
    n_bytes: int


def save(model: Model, path: AnyPath, *, extra: dict[str, Any] | None = None) -> None:
    """Save a model to a file. The loaded model predicts and learns identically.

    An existing file is replaced once the new one is on the disk. If saving fails, the existing file
    is unchanged.

    Parameters
    ----------
    model : SeqMED, SeqLapMED, SeqGraphMED, GraphPropagation, PrequentialSearch or StreamPipeline
        Fitted or not. The transformers of a pipeline may be TableEncoder, StandardScaler,
        MinMaxScaler and MaxAbsScaler; the estimator of SeqGraphMED may be SeqMED or SeqLapMED.
        Kernels that are functions are refused, and so are estimators of other classes, because they
        are code. The file contains rows of the data: support vectors, landmarks, kept rows of a
        graph, labeled rows of refitted experts.
    path : str or path-like
    extra : dict, default=None
        Values to save with the model, by name: None, booleans, numbers, strings, arrays (dense or
        CSR), and lists, tuples and dictionaries of them. `load_with_extra` and `read` return them.
    """
    replace_file(path, to_bytes(model, extra))


def load(path: AnyPath, device: str = "cpu") -> Model:
    """Return the model in a file; it predicts and learns exactly as the saved model did.

    Nothing in the file is executed, and every part is checked before it is used.

    Parameters
    ----------
    path : str or path-like
    device : str, default="cpu"
        Where graphs are put: the parameter `device` of SeqGraphMED and GraphPropagation. Models
        without a graph have no use for it.

    Returns
    -------
    model : SeqMED, SeqLapMED, SeqGraphMED, GraphPropagation, PrequentialSearch or StreamPipeline
        The saved model. A model made by `seqmed learn` is a StreamPipeline with the steps "table"
        and "model", which takes raw tables; see `make_stream_pipeline`.

    Raises
    ------
    ModelFileError
        If the file is not a model file, was altered, or has a format that this version of seqmed
        does not read: one of a newer version, or one from before 0.2.0.
    OSError
        If the file cannot be read.
    """
    model = load_with_extra(path)[0]
    if device != "cpu":
        put_on_device(model, device)
    return model


def put_on_device(model: Any, device: str) -> bool:
    """Put the graphs in a model on a device; whether it has any."""
    if isinstance(model, GraphClassifier):
        model.set_params(device=device)
        return True
    if isinstance(model, StreamPipeline):
        return put_on_device(model.steps[-1][1], device)
    found = False
    for each in (getattr(model, "estimator", None), *getattr(model, "candidates_", ())):
        found = (each is not None and put_on_device(each, device)) or found
    return found


def load_with_extra(path: AnyPath) -> tuple[Model, dict[str, Any] | None]:
    """Return the model in a file, and the values saved with it (None if there are none).

    Nothing in the file is executed, and every part is checked before it is used.
    """
    with refusals(path):
        header, tensors = open_header(read_file(path))
    with refusals(path, ADVICE):
        return build(header, tensors)


def read(path: AnyPath) -> Contents:
    """Return the summary of a file without loading its model; only the checksum is verified."""
    with refusals(path):
        content = read_file(path)
        header, tensors = open_header(content)
    with refusals(path, ADVICE):
        *_, last = header["model"]
        tag, root = tagged(last)
        if tag != "estimator":
            raise ValueError(f"it holds a {tag!r}, expected an estimator")
        check_fields(root, {"class": str, "parameters": dict, "state": dict}, "model")
        check_class(estimator_class(root["class"]), "it holds")
        return Contents(
            format=header["format"],
            library=header["library"],
            model=root["class"],
            parameters=Outline(header["model"], tensors).decode_named(root["parameters"]),
            **header["about"],
            extra=decode_extra(header, tensors),
            n_bytes=len(content),
        )


@contextmanager
def refusals(path: AnyPath, advice: str = "") -> Iterator[None]:
    """Turn errors on the content of a file into a `ModelFileError` that names it."""
    try:
        yield
    except REFUSALS as error:
        reason = str(error).rstrip(".")[:LONGEST_REASON]
        raise ModelFileError(f"{os.fspath(path)} cannot be loaded: {reason}.{advice}") from error


def to_bytes(model: Any, extra: dict[str, Any] | None) -> tuple[memoryview, bytes]:
    """Return the content of a model file, in two parts."""
    from seqmed import __version__

    refuse_plain_pipeline(model, "save got")
    check_class(type(model), "save got")
    model = snapshot(model)
    if extra is not None and not (type(extra) is dict and all(type(name) is str for name in extra)):
        raise ValueError(f"extra is {extra!r:.100}, expected a dictionary whose keys are strings.")
    learned, kept = ModelEncoder("model"), Encoder("extra")
    learned.encode(model, type(model).__name__)
    more = kept.encode(extra, "extra")
    header = {
        "format": FORMAT,
        "library": __version__,
        "about": about(model),
        "model": learned.nodes,
        "extra": [*kept.nodes, {"value": more}],
    }
    return pack(header, {**learned.tensors, **kept.tensors})


def build(header: dict[str, Any], tensors: Tensors) -> tuple[Any, dict[str, Any] | None]:
    """Return the model in a file and the values saved with it; refuse invalid ones."""
    *_, model = ModelDecoder(header["model"], tensors).objects
    check_class(type(model), "it holds")
    return model, decode_extra(header, tensors)


def open_header(content: bytes) -> tuple[dict[str, Any], Tensors]:
    """Return the valid header of a file, and its tensors, both as the present format has them."""
    header, tensors = unpack(content)
    version = header.get("format")
    if type(version) is not int or not OLDEST_FORMAT <= version <= FORMAT:
        refuse_format(version, header.get("library"))
    check_fields(header, HEADER, "header")
    check_fields(header["about"], ABOUT, "header")
    for older in range(version, FORMAT):
        if older in UPGRADES:
            UPGRADES[older](header, tensors)
    return header, tensors


def refuse_format(version: Any, writer: Any) -> NoReturn:
    """Refuse a format that this version of the library does not read."""
    from seqmed import __version__

    read = f"{OLDEST_FORMAT} to {FORMAT}" if OLDEST_FORMAT < FORMAT else f"{FORMAT}"
    remedy = "load it with the version that wrote it, or learn the model again"
    if type(version) is int and version > FORMAT:
        remedy = "install the version that wrote it, or a newer one"
    raise ValueError(
        f"it is of format {version!r}, written by seqmed {writer!r}, expected format {read}, which "
        f"seqmed {__version__} reads: {remedy}"
    )


def decode_extra(header: dict[str, Any], tensors: Tensors) -> dict[str, Any] | None:
    """Return the values saved with a model."""
    *nodes, last = header["extra"]
    tag, value = tagged(last)
    if tag != "value":
        raise ValueError(f"{tag!r} was found, expected a value")
    extra = Decoder(nodes, tensors).decode(value)
    return None if extra is None else checked(extra, dict)


def check_class(kind: type, subject: str) -> None:
    """Refuse a class that cannot be saved."""
    if kind not in MODELS:
        names = ", ".join(each.__name__ for each in MODELS)
        raise ValueError(
            f"{subject} a {kind.__name__}, expected one of {names}, and no subclass: save other "
            "objects with skops."
        )


def about(model: Any) -> dict[str, Any]:
    """Return the summary of a model for the header; None for what is not known yet."""
    final = getattr(model, "_final_estimator", model)
    classes = getattr(final, "classes_", None)
    return {
        "classes": None if classes is None else classes.tolist(),
        "n_features": getattr(model, "n_features_in_", None),
        "n_batches": getattr(final, "n_batches_", None),
    }
