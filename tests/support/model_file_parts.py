"""Model files taken apart, and put together with a checksum that fits."""

from __future__ import annotations

import hashlib
import json
import struct


def split(content):
    """Return the safetensors header, and the bytes of the tensors without the checksum."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length : -32]


def sealed(body):
    """Return a file whose checksum fits."""
    return body + hashlib.sha256(body).digest()


def joined(header, data):
    """Return the file of a header and tensors, its checksum fitting."""
    text = json.dumps(header).encode()
    return sealed(struct.pack("<Q", len(text)) + text + data)


def document_of(content):
    return json.loads(split(content)[0]["__metadata__"]["seqmed"])


def with_document(content, document):
    """Return the file with another document; a string is taken as it is."""
    header, data = split(content)
    text = document if isinstance(document, str) else json.dumps(document)
    return joined({**header, "__metadata__": {"seqmed": text}}, data)


def tensor_names(header):
    return [name for name in header if name not in ("__metadata__", "sha256")]
