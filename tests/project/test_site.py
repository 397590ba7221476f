"""The documentation site: its pages are complete, and the built site has no broken link."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest

import seqmed
from seqmed import kernels, model_file, plotting, streams
from tests.support.documents import ROOT

DOCS, SITE = ROOT / "docs", ROOT / "build" / "site"
REFERENCE = (DOCS / "reference" / "api.rst").read_text()
LISTED = re.findall(r"^   (seqmed\.[\w.]+)$", REFERENCE, re.MULTILINE)
built = pytest.mark.skipif(
    not (SITE / "index.html").is_file(), reason="there is no site: run make docs"
)


def public_names():
    """Return the public names of the package: those of its public modules, and what they give."""
    yield from (f"seqmed.{name}" for name in seqmed.__all__ if name != "__version__")
    for module in (plotting, streams):
        things = {name: getattr(module, name) for name in module.__all__}
        yield from (f"{module.__name__}.{name}" for name, each in things.items() if callable(each))
    for kernel in ("Kernel", "RBF", "Linear", "Polynomial", "TfIdf"):
        assert hasattr(kernels, kernel)
        yield f"seqmed.kernels.{kernel}"
    for name in ("load_with_extra", "read", "Contents", "ModelFileError"):
        assert hasattr(model_file, name)
        yield f"seqmed.model_file.{name}"


def test_every_public_name_has_a_page_and_exists():
    assert len(LISTED) == len(set(LISTED))
    assert set(public_names()) <= set(LISTED)
    for name in LISTED:
        module, _, attribute = name.rpartition(".")
        if module == "seqmed.adapters.capymoa":  # needs Java
            source = (ROOT / "src" / "seqmed" / "adapters" / "capymoa.py").read_text()
            assert f"class {attribute}" in source
            continue
        thing = getattr(importlib.import_module(module), attribute)
        assert inspect.getdoc(thing), name


def test_the_table_of_estimators_is_that_of_the_code():
    """The program tries what every estimator can do."""
    result = subprocess.run(
        [sys.executable, "docs/capabilities.py", "--check"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def test_capabilities_that_are_taken_away_are_seen():
    """A trial would otherwise say yes whatever an estimator does."""
    spec = importlib.util.spec_from_file_location("capabilities", DOCS / "capabilities.py")
    capabilities = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(capabilities)

    class Constant(seqmed.SeqMED):
        def predict(self, X):
            return np.full(len(X), self.classes_[0])

        def predict_proba(self, X):
            return super().predict_proba(X) * 0.0 + 0.5

    can = {
        text for text, what in capabilities.CAPABILITIES.items() if capabilities.can(what, Constant)
    }
    assert can <= {
        "chooses rows to label (`query`)", "standard deviation of scores (`decision_std`)",
    }  # fmt: skip


def test_every_script_of_the_gallery_asks_a_question_and_has_a_place():
    order = re.search(r"ORDER = \[(.*?)\]", (DOCS / "conf.py").read_text(), re.DOTALL)[1]
    scripts = sorted((ROOT / "examples" / "gallery").glob("*.py"))
    assert sorted(re.findall(r'"(plot_\w+\.py)"', order)) == [each.name for each in scripts]
    assert len(scripts) >= 10
    for script in scripts:
        text = script.read_text()
        assert text.splitlines()[1].endswith("?"), script
        used = set(re.findall(r"^from (seqmed[\w.]*) import", text, re.MULTILINE))
        assert used <= {"seqmed", "seqmed.streams"}, "public names only"
        assert "plt.subplots" in text, "every example has a figure"


class Links(HTMLParser):
    """Links, anchors and loaded files of a page."""

    def __init__(self):
        super().__init__()
        self.links, self.anchors, self.loaded = [], set(), []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "link" and found.get("rel") not in ("canonical",) and found.get("href"):
            self.loaded.append(found["href"])
        self.loaded += [found[name] for name in ("src", "srcset") if found.get(name)]


def pages():
    found = {}
    for path in sorted(SITE.rglob("*.html")):
        if "_static" not in path.parts:
            found[path] = Links()
            found[path].feed(path.read_text())
    return found


@built
def test_no_link_of_the_site_is_broken_and_nothing_is_loaded_from_elsewhere():
    found = pages()
    assert len(found) > 100
    for page, parsed in found.items():
        for target in parsed.loaded:
            assert not urlsplit(target).netloc, (page, target)
        for target in parsed.links + parsed.loaded:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            linked = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert linked.exists(), (page, target)
            if parts.fragment and linked in found:
                assert unquote(parts.fragment) in found[linked].anchors, (page, target)


@built
def test_styles_and_scripts_load_nothing_from_elsewhere():
    for path in (SITE / "_static").rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", path.read_text()), path


@built
def test_every_public_name_has_a_built_page_and_the_commands_too():
    for name in LISTED:
        assert (SITE / "reference" / "generated" / f"{name}.html").is_file(), name
    options = (SITE / "reference" / "generated" / "options.html").read_text()
    for text in ("--label", "--threshold", "--on-error", "--class-prior", "seqmed example"):
        assert text in options
    assert "--on-error stop|skip" in re.sub(r"<[^>]+>", "", options)
    assert "bound method" not in options
    page = (SITE / "reference" / "generated" / "seqmed.SeqGraphMED.html").read_text()
    assert "Examples that use it" in page
    assert "gallery/plot_digits.html" in page


@built
def test_llms_txt_lists_every_page():
    text = (SITE / "llms.txt").read_text()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (SITE / target).is_file(), target
    assert "guide/late-labels.html" in text
    assert "reference/generated/seqmed.SeqGraphMED.html" in text
