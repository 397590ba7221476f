"""Conversion of arrays to tensors of plain numbers and back, with type and memory layout.

The memory layout is kept because it changes the rounding of sums: a loaded model must learn exactly
as the saved model, to the last bit.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.model_file.container import DTYPES

# Kinds of tensors. Arrays of times have the name of their dtype as kind.
PLAIN, TRANSPOSED, MASK, WIDE = "plain", "transposed", "mask", "longdouble"
# Kinds of strings and bytes, and the type of their characters.
LETTERS: dict[str, tuple[str, np.dtype[Any]]] = {
    "U": ("text", np.dtype(np.uint32)),
    "S": ("bytes", np.dtype(np.uint8)),
}
TIME = re.compile(
    r"(datetime64|timedelta64)(\[([1-9]\d{0,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)
LARGEST_CODE_POINT = 0x10FFFF
# Largest number of characters in a string of numpy.
LONGEST_TEXT = 2**28


def to_tensor(array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """Return the kind of a tensor, and the tensor, contiguous and in native byte order."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype in DTYPES.values():
        if by_columns(array):
            return TRANSPOSED, in_c_order(array.T)
        return PLAIN, in_c_order(array)
    array = in_c_order(array)
    if array.dtype.kind == "b":
        return MASK, array.view(np.uint8)
    if array.dtype.kind in LETTERS:
        kind, letter = LETTERS[array.dtype.kind]
        width = max(array.dtype.itemsize // letter.itemsize, 1)
        letters = array.astype(f"{array.dtype.kind}{width}").reshape(-1).view(letter)
        return kind, letters.reshape(*array.shape, width)
    if array.dtype.kind in "mM" and TIME.fullmatch(array.dtype.name):
        return array.dtype.name, array.view(np.int64)
    if array.dtype == np.longdouble and (array.astype(np.float64) == array).all():
        return WIDE, array.astype(np.float64)
    raise ValueError(
        f"an array of dtype {array.dtype} cannot be saved in a model file, expected integers, "
        "floats of up to 64 bits, booleans, strings, bytes or times: convert it"
    )


def from_tensor(kind: Any, tensor: NDArray[Any]) -> NDArray[Any]:
    """Return the array of a tensor; refuse a kind that does not fit."""
    if kind == PLAIN:
        return tensor
    if kind == TRANSPOSED:
        return tensor.T
    if kind == MASK and tensor.dtype == np.uint8 and (tensor <= 1).all():
        return tensor.view(np.bool_)
    if kind == WIDE and tensor.dtype == np.float64:
        return tensor.astype(np.longdouble)
    for code, (name, letter) in LETTERS.items():
        if kind == name and tensor.dtype == letter and tensor.ndim:
            width = tensor.shape[-1]
            if 0 < width <= LONGEST_TEXT and (tensor <= LARGEST_CODE_POINT).all():
                return tensor.reshape(-1).view(f"{code}{width}").reshape(tensor.shape[:-1])
    if isinstance(kind, str) and TIME.fullmatch(kind) and tensor.dtype == np.int64:
        return tensor.view(kind)
    raise ValueError(f"a tensor of {tensor.dtype} is declared as {kind!r}, which does not fit")


def in_c_order(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a copy of the same shape, with its last axis contiguous."""
    return np.asarray(array, order="C")


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
