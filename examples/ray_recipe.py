"""Prediction with Ray Data: every actor reads the model file once.

    python examples/ray_recipe.py MODEL ROWS.parquet OUT

MODEL is a file of `seqmed learn`, at a path that all machines can read.
"""

import sys

import ray


class Predictor:
    """Adds the predicted class and its probability to batches of rows."""

    def __init__(self, model_file):
        import seqmed

        self.model = seqmed.load(model_file)

    def __call__(self, batch):
        found = self.model.predict_proba(batch)
        labels = self.model.classes_[found.argmax(axis=1)]
        return batch.assign(label=labels, probability=found.max(axis=1))


def predict(model_file, rows, n_actors=2):
    """Return the rows of a data set with their predictions."""
    return rows.map_batches(
        Predictor,
        fn_constructor_args=(model_file,),
        batch_format="pandas",
        compute=ray.data.ActorPoolStrategy(size=n_actors),
    )


if __name__ == "__main__":
    model, source, target = sys.argv[1:]
    predict(model, ray.data.read_parquet(source)).write_parquet(target)
