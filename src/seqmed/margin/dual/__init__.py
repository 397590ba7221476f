"""The dual problem of one update and its solver."""

from __future__ import annotations

from typing import Any

from seqmed.margin.dual.certificate import DualSolution, with_bias
from seqmed.margin.dual.problem import Block, ComputedRows, DualProblem, attainable_sum, feasible
from seqmed.numeric.arrays import Mask


def solve(problem: DualProblem, **options: Any) -> DualSolution:
    """Solve with the compiled pairwise solver; see `seqmed.margin.dual.smo.solve_pairwise`."""
    from seqmed.margin.dual import (
        smo,  # numba is imported by the first solve, not by `import seqmed`
    )

    return smo.solve_pairwise(problem, **options)


def solve_from(problem: DualProblem, rows: Mask, block: Block, **options: Any) -> DualSolution:
    """Solve, starting with some points; see `seqmed.margin.dual.screening.solve_screened`."""
    from seqmed.margin.dual import screening

    return screening.solve_screened(problem, rows, block, **options)


__all__ = [
    "Block",
    "ComputedRows",
    "DualProblem",
    "DualSolution",
    "attainable_sum",
    "feasible",
    "solve",
    "solve_from",
    "with_bias",
]
