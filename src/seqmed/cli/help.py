"""The help of commands: flags without a type, and exit codes."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

EXIT_CODES = (
    "Exit codes: 0 success, 1 a defect in seqmed, 2 refused (arguments, data, model or disk), "
    "130 interrupted, 141 the reader of the output has closed it."
)


class WithoutTypesOfFlags:
    """A command whose help shows no type of flags, which take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in parameters:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return parameters


class Command(WithoutTypesOfFlags, TyperCommand):
    """A command."""


class Commands(WithoutTypesOfFlags, TyperGroup):
    """The group of all commands."""
