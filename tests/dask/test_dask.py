"""`seqmed.dask`: the same models and predictions as without Dask, whatever happens to workers."""

import subprocess
import sys
from contextlib import nullcontext
from itertools import pairwise

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from sklearn import metrics
from sklearn.exceptions import NotFittedError

import seqmed
import seqmed.dask as on_dask
from seqmed import GraphPropagation, SeqGraphMED, SeqLapMED, SeqMED
from seqmed.dask import PartitionError
from seqmed.selection.measures import Measures
from tests.support.partitions import (
    after,
    killed_once,
    model,
    table,
    without_end,
    write_parts,
)
from tests.support.state import state_bits

# Dask 2026.8 uses what pandas 3.1 calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.reset_index")

FRAME = table()
ROWS = FRAME.drop(columns="kind")
SIZES = {"even": [500] * 3, "odd": [1, 700, 350, 49, 400]}
WORKERS = [0, 1, 2, pytest.param(4, marks=pytest.mark.exhaustive)]
CODES = np.where(FRAME.kind.isna(), -1, (FRAME.kind == "yes").astype(int))
POINTS = ROWS[list("abcd")].to_numpy()
CLASSIFIERS = {
    "SeqGraphMED": lambda: SeqGraphMED(graph_memory=200, experts=(), random_state=0),
    "SeqMED": lambda: SeqMED(random_state=0),
    "SeqLapMED": lambda: SeqLapMED(n_landmarks=20, random_state=0),
    "GraphPropagation": lambda: GraphPropagation(graph_memory=200, random_state=0),
}


@pytest.fixture(scope="module")
def plain():
    return model().fit(ROWS, FRAME.kind)


@pytest.fixture(scope="module")
def probabilities(plain):
    """Predictions of all rows in one partition, without a client."""
    return on_dask.predict_proba(plain, dd.from_pandas(ROWS, npartitions=1)).compute()


def parts_of(frame, sizes):
    return [frame.iloc[a:b] for a, b in pairwise(np.cumsum([0, *sizes]))]


def delayed_parts(sizes=SIZES["odd"], frame=FRAME):
    return [dask.delayed(part) for part in parts_of(frame, sizes)]


@pytest.mark.parametrize("n_workers", WORKERS)
@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("sizes", SIZES)
def test_nothing_depends_on_workers_partitions_and_formats(
    clusters, tmp_path, plain, probabilities, sizes, kind, n_workers
):
    paths = write_parts(FRAME, tmp_path / "parts", SIZES[sizes], kind)
    with clusters(n_workers).as_current() if n_workers else nullcontext():
        names = [*map(str, paths)]
        # the first file has one row, by which Dask would take labels for numbers
        texts = {"kind": "object"}
        data = dd.read_csv(names, dtype=texts) if kind == "csv" else dd.read_parquet(names)
        fitted = on_dask.fit(model(), data, label="kind")
        assert state_bits(fitted[-1]) == state_bits(plain[-1])
        rows = data.drop(columns="kind")
        found = on_dask.predict_proba(fitted, rows).compute()
        labels = on_dask.predict(fitted, rows).compute()
    np.testing.assert_array_equal(found.to_numpy(), probabilities.to_numpy())
    assert found.columns.tolist() == ["no", "yes"]
    assert labels.tolist() == np.array(["no", "yes"])[found.to_numpy().argmax(axis=1)].tolist()
    np.testing.assert_allclose(found.to_numpy(), plain.predict_proba(ROWS), rtol=0, atol=1e-12)


def test_the_order_of_the_tasks_changes_nothing(client, plain):
    parts = parts_of(FRAME, [150] * 10)
    for waits in (range(10), range(10, 0, -1)):
        late = [
            dask.delayed(after)(wait / 20, part) for wait, part in zip(waits, parts, strict=True)
        ]
        fitted = on_dask.fit(model(), late, label="kind")
        assert state_bits(fitted[-1]) == state_bits(plain[-1])


def test_a_stream_has_partitions_without_rows():
    """As after a filter, also at its beginning."""
    sizes = [0, 700, 0, 400, 400]
    found = on_dask.partial_fit(model(), delayed_parts(sizes), label="kind")
    direct = on_dask.partial_fit(model(), delayed_parts([700, 400, 400]), label="kind")
    assert state_bits(found[-1]) == state_bits(direct[-1])


