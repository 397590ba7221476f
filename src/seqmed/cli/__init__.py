"""The command line: one file per command.

Commands import numpy, scikit-learn and the estimators inside their functions, so that help and
completion are fast.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

HELP = "Classifiers that learn from a stream when most of the data has no labels."


def main() -> None:
    """Run the `seqmed` command."""
    import typer

    from seqmed.cli.errors import reported_errors
    from seqmed.cli.evaluate import evaluate
    from seqmed.cli.help import EXIT_CODES, Command, Commands
    from seqmed.cli.inspect import inspect
    from seqmed.cli.label import label
    from seqmed.cli.learn import learn
    from seqmed.cli.options import before_commands, with_option_groups
    from seqmed.cli.predict import predict
    from seqmed.cli.query import query
    from seqmed.cli.signals import end_by_exception
    from seqmed.cli.standard_streams import prepare

    app = typer.Typer(
        name="seqmed", help=HELP, epilog=EXIT_CODES, no_args_is_help=True,
        pretty_exceptions_enable=False, callback=before_commands, cls=Commands,
        rich_markup_mode="markdown",  # joins the lines of a paragraph
    )  # fmt: skip
    for command in (learn, predict, evaluate, inspect, query, label):
        named = app.command(no_args_is_help=True, cls=Command)
        named(with_common_options(with_option_groups(command)))
    prepare()
    end_by_exception()
    with reported_errors("--debug" in sys.argv):
        try:
            app()
        finally:
            sys.stdout.flush()


def with_common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options --verbose, --quiet and --debug.

    Errors are reported in one line, or with --debug in full.
    """
    from seqmed.cli import options, terminal
    from seqmed.cli.errors import reported_errors
    from seqmed.cli.signals import keep_handlers

    @functools.wraps(command)
    def run(**given: Any) -> None:
        messages = options.take_group(options.MessageOptions, given)
        keep_handlers()
        with reported_errors(messages.debug):
            terminal.set_messages(verbose=messages.verbose, quiet=messages.quiet)
            command(**given)

    return options.with_options(run, options.options_of(options.MessageOptions))
