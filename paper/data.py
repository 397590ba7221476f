"""Streams of the experiments: the two simulations of the paper, and ISOLET.

The paper describes its simulations in a sentence or two. The docstrings state the other details.
ISOLET has the spoken letters of 150 speakers. It is read from disk or downloaded. Rows are assigned
to speakers by their original order, so data with other hashes are refused.
"""

from __future__ import annotations

import hashlib
import io
import os
import urllib.request
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

UNLABELED = -1


@dataclass(frozen=True)
class TrialBatch:
    """Rows (n, p), all true labels (n,), and a mask (n,) of the labels that the learner gets."""

    X: Array
    y: NDArray[np.int64]
    shown: NDArray[np.bool_]

    @property
    def labels(self) -> NDArray[np.int64]:
        """Labels for a learner, `UNLABELED` where they are hidden."""
        return np.where(self.shown, self.y, UNLABELED)


@dataclass(frozen=True)
class TrialStream:
    """A sequence of batches, and test points."""

    batches: tuple[TrialBatch, ...]
    X_test: Array
    y_test: NDArray[np.int64]

    def alone(self, number: int) -> TrialBatch:
        """Return one batch."""
        return self.batches[number]

    def so_far(self, last: int) -> TrialBatch:
        """Return batches 0 to ``last`` as one."""
        parts = self.batches[: last + 1]
        return TrialBatch(
            np.concatenate([part.X for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.shown for part in parts]),
        )


CATEGORIES = 5
SPARSE_VARIABLES, DENSE_VARIABLES, INFORMATIVE_VARIABLES = 100, 50, 50
# Difference between the classes in the probability of 0 of an informative variable.
DIFFERENCE = 0.12


def categorical_stream(
    seed: tuple[int, ...], n_batches: int = 30, n_test: int = 1000
) -> TrialStream:
    """Simulation 1: 200 categorical variables, fully labeled, batches of 97 to 103 rows.

    Each variable takes values 0 to 4, read as counts. The probability of 0 is uniform in [.9, .99]
    for 100 variables and in [.5, .8] for the other 100. For the last 50 it differs between the
    classes: by +.06 in one class and -.06 in the other, chosen at random for each variable. The
    remaining probability is divided among the other values by a Dirichlet(1) draw, the same in both
    classes. Classes are equally likely. Each seed has its own distributions.
    """
    rng = np.random.default_rng(seed)
    zero = np.concatenate([
        rng.uniform(0.9, 0.99, SPARSE_VARIABLES),
        rng.uniform(0.5, 0.8, DENSE_VARIABLES + INFORMATIVE_VARIABLES),
    ])  # fmt: skip
    rest = rng.dirichlet(np.ones(CATEGORIES - 1), zero.size)
    shift = np.zeros(zero.size)
    shift[-INFORMATIVE_VARIABLES:] = rng.choice([-0.5, 0.5], INFORMATIVE_VARIABLES) * DIFFERENCE
    tables = []
    for sign in (-1.0, 1.0):
        of_zero = (zero + sign * shift)[:, None]
        tables.append(np.cumsum(np.hstack([of_zero, (1.0 - of_zero) * rest]), axis=1))

    def draw(n: int) -> tuple[Array, NDArray[np.int64]]:
        y = rng.integers(0, 2, n)
        uniform = rng.random((n, zero.size))
        cumulative = np.stack(tables)[y]
        return (uniform[:, :, None] > cumulative[:, :, :-1]).sum(axis=2).astype(float), y

    batches = []
    for _ in range(n_batches):
        X, y = draw(int(rng.integers(97, 104)))
        batches.append(TrialBatch(X, y, np.ones(y.size, dtype=bool)))
    return TrialStream(tuple(batches), *draw(n_test))


