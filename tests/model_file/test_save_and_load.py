"""Models in files: what is loaded is what was saved, to the last bit, and goes on as it would have.

The strongest comparison is that of files: equal models are saved in equal bytes, in which every
number, type, layout in memory and shared array counts.
"""

from __future__ import annotations

import pickle
from functools import partial
from typing import NamedTuple

import cloudpickle
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import skops.io
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

import seqmed
from seqmed import (
    GraphPropagation,
    PrequentialSearch,
    SemiSupervisedSplit,
    SeqGraphMED,
    SeqLapMED,
    SeqMED,
    StreamPipeline,
    TableEncoder,
    make_stream_pipeline,
    model_file,
)
from seqmed.kernels import RBF, Polynomial
from tests.support.configurations import CONFIGURATIONS, learned, make_batch, over
from tests.support.many_classes import messages
from tests.support.raw_tables import mixed_rows
from tests.support.saved_models import assert_refused, assert_same, bits, outputs, product, restored
from tests.support.state import equal_parameters

# functions cannot be saved
SAVABLE = {name: case for name, case in CONFIGURATIONS.items() if "callable" not in name}
every_case = over(SAVABLE)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


# -- classifiers ----------------------------------------------------------------------------------


@every_case
def test_a_loaded_model_predicts_and_learns_as_the_saved_one(case, path):
    model = learned(case)
    loaded = restored(model, path)
    X = make_batch(9, case.format).X
    assert_same(model, loaded, X)
    for seed in (50, 51):
        for each in (model, loaded):
            batch = make_batch(seed, case.format)
            each.partial_fit(batch.X, batch.y, sample_weight=batch.sample_weight)
        assert_same(model, loaded, X)
    assert vars(loaded).keys() == vars(model).keys()
    assert equal_parameters(clone(loaded).get_params(deep=False), loaded.get_params(deep=False))
    assert equal_parameters(loaded.get_params(deep=False), model.get_params(deep=False))


def test_the_comparison_of_files_sees_differences():
    case = SAVABLE["landmarks-rbf-dense"]
    model = learned(case)
    other = pickle.loads(pickle.dumps(model))
    assert bits(model) == bits(other)
    other.posterior_.recursion.basis.coefficient_covariance[0, 0] += 1e-15
    assert bits(model) != bits(other)


class Moment(NamedTuple):
    """A model that has something to remember, and whether it may still be asked to retract."""

    model: object
    calls: tuple
    retracts: bool = True


def batch(seed, n=24, classes=("ant", "bee", "cow"), unlabeled=4):
    generator = np.random.default_rng(seed)
    codes = np.arange(n) % len(classes)
    X = generator.normal(size=(n, 3)) + 2.0 * np.eye(3)[codes]
    y = np.array(classes, dtype=object)[codes]
    y[::unlabeled] = None
    return X, y


def unlabeled_batch(seed):
    X, y = batch(seed)
    return X, np.full(y.shape, None)


