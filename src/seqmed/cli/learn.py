"""`seqmed learn`: train a model on files and pipes, or continue training."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seqmed.cli import options, terminal
from seqmed.cli.errors import CommandError, naming_file
from seqmed.cli.terminal import counted, percent_with_interval, tell, tell_skipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from seqmed.cli.checkpoint import Progress
    from seqmed.cli.prequential import Learner
    from seqmed.pipelines.stream_pipeline import StreamPipeline

Estimator = Literal["seqgraphmed", "seqmed", "seqlapmed", "graphpropagation"]
LabelType = Literal["integer", "boolean", "string"]

# Smallest number of rows in the first batch, which decides the kinds of the columns.
FIRST_BATCH = 1000

column = partial(typer.Option, rich_help_panel="Columns")
batching = partial(typer.Option, rich_help_panel="Batches")
parameter = partial(typer.Option, rich_help_panel="Parameters of a new model")

# Parameters of estimators that have their own option, with its help.
PARAMETERS = {
    "graph_memory": "Maximum number of rows kept for the graph (default: 10000).",
    "mixture": "Weight of the graph: evidence, or a number in [0, 1] (default: evidence).",
    "alpha": "Weight of the neighbours relative to a row's own label, in [0, 1) (default: 0.97).",
    "n_neighbors": "Number of neighbours of a row in the graph, at least 1 (default: 10).",
    "metric": "Distance: auto, euclidean or cosine (default: auto).",
    "kernel": "Kernel: rbf, linear, poly, tfidf or dcm (default: linear for text, rbf otherwise).",
    "gamma": "Kernel coefficient: scale, auto, or a number > 0 (default: scale).",
    "C": "Upper bound of the multiplier of a row, > 0 (default: 10).",
    "beta": "Smoothness weight of seqlapmed, at least 0 (default: 0.01).",
    "lag": "Number of batches optimised together, or none for no limit (default: none).",
    "budget": "Maximum number of support vectors, or none for no limit (default: none).",
    "forgetting": "Forgetting factor per batch, in (0, 1], or auto (default of seqgraphmed).",
    "class_weight": "Class weights: none, balanced, or {'class': weight} (default: none).",
}


def learn(
    model: options.Model,
    data: options.Data,
    label: Annotated[
        str | None, column(metavar="COLUMN", help="Column of labels; required for a new model.")
    ] = None,
    unlabeled: Annotated[
        str | None,
        column(
            metavar="VALUE",
            help="Marker of unlabeled rows, besides empty cells, NA, NaN, null and None "
            "(default: -1).",
        ),
    ] = None,
    label_type: Annotated[
        LabelType | None,
        column(help="Type of the labels (default: inferred from the first labels)."),
    ] = None,
    no_labels: Annotated[
        bool, column("--no-labels", help="DATA has no column of labels yet: learn it unlabeled.")
    ] = False,
    features: Annotated[
        list[str] | None,
        column(metavar="COLUMNS", help="Columns to use, separated by commas (default: all)."),
    ] = None,
    drop: Annotated[
        list[str] | None, column(metavar="COLUMNS", help="Columns to ignore, separated by commas.")
    ] = None,
    numeric: Annotated[
        list[str] | None, column(metavar="COLUMNS", help="Columns of numbers.")
    ] = None,
    categorical: Annotated[
        list[str] | None, column(metavar="COLUMNS", help="Columns of categories.")
    ] = None,
    text: Annotated[
        list[str] | None,
        column(metavar="COLUMNS", help="Columns of text, whose words are features."),
    ] = None,
    date: Annotated[
        list[str] | None,
        column(
            metavar="COLUMNS",
            help="Columns of dates, also with a format: 'day=%d/%m/%Y'.",
        ),
    ] = None,
    na: Annotated[
        list[str] | None,
        column(metavar="WORDS", help="Further words that mark a missing cell, such as ?."),
    ] = None,
    no_scale: Annotated[
        bool, column("--no-scale", help="Use numbers as they are, not standardised.")
    ] = False,
    text_size: Annotated[
        int | None,
        column(min=1, metavar="N", help="Number of hashed features of a text (default: 262144)."),
    ] = None,
    batch_size: Annotated[
        int | None,
        batching(
            min=1,
            metavar="N",
            help="Rows per batch (default: as stored in the model, or 500).",
        ),
    ] = None,
    first_batch: Annotated[
        int,
        batching(
            min=1,
            metavar="N",
            help="Smallest number of rows in the first batch of a new model, which decides the "
            "kinds of the columns.",
        ),
    ] = FIRST_BATCH,
    batch_by: Annotated[
        str | None,
        batching(
            metavar="COLUMN", help="Begin a new batch where the value of this column changes."
        ),
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        batching(
            min=1,
            metavar="N",
            help="Save after every N batches (default: 1 with a pipe; otherwise saving takes about "
            "5 % of the time).",
        ),
    ] = None,
    log: Annotated[
        Path | None, batching(metavar="FILE", help="Append a JSON line for every batch to FILE.")
    ] = None,
    plot: Annotated[
        Path | None,
        batching(
            metavar="FILE",
            help="Draw the log: accuracy, changes and weights of experts (png, svg or pdf).",
        ),
    ] = None,
    force: Annotated[
        bool,
        batching(
            "--force",
            help="Replace the file of --plot; append to the file of --log even if it is not a log.",
        ),
    ] = False,
    again: Annotated[bool, batching("--again", help="Learn finished files again.")] = False,
    final: Annotated[
        bool,
        batching(
            "--final",
            help="Learn a last line without a line end; by default it is left for the next run.",
        ),
    ] = False,
    late: Annotated[
        Path | None,
        batching(
            metavar="LABELS",
            help="Table of labels that arrived late, with the column of labels and --id. DATA is "
            "read again, and its rows with these ids get their labels.",
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        batching("--id", metavar="COLUMN", help="Column that identifies a row, for --late."),
    ] = None,
    estimator: Annotated[
        Estimator | None, parameter(help="Classifier (default: seqgraphmed).")
    ] = None,
    averaging: Annotated[
        bool | None,
        parameter(help="Predict with the average of the means after each batch (default: no)."),
    ] = None,
    seed: Annotated[int | None, parameter(help="Random seed (default: 0).")] = None,
    param: Annotated[
        list[str] | None,
        parameter(
            metavar="NAME=VALUE", help="Any other parameter of the classifier; may be repeated."
        ),
    ] = None,
    *,
    reading: options.Reading,
    **given: Any,
) -> None:
    """Train a model on files and pipes, or continue training.

    The labeled rows of a batch are predicted, then the batch is learned. The model is saved
    together with its position in the stream. If the command is interrupted, run it again: it
    resumes after the last saved batch.

    The first batch decides the kind of every column: numbers, categories, dates or text. Empty and
    constant columns and ids are not used.
    """
    from seqmed import model_file, plotting
    from seqmed.cli.checkpoint import is_log
    from seqmed.cli.existing_files import refuse_existing, refuse_shared
    from seqmed.cli.late_labels import learn_late
    from seqmed.cli.lock import locked
    from seqmed.cli.parameters import given_parameters
    from seqmed.cli.prequential import Learner

    kinds = chosen_kinds(drop=drop, numeric=numeric, categorical=categorical, text=text, date=date)
    columns: dict[str, Any] = {
        "kinds": kinds,
        "features": list(options.column_names(features)) or None,
        "missing_values": options.column_names(na),
        "scale": not no_scale,
        **({} if text_size is None else {"text_size": text_size}),
    }
    given = given_parameters({**given, "averaging": averaging, "random_state": seed}, param or ())
    outputs = {"MODEL": model, "--log": log, "--plot": plot}
    refuse_shared(outputs, None, [*data, *([] if late is None else [late])], reading.file_format)
    check_late(late, id_column)
    if log is not None and not is_log(log):
        refuse_existing(log, force=force, use="add to it")
    if plot is not None:
        check_plot(plot, log, force=force)
    with locked(model):
        model_file.remove_leftovers(model)
        chosen = {*kinds, *(columns["features"] or ())}
        if batch_by is not None and batch_by not in chosen and not model.exists():
            kinds[batch_by] = "drop"  # not a feature, unless it is chosen as one
        pipeline, progress = begin_or_resume(
            model, (label, unlabeled, label_type), columns, estimator, given
        )
        if batch_size is not None or batch_by is not None:
            progress = replace(progress, batch_size=batch_size, batch_by=batch_by)
        progress = replace(progress, dialect=reading.dialect.over(progress.dialect))
        learner = Learner(model, pipeline, progress, log, checkpoint_every)
        if late is not None:
            assert id_column is not None  # checked above
            learn_late(learner, data, late, id_column, reading)
            return
        stream = learner.stream(
            data, reading, first_batch_size=first_batch, again=again, final=final
        )
        if not learner.n_batches and not no_labels:
            stream.refuse_without_label()
        if not stream.resumable:
            tell("a pipe cannot be resumed: after an interruption, send only the remaining rows.")
            learner.save_every_batch()
        if plot is not None:
            logged_batches(log, learner)  # refuse a log of another model before learning
        try:
            learner.follow(stream)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(learner.interruption()) from None
        finally:
            tell_skipped(stream.skipped)
        show_summary(learner, learner.progress.record.rows - progress.record.rows, data)
        if plot is not None:
            figure = plotting.learning_log(logged_batches(log, learner))
            with naming_file(plot):
                plotting.save(figure, plot)


options.with_options(
    learn,
    {
        name: (
            Annotated[
                str | None, parameter(f"--{name.replace('_', '-')}", metavar="VALUE", help=text)
            ],
            None,
        )
        for name, text in PARAMETERS.items()
    },
    before="averaging",
)


def chosen_kinds(**named: Sequence[str] | None) -> dict[str, str]:
    """Return the kind of each column that an option names."""
    kinds: dict[str, str] = {}
    for kind, values in named.items():
        for name in options.column_names(values):
            column, _, form = (
                name.rpartition("=") if kind == "date" and "=%" in name else (name, "", "")
            )
            if column in kinds:
                raise CommandError(
                    f"column {column!r} is named twice, by --{kinds[column]} and --{kind}: leave "
                    "one out."
                )
            kinds[column] = f"{kind}:{form}" if form else kind
    return kinds


def check_late(late: Path | None, id_column: str | None) -> None:
    """Refuse --late without --id, and --id without --late."""
    if (late is None) != (id_column is None):
        given, other = ("--late", "--id COLUMN") if late else ("--id", "--late LABELS")
        raise CommandError(f"{given} is used only with {other}: add it, or leave both out.")


def check_plot(plot: Path, log: Path | None, *, force: bool) -> None:
    """Refuse a plot that cannot be drawn or would overwrite a file."""
    from seqmed import plotting
    from seqmed.cli.existing_files import refuse_existing
    from seqmed.model_file.files import is_pipe_or_device

    if log is None or is_pipe_or_device(log):
        given = "no --log was given" if log is None else f"{log} is a pipe or a device"
        raise CommandError(f"--plot draws the file of --log, and {given}: add --log FILE.")
    refuse_existing(plot, force=force)
    plotting.require_matplotlib()
    plotting.picture_format(plot)


def logged_batches(log: Path | None, learner: Learner) -> Sequence[Mapping[str, Any]]:
    """Return the records of the log; refuse those of another model."""
    from seqmed import plotting

    assert log is not None
    records = plotting.read_log(log) if log.is_file() else []
    known = learner.n_batches
    if records and records[-1]["batch"] > known:
        raise CommandError(
            f"{log} has batch {records[-1]['batch']}, and the model has learned "
            f"{counted(known, 'batch', 'batches')}: --plot needs a log of this model alone. Choose "
            "another file for --log."
        )
    return records


def begin_or_resume(
    path: Path,
    label: tuple[str | None, str | None, str | None],
    columns: Mapping[str, Any],
    estimator: str | None,
    given: Mapping[str, Any],
) -> tuple[StreamPipeline, Progress]:
    """Return the model in a file and its progress, or a new model.

    Parameters
    ----------
    path : the model file.
    label : values of --label, --unlabeled and --label-type.
    columns : parameters of the encoder.
    estimator, given : the classifier and its parameters.
    """
    from seqmed.cli import checkpoint, parameters
    from seqmed.streams import LabelColumn

    name, unlabeled, kind = label
    if path.exists():
        model, progress = checkpoint.load(path)
        parameters.check_same(model, estimator, given, columns)
        if progress.label is None and name is not None:
            encoder = checkpoint.encoder_of(model)
            if name in encoder.feature_names_in_.tolist():
                raise CommandError(
                    f"column {name!r} is a feature of the model, expected another column of "
                    "labels: name it with --label, or make a new model."
                )
            encoder.set_params(label=name)
            progress = replace(progress, label=checkpoint.label_column(model, name, unlabeled))
        known = progress.known_label
        known.check_same(LabelColumn(known.name if name is None else name, unlabeled, kind))
        return model, progress
    if name is None:
        raise CommandError(
            f"{path} does not exist, and a new model needs a column of labels: add --label COLUMN."
        )
    classifier = parameters.new_classifier(estimator, given, unlabeled)
    model = parameters.new_model(classifier, {**columns, "label": name})
    return model, checkpoint.Progress(label=LabelColumn(name, unlabeled, kind))


def show_summary(learner: Learner, rows: int, data: Sequence[Path]) -> None:
    """Print a summary of the model."""
    record = learner.progress.record
    if terminal.is_quiet():
        return
    if not rows:
        names = ", ".join(map(str, data[:3])) + (", ..." if len(data) > 3 else "")
        terminal.show(f"no new rows in {names}: use --again to learn old rows again.")
    accuracy = ""
    if record.scored:
        scored = counted(record.scored, "labeled row")
        found = percent_with_interval(record.correct, record.scored)
        accuracy = f"; prequential accuracy {found} of {scored}"
    terminal.show(
        f"{learner.path}: {counted(learner.n_batches, 'batch', 'batches')}, "
        f"{counted(record.rows, 'row')} ({record.labeled:,} labeled), "
        f"{counted(learner.classes.size, 'class', 'classes')}{accuracy}."
    )
