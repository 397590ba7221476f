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
    assert document["format"] == 5
    nodes = document["model"]
    model = Part({"node": len(nodes) - 1}, nodes, tensors)
    stream, classes = model._state, model.classes_.array()
    name = model.tag()[1]["class"]
    if name in ("GraphPropagation", "SeqGraphMED"):
        scores = trial_scores(stream, X) if name == "SeqGraphMED" else graph_scores(stream.graph, X)
        return decided(scores, stream.counts, classes)
    scores = margin_scores(stream, X)
    counts, seen = stream.counts, stream.counts.counts.array() > 0
    if counts.per_class.value:
        labels = np.where(seen, counts.discounted.array(), np.inf)
        scaled = (scores + 1.0) / 2.0 * np.sqrt(labels[seen].mean() / labels)
        return decided(scaled, counts, classes)
    if scores.shape[1] > 1:
        return decided(scores, counts, classes)
    if seen.sum() == 1:
        return scores[:, 0], np.repeat(classes[seen], X.shape[0])
    return scores[:, 0], np.where(scores[:, 0] > 0, classes[-1], classes[0])


def decided(scores, counts, classes):
    """Return decision values and labels, from scores of all classes."""
    seen = counts.counts.array() > 0
    labels = classes[np.where(seen, scores, -np.inf).argmax(axis=1)]
    return (scores[:, 1] - scores[:, 0] if classes.size == 2 else scores), labels


def margin_scores(stream, X):
    """Return the scores f of a `SeqMED` or `SeqLapMED`, one column for every head."""
    posterior = stream.posterior
    kernel = posterior.recursion.covariance.kernel
    scores = np.zeros((X.shape[0], 1)) + posterior.intercepts.array()
    for part in posterior.mean_parts.items():
        scores += kernel_values(kernel, X, part.points.array()) @ part.coefficients.array()
    return scores


def squared_distances(saved, X):
    """Return squared distances of dense rows to the kept ones, infinite to those out of reach."""
    metric, blocks = saved.metric, saved.blocks.items()
    rows = np.vstack([block.rows.array() for block in blocks]).astype(float)
    if metric.type() == "Euclidean":
        X = (X - metric.centre.array()) / metric.scale.value
        return np.array([np.sum((rows - x) ** 2, axis=1) for x in X.astype(np.float32)])
    if metric.type() == "Cosine":
        cosines = X @ rows.T / np.linalg.norm(X, axis=1)[:, None]
        return np.where(cosines > 0, 2.0 - 2.0 * cosines, np.inf)
    assert metric.type() == "KernelDistance"
    own = np.array([kernel_values(metric.kernel, x[None], x[None])[0, 0] for x in X])
    products = kernel_values(metric.kernel, X, rows)
    norms = np.concatenate([block.norms.array() for block in blocks])
    return np.maximum(own[:, None] + norms - 2.0 * products, 0.0)


def graph_scores(graph, X, class_weights=1.0):
    """Return class scores of dense rows by the nearest kept rows."""
    influence, codes = graph.influence.array().astype(float), graph.codes.array()
    known = np.isin(np.arange(influence.shape[1]), codes)
    scores = np.tile(known / known.sum(), (X.shape[0], 1))
    for row, distances in enumerate(squared_distances(graph.rows, X)):
        nearest = np.argsort(distances, kind="stable")[: graph.rows.n_neighbors.value]
        nearest = nearest[np.isfinite(distances[nearest])]
        if nearest.size:
            farthest = distances[nearest[-1]] or 1.0
            values = np.exp(-4.0 * distances[nearest] / farthest) @ influence[nearest]
            values *= class_weights * graph.class_factors.array()
            scores[row] = values / values.sum() if values.sum() > 0 else scores[row]
    return scores


def linear_scores(linear, X):
    """Return class scores of dense rows by the linear expert."""
    fitted = linear.fitted.array() > 0
    if not fitted.any():
        return np.zeros((X.shape[0], fitted.size))
    scores = X[:, linear.columns.array()] @ linear.coef.array().T + linear.intercept.array()
    return np.where(fitted, scores, scores[:, fitted].min(axis=1, keepdims=True))


def trial_scores(stream, X):
    """Return class scores of dense rows; log-probabilities during the trial of a new start."""
    scores, trial = mixed_scores(stream, X), stream.trial
    if trial.value is None:
        return scores
    total = 0.0
    weight, temperatures = trial.weight.value, trial.temperatures.array()
    before = mixed_scores(trial.state, X)
    for each, share, temperature in zip(
        (before, scores), (1.0 - weight, weight), temperatures, strict=True
    ):
        probabilities = np.exp(each - each.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        probabilities = np.maximum(probabilities, 1e-6)
        probabilities = probabilities**temperature
        total += share * probabilities / probabilities.sum(axis=1, keepdims=True)
    return np.log(total)


def mixed_scores(stream, X):
    """Return class scores of dense rows by the margin, the graph and the linear expert."""
    if stream.column_scale.array().size:
        X = X / stream.column_scale.array()
    scales, choice = stream.score_scales, stream.choice
    counts, weight = scales.counts.array(), choice.weight.value
    assert stream.margin.counts.per_class.value
    known = counts > 0
    expected = counts.sum() / known.sum()
    chi2 = np.sum((counts[known] - expected) ** 2) / expected
    shrink = min(1.0, (known.sum() - 1) / max(chi2, 1e-300))
    shares = shrink + (1.0 - shrink) * counts / expected
    exponent = (0.0, 0.25, 0.5)[choice.exponent.value]
    factors = np.sqrt(expected / np.where(known, counts, np.inf)) * shares**exponent
    margin = (margin_scores(stream.margin, X) + 1.0) / 2.0 * factors
    graph = graph_scores(stream.graph, X, stream.class_weights.array())
    sigma = scales.margin.array()[choice.exponent.value]
    share = choice.linear.value
    mixed = (1.0 - weight - share) * margin / sigma + weight * graph / scales.graph.value
    mixed += share * linear_scores(stream.linear, X) / scales.linear.value
    return choice.temperature.value * np.where(known, mixed, 0.0)