def sphere_stream(
    seed: tuple[int, ...],
    n_batches: int = 30,
    n_test: int = 1000,
    *,
    size: int = 100,
    labels: int = 10,
) -> TrialStream:
    """Simulation 2: a ball inside a shell, one label in ten.

    Directions are uniform on the sphere in three dimensions. Radii are uniform in [0, .55] in one
    class and in [.45, 1] in the other. Classes are equally likely. In every batch ``labels`` random
    rows are labeled; the first two of them are of different classes.
    """
    rng = np.random.default_rng(seed)

    def draw(n: int) -> tuple[Array, NDArray[np.int64]]:
        y = rng.integers(0, 2, n)
        direction = rng.normal(size=(n, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        radius = np.where(y == 0, rng.uniform(0.0, 0.55, n), rng.uniform(0.45, 1.0, n))
        return direction * radius[:, None], y

    batches = []
    for _ in range(n_batches):
        X, y = draw(size)
        order = rng.permutation(size)
        first_of_each = [order[y[order] == label][0] for label in (0, 1) if (y == label).any()]
        chosen = list(dict.fromkeys([*first_of_each, *order]))[:labels]
        shown = np.zeros(size, dtype=bool)
        shown[chosen] = True
        batches.append(TrialBatch(X, y, shown))
    return TrialStream(tuple(batches), *draw(n_test))


FILE, ARCHIVE = "isolet.npz", "isolet.zip"
# Features are published with four decimals: as integers times 1e-4 they are exact and compact.
UNIT = 1e-4
HASHES = {
    "X_train": "8b28ebb5a833a4b41d442dbf7c068ec1b084724d03fda9735e252361c3d7897f",
    "y_train": "955fb1ae1e3fbb2d2c36cfd4d2a2f7ebd1984b27418c7b1e6aa75773a11bfed1",
    "X_test": "9bbb0deea69e8057bdab5639d85bc9cc77f237e690eadb7129a8a0090a25236c",
    "y_test": "954ba5405de8f04f53c4f60b274ff8070bff3a1e1797408e8583da2b20baf9e1",
}
TYPES = {"X_train": np.int16, "y_train": np.int8, "X_test": np.int16, "y_test": np.int8}
UCI_ARCHIVE = "https://archive.ics.uci.edu/static/public/54/isolet.zip"
N_SPEAKERS, SPEAKERS_PER_BATCH, ROWS_PER_SPEAKER = 120, 5, 52
N_TEST_SPEAKERS, N_VALIDATION_SPEAKERS = 30, 30
# Three of the 150 speakers lack one recording, the last of them among the 30 test speakers.
SHORT_SPEAKERS = (102, 114, 123)
LAST_LETTER_OF_FIRST_HALF = 13


class NoDataError(Exception):
    """ISOLET was not found and could not be downloaded."""


def cache_folder() -> Path:
    """Return the user's cache folder for downloads."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "seqmed"


def load_isolet(data_dir: Path | None = None, *, download: bool = True) -> dict[str, NDArray[Any]]:
    """Return X_train, y_train, X_test, y_test as published, X in units of 1e-4.

    The function looks for the file `isolet.npz` or the archive of UCI in ``data_dir``, in the
    folder SEQMED_DATA and in the cache of the user. If neither is found, the archive is downloaded
    to the cache. Raises `NoDataError` if the download fails, and ValueError if the data are not
    ISOLET in its original order.
    """
    folders = [data_dir, os.environ.get("SEQMED_DATA"), cache_folder()]
    for folder in folders:
        for name in (FILE, ARCHIVE):
            path = Path(folder or "") / name
            if folder and path.is_file():
                return verified(read_arrays(path), str(path))
    if not download:
        raise NoDataError(f"no {FILE} in any of: {', '.join(str(f) for f in folders if f)}")
    try:
        arrays = verified(from_uci(), "the download from UCI")
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise NoDataError(f"UCI: {error}") from error
    store(arrays, cache_folder() / FILE)
    return arrays


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays in `isolet.npz` or in the archive of UCI; ValueError if it is damaged."""
    try:
        if path.name == ARCHIVE:
            return from_archive(path.read_bytes())
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in HASHES if name in archive}
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be read ({error}): remove the file, and download it again."
        ) from error


def verified(arrays: dict[str, NDArray[Any]], origin: str) -> dict[str, NDArray[Any]]:
    """Return the arrays if they are ISOLET in its original order; refuse others."""
    for name, expected in HASHES.items():
        if name not in arrays:
            raise ValueError(
                f"{origin} has no array {name}, expected {sorted(HASHES)}: download it again."
            )
        found = hashlib.sha256(np.ascontiguousarray(arrays[name]).tobytes()).hexdigest()
        if found != expected or arrays[name].dtype != TYPES[name]:
            raise ValueError(
                f"{origin}: {name} differs from the published ISOLET (sha256 {found[:12]}..., "
                f"expected {expected[:12]}...), or is in another order: remove the file, and "
                "download it again."
            )
    return {name: arrays[name] for name in HASHES}


