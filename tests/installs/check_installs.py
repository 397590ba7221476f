"""Installs seqmed as a user does, without the constraints of the development, and runs `smoke.py`.

Usage: python tests/installs/check_installs.py [--wheel FILE] [all | newest | 3.11 3.12 ...]

The wheel is FILE, or is built from a clean copy of the source. It is installed into fresh
environments. No compiler is on their path, so that all dependencies must have wheels too:

- of every Python that is chosen and found, with the newest versions of all dependencies;
- of the oldest Python that is allowed, if it is chosen, with the lowest versions that
  pyproject.toml allows;
- of the newest Python that another user can run, as a user who has no home and may not write into
  the environment: numba has no place for its cache.

A part that cannot run on this machine is reported as skipped, with the reason. The exit code is 1
if a part failed. Needs only the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
SOURCES = (
    "pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "src",
)  # fmt: skip
GENERATED = ("__pycache__", "*.egg-info")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OLDEST = tuple(int(part) for part in PROJECT["requires-python"].removeprefix(">=").split("."))
OLDEST_NAME = ".".join(map(str, OLDEST))
# A dependency without dependencies of its own: a package index that answers has it.
SMALL_PACKAGE = "threadpoolctl"
NOBODY, NO_HOME = "nobody", "/nonexistent"
# Variables that would lead outside the environment, to another home, or to the constraints.
UNWANTED = re.compile(r"PYTHON|NUMBA_|XDG_|VIRTUAL_ENV|CONDA|PIP_(CONSTRAINT|REQUIRE|USER|TARGET)")
PATIENCE = 1800  # seconds, after which a step hangs

DESCRIBE = """
import importlib.util, json, platform, sys
print(json.dumps([
    getattr(sys, "_base_executable", sys.executable), sys.version_info[:3],
    sys.version_info.releaselevel == "final" and platform.python_implementation() == "CPython"
    and "t" not in sys.abiflags, importlib.util.find_spec("ensurepip") is not None,
]))
"""
# Ends with an error if numba would find a place for its cache.
CACHE_PLACES = """
import os, sys
from pathlib import Path
import seqmed
folders = [Path(seqmed.__file__).parent, Path.home(), *Path(seqmed.__file__).parent.rglob("*/")]
sys.exit(f"{[str(f) for f in folders if os.access(f, os.W_OK)]} can be written"
         if any(os.access(folder, os.W_OK) for folder in folders) else 0)
"""
# Ends with an error if a compiler is on the path.
NO_COMPILER = """
import shutil, sys
found = [name for name in ("cc", "gcc", "clang", "c++", "g++", "cl") if shutil.which(name)]
sys.exit(f"{found} are on the path" if found else 0)
"""


class SkippedError(Exception):
    """A part cannot run on this machine."""


class FailedError(Exception):
    """A step of a part failed."""


class Python(NamedTuple):
    """An interpreter outside any environment."""

    version: tuple[int, ...]
    executable: str

    @property
    def name(self) -> str:
        """The version as text."""
        return ".".join(map(str, self.version))


# Arguments of a process that change its user; none to stay the same.
Identity = dict[str, Any]


# -- what is there --------------------------------------------------------------------------------


def interpreters() -> Iterator[Path]:
    """Yield the interpreters on the path, of this process, and of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += [pyenv / version / "bin" for version in names_in(pyenv)]
    for folder in folders:
        yield from (folder / n for n in names_in(folder) if re.fullmatch(r"python(3(\.\d+)?)?", n))
    yield Path(sys.executable)


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def pythons() -> list[Python]:
    """Return all releases of CPython that seqmed allows, the newest first."""
    found = set()
    for path in interpreters():
        with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
            done = subprocess.run(
                [path, "-I", "-c", DESCRIBE], capture_output=True, check=True, timeout=60
            )
            executable, version, is_release, has_pip = json.loads(done.stdout)
            if is_release and tuple(version) >= OLDEST:
                if has_pip:
                    found.add(Python(tuple(version), executable))
                else:
                    print(f"{executable} is left out: it has no ensurepip, to make environments.")
    return sorted(found, reverse=True)


def one_of_each(found: Sequence[Python]) -> list[Python]:
    """Return the newest release of every version, such as 3.12."""
    return list({python.version[:2]: python for python in reversed(found)}.values())[::-1]


