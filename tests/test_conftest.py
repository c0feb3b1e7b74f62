"""`--only-stochastic` leaves out the tests of a folder that draw no random numbers, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


class Item:
    def __init__(self, name: str) -> None:
        self.name, self.path = name, ROOT / name.partition("::")[0]

    def get_closest_marker(self, marker: str) -> bool:
        return marker == "stochastic" and self.name.endswith("[seed0]")


def test_only_the_stochastic_tests_of_a_folder_stay(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plugin,) = (
        each
        for each in pytestconfig.pluginmanager.get_plugins()
        if getattr(each, "__file__", None) == str(ROOT / "conftest.py")
    )
    names = [
        "tests/unit/a.py::one",
        "tests/unit/a.py::two[seed0]",
        "tests/unit/deep/b.py::three",
        "tests/units.py::four",
        "lab/tests/unit/c.py::five",
        "lab/tests/unit/d.py::six",
    ]
    items, gone = [Item(name) for name in names], []
    monkeypatch.setattr(pytestconfig.option, "only_stochastic", ["tests/unit", "lab/tests/unit/d.py"])
    monkeypatch.setattr(pytestconfig.hook, "pytest_deselected", lambda *, items: gone.extend(items))
    plugin.pytest_collection_modifyitems(pytestconfig, items)
    assert [each.name for each in items] == [names[1], names[3], names[4]]
    assert [each.name for each in gone] == [names[0], names[2], names[5]]
