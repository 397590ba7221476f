"""`python -m paper`: the paper's three figures."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

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

from paper import data, figures, report, trials
from paper.figures import Figure
from paper.trials import FigureResult
from seqmed import plotting

INTERRUPTED = 130  # the exit code of a command that Ctrl+C ended


def positive(text: str) -> int:
    """Return a positive integer."""
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(
        "python -m paper",
        description="Reproduce the experiments of Hou and Hero's paper. Finished trials are kept "
        "in OUT/work. If the command is interrupted, run it again: it resumes after the last "
        "finished trial.",
    )
    which = ("figure1", "figure2", "figure3", "all")
    option = parser.add_argument
    option("which", nargs="?", choices=which, default="all", help="figure to compute")
    option("--trials", type=positive, metavar="N", help="trials of figures 1 and 2 (default: 100)")
    option(
        "--jobs", type=positive, metavar="N", default=os.cpu_count() or 1,
        help="number of processes (default: one per core)",
    )  # fmt: skip
    option("--out", type=Path, default=Path("results"), help="folder for figures and numbers")
    option(
        "--report", type=Path, metavar="FILE", help="file of the report (default: OUT/RESULTS.md)"
    )
    option(
        "--quick", action="store_true",
        help="use fewer trials and retrainings: minutes instead of an hour",
    )  # fmt: skip
    option("--exact", action="store_true", help="add the exact recursion to figure 3")
    option(
        "--ours", action="store_true", help="add the methods of seqmed that are not in the paper"
    )
    option(
        "--data-dir", type=Path, metavar="FOLDER",
        help="folder with isolet.npz (default: SEQMED_DATA, the cache, or a download)",
    )  # fmt: skip
    return parser.parse_args(arguments)


def main(options: argparse.Namespace) -> int:
    """Compute the chosen figures, write them with those of earlier runs; return the exit code."""
    console = Console()
    work = options.out / "work"
    results: list[FigureResult] = []
    missing: list[str] = []
    interrupted = refused = False
    pictures = can_draw(console)
    for figure in all_figures(options):
        simulated = not figure.name.startswith("figure3")
        count = options.trials if options.trials is not None and simulated else figure.trials
        wanted = options.which == "all" or figure.name.startswith(options.which)
        if wanted and not simulated and not interrupted:
            refusal = missing_isolet(console, options.data_dir)
            if refusal is not None:
                missing.append(f"{figure.name} not run: {refusal[0]}")
                console.print(missing[-1], highlight=False)
                refused = refusal[1] or options.which == "figure3"
                wanted = False
        if wanted and not interrupted:
            result, interrupted = run_with_progress(console, figure, count, options.jobs, work)
        else:
            result = trials.collect(figure, trials=count, folder=work)
        if result is not None:
            results.append(result)
            paths = report.draw_figure(result, options.out) if pictures else []
            if wanted:
                show_result(console, result, paths)
    if results:
        numbers, text = options.out / "results.json", options.report or options.out / "RESULTS.md"
        report.write_numbers(results, numbers)
        report.write_report(results, missing, options.out, text, pictures=pictures)
        console.print(f"Numbers: {numbers}. Report: {text}.")
    if interrupted:
        console.print("Interrupted: run the same command again to resume.")
        return INTERRUPTED
    return int(refused)


def all_figures(options: argparse.Namespace) -> list[Figure]:
    """Return the figures with the methods that the options add."""
    ours = options.ours
    found = [
        figures.figure1(ours=ours),
        figures.figure2(ours=ours),
        figures.figure2b(ours=ours),
        figures.figure3(options.data_dir, exact=options.exact, ours=ours),
        *([figures.figure3b(options.data_dir)] if ours else []),
    ]
    return [figures.quick(figure) for figure in found] if options.quick else found


def run_with_progress(
    console: Console, figure: Figure, count: int, jobs: int, folder: Path
) -> tuple[FigureResult | None, bool]:
    """Run one figure with a progress bar; return its result and whether it was interrupted."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        bars: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(f"{figure.name}, {what}")
            progress.update(bars[what], completed=done, total=total)

        try:
            result = trials.run(figure, trials=count, jobs=jobs, folder=folder, report=show)
        except KeyboardInterrupt:
            return trials.collect(figure, trials=count, folder=folder), True
    return result, False


def show_result(console: Console, result: FigureResult, paths: list[Path]) -> None:
    """Print the table and claims of a figure."""
    title = f"{result.figure.title}, trials: {result.trials}"
    table = Table(*report.HEADINGS, title=title)
    for row in report.summary(result):
        table.add_row(*row)
    console.print(table)
    for claim in report.claims(result):
        console.print(f"{claim.text}? {claim.verdict}: {claim.numbers}", highlight=False)
    if paths:
        console.print(f"Figure: {', '.join(str(path) for path in paths)}")


def can_draw(console: Console) -> bool:
    """Return whether matplotlib is installed; if not, print how to install it."""
    try:
        plotting.require_matplotlib()
    except ImportError as error:
        console.print(f"No pictures will be drawn: {error}", markup=False, highlight=False)
        return False
    return True


def missing_isolet(console: Console, data_dir: Path | None) -> tuple[str, bool] | None:
    """Download ISOLET if necessary; return why this failed, and whether the data are wrong."""
    try:
        with console.status("reading or downloading ISOLET"):
            data.load_isolet(data_dir)
    except data.NoDataError as error:
        reason = (
            f"no data ({error}). With an internet connection, run: python -m paper figure3. "
            f"Otherwise download {data.UCI_ARCHIVE} and run: python -m paper figure3 "
            "--data-dir FOLDER, with the folder of the archive."
        )
        return reason, False
    except ValueError as error:
        return f"data refused. {error}", True
    return None


if __name__ == "__main__":
    raise SystemExit(main(parse()))
