"""Runs a figure: chooses parameters, computes trials in processes, keeps what is finished.

The unit of work is one method on one stream. Each result is written as soon as it is there, so an
interrupted run goes on where it stopped. Every process uses one BLAS thread: the numbers do not
depend on how many processes there are.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from seqmed.experiments.curves import Parameters
from seqmed.experiments.figures import Figure

Report = Callable[[str, int, int], None]
"""Called with (what is being done, batches computed, batches in all)."""

# Seconds between two looks at the progress of the processes.
PATIENCE = 0.25


class Task(NamedTuple):
    """One method with one set of parameters on one stream, scored after the batches ``wanted``."""

    method: str
    parameters: Parameters
    validation: bool
    stream: int
    wanted: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """A figure's numbers.

    Parameters
    ----------
    figure : which.
    chosen : parameters of every method.
    validation : for every method, the mean validation accuracy of each entry of its grid.
    curves : for every method, (trials, batches) test accuracies of the finished trials, NaN where
        a batch was not evaluated.
    seconds : time spent, over all runs that went on with it.
    """

    figure: Figure
    chosen: dict[str, Parameters]
    validation: dict[str, list[dict[str, Any]]]
    curves: dict[str, np.ndarray]
    seconds: float = 0.0

    @property
    def trials(self) -> int:
        """Number of finished trials."""
        return next(iter(self.curves.values())).shape[0]


def run(figure: Figure, *, trials: int, jobs: int, folder: Path, report: Report) -> Outcome:
    """Compute a figure, or what is missing of it in ``folder``.

    Raises KeyboardInterrupt on Ctrl-C; every finished task has then been written, and the tasks in
    progress are given up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    try:
        with Crew(jobs) as crew:
            chosen, validation = choose(figure, crew, folder, report)
            tasks = trial_tasks(figure, chosen, trials)
            results = compute(figure, tasks, crew, folder, "trials", report)
    finally:
        add_seconds(folder, figure, time.monotonic() - begun)
    return assemble(figure, chosen, validation, results, trials, seconds_spent(folder, figure))


def collect(figure: Figure, *, trials: int, folder: Path) -> Outcome | None:
    """Return what an interrupted run has finished; None if that is not even one trial."""
    path = folder / f"{figure.name}-choice.json"
    if not path.is_file():
        return None
    stored = json.loads(path.read_text())
    chosen, validation = stored["chosen"], stored["validation"]
    results = {}
    for task in trial_tasks(figure, chosen, trials):
        values = read(folder, figure, task)
        if values is not None:
            results[key(figure, task)] = values
    seconds = seconds_spent(folder, figure)
    outcome = assemble(figure, chosen, validation, results, trials, seconds)
    return outcome if outcome.trials else None


def trial_tasks(figure: Figure, chosen: dict[str, Parameters], trials: int) -> list[Task]:
    """Return the tasks of all trials, trial by trial, in the order of the figure's methods."""
    return [
        Task(name, chosen[name], False, trial, figure.wanted(method))
        for trial in range(trials)
        for name, method in figure.methods.items()
    ]


def assemble(
    figure: Figure,
    chosen: dict[str, Parameters],
    validation: dict[str, list[dict[str, Any]]],
    results: dict[str, list[float]],
    trials: int,
    seconds: float,
) -> Outcome:
    """Return the outcome over the trials for which every method is there."""
    by_method: dict[str, list[list[float]]] = {name: [] for name in figure.methods}
    tasks = trial_tasks(figure, chosen, trials)
    for start in range(0, len(tasks), len(figure.methods)):
        of_trial = tasks[start : start + len(figure.methods)]
        if all(key(figure, task) in results for task in of_trial):
            for task in of_trial:
                curve = np.full(figure.n_batches, np.nan)
                curve[list(task.wanted)] = results[key(figure, task)]
                by_method[task.method].append(curve.tolist())
    curves = {
        name: np.array(rows, dtype=float).reshape(len(rows), figure.n_batches)
        for name, rows in by_method.items()
    }
    return Outcome(figure, chosen, validation, curves, seconds)


def add_seconds(folder: Path, figure: Figure, seconds: float) -> None:
    """Add to the time spent on a figure, over all runs that went on with it."""
    write(folder / f"{figure.name}-seconds.json", seconds_spent(folder, figure) + seconds)


def seconds_spent(folder: Path, figure: Figure) -> float:
    """Return the time spent on a figure so far."""
    path = folder / f"{figure.name}-seconds.json"
    return float(json.loads(path.read_text())) if path.is_file() else 0.0


