"""The columns of inputs: missing, misspelled and new ones."""

from __future__ import annotations

from collections.abc import Sequence

from seqmed.streams.errors import StreamError, listed, notice, shown
from seqmed.streams.spelling import similar_name
from seqmed.streams.tables import Table


class InputColumns:
    """Compares the columns of every input with those that a stream needs.

    Parameters
    ----------
    sources : names of the inputs in messages.
    label : name of the label column; None if there are no labels.
    needed : columns that were chosen before the first input.
    """

    def __init__(self, sources: Sequence[str], label: str | None, needed: Sequence[str]):
        self._sources, self._label = sources, label
        self._known: set[str] = set()  # columns of the inputs that were checked
        self._beside_label = set(needed)  # columns of inputs that have the label column too
        self._checked: set[int] = set()
        self._checked_labels: set[int] = set()

    def check(self, number: int, table: Table, needed: Sequence[str]) -> None:
        """Refuse an input that lacks columns, and tell of new columns, once for each input.

        Parameters
        ----------
        number : index of the input.
        table : the open input.
        needed : the columns that it must have.
        """
        source, names = self._sources[number], table.names
        self.check_label(number, names)
        if number in self._checked:
            return
        self._checked.add(number)
        if table.complete:
            refuse_missing(needed, names, source)
            old = {*self._known, *needed, self._label}
            new = [name for name in names if name not in old] if self._known else []
            if new:
                listing = listed([shown(name) for name in new])
                notice(f"{source}: columns that are not in the first file are ignored: {listing}.")
        else:
            refuse_misspelled(needed, names, source)
        self._known |= set(names)

    def check_label(self, number: int, names: Sequence[str]) -> None:
        """Refuse an input with a misspelled label column; tell of an input without labels."""
        if self._label is None or number in self._checked_labels:
            return
        self._checked_labels.add(number)
        if self._label in names:
            self._beside_label |= set(names)
            return
        source = self._sources[number]
        others = [each for each in names if each not in self._beside_label]
        meant = similar_name(self._label, others)
        if meant is not None:
            raise StreamError(
                f"{source} has no column {self._label!r}: did you mean {meant!r}? To learn the "
                "file as unlabeled, rename this column."
            )
        notice(f"{source}: no column {self._label!r}, so its rows are unlabeled.")


def refuse_missing(needed: Sequence[str], names: Sequence[str], source: str) -> None:
    """Refuse an input in which columns are missing; suggest a similar name."""
    present = set(names)
    for name in needed:
        if name not in present:
            meant = similar_name(name, names)
            if meant is not None:
                raise StreamError(f"{source} has no column {name!r}: did you mean {meant!r}?")
            found = listed([shown(each) for each in names])
            raise StreamError(
                f"{source} has no column {name!r} (it has {found}): check the name, or the file."
            )


def refuse_misspelled(needed: Sequence[str], names: Sequence[str], source: str) -> None:
    """Refuse a misspelled column of JSON lines; tell of columns that are not in the first rows."""
    missing = [name for name in needed if name not in names]
    for name in missing:
        meant = similar_name(name, [each for each in names if each not in needed])
        if meant is not None:
            raise StreamError(f"{source} has no column {name!r}: did you mean {meant!r}?")
    if missing:
        listing = listed([shown(name) for name in missing])
        notice(f"{source}: the first rows have no {listing}: their cells are missing.")
