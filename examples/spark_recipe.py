"""Prediction with Spark: every part of a table is predicted with the model of one file.

    spark-submit examples/spark_recipe.py MODEL ROWS.parquet OUT

MODEL is a file of `seqmed learn`. Spark sends it to all machines.
"""

import sys
from pathlib import Path


def predict(model_file, rows):
    """Return the rows of a data frame with the predicted class and its probability."""
    rows.sparkSession.sparkContext.addFile(model_file)
    name = Path(model_file).name

    def add_columns(batches):  # of one part
        from pyspark import SparkFiles

        import seqmed

        model = seqmed.load(SparkFiles.get(name))
        for batch in batches:
            found = model.predict_proba(batch)
            labels = model.classes_[found.argmax(axis=1)].astype(str)
            yield batch.assign(label=labels, probability=found.max(axis=1))

    fields = [f"`{field.name}` {field.dataType.simpleString()}" for field in rows.schema]
    schema = ", ".join([*fields, "label string", "probability double"])
    return rows.mapInPandas(add_columns, schema)


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    model, source, target = sys.argv[1:]
    predict(model, spark.read.parquet(source)).write.parquet(target)
