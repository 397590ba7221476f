"""Files of --plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqmed import plotting
from seqmed.cli.errors import naming_file
from seqmed.cli.existing_files import refuse_existing


def check_plot(path: Path, *, force: bool) -> None:
    """Refuse a plot that cannot be drawn or would overwrite a file."""
    refuse_existing(path, force=force)
    plotting.require_matplotlib()
    plotting.picture_format(path)


def save_plot(figure: Any, path: Path) -> None:
    """Save a figure of matplotlib."""
    with naming_file(path):
        plotting.save(figure, path)
