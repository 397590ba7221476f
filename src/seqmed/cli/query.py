"""`seqmed query`: which rows to have labeled next."""

from __future__ import annotations

from typing import Annotated

import typer

from seqmed.cli import options
from seqmed.cli.errors import for_people


def query(
    model: options.Model,
    data: options.Data,
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, metavar="K", help="How many rows to choose.")
    ],
    output: options.Output = options.STANDARD_OUTPUT,
    to: options.To = None,
    force: options.Force = False,
    keep: options.Keep = None,
    file_format: options.InputFormat = None,
    on_error: options.BadRows = options.OnError.stop,
    debug: options.Debug = False,
) -> None:
    """Choose the rows most worth a label, the most valuable first.

    Rows of DATA that have a label are passed over.
    """
    with for_people(debug):
        from seqmed.cli import querying

        querying.query(
            model,
            data,
            number,
            output=output,
            to=options.name_of(to),
            force=force,
            keep=options.column_names(keep),
            file_format=options.name_of(file_format),
            on_error=on_error.value,
        )
