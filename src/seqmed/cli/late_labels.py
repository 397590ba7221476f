"""Late labels: DATA is read again, and its rows get labels from another table, joined by id.

A label that differs from the earlier label of its row is a correction: the earlier label is
retracted first. An empty label retracts an earlier late label. The ids and labels that were learned
are saved with the model, so that a command that was interrupted, or is run twice, learns each label
once.

The label log of `seqmed label` and its exports have a digest of the cells of every row. A label of
another row with the same id is then set aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqmed.cli import terminal
from seqmed.cli.checkpoint import Progress, encoder_of, open_stream
from seqmed.cli.options import Reading
from seqmed.cli.parameters import set_class_prior
from seqmed.cli.prequential import StreamLearner, predict_labeled, score
from seqmed.cli.terminal import CommandError, counted, naming_rows, tell_skipped
from seqmed.labeling.log import DIGEST
from seqmed.labeling.pool import row_digests
from seqmed.streams import LabelColumn, Stream, StreamBatch
from seqmed.streams.columns import AllColumnsCheck
from seqmed.streams.faults import notice
from seqmed.streams.inputs import find_inputs
from seqmed.streams.label_column import Label, label_of, whole
from seqmed.tables.cells import cell_text, read_safe_cell
from seqmed.tables.messages import listed, shown

# The column of digests in a label log, and formats whose cells `safe_cell` has written.
DIGEST_COLUMN, DELIMITED = "digest", ("csv", "tsv", None)


def learn_late(
    learner: StreamLearner, data: Sequence[Path], late: Path, id_column: str, reading: Reading
) -> None:
    """Learn the late labels of rows that a model has learned, save it, and print a summary."""
    if not learner.n_batches:
        raise CommandError(
            f"{learner.path} has learned no rows, expected a model to which late labels are added: "
            "learn the rows first."
        )
    given, label = read_late_labels(late, learner.progress.known_label, id_column, reading)
    learner.progress = replace(learner.progress, label=label)  # with the type of its labels
    set_class_prior(learner.model, label)
    labels, others = labels_of_rows(data, learner, id_column, given, reading)
    stream = data_stream(data, learner, id_column, reading)
    counts: Counter[str] = Counter()
    lost: list[str] = []  # ids of corrections whose earlier label is no longer stored
    for batch in stream:
        lost += learn_late_batch(learner, batch, stream.names, labels, counts)
    tell_skipped(stream.skipped)
    if others:
        notice(
            f"{counted(len(others), 'label')} of {late} not learned, because their rows had other "
            f"cells when they were labeled: {listed([shown(each) for each in others])}. Pass the "
            "rows as they were."
        )
    wanted = {name for name, each in given.items() if set(each.values()) != {None}}
    unknown = sorted(wanted - labels.keys() - set(others))
    if unknown:
        notice(
            f"{counted(len(unknown), 'id')} of {late} not found in the data: "
            f"{listed([shown(each) for each in unknown])}."
        )
    if lost:
        notice(
            f"{counted(len(lost), 'label')} not corrected, because the earlier label is no "
            f"longer stored: {listed([shown(each) for each in lost])}. Raise --param "
            "window=N or --graph-memory in a new model."
        )
    terminal.summarize(
        f"{learner.path}: {counted(counts['added'], 'late label')} added, {counts['corrected']:,} "
        f"corrected, {counts['same']:,} known before."
    )


# The labels of an id, by the digest of their row; by an empty text if the table has no digests.
GivenLabels = dict[str, Label | None]


def read_late_labels(
    path: Path, label: LabelColumn, id_column: str, reading: Reading
) -> tuple[dict[str, GivenLabels], LabelColumn]:
    """Return the labels of a table by id, and the column of labels with their type.

    An empty label is None. The last row of an id and a digest counts.
    """
    arguments = {**reading.arguments(), "file_format": None}
    more = [DIGEST_COLUMN] if DIGEST_COLUMN not in (id_column, label.name) else []
    stream = Stream(
        [path], label=label, keep=[id_column], keep_optional=more, final=True, **arguments
    )
    safe = find_inputs([path], None)[0].kind in DELIMITED
    labels: dict[str, GivenLabels] = {}
    missing = changed = 0
    for batch in stream:
        digests = map(digest_text, batch.kept.get(DIGEST_COLUMN) or [None] * batch.row.size)
        pairs = zip(batch.kept[id_column], digests, batch_labels(batch), strict=True)
        for value, digest, given in pairs:
            text = id_text(value)
            if safe:
                text = text and read_safe_cell(text)
                given = read_safe_cell(given) if isinstance(given, str) else given
            if text is None:
                missing += 1
            else:
                own = labels.setdefault(text, {})
                changed += digest in own and own[digest] != given
                own[digest] = given
    tell_skipped(stream.skipped)
    if missing:
        notice(f"{path}: {counted(missing, 'row')} without an id ignored.")
    if changed:
        terminal.tell(
            f"{path}: {counted(changed, 'label')} replaced by a later one of the same id."
        )
    if not any(each is not None for own in labels.values() for each in own.values()):
        raise CommandError(
            f"{path} has no labels in column {label.name!r}, expected ids and labels: check the "
            "file."
        )
    return labels, stream.label or label


def id_text(value: Any) -> str | None:
    """Return an id as text, the same for 17, 17.0 and "17"; None if it is missing."""
    text = cell_text(value)
    return None if text is None else whole(text)


def digest_text(value: Any) -> str:
    """Return the digest of a row in a label log or its export, an empty text for anything else."""
    return value if isinstance(value, str) and DIGEST.fullmatch(value) else ""


def batch_labels(batch: StreamBatch) -> list[Label | None]:
    """Return the labels of a batch, None for unlabeled rows."""
    return [None] * batch.row.size if batch.y is None else batch.y.tolist()


def data_stream(
    data: Sequence[Path], learner: StreamLearner, id_column: str, reading: Reading, **more: Any
) -> Stream:
    """Return a stream over all rows of the data."""
    model, progress = learner.model, learner.progress
    return open_stream(data, model, progress, reading, keep=[id_column], final=True, **more)


def labels_of_rows(
    data: Sequence[Path],
    learner: StreamLearner,
    id_column: str,
    given: Mapping[str, GivenLabels],
    reading: Reading,
) -> tuple[dict[str, Label | None], list[str]]:
    """Return the labels of the rows of the data, and the ids whose rows have other cells.

    Rows that the model has not learned, and ids that occur twice, are refused.
    """
    learned = {each.path: each.rows for each in learner.progress.position.files}
    digested = any(digest for own in given.values() for digest in own)
    encoder = encoder_of(learner.model)
    check = {"check": AllColumnsCheck(lambda: encoder)} if digested else {}
    quiet: dict[str, Any] = {"tell": lambda line: None}  # the second reading tells the dialect
    stream = data_stream(data, learner, id_column, reading, **check, **quiet)
    labels: dict[str, Label | None] = {}
    others: list[str] = []
    seen: set[str] = set()
    for batch in stream:
        ids = [id_text(value) for value in batch.kept[id_column]]
        wanted = [place for place, text in enumerate(ids) if text in given]
        digests = [""] * len(wanted)
        if digested:
            digests = row_digests(batch.table.take(np.array(wanted, dtype=np.intp)))
        for place, digest in zip(wanted, digests, strict=True):
            text, file, row = str(ids[place]), int(batch.file[place]), int(batch.row[place])
            if text in seen:
                raise CommandError(
                    f"{stream.names[file]}, row {row}: id {shown(text)} occurs twice, expected "
                    "each id once: choose another column with --id."
                )
            seen.add(text)
            if row > learned.get(stream.keys[file], 0):
                raise CommandError(
                    f"{stream.names[file]}, row {row} has not been learned, expected rows that "
                    "were: learn the file first, without --late."
                )
            own = given[text]
            if digest in own or "" in own:
                labels[text] = own[digest if digest in own else ""]
            elif set(own.values()) != {None}:
                others.append(text)
    return labels, others


class LateLabel(NamedTuple):
    """A late label: its id, the index of its row in the batch, and the labels before and now."""

    name: str
    row: int
    before: Label | None
    now: Label | None


def changes(
    batch: StreamBatch, progress: Progress, id_column: str, labels: Mapping[str, Label | None]
) -> Iterator[LateLabel]:
    """Yield the rows of a batch that have a late label."""
    known, kind = dict(progress.late), str(progress.known_label.type)
    ids = map(id_text, batch.kept[id_column])
    for row, (name, given) in enumerate(zip(ids, batch_labels(batch), strict=True)):
        if name is None or name not in labels:
            continue
        before = given
        if name in known:  # an empty text is a label that was retracted
            before = label_of(known[name], kind) if known[name] else None
        if labels[name] is not None or known.get(name):
            yield LateLabel(name, row, before, labels[name])


def learn_late_batch(
    learner: StreamLearner,
    batch: StreamBatch,
    names: Sequence[str],
    labels: Mapping[str, Label | None],
    counts: Counter[str],
) -> list[str]:
    """Learn the late labels of a batch, save the model, and count the labels.

    Returns the ids of corrections whose earlier label is no longer stored.
    """
    (id_column,) = batch.kept
    found = list(changes(batch, learner.progress, id_column, labels))
    new = [each for each in found if each.before is None and each.now is not None]
    corrected = [each for each in found if each.before not in (None, each.now)]
    model, record = learner.model, learner.progress.record
    with naming_rows(batch, names):
        if new:
            table = batch.table.take(np.array([each.row for each in new]))
            truth = np.array([each.now for each in new], dtype=object)
            predicted = predict_labeled(model, table, np.arange(truth.size))
            model.partial_fit(table, truth, new_points=False, find_rows=False)
            record = record.plus(0, truth.size, *score(predicted, truth))
        kept = [each for each in corrected if corrects(model, batch.table, each)]
    done = {each.name: cell_text(each.now) or "" for each in (*new, *kept)}
    if done:
        late = tuple({**dict(learner.progress.late), **done}.items())
        learner.note_change(record)
        learner.progress = replace(learner.progress, record=record, late=late)
        learner.save()
    counts["added"] += len(new)
    counts["corrected"] += len(kept)
    counts["same"] += len(found) - len(new) - len(corrected)
    return [each.name for each in corrected if each not in kept]


def corrects(model: Any, table: Any, change: LateLabel) -> bool:
    """Replace the label of a row; return False if the earlier label is no longer stored."""
    row = table.slice(change.row, 1)
    try:
        model.retract(row, [change.before])
    except ValueError:
        return False
    if change.now is not None:
        label = np.array([change.now], dtype=object)
        model.partial_fit(row, label, new_points=False, find_rows=False)
    return True
