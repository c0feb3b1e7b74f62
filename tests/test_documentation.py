"""The documentation can be read: code fits its column, links stand out, a reference opens with its classes."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *DOCS, *sorted((ROOT / "lab" / "docs").glob("*.md"))]
SOURCES = sorted((ROOT / "src" / "selbo").rglob("*.py"))

WIDEST = 90
"""Characters of code that fit beside both side bars on a screen of 1280 pixels, with docs/stylesheets/page.css."""

PAPER = {"default": ["#ffffff", "#f5f5f5"], "slate": ["#1e2129", "#272a35"]}
"""Of Material for MkDocs, by scheme: the page, and the blocks and words of code on it."""


def blocks(text: str) -> Iterator[tuple[str, int, str]]:
    """Language, first line and content of the blocks of code; outputs, which wrap, are `text`."""
    for found in re.finditer(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE):
        yield found[2], text.count("\n", 0, found.start()) + 2, found[3]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_code_fits_its_column(page: Path) -> None:
    for language, first, content in blocks(page.read_text(encoding="utf-8")):
        if language != "text":
            for i, line in enumerate(content.splitlines()):
                assert len(line) <= WIDEST, f"{page.name}:{first + i} has {len(line)} characters: {line}"


def test_blocks_are_found() -> None:
    text = "a\n```python\nx = 1\n\ny\n```\n\n```text\nout\n```\n"
    assert list(blocks(text)) == [("python", 3, "x = 1\n\ny\n"), ("text", 9, "out\n")]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_examples_of_docstrings_fit_their_column(path: Path) -> None:
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        docstring = ast.get_docstring(node) if isinstance(node, kinds) else None
        for example in doctest.DocTestParser().get_examples(docstring or ""):
            lines = [f">>> {line}" for line in example.source.splitlines()] + example.want.splitlines()
            assert max(map(len, lines)) <= WIDEST, f"{path.name}: {lines}"


# --- pages ---

FOLDERS = {"tutorials", "how-to", "explanation", "reference"}
LONGEST = 200
"""Of the pages in docs. Those of the laboratory are lists of results and designs."""

NAVIGATION = re.findall(r"^ +- .*: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)


def test_pages_are_short() -> None:
    lines = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in DOCS}
    assert {page for page, count in lines.items() if count > LONGEST} == set()


def test_every_page_has_a_job_and_one_place_in_the_navigation() -> None:
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in DOCS]
    assert {page.partition("/")[0] for page in pages if "/" in page} == FOLDERS
    assert {page for page in pages if "/" not in page} == {"index.md", "changelog.md"}
    laboratory = [path.name for path in (ROOT / "lab" / "docs").glob("*.md")]
    assert sorted(each for each in NAVIGATION if not each.startswith("results/")) == sorted([*pages, *laboratory])


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_images_exist(page: Path) -> None:
    for target in re.findall(r"!\[[^\]]*\]\(([^)\s#]+)", page.read_text(encoding="utf-8")):
        assert "images/results/" in target or (page.parent / target).is_file(), f"{page.name} shows {target}"


# --- colours ---


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first: str, second: str) -> float:
    """Of WCAG 2: from 1 to 21."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def variable(selector: str, name: str) -> str:
    css = (ROOT / "docs" / "stylesheets" / "page.css").read_text(encoding="utf-8")
    found = re.search(rf"{re.escape(selector)} \{{[^}}]*{name}: (#[0-9a-f]{{6}});", css)
    assert found is not None, f"page.css must set {name} in {selector}"
    return found[1]


@pytest.mark.parametrize("scheme", PAPER)
def test_links_stand_out_from_the_page(scheme: str) -> None:
    link = variable(f'[data-md-color-scheme="{scheme}"][data-md-color-primary="teal"]', "--md-typeset-a-color")
    for paper in PAPER[scheme]:
        assert contrast(link, paper) >= 4.5


def test_the_bar_at_the_top_can_be_read() -> None:
    assert contrast("#ffffff", variable('[data-md-color-primary="teal"]', "--md-primary-fg-color")) >= 4.5


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


# --- reference, home ---


def hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "hooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_reference_opens_with_its_classes_and_ends_with_its_constants() -> None:
    griffe = pytest.importorskip("griffe")
    extensions = griffe.load_extensions(hook("classes_first").ClassesFirst())
    module = griffe.load("selbo.summary.likelihood", search_paths=[ROOT / "src"], extensions=extensions)
    shown = sorted(
        (each for each in module.members.values() if not each.is_alias and not each.name.startswith("_")),
        key=lambda each: each.lineno,
    )
    kinds = [each.kind.value for each in shown]
    assert kinds == sorted(kinds, key=["class", "function", "attribute"].index)
    assert {"class", "function", "attribute"} == set(kinds)
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "docs/hooks/classes_first.py" in settings
    assert "group_by_category: false" in settings


def test_the_home_page_says_how_to_install() -> None:
    home = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert next(content for language, _, content in blocks(home) if language == "bash").startswith("pip install ")


@pytest.mark.parametrize(
    "name", ["belief_on_simplex", "dirichlet_process_samples", "summary_against_histogram", "toy_repair"]
)
def test_images_of_figures_are_small(name: str) -> None:
    assert (ROOT / "docs" / "images" / f"{name}.png").stat().st_size < 300_000