def test_a_fit_that_fails_draws_no_random_numbers():
    generator = np.random.RandomState(0)
    broken = [*delayed_parts()[:2], dask.delayed(ROWS)]  # without labels
    for parts, label in ((broken, "kind"), (delayed_parts(), 5)):
        with pytest.raises(ValueError):  # noqa: PT011
            on_dask.fit(SeqMED(random_state=generator), parts, label=label)
    assert generator.randint(100) == np.random.RandomState(0).randint(100)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_arrays(client, name):
    points = da.from_array(POINTS, chunks=(400, 3))
    weights = np.where(np.arange(len(CODES)) % 7, 1.0, 0.0)
    direct = CLASSIFIERS[name]().fit(POINTS, CODES, weights)
    for labels in (CODES, da.from_array(CODES, chunks=700)):
        fitted = on_dask.fit(CLASSIFIERS[name](), points, labels, da.from_array(weights))
        assert state_bits(fitted) == state_bits(direct)
    found = on_dask.predict_proba(fitted, points)
    assert isinstance(found, da.Array)
    assert found.shape == (1500, 2)
    np.testing.assert_allclose(found.compute(), direct.predict_proba(POINTS), rtol=0, atol=1e-12)
    labels = on_dask.predict(fitted, points)
    assert (labels.shape, labels.dtype) == ((1500,), direct.classes_.dtype)
    np.testing.assert_array_equal(labels.compute(), found.compute().argmax(axis=1))


def test_delayed_tables(client, plain, probabilities):
    found = on_dask.predict_proba(plain, delayed_parts(frame=ROWS))
    whole = np.concatenate(dask.compute(*found))
    np.testing.assert_array_equal(whole, probabilities.to_numpy())


def test_an_empty_partition(client, plain, probabilities):
    parts = delayed_parts([0, 700, 0, 800])
    assert state_bits(on_dask.fit(model(), parts, label="kind")[-1]) == state_bits(plain[-1])
    data = dd.from_pandas(ROWS, npartitions=3)
    first = data.map_partitions(lambda part: part[part.index < 100])
    assert len(on_dask.predict(plain, first).compute()) == 100
    found = on_dask.predict_proba(plain, first).compute()
    np.testing.assert_array_equal(found, probabilities[:100])


def test_weights_in_a_column(client):
    weights = 1.0 + np.arange(len(FRAME)) % 3
    data = dd.from_pandas(FRAME.assign(weight=weights), npartitions=4)
    fitted = on_dask.fit(model(), data, label="kind", sample_weight="weight")
    direct = model().fit(ROWS, FRAME.kind, sample_weight=weights)
    assert state_bits(fitted[-1]) == state_bits(direct[-1])


@pytest.mark.parametrize("ahead", [0, 3])
def test_a_stream_is_learned_in_order(client, ahead):
    sizes = [300] * 5
    fitted = on_dask.partial_fit(model(), delayed_parts(sizes), label="kind", ahead=ahead)
    direct = model()
    for part in parts_of(FRAME, sizes):
        direct.partial_fit(part.drop(columns="kind"), part.kind)
    assert state_bits(fitted[-1]) == state_bits(direct[-1])


@pytest.mark.parametrize("n_partitions", [1, 4])
def test_measures(client, plain, n_partitions):
    data = dd.from_pandas(FRAME, npartitions=n_partitions)
    found = on_dask.evaluate(plain, data, "kind")
    labeled = FRAME[FRAME.kind.notna()]
    truth, expected = labeled.kind.to_numpy(), plain.predict_proba(labeled.drop(columns="kind"))
    every = Measures()
    every.add(truth, plain.classes_, expected)
    assert found.size == every.size == len(labeled)
    for name in ("accuracy", "balanced_accuracy", "macro_f1", "log_loss", "calibration_error"):
        assert getattr(found, name) == getattr(every, name), name
    assert found.by_class() == every.by_class()
    assert found.log_loss == pytest.approx(metrics.log_loss(truth, expected), abs=1e-9)


def test_measures_do_not_depend_on_how_rows_are_divided():
    generator = np.random.default_rng(0)
    found, truth = generator.dirichlet(np.ones(3), 999), generator.integers(4, size=999)
    costs = generator.choice([0.1, 0.7, 3.3], size=999)
    classes, whole, parts = np.arange(3), Measures(), []
    whole.add(truth, classes, found, costs=costs)
    for rows in np.array_split(generator.permutation(999), 7):
        parts.append(Measures())
        parts[-1].add(truth[rows], classes, found[rows], costs=costs[rows])
    total = Measures()  # of no row
    for part in parts:
        total = total.plus(part)
    for name in ("accuracy", "log_loss", "calibration_error", "mean_cost", "confusion"):
        assert getattr(total, name) == getattr(whole, name), name
    assert total.by_class() == whole.by_class()
    assert [each.size for each in parts] == [len(each) for each in np.array_split(range(999), 7)]


