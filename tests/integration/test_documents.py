"""README.md and docs/: code blocks run, output is as shown, links and anchors exist."""

import re

import pytest

from tests.support.documents import BLOCK, LANGUAGES, PAGES, PROGRESS, ROOT, run_page

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```(python|console)$", re.MULTILINE)
RUN = [page for page in PAGES if CODE.search(page.read_text())]
# Measures that a seeded command reproduces on any machine, but for rounding.
MEASURES = ("accuracy", "balanced accuracy", "log loss")

REPLACED = {
    "anchor": "landmark", "anchors": "landmarks", "settled": "frozen", "heads": "machines",
    "pieces": "mini-batches", "doubt": "expected regret", "book": "class registry",
    "shares": "fractions", "nobody": "no row", "teach": "learn",
}  # fmt: skip


def words(text):
    """Return the text without numbers, progress and the width of its columns."""
    return NUMBER.sub("#", PROGRESS.sub("", text)).split()


def numbers(text):
    return [float(each.replace(",", "")) for each in NUMBER.findall(text)]


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run_and_print_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.setattr("seqmed.mixture.experts.N_TREES", 100)  # what users have
    results = run_page(page, tmp_path)
    for each in results:
        lines = each.shown.splitlines()
        refused = bool(lines) and re.match(r"seqmed: (?!warning)", lines[-1]) is not None
        assert each.failed == refused, each
        if not each.shown:  # the page leaves the output out
            continue
        assert words(each.found) == words(each.shown), each.command
        if each.command.startswith("seqmed"):
            for found, shown in zip(each.found.splitlines(), lines, strict=False):
                if shown.startswith(MEASURES):
                    assert numbers(found) == pytest.approx(numbers(shown), abs=2.0, rel=0.1)
        elif "\n" in each.command:  # a program
            assert numbers(each.found) == pytest.approx(numbers(each.shown), abs=0.05, rel=0.05)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_of_a_kind_that_runs_or_is_plain_text(page):
    for language, block in BLOCK.findall(page.read_text()):
        assert language in LANGUAGES
        if language == "text":
            assert not re.search(r"^(\$|import|from|seqmed) ", block, re.MULTILINE), block


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"])
def test_one_word_for_each_concept(page):
    """Words that docs/glossary.md replaces; code and output may still contain them."""
    prose = re.sub(r"`[^`]*`", "", BLOCK.sub("", page.read_text()))
    found = re.findall(rf"\b(?:{'|'.join(REPLACED)})\b", prose, re.IGNORECASE)
    assert not found, {word: REPLACED[word.lower()] for word in found}


def test_the_glossary_has_every_term_once_and_in_order():
    text = (ROOT / "docs" / "glossary.md").read_text()
    terms = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)[1:]
    assert terms == sorted(set(terms), key=str.lower)


def anchors(page):
    """Return the anchors of the headings of a page, as on GitHub."""
    text = BLOCK.sub("", page.read_text())
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "RESULTS.md"])
def test_links_lead_somewhere(page):
    for target in LINK.findall(BLOCK.sub("", page.read_text())):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path) if path else page
        assert linked.exists(), (page, target)
        if anchor:
            assert anchor in anchors(linked), (page, target)
