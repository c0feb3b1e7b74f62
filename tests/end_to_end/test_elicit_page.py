"""The elicitation page in a real browser: its numbers are the library's; keyboard, pointer, files and links work."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Request, WebError
from playwright.sync_api import Page as Tab

from chromium import find_axe, find_chromium, launch_chromium, open_window
from selbo.elicit.server import Server
from selbo.evaluation.belief_calibration import calibrate_to_belief
from selbo.summary.beliefs import Empirical
from selbo.summary.elicitation import expect
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, ScoreBins

PROGRAM = find_chromium()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed (SELBO_TEST_BROWSER names one)")

PATIENCE = 60.0
"""Seconds that a page may take; more than any busy machine needs."""

EXPECTED = ("400 (Bad Request)", "413 (", "503 (")
"""What the console says of an answer that refuses bad input."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    found.workers.start()
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.close()


@pytest.fixture(scope="module")
def windows() -> Iterator[Windows]:
    assert PROGRAM is not None
    with launch_chromium(PROGRAM) as found:
        yield Windows(found)


@pytest.fixture
def page(server: Server, windows: Windows) -> Iterator[Page]:
    found = Page(windows, server.url)
    yield found
    found.leave()
    assert [text for text in found.complaints if not any(known in text for known in EXPECTED)] == []
    assert {url for url in found.requests if not url.startswith((server.url, "about:"))} == set()


class Windows:
    """A window of each size, opened once: the browser draws itself in each, which takes longer than most tests."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.opened: dict[tuple[int, int, bool], BrowserContext] = {}

    def of(self, width: int, height: int, *, dark: bool = False) -> BrowserContext:
        key = width, height, dark
        if key not in self.opened:
            self.opened[key] = open_window(self.browser, width, height, dark=dark)
            self.opened[key].new_page()  # a window closes with its last tab
        return self.opened[key]


class Page:
    """The page, as a user sees it, in a tab of its own: what the page keeps, it keeps for a tab.

    It is opened by `open`, or when a test first does something with it.
    """

    def __init__(self, windows: Windows, url: str) -> None:
        self.windows, self.url = windows, url
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.opened = False
        self.show(windows.of(1366, 900))

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """In another window."""
        self.leave()
        self.show(self.windows.of(width, height, dark=dark))

    def show(self, window: BrowserContext) -> None:
        self.window = window
        self.window.set_default_timeout(1000 * PATIENCE)
        self.window.on("console", self.hear)
        self.window.on("weberror", self.catch)
        self.window.on("request", self.see)
        self.own_tab = self.window.new_page()
        self.opened = False

    @property
    def tab(self) -> Tab:
        if not self.opened:
            self.open()
        return self.own_tab

    def js(self, code: str) -> Any:
        return self.tab.evaluate(code)

    def press(self, key: str) -> None:
        self.tab.keyboard.press(key)

    def write(self, text: str) -> None:
        self.tab.keyboard.insert_text(text)

    def leave(self) -> None:
        """Close the tab, and leave nothing of it in its window."""
        self.own_tab.close()
        self.window.clear_permissions()
        self.window.remove_listener("console", self.hear)
        self.window.remove_listener("weberror", self.catch)
        self.window.remove_listener("request", self.see)
        assert len(self.window.pages) == 1
        assert self.window.storage_state() == {"cookies": [], "origins": []}

    def hear(self, said: ConsoleMessage) -> None:
        self.complain(said.type, said.text)

    def catch(self, thrown: WebError) -> None:
        self.complain("error", str(thrown.error))

    def see(self, request: Request) -> None:
        self.requests.append(request.url)

    def complain(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(f"{kind}: {text}")

    def open(self, fragment: str = "") -> None:
        if self.opened:
            self.tab.goto("about:blank")  # so that another fragment is another visit
        self.opened = True
        self.tab.goto(self.url + fragment)
        self.settle()

    def until(self, condition: str) -> None:
        """Wait for a condition. Playwright's own way evaluates text in the page, which its policy forbids."""
        end = time.monotonic() + PATIENCE
        while not self.js(f"Boolean({condition})"):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.05)

    def drag(self, *points: tuple[float, float]) -> None:
        """Press the button at the first point, move along, release it at the last."""
        self.tab.mouse.move(*points[0])
        self.tab.mouse.down()
        for point in points[1:]:
            self.tab.mouse.move(*point)
        self.tab.mouse.up()

    def settle(self) -> None:
        """Wait until the page has asked and shown."""
        self.until("document.getElementById('output').getAttribute('aria-busy') === 'false'")

    def text(self, selector: str) -> str:
        found = self.js(f"document.querySelector({json.dumps(selector)}).textContent")
        return found.replace("\N{NO-BREAK SPACE}", " ")

    def visible(self, selector: str) -> bool:
        return self.js(f"document.querySelector({json.dumps(selector)}).checkVisibility()")

    def masses(self) -> list[float]:
        """s0 as the bars show it, which the table repeats."""
        bars = self.js("[...document.querySelectorAll('#bars [data-mass]')].map(bar => Number(bar.dataset.mass))")
        table = self.js("[...document.querySelectorAll('#table [data-mass]')].map(cell => Number(cell.dataset.mass))")
        assert bars == table
        return bars

    def tab_to(self, condition: str) -> None:
        """Press Tab until the element that has the focus is the one that is wanted."""
        for _ in range(120):
            if self.js(f"(element => {condition})(document.activeElement)"):
                return
            self.press("Tab")
        raise AssertionError(f"the keyboard does not reach {condition}")

    def enter(self, selector: str, text: str) -> None:
        """Replace what stands in a field."""
        self.js(f"(box => {{ box.focus(); box.select(); }})(document.querySelector({json.dumps(selector)}))")
        self.write(text)
        self.settle()

    def click(self, selector: str) -> None:
        self.tab.click(selector)
        self.settle()

    def values(self, selector: str) -> list[str]:
        """What stands in fields."""
        return self.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(box => box.value)")

    def advanced(self) -> None:
        """Unfold what only experts need."""
        if not self.js("document.getElementById('advanced').open"):
            self.click("#advanced > summary")

    def choose(self, selector: str, value: str) -> None:
        """Choose in a list."""
        self.tab.select_option(selector, value)
        self.settle()