def choose(found: Sequence[Python], words: Sequence[str]) -> list[Python]:
    """Return the Pythons that are asked for."""
    if list(words) in ([], ["all"]):
        return list(found)
    if list(words) == ["newest"]:
        return list(found[:1])
    wanted = {word: tuple(map(int, word.split("."))) for word in words if word[0].isdigit()}
    if len(wanted) < len(words):
        sys.exit(f"the Pythons are {' '.join(words)}, expected all, newest, or versions: 3.11 3.12")
    missing = [word for word, at in wanted.items() if all(p.version[:2] != at for p in found)]
    if missing:
        sys.exit(f"Python {', '.join(missing)} was not found: install it, or leave it out.")
    return [python for python in found if python.version[:2] in wanted.values()]


# -- steps ----------------------------------------------------------------------------------------


def run(*command: Any, folder: Path, identity: Identity | None = None, **variables: str) -> str:
    """Run a command to its end, with the path of an interpreter alone; return its output."""
    environment = {name: text for name, text in os.environ.items() if not UNWANTED.match(name)}
    environment["PATH"] = str(Path(command[0]).parent)  # an environment of Python has no compiler
    try:
        done = subprocess.run(
            [*map(str, command)], cwd=folder, env=environment | variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True,
            timeout=PATIENCE, **(identity or {}),
        )  # fmt: skip
        return done.stdout
    except subprocess.CalledProcessError as error:
        raise FailedError(f"{error}\n{error.stdout[-4000:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FailedError(str(error)) from None


@contextlib.contextmanager
def environment(python: Python, folder: Path) -> Iterator[Path]:
    """Make an environment, yield its interpreter, and remove the environment."""
    place = folder / "environment"
    try:
        run(python.executable, "-m", "venv", place, folder=folder)
        yield place / "bin" / "python"
    finally:
        shutil.rmtree(place, ignore_errors=True)


def pip(interpreter: Path, command: str, *arguments: Any, folder: Path) -> None:
    """Run a command of pip."""
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    run(interpreter, "-m", "pip", command, *quiet, *arguments, folder=folder)


def copy_source(copy: Path) -> None:
    """Copy the source: a build folder may hold old modules."""
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns(*GENERATED))
        else:
            copy.mkdir(exist_ok=True)
            shutil.copy(source, copy)


def build(python: Python, folder: Path) -> Path:
    """Return the wheel, built from a copy of the source."""
    copy, made = folder / "source", folder / "wheels"
    copy_source(copy)
    with environment(python, folder) as interpreter:
        try:
            small = (SMALL_PACKAGE, "--no-deps", "--retries", 1, "--dest", folder / "downloads")
            pip(interpreter, "download", *small, folder=folder)
        except FailedError:
            raise SkippedError("no package index answers") from None
        pip(interpreter, "wheel", "--no-deps", "--wheel-dir", made, copy, folder=folder)
    (wheel,) = made.glob("*.whl")
    return wheel


def lowest_versions(folder: Path) -> Path:
    """Write a constraints file of the lowest versions that pyproject.toml allows."""
    lines = []
    for requirement in PROJECT["dependencies"]:
        match = re.fullmatch(r"([\w.-]+)>=([\w.]+)", requirement)
        if match is None:
            raise FailedError(f"the dependency {requirement!r} has no lowest version")
        lines.append("{}=={}\n".format(*match.groups()))
    path = folder / "lowest.txt"
    path.write_text("".join(lines))
    return path


def smoke(
    interpreter: Path, folder: Path, identity: Identity | None = None, **variables: str
) -> None:
    """Run the smoke test in an empty folder that the user may write."""
    run(interpreter, "-c", NO_COMPILER, folder=folder)
    script = Path(shutil.copy(Path(__file__).with_name("smoke.py"), folder))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        if identity:
            os.chown(place, identity["user"], identity["group"])
        out = run(interpreter, script, folder=Path(place), identity=identity, **variables)
    print(f"  with {out.strip()}", flush=True)


# -- parts ----------------------------------------------------------------------------------------


def newest(python: Python, wheel: Path, folder: Path) -> None:
    """Install with the newest versions of all dependencies."""
    with environment(python, folder) as interpreter:
        pip(interpreter, "install", wheel, folder=folder)
        smoke(interpreter, folder)


