"""`seqmed inspect`: what a model is and what it has seen."""

from __future__ import annotations

from seqmed.cli import options
from seqmed.cli.errors import for_people


def inspect(
    model: options.Model, as_json: options.Json = False, debug: options.Debug = False
) -> None:
    """Show what a model is, what it has seen, and what it takes."""
    with for_people(debug):
        from seqmed.cli import inspecting

        inspecting.inspect(model, as_json=as_json)
