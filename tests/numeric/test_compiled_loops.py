"""Compiled loops can be upgraded in place, and need no place for a cache."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import seqmed
from seqmed import SeqGraphMED, SeqMED
from seqmed.graph import conjugate_gradients, neighbour_search
from seqmed.margin.dual import steps as dual_loops
from seqmed.mixture import evidence

MODULES = (dual_loops, neighbour_search, conjugate_gradients, evidence)


@pytest.fixture(scope="module")
def signatures():
    """All signatures of the compiled loops that two batches need."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = rng.normal(size=(120, 4)) + 3.0 * np.eye(3, 4)[y]
    model = SeqGraphMED(SeqMED(budget=20), graph_memory=40, random_state=0)
    for part in (slice(0, 60), slice(60, 120)):
        model.partial_fit(X[part], np.where(rng.random(60) < 0.5, y[part], -1))
    functions = [value for module in MODULES for value in vars(module).values()]
    return {f.__name__: f.signatures for f in functions if hasattr(f, "signatures")}


def test_signatures_name_no_class_of_the_package(signatures):
    """Numba reads the classes of its cached signatures before it compares time stamps."""
    used = {name for name, found in signatures.items() if found}
    assert used >= {"take_steps", "insert_pairs", "measure", "drop"}
    for name, found in signatures.items():
        assert b"seqmed" not in pickle.dumps(found), name


IMPORTS = "\n".join(f"import {module.__name__}" for module in MODULES)
CALL = """
import numpy as np
direction = np.ones((3, 8), dtype=np.float32)
update = seqmed.graph.conjugate_gradients.update_direction
update(direction, direction.copy(), 2 * direction, np.ones(8, dtype=np.float32))
assert (direction == 3).all()
"""


@pytest.fixture
def installed(tmp_path):
    """Runs code on a copy of the package; the folder of its cache is `tmp_path / "cache"`.

    Files stand where other folders for a cache would be made: that stops a superuser, too.
    """
    root = tmp_path / "site-packages" / "seqmed"
    shutil.copytree(seqmed.__path__[0], root, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [root, *filter(Path.is_dir, root.rglob("*"))]:
        (folder / "__pycache__").touch()
    (tmp_path / "home").touch()
    home = {name: str(tmp_path / "home") for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA")}
    environment = {
        **os.environ, **home, "PYTHONPATH": str(root.parent), "NUMBA_DISABLE_JIT": "0",
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
    }  # fmt: skip

    def run(code):
        code += f"\nassert seqmed.__path__ == [{str(root)!r}]"
        result = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""

    return run


def test_without_a_place_for_the_cache_functions_are_compiled_in_every_process(tmp_path, installed):
    (tmp_path / "cache").touch()
    installed(IMPORTS + CALL)


def test_with_a_place_for_the_cache_functions_are_compiled_once(tmp_path, installed):
    installed(IMPORTS + CALL)
    first = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nb?")}
    assert len(first) == 2  # an index and the code
    installed(IMPORTS + CALL)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nb?")} == first


def test_a_cache_that_can_no_longer_be_read_or_written_is_left_alone(tmp_path, installed):
    lost = f"""
import shutil
from pathlib import Path
shutil.rmtree({str(tmp_path / "cache")!r})
Path({str(tmp_path / "cache")!r}).touch()
"""
    installed(IMPORTS + lost + CALL)