NUMBERS = {"classes": (0, 1, 2)}
MOMENTS = {
    "declared classes": Moment(
        SeqMED(lag=2), ((*batch(0), {"classes": ["ant", "bee", "cow", "dog"]}), batch(1))
    ),
    "two classes": Moment(SeqLapMED(random_state=1), (batch(0, classes=("no", "yes")),)),
    "one class": Moment(SeqMED(), (batch(0, classes=("yes",)),)),
    "one class, diffuse bias": Moment(SeqMED(bias="exact"), (batch(0, classes=("yes",)),)),
    "forgetting": Moment(SeqMED(forgetting=0.8, window=12), (batch(0), batch(1))),
    "only unlabeled rows": Moment(
        SeqLapMED(random_state=1), (unlabeled_batch(0), unlabeled_batch(1)), retracts=False
    ),
    "balanced": Moment(SeqMED(class_weight="balanced", lag=2), (batch(0), batch(1))),
    "weights of classes": Moment(
        SeqMED(class_weight={"ant": 2.0, "bee": 0.5}, lag=None), (batch(0), batch(1))
    ),
    "a random state": Moment(
        SeqLapMED(n_landmarks=6, random_state=np.random.RandomState(3)), (batch(0), batch(1))
    ),
    "numpy's numbers": Moment(
        SeqLapMED(C=np.float64(2.0), n_neighbors=np.int64(3), beta=np.float32(0.1), random_state=0),
        (batch(0), batch(1)),
    ),
    "gammas": Moment(SeqLapMED(gamma_A=0.01, gamma_I=0.1, random_state=0), (batch(0), batch(1))),
    "a kernel object": Moment(SeqMED(kernel=RBF(0.5)), (batch(0), batch(1))),
    "a kernel object to be frozen": Moment(SeqMED(kernel=Polynomial("scale", 2)), (batch(0),)),
    "landmarks that forget": Moment(
        SeqLapMED(n_landmarks=6, forgetting=0.9, random_state=0),
        (batch(0), batch(1), batch(2)),
    ),
    "a small budget": Moment(
        SeqLapMED(budget=10, averaging=True, random_state=0), (batch(0), batch(1)), retracts=False
    ),
    "exact": Moment(SeqLapMED(recursion="exact", lag=None), (batch(0), batch(1))),
    "spectral": Moment(SeqLapMED(recursion="spectral", lag=2), (batch(0), batch(1), batch(2))),
}
every_moment = pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)


@every_moment
def test_late_labels_and_labels_taken_back(moment, path):
    model = clone(moment.model)
    for X, y, *more in moment.calls:
        model.partial_fit(X, y, **(more[0] if more else {}))
    loaded = restored(model, path)
    X, y = moment.calls[-1][:2]
    late = np.where(y == None, model.classes_[0] if model.classes_.size else "ant", None)  # noqa: E711
    for each in (model, loaded):
        each.partial_fit(X, late, new_points=False)
    assert_same(model, loaded, X)
    if moment.retracts:
        for each in (model, loaded):
            each.retract(X[:1])
        assert_same(model, loaded, X)
    for each in (model, loaded):
        each.set_params(tol=1e-5).partial_fit(*batch(7, classes=("ant", "bee", "elk")))
    assert_same(model, loaded, X)


def test_a_random_state_goes_on_drawing(path):
    model = SeqLapMED(n_landmarks=5, random_state=np.random.RandomState(3)).fit(*batch(0))
    model.random_state.standard_normal()  # leaves a second number behind
    loaded = restored(model, path)
    assert loaded.random_state is not model.random_state
    assert loaded.random_state.standard_normal() == model.random_state.standard_normal()
    assert_same(model.fit(*batch(1)), loaded.fit(*batch(1)), batch(2)[0])


def test_parameters_that_may_not_change_still_may_not(path):
    loaded = restored(SeqMED(kernel=RBF(0.5)).fit(*batch(0)), path)
    loaded.set_params(averaging=True)
    again = restored(loaded, path)
    with pytest.raises(ValueError, match="averaging was changed from 'auto' to True"):
        again.partial_fit(*batch(1))
    again.set_params(averaging="auto").partial_fit(*batch(1))  # the kernel is still the same object


@pytest.mark.parametrize("estimator", [SeqMED, SeqLapMED])
def test_precomputed_kernels(estimator, path):
    X, y = batch(0)
    gram = X @ X.T
    model = estimator(kernel="precomputed").fit(gram, y)
    loaded = restored(model, path)
    assert bits(model) == bits(loaded)
    np.testing.assert_array_equal(model.predict_proba(gram[:5]), loaded.predict_proba(gram[:5]))


@pytest.mark.parametrize("kind", [SeqMED, GraphPropagation, SeqGraphMED])
def test_column_names(kind, path):
    X, y = batch(0)
    frame = pd.DataFrame(X, columns=["x", "größe", "z\n"])
    model = kind(random_state=0).partial_fit(frame, y)
    loaded = restored(model, path)
    assert_same(model, loaded, frame)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["z\n", "x", "größe"]])


def test_an_array_mapped_from_a_file(path, tmp_path):
    X, y = batch(0)
    np.save(tmp_path / "rows.npy", X)
    model = SeqMED().fit(np.load(tmp_path / "rows.npy", mmap_mode="r"), y)
    assert_same(model, restored(model, path), X)


