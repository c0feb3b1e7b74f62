"""The documentation can be read: code fits its column, links stand out, a reference opens with its classes."""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").rglob("*.md"))
LABORATORY = ROOT / "lab" / "docs"
PAGES = [ROOT / "README.md", *DOCS, *sorted(LABORATORY.rglob("*.md"))]
SOURCES = sorted((ROOT / "src" / "selbo").rglob("*.py"))

WIDEST = 90
"""Characters of code that fit beside both side bars on a screen of 1280 pixels, with docs/stylesheets/page.css."""

PAPER = {"default": ["#ffffff", "#f5f5f5"], "slate": ["#0b0c0f", "#14171f"]}
"""Of Zensical, by scheme: the page, and the blocks and words of code on it."""


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


def unknown_names(code: str) -> set[str]:
    """Names that a block reads and nothing in it defines."""
    names = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
    imported = {
        (each.asname or each.name).partition(".")[0]
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for each in node.names
    }
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return {node.id for node in names} - stored - imported - set(dir(builtins))


def test_an_example_of_the_readme_runs_when_it_alone_is_pasted() -> None:
    found = [
        code for language, _, code in blocks((ROOT / "README.md").read_text(encoding="utf-8")) if language == "python"
    ]
    assert len(found) == 3
    assert [unknown_names(code) for code in found] == [set()] * 3
    assert unknown_names("import a.b\nc = len(a.b.X)\nd(c, e)") == {"d", "e"}


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
"""Of the pages in docs and in folders of lab/docs. Those beside these folders are lists of results and designs."""

SETTINGS = (ROOT / "zensical.toml").read_text(encoding="utf-8")
NAVIGATION = re.findall(r'^ +\{ ".*" = "([\w/-]+\.md)" \},$', SETTINGS, re.MULTILINE)


def test_pages_are_short() -> None:
    pages = [*DOCS, *LABORATORY.glob("*/**/*.md")]
    lines = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in pages}
    assert {page for page, count in lines.items() if count > LONGEST} == set()


def test_every_page_has_a_job_and_one_place_in_the_navigation() -> None:
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in DOCS]
    assert {page.partition("/")[0] for page in pages if "/" in page} == FOLDERS
    assert {page for page in pages if "/" not in page} == {"index.md", "changelog.md"}
    laboratory = [path.relative_to(LABORATORY).as_posix() for path in LABORATORY.rglob("*.md")]
    assert {page.partition("/")[0] for page in laboratory if "/" in page} <= FOLDERS
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


def mixed(front: str, back: str, share: float) -> str:
    """A colour that lets another one through."""
    pairs = ((int(front[i : i + 2], 16), int(back[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(share * one + (1 - share) * other):02x}" for one, other in pairs)


@pytest.mark.parametrize("scheme", PAPER)
def test_links_stand_out_from_the_page(scheme: str) -> None:
    colours = f'[data-md-color-scheme="{scheme}"][data-md-color-primary="teal"]'
    link, accent = variable(colours, "--md-typeset-a-color"), variable(colours, "--md-accent-fg-color")
    for paper in PAPER[scheme]:
        assert contrast(link, paper) >= 4.5
    page = PAPER[scheme][0]
    assert contrast(accent, mixed(accent, page, 0x1A / 0xFF)) >= 4.5  # the entry of this page in the navigation


def test_colours_are_mixed_by_their_shares() -> None:
    assert mixed("#ff0080", "#000000", 0.5) == "#800040"
    assert mixed("#123456", "#ffffff", 1.0) == "#123456"


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


# --- reference, home ---


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_reference_opens_with_its_classes_and_ends_with_its_constants() -> None:
    griffe = pytest.importorskip("griffe")
    extensions = griffe.load_extensions(tool("classes_first").ClassesFirst())
    module = griffe.load("selbo.summary.likelihood", search_paths=[ROOT / "src"], extensions=extensions)
    shown = sorted(
        (each for each in module.members.values() if not each.is_alias and not each.name.startswith("_")),
        key=lambda each: each.lineno,
    )
    kinds = [each.kind.value for each in shown]
    assert kinds == sorted(kinds, key=["class", "function", "attribute"].index)
    assert {"class", "function", "attribute"} == set(kinds)
    assert "docs/tools/classes_first.py" in SETTINGS
    assert "group_by_category = false" in SETTINGS


def test_the_home_page_says_how_to_install() -> None:
    home = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert next(content for language, _, content in blocks(home) if language == "bash").startswith("pip install ")


@pytest.mark.parametrize(
    "name", ["belief_on_simplex", "dirichlet_process_samples", "summary_against_histogram", "toy_repair"]
)
def test_images_of_figures_are_small(name: str) -> None:
    assert (ROOT / "docs" / "images" / f"{name}.png").stat().st_size < 300_000


# --- formulas ---


def rendered(text: str) -> str:
    markdown = pytest.importorskip("markdown")
    pytest.importorskip("latex2mathml")
    pytest.importorskip("pymdownx")
    extensions = ["pymdownx.arithmatex", tool("mathml").makeExtension()]
    return markdown.markdown(text, extensions=extensions, extension_configs={"pymdownx.arithmatex": {"generic": True}})


def test_formulas_become_mathml() -> None:
    page = rendered("Let $p < q$ be.\n\n$$\n\\sum_i p_i\n$$\n\n`$p$`")
    inline, block = re.findall(r'<(?:span|div) class="arithmatex"><math.*?</math></(?:span|div)>', page, re.DOTALL)
    assert re.sub(r"<[^>]*>", "", inline) == "p&lt;q"
    assert block.startswith("<div")
    assert "<munder>" in block  # below the sum, not beside it
    assert "<code>$p$</code>" in page


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"$\unknown{x}$", r"cannot show the formula '\\unknown{x}': unknown command \unknown"),
        (r"$\frac{x}$", r"cannot show the formula '\\frac{x}'"),
        ("## A $p$ here", "a heading cannot hold a formula"),
    ],
)
def test_a_formula_that_cannot_be_shown_is_an_error(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"a page: {said}")):
        rendered(text)