# --- numbers ---


def test_two_classes_from_nothing(page: Page) -> None:
    assert page.masses() == pytest.approx(expect(0.9).masses(ScoreBins.equal(10)).tolist(), rel=1e-12)
    sure = expect(0.9).masses(ScoreBins([0.05, 0.95]))[[0, 2]].sum().item()
    assert f"About {100 * sure:.0f} % of cases are predicted with more than 95 % confidence" in page.text("#headline")
    assert page.js("document.querySelectorAll('#picture svg path').length") == 2
    assert page.js("document.querySelectorAll('#draws svg').length") == 8
    assert not page.visible("#warnings")
    assert not page.visible("#failure")


def test_three_classes_with_shares(page: Page) -> None:
    page.enter("#classes", "3")
    page.click("#equal")
    for k, share in enumerate(("60", "30", "10")):
        page.enter(f"#share-{k}", share)
    page.enter("#accuracy", "80")
    reference = expect(0.8, [0.6, 0.3, 0.1]).masses(CornerShells(3))
    assert page.masses() == pytest.approx(reference.tolist(), rel=1e-12)
    assert page.js("document.querySelector('#picture canvas').width") == 240
    centre = page.js("[...document.querySelectorAll('#picture .over')].map(text => text.textContent)")
    assert centre == [f"{100 * reference[-1]:.1f} %"]
    page.advanced()
    page.choose("#regions", "classes")
    assert page.masses() == pytest.approx([0.6, 0.3, 0.1], rel=1e-7)
    page.choose("#regions", "confidence")
    reference = expect(0.8, [0.6, 0.3, 0.1]).masses(ConfidenceBins([0.5, 0.7, 0.9], 3))
    assert page.masses() == pytest.approx(reference.tolist(), rel=1e-12)


def test_ten_classes(page: Page) -> None:
    page.enter("#classes", "10")
    page.enter("#accuracy", "70")
    assert page.masses() == pytest.approx(expect(0.7, num_classes=10).masses(CornerShells(10)).tolist(), rel=1e-12)
    assert page.js("document.querySelectorAll('#picture .bar').length") == 8


def test_the_picture_shows_bars_in_proportion(page: Page) -> None:
    masses = np.array(page.masses())
    heights = np.array(page.js("[...document.querySelectorAll('#bars .bar')].map(b => b.height.baseVal.value)"))
    np.testing.assert_allclose(heights / heights.sum(), masses, atol=1e-6)
    page.open("#k=10&accuracy=0.7&regions=shells&concentration=1000")
    for chart in ("#bars", "#picture"):
        bars = f"[...document.querySelectorAll('{chart} .bar')]"
        masses = np.array(page.js(f"{bars}.map(b => Number(b.dataset.mass))"))
        widths = np.array(page.js(f"{bars}.map(b => b.width.baseVal.value)"))
        assert (masses > 0.01).all()  # none is so short that it would be drawn longer
        np.testing.assert_allclose(widths / widths.sum(), masses / masses.sum(), atol=1e-6)


def test_concentration_changes_draws_and_not_s0(page: Page) -> None:
    before, spread = page.masses(), []
    page.advanced()
    for concentration in ("10", "100000"):
        page.enter("#concentration", concentration)
        assert page.masses() == before
        drawn = page.js("[...document.querySelectorAll('#draws [data-mass]')].map(bar => Number(bar.dataset.mass))")
        spread.append(np.abs(np.array(drawn).reshape(8, 10) - before).max())
    assert spread[0] > 10 * spread[1]
    page.click("#again")
    again = page.js("[...document.querySelectorAll('#draws [data-mass]')].map(bar => Number(bar.dataset.mass))")
    assert again != drawn


# --- keyboard and pointer ---


def test_everything_can_be_done_by_keyboard(page: Page) -> None:
    page.tab_to("element.id === 'accuracy-range'")
    for _ in range(3):
        page.press("ArrowRight")
    page.settle()
    assert page.js("document.getElementById('accuracy').value") == "90.3"
    assert page.masses() == pytest.approx(expect(0.903).masses(ScoreBins.equal(10)).tolist(), rel=1e-12)
    page.tab_to("element.id === 'sure'")
    page.press("ArrowDown")
    page.settle()
    assert "If you are as sure as after 10 cases" in page.text("#claims")
    page.press("ArrowUp")
    page.tab_to("element.tagName === 'SUMMARY' && element.parentElement.id === 'advanced'")
    page.press("Enter")
    page.tab_to("element.id === 'labels'")
    page.write("250")
    page.settle()
    assert "If you are as sure as after 250 cases" in page.text("#claims")
    page.tab_to("element.name === 'source'")
    page.press("ArrowDown")
    page.settle()
    assert page.text("#file-said").startswith("No file yet: until you choose one, the belief is that of the answers")
    assert page.text("#problem-file") == ""  # it asks, and does not complain
    assert not page.visible("#failure")
    assert page.masses() == pytest.approx(expect(0.903).masses(ScoreBins.equal(10)).tolist(), rel=1e-12)
    page.press("ArrowDown")
    page.settle()
    page.tab_to("element.getAttribute('role') === 'slider'")
    page.press("Home")
    page.settle()
    assert "A bar drawn at zero" in page.text("#warnings")
    page.press("ArrowUp")
    page.settle()
    assert page.js("document.activeElement.getAttribute('aria-valuenow')") == "2"
    before = expect(0.903).masses(ScoreBins.equal(10)).numpy()
    heights = np.round(100 * before / before.max(), 2)
    heights[0] = 2
    assert page.masses() == pytest.approx((heights / heights.sum()).tolist(), rel=1e-9)
    page.tab_to("element.id === 'regions'")
    page.tab_to("element.id === 'again'")
    page.press("Enter")
    page.settle()
    page.tab_to("element.dataset.copy === 'python'")
    page.tab_to("element.tagName === 'SUMMARY' && element.id === 'table-title'")
    page.press("Enter")
    assert page.visible("#table")


