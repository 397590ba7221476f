"""CPU seconds to encode a mixed table, beside scikit-learn's ColumnTransformer.

100,000 rows of 50 columns: 25 of numbers, 15 of categories (20 levels), 5 of booleans, 5 of dates.
A twentieth of the numbers and categories is missing. The encoder takes strings, as they come from a
CSV file. The ColumnTransformer takes a data frame of pandas whose columns already have their types;
dates are converted to seconds beforehand. Both are fitted to the first 1000 rows.

Rows of 617 and of 5000 numbers come in batches of 500, as arrays and as tables of pyarrow.

    python benchmarks/table_speed.py [--out FILE.json]
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pyarrow as pa
from common import Later, parse, write_json
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, RobustScaler

from seqmed import TableEncoder

pd = Later("pandas")

ROWS, FIRST, MISSING, REPEATS = 100_000, 1000, 0.05, 3


def mixed(n):
    """Return a data frame with typed columns, and the names of each kind."""
    generator = np.random.default_rng(0)
    names = {
        "numbers": [f"number{place}" for place in range(25)],
        "categories": [f"category{place}" for place in range(15)],
        "booleans": [f"boolean{place}" for place in range(5)],
        "dates": [f"date{place}" for place in range(5)],
    }
    levels = np.array([f"level {place}" for place in range(20)], dtype=object)
    columns = {}
    for name in names["numbers"]:
        columns[name] = np.where(generator.random(n) < MISSING, np.nan, generator.normal(size=n))
    for name in names["categories"]:
        column = levels[generator.integers(20, size=n)]
        columns[name] = np.where(generator.random(n) < MISSING, None, column)
    for name in names["booleans"]:
        columns[name] = generator.random(n) < 0.5
    start = np.datetime64("2024-01-01", "s")
    for name in names["dates"]:
        columns[name] = start + generator.integers(10**8, size=n)
    return pd.DataFrame(columns), names


def best_seconds(call):
    """Return the shortest CPU time of some calls."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def mixed_times(n):
    """Return seconds by method."""
    frame, names = mixed(n)
    strings = pa.table({
        name: pa.array(frame[name]).cast(pa.string()) for name in frame.columns
    })  # fmt: skip
    encoder = TableEncoder().fit(strings.slice(0, FIRST))
    seconds = frame.assign(**{name: frame[name].astype("int64") for name in names["dates"]})
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), RobustScaler())
    transformer = make_column_transformer(
        (numbers, [*names["numbers"], *names["dates"]]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), names["categories"]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), names["booleans"]),
    ).fit(seconds[:FIRST])
    typed = encoder._typed_rows(strings)[0]
    return {
        "TableEncoder, strings": best_seconds(lambda: encoder.transform(strings)),
        "TableEncoder, pandas": best_seconds(lambda: encoder.transform(frame)),
        "TableEncoder, typed": best_seconds(lambda: encoder.transform(typed)),
        "ColumnTransformer": best_seconds(lambda: transformer.transform(seconds)),
        "fit, first batch": best_seconds(lambda: TableEncoder().fit(strings.slice(0, FIRST))),
    }


def wide_times(width):
    """Return seconds by storage for 500 rows."""
    X = np.random.default_rng(0).normal(size=(500, width))
    table = pa.table({f"x{place}": X[:, place] for place in range(width)})
    encoder = TableEncoder().fit(X)
    return {
        "array": best_seconds(lambda: encoder.transform(X)),
        "table": best_seconds(lambda: encoder.transform(table)),
        "fit array": best_seconds(lambda: TableEncoder().fit(X)),
        "fit table": best_seconds(lambda: TableEncoder().fit(table)),
    }


def main():
    """Measure and print."""
    options = parse(__doc__)
    warnings.simplefilter("ignore")
    results = {"mixed": mixed_times(ROWS // 10 if options.quick else ROWS)}
    results |= {f"{width} numbers": wide_times(width) for width in (617, 5000)}
    for name, times in results.items():
        for method, seconds in times.items():
            print(f"{name:15} {method:25} {seconds:8.3f} s", flush=True)
    write_json(options.out, results)


if __name__ == "__main__":
    main()
