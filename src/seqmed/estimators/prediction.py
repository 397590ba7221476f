"""Using what a stream has taught: scores, spread, labels, and what they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqmed import calibration, kernels
from seqmed.arrays import Array, Points
from seqmed.estimators.base import StreamClassifier
from seqmed.kernels import Expansion
from seqmed.kernels.bounded import check_overflow
from seqmed.margin_state import MarginState
from seqmed.posterior import Posterior
from seqmed.threads import threads_to_score


class PosteriorPredictor(StreamClassifier):
    """The half of a classifier that reads its posterior (`posterior_`) and changes nothing."""

    def _machine_scores(self, X: Any) -> tuple[MarginState, Array]:
        """Return the state, and the posterior mean of every machine at every row, (n, machines)."""
        model = self._snapshot()
        return model._stream, scored(model._stream.posterior, model._checked_points(X))

    def decision_function(self, X):
        """Return the class scores of every row, by the posterior mean.

        With ``bias="auto"`` the score of class c is ``class_scale_[c] * (f_c(x) + 1)``, f_c the
        posterior mean of its machine, bias included. Otherwise it is f_c(x) itself.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            One column per class if there are more than two. Of two classes the difference: the
            score of ``classes_[1]`` less that of ``classes_[0]``. Of one class its score. The
            column of a declared class without an example means nothing yet; `predict` skips it.
        """
        stream, scores = self._machine_scores(X)
        scores = stream.registry.decisions(scores)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def decision_std(self, X):
        """Return the posterior standard deviation of the score of every row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        spread : ndarray of shape (n_samples,)
            ``sqrt(k_t(x, x))``, shared by all classes, with a finite ``bias_variance`` added.
            Unlabeled data shrink it, labels do not: it is a spread, not a calibrated error bar.
        """
        model = self._snapshot()
        points, posterior = model._points(X), model._stream.posterior
        with (
            threads_to_score(points.shape[0], posterior.size),
            np.errstate(over="ignore", invalid="ignore"),
        ):
            spread = posterior.standard_deviation(points)
        check_overflow(spread)
        return spread

    def predict(self, X):
        """Return the label of every row, one of the classes of which an example has been seen.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        stream, scores = self._machine_scores(X)
        return stream.registry.classes[stream.registry.winners(scores)]

    def predict_proba(self, X):
        """Return the probability of every class at every row.

        A slope is learned from how scores that were given before their labels were learned turned
        out: the batches of `partial_fit` calibrate it, the first one excepted. Until labels have
        been scored, so also after `fit` alone, probabilities are cautious guesses.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`; rows sum to 1, and the largest of a row is that of the class
            `predict` returns. A class that was declared and has no example yet has one part in as
            many as there are labels and classes.
        """
        stream, scores = self._machine_scores(X)
        return calibration.probabilities(stream.calibration, stream.registry, scores)

    @property
    def class_scale_(self):
        """Factors of the class scores with ``bias="auto"``, (n_classes,); 0 for unseen classes."""
        registry = self._snapshot()._stream.registry
        if not registry.per_class:
            raise AttributeError("class_scale_ is only available with bias='auto'.")
        return registry.scale

    @property
    def support_vectors_(self):
        """Rows with a nonzero multiplier, (n_support, n_features), newest last."""
        return self._support().points.copy()

    @property
    def dual_coef_(self):
        """Signed multipliers of the support vectors, (n_machines, n_support)."""
        return self._support().coefficients.T.copy()

    @property
    def coef_(self):
        """Explicit weights of a linear kernel, (n_machines, n_features)."""
        posterior = self._fitted_posterior()
        if not posterior.covariance.kernel.compact:
            raise AttributeError("coef_ is only available with kernel='linear'.")
        return kernels.linear_weights(posterior.mean_parts[0])

    def _support(self) -> Expansion:
        posterior = self._fitted_posterior()
        if posterior.covariance.kernel.compact:
            raise AttributeError(
                "kernel='linear' keeps explicit weights instead of support vectors: use coef_."
            )
        return posterior.support

    def _fitted_posterior(self) -> Posterior:
        posterior = getattr(self, "posterior_", None)
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
