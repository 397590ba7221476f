"""The dual problem of one update and its solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqmed.arrays import Array, Indices, Mask
from seqmed.dual.problem import DualProblem, DualSolution, attainable_sum, feasible, with_bias


def solve(
    problem: DualProblem,
    *,
    tol: float = 1e-3,
    max_iter: int = -1,
    start: Array | None = None,
    previous_bias: float | None = None,
) -> DualSolution:
    """Solve with the compiled pairwise solver; see `seqmed.dual.smo.solve`."""
    from seqmed.dual import smo  # numba is imported by the first solve, not by `import seqmed`

    return smo.solve(problem, tol=tol, max_iter=max_iter, start=start, previous_bias=previous_bias)


def solve_from(
    problem: DualProblem, rows: Mask, block: Callable[[Mask], tuple[Indices, Any]], **options: Any
) -> DualSolution:
    """Solve with screening of the points; see `seqmed.dual.screening.solve_from`."""
    from seqmed.dual import screening

    return screening.solve_from(problem, rows, block, **options)


__all__ = [
    "DualProblem",
    "DualSolution",
    "attainable_sum",
    "feasible",
    "solve",
    "solve_from",
    "with_bias",
]
