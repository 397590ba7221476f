"""Builds what is released into the folder dist, and checks it: an sdist and a wheel.

Usage: python tests/installs/make_dist.py

- The sdist holds the whole source, and the wheel is built from it. The wheel that is built from the
  source folder has the same files, to the byte.
- The wheel holds all files of src/seqmed, the licence, and nothing else.
- twine finds no fault in the metadata, and README.md can be shown as the description.

Needs only the standard library; the tools are installed into an environment of their own.
"""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

from check_installs import (
    GENERATED,
    ROOT,
    SOURCES,
    FailedError,
    copy_source,
    environment,
    one_of_each,
    pip,
    pythons,
    run,
)

TOOLS = ("build>=1.2", "twine>=6", "readme-renderer[md]>=44")
METADATA_FILES = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt"}
DIST = ROOT / "dist"


def expect(holds: object, reason: str) -> None:
    """Fail with a reason if a condition does not hold."""
    if not holds:
        raise FailedError(reason)


def files_in(folder: Path) -> set[str]:
    """Return the paths of the source files in a folder."""
    inside = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {
        path.as_posix() for path in inside
        if not any(part.match(pattern) for part in (path, *path.parents) for pattern in GENERATED)
    }  # fmt: skip


def content(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check_wheel(found: dict[str, bytes], version: str) -> None:
    """The wheel holds the package with its data, the metadata and the licence."""
    about = f"seqmed-{version}.dist-info"
    package = {f"seqmed/{path}" for path in files_in(ROOT / "src" / "seqmed")}
    expected = {*package, *(f"{about}/{name}" for name in METADATA_FILES)}
    expected.add(f"{about}/licenses/LICENSE")
    missing, strange = sorted(expected - found.keys()), sorted(found.keys() - expected)
    expect(not missing and not strange, f"the wheel lacks {missing}, and should not have {strange}")
    metadata = Parser().parsestr(found[f"{about}/METADATA"].decode())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    expect(metadata["Version"] == version, f"the metadata has version {metadata['Version']}")
    expect(metadata["License-Expression"] == "BSD-3-Clause", "the metadata names no licence")
    expect(metadata.get_payload().strip() == readme.strip(), "the description is not README.md")


def check_sdist(sdist: Path, version: str) -> None:
    """The sdist holds the whole source."""
    with tarfile.open(sdist) as archive:
        found = {name.removeprefix(f"seqmed-{version}/") for name in archive.getnames()}
    expected = {f"src/{path}" for path in files_in(ROOT / "src")}
    expected |= {name for name in SOURCES if name != "src"}
    expect(expected <= found, f"the sdist lacks {sorted(expected - found)}")


def made(folder: Path) -> tuple[Path, Path]:
    """Return sdist and wheel, built and checked in a folder."""
    source = folder / "source"
    copy_source(source)
    (version,) = re.findall(
        r'^__version__ = "(.*)"$', (source / "src/seqmed/__init__.py").read_text(), re.MULTILINE
    )
    changes = (source / "CHANGELOG.md").read_text(encoding="utf-8")
    expect(f"\n## {version} " in changes, f"CHANGELOG.md has no section {version}")
    with environment(one_of_each(pythons())[0], folder) as python:
        print("installing the tools ...", flush=True)
        pip(python, "install", *TOOLS, folder=folder)
        print("building ...", flush=True)
        # build makes the sdist, unpacks it, and builds the wheel from there
        run(python, "-m", "build", "--outdir", folder / "made", source, folder=folder)
        run(python, "-m", "build", "--wheel", "--outdir", folder / "direct", source, folder=folder)
        sdist = folder / "made" / f"seqmed-{version}.tar.gz"
        (wheel,), (direct,) = (folder / "made").glob("*.whl"), (folder / "direct").glob("*.whl")
        print("checking ...", flush=True)
        found = content(wheel)
        expect(found == content(direct), "the wheels of the sdist and of the source differ")
        check_wheel(found, version)
        check_sdist(sdist, version)
        run(python, "-m", "twine", "check", "--strict", sdist, wheel, folder=folder)
    return sdist, wheel


def main() -> int:
    """Replace what is in the folder dist; return 1 if something is wrong with it."""
    with tempfile.TemporaryDirectory(prefix="seqmed-dist-") as name:
        try:
            files = made(Path(name))
        except FailedError as reason:
            print(f"make dist FAILED: {reason}")
            return 1
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for file in files:
            shutil.copy(file, DIST)
            print(f"dist/{file.name}: {file.stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
