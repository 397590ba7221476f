"""`seqmed reproduce`: the paper's three figures."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from seqmed.cli import options
from seqmed.cli.errors import for_people


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
    ours: Annotated[
        bool, typer.Option("--ours", help="Add what goes beyond the paper to every figure.")
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with isolet.npz (else SEQMED_DATA, the cache, a download)."),
    ] = None,
    force: options.Force = False,
    debug: options.Debug = False,
) -> None:
    """Reproduce the experiments of Hou and Hero's paper.

    Finished work is kept in OUT/work: the same command after an interruption goes on where it
    stopped.
    """
    with for_people(debug):
        from seqmed.cli import reproducing

        reproducing.reproduce(
            which,
            trials=trials,
            jobs=jobs,
            out=out,
            report=report,
            quick=quick,
            exact=exact,
            ours=ours,
            data_dir=data_dir,
            force=force,
        )
