"""Every Python block of the README and the documentation runs as it stands, and so does every example.

The blocks of one page run in order, in one namespace, with warnings as errors. A block that cannot run is preceded by
`<!-- not run: reason -->`; one that needs packages which `make test` does not install, by
`<!-- needs: package, package -->`, and it runs where they are. An example that imports such a package runs where it is.
The warnings of these packages are their own, and no errors.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MAX_EXAMPLE_LINES = 80
TIMEOUT_SECONDS = 300
NOT_BY_MAKE = {"accelerate", "lightning", "mlflow", "tensorboard", "transformers"}

BLOCK = re.compile(
    r"(?:<!--\s*not run(?P<colon>:)?(?P<reason>(?:(?!-->).)*)-->\s*\n)?"
    r"(?:<!--\s*needs:(?P<needs>(?:(?!-->).)*)-->\s*\n)?"
    r"(?P<indent>^[ \t]*)```(?P<language>py\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)


def is_missing(package: str) -> bool:
    return find_spec(package) is None


def program(text: str, *, missing: Callable[[str], bool] = is_missing) -> str:
    """The Python blocks of a page as one script, each line where it stands in the page, so that errors point there."""
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("code"))
        if block["language"] != "python":
            raise ValueError(f"line {line}: write ```python, not ```{block['language']}, so that the block is run")
        if block["reason"] is not None:
            if not (block["colon"] and block["reason"].strip()):
                raise ValueError(f"line {line}: a block that is not run needs a reason: <!-- not run: reason -->")
            continue
        packages = {each.strip() for each in (block["needs"] or "").split(",")} - {""}
        if (block["needs"] is not None and not packages) or packages - NOT_BY_MAKE:
            raise ValueError(f"line {line}: a block may need {sorted(NOT_BY_MAKE)}, but this names {sorted(packages)}")
        if any(missing(each) for each in packages):
            continue
        code = textwrap.dedent(block["code"]).splitlines()
        lines[line : line + len(code)] = code
    return "\n".join(lines)


def imports(source: str) -> set[str]:
    """Packages that a script imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names}


def run_python(script: Path, *arguments: str, folder: Path, warnings: str = "error") -> None:
    run = subprocess.run(
        [sys.executable, "-W", warnings, str(script), *arguments],
        cwd=folder,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert run.returncode == 0, f"{script.name} failed:\n{run.stdout}\n{run.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    code = program(page.read_text(encoding="utf-8"))
    if code.strip():  # a page without blocks has nothing to run
        script = tmp_path / f"{page.stem}.md.py"
        script.write_text(code, encoding="utf-8")
        run_python(script, folder=tmp_path, warnings="default" if imports(code) & NOT_BY_MAKE else "error")


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_short(example: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) <= MAX_EXAMPLE_LINES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    special = imports(example.read_text(encoding="utf-8")) & NOT_BY_MAKE
    if missing := sorted(each for each in special if is_missing(each)):
        pytest.skip(f"{' and '.join(missing)} not installed")
    arguments = ("--smoke", "--out", str(tmp_path / "out"))
    run_python(example, *arguments, folder=tmp_path, warnings="default" if special else "error")


# --- the extraction itself ---


def test_blocks_keep_their_lines_and_share_a_namespace() -> None:
    text = "# Title\n```python\na = 1\n```\n!!! note\n\n    ```python title='x'\n    b = a\n    ```\n```text\nno\n```\n"
    assert program(text).splitlines() == ["", "", "a = 1", "", "", "", "", "b = a", "", "", "", ""]


def test_a_block_may_be_left_out_with_a_reason() -> None:
    text = "<!-- not run: needs a download -->\n\n```python\na = 1\n```\n\n```python\nb = 2\n```\n"
    assert program(text).split() == ["b", "=", "2"]


@pytest.mark.parametrize("comment", ["<!-- not run -->", "<!-- not run: -->", "<!-- not run:  -->"])
def test_a_block_is_not_left_out_without_a_reason(comment: str) -> None:
    with pytest.raises(ValueError, match="line 2: a block that is not run needs a reason"):
        program(f"{comment}\n```python\na = 1\n```\n")


@pytest.mark.parametrize("language", ["py", "pycon", "python3"])
def test_a_block_in_another_spelling_is_an_error(language: str) -> None:
    with pytest.raises(ValueError, match="write ```python"):
        program(f"```{language}\na = 1\n```\n")


def test_a_block_runs_where_its_packages_are() -> None:
    text = "<!-- needs: mlflow, lightning -->\n```python\na = 1\n```\n\n```python\nb = 2\n```\n"
    assert program(text, missing=lambda package: False).split() == ["a", "=", "1", "b", "=", "2"]
    assert program(text, missing=lambda package: package == "lightning").split() == ["b", "=", "2"]


@pytest.mark.parametrize("packages", ["numpy", "mlflow, numpy", " "])
def test_a_block_may_not_be_excused_by_a_package_that_is_there(packages: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: a block may need .*mlflow"):
        program(f"<!-- needs: {packages} -->\n```python\na = 1\n```\n")


def test_imports_are_found_wherever_they_are() -> None:
    source = "import a.b as c, d\nfrom e.f import g\nfrom . import h\ndef i():\n    import j\n"
    assert imports(source) == {"a", "d", "e", "j"}
