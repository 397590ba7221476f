"""Prediction with Spark: every Python worker reads the model file once.

    spark-submit examples/spark_recipe.py MODEL ROWS.parquet OUT

MODEL is a file of `seqmed learn`. Spark sends it to all machines.
"""

import sys
from functools import cache
from pathlib import Path

import pandas as pd

load = cache(lambda path: __import__("seqmed").load(path))  # once in each worker


def predict(model_file, rows):
    """Return the rows with the predicted class and its probability."""
    rows.sparkSession.sparkContext.addFile(model_file)
    name = Path(model_file).name

    def add_columns(batches):
        from pyspark import SparkFiles

        for batch in batches:
            found = load(SparkFiles.get(name)).predict_proba(batch)
            labels = load(SparkFiles.get(name)).classes_[found.argmax(axis=1)]
            yield batch.assign(label=pd.Series(labels, batch.index), probability=found.max(axis=1))

    fields = [f"`{field.name}` {field.dataType.simpleString()}" for field in rows.schema]
    schema = ", ".join([*fields, "label string", "probability double"])
    return rows.mapInPandas(add_columns, schema)


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    model, source, target = sys.argv[1:]
    predict(model, spark.read.parquet(source)).write.parquet(target)
