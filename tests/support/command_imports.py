"""What a process needs before it can run the command at once: imports, and compiled loops."""

import importlib
import pkgutil
import tempfile
from pathlib import Path

import numpy as np
import typer
from typer.testing import CliRunner

import seqmed
from seqmed import SeqGraphMED, SeqLapMED

NEVER = ("seqmed.__main__", "seqmed.adapters")  # a command, and packages that may be missing
for found in pkgutil.walk_packages(seqmed.__path__, "seqmed."):
    if not found.name.startswith(NEVER):
        importlib.import_module(found.name)

# Options are read and pages of help are written by packages that are imported when first needed.
options = typer.Typer(rich_markup_mode="markdown")


@options.command()
def count(number: int = 0) -> None:
    """Count."""


for arguments in (["--help"], ["--number", "1"]):
    CliRunner().invoke(options, arguments)

for model in (SeqLapMED(random_state=0), SeqGraphMED(random_state=0)):
    model.partial_fit(np.arange(12.0)[:, None], np.arange(12) % 3)
    model.predict_proba(np.arange(12.0)[:, None])
with tempfile.TemporaryDirectory() as folder:
    seqmed.save(model, Path(folder) / "model")
    seqmed.load(Path(folder) / "model")
