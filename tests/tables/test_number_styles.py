"""Numbers with decimal commas, thousands separators and units, in Python as on the command line."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from seqmed import SeqMED, TableEncoder, load, make_stream_pipeline, save
from seqmed.streams import Dialect, Stream
from seqmed.tables import TableError
from seqmed.tables.cells import common_unit, numbers, usual_numbers
from seqmed.tables.kinds import TableWarning

VALUES = np.random.default_rng(0).normal(0.0, 3000.0, size=120).round(2)


def written(value, decimal, thousands):
    """A number as another country writes it."""
    whole, _, fraction = f"{value:,.2f}".partition(".")
    return whole.replace(",", thousands or "") + decimal + fraction


@pytest.mark.parametrize(
    ("decimal", "thousands"),
    [(".", None), (",", None), (",", "."), (".", ","), (",", " "), (".", "'")],
)
@pytest.mark.parametrize("unit", ["{}", "{} €", "€{}", "{}%", "{}\u00a0kg"])
@pytest.mark.parametrize("storage", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_numbers_in_every_style_are_those_of_the_table(decimal, thousands, unit, storage):
    plain = TableEncoder().fit({"x": VALUES})
    texts = [unit.format(written(value, decimal, thousands)) for value in VALUES]
    encoder = TableEncoder(decimal=decimal, thousands=thousands).fit(storage({"x": texts}))
    (column,) = encoder.encoding_.columns
    assert (column.kind, column.form) == ("numeric", unit.replace("{}", "").strip())
    np.testing.assert_array_equal(
        encoder.transform(storage({"x": texts})), plain.transform({"x": VALUES})
    )
    np.testing.assert_array_equal(encoder.transform({"x": VALUES}), plain.transform({"x": VALUES}))


def test_a_stream_and_an_encoder_read_the_same(tmp_path):
    """Categories are compared too: they are rewritten by both, and once."""
    frame = pd.DataFrame(
        {
            "x": [written(value, ",", ".") for value in VALUES],
            "price": [written(value, ",", ".") + " €" for value in VALUES],
            "level": ["1,500", "2,5", "medium"] * 40,
        }
    )
    frame.to_csv(tmp_path / "rows.csv", sep=";", index=False)
    (batch,) = Stream(tmp_path / "rows.csv", dialect=Dialect(decimal=",", thousands="."))
    kinds = {"level": "categorical"}
    by_stream = TableEncoder(kinds).fit(batch.table)
    encoder = TableEncoder(kinds, decimal=",", thousands=".").fit(frame)
    assert encoder.get_feature_names_out().tolist() == by_stream.get_feature_names_out().tolist()
    expected = by_stream.transform(batch.table)
    np.testing.assert_array_equal(encoder.transform(frame), expected)
    typed, bad = encoder._typed_rows(frame)
    assert not bad
    np.testing.assert_array_equal(encoder.transform(typed), expected)


def test_the_style_may_change_between_two_tables():
    encoder = TableEncoder().fit({"x": VALUES})
    expected = encoder.transform({"x": VALUES})
    encoder.set_params(decimal=",", thousands=".")
    np.testing.assert_array_equal(
        encoder.transform({"x": [written(value, ",", ".") for value in VALUES]}), expected
    )


def test_a_later_cell_with_another_unit_is_refused():
    encoder = TableEncoder().fit({"x": [f"{number} €" for number in range(40)]})
    np.testing.assert_array_equal(
        encoder.transform({"x": ["7 €", "7", "€7", "7.0€"]}), encoder.transform({"x": [7.0] * 4})
    )
    with pytest.raises(
        TableError, match=r"row 1, column 'x': '7 \$' \(the unit is €\) is not a num"
    ):
        encoder.transform({"x": ["7 €", "7 $"]})


@pytest.mark.filterwarnings("ignore:columns that are not used")
def test_columns_of_several_units_are_no_numbers_unless_they_are_chosen():
    cells = [f"{number} €" for number in range(39)] + ["3 $"]
    with pytest.warns(TableWarning, match=r"unit € and other cells, such as '3 \$'.*kinds={'x'"):
        encoder = TableEncoder().fit({"x": cells, "y": VALUES[:40]})
    assert encoder.encoding_.columns[0].kind != "numeric"
    with pytest.raises(TableError, match=r"row 39, column 'x': '3 \$' \(the unit is €\)"):
        TableEncoder({"x": "numeric"}).fit({"x": cells})


@pytest.mark.parametrize("cells", [["1,5", "2,5"] * 20, ["1.200,5 €", "7 €", "n/a"] * 20])
def test_decimal_commas_in_python_are_asked_about(cells):
    """Otherwise they would be categories, and nobody would know."""
    with pytest.warns(TableWarning, match=r"'x' has cells such as '1.*,5.*set decimal=','"):
        encoder = TableEncoder().fit({"x": cells})
    assert encoder.encoding_.columns[0].kind == "categorical"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder = TableEncoder(decimal=",", thousands=".").fit({"x": cells})
        TableEncoder({"x": "categorical"}).fit({"x": cells})
    assert encoder.encoding_.columns[0].kind == "numeric"


@pytest.mark.parametrize("cells", [["a, b", "1,5", "c", "d"] * 20, ["Smith, J", "Doe, K"] * 20])
def test_other_commas_are_no_decimal_commas(cells):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableEncoder().fit({"x": cells})


@pytest.mark.parametrize(
    "cells",
    [
        ["A4", "A3", "A5"] * 20,
        ["12A", "14B", "3C"] * 20,
        ["3 rooms", "4 rooms"] * 20,
        ["m", "s"] * 9,
    ],
)
def test_codes_are_no_numbers_with_a_unit(cells):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder = TableEncoder().fit({"x": cells})
    assert encoder.encoding_.columns[0].kind == "categorical"


def test_units_of_single_cells():
    assert common_unit(["1 €", "2 €", "$3", "x"]) == "€"
    assert common_unit(["one", "2"]) == ""
    values, bad = numbers(pa.array([" -5 % ", "5%", "-", "x %", "%", "5 % %"]), (), "%")
    np.testing.assert_array_equal(values, [-5, 5, np.nan, np.nan, np.nan, np.nan])
    assert sorted(bad) == [3, 4, 5]
    usual = usual_numbers(pa.array(["1.234,5 kg", "1.234,5 kilos", "-€ 1,5"]), ",", ".")
    assert usual.to_pylist() == ["1234.5 kg", "1.234,5 kilos", "-€ 1.5"]


def test_wrong_styles_are_refused():
    for parameters in ({"decimal": ";"}, {"thousands": "x"}, {"decimal": ",", "thousands": ","}):
        with pytest.raises(ValueError, match=r"decimal|thousands"):
            TableEncoder(**parameters).fit({"x": VALUES})
    with pytest.raises(ValueError, match="thousands"):
        Dialect(thousands="x")


def test_a_pipeline_with_decimal_commas_is_saved(tmp_path):
    frame = pd.DataFrame({"x": [written(value, ",", ".") for value in VALUES]})
    labels = np.where(VALUES > 0, "up", "down")
    model = make_stream_pipeline(SeqMED(), decimal=",", thousands=".").partial_fit(frame, labels)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert (loaded["table"].decimal, loaded["table"].thousands) == (",", ".")
    np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    assert model.score(frame, labels) > 0.9


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "Unnamed: 0.1"])
def test_row_numbers_without_a_name_are_left_out(name):
    """Of few rows, in any order and twice, too: they are no ids then."""
    rows = {name: [3, 0, 1, 0, 2], "x": [0.5, 1.5, 2.5, 1.0, 2.0]}
    with pytest.warns(TableWarning, match=r"row numbers of a data frame.*'drop'"):
        encoder = TableEncoder().fit(rows)
    assert (encoder.needed_, encoder.id_columns) == (("x",), (name,))
    encoder.transform({"x": [1.0]})
    for kept in ({**rows, name: [0.5, 1, 2, 3, 4]}, {**rows, name: [1, 2, None, 4, 5]}):
        assert TableEncoder().fit(kept).needed_ == (name, "x")
    assert TableEncoder({name: "numeric"}).fit(rows).needed_ == (name, "x")


def test_new_columns_of_a_later_batch_are_named():
    frame = pd.DataFrame({"x": VALUES, "y": np.where(VALUES > 0, "up", "down")})
    model = make_stream_pipeline(SeqMED(), label="y").partial_fit(frame, frame["y"])
    for rows in (frame.assign(extra=1), pl.DataFrame(frame.assign(extra=1)),
                 frame.assign(extra=1).to_dict("records")):  # fmt: skip
        with pytest.warns(TableWarning, match="not in the first batch are ignored: 'extra'"):
            model.partial_fit(rows, frame["y"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(frame, frame["y"])
        model.predict(frame.assign(extra=1))
        model.partial_fit(frame[["x"]].to_numpy(), frame["y"])