def test_the_focus_can_be_seen_and_every_control_has_a_name(page: Page) -> None:
    page.open("#k=3&from=draw&regions=shells")
    seen = set()
    for _ in range(60):
        page.press("Tab")
        if page.js("document.activeElement === document.body"):  # beyond the last one, it begins again
            continue
        outline = page.js("getComputedStyle(document.activeElement).outlineStyle")
        seen.add(page.js("document.activeElement.id || document.activeElement.tagName"))
        assert outline != "none", page.js("document.activeElement.id")
    assert {"classes", "accuracy", "labels", "regions", "edges", "again", "link"} <= seen
    tree = page.window.new_cdp_session(page.tab).send("Accessibility.getFullAXTree")["nodes"]
    controls = {"textbox", "spinbutton", "slider", "button", "combobox", "checkbox", "radio", "link", "image"}
    unnamed = [
        node
        for node in tree
        if not node.get("ignored") and node["role"]["value"] in controls and not node.get("name", {}).get("value")
    ]
    assert unnamed == []


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
@pytest.mark.parametrize("regions", ["equal", "shells"])
def test_the_drawing_pad_by_keyboard(page: Page, width: int, height: int, regions: str) -> None:
    """One stop of the Tab key; arrows choose a bar and change it; label and value are shown, said and in view."""
    page.look(width, height)
    page.open(f"#k=2&name=no&name=yes&accuracy=0.9&shares=0.7,0.3&regions={regions}")
    page.advanced()
    page.tab_to("element.name === 'source'")
    for _ in range(2):
        page.press("ArrowDown")
        page.settle()
    page.press("Tab")
    focused = "document.activeElement"
    assert page.js(f"{focused}.getAttribute('role')") == "slider"
    upright = regions == "equal"
    following, higher, lower = (
        ("ArrowRight", "ArrowUp", "ArrowDown") if upright else ("ArrowDown", "ArrowRight", "ArrowLeft")
    )
    before = expect(0.9, [0.7, 0.3]).masses(ScoreBins.equal(10) if upright else CornerShells(2)).numpy()
    heights = np.round(100 * before / before.max(), 2)
    labels = page.js("[...document.querySelectorAll('#table th')].map(head => head.textContent)")
    for r in range(3):
        if r:
            page.press(following)
        assert page.js(f"{focused}.getAttribute('aria-label')") == labels[r]
        assert page.js(f"{focused}.getAttribute('aria-orientation')") == ("vertical" if upright else "horizontal")
        for key in (higher, higher, lower):
            page.press(key)
        page.settle()
        heights[r] = min(100, heights[r] + 4) - 2
        drawn = (heights / heights.sum()).tolist()
        assert page.masses() == pytest.approx(drawn, rel=1e-3)
        assert page.js(f"{focused}.getAttribute('aria-valuetext')") == f"{100 * drawn[r]:.1f} % of predictions"
        assert page.text("#pad-said") == f"{labels[r]}: {100 * drawn[r]:.1f} % of predictions"
        assert page.js(f"{focused}.querySelector('.value').textContent").startswith(f"{100 * drawn[r]:.1f}")
        middle = f"(box => [box.x + box.width / 2, box.y + box.height / 2])({focused}.getBoundingClientRect())"
        assert page.js(f"{focused}.contains(document.elementFromPoint(...{middle}))")  # in view, and nothing covers it
    if upright:
        edges = page.js("[...document.querySelectorAll('#pad-axis span')].map(mark => mark.textContent)")
        assert edges == [str(10 * i) for i in range(11)]
    else:
        assert page.js("[...document.querySelectorAll('#pad .name')].map(name => name.textContent)") == labels
        assert page.js("[...document.querySelectorAll('#pad .name')].every(name => name.checkVisibility())")
    page.press("Tab")
    assert page.js(f"{focused}.id") == "reset-pad"


def test_a_histogram_is_drawn_with_the_pointer(page: Page) -> None:
    page.advanced()
    page.click("[name=source][value=draw]")
    page.js("document.getElementById('pad').scrollIntoView({block: 'center'})")
    boxes = page.js(
        "[...document.querySelectorAll('#pad .track')].map(track => track.getBoundingClientRect().toJSON())"
    )
    heights = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    points = [
        (box["x"] + box["width"] / 2, box["y"] + (1 - height / 100) * box["height"])
        for box, height in zip(boxes, heights, strict=True)
    ]
    page.drag(points[0], points[3], points[4], points[9])  # a pointer that moves fast skips bars
    page.settle()
    drawn = np.array(heights) / sum(heights)
    np.testing.assert_allclose(page.masses(), drawn, atol=0.01)  # a pixel is about half a per cent
    assert "but the expected accuracy is 90 %" in page.text("#warnings")
    page.click("#reset-pad")
    assert page.masses() == pytest.approx(expect(0.9).masses(ScoreBins.equal(10)).tolist(), rel=1e-12)


# --- counts and scores ---


