"""The command line: one file per command.

Commands import numpy, scikit-learn and the estimators inside their functions, so that help and
completion are fast.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from inspect import Signature, signature
from typing import Any

HELP = "Classifiers that learn from a stream when most of the data has no labels."


def main() -> None:
    """Run the `seqmed` command."""
    import typer

    from seqmed.cli.evaluate import evaluate_command
    from seqmed.cli.inspect import inspect_command
    from seqmed.cli.label import label_command
    from seqmed.cli.learn import learn_command
    from seqmed.cli.options import before_commands, with_option_groups
    from seqmed.cli.predict import predict_command
    from seqmed.cli.query import query_command
    from seqmed.cli.terminal import (
        EXIT_CODES,
        Command,
        Commands,
        end_by_exception,
        prepare,
        reported_errors,
    )

    app = typer.Typer(
        name="seqmed", help=HELP, epilog=EXIT_CODES, no_args_is_help=True,
        pretty_exceptions_enable=False, callback=before_commands, cls=Commands,
        rich_markup_mode="markdown",  # joins the lines of a paragraph
    )  # fmt: skip
    commands: dict[str, Callable[..., None]] = {
        "learn": learn_command, "predict": predict_command, "evaluate": evaluate_command,
        "inspect": inspect_command, "query": query_command, "label": label_command,
    }  # fmt: skip
    for name, command in commands.items():
        named = app.command(name, no_args_is_help=True, cls=Command)
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
    from seqmed.cli.terminal import keep_handlers, reported_errors

    @functools.wraps(command)
    def run(**given: Any) -> None:
        messages = options.take_group(options.MessageOptions, given)
        keep_handlers()
        with reported_errors(messages.debug):
            terminal.set_messages(verbose=messages.verbose, quiet=messages.quiet)
            command(**given)

    own = signature(run).parameters.values()
    added = options.options_of(options.MessageOptions)
    run.__signature__ = Signature([*own, *added])  # type: ignore[attr-defined]
    return run
