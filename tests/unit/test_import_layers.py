"""Every module of the package is in a layer of the import rules of pyproject.toml."""

import pkgutil
import tomllib
from pathlib import Path

import seqmed

ROOT = Path(__file__).parents[2]
# Modules that only name others; every module may be imported by them.
ENTRY_POINTS = {"seqmed.__main__"}


def layered_modules():
    """The modules and packages that the contracts of the kind "layers" name."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    for contract in rules["contracts"]:
        if contract["type"] == "layers":
            prefix = "".join(f"{each}." for each in contract.get("containers", ()))
            for layer in contract["layers"]:
                yield from (prefix + name.strip() for name in layer.split("|"))


def test_every_module_is_in_a_layer():
    named = set(layered_modules())
    modules = {each.name for each in pkgutil.walk_packages(seqmed.__path__, "seqmed.")}
    in_layer = {name for name in modules if ".".join(name.split(".")[:2]) in named}
    assert modules - in_layer - ENTRY_POINTS == set()


def test_every_layer_names_a_module():
    modules = {each.name for each in pkgutil.walk_packages(seqmed.__path__, "seqmed.")}
    assert set(layered_modules()) - modules == set()
