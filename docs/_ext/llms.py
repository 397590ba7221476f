"""Write llms.txt: all pages of the site with their titles, for programs that read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

INTRODUCTION = """# seqmed

> Semi-supervised classifiers for streams in Python: data that arrives in batches and has few
> labels. The interface is that of scikit-learn, with `partial_fit`.

The source of every page is beside it in _sources/.
"""
# Folders with many pages, and the heading under which they are listed.
SECTIONS = {
    "guide": "How-to and explanation", "explanation": "How-to and explanation",
    "gallery": "Examples", "reference": "Reference", "decisions": "Design decisions",
    "project": "Project", "": "Pages",
}  # fmt: skip


def write(app: Any, error: Exception | None) -> None:
    """Write the list beside the pages."""
    if error or app.builder.name != "html":
        return
    pages: dict[str, list[str]] = {name: [] for name in dict.fromkeys(SECTIONS.values())}
    for name, title in sorted(app.env.titles.items()):
        folder = name.partition("/")[0] if "/" in name else ""
        pages[SECTIONS.get(folder, "Pages")].append(f"- [{title.astext()}]({name}.html)")
    parts = [f"## {section}\n\n" + "\n".join(found) for section, found in pages.items() if found]
    (Path(app.outdir) / "llms.txt").write_text("\n\n".join([INTRODUCTION.strip(), *parts]) + "\n")


def setup(app: Any) -> dict[str, bool]:
    """Write the list at the end of a build."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
