"""The labeling page, by keyboard."""

from __future__ import annotations

import re
import time

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

PATIENCE = 60.0  # seconds, after which a page that hangs fails its test


class Page:
    """The page in a browser, used by keyboard alone."""

    def __init__(self, driver, address, name="Ada"):
        self.driver, self.name = driver, name
        self.open(address)

    def open(self, address):
        """Open the page and join."""
        self.driver.get(address)
        self.until(lambda: self.script("return document.getElementById('join').open"))
        self.keys(self.name + Keys.ENTER)  # a suggested name is selected, and replaced
        self.until(lambda: self.row is not None or self.shown("finished"))

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def keys(self, *keys):
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def until(self, condition):
        end = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < end, f"nothing happened: {self.text('alert')}"
            time.sleep(0.01)
        return found

    def text(self, name):
        return self.script("return document.getElementById(arguments[0]).textContent", name)

    def shown(self, name):
        return self.script("return !document.getElementById(arguments[0]).hidden", name)

    @property
    def row(self):
        """The number of the row on the card, None without a card."""
        if not self.shown("card"):
            return None
        found = re.match(r"Row ([\d,]+) of", self.text("card-title"))
        return int(found[1].replace(",", "")) if found else None

    @property
    def classes(self):
        return self.script(
            "return [...document.querySelectorAll('#classes button')].map((b) => b.dataset.label)"
        )

    def has_focus(self, name):
        return self.script("return document.activeElement.id === arguments[0]", name)

    def find(self, text):
        """Type into the filter of classes; return the classes that are found."""
        self.keys("/")
        self.until(lambda: self.has_focus("filter"))
        self.keys(text)
        return self.classes

    def label(self, name, *, wait=True):
        """Label the card with a class that the page knows; return its row."""
        row, key = self.row, self.classes.index(name)
        assert key < 10
        self.keys(str((key + 1) % 10))
        if wait:
            self.confirmed(f"Saved: row {row} is {name}.")
        return row

    def confirmed(self, text):
        self.until(lambda: self.text("said") == text)
        self.until(lambda: self.row is not None)

    def click(self, selector):
        """Click an element; once more if the page replaced it meanwhile."""
        try:
            self.driver.find_element("css selector", selector).click()
        except StaleElementReferenceException:
            self.driver.find_element("css selector", selector).click()

    def says(self, start):
        self.until(lambda: self.text("said").startswith(start))

    def alarms(self):
        self.until(lambda: self.shown("alert"))

    def add_class(self, name):
        row = self.row
        self.keys("n")
        self.until(lambda: self.script("return document.getElementById('new').open"))
        self.keys(name + Keys.ENTER)
        self.confirmed(f"Saved: row {row} is {name}.")
        return row

    def undo(self):
        self.keys("u")
        self.until(lambda: self.text("said").startswith("Undone: "))
        self.until(lambda: self.row is not None)

    def tab_to(self, condition):
        """Press Tab until the focused element fulfils a condition, a JavaScript expression of e."""
        for _ in range(200):
            if self.script(f"const e = document.activeElement; return Boolean({condition})"):
                return
            self.keys(Keys.TAB)
        raise AssertionError(f"no element with {condition} can be reached by Tab")

    def edit(self, row):
        """Open a row in the history; return to the card with `back`."""
        self.keys("h")
        self.until(lambda: self.script("return document.querySelector('#history li') !== null"))
        self.tab_to(f"e.dataset.row && e.dataset.row.startsWith('{row} ')")
        self.keys(Keys.ENTER)
        self.until(lambda: self.script("return document.getElementById('edit').open"))

    def choose(self, condition):
        self.tab_to(condition)
        self.keys(Keys.ENTER)
        self.until(lambda: not self.script("return document.getElementById('edit').open"))

    def back(self):
        self.keys("l")
        self.until(lambda: self.shown("view-label"))

    @property
    def errors(self):
        """Errors in the console of the browser, also violations of the security policy."""
        return [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


def serious(driver, axe):
    """Return the serious defects that axe-core finds in the page as it is now."""
    driver.execute_script(axe)
    driver.set_script_timeout(PATIENCE)  # long pages take axe a while
    found = driver.execute_async_script(
        "const done = arguments[0]; axe.run(document).then(done, (e) => done({error: String(e)}))"
    )
    assert "error" not in found, found
    return [
        (defect["id"], [node["html"][:200] for node in defect["nodes"]])
        for defect in found["violations"]
        if defect["impact"] in ("serious", "critical")
    ]
