"""Fill the table of benchmark results: which program wrote which file, its commit and its date.

The table takes the place of the comment <!-- results --> in a page. A file begins with the name of
its program. Without git, the commits are left out.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MARK = "<!-- results -->"
# Commands of files whose names do not begin with that of their program.
COMMANDS = {
    "benchmarks/results/broad.json": "python benchmarks/broad_evidence.py",
    "benchmarks/results/broad_large.json": "python benchmarks/broad_evidence.py --large",
    "results/results.json": "make paper",
    "results/mixture_known_bias.json": "make paper",
    "results/speed.json": "make bench",
    "results/million_rows.json": "python benchmarks/million_rows.py",
    "results/speed_versions.json": "python benchmarks/speed_versions.py",
}


def last_change(path: str) -> tuple[str, str]:
    """Return the commit and the date of the last change of a file; empty without git."""
    command = ["git", "log", "-1", "--format=%h %as", "--", path]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "", ""
    commit, _, date = done.stdout.strip().partition(" ")
    return commit, date


def command_of(path: str) -> str:
    """Return the command that writes a file: the program with the longest name that begins it."""
    if path in COMMANDS:
        return COMMANDS[path]
    programs = [each.stem for each in (ROOT / "benchmarks").glob("*.py")]
    begins = [name for name in programs if Path(path).stem.startswith(name)]
    return f"python benchmarks/{max(begins, key=len)}.py" if begins else ""


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| date | commit | results | program |", "|---|---|---|---|"]
    folders = (ROOT / "benchmarks" / "results", ROOT / "results")
    for path in (str(p.relative_to(ROOT)) for f in folders for p in sorted(f.glob("*.json"))):
        command = command_of(path)
        commit, date = last_change(path)
        program = f"`{command.removeprefix('python benchmarks/')}`" if command else ""
        lines.append(f"| {date} | {commit} | `{Path(path).name}` | {program} |")
    return "\n".join(lines)


def read(app: Any, name: str, content: list[str]) -> None:
    """Fill the table of a page that has the mark."""
    if MARK in content[0]:
        content[0] = content[0].replace(MARK, table())


def setup(app: Any) -> dict[str, bool]:
    """Fill the table when the page is read."""
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
