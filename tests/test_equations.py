"""`docs/explanation/equations.md`, the tags `Eq. (n)` in the code and the tests say the same.

One table row per equation: `| Eq. (n) | in words | function | test |`, the last two in backticks, several with commas.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
TAG = re.compile(r"Eq\. \((\d+)\)")
HAS_LABORATORY = find_spec("selbo_lab") is not None
in_a_checkout = pytest.mark.skipif(not (ROOT / "lab").is_dir(), reason="there is no laboratory beside the library")
UNESCAPED_BAR = re.compile(r"(?<!\\)\|")


class Row(NamedTuple):
    number: str
    functions: list[str]
    tests: list[str]


def tags(folder: Path) -> set[str]:
    """Numbers of all equations named in the Python files below `folder`, this file left out."""
    texts = (p.read_text(encoding="utf-8") for p in folder.rglob("*.py") if p != Path(__file__))
    return {number for text in texts for number in TAG.findall(text)}


def parse_rows(text: str) -> list[Row]:
    """The table rows whose first cell is a tag."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in UNESCAPED_BAR.split(line.strip())[1:-1]]
        if not cells or not (match := TAG.fullmatch(cells[0])):
            continue
        assert len(cells) == 4, f"a row has four cells, this one {len(cells)}: {line}"
        functions, tests = (re.findall(r"`([^`]+)`", cell) for cell in cells[2:])
        rows.append(Row(match[1], functions, tests))
    return rows


def resolve(dotted: str) -> list[object]:
    """The module, any class, and the object that `package.module.Class.method` names, from the outside in."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        try:
            chain: list[object] = [importlib.import_module(name)]
        except ModuleNotFoundError as error:
            if error.name is not None and not f"{name}.".startswith(f"{error.name}."):
                raise  # the module exists, but something it imports does not
            continue
        for part in parts[length:]:
            chain.append(inspect.getattr_static(chain[-1], part))
        return chain
    raise ModuleNotFoundError(dotted)


def carries_tag(dotted: str, number: str) -> bool:
    """Whether the object, a class around it, or the docstring of its module names the equation."""
    module, *rest = resolve(dotted)
    texts = [module.__doc__ or ""]
    for thing in rest:
        inner = thing.fget if isinstance(thing, property) else inspect.unwrap(getattr(thing, "__func__", thing))
        if not isinstance(inner, ModuleType) and (inspect.isclass(inner) or inspect.isroutine(inner)):
            texts.append(inspect.getsource(inner))
    return any(number in TAG.findall(text) for text in texts)


def has_test(reference: str) -> bool:
    """Whether `tests/path.py::[Class::]test_name` exists."""
    path, *names = reference.split("::")
    file = ROOT / path
    if not names or not file.is_file():
        return False
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for name in names:
        found = [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name]
        if not found:
            return False
        body = found[0].body
    return names[-1].startswith("test_")


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return parse_rows((ROOT / "docs" / "explanation" / "equations.md").read_text(encoding="utf-8"))


def test_every_equation_is_listed_once(rows: list[Row]) -> None:
    assert rows, (
        "docs/explanation/equations.md has no row such as | Eq. (5) | in words | `selbo.module.name` | `tests/...` |"
    )
    numbers = [row.number for row in rows]
    assert sorted(set(numbers), key=int) == sorted(numbers, key=int)


@in_a_checkout
def test_every_listed_equation_is_implemented_and_tested(rows: list[Row]) -> None:
    listed = {row.number for row in rows}
    assert listed == tags(ROOT / "src") | tags(ROOT / "lab" / "src")
    assert listed - tags(ROOT / "tests") - tags(ROOT / "lab" / "tests") == set()


def test_every_named_function_exists_and_carries_its_tag(rows: list[Row]) -> None:
    wrong = [
        f"Eq. ({row.number}): {name}"
        for row in rows
        for name in row.functions
        if (HAS_LABORATORY or not name.startswith("selbo_lab.")) and not carries_tag(name, row.number)
    ]
    assert wrong == []
    assert [row.number for row in rows if not row.functions] == []


@in_a_checkout
def test_every_named_test_exists(rows: list[Row]) -> None:
    assert [f"Eq. ({row.number}): {test}" for row in rows for test in row.tests if not has_test(test)] == []
    assert [row.number for row in rows if not row.tests] == []


# --- the checks themselves ---


def test_rows_are_parsed() -> None:
    text = r"""
Prose may speak of Eq. (9).

| Eq. | in words | function | test |
|---|---|---|---|
| Eq. (3) | density of $s \mid h$, with a bar \| inside | `a.b.c`, `a.b.C.d` | `tests/t.py::test_x` |
"""
    assert parse_rows(text) == [Row("3", ["a.b.c", "a.b.C.d"], ["tests/t.py::test_x"])]


def test_names_are_resolved() -> None:
    assert resolve("json.decoder.JSONDecoder.decode")[-1].__name__ == "decode"
    with pytest.raises(AttributeError, match="no_such_name"):
        resolve("json.decoder.no_such_name")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        resolve("no_such_package.function")
    assert not carries_tag("json.decoder.JSONDecoder.decode", "3")


def test_tests_are_found() -> None:
    here = Path(__file__).relative_to(ROOT).as_posix()
    assert has_test(f"{here}::test_tests_are_found")
    assert not has_test(f"{here}::test_of_nothing")
    assert not has_test(f"{here}::has_test")
    assert not has_test("tests/nowhere.py::test_tests_are_found")
    assert not has_test(here)
