"""A store of its own for each test, and the store with the real files where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from selbo_lab.data import store
from selbo_lab.data.store import Source

CHECKOUT = Path(__file__).parents[4]


@pytest.fixture
def data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty store."""
    root = tmp_path / "store"
    monkeypatch.setenv("SELBO_DATA", str(root))
    return root


class RealData:
    """The store with the real files: `SELBO_DATA`, or `.data` in the checkout, which `.ci/data` fills."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def needs(self, source: Source) -> None:
        """Skip the test where the files are absent."""
        if not store.present(source):
            pytest.skip(f"the files of {source.name} are not in {self.root}")


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> RealData:
    root = Path(os.environ.get("SELBO_DATA") or CHECKOUT / ".data")
    monkeypatch.setenv("SELBO_DATA", str(root))
    return RealData(root)