def test_counts_are_pasted(page: Page) -> None:
    page.click("#paste summary")
    page.enter("#counts", "healthy 60\nill 30\ndead 10")
    page.click("#use-counts")
    page.until("document.querySelectorAll('#name-rows input').length === 3")
    page.settle()
    assert "“healthy” in 60 %, “ill” in 30 % and “dead” in 10 % of cases" in page.text("#claims")
    page.enter("#counts", "healthy 60\nill many")
    page.click("#use-counts")
    page.until("document.getElementById('problem-counts').textContent")
    assert "must end with a count" in page.text("#problem-counts")


def test_a_table_of_groups_is_pasted(page: Page) -> None:
    """It is shown at once, kept on reload, and part of the link."""
    page.click("[name=way][value=groups]")
    assert page.visible("#waiting")
    assert not page.visible("#groups-section")
    page.enter("#groups", "town,no,yes\nAsh <b>,30,70\nBirch,60,40")
    assert "Between the 2 groups, shares differ" in page.text("#groups-said")
    assert "70.0 %" in page.text("#groups-table")
    assert "--group-fractions results.csv" in page.text("#take-groupcommand pre")
    assert "Ash <b>,0.3,0.7" in page.text("#take-results pre")
    assert not page.visible("#bars")
    assert not page.visible("#accuracy")
    assert not page.visible("#groups-note")
    link = page.js("document.getElementById('link').value")
    page.enter("#groups", "town,people,no,yes\nAsh,1200,30,70\nBirch,90,60,40")
    assert page.visible("#groups-note")
    assert "“people” is left out" in page.text("#groups-note")
    assert page.text("#take-results pre").strip() == "town,no,yes\nAsh,0.3,0.7\nBirch,0.6,0.4"
    page.enter("#groups", "town,no,yes\nAsh,30,70\nBirch,60,x")
    assert "“Birch” has “x”" in page.text("#problem-groups")
    page.tab.reload()
    page.settle()
    assert "“Birch” has “x”" in page.text("#problem-groups")
    page.open(link.removeprefix(page.url))
    assert "Ash <b>" in page.text("#groups-table")
    page.click("[name=way][value=questions]")
    assert page.visible("#bars")
    assert page.masses() == pytest.approx(expect(0.9).masses(ScoreBins.equal(10)).tolist(), rel=1e-12)


def test_predictions_are_corrected(page: Page, tmp_path: Path, seed: int) -> None:
    """The file that is downloaded has the probabilities of the library; the link has nothing of it."""
    logits = 3 * np.random.default_rng(seed).normal(size=(400, 3))
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    path = tmp_path / "model.csv"
    rows = [f"{i},{','.join(map(repr, row))}" for i, row in enumerate(np.exp(log_probs).tolist())]
    path.write_text("\n".join(["id,cat,dog,<b>", *rows]))
    page.click("[name=way][value=predictions]")
    assert "Choose a file" in page.text("#waiting")
    assert not page.visible("#share-0")
    page.tab.set_input_files("#predictions", path)
    page.until("document.getElementById('frozen-headline').textContent")
    page.enter("#accuracy", "70")
    assert f"claim to be right in {100 * np.exp(log_probs).max(1).mean():.0f} % of cases" in page.text(
        "#frozen-headline"
    )
    for stated in (None, (0.5, 0.3, 0.2)):
        if stated is not None:
            page.click("#use-shares")
            assert [name.text_content() for name in page.tab.locator("#share-rows label").all()] == [
                "cat",
                "dog",
                "<b>",
            ]
            for k, share in enumerate(stated):
                page.enter(f"#share-{k}", str(100 * share))
        with page.tab.expect_download() as download:
            page.click("#download")
        written = np.loadtxt(download.value.path(), delimiter=",", skiprows=1)
        reference = calibrate_to_belief(log_probs, accuracy=0.7, class_fractions=stated)(log_probs).exp().numpy()
        np.testing.assert_allclose(written[:, 1:], reference, rtol=1e-6)
        after = page.js("[...document.querySelectorAll('#frozen-bars .bar')].map(bar => Number(bar.dataset.mass))")
        reached = np.histogram(reference.max(1), np.linspace(0.3, 1, 8))[0] / 400
        np.testing.assert_allclose(after, reached, atol=1e-9)
    assert shlex.split(page.text("#take-calibrate pre"))[:5] == ["selbo", "calibrate", "model.csv", "--accuracy", "0.7"]
    assert "model.csv" not in page.js("location.hash")
    path.unlink()
    page.enter("#accuracy", "71")
    page.until("document.getElementById('problem-predictions').textContent.includes('choose it again')")
    page.complaints = [text for text in page.complaints if "ERR_FILE_NOT_FOUND" not in text]
    other = tmp_path / "other.csv"
    other.write_text("cat,dog\n0.5,0.7\n")
    page.tab.set_input_files("#predictions", other)
    page.until("document.getElementById('problem-predictions').textContent.includes('one column per class')")
    assert page.js("document.getElementById('predictions').getAttribute('aria-invalid')") == "true"
    assert page.js("document.getElementById('download').disabled")


# --- the three questions ---


