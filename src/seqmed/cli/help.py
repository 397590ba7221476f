"""The help of commands: flags without a type, and exit codes."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

EXIT_CODES = (
    "Exit codes: 0 success, 1 a defect in seqmed, 2 refused (arguments, data, model or disk), "
    "130 interrupted, 141 the reader of the output has closed it."
)


def without_types_of_flags(parameters: list[Any]) -> list[Any]:
    """Return parameters of a command whose help shows no type of flags, which take no value."""
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters


class Command(TyperCommand):
    """A command whose help shows no type of flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        return without_types_of_flags(super().get_params(ctx))


class Commands(TyperGroup):
    """The group of all commands; its help shows no type of flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        return without_types_of_flags(super().get_params(ctx))