UNFITTED = [
    SeqMED(C=3.0),
    SeqLapMED(kernel=RBF("auto"), class_weight={0: 2.0, 1: 1.0}, unlabeled="?", random_state=0),
    StreamPipeline([("scale", StandardScaler()), ("model", SeqMED())]),
    StreamPipeline([("none", "passthrough"), ("model", SeqMED())]),
    StreamPipeline([("table", TableEncoder({"a": "text"}, label="y")), ("model", SeqMED())]),
    PrequentialSearch(
        SeqMED(random_state=0), {"C": np.logspace(0.5, 1, 3), "kernel": ["rbf", RBF(2.0)]}
    ),
    GraphPropagation(metric=RBF(0.5), unlabeled="?", random_state=0),
    SeqGraphMED(class_weight={0: 2.0}, random_state=0),
    SeqGraphMED(SeqLapMED(kernel="linear", random_state=0), random_state=0),
]


@pytest.mark.parametrize("model", UNFITTED, ids=lambda model: type(model).__name__)
def test_models_that_have_learned_nothing(model, path):
    loaded = restored(model, path)
    assert repr(loaded) == repr(model)
    assert bits(loaded) == bits(model)
    X, y = batch(0, classes=(0, 1))
    if isinstance(model, StreamPipeline) and model.steps[0][0] == "table":
        X = [{"a": f"word{place % 5}", "b": row[0]} for place, row in enumerate(X)]
    assert_same(clone(model).partial_fit(X, y), loaded.partial_fit(X, y), X)


# -- labels ---------------------------------------------------------------------------------------

LABELS = {
    "integers": np.array([-5, 0, 2**40]),
    "small integers": np.array([1, 2, 3], dtype=np.int8),
    "unsigned integers": np.array([0, 2**63 - 1], dtype=np.uint64),
    "floats": np.array([-0.0, 1.0, 2.0**53 - 1]),
    "half floats": np.array([0.0, 1.0, 2.0], dtype=np.float16),
    "long floats": np.array([0, 1, 2], dtype=np.longdouble),
    "booleans": np.array([False, True]),
    "strings": np.array(["größe", "\U0001f41d"]),
    "wide strings": np.array(["a", "b", "c"], dtype="U20"),
    "strange strings": np.array(["a\0b", "\ud800", '"\\\n']),
    "objects": np.array(["x", "y", "z"], dtype=object),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_labels_of_every_type(labels, path):
    codes = np.arange(24) % labels.size
    X = np.random.default_rng(0).normal(size=(24, 3)) + 2.0 * np.eye(3)[codes]
    model = SeqMED().partial_fit(X, labels[codes])
    loaded = restored(model, path)
    assert loaded.classes_.dtype == model.classes_.dtype
    assert_same(model, loaded, X)
    expected = model.classes_.astype(str) if model.classes_.dtype.kind in "MS" else model.classes_
    assert model_file.read(path).classes == expected.tolist()
    for each in (model, loaded):
        each.partial_fit(X, labels[codes])
    assert_same(model, loaded, X)


def test_foreign_byte_order_becomes_native(path):
    X, y = batch(0, classes=(0, 1, 2), unlabeled=100)
    model = SeqMED().fit(X, y.astype(float).astype(">f8"))
    loaded = restored(model, path)
    assert loaded.classes_.dtype == np.float64
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


# -- pipelines and searches -----------------------------------------------------------------------


def make_pipeline(scaler, model=None):
    steps = [("scale", scaler), ("none", None), ("model", model or SeqMED(lag=2))]
    return StreamPipeline(steps)


def stretched(seed, n=24):
    X, y = batch(seed, n)
    return 10.0 ** np.arange(3) * X + 5.0, y


SCALERS = {
    "standard": StandardScaler(),
    "no mean": StandardScaler(with_mean=False),
    "no scale": StandardScaler(with_std=False),
    "no effect": StandardScaler(with_mean=False, with_std=False),
    "range": MinMaxScaler((-1, 1), clip=True),
    "largest": MaxAbsScaler(),
}


@pytest.mark.parametrize("scaler", SCALERS.values(), ids=SCALERS)
def test_pipelines_of_scalers(scaler, path):
    model = make_pipeline(clone(scaler))
    for seed in range(2):
        model.partial_fit(*stretched(seed))
    loaded = restored(model, path)
    assert model_file.read(path).n_batches == 2
    for seed in (2, 3, 4):
        assert_same(model, loaded, stretched(9)[0])
        for each in (model, loaded):
            each.partial_fit(*stretched(seed))


@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix, sp.csc_matrix, sp.coo_array])
def test_a_sparse_pipeline(form, path):
    model = StreamPipeline([("scale", MaxAbsScaler()), ("model", SeqMED(lag=1))])
    for seed in range(2):
        X, y, _ = make_batch(seed)
        model.partial_fit(form(X), y)
    loaded = restored(model, path)
    for seed in (2, 3):
        X, y, _ = make_batch(seed)
        for each in (model, loaded):
            each.partial_fit(form(X), y)
        assert_same(model, loaded, make_batch(9, "csr").X)


