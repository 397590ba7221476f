"""Work that several models do on the same arrays is done once.

Models that learn side by side, with parameters that differ in one place, form the same kernel
matrices, find the same neighbours and factor the same systems. Within ``with sharing():`` a
function marked as `shared` remembers what it returned, and returns it again for equal arguments;
its results are read-only. Everywhere else it is called as it is. All of these functions are pure,
and nobody changes an array that was passed to one of them, so nothing but time depends on it.

Arguments are equal if nothing can tell them apart: by their bits, since 0.0 and -0.0 or True and 1
may be treated differently, and by how arrays lie in memory, since sums may be rounded accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# Entries of an array that are looked at before all of them are compared.
SAMPLE = 32
# Bytes of arrays remembered at most, by several models and within one update; with more of them,
# all are forgotten.
LARGEST_MEMORY, LARGEST_OWN_MEMORY = 2**30, 2**27
# Kernel values up to which one update forms a matrix that it does not need as such, to remember it.
LARGEST_OWN_MATRIX = 2**20
# Values that are told apart by type and text; others, such as lists, by what object they are.
PLAIN = str | int | float | None | np.generic


@dataclass
class Memory:
    """What functions have returned so far.

    Parameters
    ----------
    own : whether it is of one model, for the time of an update.
    known : by function and sketch of the arguments, the arguments and the results.
    sizes : bytes of the arrays among them, by identity.
    total : the sum of these.
    """

    own: bool = False
    known: dict[Hashable, list[tuple[Any, Any]]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    total: int = 0

    def find(self, key: Hashable, given: Any) -> tuple[Any] | None:
        """Return what was returned for equal arguments, in a tuple; None if nothing was."""
        for before, result in self.known.get(key, ()):
            if same(before, given):
                return (result,)
        return None

    def add(self, key: Hashable, given: Any, result: Any) -> None:
        """Remember a result; begin anew where that would be too much."""
        new = {id(each): each.nbytes for each in arrays_in((given, result))}
        self.total += sum(size for each, size in new.items() if each not in self.sizes)
        self.sizes |= new
        self.known.setdefault(key, []).append((given, result))
        if self.total > (LARGEST_OWN_MEMORY if self.own else LARGEST_MEMORY):
            self.known, self.sizes, self.total = {}, {}, 0


_memory: ContextVar[Memory | None] = ContextVar("memory", default=None)
# the same, where a shared function is at work
_hidden: ContextVar[Memory | None] = ContextVar("hidden", default=None)


@contextmanager
def sharing(own: bool = False) -> Iterator[None]:
    """Let models that learn or predict within this context share their work.

    ``own`` for one model that shares with nobody but itself, and may hold less.
    """
    shown, hidden = _memory.set(Memory(own)), _hidden.set(None)
    try:
        yield
    finally:
        _memory.reset(shown)
        _hidden.reset(hidden)


def within_update(wanted: bool) -> AbstractContextManager[None]:
    """Let a model share work with itself, where that is wanted and it does not with others."""
    return sharing(own=True) if wanted and not is_sharing() else nullcontext()


def is_sharing() -> bool:
    """Whether what is computed now is remembered, for this update or for other models."""
    return _memory.get() is not None


def is_remembered(n_values: int) -> bool:
    """Whether so many values would be remembered, were they returned by a `shared_within`."""
    memory = _memory.get() or _hidden.get()
    return memory is not None and n_values <= LARGEST_OWN_MATRIX


def is_worth_forming(n_values: int) -> bool:
    """Whether to form a matrix that is not needed as such, because it may be asked for again."""
    memory = _memory.get()
    return memory is not None and (not memory.own or n_values <= LARGEST_OWN_MATRIX)


def shared(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Mark a pure function of arrays, frozen dataclasses and plain values.

    What it calls is not shared: two equal results that became one object would be multiplied as
    one, which rounds differently.
    """
    return remembering(function, _memory.get)


def shared_within(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Mark one that is called by such functions, and no two results of which are multiplied."""
    return remembering(function, lambda: _memory.get() or _hidden.get())


def remembering(
    function: Callable[Arguments, Result], memory_now: Callable[[], Memory | None]
) -> Callable[Arguments, Result]:
    """Return the function that looks into a memory first, if there is one."""

    @wraps(function)
    def remembered(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        memory = memory_now()
        if memory is None:
            return function(*arguments, **named)
        given = (*arguments, tuple(named.items()))
        key = function, repeats((*arguments, *named.values())), sketch(given)
        found = memory.find(key, given)
        if found is not None:
            return found[0]
        shown, hidden = _memory.set(None), _hidden.set(memory)
        try:
            result = function(*arguments, **named)
        finally:
            _memory.reset(shown)
            _hidden.reset(hidden)
        for array in arrays_in(result):
            array.flags.writeable = False
        memory.add(key, given, result)
        return result

    return remembered


def repeats(values: tuple[Any, ...]) -> tuple[int, ...]:
    """Return which values are one object: kernels keep symmetry exact where two of them are."""
    objects = [id(value) for value in values if not isinstance(value, PLAIN)]
    return tuple(map(objects.index, objects))


def sketch(value: Any) -> Hashable:
    """Return something small that is equal for equal values, and mostly not for others."""
    if isinstance(value, np.ndarray):
        flat = value.reshape(-1)
        sample = flat[:: max(1, flat.size // SAMPLE)]
        return value.shape, value.strides, value.dtype, sample.tobytes()
    if is_compressed(value):
        return type(value), value.shape, sketch(value.data), sketch(value.indices)
    if is_dataclass(value):
        return type(value), *(sketch(getattr(value, each.name)) for each in fields(value))
    if isinstance(value, tuple):
        return tuple(sketch(part) for part in value)
    return (type(value), repr(value)) if isinstance(value, PLAIN) else id(value)


def same(first: Any, second: Any) -> bool:
    """Whether two values of equal sketches are equal."""
    if first is second:
        return True
    if isinstance(first, np.ndarray):
        return first.tobytes("A") == second.tobytes("A")
    if is_compressed(first):
        parts = ("indptr", "indices", "data")
        return all(same(getattr(first, p), getattr(second, p)) for p in parts)
    if is_dataclass(first):
        pairs = ((getattr(first, f.name), getattr(second, f.name)) for f in fields(first))
        return all(same(*pair) for pair in pairs)
    if isinstance(first, tuple):
        return all(same(*pair) for pair in zip(first, second, strict=True))
    return isinstance(first, PLAIN)


def is_compressed(value: Any) -> bool:
    """Whether a value is a sparse matrix, in the format that is in use here or its transpose's."""
    return sp.issparse(value) and value.format in ("csr", "csc")


def arrays_in(value: Any) -> Iterator[NDArray[Any]]:
    """Yield the arrays that a value consists of."""
    if isinstance(value, np.ndarray):
        yield value
    elif is_compressed(value):
        yield from (value.data, value.indices, value.indptr)
    elif isinstance(value, tuple):
        for part in value:
            yield from arrays_in(part)
    elif is_dataclass(value):
        for each in fields(value):
            yield from arrays_in(getattr(value, each.name))
