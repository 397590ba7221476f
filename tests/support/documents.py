"""Code blocks of README.md and docs/, run in the order in which a reader meets them.

- ```python: all blocks of a page share one namespace. A ```text block directly below is the output.
- ```console: lines that begin with "$ " are commands; the lines below a command are its output.
- ```text: anything else that is shown and not run.

    python -m tests.support.documents [PAGE...]

writes the output of every command and program into the pages.
"""

from __future__ import annotations

import contextlib
import glob
import io
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

from tests.support.command import seqmed
from tests.support.labeling import ForkedCommand

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
LANGUAGES = ("python", "console", "text")
# Commands that are shown and not run, with the reason.
NOT_RUN = {
    "make": "sets up an environment of its own; tests/integration/test_examples.py runs the demo",
    "pip": "installs into the environment of the reader",
    "cd": "the tests run in the folder of the page",
    "kill": "tests/cli/test_resume.py kills the command at random moments",
    "python": "benchmarks and figures take minutes",
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
# Progress is shown every ten seconds, so that its lines depend on the speed of the machine.
PROGRESS = re.compile(r"^learning: .*\n", re.MULTILINE)
WIDTH = 100


class Shown(NamedTuple):
    """What a page shows as the output of a command or program, where, and what the output is."""

    command: str
    shown: str
    found: str
    span: tuple[int, int]
    failed: bool


def run_page(page: Path, folder: Path) -> list[Shown]:
    """Run the blocks of a page in the folder."""
    text = page.read_text()
    blocks = list(BLOCK.finditer(text))
    names: dict[str, object] = {"__name__": "__main__"}
    results: list[Shown] = []
    for number, block in enumerate(blocks):
        language, code = block.groups()
        assert language in LANGUAGES, (page, language)
        if language == "python":
            found = run_python(code, names, folder)
            below = blocks[number + 1] if number + 1 < len(blocks) else None
            if below and below[1] == "text" and not text[block.end() : below.start()].strip():
                results.append(Shown(code, below[2], found, below.span(2), failed=False))
            else:
                assert not found, (page, "the page does not show the output", found)
        elif language == "console":
            start = block.start(2)
            for match in COMMAND.finditer(code):
                span = (start + match.start(2), start + match.end(2))
                results += run_command(match[1], match[2], span, folder)
    return results


def run_python(code: str, names: dict[str, object], folder: Path) -> str:
    """Return what a program prints, warnings included."""
    output = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(output),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        exec(compile(code, "block", "exec"), names)
    said = [f"{each.category.__name__}: {each.message}\n" for each in caught]
    return output.getvalue() + "".join(said)


def run_command(command: str, shown: str, span: tuple[int, int], folder: Path) -> list[Shown]:
    """Run a command line; return nothing if it is one that is not run."""
    line = command.split("  #")[0].strip()
    first, _, rest = line.partition(" | ")
    words = shlex.split(first)
    if words[0] in NOT_RUN:
        return []
    failed = False
    with contextlib.chdir(folder):
        arguments = [name for word in words[1:] for name in sorted(glob.glob(word)) or [word]]
    if words[:2] == ["seqmed", "label"]:  # until somebody has joined and sees a card
        with ForkedCommand(folder, *arguments[1:]) as page:
            page.person()
            found, code = page.end()
        failed = code != 0
    elif words[0] == "seqmed":
        result = seqmed(folder, *arguments, columns=WIDTH, quick=False)
        failed = result.code not in (0, 141)
        found = result.err + result.out
        if rest:
            done = subprocess.run(
                ["bash", "-c", rest], input=result.out, cwd=folder, capture_output=True, text=True,
                check=True,
            )  # fmt: skip
            found = result.err + done.stdout
    else:
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=True
        )
        found = done.stdout
    found = "".join(each.rstrip() + "\n" for each in found.splitlines())
    found = found.replace(str(folder.resolve()), "/home/ada").replace(str(folder), "/home/ada")
    return [Shown(line, shown, found, span, failed)]


def main() -> None:
    """Write what is found into the pages."""
    pages = [Path(name).resolve() for name in sys.argv[1:]] or PAGES
    for page in pages:
        text = page.read_text()
        with tempfile.TemporaryDirectory() as folder:
            results = run_page(page, Path(folder))
        for result in reversed(results):
            start, end = result.span
            if result.shown:
                text = text[:start] + PROGRESS.sub("", result.found) + text[end:]
        page.write_text(text)


if __name__ == "__main__":
    main()
