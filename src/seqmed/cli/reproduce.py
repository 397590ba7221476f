"""`seqmed reproduce`: the paper's three figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from seqmed.cli import options, terminal
from seqmed.cli.errors import INTERRUPTED, CommandError

if TYPE_CHECKING:
    from seqmed.experiments.figures import Figure
    from seqmed.experiments.runner import FigureResult

Which = Literal["figure1", "figure2", "figure3", "all"]


def reproduce(
    which: Annotated[Which, typer.Argument(metavar="FIGURE", help="Figure to compute.")] = "all",
    trials: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Trials of figures 1 and 2 (default: 100)."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of processes (default: one per core)."),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="OUT", help="Folder for figures and numbers.")
    ] = Path("results"),
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of the report (default: OUT/RESULTS.md)."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Use fewer trials and retrainings: minutes instead of an hour."
        ),
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Add the exact recursion to figure 3.")
    ] = False,
    ours: Annotated[
        bool,
        typer.Option("--ours", help="Add the methods of this package that are not in the paper."),
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder with isolet.npz (default: SEQMED_DATA, the cache, or a download).",
        ),
    ] = None,
    force: options.Force = False,
) -> None:
    """Reproduce the experiments of Hou and Hero's paper.

    Finished trials are kept in OUT/work. If the command is interrupted, run it again: it resumes
    after the last finished trial.
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
            refusal = missing_isolet(console, data_dir)
            if refusal is not None:
                missing.append(f"{figure.name} not run: {refusal[0]}")
                console.print(missing[-1], highlight=False)
                refused = refusal[1] or which == "figure3"
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
        console.print("Interrupted: run the same command again to resume.")
        raise SystemExit(INTERRUPTED)
    if refused:
        raise SystemExit(1)


def refuse_overwriting(files: list[Path], out: Path, report: Path, *, force: bool) -> None:
    """Refuse to overwrite files that were not written by an earlier run."""
    from seqmed.cli.existing_files import identities, refuse_existing
    from seqmed.experiments import reports

    if any(identities(report) & identities(each) for each in files):
        raise CommandError(
            f"--report {report} is a file that --out {out} writes: choose another name."
        )
    if not reports.is_results(out):
        for each in files:
            if each.exists():
                refuse_existing(each, force=force)
    if report.exists() and not reports.is_report(report):
        refuse_existing(report, force=force)


def run_with_progress(
    console: Console, figure: Figure, trials: int, jobs: int, folder: Path
) -> tuple[FigureResult | None, bool]:
    """Run one figure with a progress bar; return its result and whether it was interrupted."""
    from seqmed.experiments import runner

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=terminal.is_quiet()) as progress:
        bars: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(f"{figure.name}, {what}")
            progress.update(bars[what], completed=done, total=total)

        try:
            result = runner.run(figure, trials=trials, jobs=jobs, folder=folder, report=report)
        except KeyboardInterrupt:
            return runner.collect(figure, trials=trials, folder=folder), True
    return result, False


def show_result(console: Console, result: FigureResult, paths: list[Path]) -> None:
    """Print the table and claims of a figure."""
    from seqmed.experiments import claims, reports

    title = f"{result.figure.title}, trials: {result.trials}"
    table = Table(*reports.HEADINGS, title=title)
    for row in reports.summary(result):
        table.add_row(*row)
    console.print(table)
    for claim in claims.claims(result):
        console.print(f"{claim.text}? {claim.verdict}: {claim.numbers}", highlight=False)
    if paths:
        console.print(f"Figure: {', '.join(str(path) for path in paths)}")


def can_draw(console: Console) -> bool:
    """Return whether matplotlib is installed; if not, print how to install it."""
    from seqmed import plotting

    try:
        plotting.require_matplotlib()
    except ImportError as error:
        console.print(f"No pictures will be drawn: {error}", markup=False, highlight=False)
        return False
    return True


def missing_isolet(console: Console, data_dir: Path | None) -> tuple[str, bool] | None:
    """Download ISOLET if necessary; return why this failed, and whether the data are wrong."""
    from seqmed.experiments import isolet

    try:
        with console.status("reading or downloading ISOLET"):
            isolet.load_arrays(data_dir)
    except isolet.NoDataError as error:
        reason = (
            f"no data ({error}). With an internet connection, run: seqmed reproduce figure3. "
            f"Otherwise download {isolet.UCI_ARCHIVE} and run: seqmed reproduce figure3 "
            "--data-dir FOLDER, with the folder of the archive."
        )
        return reason, False
    except ValueError as error:
        return f"data refused. {error}", True
    return None
