"""Model files: one file per model, verified by a checksum. Loading a file executes no code.

A file is written completely or not at all (`files`), and ends with its checksum (`container`). The
header describes plain values and arrays (`values`), estimators and records (`models`), and the
annotations of the records are its schema (`annotations`). docs/model-file.md describes the format.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from seqmed.estimators.base import snapshot
from seqmed.model_file.annotations import check_fields
from seqmed.model_file.container import Tensors, pack, unpack
from seqmed.model_file.files import read_file, remove_leftovers, replace_file
from seqmed.model_file.models import MODELS, ModelDecoder, ModelEncoder
from seqmed.model_file.values import Decoder, Encoder, checked, tagged

__all__ = ["ModelFileError", "load", "load_with_extra", "remove_leftovers", "save"]

AnyPath = str | os.PathLike[str]

FORMAT = 3
# Remedy for a file with a valid checksum and invalid content.
ADVICE = (
    " Its checksum is valid, so it was written by another program or a newer version: use a file "
    "written by seqmed.save, or install a newer version of seqmed."
)
# Largest number of characters of a reason, which may quote any text of the file.
LONGEST_REASON = 500
# What is refused with a reason: errors on values that a model cannot have.
REFUSALS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# The parts of the header, with their types. Earlier versions wrote a summary, which is not read.
HEADER = {"format": int, "library": str, "about": dict, "model": list, "extra": list}


class ModelFileError(ValueError):
    """A file is refused: it is not a model file, was altered, or is of another version."""


def save(model: Any, path: AnyPath, *, extra: dict[str, Any] | None = None) -> None:
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
        graph.
    path : str or path-like
    extra : dict, default=None
        Values to save with the model, by name: None, booleans, numbers, strings, arrays (dense or
        CSR), and lists, tuples and dictionaries of them. `load_with_extra` returns them.
    """
    replace_file(path, to_bytes(model, extra))


def load(path: AnyPath) -> Any:
    """Return the model in a file; it predicts and learns exactly as the saved model did.

    Nothing in the file is executed, and every part is checked before it is used.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    model : estimator
        The saved model. A model made by `seqmed learn` is a StreamPipeline with the steps "table"
        and "model", which takes raw tables; see `make_stream_pipeline`.

    Raises
    ------
    ModelFileError
        If the file is not a model file, was altered, or has another format version.
    OSError
        If the file cannot be read.
    """
    return load_with_extra(path)[0]


def load_with_extra(path: AnyPath) -> tuple[Any, dict[str, Any] | None]:
    """Return the model in a file, and the values saved with it (None if there are none).

    Nothing in the file is executed, and every part is checked before it is used.
    """
    with refusals(path):
        header, tensors = open_header(read_file(path))
    with refusals(path, ADVICE):
        return build(header, tensors)


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
        "model": learned.nodes,
        "extra": [*kept.nodes, {"value": more}],
    }
    return pack(header, {**learned.tensors, **kept.tensors})


def build(header: dict[str, Any], tensors: Tensors) -> tuple[Any, dict[str, Any] | None]:
    """Return the model in a file and the values saved with it; refuse invalid ones."""
    *_, model = ModelDecoder(header["model"], tensors).objects
    check_class(type(model), "it holds")
    *nodes, last = header["extra"]
    tag, value = tagged(last)
    if tag != "value":
        raise ValueError(f"{tag!r} was found, expected a value")
    extra = Decoder(nodes, tensors).decode(value)
    return model, None if extra is None else checked(extra, dict)


def open_header(content: bytes) -> tuple[dict[str, Any], Tensors]:
    """Return the valid header of a file, and its tensors."""
    header, tensors = unpack(content)
    version = header.get("format")
    if type(version) is not int or version != FORMAT:
        raise ValueError(
            f"it is of format {version!r}, written by seqmed {header.get('library')!r}, expected "
            f"format {FORMAT}: read it with the version that wrote it, or learn the model again"
        )
    check_fields(header, HEADER, "header", optional=["about"])
    return header, tensors


def check_class(kind: type, subject: str) -> None:
    """Refuse a class that cannot be saved."""
    if kind not in MODELS:
        names = ", ".join(each.__name__ for each in MODELS)
        raise ValueError(
            f"{subject} a {kind.__name__}, expected one of {names}, and no subclass: save other "
            "objects with skops."
        )
