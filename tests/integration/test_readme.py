"""What the README prints must run as printed."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_runs_as_printed(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 1
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", blocks[0]],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    accuracy, gap = map(float, result.stdout.split())
    assert accuracy > 0.7
    assert 0 <= gap < 0.1


def test_importing_is_light():
    """numba, matplotlib and safetensors are for those who solve, plot, and save."""
    script = (
        "import sys, seqmed; heavy = {'numba', 'matplotlib', 'typer', 'safetensors'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]"


def test_links_lead_somewhere():
    for page in ("README.md", "CONTRIBUTING.md", "docs/guide.md", "docs/model-file.md"):
        text = (ROOT / page).read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert ((ROOT / page).parent / target).exists(), (page, target)
