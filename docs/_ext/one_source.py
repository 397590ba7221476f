"""Texts outside docs/, shown on a page of the site: README.md, RESULTS.md, CHANGELOG.md and others.

A page includes such a text with a comment, which programs that read Markdown do not show:

    <!-- include: ../CHANGELOG.md -->
    <!-- include: ../README.md, after "# seqmed", before "## Where to go" -->

Links to these texts lead to the page, from all pages. Links to scripts of the gallery lead to their
page. Other links that leave docs/ become downloads.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GALLERY = ROOT / "examples" / "gallery"
PAGES = {
    "README.md": "index.md",
    "RESULTS.md": "results.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "LICENSE": "project/licence.md",
    "SECURITY.md": "project/security.md",
}
INCLUDE = re.compile(r'^<!-- include: (\S+?)(?:, after "(.*?)")?(?:, before "(.*?)")? -->$', re.M)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CODE = re.compile(r"^```.*?^```$", re.M | re.S)


def moved(target: str, source: Path, page: Path) -> str:
    """Return the target of a link in a source, as it is on a page of the site."""
    path, mark, anchor = target.partition("#")
    if not path or "://" in target or target.startswith("mailto:"):
        return target
    found = Path(os.path.normpath(source / path))
    if found.is_relative_to(ROOT) and str(found.relative_to(ROOT)) in PAGES:
        found = DOCS / PAGES[str(found.relative_to(ROOT))]
    elif found.parent == GALLERY:
        found = DOCS / "gallery" / f"{found.stem}.rst"
    return os.path.relpath(found, page) + mark + anchor


def with_links(text: str, source: Path, page: Path) -> str:
    """Return a text of the source folder with the links of the folder of the page."""

    def replaced(part: str) -> str:
        return LINK.sub(lambda m: m[1] + moved(m[2], source, page) + m[3], part)

    shown, end = [], 0
    for block in CODE.finditer(text):  # code stays as it is
        shown += [replaced(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*shown, replaced(text[end:])])


def read(app: Any, name: str, content: list[str]) -> None:
    """Include the texts of a page."""
    if Path(app.env.doc2path(name)).suffix != ".md":
        return
    folder = (DOCS / name).parent

    def included(match: re.Match[str]) -> str:
        path, after, before = match.groups()
        source = Path(os.path.normpath(folder / path))
        app.env.note_dependency(str(source))
        text = source.read_text()
        if after:
            text = text.partition(f"{after}\n")[2]
        if before:
            text = text.partition(f"\n{before}\n")[0]
        if not text:
            raise ValueError(f"{name}: {path} has no such part: {match[0]}")
        return with_links(text, source.parent, folder)

    own = with_links(content[0], folder, folder)
    content[0] = INCLUDE.sub(included, own)


def setup(app: Any) -> dict[str, bool]:
    """Read the sources of pages by `read`."""
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
