"""The bytes of a model file: safetensors, with a checksum at the end.

The last tensor, `CHECKSUM`, is the SHA-256 of the rest of the file, which is verified before
anything else is read. The header is a JSON document in the safetensors metadata.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = dict[str, NDArray[Any]]

# safetensors sorts tensors by dtype, the widest first, and then by name. The checksum is the last
# tensor, because bytes are the narrowest dtype and no other tensor has a later name.
CHECKSUM = "sha256"
CHECKSUM_BYTES = 32
# The entry of the safetensors metadata that holds the header.
ENTRY = "seqmed"
# First bytes of the safetensors header of a model file.
SIGNATURE = f'{{"__metadata__":{{"{ENTRY}":"'.encode()
# Size of the length field of the safetensors header, and the largest accepted length, in bytes.
LENGTH_BYTES = 8
LARGEST_HEADER = 100_000_000


def pack(header: dict[str, Any], tensors: Tensors) -> tuple[memoryview, bytes]:
    """Return the content of a file in two parts; the second is the checksum.

    Tensors are integers and floats of up to 64 bits, in C order.
    """
    import safetensors.numpy  # the first save or load imports it, not `import seqmed`

    room = np.zeros(CHECKSUM_BYTES, dtype=np.uint8)
    text = json.dumps(header, allow_nan=False, separators=(",", ":"))
    if len(text) > LARGEST_HEADER // 2:  # a quote takes two characters in the file
        raise ValueError(
            f"the header of the model file would have {len(text)} characters, expected at most "
            f"{LARGEST_HEADER // 2}: keep long lists in extra as arrays."
        )
    content = safetensors.numpy.save({**tensors, CHECKSUM: room}, {ENTRY: text})
    outline(content)
    body = memoryview(content)[:-CHECKSUM_BYTES]
    return body, hashlib.sha256(body).digest()


def unpack(content: bytes) -> tuple[dict[str, Any], Tensors]:
    """Return the header and the arrays of a file; ValueError if it is refused.

    safetensors compares shapes with the size of the file before it allocates memory.
    """
    import safetensors.numpy

    body = memoryview(content)[:-CHECKSUM_BYTES]
    if hashlib.sha256(body).digest() != content[-CHECKSUM_BYTES:]:
        begun = content[LENGTH_BYTES : LENGTH_BYTES + len(SIGNATURE)]
        if not begun or not SIGNATURE.startswith(begun):
            raise ValueError(
                "it is not a seqmed model file, expected one that seqmed.save or seqmed learn has "
                "written: check the path"
            )
        raise ValueError(
            "its checksum does not match its content, expected a model file as it was saved: use "
            "an unaltered and complete copy"
        )
    metadata = outline(content).get("__metadata__")
    if not isinstance(metadata, dict) or set(metadata) != {ENTRY}:
        raise ValueError(f"it has no header, expected the entry {ENTRY!r} alone in its metadata")
    header = json.loads(metadata[ENTRY])
    if not isinstance(header, dict):
        raise ValueError(f"its header is a {type(header).__name__}, expected an object")
    try:
        tensors: Tensors = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError) as error:  # KeyError: an unknown dtype
        raise ValueError(f"its tensors cannot be read ({error})") from error
    del tensors[CHECKSUM]
    return header, tensors


def outline(content: bytes) -> dict[str, Any]:
    """Return the safetensors header; refuse a checksum at another place."""
    length = int.from_bytes(content[:LENGTH_BYTES], "little")
    size = len(content) - LENGTH_BYTES - length
    if size < CHECKSUM_BYTES or length > LARGEST_HEADER:
        raise ValueError(
            f"its header is declared with {length} bytes, expected at most {LARGEST_HEADER}, and "
            f"less than the {len(content)} of the file"
        )
    found = json.loads(content[LENGTH_BYTES : LENGTH_BYTES + length])
    place = {
        "dtype": "U8",
        "shape": [CHECKSUM_BYTES],
        "data_offsets": [size - CHECKSUM_BYTES, size],
    }
    if not isinstance(found, dict) or found.get(CHECKSUM) != place:
        raise ValueError("its last tensor is not a checksum, expected a checksum at the end")
    return found
