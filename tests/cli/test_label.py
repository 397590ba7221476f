"""`seqmed label` as a command: killed at any moment, it continues, and nothing is lost."""

from __future__ import annotations

import csv
import shutil
from urllib.parse import quote

import pytest

from seqmed.labeling.log import LabelLog
from seqmed.model_file import load_with_extra
from seqmed.tables.cells import read_safe_cell
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
        assert files == {"rows.csv", "other/rows.csv"}
        assert all(
            event.row % 2 for event in events_of(tmp_path) if event.file == "other/rows.csv"
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
        ada = command.person()
        rows = [ada.label(lambda row: truth[row - 1])["row"] for _ in range(15)]
        assert max(rows) > 60
        assert command.end()[1] == 0
    model, extra = load_with_extra(tmp_path / "model")
    assert extra["record"]["labeled"] == 27
    assert model.steps[-1][1]._state.counts.counts.sum() == 27


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("model", "-"), "- is a pipe or a device"),
        (("model", "missing.csv"), "missing.csv"),
        (("model", "rows.csv", "--show", "d"), "no column 'd'"),
        (("model", "rows.csv", "--id", "d"), "no column 'd'"),
        (("model", "rows.csv", "--labels", "rows.csv"), "--labels rows.csv is the input"),
        (("model", "rows.csv", "--labels", "notes.txt"), "has the columns some text"),
        (("model", "rows.csv", "--export", "x.txt"), "expected .csv"),
        (("model", "rows.csv", "--id", "row"), "another column 'row'"),
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
    assert "folders of them. They are read again at every start." in shown
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
        assert "already in use" in " ".join(result.err.split())


# -- labels belong to rows -------------------------------------------------------------------------


def rows_in(folder, path, n_rows, seed):
    """Write rows whose classes show in their ids, which are the same in all files."""
    (folder / path).parent.mkdir(exist_ok=True)
    truth = write_rows(folder / path, n_rows, seed)
    lines = (folder / path).read_text().splitlines()
    own = [f"{line},{path} {label}" for line, label in zip(lines[1:], truth, strict=True)]
    (folder / path).write_text("\n".join([f"{lines[0]},note", *own, ""]))


def note_of(card):
    return next(cell["text"] for cell in card["cells"] if cell["name"] == "note")


def label_some(command, number):
    """Label cards by their notes; return the notes of the rows with their labels."""
    ada, found = command.person(), {}
    for _ in range(number):
        note = note_of(ada.cards[0])
        found[(ada.cards[0]["file"], ada.cards[0]["row"])] = note
        ada.label(lambda row, note=note: note.split()[1])
    return found


def labels_shown(command):
    """Return the notes and labels of the rows in the history."""
    found = []
    for row in command.get("history")["rows"]:
        cells = command.get(f"row?file={quote(row['file'])}&row={row['row']}")
        found.append((note_of(cells), row["label"]))
    return found


def exported(folder, *arguments):
    """Return the rows of the labels that are exported: file, row, label."""
    result = seqmed(folder, "label", *arguments, "--export", "out.csv", "--force", columns=400)
    assert result.code == 0, result.err
    with (folder / "out.csv").open() as file:
        rows = [(line["file"], int(line["row"]), line["label"]) for line in csv.DictReader(file)]
    return rows, result.err


MONTHS = ("january/rows.csv", "february/rows.csv")


@pytest.fixture(scope="module")
def labeled_months(tmp_path_factory):
    folder = tmp_path_factory.mktemp("months")
    for seed, path in enumerate(MONTHS):
        rows_in(folder, path, 40, seed)
    with ForkedCommand(folder, "model", *MONTHS) as command:
        notes = label_some(command, 24)
        assert command.end()[1] == 0
    assert {file for file, _ in notes} == set(MONTHS)
    (folder / "page").unlink()
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return folder, files, notes


@pytest.fixture
def months(labeled_months):
    """The folder as it was after the labels, and the notes of the labeled rows."""
    folder, files, notes = labeled_months
    shutil.rmtree(folder)
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder, notes


def test_files_of_the_same_name_in_another_order_keep_their_labels(months):
    folder, notes = months
    with ForkedCommand(folder, "model", *MONTHS[::-1]) as command:
        shown = labels_shown(command)
        command.end()
    assert len(shown) == 24
    assert all(note.split()[1] == label for note, label in shown)
    # and a model that learns them anew, in the other order, has each of them
    labels = ("--labels", "model.labels.csv")
    assert seqmed(folder, "label", "other", *MONTHS[::-1], *labels, "--replay").code == 0
    assert load_with_extra(folder / "other")[1]["record"]["labeled"] == 24
    found, err = exported(folder, "other", *MONTHS[::-1], *labels)
    assert {(file, row): label for file, row, label in found} == {
        place: note.split()[1] for place, note in notes.items()
    }
    assert "set aside" not in err


