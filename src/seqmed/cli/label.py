"""`seqmed label`: a local page to label the most informative rows while the model learns."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqmed.cli import options
from seqmed.cli.errors import CommandError, naming_file
from seqmed.cli.terminal import counted, show, tell, tell_skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from seqmed.cli.checkpoint import Progress
    from seqmed.labeling.learner import LabelLearner
    from seqmed.labeling.log import LabelLog
    from seqmed.labeling.rows import Pool, Rows
    from seqmed.pipelines.stream_pipeline import StreamPipeline

# Label column of a new model, and the suffix of the label log beside the model.
DEFAULT_LABEL, LOG_SUFFIX = "label", ".labels.csv"
# Rows in the first batch of a new model, and rows that are read at once for the pool.
FIRST_BATCH, ROWS_AT_ONCE = 1000, 2000
# Parameters of a new model. All labels stay in the window, so that each of them can be retracted.
PARAMETERS = {"window": None}
# Parameters of its encoder, as `seqmed learn` gives them without options.
COLUMNS: dict[str, Any] = {"kinds": None, "features": None, "missing_values": [], "scale": True}


def label(
    model: options.Model,
    data: options.Data,
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
    classes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES", help="Classes that the page offers at once, separated by commas."
        ),
    ] = None,
    goal: Annotated[int, typer.Option(min=1, metavar="N", help="Number of labels to reach.")] = 200,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port (default: any free one).")
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote",
            help="Let other machines connect. The connection is not encrypted.",
        ),
    ] = False,
    import_file: Annotated[
        Path | None,
        typer.Option("--import", metavar="FILE", help="Add labels from JSON lines to the log."),
    ] = None,
    export_file: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write the current labels (.csv) or all events (.jsonl), and end.",
        ),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Learn the label log, save the model, and end.")
    ] = False,
    force: options.Force = False,
    *,
    reading: options.Reading,
) -> None:
    """Label the most informative rows on a local page, while the model learns.

    Rows of DATA that the model has not learned are learned first. Every label is on the disk before
    the page confirms it. If the command is interrupted, run it again: it continues with the same
    queue. The page can be opened on this machine only, unless --allow-remote is given.
    """
    from seqmed import model_file
    from seqmed.cli.existing_files import refuse_existing, refuse_shared
    from seqmed.cli.lock import locked
    from seqmed.labeling.learner import LabelLearner
    from seqmed.labeling.log import LabelLog
    from seqmed.labeling.rows import Pool

    path = model.with_name(model.name + LOG_SUFFIX) if labels is None else labels
    outputs = {"MODEL": model, "--labels": path, "--export": export_file}
    refuse_pipes(data)
    refuse_shared(outputs, None, data, reading.file_format)
    if export_file is not None:
        refuse_existing(export_file, force=force)
    with locked(model), locked(path):
        model_file.remove_leftovers(model)
        pipeline, progress = begin_or_resume(model, label_column)
        progress = replace(progress, dialect=reading.dialect.over(progress.dialect))
        with LabelLog(path, id_column or "id", progress.known_label.name) as log:
            if log.repaired:
                tell(
                    f"{path}: {counted(log.repaired, 'byte')} of an unfinished last line removed. "
                    "It was never confirmed."
                )
            check_log(log, label_check(progress))
            if import_file is not None:
                add_labels(log, import_file, label_check(progress))
            if export_file is not None:
                export(log, export_file)
                return
            pipeline, progress = learn_rows(model, pipeline, progress, data, reading)
            source = StreamRows(data, pipeline, progress, reading)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # given before, when the rows were learned
                pool = Pool(source, [event.key for event in log.events])
            check_columns(pool, [*options.column_names(show_columns), *filter(None, [id_column])])
            learner = LabelLearner(pipeline, pool, as_label(progress))
            if progress.labels is not None:
                learner.resume(log.events, progress.labels)
            saver = Saver(model, progress, has_ids=id_column is not None)
            if replay:
                learner.begin()
                for event in log.events[learner.ledger.n_events :]:
                    learner.learn(event)
                saver.save(learner)
            else:
                title = source.title
                shown = options.column_names(show_columns) or None
                offered = [*options.column_names(classes), *known_classes(pipeline)]
                desk_options: dict[str, Any] = {
                    "classes": offered, "shown": shown, "id_name": id_column, "goal": goal,
                    "check_label": label_check(progress), "title": title,
                }  # fmt: skip
                address = {"port": port, "remote": allow_remote}
                serve(log, learner, saver, desk_options, address, browser=not no_browser)
            summary(model, path, learner)


# -- the model -------------------------------------------------------------------------------------


def refuse_pipes(data: Sequence[Path]) -> None:
    """Refuse inputs that cannot be read again."""
    from seqmed.model_file.files import is_pipe_or_device
    from seqmed.streams.files import STANDARD_INPUT

    for path in data:
        if str(path) == STANDARD_INPUT or is_pipe_or_device(path):
            raise CommandError(
                f"{path} is a pipe or a device, expected files, which are read again at every "
                "start: save the rows to a file."
            )


def begin_or_resume(path: Path, name: str | None) -> tuple[StreamPipeline, Progress]:
    """Return the model in a file and its progress, or a new model."""
    from seqmed.cli import checkpoint, parameters
    from seqmed.streams import LabelColumn
    from seqmed.streams.labels import STRING

    if path.exists():
        model, progress = checkpoint.load(path)
        if name is not None:
            progress.known_label.check_same(LabelColumn(name))
        return model, progress
    column = LabelColumn(name or DEFAULT_LABEL, None, STRING)
    classifier = parameters.new_classifier(None, PARAMETERS)
    model = parameters.new_model(classifier, {**COLUMNS, "label": column.name})
    return model, checkpoint.Progress(label=column)


def learn_rows(
    path: Path,
    model: StreamPipeline,
    progress: Progress,
    data: Sequence[Path],
    reading: options.Reading,
) -> tuple[StreamPipeline, Progress]:
    """Learn the rows of the data that the model has not learned, as `seqmed learn` does."""
    from seqmed.cli.prequential import Learner

    learner = Learner(path, model, progress, None, None)
    stream = learner.stream(data, reading, first_batch_size=FIRST_BATCH, final=True)
    try:
        learner.follow(stream)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(learner.interruption()) from None
    finally:
        tell_skipped(stream.skipped)
    return learner.model, learner.progress


def as_label(progress: Progress) -> Callable[[str], Any]:
    """Return the function from the text of a label to the label."""
    from seqmed.streams.labels import STRING, label_of

    kind = progress.known_label.type or STRING
    return lambda text: label_of(text, kind)


def label_check(progress: Progress) -> Callable[[str], str]:
    """Return the function that returns a label as it is stored, or refuses it."""
    from seqmed.labeling.events import LabelingError, checked_label
    from seqmed.labeling.rows import cell_text
    from seqmed.streams.labels import text_label

    convert, column = as_label(progress), progress.known_label

    def check(text: str) -> str:
        written = text_label(checked_label(text), column.unlabeled)
        if written is None:
            raise LabelingError(f"{text!r} marks rows without a label: choose another name")
        label = convert(written)
        if label is None:
            raise LabelingError(f"the labels of this model are of type {column.type}")
        return cell_text(label)

    return check


def known_classes(model: StreamPipeline) -> list[str]:
    """Return the classes of a model as texts."""
    from seqmed.cli.checkpoint import classifier_of
    from seqmed.labeling.queue import class_names

    return class_names(classifier_of(model))


class Saver:
    """Saves the model with its progress in the stream and in the label log.

    Parameters
    ----------
    path : the model file.
    progress : progress in the stream.
    has_ids : whether the label log has ids. Their labels are then noted as late labels, so that
        `seqmed learn --late` does not learn them twice.
    """

    def __init__(self, path: Path, progress: Progress, *, has_ids: bool):
        self._path, self._progress, self._has_ids = path, progress, has_ids

    def save(self, learner: LabelLearner) -> None:
        """Save the model of a learner."""
        from seqmed.cli import checkpoint

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
        checkpoint.save(learner.model, self._progress, self._path)


# -- rows ------------------------------------------------------------------------------------------


class StreamRows:
    """The rows of files, with all their columns.

    Parameters
    ----------
    data : the files.
    model, progress, reading : the model, and how the files are read.
    """

    def __init__(
        self,
        data: Sequence[Path],
        model: StreamPipeline,
        progress: Progress,
        reading: options.Reading,
    ):
        self._data, self._model, self._progress, self._reading = data, model, progress, reading
        self.names = short_names(self._stream().names)

    @property
    def title(self) -> str:
        """The names of the files, without folders."""
        more = len(self.names) - 1
        return self.names[0] + (f" and {counted(more, 'file')} more" if more else "")

    def _stream(self) -> Any:
        from seqmed.cli.checkpoint import encoder_of
        from seqmed.streams import EncoderCheck, Stream

        encoder = encoder_of(self._model)
        return Stream(
            self._data,
            label=self._progress.label,
            check=AllColumns(EncoderCheck(lambda: encoder), encoder.needed_),
            batch_size=ROWS_AT_ONCE,
            final=True,
            **{**self._reading.arguments(self._progress.dialect), "on_error": "skip"},
        )

    def __iter__(self) -> Iterator[Rows]:
        """Yield all good rows."""
        import numpy as np
        import pyarrow as pa

        from seqmed.labeling.rows import Rows

        for batch in self._stream():
            for file in np.unique(batch.file).tolist():
                own = np.flatnonzero(batch.file == file)
                table = batch.table.take(pa.array(own))
                yield Rows(self.names[file], batch.row[own], table, batch.labeled[own])


class AllColumns:
    """A check of cells that reads all columns, for cards; see `seqmed.streams.CellCheck`."""

    def __init__(self, check: Any, needed: Sequence[str]):
        self._check, self._needed = check, list(needed)

    def needed(self) -> None:
        """Return None: all columns are read."""

    def decide(self, table: Any) -> None:
        """Do nothing: the columns of the model have been chosen."""

    def used(self) -> tuple[str, ...]:
        """Return the columns of the model."""
        return tuple(self._needed)

    def checked(self, table: Any) -> tuple[Any, dict[int, Any]]:
        """Return the table as it is, and the faults of rows that the model cannot learn."""
        there = [name for name in self._needed if name in table.column_names]
        _, faults = self._check.checked(table.select(there))
        return table, faults


def short_names(names: Sequence[str]) -> list[str]:
    """Return the names of files without folders; equal names are numbered."""
    from seqmed.labeling.events import as_one_line

    found: list[str] = []
    for name in names:
        short = as_one_line(Path(name).name, 200)
        same = sum(each == short or each.startswith(f"{short} (") for each in found)
        found.append(f"{short} ({same + 1})" if same else short)
    return found


def check_columns(pool: Pool, names: Sequence[str]) -> None:
    """Refuse columns that the data do not have."""
    from seqmed.streams.errors import listed

    if not len(pool.candidates) and not len(pool):
        raise CommandError("all rows have labels, expected unlabeled rows: pass other data.")
    for name in names:
        if name not in pool.table.column_names:
            raise CommandError(
                f"the data have no column {name!r}, expected one of "
                f"{listed(pool.table.column_names)}: check the name."
            )


# -- the label log ---------------------------------------------------------------------------------


def check_log(log: LabelLog, check_label: Callable[[str], str]) -> None:
    """Refuse a log with events that are not possible, such as a withdrawal without a label."""
    from seqmed.labeling.events import LabelingError
    from seqmed.labeling.ledger import Ledger

    ledger = Ledger()
    for number, event in enumerate(log.events, 1):
        try:
            ledger.apply(event)
            if event.label and check_label(event.label) != event.label:
                raise LabelingError(f"the label {event.label!r} is not in its usual form")
        except LabelingError as error:
            raise CommandError(
                f"{log.path}, event {number}: {error}. Restore the file from a copy, or name "
                "another one with --labels."
            ) from None


def add_labels(log: LabelLog, path: Path, check_label: Callable[[str], str]) -> None:
    """Append the events in a file of JSON lines that the log does not have."""
    from seqmed.labeling.events import LabelingError
    from seqmed.labeling.ledger import Ledger
    from seqmed.labeling.log import from_json_lines
    from seqmed.model_file.files import read_file

    ledger, known, added = Ledger(log.events), set(log.events), []
    for event in from_json_lines(read_file(path), str(path)):
        if event in known:
            continue
        try:
            if event.label:
                event = event._replace(label=check_label(event.label))
            ledger.apply(event)
        except LabelingError as error:
            raise CommandError(
                f"{path}: {event.event} of row {event.row} of {event.file}: {error}."
            ) from None
        added.append(event)
    if added:
        log.append(added)
    tell(f"{path}: {counted(len(added), 'event')} added to {log.path}.")


def export(log: LabelLog, path: Path) -> None:
    """Write the current labels, or all events."""
    from seqmed.labeling.ledger import Ledger, current_labels
    from seqmed.labeling.log import to_json_lines
    from seqmed.model_file.files import write_output

    if path.suffix not in (".csv", ".jsonl"):
        raise CommandError(
            f"{path} ends in {path.suffix!r}, expected .csv for the current labels or .jsonl for "
            "all events: rename it."
        )
    with naming_file(path):
        if path.suffix == ".jsonl":
            write_output(path, to_json_lines(log.events))
        else:
            write_output(path, current_labels(log.header, Ledger(log.events)))


# -- the page --------------------------------------------------------------------------------------


def serve(
    log: LabelLog,
    learner: LabelLearner,
    saver: Saver,
    desk_options: dict[str, Any],
    address: dict[str, Any],
    *,
    browser: bool,
) -> None:
    """Serve the page until the command is told to end; then learn and save the rest."""
    from seqmed.labeling.background import Background
    from seqmed.labeling.desk import Desk
    from seqmed.labeling.server import Server

    background = Background(learner, log.events, saver.save)
    desk = Desk(log, learner.pool, background, **desk_options)
    server = Server(desk, **address)
    background.start()
    try:
        show(f"Labeling page: {server.address}")
        tell("Press Ctrl-C to end. All labels are saved.")
        if browser:
            open_browser(server.address)
        server.run()
    except KeyboardInterrupt:
        pass
    finally:
        tell("saving the model.")
        background.finish()


def open_browser(address: str) -> None:
    """Open the address in a browser, without waiting for it."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def summary(model: Path, path: Path, learner: LabelLearner) -> None:
    """Print what was learned."""
    from seqmed.labeling import measures

    ledger = learner.ledger
    checks = measures.accuracy(measures.outcomes(ledger, ledger.checks))
    accuracy = ""
    if checks.value is not None:
        low, high = measures.percent(checks.low), measures.percent(checks.high)
        accuracy = (
            f"; accuracy {measures.percent(checks.value)} ({low} to {high}) on "
            f"{counted(checks.n, 'random check')}"
        )
    rows = counted(ledger.n_labeled, "labeled row")
    show(f"{model}: {rows} in {path}{accuracy}.")
