"""`seqmed reproduce`: the paper's three figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer
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

from seqmed.cli import options
from seqmed.cli.errors import INTERRUPTED, CommandError

if TYPE_CHECKING:
    from seqmed.experiments.figures import Figure
    from seqmed.experiments.runner import FigureResult

Which = Literal["figure1", "figure2", "figure3", "all"]


def reproduce(
    which: Annotated[Which, typer.Argument(help="Figure to compute.")] = "all",
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
    ours: Annotated[
        bool, typer.Option("--ours", help="Add what goes beyond the paper to every figure.")
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with isolet.npz (else SEQMED_DATA, the cache, a download)."),
    ] = None,
    force: options.Force = False,
) -> None:
    """Reproduce the experiments of Hou and Hero's paper.

    Finished work is kept in OUT/work: the same command after an interruption goes on where it
    stopped.
    """
    from seqmed.experiments import figures, reports, runner

    console = Console()
    report = report or out / "RESULTS.md"
    jobs = jobs or os.cpu_count() or 1
    work = out / "work"
    results: list[FigureResult] = []
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
    refuse_overwriting(reports.outputs(chosen, out), out, report, force=force)
    for figure in chosen:
        figure = figures.quick(figure) if quick else figure
        simulated = not figure.name.startswith("figure3")
        count = trials if trials is not None and simulated else figure.trials
        wanted = which == "all" or figure.name.startswith(which)
        if wanted and not simulated and not interrupted:
            refusal = ensure_isolet(console, data_dir)
            if refusal is not None:
                missing.append(f"{figure.name} not run: {refusal.reason}")
                console.print(missing[-1], highlight=False)
                refused = refusal.wrong or which == "figure3"
                wanted = False
        result = None
        if wanted and not interrupted:
            result, interrupted = run_with_progress(console, figure, count, jobs, work)
        else:
            result = runner.collect(figure, trials=count, folder=work)
        if result is not None:
            results.append(result)
            paths = reports.draw_figure(result, out) if pictures else []
            if wanted:
                show_result(console, result, paths)
    if results:
        reports.write_numbers(results, out / "results.json")
        reports.write_report(results, missing, out, report, pictures=pictures)
        console.print(f"Numbers: {out / 'results.json'}. Report: {report}.")
    if interrupted:
        console.print("Interrupted: the same command goes on where this one stopped.")
        raise SystemExit(INTERRUPTED)
    if refused:
        raise SystemExit(1)


def refuse_overwriting(files: list[Path], out: Path, report: Path, *, force: bool) -> None:
    """Refuse to write over files that no earlier run has written."""
    from seqmed.cli.existing_files import identities, refuse_existing
    from seqmed.experiments import reports

    if any(identities(report) & identities(each) for each in files):
        raise CommandError(f"--report {report} is a file of --out {out}: choose another name.")
    if not reports.is_results(out):
        for each in files:
            if each.exists():
                refuse_existing(each, force=force)
    if report.exists() and not reports.is_report(report):
        refuse_existing(report, force=force)


def run_with_progress(
    console: Console, figure: Figure, trials: int, jobs: int, folder: Path
) -> tuple[FigureResult | None, bool]:
    """Run one figure under a progress bar; return its result and whether Ctrl-C cut it short."""
    from seqmed.experiments import runner

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
            result = runner.run(figure, trials=trials, jobs=jobs, folder=folder, report=report)
        except KeyboardInterrupt:
            return runner.collect(figure, trials=trials, folder=folder), True
    return result, False


def show_result(console: Console, result: FigureResult, paths: list[Path]) -> None:
    """Print a figure's table and claims."""
    from seqmed.experiments import reports

    title = f"{result.figure.title}, trials: {result.trials}"
    table = Table(*reports.HEADINGS, title=title)
    for row in reports.summary(result):
        table.add_row(*row)
    console.print(table)
    for claim in reports.claims(result):
        console.print(f"{claim.text}? {claim.verdict}: {claim.numbers}", highlight=False)
    if paths:
        console.print(f"Figure: {', '.join(str(path) for path in paths)}")


def can_draw(console: Console) -> bool:
    """Return whether pictures can be drawn; say how to make that possible if not."""
    from seqmed import plotting

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
    from seqmed.experiments import isolet

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
