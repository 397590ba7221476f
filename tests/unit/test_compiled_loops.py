"""Compiled loops can be upgraded in place."""

import pickle

import numpy as np
import pytest

from seqmed import SeqGraphMED, SeqMED
from seqmed.dual import loops as dual_loops
from seqmed.graph import loops as graph_loops
from seqmed.linalg import symmetry
from seqmed.mixture import evidence

MODULES = (dual_loops, graph_loops, symmetry, evidence)


@pytest.fixture(scope="module")
def signatures():
    """All signatures of the compiled loops that two batches need."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = rng.normal(size=(120, 4)) + 3.0 * np.eye(3, 4)[y]
    model = SeqGraphMED(SeqMED(budget=20), graph_memory=40, random_state=0)
    for part in (slice(0, 60), slice(60, 120)):
        model.partial_fit(X[part], np.where(rng.random(60) < 0.5, y[part], -1))
    symmetry.made_symmetric(np.arange(9.0).reshape(3, 3))
    functions = [value for module in MODULES for value in vars(module).values()]
    return {f.__name__: f.signatures for f in functions if hasattr(f, "signatures")}


def test_signatures_name_no_class_of_the_package(signatures):
    """Numba reads the classes of its cached signatures before it compares time stamps."""
    used = {name for name, found in signatures.items() if found}
    assert used >= {"take_steps", "insert_rows", "insert_queries", "measure", "drop"}
    for name, found in signatures.items():
        assert b"seqmed" not in pickle.dumps(found), name
