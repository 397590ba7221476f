"""Predictions from a posterior: scores, standard deviations, probabilities, fitted attributes."""

from __future__ import annotations

import numpy as np

from seqmed import calibration, kernels
from seqmed.arrays import Array, Points
from seqmed.classes import ClassRegistry
from seqmed.estimators.base import StreamClassifier
from seqmed.estimators.validation import MatrixLike
from seqmed.kernels import Expansion
from seqmed.kernels.bounded import check_overflow
from seqmed.margin_state import MarginState
from seqmed.posterior import Posterior
from seqmed.threads import threads_to_score


class PosteriorPredictor(StreamClassifier):
    """The methods of a classifier that read its posterior and change nothing."""

    posterior_: Posterior
    _state: MarginState

    def _machine_scores(self, X: MatrixLike) -> tuple[MarginState, Array]:
        """Return the state, and the posterior mean of every machine at every row, (n, machines)."""
        model = self._snapshot()
        return model._state, scored(model._state.posterior, model._checked_points(X))

    def _class_scores(self, X: MatrixLike) -> tuple[ClassRegistry, Array]:
        state, scores = self._machine_scores(X)
        return state.registry, state.registry.class_scores(scores)

    def _predictions(self, X: MatrixLike) -> tuple[ClassRegistry, Array, Array]:
        state, scores = self._machine_scores(X)
        probabilities = calibration.probabilities(state.calibration, state.registry, scores)
        return state.registry, state.registry.class_scores(scores), probabilities

    def decision_std(self, X: MatrixLike) -> Array:
        """Return the posterior standard deviation of the score of every row.

        Unlabeled rows shrink it and labels do not, so it is not a calibrated error bar.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        standard_deviations : ndarray of shape (n_samples,)
            ``sqrt(k_t(x, x))``, the same for all classes; k_t is the posterior covariance. A
            finite ``bias_variance`` is included.
        """
        model = self._snapshot()
        points, posterior = model._points(X), model._state.posterior
        with (
            threads_to_score(points.shape[0], posterior.size),
            np.errstate(over="ignore", invalid="ignore"),
        ):
            deviations = posterior.standard_deviation(points)
        check_overflow(deviations)
        return deviations

    def predict_proba(self, X: MatrixLike) -> Array:
        """Return the probability of every class at every row.

        `partial_fit` scores the labeled rows of every batch before it learns them. These scores
        calibrate the probabilities. The first batch, or `fit` alone, gives no such scores;
        probabilities then depend on a prior and are less reliable.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to classify.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`. Each row sums to 1, and its largest entry belongs to the
            class that `predict` returns. A declared class without a label has the probability
            ``1 / (n_labels + n_classes)``.
        """
        return self._predictions(X)[2]

    @property
    def class_scale_(self) -> Array:
        """Factors of the class scores with ``bias="auto"``, (n_classes,); 0 without a label."""
        registry = self._snapshot()._state.registry
        if not registry.per_class:
            raise AttributeError("class_scale_ is only available with bias='auto'.")
        return registry.scale

    @property
    def gamma_(self) -> float:
        """Coefficient of an "rbf" or "poly" kernel, resolved on the first batch."""
        kernel = self._fitted_posterior().covariance.kernel
        if not hasattr(kernel, "gamma"):
            raise AttributeError("gamma_ is only available with kernel='rbf' or kernel='poly'.")
        return float(kernel.gamma)

    @property
    def n_landmarks_(self) -> int:
        """Number of landmarks in use."""
        return self._fitted_posterior().landmarks.size

    @property
    def support_vectors_(self) -> Points:
        """Rows with a nonzero multiplier, (n_support, n_features), newest last."""
        return self._support().points.copy()

    @property
    def dual_coef_(self) -> Array:
        """Signed multipliers of the support vectors, (n_machines, n_support)."""
        return self._support().coefficients.T.copy()

    @property
    def coef_(self) -> Array:
        """Explicit weights of a linear kernel, (n_machines, n_features)."""
        posterior = self._fitted_posterior()
        if not posterior.covariance.kernel.compact:
            raise AttributeError("coef_ is only available with kernel='linear'.")
        return kernels.linear_weights(posterior.mean_parts[0])

    def _support(self) -> Expansion:
        posterior = self._fitted_posterior()
        if posterior.covariance.kernel.compact:
            raise AttributeError(
                "support vectors are not available with kernel='linear', which keeps explicit "
                "weights: use coef_."
            )
        return posterior.support

    def _fitted_posterior(self) -> Posterior:
        posterior: Posterior | None = getattr(self, "posterior_", None)
        if posterior is None:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet: call fit first.")
        return posterior


def scored(posterior: Posterior, points: Points) -> Array:
    """Return the posterior mean of every machine at every row, (n, machines)."""
    threads = threads_to_score(points.shape[0], posterior.size)
    with threads, np.errstate(over="ignore", invalid="ignore"):
        scores = posterior.mean(points)
    check_overflow(scores)
    return scores
