"""Fit and prediction with Dask on the processes of one machine, beside a plain loop.

Parquet files of 20 numbers and 4,000 labels, of two classes of three Gaussians each, are made in a
temporary folder. Processes have one thread. Processor seconds are those of the workers, or of the
process of the plain loop; other work on the machine does not count in them.

    python benchmarks/cluster.py [--rows N] [--predicted N] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from common import Later, make_parser, print_table, write_json  # noqa: E402

import seqmed  # noqa: E402
from seqmed import make_stream_pipeline  # noqa: E402

dd, pd, distributed = Later("dask.dataframe"), Later("pandas"), Later("distributed")
on_dask = Later("seqmed.dask")

ROWS, PREDICTED, ROWS_OF_FILE, COLUMNS, LABELS = 10_000_000, 2_000_000, 100_000, 20, 4000
MIB = 2**20


def write_rows(folder: Path, n_rows: int) -> None:
    """Write the files."""
    folder.mkdir()
    centres = np.random.default_rng(0).normal(size=(2, 3, COLUMNS))
    names = [f"x{number}" for number in range(COLUMNS)]
    for number, first in enumerate(range(0, n_rows, ROWS_OF_FILE)):
        generator = np.random.default_rng((1, number))
        size = min(ROWS_OF_FILE, n_rows - first)
        kinds = generator.integers(2, size=size)
        points = centres[kinds, generator.integers(3, size=size)]
        frame = pd.DataFrame(points + 1.2 * generator.normal(size=points.shape), columns=names)
        frame["kind"] = np.where(generator.random(size) < LABELS / n_rows, kinds, -1)
        frame.to_parquet(folder / f"rows-{number:04}.parquet", index=False)


def process_seconds() -> float:
    """Return the processor seconds of this process."""
    return time.process_time()


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def load_modules() -> None:
    """Import, and compile, what a worker needs, before the clock starts."""
    model = make_stream_pipeline(random_state=0)
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 2)), columns=["a", "b"])
    model.fit(rows, np.arange(300) % 2).predict(rows)


class Run:
    """Seconds, processor seconds and peak memory of the workers during a block."""

    def __init__(self, n_workers: int) -> None:
        self.cluster = distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        )
        self.client = distributed.Client(self.cluster)
        self.client.run(load_modules)
        self.before = sum(self.client.run(process_seconds).values())
        self.start = time.perf_counter()

    def finish(self) -> dict[str, float]:
        """Return what was measured, and end the workers."""
        seconds = time.perf_counter() - self.start
        found = {
            "seconds": seconds,
            "cpu_seconds": sum(self.client.run(process_seconds).values()) - self.before,
            "peak_mib": max(self.client.run(peak_bytes).values()) / MIB,
        }
        self.client.close()
        self.cluster.close()
        return found


def plain_loop(model: str, paths: list[str]) -> dict[str, float]:
    """Predict file by file in this process."""
    load_modules()
    found, n_rows = seqmed.load(model), 0
    start, before = time.perf_counter(), process_seconds()
    for path in paths:
        n_rows += found.predict(pd.read_parquet(path).drop(columns="kind")).size
    seconds, used = time.perf_counter() - start, process_seconds() - before
    return {"seconds": seconds, "cpu_seconds": used, "peak_mib": peak_bytes() / MIB, "n": n_rows}


def main() -> None:
    """Run, print the table and write it as JSON."""
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--predicted", type=int, default=PREDICTED)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--loop", nargs=2, metavar=("MODEL", "PATHS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        print(json.dumps(plain_loop(options.loop[0], json.loads(options.loop[1]))))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "rows", options.rows)
        every = sorted(map(str, (folder / "rows").iterdir()))
        few = every[: -(-options.predicted // ROWS_OF_FILE)]
        results = {"fit": measured_fit(folder, every)}
        for n_workers in (1, 2):
            run = Run(n_workers)
            model, data = seqmed.load(folder / "model"), dd.read_parquet(few)
            rows = data.drop(columns="kind")
            n_rows = int(on_dask.predict(model, rows).map_partitions(len).compute().sum())
            results[f"predict, workers {n_workers}"] = {**run.finish(), "n": n_rows}
        loop = [sys.executable, __file__, "--loop", str(folder / "model"), json.dumps(few)]
        done = subprocess.run(loop, check=True, capture_output=True, text=True)
        results["predict, plain loop"] = json.loads(done.stdout)
        bytes_of_model = (folder / "model").stat().st_size
        bytes_of_file = Path(every[0]).stat().st_size
    one, two, loop_alone = (
        results[f"predict, {name}"] for name in ("workers 1", "workers 2", "plain loop")
    )
    summary = {
        "rows": options.rows,
        "load_average": os.getloadavg()[0],
        "two_workers_against_one": one["seconds"] / two["seconds"],
        "one_worker_against_loop_cpu": one["cpu_seconds"] / loop_alone["cpu_seconds"],
        "model_mib": bytes_of_model / MIB,
        "file_mib": bytes_of_file / MIB,
    }
    lines = [
        [name, *(f"{each.get(key, 0):,.1f}" for key in ("seconds", "cpu_seconds", "peak_mib"))]
        for name, each in results.items()
    ]
    print_table(["", "seconds", "processor seconds", "peak MiB"], lines)
    print(json.dumps(summary, indent=1))
    if options.out:
        write_json(options.out, {"summary": summary, "parts": results})


def measured_fit(folder: Path, paths: list[str]) -> dict[str, float]:
    """Fit with two workers; save the model."""
    run = Run(2)
    model = make_stream_pipeline(random_state=0)
    fit, seconds = model._fit_summary, []

    def timed(plan, summary):
        start = time.perf_counter()
        fit(plan, summary)
        seconds.append(time.perf_counter() - start)
        return model

    model._fit_summary = timed
    on_dask.fit(model, dd.read_parquet(paths), label="kind")
    del model._fit_summary
    found = run.finish()
    seqmed.save(model, folder / "model")
    return {**found, "learning_seconds": seconds[0]}


if __name__ == "__main__":
    main()
