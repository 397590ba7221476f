"""The smoothness of one batch: neighbours, edge weights, and the sparse graph Laplacian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from seqmed.kernels import Kernel, blocks, squared_distances
from seqmed.numeric.arrays import Array, Indices, Points, row_norms_squared
from seqmed.numeric.factors import semidefinite_factor

# Expected number of nonzero entries of a sparse row.
SPARSE_WIDTH = 32
# Largest number of rows, and of rows per column, for which all distances are computed.
SMALL_BATCH, WIDE = 2048, 8
# Squared distances, relative to squared norms, below which inner products lose too many digits, and
# rounding may hide nearer rows; the latter holds for the farthest neighbour.
CANCELLED, UNSURE = 1e-3, 1e-6
# Squared distance in feature space, relative to squared norms, that is attributed to rounding.
ZERO_DISTANCE = 1e-14


@dataclass(frozen=True)
class GraphParameters:
    """Parameters of the graph of a batch, see `SeqLapMED`; a width of None is to be measured."""

    n_neighbors: int = 10
    weights: str = "heat"
    heat_width: float | None = None


class Neighbours(NamedTuple):
    """The k nearest other points of every point: indices and squared distances, both (n, k)."""

    indices: NDArray[np.intp]
    distances: Array


@dataclass(frozen=True)
class Smoothness:
    """The penalty ``weight * f' L f`` on the values ``f`` (n,) of a function on a batch."""

    laplacian: sp.csr_array
    weight: float

    def quadratic(self, values: Array) -> Array:
        """Return ``weight * F' L F``, (r, r), for functions in the columns of F (n, r)."""
        product: Array = values.T @ (self.laplacian @ values)
        return (0.5 * self.weight) * (product + product.T)

    def observations(self, functions: Array) -> Array:
        """Return F, (r, m), with ``F' F = weight * V' L V`` for functions V (n, m), r <= min(n, m).

        The penalty of a combination u is ``|F u|^2``, as that of r observations of zero.
        """
        n, m = functions.shape
        if n > m:
            return semidefinite_factor(self.quadratic(functions)).T
        return self.factor().T @ functions

    def factor(self) -> Array:
        """Return R, (n, rank), with ``R R' = weight * L``."""
        return semidefinite_factor(self.weight * self.laplacian.toarray())


def find_neighbours(kernel: Kernel, points: Points, n_neighbors: int) -> Neighbours:
    """Return the nearest neighbours within a batch of distinct points, without the point itself."""
    n = points.shape[0]
    k = min(n_neighbors, n - 1)
    if k < 1:
        return Neighbours(np.empty((n, 0), dtype=np.intp), np.empty((n, 0)))
    coordinates = kernel.coordinates(points)
    return nearest_by_kernel(kernel, points, k) if coordinates is None else nearest(coordinates, k)


def nearest_by_kernel(kernel: Kernel, points: Points, k: int) -> Neighbours:
    """Return the k nearest other points of every point in feature space, in bounded memory."""
    n = points.shape[0]
    norms = kernel.diagonal(points)
    indices, lengths = np.empty((n, k), dtype=np.intp), np.empty((n, k))
    for rows in blocks(n, n):
        sums = norms[rows, None] + norms
        distances = sums - 2.0 * kernel(points[rows], points)
        distances[distances < ZERO_DISTANCE * sums] = 0.0
        distances[np.arange(len(sums)), np.arange(n)[rows]] = np.inf
        indices[rows] = np.argpartition(distances, k - 1, axis=1)[:, :k]
        lengths[rows] = np.take_along_axis(distances, indices[rows], axis=1)
    return nearest_first(indices, lengths)


def nearest(coordinates: Points, k: int) -> Neighbours:
    """Return the k nearest other points of every point by Euclidean distance, the nearest first."""
    n = coordinates.shape[0]
    if not sp.issparse(coordinates):
        coordinates = coordinates - coordinates.mean(axis=0)
        if n <= min(SMALL_BATCH, WIDE * coordinates.shape[1]):
            return nearest_of_few(coordinates, k)
    from sklearn.neighbors import NearestNeighbors  # on first use: it is slow to import

    search = NearestNeighbors(n_neighbors=k).fit(coordinates)
    indices = search.kneighbors(return_distance=False)
    return Neighbours(indices, edge_lengths(coordinates, indices))


