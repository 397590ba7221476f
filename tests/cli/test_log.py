"""Lines of the log: each is appended once, whatever part of them the log has already."""

from __future__ import annotations

import pytest

from seqmed.cli.checkpoint import PendingLines, check_log_file
from seqmed.cli.terminal import CommandError

BEFORE = '{"batch": 1}\n'
LINES = '{"batch": 2}\n{"batch": 3}\n'


def append(path, content, start=13, text=LINES):
    path.write_text(content)
    PendingLines(str(path), start, text).append()
    return path.read_text()


@pytest.mark.parametrize("size", range(len(LINES) + 1))
def test_the_missing_part_is_appended(tmp_path, size):
    assert append(tmp_path / "log", BEFORE + LINES[:size]) == BEFORE + LINES


@pytest.mark.parametrize("start", [0, 5, 10**6])
def test_a_log_that_was_emptied_gets_all_lines(tmp_path, start):
    assert append(tmp_path / "log", "", start) == LINES


def test_lines_that_others_have_appended_are_kept(tmp_path):
    other = '{"batch": 9}\n'
    assert append(tmp_path / "log", BEFORE + other) == BEFORE + other + LINES
    assert append(tmp_path / "log", BEFORE + LINES + other) == BEFORE + LINES + other


def test_equal_lines_are_told_apart_by_their_place(tmp_path):
    assert append(tmp_path / "log", "same\n", 5, "same\n") == "same\nsame\n"


def test_the_start_is_the_size_of_the_log(tmp_path):
    path = tmp_path / "log"
    assert PendingLines.after(str(path), LINES).start == 0
    path.write_text(BEFORE)
    pending = PendingLines.after(str(path), LINES)
    for _ in range(2):
        pending.append()
    assert path.read_text() == BEFORE + LINES


def test_what_is_a_log(tmp_path):
    path = tmp_path / "log"
    check_log_file(path)
    for content in ("", BEFORE[:4], BEFORE):
        path.write_text(content)
        check_log_file(path)
    path.write_text("a,b\n")
    with pytest.raises(CommandError, match="is not a log of seqmed learn: choose another"):
        check_log_file(path)
