"""The labeling page in a real browser."""

from __future__ import annotations

import csv
import json
import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from examples.tickets import CLASSES, tickets
from selenium.webdriver.common.keys import Keys

from seqmed.labeling.ledger import Ledger
from seqmed.labeling.log import LabelLog
from seqmed.model_file import load_with_extra
from tests.browser.page import Page, serious
from tests.support.command import seqmed
from tests.support.labeling import INTENTS, Command, Site, clouds, intents, new_model, write_rows
from tests.support.state import state_bits

LABEL = ("model", "rows.csv", "--id", "id")


def labels_on_disk(folder):
    with LabelLog(folder / "model.labels.csv") as log:
        rows = Ledger(log.events).rows
    return {key.row: row.label for key, row in rows.items() if row.label is not None}


def test_sixty_rows_by_keyboard_with_three_kills(tmp_path, browser):
    truth = write_rows(tmp_path / "rows.csv", 150)
    confirmed, position = {}, None
    page = command = None
    try:
        for part in range(4):
            command = Command(tmp_path, *LABEL)
            page = Page(browser, command.address) if page is None else page
            page.open(command.address)
            # a label that was sent just before the kill is either on the disk, or asked again
            on_disk = labels_on_disk(tmp_path)
            if position is not None:
                row, name = position
                assert on_disk == confirmed | ({row: name} if row in on_disk else {})
                if row not in on_disk:
                    assert page.row == row
                confirmed = on_disk
            for _ in range(15):
                name = truth[page.row - 1]
                row = page.label(name) if name in page.classes else page.add_class(name)
                confirmed[row] = name
            if part == 0:
                page.undo()
                del confirmed[row]
                assert page.row == row
                confirmed[page.label(truth[row - 1])] = truth[row - 1]
            if part == 1:
                confirmed[page.add_class("something else")] = "something else"
                changed = sorted(confirmed)[3]
                page.edit(changed)
                page.choose("e.dataset.label === 'something else'")
                confirmed[changed] = "something else"
                page.back()
            if part == 2:
                withdrawn = sorted(confirmed)[5]
                page.edit(withdrawn)
                page.choose("e.id === 'withdraw'")
                del confirmed[withdrawn]
                page.back()
                page.keys(" ")  # skip
                page.says("Skipped")
            if part < 3:
                position = page.row, truth[page.row - 1]
                page.label(position[1], wait=False)
                command.kill()
                # the page says that the server does not answer
                page.alarms()
        assert len(confirmed) >= 60
        assert int(page.text("labels")) == len(confirmed)
        _, code = command.end()
        assert code == 0
    finally:
        if command is not None and command.process.poll() is None:
            command.kill()
    assert labels_on_disk(tmp_path) == confirmed
    folder = tmp_path / "again"
    folder.mkdir()
    for name in ("rows.csv", "model.labels.csv"):
        shutil.copy(tmp_path / name, folder)
    assert seqmed(folder, "label", *LABEL, "--replay", quick=False).code == 0
    (one, kept), (other, also_kept) = (load_with_extra(f / "model") for f in (tmp_path, folder))
    assert state_bits(one) == state_bits(other)
    assert kept["labels"] == also_kept["labels"]
    assert seqmed(folder, "label", *LABEL, "--export", "final.csv").code == 0
    with (folder / "final.csv").open() as file:
        assert {int(line["row"]): line["label"] for line in csv.DictReader(file)} == confirmed