def test_labels_of_another_file_of_the_same_name_are_set_aside(months):
    folder, notes = months
    here = sum(file == MONTHS[1] for file, _ in notes)
    labels = ("--labels", "model.labels.csv")
    log = (folder / "model.labels.csv").read_bytes()
    result = seqmed(folder, "label", "other", MONTHS[1], *labels, "--replay", columns=400)
    assert result.code == 0
    assert f"model.labels.csv: {24 - here} of 24 events set aside" in result.err
    assert "january/rows.csv" in result.err
    assert "pass the files with these rows" in result.err
    assert load_with_extra(folder / "other")[1]["record"]["labeled"] == here
    assert len(exported(folder, "other", MONTHS[1], *labels)[0]) == here
    assert (folder / "model.labels.csv").read_bytes() == log
    with ForkedCommand(folder, "other", MONTHS[1], *labels) as command:
        shown = labels_shown(command)
        assert command.get("status")["labels"] == len(shown) == here
        command.end()
    assert all(note == f"{MONTHS[1]} {label}" for note, label in shown)


def test_labels_of_one_month_are_not_those_of_the_next(tmp_path):
    for seed, path in enumerate(MONTHS):
        rows_in(tmp_path, path, 30, seed)
    labels = ("--labels", "labels.csv")
    with ForkedCommand(tmp_path, "january.model", MONTHS[0], *labels) as command:
        label_some(command, 10)
        command.end()
    for replay in (True, False):
        arguments = ("february.model", MONTHS[1], *labels)
        if replay:
            result = seqmed(tmp_path, "label", *arguments, "--replay", columns=400)
            assert "february.model: 0 labeled rows" in result.out
            assert "10 of 10 events set aside" in result.err
        else:
            with ForkedCommand(tmp_path, *arguments) as command:
                assert labels_shown(command) == []
                label_some(command, 5)
                command.end()
    for model, path, n_labels in (("january", MONTHS[0], 10), ("february", MONTHS[1], 5)):
        found, err = exported(tmp_path, f"{model}.model", path, *labels)
        assert len(found) == n_labels
        assert f"{15 - n_labels} of 15 events set aside" in err


def test_rows_that_have_changed_lose_their_labels(months):
    folder, notes = months
    (file, row), note = next(iter(notes.items()))
    lines = (folder / file).read_text().splitlines()
    assert lines[row].endswith(note)
    lines[row] += "!"
    (folder / file).write_text("\n".join([*lines, ""]))
    before = (folder / "model").read_bytes()
    # the model has learned the label of the row as it was
    result = seqmed(folder, "label", "model", *MONTHS, "--replay", columns=400)
    assert result.code == 2
    assert "1 of 24 events set aside, because no row of the data has the cells" in result.err
    assert f"(row {row} of {file})" in result.err
    assert "or delete the model" in result.err
    assert (folder / "model").read_bytes() == before
    (folder / "model").unlink()
    assert seqmed(folder, "label", "model", *MONTHS, "--replay").code == 0
    found, _ = exported(folder, "model", *MONTHS)
    assert {place[:2] for place in found} == set(notes) - {(file, row)}
    # the row as it is now may be labeled, and the log knows both
    with ForkedCommand(folder, "model", *MONTHS) as command:
        label_some(command, 56 + 1)
        command.end()
    with LabelLog(folder / "model.labels.csv") as log:
        assert sum(event.key[:2] == (file, row) for event in log.events) == 2
    (folder / file).write_text("\n".join([*lines, ""]).replace("!", ""))
    (folder / "model").unlink()
    assert seqmed(folder, "label", "model", *MONTHS, "--replay").code == 0
    found, _ = exported(folder, "model", *MONTHS)
    assert (file, row, note.split()[1]) in found


def test_files_that_were_moved_and_sorted_keep_their_labels(months):
    folder, _ = months
    lines = (folder / MONTHS[0]).read_text().splitlines()
    (folder / MONTHS[0]).unlink()
    (folder / "sorted.csv").write_text("\n".join([lines[0], *sorted(lines[1:]), ""]))
    labels = ("--labels", "model.labels.csv")
    data = (MONTHS[1], "sorted.csv")
    found, err = exported(folder, "model", *data)
    assert "set aside" not in err
    assert {file for file, _, _ in found} == set(data)
    with ForkedCommand(folder, "other", *data, *labels) as command:
        shown = labels_shown(command)
        assert len(shown) == 24
        label_some(command, 8)
        row = command.get("history?search=january")["rows"][-1]
        assert row["file"] == "sorted.csv"
        assert command.person().act("withdraw", row)[0] == 200  # of a row that has moved
        command.end()
    assert all(note.split()[1] == label for note, label in shown)
    assert len(exported(folder, "other", *data, *labels)[0]) == 31


