"""`seqmed predict`: labels, probabilities, scores and their standard deviations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from seqmed.cli import options
from seqmed.cli.options import DecisionOptions, Reading
from seqmed.cli.terminal import tell_skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from seqmed.cli.options import OutputFormat
    from seqmed.cli.outputs import Chunk, ColumnType, Header
    from seqmed.selection.decisions import DecisionRule
    from seqmed.streams import LabelColumn, Stream, StreamBatch
    from seqmed.tables.stream_pipeline import StreamPipeline


def predict_command(
    model: options.Model,
    data: options.Data,
    output: options.OutputOptions,
    decision: DecisionOptions,
    cluster: options.Cluster = None,
    *,
    reading: Reading,
    device: options.Device = "cpu",
) -> None:
    """Predict labels, probabilities and scores of rows.

    Labels in DATA are not used. Columns that the model left out as ids are copied. OUT is written
    completely or not at all. If some errors are worse than others, set --threshold or --cost. With
    --cluster OUT is a folder, with a file for every file of DATA.
    """
    from seqmed.cli import checkpoint, outputs
    from seqmed.estimators.base import BLOCK
    from seqmed.streams import LabelColumn
    from seqmed.streams.inputs import find_inputs

    targets: list[Path] = []
    if cluster is None:
        to = outputs.checked_format(output, model, data, reading.file_format)
    else:
        to, targets = outputs.checked_folder(output, model, data, reading.file_format)
    pipeline, progress = checkpoint.load_checkpoint(model)
    checkpoint.move_to_device(pipeline, device)
    classifier, names = checkpoint.classifier_of(pipeline), output.kept_columns
    label = progress.label or LabelColumn("label")
    rule = decision.rule(classifier.classes_)
    texts = to in ("csv", "tsv") and classifier.classes_.dtype.kind == "b"
    columns = predicted_columns(classifier, label, texts=texts)
    ids = outputs.free_names(checkpoint.encoder_of(pipeline).id_columns, names, columns)
    header = outputs.output_columns([*names, *ids], columns)
    write = partial(write_predictions, rule=rule, to=to, header=header, texts=texts, label=label)
    # rows of files are predicted in blocks, and those of pipes soon after they have come
    files = all(each.resumable for each in find_inputs(data, reading.file_format))
    more: dict[str, Any] = {"label": None, "final": True, "keep": names, "keep_optional": ids}
    more["batch_size"] = BLOCK if files else None
    if cluster is None:
        stream = checkpoint.open_stream(data, pipeline, progress, reading, **more)
        write(pipeline, stream, 0, targets=[output.path], blocks=files)
        tell_skipped(stream.skipped)
    else:
        from seqmed.cli.cluster import FileTasks

        tasks = FileTasks("predicting", data, pipeline, progress, reading, more)
        with outputs.whole_files(output.path, targets):
            tasks.run(cluster, partial(write, targets=targets), add)


def write_predictions(
    pipeline: StreamPipeline,
    stream: Stream,
    first: int,
    *,
    rule: DecisionRule,
    to: OutputFormat,
    header: Header,
    texts: bool,
    label: LabelColumn,
    targets: Sequence[Path],
    blocks: bool = True,
) -> tuple[None, int]:
    """Write the predictions of the rows of a stream to ``targets[first]``.

    Return None and the number of rows. With ``texts`` classes are written as texts.
    """
    from seqmed.cli.outputs import write_table

    rows, spelled = 0, label.text if texts else None

    def chunks() -> Iterator[Chunk]:
        nonlocal rows
        for batch in stream:
            rows += batch.row.size
            yield predictions(pipeline, rule, batch, stream.names, spelled, blocks=blocks)

    write_table(targets[first], to, header, chunks())
    return None, rows


def add(one: tuple[None, int], other: tuple[None, int]) -> tuple[None, int]:
    """Return the result of `write_predictions` for the files of two results."""
    return None, one[1] + other[1]


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
    *,
    blocks: bool = True,
) -> Chunk:
    """Return the columns of a batch: the origin of its rows, and their predictions.

    ``spelled`` returns the text of a class; None leaves the classes as they are. With ``blocks`` a
    prediction does not depend on the other rows of the batch; see `in_blocks`.
    """
    from seqmed.cli.checkpoint import classifier_of, features_of
    from seqmed.cli.outputs import located
    from seqmed.estimators.base import in_blocks

    model, features = classifier_of(pipeline), features_of(pipeline, batch.table)

    def predict(rows: Any) -> tuple[Any, ...]:
        spread = (model.decision_std(rows),) if hasattr(model, "decision_std") else ()
        return (*model._scores_and_probabilities(rows), *spread)

    scores, probabilities, *spread = in_blocks(predict, features) if blocks else predict(features)
    labels = model.classes_[rule.decide(model.classes_, probabilities)].tolist()
    return [
        *located(batch, names),
        labels if spelled is None else [*map(spelled, labels)],
        *probabilities.T.tolist(),
        *scores.reshape(batch.row.size, -1).T.tolist(),
        *(each.tolist() for each in spread),
    ]
