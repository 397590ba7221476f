"""The documentation site in a real browser: it needs `make docs` first."""

from __future__ import annotations

import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.page import PATIENCE, serious

SITE = Path(__file__).parents[2] / "build" / "site"
pytestmark = pytest.mark.skipif(
    not (SITE / "index.html").is_file(), reason="there is no site: run make docs"
)
PAGES = (
    "index", "start", "gallery/index", "gallery/plot_digits", "guide/tables", "explanation/idea",
    "explanation/mathematics", "reference/api", "reference/generated/seqmed.SeqGraphMED",
    "reference/generated/options", "estimators", "measurements", "faq", "project/changelog",
)  # fmt: skip
# What a reader looks for, and pages that must be among the first ten found.
SEARCHES = {
    "late labels": "guide/late-labels.html",
    "class_prior": "guide/few-labels.html",
    "resume": "command-line.html",
}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address():
    """The address of the site on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def show(browser, place, width=1280, scheme="light"):
    """Open a page at a width and in a colour scheme, without animations."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(place)


def until(condition):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def severe(browser):
    """Return the errors in the console."""
    return [each["message"] for each in browser.get_log("browser") if each["level"] == "SEVERE"]


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_no_serious_defect_and_fit_the_width(address, browser, axe, page):
    for width, scheme in ((1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")):
        show(browser, f"{address}/{page}.html", width, scheme)
        theme = f"return document.documentElement.dataset.theme === '{scheme}'"
        until(partial(browser.execute_script, theme))  # a script of the theme sets it
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, (page, width)
        assert serious(browser, axe) == [], (page, width, scheme)
    assert severe(browser) == []


@pytest.mark.parametrize("words", SEARCHES)
def test_search_finds(address, browser, words):
    show(browser, f"{address}/search.html?q={words.replace(' ', '+')}")
    found = "return [...document.querySelectorAll('#search-results li a')].map((a) => a.href)"
    until(lambda: SEARCHES[words] in " ".join(browser.execute_script(found)[:10]))


def test_search_by_keyboard_from_a_folder(browser):
    """Without a server, as when somebody opens index.html."""
    show(browser, (SITE / "index.html").as_uri())
    ActionChains(browser).key_down(Keys.CONTROL).send_keys("k").key_up(Keys.CONTROL).perform()
    until(lambda: browser.execute_script("return document.activeElement.type") == "search")
    ActionChains(browser).send_keys("retract" + Keys.ENTER).perform()
    found = "return [...document.querySelectorAll('#search-results li a')].map((a) => a.href)"
    until(lambda: "late-labels.html" in " ".join(browser.execute_script(found)))


def test_the_first_page_by_keyboard(address, browser):
    """The first Tab offers to skip the navigation; all links of the header can be reached."""
    show(browser, f"{address}/index.html")
    reached = []
    for _ in range(14):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        reached.append(browser.execute_script("return document.activeElement.textContent.trim()"))
    assert reached[0] == "Skip to main content"
    for name in ("Start", "Examples", "How-to guides", "Reference", "Questions"):
        assert name in reached
    outline = browser.execute_script(
        "const s = getComputedStyle(document.activeElement);"
        "return s.outlineStyle !== 'none' || s.boxShadow !== 'none'"
    )
    assert outline, "the focus cannot be seen"


def test_code_has_a_button_that_copies_it(address, browser):
    show(browser, f"{address}/start.html")
    assert browser.execute_script("return document.querySelectorAll('button.copybtn').length") > 0
