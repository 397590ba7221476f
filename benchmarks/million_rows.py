"""A million rows through `seqmed learn`: rows a second, peak memory, and where the time goes.

A made-up CSV of 20 columns of numbers with missing cells, a category, a date and an id, two classes
of three Gaussians each, and 2 % labels, in a temporary folder, is learned by the command in a
process of its own, with timers around its parts.
A part's time is without that of parts within it. The classifier is the default, `SeqGraphMED`, its
support vectors bounded by `--budget`. CPU seconds are given too: other work on the machine does not
count in them.

    python benchmarks/million_rows.py [--quick] [--out FILE.json]
"""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import parse, print_table, write_json

ROWS, QUICK_ROWS, AT_ONCE = 1_000_000, 100_000, 10_000
COLUMNS, LABELED, MISSING = 20, 0.02, 0.01
MOST_MEMORY = 600 * 2**20
OPTIONS = ("--label", "kind", "--batch-size", "500", "--budget", "1000")
# How this program tells its own process that learns where to leave the times.
TIMES = "SEQMED_TIMES"


def write_rows(path: Path, n_rows: int) -> None:
    """Write the made-up CSV."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(2, 3, COLUMNS))
    with path.open("w") as file:
        names = (f"x{number}" for number in range(COLUMNS))
        print("id", "day", "city", *names, "kind", sep=",", file=file)
        for first in range(0, n_rows, AT_ONCE):
            kinds = generator.integers(2, size=AT_ONCE)
            centre = centres[kinds, generator.integers(3, size=AT_ONCE)]
            points = centre + 1.2 * generator.normal(size=centre.shape)
            labels = np.where(
                generator.random(AT_ONCE) < LABELED, np.array(["no", "yes"])[kinds], ""
            )
            cells = np.char.mod("%.6f", points)
            cells[generator.random(cells.shape) < MISSING] = ""
            days = np.datetime64("2026-01-01") + generator.integers(365, size=AT_ONCE)
            cities = np.char.add("city ", generator.integers(12, size=AT_ONCE).astype(str))
            for place in range(AT_ONCE):
                row = [str(first + place), str(days[place]), cities[place], *cells[place]]
                file.write(",".join([*row, labels[place]]) + "\n")


class Timers:
    """Seconds spent in parts of a program, those of inner parts not counted in outer ones."""

    def __init__(self):
        self.seconds = {}
        self._open = []

    def around(self, part, function):
        """Return a function that is timed."""

        @functools.wraps(function)
        def timed(*arguments, **options):
            begin = time.perf_counter()
            self._open.append(0.0)
            try:
                return function(*arguments, **options)
            finally:
                spent, inner = time.perf_counter() - begin, self._open.pop()
                self.seconds[part] = self.seconds.get(part, 0.0) + spent - inner
                if self._open:
                    self._open[-1] += spent

        return timed

    def around_steps(self, part, function):
        """Return a generator function whose steps are timed."""

        @functools.wraps(function)
        def timed(*arguments):
            step = self.around(part, functools.partial(next, function(*arguments), None))
            while (value := step()) is not None:
                yield value

        return timed


def learn() -> None:
    """Run the command with timers, and write their times and the peak memory."""
    from seqmed import SeqGraphMED, cli, model_file
    from seqmed.cli import prequential
    from seqmed.graph import propagation
    from seqmed.margin import margin_state
    from seqmed.mixture import learning as mixture_update
    from seqmed.streams import Stream
    from seqmed.tables.encoder import TableEncoder

    timers = Timers()
    Stream.__iter__ = timers.around_steps("reading", Stream.__iter__)
    TableEncoder.transform = timers.around("encoding", TableEncoder.transform)
    prequential.predict_labeled = timers.around("predicting", prequential.predict_labeled)
    SeqGraphMED.partial_fit = timers.around("other learning", SeqGraphMED.partial_fit)
    margin_state.learn = timers.around("margin", margin_state.learn)
    mixture_update.with_fits = timers.around("experts", mixture_update.with_fits)
    propagation.learn_graph = timers.around("graph", propagation.learn_graph)
    mixture_update.recorded = timers.around("mixture", mixture_update.recorded)
    mixture_update.measured_scales_of = timers.around("mixture", mixture_update.measured_scales_of)
    mixture_update.with_choice = timers.around("mixture", mixture_update.with_choice)
    model_file.save = timers.around("saving", model_file.save)
    begin = time.perf_counter()
    try:
        cli.main()
    finally:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        found = {
            "seconds": time.perf_counter() - begin,
            "cpu_seconds": time.process_time(),
            "peak": peak,
            "parts": timers.seconds,
        }
        Path(os.environ[TIMES]).write_text(json.dumps(found))


def main() -> None:
    """Run, print the table and write it as JSON."""
    if TIMES in os.environ:
        learn()
        return
    options = parse(__doc__)
    n_rows = QUICK_ROWS if options.quick else ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "rows.csv", n_rows)
        arguments = ("learn", "model", "rows.csv", *OPTIONS, "--log", "log")
        subprocess.run(
            [sys.executable, __file__, *arguments],
            cwd=folder,
            env={**os.environ, TIMES: str(folder / "times.json")},
            check=True,
        )
        found = json.loads((folder / "times.json").read_text())
        log = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
        n_bytes = (folder / "rows.csv").stat().st_size
    seconds, parts = found["seconds"], found["parts"]
    parts["other"] = seconds - sum(parts.values())
    half = len(log) // 2
    results = {
        "rows": n_rows, "bytes": n_bytes, "options": OPTIONS, "seconds": seconds,
        "rows_per_second": n_rows / seconds, "peak_bytes": found["peak"],
        "cpu_seconds": found["cpu_seconds"], "rows_per_cpu_second": n_rows / found["cpu_seconds"],
        "accuracy": log[-1]["accuracy_so_far"],
        "seconds_first_half": sum(line["seconds"] for line in log[:half]),
        "seconds_second_half": sum(line["seconds"] for line in log[half:]),
        "share": {part: spent / seconds for part, spent in parts.items()},
    }  # fmt: skip
    print_table(
        ("part", "seconds", "share"),
        [(part, f"{spent:.1f}", f"{spent / seconds:.1%}") for part, spent in parts.items()],
    )
    print_table(
        ("rows", "rows/s", "rows/CPU s", "peak MB", "accuracy", "first half s", "second half s"),
        [(
            n_rows, f"{n_rows / seconds:.0f}", f"{n_rows / found['cpu_seconds']:.0f}",
            f"{found['peak'] / 1e6:.0f}",
            f"{results['accuracy']:.3f}", f"{results['seconds_first_half']:.0f}",
            f"{results['seconds_second_half']:.0f}",
        )],
    )  # fmt: skip
    write_json(options.out, {"quick": options.quick, **results})
    if found["peak"] >= MOST_MEMORY:
        raise SystemExit(f"the peak of {found['peak']} bytes is over {MOST_MEMORY}.")


if __name__ == "__main__":
    main()
