"""Runs of a figure: parameter choice, trials in processes, and the results on disk.

A task is one method on one stream. When a task is finished, its result is written to a file. The
name of the file depends on the code and the settings. An interrupted run can therefore be resumed.
Every process uses one thread: the numbers do not depend on the number of processes.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import seqmed
from paper.curves import Parameters
from paper.data import write_file
from paper.figures import Figure

Report = Callable[[str, int, int], None]
"""Called with the name of the step, the number of finished tasks and the number of all tasks."""


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
    """Return a task; its parameters are stored as pairs, so that it can be hashed."""
    return Task(method, tuple(sorted(parameters.items())), validation, stream, wanted)


class TaskResult(NamedTuple):
    """Accuracy and processor time of learning for each batch wanted, and the total time."""

    accuracies: list[float]
    update_seconds: list[float]
    seconds: float


Results = dict[Task, TaskResult]


@dataclass(frozen=True)
class FigureResult:
    """The numbers of a figure.

    Parameters
    ----------
    figure : the figure.
    chosen : parameters of every method.
    validation : for every method, the mean validation accuracy of each entry of its grid.
    curves : for every method, (trials, batches) test accuracies of the finished trials, NaN where
        a batch was not evaluated.
    update_seconds : for every method, (trials, batches) processor times of learning; NaN as in
        ``curves``.
    processor_seconds : total processor time.
    """

    figure: Figure
    chosen: dict[str, Parameters]
    validation: dict[str, list[dict[str, Any]]]
    curves: dict[str, NDArray[Any]]
    update_seconds: dict[str, NDArray[Any]] = field(default_factory=dict)
    processor_seconds: float = 0.0

    @property
    def trials(self) -> int:
        """Number of finished trials."""
        return len(next(iter(self.curves.values())))


def run(figure: Figure, *, trials: int, jobs: int, folder: Path, report: Report) -> FigureResult:
    """Compute a figure, except the tasks that are finished in ``folder``.

    After a KeyboardInterrupt all finished tasks have been written.
    """
    judged = validation_tasks(figure)
    results = compute(figure, judged, jobs, folder, "choosing parameters", report)
    chosen, validation = decide(figure, results)
    tasks = trial_tasks(figure, chosen, trials)
    results |= compute(figure, tasks, jobs, folder, "trials", report)
    return assemble(figure, chosen, validation, results, trials)


def collect(figure: Figure, *, trials: int, folder: Path) -> FigureResult | None:
    """Return the finished trials of earlier runs; None if there are none."""
    results = read_all(figure, validation_tasks(figure), folder)
    if len(results) < len(validation_tasks(figure)):
        return None
    chosen, validation = decide(figure, results)
    results |= read_all(figure, trial_tasks(figure, chosen, trials), folder)
    result = assemble(figure, chosen, validation, results, trials)
    return result if result.trials else None


def validation_tasks(figure: Figure) -> list[Task]:
    """Return the tasks on which parameters are chosen, for methods with a choice."""
    return [
        task
        for name, method in figure.methods.items()
        if len(method.grid) > 1
        for parameters in method.choices
        for task in tasks_of_choice(figure, name, parameters)
    ]


def tasks_of_choice(figure: Figure, name: str, parameters: Parameters) -> list[Task]:
    """Return the tasks of a method with some parameters, on all validation streams."""
    wanted = figure.judged(figure.methods[name])
    streams = range(figure.validation_streams)
    return [make_task(name, parameters, True, number, wanted) for number in streams]


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
    """Return the best parameters of each method on the validation streams, and all accuracies."""
    chosen: dict[str, Parameters] = {}
    table: dict[str, list[dict[str, Any]]] = {}
    for name, method in figure.methods.items():
        table[name] = []
        for parameters in method.choices:
            tasks = tasks_of_choice(figure, name, parameters)
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
    """Return the result over the trials that are finished for every method."""
    tasks, size = trial_tasks(figure, chosen, trials), len(figure.methods)
    by_trial = [tasks[start : start + size] for start in range(0, len(tasks), size)]
    finished = [part for part in by_trial if all(task in results for task in part)]
    shape = (len(finished), figure.n_batches)
    curves, times = ({name: np.full(shape, np.nan) for name in figure.methods} for _ in range(2))
    for trial, part in enumerate(finished):
        for task in part:
            wanted = list(task.wanted)
            curves[task.method][trial, wanted] = results[task].accuracies
            times[task.method][trial, wanted] = results[task].update_seconds
    return FigureResult(
        figure=figure,
        chosen=chosen,
        validation=validation,
        curves=curves,
        update_seconds=times,
        processor_seconds=sum(result.seconds for result in results.values()),
    )


def compute(
    figure: Figure, tasks: list[Task], jobs: int, folder: Path, what: str, report: Report
) -> Results:
    """Return the results of all tasks; finished ones are read from ``folder``."""
    results = read_all(figure, tasks, folder)
    missing = [task for task in tasks if task not in results]
    work = (delayed(run_task)(figure, task, path_of(folder, figure, task)) for task in missing)
    report(what, len(results), len(tasks))
    try:
        for task, result in Parallel(jobs, return_as="generator_unordered")(work):
            results[task] = result
            report(what, len(results), len(tasks))
    finally:
        if jobs > 1:  # idle workers would remain for minutes
            get_reusable_executor().shutdown(wait=True, kill_workers=True)
    return results


def run_task(figure: Figure, task: Task, path: Path) -> tuple[Task, TaskResult]:
    """Compute one task and write its result; runs in a worker process."""
    begun = time.process_time()
    make_stream = figure.validation_stream if task.validation else figure.trial_stream
    stream = make_stream(task.stream)
    with threadpool_limits(1):
        curve = figure.methods[task.method].curve
        scores = list(curve(stream, dict(task.parameters), task.wanted))
    result = TaskResult(
        accuracies=[score.accuracy for score in scores],
        update_seconds=[round(score.seconds, 5) for score in scores],
        seconds=round(time.process_time() - begun, 2),
    )
    write_json(path, {**task._asdict(), **result._asdict()})
    return task, result


@cache
def fingerprint() -> str:
    """Return a hash of the code of the experiments and of seqmed, and of the versions."""
    digest = hashlib.sha256()
    for package in (Path(__file__).parent, Path(seqmed.__file__).parent):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    digest.update(json.dumps(versions(), sort_keys=True).encode())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Return the versions of Python and the main packages."""
    packages = ("seqmed", "numpy", "scipy", "scikit-learn", "numba")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def path_of(folder: Path, figure: Figure, task: Task) -> Path:
    """Return the file of the result of a task."""
    content = json.dumps([fingerprint(), figure.name, figure.seed, figure.n_batches, *task])
    name = hashlib.sha256(content.encode()).hexdigest()[:16]
    return folder / figure.name / f"{task.method}-{name}.json"


def read_all(figure: Figure, tasks: list[Task], folder: Path) -> Results:
    """Return the results of finished tasks."""
    results = {}
    for task in tasks:
        path = path_of(folder, figure, task)
        if path.is_file():
            stored = json.loads(path.read_text())
            results[task] = TaskResult(*(stored[name] for name in TaskResult._fields))
    return results


def write_json(path: Path, content: Any) -> None:
    """Write JSON to a file."""
    write_file(path, (json.dumps(content, indent=1) + "\n").encode())