def choose(
    figure: Figure, crew: Crew, folder: Path, report: Report
) -> tuple[dict[str, Parameters], dict[str, list[dict[str, Any]]]]:
    """Return the parameters each method does best with on the validation streams."""
    candidates = {
        name: [{**method.fixed, **point} for point in method.grid]
        for name, method in figure.methods.items()
    }
    tasks = []
    for name, method in figure.methods.items():
        tasks += [
            Task(name, parameters, True, number, figure.judged(method))
            for parameters in candidates[name]
            for number in range(figure.validation_streams)
        ]
    results = compute(figure, tasks, crew, folder, "choosing parameters", report)
    chosen: dict[str, Parameters] = {}
    table: dict[str, list[dict[str, Any]]] = {}
    for name in figure.methods:
        table[name] = []
        for parameters in candidates[name]:
            scores = [
                float(np.mean(results[key(figure, task)]))
                for task in tasks
                if task.method == name and task.parameters == parameters
            ]
            mean = float(np.mean(scores)) if scores else None
            table[name].append({"parameters": parameters, "accuracy": mean})
        best = max(table[name], key=lambda entry: entry["accuracy"] or 0.0)
        chosen[name] = best["parameters"]
    write(folder / f"{figure.name}-choice.json", {"chosen": chosen, "validation": table})
    return chosen, table


def compute(
    figure: Figure,
    tasks: list[Task],
    crew: Crew,
    folder: Path,
    what: str,
    report: Report,
) -> dict[str, list[float]]:
    """Return the accuracies of every task, reading those that are there already."""
    results: dict[str, list[float]] = {}
    missing = []
    for task in tasks:
        known = read(folder, figure, task)
        if known is None:
            missing.append(task)
        else:
            results[key(figure, task)] = known
    known_batches = sum(len(values) for values in results.values())
    total = sum(len(task.wanted) for task in tasks)
    before = crew.batches
    running = {crew.pool.submit(perform, figure, task, folder): task for task in missing}
    pending = set(running)
    try:
        while pending:
            report(what, known_batches + crew.batches - before, total)
            finished, pending = wait(pending, timeout=PATIENCE, return_when=FIRST_COMPLETED)
            for future in finished:
                results[key(figure, running[future])] = future.result()
    except BaseException:
        for future in running:
            future.cancel()
        raise
    report(what, total, total)
    return results


class Crew:
    """A pool of fresh processes that count the batches they have done."""

    def __init__(self, jobs: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._counter = context.Value("l", 0)
        self.pool = ProcessPoolExecutor(
            jobs, mp_context=context, initializer=join_crew, initargs=(self._counter,)
        )

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure is not None:
            for process in multiprocessing.active_children():
                process.terminate()
        self.pool.shutdown(cancel_futures=True)

    @property
    def batches(self) -> int:
        """Batches done so far by all processes together."""
        return int(self._counter.value)


_counter: Any = None


def join_crew(counter: Any) -> None:
    """Set a worker up: it counts its batches, and leaves Ctrl-C to the parent."""
    global _counter
    _counter = counter
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def perform(figure: Figure, task: Task, folder: Path) -> list[float]:
    """Compute one task and write its result; runs in a worker."""
    stream = (
        figure.validation_stream(task.stream)
        if task.validation
        else figure.trial_stream(task.stream)
    )
    with threadpool_limits(1):
        values = []
        for accuracy in figure.methods[task.method].curve(stream, task.parameters, task.wanted):
            values.append(accuracy)
            with _counter.get_lock():
                _counter.value += 1
    write(path_of(folder, figure, task), {"task": task._asdict(), "accuracies": values})
    return values


def key(figure: Figure, task: Task) -> str:
    """Return a name that changes with anything the result depends on."""
    content = json.dumps([figure.name, figure.seed, figure.n_batches, *task], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def path_of(folder: Path, figure: Figure, task: Task) -> Path:
    """Return where the result of a task is kept."""
    return folder / figure.name / f"{task.method}-{key(figure, task)}.json"


def read(folder: Path, figure: Figure, task: Task) -> list[float] | None:
    """Return the stored result of a task, None if there is none."""
    path = path_of(folder, figure, task)
    return json.loads(path.read_text())["accuracies"] if path.is_file() else None


def write(path: Path, content: Any) -> None:
    """Write JSON so that a reader sees all of the file or none of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(temporary, path)