def test_text_with_many_classes_makes_a_small_file(path):
    """A weight for every hashed feature and class would take 50 MB, several times."""
    texts, y = messages(800, n_classes=25, n_words=1000)
    model = seqmed.make_stream_pipeline(kinds={"body": "text"}, random_state=0)
    labels = np.where(np.random.default_rng(1).random(800) < 0.4, y, "")
    for rows in np.split(np.arange(800), [500]):
        model.partial_fit({"body": texts[rows]}, labels[rows])
    seqmed.save(model, path)
    assert path.stat().st_size < 3e6
    again = seqmed.load(path)
    np.testing.assert_array_equal(
        again.predict_proba({"body": texts[:20]}), model.predict_proba({"body": texts[:20]})
    )


@pytest.mark.parametrize("piped", [False, True])
def test_searches(piped, path):
    base = make_pipeline(StandardScaler(), SeqLapMED(lag=2)) if piped else SeqLapMED(lag=2)
    name = "model__" if piped else ""
    grid = [{f"{name}C": [1.1, 10.0]}, {f"{name}gamma": [1e4]}]  # the last one learns by heart
    model = PrequentialSearch(base, grid)
    for seed in range(4):
        model.partial_fit(*stretched(seed))
    assert any(model.record_.dropped)
    loaded = restored(model, path)
    for seed in (5, 6):
        assert_same(model, loaded, stretched(9)[0])
        for each in (model, loaded):
            each.partial_fit(*stretched(seed))
    assert_same(model, loaded, stretched(9)[0])
    assert repr(loaded.results_) == repr(model.results_)
    assert loaded.best_params_ == model.best_params_


# -- encoders of tables ----------------------------------------------------------------------------

