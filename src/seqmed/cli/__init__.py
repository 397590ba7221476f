"""The command line: one file per command.

Commands import numpy, scikit-learn and the estimators inside their functions, so that help and
completion are fast.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer

HELP = "Classifiers that learn from a stream when most of the data has no labels."


def application() -> Typer:
    """Return the `seqmed` command with all its commands."""
    import typer

    from seqmed.cli.evaluate import evaluate_command
    from seqmed.cli.example import example_command
    from seqmed.cli.explain import explain_command
    from seqmed.cli.inspect import inspect_command
    from seqmed.cli.label import label_command
    from seqmed.cli.learn import learn_command
    from seqmed.cli.options import before_commands, with_option_groups
    from seqmed.cli.predict import predict_command
    from seqmed.cli.query import query_command
    from seqmed.cli.terminal import EXIT_CODES

    app = typer.Typer(
        name="seqmed", help=HELP, epilog=EXIT_CODES, no_args_is_help=True,
        pretty_exceptions_enable=False, callback=before_commands,
        rich_markup_mode="markdown",  # joins the lines of a paragraph
    )  # fmt: skip
    commands: dict[str, Callable[..., None]] = {
        "learn": learn_command, "predict": predict_command, "evaluate": evaluate_command,
        "explain": explain_command, "inspect": inspect_command, "query": query_command,
        "label": label_command, "example": example_command,
    }  # fmt: skip
    for name, command in commands.items():
        alone = command is example_command  # lists the data sets
        app.command(name, no_args_is_help=not alone)(with_option_groups(command))
    return app


def main() -> None:
    """Run the `seqmed` command."""
    from seqmed.cli.terminal import end_by_exception, reported_errors

    app = application()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names may be no text
    end_by_exception()
    with reported_errors("--debug" in sys.argv):
        try:
            app()
        finally:
            sys.stdout.flush()
