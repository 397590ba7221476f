"""`seqmed inspect`: show a model and its progress."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from seqmed.cli import options, terminal
from seqmed.cli.terminal import counted, percent_with_interval

if TYPE_CHECKING:
    from pathlib import Path

    from seqmed.cli.checkpoint import Progress
    from seqmed.streams import LabelColumn
    from seqmed.tables.stream_pipeline import StreamPipeline

# Largest number of names, classes or files that are printed.
FEW = 20
# Parts of a description that count data rows: name, name of the count, and noun in the output.
KEPT_ROWS = (
    ("graph", "kept_rows", "kept rows of the graph"),
    ("margin", "points", "points of {estimator}"),
    ("mixture", "labeled_rows", "labeled rows of the experts"),
)


def inspect_command(model: options.Model, as_json: options.Json = False) -> None:
    """Show a model: its parameters, columns, classes, files and accuracy."""
    from seqmed.cli import checkpoint
    from seqmed.streams import LabelColumn

    pipeline, progress = checkpoint.load_checkpoint(model)
    found = description(model, pipeline, progress)
    if as_json:
        terminal.show_json(found)
    else:
        show_description(found, progress.label or LabelColumn("label"))


def description(path: Path, pipeline: StreamPipeline, progress: Progress) -> dict[str, Any]:
    """Return a description of a model as plain values."""
    from seqmed import model_file
    from seqmed.cli import checkpoint, parameters
    from seqmed.streams.inputs import shown_path

    contents, record, label = model_file.read(path), progress.record, progress.label
    model, encoding = checkpoint.classifier_of(pipeline), checkpoint.encoder_of(pipeline).encoding_
    kind, given = type(model).__name__, parameters_of(model)
    state, earlier = model._state, progress.batches_before  # the record counts none of these
    in_files = None if earlier == model.n_batches_ else record
    default = parameters_of(parameters.ESTIMATORS.get(kind.lower(), type(model))())
    return {
        "file": {
            "path": shown_path(path),
            "bytes": contents.n_bytes,
            "format": contents.format,
            "library": contents.library,
        },
        "model": {
            "estimator": kind,
            "parameters": given,
            "changed": {name: each for name, each in given.items() if each != default.get(name)},
        },
        "columns": {
            "label": None if label is None else label.name,
            "label_type": type_of_labels(model, label),
            "kinds": {each.name: each.kind for each in encoding.columns},
            "left_out": {each.name: each.reason for each in encoding.columns if each.reason},
            "descriptions": {each.name: each.description for each in encoding.columns},
            "scaled": encoding.numbers.centred,
            "n_features": encoding.n_features,
        },
        "classes": [
            {"class": name, "labels": count, "since_change": since}
            for name, count, since in zip(
                model.classes_.tolist(),
                state.counts.counts.tolist(),
                getattr(state, "margin", state).counts.counts.tolist(),
                strict=True,
            )
        ],
        "seen": {
            "batches": model.n_batches_,
            "batches_before": earlier,
            "rows": getattr(state, "n_rows", None) if earlier else record.rows,
            "labeled": int(state.counts.counts.sum()) if earlier else record.labeled,
            "skipped": None if in_files is None else record.skipped,
            "batch_size": progress.batch_size,
            "batch_by": progress.batch_by,
            "files": [
                {"path": shown_path(each.path), "rows": each.rows, "finished": each.finished}
                for each in progress.position.files
            ],
        },
        "prequential": {
            "scored": record.scored,
            "correct": record.correct,
            "accuracy": record.accuracy,
            "interval": record.interval,
        },
        "change": change_of(model, progress),
        **experts(model),
    }


def change_of(model: Any, progress: Progress) -> dict[str, Any] | None:
    """Describe the last change of the concept, None if none was found."""
    from seqmed.cli.checkpoint import KEPT, trial_of

    change, trial = progress.change, trial_of(model)
    labels = getattr(model._state, "margin", model._state).counts.counts.sum()
    if change is None and labels < model._state.counts.counts.sum():  # forgotten in Python
        unknown = dict.fromkeys(("batch", "error_before", "error_after", "weight"))
        return {**unknown, "labels_since": int(labels), "new_start": KEPT}
    if change is None:
        return None
    return {
        "batch": change.batch,
        "labels_since": change.labels_since(progress.record),
        "error_before": change.error_before,
        "error_after": change.error_after,
        "new_start": change.new_start,
        "weight": None if trial is None else trial.weight,
    }


def experts(model: Any) -> dict[str, Any]:
    """Describe the mixture, the graph and the margin classifier, if there are any."""
    from seqmed.mixture.mixture_state import PRIOR_EXPONENTS
    from seqmed.numeric.arrays import bytes_of

    found: dict[str, Any] = {}
    state, info = model._state, model.update_info_
    if hasattr(state, "choice"):
        found["experts"], found["core"] = model.expert_weights_, model.core_weights_
        found["mixture"] = {
            "graph_weight": model.graph_weight_,
            "temperature": state.choice.temperature if state.record.size else None,
            "class_prior_exponent": float(PRIOR_EXPONENTS[state.choice.exponent]),
            "labels_in_record": state.record.size,
            "labeled_rows": state.labels.size,
        }
    if hasattr(state, "graph"):
        found["graph"] = {
            "bytes": bytes_of(state.graph),
            "kept_rows": state.graph.rows.size,
            "labeled_rows": int((state.graph.codes >= 0).sum()),
            "metric": type(state.graph.rows.metric).__name__,
            "residual": getattr(info, "graph", info).residual,
        }
    margin = getattr(model, "estimator_", model)
    if hasattr(margin, "posterior_"):
        posterior, calibration = margin.posterior_, margin._state.calibration
        found["margin"] = {
            "estimator": type(margin).__name__,
            "bytes": posterior.nbytes,
            "points": posterior.size,
            "labeled_rows_in_window": posterior.window.size,
            "duality_gap": json_value(float(margin.duality_gap_)),
            "tol": margin.tol,
        }
        if calibration is not None and calibration.n_scored:
            found["margin"]["calibration_slope"] = calibration.slope
            found["margin"]["labels_in_calibration"] = calibration.n_scored
    return found


def parameters_of(model: Any) -> dict[str, Any]:
    """Return the parameters of a model, including those of its nested estimator."""
    given = model.get_params()
    return {name: json_value(value) for name, value in given.items() if name != "estimator"}


def json_value(value: Any) -> Any:
    """Return a value for JSON; NaN as None, infinities and other objects as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(name): json_value(each) for name, each in value.items()}
    return str(value)


