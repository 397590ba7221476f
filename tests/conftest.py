"""Settings and data shared by all tests."""

from __future__ import annotations

import os

# The matrices of these tests are small: more threads would only wait for each other. Set before
# numpy and scikit-learn are loaded, or it has no effect.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# Failing assertions of shared helpers show their values, as those of tests do.
pytest.register_assert_rewrite("tests.support")

# It loads all that the command needs, for a process that forks others, when it is imported.
collect_ignore = ["support/command_imports.py"]

# The same examples on every machine and in every run: no time limit, no memory of old failures.
settings.register_profile(
    "deterministic",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("deterministic")


@pytest.fixture(autouse=True, scope="session")
def small_forests():
    """Default experts with few trees: most tests are not about them, and fit them many times."""
    from seqmed.mixture import experts

    experts.N_TREES = 8


@pytest.fixture
def generator():
    """A seeded random generator, fresh for every test."""
    return np.random.default_rng(20180415)


@pytest.fixture
def blobs(generator):
    """Two overlapping clouds: 60 rows of 3 features, labels 0 and 1."""
    labels = np.arange(60) % 2
    points = generator.normal(size=(60, 3)) + 1.5 * labels[:, None]
    return points, labels


@pytest.fixture
def three_blobs(generator):
    """Three overlapping clouds: 90 rows of 3 features, labels 0, 1 and 2."""
    labels = np.arange(90) % 3
    points = generator.normal(size=(90, 3)) + 2.0 * np.eye(3)[labels]
    return points, labels
