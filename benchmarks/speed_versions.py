"""Processor time of two versions of this package in `speed.py`, in turns.

Both versions run their own `speed.py`, section after section, on one thread. Its clock is replaced
by processor time, so other processes hardly matter. Compared is our own time in rows of the same
name. Of several rounds, the median of the ratios counts.

    python benchmarks/speed_versions.py OLD [--quick] [--rounds 3] [--out FILE.json]

OLD is a folder with the other version and its environment, made by `git worktree add OLD COMMIT`
and `make bench` in it. `performance_page.py` writes the table of docs/performance.md from
results/speed_versions.json. Sections that are run again replace those in FILE. The sections
"startup" and "threads" are left out: their work is in other processes or threads. "precomputed" is
younger than the versions it could be compared with.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import make_parser, print_table, write_json

SECTIONS = ("solver", "lapmed", "stream", "predict", "memory", "growth")
HERE = Path(__file__).resolve().parent.parent
# Runs speed.py with processor time as its clock.
RUN = (
    "import runpy, time; time.perf_counter = time.process_time; "
    "runpy.run_path('speed.py', run_name='__main__')"
)
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")


def seconds(folder: Path, section: str, quick: bool) -> dict[str, float]:
    """Return the processor seconds of a version in a section, by the name of the row."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "speed.json"
        options = ["--only", section, "--out", str(out), *(["--quick"] if quick else [])]
        subprocess.run(
            [folder / ".venv" / "bin" / "python", "-c", RUN, *options],
            cwd=folder / "benchmarks",
            env=os.environ | dict.fromkeys(THREADS, "1"),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        rows = json.loads(out.read_text())["sections"][section]
    return {row["what"]: row["ours"] for row in rows}


def commit_of(folder: Path) -> str:
    """Return the commit of a folder."""
    command = ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def compare(section: str, old: Path, quick: bool, rounds: int) -> list[dict[str, Any]]:
    """Return the times of both versions and their ratio, for every row of a section."""
    pairs = []
    for number in range(rounds):
        order = (HERE, old) if number % 2 == 0 else (old, HERE)
        found = {folder: seconds(folder, section, quick) for folder in order}
        pairs.append((found[HERE], found[old]))
    return [
        {
            "what": what,
            "new": float(np.median([new[what] for new, _ in pairs])),
            "old": float(np.median([before[what] for _, before in pairs])),
            "ratio": float(np.median([new[what] / before[what] for new, before in pairs])),
        }
        for what in pairs[0][0]
        if what in pairs[0][1]
    ]


def earlier(path: str | None, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the results in a file that were measured with the same settings, or none."""
    if path and Path(path).exists():
        found: dict[str, Any] = json.loads(Path(path).read_text())
        if all(found.get(name) == value for name, value in settings.items()):
            return found
    return settings | {"rounds": {}, "sections": {}}


def main() -> None:
    """Run all sections, print the ratios, and write them as JSON."""
    parser = make_parser(__doc__)
    parser.add_argument("old", type=Path, help="folder of the other version")
    parser.add_argument("--quick", action="store_true", help="smaller, for a first look")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--out", help="write the results there as JSON")
    options = parser.parse_args()
    old = options.old.resolve()
    results = earlier(options.out, {"quick": options.quick, "old": commit_of(old)})
    for section in options.only:
        rows = compare(section, old, options.quick, options.rounds)
        results["sections"][section], results["rounds"][section] = rows, options.rounds
        print(f"\n{section}")
        print_table(
            ("", "new", "old", "ratio"),
            [
                (row["what"], f"{row['new']:.4g}", f"{row['old']:.4g}", f"{row['ratio']:.2f}")
                for row in rows
            ],
        )
        write_json(options.out, results)


if __name__ == "__main__":
    main()
