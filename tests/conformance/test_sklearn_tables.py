"""scikit-learn's own checks of the table encoder, and of its pipeline on arrays."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from seqmed import SeqMED, StreamPipeline, TableEncoder, make_stream_pipeline

ESTIMATORS = [
    TableEncoder(),
    TableEncoder(scale=False),
    make_stream_pipeline(SeqMED(kernel="auto", tol=1e-10)),
]


def expected_failed_checks(estimator):
    """The checks that cannot pass, for the estimators that cannot pass them."""
    if not isinstance(estimator, StreamPipeline):
        return {}
    steps = "learning replaces the steps by fitted copies, as the documentation says"
    return {
        "check_estimators_overwrite_params": steps,
        "check_dont_overwrite_parameters": steps,
        "check_dtype_object": "a bad cell is a TableError that names it, not a TypeError",
        "check_estimators_nan_inf": "missing cells are imputed",
    }


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:columns that are not used")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failed_checks)
def test_scikit_learn_check_of_tables(estimator, check):
    check(estimator)