def test_sensitivity_and_specificity_become_accuracy_and_shares(page: Page) -> None:
    """Then Undo and Redo, by button and by key, one step per edit; a reload keeps what was entered."""
    page.enter("#name-rows input", "healthy")
    page.enter("#name-rows input:nth-of-type(2)", "ill")
    page.click("#test summary")
    for name, value in (("prevalence", "20"), ("sensitivity", "85"), ("specificity", "92.5")):
        page.enter(f"#{name}", value)
    assert "20 % × 85 % + 80 % × 92.5 % = 91 %" in page.text("#arithmetic")
    assert "170 are found and 30 missed" in page.text("#arithmetic")
    assert "740 are cleared and 60 are false alarms" in page.text("#arithmetic")
    page.click("#use-test")
    assert page.values("#accuracy, #share-0, #share-1") == ["91", "80", "20"]
    assert page.masses() == pytest.approx(expect(0.91, [0.8, 0.2]).masses(ScoreBins.equal(10)).tolist(), rel=1e-9)
    page.choose("#sure", "100")
    before = everything(page)
    assert "concentration=100" in page.js("location.hash")
    page.click("#undo")
    assert page.values("#sure") == [""]
    page.click("#undo")
    assert page.values("#accuracy, #specificity, #share-1") == ["90", "92.5", "50"]
    page.press("Control+z")
    assert page.values("#specificity") == [""]
    for _ in range(2):
        page.press("Control+y")
    page.press("Control+Shift+z")
    page.settle()
    assert everything(page) == before
    assert page.js("document.getElementById('redo').getAttribute('aria-disabled')") == "true"
    page.enter("#classes", "4")
    assert not page.visible("#test")
    page.press("Control+z")  # with the number in focus
    page.settle()
    page.js("document.activeElement.blur()")
    assert everything(page) == before
    page.tab.reload()
    page.settle()
    assert everything(page) == before
    assert page.visible("#specificity")


def test_the_first_screen_has_no_jargon(page: Page) -> None:
    said = page.tab.inner_text("#input") + page.tab.inner_text(".view:not([hidden])")
    for word in ("P(", "s0", "s₀", "Dirichlet", "concentration", "prior", "partition", "region", "summary", "belief"):
        assert word not in said, word
    assert page.js("document.querySelector('#sure').getBoundingClientRect().bottom") < 900  # all three are in sight


@pytest.mark.skipif(find_axe() is None, reason="no axe-core is at hand (SELBO_TEST_AXE names one)")
@pytest.mark.parametrize(("width", "height", "dark"), [(1366, 900, False), (390, 844, True)])
def test_axe_finds_nothing(page: Page, width: int, height: int, dark: bool, tmp_path: Path) -> None:
    page.look(width, height, dark=dark)
    page.advanced()
    page.click("[name=source][value=draw]")
    page.click("#test summary")
    page.click("#numbers summary")
    script = find_axe()
    assert script is not None
    session = page.window.new_cdp_session(page.tab)  # the policy of the page allows no other way
    session.send("Runtime.evaluate", {"expression": script.read_text("utf-8")})
    path = tmp_path / "model.csv"
    path.write_text("a,b\n0.9,0.1\n0.2,0.8\n")
    found = {}
    for way in ("questions", "predictions", "groups"):
        page.click(f"[name=way][value={way}]")
        if way == "predictions":
            page.tab.set_input_files("#predictions", path)
            page.until("document.getElementById('frozen-headline').textContent")
        if way == "groups":
            page.enter("#groups", "town,no,yes\nAsh,30,70\nBirch,60,40")
        page.settle()
        page.until("document.getAnimations().length === 0")  # half-way, what fades in has too little contrast
        found[way] = page.js(
            "axe.run({resultTypes: ['violations']}).then(({violations}) => "
            "violations.map(({id, nodes}) => [id, nodes.map(node => node.target.join(' '))]))"
        )
    assert found == {"questions": [], "predictions": [], "groups": []}


