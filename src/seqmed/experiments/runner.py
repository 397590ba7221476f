"""Runs of a figure: parameter choice, trials in processes, and the results on disk.

The unit of work is one method on one stream. Each result is written as soon as it is there, under a
name that changes with the code and the settings, so an interrupted run goes on where it stopped.
Every process uses one thread: the numbers do not depend on how many processes there are.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import platform
import signal
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from seqmed.experiments.curves import Parameters, Score
from seqmed.experiments.figures import Figure
from seqmed.model_file.files import replace_file

Report = Callable[[str, int, int], None]
"""Called with (what is being done, batches computed, batches in all)."""

# Seconds between two looks at the progress of the processes.
POLL_SECONDS = 0.25


class Task(NamedTuple):
    """One method with one set of parameters on one stream, scored after the batches ``wanted``."""

    method: str
    parameters: tuple[tuple[str, Any], ...]
    validation: bool
    stream: int
    wanted: tuple[int, ...]


def make_task(
    method: str, parameters: Parameters, validation: bool, stream: int, wanted: tuple[int, ...]
) -> Task:
    """Return a task; its parameters are kept as pairs, so that tasks can be looked up."""
    return Task(method, tuple(sorted(parameters.items())), validation, stream, wanted)


class TaskResult(NamedTuple):
    """What a task gave.

    An accuracy and the processor time of learning for each batch wanted, and the time of it all.
    """

    accuracies: list[float]
    update_seconds: list[float]
    seconds: float


Results = dict[Task, TaskResult]


@dataclass(frozen=True)
class FigureResult:
    """A figure's numbers.

    Parameters
    ----------
    figure : which.
    chosen : parameters of every method.
    validation : for every method, the mean validation accuracy of each entry of its grid.
    curves : for every method, (trials, batches) test accuracies of the finished trials, NaN where
        a batch was not evaluated.
    update_seconds : for every method, (trials, batches) processor times of learning, likewise.
    processor_seconds : time of all processes together.
    """

    figure: Figure
    chosen: dict[str, Parameters]
    validation: dict[str, list[dict[str, Any]]]
    curves: dict[str, np.ndarray]
    update_seconds: dict[str, np.ndarray] = field(default_factory=dict)
    processor_seconds: float = 0.0

    @property
    def trials(self) -> int:
        """Number of finished trials."""
        return next(iter(self.curves.values())).shape[0]


def run(figure: Figure, *, trials: int, jobs: int, folder: Path, report: Report) -> FigureResult:
    """Compute a figure, or what is missing of it in ``folder``.

    Raises KeyboardInterrupt on Ctrl-C; every finished task has then been written, and the tasks in
    progress are given up.
    """
    judged = validation_tasks(figure)
    with WorkerPool(jobs) as workers:
        results = compute(figure, judged, workers, folder, "choosing parameters", report)
        chosen, validation = decide(figure, results)
        tasks = trial_tasks(figure, chosen, trials)
        results |= compute(figure, tasks, workers, folder, "trials", report)
    return assemble(figure, chosen, validation, results, trials)


def collect(figure: Figure, *, trials: int, folder: Path) -> FigureResult | None:
    """Return what earlier runs have finished; None if that is not even one trial."""
    results = read_all(figure, validation_tasks(figure), folder)
    if len(results) < len(validation_tasks(figure)):
        return None
    chosen, validation = decide(figure, results)
    results |= read_all(figure, trial_tasks(figure, chosen, trials), folder)
    result = assemble(figure, chosen, validation, results, trials)
    return result if result.trials else None


def grid_points(figure: Figure, name: str) -> list[Parameters]:
    """Return the parameters a method chooses from."""
    method = figure.methods[name]
    return [{**method.fixed, **point} for point in method.grid]


def validation_tasks(figure: Figure) -> list[Task]:
    """Return the tasks on which parameters are chosen; none where there is no choice."""
    return [
        make_task(name, parameters, True, number, figure.judged(method))
        for name, method in figure.methods.items()
        if len(method.grid) > 1
        for parameters in grid_points(figure, name)
        for number in range(figure.validation_streams)
    ]


def trial_tasks(figure: Figure, chosen: dict[str, Parameters], trials: int) -> list[Task]:
    """Return the tasks of all trials, trial by trial, in the order of the figure's methods."""
    return [
        make_task(name, chosen[name], False, trial, figure.wanted(method))
        for trial in range(trials)
        for name, method in figure.methods.items()
    ]


def decide(
    figure: Figure, results: Results
) -> tuple[dict[str, Parameters], dict[str, list[dict[str, Any]]]]:
    """Return the parameters each method does best with on the validation streams, and the table."""
    chosen: dict[str, Parameters] = {}
    table: dict[str, list[dict[str, Any]]] = {}
    for name, method in figure.methods.items():
        table[name] = []
        for parameters in grid_points(figure, name):
            tasks = [
                make_task(name, parameters, True, number, figure.judged(method))
                for number in range(figure.validation_streams)
            ]
            scores = [np.mean(results[task].accuracies) for task in tasks if task in results]
            mean = float(np.mean(scores)) if scores else None
            table[name].append({"parameters": parameters, "accuracy": mean})
        best = max(table[name], key=lambda entry: entry["accuracy"] or 0.0)
        chosen[name] = best["parameters"]
    return chosen, table


