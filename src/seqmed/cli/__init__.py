"""The command line: one file per command, thin."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the `seqmed` command."""
    try:
        import rich  # noqa: F401
        import typer
    except ImportError as error:
        sys.exit(f"seqmed: {error}; install the command line with: pip install 'seqmed[cli]'")

    from seqmed.cli.reproduce import reproduce

    app = typer.Typer(
        help="Classifiers that learn from a stream when most of the data has no labels.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(lambda: None)  # keeps `reproduce` a command of its own while it is the only one
    app.command()(reproduce)
    app()
