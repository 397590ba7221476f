"""`seqmed predict`: labels, probabilities, scores and their standard deviations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seqmed.cli import options
from seqmed.cli.options import DecisionOptions, Reading
from seqmed.cli.terminal import tell_skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from seqmed.cli.outputs import Chunk, ColumnType
    from seqmed.selection.decisions import DecisionRule
    from seqmed.streams import LabelColumn, StreamBatch
    from seqmed.tables.stream_pipeline import StreamPipeline


def predict_command(
    model: options.Model,
    data: options.Data,
    output: options.OutputOptions,
    decision: DecisionOptions,
    reading: Reading,
    device: options.Device = "cpu",
) -> None:
    """Predict labels, probabilities and scores of rows.

    Labels in DATA are not used. Columns that the model left out as ids are copied. OUT is written
    completely or not at all. If some errors are worse than others, set --threshold or --cost.
    """
    from seqmed.cli import checkpoint, outputs
    from seqmed.streams import LabelColumn

    to = outputs.checked_format(output, model, data, reading.file_format)
    pipeline, progress = checkpoint.load_checkpoint(model)
    checkpoint.move_to_device(pipeline, device)
    classifier, names = checkpoint.classifier_of(pipeline), output.kept_columns
    label = progress.label or LabelColumn("label")
    rule = decision.rule(classifier.classes_)
    texts = to in ("csv", "tsv") and label.spelling is not None
    columns = predicted_columns(classifier, label, texts=texts)
    ids = outputs.free_names(checkpoint.encoder_of(pipeline).id_columns, names, columns)
    stream = checkpoint.open_stream(
        data, pipeline, progress, reading, label=None, final=True, keep=names, keep_optional=ids
    )
    spelled = label.text if texts else None
    chunks = (predictions(pipeline, rule, batch, stream.names, spelled) for batch in stream)
    outputs.write_table(output.path, to, outputs.output_columns([*names, *ids], columns), chunks)
    tell_skipped(stream.skipped)


def predicted_columns(model: Any, label: LabelColumn, *, texts: bool) -> dict[str, ColumnType]:
    """Return the columns of predictions; up to two classes have one score.

    Classes are named as in the column of labels. With ``texts`` predicted classes are texts.
    """
    names = [*map(label.text, model.classes_.tolist())]
    scores = ["score"] if len(names) <= 2 else [f"score_{name}" for name in names]
    kinds: dict[str, ColumnType] = {"i": "integer", "b": "boolean"}
    kind = "text" if texts else kinds.get(model.classes_.dtype.kind, "text")
    deviation = ["score_std"] if hasattr(model, "decision_std") else []
    numbers = [*(f"probability_{name}" for name in names), *scores, *deviation]
    return {"label": kind, **dict.fromkeys(numbers, "number")}


def predictions(
    pipeline: StreamPipeline,
    rule: DecisionRule,
    batch: StreamBatch,
    names: Sequence[str],
    spelled: Callable[[Any], str] | None = None,
) -> Chunk:
    """Return the columns of a batch: the origin of its rows, and their predictions.

    ``spelled`` returns the text of a class; None leaves the classes as they are.
    """
    from seqmed.cli.checkpoint import classifier_of, features_of
    from seqmed.cli.outputs import located

    model, features = classifier_of(pipeline), features_of(pipeline, batch.table)
    scores, probabilities = model._scores_and_probabilities(features)
    labels = model.classes_[rule.decide(model.classes_, probabilities)].tolist()
    return [
        *located(batch, names),
        labels if spelled is None else [*map(spelled, labels)],
        *probabilities.T.tolist(),
        *scores.reshape(batch.row.size, -1).T.tolist(),
        *([model.decision_std(features).tolist()] if hasattr(model, "decision_std") else []),
    ]
