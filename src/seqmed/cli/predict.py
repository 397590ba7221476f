"""`seqmed predict`: labels, probabilities, scores and their standard deviations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from seqmed.cli import options
from seqmed.cli.terminal import tell_skipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seqmed.cli.checkpoint import Classifier
    from seqmed.cli.outputs import Chunk, ColumnType
    from seqmed.decisions import DecisionRule
    from seqmed.streams import Schema, StreamBatch


def predict(
    model: options.Model,
    data: options.Data,
    output: options.Output = options.STANDARD_OUTPUT,
    to: options.To = None,
    force: options.Force = False,
    id_column: options.Id = None,
    keep: options.Keep = None,
    threshold: options.Threshold = None,
    positive: options.Positive = None,
    cost: options.Cost = None,
    file_format: options.InputFormat = None,
    on_error: options.BadRows = "stop",
) -> None:
    """Predict labels, probabilities and scores of rows.

    Labels in DATA are not used. OUT is written completely or not at all. If some errors are worse
    than others, set --threshold or --cost.
    """
    from seqmed.cli import checkpoint, outputs
    from seqmed.cli.decision_options import decision_rule
    from seqmed.streams import Stream

    to = outputs.checked_format(output, to, model, data, file_format, force=force)
    classifier, progress = checkpoint.load(model)
    rule = decision_rule(classifier, threshold, positive, cost)
    names = options.kept_columns(id_column, keep)
    stream = Stream(
        data,
        schema=without_labels(progress.known_schema),
        on_error=on_error,
        final=True,
        file_format=file_format,
        keep=names,
    )
    columns = outputs.header(names, predicted_columns(classifier))
    chunks = (predictions(classifier, rule, batch, stream.names) for batch in stream)
    outputs.write_table(output, to, columns, chunks)
    tell_skipped(stream.skipped)


def without_labels(schema: Schema) -> Schema:
    """Return a schema in which the column of labels is ignored."""
    label = schema.columns.label
    columns = replace(schema.columns, label=None, label_type=None)
    ignored = schema.ignored if label is None else (*schema.ignored, label)
    return replace(schema, columns=columns, ignored=ignored, label_type=None)


def predicted_columns(model: Classifier) -> dict[str, ColumnType]:
    """Return the columns of predictions; up to two classes have one score."""
    names = model.classes_.tolist()
    scores = ["score"] if len(names) <= 2 else [f"score_{name}" for name in names]
    kinds: dict[str, ColumnType] = {"i": "integer", "b": "boolean"}
    label = kinds.get(model.classes_.dtype.kind, "text")
    deviation = ["score_std"] if hasattr(model, "decision_std") else []
    numbers = [*(f"probability_{name}" for name in names), *scores, *deviation]
    return {"label": label, **dict.fromkeys(numbers, "number")}


def predictions(
    model: Classifier, rule: DecisionRule, batch: StreamBatch, names: Sequence[str]
) -> Chunk:
    """Return the columns of a batch: the origin of its rows, and their predictions."""
    from seqmed.cli.outputs import located

    probabilities = model.predict_proba(batch.X)
    scores = model.decision_function(batch.X).reshape(batch.row.size, -1)
    return [
        *located(batch, names),
        model.classes_[rule.decide(model.classes_, probabilities)].tolist(),
        *probabilities.T.tolist(),
        *scores.T.tolist(),
        *([model.decision_std(batch.X).tolist()] if hasattr(model, "decision_std") else []),
    ]
