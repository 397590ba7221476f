"""What the README prints must run as printed."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import seqmed

ROOT = Path(__file__).parents[2]
# A command, and what it says up to the next one.
SHOWN = re.compile(r"^\$ seqmed (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_the_example_runs_as_printed(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 1
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", blocks[0]],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    accuracy, weight = map(float, result.stdout.split())
    assert accuracy > 0.9
    assert 0 < weight <= 1


def test_tables_are_those_of_the_results():
    """Numbers of README.md and docs/measurements.md come from benchmarks/results."""
    result = subprocess.run(
        [sys.executable, "comparison_page.py", "--check"],
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


def test_links_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    for page in pages:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / target).exists(), (page, target)


def test_the_worked_example_of_the_command_line_runs(tmp_path):
    """Its programs and commands, in order; where the page shows a refusal, there is one."""
    page = (ROOT / "docs" / "command-line" / "example.md").read_text()
    accuracies, losses = [], []
    for language, block in re.findall(r"```(python|text)\n(.*?)```", page, re.DOTALL):
        if language == "python":
            subprocess.run([sys.executable, "-c", block], cwd=tmp_path, check=True, timeout=120)
            continue
        for command, shown in SHOWN.findall(block):
            result = seqmed(tmp_path, *shlex.split(command.split(" | ")[0]))
            refused = "--on-error skip." in shown.splitlines()[-1]
            assert (result.code == 2) == refused, (command, result)
            for line in (*result.out.splitlines(), *shown.splitlines()):
                if line.startswith("accuracy  "):
                    accuracies.append(float(line.split()[1]))
                if line.startswith("log loss  "):
                    losses.append(float(line.split()[2]))
    before, shown_before, after, shown_after = accuracies
    assert (before, after) == pytest.approx((shown_before, shown_after), abs=2.0)
    assert after > before
    assert losses[2] < losses[0]  # found after and before, each followed by what the page shows
