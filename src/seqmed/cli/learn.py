"""`seqmed learn`: learn a model from files and pipes, or continue to learn."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqmed.cli import options
from seqmed.cli.options import Reading, column_names, option
from seqmed.cli.terminal import CommandError, counted, percent_with_interval, summarize, tell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from seqmed.cli.checkpoint import FoundChange, PrequentialRecord, Progress
    from seqmed.cli.prequential import StreamLearner
    from seqmed.tables.stream_pipeline import StreamPipeline

Estimator = Literal["seqgraphmed", "seqmed", "seqlapmed", "graphpropagation"]
LabelType = Literal["integer", "boolean", "string"]
Experts = Literal["auto", "none"]

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

    def encoder_parameters(self) -> dict[str, Any]:
        """Return the parameters of the encoder; refuse a column of two kinds."""
        return {
            "kinds": self._kinds(),
            "features": list(column_names(self.features)) or None,
            "missing_values": column_names(self.na),
            "scale": not self.no_scale,
        }

    def _kinds(self) -> dict[str, str]:
        """Return the kind of each column that an option names."""
        kinds: dict[str, str] = {}
        for kind in ("drop", "numeric", "categorical", "text", "date"):
            for name in column_names(getattr(self, kind)):
                column, form = name, ""
                if kind == "date" and "=%" in name:
                    column, _, form = name.rpartition("=")
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
    force: bool = batching("--force", default=False, help="Replace the file of --plot.")
    sample: bool = batching(
        "--sample",
        default=False,
        help="Learn a random sample of all rows at once, for data whose order does not matter: "
        "faster than batches, for a new model only.",
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
        help="Maximum number of rows kept for the graph, or auto (default: auto)."
    )
    kernel: str | None = value(
        help="Kernel: rbf, linear, poly or tfidf (default: linear for text, rbf otherwise)."
    )
    gamma: str | None = value(
        help="Kernel coefficient: scale, auto, or a number > 0 (default: scale)."
    )
    C: str | None = value("--C", help="Upper bound of the multiplier of a row, > 0 (default: 10).")
    budget: str | None = value(
        help="Maximum number of support vectors, or none for no limit (default: none)."
    )
    forgetting: str | None = value(
        help="Forgetting factor per batch, in (0, 1], or auto (default of seqgraphmed)."
    )
    class_weight: str | None = value(
        help="Class weights: none, balanced, or {'class': weight} (default: none)."
    )
    class_prior: list[str] | None = parameter(
        metavar="NAME=NUMBER",
        help="Known proportion of a class in the stream, such as spam=0.13; repeated for every "
        "class. Or uniform: classes with more labels are not favoured.",
    )
    experts: Experts | None = parameter(
        help="Refitted experts of seqgraphmed; none is faster, and less accurate on tables "
        "(default: auto)."
    )
    seed: int | None = parameter(help="Random seed (default: 0).")
    param: list[str] | None = parameter(
        metavar="NAME=VALUE",
        help="Any other parameter of the classifier, such as alpha=0.9; may be repeated.",
    )

    def given(self) -> dict[str, Any]:
        """Return the parameters of the classifier that are given."""
        from seqmed.cli.parameters import given_parameters, parse_class_prior

        own = asdict(self)
        if self.class_prior:
            own["class_prior"] = parse_class_prior(self.class_prior)
        if self.experts == "none":
            own["experts"] = ()
        del own["estimator"]
        own["random_state"] = own.pop("seed")
        return given_parameters(own, own.pop("param") or ())


# -- the command -----------------------------------------------------------------------------------


def learn_command(
    model: options.Model,
    data: options.Data,
    columns: ColumnOptions,
    batches: BatchOptions,
    parameters: ParameterOptions,
    cluster: options.Cluster = None,
    *,
    reading: Reading,
    device: options.Device = "cpu",
) -> None:
    """Learn a model from files and pipes, or continue to learn.

    The labeled rows of a batch are predicted, then the batch is learned. The model is saved
    together with its position in the stream. If the command is interrupted, run it again: it
    resumes after the last saved batch.

    The first batch decides the kind of every column: numbers, categories, dates or text. Empty and
    constant columns and ids are not used.
    """
    from seqmed import model_file, plotting
    from seqmed.cli.checkpoint import check_log_file, locked, move_to_device
    from seqmed.cli.late_labels import learn_late
    from seqmed.cli.learn_sample import learn_sample
    from seqmed.cli.outputs import check_plot, refuse_existing, refuse_shared, save_plot
    from seqmed.cli.prequential import StreamLearner

    encoder, given = columns.encoder_parameters(), parameters.given()
    if batches.sample:
        refuse_with_sample(model, columns, batches)
    elif cluster is not None:
        raise CommandError(
            "--cluster needs --sample, because learning in batches is sequential: add --sample if "
            "the order of the rows does not matter, or leave --cluster out."
        )
    log, plot, late = batches.log, batches.plot, batches.late
    if (late is None) != (batches.id_column is None):
        raise CommandError("--late and --id are used only together: add one, or leave both out.")
    if plot is not None:
        if log is None:
            raise CommandError("--plot draws the file of --log: add --log FILE.")
        check_plot(plot, force=batches.force)
    outputs = {"MODEL": model, "--log": log, "--plot": plot}
    refuse_shared(
        outputs.items(), None, [*data, *([] if late is None else [late])], reading.file_format
    )
    if log is not None:
        refuse_existing(log, force=True)  # it is added to
        check_log_file(log)
    with locked(model):
        model_file.remove_leftovers(model)
        chosen = {*encoder["kinds"], *(encoder["features"] or ())}
        if batches.batch_by not in (None, *chosen) and not model.exists():
            encoder["kinds"][batches.batch_by] = "drop"  # not a feature, unless chosen as one
        pipeline, progress = begin_or_resume(model, columns, encoder, parameters.estimator, given)
        move_to_device(pipeline, device)
        if batches.batch_size is not None or batches.batch_by is not None:
            progress = replace(progress, batch_size=batches.batch_size, batch_by=batches.batch_by)
        progress = replace(progress, dialect=reading.dialect.over(progress.dialect))
        if batches.sample:
            learn_sample(model, pipeline, progress, data, reading, cluster)
            return
        learner = StreamLearner(model, pipeline, progress, log, batches.checkpoint_every)
        if late is not None:
            learn_late(learner, data, late, str(batches.id_column), reading)
            return
        stream = learner.stream(
            data,
            reading,
            first_batch_size=batches.first_batch,
            again=batches.again,
            final=batches.final,
            label_required=not learner.n_batches and not columns.no_labels,
        )
        if not stream.resumable:
            tell("a pipe cannot be resumed: after an interruption, send only the remaining rows.")
            learner.checkpoint_every = learner.checkpoint_every or 1  # it cannot be read again
        learner.follow(stream)
        show_summary(learner, learner.progress.record.rows - progress.record.rows, data)
        if plot is not None:
            save_plot(plotting.learning_log(str(log)), plot)


def refuse_with_sample(path: Path, columns: ColumnOptions, batches: BatchOptions) -> None:
    """Refuse --sample with an existing model, and with options for batches."""
    if path.exists():
        raise CommandError(
            f"{path} exists, and --sample makes a new model: choose another name, or learn new "
            "rows in batches without --sample."
        )
    if columns.no_labels:
        raise CommandError("--sample learns labels, so leave --no-labels or --sample out.")
    default = BatchOptions()
    for name in ("batch_size", "first_batch", "batch_by", "checkpoint_every", "log", "plot",
                 "again", "late", "id_column"):  # fmt: skip
        if getattr(batches, name) != getattr(default, name):
            option = {"id_column": "id"}.get(name, name).replace("_", "-")
            raise CommandError(
                f"--{option} is for learning in batches, and --sample learns all rows at once: "
                "leave one of them out."
            )


def begin_or_resume(
    path: Path,
    columns: ColumnOptions,
    encoder: Mapping[str, Any],
    estimator: str | None,
    given: Mapping[str, Any],
) -> tuple[StreamPipeline, Progress]:
    """Return the model in a file and its progress, or a new model.

    ``encoder`` has the parameters of the encoder, ``given`` those of the estimator.
    """
    from seqmed.cli import checkpoint, parameters
    from seqmed.streams import LabelColumn

    name, unlabeled, kind = columns.label, columns.unlabeled, columns.label_type
    if path.exists():
        model, progress = checkpoint.load_checkpoint(path)
        if progress.label is not None and "class_prior" in given:
            prior = parameters.typed_class_prior(given["class_prior"], progress.label)
            given = {**given, "class_prior": prior}
        parameters.check_same(model, estimator, given, encoder)
        if progress.label is None and name is not None:
            fitted = checkpoint.encoder_of(model)
            if name in fitted.feature_names_in_.tolist():
                raise CommandError(
                    f"column {name!r} is a feature of the model, expected another column of "
                    "labels: name it with --label, or make a new model."
                )
            fitted.set_params(label=name)
            progress = replace(progress, label=checkpoint.label_column_of(model, name, unlabeled))
        known = progress.known_label
        known.check_same(LabelColumn(known.name if name is None else name, unlabeled, kind))
        return model, progress
    if name is None:
        raise CommandError(
            f"{path} does not exist, and a new model needs a column of labels: add --label COLUMN."
        )
    classifier = parameters.new_classifier(estimator, given, unlabeled)
    model = parameters.new_model(classifier, {**encoder, "label": name})
    return model, checkpoint.Progress(label=LabelColumn(name, unlabeled, kind))


def show_summary(learner: StreamLearner, rows: int, data: Sequence[Path]) -> None:
    """Print a summary of the model; the last line says if it has changed since it predicted."""
    from seqmed.cli.checkpoint import REVOKED

    record = learner.progress.record
    if not rows:
        names = ", ".join(map(str, data[:3])) + (", ..." if len(data) > 3 else "")
        summarize(f"no new rows in {names}: use --again to learn old rows again.")
    accuracy = ""
    if record.scored:
        scored = counted(record.scored, "labeled row")
        found = percent_with_interval(record.correct, record.scored)
        accuracy = f"; prequential accuracy {found} of {scored}"
    before = learner.progress.batches_before
    summarize(
        f"{learner.path}: {counted(learner.n_batches, 'batch', 'batches')}, "
        + (f"{before:,} of them before it was saved in Python; since then " if before else "")
        + f"{counted(record.rows, 'row')} ({record.labeled:,} labeled), "
        f"{counted(learner.classes.size, 'class', 'classes')}{accuracy}."
    )
    change = learner.progress.change
    if change is not None and change.new_start != REVOKED:
        summarize(changed_model(change, record))


def changed_model(change: FoundChange, record: PrequentialRecord) -> str:
    """Return what the accuracy of a model means after a change of the concept."""
    from seqmed.cli.checkpoint import ON_TRIAL

    saved = "before the model was saved in Python"
    where = saved if change.batch is None else f"in batch {change.batch}"
    what = "is on trial" if change.new_start == ON_TRIAL else "was kept"
    scored, correct = record.scored - change.record.scored, record.correct - change.record.correct
    since = "this accuracy is that of predictions before it"
    if scored:
        found = percent_with_interval(correct, scored)
        since = f"prequential accuracy since then {found} of {counted(scored, 'labeled row')}"
    return f"A change of the concept was found {where}, and the new start {what}: {since}."