def show_description(found: dict[str, Any], label: LabelColumn) -> None:
    """Print a description, without what is unknown; classes are written as in their column."""
    file, columns, seen = found["file"], found["columns"], found["seen"]
    changed = ", ".join(f"{name}={value}" for name, value in found["model"]["changed"].items())
    prequential = found["prequential"]
    kept = [
        f"{found[part][count]:,} {noun.format(**found[part])}"
        for part, count, noun in KEPT_ROWS
        if found.get(part, {}).get(count)
    ]
    weighted = ["experts", "core"] if "experts" in found else []
    if weighted and found["experts"] == found["core"]:
        weighted.remove("core")  # there are no refitted experts
    lines: dict[str, str] = {
        "file": f"{file['path']}, {amount('bytes', file['bytes'])}, format {file['format']}, "
        f"written by seqmed {file['library']}",
        "model": f"{found['model']['estimator']}({changed})",
        "features": f"{columns['n_features']:,} from {counted(len(columns['kinds']), 'column')}, "
        f"{len(columns['left_out']):,} of them not used",
        "labels": labels_text(columns),
        "learned": learned_text(seen),
        "accuracy": ""
        if not prequential["scored"]
        else "prequential accuracy "
        f"{percent_with_interval(prequential['correct'], prequential['scored'])} of "
        f"{counted(prequential['scored'], 'labeled row')}",
        **({"change": change_text(found["change"])} if found["change"] else {}),
        **{
            part: ", ".join(amount(name, weight) for name, weight in found[part].items() if weight)
            for part in weighted
        },
        **{
            part: ", ".join(
                amount(name, value) for name, value in found[part].items() if value is not None
            )
            for part in ("mixture", "graph", "margin")
            if part in found
        },
        "contains": f"rows of the data: {', '.join(kept)}" if kept else "",
    }  # fmt: skip
    for name, text in lines.items():
        if text:
            terminal.show(f"{name + ':':10}{text}")
    names = ("labels", "since_change") if found["change"] else ("labels",)
    counts = [
        (label.text(each["class"]), *(f"{each[name]:,}" for name in names))
        for each in found["classes"]
    ]
    files = [
        (each["path"], f"{each['rows']:,}", "yes" if each["finished"] else "no")
        for each in seen["files"]
    ]
    for header, rows in (
        (("column", "kind"), list(columns["descriptions"].items())),
        (("class", *(name.replace("_", " ") for name in names)), counts),
        (("file", "rows", "finished"), files),
    ):
        if not rows:
            continue
        terminal.show("")
        terminal.show_table(header, rows[:FEW])
        if len(rows) > FEW:
            terminal.show(f"and {len(rows) - FEW} more: see --json")


def type_of_labels(model: Any, label: LabelColumn | None) -> str | None:
    """Return the type of the labels; None before the first label."""
    from seqmed.cli.checkpoint import TYPES_BY_KIND

    if label is not None and label.type is not None:
        return label.type
    return TYPES_BY_KIND.get(model.classes_.dtype.kind) if model.classes_.size else None


def labels_text(columns: dict[str, Any]) -> str:
    """Return the description of the column of labels as text."""
    name = "" if columns["label"] is None else f"column {columns['label']}, "
    return name + (columns["label_type"] or "none so far")


def learned_text(seen: dict[str, Any]) -> str:
    """Return what was learned as text, without numbers that are unknown."""
    before = seen["batches_before"]
    own = f" ({before:,} before it was saved in Python)" if 0 < before < seen["batches"] else ""
    parts = [
        counted(seen["batches"], "batch", "batches") + own,
        None if seen["rows"] is None else counted(seen["rows"], "row"),
        f"{seen['labeled']:,} labeled",
        None if seen["skipped"] is None else f"{counted(seen['skipped'], 'bad row')} skipped",
    ]
    return ", ".join(part for part in parts if part is not None)


def change_text(change: dict[str, Any]) -> str:
    """Return the description of a change of the concept as text."""
    where = "" if change["batch"] is None else f"found in batch {change['batch']}, "
    weight = "" if change["weight"] is None else f" with weight {change['weight']:.3g}"
    rates = [change[name] for name in ("error_before", "error_after")]
    errors = ""
    if None not in rates:
        errors = f"error rate {' before and '.join(map(terminal.percent, rates))} after it, "
    return (
        f"{where}{counted(change['labels_since'], 'label')} since, {errors}"
        f"new start {change['new_start']}{weight}"
    )


def amount(name: str, value: Any) -> str:
    """Return a named value as text."""
    if name == "bytes":
        return f"{value / 1e6:.1f} MB" if value >= 1e5 else f"{value:,} bytes"
    style = ".3g" if isinstance(value, float) else "," if isinstance(value, int) else ""
    return f"{name.replace('_', ' ')} {format(value, style)}"
