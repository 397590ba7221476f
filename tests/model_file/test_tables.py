"""Encoders in model files: kept to the bit, and refused if a part is not valid."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import seqmed
from seqmed import SeqMED, StreamPipeline, TableEncoder, make_stream_pipeline
from seqmed.model_file import ModelFileError
from seqmed.tables import encoding as encodings
from tests.data.make_golden import FOLDER, make_table
from tests.support.model_file_parts import document_of, with_document
from tests.support.raw_tables import mixed_rows
from tests.support.records import altered, put, without_last
from tests.support.saved_models import assert_same, bits, check, kept_state, restored

GOLDEN = FOLDER / "format-3-StreamPipeline-table.safetensors"
COUNTS = FOLDER / "format-3-StreamPipeline-table-counts.safetensors"
pytestmark = pytest.mark.filterwarnings("ignore:columns that are not used")


def learned(names=None, **options):
    rows = mixed_rows()
    y = np.array([None if place % 3 else place % 2 for place in range(len(rows))], dtype=object)
    model = make_stream_pipeline(SeqMED(kernel="auto", random_state=0), features=names, **options)
    return model.partial_fit(rows[:70], y[:70]).partial_fit(rows[70:], y[70:])


KINDS = {
    "numbers": ["whole", "real"], "booleans": ["flag"], "categories": ["colour"],
    "hashed": ["code"], "dates": ["when"], "text": ["note"], "all": None,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"scale": False, "missing_values": ["lilac", "-1"]}])
def test_encoders_are_kept_to_the_bit(kind, options, tmp_path):
    model = learned(KINDS[kind], **options)
    rows = mixed_rows(40, seed=3)
    loaded = restored(model, tmp_path / "model")
    assert_same(model, loaded, rows)
    first, second = (each[:-1].transform(rows) for each in (model, loaded))
    first, second = (each.toarray() if sp.issparse(each) else each for each in (first, second))
    assert first.tobytes() == second.tobytes()
    y = np.arange(40) % 2
    assert_same(model.partial_fit(rows, y), loaded.partial_fit(rows, y), rows)


def test_encoders_that_are_not_fitted_are_kept(tmp_path):
    model = make_stream_pipeline(kinds={"a": "text"}, label="y", features=["a", "b"])
    assert bits(restored(model, tmp_path / "model")) == bits(model)


def test_parameters_that_are_not_valid_are_not_saved(tmp_path):
    for options in (
        {"kinds": {"a": "number"}},
        {"features": [1]},
        {"label": "a", "features": ["a"]},
    ):
        model = StreamPipeline([("table", TableEncoder(**options)), ("model", SeqMED())])
        with pytest.raises(ValueError, match=r"kinds|features"):
            seqmed.save(model, tmp_path / "model")


# -- rules ----------------------------------------------------------------------------------------


def renamed(column):
    return encodings.ColumnKind("other", column.kind, column.reason, column.form)


NUMBERS, DATE, ONE_HOT, HASHED, WORD = (
    "numbers", "dates.0", "one_hot.0", "hashed.0", "words.0",
)  # fmt: skip
RULES = [
    ("columns", lambda all_: all_[:-1], None),  # the id was left out
    ("columns", lambda all_: all_[1:], "the encoding of every numeric column"),
    ("columns", (), "a column that is used"),
    ("columns", lambda all_: (*all_, all_[0]), "distinct columns"),
    ("columns.0", renamed, "the encoding of every numeric column"),
    ("columns.0.name", 3, "name"),
    ("columns.0.kind", "other", "kind of a ColumnKind"),
    ("columns.0.kind", "drop", "a reason if and only if it is left out"),
    ("columns.0.reason", "id", "a reason if and only if it is left out"),
    ("columns.7.reason", "", "a reason if and only if it is left out"),
    ("columns.7.reason", "because", "a reason if and only if it is left out"),
    ("columns.0.form", "%d.%m.%Y", "a known format of dates"),
    ("columns.5.form", "%x", "a known format of dates"),
    ("columns.5.form", "", "the formats of the dates"),
    ("missing_values", (), "the missing values of the parameters"),
    ("missing_values", (1,), "missing_values"),
    (f"{NUMBERS}.names", ("size", "count"), "the encoding of every numeric column"),
    (f"{NUMBERS}.names", ("count",), "the encoding of every numeric column"),
    (f"{NUMBERS}.medians", put(np.nan), "NaN or infinity"),
    (f"{NUMBERS}.medians", put(1e80), "medians of a NumberColumns .* <= 1e.70"),
    (f"{NUMBERS}.medians", without_last, "has the shape"),
    (f"{NUMBERS}.scales", put(0.0), "scales of a NumberColumns .* > 0"),
    (f"{NUMBERS}.scales", put(-1.0), "scales of a NumberColumns .* > 0"),
    (f"{NUMBERS}.scales", put(np.inf), "NaN or infinity"),
    (f"{NUMBERS}.scales", lambda a: a.astype(str), "scales"),
    (f"{NUMBERS}.flagged", without_last, "has the shape"),
    (f"{NUMBERS}.flagged", lambda a: a.astype(float), "flagged"),
    (f"{NUMBERS}.centred", False, "no scales if the numbers are not standardised"),
    (f"{NUMBERS}.centred", 1, "centred"),
    ("dates", (), "the encoding of every date column"),
    (f"{DATE}.name", "other", "the encoding of every date column"),
    (f"{DATE}.form", "", "the formats of the dates"),
    (f"{DATE}.origin", np.inf, "origin"),
    (f"{DATE}.origin", 1e20, "origin of a DateColumn .* <= 1e.13"),
    (f"{DATE}.scale", 0.0, "scale of a DateColumn .* >= 1e-06"),
    (f"{DATE}.clock", None, "clock"),
    (f"{DATE}.cycles", ("day", "day"), "known cycles"),
    (f"{DATE}.cycles", ("moon",), "known cycles"),
    (f"{DATE}.cycles", ("year", "day"), "known cycles"),
    (f"{DATE}.flagged", "yes", "flagged"),
    ("one_hot", lambda all_: all_[::-1], "the encoding of every categorical column"),
    (f"{ONE_HOT}.levels", ("true", "false"), "sorted levels"),
    (f"{ONE_HOT}.levels", ("a", "a"), "sorted levels"),
    (f"{ONE_HOT}.levels", ("1.0", "true"), "levels in their usual notation"),
    (f"{ONE_HOT}.levels", ("", "true"), "levels in their usual notation"),
    (f"{ONE_HOT}.levels", (1, 2), "levels"),
    (f"{ONE_HOT}.missing", None, "missing"),
    ("hashed", (), "the encoding of every hashed column"),
    (f"{HASHED}.size", 0, "size of a HashedColumn .* >= 1"),
    (f"{HASHED}.size", 10**9, "size of a HashedColumn .* <= 65536"),
    ("words", (), "the encoding of every text column"),
    (f"{WORD}.size", 2**17, "features within the size|the text size of the parameters"),
    (f"{WORD}.size", 2**40, "size of a WordColumn"),
    (f"{WORD}.n_rows", 1, "no word in more texts than there are"),
    (f"{WORD}.n_rows", -1, "n_rows of a WordColumn .* >= 0"),
    (f"{WORD}.places", None, "both or no statistics"),
    (f"{WORD}.places", put(-1), "places of a WordColumn .* >= 0"),
    (f"{WORD}.places", lambda a: a[::-1], "distinct features in order"),
    (f"{WORD}.places", put(2**30, -1), "features within the size"),
    (f"{WORD}.places", without_last, "has the shape"),
    (f"{WORD}.places", lambda a: a.astype(float), "places"),
    (f"{WORD}.frequencies", put(0), "frequencies of a WordColumn .* >= 1"),
    (f"{WORD}.frequencies", put(10**6), "no word in more texts than there are"),
    ("weight", 1.0, "the weight beside words"),
    ("weight", 0.0, "weight of a Encoding .* > 0"),
    ("weight", np.nan, "weight"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "change", "reason"),
    RULES,
    ids=[f"{place}-{rule[0]}" for place, rule in enumerate(RULES)],
)
def test_every_rule_of_encoders_is_kept(path, change, reason, tmp_path):
    pipeline = seqmed.load(GOLDEN)
    encoder = pipeline.steps[0][1]
    state = kept_state(encoder)
    check(encoder, state)
    broken = altered(state, ["encoding_", *path.split(".")], change)
    encoder.encoding_ = broken["encoding_"]
    if reason is None:
        seqmed.save(pipeline, tmp_path / "model")
        return
    with pytest.raises(ValueError, match=reason):
        seqmed.save(pipeline, tmp_path / "model")


PARAMETERS = [
    ({"kinds": {"count": "text"}}, "the kinds of the parameters"),
    ({"kinds": {"unknown": "text"}}, "the kinds of the parameters"),
    ({"features": ["count"]}, "the features of the parameters"),
    ({"label": "count"}, "no feature from the labels"),
    ({"scale": False}, "the scaling of the parameters"),
    ({"missing_values": ()}, "the missing values of the parameters"),
    ({"text_size": 64}, "the text size of the parameters"),
    ({"text_weights": "counts"}, "the text weights of the parameters"),
    ({"text_weights": "other"}, "'text_weights' parameter"),
    ({"kinds": [1]}, "'kinds' parameter"),
]


@pytest.mark.parametrize(("changed", "reason"), PARAMETERS)
def test_parameters_that_do_not_suit_the_state(changed, reason):
    encoder = seqmed.load(GOLDEN).steps[0][1]
    encoder.set_params(**changed)
    with pytest.raises(ValueError, match=reason):
        check(encoder, kept_state(encoder))


def test_a_classifier_of_other_features_is_refused(tmp_path):
    pipeline, other = seqmed.load(GOLDEN), learned()
    pipeline.steps[0] = other.steps[0]
    with pytest.raises(ValueError, match="a classifier of the encoded features"):
        seqmed.save(pipeline, tmp_path / "model")


# -- forgeries ------------------------------------------------------------------------------------

ODD = (
    None, True, 0, -1, 3, 2**63, 10**30, 1.5, 1e308, 5e-324, "", "x", "nan", "drop", "text", "date",
    [], {}, {"node": 0}, {"node": 10**9}, {"float": "nan"}, {"float": "inf"}, {"tuple": []},
    {"tuple": ["a"]}, {"tuple": [{"node": 0}]}, {"dict": []}, {"class": "SeqMED"},
)  # fmt: skip


def places(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in items:
        yield (*path, key)
        if isinstance(part, dict | list):
            yield from places(part, (*path, key))


def of_the_encoder(node):
    ((tag, content),) = node.items()
    if tag == "record":
        return content["type"] in {
            "Encoding", "ColumnKind", "NumberColumns", "DateColumn", "OneHotColumn",
            "HashedColumn", "WordColumn",
        }  # fmt: skip
    return tag == "estimator" and content["class"] == "TableEncoder"


@pytest.mark.parametrize("values", [1, pytest.param(3, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("golden", [GOLDEN, COUNTS], ids=["tfidf", "counts"])
def test_every_field_of_an_encoder_may_be_forged(golden, values, tmp_path):
    """A file is refused, or its model answers with finite numbers or a ValueError."""
    content, path = golden.read_bytes(), tmp_path / "model"
    generator = np.random.default_rng(0)
    nodes = document_of(content)["model"]["nodes"]
    ways = [
        (place, *way)
        for place, node in enumerate(nodes) if of_the_encoder(node) for way in places(node)
    ]  # fmt: skip
    assert len(ways) > 60
    rows, outcomes = make_table(5, n=6)[0], {"refused": 0, "used": 0}
    for way in ways:
        for number in generator.choice(len(ODD), size=values, replace=False):
            document = document_of(content)
            parent = document["model"]["nodes"]
            for key in way[:-1]:
                parent = parent[key]
            parent[way[-1]] = ODD[number]
            path.write_bytes(with_document(content, document))
            try:
                model = seqmed.load(path)
            except ModelFileError:
                outcomes["refused"] += 1
                continue
            outcomes["used"] += 1
            with contextlib.suppress(ValueError), warnings.catch_warnings():
                warnings.simplefilter("error")
                assert np.isfinite(model.predict_proba(rows)).all()
    assert outcomes["refused"] > 3 * outcomes["used"]
