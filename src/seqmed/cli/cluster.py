"""`--cluster`: the files of a command as tasks of Dask, one task per file.

A task reads its file as the command does without a cluster, so that the results are the same. The
files must be at the same paths for all workers.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

from seqmed.cli.checkpoint import Progress, open_stream
from seqmed.cli.options import Reading
from seqmed.cli.terminal import (
    CommandError,
    Reporter,
    counted,
    shown_by_command,
    tell,
    tell_skipped,
    warn,
)
from seqmed.streams import Skipped
from seqmed.streams.inputs import Input, find_inputs
from seqmed.tables.stream_pipeline import StreamPipeline

# Seconds to wait for a scheduler, and for processes of this machine to end.
PATIENCE = "10s"


class FileOutcome(NamedTuple):
    """What a task returns, or several tasks together.

    Attributes
    ----------
    result : the result of the function of the command.
    messages : lines to tell or to warn of, as (number of the file, whether it is a warning, line).
    skipped : the skipped bad rows, by the number of their file.
    """

    result: Any
    messages: tuple[tuple[int, bool, str], ...]
    skipped: tuple[tuple[int, Skipped], ...]

    def tell(self) -> None:
        """Print the messages, in the order of the files."""
        for _, warning, line in sorted(self.messages):
            (warn if warning else tell)(line)

    def all_skipped(self) -> Skipped:
        """Return the skipped rows of all files, with the examples of the first ones."""
        total = Skipped()
        for _, part in sorted(self.skipped, key=lambda each: each[0]):
            for reason, count in part.counts.items():
                for bad in part.examples[reason]:
                    total.add(bad)
                total.counts[reason] += count - len(part.examples[reason])
        return total


@dataclass(frozen=True)
class FileTasks:
    """A command whose files are tasks.

    Parameters
    ----------
    title : name of the work in messages.
    data : files and folders.
    pipeline, progress : the model.
    reading : how files are read.
    more : further arguments of `Stream`.
    """

    title: str
    data: Sequence[Path]
    pipeline: StreamPipeline
    progress: Progress
    reading: Reading
    more: dict[str, Any] = field(default_factory=dict)

    def run(self, cluster: str, work: Callable[..., Any], merge: Callable[[Any, Any], Any]) -> Any:
        """Return the results of ``work(pipeline, stream, number)`` for all files, merged.

        ``cluster`` is the value of --cluster. ``merge`` is commutative and associative. Skipped
        rows, warnings and other messages are printed in the order of the files.
        """
        with connected(cluster) as dask:
            outcome = self.outcome(dask, work, merge)
        outcome.tell()
        tell_skipped(outcome.all_skipped())
        return outcome.result

    def outcome(
        self, dask: Any, work: Callable[..., Any], merge: Callable[[Any, Any], Any]
    ) -> FileOutcome:
        """Return the outcome of all files; ``dask`` is `seqmed.dask`, connected."""
        sources = files_to_read(self.data, self.reading.file_format)
        read = dask.delayed(partial(outcome_of_file, work, self.progress, self.reading, self.more))
        shared = dask.on_workers(self.pipeline)
        tasks = [read(shared, source, number) for number, source in enumerate(sources)]
        with Reporter(self.title) as bar:

            def report(done: int) -> None:
                files = f"{done:,} of {counted(len(tasks), 'file')}"
                bar.report(done / len(tasks), done, files, unit="files")

            report(0)
            found: FileOutcome = dask.merged_results(
                tasks, partial(joined, merge), report, named=False
            )
        return found


def files_to_read(data: Sequence[Path], file_format: str | None) -> list[Input]:
    """Return the files of a command; refuse pipes."""
    sources = find_inputs(data, file_format)
    for source in sources:
        if not source.resumable:
            raise CommandError(
                f"{source.name} cannot be read with --cluster, expected files: leave --cluster out."
            )
    return sources


def outcome_of_file(
    work: Callable[..., Any], progress: Progress, reading: Reading, more: dict[str, Any],
    pipeline: StreamPipeline, source: Input, number: int,
) -> FileOutcome:  # fmt: skip
    """Return the outcome of one file, on a worker."""
    lines: list[str] = []
    with shown_by_command(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        stream = open_stream(
            [source], pipeline, progress, reading, **{**more, "tell": lines.append}
        )
        result = work(pipeline, stream, number)
    messages = [(number, False, line) for line in lines]
    messages += [(number, True, str(each.message)) for each in caught]
    return FileOutcome(result, tuple(messages), ((number, stream.skipped),))


def joined(merge: Callable[[Any, Any], Any], one: FileOutcome, other: FileOutcome) -> FileOutcome:
    """Return the outcome of the files of two outcomes."""
    return FileOutcome(
        merge(one.result, other.result),
        one.messages + other.messages,
        one.skipped + other.skipped,
    )


# -- where the tasks run ---------------------------------------------------------------------------


@contextmanager
def connected(cluster: str) -> Iterator[Any]:
    """Connect to a cluster, or start processes of this machine; yield `seqmed.dask`."""
    import logging

    import seqmed.dask as dask  # before Dask: its error names the extra

    from distributed import Client, LocalCluster  # isort: skip

    number = local_processes(cluster)
    try:
        if number is None:
            with Client(cluster, timeout=PATIENCE, set_as_default=True):
                yield dask
            return
    except OSError as error:
        raise CommandError(
            f"no scheduler answers at {cluster}: check the address, or use --cluster local."
        ) from error
    with held_interrupts():
        processes = LocalCluster(
            n_workers=number,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",  # Dask warns of a port that is taken
            silence_logs=logging.CRITICAL,  # of workers that are interrupted or killed
        )
    with processes, Client(processes):
        yield dask


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back for a while; processes and threads that are started here never get it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # else the first process that starts would end the hold
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def local_processes(cluster: str) -> int | None:
    """Return the number of processes of local or local:N, None for an address."""
    name, _, number = cluster.partition(":")
    if name != "local":
        if "://" not in cluster and not number.isdecimal():
            raise CommandError(
                f"--cluster is {cluster!r}, expected local, local:N or the address of a scheduler, "
                "such as tcp://10.0.0.1:8786."
            )
        return None
    if number and not (number.isdecimal() and int(number)):
        raise CommandError(f"--cluster is {cluster!r}, expected local:N with N >= 1 processes.")
    return int(number) if number else len(os.sched_getaffinity(0))
