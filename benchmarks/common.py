"""What the benchmark programs share: finding data, choosing parameters, tables, JSON files."""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import seqmed

# Categories of a column that have a one-hot column of their own.
MOST_CATEGORIES = 100
# For `paper`, whose data some programs use.
sys.path.append(str(Path(__file__).parents[1]))


# What installs the packages that only some programs need.
INSTALL = "pip install '.[bench]'"


class MissingDataError(SystemExit):
    """Data were not found. A program ends with the message, or goes on without the data."""


class Later(ModuleType):
    """A module of an optional package, which is imported when it is first used.

    Programs can then print their help without it.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            module = importlib.import_module(self.__name__)
        except ImportError as error:
            package = self.__name__.partition(".")[0]
            raise MissingDataError(f"{package} is needed: {INSTALL}.") from error
        return getattr(module, name)

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return Later, (self.__name__,)  # for processes that joblib starts


def make_parser(doc: str) -> argparse.ArgumentParser:
    """Return a parser without options, described by a module's docstring."""
    return argparse.ArgumentParser(
        description=doc.splitlines()[0],
        epilog=f"Other libraries, and public tables, need further packages: {INSTALL}. "
        "SEQMED_DATA names the folder of other data.",
    )


def parse(doc: str) -> argparse.Namespace:
    """Return the options common to all programs, described by a module's docstring."""
    parser = make_parser(doc)
    parser.add_argument("--out", help="write the results there as JSON")
    parser.add_argument("--quick", action="store_true", help="a shorter run, for a first look")
    parser.add_argument("--jobs", type=int, default=2, help="processes, where there are several")
    return parser.parse_args()


def data_file(name: str) -> Path:
    """Return a file of the folder that SEQMED_DATA names; end with a message if there is none."""
    folder = os.environ.get("SEQMED_DATA")
    if folder is None:
        raise MissingDataError(f"{name} is needed: set SEQMED_DATA to the folder that holds it.")
    path = Path(folder) / name
    if not path.is_file():
        raise MissingDataError(
            f"{path} does not exist: set SEQMED_DATA to the folder that holds {name}."
        )
    return path


def standard_error(values: Any) -> float:
    """Return the standard error of the mean; 0 for a single value."""
    values = np.asarray(values, dtype=float)
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


def mean_and_error(values: Any) -> dict[str, float]:
    """Return the mean of some numbers and its standard error."""
    return {"mean": float(np.mean(values)), "error": standard_error(values)}


def every_choice(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of a grid's values."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def best_of_all(
    grid: Mapping[str, Sequence[Any]], score: Callable[[dict[str, Any]], float]
) -> tuple[dict[str, Any], float]:
    """Return the combination of the largest score, the first of equals, and that score."""
    scored = [(score(choice), choice) for choice in every_choice(grid)]
    best, choice = max(scored, key=lambda pair: pair[0])
    return choice, best


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under a header, the first column to the left and the others to the right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        print("  ".join([row[0].ljust(widths[0]), *rest]), flush=True)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def with_tables(page: Path, tables: Mapping[str, str]) -> str:
    """Return the text of a page with each table between ``<!-- NAME -->`` and ``<!-- end -->``."""
    text = page.read_text()
    for name, table in tables.items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, count = marked.subn(lambda found, new=table: f"{found[1]}{new}\n{found[2]}", text)
        if count != 1:
            raise SystemExit(f"{page.name} has {count} places for the table {name}, expected one.")
    return text


def write_json(path: str | None, results: Mapping[str, Any]) -> None:
    """Write results, and the versions they were obtained with, where a path is given."""
    if path is None:
        return
    versions = {
        "seqmed": seqmed.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
    }
    with open(path, "w") as file:
        json.dump({**results, "versions": versions}, file, indent=1, default=plain)
        file.write("\n")


def plain(value: Any) -> Any:
    """Return a numpy value as what JSON can hold."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON.")


def make_encoder(frame: Any, ids: tuple[str, ...] = ()) -> Any:
    """Return an encoder of a table for other classifiers, not yet fitted.

    Numbers are imputed with medians and standardised, categories are one-hot (missing is one of
    them; the 100 most frequent of a column), ids are left out.
    """
    import pandas as pd

    kept = [name for name in frame if name not in ids]
    numbers = [name for name in kept if pd.api.types.is_numeric_dtype(frame[name])]
    numeric = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()
    )
    one_hot = OneHotEncoder(
        sparse_output=False, handle_unknown="infrequent_if_exist", max_categories=MOST_CATEGORIES
    )
    others = [name for name in kept if name not in numbers]
    return make_column_transformer((numeric, numbers), (one_hot, others))
