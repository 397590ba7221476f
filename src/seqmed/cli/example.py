"""`seqmed example`: small data sets, to try the other commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from seqmed.cli import options
from seqmed.cli.terminal import CommandError, naming_file, show, summarize

Name = Literal["orders", "pump", "spam"]

DESCRIPTIONS: dict[Name, str] = {
    "orders": "orders of a shop, kept or returned: decimal commas, dates, missing cells, an id",
    "pump": "sensors of a pump, normal or leaking: in time order, a change, late labels",
    "spam": "messages of five weeks, ham or spam: text",
}
# What `seqmed learn` needs to learn each of them: the files, and options.
FIRST: dict[Name, tuple[str, str]] = {
    "orders": ("orders.csv", "--label outcome --first-batch 200 --batch-size 200"),
    "pump": ("readings.csv", "--label state --first-batch 144 --batch-size 144"),
    "spam": ("week-*.csv", "--label kind --text body --first-batch 240 --batch-size 240"),
}


def example_command(
    name: Annotated[
        Name | None, typer.Argument(metavar="NAME", help="The data set; without it, list all.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder of the files (default: NAME).")
    ] = None,
    force: options.Force = False,
) -> None:
    """Write a small data set to try the other commands, or list the data sets.

    Most rows have no label, as in the streams that seqmed is made for. The data are invented.
    """
    if name is None:
        for each, description in DESCRIPTIONS.items():
            show(f"{each:<8}{description}")
        show("Write the files of one with seqmed example NAME DIR.")
        return
    folder = Path(name) if folder is None else folder
    files = write_example(name, folder, force=force)
    data, more = FIRST[name]
    summarize(f"{folder}: {', '.join(files)}")
    summarize(f"next: seqmed learn {name}.model {shlex.quote(str(folder))}/{data} {more}")


def write_example(name: Name, folder: Path, *, force: bool) -> list[str]:
    """Write the files of a data set into a folder, over no other file; return their names."""
    from importlib.resources import files

    from seqmed.cli.outputs import refuse_existing
    from seqmed.model_file.files import write_output

    source = files("seqmed") / "examples" / name
    contents = {each.name: each.read_bytes() for each in source.iterdir()}
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{folder} is a file, expected a folder: choose another name.")
    with naming_file(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(contents):
        refuse_existing(folder / file, force=force)
    for file in sorted(contents):
        with naming_file(folder / file):
            write_output(folder / file, [contents[file]])
    return sorted(contents)
