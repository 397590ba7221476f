"""Options of `seqmed learn`: columns, batches, and parameters of a new model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from seqmed.cli.errors import CommandError
from seqmed.cli.options import column_names, option

Estimator = Literal["seqgraphmed", "seqmed", "seqlapmed", "graphpropagation"]
LabelType = Literal["integer", "boolean", "string"]

# Smallest number of rows in the first batch, which decides the kinds of the columns.
FIRST_BATCH = 1000

column = partial(option, rich_help_panel="Columns")
columns = partial(column, metavar="COLUMNS")
batching = partial(option, rich_help_panel="Batches")
parameter = partial(option, rich_help_panel="Parameters of a new model")
value = partial(parameter, metavar="VALUE")


@dataclass(frozen=True)
class ColumnOptions:
    """The label column, and the kinds of the others."""

    label: str | None = column(metavar="COLUMN", help="Column of labels; required for a new model.")
    unlabeled: str | None = column(
        metavar="VALUE",
        help="Marker of unlabeled rows, besides empty cells, NA, NaN, null and None (default: -1).",
    )
    label_type: LabelType | None = column(
        help="Type of the labels (default: inferred from the first labels)."
    )
    no_labels: bool = column(
        "--no-labels", default=False, help="DATA has no column of labels yet: learn it unlabeled."
    )
    features: list[str] | None = columns(help="Columns to use, separated by commas (default: all).")
    drop: list[str] | None = columns(help="Columns to ignore, separated by commas.")
    numeric: list[str] | None = columns(help="Columns of numbers.")
    categorical: list[str] | None = columns(help="Columns of categories.")
    text: list[str] | None = columns(help="Columns of text, whose words are features.")
    date: list[str] | None = columns(help="Columns of dates, also with a format: 'day=%d/%m/%Y'.")
    na: list[str] | None = column(
        metavar="WORDS", help="Further words that mark a missing cell, such as ?."
    )
    no_scale: bool = column(
        "--no-scale", default=False, help="Use numbers as they are, not standardised."
    )
    text_size: int | None = column(
        min=1, metavar="N", help="Number of hashed features of a text (default: 262144)."
    )

    def encoder_parameters(self) -> dict[str, Any]:
        """Return the parameters of the encoder; refuse a column of two kinds."""
        return {
            "kinds": self._kinds(),
            "features": list(column_names(self.features)) or None,
            "missing_values": column_names(self.na),
            "scale": not self.no_scale,
            **({} if self.text_size is None else {"text_size": self.text_size}),
        }

    def _kinds(self) -> dict[str, str]:
        """Return the kind of each column that an option names."""
        kinds: dict[str, str] = {}
        for kind in ("drop", "numeric", "categorical", "text", "date"):
            values: Sequence[str] | None = getattr(self, kind)
            for name in column_names(values):
                column, _, form = (
                    name.rpartition("=") if kind == "date" and "=%" in name else (name, "", "")
                )
                if column in kinds:
                    raise CommandError(
                        f"column {column!r} is named twice, by --{kinds[column]} and --{kind}: "
                        "leave one out."
                    )
                kinds[column] = f"{kind}:{form}" if form else kind
        return kinds


@dataclass(frozen=True)
class BatchOptions:
    """The batches, what is saved of them, and late labels."""

    batch_size: int | None = batching(
        min=1, metavar="N", help="Rows per batch (default: as stored in the model, or 500)."
    )
    first_batch: int = batching(
        default=FIRST_BATCH,
        min=1,
        metavar="N",
        help="Smallest number of rows in the first batch of a new model, which decides the "
        "kinds of the columns.",
    )
    batch_by: str | None = batching(
        metavar="COLUMN", help="Begin a new batch where the value of this column changes."
    )
    checkpoint_every: int | None = batching(
        min=1,
        metavar="N",
        help="Save after every N batches (default: 1 with a pipe; otherwise saving takes about "
        "5 % of the time).",
    )
    log: Path | None = batching(metavar="FILE", help="Append a JSON line for every batch to FILE.")
    plot: Path | None = batching(
        metavar="FILE",
        help="Draw the log: accuracy, changes and weights of experts (png, svg or pdf).",
    )
    force: bool = batching(
        "--force",
        default=False,
        help="Replace the file of --plot; append to the file of --log even if it is not a log.",
    )
    again: bool = batching("--again", default=False, help="Learn finished files again.")
    final: bool = batching(
        "--final",
        default=False,
        help="Learn a last line without a line end; by default it is left for the next run.",
    )
    late: Path | None = batching(
        metavar="LABELS",
        help="Table of labels that arrived late, with the column of labels and --id. DATA is "
        "read again, and its rows with these ids get their labels.",
    )
    id_column: str | None = batching(
        "--id", metavar="COLUMN", help="Column that identifies a row, for --late."
    )


@dataclass(frozen=True)
class ParameterOptions:
    """The classifier and its parameters."""

    estimator: Estimator | None = parameter(help="Classifier (default: seqgraphmed).")
    graph_memory: str | None = value(
        help="Maximum number of rows kept for the graph (default: 10000)."
    )
    mixture: str | None = value(
        help="Weight of the graph: evidence, or a number in [0, 1] (default: evidence)."
    )
    alpha: str | None = value(
        help="Weight of the neighbours relative to a row's own label, in [0, 1) (default: 0.97)."
    )
    n_neighbors: str | None = value(
        help="Number of neighbours of a row in the graph, at least 1 (default: 10)."
    )
    metric: str | None = value(help="Distance: auto, euclidean or cosine (default: auto).")
    kernel: str | None = value(
        help="Kernel: rbf, linear, poly or tfidf (default: linear for text, rbf otherwise)."
    )
    gamma: str | None = value(
        help="Kernel coefficient: scale, auto, or a number > 0 (default: scale)."
    )
    C: str | None = value("--C", help="Upper bound of the multiplier of a row, > 0 (default: 10).")
    beta: str | None = value(help="Smoothness weight of seqlapmed, at least 0 (default: 0.01).")
    lag: str | None = value(
        help="Number of batches optimised together, or none for no limit (default: none)."
    )
    budget: str | None = value(
        help="Maximum number of support vectors, or none for no limit (default: none)."
    )
    forgetting: str | None = value(
        help="Forgetting factor per batch, in (0, 1], or auto (default of seqgraphmed)."
    )
    class_weight: str | None = value(
        help="Class weights: none, balanced, or {'class': weight} (default: none)."
    )
    averaging: bool | None = parameter(
        help="Predict with the average of the means after each batch (default: no)."
    )
    seed: int | None = parameter(help="Random seed (default: 0).")
    param: list[str] | None = parameter(
        metavar="NAME=VALUE", help="Any other parameter of the classifier; may be repeated."
    )

    def given(self) -> dict[str, Any]:
        """Return the parameters of the classifier that are given; refuse one given twice."""
        from seqmed.cli.parameters import given_parameters

        own = {
            ("random_state" if name == "seed" else name): each
            for name, each in asdict(self).items()
        }
        del own["estimator"]
        return given_parameters(own, own.pop("param") or ())
