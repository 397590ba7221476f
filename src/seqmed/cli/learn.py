"""`seqmed learn`: make a model from files and pipes, or teach it more."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seqmed.cli import options, terminal
from seqmed.cli.errors import CommandError
from seqmed.cli.terminal import counted, percent, say, tell_skipped

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

# Parameters of estimators that have an option of their own, and the help on it.
PARAMETERS = {
    "graph_memory": "Rows kept for the graph (default: 10000).",
    "mixture": "Weight of the graph: evidence, or a number in [0, 1].",
    "alpha": "Weight of neighbours against a row's own label.",
    "n_neighbors": "Neighbours of a row in the graph.",
    "metric": "Distance: auto, euclidean or cosine.",
    "kernel": "rbf, linear, poly, tfidf or dcm.",
    "gamma": "Coefficient of the kernel: scale, auto, or a number.",
    "C": "Upper bound of a row's multiplier.",
    "beta": "Smoothness weight (seqlapmed).",
    "lag": "Batches optimised together, or none for no limit.",
    "budget": "Support vectors kept, or none for all.",
    "forgetting": "Forgetting factor per batch, in (0, 1].",
    "class_weight": "balanced, or {'class': weight}.",
}


def learn(
    model: options.Model,
    data: options.Data,
    label: Annotated[str | None, column(help="Column of labels.")] = None,
    unlabeled: Annotated[
        str | None,
        column(
            help="What marks a row without a label, besides an empty cell, NA and their like: by "
            "default -1."
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
            help="Columns that are features, between commas (default: all of numbers).",
        ),
    ] = None,
    drop: Annotated[list[str] | None, column(metavar="COLUMNS", help="Columns not to use.")] = None,
    text: Annotated[str | None, column(help="Column whose words are features.")] = None,
    text_method: Annotated[
        TextMethod | None, column(help="Places of words (default: hashing).")
    ] = None,
    text_size: Annotated[
        int | None, column(min=1, help="Number of places (default: 262144).")
    ] = None,
    text_weights: Annotated[
        TextWeights | None,
        column(help="Rows of words of length 1, or plain counts (default: unit)."),
    ] = None,
    scale: Annotated[
        bool,
        column("--scale", help="Standardise features by means and spreads of the first batch."),
    ] = False,
    batch_size: Annotated[
        int | None, batching(min=1, help="Rows in a batch (default: as before, else 500).")
    ] = None,
    batch_by: Annotated[
        str | None, batching(metavar="COLUMN", help="Begin a batch where this column changes.")
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        batching(
            min=1,
            metavar="N",
            help="Save after N batches (default: saving takes about 5 % of the time; after every "
            "batch of a pipe).",
        ),
    ] = None,
    log: Annotated[
        Path | None, batching(metavar="FILE", help="Add a JSON line for every batch.")
    ] = None,
    force: Annotated[bool, batching("--force", help="Add to a FILE that is no log.")] = False,
    again: Annotated[bool, batching("--again", help="Learn finished files once more.")] = False,
    final: Annotated[
        bool,
        batching(
            "--final",
            help="Learn a last line without a line end, instead of leaving it for the next run.",
        ),
    ] = False,
    estimator: Annotated[
        Estimator | None, parameter(help="Classifier (default: seqgraphmed).")
    ] = None,
    averaging: Annotated[
        bool | None, parameter(help="Predict with the running mean of all means.")
    ] = None,
    seed: Annotated[int | None, parameter(help="Random seed (default: 0).")] = None,
    param: Annotated[
        list[str] | None, parameter(metavar="NAME=VALUE", help="Any other parameter.")
    ] = None,
    file_format: options.InputFormat = None,
    on_error: options.BadRows = "stop",
    **given: Any,
) -> None:
    """Make a model from files and pipes, or teach it more.

    Labeled rows of a batch are first predicted, then the batch is learned. The model is saved
    together with its position in the stream. If interrupted at any point, run the same command
    again: it resumes after the last saved batch.
    """
    from seqmed import model_file
    from seqmed.cli import journal
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
    refuse_shared({"MODEL": model, "--log": log}, None, data, file_format)
    if log is not None and not journal.is_log(log):
        refuse_existing(log, force=force, use="add to it")
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
            say("standard input and pipes cannot be resumed: after an interruption send the rest.")
            checkpoint_every = checkpoint_every or 1
        learner = Learner(model, classifier, progress, log, checkpoint_every)
        try:
            learner.follow(stream)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(learner.interruption()) from None
        finally:
            tell_skipped(stream.skipped)
        show_summary(learner, learner.progress.record.rows - progress.record.rows, data)


options.with_options(
    learn,
    {
        name: (Annotated[str | None, parameter(f"--{name.replace('_', '-')}", help=text)], None)
        for name, text in PARAMETERS.items()
    },
    before="averaging",
)


def begin_or_resume(
    path: Path, columns: Columns, estimator: str | None, given: Mapping[str, Any]
) -> tuple[Classifier, Progress]:
    """Return the model of a file with its progress, or a new one."""
    from seqmed.cli import checkpoint, parameters

    if path.exists():
        model, progress = checkpoint.load(path)
        parameters.check_same(model, estimator, given)
        return model, progress
    if columns.label is None:
        raise CommandError(f"{path} does not exist yet, and a new model needs --label COLUMN.")
    return parameters.new_model(estimator, given, columns.unlabeled), checkpoint.Progress()


def show_summary(learner: Learner, rows: int, data: Sequence[Path]) -> None:
    """Print what came of it."""
    model, record = learner.model, learner.progress.record
    if not rows:
        names = ", ".join(map(str, data[:3])) + (", ..." if len(data) > 3 else "")
        terminal.show(f"nothing new in {names}: learn it once more with --again.")
    accuracy = ""
    if record.scored:
        accuracy = f"; accuracy before learning {percent(record.accuracy)} of {record.scored:,}"
    terminal.show(
        f"{learner.path}: {counted(model.n_batches_, 'batch', 'batches')}, "
        f"{counted(record.rows, 'row')} ({record.labeled:,} labeled), "
        f"{counted(model.classes_.size, 'class', 'classes')}{accuracy}."
    )
