"""Predicting a stream of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqmed.cli import outputs, state
from seqmed.cli.inputs import tell_skipped, without_labels
from seqmed.cli.outputs import BOOLEAN, INTEGER, NUMBER, TEXT, Chunk, Kind
from seqmed.cli.state import Classifier
from seqmed.streams import Batch, Stream

SPREAD = "spread"
LABEL_KINDS = {"i": INTEGER, "b": BOOLEAN}


def predict(
    path: Path,
    data: Sequence[Path],
    *,
    output: Path,
    to: str | None,
    force: bool,
    keep: Sequence[str],
    file_format: str | None,
    on_error: str,
) -> None:
    """Write predictions of all rows."""
    to = outputs.checked_kind(output, to, path, data, file_format, force=force)
    model, progress = state.load(path)
    stream = Stream(
        data,
        schema=without_labels(progress.known_schema),
        on_error=on_error,
        final=True,
        file_format=file_format,
        keep=keep,
    )
    columns = outputs.header(keep, predicted_columns(model))
    chunks = (predictions(model, batch, stream.names) for batch in stream)
    outputs.write(output, to, columns, chunks)
    tell_skipped(stream.skipped)


def predicted_columns(model: Classifier) -> dict[str, Kind]:
    """Return the columns of predictions; with up to two classes there is one score."""
    names = model.classes_.tolist()
    scores = ["score"] if len(names) <= 2 else [f"score_{name}" for name in names]
    return {
        "label": LABEL_KINDS.get(model.classes_.dtype.kind, TEXT),
        **{f"probability_{name}": NUMBER for name in names},
        **dict.fromkeys(scores, NUMBER),
        **({SPREAD: NUMBER} if has_spread(model) else {}),
    }


def has_spread(model: Classifier) -> bool:
    """Whether a model has a posterior standard deviation."""
    return hasattr(model, "decision_std")


def predictions(model: Classifier, batch: Batch, names: Sequence[str]) -> Chunk:
    """Return the columns of a batch: where its rows come from, and their predictions."""
    probabilities = model.predict_proba(batch.X)
    scores = model.decision_function(batch.X).reshape(batch.row.size, -1)
    return [
        *outputs.located(batch, names),
        model.classes_[probabilities.argmax(axis=1)].tolist(),
        *probabilities.T.tolist(),
        *scores.T.tolist(),
        *([model.decision_std(batch.X).tolist()] if has_spread(model) else []),
    ]