def test_late_labels_of_a_log_belong_to_rows(months):
    """Ids that start anew in every file join rows, but not to labels of other rows."""
    folder, _ = months
    data = MONTHS[1]
    labels = ("--labels", "log.csv")
    with ForkedCommand(folder, "own", *MONTHS, *labels, "--id", "id") as command:
        found = label_some(command, 30)
        command.end()
    learn = ("learn", "other", data, "--label", "label")
    assert seqmed(folder, *learn, "--no-labels").code == 0
    rows = {file: {row for other, row in found if other == file} for file in MONTHS}
    seqmed(folder, "label", "own", *MONTHS, *labels, "--id", "id", "--export", "now.csv")
    for table in ("log.csv", "now.csv"):
        (folder / "other").unlink()
        assert seqmed(folder, *learn, "--no-labels").code == 0
        result = seqmed(folder, *learn[:3], "--late", table, "--id", "id", columns=400)
        assert result.code == 0, result.err
        assert f"{len(rows[data])} late labels added" in result.out
        others = rows[MONTHS[0]] - rows[data]
        assert f"{len(others)} labels of {table} not learned, because" in result.err


def test_a_log_without_digests_is_refused(tmp_path):
    write_rows(tmp_path / "rows.csv", 30)
    old = "event,time,person,file,row,id,label,why,guess,probability\n"
    (tmp_path / "model.labels.csv").write_text(old)
    result = seqmed(tmp_path, "label", "model", "rows.csv", "--replay", columns=400)
    assert result.code == 2
    assert "has the columns event, time" in result.err
    assert "row, digest, id" in result.err
    assert (tmp_path / "model.labels.csv").read_text() == old


# -- formulas --------------------------------------------------------------------------------------

ODD_IDS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "+1",
    "-3.5",
    "'=x",
    "''=x",
    "'tis",
    "'",
]


def test_no_cell_of_an_output_is_a_formula_and_all_are_read_back(tmp_path):
    truth = write_rows(tmp_path / "=rows.csv", 60)
    lines = (tmp_path / "=rows.csv").read_text().splitlines()
    ids = [*ODD_IDS, *(f"=row({number})" for number in range(60 - len(ODD_IDS)))]
    own = [f"{each}{line[line.index(',') :]}" for each, line in zip(ids, lines[1:], strict=True)]
    (tmp_path / "=rows.csv").write_text("\n".join([lines[0], *own, ""]))
    learn = ("learn", "other", "=rows.csv", "--label", "label", "--drop", "id")
    assert seqmed(tmp_path, *learn, "--no-labels").code == 0
    label = ("label", "model", "=rows.csv", "--id", "id")
    with ForkedCommand(tmp_path, *label[1:], "--classes", "=cmd()") as command:
        ada = command.person()
        for _ in range(60):
            ada.label(lambda row: "=cmd()" if row % 2 else truth[row - 1])
        assert command.get("status")["labels"] == 60
        (tmp_path / "page.csv").write_bytes(command.request("GET", "labels.csv")[2])
        command.end()
    assert seqmed(tmp_path, *label, "--export", "labels.csv").code == 0
    for table in ("model.labels.csv", "labels.csv"):
        (tmp_path / "again").write_bytes((tmp_path / "other").read_bytes())
        late = seqmed(tmp_path, "learn", "again", "=rows.csv", "--late", table, "--id", "id")
        assert "60 late labels added" in late.out, late.err
        assert "=cmd()" in load_with_extra(tmp_path / "again")[0].classes_.tolist()
    names = ["id", "label", "guess", "file"]
    for kind in ("csv", "tsv"):
        predict = ("predict", "again", "=rows.csv", "--keep", "id", "-o", f"predicted.{kind}")
        assert seqmed(tmp_path, *predict).code == 0
        query = ("query", "other", "=rows.csv", "-n", 50, "--keep", "id", "-o", f"query.{kind}")
        result = seqmed(tmp_path, *query)
        assert result.code == 0, result.err
    tables = sorted([*tmp_path.glob("*.tsv"), *tmp_path.glob("*.csv")])
    assert len(tables) == 8
    for table in tables:
        if table.name == "=rows.csv":
            continue
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t" if table.suffix == ".tsv" else ","))
        cells = [row[name] for row in rows for name in names if name in row]
        assert "'=rows.csv" in cells
        if table.name != "page.csv":
            assert {cell for cell in cells if cell[:1] in ("+", "-")} <= {"+1", "-3.5"}
        assert not any(cell[:1] in ("=", "@", "\t", "\r") for cell in cells)
        found = {read_safe_cell(row["id"]) for row in rows}
        assert found <= set(ids)
        assert len(found) >= 50
