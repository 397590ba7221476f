"""Computing the paper's three figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from seqmed import plotting
from seqmed.cli.errors import INTERRUPTED, CommandError
from seqmed.cli.overwriting import identities, refuse_existing
from seqmed.cli.reproduce import Which
from seqmed.experiments import figures, isolet, reporting, running
from seqmed.experiments.figures import Figure
from seqmed.experiments.running import Outcome


def reproduce(
    which: Which,
    *,
    trials: int | None,
    jobs: int | None,
    out: Path,
    report: Path | None,
    quick: bool,
    exact: bool,
    ours: bool,
    data_dir: Path | None,
    force: bool,
) -> None:
    """Compute the figures asked for; see `seqmed reproduce --help`."""
    console = Console()
    report = report or out / "RESULTS.md"
    jobs = jobs or os.cpu_count() or 1
    work = out / "work"
    outcomes: list[Outcome] = []
    missing: list[str] = []
    interrupted = refused = False
    pictures = can_draw(console)
    chosen = (
        figures.figure1(ours=ours),
        figures.figure2(ours=ours),
        figures.figure2b(ours=ours),
        figures.figure3(data_dir, exact=exact, ours=ours),
        *([figures.figure3b(data_dir)] if ours else []),
    )
    refuse_overwriting(reporting.outputs(chosen, out), out, report, force=force)
    for figure in chosen:
        figure = figures.quick(figure) if quick else figure
        simulated = not figure.name.startswith(Which.figure3)
        count = trials if trials is not None and simulated else figure.trials
        wanted = which == Which.all or figure.name.startswith(which.value)
        if wanted and figure.name.startswith(Which.figure3) and not interrupted:
            refusal = ensure_isolet(console, data_dir)
            if refusal is not None:
                missing.append(f"{figure.name} not run: {refusal.reason}")
                console.print(missing[-1], highlight=False)
                refused = refusal.wrong or which == Which.figure3
                wanted = False
        outcome = None
        if wanted and not interrupted:
            outcome, interrupted = compute(console, figure, count, jobs, work)
        else:
            outcome = running.collect(figure, trials=count, folder=work)
        if outcome is not None:
            outcomes.append(outcome)
            paths = reporting.draw(outcome, out) if pictures else []
            if wanted:
                show(console, outcome, paths)
    if outcomes:
        reporting.write_json(outcomes, out / "results.json")
        reporting.write_report(outcomes, missing, out, report, pictures=pictures)
        console.print(f"Numbers: {out / 'results.json'}. Report: {report}.")
    if interrupted:
        console.print("Interrupted: the same command goes on where this one stopped.")
        raise SystemExit(INTERRUPTED)
    if refused:
        raise SystemExit(1)


def refuse_overwriting(files: list[Path], out: Path, report: Path, *, force: bool) -> None:
    """Refuse to write over files that no earlier run has written."""
    if any(identities(report) & identities(each) for each in files):
        raise CommandError(f"--report {report} is a file of --out {out}: choose another name.")
    if not reporting.is_results(out):
        for each in files:
            if each.exists():
                refuse_existing(each, force=force)
    if report.exists() and not reporting.is_report(report):
        refuse_existing(report, force=force)


def compute(
    console: Console, figure: Figure, trials: int, jobs: int, folder: Path
) -> tuple[Outcome | None, bool]:
    """Run one figure under a progress bar; return its outcome and whether Ctrl-C cut it short."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("batches"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        bars: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in bars:
                label = f"{figure.name}, {what}" + (f" ({trials})" if what == "trials" else "")
                bars[what] = progress.add_task(label, total=total)
            progress.update(bars[what], completed=done, total=total)

        try:
            outcome = running.run(figure, trials=trials, jobs=jobs, folder=folder, report=report)
        except KeyboardInterrupt:
            return running.collect(figure, trials=trials, folder=folder), True
    return outcome, False


def show(console: Console, outcome: Outcome, paths: list[Path]) -> None:
    """Print a figure's table and claims."""
    title = f"{outcome.figure.title}, trials: {outcome.trials}"
    table = Table(*reporting.HEADINGS, title=title)
    for row in reporting.summary(outcome):
        table.add_row(*row)
    console.print(table)
    for claim in reporting.claims(outcome):
        console.print(f"{claim.text}? {claim.verdict}: {claim.numbers}", highlight=False)
    if paths:
        console.print(f"Figure: {', '.join(str(path) for path in paths)}")


def can_draw(console: Console) -> bool:
    """Return whether pictures can be drawn; say how to make that possible if not."""
    try:
        plotting.require_matplotlib()
    except ImportError as error:
        console.print(f"No pictures will be drawn: {error}", markup=False, highlight=False)
        return False
    return True


class Refusal(NamedTuple):
    """Why ISOLET cannot be used; ``wrong`` if there is data, but not the right one."""

    reason: str
    wrong: bool


def ensure_isolet(console: Console, data_dir: Path | None) -> Refusal | None:
    """Make sure ISOLET is there, downloading it if need be; return why not if it is not."""
    with Progress(
        TextColumn("downloading ISOLET"), BarColumn(), DownloadColumn(), console=console,
        transient=True,
    ) as progress:  # fmt: skip
        bar: list[TaskID] = []

        def received(done: int, total: int | None) -> None:
            if not bar:
                bar.append(progress.add_task("", total=total))
            progress.update(bar[0], completed=done)

        try:
            isolet.load_arrays(data_dir, progress=received)
        except isolet.NoDataError as error:
            reason = (
                f"no data ({error}). On a connected machine: seqmed reproduce figure3. Otherwise "
                f"fetch {isolet.UCI_ARCHIVE} and run: seqmed reproduce figure3 --data-dir FOLDER, "
                "with the folder it is in."
            )
            return Refusal(reason, wrong=False)
        except ValueError as error:
            return Refusal(f"data refused. {error}", wrong=True)
    return None