KINDS = {
    "numbers": ["whole", "real"], "booleans": ["flag"], "categories": ["colour"],
    "hashed": ["code"], "dates": ["when"], "text": ["note"], "all": None,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:columns that are not used")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"scale": False, "missing_values": ["lilac", "-1"]}])
def test_encoders_are_kept_to_the_bit(kind, options, path):
    learner, rows = SeqMED(kernel="auto", random_state=0), mixed_rows()
    y = np.array([None if place % 3 else place % 2 for place in range(len(rows))], dtype=object)
    model = make_stream_pipeline(learner, features=KINDS[kind], **options)
    model.partial_fit(rows[:70], y[:70]).partial_fit(rows[70:], y[70:])
    loaded, rows = restored(model, path), mixed_rows(40, seed=3)
    assert_same(model, loaded, rows)
    first, second = (each[:-1].transform(rows) for each in (model, loaded))
    first, second = (each.toarray() if sp.issparse(each) else each for each in (first, second))
    assert first.tobytes() == second.tobytes()
    y = np.arange(40) % 2
    assert_same(model.partial_fit(rows, y), loaded.partial_fit(rows, y), rows)


# -- what is kept with a model --------------------------------------------------------------------


def test_extra_comes_back_exactly(path):
    extra = {
        "schema": ["a", "b"],
        "position": {"file": "größe.csv", "row": 10**20, 3: (1, 2.0, True, None)},
        "numbers": [0.1, -0.0, float("inf"), 1, False, np.float32(0.1), np.int64(-3), np.str_("x")],
        "mean": np.array([[1.0, np.nan], [np.inf, -0.0]], order="F"),
        "empty": np.zeros((0, 4), dtype=np.int16),
        "single": np.array(3),
        "mask": np.array([True, False]),
        "words": np.array([["a", "bc"], ["", "d"]]),
        "names": np.array(["a", "bc"], dtype=object),
        "counts": sp.csr_array([[0, 1], [2, 0]]),
        "nested": {"again": {"": []}},
    }
    seqmed.save(SeqMED(), path, extra=extra)
    _, loaded = model_file.load_with_extra(path)
    assert repr(loaded) == repr(extra)
    assert list(loaded) == list(extra)
    for name in ("mean", "empty", "single", "mask", "words", "names"):
        assert loaded[name].dtype == extra[name].dtype
        assert loaded[name].shape == extra[name].shape
        assert loaded[name].flags.f_contiguous == extra[name].flags.f_contiguous
        np.testing.assert_array_equal(loaded[name], extra[name])
    assert [type(each) for each in loaded["numbers"]] == [type(each) for each in extra["numbers"]]
    assert (loaded["counts"] != extra["counts"]).nnz == 0
    assert repr(model_file.read(path).extra) == repr(extra)


def test_one_array_in_two_places_is_one(path):
    array = np.arange(3)
    seqmed.save(SeqMED(), path, extra={"first": array, "second": [array, array.copy()]})
    _, extra = model_file.load_with_extra(path)
    assert extra["second"][0] is extra["first"]
    assert extra["second"][1] is not extra["first"]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ([1], "expected a dictionary whose keys are strings"),
        ({1: 2}, "expected a dictionary whose keys are strings"),
        ({"a": {"b": [0, {1, 2}]}}, r"extra\['a'\]\['b'\]\[1\] is {1, 2}, of type set"),
        ({"a": b"bytes"}, "of type bytes"),
        ({"a": SeqMED()}, r"SeqMED\(\), of type SeqMED"),
        ({"a": print}, "of type builtin_function_or_method"),
        ({"a": np.array([1, None])}, "of type ndarray"),
        ({"a": np.array([1j])}, "complex128 cannot be saved"),
        ({"a": np.ma.masked_array([1, 2])}, "of type MaskedArray"),
        ({"a": sp.coo_array([1, 2])}, "of type coo_array"),
    ],
)
def test_extra_of_other_types_is_refused(extra, message, path):
    with pytest.raises(ValueError, match=message):
        seqmed.save(SeqMED(), path, extra=extra)
    assert not path.exists()


def test_a_header_that_could_not_be_read_is_not_written(path, monkeypatch):
    monkeypatch.setattr(model_file.container, "LARGEST_HEADER", 10_000)
    seqmed.save(SeqMED(), path)
    with pytest.raises(ValueError, match="keep long lists in extra as arrays"):
        seqmed.save(SeqMED(), path, extra={"words": ["word"] * 1000})
    monkeypatch.setattr(model_file.container, "LARGEST_HEADER", 100)
    with pytest.raises(model_file.ModelFileError, match="expected at most 100,"):
        seqmed.load(path)


def test_reading_makes_no_model(path, monkeypatch):
    X, y = batch(0)
    model = make_pipeline(StandardScaler(), SeqLapMED(kernel=RBF(0.5))).partial_fit(X, y)
    seqmed.save(model, path, extra={"row": 24})
    monkeypatch.setattr(model_file, "ModelDecoder", None)
    contents = model_file.read(path)
    assert contents == model_file.Contents(
        format=model_file.FORMAT,
        library=seqmed.__version__,
        model="StreamPipeline",
        parameters={
            **model.get_params(deep=False),
            "steps": [("scale", "StandardScaler"), ("none", None), ("model", "SeqLapMED")],
        },
        classes=["ant", "bee", "cow"],
        n_features=3,
        n_batches=1,
        extra={"row": 24},
        n_bytes=path.stat().st_size,
    )
    seqmed.save(SeqMED(kernel=RBF(0.5), random_state=np.random.RandomState(0)), path)
    contents = model_file.read(path)
    assert contents.classes is contents.n_features is contents.n_batches is contents.extra is None
    assert contents.parameters["kernel"] == "RBF"
    assert contents.parameters["random_state"] == "RandomState"


