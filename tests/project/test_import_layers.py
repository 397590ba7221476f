"""Every module is in a layer of the import rules of pyproject.toml, and has a name of its own."""

import ast
import pkgutil
import tomllib
from collections import Counter
from pathlib import Path

import seqmed

ROOT = Path(__file__).parents[2]
# Modules that only name others; every module may be imported by them.
ENTRY_POINTS = {"seqmed.__main__"}
# Functions that every learner has.
OF_LEARNERS = {"begin", "learn", "retract", "with_classes"}
# Public functions of seqmed.dask, named after commands and functions without Dask.
OF_DASK = {"evaluate", "query"}


def layered_modules():
    """The modules and packages that the contracts of the kind "layers" name."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    for contract in rules["contracts"]:
        if contract["type"] == "layers":
            prefix = "".join(f"{each}." for each in contract.get("containers", ()))
            for layer in contract["layers"]:
                yield from (prefix + name.strip() for name in layer.split("|"))


def folders_of(name):
    parts = name.split(".")
    return [".".join(parts[:size]) for size in range(2, len(parts))]


def test_every_module_is_in_a_layer():
    named = set(layered_modules())
    modules = {each.name for each in pkgutil.walk_packages(seqmed.__path__, "seqmed.")}
    packages = {name for name in modules if any(other.startswith(f"{name}.") for other in modules)}
    in_layer = {name for name in modules if named & {name, *folders_of(name)}}
    assert modules - packages - in_layer - ENTRY_POINTS == set()


def test_every_layer_names_a_module():
    modules = {each.name for each in pkgutil.walk_packages(seqmed.__path__, "seqmed.")}
    assert set(layered_modules()) - modules == set()


def test_no_two_files_share_a_name():
    names = Counter(path.name for path in Path(seqmed.__file__).parent.rglob("*.py"))
    del names["__init__.py"]
    assert names.most_common(1)[0][1] == 1, names.most_common(3)


def test_no_two_public_functions_or_classes_share_a_name():
    names = Counter()
    for path in Path(seqmed.__file__).parent.rglob("*.py"):
        for each in ast.parse(path.read_text()).body:
            if isinstance(each, ast.FunctionDef | ast.ClassDef) and not each.name.startswith("_"):
                names[each.name] += 1
    assert {name for name, count in names.items() if count > 1} == OF_LEARNERS | OF_DASK
