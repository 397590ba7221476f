"""`seqmed learn` and `seqmed predict` with --device, on torch's own CPU device."""

import csv

import numpy as np
import pytest

from seqmed.cli import terminal
from seqmed.graph import device
from seqmed.model_file import load, read
from seqmed.numeric.words import DeviceMemoryError
from tests.support.command import LEARN, make_rows, seqmed

HERE = ("--device", "torch:cpu")
COMMAND = (*LEARN, "20")
PREDICT = ("predict", "model", "rows.csv")
NEEDS_TORCH = pytest.mark.skipif(device.torch is None, reason="torch is not installed")


def predicted(folder, *options):
    """Return the labels and the numbers that `seqmed predict` writes."""
    result = seqmed(folder, *PREDICT, "-o", "found.csv", "--force", *options)
    assert result.code == 0, result.err
    with (folder / "found.csv").open() as file:
        header, *rows = csv.reader(file)
    first = header.index("label") + 1
    labels = [row[first - 1] for row in rows]
    return labels, np.array([row[first:] for row in rows], dtype=float)


@NEEDS_TORCH
@pytest.mark.parametrize("estimator", ["seqgraphmed", "graphpropagation"])
@pytest.mark.parametrize("sample", [(), ("--sample",)])
def test_a_model_learns_and_predicts_on_a_device(estimator, sample, tmp_path):
    found = {}
    for name, options in {"cpu": (), "device": HERE}.items():
        folder = tmp_path / name
        folder.mkdir()
        make_rows(folder / "rows.csv", 200)
        command = (*LEARN[:-3], *sample) if sample else COMMAND
        more = ("--experts", "none") if estimator == "seqgraphmed" else ()
        result = seqmed(folder, *command, "--estimator", estimator, *more, *options)
        assert result.code == 0, result.err
        found[name] = predicted(folder, *options)
        np.testing.assert_allclose(predicted(folder)[1], found[name][1], atol=1e-4)
        assert "device" not in str(read(folder / "model").parameters)
        assert load(folder / "model")[-1].device == "cpu"
    assert found["cpu"][0] == found["device"][0]
    np.testing.assert_allclose(found["cpu"][1], found["device"][1], atol=1e-4)
    # the next run may be on another device
    make_rows(folder / "rows.csv", 60, start=200)
    if not sample:
        assert seqmed(folder, *COMMAND).code == 0


@pytest.mark.parametrize("command", [COMMAND, PREDICT])
def test_a_device_that_is_not_there_is_refused_and_nothing_is_written(command, tmp_path):
    """Without torch the error names the extra, with torch what was found."""
    make_rows(tmp_path / "rows.csv", 60)
    assert seqmed(tmp_path, *COMMAND).code == 0
    before = (tmp_path / "model").read_bytes()
    result = seqmed(tmp_path, *command, "--device", "abacus")
    assert result.code == terminal.REFUSED
    assert "pip install 'seqmed[gpu]'" in " ".join(result.err.split())
    assert "Traceback" not in result.err
    assert (tmp_path / "model").read_bytes() == before


def test_a_device_for_a_model_without_a_graph_is_refused(tmp_path):
    make_rows(tmp_path / "rows.csv", 60)
    result = seqmed(tmp_path, *COMMAND, "--estimator", "seqmed", *HERE)
    assert result.code == terminal.REFUSED
    text = " ".join(result.err.split())
    assert "was given for a SeqMED" in text
    assert not (tmp_path / "model").exists()


def test_a_device_out_of_memory_is_reported_with_what_to_do(capsys):
    with pytest.raises(SystemExit) as ended, terminal.reported_errors(debug=False):
        raise DeviceMemoryError("the device ran out of memory: choose a smaller --graph-memory.")
    assert ended.value.code == terminal.REFUSED
    assert "--graph-memory" in capsys.readouterr().err
