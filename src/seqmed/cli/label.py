"""`seqmed label`: a local page to label the most informative rows while the model learns."""

from __future__ import annotations

import threading
import webbrowser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqmed.cli import options
from seqmed.cli.learn import FIRST_BATCH, ColumnOptions, begin_or_resume
from seqmed.cli.options import Reading, option
from seqmed.cli.terminal import CommandError, counted, percent, percent_range, show, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seqmed.cli.checkpoint import Progress
    from seqmed.labeling.desk import Desk
    from seqmed.labeling.learner import Background, LabelLearner

# Suffix of the label log beside the model, and label column of a new model.
LOG_SUFFIX, DEFAULT_LABEL = ".labels.csv", "label"
# Parameters of a new model. All labels stay in the window, so that each of them can be retracted.
WITHOUT_WINDOW = {"window": None}


@dataclass(frozen=True)
class PageOptions:
    """The page and its server."""

    classes: list[str] | None = option(
        metavar="NAMES", help="Classes that the page offers at once, separated by commas."
    )
    goal: int = option(default=200, min=1, metavar="N", help="Number of labels to reach.")
    port: int = option(
        default=0, min=0, max=65535, metavar="N", help="Port (default: any free one)."
    )
    no_browser: bool = option(
        "--no-browser", default=False, help="Print the address, and open no browser."
    )
    allow_remote: bool = option(
        "--allow-remote",
        default=False,
        help="Let other machines connect. The connection is not encrypted.",
    )


def label_command(
    model: options.Model,
    data: options.StoredData,
    *,
    label_column: Annotated[
        str | None,
        typer.Option("--label", metavar="COLUMN", help="Column of labels (default: label)."),
    ] = None,
    show_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--show",
            metavar="COLUMNS",
            help="Columns on a card, separated by commas (default: all).",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="OUT.csv", help="The label log (default: MODEL.labels.csv)."),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="COLUMN", help="Column that identifies a row, copied to the label log."
        ),
    ] = None,
    page: PageOptions,
    export_file: Annotated[
        Path | None,
        typer.Option("--export", metavar="OUT.csv", help="Write the current labels, and end."),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option("--replay", metavar="", help="Learn the label log, save the model, and end."),
    ] = False,
    force: options.Force = False,
    reading: Reading,
) -> None:
    """Label the most informative rows on a local page, while the model learns.

    Rows of DATA that the model has not learned are learned first. Every label is on the disk before
    the page confirms it. If the command is interrupted, run it again: it continues with the same
    queue. The page can be opened on this machine only, unless --allow-remote is given.
    """
    from seqmed import model_file
    from seqmed.cli import label_log
    from seqmed.cli.checkpoint import locked
    from seqmed.cli.label_log import StreamRows, check_columns
    from seqmed.cli.outputs import refuse_existing, refuse_shared
    from seqmed.cli.prequential import StreamLearner
    from seqmed.labeling.desk import Desk
    from seqmed.labeling.learner import Background, LabelLearner, learned_labels
    from seqmed.labeling.log import LabelLog
    from seqmed.labeling.queue import class_names

    path = model.with_name(model.name + LOG_SUFFIX) if labels is None else labels
    outputs = {"MODEL": model, "--labels": path, "--export": export_file}
    refuse_pipes(data)
    refuse_shared(outputs.items(), None, data, reading.file_format)
    if export_file is not None:
        refuse_existing(export_file, force=force)
    with locked(model), locked(path):
        model_file.remove_leftovers(model)
        new = not model.exists()
        columns = ColumnOptions(
            label=label_column or (DEFAULT_LABEL if new else None),
            label_type="string" if new else None,
        )  # the rest as `seqmed learn` without options
        encoder, given = columns.encoder_parameters(), WITHOUT_WINDOW if new else {}
        pipeline, progress = begin_or_resume(model, columns, encoder, None, given)
        progress = replace(progress, dialect=reading.dialect.over(progress.dialect))
        with LabelLog(path, id_column or "id", progress.known_label.name) as log:
            if log.repaired:
                tell(
                    f"{path}: {counted(log.repaired, 'byte')} of an unfinished last line removed. "
                    "It was never confirmed."
                )
            check_label = label_log.label_check(progress)
            label_log.check_log(log, check_label)
            source = StreamRows(data, pipeline, progress, reading, path.parent)
            if export_file is not None:
                label_log.export(log, export_file, source)
                return
            if progress.labels is not None:  # refused before any row is learned
                pool, events = label_log.place(log, source)
                learned_labels(events, progress.labels)
            rows = StreamLearner(model, pipeline, progress, None, None)
            rows.follow(rows.stream(data, reading, first_batch_size=FIRST_BATCH, final=True))
            pipeline, progress = rows.model, rows.progress
            if progress.labels is None:
                source = StreamRows(data, pipeline, progress, reading, path.parent)
                pool, events = label_log.place(log, source)
            shown = options.column_names(show_columns)
            check_columns(pool, [*shown, *filter(None, [id_column])])
            learner = LabelLearner(pipeline, pool, label_log.as_label(progress))
            if progress.labels is not None:
                learner.resume(events, progress.labels)
            saver = Saver(model, progress, has_ids=id_column is not None)
            background = Background(learner, events, saver.save)
            if replay:
                background.start()
                background.finish()
            else:
                desk = Desk(
                    log,
                    events,
                    background,
                    id_name=id_column,
                    check_label=label_log.label_check(progress),  # of the labels in the rows
                    classes=[*options.column_names(page.classes), *class_names(pipeline)],
                    shown=shown or None,
                    goal=page.goal,
                    title=source.title,
                )
                serve(desk, background, page)
            show_labels(model, path, learner)


