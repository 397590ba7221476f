"""`seqmed inspect`: what a model is and what it has seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from seqmed.cli import options, terminal
from seqmed.cli.terminal import counted, percent

if TYPE_CHECKING:
    from pathlib import Path

    from seqmed.cli.checkpoint import Classifier, Progress

# Of a list that is longer, so many are printed.
FEW = 20


def inspect(model: options.Model, as_json: options.Json = False) -> None:
    """Show what a model is, what it has seen, and what it takes."""
    from seqmed.cli import checkpoint

    found = description(model, *checkpoint.load(model))
    if as_json:
        terminal.show_json(found)
    else:
        show_description(found)


def description(path: Path, model: Classifier, progress: Progress) -> dict[str, Any]:
    """Return everything that is known of a model, as plain values."""
    from seqmed import model_file
    from seqmed.streams.files import shown_path

    contents, record = model_file.read(path), progress.record
    schema, registry = progress.known_schema, model._stream.registry
    return {
        "file": {
            "path": shown_path(path),
            "bytes": contents.n_bytes,
            "format": contents.format,
            "library": contents.library,
        },
        "model": {
            "estimator": contents.model,
            "parameters": parameters_of(model),
            "changed": changed(model),
        },
        "columns": {
            "label": schema.columns.label,
            "label_type": schema.label_type,
            "features": list(schema.features),
            "text": schema.columns.text,
            "scaled": schema.means is not None,
            "ignored": list(schema.ignored),
            "n_features": schema.n_features,
        },
        "classes": [
            {"class": name, "labels": count}
            for name, count in zip(registry.classes.tolist(), registry.counts.tolist(), strict=True)
        ],
        "seen": {
            "batches": model.n_batches_,
            "rows": record.rows,
            "labeled": record.labeled,
            "skipped": record.skipped,
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
        },
        **experts(model),
    }


def experts(model: Classifier) -> dict[str, Any]:
    """Return what is known of the mixture, the graph and the margin, of those that there are."""
    found, state = {}, model._stream
    if hasattr(state, "choice"):
        found["mixture"] = mixture_summary(state)
    if hasattr(state, "graph"):
        found["graph"] = graph_summary(model)
    margin = getattr(model, "estimator_", model)
    if hasattr(margin, "posterior_"):
        found["margin"] = margin_summary(margin)
    return found


def mixture_summary(state: Any) -> dict[str, Any]:
    """Return how margin and graph are mixed."""
    from seqmed.mixture.weighting import PRIOR_EXPONENTS

    return {
        "graph_weight": state.choice.weight,
        "temperature": state.choice.temperature,
        "class_prior_exponent": float(PRIOR_EXPONENTS[state.choice.exponent]),
        "labels_in_record": state.record.size,
    }


def graph_summary(model: Any) -> dict[str, Any]:
    """Return what is known of a graph and its kept rows."""
    from seqmed.arrays import bytes_of

    graph, info = model._stream.graph, model.update_info_
    return {
        "bytes": bytes_of(graph),
        "kept_rows": graph.rows.size,
        "labeled_rows": int((graph.codes >= 0).sum()),
        "metric": type(graph.rows.metric).__name__,
        "residual": getattr(info, "graph", info).residual,
    }


def margin_summary(model: Any) -> dict[str, Any]:
    """Return what is known of a maximum-margin classifier."""
    posterior, calibration = model.posterior_, model._stream.calibration
    return {
        "estimator": type(model).__name__,
        "bytes": posterior.nbytes,
        "points": posterior.size,
        "labeled_rows_in_window": posterior.window.size,
        "duality_gap": json_value(float(model.duality_gap_)),
        "tol": model.tol,
        "projection_error": json_value(float(posterior.projection_error.max(initial=0.0))),
        "calibration_slope": calibration.slope,
        "calibrated_by": calibration.n_scored,
    }


def parameters_of(model: Classifier) -> dict[str, Any]:
    """Return the parameters of a model, those of an estimator within it by their full names."""
    given = model.get_params()
    return {name: json_value(value) for name, value in given.items() if name != "estimator"}


def changed(model: Classifier) -> dict[str, Any]:
    """Return the parameters that are not as they are by default."""
    from seqmed.cli import parameters

    default = parameters_of(parameters.blank_model(type(model)))
    return {name: value for name, value in parameters_of(model).items() if value != default[name]}


def json_value(value: Any) -> Any:
    """Return a value as JSON can hold it; numbers that are not finite as None or a text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(name): json_value(each) for name, each in value.items()}
    return str(value)


