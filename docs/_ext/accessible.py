"""Give names to parts of the theme that have none, for readers who hear the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Marks of the theme, and what takes their place.
NAMED = {
    '<summary><span class="toctree-toggle"': (
        '<summary aria-label="pages of this section"><span class="toctree-toggle"'
    ),
}


def name_parts(app: Any, error: Exception | None) -> None:
    """Rewrite the pages that were built."""
    if error or app.builder.name != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text()
        named = text
        for mark, other in NAMED.items():
            named = named.replace(mark, other)
        if named != text:
            page.write_text(named)


def setup(app: Any) -> dict[str, bool]:
    """Name the parts at the end of a build."""
    app.connect("build-finished", name_parts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
