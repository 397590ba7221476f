"""Options of commands that read DATA."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from seqmed.cli.options import option

if TYPE_CHECKING:
    from seqmed.streams import Dialect

Format = Literal["csv", "tsv", "jsonl", "parquet", "feather"]

text = partial(option, rich_help_panel="Text files")


@dataclass(frozen=True)
class Reading:
    """How DATA is read; see the parameters of `seqmed.streams.Stream`."""

    file_format: Format | None = option(
        "--format", help="Format of DATA (default: inferred from the file names)."
    )
    on_error: Literal["stop", "skip"] = option(
        "--on-error", default="stop", help="Stop at a bad row, or skip and count it."
    )
    sep: str | None = text(
        "--sep", metavar="CHAR", help="Character between fields (default: detected)."
    )
    decimal: str | None = text(
        metavar="CHAR", help="Decimal separator, . or , (default: detected)."
    )
    thousands: str | None = text(metavar="CHAR", help="Thousands separator (default: detected).")
    encoding: str | None = text(metavar="NAME", help="Encoding, such as cp1252 (default: utf-8).")

    def __post_init__(self) -> None:
        _ = self.dialect  # refuse wrong values

    @cached_property
    def dialect(self) -> Dialect:
        """How texts are written."""
        from seqmed.streams import Dialect

        return Dialect(self.sep, self.decimal, self.thousands, self.encoding)

    def arguments(self, dialect: Dialect | None = None) -> dict[str, Any]:
        """Return arguments for a `Stream`.

        ``dialect`` is that of the model, which the options override.
        """
        from seqmed.cli import terminal

        return {
            "file_format": self.file_format,
            "on_error": self.on_error,
            "dialect": self.dialect if dialect is None else self.dialect.over(dialect),
            "tell": terminal.tell,
        }
