"""Settings and data shared by all tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

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
