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

    from seqmed.cli.checkpoint import Classifier, Progress
    from seqmed.cli.prequential import Learner
    from seqmed.streams import Columns

Estimator = Literal["seqgraphmed", "seqmed", "seqlapmed", "graphpropagation"]
LabelType = Literal["integer", "boolean", "string"]
TextMethod = Literal["hashing", "vocabulary"]
TextWeights = Literal["unit", "counts"]

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
    "kernel": "Kernel: rbf, linear, poly, tfidf or dcm (default: rbf).",
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
    features: Annotated[
        list[str] | None,
        column(
            metavar="COLUMNS",
            help="Feature columns, separated by commas (default: all columns of numbers).",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None, column(metavar="COLUMNS", help="Columns to ignore, separated by commas.")
    ] = None,
    text: Annotated[
        str | None, column(metavar="COLUMN", help="Column whose words are features.")
    ] = None,
    text_method: Annotated[
        TextMethod | None,
        column(help="Hash all words, or use the words of the first batch (default: hashing)."),
    ] = None,
    text_size: Annotated[
        int | None,
        column(min=1, metavar="N", help="Maximum number of features from words (default: 262144)."),
    ] = None,
    text_weights: Annotated[
        TextWeights | None,
        column(help="Word counts scaled to length 1, or plain counts (default: unit)."),
    ] = None,
    scale: Annotated[
        bool,
        column(
            "--scale",
            help="Standardise features by the means and standard deviations of the first batch.",
        ),
    ] = False,
    batch_size: Annotated[
        int | None,
        batching(
            min=1, metavar="N", help="Rows per batch (default: as stored in the model, or 500)."
        ),
    ] = None,
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
    file_format: options.InputFormat = None,
    on_error: options.BadRows = "stop",
    **given: Any,
) -> None:
    """Train a model on files and pipes, or continue training.

    The labeled rows of a batch are predicted, then the batch is learned. The model is saved
    together with its position in the stream. If the command is interrupted, run it again: it
    resumes after the last saved batch.
    """
    from seqmed import model_file, plotting
    from seqmed.cli.checkpoint import is_log
    from seqmed.cli.existing_files import refuse_existing, refuse_shared
    from seqmed.cli.lock import locked
    from seqmed.cli.parameters import given_parameters
    from seqmed.cli.prequential import Learner
    from seqmed.streams import Columns, Stream

    named: dict[str, Any] = {
        "label": label,
        "features": options.column_names(features) or None,
        "drop": options.column_names(drop) or None,
        "text": text,
        "unlabeled": unlabeled,
        "label_type": label_type,
        "scale": scale,
        "text_method": text_method,
        "text_size": text_size,
        "text_weights": text_weights,
    }
    columns = Columns(**{name: value for name, value in named.items() if value is not None})
    given = given_parameters({**given, "averaging": averaging, "random_state": seed}, param or ())
    outputs = {"MODEL": model, "--log": log, "--plot": plot}
    refuse_shared(outputs, None, data, file_format)
    if log is not None and not is_log(log):
        refuse_existing(log, force=force, use="add to it")
    if plot is not None:
        check_plot(plot, log, force=force)
    with locked(model):
        model_file.remove_leftovers(model)
        classifier, progress = begin_or_resume(model, columns, estimator, given)
        if batch_size is not None or batch_by is not None:
            progress = replace(progress, batch_size=batch_size, batch_by=batch_by)
        stream = Stream(
            data,
            columns,
            schema=progress.schema,
            batch_size=progress.batch_size,
            batch_by=progress.batch_by,
            on_error=on_error,
            position=progress.position,
            again=again,
            final=final,
            file_format=file_format,
        )
        if not stream.resumable:
            tell("a pipe cannot be resumed: after an interruption, send only the remaining rows.")
            checkpoint_every = checkpoint_every or 1
        learner = Learner(model, classifier, progress, log, checkpoint_every)
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
    known = getattr(learner.model, "n_batches_", 0)
    if records and records[-1]["batch"] > known:
        raise CommandError(
            f"{log} has batch {records[-1]['batch']}, and the model has learned "
            f"{counted(known, 'batch', 'batches')}: --plot needs a log of this model alone. Choose "
            "another file for --log."
        )
    return records


def begin_or_resume(
    path: Path, columns: Columns, estimator: str | None, given: Mapping[str, Any]
) -> tuple[Classifier, Progress]:
    """Return the model in a file and its progress, or a new model."""
    from seqmed.cli import checkpoint, parameters

    if path.exists():
        model, progress = checkpoint.load(path)
        parameters.check_same(model, estimator, given)
        return model, progress
    if columns.label is None:
        raise CommandError(
            f"{path} does not exist, and a new model needs a column of labels: add --label COLUMN."
        )
    return parameters.new_model(estimator, given, columns.unlabeled), checkpoint.Progress()


def show_summary(learner: Learner, rows: int, data: Sequence[Path]) -> None:
    """Print a summary of the model."""
    model, record = learner.model, learner.progress.record
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
        f"{learner.path}: {counted(model.n_batches_, 'batch', 'batches')}, "
        f"{counted(record.rows, 'row')} ({record.labeled:,} labeled), "
        f"{counted(model.classes_.size, 'class', 'classes')}{accuracy}."
    )
