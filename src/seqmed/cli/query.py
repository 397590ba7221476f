"""`seqmed query`: choose the rows to label next, in constant memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from seqmed.cli import options, terminal
from seqmed.cli.options import Reading
from seqmed.cli.terminal import CommandError, counted, tell_skipped

if TYPE_CHECKING:
    from seqmed.cli.terminal import Reporter
    from seqmed.selection.queries import Shortlist
    from seqmed.streams import Stream
    from seqmed.tables.stream_pipeline import StreamPipeline

# Largest number of rows of a file, by which rows of several files are numbered.
ROWS_OF_FILE = 2**40


def query_command(
    model: options.Model,
    data: options.Data,
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, metavar="K", help="Number of rows to choose.")
    ],
    output: options.OutputOptions,
    cluster: options.Cluster = None,
    *,
    reading: Reading,
) -> None:
    """Choose the rows to label next, the most useful first.

    Labeled rows of DATA are ignored.
    """
    from seqmed.cli import checkpoint, outputs
    from seqmed.estimators.base import BLOCK
    from seqmed.selection import queries

    to = outputs.checked_format(output, model, data, reading.file_format)
    pipeline, progress = checkpoint.load_checkpoint(model)
    names = output.kept_columns
    ids = outputs.free_names(checkpoint.encoder_of(pipeline).id_columns, names, {})
    size = max(queries.SHORTLIST, number)
    more = {"batch_size": 2 * BLOCK, "final": True, "keep": names, "keep_optional": ids}
    if cluster is None:
        stream = checkpoint.open_stream(data, pipeline, progress, reading, **more)
        with terminal.Reporter("reading") as bar:
            shortlist, rows = best_rows(pipeline, stream, 0, size, bar)
        tell_skipped(stream.skipped)
    else:
        from seqmed.cli.cluster import FileTasks

        tasks = FileTasks("reading", data, pipeline, progress, reading, more)
        shortlist, rows = tasks.run(cluster, partial(best_rows, size=size), joined_shortlists)
    refuse_too_few(0 if shortlist is None else len(shortlist.cells), number, rows)
    assert shortlist is not None  # there are rows
    chosen = queries.query(checkpoint.classifier_of(pipeline), shortlist.points, number)
    found = zip(*(shortlist.cells[place] for place in chosen.tolist()), strict=True)
    columns = outputs.output_columns([*names, *ids], {})
    outputs.write_table(output.path, to, columns, [[list(values) for values in found]])


def refuse_too_few(found: int, number: int, rows: int) -> None:
    """Refuse to choose more rows than there are."""
    if not found:
        reason = f"all {counted(rows, 'row')} have labels" if rows else "there are no rows"
        raise CommandError(
            f"{reason}, expected unlabeled rows: pass rows whose labels are unknown."
        )
    if found < number:
        raise CommandError(
            f"there {'is' if found == 1 else 'are'} {counted(found, 'distinct row')} without a "
            f"label, expected at least {number}: choose at most {found:,} with -n, or pass more "
            "unlabeled rows."
        )


def best_rows(
    pipeline: StreamPipeline, stream: Stream, first: int, size: int, bar: Reporter | None = None
) -> tuple[Shortlist | None, int]:
    """Return the unlabeled rows of largest expected regret, and the number of all rows.

    ``first`` is the number of the first file among all files.
    """
    from seqmed.cli.checkpoint import classifier_of, features_of
    from seqmed.cli.outputs import located
    from seqmed.selection.queries import Shortlist

    found: Shortlist | None = None
    rows = 0
    for batch in stream:
        rows += batch.row.size
        free = (~batch.labeled).nonzero()[0]
        if free.size:
            cells = list(zip(*located(batch, stream.names), strict=True))
            part = Shortlist.of(
                classifier_of(pipeline),
                size,
                features_of(pipeline, batch.table.take(free)),
                (first + batch.file[free]) * ROWS_OF_FILE + batch.row[free],
                [cells[place] for place in free.tolist()],
            )
            found = part if found is None else found.plus(part)
        if bar is not None:
            bar.report(stream.fraction, rows, counted(rows, "row"))
    return found, rows


def joined_shortlists(
    one: tuple[Shortlist | None, int], other: tuple[Shortlist | None, int]
) -> tuple[Shortlist | None, int]:
    """Return the result of `best_rows` for the files of two results."""
    (first, n_first), (second, n_second) = one, other
    if first is None or second is None:
        return first or second, n_first + n_second
    return first.plus(second), n_first + n_second
