"""ISOLET: spoken letters of 150 speakers, read from disk or downloaded, and verified.

Rows are assigned to speakers by their original order, so data with other hashes are refused.
"""

from __future__ import annotations

import hashlib
import io
import os
import urllib.request
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmed.arrays import Array
from seqmed.experiments.data import TrialBatch, TrialStream
from seqmed.model_file.files import replace_file

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


def load_arrays(data_dir: Path | None = None, *, download: bool = True) -> dict[str, NDArray[Any]]:
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
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, [content.getvalue()])


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


def validation_stream(arrays: dict[str, NDArray[Any]]) -> TrialStream:
    """Validation: 18 batches in the original order, tested on the 30 speakers of isolet4."""
    first_held_out = N_SPEAKERS - N_VALIDATION_SPEAKERS
    return stream_of_speakers(
        arrays, np.arange(first_held_out), np.arange(first_held_out, N_SPEAKERS)
    )


def random_stream(arrays: dict[str, NDArray[Any]], seed: tuple[int, ...]) -> TrialStream:
    """All 150 speakers in random order: 24 batches, and 30 speakers to test on.

    Parameters were chosen on the speakers of isolet4, so these are never test speakers.
    """
    order = np.random.default_rng(seed).permutation(N_SPEAKERS + N_TEST_SPEAKERS)
    choosing = (order >= N_SPEAKERS - N_VALIDATION_SPEAKERS) & (order < N_SPEAKERS)
    tested = order[~choosing][-N_TEST_SPEAKERS:]
    return stream_of_speakers(arrays, order[~np.isin(order, tested)], tested)
