"""A browser for tests of the labeling page and the site. `make test-browser` runs them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Chromium talks to the server of the test only.
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--force-device-scale-factor=1", "--window-size=1280,900",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    if os.environ.get("SEQMED_BROWSER"):
        return
    skip = pytest.mark.skip(reason="needs Chromium: run make test-browser")
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(skip)


@pytest.fixture
def new_browser(tmp_path_factory):
    """A function that starts a browser with an empty profile; all are ended after the test."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    started = []

    def start():
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ARGUMENTS:
            options.add_argument(argument)
        options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
        started.append(driver)
        return driver

    yield start
    for driver in started:
        driver.quit()


@pytest.fixture
def browser(new_browser):
    return new_browser()


@pytest.fixture
def screenshots(tmp_path):
    """The folder of screenshots: that of SEQMED_SCREENSHOTS, or a temporary one."""
    return Path(os.environ.get("SEQMED_SCREENSHOTS") or tmp_path)


@pytest.fixture
def axe():
    """The source of axe-core."""
    folder = os.environ.get("SEQMED_AXE")
    path = Path(folder or "/nowhere") / "node_modules/axe-core/axe.min.js"
    if not path.is_file():
        pytest.skip("axe-core was not installed: npm was not found")
    return path.read_text()
