"""`seqmed reproduce`: the paper's three figures."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from seqmed.experiments import figures, isolet, reporting, running
from seqmed.experiments.figures import Figure
from seqmed.experiments.running import Outcome

INTERRUPTED = 130


class Which(StrEnum):
    """What to reproduce."""

    figure1 = "figure1"
    figure2 = "figure2"
    figure3 = "figure3"
    all = "all"


def reproduce(
    which: Annotated[Which, typer.Argument(help="Figure to compute.")] = Which.all,
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="Trials of figures 1 and 2 (default: 100)."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes (default: one per core).")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for figures and numbers.")] = Path("results"),
    report: Annotated[
        Path | None, typer.Option(help="Where to write the report (default: OUT/RESULTS.md).")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few trials and retrainings: minutes, not an hour.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Add the exact recursion to figure 3.")
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with isolet.npz (else SEQMED_DATA, the cache, a download)."),
    ] = None,
) -> None:
    """Reproduce the experiments of Hou and Hero's paper.

    Finished work is kept in OUT/work: the same command after an interruption goes on where it
    stopped.
    """
    console = Console()
    jobs = jobs or os.cpu_count() or 1
    wanted: list[Figure] = []
    if which in (Which.figure1, Which.all):
        wanted.append(figures.figure1())
    if which in (Which.figure2, Which.all):
        wanted += [figures.figure2(), figures.figure2b()]
    if which in (Which.figure3, Which.all):
        missing = ensure_isolet(console, data_dir)
        if missing is None:
            wanted.append(figures.figure3(data_dir, exact=exact))
        else:
            console.print(f"[bold]figure3 not run: no data.[/bold] {missing}", highlight=False)
            if which == Which.figure3:
                raise typer.Exit(1)

    outcomes: list[Outcome] = []
    interrupted = False
    for figure in wanted:
        figure = figures.quick(figure) if quick else figure
        count = figure.trials if trials is None or figure.trials == 1 else trials
        outcome, interrupted = compute(console, figure, count, jobs, out / "work")
        if outcome is not None:
            outcomes.append(outcome)
            paths = reporting.draw(outcome, out)
            show(console, outcome, paths)
        if interrupted:
            break
    if outcomes:
        reporting.write_json(outcomes, out / "results.json")
        reporting.write_report(outcomes, jobs, out, report or out / "RESULTS.md")
        console.print(f"Numbers: {out / 'results.json'}. Report: {report or out / 'RESULTS.md'}.")
    if interrupted:
        console.print("Interrupted: the same command goes on where this one stopped.")
        raise typer.Exit(INTERRUPTED)


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
        bars: dict[str, int] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in bars:
                label = f"{figure.name}, {what}" + (f" ({trials})" if what == "trials" else "")
                bars[what] = progress.add_task(label, total=total)
            progress.update(bars[what], completed=done, total=total)  # type: ignore[arg-type]

        try:
            outcome = running.run(figure, trials=trials, jobs=jobs, folder=folder, report=report)
        except KeyboardInterrupt:
            return running.collect(figure, trials=trials, folder=folder), True
    return outcome, False


def show(console: Console, outcome: Outcome, paths: list[Path]) -> None:
    """Print a figure's table and claims."""
    title = f"{outcome.figure.title}, trials: {outcome.trials}"
    table = Table("method", "chosen", "batch 1", "last batch", "mean", title=title)
    for row in reporting.summary(outcome):
        table.add_row(*row)
    console.print(table)
    for claim in reporting.claims(outcome):
        mark = "[green]seen[/green]" if claim.seen else "[yellow]not seen[/yellow]"
        console.print(f"{mark}: {claim.text}: {claim.numbers}", highlight=False)
    console.print(f"Figure: {', '.join(str(path) for path in paths)}")


def ensure_isolet(console: Console, data_dir: Path | None) -> str | None:
    """Make sure ISOLET is there, downloading it if need be; return why not if it is not."""
    with Progress(
        TextColumn("downloading ISOLET"), BarColumn(), DownloadColumn(), console=console,
        transient=True,
    ) as progress:  # fmt: skip
        bar: list[int] = []

        def received(done: int, total: int | None) -> None:
            if not bar:
                bar.append(progress.add_task("", total=total))
            progress.update(bar[0], completed=done)  # type: ignore[arg-type]

        try:
            isolet.load_arrays(data_dir, progress=received)
        except isolet.NoDataError as error:
            return (
                f"{error}. On a connected machine run: seqmed reproduce figure3; or put "
                f"{isolet.FILE} into a folder and add --data-dir FOLDER."
            )
        except ValueError as error:
            return str(error)
    return None
