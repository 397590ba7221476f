"""`python -m paper` as a user runs it, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def paper(*arguments, **environment):
    """Run the command with an environment in which no data can be found unless given."""
    inherited = {name: value for name, value in os.environ.items() if name != "SEQMED_DATA"}
    return subprocess.run(
        [sys.executable, "-m", "paper", *map(str, arguments)],
        cwd=ROOT,
        env={**inherited, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def offline(tmp_path):
    """An environment whose cache is empty and whose network leads nowhere."""
    nowhere = "http://127.0.0.1:9"
    return {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "http_proxy": nowhere, "https_proxy": nowhere, "HTTPS_PROXY": nowhere,
    }  # fmt: skip


def test_help_names_the_options():
    result = paper("--help")
    assert result.returncode == 0
    for option in ("--trials", "--jobs", "--out", "--quick", "--data-dir", "--exact"):
        assert option in result.stdout


@pytest.mark.exhaustive
def test_figure_one_leaves_pictures_numbers_and_a_report(tmp_path):
    arguments = (
        "figure1", "--quick", "--trials", 1, "--jobs", 2, "--out", tmp_path / "out",
    )  # fmt: skip
    result = paper(*arguments)
    assert result.returncode == 0, result.stderr
    assert "SeqMED" in result.stdout
    for name in ("figure1.png", "figure1.svg", "results.json", "RESULTS.md"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    numbers = json.loads((tmp_path / "out" / "results.json").read_text())
    figure = numbers["figures"]["figure1"]
    assert len(figure["accuracies"]["seqmed"][0]) == 30
    assert figure["chosen"]["seqmed"]["C"] > 1
    assert {"numpy", "python", "seqmed"} <= set(numbers["versions"])

    again = paper(*arguments)
    assert again.returncode == 0
    repeated = json.loads((tmp_path / "out" / "results.json").read_text())
    assert repeated["figures"]["figure1"]["accuracies"] == figure["accuracies"]


def test_without_data_figure_three_is_refused_by_name(offline, tmp_path):
    result = paper("figure3", "--quick", "--out", tmp_path, **offline)
    assert result.returncode == 1
    assert "figure3 not run: no data" in result.stdout
    assert "--data-dir" in result.stdout
    assert "isolet.zip" in result.stdout
    reason = result.stdout.split("UCI: ")[1].split(").")[0]
    assert "refused" in reason, reason  # by the network, not because of an invalid call
    assert "Traceback" not in result.stdout + result.stderr


def test_an_unknown_figure_is_refused():
    result = paper("figure4")
    assert result.returncode == 2
    assert "figure4" in result.stderr
