"""Tables of README.md and docs/ show the committed results, and importing is light."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


PROGRAMS = [
    "comparison_page.py",
    "gpu_page.py",
    "paper_page.py",
    "streams_page.py",
    "tables_page.py",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_tables_are_those_of_the_results(program):
    """Numbers of README.md and of the pages in docs come from committed results."""
    result = subprocess.run(
        [sys.executable, program, "--check"],
        cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def test_importing_is_light():
    """What solves, plots, saves, reads files and runs commands is imported when it is used."""
    script = (
        "import sys; from seqmed import *; "
        "heavy = {'numba', 'matplotlib', 'typer', 'seqmed.streams', 'safetensors'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]"