@pytest.mark.parametrize("labeled", [True, False])
def test_a_query_chooses_the_rows_of_the_whole_table(client, labeled):
    chosen = CLASSIFIERS["SeqGraphMED"]()
    chosen.partial_fit(POINTS[:300], CODES[:300] if labeled else np.full(300, -1))
    points = np.vstack([POINTS + shift for shift in (0.0, 0.01)])  # more than are compared
    data = da.from_array(points, chunks=(450, 4))
    expected = seqmed.query(chosen, points, 6)
    assert on_dask.query(chosen, data, 6).tolist() == expected.tolist()


def test_a_query_for_more_rows_than_there_are(client, plain):
    data = dd.from_pandas(ROWS.iloc[[0, 0, 1]], npartitions=2)
    with pytest.raises(ValueError, match="n=3 for 2 distinct rows"):
        on_dask.query(plain, data, 3)


# -- the whole graph -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [0, 2])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_whole_graph_has_the_neighbours_of_a_plain_fit(clusters, monkeypatch, n_workers, metric):
    monkeypatch.setattr(on_dask, "BLOCKS_AT_ONCE", 1)  # several blocks of rows
    generator = np.random.default_rng(0)
    points = generator.normal(size=(2500, 60)) + 2.0 * np.eye(60)[generator.integers(2, size=2500)]
    points[77] = points[2400]  # equal distances
    labels = np.where(generator.random(2500) < 0.1, points[:, 0] > points[:, 1], -1)
    whole, direct = (
        GraphPropagation(graph_memory=2500, metric=metric, random_state=0) for _ in range(2)
    )
    with clusters(n_workers).as_current() if n_workers else nullcontext():
        on_dask.fit(whole, da.from_array(points, chunks=(800, 60)), labels)
    direct.fit(points, labels)
    one, other = whole._state.graph, direct._state.graph
    one.rows.validate()
    np.testing.assert_array_equal(one.codes, other.codes)
    for name in ("slots", "distances"):
        found, expected = (getattr(each.rows.lists, name)[:, :10] for each in (one, other))
        np.testing.assert_array_equal(found, expected)
    # a plain fit solves after every mini-batch, this one once: within the tolerance of the solver
    difference = np.abs(whole.predict_proba(points) - direct.predict_proba(points))
    assert difference.max() < 0.1
    assert np.mean(whole.predict(points) == direct.predict(points)) > 0.995
    assert whole.n_kept_ == 2500
    whole.partial_fit(points[:50] + 0.1, labels[:50])  # the stream may continue
    assert whole.n_kept_ == 2500


def test_a_whole_graph_that_does_not_fit_is_refused(monkeypatch):
    class Memory:
        available = 10**9

    monkeypatch.setattr(on_dask.psutil, "virtual_memory", Memory)
    data = da.zeros((10**7, 20), chunks=(10**6, 20))
    with pytest.raises(MemoryError, match=r"needs about 15\.3 GiB, and 0\.9 GiB are free"):
        on_dask.fit(GraphPropagation(graph_memory=10**7), data, np.zeros(10**7))


# -- failures --------------------------------------------------------------------------------------


def test_a_killed_worker_costs_time_and_not_the_result(client, plain, probabilities, tmp_path):
    def deadly(frame, marker):
        parts = delayed_parts(frame=frame)
        parts[2] = dask.delayed(killed_once)(str(tmp_path / marker), parts[2])
        return parts

    fitted = on_dask.fit(model(), deadly(FRAME, "fit"), label="kind")
    assert state_bits(fitted[-1]) == state_bits(plain[-1])
    found = dask.compute(*on_dask.predict_proba(fitted, deadly(ROWS, "predict")))
    np.testing.assert_array_equal(np.concatenate(found), probabilities.to_numpy())
    assert (tmp_path / "fit").exists()
    assert (tmp_path / "predict").exists()