def from_uci() -> dict[str, NDArray[Any]]:
    """Download the archive of UCI and return its arrays."""
    with urllib.request.urlopen(UCI_ARCHIVE, timeout=30) as response:
        return from_archive(response.read())


def from_archive(content: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays in the archive of UCI, which holds two compressed texts."""
    from unlzw3 import unlzw

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        X_train, y_train = parse_text(unlzw(archive.read("isolet1+2+3+4.data.Z")).decode("ascii"))
        X_test, y_test = parse_text(unlzw(archive.read("isolet5.data.Z")).decode("ascii"))
    return {"X_train": X_train, "y_train": y_train, "X_test": X_test, "y_test": y_test}


def parse_text(text: str) -> tuple[NDArray[np.int16], NDArray[np.int8]]:
    """Return features in units of 1e-4 and labels 1 to 26 from comma-separated text."""
    values = np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2)
    return np.rint(values[:, :-1] / UNIT).astype(np.int16), values[:, -1].astype(np.int8)


def store(arrays: dict[str, NDArray[Any]], path: Path) -> None:
    """Write the arrays to a file, completely or not at all."""
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    write_file(path, content.getvalue())


def write_file(path: Path, content: bytes) -> None:
    """Write a file, completely or not at all; its folder is made if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def speakers() -> NDArray[np.int64]:
    """Return the speaker of every row, training rows (0 to 119) and then test rows (to 149)."""
    rows = np.full(N_SPEAKERS + N_TEST_SPEAKERS, ROWS_PER_SPEAKER)
    rows[list(SHORT_SPEAKERS)] -= 1
    return np.repeat(np.arange(rows.size), rows)


def stream_of_speakers(
    arrays: dict[str, NDArray[Any]], learned: NDArray[Any], tested: NDArray[Any]
) -> TrialStream:
    """Return batches of five speakers in the given order; the first of each batch is labeled.

    The classes are the letters A to M (0) and N to Z (1). The order of letters differs between
    files, so rows are split by speaker.
    """
    X: Array = np.concatenate([arrays["X_train"], arrays["X_test"]]) * UNIT
    letters = np.concatenate([arrays["y_train"], arrays["y_test"]])
    y = (letters > LAST_LETTER_OF_FIRST_HALF).astype(np.int64)
    speaker = speakers()
    batches = []
    for first in range(0, learned.size, SPEAKERS_PER_BATCH):
        group = learned[first : first + SPEAKERS_PER_BATCH]
        rows = np.concatenate([np.flatnonzero(speaker == one) for one in group])
        batches.append(TrialBatch(X[rows], y[rows], speaker[rows] == group[0]))
    rows = np.isin(speaker, tested)
    return TrialStream(tuple(batches), X[rows], y[rows])


def isolet_stream(arrays: dict[str, NDArray[Any]]) -> TrialStream:
    """Experiment 3: 24 batches in the original order, tested on the 30 speakers of isolet5."""
    return stream_of_speakers(
        arrays, np.arange(N_SPEAKERS), np.arange(N_SPEAKERS, N_SPEAKERS + N_TEST_SPEAKERS)
    )


def isolet_validation_stream(arrays: dict[str, NDArray[Any]]) -> TrialStream:
    """Validation: 18 batches in the original order, tested on the 30 speakers of isolet4."""
    first_held_out = N_SPEAKERS - N_VALIDATION_SPEAKERS
    return stream_of_speakers(
        arrays, np.arange(first_held_out), np.arange(first_held_out, N_SPEAKERS)
    )


def isolet_random_stream(arrays: dict[str, NDArray[Any]], seed: tuple[int, ...]) -> TrialStream:
    """All 150 speakers in random order: 24 batches, and 30 speakers to test on.

    Parameters were chosen on the speakers of isolet4, so these are never test speakers.
    """
    order = np.random.default_rng(seed).permutation(N_SPEAKERS + N_TEST_SPEAKERS)
    choosing = (order >= N_SPEAKERS - N_VALIDATION_SPEAKERS) & (order < N_SPEAKERS)
    tested = order[~choosing][-N_TEST_SPEAKERS:]
    return stream_of_speakers(arrays, order[~np.isin(order, tested)], tested)