def nearest_of_few(coordinates: Array, k: int) -> Neighbours:
    """Return the result of `nearest` for few centred rows, from all their inner products.

    Distances that rounding makes uncertain are computed from differences.
    """
    norms = row_norms_squared(coordinates)
    squares = squared_distances(coordinates, coordinates)
    np.fill_diagonal(squares, np.inf)
    indices = np.argpartition(squares, k - 1, axis=1)[:, :k]
    lengths = np.take_along_axis(squares, indices, axis=1)
    unsure = np.flatnonzero(lengths.max(axis=1) < UNSURE * (norms + norms[indices].max(axis=1)))
    for row in unsure:
        exact = cdist(coordinates[row : row + 1], coordinates, "sqeuclidean")[0]
        exact[row] = np.inf
        indices[row] = np.argpartition(exact, k - 1)[:k]
        lengths[row] = exact[indices[row]]
    inexact = (lengths < CANCELLED * (norms[:, None] + norms[indices])).any(axis=1)
    if inexact.any():
        lengths[inexact] = edge_lengths(coordinates, indices, np.flatnonzero(inexact))
    return nearest_first(indices, lengths)


def nearest_first(indices: NDArray[np.intp], lengths: Array) -> Neighbours:
    """Return neighbours sorted by distance."""
    order = np.argsort(lengths, axis=1, kind="stable")
    return Neighbours(
        np.take_along_axis(indices, order, axis=1), np.take_along_axis(lengths, order, axis=1)
    )


def edge_lengths(
    coordinates: Points, indices: NDArray[np.intp], starts: Indices | None = None
) -> Array:
    """Return squared distances between points and their neighbours, computed from differences.

    ``starts`` (m,) are the indices of the points, None for all n points.
    """
    starts = np.arange(indices.shape[0]) if starts is None else starts
    indices = indices[starts]
    n, k = indices.shape
    lengths = np.empty((n, k))
    width = SPARSE_WIDTH if sp.issparse(coordinates) else coordinates.shape[1]
    for rows in blocks(n, k * width):
        if sp.issparse(coordinates):
            difference = coordinates[np.repeat(starts[rows], k)]
            difference = difference - coordinates[indices[rows].ravel()]
            squares = np.asarray(difference.multiply(difference).sum(axis=1))
            lengths[rows] = squares.reshape(-1, k)
        else:
            difference = coordinates[indices[rows]]
            difference -= coordinates[starts[rows], None]
            lengths[rows] = np.einsum("ijk,ijk->ij", difference, difference)
    return lengths


def measure_heat_width(neighbours: Neighbours) -> float | None:
    """Return a quarter of the mean squared neighbour distance; None if all distances are 0."""
    lengths = neighbours.distances
    width = 0.25 * float(lengths.mean()) if lengths.size else 0.0
    return width if width > 0 else None


def weight_matrix(neighbours: Neighbours, graph_parameters: GraphParameters) -> sp.csr_array:
    """Return the symmetric (n, n) matrix of edge weights, ``max(W, W')``."""
    n, k = neighbours.indices.shape
    if graph_parameters.weights == "binary":
        values = np.ones(n * k)
    else:
        width = graph_parameters.heat_width or 1.0  # None only if every edge has length zero
        with np.errstate(over="ignore"):
            values = np.exp(-neighbours.distances.ravel() / (4.0 * width))
    rows = np.repeat(np.arange(n), k)
    weights = sp.csr_array((values, (rows, neighbours.indices.ravel())), shape=(n, n))
    return sp.csr_array(weights.maximum(weights.T))


def laplacian_of(weights: sp.csr_array) -> sp.csr_array:
    """Return the normalised Laplacian ``I - D^-1/2 W D^-1/2`` of a graph with degrees D.

    A vertex without any weight has a zero row and is not smoothed.
    """
    degrees = np.asarray(weights.sum(axis=1)).ravel()
    connected = degrees > np.finfo(np.float64).tiny
    scale = np.where(connected, 1.0 / np.sqrt(np.where(connected, degrees, 1.0)), 0.0)
    scaled = sp.diags_array(scale) @ weights @ sp.diags_array(scale)
    return sp.csr_array(sp.diags_array(connected.astype(np.float64)) - scaled)


def smoothness(
    neighbours: Neighbours, graph_parameters: GraphParameters, weight: float
) -> Smoothness:
    """Return the penalty of one batch from its neighbours."""
    return Smoothness(laplacian_of(weight_matrix(neighbours, graph_parameters)), weight)
