"""What the commands say of a change of the concept, and of the new start that follows."""

import json

import numpy as np
import pytest

import seqmed as library
from seqmed.cli import checkpoint
from seqmed.cli.checkpoint import KEPT, ON_TRIAL, REVOKED
from tests.support.command import log_lines, seqmed
from tests.support.state import state_bits

# Rows of a batch, all labeled; the classes swap after `SWAP` batches, and a change is then found in
# the next one.
SIZE, SWAP, N_BATCHES = 20, 4, 11
LEARN = (
    "learn", "model", "rows.csv", "--label", "kind", "--first-batch", SIZE, "--batch-size", SIZE,
    "--no-scale", "--log", "log",
)  # fmt: skip


def write_rows(path, batches=N_BATCHES, back=N_BATCHES):
    """Write batches of two clusters whose classes swap, and swap back at the batch ``back``."""
    rng = np.random.default_rng(0)
    lines = ["a,b,kind"]
    for number in range(batches):
        side = rng.integers(2, size=SIZE)
        points = rng.normal(size=(SIZE, 2)) + 2.0 * (2 * side - 1)[:, None]
        classes = 1 - side if SWAP <= number < back else side
        for point, kind in zip(points.round(5), classes, strict=True):
            lines.append(f"{point[0]},{point[1]},class {kind}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Folders with models whose new start was kept, revoked, or is on trial; what learn said."""
    found = {}
    streams = {KEPT: {}, REVOKED: {"back": SWAP + 1}, ON_TRIAL: {"batches": SWAP + 2}}
    for name, stream in streams.items():
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        write_rows(folder / "rows.csv", **stream)
        found[name] = folder, seqmed(folder, *LEARN, "--plot", "log.png")
        assert found[name][1].code == 0, found[name][1].err
    return found


def lines_of(result):
    """Return the lines about changes that a command has said."""
    lines = [line for line in result.err.splitlines() if not line.startswith("learning: ")]
    assert not any("warning" in line for line in lines), "the warning of Python is not shown too"
    return lines


@pytest.mark.parametrize("name", [KEPT, REVOKED])
def test_a_change_and_the_end_of_the_trial_are_one_line_each(learned, name):
    folder, result = learned[name]
    first, last = lines_of(result)
    model = library.load(folder / "model")[-1]
    change = json.loads(seqmed(folder, "inspect", "model", "--json").out)["change"]
    before, after = (100 * change[f"error_{when}"] for when in ("before", "after"))
    assert first == (
        f"batch {SWAP + 1}: the concept may have changed: the error rate rose from {before:.1f} % "
        f"to {after:.1f} % in the last {SIZE} labels. A new start from these labels learns beside "
        "the model."
    )
    assert f"labels after the change of the concept, the new start was {name}: " in last
    assert (change["batch"], change["new_start"], change["weight"]) == (SWAP + 1, name, None)
    assert change["labels_since"] == SIZE * (N_BATCHES - SWAP)
    assert model._state.has_revoked == (name == REVOKED)


@pytest.mark.parametrize("name", [KEPT, REVOKED])
def test_the_log_has_the_change_and_the_end_of_the_trial(learned, name):
    """The lines between them are those of the trial; the others have neither."""
    log = log_lines(learned[name][0] / "log")
    marked = [line for line in log if "labels_since_change" in line]
    assert [line["batch"] for line in marked] == [SWAP + 1]
    assert marked[0]["labels_since_change"] == SIZE
    assert marked[0]["error_after"] > marked[0]["error_before"] + 0.5
    states = [line.get("new_start") for line in log]
    end = states.index(name)
    assert states == [None] * SWAP + [ON_TRIAL] * (end - SWAP) + [name] + [None] * (10 - end)
    for line, state in zip(log, states, strict=True):
        names = line["expert_weights"]
        assert any(each.startswith("new ") for each in names) == (state == ON_TRIAL)
        assert sum(names.values()) == pytest.approx(1.0)


def test_the_last_line_has_the_accuracy_since_the_change(learned):
    """The first accuracy is that of all predictions, most of them by the model before it."""
    folder, result = learned[KEPT]
    summary, last = result.out.splitlines()
    log = log_lines(folder / "log")
    assert f"prequential accuracy {100 * log[-1]['accuracy_so_far']:.1f} % (" in summary
    since = log[SWAP + 1 :]
    scored, correct = (sum(line[name] for line in since) for name in ("scored", "correct"))
    assert last.startswith(
        f"A change of the concept was found in batch {SWAP + 1}, and the new start was kept: "
        f"prequential accuracy since then {100 * correct / scored:.1f} % ("
    )
    assert last.endswith(f") of {scored} labeled rows.")


def test_a_revoked_start_changes_no_accuracy(learned):
    assert len(learned[REVOKED][1].out.splitlines()) == 1


def test_a_change_in_the_last_batch(tmp_path):
    """No prediction is that of the new start."""
    write_rows(tmp_path / "rows.csv", SWAP + 1)
    result = seqmed(tmp_path, *LEARN)
    assert result.out.splitlines()[1] == (
        f"A change of the concept was found in batch {SWAP + 1}, and the new start is on trial: "
        "this accuracy is that of predictions before it."
    )
    quiet = seqmed(tmp_path, *LEARN, "--again", "--quiet")
    assert (quiet.out, quiet.err) == ("", "")


def test_inspect_shows_a_trial(learned):
    folder, result = learned[ON_TRIAL]
    assert "and the new start is on trial: prequential accuracy since then" in result.out
    found = json.loads(seqmed(folder, "inspect", "model", "--json").out)
    model = library.load(folder / "model")[-1]
    assert found["change"]["new_start"] == ON_TRIAL
    assert found["change"]["weight"] == model._state.trial.weight
    assert found["experts"] == model.expert_weights_
    assert found["core"] == model.core_weights_
    shown = seqmed(folder, "inspect", "model", columns=200).out
    weight = found["change"]["weight"]
    assert f"{2 * SIZE} labels since, error rate" in shown
    assert f"new start on trial with weight {weight:.3g}\n" in shown
    assert f"new graph {model.expert_weights_['new graph']:.3g}" in shown


def test_a_trial_goes_on_in_the_next_run(learned, tmp_path):
    """The model, its change and the log are those of a single run."""
    write_rows(tmp_path / "rows.csv", SWAP + 2)
    assert seqmed(tmp_path, *LEARN).code == 0
    write_rows(tmp_path / "rows.csv")
    result = seqmed(tmp_path, *LEARN)
    assert result.code == 0, result.err
    folder, single = learned[KEPT]
    assert lines_of(result) == lines_of(single)[1:]
    assert result.out == single.out
    (one, here), (other, there) = (
        checkpoint.load_checkpoint(each / "model") for each in (tmp_path, folder)
    )
    assert state_bits(one) == state_bits(other)
    assert here.change == there.change
    for line, same in zip(log_lines(tmp_path / "log"), log_lines(folder / "log"), strict=True):
        assert {**line, "seconds": 0, "time": 0} == {**same, "seconds": 0, "time": 0}


def test_a_trial_of_a_model_that_was_saved_in_python(learned, tmp_path):
    """Its batch is unknown, and the end is told as for other models."""
    library.save(library.load(learned[ON_TRIAL][0] / "model"), tmp_path / "model")
    shown = seqmed(tmp_path, "inspect", "model", columns=200).out
    assert f"change:   {2 * SIZE} labels since" in shown
    (tmp_path / "rows.csv").write_bytes((learned[KEPT][0] / "rows.csv").read_bytes())
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    (tmp_path / "rows.csv").write_text("\n".join([lines[0], *lines[1 + SIZE * (SWAP + 2) :], ""]))
    result = seqmed(tmp_path, *LEARN[:5], *LEARN[7:])
    (line,) = lines_of(result)
    assert "the new start was kept" in line
    assert "before the model was saved in Python, and the new start was kept" in result.out


@pytest.mark.parametrize("name", [KEPT, REVOKED])
def test_a_trial_that_late_labels_have_ended(learned, tmp_path, name):
    """As `seqmed label` does: what has become of the new start is that of the model."""
    pipeline, progress = checkpoint.load_checkpoint(learned[ON_TRIAL][0] / "model")
    rows = np.genfromtxt(learned[name][0] / "rows.csv", delimiter=",", names=True, dtype=None)
    points = np.column_stack([rows["a"], rows["b"]])[SIZE * (SWAP + 2) :]
    pipeline.partial_fit(
        points, rows["kind"][SIZE * (SWAP + 2) :], new_points=False, find_rows=False
    )
    assert pipeline[-1]._state.trial is None
    checkpoint.save_checkpoint(pipeline, progress, tmp_path / "model")
    assert checkpoint.load_checkpoint(tmp_path / "model")[1].change.new_start == name
