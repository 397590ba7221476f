"""The graph prior and its posterior mean: ``U = (D - alpha W)^{-1} Y``, by conjugate gradients.

The matrix A has the entries ``exp(-4 d_ij^2 / d_i^2)`` for the k nearest neighbours j of row i,
where d_i is the distance to the farthest of them. The edge weights are ``W = (A + A') / 2``, and D
is the diagonal matrix of vertex degrees. With ``S = D^{-1/2} W D^{-1/2}`` and ``Z = D^{1/2} U`` the
system is ``(I - alpha S) Z = D^{-1/2} Y``, whose eigenvalues lie between 1 - alpha and 1 + alpha.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmed.graph.kept_rows import Lists, edge_weights
from seqmed.numeric.arrays import Mask, Single, Slots
from seqmed.numeric.execution import compiled

# Relative residual at which a column is solved, and the largest number of iterations. The condition
# number (1 + alpha) / (1 - alpha) is small enough to need fewer up to alpha = .9999.
TOLERANCE, LARGEST_NUMBER_OF_STEPS = 1e-2, 500
# Residual at which a row is solved, as a share of the sum of its values. A row that is far from all
# labels has small values and no part in the residual of a column. This share keeps the class scores
# of all rows within about .05 of the exact ones.
ROW_TOLERANCE = np.float32(2e-3)
# If at most this share of the rows is left, they are solved alone: conjugate gradients would need a
# quarter more steps, or twice as many. Largest number of sweeps through these rows.
LAST_SHARE, SWEEPS = 0.01, 50
# Number of columns that are multiplied at once; other numbers are slower.
VECTOR = 8
# Residuals that are never too large: far from labels, values may underflow.
SMALLEST_RESIDUAL = np.float32(1e-30)


class Graph(NamedTuple):
    """A weighted graph given by neighbour lists.

    Attributes
    ----------
    slots : (n, k) the neighbours of every row.
    weights : (n, k) float32 edge weights; 0 for no edge.
    roots : (n, 1) float32, ``D^{-1/2}``. A row without an edge has degree 1, so that its solution
        is its own label.
    """

    slots: Slots
    weights: Single
    roots: Single


def make_graph(lists: Lists, n_neighbors: int) -> Graph:
    """Return the graph of the nearest ``n_neighbors`` entries of every list."""
    weights = edge_weights(lists.distances, lists.sizes, n_neighbors)
    slots = lists.slots[:, : weights.shape[1]]
    degrees = np.zeros((weights.shape[0], 1), dtype=np.float32)
    multiply(slots, weights, np.ones_like(degrees), degrees)
    degrees *= np.float32(0.5)
    degrees[degrees == 0] = 1.0
    return Graph(slots, weights, np.reciprocal(np.sqrt(degrees)))


def solve_system(
    graph: Graph, labels: Single, alpha: float, start: Single
) -> tuple[Single, int, float]:
    """Solve ``(I - alpha S) Z = D^{-1/2} Y`` for every column of ``labels``.

    Parameters
    ----------
    graph : graph with n vertices.
    labels : (n, K) float32, Y.
    alpha : in [0, 1).
    start : (n, K) float32, the starting point.

    Returns
    -------
    values : (n, K) float32, Z.
    n_iter : steps of conjugate gradients.
    residual : largest relative residual of a column. Rows are solved as well, see `ROW_TOLERANCE`.
    """
    slots, roots = graph.slots, graph.roots
    weights = np.float32(-0.5 * alpha) * roots * graph.weights * roots[slots, 0]  # of -alpha S
    target, values = padded(roots * labels), padded(start)
    # without a path to a label the solution is 0, and no residual is a small share of it
    values[~connected_rows(slots, graph.weights, labels.any(axis=1))] = 0.0
    limits = np.float32(TOLERANCE), ROW_TOLERANCE, LARGEST_NUMBER_OF_STEPS
    steps, square = conjugate_gradients(slots, weights, target, values, limits)
    largest = float(np.sqrt(quotients(square, column_products(target, target)).max(initial=0.0)))
    return values[:, : labels.shape[1]], steps, largest


def padded(values: Single) -> Single:
    """Return a copy padded with columns of zeros to a multiple of `VECTOR` columns."""
    n, columns = values.shape
    result = np.zeros((n, -(-columns // VECTOR) * VECTOR), dtype=np.float32)
    result[:, :columns] = values
    return result


@compiled(nogil=True, fastmath={"contract"})
def conjugate_gradients(
    slots: Slots,
    weights: Single,
    target: Single,
    values: Single,
    limits: tuple[np.float32, np.float32, int],
) -> tuple[int, Single]:
    """Solve ``(I + A + A') values = target``, for a matrix A given by lists; ``values`` in place.

    Parameters
    ----------
    slots, weights : (n, k) the lists.
    target, values : (n, K) float32; ``values`` is the starting point.
    limits : relative residuals of a column and of a row, and the largest number of steps.

    Returns
    -------
    steps : number of steps.
    square : (K,) squared residual norms.
    """
    tolerance, share, most = limits
    image = values.copy()
    multiply(slots, weights, values, image)
    residual = target - image
    direction = residual.copy()
    image[:] = direction
    square, goal = column_products(residual, residual), column_products(target, target)
    goal *= tolerance * tolerance
    steps = 0
    while steps < most:
        if (square <= goal).all() and few_unsolved(values, residual, share):
            solved = solve_rows(slots, weights, values, residual, share)
            square = column_products(residual, residual)
            if solved and (square <= goal).all():
                break
            direction[:] = residual
            image[:] = direction
        multiply(slots, weights, direction, image)
        step = quotients(square, column_products(direction, image))
        new = take_step(values, residual, direction, image, step)
        update_direction(direction, image, residual, quotients(new, square))
        square = new
        steps += 1
    return steps, square


@compiled(nogil=True, fastmath={"contract"})
def column_products(left: Single, right: Single) -> Single:
    """Return the inner product of each column of ``left`` with that of ``right``, (K,)."""
    columns = np.uint64(left.shape[1])
    products = np.zeros(columns, dtype=np.float32)
    for row in range(np.uint64(left.shape[0])):
        for column in range(columns):
            products[column] += left[row, column] * right[row, column]
    return products


@compiled(nogil=True)
def quotients(numerators: Single, denominators: Single) -> Single:
    """Return the quotients (K,), 0 for a denominator that is not positive."""
    found = np.zeros_like(numerators)
    for column in range(found.size):
        if denominators[column] > 0:
            found[column] = numerators[column] / denominators[column]
    return found


@compiled(nogil=True, fastmath={"contract"})
def multiply(slots: Slots, weights: Single, values: Single, out: Single) -> None:
    """Add ``(A + A') values`` to ``out``, both (n, K), for a matrix A given by lists.

    ``weights`` (n, k) is 0 where a list has fewer than k entries. Indices are unsigned, so that the
    loops over columns are vectorised. A multiple of 8 columns is fastest.
    """
    columns = np.uint64(values.shape[1])
    for row in range(np.uint64(weights.shape[0])):
        for entry in range(np.uint64(weights.shape[1])):
            weight = weights[row, entry]
            if weight != 0:
                other = np.uint64(slots[row, entry])
                for column in range(columns):
                    out[row, column] += weight * values[other, column]
                for column in range(columns):
                    out[other, column] += weight * values[row, column]


@compiled(nogil=True, fastmath={"contract"})
def take_step(
    values: Single, residual: Single, direction: Single, image: Single, step: Single
) -> Single:
    """Take a step (K,) of conjugate gradients in place; return the squared residual norms (K,).

    ``image`` is the product of the matrix and ``direction``; all are (n, K). This function and
    `update_direction` are two to three times as fast as numpy.
    """
    columns = np.uint64(values.shape[1])
    squares = np.zeros(columns, dtype=np.float32)
    for row in range(np.uint64(values.shape[0])):
        for column in range(columns):
            values[row, column] += step[column] * direction[row, column]
        for column in range(columns):
            residual[row, column] -= step[column] * image[row, column]
        for column in range(columns):
            squares[column] += residual[row, column] * residual[row, column]
    return squares


@compiled(nogil=True)
def connected_rows(slots: Slots, weights: Single, rows: Mask) -> Mask:
    """Return a mask (n,) of the rows that have a path to one of ``rows``, a mask (n,).

    Components are trees of parents, each with its first row as the root.
    """
    n = rows.size
    parents = np.arange(n)
    for row in range(n):
        for entry in range(slots.shape[1]):
            one, other = row, int(slots[row, entry])
            if weights[row, entry] != 0 and parents[one] != parents[other]:
                while parents[one] != one:
                    parents[one] = parents[parents[one]]
                    one = parents[one]
                while parents[other] != other:
                    parents[other] = parents[parents[other]]
                    other = parents[other]
                parents[max(one, other)] = min(one, other)
    found = np.zeros(n, dtype=np.bool_)
    for row in range(n):  # parents come before their children
        parents[row] = parents[parents[row]]
        found[parents[row]] |= rows[row]
    return found[parents]


@compiled(nogil=True, fastmath={"contract"})
def is_unsolved(values: Single, residual: Single, row: int, share: np.float32) -> bool:
    """Whether the residual of a row, (n, K), is larger than a share of its values, (n, K)."""
    total = largest = np.float32(0.0)
    for column in range(np.uint64(values.shape[1])):
        total += abs(values[row, column])
        largest = max(largest, abs(residual[row, column]))
    return bool(largest > share * total + SMALLEST_RESIDUAL)


@compiled(nogil=True)
def few_unsolved(values: Single, residual: Single, share: np.float32) -> bool:
    """Whether at most `LAST_SHARE` of the rows are not solved; arguments as in `solve_rows`."""
    left = LAST_SHARE * values.shape[0]
    for row in range(np.uint64(values.shape[0])):
        if is_unsolved(values, residual, row, share):
            left -= 1.0
            if left < 0.0:
                return False
    return True


@compiled(nogil=True, fastmath={"contract"})
def solve_rows(
    slots: Slots, weights: Single, values: Single, residual: Single, share: np.float32
) -> bool:
    """Solve the rows whose residual is larger than a share of their values; whether all are solved.

    A sweep adds the residuals of these rows to their values, which is a step of Jacobi's method.
    ``values`` and ``residual`` are (n, K), and are changed in place.
    """
    n, columns = np.uint64(values.shape[0]), np.uint64(values.shape[1])
    moved = np.zeros(n, dtype=np.bool_)
    change = np.zeros_like(values)
    for _ in range(SWEEPS):
        done = True
        for row in range(n):
            moved[row] = is_unsolved(values, residual, row, share)
            if moved[row]:
                done = False
                for column in range(columns):
                    change[row, column] = residual[row, column]
                    values[row, column] += change[row, column]
                    residual[row, column] = np.float32(0.0)
        if done:
            return True
        for row in range(n):
            for entry in range(np.uint64(weights.shape[1])):
                weight = weights[row, entry]
                if weight != 0:
                    other = np.uint64(slots[row, entry])
                    if moved[other]:
                        for column in range(columns):
                            residual[row, column] -= weight * change[other, column]
                    if moved[row]:
                        for column in range(columns):
                            residual[other, column] -= weight * change[row, column]
    return False


@compiled(nogil=True, fastmath={"contract"})
def update_direction(direction: Single, image: Single, residual: Single, ratio: Single) -> None:
    """Replace a direction (n, K) by the residual plus ``ratio`` (K,) times itself; also copy it."""
    columns = np.uint64(direction.shape[1])
    for row in range(np.uint64(direction.shape[0])):
        for column in range(columns):
            direction[row, column] = residual[row, column] + ratio[column] * direction[row, column]
        for column in range(columns):
            image[row, column] = direction[row, column]
