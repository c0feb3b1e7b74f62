"""The build of the documentation, on a small set of pages: what it writes, and what stops it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from chromium import find_chromium, launch_chromium, open_window

pytest.importorskip("zensical")  # which Python 3.10 has none of
pytest.importorskip("mkdocstrings")
pytest.importorskip("latex2mathml")

ROOT = Path(__file__).parents[1]
PROGRAM = find_chromium()
NAVIGATION = """nav = [
    { "Home" = "index.md" },
    { "Tutorials" = [
        { "Tables" = "tutorials/tables.md" },
        { "Groups" = "tutorials/groups.md" },
        { "Images" = "tutorials/images.md" },
    ] },
    { "Reference" = "reference.md" },
]
"""
MODULE = """\
'''A module with $y^2$.'''


def act(one: str) -> None:
    '''Act.

    Args:
        one: A word.
    '''
"""
RESULTS = """\
def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def write_pages(folder):
    pass
"""
PAGES = {
    "docs/index.md": "# Home\n\nSee [tables](tutorials/tables.md#second).\n\nLet $x_1$ be.\n",
    "docs/tutorials/tables.md": "# Tables\n\n## First\n\nAardvarks.\n\n## Second\n\n```python\nprint(1 + 1)\n```\n",
    "docs/tutorials/groups.md": "# Groups\n\nBadgers.\n",
    "docs/tutorials/images.md": "# Images\n\nCats.\n",
    "docs/reference.md": "# Reference\n\n::: small\n",
    "lab/docs/results.py": RESULTS,
    "src/small.py": MODULE,
    "lab/src/.keep": "",
    "constraints.txt": "",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    with launch_chromium(PROGRAM) as found:
        yield found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the settings and tools of this one, and a few pages of its own."""
    for name, text in PAGES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name in ("docs/tools", "docs/stylesheets"):
        shutil.copytree(ROOT / name, tmp_path / name)
    settings = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    made, count = re.subn(r"^nav = \[\n.*?^\]\n", NAVIGATION, settings, flags=re.MULTILINE | re.DOTALL)
    assert count == 1
    (tmp_path / "zensical.toml").write_text(made, encoding="utf-8")
    return tmp_path


def build(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "docs/tools/build.py", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


def add(path: Path, text: str) -> None:
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")


def test_the_site_has_formulas_and_notebooks_and_fetches_nothing(checkout: Path) -> None:
    done = build(checkout, "--notebooks")
    assert done.returncode == 0, done.stdout + done.stderr
    home, reference = (
        (checkout / "site" / f"{name}.html").read_text(encoding="utf-8") for name in ("index", "reference")
    )
    assert "<msub><mi>x</mi><mn>1</mn></msub>" in home
    assert "<msup><mi>y</mi><mn>2</mn></msup>" in reference
    notebook = (checkout / "site/tutorials/tables.ipynb").read_text(encoding="utf-8")
    assert '"text": "2\\n"' in notebook
    tables = (checkout / "site/tutorials/tables.html").read_text(encoding="utf-8")
    assert 'href="tables.ipynb"' in tables
    fetched = re.findall(r'<(?:script|link|img)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"', home + tables + reference)
    assert fetched == []


@pytest.mark.skipif(PROGRAM is None, reason="needs Chromium: set SELBO_TEST_BROWSER")
def test_pages_opened_from_disk_can_be_searched_without_a_network(checkout: Path, browser: Browser) -> None:
    done = build(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    window = open_window(browser, 1280, 900)
    window.set_offline(True)
    page = window.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((checkout / "site" / "index.html").as_uri())
    page.locator(".md-search__button").click()
    page.keyboard.type("aardvarks")
    page.get_by_role("option").filter(has_text="Aardvarks").first.click()
    page.wait_for_url("**/tutorials/tables.html**")
    assert {url.partition(":")[0] for url in asked} <= {"file", "blob", "data"}
    window.close()


def test_zensical_looks_for_links(checkout: Path) -> None:
    add(checkout / "docs/index.md", "\n[a](nowhere.md) [b](tutorials/tables.md#third) [c][small.nothing]\n")
    done = build(checkout)
    assert done.returncode != 0
    for each in ("page does not exist", "anchor does not exist", "unresolved autoref", "3 issues found"):
        assert each in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Let $\\nothing$ be.", "index.md: cannot show the formula '\\\\nothing'"),
        ("::: small.nothing", "Could not collect 'small.nothing'"),
        ('--8<-- "nothing.md"', "nothing.md"),
    ],
)
def test_what_cannot_be_rendered_stops_the_build(checkout: Path, text: str, said: str) -> None:
    add(checkout / "docs/index.md", f"\n{text}\n")
    done = build(checkout)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr


def test_what_zensical_does_not_look_for_stops_the_build_every_time(checkout: Path) -> None:
    add(checkout / "docs/index.md", "\n![a](nothing.png) [b](javascripts)\n")
    (checkout / "docs/new.md").write_text("# New\n", encoding="utf-8")
    settings = (checkout / "zensical.toml").read_text(encoding="utf-8")
    entry = '{ "Reference" = "reference.md" },'
    assert entry in settings
    (checkout / "zensical.toml").write_text(
        settings.replace(entry, f'{entry} {{ "Old" = "old.md" }},'), encoding="utf-8"
    )
    (checkout / "src/small.py").write_text(MODULE.replace("one: A word.", "two: A word."), encoding="utf-8")
    for _ in range(2):  # pages are kept from one build to the next
        done = build(checkout)
        assert done.returncode != 0
        for each in (
            "index.html points to nothing.png, which does not exist",
            "index.html points to javascripts, which does not exist",
            "old.md is in the navigation (zensical.toml), but there is no such page",
            "new.md is not in the navigation (zensical.toml)",
            "Parameter 'two' does not appear in the function signature",
        ):
            assert each in done.stderr
