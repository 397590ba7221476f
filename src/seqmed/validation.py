"""What may come in, what may go out, and what is said if not."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from seqmed.arrays import Array, Points, canonical
from seqmed.learning import StepInfo

# Squares of features, and products of two such squares, must stay finite.
LARGEST_FEATURE = 1e70


def square_gram(gram: Points) -> Array:
    """Return a precomputed kernel matrix, dense and symmetric; refuse one that is not square."""
    gram = gram.toarray() if sp.issparse(gram) else gram
    if gram.shape[0] != gram.shape[1]:
        raise ValueError(
            f"kernel='precomputed' got X of shape {gram.shape}, expected a square matrix: pass the "
            "kernel values between all training rows."
        )
    return 0.5 * (gram + gram.T)


def check_magnitude(X: Points) -> None:
    """Refuse features whose squares would overflow."""
    sizes = np.abs(X.data if sp.issparse(X) else X)  # of the data alone: X itself stays untouched
    if sizes.max(initial=0.0) > LARGEST_FEATURE:
        place = int(sizes.argmax())
        if sp.issparse(X):
            row = int(np.searchsorted(X.indptr, place, side="right")) - 1
        else:
            row = place // X.shape[1]
        raise ValueError(
            f"row {row} of X holds a value of size {sizes.max():.3g}, expected at most "
            f"{LARGEST_FEATURE:g}: scale the features, for example with StandardScaler."
        )


def check_overflow(values: Array) -> None:
    """Refuse rows on which the kernel overflows."""
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values.reshape(values.shape[0], -1)).all(axis=1))[0])
        raise ValueError(
            f"the kernel overflows on row {row} of X, expected finite values: scale the features "
            "as in the batches the model has learned."
        )


def in_format(points: Points, sparse: bool) -> Points:
    """Return rows in the format the stream began with, CSR or dense."""
    if sparse:
        return canonical(sp.csr_array(points))
    return points.toarray() if sp.issparse(points) else points


def warn_unless_converged(info: StepInfo, tol: float) -> None:
    """Warn, with gap, tol and remedy, if a dual of the step was not solved to ``tol``."""
    worst = max(info.solved, key=lambda solution: solution.violation, default=None)
    if worst is None or worst.status == "converged":
        return
    remedy = {
        "max_iter": "raise max_iter, raise tol, or scale the features",
        "rounding": "raise tol or scale the features: no step in double precision helps",
    }[worst.status]
    warnings.warn(
        f"the dual was not solved to tol={tol:g}: KKT violation {worst.violation:.3g}, "
        f"duality gap {worst.gap:.3g} ({worst.relative_gap:.1e} of the objective) after "
        f"{worst.n_iter} iterations; {remedy}.",
        ConvergenceWarning,
        stacklevel=4,
    )
