"""The example of `make demo`, in a shorter form."""

import importlib.util
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_stream.py"


@pytest.fixture
def example(monkeypatch):
    spec = importlib.util.spec_from_file_location("digits_stream", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    short = [module.OURS, module.WITHOUT, "SVC, refitted"]
    monkeypatch.setattr(module, "METHODS", {name: module.METHODS[name] for name in short})
    monkeypatch.setattr(module, "DRAWS", 2)
    monkeypatch.setattr(module, "FRACTIONS", (module.FRACTION,))
    return module


def test_the_demo_draws_its_figures(example, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["digits_stream.py", "--out", str(tmp_path / "demo")])
    example.main()
    for name in ("stream.png", "unlabeled.png"):
        assert (tmp_path / "demo" / name).stat().st_size > 10_000
    assert "SVC, refitted" in capsys.readouterr().out


def test_the_demo_runs_without_matplotlib(example, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["digits_stream.py", "--out", str(tmp_path / "demo")])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    example.main()
    shown = " ".join(capsys.readouterr().out.split())
    assert "SVC, refitted" in shown
    assert "pip install '.[plot]'" in shown
    assert not list((tmp_path / "demo").iterdir())


def test_times_do_not_include_compilation(example, monkeypatch):
    """The clock goes on only while a classifier learns its first batch in this process."""

    class Compiled:
        clock = 0.0

        def partial_fit(self, X, y, classes):
            Compiled.clock = 10.0

        def score(self, X, y):
            return 0.5

    monkeypatch.setattr(example, "METHODS", {"compiled": Compiled})
    monkeypatch.setattr(example.time, "perf_counter", lambda: Compiled.clock)
    monkeypatch.setattr(example, "DRAWS", 1)
    console = Console(file=io.StringIO(), width=100)
    example.compile_solver(console)
    example.watch(console)
    first, *_, last, _ = console.file.getvalue().splitlines()
    assert first == "compiling the solver, the first time about 10 seconds"
    assert [cell.strip() for cell in last.split("│")[-3:-1]] == ["50.0%", "0.00"]


def test_test_rows_are_not_learned(example):
    X, labels, X_test, y_test = example.digits(0, 0.05)
    assert (len(X), len(X_test)) == (1400, example.TEST_ROWS)
    assert 40 < np.sum(labels != example.UNLABELED) < 110
    learned = {row.tobytes() for row in X}
    assert sum(row.tobytes() in learned for row in X_test) <= 2  # a digit or two occur twice
    assert np.unique(y_test).size == 10
