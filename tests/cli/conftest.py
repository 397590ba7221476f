"""Fixtures of the tests of commands."""

import pytest

from tests.support.command import LEARN, files_of, make_rows, seqmed


@pytest.fixture(scope="session")
def learned(tmp_path_factory):
    """A folder with rows and a model of them, and its files; `restore` makes it as it was."""
    folder = tmp_path_factory.mktemp("learned")
    make_rows(folder / "rows.csv", 60)
    assert seqmed(folder, *LEARN, 20).code == 0
    return folder, files_of(folder)
