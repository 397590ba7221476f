"""Tables of random shapes, names and values come back as they were written, in every format."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqmed.streams import Dialect, LabelColumn, Position
from tests.support.stream_files import joined, read, same_rows, write

# Without carriage returns, around which the csv module puts no quotes.
letters = st.characters(codec="utf-8", exclude_characters="\r\0")
# Names that are no numbers: a file whose names all are is taken for one without a header. Spaces
# around names are removed from the header of a CSV.
names = st.text(letters, max_size=8).map("n{}".format).map(str.strip)
numbers = st.floats(min_value=-1e70, max_value=1e70, allow_nan=False)
words = st.text(letters, max_size=12)
labels = st.sampled_from(
    [st.integers(-(2**63), 2**63 - 1), st.booleans(), words.map("class {}".format).map(str.strip)]
)


@st.composite
def tables(draw):
    """A table with features, a column of words and labels, some of them missing."""
    n = draw(st.integers(1, 30))
    chosen = draw(st.lists(names, min_size=3, max_size=6, unique=True))
    column = st.lists(numbers, min_size=n, max_size=n)
    found = {name: draw(column) for name in chosen[2:]}
    found[chosen[0]] = draw(st.lists(words, min_size=n, max_size=n))
    found[chosen[1]] = draw(st.lists(st.none() | draw(labels), min_size=n, max_size=n))
    order = draw(st.permutations(list(found)))
    return {name: found[name] for name in order}, chosen[0], chosen[1], draw(st.integers(1, 35))


@pytest.mark.exhaustive
@given(tables(), st.sampled_from(["csv", "tsv", "jsonl", "parquet", "feather"]), st.data())
@settings(max_examples=150)
def test_random_tables_round_trip_and_resume(tmp_path_factory, drawn, kind, data):
    columns, text, label, batch_size = drawn
    features = [name for name in columns if name not in (text, label)]
    path = tmp_path_factory.mktemp("tables") / f"data.{kind}"
    write(path, columns, chunk=data.draw(st.integers(1, 40)))
    options = {"features": features, "batch_size": batch_size, "keep": [text]}
    # Random texts may look like another dialect.
    options["dialect"] = Dialect("\t" if kind == "tsv" else ",", ".", "")
    batches, _ = read(path, label=LabelColumn(label, ""), **options)
    X, y, _, rows = joined(batches)
    expected = np.array([columns[name] for name in features]).T.reshape(-1, len(features))
    assert X.tobytes() == expected.astype(np.float64).tobytes()
    assert y == columns[label]
    assert [type(found) for found in y] == [type(value) for value in columns[label]]
    assert rows == list(range(1, len(y) + 1))
    kept = [word for batch in batches for word in batch.kept[text]]
    assert kept == [word or None for word in columns[text]] or kind not in ("csv", "tsv")
    assert kept == columns[text] or kind in ("csv", "tsv")
    stop = batches[data.draw(st.integers(0, len(batches) - 1))]
    column = LabelColumn.from_dict(stop.label.to_dict())
    position = Position.from_dict(stop.position.to_dict())
    rest, _ = read(path, label=column, position=position, **options)
    assert same_rows(rest, batches[batches.index(stop) + 1 :])
