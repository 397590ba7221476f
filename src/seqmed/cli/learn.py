"""`seqmed learn`: make a model from files and pipes, or teach it more."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from seqmed.cli import options
from seqmed.cli.errors import for_people

COLUMNS, BATCHES, MODEL = "Columns", "Batches", "Parameters of a new model"


class Estimator(StrEnum):
    """Classifiers."""

    seqgraphmed = "seqgraphmed"
    seqmed = "seqmed"
    seqlapmed = "seqlapmed"
    graphpropagation = "graphpropagation"


class LabelType(StrEnum):
    """Types of labels."""

    integer = "integer"
    boolean = "boolean"
    string = "string"


class TextMethod(StrEnum):
    """How words get their places."""

    hashing = "hashing"
    vocabulary = "vocabulary"


class TextWeights(StrEnum):
    """What words count."""

    unit = "unit"
    counts = "counts"


def learn(
    model: options.Model,
    data: options.Data,
    label: Annotated[
        str | None, typer.Option(help="Column of labels.", rich_help_panel=COLUMNS)
    ] = None,
    unlabeled: Annotated[
        str | None,
        typer.Option(
            help="What marks a row without a label, besides an empty cell, NA and their like: by "
            "default -1.",
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    label_type: Annotated[
        LabelType | None,
        typer.Option(
            help="Type of the labels (default: inferred from the first labels).",
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns that are features, between commas (default: all of numbers).",
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMNS", help="Columns not to use.", rich_help_panel=COLUMNS),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Column whose words are features.", rich_help_panel=COLUMNS),
    ] = None,
    text_method: Annotated[
        TextMethod | None,
        typer.Option(help="Places of words (default: hashing).", rich_help_panel=COLUMNS),
    ] = None,
    text_size: Annotated[
        int | None,
        typer.Option(min=1, help="Number of places (default: 262144).", rich_help_panel=COLUMNS),
    ] = None,
    text_weights: Annotated[
        TextWeights | None,
        typer.Option(
            help="Rows of words of length 1, or plain counts (default: unit).",
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    scale: Annotated[
        bool,
        typer.Option(
            "--scale",
            help="Standardise features by means and spreads of the first batch.",
            rich_help_panel=COLUMNS,
        ),
    ] = False,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Rows in a batch (default: as before, else 500).", rich_help_panel=BATCHES
        ),
    ] = None,
    batch_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Begin a batch where this column changes.",
            rich_help_panel=BATCHES,
        ),
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Save after N batches (default: saving takes about 5 % of the time; after every "
            "batch of a pipe).",
            rich_help_panel=BATCHES,
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Add a JSON line for every batch.", rich_help_panel=BATCHES
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Add to a FILE that is no log.", rich_help_panel=BATCHES),
    ] = False,
    again: Annotated[
        bool,
        typer.Option("--again", help="Learn finished files once more.", rich_help_panel=BATCHES),
    ] = False,
    final: Annotated[
        bool,
        typer.Option(
            "--final",
            help="Learn a last line without a line end, instead of leaving it for the next run.",
            rich_help_panel=BATCHES,
        ),
    ] = False,
    estimator: Annotated[
        Estimator | None,
        typer.Option(help="Classifier (default: seqgraphmed).", rich_help_panel=MODEL),
    ] = None,
    graph_memory: Annotated[
        str | None,
        typer.Option(help="Rows kept for the graph (default: 10000).", rich_help_panel=MODEL),
    ] = None,
    mixture: Annotated[
        str | None,
        typer.Option(
            help="Weight of the graph: evidence, or a number in [0, 1].", rich_help_panel=MODEL
        ),
    ] = None,
    alpha: Annotated[
        str | None,
        typer.Option(help="Weight of neighbours against a row's own label.", rich_help_panel=MODEL),
    ] = None,
    n_neighbors: Annotated[
        str | None,
        typer.Option(help="Neighbours of a row in the graph.", rich_help_panel=MODEL),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Distance: auto, euclidean or cosine.", rich_help_panel=MODEL),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(help="rbf, linear, poly, tfidf or dcm.", rich_help_panel=MODEL),
    ] = None,
    gamma: Annotated[
        str | None,
        typer.Option(
            help="Coefficient of the kernel: scale, auto, or a number.", rich_help_panel=MODEL
        ),
    ] = None,
    C: Annotated[
        str | None,
        typer.Option("--C", help="Upper bound of a row's multiplier.", rich_help_panel=MODEL),
    ] = None,
    beta: Annotated[
        str | None,
        typer.Option(help="Smoothness weight (seqlapmed).", rich_help_panel=MODEL),
    ] = None,
    lag: Annotated[
        str | None,
        typer.Option(
            help="Batches optimised together, or none for no limit.", rich_help_panel=MODEL
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Support vectors kept, or none for all.", rich_help_panel=MODEL),
    ] = None,
    averaging: Annotated[
        bool | None,
        typer.Option(help="Predict with the running mean of all means.", rich_help_panel=MODEL),
    ] = None,
    forgetting: Annotated[
        str | None,
        typer.Option(help="Forgetting factor per batch, in (0, 1].", rich_help_panel=MODEL),
    ] = None,
    class_weight: Annotated[
        str | None,
        typer.Option(help="balanced, or {'class': weight}.", rich_help_panel=MODEL),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed (default: 0).", rich_help_panel=MODEL)
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Any other parameter.", rich_help_panel=MODEL),
    ] = None,
    file_format: options.InputFormat = None,
    on_error: options.BadRows = options.OnError.stop,
    debug: options.Debug = False,
) -> None:
    """Make a model from files and pipes, or teach it more.

    Labeled rows of a batch are first predicted, then the batch is learned. The model is saved
    together with its position in the stream. If interrupted at any point, run the same command
    again: it resumes after the last saved batch.
    """
    with for_people(debug):
        from seqmed.cli import learning
        from seqmed.cli.parameters import collect
        from seqmed.streams import Columns

        named: dict[str, Any] = {
            "label": label,
            "features": options.column_names(features) or None,
            "drop": options.column_names(drop) or None,
            "text": text,
            "unlabeled": unlabeled,
            "label_type": options.name_of(label_type),
            "scale": scale,
            "text_method": options.name_of(text_method),
            "text_size": text_size,
            "text_weights": options.name_of(text_weights),
        }
        parameters = {
            "graph_memory": graph_memory,
            "mixture": mixture,
            "alpha": alpha,
            "n_neighbors": n_neighbors,
            "metric": metric,
            "kernel": kernel,
            "gamma": gamma,
            "C": C,
            "beta": beta,
            "lag": lag,
            "budget": budget,
            "averaging": averaging,
            "forgetting": forgetting,
            "class_weight": class_weight,
            "random_state": seed,
        }
        learning.learn(
            model,
            data,
            Columns(**{name: value for name, value in named.items() if value is not None}),
            estimator=options.name_of(estimator),
            parameters=collect(parameters, param or ()),
            batch_size=batch_size,
            batch_by=batch_by,
            checkpoint_every=checkpoint_every,
            log=log,
            force=force,
            again=again,
            final=final,
            file_format=options.name_of(file_format),
            on_error=on_error.value,
        )