def refuse_pipes(data: Sequence[Path]) -> None:
    """Refuse inputs that cannot be read again."""
    from seqmed.model_file.files import is_pipe_or_device
    from seqmed.streams.inputs import STANDARD_INPUT

    for path in data:
        if str(path) == STANDARD_INPUT or is_pipe_or_device(path):
            raise CommandError(
                f"{path} is a pipe or a device, expected files, which are read again at every "
                "start: save the rows to a file."
            )


def serve(desk: Desk, background: Background, page: PageOptions) -> None:
    """Serve the page until the command is told to end; then learn and save the rest."""
    from seqmed.labeling.server import Server

    server = Server(desk, port=page.port, remote=page.allow_remote)
    background.start()
    try:
        show(f"Labeling page: {server.address}")
        tell("Press Ctrl-C to end. All labels are saved.")
        if not page.no_browser:
            # without waiting for the browser
            opened = threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True)
            opened.start()
        server.run()
    except KeyboardInterrupt:
        pass
    finally:
        tell("saving the model.")
        background.finish()


def show_labels(model: Path, path: Path, learner: LabelLearner) -> None:
    """Print what was learned."""
    from seqmed.labeling.ledger import outcomes, present_accuracy

    ledger, n_earlier = learner.ledger, learner.earlier.total()
    found = outcomes(ledger, checks=True, n_earlier=n_earlier)
    checks = present_accuracy(found, n_earlier + ledger.n_labeled)
    accuracy = ""
    if checks.value is not None:
        interval = percent_range(checks.low, checks.high)
        number = counted(checks.n, "random check")
        accuracy = f"; accuracy {percent(checks.value)} ({interval}) on the last {number}"
    rows = counted(ledger.n_labeled, "labeled row")
    show(f"{model}: {rows} in {path}{accuracy}.")


class Saver:
    """Saves the model with its progress in the stream and in the label log.

    If the log has ids, its labels are noted as late labels, so that `seqmed learn --late` does not
    learn them twice.
    """

    def __init__(self, path: Path, progress: Progress, *, has_ids: bool):
        self._path, self._progress, self._has_ids = path, progress, has_ids

    def save(self, learner: LabelLearner) -> None:
        """Save the model of a learner."""
        from seqmed.cli.checkpoint import save_checkpoint

        before, now = self._progress.labels, learner.progress()
        record = self._progress.record
        added = now.n_labeled - (0 if before is None else before.n_labeled)
        late = dict(self._progress.late)
        for row in learner.ledger.rows.values() if self._has_ids else ():
            if row.id:
                late.pop(row.id, None)
                if row.label is not None:
                    late[row.id] = row.label
        self._progress = replace(
            self._progress,
            labels=now,
            record=replace(record, labeled=record.labeled + added),
            late=tuple(late.items()),
        )
        save_checkpoint(learner.model, self._progress, self._path)
