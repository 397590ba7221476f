"""`seqmed label` as a command: killed at any moment, it continues, and nothing is lost."""

from __future__ import annotations

import csv
import json
import shutil

import pytest

from seqmed.labeling.log import LabelLog
from seqmed.model_file import load_with_extra
from tests.support.command import seqmed
from tests.support.labeling import Command, ForkedCommand, write_rows
from tests.support.state import state_bits

LABEL = ("model", "rows.csv", "--id", "id")


def events_of(folder):
    with LabelLog(folder / "model.labels.csv") as log:
        return log.events


def assert_same_model(first, second):
    (one, kept), (other, also_kept) = map(load_with_extra, (first, second))
    assert state_bits(one) == state_bits(other)
    assert kept["labels"] == also_kept["labels"]
    assert kept["late"] == also_kept["late"]
    assert kept["record"] == also_kept["record"]


def test_killed_three_times_it_ends_with_the_confirmed_labels_and_the_replayed_model(tmp_path):
    truth = write_rows(tmp_path / "rows.csv")
    confirmed, rows = {}, []
    for number in range(4):
        with ForkedCommand(tmp_path, *LABEL) as command:
            ada = command.person()
            ada.wait_for(len(rows))
            assert [card["row"] for card in ada.cards][: len(rows)] == rows
            for _ in range(8):
                card = ada.label(lambda row: truth[row - 1])
                confirmed[card["row"]] = truth[card["row"] - 1]
            if number == 1:
                row = command.get("history")["rows"][2]
                assert ada.act("label", row, label="new class")[0] == 200
                confirmed[row["row"]] = "new class"
            if number == 2:
                row = command.get("history")["rows"][5]
                assert ada.act("withdraw", row)[0] == 200
                del confirmed[row["row"]]
            rows = [card["row"] for card in ada.cards]
            if number < 3:
                command.kill()
            else:
                out, code = command.end()
                assert code == 0
                assert "31 labeled rows in model.labels.csv" in out
    lines = (tmp_path / "model.labels.csv").read_text()
    folder = tmp_path / "again"
    folder.mkdir()
    for name in ("rows.csv", "model.labels.csv"):
        shutil.copy(tmp_path / name, folder)
    assert seqmed(folder, "label", *LABEL, "--replay").code == 0
    assert_same_model(tmp_path / "model", folder / "model")
    assert (folder / "model.labels.csv").read_text() == lines
    assert seqmed(folder, "label", *LABEL, "--export", "final.csv").code == 0
    with (folder / "final.csv").open() as file:
        final = {int(line["row"]): line["label"] for line in csv.DictReader(file)}
    assert final == confirmed
    # late labels that are known are not learned twice
    result = seqmed(folder, "learn", "model", "rows.csv", "--late", "final.csv", "--id", "id")
    assert result.code == 0, result.err
    assert f"0 late labels added, 0 corrected, {len(final)} known before" in result.out


def test_the_labels_train_another_model(tmp_path):
    truth = write_rows(tmp_path / "rows.csv")
    with Command(tmp_path, *LABEL, "--classes", "virginica,setosa") as command:
        assert [name for name, _ in command.get("status")["classes"]] == ["virginica", "setosa"]
        ada = command.person()
        for _ in range(12):
            ada.label(lambda row: truth[row - 1])
        command.end()
    learn = ("learn", "other", "rows.csv", "--label", "label", "--no-labels")
    assert seqmed(tmp_path, *learn).code == 0
    result = seqmed(tmp_path, *learn[:3], "--late", "model.labels.csv", "--id", "id")
    assert result.code == 0, result.err
    assert "12 late labels added" in result.out


def test_json_lines_go_out_and_in(tmp_path):
    truth = write_rows(tmp_path / "rows.csv")
    with ForkedCommand(tmp_path, *LABEL) as command:
        ada = command.person()
        for _ in range(6):
            ada.label(lambda row: truth[row - 1])
        command.end()
    assert seqmed(tmp_path, "label", *LABEL, "--export", "out.jsonl").code == 0
    objects = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(objects) == 6
    folder = tmp_path / "again"
    folder.mkdir()
    for name in ("rows.csv", "out.jsonl"):
        shutil.copy(tmp_path / name, folder)
    for added in (6, 0):  # the same events are not added twice
        result = seqmed(folder, "label", *LABEL, "--import", "out.jsonl", "--replay")
        assert result.code == 0, result.err
        assert f"{added} event" in result.err
    assert_same_model(tmp_path / "model", folder / "model")


