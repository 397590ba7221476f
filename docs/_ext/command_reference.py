"""Write the page of all options from the commands themselves, before Sphinx reads the sources."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from seqmed.cli import application

PAGE = "reference/generated/options.rst"
START = """Options of all commands
=======================

Made from the commands themselves: the same text as ``seqmed COMMAND --help``.
:doc:`/command-line` says what the commands do.
"""


def title(text: str, line: str) -> list[str]:
    """Return a heading of reStructuredText."""
    return ["", text, line * len(text), ""]


def usage(name: str, command: Any) -> str:
    """Return the usage in a line."""
    places = [each for each in command.params if each.param_type_name == "argument"]
    shown = [each.metavar + ("..." if each.nargs == -1 else "") for each in places]
    required = [each.required for each in places]
    words = [text if need else f"[{text}]" for text, need in zip(shown, required, strict=True)]
    return " ".join(["seqmed", name, *words, "[OPTIONS]"])


def entry(option: Any) -> list[str]:
    """Return an option with its value, its help and its default."""
    value = option.metavar if option.metavar is not None else kind(option)
    flags = ", ".join(f"{flag} {value}".strip() for flag in option.opts)
    text = option.help or ""
    if option.default not in (None, False) and "default" not in text:
        text += f" The default is ``{option.default}``."
    return [f".. option:: {flags}", "", f"   {literal(text)}", ""]


def kind(option: Any) -> str:
    """Return the type of the value in words."""
    hint = option.type_descriptor.annotation
    found = get_args(hint) if get_origin(hint) is Literal else (getattr(hint, "__name__", "value"),)
    return "|".join(map(str, found))


def literal(text: str) -> str:
    """Return a help text whose marks have no meaning in reStructuredText."""
    marked = text.replace("``", "\0").replace("*", r"\*").replace("|", r"\|").replace("`", "``")
    return marked.replace("\0", "``")


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    yield START
    group = typer.main.get_command(application())
    for name, command in group.commands.items():
        yield from title(f"seqmed {name}", "-")
        yield f".. program:: seqmed {name}\n"
        yield f".. code-block:: text\n\n   {usage(name, command)}\n"
        yield literal(inspect.cleandoc(command.help)) + "\n"
        options = [each for each in command.params if each.param_type_name == "option"]
        panels = dict.fromkeys(each.rich_help_panel for each in options)
        for panel in panels:
            if panel:
                yield f"**{panel}**\n"
            for each in options:
                if each.rich_help_panel == panel and not each.hidden:
                    yield from entry(each)


def write(app: Any) -> None:
    """Write the page if it has changed, so that Sphinx reads it only then."""
    page, text = Path(app.srcdir) / PAGE, "\n".join(lines())
    page.parent.mkdir(parents=True, exist_ok=True)
    if not page.is_file() or page.read_text() != text:
        page.write_text(text)


def setup(app: Any) -> dict[str, bool]:
    """Write the page at the start of a build."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
