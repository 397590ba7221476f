"""Exact encoding of plain values and arrays as JSON and tensors, and decoding.

null, booleans, integers, finite numbers, strings and lists are encoded as themselves. Any other
value is an object whose single key is its kind. Arrays and other objects that may be shared are in
a list of *nodes*, and referred to by number. A node refers only to earlier ones, without cycles.

Type and memory layout of arrays are kept. The layout changes the rounding of sums, and a loaded
model must learn exactly as the saved model, to the last bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from seqmed.model_file.container import Tensors

# Numbers that are not JSON.
NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
# Kinds of arrays.
PLAIN, TRANSPOSED, MASK, TEXT = "plain", "transposed", "mask", "text"
LARGEST_ITEM = 8  # bytes of a number
LARGEST_CODE_POINT = 0x10FFFF
# Largest number of characters in a string of numpy.
LONGEST_TEXT = 2**28
# Largest number of estimators within each other: a search in a pipeline, of pipelines of mixtures.
# Each level may refer to another several times, so that their number could be exponential.
DEEPEST = 6


class Encoder:
    """Encodes values as JSON, and collects the nodes and tensors they refer to.

    A node refers to earlier nodes only. ``prefix`` begins the names of tensors.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.nodes: list[dict[str, Any]] = []
        self.tensors: Tensors = {}
        self._places: dict[int, tuple[int, Any]] = {}

    def encode(self, value: Any, where: str) -> Any:
        """Return a value as JSON; ``where`` names it in errors."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is list:
            return [self.encode(each, f"{where}[{place}]") for place, each in enumerate(value)]
        if kind is tuple:
            return {"tuple": self.encode(list(value), where)}
        if kind is dict:
            keys = [self.encode(key, f"a key of {where}") for key in value]
            values = [self.encode(each, f"{where}[{key!r}]") for key, each in value.items()]
            return {"dict": [[*pair] for pair in zip(keys, values, strict=True)]}
        if id(value) not in self._places:
            node = self.node(value, where)
            # the value is referenced, so that its id is not reused
            self._places[id(value)] = (len(self.nodes), value)
            self.nodes.append(node)
        return {"node": self._places[id(value)][0]}

    def encode_named(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        """Return named values as a JSON object."""
        return {name: self.encode(each, f"{where}.{name}") for name, each in values.items()}

    def node(self, value: Any, where: str) -> dict[str, Any]:
        """Return the node of a value that may be shared."""
        if type(value) in (np.ndarray, np.memmap) and value.dtype.kind != "O":
            return {"array": self._store(value, where)}
        if type(value) is np.ndarray and value.ndim == 1 and set(map(type, value)) == {str}:
            return {"names": value.tolist()}
        if isinstance(value, np.generic):
            return {"scalar": self._store(np.asarray(value), where)}
        if sp.issparse(value) and value.ndim == 2:
            rows = sp.csr_array(value)
            parts = {name: getattr(rows, name) for name in ("data", "indices", "indptr")}
            return {"csr": self.encode_named({"shape": list(rows.shape), **parts}, where)}
        raise ValueError(
            f"{where} is {value!r}, of type {type(value).__name__}, expected None, booleans, "
            "numbers, strings, arrays, and lists, tuples and dictionaries of them: convert it."
        )

    def _store(self, array: NDArray[Any], where: str) -> list[str]:
        """Add the tensor of an array; return its kind and its name."""
        kind, tensor = to_tensor(array, where)
        name = f"{self.prefix}.{len(self.tensors)}"
        self.tensors[name] = tensor
        return [kind, name]


class Decoder:
    """Decodes the nodes of an `Encoder`; ValueError for anything that it does not write."""

    def __init__(self, nodes: Any, tensors: Tensors) -> None:
        self.tensors = tensors
        self.objects: list[Any] = []
        self._depths: list[int] = []  # numbers of estimators within each other
        for node in checked(nodes, list):
            self._depth = 0
            tag, content = tagged(node)
            self.objects.append(self.build(tag, content))
            self._depths.append(self._depth + (tag == "estimator"))
            if self._depths[-1] > DEEPEST:
                raise ValueError(f"estimators are nested more than {DEEPEST} times")

    def decode(self, value: Any) -> Any:
        """Return the value that a JSON value encodes."""
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("it holds a number that is not finite")
        if isinstance(value, list):
            return [self.decode(each) for each in value]
        if not isinstance(value, dict):
            return value
        tag, content = tagged(value)
        if tag == "node":
            place = in_range(content, len(self.objects), "a node")
            self._depth = max(self._depth, self._depths[place])
            return self.objects[place]
        if tag == "float" and content in NOT_FINITE:
            return NOT_FINITE[content]
        if tag == "tuple":
            return tuple(self.decode(checked(content, list)))
        if tag == "dict":
            pairs = [checked(pair, list, 2) for pair in self.decode(checked(content, list))]
            return dict(pairs)
        raise ValueError(f"{tag!r} was found, expected a value")

    def decode_named(self, content: Any) -> dict[str, Any]:
        """Return the values of a JSON object by name."""
        return {name: self.decode(each) for name, each in checked(content, dict).items()}

    def build(self, tag: str, content: Any) -> Any:
        """Return the value of a node."""
        if tag == "array":
            return self._fetch(content)
        if tag == "names":
            return np.array([checked(name, str) for name in checked(content, list)], dtype=object)
        if tag == "scalar":
            scalar = self._fetch(content)
            if scalar.ndim:
                raise ValueError(f"a single value has the shape {scalar.shape}")
            return scalar[()]
        if tag == "csr":
            return csr_rows(**self.decode_named(content))
        raise ValueError(f"a node is of the unknown kind {tag!r}")

    def _fetch(self, content: Any) -> NDArray[Any]:
        kind, name = checked(content, list, 2)
        if checked(name, str) not in self.tensors:
            raise ValueError(f"tensor {name!r} is missing")
        return from_tensor(kind, self.tensors[name])


def tagged(node: Any) -> tuple[str, Any]:
    """Return the single key of a JSON object, and its value."""
    if not isinstance(node, dict) or len(node) != 1:
        raise ValueError("an object of one key is expected in the header")
    return next(iter(node.items()))


def checked(value: Any, kind: Any, length: int | None = None) -> Any:
    """Return a value; refuse one of another type or length."""
    if not isinstance(value, kind) or (length is not None and len(value) != length):
        raise ValueError(f"a {type(value).__name__} was found, expected a {kind.__name__}")
    return value


def in_range(value: Any, end: int, what: str) -> int:
    """Return an integer; refuse one outside 0 to ``end - 1``."""
    if type(value) is not int or not 0 <= value < end:
        raise ValueError(f"{what} has the number {value!r}, expected an integer in [0, {end})")
    return value


# -- arrays ----------------------------------------------------------------------------------------


def to_tensor(array: NDArray[Any], where: str) -> tuple[str, NDArray[Any]]:
    """Return the kind of an array and its tensor, in C order and native byte order.

    ``where`` names the array in errors.
    """
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind in "fiu" and array.dtype.itemsize <= LARGEST_ITEM:
        if by_columns(array):
            return TRANSPOSED, np.asarray(array.T, order="C")
        return PLAIN, np.asarray(array, order="C")
    array = np.asarray(array, order="C")
    if array.dtype.kind == "b":
        return MASK, array.view(np.uint8)
    if array.dtype.kind == "U":
        width = max(array.dtype.itemsize // 4, 1)
        letters = array.astype(f"U{width}").reshape(-1).view(np.uint32)
        return TEXT, letters.reshape(*array.shape, width)
    raise ValueError(
        f"{where}: an array of dtype {array.dtype} cannot be saved in a model file, expected "
        "integers, floats of up to 64 bits, booleans or strings: convert it."
    )


def from_tensor(kind: Any, tensor: NDArray[Any]) -> NDArray[Any]:
    """Return the array of a tensor; refuse a kind that does not fit."""
    if kind == PLAIN:
        return tensor
    if kind == TRANSPOSED:
        return tensor.T
    if kind == MASK and tensor.dtype == np.uint8 and (tensor <= 1).all():
        return tensor.view(np.bool_)
    if kind == TEXT and tensor.dtype == np.uint32 and tensor.ndim:
        width = tensor.shape[-1]
        if 0 < width <= LONGEST_TEXT and (tensor <= LARGEST_CODE_POINT).all():
            return tensor.reshape(-1).view(f"U{width}").reshape(tensor.shape[:-1])
    raise ValueError(f"a tensor of {tensor.dtype} is declared as {kind!r}, which does not fit")


def by_columns(array: NDArray[Any]) -> bool:
    """Whether an array is stored column by column, as the transpose of one in C order."""
    if array.ndim < 2 or array.strides == c_strides(array.shape, array.itemsize):
        return False
    if array.strides == c_strides(array.shape[::-1], array.itemsize)[::-1]:
        return True
    return abs(array.strides[0]) < abs(array.strides[-1])


def c_strides(shape: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Return the strides of a contiguous array of this shape, with items of ``step`` bytes."""
    strides = []
    for size in reversed(shape):
        strides.append(step)
        step *= size or 1
    return tuple(reversed(strides))


def csr_rows(shape: Any, data: Any, indices: Any, indptr: Any) -> sp.csr_array:
    """Return a sparse array from its parts; the loops of scipy rely on their rules."""
    n, p = (in_range(size, 2**63, "a size") for size in checked(shape, list, 2))
    for part in (data, indices, indptr):
        checked(part, np.ndarray)
    fits = (
        indices.dtype == indptr.dtype
        and indices.dtype in (np.int32, np.int64)
        and data.dtype.kind in "biuf"
        and data.shape == indices.shape == (data.size,)
        and indptr.shape == (n + 1,)
        and indptr[0] == 0
        and indptr[-1] == data.size
        and (indptr[1:] >= indptr[:-1]).all()
        and ((indices >= 0) & (indices < p)).all()
    )
    if not fits:
        raise ValueError("the parts of a sparse array do not fit together")
    rows = sp.csr_array((n, p), dtype=data.dtype)
    rows.data, rows.indices, rows.indptr = data, indices, indptr  # keeps the index type
    return rows