def lowest(python: Python, wheel: Path, folder: Path) -> None:
    """Install with the lowest versions of all dependencies."""
    with environment(python, folder) as interpreter:
        pip(interpreter, "install", "--constraint", lowest_versions(folder), wheel, folder=folder)
        smoke(interpreter, folder)


def homeless(found: Sequence[Python], wheel: Path, folder: Path) -> None:
    """Install, and run as a user without a home who may not write into the environment."""
    user = other_user()
    python = next((each for each in found if can_run(each, folder, user)), None)
    if python is None:
        raise SkippedError("the other user can run no Python that was found")
    print(f"  with Python {python.name}", flush=True)
    with environment(python, folder) as interpreter:
        pip(interpreter, "install", wheel, folder=folder)
        with read_only(interpreter.parents[1]):
            run(interpreter, "-c", CACHE_PLACES, folder=folder, identity=user, HOME=NO_HOME)
            smoke(interpreter, folder, user, HOME=NO_HOME)


def other_user() -> Identity:
    """Return whom to run as: root, who may write everywhere, becomes nobody."""
    if os.geteuid() != 0:
        return {}
    try:
        entry = pwd.getpwnam(NOBODY)
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        subprocess.run(["true"], check=True, **user)
    except (KeyError, OSError, subprocess.SubprocessError):
        raise SkippedError(f"the user cannot be changed to {NOBODY}") from None
    return user


def can_run(python: Python, folder: Path, user: Identity) -> bool:
    """Whether a user can run an interpreter, which may be in the home of another."""
    try:
        run(python.executable, "-I", "-c", "import venv", folder=folder, identity=user)
    except FailedError:
        return False
    return True


@contextlib.contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Let nobody write into a folder, for a time."""
    folders = [place, *(each for each in place.rglob("*") if each.is_dir())]
    modes = {each: each.stat().st_mode for each in folders}
    writing = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
    try:
        for each in folders:
            each.chmod(modes[each] & ~writing)
        yield
    finally:
        for each in folders:
            each.chmod(modes[each])


class Report:
    """Runs the parts, and keeps their results by name."""

    def __init__(self) -> None:
        self.results: dict[str, str] = {}

    def run(self, name: str, step: Callable[..., Any], *arguments: Any) -> Any:
        """Run a part; return what it returns, None if it was skipped or failed."""
        print(f"{name} ...", flush=True)
        start, result, made = time.perf_counter(), "passed", None
        try:
            made = step(*arguments)
        except SkippedError as reason:
            result = f"SKIPPED: {reason}"
        except FailedError as reason:
            result = "FAILED"
            print(reason)
        self.results[name] = f"{result} ({time.perf_counter() - start:.0f} s)"
        print(f"{name}: {self.results[name]}", flush=True)
        return made


def main(words: list[str]) -> int:
    """Run all parts; return 1 if one of them failed."""
    given_wheel = None
    if words[:1] == ["--wheel"]:
        given_wheel, words = Path(words[1]).resolve(strict=True), words[2:]
    found = pythons()
    if not found:
        sys.exit(f"no Python {OLDEST_NAME} or newer was found: install one.")
    versions = one_of_each(found)
    chosen, oldest = choose(versions, words), versions[-1]
    report = Report()
    with tempfile.TemporaryDirectory(prefix="seqmed-installs-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # for the other user
        wheel = given_wheel or report.run("wheel", build, versions[0], folder)
        parts: dict[str, tuple[Any, ...]] = {
            f"Python {python.name}, newest versions": (newest, python) for python in versions
        }
        parts[f"Python {OLDEST_NAME}, lowest versions"] = (lowest, oldest)
        parts["no home, read-only environment"] = (homeless, found)
        for title, (step, given) in parts.items():
            if isinstance(given, Python) and given not in chosen:
                report.results[title] = (
                    f"SKIPPED: not among the Pythons asked for ({' '.join(words)})"
                )
            elif step is lowest and oldest.version[:2] != OLDEST:
                report.results[title] = "SKIPPED: this Python was not found"
            elif wheel is None:
                report.results[title] = f"SKIPPED: wheel {report.results['wheel']}"
            else:
                report.run(title, step, given, wheel, folder)
    print("\nResults:", *(f"- {title}: {it}" for title, it in report.results.items()), sep="\n")
    return int(any(result.startswith("FAILED") for result in report.results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
