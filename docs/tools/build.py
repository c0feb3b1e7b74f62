"""Build the documentation into site/, with warnings as errors: `python docs/tools/build.py`.

Zensical reads one folder of finished pages. So the pages of docs/ and of lab/docs/ are put together in build/pages
first: with the tables of results filled in, links between both folders as if they were one, notebooks of tutorials, and
a script by which search works in pages that are opened from disk. Formulas are converted by an extension of Markdown,
`mathml`. With `--notebooks` the notebooks have outputs: they are run, unless that was done before.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import notebooks

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "site"
SETTINGS = ROOT / "zensical.toml"

SEARCH = "javascripts/iframe-worker.js"
"""By this name Zensical recognises what makes search work from disk; without it a page asks unpkg.com for a script."""

SEARCH_SCRIPT = """\
// Browsers start no worker from a file. Where a page was opened from disk, the one that searches is started from here.
if (location.protocol === "file:") {
  const source = %s;
  window.Worker = class extends Worker {
    constructor() {
      super(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
    }
  };
}
"""
WORKERS = "templates/assets/javascripts/workers"
TARGET = re.compile(r'<(?:a|img|link|script)\b[^>]*?\s(?:href|src)="([^":#?]+)[^":]*"')
"""What a tag of HTML points to, in this site."""


# --- before Zensical ---


def assemble(folder: Path, *, run: bool) -> None:
    """Write everything that Zensical reads; with `run`, the notebooks have outputs."""
    sys.path.insert(0, str(ROOT / "lab" / "docs"))
    import results

    running = notebooks.run_missing() if run else []
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("*.py", "*.md", "tools", "__pycache__"))
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if page.parent == notebooks.FOLDER and page.stem in notebooks.NAMES:
            text = notebooks.with_link(text, page.stem)
        results.write(folder / page.relative_to(DOCS), text)
    results.write_pages(folder)
    statuses = [each.wait() for each in running]
    if any(statuses):
        sys.exit("a notebook could not be run: see above")
    notebooks.write(folder / notebooks.FOLDER.relative_to(DOCS))
    script = folder / SEARCH
    script.parent.mkdir(exist_ok=True)
    script.write_text(search_script(), encoding="utf-8")


def search_script() -> str:
    """A script with the source of Zensical's worker in it."""
    zensical = find_spec("zensical")
    assert zensical is not None
    assert zensical.origin is not None
    (worker,) = (Path(zensical.origin).parent / WORKERS).glob("search.*.js")
    return SEARCH_SCRIPT % json.dumps(worker.read_text(encoding="utf-8"))


# --- what Zensical does not look for ---


class Warnings(logging.Handler):
    """Keeps what mkdocstrings and griffe warn of, such as a parameter in a docstring that there is none of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


def misplaced(settings: dict[str, Any], pages: Path) -> Iterator[str]:
    """Pages that the navigation leaves out, and entries without a page."""
    listed = set(leaves(settings["project"]["nav"]))
    there = {page.relative_to(pages).as_posix() for page in pages.rglob("*.md")}
    for name in sorted(there - listed):
        yield f"{name} is not in the navigation ({SETTINGS.name})"
    for name in sorted(listed - there):
        yield f"{name} is in the navigation ({SETTINGS.name}), but there is no such page"


def leaves(entry: Any) -> Iterator[str]:
    """The pages of an entry of the navigation."""
    if isinstance(entry, str):
        yield entry
    for each in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from leaves(each)


def dead(site: Path) -> Iterator[str]:
    """What pages show or link to and the site has not, such as an image."""
    for page in sorted(site.rglob("*.html")):
        for target in sorted(set(TARGET.findall(page.read_text(encoding="utf-8")))):
            folder = site if target.startswith("/") else page.parent
            if not (folder / unquote(target).lstrip("/")).is_file():
                yield f"{page.relative_to(site)} points to {target}, which does not exist"


def main() -> None:
    """Assemble the pages, build the site, and look for what is wrong."""
    if find_spec("zensical") is None:
        sys.exit("the documentation needs Zensical (pip install 'selbo[docs]'), which needs Python 3.11 or newer")
    import tomllib
    import zensical

    assemble(PAGES, run="--notebooks" in sys.argv[1:])
    wrong = list(misplaced(tomllib.loads(SETTINGS.read_text(encoding="utf-8")), PAGES))
    warnings = Warnings()
    logging.getLogger().addHandler(warnings)
    shutil.rmtree(SITE, ignore_errors=True)
    try:
        zensical.build(str(SETTINGS), {"clean": False, "strict": True})
    except RuntimeError as error:
        sys.exit(str(error))
    finally:
        if warnings.found:  # Zensical would not warn again of the pages that it has kept
            for path in (ROOT / ".cache").glob("[0-9]*"):
                path.unlink()
    wrong += [*warnings.found, *dead(SITE)]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
