"""What a user installs: the wheel of the library holds all of it and nothing of the laboratory, and vice versa."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OF_THE_REPOSITORY = re.compile(r"__file__.*/ \"(benchmarks|docs|examples|lab|src)\"")
OF_THE_LABORATORY = re.compile(r"stud(y|ies)|corrupt|published|mnist|cifar|svhn|sst|fashion|idx|jpeg|latex|lab\b")


def wheel_contents(project: Path, folder: Path) -> set[str]:
    """Names of the files that the wheel of a project holds, apart from those about itself."""
    wheel = pytest.importorskip("hatchling.builders.wheel")
    (built,) = wheel.WheelBuilder(str(project)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(built) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


def package_contents(package: Path) -> set[str]:
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(package.parent).as_posix() for path in files}


def test_the_library_has_no_study_corruption_or_data_set_inside(tmp_path: Path) -> None:
    found = wheel_contents(ROOT, tmp_path)
    assert found == package_contents(ROOT / "src" / "selbo")
    assert [name for name in found if OF_THE_LABORATORY.search(name)] == []


@pytest.mark.parametrize("name", ["studies/a.toml", "report/study_page.html", "data/svhn.py", "data/corruptions/a.py"])
def test_the_search_finds_what_belongs_to_the_laboratory(name: str) -> None:
    assert OF_THE_LABORATORY.search(f"selbo/{name}")


@pytest.mark.skipif(not (ROOT / "lab").is_dir(), reason="there is no laboratory beside the library")
def test_the_laboratory_has_its_studies_and_nothing_of_the_library(tmp_path: Path) -> None:
    found = wheel_contents(ROOT / "lab", tmp_path)
    studies = {f"selbo_lab/studies/{path.name}" for path in (ROOT / "lab" / "studies").glob("*.toml")}
    assert len(studies) > 10
    assert found == package_contents(ROOT / "lab" / "src" / "selbo_lab") | studies


@pytest.mark.parametrize("folder", ["unit", "properties", "statistical", "end_to_end"])
def test_tests_of_the_library_need_no_other_folder(folder: str) -> None:
    """They also run where only the wheel is installed; those of the repository stand beside this file."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests" / folder).rglob("test_*.py")}
    assert texts
    assert [name for name, text in texts.items() if OF_THE_REPOSITORY.search(text)] == []


def test_the_search_finds_a_path_to_another_folder() -> None:
    text = (ROOT / "tests" / "test_language_models.py").read_text(encoding="utf-8")
    assert OF_THE_REPOSITORY.search(text)