def test_arrows_mouse_and_help(tmp_path, browser):
    table, _ = clouds(60)
    names = [f"class {n}" for n in range(10)]
    with Site(tmp_path, table, classes=names) as site:
        page = Page(browser, site.address)
        row = page.row
        page.keys(*[Keys.ARROW_RIGHT] * 10, Keys.ENTER)
        page.confirmed(f"Saved: row {row} is class 9.")
        row = page.row
        page.keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ENTER)
        page.confirmed(f"Saved: row {row} is class 8.")
        row = page.row
        page.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)  # the first one of the second row
        columns = page.script(
            "return getComputedStyle(document.getElementById('classes')).gridTemplateColumns"
        )
        page.confirmed(f"Saved: row {row} is class {len(columns.split())}.")
        row = page.row
        page.keys("0")
        page.confirmed(f"Saved: row {row} is class 9.")
        row = page.row
        page.click("#classes button:nth-child(2)")
        page.confirmed(f"Saved: row {row} is class 1.")
        page.click("#skip")
        page.until(lambda: page.text("said").startswith("Skipped"))
        page.keys(Keys.BACKSPACE)
        page.until(lambda: page.text("said").startswith("Undone"))
        page.keys("?")
        assert page.script("return document.getElementById('help').open")
        page.keys("1")  # no label while a dialog is open
        page.keys(Keys.ESCAPE)
        assert not page.script("return document.getElementById('help').open")
        assert page.script("return document.activeElement.id") == "card"
        assert site.get("status")["labels"] == 5
        assert not page.errors


def test_the_history_is_searched(tmp_path, browser):
    table, truth = clouds(60)
    with Site(tmp_path, table) as site:
        ada = site.person()
        for _ in range(12):
            ada.label(lambda row: truth[row - 1])
        wanted = site.get("history?search=setosa")["total"]
        page = Page(browser, site.address)
        page.keys("h")
        page.until(lambda: page.text("found") == "12 rows")
        page.tab_to("e.id === 'search'")
        page.keys("setosa")
        page.until(lambda: page.text("found") == f"{wanted} row{'s' * (wanted != 1)}")
        page.keys(Keys.ESCAPE)
        page.until(lambda: page.shown("view-label"))


HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<svg/onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "</div></body><h1>gone</h1>",
    "\x00\x01\x07\x08\x1b[31m\x7f",
    "\u202e\u2066reversed\u2069 abc \u0645\u0631\u062d\u0628\u0627",
    "{{7*7}} ${window.hacked=1} `",
    "line one\nline two\r\nline three\ttab",
    "z\u0351" * 200,
    "<b>x</b>" * 12_500,  # 100 kB
    "' \" & < > \\ \\u003c",
]


def test_hostile_cells_are_text_and_do_nothing(tmp_path, browser):
    table, _ = clouds(len(HOSTILE))
    model = new_model(table)
    names = ["<b onclick=1>name</b>", "javascript:x"]
    for name, cells in zip(names, (HOSTILE, HOSTILE[::-1]), strict=True):
        table = table.append_column(name, pa.array(cells))
    hostile_class = "<img src=x onerror='window.hacked = 1'>"
    with Site(tmp_path, table, model, classes=["ok"]) as site:
        page = Page(browser, site.address, name="<script>window.hacked=1</script>")
        page.add_class(hostile_class)
        seen = {}
        for number in range(len(HOSTILE) - 1):
            page.keys("f")  # unfold
            cells = page.script(
                "const found = document.querySelectorAll('#cells .value-text');"
                "return [...found].map((e) => e.textContent)"
            )
            seen[page.row] = max(map(len, cells))
            assert (
                page.script(
                    "return document.getElementById('cells')"
                    ".querySelectorAll('script, img, b, h1, svg').length"
                )
                == 0
            )
            if number < len(HOSTILE) - 2:
                page.label("ok")
        page.label("ok", wait=False)
        page.until(lambda: page.shown("finished"))
        assert max(seen.values()) >= 100_000
        page.keys("h")
        page.until(lambda: page.text("found") == f"{len(HOSTILE)} rows")
        row = site.get("history")["rows"][0]["row"]
        page.tab_to(f"e.dataset.row && e.dataset.row.startsWith('{row} ')")
        page.keys(Keys.ENTER)
        page.until(lambda: page.script("return document.getElementById('edit').open"))
        assert page.script("return window.hacked === undefined")
        assert page.script("return document.querySelectorAll('h1').length") == 1
        assert page.script("return document.querySelectorAll('img').length") == 0
        assert not page.errors
        assert page.script("return document.documentElement.scrollWidth <= innerWidth")