# --- notebooks ---

NOTEBOOKS = tool("notebooks")


@pytest.mark.parametrize("name", NOTEBOOKS.NAMES)
def test_a_notebook_has_the_code_of_its_page_and_no_output_before_it_was_run(name: str) -> None:
    page = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
    made = NOTEBOOKS.of_page(name)
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    assert [cell["source"] for cell in code] == [text.rstrip() for kind, _, text in blocks(page) if kind == "python"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    text = "\n\n".join(cell["source"] for cell in made["cells"] if cell["cell_type"] == "markdown")
    shown = re.findall(
        r"^```python\n[^`]*^```\n\s*(?:<!-- trained -->\s*)?```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    assert shown
    assert not [each for each in shown if each.strip() in text]
    assert "<!--" not in text
    assert text.startswith(page.partition("\n")[0])
    sections = r"^##+ .*"
    assert re.findall(sections, text, re.MULTILINE) == re.findall(sections, page, re.MULTILINE)
    assert not re.findall(r"\]\((?!attachment:|https?:)", text)  # a notebook is alone
    assert len({cell["id"] for cell in made["cells"]}) == len(made["cells"])


PAGE = """\
# Title

See [another](../other.md#x) and [a site](https://example.org).

```python
x = 2
print(x + 1)
```

<!-- trained -->
```text
4
```

Then ![a picture](picture.png):

```python
y = x * 21
```

```python
print(y)
print("end")
```

```text
stale
```

```bash
selbo demo
```
"""


def test_a_notebook_has_the_outputs_of_its_own_run(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"pixels")
    made = NOTEBOOKS.notebook(PAGE, tmp_path, source="a test")
    NOTEBOOKS.run(made)
    kinds = [(cell["cell_type"], cell["source"]) for cell in made["cells"]]
    assert kinds == [
        ("markdown", "# Title\n\nSee another and [a site](https://example.org)."),
        ("markdown", "*Made from a test.*"),
        ("code", "x = 2\nprint(x + 1)"),
        ("markdown", "Then ![a picture](attachment:picture.png):"),
        ("code", "y = x * 21"),
        ("code", 'print(y)\nprint("end")'),
        ("markdown", "```bash\nselbo demo\n```"),
    ]
    assert made["cells"][3]["attachments"] == {"picture.png": {"image/png": "cGl4ZWxz"}}
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    assert [[each["text"] for each in cell["outputs"]] for cell in code] == [["3\n"], [], ["42\nend\n"]]
    assert [cell["execution_count"] for cell in code] == [1, 2, 3]


def test_a_cell_that_fails_stops_the_notebook(tmp_path: Path) -> None:
    made = NOTEBOOKS.notebook("```python\nprint(1)\n```\n\n```python\n1 / 0\n```\n", tmp_path, source="a test")
    with pytest.raises(ZeroDivisionError):
        NOTEBOOKS.run(made)


def test_notebooks_are_kept_until_the_page_or_the_library_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("docs/tutorials/tables.md", "src/selbo/module.py"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("1\n", encoding="utf-8")
    monkeypatch.setattr(NOTEBOOKS, "ROOT", tmp_path)
    monkeypatch.setattr(NOTEBOOKS, "FOLDER", tmp_path / "docs" / "tutorials")
    kept = {NOTEBOOKS.cache_of("tables")}
    assert {NOTEBOOKS.cache_of("tables")} == kept
    for path in ("docs/tutorials/tables.md", "src/selbo/module.py"):
        (tmp_path / path).write_text("2\n", encoding="utf-8")
        kept.add(NOTEBOOKS.cache_of("tables"))
    assert len(kept) == 3
