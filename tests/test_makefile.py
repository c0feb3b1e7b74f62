"""The recipes of the Makefile, run with the tools replaced: what they show, and when they fail."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[1] / "Makefile"
WARNING = "WARNING: this archive has no hash"

pytestmark = pytest.mark.skipif(
    shutil.which("make") is None or not MAKEFILE.exists(), reason="needs make, and a checkout"
)


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile beside an environment in which nothing is installed."""
    shutil.copy(MAKEFILE, tmp_path)
    for name in ("pyproject.toml", "lab/pyproject.toml", "constraints.txt", ".venv/.created"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for tool in ("ruff", "mypy"):
        script(tmp_path / ".venv/bin" / tool, "true")
    script(tmp_path / ".venv/bin/selbo", 'echo "selbo $*"')
    return tmp_path


def make(folder: Path, target: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", target], cwd=folder, capture_output=True, text=True, check=False, env=environment)


def test_pip_is_quiet_if_it_succeeds(checkout: Path) -> None:
    script(checkout / ".venv/bin/python", f'echo "{WARNING}" >&2; echo "pip $*" >> asked')
    done = make(checkout, "demo")
    assert done.returncode == 0, done.stderr
    assert WARNING not in done.stdout + done.stderr
    assert "Installing selbo[cli] into .venv" in done.stdout
    assert done.stdout.endswith("selbo demo --out demo\n")
    asked = (checkout / "asked").read_text(encoding="utf-8").splitlines()
    assert [each.split()[-1] for each in asked] == ["editables", ".[cli]"]
    assert "lab" not in asked[-1]  # the demonstration needs the library alone


def test_tests_need_the_laboratory_too(checkout: Path) -> None:
    script(checkout / ".venv/bin/python", 'echo "$*" >> asked')
    script(checkout / ".venv/bin/coverage", "true")
    done = make(checkout, "test")
    assert done.returncode == 0, done.stderr
    asked = (checkout / "asked").read_text(encoding="utf-8").splitlines()
    assert [each.split()[-1] for each in asked[:3]] == ["editables", ".[test]", "./lab"]  # which needs the library


def test_what_was_installed_to_check_is_not_installed_again_to_test(checkout: Path) -> None:
    script(checkout / ".venv/bin/python", 'echo "$*" >> asked')
    script(checkout / ".venv/bin/coverage", "true")
    for target in ("check", "test", "docs"):
        done = make(checkout, target)
        assert done.returncode == 0, done.stderr
    asked = (checkout / "asked").read_text(encoding="utf-8").splitlines()
    assert [each.split()[-1] for each in asked if " pip " in each] == ["editables", ".[dev]", "./lab"]
    newer = (checkout / ".venv/.installed-check").stat().st_mtime + 60
    os.utime(checkout / "constraints.txt", (newer, newer))
    assert make(checkout, "test").returncode == 0
    asked = (checkout / "asked").read_text(encoding="utf-8").splitlines()
    assert sum(each.endswith(".[dev]") for each in asked) == 2  # for other versions


@pytest.mark.parametrize("failing", ["ruff", "mypy", "docs/tools/build.py"])
def test_each_check_fails_by_itself(checkout: Path, failing: str) -> None:
    for tool in ("python", "ruff", "mypy"):
        script(checkout / ".venv/bin" / tool, f'case "{tool} $*" in *{failing}*) exit 3;; esac')
    done = make(checkout, "check")
    assert done.returncode != 0
    assert "Error 3" in done.stderr


@pytest.mark.parametrize(("failing", "stamps"), [("editables", set()), (".[cli]", {".build-tools"})])
def test_pip_is_shown_whole_if_it_fails(checkout: Path, failing: str, stamps: set[str]) -> None:
    fault = f'case "$*" in *"{failing}") echo "ERROR: no such  package"; exit 3;; esac'
    script(checkout / ".venv/bin/python", f'echo "{WARNING}" >&2\n{fault}')
    done = make(checkout, "demo")
    assert done.returncode != 0
    assert f"{WARNING}\nERROR: no such  package\n" in done.stderr
    assert "Error 3" in done.stderr
    assert {each.name for each in (checkout / ".venv").glob(".*")} == {".created", *stamps}  # it is tried again


@pytest.mark.parametrize("target", ["check", "docs"])
@pytest.mark.parametrize("dead", [False, True])
def test_the_build_of_the_documentation_is_shown_if_it_fails(checkout: Path, target: str, dead: bool) -> None:
    script(
        checkout / ".venv/bin/python", f'case "$*" in *build.py*) echo "page does not  exist"; exit {3 * dead};; esac'
    )
    done = make(checkout, target)
    shown = done.stdout + done.stderr
    assert (done.returncode == 0) == (not dead), shown
    assert ("page does not  exist" in done.stderr) == dead
    assert ("page does not" in shown) == dead