def test_two_browsers_lose_nothing(tmp_path, new_browser):
    table, truth = clouds(120)
    with Site(tmp_path, table, classes=["setosa", "versicolor", "virginica"]) as site:
        pages = [Page(new_browser(), site.address, name) for name in ("Ada", "Bo")]
        rows = [[], []]

        def work(place):
            for _ in range(15):
                rows[place].append(pages[place].label(truth[pages[place].row - 1]))

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, (0, 1)))
        by_person = [
            [event.row for event in site.log.events if event.person == name]
            for name in ("Ada", "Bo")
        ]
        assert by_person == rows, {event.person for event in site.log.events}
        for page in pages:  # live numbers reach both
            labels = str(site.get("status")["labels"])
            page.until(lambda page=page, labels=labels: page.text("labels") == labels)
            assert not page.errors


def test_a_disagreement_is_settled(tmp_path, browser):
    table, _ = clouds(60)
    with Site(tmp_path, table, classes=["x", "y"]) as site:
        ada, bo = site.person("Ada"), site.person("Bo")
        for _ in range(12):
            ada.label(lambda row: "x")
        while not site.get("history?only=disputes")["total"]:
            bo.label(lambda row: "y")
        page = Page(browser, site.address, "Cy")
        page.until(lambda: page.text("n-disputes") == "1")
        page.click("#show-disputes")
        page.until(lambda: page.text("history-title") == "Disagreements")
        page.until(lambda: page.text("found") == "1 row")
        assert "kappa" in page.text("agreement")
        page.tab_to("e.dataset.row")
        page.keys(Keys.ENTER)
        page.until(lambda: page.script("return document.getElementById('edit').open"))
        page.choose("e.dataset.label === 'y'")
        page.until(lambda: not page.shown("n-disputes"))
        assert site.get("status")["classes"] == [
            ["x", 11],
            ["y", site.get("status")["labels"] - 11],
        ]
        assert not page.errors


