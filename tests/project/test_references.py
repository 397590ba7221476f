"""Names that the docs and docstrings refer to exist: files of the project, and `seqmed.` names."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FOLDERS = (ROOT, ROOT / "src" / "seqmed", ROOT / "src", ROOT / "docs")
# Modules of optional dependencies.
OPTIONAL = {"seqmed.adapters.capymoa"}


def exists(name):
    """Whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:size]))
        except ImportError:
            continue
        for part in parts[size:]:
            found = getattr(found, part, None)
        return found is not None
    return False


@pytest.mark.parametrize("path", [*DOCUMENTS, *SOURCES], ids=lambda path: path.name)
def test_dotted_names_exist(path):
    names = set(re.findall(r"`(seqmed(?:\.\w+)+)`", path.read_text()))
    assert {name for name in names - OPTIONAL if not exists(name)} == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_exist(path):
    names = set(re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|json|toml))`", path.read_text()))
    assert {
        name for name in names if not any((folder / name).exists() for folder in FOLDERS)
    } == set()
