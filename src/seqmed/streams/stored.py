"""Records that were stored with a model, read and checked."""

from __future__ import annotations

from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from seqmed.model_file.annotations import field_types, is_record, of_type
from seqmed.streams.errors import StreamError, shown

Kind = TypeVar("Kind")


def read_stored(kind: type[Kind], data: Any, what: str) -> Kind:
    """Return a dataclass from a stored result of `dataclasses.asdict`.

    Fields are refused unless they are of their annotated types. Lists are read as tuples.
    """
    types = field_types(kind)
    if not isinstance(data, dict) or set(data) != set(types):
        got = sorted(map(str, data)) if isinstance(data, dict) else type(data).__name__
        raise StreamError(
            f"the stored {what} has {got}, expected {sorted(types)}: the file is damaged or of "
            "another version. Start a new model."
        )
    found = {name: nested(types[name], data[name], what) for name in types}
    for name, value in found.items():
        if not of_type(value, types[name]):
            refuse_stored(what, name, value)
    return kind(**found)


def nested(hint: Any, value: Any, what: str) -> Any:
    """Return a stored value with its lists as tuples and its dictionaries as records."""
    for each in get_args(hint) if get_origin(hint) is UnionType else (hint,):
        if is_record(each) and value is not None:
            read = getattr(each, "from_dict", None)
            return read(value) if read else read_stored(each, value, what)
        if get_origin(each) is tuple and isinstance(value, list | tuple):
            return tuple(nested(get_args(each)[0], part, what) for part in value)
    return value


def refuse_stored(what: str, name: str, value: Any) -> None:
    """Refuse a stored value."""
    raise StreamError(
        f"the stored {what} has {name}={shown(value)}, which is not valid: the model file is "
        "damaged. Restore it from a copy, or start a new model."
    )
