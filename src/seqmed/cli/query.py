"""`seqmed query`: choose the rows to label next, in constant memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqmed.cli import options, terminal
from seqmed.cli.options import Reading
from seqmed.cli.terminal import CommandError, counted, tell_skipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seqmed.numeric.arrays import Points
    from seqmed.streams import StreamBatch
    from seqmed.tables.stream_pipeline import StreamPipeline

# Rows in a batch. Large, because scoring has a fixed cost per batch.
ROWS_AT_ONCE = 10_000
# Number of candidates per row to choose.
CANDIDATES = 10


def query_command(
    model: options.Model,
    data: options.Data,
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, metavar="K", help="Number of rows to choose.")
    ],
    output: options.OutputOptions,
    reading: Reading,
) -> None:
    """Choose the rows to label next, the most useful first.

    Labeled rows of DATA are ignored.
    """
    from seqmed.cli import checkpoint, outputs
    from seqmed.selection import queries

    to = outputs.checked_format(output, model, data, reading.file_format)
    pipeline, progress = checkpoint.load_checkpoint(model)
    names = output.kept_columns
    ids = outputs.free_names(checkpoint.encoder_of(pipeline).id_columns, names, {})
    stream = checkpoint.open_stream(
        data, pipeline, progress, reading, batch_size=ROWS_AT_ONCE, final=True, keep=names,
        keep_optional=ids,
    )  # fmt: skip
    classifier = checkpoint.classifier_of(pipeline)
    shortlist, rows = Shortlist(classifier, max(queries.SHORTLIST, CANDIDATES * number)), 0
    with terminal.Reporter("reading") as bar:
        for batch in stream:
            rows += batch.row.size
            shortlist.add(*candidates(pipeline, batch, stream.names))
            bar.report(stream.fraction, rows, counted(rows, "row"))
    tell_skipped(stream.skipped)
    refuse_too_few(len(shortlist.places), number, rows)
    chosen = queries.query(classifier, shortlist.points, number)
    found = zip(*(shortlist.places[place] for place in chosen.tolist()), strict=True)
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


class Shortlist:
    """At most ``size`` distinct rows of largest expected regret.

    With fewer than two classes, they are a random sample.
    """

    def __init__(self, model: Any, size: int):
        import numpy as np

        self.points: Points | None = None
        self.places: list[tuple[Any, ...]] = []
        self._model, self._size = model, size
        self._values = np.zeros(0)
        self._random = np.random.default_rng(0)

    def add(self, points: Points, places: Sequence[tuple[Any, ...]]) -> None:
        """Add rows (n, p) and their lines of output, and keep the best."""
        import numpy as np

        from seqmed.numeric.arrays import distinct_rows, stack, take_rows
        from seqmed.selection import queries

        if not places:
            return
        values = queries.expected_regret(self._model, points)
        if values is None:
            values = self._random.random(len(places))
        every = points if self.points is None else stack(self.points, points)
        values = np.concatenate([self._values, values])
        together = [*self.places, *places]
        distinct = distinct_rows(every)
        best = np.sort(distinct[np.argsort(-values[distinct], kind="stable")[: self._size]])
        self.points, self._values = take_rows(every, best), values[best]
        self.places = [together[place] for place in best.tolist()]


def candidates(
    pipeline: StreamPipeline, batch: StreamBatch, names: Sequence[str]
) -> tuple[Points, list[tuple[Any, ...]]]:
    """Return the features of the unlabeled rows of a batch, and their lines of output."""
    from seqmed.cli.checkpoint import features_of
    from seqmed.cli.outputs import located

    free = (~batch.labeled).nonzero()[0]
    every = list(zip(*located(batch, names), strict=True))
    lines = [every[place] for place in free.tolist()]
    return features_of(pipeline, batch.table.take(free)), lines
