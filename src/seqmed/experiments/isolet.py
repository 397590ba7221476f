"""ISOLET: spoken letters of 150 speakers, found on disk or downloaded, and verified.

The stream needs the original row order (speakers in groups of five), so the arrays' hashes are
checked, and data in any other order are refused.
"""

from __future__ import annotations

import hashlib
import io
import os
import urllib.error
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Callable
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
N_TRAIN = 6238
UCI_ARCHIVE = "https://archive.ics.uci.edu/static/public/54/isolet.zip"
OPENML_ID = 300
N_SPEAKERS, SPEAKERS_PER_BATCH, ROWS_PER_SPEAKER = 120, 5, 52
N_TEST_SPEAKERS, N_VALIDATION_SPEAKERS = 30, 30
# Three of the 150 speakers lack one recording, the last of them among the 30 test speakers.
SHORT_SPEAKERS = (102, 114, 123)
LAST_LETTER_OF_FIRST_HALF = 13

Progress = Callable[[int, int | None], None]
"""Called with (bytes received, bytes expected or None)."""


class NoDataError(Exception):
    """ISOLET could not be found or fetched."""


def cache_folder() -> Path:
    """Return the per-user folder in which downloads are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "seqmed"


def load_arrays(
    data_dir: Path | None = None, *, download: bool = True, progress: Progress | None = None
) -> dict[str, NDArray[Any]]:
    """Return X_train, y_train, X_test, y_test as published, X in units of 1e-4.

    Looks for our file or UCI's archive in ``data_dir``, in the folder named by SEQMED_DATA and in
    the per-user cache, and then downloads to that cache. Raises `NoDataError` if
    nothing is found, ValueError if what is found is not ISOLET in its original order.
    """
    folders = [data_dir, os.environ.get("SEQMED_DATA"), cache_folder()]
    for folder in folders:
        for name in (FILE, ARCHIVE):
            path = Path(folder or "") / name
            if folder and path.is_file():
                return verified(read_arrays(path), str(path))
    if not download:
        raise NoDataError(f"no {FILE} in any of: {', '.join(str(f) for f in folders if f)}")
    arrays = fetch_arrays(progress)
    store(arrays, cache_folder() / FILE)
    return arrays


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays in a file of ours or in UCI's archive; ValueError if it is damaged."""
    try:
        if path.name == ARCHIVE:
            return from_archive(path.read_bytes())
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in HASHES if name in archive}
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read ({error}): fetch it again.") from error


def verified(arrays: dict[str, NDArray[Any]], origin: str) -> dict[str, NDArray[Any]]:
    """Return the arrays if they are ISOLET, in order; say what differs if not."""
    for name, expected in HASHES.items():
        if name not in arrays:
            raise ValueError(f"{origin} has no array {name}, expected {sorted(HASHES)}.")
        found = hashlib.sha256(np.ascontiguousarray(arrays[name]).tobytes()).hexdigest()
        if found != expected or arrays[name].dtype != TYPES[name]:
            raise ValueError(
                f"{origin}: {name} differs from the published ISOLET (sha256 {found[:12]}..., "
                f"expected {expected[:12]}...). Speakers are told apart by the original row order, "
                "so data in another order cannot be used: remove the file and fetch it again."
            )
    return {name: arrays[name] for name in HASHES}


def fetch_arrays(progress: Progress | None) -> dict[str, NDArray[Any]]:
    """Download ISOLET from UCI, or else from OpenML."""
    failures = []
    for source, name in ((from_uci, "UCI"), (from_openml, "OpenML")):
        try:
            return verified(source(progress), f"the download from {name}")
        except (OSError, urllib.error.URLError, ValueError, zipfile.BadZipFile, KeyError) as error:
            failures.append(f"{name}: {error}")
    raise NoDataError("; ".join(failures))


def from_uci(progress: Progress | None) -> dict[str, NDArray[Any]]:
    """Return the arrays in UCI's archive of two compressed text files."""
    with urllib.request.urlopen(UCI_ARCHIVE, timeout=30) as response:
        length = response.headers.get("Content-Length")
        expected = int(length) if length else None
        received = io.BytesIO()
        while block := response.read(1 << 16):
            received.write(block)
            if progress:
                progress(received.tell(), expected)
    return from_archive(received.getvalue())


def from_archive(content: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays in the bytes of UCI's zip file."""
    from unlzw3 import unlzw

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        X_train, y_train = parse_text(unlzw(archive.read("isolet1+2+3+4.data.Z")).decode("ascii"))
        X_test, y_test = parse_text(unlzw(archive.read("isolet5.data.Z")).decode("ascii"))
    return {"X_train": X_train, "y_train": y_train, "X_test": X_test, "y_test": y_test}


def parse_text(text: str) -> tuple[NDArray[np.int16], NDArray[np.int8]]:
    """Return features in units of 1e-4 and labels 1 to 26 from comma-separated text."""
    values = np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2)
    return in_units(values[:, :-1]), values[:, -1].astype(np.int8)


def in_units(X: Any) -> NDArray[np.int16]:
    """Return features as integers in units of 1e-4."""
    return np.rint(np.asarray(X, dtype=np.float64) / UNIT).astype(np.int16)


def from_openml(progress: Progress | None) -> dict[str, NDArray[Any]]:
    """Return the arrays from OpenML; its row order is not documented, so the hashes decide."""
    from sklearn.datasets import fetch_openml

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of every retry; the failure itself is reported
        X, y = fetch_openml(
            data_id=OPENML_ID, return_X_y=True, as_frame=False, parser="liac-arff", n_retries=1
        )
    X, y = in_units(X), np.asarray(y).astype(float).astype(np.int8)
    return {
        "X_train": X[:N_TRAIN], "y_train": y[:N_TRAIN],
        "X_test": X[N_TRAIN:], "y_test": y[N_TRAIN:],
    }  # fmt: skip


def store(arrays: dict[str, NDArray[Any]], path: Path) -> None:
    """Write the arrays so that a reader sees all of the file or none of it."""
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
    """Return batches of five speakers in the order given, the first of each labeled.

    The letters A to M (0) against N to Z (1). Split by speaker, never by letter: in isolet3 and 4
    the letters come in another order than in the rest.
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
    """For choices: 18 batches in the original order, tested on the 30 speakers of isolet4."""
    first_held_out = N_SPEAKERS - N_VALIDATION_SPEAKERS
    return stream_of_speakers(
        arrays, np.arange(first_held_out), np.arange(first_held_out, N_SPEAKERS)
    )


def random_stream(arrays: dict[str, NDArray[Any]], seed: tuple[int, ...]) -> TrialStream:
    """All 150 speakers in random order: 24 batches, and 30 speakers to test on.

    The speakers of isolet4, on whom choices rest, are learned from and never tested on.
    """
    order = np.random.default_rng(seed).permutation(N_SPEAKERS + N_TEST_SPEAKERS)
    choosing = (order >= N_SPEAKERS - N_VALIDATION_SPEAKERS) & (order < N_SPEAKERS)
    tested = order[~choosing][-N_TEST_SPEAKERS:]
    return stream_of_speakers(arrays, order[~np.isin(order, tested)], tested)
