"""`seqmed explain`: why a class is predicted for a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqmed.cli import options, terminal
from seqmed.cli.options import Reading
from seqmed.cli.terminal import CommandError, tell, tell_skipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from seqmed.streams import StreamBatch

# Rows in a batch of learned files, in which labeled rows are looked up.
ROWS_AT_ONCE = 10_000


def explain_command(
    model: options.Model,
    data: options.Data,
    *,
    row: Annotated[
        list[int] | None,
        typer.Option(
            "--row", min=1, metavar="N", help="Explain this row of DATA only; may be repeated."
        ),
    ] = None,
    number: Annotated[
        int,
        typer.Option(
            "-n", "--number", min=1, metavar="K",
            help="Columns, and labeled rows for and against the class, to list for every expert.",
        ),
    ] = 3,
    learned: Annotated[
        list[Path] | None,
        typer.Option(
            "--learned", metavar="FILES",
            help="Learned files or a folder, to show labeled rows as they are there; may be "
            "repeated.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="Print a line of JSON for every row.")
    ] = False,
    reading: Reading,
) -> None:  # fmt: skip
    """Explain the predicted classes of rows.

    Prints the weights and probabilities of the experts, and the columns and labeled rows that speak
    most for and against the class.
    """
    from seqmed.cli import checkpoint
    from seqmed.cli.outputs import located

    pipeline, progress = checkpoint.load_checkpoint(model)
    classifier, ids = checkpoint.classifier_of(pipeline), checkpoint.encoder_of(pipeline).id_columns
    if not hasattr(classifier, "explain"):
        raise CommandError(
            f"{model} holds a {type(classifier).__name__}, expected a SeqGraphMED: make "
            "a model with seqmed learn --estimator seqgraphmed, the default."
        )

    def rows_of(files: Sequence[Path], size: int | None = None) -> Any:
        return checkpoint.open_stream(
            files, pipeline, progress, reading, label=None, batch_size=size, final=True,
            keep_optional=ids,
        )  # fmt: skip

    def tables() -> Iterator[Any]:
        stream = rows_of(learned or (), ROWS_AT_ONCE)
        for batch in stream:
            yield with_origin(batch, stream.names)

    stream, left, unknown = rows_of(data), set(row or ()), False
    for batch in stream:
        chosen = batch.row >= 1 if row is None else [each in row for each in batch.row.tolist()]
        places = [place for place, use in enumerate(chosen) if use]
        left -= set(batch.row[places].tolist())
        if not places:
            continue
        found = pipeline._explanations(
            batch.table.take(places), number, tables() if learned else ()
        )
        origins = list(zip(*located(batch, stream.names), strict=True))
        for place, each in zip(places, found, strict=True):
            show_explanation(
                dict(zip(("file", "row", *ids), origins[place], strict=True)), each, as_json
            )
            shown = (part.row for vote in each.votes for part in vote.rows)
            unknown |= any(row is not None and not any(row.values()) for row in shown)
    tell_skipped(stream.skipped)
    if unknown and not learned and not as_json:
        tell("To show the cells of labeled rows, name the learned files with --learned.")
    if left:
        raise CommandError(
            f"there is no good row {min(left)} in DATA, expected the number of a row, from 1 "
            "without the header: see the column row of seqmed predict."
        )


def with_origin(batch: StreamBatch, names: Sequence[str]) -> Any:
    """Return the table of a batch with the file, number and ids of each row, if names are free."""
    from seqmed.cli.outputs import located
    from seqmed.tables.frames import as_table

    origin = dict(zip(("file", "row", *batch.kept), located(batch, names), strict=True))
    table = batch.table
    return as_table({**origin, **dict(zip(table.column_names, table.columns, strict=True))})


def show_explanation(origin: dict[str, Any], explanation: Any, as_json: bool) -> None:
    """Print the explanation of a row."""
    if as_json:
        print(
            json.dumps({**origin, **explanation.to_dict()}, ensure_ascii=False, allow_nan=False),
            flush=True,
        )
        return
    file, row, *ids = origin.items()
    more = "".join(f", {name} {value}" for name, value in ids)
    terminal.show(f"{file[1]}, row {row[1]}{more}")
    terminal.show(f"{explanation}\n")