def assemble(
    figure: Figure,
    chosen: dict[str, Parameters],
    validation: dict[str, list[dict[str, Any]]],
    results: Results,
    trials: int,
) -> FigureResult:
    """Return the result over the trials for which every method is there."""
    curves: dict[str, list[np.ndarray]] = {name: [] for name in figure.methods}
    times: dict[str, list[np.ndarray]] = {name: [] for name in figure.methods}
    tasks = trial_tasks(figure, chosen, trials)
    for start in range(0, len(tasks), len(figure.methods)):
        of_trial = tasks[start : start + len(figure.methods)]
        if all(task in results for task in of_trial):
            for task in of_trial:
                result, wanted = results[task], list(task.wanted)
                for rows, values in (
                    (curves, result.accuracies), (times, result.update_seconds),
                ):  # fmt: skip
                    row = np.full(figure.n_batches, np.nan)
                    row[wanted] = values
                    rows[task.method].append(row)
    shape = (-1, figure.n_batches)
    return FigureResult(
        figure=figure,
        chosen=chosen,
        validation=validation,
        curves={name: np.array(rows).reshape(shape) for name, rows in curves.items()},
        update_seconds={name: np.array(rows).reshape(shape) for name, rows in times.items()},
        processor_seconds=sum(result.seconds for result in results.values()),
    )


def compute(
    figure: Figure,
    tasks: list[Task],
    workers: WorkerPool,
    folder: Path,
    what: str,
    report: Report,
) -> Results:
    """Return the results of all tasks, reading those that are there already."""
    results = read_all(figure, tasks, folder)
    known = sum(len(task.wanted) for task in results)
    total = sum(len(task.wanted) for task in tasks)
    before = workers.batches
    submitted = {
        workers.pool.submit(run_task, figure, task, path_of(folder, figure, task)): task
        for task in tasks
        if task not in results
    }
    pending = set(submitted)
    while pending:
        report(what, known + workers.batches - before, total)
        finished, pending = wait(pending, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        for future in finished:
            results[submitted[future]] = future.result()
    report(what, total, total)
    return results


class WorkerPool:
    """A pool of fresh processes that count the batches they have done."""

    def __init__(self, jobs: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._others = set(multiprocessing.active_children())
        self._counter = context.Value("l", 0)
        self.pool = ProcessPoolExecutor(
            jobs, mp_context=context, initializer=start_worker, initargs=(self._counter,)
        )

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        self.pool.shutdown(wait=failure is None, cancel_futures=True)
        if failure is not None:
            for process in set(multiprocessing.active_children()) - self._others:
                process.terminate()

    @property
    def batches(self) -> int:
        """Batches done so far by all processes together."""
        return int(self._counter.value)


_counter: Any = None


def start_worker(counter: Any) -> None:
    """Set a worker up: it counts its batches, and leaves Ctrl-C to the parent."""
    global _counter
    _counter = counter
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_task(figure: Figure, task: Task, path: Path) -> TaskResult:
    """Compute one task and write its result; runs in a worker."""
    begun = time.process_time()
    make_stream = figure.validation_stream if task.validation else figure.trial_stream
    stream = make_stream(task.stream)
    scores: list[Score] = []
    with threadpool_limits(1):
        curve = figure.methods[task.method].curve
        for score in curve(stream, dict(task.parameters), task.wanted):
            scores.append(score)
            with _counter.get_lock():
                _counter.value += 1
    result = TaskResult(
        accuracies=[score.accuracy for score in scores],
        update_seconds=[round(score.seconds, 5) for score in scores],
        seconds=round(time.process_time() - begun, 2),
    )
    write_json(path, {**task._asdict(), **result._asdict()})
    return result


@cache
def fingerprint() -> str:
    """Return a hash of this package's code and the versions of what it computes with."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    digest.update(json.dumps(versions(), sort_keys=True).encode())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Return the versions the numbers are made with."""
    packages = ("seqmed", "numpy", "scipy", "scikit-learn", "numba")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def path_of(folder: Path, figure: Figure, task: Task) -> Path:
    """Return where the result of a task is kept, under a name that changes with what it is of."""
    content = json.dumps([fingerprint(), figure.name, figure.seed, figure.n_batches, *task])
    name = hashlib.sha256(content.encode()).hexdigest()[:16]
    return folder / figure.name / f"{task.method}-{name}.json"


def read_all(figure: Figure, tasks: list[Task], folder: Path) -> Results:
    """Return the results that are there already."""
    results = {}
    for task in tasks:
        path = path_of(folder, figure, task)
        if path.is_file():
            stored = json.loads(path.read_text())
            results[task] = TaskResult(*(stored[name] for name in TaskResult._fields))
    return results


def write_json(path: Path, content: Any) -> None:
    """Write JSON so that a reader sees all of the file or none of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, [(json.dumps(content, indent=1) + "\n").encode()])