def emulate(driver, width=None, scheme="light"):
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme},
                      {"name": "prefers-reduced-motion", "value": "reduce"}]},
    )  # fmt: skip
    if width is None:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    else:
        metrics = {"width": width, "height": 780, "deviceScaleFactor": 2, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.fixture
def busy_site(tmp_path):
    """A page that two people have worked with."""
    rows, truth = tickets(400)
    table = pa.Table.from_pylist(rows)
    from seqmed import SeqGraphMED, SeqMED, make_stream_pipeline

    final = SeqGraphMED(SeqMED(window=None, kernel="auto"), random_state=0, experts=())
    model = make_stream_pipeline(final, kinds={"ticket": "drop"})
    model.partial_fit(table, [None] * table.num_rows)
    with Site(tmp_path, table, model, "tickets.csv", classes=CLASSES, goal=200) as site:
        ada, bo = site.person("Ada"), site.person("Grace")
        for number in range(110):
            ada.label(lambda row: truth[row - 1])
            if number % 4 == 0:
                bo.label(lambda row, n=number: truth[row - 1] if n % 12 else CLASSES[0])
            while site.background.n_learned < len(site.log.events):
                time.sleep(0.01)
        yield site


@pytest.fixture
def many_site(tmp_path):
    """A page with 77 classes, of which the model has learned labels."""
    from seqmed import SeqGraphMED, SeqMED, make_stream_pipeline

    table, truth = intents(220)
    final = SeqGraphMED(SeqMED(window=None, kernel="auto"), random_state=0, experts=())
    labels = [*truth[:154], *[None] * 66]
    model = make_stream_pipeline(final).partial_fit(table, labels)
    with Site(tmp_path, table.slice(154), model, "messages.csv", classes=INTENTS) as site:
        site.earlier = Counter(truth[:154])
        yield site


BROKEN_WORDS = """
const broken = [];
for (const name of document.querySelectorAll(".class .name")) {
  for (const part of name.childNodes) {
    if (part.nodeType !== Node.TEXT_NODE) continue;
    const range = document.createRange();
    range.selectNodeContents(part);
    const tops = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
    if (tops.size > 1) broken.push(part.textContent);
  }
}
return broken;
"""


def test_77_classes_by_keyboard_at_360_pixels(many_site, browser):
    emulate(browser, 360)
    page = Page(browser, many_site.address)
    labeled = dict[int, str]()

    def confirmed(row, name):
        page.confirmed(f"Saved: row {row} is {name}.")
        labeled[row] = name

    # the ten most probable classes first, and Enter accepts the guess
    (card, *_) = many_site.desk._sessions[next(iter(many_site.desk._sessions))].cards.values()
    assert page.classes == [name for name, _ in card.probabilities]
    assert len(page.classes) == 10
    row = page.row
    page.keys(Keys.ENTER)
    confirmed(row, card.probabilities[0][0])
    # the keys are those of the classes as shown
    row, name = page.row, page.classes[9]
    page.keys("0")
    confirmed(row, name)
    # all words are in the name, in any order; Enter chooses the first one
    row, name = page.row, "virtual_card_still_pending"
    assert page.find("PENDing card") == ["card_payment_still_pending", name]
    assert page.text("matches") == "2 of 77 classes"
    assert "accepts it" not in page.text("guess")  # here, Enter chooses the first class found
    page.keys(Keys.BACKSPACE * 4, "virtual", Keys.ENTER)
    confirmed(row, name)
    assert page.has_focus("card")
    assert len(page.classes) == 10  # the next card has no filter
    # digits are typed into the filter, arrows go from it to the classes, Escape ends it
    row = page.row
    assert page.find("1") == []
    page.keys(Keys.ESCAPE)
    assert page.has_focus("card")
    found = page.find("refund")
    page.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    confirmed(row, found[1])
    # a name that is not found is a new class, if it is confirmed
    row = page.row
    assert page.find("lost phone") == []
    page.keys(Keys.ENTER)
    page.until(lambda: page.script("return document.getElementById('new').open"))
    page.keys(Keys.ESCAPE)
    page.until(lambda: page.has_focus("card"))
    assert page.row == row
    page.find("lost phone")
    page.keys(Keys.ENTER, Keys.ENTER)
    confirmed(row, "lost phone")
    # the other classes are folded
    row = page.row
    page.keys("m")
    others = page.script(
        "return [...document.querySelectorAll('#other-classes .class')].map((e) => e.dataset.label)"
    )
    assert others == sorted({*INTENTS, "lost phone"} - set(page.classes))
    assert page.script(BROKEN_WORDS) == []
    assert page.script("return document.documentElement.scrollWidth <= innerWidth")
    page.keys(*[Keys.ARROW_DOWN] * 13, Keys.ENTER)  # ten classes, the button, two classes
    confirmed(row, others[1])
    row = page.row
    page.keys("m", " ")  # still by keyboard, on the card
    page.says(f"Skipped row {row}")
    # counts include the labels that the model had
    page.until(lambda: page.text("labels") == str(len(labeled)))
    page.tab_to("e.id === 'more-counts'")
    page.keys(Keys.ENTER)
    counts = page.script(
        "return [...document.querySelectorAll('#counts li')].map((e) => "
        "[e.querySelector('.name').textContent, Number(e.querySelector('.number').textContent)])"
    )
    assert {name: n for name, n in counts if n} == many_site.earlier + Counter(labeled.values())
    assert [n for _, n in counts] == sorted((n for _, n in counts), reverse=True)
    # a label of the history is changed by typing
    row = next(iter(labeled))
    page.edit(row)
    page.tab_to("e.id === 'edit-filter'")
    page.keys("passcode limit", Keys.ENTER)
    page.until(lambda: not page.script("return document.getElementById('edit').open"))
    labeled[row] = "passcode_exceeds_limit"
    with LabelLog(many_site.log.path) as log:
        rows = Ledger(log.events).rows
    assert {key.row: each.label for key, each in rows.items() if each.given} == labeled
    assert not page.errors


def test_a_dialog_that_closes_gives_the_focus_to_the_card_at_once(many_site, browser):
    """Keys that are typed before its close event do not go to the filter."""
    page = Page(browser, many_site.address)
    close = "document.getElementById(arguments[0]).close(); return document.activeElement.id"
    assert page.find("lost phone") == []
    page.keys(Keys.ENTER)
    page.until(lambda: page.script("return document.getElementById('new').open"))
    assert page.script(close, "new") == "card"
    page.click("#help-button")
    assert page.script(close, "help") == "card"
    closed = "new Promise((done) => help.addEventListener('close', () => setTimeout(done)))"
    page.keys("?")
    focused = page.driver.execute_async_script(
        "const done = arguments[0], help = document.getElementById('help');"
        f"{closed}.then(() => done(document.activeElement.id));"
        "help.close(); document.getElementById('filter').focus();"
    )
    assert focused == "filter"  # where a quick user has put it meanwhile


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_77_classes_have_no_serious_defect(many_site, browser, axe, width, scheme):
    emulate(browser, width, scheme)
    page = Page(browser, many_site.address)
    for keys, where in (
        ((), "folded"),
        (("m",), "unfolded"),
        (("/", "pending"), "filter"),
        ((Keys.ESCAPE, "/", "nothing"), "nothing found"),
    ):
        page.keys(*keys)
        assert serious(page.driver, axe) == [], where
        assert page.script(BROKEN_WORDS) == [], where
        assert page.script("return document.documentElement.scrollWidth <= innerWidth"), where
    page.keys(Keys.ESCAPE, Keys.ENTER)
    page.says("Saved")
    page.keys("h")
    page.until(lambda: page.script("return document.querySelector('#history li') !== null"))
    page.tab_to("e.dataset.row")
    page.keys(Keys.ENTER)
    page.until(lambda: page.script("return document.getElementById('edit').open"))
    assert serious(page.driver, axe) == []
    assert page.script(BROKEN_WORDS) == []


def test_a_class_that_is_added_meanwhile_leaves_the_keys_as_they_are(tmp_path, browser):
    table, truth = clouds(80)
    names = [f"class {n}" for n in range(10)]
    with Site(tmp_path, table, classes=names) as site:
        page, bo = Page(browser, site.address), site.person("Bo")
        for _ in range(12):
            bo.label(lambda row: truth[row - 1])
        page.until(lambda: page.text("labels") == "12")
        assert page.classes == names
        page.until(lambda: page.shown("more-classes"))
        assert page.find(truth[0]) == [truth[0]]
        assert not page.errors


def test_axe_finds_no_serious_defect(busy_site, browser, axe):
    emulate(browser)
    browser.get(busy_site.address)
    page = Page(browser, busy_site.address, "Ada")
    for scheme in ("light", "dark"):
        for width in (None, 360):
            emulate(browser, width, scheme)
            where = f"{scheme}, {width}"
            assert serious(page.driver, axe) == [], where
            page.keys("?")
            assert serious(page.driver, axe) == [], f"help, {where}"
            page.keys(Keys.ESCAPE)
            page.keys("n")
            assert serious(page.driver, axe) == [], f"new class, {where}"
            page.keys(Keys.ESCAPE, "h")
            page.until(lambda: page.script("return document.querySelector('#history li') !== null"))
            assert serious(page.driver, axe) == [], f"history, {where}"
            page.tab_to("e.dataset.row")
            page.keys(Keys.ENTER)
            page.until(lambda: page.script("return document.getElementById('edit').open"))
            assert serious(page.driver, axe) == [], f"edit, {where}"
            page.keys(Keys.ESCAPE, "l")


@pytest.fixture
def expert_site(tmp_path):
    """A page whose model has all experts."""
    rows, truth = tickets(200)
    table = pa.Table.from_pylist(rows)
    from seqmed import make_stream_pipeline

    model = make_stream_pipeline(kinds={"ticket": "drop"}, random_state=0)
    model.partial_fit(table, [None] * table.num_rows)
    with Site(tmp_path, table, model, "tickets.csv", classes=CLASSES) as site:
        ada = site.person("Ada")
        for _ in range(30):
            ada.label(lambda row: truth[row - 1])
        while site.background.n_learned < len(site.log.events):
            time.sleep(0.01)
        site.asked = []
        explanation = site.desk.page.explanation
        site.desk.page.explanation = lambda key: site.asked.append(key.row) or explanation(key)
        yield site


def test_why_this_class(expert_site, browser, axe):
    page = Page(browser, expert_site.address, "Grace")
    page.until(lambda: page.shown("explanation"))
    assert expert_site.asked == []  # folded, it asks for nothing
    rows = []
    for width, key in ((None, Keys.ENTER), (360, " ")):
        emulate(browser, width)
        row = page.row
        page.tab_to("e.tagName === 'SUMMARY'")
        page.keys(key)
        page.until(lambda: page.text("explained").startswith("The model now predicts"))
        assert page.row == row  # neither the guess was accepted, nor the row skipped
        rows.append(row)
        assert expert_site.asked == rows
        headings = page.script(
            "return [...document.querySelectorAll('#votes h3')].map((e) => e.textContent)"
        )
        assert headings == ["Experts", "Columns", "Labeled rows for and against"]
        found = expert_site.get(f"explanation?file=tickets.csv&row={row}")
        expert_site.asked.pop()
        text = page.text("votes")
        names = [each["name"].replace("_", " ") for each in found["members"]]
        assert all(name in text for name in names)
        labeled = next(vote["rows"] for vote in found["votes"] if vote["rows"])
        assert labeled
        assert all(next(iter(part["row"].values()))[:40] in text for part in labeled)
        assert page.script("return document.documentElement.scrollWidth <= innerWidth")
        assert serious(page.driver, axe) == []
        page.label(page.classes[0])  # digits label also from here; the next card is folded
        page.until(lambda: not page.script("return document.getElementById('explanation').open"))
    assert expert_site.asked == rows
    assert not page.errors


def test_screenshots(busy_site, browser, screenshots):
    browser.set_window_size(1280, 1000)
    emulate(browser)
    page = Page(browser, busy_site.address, "Ada")
    for name, width, scheme in (
        ("labeling", None, "light"),
        ("labeling-dark", None, "dark"),
        ("labeling-360", 360, "light"),
    ):  # fmt: skip
        emulate(browser, width, scheme)
        page.until(lambda: page.script("return document.fonts.status === 'loaded'"))
        assert page.script("return document.documentElement.scrollWidth <= innerWidth")
        assert browser.save_screenshot(str(screenshots / f"{name}.png"))
    emulate(browser)
    page.keys("h")
    page.until(lambda: page.script("return document.querySelector('#history li') !== null"))
    assert browser.save_screenshot(str(screenshots / "labeling-history.png"))
    assert not page.errors


def test_screenshots_of_many_classes(many_site, browser, screenshots):
    browser.set_window_size(1280, 1000)
    emulate(browser)
    page = Page(browser, many_site.address, "Ada")
    page.find("pending")
    assert browser.save_screenshot(str(screenshots / "labeling-many.png"))
    assert not page.errors


def test_screenshots_of_an_explanation(expert_site, browser, screenshots):
    browser.set_window_size(1280, 1750)
    emulate(browser)
    page = Page(browser, expert_site.address, "Ada")
    page.tab_to("e.tagName === 'SUMMARY'")
    page.keys(Keys.ENTER)
    page.until(lambda: page.text("explained").startswith("The model now predicts"))
    page.script("scrollTo({ top: 0 })")
    assert browser.save_screenshot(str(screenshots / "labeling-why.png"))
    assert not page.errors


def test_nothing_is_loaded_from_elsewhere(busy_site, browser):
    browser.get("about:blank")
    page = Page(browser, busy_site.address)
    loaded = page.script("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert loaded
    assert all(name.startswith(busy_site.address) for name in loaded)
    assert json.loads(
        page.script("return JSON.stringify([localStorage.length, document.cookie])")
    ) == [0, ""]
