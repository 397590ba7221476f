"""Kernels on rows of counts: tf-idf, and the Fisher kernel that tf-idf approximates."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.special import digamma
from sklearn.utils.extmath import safe_sparse_dot

from seqmed.arrays import Array, Points, canonical, row_norms_squared
from seqmed.kernels.protocol import Expansion, Pointwise


class OnCounts(Pointwise):
    """Defaults shared by kernels on counts."""

    on_vectors = False

    def accepts(self, points: Points) -> bool:
        values = points.data if sp.issparse(points) else points
        return super().accepts(points) and bool((values >= 0).all())


@dataclass(frozen=True, eq=False)
class TfIdf(OnCounts):
    """Cosine of ``log(1 + counts) * idf`` for rows of counts, dense or CSR.

    ``idf`` (p,) is ``log((1 + N) / (1 + df)) + 1`` over the N rows of the first batch. A row
    without any count has kernel value 0 with every row, itself included.
    """

    idf: Array | None = None

    def freeze(self, points: Points, weights: Array) -> TfIdf:
        check_counts(points, "tfidf")
        present = points.sign() if sp.issparse(points) else np.sign(points)
        frequency = np.asarray(weights @ present).ravel()
        return replace(self, idf=np.log((1.0 + weights.sum()) / (1.0 + frequency)) + 1.0)

    def coordinates(self, points: Points) -> Points:
        check_counts(points, "tfidf")
        if self.idf is None:
            raise ValueError(
                "TfIdf has no idf weights yet, expected weights of a first batch: call freeze "
                "first."
            )
        if sp.issparse(points):
            weighted = sp.csr_array(points.log1p() * self.idf)
        else:
            weighted = np.log1p(points) * self.idf
        lengths = np.sqrt(row_norms_squared(weighted))
        scale = 1.0 / np.where(lengths > 0, lengths, 1.0)
        if sp.issparse(weighted):
            return sp.csr_array(sp.diags_array(scale) @ weighted)
        return weighted * scale[:, None]

    def __call__(self, left: Points, right: Points) -> Array:
        first = self.coordinates(left)
        second = first if left is right else self.coordinates(right)
        return np.asarray(safe_sparse_dot(first, second.T, dense_output=True))

    def sums(self, points: Points, expansion: Expansion) -> Array:
        """Return the values of an expansion at every row, from explicit weights."""
        others = self.coordinates(expansion.points)
        weights = safe_sparse_dot(others.T, expansion.coefficients, dense_output=True)
        return np.asarray(safe_sparse_dot(self.coordinates(points), weights, dense_output=True))

    def diagonal(self, points: Points) -> Array:
        return row_norms_squared(self.coordinates(points))


# Minka's fixed-point iteration for the concentrations converges linearly; text needs a few dozen
# iterations.
DCM_ROUNDS = 100
DCM_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class DCMFisher(OnCounts):
    """Fisher kernel of the Dirichlet compound multinomial, which tf-idf approximates (Elkan, 2005).

    A row of counts ``x`` with total ``n`` has the Fisher score ``u_w = psi(s) - psi(s + n) +
    psi(x_w + c_w) - psi(c_w)``, where ``s = sum c`` and psi is the digamma function. The kernel is
    the inner product of Fisher scores. With ``information="diagonal"`` each term is divided by the
    mean of ``u_w^2`` over the first batch. The concentrations ``c`` (p,) are fitted to the first
    batch by maximum likelihood; a column without any count there gets half of the smallest fitted
    concentration.
    """

    information: str = "identity"
    concentrations: Array | None = None
    precisions: Array | None = None

    def freeze(self, points: Points, weights: Array) -> DCMFisher:
        check_counts(points, "dcm")
        if self.information not in ("identity", "diagonal"):
            raise ValueError(
                f"information={self.information!r}, expected 'identity' or 'diagonal': set one."
            )
        fitted = replace(
            self,
            concentrations=fit_concentrations(points, weights),
            precisions=np.ones(points.shape[1]),
        )
        if self.information == "identity":
            return fitted
        common, own, _ = fitted._scores(points)
        # mean of (common_x + own_xw)^2 over the batch, without computing the dense scores
        squares = (
            weights @ common**2
            + 2 * np.asarray((weights * common) @ own).ravel()
            + np.asarray(weights @ (own * own)).ravel()
        ) / weights.sum()
        return replace(fitted, precisions=1.0 / np.where(squares > 0, squares, 1.0))

    def _scores(self, points: Points) -> tuple[Array, sp.csr_array, Array]:
        """Return Fisher scores as an (n,) part common to all columns plus an (n, p) sparse part.

        The third array contains the precisions, (p,).
        """
        check_counts(points, "dcm")
        if self.concentrations is None or self.precisions is None:
            raise ValueError(
                "DCMFisher has no concentrations yet, expected those of a first batch: call freeze."
            )
        counts = canonical(sp.csr_array(points))
        total = float(self.concentrations.sum())
        lengths = np.asarray(counts.sum(axis=1)).ravel()
        common = digamma(total) - digamma(total + lengths)
        own = counts.copy()
        concentrations = self.concentrations[own.indices]
        own.data = digamma(own.data + concentrations) - digamma(concentrations)
        return common, own, self.precisions

    def __call__(self, left: Points, right: Points) -> Array:
        common, own, precisions = scores = self._scores(left)
        other_common, other_own, _ = scores if left is right else self._scores(right)
        sums, other_sums = own @ precisions, other_own @ precisions
        roots = np.sqrt(precisions)
        values = (own * roots) @ (other_own * roots).T
        values = np.asarray(values.todense() if sp.issparse(values) else values)
        values += precisions.sum() * np.outer(common, other_common)
        values += np.outer(common, other_sums) + np.outer(sums, other_common)
        return values

    def diagonal(self, points: Points) -> Array:
        common, own, precisions = self._scores(points)
        squares = (own * own) @ precisions
        return np.asarray(squares + precisions.sum() * common**2 + 2 * common * (own @ precisions))

    def coordinates(self, points: Points) -> None:
        return None


def fit_concentrations(points: Points, weights: Array) -> Array:
    """Return maximum likelihood DCM concentrations (p,) of weighted rows of counts."""
    counts = canonical(sp.csr_array(points)).copy()
    counts.eliminate_zeros()
    row_of = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    seen = np.bincount(counts.indices, minlength=counts.shape[1]) > 0
    if not seen.any():
        return np.ones(counts.shape[1])
    frequency = np.asarray(weights @ counts).ravel()
    concentrations = np.where(seen, frequency / frequency.sum() * seen.sum(), 0.0)
    for _ in range(DCM_ROUNDS):
        own = concentrations[counts.indices]
        terms = weights[row_of] * (digamma(counts.data + own) - digamma(own))
        gains = np.bincount(counts.indices, weights=terms, minlength=counts.shape[1])
        total = concentrations.sum()
        cost = float(weights @ (digamma(lengths + total) - digamma(total)))
        if cost <= 0:
            break
        updated = np.where(seen, concentrations * gains / cost, 0.0)
        change = np.abs(updated - concentrations).max() / updated.max()
        concentrations = updated
        if change <= DCM_TOLERANCE:
            break
    smallest = concentrations[seen].min()
    return np.where(seen, concentrations, 0.5 * smallest)


def check_counts(points: Points, name: str) -> None:
    """Refuse negative entries."""
    data = points.data if sp.issparse(points) else points
    if data.size and data.min() < 0:
        raise ValueError(
            f"kernel={name!r} got a negative entry ({data.min():.3g}), expected counts >= 0: "
            "pass raw counts, not scaled or centred features, or choose another kernel."
        )
