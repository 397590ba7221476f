"""`seqmed evaluate`: how good a model is on labeled rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqmed.cli import options
from seqmed.cli.errors import for_people


def evaluate(
    model: options.Model,
    data: options.Data,
    prequential: Annotated[
        bool,
        typer.Option(
            "--prequential",
            help="Learn every batch after it was predicted. The model file stays as it is.",
        ),
    ] = False,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Rows in a batch of --prequential (default: as in learning)."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw calibration and confusion there (png, svg, pdf)."),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
    file_format: options.InputFormat = None,
    on_error: options.BadRows = options.OnError.stop,
    debug: options.Debug = False,
) -> None:
    """Measure how good a model is on labeled rows.

    Accuracy, balanced accuracy, log loss, calibration error and confusion, over the rows of DATA
    that have a label. Take rows that the model has not learned, or --prequential.
    """
    with for_people(debug):
        from seqmed.cli import evaluating

        evaluating.evaluate(
            model,
            data,
            prequential=prequential,
            batch_size=batch_size,
            plot=plot,
            force=force,
            as_json=as_json,
            file_format=options.name_of(file_format),
            on_error=on_error.value,
        )
