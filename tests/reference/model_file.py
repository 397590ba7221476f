"""A reader of model files that shares no code with the library, written from docs/model-file.md."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import numpy as np

TYPES = {"F": "f", "I": "i", "U": "u"}


def read_container(path):
    """Return the document and the tensors of a file whose checksum is right."""
    content = Path(path).read_bytes()
    assert hashlib.sha256(content[:-32]).digest() == content[-32:]
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    document = json.loads(header.pop("__metadata__")["seqmed"])
    tensors = {}
    for name, entry in header.items():
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        dtype = f"<{TYPES[entry['dtype'][0]]}{int(entry['dtype'][1:]) // 8}"
        tensors[name] = np.frombuffer(content[start:end], dtype).reshape(entry["shape"])
    assert list(tensors)[-1] == "sha256"
    return document, tensors


class Part:
    """What the document says in one place; members are followed by name."""

    def __init__(self, value, nodes, tensors):
        self.value, self.nodes, self.tensors = value, nodes, tensors

    def __getattr__(self, name):
        return self.follow(self.content()[name])

    def follow(self, value):
        return Part(value, self.nodes, self.tensors)

    def tag(self):
        value = self.value
        if isinstance(value, dict) and set(value) == {"node"}:
            value = self.nodes[value["node"]]
        ((tag, content),) = value.items()
        return tag, content

    def content(self):
        tag, content = self.tag()
        if tag == "record":
            return content["fields"]
        return content["state"] if tag == "estimator" else content

    def type(self):
        return self.tag()[1]["type"]

    def items(self):
        return [self.follow(each) for each in self.content()]

    def array(self):
        tag, content = self.tag()
        if tag == "csr":
            return self.dense()
        kind, name = content
        tensor = self.tensors[name]
        if kind == "transposed":
            return tensor.T
        if kind == "text":
            letters = ["".join(map(chr, row)).rstrip("\0") for row in tensor]
            return np.array(letters)
        return tensor.astype(bool) if kind == "mask" else tensor

    def dense(self):
        _, content = self.tag()
        rows = np.zeros(content["shape"])
        data, indices, indptr = (
            self.follow(content[n]).array() for n in ("data", "indices", "indptr")
        )
        for row in range(rows.shape[0]):
            for place in range(indptr[row], indptr[row + 1]):
                rows[row, indices[place]] += data[place]
        return rows


def kernel_values(kernel, left, right):
    """Return k(x, z) for dense rows, one pair at a time."""
    if kernel.type() == "RBF":
        return np.array(
            [[np.exp(-kernel.gamma.value * np.sum((x - z) ** 2)) for z in right] for x in left]
        )
    if kernel.type() == "Polynomial":
        products = kernel.gamma.value * left @ right.T + kernel.coef0.value
        return products**kernel.degree.value
    if kernel.type() == "TfIdf":
        left, right = (np.log1p(rows) * kernel.idf.array() for rows in (left, right))
        norms = np.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1))
        return left @ right.T / np.where(norms > 0, norms, 1.0)
    assert kernel.type() == "Linear"
    return left @ right.T


def scores_and_labels(path, X):
    """Return what the classifier in a file has to say of dense rows."""
    document, tensors = read_container(path)
    assert document["format"] == 1
    model = Part(document["model"]["value"], document["model"]["nodes"], tensors)
    posterior, book = model._stream.posterior, model._stream.book
    kernel = posterior.recursion.covariance.kernel
    scores = np.zeros((X.shape[0], 1)) + posterior.intercepts.array()
    for part in posterior.mean_parts.items():
        scores += kernel_values(kernel, X, part.points.array()) @ part.coefficients.array()
    classes, seen = book.classes.array(), book.counts.array() > 0
    if book.per_class.value:
        labels = np.where(seen, book.discounted.array(), np.inf)
        scores = (scores + 1.0) / 2.0 * np.sqrt(labels[seen].mean() / labels)
        winners = classes[np.where(seen, scores, -np.inf).argmax(axis=1)]
        if classes.size > 2:
            return scores, winners
        return scores[:, -1] - (scores[:, 0] if classes.size == 2 else 0.0), winners
    if scores.shape[1] > 1:
        return scores, classes[np.where(seen, scores, -np.inf).argmax(axis=1)]
    if seen.sum() == 1:
        return scores[:, 0], np.repeat(classes[seen], X.shape[0])
    return scores[:, 0], np.where(scores[:, 0] > 0, classes[-1], classes[0])
