"""A table in files and partitions, and tasks that are slow, die or take memory, for Dask."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd

from seqmed import SeqGraphMED, make_stream_pipeline

COLUMNS = list("abcd")


def table(n_rows=1500, labeled=0.2):
    """A table of four numbers, a category and labels; more rows than `model` keeps."""
    generator = np.random.default_rng(4)
    codes = generator.integers(2, size=n_rows)
    points = generator.normal(size=(n_rows, 4)) + 1.2 * codes[:, None]
    frame = pd.DataFrame(points.round(3), columns=COLUMNS)
    frame["city"] = np.array(["north", "south"])[generator.integers(2, size=n_rows)]
    names = np.array(["no", "yes"])[codes].astype(object)
    frame["kind"] = np.where(generator.random(n_rows) < labeled, names, None)
    return frame


def model(**parameters):
    """A pipeline that samples the rows of `table`."""
    classifier = SeqGraphMED(graph_memory=200, experts=(), random_state=0, **parameters)
    return make_stream_pipeline(classifier)


def write_parts(frame, folder: Path, sizes, kind) -> list[Path]:
    """Write a table as files of the given numbers of rows."""
    folder.mkdir()
    paths, start = [], 0
    for number, size in enumerate(sizes):
        part, path = frame.iloc[start : start + size], folder / f"part-{number}.{kind}"
        if kind == "csv":
            part.to_csv(path, index=False)
        else:
            part.to_parquet(path, index=False)
        paths.append(path)
        start += size
    assert start == len(frame)
    return paths


def after(seconds, part):
    """Return a partition late."""
    time.sleep(seconds)
    return part


def killed_once(marker: str, part):
    """Return a partition; the first worker that is asked for it is killed."""
    if not os.path.exists(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def without_end(part):
    """Take ever more memory."""
    taken = []
    while True:
        taken.append(np.ones(2**22))
        time.sleep(0.02)
