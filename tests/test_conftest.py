"""Options of ours choose the right tests, and tests can interrupt commands wherever they run."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]


class Item:
    def __init__(self, name: str) -> None:
        self.name, self.path = name, ROOT / name.partition("::")[0]

    def get_closest_marker(self, marker: str) -> bool:
        return self.name.endswith({"stochastic": "[seed0]", "slow": "_slowly"}[marker])


@pytest.fixture
def plugin(pytestconfig: pytest.Config) -> ModuleType:
    (found,) = (
        each
        for each in pytestconfig.pluginmanager.get_plugins()
        if getattr(each, "__file__", None) == str(ROOT / "conftest.py")
    )
    return found


@pytest.mark.parametrize(("no_repeats", "stay"), [(False, [1, 3, 4, 6]), (True, [3, 4, 6])])
def test_only_the_stochastic_and_slow_tests_of_a_folder_stay(
    no_repeats: bool,
    stay: list[int],
    plugin: ModuleType,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [
        "tests/unit/a.py::one",
        "tests/unit/a.py::two[seed0]",
        "tests/unit/deep/b.py::three",
        "tests/units.py::four",
        "lab/tests/unit/c.py::five",
        "lab/tests/unit/d.py::six",
        "lab/tests/unit/d.py::seven_slowly",
    ]
    items, gone = [Item(name) for name in names], []
    monkeypatch.setattr(pytestconfig.option, "only_stochastic", ["tests/unit", "lab/tests/unit/d.py"])
    monkeypatch.setattr(pytestconfig.option, "no_repeats", no_repeats)
    monkeypatch.setattr(pytestconfig.option, "first", [])
    monkeypatch.setattr(pytestconfig.hook, "pytest_deselected", lambda *, items: gone.extend(items))
    plugin.pytest_collection_modifyitems(pytestconfig, items)
    assert [each.name for each in items] == [names[i] for i in stay]
    assert [each.name for each in gone] == [name for i, name in enumerate(names) if i not in stay]


@pytest.mark.parametrize("no_repeats", [False, True])
def test_files_without_a_stochastic_or_slow_test_are_not_imported(
    no_repeats: bool, plugin: ModuleType, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pytestconfig.option, "only_stochastic", [str(tmp_path / "unit")])
    monkeypatch.setattr(pytestconfig.option, "no_repeats", no_repeats)
    out = no_repeats or None
    (tmp_path / "unit").mkdir()
    for name, text, left_out in (
        ("unit/plain.py", "def test_one():\n    seed = 3\n", True),
        ("unit/drawn.py", "def test_one(kind: str,\n    seed: int,\n) -> None: ...\n", out),
        ("unit/by_fixture.py", "@pytest.fixture\ndef data(seed): ...\n\ndef test_one(data): ...\n", out),
        ("unit/slow.py", "@pytest.mark.slow\ndef test_one(): ...\n", None),
        ("elsewhere.py", "def test_one(): ...\n", None),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert plugin.pytest_ignore_collect(tmp_path / name, pytestconfig) is left_out
    assert plugin.pytest_ignore_collect(tmp_path / "unit", pytestconfig) is None


def test_slow_tests_are_where_the_slow_ring_looks_for_them() -> None:
    marked = [
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "tests", "lab")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"^@pytest\.mark\.slow\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert marked
    assert [path for path in marked if not path.startswith(("tests/unit/", "lab/tests/"))] == []


def test_the_tests_of_a_folder_come_first_and_all_keep_their_order(
    plugin: ModuleType, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["tests/a.py::one", "lab/b.py::two", "tests/c.py::three", "lab/deep/d.py::four", "lab/deep/d.py::five"]
    items = [Item(name) for name in names]
    monkeypatch.setattr(pytestconfig.option, "first", ["lab/deep", "tests/c.py"])
    monkeypatch.setattr(pytestconfig.option, "only_stochastic", [])
    plugin.pytest_collection_modifyitems(pytestconfig, items)
    assert [each.name for each in items] == [names[2], names[3], names[4], names[0], names[1]]


def test_commands_can_be_interrupted_where_pytest_is_a_background_job(plugin: ModuleType) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts such a job
    try:
        config = SimpleNamespace(pluginmanager=SimpleNamespace(register=lambda *_: None), getoption=lambda *_: None)
        plugin.pytest_configure(config)
        asked = "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
        found = subprocess.run([sys.executable, "-S", "-c", asked], capture_output=True, text=True, check=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert found.stdout == "False\n"


def test_only_the_tests_of_a_folder_are_measured_and_imports_too(tmp_path: Path) -> None:
    for name, text in {
        "conftest.py": (ROOT / "conftest.py").read_text(encoding="utf-8"),
        "pkg/__init__.py": "",
        "pkg/part.py": "def reached():\n    return 1\n\n\ndef missed():\n    return 2\n",
        "own/test_own.py": "from pkg import part\n\n\ndef test_own():\n    assert part.reached() == 1\n",
        "other/test_other.py": "from pkg import part\n\n\ndef test_other():\n    assert part.missed() == 2\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    run = [sys.executable, "-m"]
    options = ["-q", "-p", "no:cacheprovider", "--measure=pkg=own", "."]
    for arguments in (["pytest", *options], ["coverage", "combine", "-q"], ["coverage", "json", "-q"]):
        subprocess.run([*run, *arguments], cwd=tmp_path, capture_output=True, check=True)
    files = json.loads((tmp_path / "coverage.json").read_text(encoding="utf-8"))["files"]
    assert files["pkg/part.py"]["executed_lines"] == [1, 2, 5]
