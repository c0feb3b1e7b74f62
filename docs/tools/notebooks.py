"""Make notebooks of tutorials: code becomes cells, text becomes Markdown, outputs are those of running the cells.

What a page shows as output is left out: a notebook has the output of its own run, or none. Notebooks are made with the
documentation and not committed. `python docs/tools/notebooks.py tables groups` runs these pages and keeps the notebooks
in .cache, by the content of the page and of the library, until one of them changes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "tutorials"
CACHE = ROOT / ".cache" / "notebooks"
NAMES = ("tables", "groups", "images")
"""Tutorials that run in seconds, on data that come with scikit-learn or are generated."""

PACKAGES = ("numpy", "scikit-learn", "scipy", "torch")
"""Besides the library, what outputs hang on."""

CELL = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\s*(?:<!-- trained -->\n)?```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL
)
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s:]+)\)")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:)[^)\s]+\)")
"""To another page of the documentation, which a notebook is not beside of."""

Notebook = dict[str, Any]


def notebook(text: str, folder: Path, *, source: str) -> Notebook:
    """A page as a notebook without outputs.

    Args:
        text: The page.
        folder: Folder that its images are relative to.
        source: What the notebook says that it was made of.
    """
    cells, end = [], 0
    for found in CELL.finditer(text):
        cells += [markdown_cell(text[end : found.start()], folder), code_cell(found["code"])]
        end = found.end()
    cells.append(markdown_cell(text[end:], folder))
    cells = [each for each in cells if each["source"]]
    cells.insert(1, markdown_cell(f"*Made from {source}.*", folder))
    for i, each in enumerate(cells):
        each["id"] = f"cell-{i}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


def code_cell(code: str) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": code.rstrip()}


def markdown_cell(text: str, folder: Path) -> dict[str, Any]:
    """Text with its images in it, and with the words of its links to other pages."""
    attachments = {}

    def attach(found: re.Match[str]) -> str:
        path = folder / found[2]
        attachments[path.name] = {"image/png": base64.b64encode(path.read_bytes()).decode()}
        return f"![{found[1]}](attachment:{path.name})"

    cell = {"cell_type": "markdown", "metadata": {}, "source": IMAGE.sub(attach, LINK.sub(r"\1", text)).strip()}
    return {**cell, "attachments": attachments} if attachments else cell


def run(made: Notebook) -> None:
    """Run the cells of a notebook one after the other, and put what they print below them."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate((each for each in made["cells"] if each["cell_type"] == "code"), 1):
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(cell["source"], f"cell {number}", "exec"), names)
        cell["execution_count"] = number
        if text := printed.getvalue():
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]


# --- those of the documentation ---


def of_page(name: str) -> Notebook:
    """The notebook of a tutorial, without outputs."""
    source = f"docs/tutorials/{name}.md of selbo {version('selbo')}"
    return notebook((FOLDER / f"{name}.md").read_text(encoding="utf-8"), FOLDER, source=source)


def cache_of(name: str) -> Path:
    """Where the notebook of a tutorial is kept after its run; somewhere else if anything that it hangs on changes."""
    content = hashlib.sha256(json.dumps(of_page(name)).encode())
    for path in (Path(__file__), *sorted((ROOT / "src").rglob("*.py"))):
        content.update(path.read_bytes())
    content.update(repr([platform.python_version(), platform.machine(), *map(version, PACKAGES)]).encode())
    return CACHE / f"{name}-{content.hexdigest()[:16]}.ipynb"


def run_missing() -> list[subprocess.Popen[bytes]]:
    """Begin to run what was not run yet, each page in a process of its own."""
    missing = [name for name in NAMES if not cache_of(name).exists()]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    return [subprocess.Popen([sys.executable, __file__, name], env=environment) for name in missing]


def write(folder: Path) -> None:
    """Write the notebooks of all tutorials; those that were not run, without outputs."""
    for name in NAMES:
        kept = cache_of(name)
        text = kept.read_text(encoding="utf-8") if kept.exists() else dumped(of_page(name))
        (folder / f"{name}.ipynb").write_text(text, encoding="utf-8")


def with_link(text: str, name: str) -> str:
    """A page with a link to its notebook under its title."""
    title, _, rest = text.partition("\n")
    return f'{title}\n\n[Download as a notebook]({name}.ipynb){{ download="{name}.ipynb" }}\n{rest}'


def dumped(made: Notebook) -> str:
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        made, kept = of_page(name), cache_of(name)
        run(made)
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob(f"{name}-*.ipynb"):
            old.unlink()
        kept.write_text(dumped(made), encoding="utf-8")
