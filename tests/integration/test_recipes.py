"""The recipes for Spark and Ray of docs/scaling.md, run for real where these are installed."""

import importlib.util
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import seqmed
from tests.support.partitions import model, table

EXAMPLES = Path(__file__).parents[2] / "examples"


def recipe(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def learned(tmp_path):
    """A model file, the file of some rows, and these rows."""
    frame = table()
    rows = frame.drop(columns="kind").assign(number=np.arange(len(frame)))
    fitted = model().fit(frame.drop(columns="kind"), frame.kind)
    seqmed.save(fitted, tmp_path / "model")
    rows.to_parquet(tmp_path / "rows.parquet", index=False)
    return fitted, str(tmp_path / "model"), str(tmp_path / "rows.parquet"), rows


def assert_predicted(found, fitted, rows):
    found = found.sort_values("number")
    np.testing.assert_array_equal(found.number, rows.number)
    np.testing.assert_array_equal(found.label, fitted.predict(rows))
    expected = fitted.predict_proba(rows).max(axis=1)
    np.testing.assert_allclose(found.probability, expected, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore")  # of Spark
def test_spark(learned, monkeypatch):
    pytest.importorskip("pyspark", reason="the recipe for Spark needs pyspark")
    if shutil.which("java") is None:
        pytest.skip("the recipe for Spark needs Java")
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    fitted, file, source, rows = learned
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    try:
        predict = recipe("spark_recipe").predict
        found = predict(file, spark.read.parquet(source).repartition(3)).toPandas()
    finally:
        spark.stop()
    assert_predicted(found, fitted, rows)


@pytest.mark.filterwarnings("ignore")  # of Ray
def test_ray(learned):
    ray = pytest.importorskip("ray", reason="the recipe for Ray needs ray[data]")
    pytest.importorskip("ray.data", reason="the recipe for Ray needs ray[data]")
    fitted, file, source, rows = learned
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        predict = recipe("ray_recipe").predict
        found = predict(file, ray.data.read_parquet(source).repartition(3)).to_pandas()
    finally:
        ray.shutdown()
    assert_predicted(found, fitted, rows)