def test_several_files_with_labels_are_continued(tmp_path):
    write_rows(tmp_path / "rows.csv", 40)
    (tmp_path / "other").mkdir()
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    more = [f"{line},{'setosa' if n % 2 else ''}" for n, line in enumerate(lines[1:31])]
    text = "\n".join([f"{lines[0]},label", *more])
    (tmp_path / "other" / "rows.csv").write_text(text)
    with ForkedCommand(tmp_path, "model", "rows.csv", "other") as command:
        ada = command.person()
        files = {ada.label(lambda row: "virginica")["file"] for _ in range(20)}
        assert files == {"rows.csv", "rows.csv (2)"}
        assert all(
            event.row % 2 for event in events_of(tmp_path) if event.file == "rows.csv (2)"
        )  # rows with a label are not asked
        command.end()
    _, extra = load_with_extra(tmp_path / "model")
    assert extra["record"]["labeled"] == 35


def test_a_file_that_has_grown_is_continued(tmp_path):
    truth = write_rows(tmp_path / "rows.csv", 60)
    with ForkedCommand(tmp_path, *LABEL) as command:
        ada = command.person()
        for _ in range(12):
            ada.label(lambda row: truth[row - 1])
        command.end()
    more = write_rows(tmp_path / "more.csv", 60, seed=1)
    truth += more
    lines = (tmp_path / "more.csv").read_text().splitlines()[1:]
    with (tmp_path / "rows.csv").open("a") as file:
        file.writelines(f"new{line}\n" for line in lines)
    with ForkedCommand(tmp_path, *LABEL) as command:
        assert command.get("status")["rows"] == 120
        ada = command.person()
        rows = [ada.label(lambda row: truth[row - 1])["row"] for _ in range(15)]
        assert max(rows) > 60
        assert command.end()[1] == 0
    model, extra = load_with_extra(tmp_path / "model")
    assert extra["record"]["labeled"] == 27
    assert model.steps[-1][1]._state.registry.counts.sum() == 27


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("model", "-"), "- is a pipe or a device"),
        (("model", "missing.csv"), "missing.csv"),
        (("model", "rows.csv", "--show", "d"), "no column 'd'"),
        (("model", "rows.csv", "--id", "d"), "no column 'd'"),
        (("model", "rows.csv", "--labels", "rows.csv"), "--labels rows.csv is the input"),
        (("model", "rows.csv", "--labels", "notes.txt"), "has the columns some text"),
        (("model", "rows.csv", "--import", "notes.txt"), "notes.txt, line 1"),
        (("model", "rows.csv", "--export", "x.txt"), "expected .csv"),
        (("model", "rows.csv", "--id", "row"), "column 'row' of its own"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, arguments, reason):
    write_rows(tmp_path / "rows.csv", 30)
    (tmp_path / "notes.txt").write_text("some text\n")
    result = seqmed(tmp_path, "label", *arguments, "--replay")
    assert result.code == 2
    assert reason in " ".join(result.err.split())
    assert (tmp_path / "notes.txt").read_text() == "some text\n"


def test_the_help_does_not_offer_standard_input(tmp_path):
    shown = " ".join(seqmed(tmp_path, "label", "--help", columns=200).out.split())
    assert "or folders of them. They are read again at every start." in shown
    assert "standard input" not in shown


def test_another_command_on_the_same_model_or_log_is_refused(tmp_path):
    write_rows(tmp_path / "rows.csv", 30)
    with ForkedCommand(tmp_path, *LABEL) as command:
        for arguments in (LABEL, ("other", "rows.csv", "--labels", "model.labels.csv")):
            result = seqmed(tmp_path, "label", *arguments, "--replay")
            assert result.code == 2
            assert "is locked by another seqmed" in " ".join(result.err.split())
        port = command.host.split(":")[1]
        result = seqmed(tmp_path, "label", "third", "rows.csv", "--port", port, "--no-browser")
        assert result.code == 2
        assert "is in use" in result.err