def show_description(found: dict[str, Any]) -> None:
    """Print a description."""
    file, columns, seen = found["file"], found["columns"], found["seen"]
    changed = ", ".join(f"{name}={value}" for name, value in found["model"]["changed"].items())
    words = f" and the words of {columns['text']}" if columns["text"] else ""
    prequential = found["prequential"]
    lines = {
        "file": f"{file['path']}, {size(file['bytes'])}, format {file['format']}, written by "
        f"seqmed {file['library']}",
        "model": f"{found['model']['estimator']}({changed})",
        "features": shortened(columns["features"]) + words + (" (scaled)" * columns["scaled"]),
        "labels": f"column {columns['label']}, {columns['label_type'] or 'none so far'}",
        "seen": f"{counted(seen['batches'], 'batch', 'batches')}, {counted(seen['rows'], 'row')}, "
        f"{seen['labeled']:,} labeled, {seen['skipped']:,} bad and skipped",
        "accuracy": f"{percent(prequential['accuracy'])} of {prequential['scored']:,} rows that "
        "were predicted before they were learned",
        **expert_lines(found),
    }
    for name, text in lines.items():
        terminal.show(f"{name + ':':13}{text}")
    counts = [(each["class"], f"{each['labels']:,}") for each in found["classes"]]
    files = [
        (each["path"], f"{each['rows']:,}", "yes" if each["finished"] else "no")
        for each in seen["files"]
    ]
    for header, rows in ((("class", "labels"), counts), (("file", "rows", "finished"), files)):
        terminal.show("")
        terminal.show_table(header, rows[:FEW])
        if len(rows) > FEW:
            terminal.show(f"and {len(rows) - FEW} more: see --json")


def expert_lines(found: dict[str, Any]) -> dict[str, str]:
    """Return the lines on mixture, graph and margin, and on rows of the stream in the file."""
    lines, rows = {}, []
    if "mixture" in found:
        mixture = found["mixture"]
        lines["mixture"] = (
            f"graph weight {mixture['graph_weight']:.2f}, "
            f"temperature {mixture['temperature']:.3g}, "
            f"by {counted(mixture['labels_in_record'], 'label')} in the record"
        )
    if "graph" in found:
        graph = found["graph"]
        rows.append(f"{counted(graph['kept_rows'], 'kept row')} of the graph")
        lines["graph"] = (
            f"{size(graph['bytes'])}, {counted(graph['kept_rows'], 'kept row')}, "
            f"{graph['labeled_rows']:,} of them labeled"
        )
    if "margin" in found:
        margin, gap = found["margin"], found["margin"]["duality_gap"]
        rows.append(f"{counted(margin['points'], 'point')} of {margin['estimator']}")
        lines["margin"] = (
            f"{size(margin['bytes'])}, {counted(margin['points'], 'point')}, "
            f"{margin['labeled_rows_in_window']:,} labeled rows in the window"
        )
        lines["duality gap"] = (
            "none (the last batch posed no problem)" if gap is None else f"{gap:.2g}"
        )
        lines["projections"] = (
            f"have moved no score by more than {margin['projection_error']:.2g} sqrt(k(x, x))"
        )
    lines["contains"] = f"rows of the data: {', '.join(rows)}"
    return lines


def shortened(names: list[str]) -> str:
    """Return some names of many."""
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more


def size(n_bytes: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e5 else f"{n_bytes:,} bytes"