# -- what cannot be saved -------------------------------------------------------------------------


class Doubled(RBF):
    """A kernel of somebody else."""


class Derived(SeqMED):
    """A classifier of somebody else."""


def with_note(model):
    model.note = "mine"
    return model


REFUSED = {
    "a function": (
        SeqMED(kernel=product),
        r"SeqMED.kernel is <function product.*cannot be saved in a model file.*cloudpickle",
    ),
    "a foreign kernel": (SeqMED(kernel=Doubled(1.0)), "SeqMED.kernel is Doubled.*cloudpickle"),
    "a function in a grid": (
        PrequentialSearch(SeqMED(), {"kernel": ["rbf", product]}),
        r"PrequentialSearch.param_grid.*<function product",
    ),
    "a foreign transformer": (
        make_pipeline(PCA(2)),
        r"StreamPipeline.steps\[0\]\[1\] is PCA.*StandardScaler.*skops",
    ),
    "a derived class": (Derived(), "save got a Derived, expected one of SeqMED.*skops"),
    "a transformer": (StandardScaler(), "save got a StandardScaler"),
    "a splitter": (SemiSupervisedSplit(), "save got a SemiSupervisedSplit"),
    "a class": (SeqMED, "save got a ABCMeta"),
    "more attributes": (with_note(SeqMED()), "SeqMED has note, .* remove it"),
    "another generator": (
        SeqMED(random_state=np.random.RandomState(np.random.PCG64(1))),
        "SeqMED.random_state uses the generator PCG64, expected MT19937: pass a seed",
    ),
    "a marker": (SeqLapMED(unlabeled=pd.NaT), "SeqLapMED.unlabeled is NaT"),
    "a wrong parameter": (SeqMED(C=-1.0), "'C' parameter"),
}


@pytest.mark.parametrize(("model", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_leaves_the_old_file(model, message, path):
    assert_refused(model, message, path)


def test_a_function_in_the_stream_is_refused_too(path):
    model = SeqMED(kernel=product).fit(*batch(0)).set_params(kernel="rbf")
    with pytest.raises(
        ValueError, match=r"_started.*<function product.*cannot be saved in a model file"
    ):
        seqmed.save(model, path)


# -- other ways to keep a model -------------------------------------------------------------------


def learned_pipeline():
    return make_pipeline(StandardScaler()).partial_fit(*stretched(0))


def learned_search():
    return PrequentialSearch(SeqMED(kernel=RBF(0.3)), {"C": [2.0, 10.0]}).partial_fit(*batch(0))


LEARNED = {
    **{name: partial(learned, case) for name, case in SAVABLE.items()},
    "pipeline": learned_pipeline,
    "search": learned_search,
}
every_model = pytest.mark.parametrize("make", LEARNED.values(), ids=LEARNED)


@pytest.mark.exhaustive
@every_model
def test_skops_keeps_everything(make):
    model = make()
    content = skops.io.dumps(model)
    trusted = skops.io.get_untrusted_types(data=content)
    allowed = ("seqmed.", "scipy.sparse.", "sklearn.tree.")  # trees of refitted experts
    assert all(each.startswith(allowed) for each in trusted)
    assert bits(skops.io.loads(content, trusted=trusted)) == bits(model)


@pytest.mark.exhaustive
@every_model
def test_cloudpickle_keeps_everything(make):
    model = make()
    assert bits(cloudpickle.loads(cloudpickle.dumps(model))) == bits(model)


def test_cloudpickle_keeps_functions():
    scale = 0.5
    model = SeqMED(kernel=lambda left, right: scale * left @ right.T).fit(*batch(0))
    loaded = cloudpickle.loads(cloudpickle.dumps(model))
    assert outputs(loaded, batch(1)[0]) == outputs(model, batch(1)[0])
