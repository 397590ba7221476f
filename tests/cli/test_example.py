"""`seqmed example`: the data are those of the generator, and overwrite nothing."""

import shlex
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import get_args

import pytest
from examples.example_data import contents

from seqmed.cli.example import Name
from tests.support.command import seqmed
from tests.support.documents import ROOT

PACKAGE = ROOT / "src" / "seqmed"
NAMES = get_args(Name)
LARGEST = 300_000  # bytes of all data


def made(name):
    """Return the files of a data set as the generator makes them."""
    return {Path(path).name: each for path, each in contents().items() if path.startswith(name)}


def present(folder):
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def test_the_files_of_the_package_are_those_of_the_generator():
    found = files("seqmed") / "examples"
    stored = {
        f"{folder.name}/{file.name}": file.read_bytes()
        for folder in found.iterdir()
        for file in folder.iterdir()
    }
    assert stored == contents(), "run python examples/example_data.py"


def test_all_files_are_in_the_wheel_and_small():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["seqmed"]
    listed = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    assert set(PACKAGE.glob("examples/*/*")) <= listed
    assert sum(len(content) for content in contents().values()) < LARGEST


def test_without_a_name_all_are_listed(tmp_path):
    result = seqmed(tmp_path, "example", columns=100)
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()[:-1]] == list(NAMES)
    assert {each.name for each in tmp_path.iterdir()} == {"out", "err"}


@pytest.mark.parametrize("name", NAMES)
def test_the_next_command_learns_the_files(tmp_path, name):
    result = seqmed(tmp_path, "example", name, "my data")
    assert result.code == 0, result.err
    assert present(tmp_path / "my data") == made(name)
    words = shlex.split(result.out.splitlines()[-1])
    assert words[:3] == ["next:", "seqmed", "learn"]
    command = []
    for word in words[2:]:
        found = sorted(str(each.relative_to(tmp_path)) for each in tmp_path.glob(word))
        command += found or [word]
    result = seqmed(tmp_path, *command)
    assert result.code == 0, result.err
    assert "prequential accuracy" in result.out


def test_the_folder_is_named_like_the_data_by_default(tmp_path):
    assert seqmed(tmp_path, "example", "pump", "-q") == (0, "", "")
    assert present(tmp_path / "pump") == made("pump")


def test_existing_files_are_kept(tmp_path):
    """Nothing is written if one of the files exists, even the last."""
    folder = tmp_path / "mail"
    folder.mkdir()
    (folder / "week-5.csv").write_text("mine")
    result = seqmed(tmp_path, "example", "spam", "mail")
    assert result.code == 2
    assert "mail/week-5.csv exists: choose another name, or replace it" in result.err
    assert present(folder) == {"week-5.csv": b"mine"}
    assert seqmed(tmp_path, "example", "spam", "mail", "--force").code == 0
    assert present(folder) == made("spam")


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "mail").write_text("mine")
    for name, message in (("mail", "mail is a file, expected a folder"), ("mail/x", "mail/x: ")):
        result = seqmed(tmp_path, "example", "spam", name)
        assert result.code == 2
        assert result.err.startswith(f"seqmed: {message}")
    assert (tmp_path / "mail").read_text() == "mine"


def test_an_unknown_name_lists_those_that_exist(tmp_path):
    result = seqmed(tmp_path, "example", "sapm", columns=200)
    assert result.code == 2
    assert all(name in result.err for name in NAMES)
    assert not (tmp_path / "sapm").exists()