def test_scores_are_counted_again_when_regions_change(page: Page, tmp_path: Path, seed: int) -> None:
    scores = np.random.default_rng(seed).beta(0.3, 0.6, 400).round(4)
    path = tmp_path / "scores.csv"
    path.write_text("score\n" + "\n".join(map(str, scores)))
    earlier = Empirical(torch.from_numpy(np.stack([1 - scores, scores], -1)).log())
    page.advanced()
    page.click("[name=source][value=scores]")
    page.tab.set_input_files("#file", path)
    page.until("document.getElementById('file-said').textContent")
    page.settle()
    assert page.masses() == pytest.approx(earlier.masses(ScoreBins.equal(10)).tolist(), rel=1e-12)
    page.choose("#regions", "classes")
    assert page.masses() == pytest.approx(earlier.masses(ClassRegions(2)).tolist(), rel=1e-12)
    link = page.js("document.getElementById('link').value")
    carried = parse_qs(urlsplit(link).fragment)  # masses, not scores
    assert len(carried["masses"][0].split(",")) == 2
    assert carried["rows"] == ["400"]
    assert max(len(",".join(values)) for values in carried.values()) < 60
    assert float(carried["predicted"][0].split(",")[1]) == np.mean(scores > 0.5)
    page.open(link.removeprefix(page.url))
    assert page.masses() == pytest.approx(earlier.masses(ClassRegions(2)).tolist(), rel=1e-12)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0.5;0.7\n", "line 1 sum to 1.2"),
        ("0.5\nnan\n", "line 2 holds 'nan'"),
        ("0.2,0.3,0.5\n", "has 3 columns"),
        ("0.5\n<script>window.hacked = 1</script>\n", "line 2 holds '<script>"),
    ],
)
def test_bad_files_are_explained(page: Page, tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    page.advanced()
    page.click("[name=source][value=scores]")
    page.tab.set_input_files("#file", path)
    page.until(f"document.getElementById('failure').textContent.includes({json.dumps(message)})")
    assert message in page.text("#problem-file")
    assert page.js("document.getElementById('file').getAttribute('aria-invalid')") == "true"
    assert page.js("document.querySelector('[data-copy=python]').disabled")
    assert page.js("window.hacked") is None


def test_a_file_that_is_too_large_is_not_sent(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(10 * 2**30)  # ten gigabytes of nothing, which take no room on the disk
    page.advanced()
    page.click("[name=source][value=scores]")
    page.tab.set_input_files("#file", path)
    page.until("document.getElementById('failure').textContent.includes('at most 16 MB')")
    assert not [url for url in page.requests if "/api/scores" in url]


def upload(page: Page, path: Path) -> None:
    """Two predictions of class 1 in eight; the middle bin of three leaves open which class its scores predict."""
    path.write_text("0.05\n0.1\n0.3\n0.35\n0.4\n0.45\n0.55\n0.9\n")
    page.advanced()
    page.click("[name=source][value=scores]")
    page.tab.set_input_files("#file", path)
    page.until("document.getElementById('file-said').textContent.includes('8 predictions')")
    page.settle()


def test_after_an_upload_the_words_are_exact(page: Page, tmp_path: Path) -> None:
    page.open("#k=2&regions=edges&edges=0.2,0.8")
    assert page.visible("#edges")  # what a link says is not folded away
    upload(page, tmp_path / "scores.csv")
    assert "It predicts “class 0” in 75 % and “class 1” in 25 % of cases." in page.text("#claims")
    mean = np.mean([0.95, 0.9, 0.7, 0.65, 0.6, 0.55, 0.55, 0.9])
    assert f"the earlier model is right in {100 * mean:.0f} % of cases" in page.text("#claims")
    page.open(page.js("document.getElementById('link').value").removeprefix(page.url))
    assert "It predicts “class 0” in 75 % and “class 1” in 25 % of cases." in page.text("#claims")


# --- nothing is lost ---

NAMES, SHARES = "#name-rows input", "#share-rows input"
FIVE = "#k=5&name=a&name=b&name=c&name=d&name=e&accuracy=0.9&shares=0.4,0.3,0.15,0.1,0.05"


def everything(page: Page) -> Any:
    """All that is entered and shown."""
    boxes = "#input :is(input, select, textarea):not([type=file])"
    ticks = "[...document.querySelectorAll('#input :is([type=radio], [type=checkbox])')].map(each => each.checked)"
    fields = page.values(boxes), page.js(ticks)
    return fields, page.text("#said"), page.text("#table"), page.text("#file-said"), page.js("location.hash")


@pytest.mark.parametrize("way", ["peek", "skip", "anchor", "reload", "away"])
def test_nothing_is_lost(page: Page, tmp_path: Path, way: str) -> None:
    page.look(390, 844)
    page.enter("#name-rows input", "healthy")
    page.enter("#accuracy", "83")
    page.advanced()
    page.enter("#labels", "77")
    upload(page, tmp_path / "scores.csv")
    before = everything(page)
    if way == "peek":
        page.click("#input .peek")
        assert page.js("document.activeElement.id") == "output"
        assert page.js("document.getElementById('said').getBoundingClientRect().top") < 844
    elif way == "skip":
        page.js("document.activeElement.blur()")
        page.tab_to("element.className === 'skip'")
        page.press("Enter")
        page.settle()
        assert page.js("document.activeElement.id") == "output"
    elif way == "anchor":  # as from elsewhere: by hand, by a bookmark
        page.js("location.hash = '#output'")
        page.until("location.hash.includes('=')")
    elif way == "reload":
        page.tab.reload()
    else:
        page.tab.goto("about:blank")
        page.tab.go_back()
    page.settle()
    assert everything(page) == before
    page.advanced()
    if way in ("peek", "skip", "anchor"):  # and Back returns to the form, with what was changed meanwhile
        page.enter("#accuracy", "84")
        page.js("history.back()")
        page.until("history.state !== null")
        page.settle()
        assert page.values("#accuracy, #labels") == ["84", "77"]
        assert "8 predictions" in page.text("#file-said")
        assert "accuracy=0.84" in page.js("location.hash")


def test_a_reload_keeps_what_no_link_has(page: Page, tmp_path: Path) -> None:
    """An upload that is not in use, a drawing in other regions, shares that are wrong, counts that were not used."""
    upload(page, tmp_path / "scores.csv")
    counted = page.masses()
    page.choose("#regions", "classes")
    page.click("[name=source][value=draw]")
    page.tab_to("element.getAttribute('role') === 'slider'")
    page.press("Home")
    page.settle()
    drawn = page.masses()
    page.click("#paste summary")
    page.enter("#counts", "a 1\nb")
    page.click("[name=source][value=expect]")
    page.choose("#regions", "equal")
    page.enter("#share-0", "120")
    assert page.visible("#failure")
    page.tab.reload()
    page.settle()
    assert "nothing is left for 1 of them" in page.text("#failure")
    assert page.values(SHARES)[0] == "120"
    assert page.values("#counts") == ["a 1\nb"]
    page.enter("#share-0", "20")
    page.advanced()
    page.click("[name=source][value=scores]")
    assert page.masses() == counted
    page.choose("#regions", "unequal")
    assert (
        page.text("#problem-file")
        == "scores.csv was counted in other regions or classes: choose those again, or the file."
    )
    page.choose("#regions", "classes")
    page.click("[name=source][value=draw]")
    assert page.masses() == drawn


def test_the_number_of_classes_can_be_edited(page: Page) -> None:
    page.open(FIVE)
    before = everything(page)
    page.js("(box => { box.focus(); box.select(); })(document.getElementById('classes'))")
    page.press("Backspace")
    page.settle()
    assert "must be a number" in page.text("#problem-classes")
    assert page.values(NAMES) == ["a", "b", "c", "d", "e"]
    assert page.values(SHARES) == ["40", "30", "15", "10", "5"]
    for digit in "12":  # one digit after the other, as one types
        page.write(digit)
        page.settle()
    assert page.values(NAMES) == ["a", "b", "c", "d", "e", *[""] * 7]
    assert page.values(SHARES) == ["40", "30", "15", "10", "5", *[""] * 7]
    assert "nothing is left for 7 of them" in page.text("#problem-fractions")
    page.enter("#classes", "2")
    page.enter("#classes", "5")
    page.js("document.activeElement.blur()")
    assert everything(page) == before
    page.enter("#classes", "6")
    page.click("#rescale")
    fractions = [*(share * 5 / 6 for share in (0.4, 0.3, 0.15, 0.1, 0.05)), 1 / 6]
    assert page.masses() == pytest.approx(expect(0.9, fractions).masses(CornerShells(6)).tolist(), rel=1e-9)


def test_regions_and_edges_come_back_with_the_number_of_classes(page: Page) -> None:
    page.advanced()
    page.choose("#regions", "edges")
    page.enter("#edges", "0.2, 0.7")
    masses = page.masses()
    page.enter("#classes", "3")
    assert page.values("#regions") == ["shells"]
    page.enter("#classes", "30")
    assert page.values("#regions") == ["confidence"]
    page.enter("#classes", "2")
    assert page.values("#regions, #edges") == ["edges", "0.2, 0.7"]
    assert page.masses() == masses


def test_typing_a_share_is_enough(page: Page) -> None:
    page.open("#k=3&accuracy=0.8&regions=classes")
    assert page.js("document.getElementById('equal').checked")
    page.enter("#share-0", "60")
    assert not page.js("document.getElementById('equal').checked")
    assert page.values(SHARES) == ["60", "20", "20"]
    assert page.masses() == pytest.approx([0.6, 0.2, 0.2], rel=1e-7)
    page.enter("#share-1", "30")
    assert page.values(SHARES) == ["60", "30", "10"]
    page.click("#equal")
    assert page.values(SHARES) == ["33.333"] * 3
    page.click("#equal")
    assert page.values(SHARES) == ["60", "30", "10"]


def test_a_slider_is_followed_while_it_is_dragged(page: Page) -> None:
    """Events come faster than any pause: who waits for one shows nothing until the drag ends."""
    page.js("window.seen = new Set()")
    page.js("""window.drag = setInterval(() => {
        const slider = document.getElementById('accuracy-range');
        slider.value = Number(slider.value) > 98 ? 60 : Number(slider.value) + 0.1;
        slider.dispatchEvent(new Event('input'));
        window.seen.add(document.getElementById('headline').textContent);
    }, 10)""")
    page.until("window.seen.size > 3")
    page.js("clearInterval(window.drag)")
    page.settle()
    accuracy = float(page.values("#accuracy")[0]) / 100
    assert page.masses() == pytest.approx(expect(accuracy).masses(ScoreBins.equal(10)).tolist(), rel=1e-9)


# --- the number of labels ---


def test_the_number_of_labels_sets_the_prior_strength(page: Page) -> None:
    assert "1000" not in page.text("#take-command pre") + page.text("#take-sklearn pre")
    assert "num_labels = ..." in page.text("#take-python pre")
    assert not page.visible("#labels, #concentration")
    page.advanced()
    page.enter("#labels", "300")
    assert "If you are as sure as after 300 cases" in page.text("#claims")
    assert "num_labels = 300" in page.text("#take-python pre")
    assert "concentration" not in page.text("#take-command pre") + page.text("#take-sklearn pre")
    assert page.js("document.getElementById('concentration').placeholder") == "300"
    page.enter("#concentration", "3000")
    assert "but have 300 labelled examples: your numbers would overrule the labels" in page.text("#warnings")
    assert page.text("#sure option:checked") == "As after 3000 cases"
    assert "--concentration 3000 --overrule-labels" in page.text("#take-command pre")
    page.js("document.getElementById('sure').focus()")
    page.choose("#sure", "")
    assert page.values("#concentration") == [""]
    assert not page.visible("#warnings")
    assert "concentration" not in page.text("#take-command pre")


# --- bad input ---


def test_shares_that_do_not_sum_to_one_can_be_scaled(page: Page) -> None:
    page.open("#k=3&accuracy=0.8&shares=0.6,0.3,0.3&regions=shells")
    assert page.text("#problem-fractions") == "The class shares must sum to 100 %, but their sum is 120 %."
    assert page.visible("#failure")
    page.click("#rescale")
    assert page.masses() == pytest.approx(expect(0.8, [0.5, 0.25, 0.25]).masses(CornerShells(3)).tolist(), rel=1e-9)
    assert not page.visible("#failure")


@pytest.mark.parametrize(
    ("selector", "text", "field", "message"),
    [
        ("#accuracy", "40", "accuracy", "above 50 %"),
        ("#accuracy", "", "accuracy", "must be a number"),
        ("#classes", "1000", "classes", "takes up to 100 classes"),
        ("#concentration", "0", "concentration", "number of cases must lie between"),
        ("#labels", "0", "labels", "number of labelled examples must lie between 1"),
        ("#bins", "1", "bins", "between 2 and 50"),
    ],
)
def test_a_wrong_number_is_explained_beside_its_field(
    page: Page, selector: str, text: str, field: str, message: str
) -> None:
    before = page.masses()
    page.advanced()
    page.js(f"(box => {{ box.focus(); box.select(); }})(document.querySelector({json.dumps(selector)}))")
    if text:
        page.write(text)
    else:
        page.js("document.execCommand('delete')")
    page.settle()
    assert message in page.text(f"#problem-{field}")
    assert page.js(f"document.querySelector({json.dumps(selector)}).getAttribute('aria-invalid')") == "true"
    assert page.masses() == before  # what was last right stays, faded


def test_tags_in_names_are_text(page: Page) -> None:
    name = "<img src=x onerror='window.hacked=1'>"
    page.enter("#name-rows input", name)
    page.enter("#name-rows input:nth-of-type(2)", "<script>window.hacked=2</script>")
    assert name in page.text("#claims")
    assert name in page.text("#take-python pre")
    assert page.js("document.querySelectorAll('#output img, #output script').length") == 0
    assert page.js("window.hacked") is None


def test_nonsense_in_a_link_is_explained(page: Page) -> None:
    for fragment in (
        "#k=two",
        "#accuracy=NaN",
        "#regions=<script>",
        "#shares=1,2,3",
        "#%00%ff=1",
        "#from=draw&heights=x",
    ):
        page.open(fragment)
        assert page.js("window.hacked") is None
        assert page.visible("#failure") or page.masses()


# --- taking it along ---


def test_a_link_brings_everything_back(page: Page) -> None:
    page.enter("#classes", "3")
    for k, name in enumerate(("a & b", "c=d#e", "é, <f>")):
        page.enter(f"#name-rows input:nth-of-type({k + 1})", name)
    page.enter("#accuracy", "76.5")
    page.advanced()
    page.enter("#edges", "0.6, 0.8")
    page.enter("#labels", "4321")
    page.enter("#concentration", "321")
    page.click("#again")
    masses, claims = page.masses(), page.text("#claims")
    drawn = page.js("document.querySelector('#draws [data-mass]').dataset.mass")
    link = page.js("document.getElementById('link').value")
    assert link.startswith(page.url + "#")
    page.open("#k=2")
    assert page.masses() != masses
    page.open(link.removeprefix(page.url))
    assert page.masses() == masses
    assert page.text("#claims") == claims
    assert page.js("document.querySelector('#draws [data-mass]').dataset.mass") == drawn
    assert page.js("document.getElementById('accuracy').value") == "76.5"
    assert page.js("document.getElementById('edges').value") == "0.6, 0.8"
    assert page.values("#labels, #concentration") == ["4321", "321"]
    assert page.visible("#concentration")
    page.js("location.hash = '#k=2&accuracy=0.75'")
    page.until("document.getElementById('accuracy').value === '75'")
    page.settle()
    assert page.masses() == pytest.approx([0.1] * 10, rel=1e-7)


def test_copied_texts_are_those_of_the_page_and_run(page: Page) -> None:
    origin = page.url.rstrip("/")
    page.window.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin)
    page.open(
        "#k=2&name=healthy&name=ill&accuracy=0.9&shares=0.8,0.2&labels=600&regions=equal&bins=10&concentration=500"
    )
    page.tab.bring_to_front()
    copied = {}
    for kind in ("python", "sklearn", "command", "link"):
        page.click(f"[data-copy={kind}]")
        page.until("document.getElementById('copied').textContent === 'Copied'")
        copied[kind] = page.js("navigator.clipboard.readText()")
        page.js("document.getElementById('copied').textContent = ''")
    names: dict[str, Any] = {}
    exec(copied["python"], names)
    assert names["summary"].s0.tolist() == pytest.approx(page.masses(), rel=1e-12)
    exec(copied["sklearn"], names)
    said = names["classifier"].get_params()
    assert said["accuracy"] == 0.9
    assert said["class_fractions"] == {"healthy": 0.8, "ill": 0.2}
    assert said["concentration"] == 500.0
    assert shlex.split(copied["command"])[-8:] == [
        "--accuracy", "0.9", "--class-fraction", "healthy=0.8", "--class-fraction", "ill=0.2", "--concentration", "500"
    ]  # fmt: skip
    assert copied["link"] == page.js("location.href")


# --- looks ---


@pytest.mark.parametrize("width", [320, 390, 768, 1366])
def test_nothing_sticks_out(page: Page, width: int) -> None:
    page.look(width, 800)
    for fragment in ("#k=2", "#k=3&name=a+very+long+name+of+a+class+indeed&name=b&name=c", "#k=10&from=draw"):
        page.open(fragment)
        assert page.js("document.documentElement.scrollWidth") <= width


def contrast(first: str, second: str) -> float:
    """Of two colours, as the guidelines for accessible content define it."""

    def light(colour: str) -> float:
        channels = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(first), light(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_in_light_and_dark(page: Page, dark: bool) -> None:
    page.look(1366, 900, dark=dark)
    page.open("#k=2&accuracy=0.7&shares=0.9,0.1")
    paper = page.js("getComputedStyle(document.body).backgroundColor")
    assert (contrast(paper, "rgb(0, 0, 0)") < 2) == dark
    panel = page.js("getComputedStyle(document.querySelector('fieldset')).backgroundColor")
    for selector in ("body", ".lede", ".hint", "summary", "#claims", "legend", "figcaption", ".warn p"):
        colour = page.js(f"getComputedStyle(document.querySelector({json.dumps(selector)})).color")
        assert min(contrast(colour, paper), contrast(colour, panel)) >= 4.5, selector
    for selector in (".bar", ".soft"):
        colour = page.js(f"getComputedStyle(document.querySelector({json.dumps('#bars ' + selector)})).fill")
        assert contrast(colour, paper) >= (2.5 if selector == ".bar" else 4.5)


def test_nothing_moves_for_those_who_do_not_want_it(page: Page) -> None:
    moving = "getComputedStyle(document.querySelector('figure')).transitionProperty"
    assert page.js(moving) != "none"
    page.tab.emulate_media(reduced_motion="reduce")
    assert page.js(moving) == "none"


# --- the command ---


def test_the_command_prints_its_address_and_stops_cleanly(page: Page, tmp_path: Path) -> None:
    link = "http://elsewhere:99/#k=3&name=%3Cb%3E&name=b&name=c&accuracy=0.6&regions=classes&concentration=50"
    command = [sys.executable, "-m", "selbo", "elicit", link, "--no-browser", "--port", "0"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "80"}, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = re.fullmatch(
            r"The elicitation page is at (http://127\.0\.0\.1:\d+/)(#\S+)\n", process.stdout.readline()
        )
        assert found is not None
        page.url = found[1]
        page.open(found[2])
        assert page.masses() == pytest.approx([1 / 3] * 3, rel=1e-7)
        assert page.text("#table th") == "<b>"
        page.requests.clear()  # these went to another server than the one the fixture knows
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("Stopped.\n")
    assert list(tmp_path.iterdir()) == []  # nothing is kept