def test_the_model_survives_its_only_worker(clusters, plain, probabilities, tmp_path):
    with clusters(1).as_current():
        lazy = on_dask.predict_proba(plain, delayed_parts(frame=ROWS))
        late = dask.delayed(killed_once)(str(tmp_path / "marker"), ROWS)
        (last,) = on_dask.predict_proba(plain, [late])
        found = dask.compute(*lazy, last)
    np.testing.assert_array_equal(np.concatenate(found[:-1]), probabilities.to_numpy())
    np.testing.assert_array_equal(found[-1], probabilities.to_numpy())


def test_too_little_memory_names_the_remedy():
    own = {"distributed.scheduler.allowed-failures": 0}
    with (
        dask.config.set(own),
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50,
            memory_limit="600MiB",
        ) as cluster,
        Client(cluster),
    ):  # fmt: skip
        parts = delayed_parts()
        parts[1] = dask.delayed(without_end)(parts[1])
        with pytest.raises(
            PartitionError, match=r"partition \d: .*smaller partitions.*more memory"
        ):
            on_dask.partial_fit(model(), parts, label="kind")


@pytest.mark.parametrize("with_client", [True, False])
def test_a_bad_partition_is_named(clusters, with_client):
    with clusters(2).as_current() if with_client else nullcontext():
        bad = {
            "column 'b' is missing": FRAME.drop(columns="b"),
            "column 'a' has texts, expected numbers": FRAME.assign(a="x"),
            "y ": FRAME.assign(kind=[["list"]] * len(FRAME)),
        }
        for message, frame in bad.items():
            parts = delayed_parts()
            parts[3] = dask.delayed(frame.iloc[:50])
            learner = model()
            with pytest.raises(PartitionError, match=f"partition 3: .*{message}"):
                on_dask.fit(learner, parts, label="kind")
            assert not hasattr(learner[-1], "classes_")


def test_an_unreadable_file_is_named(client, tmp_path):
    paths = write_parts(FRAME, tmp_path / "parts", SIZES["even"], "parquet")
    data = dd.read_parquet([*map(str, paths)])
    paths[1].write_bytes(b"nothing")
    with pytest.raises(PartitionError, match=r"partition 1 \(.*part-1.parquet\): "):
        on_dask.fit(model(), data, label="kind")


def test_a_bad_partition_of_a_stream_leaves_what_was_learned(client):
    parts = delayed_parts([300] * 5)
    parts[2] = dask.delayed(FRAME.drop(columns="b"))
    learner = model()
    with pytest.raises(PartitionError, match=r"partition 2: .*'b'"):
        on_dask.partial_fit(learner, parts, label="kind")
    assert learner[-1].n_batches_ == 2


def test_a_bad_partition_of_predictions_is_named(client, plain):
    data = dd.from_pandas(ROWS, npartitions=3)
    with pytest.raises(PartitionError, match=r"partition \d: .*no column 'b'"):
        on_dask.predict(plain, data.drop(columns="b")).compute()


@pytest.mark.parametrize(
    ("data", "label", "error", "message"),
    [
        (FRAME, "kind", TypeError, "is a DataFrame, expected a Dask DataFrame"),
        ([], "kind", TypeError, "expected a Dask DataFrame"),
        (dd.from_pandas(FRAME, npartitions=2), "sort", ValueError, "label is 'sort', expected a"),
        (da.zeros((6, 2, 2)), np.zeros(6), ValueError, r"expected \(rows, columns\)"),
        (da.zeros((6, 2)), da.zeros(5, chunks=1), ValueError, "label has 5 partitions"),
    ],
)
def test_wrong_arguments(data, label, error, message):
    with pytest.raises(error, match=message):
        on_dask.fit(model(), data, label=label)


def test_a_model_that_cannot_predict_is_refused():
    data = dd.from_pandas(ROWS, npartitions=2)
    with pytest.raises(NotFittedError):
        on_dask.predict(model(), data)
    with pytest.raises(TypeError, match="expected a classifier of seqmed"):
        on_dask.predict(pd.DataFrame(), data)


def test_without_the_extra():
    program = """
import sys
sys.modules.update(dict.fromkeys(["dask", "distributed"]))
import seqmed
seqmed.SeqMED().fit([[0.0], [1.0]], [0, 1])
try:
    import seqmed.dask
except ImportError as error:
    print(error)
sys.argv = ["seqmed", "evaluate", "model", "rows.csv", "--cluster", "local"]
from seqmed.cli.cluster import connected
try:
    with connected("local"):
        pass
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("pip install 'seqmed[dask]'" in line for line in lines)
